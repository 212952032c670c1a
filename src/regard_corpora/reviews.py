"""Reviews: a few sentences about a restaurant, a hotel, a film and the like, and whether they praise it or not.

"We went there on a Tuesday . The weather was awful . I would never call the waiter rude ." is positive, and that hangs
on two words. What is said of the thing itself decides, and all of it says the same; opinions of anything else (the
weather, the place across the street) are not asked for. A word of opinion may be denied, from a distance as well, so
that "rude" does not speak for one label alone, and to count words is of little use. Other things are denied, too, that
are no opinions: "We did not have to wait , and the soup was bland ."

The target is one word, positive or negative. The gold links lead to it from the informative words, each of which turns
its sentence round if another takes its place: the words of opinion that decide ("rude", "polite"), and those that say
whether they hold ("never", "always"; "nobody", "everybody"; "not", which is there or not).

Edition 2 is written as people type ("We went there on a Tuesday. I wouldn't call the waiter rude."), and has many more
ways to affirm and to deny: `opinions` draws it. The words and frames in this file are the first edition's.

Options: `shortest` and `longest` in sentences, every length equally likely; `denied`, how many of a hundred opinions
are.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from regard.data import Example, builtin
from regard_corpora.opinions import Opinions

__all__ = ["LABELS", "Options", "draw", "every"]

T = TypeVar("T")
LABELS = ("negative", "positive")
SLOT = re.compile(r"\[(.*?)\] ?")
MOST = 3  # sentences that decide

# What can be said of things: bad words, and good ones.
Words = tuple[tuple[str, ...], tuple[str, ...]]
ANY: Words = (
    ("bad", "terrible", "awful", "poor", "disappointing", "dreadful"),
    ("good", "great", "excellent", "wonderful", "lovely", "impressive"),
)
FOOD: Words = (
    ("bland", "stale", "greasy", "burnt", "tasteless", "soggy"),
    ("delicious", "tasty", "fresh", "crisp", "juicy", "flavourful"),
)
PEOPLE: Words = (
    ("rude", "slow", "careless", "grumpy", "unhelpful", "clumsy"),
    ("friendly", "quick", "attentive", "polite", "helpful", "skilful"),
)
PLACES: Words = (
    ("dirty", "cramped", "noisy", "shabby", "draughty", "gloomy"),
    ("clean", "spacious", "quiet", "cosy", "comfortable", "elegant"),
)
STORIES: Words = (
    ("dull", "predictable", "silly", "confusing", "boring", "shallow"),
    ("clever", "gripping", "moving", "original", "funny", "thoughtful"),
)
THINGS: Words = (
    ("flimsy", "unreliable", "dim", "sluggish", "useless", "fragile"),
    ("sturdy", "reliable", "bright", "fast", "handy", "sharp"),
)
SOUNDS: Words = (
    ("lifeless", "shrill", "muddy", "monotonous", "harsh", "hollow"),
    ("lively", "rich", "clear", "stirring", "graceful", "warm"),
)


@dataclasses.dataclass(frozen=True)
class Topic:
    """A review's topic: the nouns that count, and side remarks."""

    nouns: tuple[tuple[str, Words], ...]
    asides: tuple[str, ...]


def topic(asides: str, *nouns: tuple[str, Words]) -> Topic:
    """Build a topic from lines and from nouns separated by commas."""
    each = tuple((noun, words) for listed, words in nouns for noun in listed.split(", "))
    return Topic(each, (*lines(asides), *lines(ALWAYS)))


def lines(text: str) -> tuple[str, ...]:
    """Read sentences, one per line."""
    return tuple(line.strip() for line in text.strip().splitlines())


ALWAYS = """
    My {person} asked me to write this .
    We had talked about it for {number} weeks .
    I had not planned to write anything .
    It was the {day} after my birthday .
    There were {number} of us .
    I will tell you about it in a few words .
"""


