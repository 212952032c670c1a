"""Dependency trees beside attention: reading them, fitting them to a side's words, finding the heads that follow them.

A file holds trees one after the other, as CoNLL-U has them (a word a line: ID, FORM, …, HEAD, DEPREL in the ten columns
of a treebank, or these four alone; an empty line between sentences), or as the phrasebook's `.heads` files do: a line a
sentence, the number of each word's head from 0, -1 for the root. The names of their relations stand in a file beside
them, `test.en.relations` of `test.en.heads`. Of a run that was trained on the phrasebook a text's own derivation says
its tree, where the grammar has one.

A head of attention follows a relation at a word whose strongest weight is on the word's head in the tree, or, from the
head, at a head whose strongest weight is on the word: "pizza" looks at "ate", or "ate" at "pizza" (Clark et al. 2019,
arXiv:1906.04341, section 4.2). To compare with: what the best fixed distance reaches, such as the word before.
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

ALL = ""  # the relation of every word, whatever it is called
SEARCH = 30_000  # tries, a second or two, in which most short sentences of the phrasebook are found
BUDGET = 100_000  # tries for all texts together to find the phrasebook's own trees: a few seconds
FROM_HEAD = ", from the head"


@dataclass(frozen=True)
class ParsedTree:
    """The dependency tree of one sentence, as its file gives it."""

    heads: tuple[int, ...]  # from 0, -1 for the root
    relations: tuple[str, ...] = ()  # none where they have no names
    forms: tuple[tuple[str, int], ...] = ()  # the words as they are written, each with the number of its tokens
    where: str = ""  # the file, and the line that it begins at


def find_trees(
    file: str | None, items: Sequence[str], inputs: Sequence[str], run: TrainedRun | None = None
) -> list[ParsedTree | None]:
    """Find the tree of each input, in the file that is named or in the one with `.heads` after its name.

    Without a file it is the phrasebook's own, where the run was trained on that and the grammar has the sentence.
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
    """Derive the tree of a phrasebook sentence; None for another text, or a run of another corpus."""
    data = run.settings.data
    if data.builtin != "phrasebook" or not run.can("translate"):
        return None
    example = builtin.find_example("phrasebook", text, pair=data.pair, edition=data.builtin_edition, tries=tries)
    return None if example is None else ParsedTree(example.source_heads, example.source_relations, where="phrasebook")


def read_trees(path: str | Path) -> list[ParsedTree]:
    """Read the trees of a file, in the form that its first line has."""
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
    """Return whether a line is one of numbers alone, as `.heads` files have them."""
    return all(each.lstrip("-").isdecimal() for each in line.split())


def read_heads(path: str | Path, lines: Sequence[str]) -> list[ParsedTree]:
    """Read the trees of a file of heads, with the names of relations where a file beside it has them.

    Empty lines are no sentences.
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
    """Read the trees of a treebank's file."""
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
    """Read one sentence of a treebank: multiword tokens (1-2) count as one word, and empty nodes (1.1) as none."""
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
        head = 0 if len(cells) == 2 else 4  # behind ID and FORM; a treebank has LEMMA, UPOS, XPOS and FEATS before it
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
    """Fit a tree to the words of the input text, with the heads of self-attention that follow it."""
    name = "source" if "source" in sides else "read"
    heads, relations = fit_words(tree, sides[name].texts)
    causal = name == "read"  # a word can look at those that were read before it
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
    """Find the word that each word looks at most, head by head; -1 where it looks at none."""
    best, at = merge(view.weights, side.words, side.words).max(-1)
    return cast(list[list[int]], torch.where(best > 0, at, -1).tolist())


def fit_words(tree: ParsedTree, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Find the head and the relation of each word of a text, whose words may hold several of the tree ("pizza.")."""
    relations = tree.relations or ("",) * len(tree.heads)
    if not tree.forms:
        if len(words) != len(tree.heads):
            raise DataError(f"{tree.where}: {len(tree.heads)} heads given, but the text has {len(words)} words")
        return tree.heads, relations
    letters = [(letter, number) for number, word in enumerate(words) for letter in fold_letters(word)]
    owner, at = list[int](), 0  # the word of the text that each token of the tree begins in, letter by letter
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
    for token in reversed(range(len(owner))):  # the first token whose head is outside the word stands for it
        above = tree.heads[token]
        outside = -1 if above < 0 else owner[above]
        if outside != owner[token]:
            heads[owner[token]], names[owner[token]] = outside, relations[token]
    return tuple(heads), tuple(names)


def fold_letters(text: str) -> str:
    """Fold a text for comparison: without case and spaces, in one form of Unicode."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


# ---- in words


def relation_table(each: Sequence[Dependencies], views: Sequence[View]) -> str:
    """Tabulate which head follows which relation, over all texts shown, beside the share of a fixed distance.

    A head of attention "from the head" looks from words at those that depend on them, others at what words depend on.
    """
    titles = {view.name: view.title for view in views}
    words, distances = Counter[tuple[str, bool]](), dict[str, Counter[int]]()
    hits = Counter[tuple[str, bool, str, int]]()  # of a relation, from its head or to it, by view and head
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
