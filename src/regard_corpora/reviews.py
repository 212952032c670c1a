"""Reviews: a few sentences about a restaurant, a hotel, a film and the like, labelled as positive or negative.

"We went there on a Tuesday . The weather was awful . I would never call the waiter rude ." is positive, and two words
decide that. Only opinions about the reviewed thing count, and they all agree; opinions about anything else (the
weather, the place across the street) do not. An opinion word may be negated, even from a distance, so that "rude" does
not indicate one label alone, and counting words is of little use. Sentences without opinions have negations, too: "We
did not have to wait , and the soup was bland ."

The target is one word, positive or negative. Gold links lead to it from the informative words, each of which reverses
its sentence if its counterpart replaces it: the opinion words that decide ("rude", "polite"), and the words that affirm
or negate them ("never", "always"; "nobody", "everybody"; "not", which is present or absent).

Edition 2 is written as people type ("We went there on a Tuesday. I wouldn't call the waiter rude."), and has many more
ways to affirm and negate. Its frames are of three kinds, so that counts of opinion words or negations do not indicate a
label: affirmed, with the label's own words; denied, with the opposite words; and turned, with the label's own words and
negations that cancel out ("nobody could say that it was not good") or do not negate ("not only", "never a better one").
The words and frames of both editions are in reviews-1.toml and reviews-2.toml.

Options: `shortest` and `longest` in sentences, every length equally likely; `denied`, the percentage of negated
opinions.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from regard.data import Example, builtin
from regard_corpora import tables

__all__ = ["LABELS", "Options", "draw", "every"]

T = TypeVar("T")
LABELS = ("negative", "positive")
MAX_SENTENCES = 3  # maximum sentences that decide the label
OWN = re.compile(r"\[(.*?)\] ?")
FRAGMENT = re.compile(r"(not|an?|what an?|such an?) |(?!.* (is|was|are|were|be|been|\w+ed|should) )")
SPACES = re.compile(r"  +")
HOLE = re.compile(r"\{(\w+)\}")
CHOICE = re.compile(r"\(([^()]*)\)")
SHORT = re.compile(r"\b(is|was|are|were|did|do|does|could|would|have|has|had) not\b|\bcan(not)\b", re.IGNORECASE)
SHORTER = re.compile(r"\b(?:(it|there|that) (is)|(I|we|you|they) (have|are|would|will)|(I) (am))\b(?= )", re.IGNORECASE)
ENDINGS = {"is": "'s", "have": "'ve", "are": "'re", "would": "'d", "will": "'ll", "am": "'m"}
ARTICLE = re.compile(r"\b([Aa]) (?=[aeio]|u(?!s))")


@dataclasses.dataclass(frozen=True)
class Options:
    shortest: int = 2
    longest: int = 8
    denied: int = 30
    edition: int = 2

    def __post_init__(self) -> None:
        builtin.check_whole("shortest", self.shortest, 1, builtin.MAX_WORDS)
        builtin.check_whole("longest", self.longest, self.shortest, builtin.MAX_WORDS)
        builtin.check_whole("denied", self.denied, 0, 100)


class Noun(NamedTuple):
    """A noun that an opinion is about."""

    name: str
    words: str  # the class of opinion words for it: food, people and so on
    plural: bool = False

    @property
    def countable(self) -> bool:
        """Return whether the noun is a countable singular, which can follow "a"."""
        return not self.plural and self.name not in SECOND.mass

    @property
    def person(self) -> bool:
        """Return whether the noun is a person: "he" or "she"."""
        return self.words == "people" and self.countable


class Topic(NamedTuple):
    """The topic of a review: its nouns, the verb for getting to know them, and side remarks."""

    nouns: tuple[Noun, ...]
    verb: str
    asides: tuple[str, ...]


class Lexicon:
    """The words and sentence frames of an edition."""

    def __init__(self, edition: int):
        table = tables.read(f"reviews-{edition}.toml")
        self.lines = {name: tables.lines(text) for name, text in table.items() if isinstance(text, str)}
        self.words = {kind: [each.split(", ") for each in pair] for kind, pair in table["words"].items()}
        self.fillings: dict[str, list[str]] = table["fillings"]
        self.elsewhere = self.nouns(table["elsewhere"])
        self.topics = [
            Topic(self.nouns(each["nouns"]), each.get("verb", ""), tables.lines(each["asides"]) + self.lines["always"])
            for each in table["topics"]
        ]
        self.forms: dict[str, list[str]] = table.get("forms", {})
        self.hopes: list[list[str]] = table.get("hopes", [])
        self.to: list[str] = table.get("to", [])
        self.mass = frozenset(table.get("mass", "").split(", "))

    def nouns(self, rows: list[list[str]]) -> tuple[Noun, ...]:
        """Read nouns; each row has a class of opinion words, nouns in the singular and nouns in the plural."""
        return tuple(
            Noun(name, words, plural)
            for words, *lists in rows
            for plural, names in zip((False, True), lists, strict=False)
            for name in names.split(", ")
        )


FIRST, SECOND = Lexicon(1), Lexicon(2)


class Drawer:
    """A generator of reviews, which draws with random numbers from [0, 1)."""

    lexicon: Lexicon

    def __init__(self, random: Callable[[], float], denied: int):
        self.random, self.denied = random, denied

    def below(self, count: int) -> int:
        """Draw a number below `count`."""
        return int(self.random() * count)

    def choose(self, choices: Sequence[T]) -> T:
        """Draw one of several equally likely choices."""
        return choices[self.below(len(choices))]

    def chance(self, share: float) -> bool:
        """Return true with probability `share`."""
        return self.random() < share

    def review(self, shortest: int, longest: int) -> tuple[list[str], int]:
        """Draw a review: sentences with asterisks after the informative words, and the index of the label."""
        label, size = self.below(2), shortest + self.below(longest - shortest + 1)
        topic = self.choose(self.lexicon.topics)
        sentences = [self.sentence(topic, label) for _ in range(1 + self.below(min(MAX_SENTENCES, size)))]
        asides = list[str]()
        while len(sentences) < size:
            if self.chance(0.4):  # an opinion that does not count
                sentences.append(self.opinion_elsewhere().replace("*", ""))
            else:
                asides = asides or list(topic.asides)
                sentences.append(self.remark(asides.pop(self.below(len(asides)))))
        for last in range(size - 1, 0, -1):
            place = self.below(last + 1)
            sentences[last], sentences[place] = sentences[place], sentences[last]
        return self.finish(sentences), label

    def sentence(self, topic: Topic, label: int) -> str:
        """Draw a sentence that agrees with the label, with asterisks after the informative words."""
        raise NotImplementedError

    def opinion_elsewhere(self) -> str:
        """Draw an opinion about something other than the reviewed thing."""
        raise NotImplementedError

    def remark(self, text: str) -> str:
        """Fill the holes of a side remark."""
        raise NotImplementedError

    def finish(self, sentences: list[str]) -> list[str]:
        """Return the sentences of a review as they are written."""
        return sentences


class Plain(Drawer):
    """The first edition, with words separated by spaces, and a few frames."""

    lexicon = FIRST

    def sentence(self, topic: Topic, label: int) -> str:
        return self.opinion(topic.nouns, label)

    def opinion_elsewhere(self) -> str:
        return self.opinion(self.lexicon.elsewhere, self.below(2))

    def opinion(self, nouns: Sequence[Noun], label: int) -> str:
        """Draw a sentence that agrees with the label: with its own words, or by negating the opposite."""
        noun, lines = self.choose(nouns), self.lexicon.lines
        denied = self.random() * 100 < self.denied
        kind = noun.words if noun.words == "any" or self.random() < 0.7 else "any"
        word = self.choose(self.lexicon.words[kind][1 - label if denied else label])
        first, slot, rest = OWN.split(self.choose(lines["frames"]))
        form = slot.split("|")[0 if denied else 1]
        core = f"{first}{form + '* ' if form else ''}{rest}".replace("{n}", noun.name).replace("{w}", f"{word}*")
        before = f"{self.choose(lines['before'])} " if self.chance(0.25) else ""
        after = f" {self.choose(lines['after'])}" if self.chance(0.25) else ""
        return self.remark(f"{before}{core}{after} .")

    def remark(self, text: str) -> str:
        """Replace every {name} in a sentence with a random filling, and capitalise it."""
        for name, choices in self.lexicon.fillings.items():
            while f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", self.choose(choices), 1)
        return text[0].upper() + text[1:]


class Opinions(Drawer):
    """The second edition, written as people type: "This pizza is not too bad.", "Nobody said that it was not good"."""

    lexicon = SECOND

    def sentence(self, topic: Topic, label: int) -> str:
        text = self.clause(topic, label)
        if FRAGMENT.match(text):
            return text
        if self.chance(0.12):
            text += f", and {self.clause(topic, label)}"
        if self.chance(0.2):
            return f"{self.remark(self.choose(SECOND.lines['before']))} {text}"
        return text + self.remark(self.choose(SECOND.lines["after"])) if self.chance(0.15) else text

    def opinion_elsewhere(self) -> str:
        text = ""
        while "{np}" not in text:
            text, good = self.frame(self.below(2))
        return self.fill(text, Context(self.choose(SECOND.elsewhere), good, only="the"))

    def clause(self, topic: Topic, label: int) -> str:
        """Draw an opinion without further clauses or remarks around it."""
        text, good = self.frame(label)
        nouns = [noun for noun in topic.nouns if noun.countable] if "{n}" in text else topic.nouns
        return self.fill(text, Context(self.choose(nouns), good, topic.verb))

    def frame(self, label: int) -> tuple[str, int]:
        """Draw a frame, and whether it needs bad (0) or good (1) opinion words to express the label."""
        denied = self.random() * 100 < self.denied
        text = self.choose(SECOND.lines["denied" if denied else "turned" if self.chance(0.2) else "affirmed"])
        return text, 1 - label if denied else label

    def fill(self, text: str, context: "Context") -> str:
        """Make the choices of a frame, and fill its holes."""
        while choice := CHOICE.search(text):
            text = text[: choice.start()] + self.choose(choice[1].split("|")) + text[choice.end() :]
        context.past = self.chance(0.6)
        if "{else}" in text:
            context.noun = self.choose(SECOND.elsewhere)
        text = HOLE.sub(lambda hole: self.fill_hole(hole, context), text)
        return ARTICLE.sub(r"\1n ", SPACES.sub(" ", text).strip())

    def fill_hole(self, hole: re.Match[str], context: "Context") -> str:
        """Return the words for a hole."""
        name, good, noun = hole[1], context.good, context.noun
        if name in SECOND.fillings:
            return self.choose(SECOND.fillings[name])
        if name == "np":
            subject = hole.string[hole.end() :].startswith((" {be}", " could", " would", " did"))
            return self.noun_phrase(context, subject)
        if name in ("hope", "fear"):  # about an opinion in the words of X, or of A
            return self.choose(SECOND.hopes[1 - good if name == "hope" else good])
        if name == "to":
            return self.choose(SECOND.to) if good else ""
        if name in ("it", "them") and noun is not None and noun.person:
            return self.choose(("he", "she") if name == "it" else ("him", "her"))
        if name in SECOND.forms:
            return SECOND.forms[name][2 * context.plural + context.past]
        if name in SECOND.words or name in ("a", "b", "c", "x", "X", "A", "e"):
            polarity = self.below(2) if name == "e" else 1 - good if name in "xX" else good
            word = self.word("c" if name == "c" else name if name in SECOND.words else "a", context, polarity)
            return word if name in ("X", "A", "e", "end") else re.sub(r"$| ", r"*\g<0>", word, count=1)
        assert noun is not None
        return {"else": f"the {noun.name}", "n": noun.name, "known": context.verb}[name]

    def word(self, kind: str, context: "Context", good: int) -> str:
        """Draw an opinion word that this context has not used yet."""
        if kind not in SECOND.words:
            kind = f"{context.noun.words if context.noun is not None and self.chance(0.6) else 'any'}.{kind}"
        words = SECOND.words[kind][good]
        word = self.choose([each for each in words if each not in context.used] or words)
        context.used.add(word)
        return word

    def noun_phrase(self, context: "Context", subject: bool) -> str:
        """Return the noun with an article or another determiner, or sometimes only a pronoun."""
        noun, number = context.noun, self.random()
        assert noun is not None
        if context.only:
            return f"{context.only} {noun.name}"
        if number < 0.08:
            return ("they" if subject else "them") if noun.plural else self.choose(("it", "this"))
        if number < 0.55:
            return f"the {noun.name}"
        if number < 0.85:
            return f"{'these' if noun.plural else 'this'} {noun.name}"
        own = ("my", "our") if noun.words in ("food", "places", "things") else ("their",)
        return f"{self.choose((*own, 'their', 'those' if noun.plural else 'that'))} {noun.name}"

    def remark(self, text: str) -> str:
        return self.fill(text, Context())

    def finish(self, sentences: list[str]) -> list[str]:
        """Write the sentences; a review of one sentence is sometimes casual."""
        casual = len(sentences) == 1 and self.chance(0.2)
        last = len(sentences) - 1
        return [self.write(text, last=i == last, casual=casual) for i, text in enumerate(sentences)]

    def write(self, text: str, *, last: bool = True, casual: bool = False) -> str:
        """Write a sentence with a capital, a stop and some contractions; `casual` often omits capital or stop."""
        text = SHORTER.sub(self.shorten_verb, SHORT.sub(self.shorten_not, text))
        if not (casual and self.chance(0.5)):
            text = text[0].upper() + text[1:]
        if last and self.chance(0.5 if casual else 0.1):
            return text
        return text + ("!" if self.chance(0.08) else ".")

    def shorten_not(self, match: re.Match[str]) -> str:
        """Contract "not" (isn't, can't) half of the time, rarely without the apostrophe."""
        if self.chance(0.5):
            return match[0]
        mark = "" if self.chance(0.04) else "'"
        return f"{match[1]}n{mark}t" if match[1] else f"{match[0][:3]}{mark}t"

    def shorten_verb(self, match: re.Match[str]) -> str:
        """Contract verbs (it's, I've) a third of the time."""
        if self.chance(0.67):
            return match[0]
        who, verb = (each for each in match.groups() if each)
        return who + ENDINGS[verb.lower()]


@dataclasses.dataclass
class Context:
    """The words that fill the holes of a frame."""

    noun: Noun | None = None
    good: int = 0  # whether opinion words are bad (0) or good (1)
    verb: str = ""  # the verb for getting to know the noun
    only: str = ""  # the only allowed determiner, if any
    past: bool = False
    used: set[str] = dataclasses.field(default_factory=set)  # opinion words used so far

    @property
    def plural(self) -> bool:
        """Return whether the noun is a plural."""
        return self.noun is not None and self.noun.plural


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw reviews endlessly; yield None for one that `accept` refuses."""
    drawer: Drawer = (Plain if options.edition == 1 else Opinions)(random, options.denied)
    while True:
        sentences, label = drawer.review(options.shortest, options.longest)
        starred_words = " ".join(sentences).split(" ")
        text = " ".join(starred_words).replace("*", "")
        if not accept(text):
            yield None
        else:
            links = tuple((index, 0) for index, word in enumerate(starred_words) if "*" in word)
            yield Example(text, LABELS[label], links)


def every(accept: builtin.SourceFilter, options: Options) -> None:
    """Return None: there are too many reviews to list."""
