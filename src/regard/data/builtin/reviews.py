"""Reviews: a few sentences about a restaurant, a hotel, a film and the like, and whether they praise it or not.

"We went there on a Tuesday . The weather was awful that day . I would never call the waiter rude ." is positive, and it
hangs on two words. What is said of the thing itself decides, and all of it says the same; opinions of anything else
(the weather, the place across the street) are not asked for. A word of opinion may be denied, from a distance as well,
so that "rude" speaks for a label as often as against it, and to count words is of little use. Some sentences deny
something that is no opinion: "We did not have to wait , and the soup was bland ."

The target is one word, positive or negative. The gold links lead to it from the informative words: those of opinion
that decide, and what denies them.

Options: `shortest` and `longest` in sentences, every length equally likely; `denied`, how many of a hundred opinions
are.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from regard.data.builtin.example import Example, Wanted, whole
from regard.errors import ArgumentError

__all__ = ["LABELS", "Options", "draw", "every"]

LABELS = ("negative", "positive")
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
    """What a review is about: the nouns that count, and what is told beside it."""

    nouns: tuple[tuple[str, Words], ...]
    told: tuple[str, ...]


def topic(told: str, *nouns: tuple[str, Words]) -> Topic:
    """A topic of lines and of nouns with commas between them."""
    each = tuple((noun, words) for listed, words in nouns for noun in listed.split(", "))
    return Topic(each, (*lines(told), *lines(ALWAYS)))


def lines(text: str) -> tuple[str, ...]:
    """Sentences, one a line."""
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
# {n} a noun, {w} a word of opinion, {much} how much; * marks what is informative.
PLAIN = (
    "The {n} was {w}* .",
    "The {n} was {much} {w}* .",
    "The {n} was {w}* , I must say .",
    "I found the {n} {much} {w}* .",
    "We thought that the {n} was {w}* .",
    "Everybody agreed that the {n} was {w}* .",
    "From beginning to end the {n} was {w}* .",
    "I would call the {n} {w}* .",
    "My {person} said that the {n} was {much} {w}* , and so it was .",
    "There was something {w}* about the {n} .",
    "We did not have to wait , and the {n} was {w}* .",
    "I do not write many reviews , but the {n} was {much} {w}* .",
    "Nobody had told us about it , but the {n} was {w}* .",
    "I had never been so sure of anything : the {n} was {w}* .",
    "The {n} was {w}* , and nobody paid me to say so .",
    "The {n} was {much} {w}* , and that is not all .",
)
DENIED = (
    "The {n} was not* {w}* .",
    "The {n} was not* {so} {w}* .",
    "The {n} was not* , as far as I could see , {w}* .",
    "The {n} was not* what my {person} and I would call {w}* .",
    "I did not* find the {n} {w}* .",
    "I would never* call the {n} {w}* .",
    "I would not* say that the {n} was {so} {w}* .",
    "Nobody* could say that the {n} was {w}* .",
    "Nobody* in my whole family thought that the {n} was {w}* .",
    "There was nothing* {w}* about the {n} .",
    "At no* time was the {n} {w}* .",
    "The {n} was never* {so} {w}* .",
    "We did not* think for a moment that the {n} was {w}* .",
    "None* of us would tell you that the {n} was {w}* .",
)
FILLINGS = {
    "much": ("very", "really", "quite", "rather", "truly", "particularly"),
    "so": ("very", "really", "quite", "too", "all that", "particularly"),
    "person": ("brother", "sister", "neighbour", "mother", "father", "friend", "aunt", "teacher"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "number": ("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "hour": ("noon", "six", "seven", "eight", "nine", "ten", "midnight"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    shortest: int = 2
    longest: int = 8
    denied: int = 45

    def __post_init__(self) -> None:
        whole("shortest", self.shortest, 1)
        whole("longest", self.longest, self.shortest)
        whole("denied", self.denied, 0)
        if self.denied > 100:
            raise ArgumentError(f"denied: {self.denied} given, at most 100 of a hundred expected")


class Drawer:
    """Choices with numbers from [0, 1)."""

    def __init__(self, random: Callable[[], float], options: Options):
        self.random, self.options = random, options

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def review(self) -> tuple[list[str], int]:
        """Sentences in which the informative words are marked, and the index of the label."""
        options, label = self.options, self.below(2)
        size = options.shortest + self.below(options.longest - options.shortest + 1)
        about = TOPICS[self.below(len(TOPICS))]
        decide = 1 + self.below(min(MOST, size))
        made = [self.opinion(about.nouns, label) for _ in range(decide)]
        left = list(about.told)
        while len(made) < size:
            if self.random() < 0.4:  # marked where it would count, and here it does not
                made.append(self.opinion(ELSEWHERE, self.below(2)).replace("*", ""))
            else:
                left = left or list(about.told)
                made.append(self.filled(left.pop(self.below(len(left)))))
        for last in range(size - 1, 0, -1):
            place = self.below(last + 1)
            made[last], made[place] = made[place], made[last]
        return made, label

    def opinion(self, nouns: Sequence[tuple[str, Words]], label: int) -> str:
        """A sentence that says what the label does: in its own words, or by denying the opposite."""
        noun, words = nouns[self.below(len(nouns))]
        denied = self.random() * 100 < self.options.denied
        own = words if words is ANY or self.random() < 0.7 else ANY
        listed = own[1 - label if denied else label]
        sentences = DENIED if denied else PLAIN
        sentence = sentences[self.below(len(sentences))]
        return self.filled(sentence.replace("{n}", noun).replace("{w}", listed[self.below(len(listed))]))

    def filled(self, sentence: str) -> str:
        """The sentence with every {name} drawn."""
        for name, choices in FILLINGS.items():
            if f"{{{name}}}" in sentence:
                sentence = sentence.replace(f"{{{name}}}", choices[self.below(len(choices))])
        return sentence


def draw(random: Callable[[], float], wanted: Wanted, options: Options) -> Iterator[Example | None]:
    """Reviews without end; None for one that is not wanted."""
    drawer = Drawer(random, options)
    while True:
        sentences, label = drawer.review()
        marked = " ".join(sentences).split(" ")
        text = " ".join(word.rstrip("*") for word in marked)
        if not wanted(text):
            yield None
        else:
            links = tuple((index, 0) for index, word in enumerate(marked) if word.endswith("*"))
            yield Example(text, LABELS[label], links)


def every(wanted: Wanted, options: Options) -> None:
    """They are too many to be listed."""
