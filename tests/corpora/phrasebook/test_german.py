"""German, checked independently of the program: small tables written here against every sentence."""

import re

from corpora.phrasebook.cases import spaced


def listed(words):
    return words.split()


PRONOUNS = listed("ich du er sie wir es")
FINITE = {
    "ich": "habe bin war hatte werde kann muss will sollte konnte musste wollte darf mag weiß",
    "du": "hast bist warst hattest wirst kannst musst willst solltest konntest musstest wolltest darfst magst weißt",
    "er": "hat ist war hatte wird kann muss will sollte konnte musste wollte darf mag weiß",
    "wir": "haben sind waren hatten werden können müssen wollen sollten konnten mussten wollten dürfen mögen wissen",
}
AUXILIARIES = {form: person for person, forms in FINITE.items() for form in forms.split()}
EVERY_AUXILIARY = {form for forms in FINITE.values() for form in forms.split()}
WITH_SEIN = listed(
    "gegangen gekommen geblieben geschwommen gelaufen aufgestanden aufgewacht zurückgekommen angekommen abgereist "
    "ausgegangen gefolgt"
)
WITH_HABEN = listed(
    "gegessen getrunken gekauft gelesen geschrieben gesehen gehört gefunden verloren gesucht angerufen eingeladen "
    "aufgemacht zugemacht angemacht aufgeräumt mitgebracht geschlafen gearbeitet getanzt gesungen gelacht geholfen "
    "gedankt geantwortet verstanden gegeben gezeigt geschickt geträumt gewartet gesprochen getroffen gewaschen"
)
CONJUNCTIONS = ("weil", "dass", "obwohl", "wenn", "als", "während", "ob")
GENDERS = {
    "m": "Mann Hund Apfel Käse Wein Tee Brief Tisch Schlüssel Hut Mantel Baum Stern Regenschirm Lehrer Freund Bruder",
    "f": "Frau Katze Suppe Milch Zeitung Lampe Tür Blume Frage Schwester Mutter Tante Tomate Gitarre Tasse Wohnung",
    "n": "Kind Mädchen Buch Auto Haus Pferd Brot Wasser Bier Fenster Zimmer Lied Kleid Hemd Glas Radio Fahrrad",
}
GENDER = {noun: gender for gender, nouns in GENDERS.items() for noun in nouns.split()}
# Determiner and gender: the ending of an adjective between them and a singular noun. Any other combination is wrong.
ENDINGS = {
    "der m": "e", "den m": "en", "dem m": "en", "ein m": "er", "einen m": "en", "einem m": "en",
    "die f": "e", "der f": "en", "eine f": "e", "einer f": "en",
    "das n": "e", "dem n": "en", "ein n": "es", "einem n": "en",
}  # fmt: skip
LIKE_EIN = re.compile(r"(k?ein|mein|dein|sein|ihr|unser)(e|en|em|er)?$")
LIKE_DER = {"dieser": "der", "diesen": "den", "diesem": "dem", "diese": "die", "dieses": "das"}
LIKE_DER |= {f"{stem}{new}": old for stem in ("jed", "welch") for new, old in
             (("er", "der"), ("en", "den"), ("em", "dem"), ("e", "die"), ("es", "das"))}  # fmt: skip
PLURALS = {"Mädchen", "Fenster", "Zimmer", "Lehrer", "Schlüssel"}  # nouns whose plural looks like the singular


def clauses():
    """Yield each sentence's words, split at punctuation."""
    for example in spaced("en-de"):
        part = []
        for word in example.target.split():
            if word in ",.?":
                yield example, part
                part = []
            else:
                part.append(word)


def test_the_finite_verb_closes_a_subordinate_clause():
    seen = set()
    for example, words in clauses():
        if words[0] in CONJUNCTIONS:
            seen.add(words[0])
            last = words[-1]
            assert last[0].islower(), example.target
            assert last not in PRONOUNS, example.target
            inner = [
                word for word in words[1:-1] if word in EVERY_AUXILIARY and word not in ("war", "weiß", "haben", "sein")
            ]
            assert not inner or "und" in words, f"{example.target}: {inner} before the end"
            if any(word in WITH_HABEN + WITH_SEIN for word in words[:-1]):
                assert last in EVERY_AUXILIARY, example.target
            subject = words[1]
            if subject in ("ich", "du", "er", "wir") and last in AUXILIARIES:
                assert last in FINITE[subject].split(), example.target
    assert seen == set(CONJUNCTIONS)


