"""Built-in corpora: generated without downloads, with gold word alignments where these make sense.

    from regard.data.builtin import generate
    for example in generate("phrasebook", 30_000, pair="en-fr", longest=12):
        print(example.source, example.target, example.alignment)

A hash of its source alone assigns an example to training, validation (2 %) or test (2 %), so that no seed and no
count can move a test sentence into training. The second edition of the phrasebook hashes the source without
contractions: "I don't" and "I do not" are in the same split, and only one of them is generated. The same arguments give
the same examples on every machine and every version of Python.

A corpus may have several editions. The first is bit for bit the text of all versions before there was a second, so that
runs trained on it can be resumed. The second is text as people type it. See `has_editions`.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, get_args

from regard import plugins
from regard.config import show_value
from regard.errors import ArgumentError
from regard.io import disk, format_pharaoh
from regard.messages import nearest_word

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

Split = Literal["train", "valid", "test"]
MAX_WORDS = 10_000  # maximum number of words or sentences in an option
SourceFilter = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A source, its target and the alignment of their words, which are separated by single spaces."""

    source: str
    target: str
    # Gold links (source word, target word), sorted; () if there are none.
    alignment: tuple[tuple[int, int], ...] = ()
    source_heads: tuple[int, ...] = ()  # phrasebook: index of each word's head, -1 for the root
    target_heads: tuple[int, ...] = ()
    # Phrasebook: the Universal Dependencies relation of each word to its head.
    source_relations: tuple[str, ...] = ()
    target_relations: tuple[str, ...] = ()


class PicturedExample(Protocol):
    """An example with a picture of `size` × `size` pixels, and the box of each shape in it.

    Each of the scene's `shapes` has a size, a colour and a kind, and may be ringed. `speaks_of` gives for each word of
    the caption the index of the shape that it refers to, -1 for none.
    """

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def scene(self) -> Any: ...
    @property
    def speaks_of(self) -> tuple[int, ...]: ...
    @property
    def boxes(self) -> tuple[tuple[int, int, int, int], ...]: ...

    def picture(self) -> "UInt8[np.ndarray, 'h w 3']": ...


class BuiltIn(NamedTuple):
    """A row of CORPORA: a corpus's description, code and form.

    The code has `Options`, a dataclass, and two functions that return iterators of examples. `draw(random, accept,
    options)` draws them with numbers from [0, 1). `every(accept, options)` yields each example once, or returns None if
    they cannot be listed. `accept` returns whether a source is new and in the split; if not, the functions yield None
    in place of the example, without making its target.
    """

    about: str
    corpus: Any  # a module, an object with the same names, or the dotted name of a module, which is imported when used
    form: Literal["text", "documents", "pictures"] = "text"


CORPORA = plugins.table("corpus")
# The cache name of each edition's examples; that of the first is the hash of the code that first generated it. A name
# changes only if the same arguments give other examples, not if the code changes; a test notices it.
EDITIONS = {1: "9dfef61bc16048bc641466995108b1c5b13c88a689054a509f8804a5fb3a34a7", 2: "2-natural-text-2"}
EDITION = max(EDITIONS)  # the edition of new configurations
PATIENCE = 100_000  # draws without a new example after which a corpus counts as exhausted
HASTE = 5_000  # the same for a corpus that can be listed; the remaining examples then come from the list


