"""HTML as texts to translate and markup to keep: a block's inline content is one text, which carries its tags along.

Nothing is repaired: everything outside the texts is written exactly as it was read. Attributes stay as they are, and so
do elements that are not translated (`translate="no"`, `class="notranslate"`, code, pre, script, style and the like). A
`<br>` separates texts, as the end of a line does in plain text. Tags move with their words if that keeps the document
tree the same, that is, if the tags are nested. Otherwise each text between two tags is a text of its own.

Tokens are those of the standard's tokenizer (WHATWG HTML, section 13.2.5), in time linear in the length. Joined, they
are the original HTML. What the standard drops at the end (an unfinished tag) is a tail. In a few places the standard's
tokenizer depends on its tree: inside `<svg>` and `<math>`, raw text in `<select>`, `<noscript>` with and without
scripts. If the HTML is ambiguous there, the rest is a tail, too: it stays as it is. The tests compare with html5lib,
which is not used here: it takes time quadratic in the number of a tag's attributes.
"""

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from regard.serving.libretranslate.tag_placement import Element, Link, Node, Point, place_tags


def list_names(text: str) -> frozenset[str]:
    """Return the names of elements in a text."""
    return frozenset(text.split())


BLOCKS = list_names(
    "address area article aside audio base blockquote body br button canvas caption center col colgroup datalist dd "
    "details dialog dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html iframe legend li link main map menu meta nav noembed noframes noscript object ol optgroup "
    "option p param plaintext pre script search section select source style summary svg table tbody td template "
    "textarea tfoot th thead title tr track ul video xmp math"
)
VOID = list_names(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr"
)
OPAQUE = list_names("code pre script style textarea iframe noembed noframes xmp kbd samp var template")
CELLS = list_names("td th caption")
ROWS = CELLS | list_names("tr tbody thead tfoot colgroup col")
FORMATTING = list_names("a b big code em font i nobr s small strike strong tt u")  # elements that the standard reopens
ALONE = list_names("a nobr")  # not inside one another
NESTED = 60  # levels of elements that are carried along; in deeper ones each text is its own
SPACE = " \t\n\r\f"
CLOSING = ".,;:!?)]}…»”’%。，、；：！？）」』"
RAW = list_names("script style textarea title iframe noembed noframes xmp")  # no tags in them
TEXTS = RAW | list_names("desc mi mo mn ms mtext")  # elements of svg and math that contain only text
LIMITED = list_names("style title xmp iframe noembed noframes noscript svg math")  # with another meaning in <select>
# Tags that end <svg> and <math>, wherever they stand in them, and those in which HTML begins again.
BREAKS = list_names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var font foreignobject annotation-xml"
)
WHITE = r"[\t\n\f\r ]"
ATTRIBUTE = (
    rf"(?:=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)(?:{WHITE}*+={WHITE}*+"
    rf"(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>))|(?!{WHITE}*+=))"
)
TAG = re.compile(rf"<(/?)([a-zA-Z][^\t\n\f\r />]*+)((?:[\t\n\f\r /]*+{ATTRIBUTE})*+)[\t\n\f\r /]*+>")
PARTS = re.compile(
    rf"[\t\n\f\r /]*+(=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)(?:{WHITE}*+={WHITE}*+"
    rf"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)|(?=\Z)))?+"
)
OPENING = re.compile(r"<(?:!--|[!?]|/?[a-zA-Z]|/(?=.))", re.DOTALL)
COMMENT = re.compile(r"<!--(?:>|->|.*?--!?>)", re.DOTALL)
BOGUS = re.compile(r"[^>]*+>")
CDATA = re.compile(r"<!\[CDATA\[[^<]*?\]\]>")
SCRIPT = re.compile(r"<!--|-->|<(/?)script(?=[\t\n\f\r />])", re.IGNORECASE)
CLOSES = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE) for name in (*RAW, "noscript")}
LOWER = {code: code + 32 for code in range(65, 91)}  # ASCII only: no other letter becomes a letter of a tag name


@dataclass(frozen=True)
class Token:
    """A piece of HTML: text, start, end, point (whole and inline), block (whole, between texts) or tail."""

    kind: str
    raw: str
    name: str = ""

    @cached_property
    def attributes(self) -> dict[str, str]:
        """The attributes of a tag, undecoded; of several with the same name the first counts."""
        found = TAG.fullmatch(self.raw)
        result: dict[str, str] = {}
        for part in PARTS.finditer(found[3] if found else ""):
            result.setdefault(part[1].lower(), part[2] or part[3] or part[4] or "")
        return result


