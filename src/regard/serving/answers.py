"""Answers of a server: texts as sentences that a model takes, their outputs as texts again, and as JSON holds them.

The lines of a text are kept. Each is split into its sentences, and a sentence that is too long into pieces, as
`regard translate --split` does; where `split` is None only lines that are too long are split. Without `split` such a
line is cut, and the answer says so. A tag such as <2de> at the beginning holds for all that follows: it is put before
every piece.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from regard.data import Tokenizer, sentence_split
from regard.decoding import Options, file_translation
from regard.serving.errors import InvalidValueError
from regard.tasks import Translation


@dataclass(frozen=True)
class SplitText:
    """A text in lines, and each line in pieces."""

    text: str
    lines: tuple[str, ...]
    parts: tuple[tuple[sentence_split.Piece, ...], ...]  # of each line, at least one
    cut: bool  # the end of a line is missing

    @property
    def texts(self) -> list[str]:
        """The pieces of all lines, in order."""
        return [piece.text for line in self.parts for piece in line]

    @property
    def whole(self) -> bool:
        """Whether the text is one piece, as it is."""
        return len(self.lines) == 1 and len(self.parts[0]) == 1 and self.parts[0][0].text == self.text

    def join(self, outputs: Iterator[list[Translation]], count: int, ranked: bool) -> list[Translation]:
        """The outputs for the text from those for its pieces, the `count` best where they are `ranked`."""
        if self.whole:
            return list(next(outputs))
        each = []
        for line, parts in zip(self.lines, self.parts, strict=True):
            each.append(file_translation.join_outputs(line, parts, list(islice(outputs, len(parts))), count, ranked))
        starts, start = [], 0
        for line in self.lines:
            starts.append(sentence_split.Piece(start, start + len(line), line))
            start += len(line) + 1
        return file_translation.join_outputs(self.text, starts, each, count, ranked, between="\n")


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool | None, tags: Sequence[str] = ()
) -> tuple[list[SplitText], list[list[int]]]:
    """Split texts into what a model of this length takes; and the tokens of all pieces, in order."""
    whole, ids, again = [], tokenizer.encode_batch(list(texts)), list[str]()
    tokens: list[list[int] | None] = []
    for text, own in zip(texts, ids, strict=True):
        if len(own) <= longest and "\n" not in text and "\r" not in text and (not split or is_sentence(text, tags)):
            whole.append(SplitText(text, (text,), ((sentence_split.Piece(0, len(text), text),),), False))
            tokens.append(own)
            continue
        whole.append(split_text(text, tokenizer, longest, split, tags))
        again += whole[-1].texts
        tokens += [None] * len(whole[-1].texts)
    rest = iter(tokenizer.encode_batch(again))
    return whole, [next(rest) if own is None else own for own in tokens]


def split_text(text: str, tokenizer: Tokenizer, longest: int, split: bool | None, tags: Sequence[str]) -> SplitText:
    """Split a text into lines, and each line into pieces that a model takes, with the tag that holds for each."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    lines, parts = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), []
    tag, shorter = None, False
    for line in lines:
        room = sentence_split.room_beside(sentence_split.leading_tag(line, tags) or tag, count, longest)
        if split or (split is None and count(line) > room):
            found, tag = sentence_split.tagged_pieces(line, count, longest, tags, tag)
        else:
            fitting = line if count(line) <= room else sentence_split.cut(line, count, room)
            shorter |= len(fitting) < len(line)
            found, tag = sentence_split.put_tags([sentence_split.Piece(0, len(fitting), fitting)], tags, tag)
        parts.append(tuple(found) or (sentence_split.Piece(0, 0, ""),))
    return SplitText("\n".join(lines), lines, tuple(parts), shorter)


def is_sentence(text: str, tags: Sequence[str] = ()) -> bool:
    """Return whether a line is one sentence, with nothing before or after it."""
    found = sentence_split.source_sentences(text, tags)
    return not found or (len(found) == 1 and found[0].text == text)


def join_texts(
    texts: Sequence[SplitText], translations: Sequence[list[Translation]], options: Options
) -> list[dict[str, Any]]:
    """The outputs of texts from those of their sentences, as an answer holds them."""
    pieces, answers = iter(translations), []
    for each in texts:
        joined = each.join(pieces, options.nbest, not options.sample)
        answers.append({"text": joined[0].text, "cut": each.cut, "outputs": [as_table(output) for output in joined]})
    return answers


def check_pairs(texts: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse lists of other lengths."""
    if len(texts) != len(targets):
        message = f"targets: {len(targets)} given, expected one for each of {len(texts)} texts"
        raise InvalidValueError(message, "targets")


def as_table(output: Translation) -> dict[str, Any]:
    """An output as an answer holds it."""
    table: dict[str, Any] = {
        "text": output.text,
        "score": finite(output.score),
        "log_prob": finite(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
    }
    if output.alignment is not None:
        table["alignment"] = [list(link) for link in output.alignment]
    if output.untranslated is not None:
        table["untranslated"] = [list(span) for span in output.untranslated]
    if output.token_log_probs is not None:
        table["scores"] = [finite(each) for each in output.token_log_probs]
    return table


def finite(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else None
