"""Inspection of what a model looked at, for people: pages and pictures of it.

    from regard import inspection, load
    exhibit = inspection.exhibit_of(load("runs/demo"), "I ate pizza yesterday.", beam=5)
    inspection.page(exhibit).save("look.html")

For users: `exhibit_of` and `Which`; `page`, `picture`, `heatmap`, `bars`, `svg`, `save`; `model_graph` draws what runs
in a model. Whole corpora, aligned: `corpus_alignment`. What is asked of a model: ablation, trees, weighed sentences.
What reports and studies draw with: `plot`, tables, colours, HTML.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.inspection import corpus_alignment
    from regard.inspection.collect import dependency_trees
    from regard.inspection.collect import grounding as word_grounding
    from regard.inspection.collect import inputs as look_inputs
    from regard.inspection.collect.from_run import ablation_table, exhibit_of, silence_head
    from regard.inspection.collect.sides import WeighedSentence, weigh
    from regard.inspection.collect.walk import Which
    from regard.inspection.draw import colours, plot
    from regard.inspection.draw import files as look_files
    from regard.inspection.draw import page as page_parts
    from regard.inspection.draw.graph import ModelGraph, model_graph
    from regard.inspection.draw.heatmap import bars, heatmap, save, svg
    from regard.inspection.draw.html import document, figure_element, table_element
    from regard.inspection.draw.page import Page, page
    from regard.inspection.draw.picture import picture
    from regard.inspection.draw.plot import draw_lengths
    from regard.inspection.draw.report_page import LookPicture, write
    from regard.inspection.draw.table import Cell, Table, show

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
    "colours",
    "corpus_alignment",
    "dependency_trees",
    "document",
    "draw_lengths",
    "exhibit_of",
    "figure_element",
    "heatmap",
    "look_files",
    "look_inputs",
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