def tokenise(text: str) -> list[Token]:
    """Split HTML into tokens, which can be joined to the same HTML."""
    return Tokenizer(text).read()


class Tokenizer:
    """Reads a text once, from beginning to end."""

    def __init__(self, text: str):
        self.text, self.at, self.begun = text, 0, 0
        self.tokens: list[Token] = []
        self.selects = False  # a <select> may be open
        self.templates = self.columns = False  # a <template> may be open, and a <col> in it

    def read(self) -> list[Token]:
        """Read the whole text."""
        while (opening := OPENING.search(self.text, self.at)) is not None:
            self.end_text(opening.start())
            if not self.read_markup(opening[0]):
                self.tokens.append(Token("tail", self.text[self.begun :]))
                return self.tokens
        self.end_text(len(self.text))
        return self.tokens

    def end_text(self, end: int) -> None:
        """Add the text before the next markup as a token."""
        if self.begun < end:
            self.tokens.append(Token("text", self.text[self.begun : end]))
        self.at = self.begun = end

    def add(self, kind: str, end: int, name: str = "") -> None:
        """Add a token up to `end`."""
        self.tokens.append(Token(kind, self.text[self.at : end], name))
        self.at = self.begun = end

    def read_markup(self, opening: str) -> bool:
        """Read markup; return False if the rest is a tail."""
        text, at = self.text, self.at
        if not opening[-1].isalpha():
            found = (COMMENT if opening == "<!--" else BOGUS).match(text, at)
            if found is not None:
                self.add("point" if opening == "<!--" else "block", found.end())
            return found is not None
        tag = TAG.match(text, at)
        if tag is None:
            return False
        name = tag[2].translate(LOWER)
        if tag[1]:
            self.add("end", tag.end(), name)
            self.selects = self.selects and name != "select"
            return True
        ambiguous = (self.selects and name in LIMITED) or (self.columns and (name in RAW or name in LIMITED))
        if ambiguous or name in ("plaintext", "frameset"):
            return False
        if name in ("svg", "math"):
            return self.read_foreign(tag, name)
        if name == "noscript":
            return self.read_noscript(tag.end())
        end: int | None = tag.end()
        if name in RAW:
            close = CLOSES[name].search(text, tag.end())
            end = script_end(text, tag.end()) if name == "script" else close and close.start()
        if end is None:
            return False
        self.add("start", tag.end(), name)
        self.selects = self.selects or name == "select"
        self.templates = self.templates or name == "template"
        self.columns = self.columns or (self.templates and name == "col")
        self.end_text(end)
        return True

    def read_foreign(self, tag: re.Match[str], name: str) -> bool:
        """Read `<svg>` or `<math>` as a whole; return False if its end is unclear, or HTML may begin in it."""
        text, at, stack = self.text, tag.end(), [] if is_self_closing(tag) else [name]
        while stack:
            opening = OPENING.search(text, at)
            if opening is None:
                return False
            at = opening.start()
            found = TAG.match(text, at)
            if found is None:
                found = CDATA.match(text, at) or (COMMENT.match(text, at) if stack[-1] not in TEXTS else None)
                if found is None:
                    return False
            elif found[1]:
                if stack.pop() != found[2].translate(LOWER):
                    return False
            elif (inner := found[2].translate(LOWER)) in BREAKS or stack[-1] in TEXTS:
                return False
            elif not is_self_closing(found):
                stack.append(inner)
            at = found.end()
        self.add("block", at, name)
        return True

    def read_noscript(self, start: int) -> bool:
        """Read `<noscript>` as a whole: text if scripts run, and markup if not; return False if its end is unclear."""
        close = CLOSES["noscript"].search(self.text, start)
        tag = close and TAG.match(self.text, close.start())
        inner = tokenise(self.text[start : tag.start()]) if tag is not None else []
        if tag is None or any(each.kind == "tail" or each.name in ("select", "template") for each in inner):
            return False  # an element opened in it may stay open
        started, ended = (sorted(each.name for each in inner if each.kind == kind) for kind in ("start", "end"))
        if any(started.count(name) != ended.count(name) for name in FORMATTING):
            return False  # the standard reopens it in the text behind
        self.add("block", tag.end(), "noscript")
        return True


def is_self_closing(tag: re.Match[str]) -> bool:
    """Return whether a tag ends with a slash that is not part of an attribute's value."""
    return tag[0][-2] == "/" and not tag[3].endswith("/")


