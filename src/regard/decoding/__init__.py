"""Decoding: greedy search, beam search and sampling for every model.

`Options`, limits and outputs. `search` decodes a batch, and `batches` many sentences; on a GPU `Replay` and
`BurstSearch` replay CUDA graphs, and `join_searches` joins searches that run. `Ensemble` averages models. `Processes`
and `file_translation` translate files in one or more processes. `tokens_of` and `source_of` make a search's inputs.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.decoding import batches
    from regard.decoding import translate_file as file_translation
    from regard.decoding.batches import host_features
    from regard.decoding.device_search import Hypotheses, to_bfloat16
    from regard.decoding.ensemble import Ensemble, first_model
    from regard.decoding.limits import ROOM, check_prefix, output_limit
    from regard.decoding.options import GREEDY, Candidate, Options, Output, SearchResult, check_outputs
    from regard.decoding.replay import WRITES, BurstSearch, HostCopy, Replay, length_class
    from regard.decoding.scoring import check_finite, documents_of, length_penalty, source_of, tokens_of
    from regard.decoding.sentence_search import (
        SentenceSearch,
        StepSearch,
        can_join,
        join_searches,
        search,
        shared_options,
        without_gradients,
    )
    from regard.decoding.translate_file import Processes

__all__ = [
    "BurstSearch",
    "Candidate",
    "Ensemble",
    "GREEDY",
    "HostCopy",
    "Hypotheses",
    "Options",
    "Output",
    "Processes",
    "ROOM",
    "Replay",
    "SearchResult",
    "SentenceSearch",
    "StepSearch",
    "WRITES",
    "batches",
    "can_join",
    "check_finite",
    "check_outputs",
    "check_prefix",
    "documents_of",
    "file_translation",
    "first_model",
    "host_features",
    "join_searches",
    "length_class",
    "length_penalty",
    "output_limit",
    "search",
    "shared_options",
    "source_of",
    "to_bfloat16",
    "tokens_of",
    "without_gradients",
]

__getattr__, __dir__ = door(__name__)
