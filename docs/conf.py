import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from regard import __version__

project = "Regard"
version = release = __version__
extensions = ["myst_parser", "mathml", "generated", "access"]
myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "Regard"
html_static_path = ["_static"]
html_css_files = ["formulas.css", "pages.css"]
html_js_files = ["access.js"]
html_search_scorer = str(Path(__file__).parent / "_extensions" / "search_scores.js")
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
