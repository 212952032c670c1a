"""French: turn a meaning into a French sentence.

Clitics precede the verb ("je le vois", "je ne l' ai pas vu", "je veux le voir"), "ne … pas" surrounds the finite verb,
and most adjectives follow the noun. Questions use "est-ce que". Participles agree with the subject of être, and with a
direct object before avoir. Elided words end in an apostrophe and are separate words: "l' homme", "qu' il". Heads are as
in `english`.
"""

import itertools

from regard_corpora.phrasebook.inflection import forms_of, keyed
from regard_corpora.phrasebook.lexicon import Phrase, Verb
from regard_corpora.phrasebook.meaning import (
    INVERTED,
    Asking,
    Bit,
    Clause,
    Det,
    Kind,
    Modal,
    NounPhrase,
    Polarity,
    Sentence,
    Tense,
)
from regard_corpora.phrasebook.words import Word, add, join, put, say, say_sentence, say_time

FORMS = forms_of("french")
SUBJECTS, DIRECT, INDIRECT = (FORMS[name] for name in ("subjects", "direct", "indirect"))
APART, REFLEXIVE, OWNERS = (FORMS[name] for name in ("apart", "reflexive", "owners"))
DETS, MODALS = keyed(Det, FORMS["dets"]), keyed(Modal, FORMS["modals"])
WHICH, BEFORE_VOWEL = FORMS["which"], FORMS["liaison"]
PRESENT, IMPERFECT = FORMS["present"], FORMS["imperfect"]
ELIDED = {form: form[:-1] + "'" for form in FORMS["elided"]}
CONTRACTED = {tuple(pair.split()): form for pair, form in FORMS["contracted"].items()}
MUTE = FORMS["mute"]
VOWELS = frozenset("aeiouyàâéèêëîïôùûœAEIOUÉ")
PLAIN, GENERAL, DENIED = range(3)  # un chien; aimer les chiens; pas de chien


def vowel(word: str) -> bool:
    """Return whether a word begins with a vowel sound, before which other words are elided."""
    first = word[0]
    return word != "onze" if first in VOWELS else first == "h" and word.startswith(MUTE)


def noun_phrase(out: list[Word], phrase: NounPhrase, manner: int = PLAIN) -> Word:
    """Say a noun phrase that is not a subject pronoun or a clitic; return its head."""
    kind = phrase.kind
    if kind == Kind.NOUN:
        return noun(out, phrase, manner)
    if kind == Kind.PRONOUN:
        return put(out, APART[phrase.owner], phrase.bits)
    if kind == Kind.NAME:
        assert phrase.name is not None
        return put(out, phrase.name.form, phrase.bits)
    if kind == Kind.BOTH:
        return join(out, phrase, "et", lambda each: noun_phrase(out, each, manner))
    return put(out, "ce" if kind == Kind.THIS else "que" if kind == Kind.WHAT else "qui", phrase.bits)


def noun(out: list[Word], phrase: NounPhrase, manner: int) -> Word:
    entry, adjective = phrase.noun, phrase.adjective
    assert entry is not None
    bits, det, many, feminine = phrase.bits, phrase.det, phrase.many, entry.feminine
    head = Word(entry.french[many], bits)
    first = head.form  # the first word after the determiner
    described = None
    if adjective is not None:
        described = Word(adjective.french[feminine + 2 * many], bits * Bit.ADJECTIVE, head, "amod")
        if adjective.before:
            if not many and not feminine and vowel(first):
                described.form = adjective.liaison
            first = described.form
    start = len(out)
    determine(out, phrase, first, manner, first != head.form)
    if described is not None and first != head.form:
        out += (described, head)
    elif described is not None:
        out += (head, described)
    else:
        out.append(head)
    for word in out[start:]:
        if word.head is None and word is not head:
            word.head, word.relation = head, word.relation or "det"
    if det == Det.NAMED:
        assert phrase.name is not None
        owner = Word(phrase.name.form, bits * Bit.NUMBER, head, "nmod")
        out += (Word("de", bits * Bit.DET, owner, "case"), owner)
    if phrase.relative is not None:
        clause = phrase.relative
        form, role = ("qui", "nsubj") if clause.subject.kind == Kind.GAP else ("que", "obj")
        pronoun = put(out, form, bits * Bit.RELATIVE, None, role)
        verb = clause_(out, clause).relate("acl:relcl")
        verb.head, pronoun.head = head, verb
    return head


