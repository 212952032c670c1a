"""Dependency trees: read them, fit them to a text's words, and find the attention heads that follow their relations.

A file contains trees in one of two formats. CoNLL-U has one word per line, with ID, FORM, HEAD and DEPREL in the ten
columns of a treebank or as the only four, and an empty line between sentences. A `.heads` file of the phrasebook has
one sentence per line, with the number of each word's head, from 0, and -1 for the root; the relations are in a second
file, `test.en.relations` for `test.en.heads`. For a run trained on the phrasebook, the grammar itself provides the tree
of each text that it can derive.

An attention head follows a relation at a word if the word's strongest weight is on its head in the tree ("pizza" looks
at "ate") or, from the head, if the head's strongest weight is on the word ("ate" looks at "pizza"): Clark et al. 2019,
arXiv:1906.04341, section 4.2. The baseline is the best fixed distance, such as the previous word.
"""

# h heads · i j words
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch

from regard.data import builtin
from regard.errors import CommandError, DataError
from regard.inspection.collect.exhibit import Dependencies, HeadHits, View, merge
from regard.io import ignore, read_chunks
from regard.tasks import Side, TrainedRun

ALL = ""  # stands for all relations together
SEARCH = 30_000  # tries per text (a second or two), enough for most short sentences of the phrasebook
BUDGET = 100_000  # tries for all texts together (a few seconds) to find their trees in the phrasebook
FROM_HEAD = ", from the head"


@dataclass(frozen=True)
class ParsedTree:
    """The dependency tree of one sentence, as read from a file."""

    heads: tuple[int, ...]  # from 0, -1 for the root
    relations: tuple[str, ...] = ()  # empty if they are unnamed
    forms: tuple[tuple[str, int], ...] = ()  # the written words, each with its number of tokens
    where: str = ""  # the file and the first line


