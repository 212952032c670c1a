"""Stand-ins for the inputs of a documented command: small files and tiny runs, in a folder that was empty before.

`prepare(words, folder, runs)` writes the files that the command names, according to their options, and returns the
command to run: the same words, with few steps and little data if it trains or generates.
"""

import glob
import gzip
import itertools
import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pretrained import NLLB_LANGUAGES, m2m100_folder, marian_folder
from tiny import write_pictures

from regard.cli.commands.configs import shipped_configs
from regard.data import generate
from regard.interop import export_model, import_model, pack

TEXTS = {"--source", "--target", "--valid-source", "--valid-target", "--reference", "--hypothesis", "--prefixes"}
TEXTS |= {"--check"}  # of export; a switch of train
TEXT_KEYS = {"source", "target", "valid_source", "valid_target"}
PICTURES = {".jpg", ".png"}
TRAIN, TEST = 240, 6  # sentences
NLLB = {  # runs imported from NLLB, with the languages of their targets
    "runs/nllb": "deu_Latn",
    "runs/talks-gsw": "gsw_Latn",
}
IMPORTED = {"runs/opus", "runs/talks-opus", *NLLB}  # runs imported from other toolkits


@cache
def sentences(count: int = TRAIN) -> tuple[list[str], list[str], list[str]]:
    """Return English, German, and the links between their words."""
    examples = list(generate("phrasebook", count, longest=8))
    links = [" ".join(f"{i}-{j}" for i, j in each.alignment) for each in examples]
    return [each.source for each in examples], [each.target for each in examples], links


def write(path: Path, lines: list[str]) -> None:
    """Write lines, compressed if the name has such a suffix; keep an existing file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    if not path.exists():
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_text(path: Path, count: int = TEST, repeat: int = 1) -> None:
    """Write sentences in the language that the file's name indicates."""
    english, german, _ = sentences()
    write(path, (german if {".de", ".phonemes"} & set(path.suffixes) else english)[:count] * repeat)


def write_pairs(path: Path) -> None:
    """Write sentences and their translations, separated by tabs."""
    write(path, ["\t".join(pair) for pair in zip(*sentences()[:2], strict=True)])


def write_links(path: Path, count: int = TEST, first: int = 0) -> None:
    """Write gold links, counted from 0 or from 1."""
    shifted = []
    for line in sentences()[2][:count]:
        pairs = (link.split("-") for link in line.split())
        shifted.append(" ".join(f"{int(i) + first}-{int(j) + first}" for i, j in pairs))
    write(path, shifted)


def write_documents(path: Path, label: Any = 1, text: Any = 2) -> None:
    """Write reviews with their labels, in the columns or under the keys that the command names."""
    lines = []
    for each in generate("reviews", 60):
        if isinstance(label, str):
            outer, _, inner = str(text).partition(".")
            lines.append(json.dumps({label: each.target, outer: {inner: each.source} if inner else each.source}))
        else:
            cells = ["0"] * max(label, text)
            cells[label - 1], cells[text - 1] = each.target, each.source
            lines.append("\t".join(cells))
    write(path, lines)


def write_images(folder: Path, captions: list[Path], labels: Path | None, lists: list[Path]) -> None:
    """Write pictures with captions, as a TSV file or in Flickr8k's format, divided among several files."""
    home = folder.parent / f".{folder.name}"
    if not folder.exists():
        write_pictures(home, 24, "none" if labels is None else "which-size")
        shutil.move(home / "pictures", folder)
    lines = (home / ("captions.tsv" if labels is None else "labels.tsv")).read_text()
    rows = [line.split("\t") for line in lines.splitlines()]
    for number, path in enumerate(captions):
        flickr = "token" in path.name
        write(path, [f"{name}{'#0' * flickr}\t{text}" for name, text in rows[number :: len(captions)]])
    if labels is not None:
        write(labels, ["\t".join(row) for row in rows])
    for number, path in enumerate(lists):  # of training, of validation, of a test
        write(path, [name for name, _ in rows[number % 2 :: 2]])


def values(words: list[str]) -> dict[str, str]:
    """Return each option with the word after it."""
    return {word: after for word, after in itertools.pairwise(words) if word.startswith("--")}


