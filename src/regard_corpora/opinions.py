"""Opinions as people write them: "This pizza is not too bad.", "Nobody could say that it wasn't good."

A frame is a sentence with holes: {np} what it is about, {a} and {b} adjectives that say what the label does where the
frame affirms, {x} one that says the opposite, and so for the other kinds of words (`opinion_words.WORDS`). (x|y) is one
of several. A star stands behind each informative word: another in its place, or its absence, turns the opinion round.

Frames are of three sorts, so that neither words of opinion nor negations speak for a label when they are counted:
AFFIRMED, in the label's own words; DENIED, in the opposite words; and TURNED, in its own words again, with negations
that undo each other ("nobody could say that it was not good") or that do not deny ("not only", "never a better one").
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from regard_corpora.opinion_words import ELSEWHERE, TOPICS, WORDS, Noun, Topic

__all__ = ["FILLINGS", "Opinions"]

T = TypeVar("T")


def lines(text: str) -> tuple[str, ...]:
    """Read frames, one per line."""
    return tuple(line.strip() for line in text.strip().splitlines())


AFFIRMED = lines("""
    {np} {be} {a}
    {np} {be} {so} {a}
    {np} {be} {so} {a}
    {np} {be} {a} and {b}
    {np} {be} (both |){a} and {so} {b}
    {np} {be} {a}, and {so} {b}(, too| as well|)
    {np} {be} {a} and (not*|never*|not* at all) {x}
    {np} {be} always* {so} {a}
    {np} {be}, as far as (I|we) could see, {so} {a}
    {np} {be} at any* time {a}
    {np} {be} (much |even |){c} than (I had expected|we had hoped|last time|anything else in town)
    {np} {be} too {a} to {end}
    {np} {be} too {a} to be (called |){X}
    everything {is} {so} {a}(| here| there)
    {np} {be} a (real |complete |){o}
    {np} {be} a (very |really |){a} one
    {np} seemed {so} {a}
    (it|this) {is} a (very |really |){a} {n}
    (what a|such a|a|a very|a really) {a} {n}
    {so} {a} {n}
    there {is} something* {a} about {np}
    there {is} (something*|a lot*) {w} with {np}
    I (find|found|thought) {np} {so} {a}
    (I|we) (would|must) call {np} {a}
    (I think|I thought|we think|I am sure|I must say|it is true*|my {person} agrees) (that |){np} {be} {so} {a}
    (everybody*|everyone*|all* of us|each* of us) (said|thought|would say) (that |){np} {be} {a}
    everybody* in my {family} (says|thought) (that |){np} {be} {a}
    (everybody*|everyone*|all* of us|everybody* in our group) {ved} {np}
    (I|we|I really|my {person} and I|my {person}) {ved} {np}
    (I|we) would (gladly |really |){r} {np}{to}
    (I|we|you should|people should) {r} {np}
    (everybody|everyone|anyone|anybody) should {r} {np}
    (I was|we were|my {person} was|everybody* was|all* of us were) (very |really |){f} (with|by) {np}
    ({hope}|I had expected|we were told) that {np} would be {X}, but {it} {was} {so} {a}
    my {person} (had said|had told me) that {np} {was} {X}, but {it} {was} {so} {a}
    (people|some|they) say that {np} {be} {X}, but (I think that |)({it}|{np}) {be} {a}
    (people|some|they) say that {np} {be} {X}, but I (found|find) {them} {a}
