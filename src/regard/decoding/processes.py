"""Sharing work among the processes that `torchrun` started, with results in order.

Blocks are dealt out in turn: of every `world` of them each process does one. Then all tell each other what came of it,
and go on. So nothing is kept in files, results stream in order from one process, hosts need no disk in common, and a
process that fails is known to the others at the end of the round.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any, Self, TypeVar

from regard.errors import CommandError, RegardError
from regard.machine import MPS, auto_device

DEVICES = ("cpu", "cuda", "mps")
B = TypeVar("B")
R = TypeVar("R")


class Processes:
    """One process, or as many as torchrun started; a context manager that ends the group."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.own = False

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this process; auto is a GPU where there is one, and each process of a host has its own."""
        import torch

        count = torch.cuda.device_count()
        if name == "auto":
            name = auto_device()
            if name == "mps" and self.first:
                print(f"regard: {MPS}", file=sys.stderr)
        kind, _, index = name.partition(":")
        if kind not in DEVICES or not re.fullmatch("[0-9]{0,4}", index) or (kind != "cuda" and index):
            raise CommandError(f"--device: {name!r} given, expected auto, cpu, mps, cuda, or cuda:1 and so on")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise CommandError("--device: mps given, but torch finds no Apple GPU")
        if kind != "cuda":
            return name
        if not count:
            raise CommandError(f"--device: {name} given, but torch finds no CUDA device")
        if index and int(index) >= count:
            raise CommandError(f"--device: {name} given, but there are {count} CUDA devices, counted from 0")
        return name if index else f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % count}"

    def __enter__(self) -> Self:
        if self.world > 1:
            import torch.distributed as dist

            if not dist.is_initialized():
                try:  # gloo, whatever the models are on: what is answers is text, and a block may take long
                    dist.init_process_group("gloo", timeout=timedelta(days=1))
                except (ValueError, RuntimeError) as error:
                    why = str(error).splitlines()[0]
                    raise CommandError(
                        f"RANK and WORLD_SIZE: process {self.rank} of {self.world} given, but they cannot connect "
                        f"({why}); start them with torchrun"
                    ) from None
                self.own = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.own:
            import torch.distributed as dist

            dist.destroy_process_group()
            self.own = False

    def share(self, blocks: Iterable[B], work: Callable[[B], R]) -> Iterator[R]:
        """Compute `map(work, blocks)`, in order, on every process; each does its share.

        An error of one is an error of all: its own there, and a CommandError that repeats it elsewhere.
        """
        if self.world == 1:
            yield from map(work, blocks)
            return
        waiting = iter(blocks)
        while dealt := list(islice(waiting, self.world)):
            result, error = None, None
            if self.rank < len(dealt):
                try:
                    result = work(dealt[self.rank])
                except RegardError as failure:
                    error = failure
            answers = self.gather((result, None if error is None else str(error)))
            if error is not None:
                raise error
            for rank, (_, problem) in enumerate(answers):
                if problem is not None:
                    raise CommandError(f"stopped, because process {rank} failed: {problem}")
            yield from (each for each, _ in answers[: len(dealt)])

    def gather(self, thing: Any) -> list[Any]:
        """Gather one object from every process, by rank."""
        if self.world == 1:
            return [thing]
        import torch.distributed as dist

        answers: list[Any] = [None] * self.world
        try:
            dist.all_gather_object(answers, thing)
        except RuntimeError as error:  # the other end of a connection is gone
            raise CommandError(f"stopped, because another process is gone: {str(error).splitlines()[0]}") from None
        return answers
