"""Settings of data and tokenizers: where the data come from, and how they become tokens. Imports no torch."""

import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from regard.config import option, read_value, show_value, suggestion, wrong_value
from regard.data.builtin import CORPORA, EDITION, generate
from regard.errors import ArgumentError, ConfigError
from regard.io import EncodedFile, check_encoding, text_lines

TABLES = (".tsv", ".csv", ".jsonl", ".json")
LANGUAGES = re.compile(r"[A-Za-z_]{2,20}-[A-Za-z_]{2,20}")
GOLD = "gold"  # the value of `alignment` for a built-in corpus's own links
COLUMNS = 10_000
TAG = 100  # maximum characters of a tag
AROUND = ("before", "after", "first")  # keys of [tokenizer] for pieces around a text
EXTENSION = ("extend", "extend_words")  # keys of [tokenizer] that add pieces to the vocabulary of another run
PIECES = 16  # maximum pieces around a text, for each key
PLACES = ("source", "corpora", "documents", "images", "builtin")
Reads = Literal["text", "documents", "pictures"]
Column = Literal["source_column", "target_column", "alignment_column"]


def column_option(what: str, usual: tuple[str, str] = ("", "")) -> Any:
    """Declare an option for a table column; `usual` names its default in TSV and in JSON lines."""
    number, key = (f"; default {each}" if each else "" for each in usual)
    return option(
        None,
        f"column (TSV, CSV: from 1, or its name{number}) or key (JSON lines{key}) of {what}",
        least=1,
        most=COLUMNS,
    )


@dataclass(frozen=True)
class CorpusSettings:
    """The settings of a parallel corpus: two text files, line by line, or one file with both sides."""

    source: str | None = option(None, "text file of source sentences, one per line")
    target: str | None = option(None, "text file of their translations, line by line")
    file: str | None = option(
        None, "one file with both sides: .tsv, .csv, .jsonl or .json (one object per line), also .gz"
    )
    source_column: str | int | None = column_option("the source in `file`")
    target_column: str | int | None = column_option("the target in `file`")
    alignment: str | None = option(None, "text file of word links, one line per pair: 0-0 1-2 (Pharaoh)")
    alignment_column: str | int | None = column_option("the links in `file`")
    weight: float = option(1.0, "how often its pairs occur in an epoch, on average", least=0.001, most=1000)
    tag: str | None = option(
        None, "word to put before every source, such as <2de>; the tokenizer keeps it as one piece"
    )

    def __post_init__(self) -> None:
        """Raise a ConfigError if the settings name no corpus or two, or a value is invalid."""
        if self.file is None:
            if self.source is None and self.target is None:
                raise ConfigError("source", "missing; give source and target, or file")
            require_both(self.source, self.target, "source", "target")
            for name in get_args(Column):
                if getattr(self, name) is not None:
                    raise ConfigError(name, "given without file; two text files have no columns")
        else:
            for name in ("source", "target"):
                if getattr(self, name) is not None:
                    raise ConfigError(name, "given together with file; give source and target, or file")
            if self.form not in TABLES:
                raise wrong_value("file", self.file, f"a name that ends in {', '.join(TABLES)} or .gz")
            for name in get_args(Column) if self.form == ".tsv" else ():
                value = getattr(self, name)
                number = int(value) if isinstance(value, int) or (value and value.isdecimal() and len(value) < 9) else 0
                if value is not None and not 1 <= number <= COLUMNS:
                    expected = f"a column number from 1 to {COLUMNS:,}, as the file is a TSV"
                    raise wrong_value(name, value, expected)
            if self.alignment is not None and self.alignment_column is not None:
                raise ConfigError("alignment", "given together with alignment_column; give one of them")
        if self.tag is not None and not is_word(self.tag):
            raise wrong_value("tag", self.tag, f'one word of at most {TAG} characters, such as "<2de>"')

    @property
    def form(self) -> str | None:
        """The suffix of `file`: .tsv, .csv, .jsonl or .json; None for two text files."""
        return None if self.file is None else text_lines.ending(self.file)

    @property
    def linked(self) -> bool:
        """Return whether the corpus has word links."""
        return self.alignment is not None or self.alignment_column is not None

    def key(self, name: Column) -> str:
        """Return the JSON key that a setting names, by default "source" and so on; dots lead into nested objects."""
        value = getattr(self, name)
        return name.removesuffix("_column") if value is None else str(value)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the corpus's text files, without that of the links."""
        return tuple(path for path in (self.file, self.source, self.target) if path is not None)


