"""Pages for everyone: what furo's and Sphinx's templates leave out, which axe finds."""

from typing import Any

from sphinx.application import Sphinx

CAPTION = '<p class="caption" role="heading">'


def mend_context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the captions of the list of pages the level that a heading has, and the page of the search a heading."""
    tree = context.get("furo_navigation_tree")
    if isinstance(tree, str):
        context["furo_navigation_tree"] = tree.replace(CAPTION, CAPTION.replace(">", ' aria-level="2">'))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", mend_context, priority=900)  # after furo's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