def find_trees(
    file: str | None, items: Sequence[str], inputs: Sequence[str], run: TrainedRun | None = None
) -> list[ParsedTree | None]:
    """Find the tree of each input: in `file`, or in `NAME.heads` if the only item is a file `NAME`.

    Otherwise a tree comes from the phrasebook's grammar, if the run was trained on it and the grammar has the sentence.
    """
    if file is None and len(items) == 1 and os.path.isfile(items[0]) and os.path.isfile(f"{items[0]}.heads"):
        file = f"{items[0]}.heads"
    if file is None:
        tries = min(SEARCH, BUDGET // max(1, len(inputs)))
        return [None if run is None else phrasebook_tree(run, text, tries) for text in inputs]
    trees = read_trees(file)
    if len(trees) < len(inputs):
        count = f"{len(trees):,} tree{'s' * (len(trees) != 1)}"
        raise CommandError(f"--tree: {file} has {count}, but {len(inputs):,} texts are shown")
    return list(trees[: len(inputs)])


def phrasebook_tree(run: TrainedRun, text: str, tries: int = SEARCH) -> ParsedTree | None:
    """Derive the tree of a phrasebook sentence; return None for other texts and for runs on other corpora."""
    data = run.settings.data
    if data.builtin != "phrasebook" or not run.can("translate"):
        return None
    example = builtin.find_example("phrasebook", text, pair=data.pair, edition=data.builtin_edition, tries=tries)
    return None if example is None else ParsedTree(example.source_heads, example.source_relations, where="phrasebook")


def read_trees(path: str | Path) -> list[ParsedTree]:
    """Read the trees of a file, in the format of its first line."""
    lines = [line for chunk in read_chunks(str(path), say=ignore) for line in chunk]
    first = next((line for line in lines if line.strip() and not line.startswith("#")), None)
    if first is None:
        raise DataError(f"{path}: nothing in it, expected dependency trees")
    if not is_heads(first) and not first.split()[0][0].isdecimal():
        expected = "expected its dependency tree, in CoNLL-U or as the number of each word's head"
        raise DataError(f"{path}: a text given, {expected}")
    trees = read_heads(path, lines) if is_heads(first) else list(conll_sentences(path, lines))
    for tree in trees:
        for word, head in enumerate(tree.heads):
            if not -1 <= head < len(tree.heads) or head == word:
                raise DataError(
                    f"{tree.where}: the head of word {word + 1} is not another of its {len(tree.heads)} words"
                )
    return trees


def is_heads(line: str) -> bool:
    """Return whether a line contains only numbers, as in `.heads` files."""
    return all(each.lstrip("-").isdecimal() for each in line.split())


def read_heads(path: str | Path, lines: Sequence[str]) -> list[ParsedTree]:
    """Read the trees of a `.heads` file, with the relations of the `.relations` file beside it, if there is one.

    Empty lines are skipped.
    """
    trees = list[ParsedTree]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not is_heads(line):
            raise DataError(f"{path}, line {number}: {line[:40]!r} given, expected the number of each word's head")
        trees.append(ParsedTree(tuple(map(int, line.split())), where=f"{path}, line {number}"))
    beside = Path(str(path).removesuffix(".heads") + ".relations")
    if not str(path).endswith(".heads") or not beside.is_file():
        return trees
    names_of = [line.split() for chunk in read_chunks(str(beside), say=ignore) for line in chunk if line.strip()]
    if len(names_of) != len(trees):
        raise DataError(f"{beside}: relations of {len(names_of):,} texts given, but {path} has heads of {len(trees):,}")
    for number, (tree, names) in enumerate(zip(trees, names_of, strict=True), 1):
        if len(names) != len(tree.heads):
            mismatch = f"{len(names)} relations given, but {tree.where} has {len(tree.heads)} heads"
            raise DataError(f"{beside}, text {number}: {mismatch}")
    return [replace(tree, relations=tuple(names)) for tree, names in zip(trees, names_of, strict=True)]


def conll_sentences(path: str | Path, lines: Sequence[str]) -> Iterator[ParsedTree]:
    """Read the trees of a CoNLL-U file."""
    rows, begin = list[list[str]](), 1
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            begin = number if not rows else begin
            if not line.startswith("#"):
                cells = line.split("\t") if "\t" in line else line.split()
                if len(cells) != 4 and len(cells) < 8:
                    raise DataError(
                        f"{path}, line {number}: {len(cells)} columns given, expected ID, FORM, HEAD and DEPREL, or ten"
                    )
                rows.append([str(number), *cells])
        elif rows:
            yield conll_tree(path, rows, begin)
            rows = []


def conll_tree(path: str | Path, rows: Sequence[Sequence[str]], begin: int) -> ParsedTree:
    """Read one sentence of a treebank; a multiword token (1-2) is one word, and empty nodes (1.1) are skipped."""
    heads, relations, forms, inside = list[int](), list[str](), list[tuple[str, int]](), 0
    for number, identity, form, *cells in rows:
        if "." in identity:
            continue
        if "-" in identity:
            first, last = (read_number(path, number, each) for each in identity.split("-", 1))
            inside = last - first + 1
            forms.append((form, inside))
            continue
        if inside:
            inside -= 1
        else:
            forms.append((form, 1))
        head = 0 if len(cells) == 2 else 4  # HEAD follows FORM or, in ten columns, LEMMA, UPOS, XPOS and FEATS
        heads.append(read_number(path, number, cells[head]) - 1)
        relations.append(cells[head + 1])
    named = tuple(relations) if any(relations) else ()
    return ParsedTree(tuple(heads), named, tuple(forms), f"{path}, line {begin}")


def read_number(path: str | Path, line: str, text: str) -> int:
    """Read a number from a column."""
    if not text.isdecimal():
        raise DataError(f"{path}, line {line}: {text!r} given, expected the number of a word, or 0 for the root")
    return int(text)


# ---- on the words of a side


def dependencies_of(tree: ParsedTree, sides: dict[str, Side], views: Sequence[View]) -> Dependencies:
    """Fit a tree to the words of the input, and count how often each head of self-attention follows it."""
    name = "source" if "source" in sides else "read"
    heads, relations = fit_words(tree, sides[name].texts)
    causal = name == "read"  # a word can attend to earlier words only
    links = [(word, head) for word, head in enumerate(heads) if head >= 0]
    named = {ALL: links} | {each: [] for each in sorted({relations[word] for word, _ in links} - {ALL})}
    for word, head in links:
        if relations[word]:
            named[relations[word]].append((word, head))
    upward = {each: [(word, head) for word, head in own if head < word or not causal] for each, own in named.items()}
    back = {each: [(word, head) for word, head in own if word < head or not causal] for each, own in named.items()}
    distances = {each: dict(Counter(head - word for word, head in own)) for each, own in upward.items()}
    follows = list[HeadHits]()
    for view in views:
        if view.rows == view.columns == name:
            for number, own in enumerate(strongest_words(view, sides[name])):
                hits = {each: sum(own[word] == head for word, head in pairs) for each, pairs in upward.items()}
                from_head = {each: sum(own[head] == word for word, head in pairs) for each, pairs in back.items()}
                follows.append(HeadHits(view.name, number, hits, from_head))
    words, behind = ({each: len(own) for each, own in some.items()} for some in (upward, back))
    return Dependencies(name, heads, relations, words, behind, distances, tuple(follows))


def strongest_words(view: View, side: Side) -> list[list[int]]:
    """Return for each attention head the word that each word attends to most; -1 if all its weights are 0."""
    best, at = merge(view.weights, side.words, side.words).max(-1)
    return cast(list[list[int]], torch.where(best > 0, at, -1).tolist())


def fit_words(tree: ParsedTree, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Find the head and relation of each word of a text; a word may contain several tokens of the tree ("pizza.")."""
    relations = tree.relations or ("",) * len(tree.heads)
    if not tree.forms:
        if len(words) != len(tree.heads):
            raise DataError(f"{tree.where}: {len(tree.heads)} heads given, but the text has {len(words)} words")
        return tree.heads, relations
    letters = [(letter, number) for number, word in enumerate(words) for letter in fold_letters(word)]
    owner, at = list[int](), 0  # the text's word in which each token of the tree begins; letters matched so far
    for form, count in tree.forms:
        folded = fold_letters(form)
        if "".join(letter for letter, _ in letters[at : at + len(folded)]) != folded or not folded:
            where = f"word {letters[at][1] + 1}, {words[letters[at][1]]!r}" if at < len(letters) else "the end"
            raise DataError(f"{tree.where}: {form!r} in the tree, and {where} in the text")
        owner += [letters[at][1]] * count
        at += len(folded)
    if at < len(letters):
        raise DataError(f"{tree.where}: the tree ends before word {letters[at][1] + 1}, {words[letters[at][1]]!r}")
    heads, names = [-1] * len(words), [""] * len(words)
    for token in reversed(range(len(owner))):  # the first token whose head is outside the word determines its head
        above = tree.heads[token]
        outside = -1 if above < 0 else owner[above]
        if outside != owner[token]:
            heads[owner[token]], names[owner[token]] = outside, relations[token]
    return tuple(heads), tuple(names)


def fold_letters(text: str) -> str:
    """Normalise a text for comparison: NFKC, case folding, no white space."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


# ---- in words


def relation_table(each: Sequence[Dependencies], views: Sequence[View]) -> str:
    """Tabulate the attention head that follows each relation best over all texts, and the best fixed distance.

    "From the head" marks attention from words to their dependents; other rows are attention from words to their heads.
    """
    titles = {view.name: view.title for view in views}
    words, distances = Counter[tuple[str, bool]](), dict[str, Counter[int]]()
    hits = Counter[tuple[str, bool, str, int]]()  # by relation, whether from the head, view and attention head
    for tree in each:
        for back, totals in ((False, tree.words), (True, tree.back)):
            words.update({(relation, back): count for relation, count in totals.items()})
        for relation, counts in tree.distances.items():
            distances.setdefault(relation, Counter()).update(counts)
        for head in tree.follows:
            for back, own in ((False, head.hits), (True, head.back)):
                hits.update({(relation, back, head.view, head.head): count for relation, count in own.items()})
    rows = [("relation", "words", "follows it most", "share", "best distance", "share")]
    for relation in sorted(distances, key=lambda name: (-words[name, False], name)):
        shares = {key: count / words[key[:2]] for key, count in hits.items() if key[0] == relation and words[key[:2]]}
        if not shares or not distances[relation]:
            continue
        best = max(shares, key=lambda key: (shares[key], not key[1]))
        distance, count = max(distances[relation].items(), key=lambda pair: (pair[1], -abs(pair[0])))
        total = words[relation, False]
        name = f"{titles[best[2]]}, head {best[3] + 1}{FROM_HEAD * best[1]}" if hits[best] else "none"
        row = (relation or "all", f"{total:,}", name, f"{shares[best]:.2f}")
        rows.append((*row, f"{distance:+d}", f"{count / total:.2f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(map(str.rstrip, lines))