def settings(words: list[str]) -> dict[str, Any]:
    """Return the data settings of a training command: from its configuration, `--set`, and its options."""
    data: dict[str, Any] = {}
    for word in words[1:2]:
        if (path := shipped_configs().get(Path(word).stem)) is not None:
            data = tomllib.loads(path.read_text(encoding="utf-8"))["data"]
    for word, after in itertools.pairwise(words):
        key, _, value = after.partition("=")
        if word == "--set" and key.startswith("data."):
            try:
                data[key[5:]] = tomllib.loads(f"v = {value}")["v"]
            except tomllib.TOMLDecodeError:
                data[key[5:]] = value
        elif word.startswith("--") and word != "--set":
            data.setdefault(word[2:].replace("-", "_"), after)
            if word[2:].replace("-", "_") in TEXT_KEYS | {"documents", "images", "captions", "labels"}:
                data[word[2:].replace("-", "_")] = after
    return data


def prepare_training(words: list[str], folder: Path) -> list[str]:
    """Write the training data, and train for two steps."""
    data = settings(words)
    for key in TEXT_KEYS & set(data):
        write_text(folder / data[key], TRAIN)
    for corpus in [*data.get("corpora", ()), *data.get("valid", ())]:
        for key in {"source", "target"} & set(corpus):
            write_text(folder / corpus[key], TRAIN)
        if "file" in corpus:
            write_pairs(folder / corpus["file"])
    for key in {"pairs", "valid_pairs"} & set(data):
        write_pairs(folder / data[key])
    for key in {"alignment", "valid_alignment"} & set(data):
        write_links(folder / data[key], TRAIN)
    for key in {"documents", "valid_documents"} & set(data):
        write_documents(folder / data[key], data.get("label_column", 1), data.get("text_column", 2))
    if "images" in data:
        captions = [folder / data[key] for key in ("captions", "valid_captions") if key in data]
        lists = [folder / data[key] for key in ("train_list", "valid_list") if key in data]
        write_images(folder / data["images"], captions, folder / data["labels"] if "labels" in data else None, lists)
    if "--check" in words:
        return words
    few = {"training.steps": 2, "training.warmup": 1, "training.validate_rows": 2, "training.device": "cpu"}
    few |= {"data.count": 60} if "builtin" in data else {}
    if "--resume" in words:
        few = {"training.steps": 24}
    small = [each for key, value in few.items() for each in ("--set", f"{key}={value}")]
    out = values(words).get("--out")
    if out is not None:
        shutil.rmtree(folder / out, ignore_errors=True)
    return [*without(words, "--steps", "--minutes"), *small]