""")
DENIED = lines("""
    {np} {be} not* {a}
    {np} {be} not* {a}
    {np} {be} not* {nso} {a}
    {np} {be} not* {nso} {a}
    {np} {be} not* {nso} {a}
    {np} {be} not* {a} at all
    {np} {be} not* (in the least|at all|the least bit) {a}
    {np} {be} not*, as far as (I|we) could see, {a}
    {np} {be} not* what (my {person} and I|most people|I) would call {a}
    {np} {be} not* as {a} as (people say|I had expected|my {person} said|last time|I had thought)
    {np} {be} never* {so} {a}
    {np} {be} at no* time {a}
    {np} {be} (hardly*|hardly* ever|rarely*|barely*|scarcely*) {a}
    {np} {be} far* from (being |){a}
    {np} {be} anything* but {a}
    {np} {be} (by no* means|in no* way) {a}
    {np} {be} neither* {a} nor* {b}
    {np} {be} not* {a} and not* {b} either
    {np} {be} less* {a} than (I had expected|people say|last time)
    {np} {be} not* a {o}
    {np} {be} (no*|hardly* a|not* a|anything* but a|far* from a) {o}
    {np} could* have been {c}
    {np} did not* seem {a}
    (it|this) {is} not* a (very |really |){a} {n}
    not* a (very |really |){a} {n}
    not* {nso} {a}
    nothing* {is} {a}(| here| there| about it)
    there {is} nothing* {a} about {np}
    there {is} nothing* {w} with {np}
    (I|we) did not* find {np} {nso} {a}
    (I|we) (would not*|would never*|could not*|cannot*|would hardly*) call {np} {nso} {a}
    you (cannot*|can hardly*|could not*|could never*|will hardly*) (call|find) {np} {a}
    (I|we) (do not* think|did not* think|do not* believe|never* thought) (that |){np} {be} {nso} {a}
    (I|we) (would not*|cannot*|could not*) say (that |){np} {be} {nso} {a}
    (I|we) (cannot*|could not*) say that (I|we) {ved} {np}
    (I doubt*|I doubt* very much|it is not* true|it would be wrong* to say|it is wrong*) that {np} {be} {a}
    (nobody*|no* one) (could|can|would|will) (say|claim|tell you) (that |){np} {be} {a}
    (nobody*|no* one|none* of us|not* one of us) (thought|said|found|would say) (that |){np} {be} {a}
    (nobody* in my {family}|no* one in our group) (thought|said) (that |){np} {be} {a}
    (nobody*|no* one|none* of us|not* one of us|nobody* in my {family}|no* one in our group) {ved} {np}
    (I|we) (did not*|do not*|never*|could not*) {v} {np}(| at all| very much)
    (I|we|you|I really) (would not*|would never*|cannot*|could not*) {r} {np}{to}
    (nobody*|no* one) should {r} {np}
    (I was not*|we were not*|nobody* was|no* one was|none* of us were|I was never*) (very |really |){f} (with|by) {np}
    ({fear}|I had expected|we were told) that {np} would be {A}, but {it} {was} not* {a}
    my {person} had said that {np} {was} {A}, but {it} {was} (not*|anything* but|far* from) {a}
    (people|some|they) say that {np} {be} {a}, but (I do not* think so|that is not* true|nobody* I know agrees)
""")
TURNED = lines("""
    {np} {be} not only {a} but (also |){b}(|, too| as well)
    {np} {be} not (only|just) {a}, {it} {be} (also |){b}(|, too| as well)
    {np} {be} not {X} but {a}
    {np} {be} not {X}, but {so} {a}
    {np} {be} nothing* but {a}
    {np} {be} never* anything* but {a}
    {np} could not* have been {c}
    {np} could not* be {c}
    it could not* have been {c}
    nothing* could have been {c}(| than {np})
    I have never* {known} a {c} {n}
    (we have|I have) (hardly*|rarely*) {known} a {c} {n}
    (nobody*|no* one) has ever {known} a {c} {n}
    nothing* could be {c} than {np}
    (nobody*|no* one) (could|can|would) (say|claim) (that |){np} {be} not* {a}
    (I|we) (would not*|cannot*|could not*) say (that |){np} {be} not* {a}
    it is not* true that {np} {be} not* {a}
    it would be wrong* to say that {np} {be} not* {a}
    (I|we) do not* doubt* that {np} {be} {a}
    (nobody*|no* one|none* of us) doubts* that {np} {be} {a}
    (I have|there is) no* doubt* that {np} {be} {a}
    (I cannot*|nobody* can|no* one can|you cannot*) deny* that {np} {be} {a}
    (nobody*|no* one) (I know|in our group) did not* {v} {np}
    there was (nobody*|no* one) who did not* {v} {np}
    (I|we) could not* have been more {f} with {np}
""")
# What may stand before or behind an opinion; what is denied here is no opinion, and what is praised not the thing.
BEFORE = lines("""
    we did not have to wait, and
    I do not write many reviews, but
    nobody had told us about it, but
    it rained on that {day}, but
    as my {person} will tell you,
    to be honest,
    (although|though|even though) {else} was {so} {e},
    (although|though|even though) {else} was not {e},
    {else} was {e}, but
    {else} was not {e}, but
    {else} was {e}, and
    I did not like {else}, but
""")
AFTER = lines("""
    , I must say
    , and that is not all
    , and nobody paid me to say so
    , from beginning to end
    , all in all
    , and never mind the price
    , if you ask me
    , (although|though|but) {else} was {so} {e}
    , (although|though|but) {else} was not {e}
