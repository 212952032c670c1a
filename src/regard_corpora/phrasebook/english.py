"""English: turn a meaning into an English sentence.

Words are as in print, but sentences start in lower case, negation is not contracted ("do not", "cannot"), and the
genitive's 's is a separate word. Heads follow Universal Dependencies: articles, prepositions, auxiliaries, modals and
"to be" depend on the content word, an adjective or noun is the head of its copula, and the verb of a subordinate clause
depends on the verb of its main clause.
"""

from regard_corpora.phrasebook.inflection import forms_of, keyed
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

FORMS = forms_of("english")
SUBJECTS, OBJECTS, OWNERS, DETS = (FORMS[name] for name in ("subjects", "objects", "owners", "dets"))
AM, WAS, DO = (FORMS[name] for name in ("am", "was", "do"))
AUXILIARIES, VERBS = keyed(Modal, FORMS["auxiliaries"]), keyed(Modal, FORMS["modals"])
PAST = (Modal.HAD, Modal.WANTED)
PARTICLES = {"television": "obj", "shopping": "xcomp"}  # watch television, go shopping
VOWELS = frozenset("aeiouAEIOU")


def noun_phrase(out: list[Word], phrase: NounPhrase, subject: bool = False) -> Word:
    """Say a noun phrase; return its head."""
    kind = phrase.kind
    if kind == Kind.PRONOUN:
        return put(out, (SUBJECTS if subject else OBJECTS)[phrase.owner], phrase.bits)
    if kind == Kind.NAME:
        assert phrase.name is not None
        return put(out, phrase.name.form, phrase.bits)
    if kind == Kind.NOUN:
        return noun(out, phrase)
    if kind == Kind.BOTH:
        return join(out, phrase, "and", lambda each: noun_phrase(out, each))
    if kind == Kind.THIS:
        return put(out, "these" if phrase.many else "this", phrase.bits)
    return put(out, "what" if kind == Kind.WHAT else "who", phrase.bits)


def noun(out: list[Word], phrase: NounPhrase) -> Word:
    assert phrase.noun is not None
    bits, det = phrase.bits, phrase.det
    start = len(out)
    if det == Det.MY:
        put(out, OWNERS[phrase.owner], bits * Bit.DET, None, "nmod:poss")
    elif det == Det.NAMED:
        assert phrase.name is not None
        owner = put(out, phrase.name.form, bits * Bit.NUMBER, None, "nmod:poss")
        put(out, "'s", bits * Bit.DET, owner, "case")
    elif det < Det.BARE:
        put(out, "these" if det == Det.THIS and phrase.many else DETS[det], bits * Bit.DET, None, "det")
    elif det == Det.NUMBER:
        assert phrase.number is not None
        put(out, phrase.number.english, bits * Bit.NUMBER, None, "nummod")
    elif det == Det.MANY:
        put(out, "many", bits * Bit.DET, None, "amod")
    elif det == Det.HOW_MANY:
        many = Word("many", bits * Bit.DET, None, "amod")
        out += (Word("how", bits * Bit.NUMBER, many, "advmod"), many)
    if phrase.adjective is not None:
        put(out, phrase.adjective.english[0], bits * Bit.ADJECTIVE, None, "amod")
    head = put(out, phrase.noun.english[phrase.many], bits)
    for word in out[start:-1]:
        if word.head is None:
            word.head = head
    if det == Det.A and out[start + 1].form[0] in VOWELS:
        out[start].form = "an"
    if phrase.relative is not None:
        clause = phrase.relative
        gap = clause.subject.kind == Kind.GAP
        form = "who" if gap and phrase.noun.kind in ("person", "family") else "that"
        pronoun = put(out, form, bits * Bit.RELATIVE, None, "nsubj" if gap else object_name(clause))
        verb = clause_(out, clause).relate("acl:relcl")
        verb.head, pronoun.head = head, verb
    return head