def script_end(text: str, at: int) -> int | None:
    """Find the end tag of a script; inside a comment, a nested `<script>` has an end tag of its own."""
    escaped = double = False
    while (found := SCRIPT.search(text, at)) is not None:
        at = found.end()
        if found[0] == "<!--":
            if not escaped:
                escaped, at = True, at - 2  # these dashes may end the comment, too
        elif found[0] == "-->":
            escaped = double = False
        elif not found[1]:
            double = escaped
        elif double:
            double = False
        else:
            return found.start()
    return None


@dataclass(frozen=True)
class Segment:
    """Inline content with words: its text, the markup in it and the white space around it."""

    text: str
    nodes: tuple[Node, ...]
    before: str  # white space
    after: str
    raw: str = ""  # replaces an empty translation: without it, loose markup could give another tree

    def render(self, target: str, links: Sequence[Link]) -> str:
        """Render the translation of the text with the tags of the segment."""
        if self.raw and not target.strip():
            return self.raw
        return self.before + place_tags(self.text, target, links, self.nodes) + self.after


@dataclass(frozen=True)
class Document:
    """HTML in parts: segments to translate, and markup to keep."""

    parts: tuple[Segment | str, ...]

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return [part.text for part in self.parts if isinstance(part, Segment)]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Render the document with the translation and the word links of each text."""
        rows = iter(translations)
        return "".join(part if isinstance(part, str) else part.render(*next(rows)) for part in self.parts)


def parse_html(text: str) -> Document:
    """Parse HTML, a fragment or a page."""
    tokens = tokenise(text)
    ends, first_loose = match_elements(tokens)
    parts: list[Segment | str] = []
    run: list[Token] = []
    # For each open table and select, the innermost last: whether the text is outside all cells. The standard moves it
    # then.
    loose = [False]
    for number, token in (*keep_whole(tokens, ends), (len(tokens), Token("block", ""))):
        if token.kind not in ("block", "tail"):
            run.append(token)
            continue
        parts += [*make_segments(run, number <= first_loose and not (loose[-1] and len(run) > 1)), token.raw]
        run = []
        start = not token.raw.startswith("</")
        if token.name in ("table", "select") and start:
            loose.append(True)
        elif len(loose) > 1 and token.name in ("table", "select"):
            loose.pop()
        elif len(loose) > 1 and token.name in ROWS:
            loose[-1] = not (start and token.name in CELLS)
    return Document(tuple(part for part in parts if part))


# ---- elements


def match_elements(tokens: Sequence[Token]) -> tuple[dict[int, int], int]:
    """Match start and end tags by their numbers, and find the first formatting element that the standard repairs.

    The standard reopens a formatting element that is not closed in time in the next block, so the order of texts
    matters there. From that element on no tag moves.
    """
    ends, stack, first_loose = dict[int, int](), list[int](), len(tokens)
    opened: dict[str, int] = defaultdict(int)
    outermost = dict[str, int]()  # start tags
    for number, token in enumerate(tokens):
        if token.kind == "start" and token.name not in VOID:
            if not opened[token.name]:
                outermost[token.name] = number
            elif token.name in ALONE:
                first_loose = min(first_loose, outermost[token.name])
            stack.append(number)
            opened[token.name] += 1
        elif token.kind == "end" and opened[token.name]:
            between = list[int]()
            while tokens[stack[-1]].name != token.name:  # they have no end tag, or it comes too late
                between.append(stack.pop())
                opened[tokens[between[-1]].name] -= 1
            start = stack.pop()
            opened[token.name] -= 1
            ends[start] = number
            if between and token.name in FORMATTING:
                between.append(start)
            first_loose = min([first_loose, *(each for each in between if tokens[each].name in FORMATTING)])
    return ends, min([first_loose, *(each for each in stack if tokens[each].name in FORMATTING)])


def keep_whole(tokens: Sequence[Token], ends: dict[int, int]) -> Iterator[tuple[int, Token]]:
    """Yield tokens with their last part's number: join untranslated elements, tell blocks from inline tags."""
    number = 0
    while number < len(tokens):
        token = tokens[number]
        block = "block" if token.name in BLOCKS else "point"
        if token.kind == "start" and number in ends and stays(token):
            inner = tokens[number : ends[number] + 1]
            if any(each.kind == "block" or each.name in BLOCKS for each in inner):
                block = "block"
            number = ends[number]
            yield number, Token(block, "".join(each.raw for each in inner), token.name)
        elif token.kind in ("start", "end") and token.name in BLOCKS:
            yield number, Token("block", token.raw, token.name)
        elif token.kind == "start" and token.name in VOID:
            yield number, Token("point", token.raw, token.name)
        else:
            yield number, token
        number += 1


