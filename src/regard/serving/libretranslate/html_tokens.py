"""HTML in tokens, as the standard's tokenizer reads it (WHATWG HTML, section 13.2.5), in time linear in its length.

Joined, the tokens are the HTML again. What the standard drops at the end (a tag that is not finished) is a tail. The
tokenizer of the standard depends on its tree in a few places: what is in `<svg>` and `<math>`, raw text in `<select>`,
`<noscript>` with and without scripts. Where that can be read in two ways, the rest of the text is a tail too: it stays
as it is. html5lib, which the tests compare with, is not used here: a tag takes it time quadratic in its attributes.
"""

import re
from dataclasses import dataclass
from functools import cached_property


def list_names(text: str) -> frozenset[str]:
    """The names of elements in a text."""
    return frozenset(text.split())


RAW = list_names("script style textarea title iframe noembed noframes xmp")  # no tags in them
LIMITED = list_names("style title xmp iframe noembed noframes noscript svg math")  # of another meaning in <select>
# What ends <svg> and <math>, wherever it stands in them, and where HTML begins in them again.
BREAKS = list_names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var font foreignobject annotation-xml"
)
TEXTS = list_names("title desc style script mi mo mn ms mtext")  # elements of svg and math with nothing but text
SPACE = r"[\t\n\f\r ]"
ATTRIBUTE = (
    rf"(?:=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)(?:{SPACE}*+={SPACE}*+"
    rf"(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>))|(?!{SPACE}*+=))"
)
TAG = re.compile(rf"<(/?)([a-zA-Z][^\t\n\f\r />]*+)((?:[\t\n\f\r /]*+{ATTRIBUTE})*+)[\t\n\f\r /]*+>")
PARTS = re.compile(
    rf"[\t\n\f\r /]*+(=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)(?:{SPACE}*+={SPACE}*+"
    rf"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)|(?=\Z)))?+"
)
OPENING = re.compile(r"<(?:!--|[!?]|/?[a-zA-Z]|/(?=.))", re.DOTALL)
COMMENT = re.compile(r"<!--(?:>|->|.*?--!?>)", re.DOTALL)
BOGUS = re.compile(r"[^>]*+>")
CDATA = re.compile(r"<!\[CDATA\[.*?\]\]>", re.DOTALL)
SCRIPT = re.compile(r"<!--|-->|<(/?)script(?=[\t\n\f\r />])", re.IGNORECASE)
CLOSES = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE) for name in (*RAW, "noscript")}


@dataclass(frozen=True)
class Token:
    """A piece of HTML: text, start, end, point (whole and inline), block (whole, between texts) or tail."""

    kind: str
    raw: str
    name: str = ""

    @cached_property
    def attributes(self) -> dict[str, str]:
        """The attributes of a tag as they are written; of several with one name the first counts."""
        found = TAG.fullmatch(self.raw)
        result: dict[str, str] = {}
        for part in PARTS.finditer(found[3] if found else ""):
            result.setdefault(part[1].lower(), part[2] or part[3] or part[4] or "")
        return result


def tokenise(text: str) -> list[Token]:
    """Cut HTML into tokens; joined, they are the HTML again."""
    return Tokenizer(text).read()


