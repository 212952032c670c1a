"""The words of opinions in edition 2 of the reviews: bad ones and good ones, and the nouns that they describe."""

from typing import NamedTuple

__all__ = ["ELSEWHERE", "TOPICS", "WORDS", "Noun", "Pair", "Topic"]

Pair = tuple[tuple[str, ...], tuple[str, ...]]  # bad words, and good ones


def pair(bad: str, good: str) -> Pair:
    """Read two lists of words separated by commas."""
    return tuple(bad.split(", ")), tuple(good.split(", "))


# Adjectives (a) and comparatives (c) by what they are said of; words of other kinds are said of anything.
WORDS: dict[str, Pair] = {
    "any.a": pair(
        "bad, terrible, awful, poor, disappointing, dreadful, horrible, unpleasant, mediocre, weak, nasty, lousy",
        "good, great, excellent, wonderful, lovely, impressive, perfect, pleasant, superb, nice, amazing, fantastic",
    ),
    "any.c": pair("worse", "better, nicer"),
    "food.a": pair(
        "bland, stale, greasy, burnt, tasteless, soggy, dry, inedible",
        "delicious, tasty, fresh, crisp, juicy, flavourful, tender, appetising",
    ),
    "food.c": pair("blander, staler, greasier, drier", "tastier, fresher, juicier, crispier"),
    "people.a": pair(
        "rude, slow, careless, grumpy, unhelpful, clumsy, unfriendly, unkind, impolite",
        "friendly, quick, attentive, polite, helpful, skilful, kind, charming, competent",
    ),
    "people.c": pair("ruder, slower, grumpier, clumsier", "friendlier, quicker, kinder, politer"),
    "places.a": pair(
        "dirty, cramped, noisy, shabby, draughty, gloomy, uncomfortable, untidy, ugly",
        "clean, spacious, quiet, cosy, comfortable, elegant, tidy, beautiful, inviting",
    ),
    "places.c": pair("dirtier, noisier, shabbier, gloomier, uglier", "cleaner, quieter, cosier, tidier"),
    "stories.a": pair(
        "dull, predictable, silly, confusing, boring, shallow, uninteresting, unconvincing, tedious",
        "clever, gripping, moving, original, funny, thoughtful, interesting, convincing, exciting",
    ),
    "stories.c": pair("duller, sillier, shallower", "cleverer, funnier, wittier"),
    "things.a": pair(
        "flimsy, unreliable, dim, sluggish, useless, fragile, impractical, faulty",
        "sturdy, reliable, bright, fast, handy, sharp, practical, solid",
    ),
    "things.c": pair("flimsier, dimmer, slower", "sturdier, brighter, faster, sharper, handier"),
    "sounds.a": pair(
        "lifeless, shrill, muddy, monotonous, harsh, hollow, uninspired, boring",
        "lively, rich, clear, stirring, graceful, warm, inspired, exciting",
    ),
    "sounds.c": pair("harsher, muddier, duller", "livelier, richer, clearer, warmer"),
    "v": pair("dislike, hate, regret", "like, love, enjoy"),  # I did not …
    "ved": pair("disliked, hated, regretted", "liked, loved, enjoyed"),
    "r": pair("avoid", "recommend"),  # I would …
    "o": pair(  # it was a …
        "disappointment, mistake, disaster, failure, waste of money, waste of time",
        "pleasure, delight, joy, success, treat, masterpiece",
    ),
    "f": pair(  # we were …
        "disappointed, unhappy, annoyed, unimpressed, dissatisfied, bored",
        "pleased, happy, delighted, impressed, satisfied, thrilled",
    ),
    "w": pair("wrong", "right"),  # nothing … about it
    "end": pair(  # too … to
        "recommend, enjoy, bear, be worth the money, finish, put up with",
        "miss, leave, share, resist, stop, pass up",
    ),
}


MASS = frozenset(
    (
        "bread",
        "pasta",
        "fish",
        "food",
        "service",
        "staff",
        "coffee",
        "music",
        "sound",
        "acting",
        "camera work",
        "dialogue",
    )
)


class Noun(NamedTuple):
    """A noun that an opinion is about."""

    name: str
    words: str  # of WORDS: food, people and so on
    plural: bool = False

    @property
    def countable(self) -> bool:
        """Return whether the noun is countable: whether it can follow "a"."""
        return not self.plural and self.name not in MASS

    @property
    def person(self) -> bool:
        """Return whether the noun is a person: "he" or "she"."""
        return self.words == "people" and self.countable