""")
FILLINGS = {
    "so": ("", "", "", "very", "really", "quite", "so", "too", "particularly", "rather", "pretty", "extremely"),
    "nso": ("", "too", "too", "so", "that", "all that", "very", "really", "particularly", "exactly"),
    "person": ("brother", "sister", "neighbour", "mother", "father", "friend", "aunt", "teacher", "wife", "husband"),
    "family": ("family", "whole family", "class", "office"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "number": ("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "hour": ("noon", "six", "seven", "eight", "nine", "ten", "midnight"),
}
HOPES = (  # what one has before a bad word, and before a good one
    ("I was afraid", "we had feared", "I was worried"),
    ("I had hoped", "we had hoped", "they promised"),
)
TO = ("", "", " to everybody", " to everyone", " to anyone", " to anybody", " to my friends")
# Of one thing now and then, of several now and then.
FORMS = {
    "be": ("is", "was", "are", "were"),
    "is": ("is", "was", "is", "was"),
    "was": ("was", "was", "were", "were"),
    "it": ("it", "it", "they", "they"),
    "them": ("it", "it", "them", "them"),
}
FRAGMENT = re.compile(r"(not|an?|what an?|such an?) |(?!.* (is|was|are|were|be|been|\w+ed|should) )")
SPACES = re.compile(r"  +")
MOST = 3  # sentences that decide
HOLE = re.compile(r"\{(\w+)\}")
CHOICE = re.compile(r"\(([^()]*)\)")
SHORT = re.compile(r"\b(is|was|are|were|did|do|does|could|would|have|has|had) not\b|\bcan(not)\b", re.IGNORECASE)
SHORTER = re.compile(r"\b(?:(it|there|that) (is)|(I|we|you|they) (have|are|would|will)|(I) (am))\b(?= )", re.IGNORECASE)
ENDINGS = {"is": "'s", "have": "'ve", "are": "'re", "would": "'d", "will": "'ll", "am": "'m"}
ARTICLE = re.compile(r"\b([Aa]) (?=[aeio]|u(?!s))")


class Opinions:
    """A source of opinions about the nouns of a topic, drawn with numbers from [0, 1)."""

    def __init__(self, random: Callable[[], float], denied: int):
        self.random, self.denied = random, denied

    def below(self, count: int) -> int:
        """Draw a number below `count`."""
        return int(self.random() * count)

    def choose(self, choices: Sequence[T]) -> T:
        """Draw one of some choices, all equally likely."""
        return choices[self.below(len(choices))]

    def chance(self, share: float) -> bool:
        """Draw whether something happens that does so in this share of cases."""
        return self.random() < share

    def review(self, shortest: int, longest: int) -> tuple[list[str], int]:
        """Draw a review: sentences with stars after the informative words, and the number of the label."""
        label, size = self.below(2), shortest + self.below(longest - shortest + 1)
        topic = self.choose(TOPICS)
        sentences = [self.sentence(topic, label) for _ in range(1 + self.below(min(MOST, size)))]
        asides = list[str]()
        while len(sentences) < size:
            if self.chance(0.4):  # praise and blame that do not count
                sentences.append(self.aside())
            else:
                asides = asides or list(topic.asides)
                sentences.append(self.fill(asides.pop(self.below(len(asides))), Context()))
        for last in range(size - 1, 0, -1):
            place = self.below(last + 1)
            sentences[last], sentences[place] = sentences[place], sentences[last]
        casual = size == 1 and self.chance(0.2)
        return [self.write(each, last=i == size - 1, casual=casual) for i, each in enumerate(sentences)], label

    def sentence(self, topic: Topic, label: int) -> str:
        """Draw a sentence that agrees with the label, with stars after the informative words."""
        text = self.clause(topic, label)
        if FRAGMENT.match(text):
            return text
        if self.chance(0.12):
            text += f", and {self.clause(topic, label)}"
        if self.chance(0.2):
            return f"{self.fill(self.choose(BEFORE), Context())} {text}"
        return text + self.fill(self.choose(AFTER), Context()) if self.chance(0.15) else text

    def aside(self) -> str:
        """Draw an opinion about something that the label is not about."""
        text = ""
        while "{np}" not in text:
            text, good = self.frame(self.below(2))
        return self.fill(text, Context(self.choose(ELSEWHERE), good, only="the")).replace("*", "")

    def clause(self, topic: Topic, label: int) -> str:
        """Draw a bare opinion, without a frame around it."""
        text, good = self.frame(label)
        nouns = [noun for noun in topic.nouns if noun.countable] if "{n}" in text else topic.nouns
        return self.fill(text, Context(self.choose(nouns), good, topic.verb))

    def frame(self, label: int) -> tuple[str, int]:
        """Draw a frame, and whether it takes bad (0) or good (1) words of opinion to express the label."""
        denied = self.random() * 100 < self.denied
        text = self.choose(DENIED if denied else TURNED if self.chance(0.2) else AFFIRMED)
        return text, 1 - label if denied else label

    def fill(self, text: str, context: "Context") -> str:
        """Make a frame's choices and fill its holes."""
        while choice := CHOICE.search(text):
            text = text[: choice.start()] + self.choose(choice[1].split("|")) + text[choice.end() :]
        context.past = self.chance(0.6)
        if "{else}" in text:
            context.noun = self.choose(ELSEWHERE)
        text = HOLE.sub(lambda hole: self.fill_hole(hole, context), text)
        return ARTICLE.sub(r"\1n ", SPACES.sub(" ", text).strip())

    def fill_hole(self, hole: re.Match[str], context: "Context") -> str:
        """Return the words for a hole."""
        name, good, noun = hole[1], context.good, context.noun
        if name in FILLINGS:
            return self.choose(FILLINGS[name])
        if name == "np":
            return self.noun_phrase(
                context, hole.string[hole.end() :].startswith((" {be}", " could", " would", " did"))
            )
        if name in ("hope", "fear"):  # of what is said in the words of X, or of A
            return self.choose(HOPES[1 - good if name == "hope" else good])
        if name == "to":
            return self.choose(TO) if good else ""
        if name in ("it", "them") and noun is not None and noun.person:
            return self.choose(("he", "she") if name == "it" else ("him", "her"))
        if name in FORMS:
            return FORMS[name][2 * context.plural + context.past]
        if name in WORDS or name in ("a", "b", "c", "x", "X", "A", "e"):
            polarity = self.below(2) if name == "e" else 1 - good if name in "xX" else good
            word = self.word("c" if name == "c" else name if name in WORDS else "a", context, polarity)
            return word if name in ("X", "A", "e", "end") else re.sub(r"$| ", r"*\g<0>", word, count=1)
        assert noun is not None
        return {"else": f"the {noun.name}", "n": noun.name, "known": context.verb}[name]

    def word(self, kind: str, context: "Context", good: int) -> str:
        """Draw a word of opinion that this context has not used yet."""
        noun = context.noun
        key = kind if kind in WORDS else f"{noun.words if noun is not None and self.chance(0.6) else 'any'}.{kind}"
        words = WORDS[key][good]
        word = self.choose([each for each in words if each not in context.used] or words)
        context.used.add(word)
        return word

    def noun_phrase(self, context: "Context", subject: bool) -> str:
        """Say the noun with an article or another determiner; at times as a pronoun alone."""
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

    def write(self, text: str, *, last: bool = True, casual: bool = False) -> str:
        """Write a sentence: with contractions or without, a capital, a stop; `casual`: often with neither."""
        text = SHORTER.sub(self.shorten_verb, SHORT.sub(self.shorten_not, text))
        if not (casual and self.chance(0.5)):
            text = text[0].upper() + text[1:]
        if last and self.chance(0.5 if casual else 0.1):
            return text
        return text + ("!" if self.chance(0.08) else ".")

    def shorten_not(self, match: re.Match[str]) -> str:
        """Contract "not" (isn't, can't) in half of the places; a few lack their apostrophe."""
        if self.chance(0.5):
            return match[0]
        mark = "" if self.chance(0.04) else "'"
        return f"{match[1]}n{mark}t" if match[1] else f"{match[0][:3]}{mark}t"

    def shorten_verb(self, match: re.Match[str]) -> str:
        """Contract verbs (it's, I've) in a third of the places."""
        if self.chance(0.67):
            return match[0]
        who, verb = (each for each in match.groups() if each)
        return who + ENDINGS[verb.lower()]


@dataclasses.dataclass
class Context:
    """The words that fill the holes of a frame."""

    noun: Noun | None = None
    good: int = 0  # which words of opinion: bad ones, or good ones
    verb: str = ""  # how one gets to know the noun
    only: str = ""  # the one determiner that it may have
    past: bool = False
    used: set[str] = dataclasses.field(default_factory=set)  # words of opinion

    @property
    def plural(self) -> bool:
        """Return whether the noun is a plural."""
        return self.noun is not None and self.noun.plural