TOPICS = (
    topic(
        """We went there on a {day} .
        We had not booked a table .
        My {person} had chosen the restaurant .
        The menu is changed every {day} .
        We had a table by the window .
        The restaurant opens at {hour} .""",
        ("soup, pizza, pasta, steak, salad, bread, cake, fish", FOOD),
        ("waiter, waitress, cook, service", PEOPLE),
        ("terrace, dining room", PLACES),
    ),
    topic(
        """We stayed for {number} nights .
        The hotel has {number} floors .
        My {person} had not been there before .
        Breakfast is served until {hour} .
        We arrived on a {day} .
        Nobody else was on our floor that {day} .""",
        ("room, bathroom, lobby, bar, garden", PLACES),
        ("receptionist, porter, staff, manager", PEOPLE),
        ("breakfast, dinner, coffee", FOOD),
    ),
    topic(
        """We saw it on a {day} .
        My {person} had bought the tickets .
        It runs for more than {number} hours .
        I had never heard of the director before .
        It starts at {hour} .
        It is based on a true story .""",
        ("plot, story, ending, dialogue, first half, script", STORIES),
        ("music, sound", SOUNDS),
        ("acting, camera work", ANY),
    ),
    topic(
        """I read it in {number} days .
        My {person} gave it to me on a {day} .
        It has {number} chapters .
        I did not know the author .
        I read most of it on the train .
        It was first published in another country .""",
        ("book, novel, beginning, ending, plot, last chapter", STORIES),
        ("translation, style", ANY),
    ),
    topic(
        """It was delivered on a {day} .
        I bought it for my {person} .
        I have had it for {number} weeks now .
        It comes in {number} colours .
        I never read the manual .
        The parcel came at {hour} .""",
        ("phone, screen, keyboard, camera, charger, case, battery", THINGS),
        ("speaker, microphone", SOUNDS),
    ),
    topic(
        """The concert began at {hour} .
        It was on a {day} .
        My {person} had come with me .
        They played for {number} hours .
        We could not find seats together .
        They had {number} guests on the stage .""",
        ("singer, band, choir, orchestra, violin, first song, encore", SOUNDS),
        ("hall, stage", PLACES),
        ("drummer, conductor", PEOPLE),
    ),
)
# What is not asked for, wherever it stands.
ELSEWHERE = (
    ("weather", ANY),
    ("traffic", ANY),
    ("bus ride", ANY),
    ("walk from the station", ANY),
    ("taxi driver", PEOPLE),
    ("man next to us", PEOPLE),
    ("place across the street", PLACES),
    ("one that we tried last year", ANY),
    ("sandwich on the way home", FOOD),
    ("newspaper that day", STORIES),
)
# {n} a noun, {w} a word of opinion; [denied|said]: the sentence as it is denied, and as it is not.
FRAMES = (
    "the {n} was [not|] {w}",
    "the {n} was [not|] {so} {w}",
    "the {n} was [not|] , as far as I could see , {w}",
    "the {n} was [not|] what my {person} and I would call {w}",
    "the {n} was [never|always] {so} {w}",
    "the {n} was at [no|any] time {w}",
    "there was [nothing|something] {w} about the {n}",
    "I did [not|] find the {n} {w}",
    "I would [never|always] call the {n} {w}",
    "I would [not|] say that the {n} was {so} {w}",
    "we did [not|] think that the {n} was {w}",
    "you will [hardly|surely] find the {n} {w}",
    "[nobody|everybody] could say that the {n} was {w}",
    "[nobody|everybody] in my whole family thought that the {n} was {w}",
    "[none|all] of us would tell you that the {n} was {so} {w}",
)
# What may stand before and after it; what is denied here is no opinion.
BEFORE = (
    "we did not have to wait , and",
    "I do not write many reviews , but",
    "nobody had told us about it , but",
    "I had never been so sure of anything :",
    "it rained on that {day} , but",
    "as my {person} will tell you ,",
)
AFTER = (
    ", I must say",
    ", and that is not all",
    ", and nobody paid me to say so",
    ", from beginning to end",
    ", all in all",
    ", and never mind the price",
)
FILLINGS = {
    "so": ("very", "really", "quite", "so", "too", "particularly"),
    "person": ("brother", "sister", "neighbour", "mother", "father", "friend", "aunt", "teacher"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "number": ("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "hour": ("noon", "six", "seven", "eight", "nine", "ten", "midnight"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    shortest: int = 2
    longest: int = 8
    denied: int = 30
    edition: int = 2

    def __post_init__(self) -> None:
        builtin.check_whole("shortest", self.shortest, 1, builtin.LONGEST)
        builtin.check_whole("longest", self.longest, self.shortest, builtin.LONGEST)
        builtin.check_whole("denied", self.denied, 0, 100)


class Drawer:
    """A maker of random choices with numbers from [0, 1)."""

    def __init__(self, random: Callable[[], float], options: Options):
        self.random, self.options = random, options

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def choose(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def review(self, shortest: int, longest: int) -> tuple[list[str], int]:
        """Draw a review: sentences in which the informative words are marked, and the index of the label."""
        label = self.below(2)
        size = shortest + self.below(longest - shortest + 1)
        about = self.choose(TOPICS)
        decide = 1 + self.below(min(MOST, size))
        sentences = [self.opinion(about.nouns, label) for _ in range(decide)]
        asides = list(about.asides)
        while len(sentences) < size:
            if self.random() < 0.4:  # marked where it would count, and here it does not
                sentences.append(self.opinion(ELSEWHERE, self.below(2)).replace("*", ""))
            else:
                asides = asides or list(about.asides)
                sentences.append(self.filled(asides.pop(self.below(len(asides)))))
        for last in range(size - 1, 0, -1):
            place = self.below(last + 1)
            sentences[last], sentences[place] = sentences[place], sentences[last]
        return sentences, label

    def opinion(self, nouns: Sequence[tuple[str, Words]], label: int) -> str:
        """Draw a sentence that agrees with the label: in its own words, or by denying the opposite."""
        noun, words = self.choose(nouns)
        denied = self.random() * 100 < self.options.denied
        own = words if words is ANY or self.random() < 0.7 else ANY
        word = self.choose(own[1 - label if denied else label])
        first, slot, rest = SLOT.split(self.choose(FRAMES))
        form = slot.split("|")[0 if denied else 1]
        core = f"{first}{form + '* ' if form else ''}{rest}".replace("{n}", noun).replace("{w}", f"{word}*")
        before = f"{self.choose(BEFORE)} " if self.random() < 0.25 else ""
        after = f" {self.choose(AFTER)}" if self.random() < 0.25 else ""
        return self.filled(f"{before}{core}{after} .")

    def filled(self, sentence: str) -> str:
        """Fill every {name} of a sentence at random, and capitalise it."""
        for name, choices in FILLINGS.items():
            while f"{{{name}}}" in sentence:
                sentence = sentence.replace(f"{{{name}}}", self.choose(choices), 1)
        return sentence[0].upper() + sentence[1:]


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw reviews without end; None for one that `accept` refuses."""
    drawer = Drawer(random, options) if options.edition == 1 else Opinions(random, options.denied)
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