def without(words: list[str], *options: str) -> list[str]:
    """Return a command without some options and the words after them."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if word not in options and before not in options]


def run_of(words: list[str], name: str) -> str:
    """Return the tiny run that stands in for one that a command names."""
    given = values(words)
    if words[0] == "caption" or "--captions" in given or name in ("runs/photographs", "runs/photos"):
        return "captioner"
    if "--labels" in given or name == "runs/shapes":
        return "convnet"
    if words[0] == "classify" or "--documents" in given or name.startswith("runs/reviews"):
        return "encoder" if name.endswith("encoder") else "han"
    alone = words[0] in ("eval", "score") and not {"--source", "--hypothesis"} & set(given)
    return "language-model" if words[0] == "sample" or alone else "transformer"


def prepare_exchange(words: list[str], folder: Path, runs: Mapping[str, Path]) -> None:
    """Write the inputs of imports and exports: folders of other toolkits, runs made of them, exports, packs."""
    given = values(words)
    if words[0] == "import":
        write_pretrained(folder / words[1])
    for word in words[1:]:
        there = (folder / word).exists() or word == given.get("--out")
        if not there and (word in IMPORTED or given.get("--to") == "marian") and word.startswith("runs/"):
            source = folder / ("nllb" if word in NLLB else "marian")
            write_pretrained(source, *({"eng_Latn", "fra_Latn", NLLB[word]} if word in NLLB else ()))
            languages = {"source_language": "eng_Latn", "target_language": NLLB[word]} if word in NLLB else {}
            import_model(source, folder / word, **languages)
        elif not there and word.endswith(".regard"):
            pack(runs["transformer"], folder / word)
        elif not there and word == "exported":
            shutil.copytree(runs["transformer"], folder / "runs" / "talks", symlinks=True)
            export_model(folder / "runs" / "talks", folder / word, to="ctranslate2")


def write_pretrained(folder: Path, *languages: str) -> None:
    """Write a small random model like those that users download."""
    if "nllb" in folder.name:
        m2m100_folder(folder, family="nllb", languages=sorted(languages) or NLLB_LANGUAGES)
    else:
        marian_folder(folder)


def prepare(words: list[str], folder: Path, runs: Mapping[str, Path]) -> list[str]:
    """Write a command's inputs into the folder, and return its words to run."""
    given = values(words)
    prepare_exchange(words, folder, runs)
    for word in words[1:] if words[0] not in ("demo", "data", "study") else ():
        if word.startswith("runs/") and word != given.get("--out") and not (folder / word).exists():
            shutil.copytree(runs[run_of(words, word)], folder / word, symlinks=True)
    if words == ["runs"]:
        shutil.copytree(runs["transformer"], folder / "runs" / "en-de", symlinks=True)
    if words[0] == "train":
        return prepare_training(words, folder)
    if words[0] == "data":
        return [*without(words, "--count", "--valid", "--test"), "--count", "20", "--valid", "5", "--test", "5"] * (
            "--out" in words
        ) or words
    if words[0] == "demo":
        return [*words, "--steps", "2"]
    links = "--gold" in given and words[0] == "eval" and "--source" not in given
    for option, value in given.items():
        if option == "--hypothesis" and links:
            write_links(folder / value)
        elif option in TEXTS and " " not in value:
            write_text(folder / value, repeat=1 + ("--alternatives" in words))
        elif option in ("--gold", "--choose"):
            write_links(folder / value, first=int("--from-one" in words))
        elif option == "--documents":
            write_documents(folder / value, *((1, 4) if value.endswith(".gz") else ()))
        elif option == "--tree":
            write_tree(folder / value)
    if "--images" in given:
        captions, lists = (
            [folder / given[key] for key in (each,) if key in given] for each in ("--captions", "--names")
        )
        labels = folder / given["--labels"] if "--labels" in given else None
        write_images(folder / given["--images"], captions, labels, lists)
    return prepare_arguments(words, folder)


def prepare_arguments(words: list[str], folder: Path) -> list[str]:
    """Write a command's positional arguments: texts, pictures, and folders of them."""
    done = []
    before = ["", *words]
    for word, last in zip(words, before, strict=False):
        path = folder / word
        plain = not word.startswith("-") and not last.startswith("--") and word != words[0] and " " not in word
        if plain and (path.suffix in PICTURES or words[0] == "caption") and not word.startswith("runs/"):
            home = path.parent if path.suffix else path
            write_images(folder / "stand-ins", [], None, [])
            home.mkdir(parents=True, exist_ok=True)
            shutil.copy(
                folder / "stand-ins" / "0.png", home / (path.name.replace("*", "0") if path.suffix else "0.png")
            )
            done += sorted(os.path.relpath(each, folder) for each in glob.glob(str(path)))
            continue
        if plain and path.suffix and words[0] in ("translate", "classify", "look", "compare") and not path.exists():
            write_text(path)
        done.append(word)
    return done


def write_tree(path: Path) -> None:
    """Write a sentence's syntax in the Universal Dependencies format; for `.heads`, that of the texts beside it."""
    if path.suffix == ".heads":
        write_text(path.with_suffix(""))
        texts = path.with_suffix("").read_text().splitlines()
        write(path, [" ".join(["-1", *["0"] * (len(text.split()) - 1)]) for text in texts])
        return
    heads = [("I", 2), ("ate", 0), ("pizza", 2), ("yesterday", 2), (".", 2)]
    rows = [f"{i}\t{word}\t_\t_\t_\t_\t{head}\tdep\t_\t_" for i, (word, head) in enumerate(heads, 1)]
    write(path, [*rows, ""])