class Tokenizer:
    """Reads a text once, from its beginning to its end."""

    def __init__(self, text: str):
        self.text, self.at, self.begun = text, 0, 0
        self.tokens: list[Token] = []
        self.selects = False  # a <select> may be open
        self.templates = self.columns = False  # a <template> may be open, and a <col> in it

    def read(self) -> list[Token]:
        """Read all of it."""
        while (opening := OPENING.search(self.text, self.at)) is not None:
            self.end_text(opening.start())
            if not self.read_markup(opening[0]):
                self.tokens.append(Token("tail", self.text[self.begun :]))
                return self.tokens
        self.end_text(len(self.text))
        return self.tokens

    def end_text(self, end: int) -> None:
        """Add the text before the next markup."""
        if self.begun < end:
            self.tokens.append(Token("text", self.text[self.begun : end]))
        self.at = self.begun = end

    def add(self, kind: str, end: int, name: str = "") -> None:
        """Add a token that ends there."""
        self.tokens.append(Token(kind, self.text[self.at : end], name))
        self.at = self.begun = end

    def read_markup(self, opening: str) -> bool:
        """Read markup; false where the rest is a tail."""
        text, at = self.text, self.at
        if not opening[-1].isalpha():
            found = pattern_of(opening).match(text, at)
            if found is not None:
                self.add("point" if opening == "<!--" else "block", found.end())
            return found is not None
        tag = TAG.match(text, at)
        if tag is None:
            return False
        name = lower(tag[2])
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
        end = -1
        if name in RAW:
            end = script_end(text, tag.end()) if name == "script" else search_start(CLOSES[name], text, tag.end())
            if end < 0:
                return False
        self.add("start", tag.end(), name)
        self.selects = self.selects or name == "select"
        self.templates = self.templates or name == "template"
        self.columns = self.columns or (self.templates and name == "col")
        if end >= 0:
            self.end_text(end)
        return True

    def read_foreign(self, tag: re.Match[str], name: str) -> bool:
        """Read `<svg>` or `<math>` as a whole; false where it is not plain where it ends."""
        text, at, stack = self.text, tag.end(), [] if is_self_closing(tag) else [name]
        while stack:
            opening = OPENING.search(text, at)
            if opening is None:
                return False
            at = opening.start()
            if not opening[0][-1].isalpha():
                pattern = CDATA if text.startswith("<![CDATA[", at) else pattern_of(opening[0])
                found = pattern.match(text, at)
            elif (found := TAG.match(text, at)) is not None and not self.nest(found, stack):
                return False
            if found is None:
                return False
            at = found.end()
        self.add("whole", at, name)
        return True

    def nest(self, tag: re.Match[str], stack: list[str]) -> bool:
        """Put a tag inside `<svg>` or `<math>` on the stack, or take it off; false where HTML may begin with it."""
        name = lower(tag[2])
        if tag[1]:
            return stack.pop() == name
        if name in BREAKS:
            return False
        if is_self_closing(tag):
            return True
        stack.append(name)
        return (name not in RAW and name not in TEXTS) or self.has_text_only(tag.end(), name)

    def has_text_only(self, at: int, name: str) -> bool:
        """Return whether nothing but text, or a section of it, is before the end tag of an element."""
        section = CDATA.match(self.text, at)
        if section is not None:
            if "<" in section[0][1:]:
                return False
            at = section.end()
        close = self.text.find("<", at)
        return close >= 0 and lower(self.text[close : close + 2 + len(name)]) == f"</{name}"

    def read_noscript(self, start: int) -> bool:
        """Read `<noscript>` as a whole: text where scripts run, and markup where they do not."""
        end = search_start(CLOSES["noscript"], self.text, start)
        if end < 0:
            return False
        if any(each.kind == "tail" for each in tokenise(self.text[start:end])):
            return False
        tag = TAG.match(self.text, end)
        if tag is None:
            return False
        self.add("whole", tag.end(), "noscript")
        return True


def is_self_closing(tag: re.Match[str]) -> bool:
    """Return whether a tag ends with a slash that no attribute's value has."""
    return tag[0][-2] == "/" and not tag[3].endswith("/")


def pattern_of(opening: str) -> re.Pattern[str]:
    """What begins so and is no tag."""
    return COMMENT if opening == "<!--" else BOGUS


def search_start(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the next match begins; -1 where there is none."""
    found = pattern.search(text, at)
    return -1 if found is None else found.start()


def script_end(text: str, at: int) -> int:
    """Where the end tag of a script is: one inside a comment inside of it may begin another script."""
    escaped = double = False
    while (found := SCRIPT.search(text, at)) is not None:
        at = found.end()
        if found[0] == "<!--":
            if not escaped:
                escaped, at = True, at - 2  # the dashes may be those of its end
        elif found[0] == "-->":
            escaped = double = False
        elif not found[1]:
            double = escaped
        elif double:
            double = False
        else:
            return found.start()
    return -1


def lower(name: str) -> str:
    """A name in lower case, ASCII alone: no other letter becomes one of HTML's."""
    return name.translate(LOWER)


LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