def object_name(clause: Clause) -> str:
    """Return the relation of a clause's object to the verb: oblique if the verb has a preposition, as in "look at"."""
    return "obl" if clause.verb is not None and clause.verb.english.preposition else "obj"


def add_governed(out: list[Word], below: list[Word], preposition: str, bits: int, phrase: NounPhrase) -> None:
    """Say a preposition and the noun phrase after it."""
    word = put(out, preposition, bits, None, "case")
    word.head = noun_phrase(out, phrase).relate("obl")
    below.append(word.head)


def clause_(out: list[Word], clause: Clause, lead: Word | None = None) -> Word:
    """Say a clause; return its head. `lead` is a word before it, which depends on that head."""
    bits, verb, modal, subject, asking = clause.bits, clause.verb, clause.modal, clause.subject, clause.asking
    person = subject.person
    below: list[Word] = [lead] if lead is not None else []  # words that depend on the head
    if clause.front:
        below.append(say_time(out, clause, "english"))
    if asking == Asking.ADVERB:
        assert clause.wh is not None
        below.append(say(out, clause.wh.english, bits * Bit.LINK))
    elif asking == Asking.OBJECT:
        assert clause.object is not None
        below.append(noun_phrase(out, clause.object).relate(object_name(clause)))

    # The finite verb, which precedes the subject in questions, the verbs after it, and the content verb's form.
    turned, denied = asking in INVERTED, clause.polarity == Polarity.NOT
    support = turned or denied
    finite, own, between, form = "", bits * Bit.VERB, (), ""  # type: str, int, tuple[str, ...], str
    past = clause.tense == Tense.PAST
    if modal is not None:
        own = bits * Bit.MODAL
        form = verb.english.base if verb is not None else "be"
        if modal in AUXILIARIES:
            finite = AUXILIARIES[modal]
        else:
            base, inflected = VERBS[modal]
            if support:
                finite = "did" if modal in PAST else DO[person]
                between = (base, "to")
            else:
                between = (inflected if modal in PAST or person == 2 else base, "to")
    elif verb is None:
        finite = (WAS if past else AM)[person]
    elif clause.tense == Tense.PROGRESSIVE:
        finite, form = AM[person], verb.english.progressive
    elif support:
        finite, form = "did" if past else DO[person], verb.english.base
    else:
        form = verb.english.past if past else verb.english.third if person == 2 else verb.english.base

    role = "cop" if verb is None and modal is None else "aux"
    if turned:
        add(out, below, finite, own, role)
    if subject.kind != Kind.GAP:
        below.append(noun_phrase(out, subject, True).relate("nsubj"))
    if finite and not turned:
        if denied and finite == "can":
            finite, own, denied = "cannot", own | bits * Bit.NOT, False
        add(out, below, finite, own, role)
    if denied or clause.polarity == Polarity.NEVER:
        add(out, below, "not" if denied else "never", bits * Bit.NOT, "advmod")
    if clause.often is not None:
        below.append(say(out, clause.often.english, bits * Bit.OFTEN))
    for each in between:
        add(out, below, each, bits * Bit.MODAL, "mark" if each == "to" else "aux")
    head = content(out, clause, form, below)
    if clause.manner is not None:
        below.append(say(out, clause.manner.english, bits * Bit.MANNER))
    if clause.complement is not None:
        below.append(complement(out, clause))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).english, bits * Bit.PLACE))
    if clause.time is not None and not clause.front:
        below.append(say_time(out, clause, "english"))
    for word in below:
        word.head = head
    return head