def determine(out: list[Word], phrase: NounPhrase, first: str, manner: int, preceded: bool) -> None:
    """Say the determiner of a noun phrase; `first` is the word after it."""
    bits, det, many = phrase.bits, phrase.det, phrase.many
    feminine = phrase.noun.feminine if phrase.noun is not None else 0
    if manner == GENERAL and det == Det.BARE:
        put(out, DETS[Det.THE][2 if many else feminine], bits)
    elif manner == DENIED and det in (Det.A, Det.BARE):
        put(out, "de", bits * Bit.DET if det == Det.A else bits)
    elif det in DETS or det == Det.MY:
        form = (OWNERS[phrase.owner] if det == Det.MY else DETS[det])[2 if many else feminine]
        put(out, BEFORE_VOWEL.get(form, form) if vowel(first) else form, bits * Bit.DET)
    elif det == Det.BARE:
        if many:
            put(out, "de" if preceded else "des", bits)
        elif feminine or vowel(first):
            out += (Word("de", bits), Word("la", bits))
        else:
            put(out, "du", bits)
    elif det == Det.NUMBER:
        assert phrase.number is not None
        put(out, phrase.number.french, bits * Bit.NUMBER, None, "nummod")
    elif det == Det.WHICH:
        put(out, WHICH[feminine + 2 * many], bits * Bit.DET)
    else:
        form, own = ("beaucoup", Bit.DET) if det == Det.MANY else ("combien", Bit.DET | Bit.NUMBER)
        put(out, "de", bits * Bit.DET, put(out, form, bits * own), "fixed")


def add_governed(out: list[Word], preposition: str, bits: int, phrase: NounPhrase) -> Word:
    """Say a preposition and the noun phrase after it, contracted to au, aux, du or des; return the phrase's head."""
    word = put(out, preposition, bits, None, "case")
    start = len(out)
    head = noun_phrase(out, phrase).relate("obl")
    word.head = head
    if phrase.kind == Kind.NOUN and phrase.det in (Det.THE, Det.NAMED):
        article = out[start]
        joined = CONTRACTED.get((preposition, article.form))
        if joined and (article.form == "les" or not vowel(out[start + 1].form)):
            word.form, word.bits = joined, bits | article.bits
            del out[start]
    return head


def clitics(out: list[Word], clause: Clause, below: list[Word]) -> NounPhrase | None:
    """Say the pronouns before the verb; return the direct object among them, if any."""
    verb = clause.verb
    if verb is None:
        return None
    pronouns: list[tuple[int, Word]] = []
    direct = None
    if verb.french.reflexive:
        pronouns.append((0, Word(REFLEXIVE[clause.subject.person], clause.bits * Bit.VERB, None, "expl:pv")))
    thing, recipient = clause.object, clause.recipient
    if thing is not None and thing.kind == Kind.PRONOUN:
        if verb.french.link == "":
            direct = thing
            word = Word(DIRECT[thing.owner], thing.bits, None, "obj")
            pronouns.append((1 if thing.person == 2 or thing.owner == 5 else 0, word))
        elif verb.french.link == "à":
            pronouns.append((2, Word(INDIRECT[thing.owner], thing.bits, None, "iobj")))
    if recipient is not None and recipient.kind == Kind.PRONOUN:
        third = recipient.owner in (2, 3, 5)
        pronouns.append((2 if third else 0, Word(INDIRECT[recipient.owner], recipient.bits, None, "iobj")))
    if len(pronouns) == 2 and pronouns[0][0] > pronouns[1][0]:  # me le, but le lui
        pronouns.reverse()
    for _, word in pronouns:
        out.append(word)
        below.append(word)
    return direct


def agreement(clause: Clause, direct: NounPhrase | None) -> int:
    """Return the index of the participle's form: feminine + 2 × plural."""
    verb, subject = clause.verb, clause.subject
    assert verb is not None
    if verb.french.being:
        return subject.feminine + 2 * subject.many
    if (clause.asking == Asking.OBJECT and verb.french.link == "") or (
        clause.about is not None and clause.object is not None and clause.object.kind == Kind.GAP
    ):
        direct = clause.object
    return direct.feminine + 2 * direct.many if direct is not None else 0


