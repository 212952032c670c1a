"""Natural text: sentences as in print, or as typed in haste.

The grammar's sentences are separate words in lower case without contractions. Here they get a capital, and punctuation
and parts with an apostrophe are attached: "Anna's dog", "j'ai". English negation and verbs are contracted in some
sentences ("don't", "he's not", "he isn't"). Some pairs have no final stop, and some English sentences have no capitals,
a few of these without the apostrophe of "don't".

Words are separated by spaces. A word has the links of all its parts, except for stops of the target, which would link
the last words of both sentences. Its head and relation are those of its main part: homme in "l'homme", I in "I'm",
tired in "tired.".
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

from regard_corpora.phrasebook.words import Word

STOPS = (".", ",", "?")
KEPT = ("I", "German", "French", "Italian", "Anna", "Peter", "Maria", "Paul", "Julia", "Martin")  # capitals
BE = {"am": "'m", "are": "'re", "is": "'s"}
SUBJECTS = {"I": "am", "you": "are", "he": "is", "she": "is", "it": "is", "we": "are", "they": "are"}
ASKED = ("where", "what", "who")
NEGATED = {
    **{form: form for form in ("do", "does", "did", "is", "are", "was", "were", "could", "should", "must")},
    "will": "wo",
    "can": "ca",
}
FINITE = {*NEGATED, "am"}  # finite verbs that may begin a question
QUESTIONS = ("where", "what", "who", "why", "when", "which", "how")
WHOLE = {
    **{f"{spelling}nt": [form, "not"] for form, spelling in NEGATED.items()},  # typed without the apostrophe
    **{"can't": ["cannot"], "cant": ["cannot"], "won't": ["will", "not"], "im": ["I", "am"]},
}
ENDS = {"'m": "am", "'re": "are", "'ll": "will"}
PARTS = re.compile(r"[.,?]|[^\s.,?]+")


@dataclasses.dataclass(frozen=True)
class Style:
    """A style of writing a sentence."""

    contracted: bool = False
    joined: bool = False  # "he's not" instead of "he isn't"
    stop: bool = True
    capitals: bool = True
    apostrophes: bool = True


STYLES = tuple(  # all different styles, the plainest first
    Style(contracted, joined, stop, capitals, apostrophes)
    for contracted, joined in ((False, False), (True, False), (True, True))
    for stop in (True, False)
    for capitals, apostrophes in ((True, True), (False, True), (False, False))
)


def choose_style(random: Callable[[], float]) -> Style:
    """Draw a style: mostly as in print, sometimes without a final stop or as typed in haste."""
    chance, stop = random(), random()
    capitals = random() >= 0.15
    return Style(
        contracted=chance < 0.6,
        joined=chance < 0.25,
        stop=stop < (0.75 if capitals else 0.4),
        capitals=capitals,
        apostrophes=capitals or random() >= 0.25,
    )


def contract(words: list[Word], style: Style) -> list[Word]:
    """Contract English words, in place, if the style does: "do not" becomes "do n't", and "I am" becomes "I 'm"."""
    out = list(words)
    if not style.contracted:
        return out
    for place, word in enumerate(words[:-1]):
        following = words[place + 1]
        if following.head is not word.head and not (word.form in ASKED and place == 0):
            continue
        denied = place + 2 < len(words) and words[place + 2].form == "not"
        if SUBJECTS.get(word.form) == following.form or (place == 0 and word.form in ASKED and following.form == "is"):
            if not denied or style.joined or following.form == "am":
                following.form = BE[following.form]
        elif word.form in SUBJECTS and following.form == "will" and (not denied or style.joined):
            following.form = "'ll"
    for word in words:
        if word.form == "cannot":
            word.form = "can't"
        elif word.form == "not":
            place = out.index(word)
            verb = next((w for w in reversed(out[:place]) if w.head is word.head and w.form in NEGATED), None)
            if verb is not None:
                verb.form, word.form = NEGATED[verb.form], "n't"
                out.remove(word)
                out.insert(out.index(verb) + 1, word)
    return out


def attached(word: Word, before: Word, french: bool) -> bool:
    """Return whether a word is written without a space after the one before it."""
    form = word.form
    if form in STOPS:
        return not (french and form == "?")
    return form.startswith("'") or form == "n't" or before.form.endswith("'")


def group(words: Sequence[Word], french: bool) -> list[list[Word]]:
    """Group the words that are written without spaces between them."""
    groups: list[list[Word]] = []
    for place, word in enumerate(words):
        if place and attached(word, words[place - 1], french):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def main_part(parts: Sequence[Word]) -> Word:
    """Return the part of a written word that determines its head and relation."""
    outer = [part for part in parts if part.form not in STOPS and part.head not in parts]
    return next((part for part in outer if not part.form.endswith("'")), (outer or parts)[0])


def join_words(words: Sequence[Word], style: Style, *, french: bool = False, target: bool = False) -> list[Word]:
    """Join words that are written together; a joined word has the links of its parts and the head of its main part."""
    if not style.stop:
        words = words[:-1]
    joined: list[Word] = []
    of: dict[Word, Word] = {}  # the joined word of each word
    for parts in group(words, french):
        main = parts[0]
        form, bits = main.form, main.bits
        if len(parts) > 1:
            main, form, bits = main_part(parts), "".join([part.form for part in parts]), 0
            for part in parts:
                if not target or part.form not in STOPS:
                    bits |= part.bits
        word = Word(form, bits, main.head, main.relation)
        joined.append(word)
        for part in parts:
            of[part] = word
    for word in joined:
        if word.head is not None:
            word.head = of[word.head]
    if style.capitals or target:
        joined[0].form = joined[0].form[0].upper() + joined[0].form[1:]
    else:
        for word in joined:
            word.form = word.form.lower()
            if not style.apostrophes:
                word.form = "im" if word.form == "i'm" else word.form.replace("n't", "nt")
    return joined


def spell_out(text: str) -> list[str]:
    """Split an English sentence into the grammar's words: "I don't." becomes I do not .

    Names and words such as German keep their capital, but the first word loses it. A sentence without a final stop gets
    a full stop or a question mark.
    """
    words: list[str] = []
    for part in PARTS.findall(text.replace("’", "'")):
        form = part if words or part.partition("'")[0] in KEPT else part[0].lower() + part[1:]
        stem, apostrophe, end = form.partition("'")
        if form in WHOLE:
            words += WHOLE[form]
        elif form.endswith("n't"):
            words += [form.removesuffix("n't"), "not"]
        elif apostrophe and apostrophe + end in ENDS:
            words += [stem, ENDS[apostrophe + end]]
        elif end == "s":
            words += [stem, "is" if stem.lower() in (*SUBJECTS, *ASKED) else "'s"]
        else:
            words.append(form)
    words = ["I" if word == "i" else word for word in words]
    if len(words) > 3 and words[2] == "not" and words[0] == "why" and words[3] in SUBJECTS:
        words[2:4] = words[3], "not"  # why don't you: why do you not
    if not words or words[-1] in STOPS:
        return words
    first, second = [*words, ""][:2]
    asks = first in FINITE or (first in QUESTIONS and (first != "when" or second in FINITE))
    return [*words, "?" if asks else "."]