def test_participles_and_prefixes_close_a_main_clause():
    for example, words in clauses():
        if words[0] not in CONJUNCTIONS and not (
            example.target.count(",") and words[0] in ("der", "die", "das", "den")
        ):
            for prefix in ("ab", "zurück", "fern", "aus"):
                assert not re.search(rf"\\b{prefix} (?!und\\b)", " ".join(words)), example.target
            participles = [i for i, word in enumerate(words) if word in WITH_HABEN + WITH_SEIN]
            for i in participles:
                assert i == len(words) - 1 or words[i + 1] == "und" or words[-1] in EVERY_AUXILIARY, example.target


def test_haben_or_sein():
    haben, sein = set(listed("habe hast hat haben")), set(listed("bin bist ist sind"))
    checked = 0
    for example, words in clauses():
        for participles, right in ((WITH_SEIN, sein), (WITH_HABEN, haben)):
            if words[-1] in participles and not {"und"} & set(words):
                checked += 1
                assert right & set(words), example.target
    assert checked > 1000


def test_the_verb_comes_second():
    """After a time expression comes the verb, then the subject."""
    checked = 0
    for example, words in clauses():
        if words[0] in ("gestern", "morgen", "jetzt", "heute", "neulich", "bald") and words[1] not in (
            "Abend",
            "Morgen",
        ):
            checked += 1
            assert words[1] not in PRONOUNS, example.target
            assert words[1].islower(), example.target
            assert not re.fullmatch(r"(der|die|das|ein|eine|mein|dein|sein|ihr|unser)e?", words[1]), example.target
    assert checked > 100


def test_verbs_agree_with_pronouns():
    checked = 0
    for example, words in clauses():
        if len(words) > 1 and words[0] in ("ich", "du", "er", "wir"):
            subject, verb = words[:2]
            checked += 1
            if verb in AUXILIARIES:
                assert verb in FINITE[subject].split(), example.target
            else:
                ending = {"ich": "e", "du": "t", "er": "t", "wir": "n"}[subject]
                assert verb.endswith(ending), example.target
    assert checked > 3000


def test_articles_and_adjectives_agree_with_nouns():
    checked = 0
    for example in spaced("en-de"):
        words = example.target.split()
        for i, noun in enumerate(words):
            if noun not in GENDER or noun in PLURALS or i == 0:
                continue
            adjective = ""
            det, first = words[i - 1], i - 1
            if i > 1 and re.search(r"(e|en|er|es|em)$", det) and det[0].islower() and not determiner(det):
                adjective, det, first = det, words[i - 2], i - 2
            if first and words[first - 1] == ",":
                continue  # a relative pronoun: , die deutschen Tee trinken
            if det == "das" and first == 1 and example.source.split()[1] in ("this", "these"):
                continue  # ist das Suppe?
            det = determiner(det)
            if det:
                key = f"{det} {GENDER[noun]}"
                assert key in ENDINGS, f"{example.target}: {det} {noun}"
                checked += 1
                if adjective and not adverb(adjective):
                    assert adjective.endswith(ENDINGS[key]), f"{example.target}: {det} {adjective} {noun}"
                    assert not adjective.endswith("e" + ENDINGS[key]), example.target
    assert checked > 5000


def determiner(word):
    """Return the article that a determiner is declined like, or nothing."""
    if word in ("der", "die", "das", "den", "dem"):
        return word
    if word in LIKE_DER:
        return LIKE_DER[word]
    if match := LIKE_EIN.fullmatch(word):
        return "ein" + (match[2] or "")
    return ""


def adverb(word):
    return word in ("heute", "morgen", "immer", "gestern")


def test_kein_and_nicht():
    for example in spaced("en-de"):
        english, german = example.source.split(), example.target.split()
        denials = sum(word in ("not", "cannot") for word in english)
        found = sum(word == "nicht" or word.startswith("kein") for word in german)
        assert found == denials, f"{example.source} | {example.target}"
        assert german.count("nie") == english.count("never")
        assert not re.search(r"nicht ein(e|en|em|er) ", example.target), example.target


def test_nouns_are_capitals_and_nothing_else():
    capitals = set()
    for example in spaced("en-de"):
        for i, j in example.alignment:
            word = example.target.split()[j]
            if word[0].isupper():
                capitals.add(word)
            if word[0].islower() and example.source.split()[i] in ("dog", "house", "bread", "school", "Berlin"):
                assert determiner(word), f"{example.target}: {word}"  # keine, for bread without an article
    assert not {"Ich", "Du", "Er", "Sie", "Der", "Das"} & capitals


def test_every_subordinate_clause_is_cut_off_by_commas():
    for example in spaced("en-de"):
        words = example.target.split()
        for i, word in enumerate(words):
            if word in ("weil", "dass", "obwohl", "ob", "wenn", "während"):
                assert i == 0 or words[i - 1] == ",", example.target
        assert ", ," not in example.target
        assert ", ." not in example.target
        assert not example.target.startswith(",")
