"""Decoding: one search for every model.

Options, limits and outputs. Searching: `search`, sentence by sentence or `batches` of them; on a GPU in `bursts`,
replayed and joined. Models together: `Ensemble`; processes side by side; texts as a search takes them; a file,
translated.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.decoding import batches, bursts, joining, outputs
    from regard.decoding import translate_file as file_translation
    from regard.decoding.device_search import Hypotheses
    from regard.decoding.ensemble import Ensemble, first_model
    from regard.decoding.limits import ROOM, check_prefix, output_limit
    from regard.decoding.options import GREEDY, Options
    from regard.decoding.outputs import Output, SearchResult, check_outputs
    from regard.decoding.replay import Replay, host_features, length_class, to_bfloat16
    from regard.decoding.scoring import check_finite, length_penalty
    from regard.decoding.sentence_search import SentenceSearch, StepSearch, search, without_gradients
    from regard.decoding.sources import documents_of, source_of, tokens_of
    from regard.decoding.translate_file import Processes

__all__ = [
    "Ensemble",
    "GREEDY",
    "Hypotheses",
    "Options",
    "Output",
    "Processes",
    "ROOM",
    "Replay",
    "SearchResult",
    "SentenceSearch",
    "StepSearch",
    "batches",
    "bursts",
    "check_finite",
    "check_outputs",
    "check_prefix",
    "documents_of",
    "file_translation",
    "first_model",
    "host_features",
    "joining",
    "length_class",
    "length_penalty",
    "output_limit",
    "outputs",
    "search",
    "source_of",
    "to_bfloat16",
    "tokens_of",
    "without_gradients",
]

__getattr__, __dir__ = door(__name__)