def generate(
    name: str,
    count: int,
    *,
    seed: int = 0,
    split: Split = "train",
    pair: str = "en-de",
    edition: int = EDITION,
    **options: Any,
) -> Iterator[Example]:
    """Yield `count` different examples of a corpus, one at a time.

    `pair` is for corpora of two languages, such as the phrasebook: en-de or en-fr. `edition` is for corpora with
    several editions: 1 is the text that earlier versions generated, 2 text as people type it. Other options are the
    corpus's own; see its module, or `options_of`. If the split has fewer different examples, the function yields them
    all and then raises an ArgumentError with their number. It keeps an 8-byte hash of each source in memory.
    """
    module = corpus(name)
    check_whole("count", count, 0, 10**12)
    if split not in get_args(Split):
        raise ArgumentError(f"split: {split!r} given, {suggest_names(get_args(Split), split)}")
    check_whole("seed", seed, 0, 2**64)
    check_whole("edition", edition, 1, EDITION)
    allowed = options_of(name)
    for option in options:
        if option not in allowed:
            raise ArgumentError(f"{name}: there is no option {option!r}, {suggest_names(tuple(allowed), option)}")
    if has_pair(name):
        options["pair"] = pair
    if has_editions(name):
        options["edition"] = edition
    return draw_examples(name, module, count, seed, split, module.Options(**options))


def options_of(name: str) -> dict[str, Any]:
    """Return a corpus's own options and their defaults."""
    fields = dataclasses.fields(corpus(name).Options)
    return {field.name: field.default for field in fields if field.name not in ("pair", "edition")}


def find_example(
    name: str, text: str, *, pair: str = "en-de", edition: int = EDITION, tries: int | None = None
) -> Example | None:
    """Return the example with exactly this source; None if there is none, or the corpus has no search."""
    finder = getattr(corpus(name), "find_example", None)
    limits = {} if tries is None else {"tries": tries}
    return None if finder is None else finder(text, pair, edition, **limits)


def has_pair(name: str) -> bool:
    """Return whether a corpus is bilingual, with an option `pair` for the languages."""
    return "pair" in corpus(name).Options.__dataclass_fields__


def has_editions(name: str) -> bool:
    """Return whether a corpus has several editions, numbered by its option `edition`."""
    return "edition" in corpus(name).Options.__dataclass_fields__


def edition_of(name: str, edition: int = EDITION) -> str:
    """Return the name of a corpus's examples in caches: its row of EDITIONS, or for a plugin's corpus a code hash."""
    module = corpus(name)
    if plugins.is_own(str(getattr(module, "__name__", ""))):
        return EDITIONS[edition if has_editions(name) else 1]
    return hashlib.sha256(Path(inspect.getfile(module.draw)).read_bytes()).hexdigest()


def corpus(name: str) -> Any:
    """Return the module of a corpus."""
    if name not in CORPORA:
        raise ArgumentError(f"there is no built-in corpus {name!r}, {suggest_names(tuple(CORPORA), name)}")
    value: Any = CORPORA[name].corpus
    if isinstance(value, str):
        value = importlib.import_module(value)
    return value


def suggest_names(names: tuple[str, ...], wrong: object) -> str:
    """Suggest the name that the user may have meant, and list all names."""
    near = nearest_word(wrong, names)
    return (f"did you mean {near!r}? " if near else "") + f"there are {', '.join(names)}"


def hash_source(source: str) -> int:
    """Hash a source to 64 bits, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "little")


def choose_split(code: int) -> Split:
    """Choose the split of a source by its hash."""
    place = code % 100
    return "train" if place > 3 else "valid" if place < 2 else "test"


def draw_examples(name: str, module: Any, count: int, seed: int, split: Split, options: Any) -> Iterator[Example]:
    hashes: set[int] = set()

    def accept(source: str) -> bool:
        code = hash_source(source)
        if code in hashes or choose_split(code) != split:
            return False
        hashes.add(code)
        return True

    listed = module.every(accept, options) is not None

    def draw_then_list() -> Iterator[Example | None]:
        waited = 0
        for example in module.draw(random.Random(seed).random, accept, options):
            waited = waited + 1 if example is None else 0
            if waited > (HASTE if listed else PATIENCE):
                break
            yield example
        yield from module.every(accept, options) or ()

    yielded = 0
    for example in itertools.islice((each for each in draw_then_list() if each is not None), count):
        yield example
        yielded += 1
    if yielded == count:
        return
    there = "there are only" if listed else f"{PATIENCE:,} draws in a row yielded only"
    raise ArgumentError(f"{name}: {count:,} examples wanted, but {there} {yielded:,} different ones for {split}")


def check_whole(name: str, value: object, lowest: int, highest: int) -> None:
    """Raise an ArgumentError if an option is not an integer from `lowest` to `highest`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ArgumentError(f"{name}: {show_value(value)} given, expected a whole number of at least {lowest}")
    if value > highest:
        raise ArgumentError(f"{name}: {show_value(value)} given, expected at most {highest}")


