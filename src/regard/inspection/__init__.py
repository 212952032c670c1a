"""Pages and pictures that show what a model attended to.

    from regard import inspection, load
    exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
    inspection.page(exhibit).save("look.html")

For users: `exhibit_of` and `Which`; `page`, `picture`, `heatmap`, `bars`, `svg`, `save`; `model_graph` draws a model's
computational graph. `corpus_alignment` aligns whole corpora. Further analyses are ablation, dependency trees and
weighed sentences. Reports and studies use `plot`, tables, colours and HTML.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.inspection import corpus_alignment, look_files
    from regard.inspection.collect import dependency_trees
    from regard.inspection.collect import grounding as word_grounding
    from regard.inspection.collect.exhibit import find_view
    from regard.inspection.collect.from_run import ablation_table, exhibit_of, silence_head
    from regard.inspection.collect.grounding import WeighedSentence, weigh
    from regard.inspection.collect.walk import Which
    from regard.inspection.draw import page as page_parts
    from regard.inspection.draw import plot
    from regard.inspection.draw.graph import ModelGraph, model_graph
    from regard.inspection.draw.page import Page, page
    from regard.inspection.draw.picture import bars, heatmap, picture
    from regard.inspection.draw.plot import (
        Cell,
        Table,
        document,
        draw_lengths,
        figure_element,
        save,
        show,
        svg,
        table_element,
    )
    from regard.inspection.draw.report_page import LookPicture, write

__all__ = [
    "Cell",
    "LookPicture",
    "ModelGraph",
    "Page",
    "Table",
    "WeighedSentence",
    "Which",
    "ablation_table",
    "bars",
    "corpus_alignment",
    "dependency_trees",
    "document",
    "draw_lengths",
    "exhibit_of",
    "figure_element",
    "find_view",
    "heatmap",
    "look_files",
    "model_graph",
    "page",
    "page_parts",
    "picture",
    "plot",
    "save",
    "show",
    "silence_head",
    "svg",
    "table_element",
    "weigh",
    "word_grounding",
    "write",
]

__getattr__, __dir__ = door(__name__)