def clause_(out: list[Word], clause: Clause, lead: Word | None = None) -> Word:
    """Say a clause; return its head. `lead` is a word before it, which depends on that head."""
    bits, verb, subject, asking = clause.bits, clause.verb, clause.subject, clause.asking
    below: list[Word] = [lead] if lead is not None else []
    if clause.front:
        below.append(say_time(out, clause, "french"))
    if asking == Asking.ADVERB:
        assert clause.wh is not None
        below.append(say(out, clause.wh.french, bits * Bit.LINK))
    elif asking == Asking.OBJECT:
        assert clause.object is not None
        assert verb is not None
        if verb.french.link:
            below.append(add_governed(out, "à", bits * (Bit.PREPOSITION | Bit.VERB), clause.object))
        else:
            below.append(noun_phrase(out, clause.object).relate("obj"))
    behind = clause.asks_whereabouts and subject.kind != Kind.PRONOUN  # où est la gare
    if asking in INVERTED and not behind:
        add(out, below, "est-ce", 0, "mark")
        add(out, below, "que", 0, "mark")
    if subject.kind == Kind.PRONOUN:
        add(out, below, SUBJECTS[subject.owner], subject.bits, "nsubj")
    elif subject.kind != Kind.GAP and not behind:
        below.append(noun_phrase(out, subject).relate("nsubj"))
    if clause.polarity != Polarity.YES:
        add(out, below, "ne", bits * Bit.NOT, "advmod")
    head = verbs(out, clause, below)
    if behind:
        below.append(noun_phrase(out, subject).relate("nsubj"))
    after(out, clause, below, head)
    for word in below:
        word.head = head
    return head


