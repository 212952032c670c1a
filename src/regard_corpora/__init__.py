"""Generated corpora, with gold alignments, trees or boxes where these make sense, and the models of `regard demo`.

The corpora are registered like those of a plugin; `regard.data.generate` generates examples from each.

The phrasebook: `find_example`, `RELATIONS`, `name_relations`. Scenes: `Pictured`. The demonstration: `demonstrate`,
`remove_earlier`, `STEPS`; the comparison of three models: `compare`, `MODELS`, `BINS`, `MAX_WORDS`.
"""

from typing import TYPE_CHECKING

from regard.data import BuiltIn
from regard.door import door
from regard.plugins import register
from regard_corpora import sequences

if TYPE_CHECKING:
    from regard_corpora.demo import BINS, MAX_WORDS, MODELS, STEPS, compare, demonstrate, remove_earlier
    from regard_corpora.phrasebook import find_example
    from regard_corpora.phrasebook.analysis import RELATIONS, name_relations
    from regard_corpora.scenes import Pictured

__all__ = [
    "BINS",
    "MAX_WORDS",
    "MODELS",
    "Pictured",
    "RELATIONS",
    "STEPS",
    "compare",
    "demonstrate",
    "find_example",
    "name_relations",
    "remove_earlier",
]

__getattr__, __dir__ = door(__name__)

for row_name, row in {
    "phrasebook": BuiltIn(
        "everyday sentences, English to German or French, from a synchronous grammar",
        "regard_corpora.phrasebook",
    ),
    "numbers": BuiltIn("written numerals to digits, or back; English, German, French", "regard_corpora.numbers"),
    "dates": BuiltIn("dates in many written forms to ISO 8601, or back", "regard_corpora.dates"),
    "reverse": BuiltIn("sequences of symbols, reversed", sequences.REVERSE),
    "sort": BuiltIn("sequences of numbers, sorted", sequences.SORT),
    "copy": BuiltIn("sequences of symbols, copied", sequences.COPY),
    "scenes": BuiltIn(
        "drawn shapes with captions, or questions about two places of a picture",
        "regard_corpora.scenes",
        "pictures",
    ),
    "reviews": BuiltIn(
        "labelled documents: reviews with many negated opinions, and the words that decide",
        "regard_corpora.reviews",
        "documents",
    ),
}.items():
    register(row_name, corpus=row)
