"""Inflection: the forms of verbs, nouns and adjectives in three languages; rules give the regular ones.

Persons are numbered I, you, he, we, they: 0 to 4 ("you" is singular, du and tu). A verb's notation consists of the
infinitive and irregular forms; see `lexicon`.
"""

import enum
import typing

from regard_corpora import tables

K = typing.TypeVar("K", bound=enum.IntEnum)
Forms = tuple[str, str, str, str, str]
VOWELS = frozenset("aeiou")


class EnglishVerb(typing.NamedTuple):
    """The forms walk, walks, walked, walking; `particle` as in "turn it on", `preposition` as in "look for it"."""

    base: str
    third: str
    past: str
    progressive: str
    particle: str
    preposition: str


class GermanVerb(typing.NamedTuple):
    """The forms of a German verb; only `joined` has its separable prefix: "weil ich anrufe", but "ich rufe … an"."""

    present: Forms
    joined: Forms
    infinitive: str
    zu_infinitive: tuple[str, ...]  # with zu: ("zu", "lesen"), ("anzurufen",)
    participle: str
    prefix: str
    auxiliary: Forms  # the forms of haben or sein
    case: int  # the object's case: 1 accusative, 2 dative
    preposition: str


class FrenchVerb(typing.NamedTuple):
    """The forms of a French verb: `participle` by gender and number, and `tail`, a fixed object: "rendre visite"."""

    present: Forms
    infinitive: str
    participle: tuple[str, str, str, str]
    being: bool  # passé composé with être
    reflexive: bool
    tail: tuple[str, ...]
    link: str  # the object's link: "" direct, "à" with the clitic lui, "+avec" a preposition without clitics


def forms_of(language: str) -> dict[str, typing.Any]:
    """Read a language's part of forms.toml: paradigms become tuples of forms; a single word stays a string."""

    def split(value: typing.Any) -> typing.Any:
        if isinstance(value, dict):
            return {name: split(each) for name, each in value.items()}
        if isinstance(value, list):
            return tuple(map(split, value))
        forms = tuple("" if form == "-" else form for form in value.split())
        return forms if len(forms) > 1 else forms[0]

    return split(tables.read("phrasebook/forms.toml")[language])


def keyed(kind: type[K], table: dict[str, typing.Any]) -> dict[K, typing.Any]:
    """Replace a table's keys, which are lower-case names of an enumeration's members, with these members."""
    return {kind[name.upper()]: value for name, value in table.items()}


HABEN, SEIN = (forms_of("german")[name] for name in ("haben", "sein"))


def marks(notation: str, signs: str) -> tuple[list[str], dict[str, list[str]]]:
    """Split a notation into its plain words, and its words that begin with one of the signs, without the sign."""
    plain, groups = [], {sign: [] for sign in signs}  # type: tuple[list[str], dict[str, list[str]]]
    for word in notation.split():
        if word[0] in signs:
            groups[word[0]].append(word[1:])
        else:
            plain.append(word)
    return plain, groups


def english_plural(singular: str) -> str:
    """Return the plural of an English noun: apples, churches, stories."""
    if singular.endswith(("s", "x", "ch", "sh")):
        return singular + "es"
    if singular.endswith("y") and singular[-2] not in VOWELS:
        return singular[:-1] + "ies"
    return singular + "s"


def english_verb(notation: str) -> EnglishVerb:
    """Parse a verb from "base [past [progressive]] [~particle] [+preposition]"; missing forms are regular."""
    words, groups = marks(notation, "~+")
    base = words[0]
    soft = base.endswith("e")
    past = base + "d" if soft else base[:-1] + "ied" if base.endswith("y") and base[-2] not in VOWELS else base + "ed"
    progressive = base[:-1] + "ing" if soft and not base.endswith("ee") else base + "ing"
    third = "has" if base == "have" else base + "es" if base == "go" else english_plural(base)
    return EnglishVerb(
        base,
        third,
        words[1] if len(words) > 1 else past,
        words[2] if len(words) > 2 else progressive,
        " ".join(groups["~"]),
        " ".join(groups["+"]),
    )


def german_verb(notation: str) -> GermanVerb:
    """Parse a verb from "prefix/infinitive [[[ich] du er] participle] [*] [@dat] [+preposition.case]"; * means sein."""
    words, groups = marks(notation, "*@+")
    prefix, _, plain = words[0].rpartition("/")
    stem = plain[:-2] if plain.endswith("en") else plain[:-1]
    bridge = "e" if stem[-1] in "td" or stem[-2:] in ("fn", "gn") else ""
    second = stem + bridge + ("t" if stem[-1] in "sßzx" else "st")
    first, third = stem + "e", stem + bridge + "t"
    participle = "ge" + third
    if len(words) == 2:
        participle = words[1]
    elif len(words) > 3:
        first, second, third, participle = [first, *words[1:]][-4:]
    present: Forms = (first, second, third, plain, plain)
    a, b, c, d, e = (prefix + form for form in present)
    preposition, _, case = (groups["+"] or [""])[0].partition(".")
    return GermanVerb(
        present=present,
        joined=(a, b, c, d, e),
        infinitive=prefix + plain,
        zu_infinitive=(f"{prefix}zu{plain}",) if prefix else ("zu", plain),
        participle=prefix + participle,
        prefix=prefix,
        auxiliary=SEIN if groups["*"] else HABEN,
        case=2 if "dat" in (case, *groups["@"]) else 1,
        preposition=preposition,
    )


def french_adjective(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """Return an adjective's masculine and feminine forms, and their plurals."""
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    return masculine, feminine, french_plural(masculine), feminine + "s"


def french_plural(singular: str) -> str:
    """Return the plural of a French noun: livres, gâteaux, journaux, fils."""
    if singular[-1] in "sxz":
        return singular
    if singular.endswith(("au", "eu")):
        return singular + "x"
    return singular[:-2] + "aux" if singular.endswith("al") else singular + "s"


def french_verb(notation: str) -> FrenchVerb:
    """Parse a verb from "[se] infinitive [je [tu] il nous ils participle] [^] [@à] [+preposition] [&tail]".

    ^ means être. A regular verb in -er may give its stem before a mute ending: "acheter achèt".
    """
    words, groups = marks(notation, "^@+&")
    reflexive = words[0] == "se"
    infinitive, *rest = words[1:] if reflexive else words
    if len(rest) > 1:
        if len(rest) == 5:
            rest.insert(1, rest[0])  # the forms of je and tu are equal
        je, tu, il, nous, ils, participle = rest
    else:
        stem = infinitive[:-2]
        mute = rest[0] if rest else stem
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        je, tu, il, nous, ils, participle = mute + "e", mute + "es", mute + "e", soft + "ons", mute + "ent", stem + "é"
    link = "à" if groups["@"] else "+" + groups["+"][0] if groups["+"] else ""
    return FrenchVerb(
        present=(je, tu, il, nous, ils),
        infinitive=infinitive,
        participle=french_adjective(participle, participle + "e"),
        being=reflexive or bool(groups["^"]),
        reflexive=reflexive,
        tail=tuple(groups["&"]),
        link=link,
    )