def content(out: list[Word], clause: Clause, form: str, below: list[Word]) -> Word:
    """Say the content verb with its objects, or "be" with its predicate; return the head."""
    bits, verb = clause.bits, clause.verb
    if verb is None:
        if form:
            add(out, below, form, bits * Bit.VERB, "cop")
        return predicate(out, clause, below)
    head = put(out, form, bits * Bit.VERB)
    particle = verb.english.particle
    thing, recipient = clause.object, clause.recipient
    if clause.asking == Asking.OBJECT or (thing is not None and thing.kind == Kind.GAP):
        thing = None
    light = thing is not None and thing.kind == Kind.PRONOUN
    if particle and not light:
        add(out, below, particle, bits * Bit.VERB, PARTICLES.get(particle, "compound:prt"))
    if verb.english.preposition and clause.object is not None:
        if thing is not None:
            add_governed(out, below, verb.english.preposition, bits * Bit.PREPOSITION, thing)
        else:
            add(out, below, verb.english.preposition, bits * Bit.PREPOSITION, "case")
    else:
        if recipient is not None and recipient.kind == Kind.PRONOUN and not light and "to" not in verb.traits:
            below.append(noun_phrase(out, recipient).relate("iobj"))
            recipient = None
        if thing is not None:
            below.append(noun_phrase(out, thing).relate("obj"))
        if recipient is not None:
            add_governed(out, below, "to", bits * Bit.PREPOSITION, recipient)
    if particle and light:
        add(out, below, particle, bits * Bit.VERB, PARTICLES.get(particle, "compound:prt"))
    if clause.verb2 is not None:
        joint = put(out, "and", bits * Bit.AND, None, "cc")
        english = clause.verb2.english
        other = english.base
        if clause.modal is None:
            if clause.tense == Tense.PROGRESSIVE:
                other = english.progressive
            elif form == verb.english.past and clause.tense == Tense.PAST:
                other = english.past
            elif form == verb.english.third:
                other = english.third
        joint.head = put(out, other, bits * Bit.VERB2, head, "conj")
    return head


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Say the predicate after "to be"; return its head."""
    bits, profession, adjective = clause.bits, clause.profession, clause.adjective
    if clause.idiom is not None:
        return put(out, clause.idiom.english, bits * Bit.PREDICATE)
    if profession is not None:
        form = profession.english[clause.subject.many]
        if not clause.subject.many:
            add(out, below, "an" if form[0] in VOWELS else "a", bits * Bit.PREDICATE, "det")
        return put(out, form, bits * Bit.PREDICATE)
    if adjective is not None and clause.than is not None:
        long = len(adjective.english) == 1
        if long:
            add(out, below, "more", bits * Bit.DEGREE, "advmod")
        head = put(out, adjective.english[-1], bits * Bit.PREDICATE if long else bits * (Bit.PREDICATE | Bit.DEGREE))
        add_governed(out, below, "than", bits * Bit.LINK, clause.than)
        return head
    if adjective is not None:
        if clause.degree is not None:
            below.append(say(out, clause.degree.english, bits * Bit.DEGREE))
        return put(out, adjective.english[0], bits * Bit.PREDICATE)
    if clause.identity is not None:
        return noun_phrase(out, clause.identity)
    if clause.asks_whereabouts:
        return below.pop(0)  # where
    assert clause.place is not None
    return say(out, clause.place.at.english, bits * Bit.PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with "that" or "whether", or an infinitive with "to"; return its head."""
    inner = clause.complement
    assert inner is not None
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.english, clause.bits * Bit.LINK, relation="mark")
        return clause_(out, inner, lead).relate("ccomp")
    assert inner.verb is not None
    below = [put(out, "to", inner.bits * Bit.TO, None, "mark")]
    head = content(out, inner, inner.verb.english.base, below)
    if inner.place is not None:
        below.append(say(out, (inner.place.to if inner.to else inner.place.at).english, inner.bits * Bit.PLACE))
    for word in below:
        word.head = head
    return head.relate("xcomp")


def speak(sentence: Sentence) -> list[Word]:
    """Say a sentence in English."""
    comma = sentence.bits * 16 if sentence.comma else None
    return say_sentence(sentence, "english", lambda out, clause, _, lead: clause_(out, clause, lead), comma)