def stays(token: Token) -> bool:
    """Return whether an element is left untranslated."""
    if token.name in OPAQUE:
        return True
    if "translate" not in token.raw.lower():
        return False
    attributes = token.attributes
    classes = html.unescape(attributes.get("class", "")).split()
    return html.unescape(attributes.get("translate", "")).lower() == "no" or "notranslate" in classes


# ---- segments


@dataclass
class OpenElement:
    """An element that is being read."""

    token: Token
    first: int | None = None  # its first character in the text
    nodes: list[Node] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # all its content


def make_segments(tokens: Sequence[Token], nested: bool) -> list[Segment | str]:
    """Make segments of inline tokens: one if all tags are nested, otherwise one of each text between two tags.

    Tags are nested if every one has its partner, and not too many are open at once.
    """
    opened: list[str] = []
    for token in tokens:
        if token.kind == "start":
            opened.append(token.name)
        elif token.kind == "end":
            nested = nested and bool(opened) and opened.pop() == token.name
        nested = nested and len(opened) <= NESTED
    if nested and not opened:
        return [make_segment(tokens)] if tokens else []
    return [make_segment([token], alone=True) if token.kind == "text" else token.raw for token in tokens]


def make_segment(tokens: Sequence[Token], alone: bool = False) -> Segment | str:
    """Make a segment of inline tokens; return them unchanged if they contain no words."""
    builder = TextBuilder()
    for token in tokens:
        builder.read(token)
    raw = "".join(token.raw for token in tokens)
    text = "".join(builder.parts)
    if not any(map(str.isalnum, text)):
        return raw
    before, after = raw[: len(raw) - len(raw.lstrip(SPACE))], raw[len(raw.rstrip(SPACE)) :]
    return Segment(text, tuple(builder.stack[0].nodes), before, after, raw if alone else "")


class TextBuilder:
    """Builds the text of a segment, with white space as a browser shows it, and its markup."""

    def __init__(self) -> None:
        self.parts, self.length = list[str](), 0
        self.space = False  # a space is due before the next word
        self.after_point = False  # since the last text there were only points, not even a space
        self.joined = False  # since the last point there was neither a word nor a space
        self.stack = [OpenElement(Token("block", ""))]

    def read(self, token: Token) -> None:
        """Add the next token."""
        if token.kind == "text":
            self.add_text(token.raw)
        elif token.kind == "start":
            self.stack.append(OpenElement(token))
        elif token.kind == "end":
            self.close(token)
        else:
            self.add_point(token.raw)

    def add_text(self, raw: str) -> None:
        """Add a text."""
        text = re.sub(rf"[{SPACE}]+", " ", html.unescape(raw))
        core = text.strip(" ")
        self.stack[-1].raw.append(raw)
        nodes = self.stack[-1].nodes
        if text.startswith(" ") and self.after_point and nodes and isinstance(nodes[-1], Point):
            nodes[-1] = replace(nodes[-1], after=True)  # a space follows it
        self.after_point = self.after_point and not text
        self.space |= text.startswith(" ")
        self.joined = self.joined and not text.startswith(" ")
        if not core:
            return
        # "Type <code>ls</code>." is read as "Type."
        glued = self.joined and core[0] in CLOSING
        if self.space and self.length and not glued:
            self.parts.append(" ")
            self.length += 1
        for each in self.stack:
            if each.first is None:
                each.first = self.length
        self.parts.append(core)
        self.length += len(core)
        self.space = text.endswith(" ")
        self.joined = False

    def add_point(self, raw: str) -> None:
        """Add markup without words to translate."""
        self.stack[-1].nodes.append(Point(raw, self.length, before=self.space))
        self.stack[-1].raw.append(raw)
        self.after_point = self.joined = True

    def close(self, token: Token) -> None:
        """Close the element that was opened last; if it has no words, it becomes a point."""
        closed = self.stack.pop()
        raw = closed.token.raw + "".join(closed.raw) + token.raw
        if closed.first is None:
            self.add_point(raw)
            return
        self.stack[-1].raw.append(raw)
        self.stack[-1].nodes.append(
            Element(closed.token.raw, token.raw, closed.first, self.length, tuple(closed.nodes))
        )
        self.after_point = False