def verbs(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Say the finite verb with its clitics and adverbs, then other verbs or the predicate; return the clause's head."""
    bits, verb, modal, person = clause.bits, clause.verb, clause.modal, clause.subject.person
    own = bits * Bit.VERB
    if verb is not None and verb.english.preposition and not verb.french.link and clause.object is not None:
        own |= bits * Bit.PREPOSITION  # wait for: attendre
    if modal is not None:
        add(out, below, MODALS[modal][person], bits * Bit.MODAL, "aux")
        adverbs(out, clause, below)
        if verb is None:
            add(out, below, clause.idiom.french_verb if clause.idiom is not None else "être", own, "cop")
            return predicate(out, clause, below)
        clitics(out, clause, below)
        head = put(out, verb.french.infinitive, own)
    elif verb is None:
        name = clause.idiom.french_verb if clause.idiom is not None else "être"
        add(out, below, (IMPERFECT if clause.tense == Tense.PAST else PRESENT)[name][person], own, "cop")
        adverbs(out, clause, below)
        return predicate(out, clause, below)
    elif clause.tense == Tense.PAST:
        direct = clitics(out, clause, below)
        add(out, below, PRESENT["être" if verb.french.being else "avoir"][person], own, "aux")
        adverbs(out, clause, below)
        head = put(out, verb.french.participle[agreement(clause, direct)], own)
    else:
        clitics(out, clause, below)
        head = put(out, verb.french.present[person], own)
        adverbs(out, clause, below)
    add_tail(out, below, verb, bits)
    if clause.verb2 is not None:
        joint = Word("et", bits * Bit.AND, None, "cc")
        second = Word(second_form(clause, clause.verb2), bits * Bit.VERB2, head, "conj")
        joint.head = second
        out += (joint, second)
    return head


def add_tail(out: list[Word], below: list[Word], verb: Verb, bits: int) -> None:
    """Say the fixed object of a verb: regarder la télévision, avoir besoin."""
    for form in verb.french.tail:
        add(out, below, form, bits * Bit.VERB, "obj" if form == verb.french.tail[-1] else "det")


def second_form(clause: Clause, verb: Verb) -> str:
    if clause.modal is not None:
        return verb.french.infinitive
    return verb.french.participle[0] if clause.tense == Tense.PAST else verb.french.present[clause.subject.person]


def inner(phrase: Phrase) -> bool:
    """Return whether an adverb of manner follows the finite verb directly: bien, mal."""
    return phrase.french[0].form in ("bien", "mal")


def adverbs(out: list[Word], clause: Clause, below: list[Word]) -> None:
    """Say the adverbs directly after the finite verb."""
    bits = clause.bits
    if clause.polarity != Polarity.YES:
        add(out, below, "pas" if clause.polarity == Polarity.NOT else "jamais", bits * Bit.NOT, "advmod")
    if clause.often is not None:
        below.append(say(out, clause.often.french, bits * Bit.OFTEN))
    if clause.manner is not None and inner(clause.manner):
        below.append(say(out, clause.manner.french, bits * Bit.MANNER))


def after(out: list[Word], clause: Clause, below: list[Word], head: Word) -> None:
    """Say the parts after the verb: objects, manner, complement, place, time."""
    bits, verb = clause.bits, clause.verb
    thing, recipient = clause.object, clause.recipient
    if verb is not None and thing is not None and thing.kind != Kind.GAP and clause.asking != Asking.OBJECT:
        link = verb.french.link
        if link:
            if link != "à" or thing.kind != Kind.PRONOUN:
                own = bits * Bit.PREPOSITION if verb.english.preposition else bits * Bit.VERB
                below.append(add_governed(out, link.removeprefix("+"), own, thing))
        elif thing.kind != Kind.PRONOUN:
            manner = GENERAL if "kind" in verb.traits else DENIED if clause.polarity != Polarity.YES else PLAIN
            below.append(noun_phrase(out, thing, manner).relate("obj"))
    if recipient is not None and recipient.kind != Kind.PRONOUN:
        below.append(add_governed(out, "à", bits * Bit.PREPOSITION, recipient))
    if clause.manner is not None and not inner(clause.manner):
        below.append(say(out, clause.manner.french, bits * Bit.MANNER))
    if clause.complement is not None:
        below.append(complement(out, clause))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).french, bits * Bit.PLACE))
    if clause.time is not None and not clause.front:
        below.append(say_time(out, clause, "french"))


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Say the predicate after être, or after avoir or faire in an idiom; return its head."""
    bits, subject = clause.bits, clause.subject
    if clause.idiom is not None:
        return put(out, clause.idiom.french, bits * Bit.PREDICATE)
    if clause.profession is not None:
        return put(out, clause.profession.french[subject.feminine][subject.many], bits * Bit.PREDICATE)
    if clause.adjective is not None:
        form = clause.adjective.french[subject.feminine + 2 * subject.many]
        if clause.than is not None:
            add(out, below, "plus", bits * Bit.DEGREE, "advmod")
        elif clause.degree is not None:
            below.append(say(out, clause.degree.french, bits * Bit.DEGREE))
        head = put(out, form, bits * Bit.PREDICATE)
        if clause.than is not None:
            below.append(add_governed(out, "que", bits * Bit.LINK, clause.than))
        return head
    if clause.identity is not None:
        return noun_phrase(out, clause.identity)
    if clause.asks_whereabouts:
        return below.pop(0)  # où
    assert clause.place is not None
    return say(out, clause.place.at.french, bits * Bit.PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with "que" or "si", or an infinitive with its preposition; return its head."""
    inside, verb = clause.complement, clause.verb
    assert inside is not None
    assert verb is not None
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.french, clause.bits * Bit.LINK, relation="mark")
        return clause_(out, inside, lead).relate("ccomp")
    assert inside.verb is not None
    below: list[Word] = []
    if verb.french.link:
        add(out, below, verb.french.link.removeprefix("+"), inside.bits * Bit.TO, "mark")
    clitics(out, inside, below)
    waits = inside.verb.english.preposition and not inside.verb.french.link and inside.object is not None
    head = put(out, inside.verb.french.infinitive, inside.bits * (Bit.VERB | Bit.PREPOSITION if waits else Bit.VERB))
    add_tail(out, below, inside.verb, inside.bits)
    after(out, inside, below, head)
    for word in below:
        word.head = head
    return head.relate("xcomp")


def elide(words: list[Word]) -> None:
    """Elide vowels in place: je + ai becomes j' ai; si + il becomes s' il."""
    for word, following in itertools.pairwise(words):
        if word.form in ELIDED:
            if vowel(following.form):
                word.form = ELIDED[word.form]
        elif word.form == "ce" and following.form in ("est", "était", "étaient"):
            word.form = "c'"
        elif word.form == "si" and following.form in ("il", "ils"):
            word.form = "s'"


def speak(sentence: Sentence) -> list[Word]:
    """Say a sentence in French."""
    comma = sentence.bits * 16 if sentence.comma else None
    out = say_sentence(sentence, "french", lambda out, clause, _, lead: clause_(out, clause, lead), comma)
    elide(out)
    return out
