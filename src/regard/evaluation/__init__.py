"""Evaluation: reproducible scores with signatures.

`METRICS` is the table of metrics, and `choose_metrics` picks from it. Other functions score texts, alignments, captions
and labels. `read_items` reads a test set, and `evaluate` scores outputs for it, also by length. `compare_outputs` tests
whether the difference between two systems is significant.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.evaluation import alignment as alignment_scores
    from regard.evaluation import text as text_scores
    from regard.evaluation.alignment import Gold, measure_links, read_links
    from regard.evaluation.captions import caption_scores, measure_bleu_n, measure_cider, measure_rouge
    from regard.evaluation.evaluation import (
        FEW,
        Evaluation,
        Items,
        Lengths,
        evaluate,
        read_items,
        read_texts,
        score_by_length,
    )
    from regard.evaluation.labels import measure_labels
    from regard.evaluation.metric import METRICS, Reference, Score, choose_metrics, finite, measure, metric_names
    from regard.evaluation.significance import Comparison, compare_outputs, conclusion, paired_bootstrap

__all__ = [
    "Comparison",
    "Evaluation",
    "FEW",
    "Gold",
    "Items",
    "Lengths",
    "METRICS",
    "Reference",
    "Score",
    "alignment_scores",
    "caption_scores",
    "choose_metrics",
    "compare_outputs",
    "conclusion",
    "evaluate",
    "finite",
    "measure",
    "measure_bleu_n",
    "measure_cider",
    "measure_labels",
    "measure_links",
    "measure_rouge",
    "metric_names",
    "paired_bootstrap",
    "read_items",
    "read_links",
    "read_texts",
    "score_by_length",
    "text_scores",
]

__getattr__, __dir__ = door(__name__)
