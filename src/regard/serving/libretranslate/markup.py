"""HTML as texts to translate and markup to keep: a block's inline content is one text, and its tags are carried along.

Nothing is repaired: what is not a text is written as it was read, byte for byte. Elements that are not translated
(`translate="no"`, `class="notranslate"`, code, pre, script, style and the like) and attributes stay as they are. A
`<br>` separates texts, as the end of a line does in plain text. Tags without a partner stay beside the word that they
stood beside.
"""

import html
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from regard.serving.libretranslate.tag_placement import Element, Link, Node, Point, place_tags

__all__ = ["Document", "Segment", "parse_html"]


def list_names(text: str) -> frozenset[str]:
    """The names of elements in a text."""
    return frozenset(re.findall(r"\w+", text))


BLOCKS = list_names(
    "address area article aside audio base blockquote body br button canvas caption center col colgroup datalist dd "
    "details dialog dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html iframe legend li link main map menu meta nav noembed noframes noscript object ol optgroup "
    "option p param plaintext pre script search section select source style summary svg table tbody td template "
    "textarea tfoot th thead title tr track ul video xmp math"
)
VOID = list_names("area base br col embed frame hr img input link meta param source track wbr")
OPAQUE = list_names(
    "code pre script style textarea svg math iframe noembed noframes xmp kbd samp var plaintext template"
)
RAW = list_names("script style textarea title iframe noembed noframes xmp")  # no tags in them
NESTED = 60  # elements in elements that are carried; deeper ones are points
SPACE = " \t\n\r\f"
CLOSING = ".,;:!?)]}…»”’%。，、；：！？）」』"
TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*+)"
    r"(?P<attributes>(?:[^>=]|=[ \t\n\r\f]*+(?:\"[^\"]*+\"|'[^']*+'|))*+)>"
)
COMMENT = re.compile(r"<!--(?:>|->|.*?(?:--!?>|\Z))", re.DOTALL)
DECLARATION = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^>]*+(?:>|\Z)|</[^a-zA-Z][^>]*+(?:>|\Z)", re.DOTALL)
STAYS = re.compile(
    r"""[\s"']translate\s*=\s*["']?no(?=["'\s/>])"""
    r"""|[\s"']class\s*=\s*(?:"[^"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)""",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Token:
    """A piece of HTML: text, start, end, point (whole and inline) or block (whole, between texts)."""

    kind: str
    raw: str
    name: str = ""


@dataclass(frozen=True)
class Segment:
    """Inline content with words: its text, and what stands in and around it."""

    text: str
    nodes: tuple[Node, ...]
    before: str  # white space
    after: str

    def render(self, target: str, links: Sequence[Link]) -> str:
        """Write the translation of the text with the tags of the segment."""
        return self.before + place_tags(self.text, target, links, self.nodes) + self.after


@dataclass(frozen=True)
class Document:
    """HTML in parts: segments to translate, and text that stays."""

    parts: tuple[Segment | str, ...]

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return [part.text for part in self.parts if isinstance(part, Segment)]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Write the document with the translation of each text, and the links of its words."""
        rows = iter(translations)
        return "".join(part if isinstance(part, str) else part.render(*next(rows)) for part in self.parts)


def parse_html(text: str) -> Document:
    """Parse HTML, a fragment or a page."""
    parts: list[Segment | str] = []
    run: list[Token] = []
    for token in [*keep_whole(tokenise(text)), Token("block", "")]:
        if token.kind != "block":
            run.append(token)
            continue
        if run:
            parts.append(make_segment(run))
            run = []
        parts.append(token.raw)
    return Document(tuple(part for part in parts if part))


# ---- tokens


def tokenise(text: str) -> list[Token]:
    """Cut HTML into tokens; joined, they are the HTML again."""
    tokens, at, begun, last = list[Token](), 0, 0, text.rfind(">")

    def end_text(end: int) -> None:
        if begun < end:
            tokens.append(Token("text", text[begun:end]))

    while (at := text.find("<", at)) >= 0:
        found = COMMENT.match(text, at) or DECLARATION.match(text, at)
        if found:
            end_text(at)
            tokens.append(Token("point" if found[0].startswith("<!--") else "block", found[0]))
        elif at < last and (found := TAG.match(text, at)):
            end_text(at)
            name = found["name"].lower()
            tokens.append(Token("end" if found["end"] else "start", found[0], name))
            if not found["end"] and name in RAW:
                close = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, found.end())
                stop = close.start() if close else len(text)
                if stop > found.end():
                    tokens.append(Token("text", text[found.end() : stop]))
                at = begun = stop
                continue
        else:
            at += 1
            continue
        at = begun = found.end()
    end_text(len(text))
    return tokens


def keep_whole(tokens: Sequence[Token]) -> list[Token]:
    """Join what is not translated into one token each, and tell blocks from inline tags."""
    ends, opened = dict[int, int](), defaultdict[str, list[int]](list)
    for number, token in enumerate(tokens):
        if token.kind == "start" and token.name not in VOID and not token.raw.endswith("/>"):
            opened[token.name].append(number)
        elif token.kind == "end" and opened[token.name]:
            ends[opened[token.name].pop()] = number
    result, number = list[Token](), 0
    while number < len(tokens):
        token = tokens[number]
        block = "block" if token.name in BLOCKS else "point"
        if token.kind == "start" and stays(token) and (number in ends or token.name in RAW):
            end = ends.get(number, min(number + 1, len(tokens) - 1))  # raw text without an end tag has no other tokens
            result.append(Token(block, "".join(each.raw for each in tokens[number : end + 1]), token.name))
            number = end
        elif token.kind in ("start", "end") and token.name in BLOCKS:
            result.append(Token("block", token.raw, token.name))
        elif token.kind == "start" and (token.name in VOID or token.raw.endswith("/>")):
            result.append(Token("point", token.raw, token.name))
        else:
            result.append(token)
        number += 1
    return result


def stays(token: Token) -> bool:
    """Return whether an element is not translated."""
    return token.name in OPAQUE or STAYS.search(token.raw) is not None


# ---- segments


@dataclass
class OpenElement:
    """An element that is being read."""

    token: Token
    first: int | None = None  # character of the text
    nodes: list[Node] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # all that is in it


def make_segment(tokens: Sequence[Token]) -> Segment | str:
    """Make a segment of inline tokens, or the text as it is where it has no words."""
    partners = match_tags(tokens)
    builder = TextBuilder()
    for number, token in enumerate(tokens):
        builder.read(token, paired=number in partners)
    raw = "".join(token.raw for token in tokens)
    if not any(map(str.isalnum, builder.text)):
        return raw
    before, after = raw[: len(raw) - len(raw.lstrip(SPACE))], raw[len(raw.rstrip(SPACE)) :]
    return Segment(builder.text, tuple(builder.stack[0].nodes), before, after)


def match_tags(tokens: Sequence[Token]) -> set[int]:
    """The numbers of the tags that have a partner, properly nested and not too deep."""
    paired, stack = set[int](), list[int]()
    counts: dict[str, int] = defaultdict(int)
    for number, token in enumerate(tokens):
        if token.kind == "start":
            stack.append(number)
            counts[token.name] += 1
        elif token.kind == "end" and counts[token.name]:
            while tokens[stack[-1]].name != token.name:  # those have no end, or it comes too late
                counts[tokens[stack.pop()].name] -= 1
            counts[token.name] -= 1
            start = stack.pop()
            if len(stack) < NESTED:
                paired |= {start, number}
    return paired


class TextBuilder:
    """The text of a segment as it grows, with white space as a browser shows it, and the markup on the way."""

    def __init__(self) -> None:
        self.text, self.space = "", False  # a space is due before the next word
        self.after_point = False  # nothing but points since the last text, not even a space
        self.joined = False  # neither a word nor a space since the last point
        self.stack = [OpenElement(Token("block", ""))]

    def read(self, token: Token, paired: bool) -> None:
        """Take in the next token."""
        if token.kind == "text":
            self.add_text(token.raw)
        elif token.kind == "start" and paired:
            self.stack.append(OpenElement(token))
        elif token.kind == "end" and paired:
            self.close(token)
        else:
            self.add_point(token.raw)

    def add_text(self, raw: str) -> None:
        """Add a text."""
        text = re.sub(rf"[{SPACE}]+", " ", html.unescape(raw))
        core = text.strip(" ")
        self.stack[-1].raw.append(raw)
        if text.startswith(" ") and self.after_point:
            self.mark_after()
        self.after_point = self.after_point and not text
        self.space |= text.startswith(" ")
        self.joined = self.joined and not text.startswith(" ")
        if not core:
            return
        # "Type <code>ls</code>." is read as "Type."
        glued = self.joined and core[0] in CLOSING
        if self.space and self.text and not glued:
            self.text += " "
        for each in self.stack:
            if each.first is None:
                each.first = len(self.text)
        self.text += core
        self.space = text.endswith(" ")
        self.joined = False

    def add_point(self, raw: str) -> None:
        """Add markup that has no words to translate."""
        self.stack[-1].nodes.append(Point(raw, len(self.text), before=self.space))
        self.stack[-1].raw.append(raw)
        self.after_point = self.joined = True

    def mark_after(self) -> None:
        """Note that a space follows the last point."""
        nodes = self.stack[-1].nodes
        if nodes and isinstance(nodes[-1], Point):
            last = nodes[-1]
            nodes[-1] = Point(last.raw, last.at, last.before, after=True)

    def close(self, token: Token) -> None:
        """Close the element that was opened last; one without words is a point."""
        closed = self.stack.pop()
        raw = closed.token.raw + "".join(closed.raw) + token.raw
        if closed.first is None:
            self.add_point(raw)
            return
        self.stack[-1].raw.append(raw)
        self.stack[-1].nodes.append(
            Element(closed.token.raw, token.raw, closed.first, len(self.text), tuple(closed.nodes))
        )
        self.after_point = False
