"""The page at `/`: where a person types, sees what comes of it, and looks into the model.

It is one HTML document with its style, its script and the server's limits inside, and a frame, `/look`, in which the
scripts of `regard look` draw what `/v1/look` answers. A policy names the script and the style by their hashes and
allows no connection but to this server; the page itself holds no text of anybody, so that it needs no key.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response

from regard import __version__
from regard.data import sentence_split
from regard.inspection import page_parts
from regard.serving.settings import ServeSettings

PAGE, FRAME = "/", "/look"
# In the order they build on one another; each holds one idea.
SCRIPTS = (
    "elements", "sentences", "server", "field", "marks", "words", "translator", "alternatives", "frame", "notices",
    "history", "sharing", "pane", "translate", "pictures", "documents", "sample", "main",
)  # fmt: skip
STYLES = ("page", "text", "panels", "paper")
LIMITS = ("characters", "texts", "look_words", "picture_bytes", "output_tokens", "beam", "seconds")
OURS = "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'; "
PAGE_POLICY = OURS + "connect-src 'self'; img-src blob: data:; frame-src 'self'; frame-ancestors 'none'"
FRAME_POLICY = OURS + "img-src data:; frame-ancestors 'self'"
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


def add_page(app: FastAPI, settings: ServeSettings) -> None:
    """Add the page and its frame to the routes of a server."""
    for path, (text, headers) in ((PAGE, build_page(settings)), (FRAME, build_frame())):
        app.add_api_route(path, show(text, headers), methods=["GET", "HEAD"], include_in_schema=False)


def show(text: str, headers: Mapping[str, str]) -> Any:
    """Make a route that answers with a document, or says that the browser has it already."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={**headers, "ETag": tag})
        return Response(text, media_type="text/html; charset=utf-8", headers={**headers, "ETag": tag})

    return answer


def build_page(settings: ServeSettings) -> tuple[str, dict[str, str]]:
    """Build the page of a server, and the headers that it is sent with."""
    script = page_parts.join_scripts([page_parts.look_data(), *(read_static(f"{name}.js") for name in SCRIPTS)])
    style = "".join(read_static(f"{name}.css") for name in STYLES)
    limits = {"version": __version__, **{name: getattr(settings, name) for name in LIMITS}}
    rules = {
        "short": sentence_split.SHORT.pattern,
        "closing": sentence_split.CLOSING,
        "opening": sentence_split.OPENING,
        "shortened": sentence_split.SHORTENED.pattern,
        "quotes": sentence_split.QUOTES,
    }
    # As ASCII and without "<": nothing in it can end the element that holds it.
    embedded = json.dumps({"limits": limits, "sentences": rules}, ensure_ascii=True).replace("<", "\\u003c")
    text = read_static("page.html")
    for name, value in (("style", style), ("settings", embedded), ("script", script)):
        text = text.replace(f"<!-- {name} -->", value, 1)
    policy = PAGE_POLICY.format(script=page_parts.hash_source(script), style=page_parts.hash_source(style))
    return text, {**HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "DENY"}


def build_frame() -> tuple[str, dict[str, str]]:
    """Build the frame in which the scripts of `regard look` draw, and the headers that it is sent with."""
    script, style = page_parts.look_script(), page_parts.look_style() + read_static("frame.css")
    text = (
        '<!doctype html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Inside the model</title>\n'
        f'<style>{style}</style>\n</head>\n<body>\n<main id="look" aria-label="Views"></main>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    policy = FRAME_POLICY.format(script=page_parts.hash_source(script), style=page_parts.hash_source(style))
    return text, {**HEADERS, "Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"}


def read_static(name: str) -> str:
    """Read a file of the page's."""
    return resources.files("regard.serving").joinpath("static", name).read_text(encoding="utf-8")
