"""Weights of the grammar's choices."""

from typing import TypeVar

from regard_corpora.phrasebook.meaning import Det, Modal

__all__ = ["table"]

T = TypeVar("T")


def table(weights: dict[T, int]) -> tuple[T, ...]:
    """Repeat each choice as often as its weight says, so that a draw is one lookup."""
    return tuple(choice for choice, weight in weights.items() for _ in range(weight))


SHAPES = table(
    {
        "statement": 44,
        "question": 9,
        "where": 3,
        "when": 3,
        "why": 3,
        "object": 6,
        "which": 3,
        "who": 4,
        "reason": 9,
        "event": 6,
        "condition": 4,
        "while": 2,
        "that": 7,
        "whether": 3,
        "try": 5,
        "joined": 5,
    }
)
EVERYDAY_SHAPES = SHAPES + table({"whereabouts": 5, "this": 7, "weather": 4})  # of the second edition
LONG_SHAPES = table({"reason": 3, "event": 2, "condition": 2, "while": 1, "that": 1, "joined": 2})
CONTENTS = table(
    {"verb": 58, "give": 8, "go": 7, "stay": 4, "adjective": 12, "profession": 3, "idiom": 4, "place": 3, "than": 3}
)
SUBORDINATES = table({"verb": 40, "go": 6, "stay": 4, "feeling": 16, "idiom": 10, "sky": 12, "weather": 12})
RELATIVES = table({"verb": 60, "stay": 20, "go": 10, "adjective": 10})
TENSES = table({"past": 30, "present": 28, "progressive": 12, "modal": 30})
MODALS = table(
    {
        Modal.WILL: 10,
        Modal.CAN: 6,
        Modal.MUST: 5,
        Modal.SHOULD: 4,
        Modal.WANT: 6,
        Modal.LIKE: 4,
        Modal.COULD: 2,
        Modal.HAD: 2,
        Modal.WANTED: 3,
    }
)
PRESENT_MODALS = table({Modal.WILL: 10, Modal.CAN: 4, Modal.MUST: 4, Modal.SHOULD: 3, Modal.WANT: 3})
PAST_MODALS = (Modal.COULD, Modal.HAD, Modal.WANTED)
SUBJECT_DETS = table({Det.THE: 40, Det.MY: 34, Det.THIS: 9, Det.A: 6, Det.NAMED: 5, Det.EVERY: 3, Det.NUMBER: 3})
FAMILY_DETS = table({Det.MY: 12, Det.NAMED: 2, Det.THE: 1})
SINGLE_DETS = table({Det.A: 36, Det.THE: 30, Det.MY: 20, Det.THIS: 8, Det.NAMED: 6})
MASS_DETS = table({Det.BARE: 60, Det.THE: 22, Det.MY: 10, Det.THIS: 4, Det.NAMED: 4})
PLURAL_DETS = table({Det.BARE: 30, Det.THE: 24, Det.MY: 16, Det.NUMBER: 18, Det.THIS: 6, Det.MANY: 6})
DEFINITE_DETS = table({Det.THE: 50, Det.MY: 32, Det.THIS: 10, Det.NAMED: 8})