def check_name(name: str, value: object, names: Iterable[str]) -> None:
    """Raise an ArgumentError if an option is not one of `names`."""
    if not isinstance(value, str) or value not in (names := tuple(names)):
        raise ArgumentError(f"{name}: {show_value(value)} given, expected one of {', '.join(names)}")


# ---- as files, in the usual formats of parallel corpora


Written = Callable[[str, Example], tuple[str, ...]]  # maps an example's number and the example to its line in each file


def write_corpus(
    name: str,
    folder: Path,
    counts: Mapping[Split, int],
    *,
    seed: int = 0,
    pair: str = "en-de",
    edition: int = EDITION,
    force: bool = False,
    **options: Any,
) -> Iterator[tuple[Path, int]]:
    """Write a corpus split by split; yield each file, once complete, with its number of lines.

    Files appear under their names once complete. Without `force`, an existing file raises an ArgumentError. Splits
    without examples are not written.
    """
    streams = {
        split: generate(name, n, seed=seed, split=split, pair=pair, edition=edition, **options)
        for split, n in counts.items()
        if n
    }
    sides = tuple(pair.split("-")) if has_pair(name) else ("source", "target")
    ends = [*sides, "align"]
    if has_pair(name):
        ends += [f"{side}.{what}" for what in ("heads", "relations") for side in sides]
    as_lines: Written = example_lines
    if CORPORA[name].form == "documents":
        ends, as_lines = ["tsv", "align"], lambda _, each: (f"{each.target}\t{each.source}", example_lines("", each)[2])
    if CORPORA[name].form == "pictures":
        with_question = options.get("question", "none") != "none"
        ends, as_lines = ["labels.tsv" if with_question else "captions.tsv", "gold.jsonl"], album(folder / "images")
    if not force:
        for split, end in itertools.product(streams, ends):
            if (path := folder / f"{split}.{end}").exists():
                raise ArgumentError(f"{path} already exists; --force overwrites it")
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in streams.items():
        paths = [folder / f"{split}.{end}" for end in ends]
        count = 0
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(disk.replacing(path)) for path in paths]
            for example in examples:
                for file, line in zip(files, as_lines(f"{split}-{count:06d}", example), strict=False):
                    file.write(f"{line}\n".encode())
                count += 1
        for path in paths:
            yield path, count


def example_lines(number: str, example: Example) -> tuple[str, ...]:
    """Return the line of an example in each file."""
    heads = (" ".join(map(str, side)) for side in (example.source_heads, example.target_heads))
    relations = map(" ".join, (example.source_relations, example.target_relations))
    return example.source, example.target, format_pharaoh(example.alignment), *heads, *relations


def album(folder: Path) -> Written:
    """Return a function that saves an example's picture and returns its lines in the two files."""
    from PIL import Image

    disk.remove_leftovers(folder)

    def saved(number: str, example: Example) -> tuple[str, str]:
        pictured, name = cast(PicturedExample, example), f"{number}.png"
        folder.mkdir(parents=True, exist_ok=True)
        with disk.replacing(folder / name, many=True) as file:
            Image.fromarray(pictured.picture()).save(file, "PNG")
        shapes = [
            {"size": shape.size, "colour": shape.colour, "kind": shape.kind, "ringed": shape.ringed, "box": box}
            for shape, box in zip(pictured.scene.shapes, pictured.boxes, strict=True)
        ]
        gold = {"picture": name, "scene": pictured.source, "shapes": shapes, "speaks_of": pictured.speaks_of}
        return f"{name}\t{pictured.target}", json.dumps(gold)

    return saved
