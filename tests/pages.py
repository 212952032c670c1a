"""Read a page and check its HTML strictly."""

import html.parser

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Strict(html.parser.HTMLParser):
    """Check that elements close in order, ids are unique, nothing is loaded and nothing runs."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tags, self.text = [], [], set(), []

    def handle_starttag(self, tag, attributes):
        self.note(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.note(tag, attributes)

    def note(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on"), name
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                assert value.startswith(("#", "data:image/png;base64,")), value

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(page):
    """Return the words of a page after checking it."""
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert not parser.tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    return "".join(parser.text)
