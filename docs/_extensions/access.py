"""Accessible pages: repairs of furo's and Sphinx's templates that the checker axe asks for."""

from typing import Any

from sphinx.application import Sphinx

CAPTION = '<p class="caption" role="heading">'


def mend_context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the captions in the list of pages the `aria-level` that a heading needs."""
    tree = context.get("furo_navigation_tree")
    if isinstance(tree, str):
        context["furo_navigation_tree"] = tree.replace(CAPTION, CAPTION.replace(">", ' aria-level="2">'))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", mend_context, priority=900)  # after furo's own handler
    return {"parallel_read_safe": True, "parallel_write_safe": True}
