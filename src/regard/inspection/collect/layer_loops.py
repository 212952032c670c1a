"""Loops over layers: a line of code that runs once for every layer becomes one box for each of them.

A loop over steps reads the same modules again and again. One over layers reads at each turn those of another layer: its
first turn is no step before the second.
"""

from collections.abc import Mapping

from torch import nn

from regard.inspection.collect.units import Output, Unit


def split_layer_loops(units: dict[str, Unit], modules: Mapping[str, nn.Module]) -> None:
    """Replace each operation that runs once for every layer by a unit for each layer."""
    for unit in list(units.values()):
        if unit.kind == "operation" and unit.calls > 1 and is_layer_loop(unit, units, modules):
            split(unit, units)


def is_layer_loop(unit: Unit, units: Mapping[str, Unit], modules: Mapping[str, nn.Module]) -> bool:
    """Return whether each call reads the modules of one layer alone, a different layer each time."""
    layers = [{number_in_list(units[each], modules) for each in reads} for reads in unit.reads]
    numbers = {number for layer in layers for number in layer}
    return all(len(layer) == 1 for layer in layers) and None not in numbers and len(numbers) == len(layers)


def number_in_list(unit: Unit, modules: Mapping[str, nn.Module]) -> int | None:
    """Return the index of a module in the list that holds it; None where no list does."""
    around, _, key = unit.module.rpartition(".")
    return int(key) if unit.kind == "module" and isinstance(modules.get(around), nn.ModuleList) else None


def split(unit: Unit, units: dict[str, Unit]) -> None:
    """Replace a unit by one for each of its calls, also where others read it."""
    del units[unit.id]
    for call in range(1, unit.calls + 1):
        one = Unit(
            name_of(unit, call), unit.kind, unit.module, unit.operation, unit.phase, unit.times[call - 1], unit.shape
        )
        one.reads, one.outputs_read = [unit.reads[call - 1]], [unit.outputs_read[call - 1]]
        one.note, one.layer = unit.note, (call, unit.calls)
        units[one.id] = one
    for reader in units.values():
        for reads, outputs in zip(reader.reads, reader.outputs_read, strict=True):
            if unit.id in reads:
                reads.remove(unit.id)
                mine = [each for each in outputs if each.unit == unit.id]
                reads.update(name_of(unit, each.call) for each in mine)
                outputs.difference_update(mine)
                outputs.update(Output(name_of(unit, each.call), 1) for each in mine)
        all_reads = set[str]().union(*reader.reads)
        for turns in reader.site_reads.values():
            for turn in turns:
                if unit.id in turn:
                    turn.remove(unit.id)
                    turn.update(all_reads & {name_of(unit, call) for call in range(1, unit.calls + 1)})


def name_of(unit: Unit, call: int) -> str:
    """Return the id of the unit that stands for one call of another."""
    return f"{unit.id} in layer {call}"