class Topic(NamedTuple):
    """The topic of a review: its nouns, how one comes to know them, and side remarks."""

    nouns: tuple[Noun, ...]
    verb: str  # I have never … a better one
    asides: tuple[str, ...]


def nouns(words: str, singular: str, plural: str = "") -> tuple[Noun, ...]:
    """Read the nouns of two lists."""
    one = tuple(Noun(name, words) for name in singular.split(", ") if name)
    return one + tuple(Noun(name, words, plural=True) for name in plural.split(", ") if name)


def topic(verb: str, asides: str, *lists: tuple[Noun, ...]) -> Topic:
    """Build a topic from lists of nouns, and from lines."""
    lines = tuple(line.strip() for line in (asides + ALWAYS).strip().splitlines())
    return Topic(tuple(noun for each in lists for noun in each), verb, lines)


ALWAYS = """
    My {person} asked me to write this
    We had talked about it for {number} weeks
    I had not planned to write anything
    It was the {day} after my birthday
    There were {number} of us
    I will tell you about it in a few words
"""


TOPICS = (
    topic(
        "had",
        """We went there on a {day}
        We hadn't booked a table
        My {person} had chosen the restaurant
        The menu is changed every {day}
        We had a table by the window
        The restaurant opens at {hour}""",
        nouns(
            "food",
            "soup, pizza, pasta, steak, salad, bread, cake, fish, food, meal, dessert, burger",
            "chips, vegetables, noodles",
        ),
        nouns("people", "waiter, waitress, cook, service", "waiters, staff"),
        nouns("places", "terrace, dining room, restaurant, place"),
    ),
    topic(
        "found",
        """We stayed for {number} nights
        The hotel has {number} floors
        My {person} had not been there before
        Breakfast is served until {hour}
        We arrived on a {day}
        Nobody else was on our floor that {day}""",
        nouns("places", "room, bathroom, lobby, bar, garden, hotel, bed, place, pool", "rooms, beds"),
        nouns("people", "receptionist, porter, manager, service", "people at the desk, staff"),
        nouns("food", "breakfast, dinner, coffee, food"),
    ),
    topic(
        "seen",
        """We saw it on a {day}
        My {person} had bought the tickets
        It runs for more than {number} hours
        I had never heard of the director before
        It starts at {hour}
        It is based on a true story""",
        nouns("stories", "film, movie, plot, story, ending, dialogue, first half, script", "jokes, characters"),
        nouns("sounds", "music, sound"),
        nouns("any", "acting, camera work, director, cast", "actors"),
    ),
    topic(
        "read",
        """I read it in {number} days
        My {person} gave it to me on a {day}
        It has {number} chapters
        I didn't know the author
        I read most of it on the train
        It was first published in another country""",
        nouns("stories", "book, novel, beginning, ending, plot, last chapter, story", "characters, chapters, poems"),
        nouns("any", "translation, style, author"),
    ),
    topic(
        "used",
        """It was delivered on a {day}
        I bought it for my {person}
        I have had it for {number} weeks now
        It comes in {number} colours
        I never read the manual
        The parcel came at {hour}""",
        nouns("things", "phone, screen, keyboard, camera, charger, case, battery, laptop, lamp", "headphones, buttons"),
        nouns("sounds", "speaker, microphone", "speakers"),
    ),
    topic(
        "heard",
        """The concert began at {hour}
        It was on a {day}
        My {person} had come with me
        They played for {number} hours
        We could not find seats together
        They had {number} guests on the stage""",
        nouns(
            "sounds",
            "singer, band, choir, orchestra, violin, first song, encore, music, concert, show",
            "songs, voices",
        ),
        nouns("places", "hall, stage", "seats"),
        nouns("people", "drummer, conductor", "musicians"),
    ),
)
# What is not asked for, wherever it stands.
ELSEWHERE = (
    *nouns("any", "weather, traffic, bus ride, walk from the station, journey, one that we tried last year"),
    *nouns("people", "taxi driver, man next to us, woman behind us"),
    *nouns("places", "place across the street, station"),
    *nouns("food", "sandwich on the way home"),
    *nouns("stories", "newspaper that day"),
)
