"""Formulas as MathML, made when the pages are built: browsers show it by themselves, and nothing is fetched."""

import re

from docutils.nodes import Element, SkipNode
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def mathml(node: Element, display: str) -> str:
    """The formula of `node`; what the converter does not know is a warning, not a formula with holes."""
    latex = re.sub(r"\\(begin|end)\{(?:aligned|align|split)\}", r"\\\1{align*}", node.astext())
    made = convert(latex, display=display)
    if unknown := re.search(r"\\[A-Za-z]+|>&<", made):
        logger.warning("no MathML for %s in: %s", unknown[0].strip("<>"), latex, location=node)
    return made


def visit_math(self: HTML5Translator, node: Element) -> None:
    self.body.append(mathml(node, "inline"))
    raise SkipNode


def visit_displaymath(self: HTML5Translator, node: Element) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node, "block") + "</div>\n")
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