@dataclass(frozen=True)
class DataSettings:
    """The data settings: the source of pairs, documents or pictures, which of them to use, and where to cache them."""

    source: str | None = option(None, "text file of source sentences, one per line, gzip or not")
    target: str | None = option(None, "text file of their translations, line by line")
    alignment: str | None = option(
        None, 'text file of word links, one line per pair: 0-0 1-2 (Pharaoh); "gold": those of a built-in corpus'
    )
    corpora: tuple[CorpusSettings, ...] = option((), "several corpora, instead of source and target")
    languages: str | None = option(
        None, "languages of source and target, such as en-de; default: the endings of the files, as in train.en"
    )
    valid_source: str | None = option(None, "text file of source sentences for validation")
    valid_target: str | None = option(None, "text file of translations for validation")
    valid: tuple[CorpusSettings, ...] = option(
        (), "several validation corpora, instead of valid_source and valid_target"
    )
    rehearsal: float = option(
        0.0,
        "against forgetting: share of the training pairs that come from data.earlier, such as 0.25; for fine-tuning",
        least=0,
        most=0.95,
    )
    earlier: tuple[CorpusSettings, ...] = option((), "corpora to rehearse; default: those of the run that --from names")
    documents: str | None = option(
        None, "labelled documents, one per line: .tsv or .csv (label, text), .jsonl, .json, also .gz"
    )
    valid_documents: str | None = option(None, "labelled documents for validation")
    label_column: str | int | None = column_option("the label", ("1", "label"))
    text_column: str | int | None = column_option("the text", ("2", "text"))
    sentence_mark: str | None = option(
        None, "mark between two sentences of a document; without it, full stops separate them"
    )
    document_tokens: int = option(
        1000, "longest document in tokens; longer ones are truncated and counted", least=1, most=1_048_576
    )
    images: str | None = option(None, "folder of pictures")
    captions: str | None = option(
        None, "captions of the pictures: a TSV or CSV of picture and caption, Flickr8k's token file, or Karpathy's JSON"
    )
    valid_captions: str | None = option(None, "captions of the pictures for validation")
    train_list: str | None = option(
        None, "file with the names of the pictures to train on, one per line, as in Flickr8k"
    )
    valid_list: str | None = option(None, "file with the names of the pictures for validation")
    labels: str | None = option(
        None, "for a classifier: a TSV or CSV of picture and label; without it, subfolders of `images` are the labels"
    )
    image_size: int = option(96, "side length in pixels to which pictures are scaled and cropped", least=8, most=1024)
    flip: bool = option(False, "mirror half of the pictures in training")
    crop: float = option(0.0, "share of each side to crop at random in training", least=0, below=1)
    workers: int | None = option(
        None, "number of processes that decode pictures; default: one per core", least=1, most=256
    )
    builtin: str | None = option(None, "built-in corpus to use instead of files, such as phrasebook")
    pair: str = option("en-de", "language pair of a built-in corpus")
    count: int = option(40_000, "number of examples to generate from a built-in corpus", least=2, most=10_000_000)
    builtin_seed: int = option(0, "random seed for the examples of a built-in corpus", least=0, most=2**63 - 1)
    builtin_edition: int = option(
        EDITION,
        "edition of a built-in corpus: 1 is the text of earlier versions, 2 is text as people type it",
        least=1,
        most=EDITION,
    )
    builtin_options: tuple[str, ...] = option((), 'further options of a built-in corpus, such as "longest=20"')
    longest: int = option(
        200, "longest side of a pair in tokens; longer pairs are dropped and counted", least=1, most=1_048_576
    )
    held_out: float | Literal["auto"] = option(
        0.01,
        "share held out for validation if no files are given; auto: a tenth of a small corpus, 5 √n of n examples",
        least=0,
        most=0.5,
    )
    held_out_most: int = option(2000, "maximum number of examples held out", least=1, most=10_000_000)
    lowercase: bool = option(False, "lowercase all text")
    encoding: str | None = option(None, "encoding of the text files, such as cp1252; default: utf-8")
    cache: str | None = option(None, "folder for encoded corpora; default: $REGARD_CACHE, or ~/.cache/regard")

    def __post_init__(self) -> None:
        """Raise a ConfigError for one file of a pair without the other, conflicting settings or invalid values."""
        require_both(self.source, self.target, "source", "target")
        require_both(self.valid_source, self.valid_target, "valid_source", "valid_target")
        names = [name for name in PLACES if getattr(self, name)]
        if len(names) > 1:
            raise ConfigError(
                names[1],
                f"given together with {names[0]}; give only one of: source and target, {', '.join(PLACES[1:])}",
            )
        if self.languages is not None and not LANGUAGES.fullmatch(self.languages):
            raise wrong_value("languages", self.languages, "the source and the target, such as en-de")
        for name, needed in NEEDED.items():
            if getattr(self, name) and not getattr(self, needed):
                raise ConfigError(needed, f"missing, as {name} is given")
        self.check_alignment()
        if self.encoding is not None and (problem := check_encoding(self.encoding)):
            raise ConfigError("encoding", f"{show_value(self.encoding)} given, {problem}")
        if self.captions and self.labels:
            raise ConfigError(
                "labels", "given together with captions; give labels to classify pictures, or captions to describe them"
            )
        if self.documents:
            self.labelled(self.documents)
        if self.valid and self.valid_source is not None:
            raise ConfigError("valid", "given together with valid_source; give one of them")
        self.options()

    def check_alignment(self) -> None:
        """Raise a ConfigError for links without pairs of sentences, and gold links for the user's own files."""
        if self.alignment is None:
            return
        if self.builtin is not None and self.reads == "text":
            if self.alignment != GOLD:
                raise ConfigError(
                    "alignment", f'{show_value(self.alignment)} given with a built-in corpus, expected "{GOLD}"'
                )
        elif self.corpora:
            raise ConfigError("alignment", "given together with corpora; give each corpus its own")
        elif self.source is None:
            raise ConfigError("alignment", "given without source and target, to whose lines it belongs")
        elif self.alignment == GOLD:
            raise ConfigError("alignment", f'"{GOLD}" given with files, expected a file: only built-in corpora have it')

    @property
    def linked(self) -> bool:
        """Return whether the training pairs have word links."""
        return self.alignment is not None or any(corpus.linked for corpus in self.training)

    def require(self) -> None:
        """Raise a ConfigError if the settings name no training data, or an unknown or invalid built-in corpus."""
        if not any(getattr(self, name) for name in PLACES):
            raise ConfigError("data.source", f"missing; give source and target, or {', '.join(PLACES[1:])}")
        if self.builtin:
            if self.builtin not in CORPORA:
                raise ConfigError(
                    "data.builtin", f"{show_value(self.builtin)} given{suggestion(self.builtin, CORPORA)}"
                )
            try:
                generate(self.builtin, 0, pair=self.pair, **self.drawing())
            except ArgumentError as error:
                key = "pair" if str(error).startswith("pair: ") else "builtin_options"
                raise ConfigError(f"data.{key}", str(error).removeprefix("pair: ")) from None

    @property
    def reads(self) -> Reads | None:
        """Return the kind of data that the settings name: "text", "documents" or "pictures"; None if they name none."""
        if self.builtin:
            return CORPORA[self.builtin].form if self.builtin in CORPORA else "text"
        return "documents" if self.documents else "pictures" if self.images else "text" if self.training else None

    def labelled(self, path: str) -> CorpusSettings:
        """Return a file of documents as a corpus whose sources are the texts, and whose targets are the labels."""
        form = text_lines.ending(path)
        if form not in TABLES:
            raise wrong_value("documents", path, f"a name that ends in {', '.join(TABLES)} or .gz")
        path = self.encoded(path)
        columns = (2, 1) if form == ".tsv" else ("text", "label")
        text = columns[0] if self.text_column is None else self.text_column
        label = columns[1] if self.label_column is None else self.label_column
        try:
            return CorpusSettings(file=path, source_column=text, target_column=label)
        except ConfigError as error:
            raise ConfigError(error.key.replace("source", "text").replace("target", "label"), error.problem) from None

    @property
    def training(self) -> tuple[CorpusSettings, ...]:
        """The corpora of files to train on; empty for a built-in corpus."""
        if self.source is None:
            return self.encode_corpora(self.corpora)
        return self.encode_corpora((CorpusSettings(self.source, self.target, alignment=self.alignment),))

    @property
    def rehearsed(self) -> tuple[CorpusSettings, ...]:
        """The earlier corpora to rehearse; empty if `rehearsal` is 0."""
        return self.encode_corpora(self.earlier) if self.rehearsal else ()

    @property
    def validation(self) -> tuple[CorpusSettings, ...]:
        """The corpora of files to validate on; empty if the settings name none."""
        own = (CorpusSettings(self.valid_source, self.valid_target),) if self.valid_source is not None else self.valid
        return self.encode_corpora(own)

    def encoded(self, path: str) -> str:
        """Attach the configured encoding to the name of a text file."""
        return path if self.encoding is None else EncodedFile(path, self.encoding)

    def encode_corpora(self, corpora: tuple[CorpusSettings, ...]) -> tuple[CorpusSettings, ...]:
        """Attach the configured encoding to the names of corpora's text files."""

        def encode(corpus: CorpusSettings) -> CorpusSettings:
            files: dict[str, Any] = {name: getattr(corpus, name) for name in ("source", "target", "file")}
            names: dict[str, Any] = {name: self.encoded(path) for name, path in files.items() if path is not None}
            return replace(corpus, **names)

        return corpora if self.encoding is None else tuple(map(encode, corpora))

    def held_out_count(self, examples: int) -> int:
        """Return how many of `examples` to hold out for validation."""
        if not self.held_out:
            return 0
        count = min(0.1 * examples, 5 * math.sqrt(examples)) if self.held_out == "auto" else self.held_out * examples
        return min(self.held_out_most, max(1, math.floor(count)))

    def options(self) -> dict[str, Any]:
        """Parse `builtin_options`: "longest=20" becomes {"longest": 20}."""
        read: dict[str, Any] = {}
        for each in self.builtin_options:
            name, equals, text = each.partition("=")
            if not equals or not name.strip().isidentifier():
                raise wrong_value("builtin_options", each, 'name=value, such as "longest=20"')
            if name.strip() in ("name", "count", "seed", "split", "pair", "edition"):
                keys = "data.builtin, count, builtin_seed, builtin_edition or pair"
                raise ConfigError("builtin_options", f"{show_value(each)} given; set {keys}")
            read[name.strip()] = read_value(text)
        return read

    def drawing(self) -> dict[str, Any]:
        """Return the arguments of `generate` for a built-in corpus besides name, count, split and pair."""
        return {"seed": self.builtin_seed, "edition": self.builtin_edition, **self.options()}


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings of the tokenizer, which is trained on the corpus or read from a file."""

    kind: Literal["bpe", "unigram", "word", "character", "auto"] = option(
        "bpe", "kind of pieces; auto: for each side characters if lines are single words, words if few, otherwise bpe"
    )
    joint: bool | Literal["auto"] = option(
        True, "share one vocabulary; auto: if both sides have the same kind of pieces and the same letters"
    )
    size: int | Literal["auto"] = option(
        "auto", "number of pieces in a vocabulary; auto: chosen from the corpus", least=5, most=1_048_576
    )
    file: str | None = option(None, "existing tokenizer.json for both sides")
    source_file: str | None = option(None, "existing tokenizer.json for the source")
    target_file: str | None = option(None, "existing tokenizer.json for the target")
    dropout: float = option(0.0, "BPE dropout in training: probability of skipping a merge", least=0, most=1)
    before: tuple[str, ...] = option((), 'pieces to put before every source, such as "eng_Latn"')
    after: tuple[str, ...] = option((), 'pieces to put after every source, such as "</s>"')
    first: tuple[str, ...] = option((), 'pieces that every target begins with, such as "deu_Latn"')

    extend: tuple[str, ...] = option((), 'with --from: words or languages to add to the vocabulary, such as "gsw_Latn"')
    extend_words: int = option(
        0, "with --from: add so many of the corpus' most frequent words that the tokenizer splits", least=0, most=8192
    )

    def __post_init__(self) -> None:
        """Raise a ConfigError for one file of a pair without the other, too small sizes, or dropout without merges."""
        for place, piece in enumerate(self.extend):
            if not is_word(piece) or piece in self.extend[:place]:
                raise wrong_value("extend", piece, f"words of at most {TAG} characters, each once")
        for name in AROUND:
            if len(getattr(self, name)) > PIECES:
                raise ConfigError(name, f"{len(getattr(self, name))} pieces given, expected at most {PIECES}")
        require_both(self.source_file, self.target_file, "source_file", "target_file")
        if self.file is not None and self.source_file is not None:
            raise ConfigError("file", "given together with source_file; give one file, or a pair")
        if self.has_file:
            return
        if self.dropout and self.kind not in ("bpe", "auto"):
            raise ConfigError("dropout", f'{self.dropout} given, but a tokenizer of kind "{self.kind}" has no merges')
        if self.kind in ("bpe", "unigram") and self.size != "auto" and self.size < 300:
            raise ConfigError(
                "size", f"{self.size} given, expected at least 300: 256 pieces are the bytes of rare characters"
            )

    @property
    def around(self) -> dict[str, tuple[str, ...]]:
        """Return the pieces around a text, as arguments for `Tokenizers.surround`."""
        return {name: getattr(self, name) for name in AROUND}

    @property
    def has_file(self) -> bool:
        """Return whether the tokenizer comes from a file instead of training."""
        return self.file is not None or self.source_file is not None


NEEDED = {
    "valid_documents": "documents",
    "captions": "images",
    "valid_captions": "captions",
    "labels": "images",
    "valid_list": "images",
    "train_list": "images",
}


def is_word(text: str) -> bool:
    """Return whether a text is one printable word of at most TAG characters."""
    return text.split() == [text] and text.isprintable() and len(text) <= TAG


def require_both(first: str | None, second: str | None, first_name: str, second_name: str) -> None:
    """Raise a ConfigError if only one of two files is given."""
    if first is None and second is not None:
        raise ConfigError(first_name, f"missing, as {second_name} is given")
    if second is None and first is not None:
        raise ConfigError(second_name, f"missing, as {first_name} is given")


def cache_folder(folder: str | None = None) -> Path:
    """Return the cache folder: as given, else $REGARD_CACHE, $XDG_CACHE_HOME/regard or ~/.cache/regard."""
    if folder or os.environ.get("REGARD_CACHE"):
        return Path(folder or os.environ["REGARD_CACHE"]).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "regard"
