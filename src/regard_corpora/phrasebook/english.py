"""English: turning a meaning into an English sentence.

Words as in print, but sentences start in lower case, and negation is written in full: "do not", "cannot". The
genitive's 's is a word of its own. Heads follow Universal Dependencies: articles, prepositions, auxiliaries, modals and
"to be" depend on the content word, an adjective or noun heads its copula, the verb of a subordinate clause depends on
the verb above.
"""

from regard_corpora.phrasebook.meaning import (
    ADJECTIVE,
    AND,
    DEGREE,
    DET,
    LINK,
    MANNER,
    MODAL,
    NOT,
    NUMBER,
    OFTEN,
    PLACE,
    PREDICATE,
    PREPOSITION,
    RELATIVE,
    TIME,
    TO,
    VERB,
    VERB2,
    Asking,
    Clause,
    Det,
    Kind,
    Modal,
    NounPhrase,
    Polarity,
    Sentence,
    Tense,
)
from regard_corpora.phrasebook.words import Word, say

__all__ = ["speak"]

SUBJECTS = ("I", "you", "he", "she", "we", "they", "it")
OBJECTS = ("me", "you", "him", "her", "us", "them", "it")
OWNERS = ("my", "your", "his", "her", "our", "their")
DETS = ("the", "", "this", "", "every", "which", "a")
AM = ("am", "are", "is", "are", "are")
WAS = ("was", "were", "was", "were", "were")
DO = ("do", "do", "does", "do", "do")
AUXILIARIES = {Modal.WILL: "will", Modal.CAN: "can", Modal.MUST: "must", Modal.SHOULD: "should", Modal.COULD: "could"}
VERBS = {  # base, third person, past
    Modal.WANT: ("want", "wants", False),
    Modal.LIKE: ("like", "likes", False),
    Modal.HAD: ("have", "had", True),
    Modal.WANTED: ("want", "wanted", True),
}
PARTICLES = {"television": "obj", "shopping": "xcomp"}  # watch television, go shopping
VOWELS = frozenset("aeiouAEIOU")


def noun_phrase(out: list[Word], phrase: NounPhrase, subject: bool = False) -> Word:
    """Say a noun phrase; returns its head."""
    kind, bits = phrase.kind, phrase.bits
    if kind == Kind.PRONOUN:
        head = Word((SUBJECTS if subject else OBJECTS)[phrase.owner], bits)
        out.append(head)
        return head
    if kind == Kind.NAME:
        assert phrase.name is not None
        head = Word(phrase.name.form, bits)
        out.append(head)
        return head
    if kind == Kind.NOUN:
        return noun(out, phrase)
    if kind == Kind.BOTH:
        assert phrase.first is not None
        assert phrase.second is not None
        head = noun_phrase(out, phrase.first)
        joint = Word("and", bits, None, "cc")
        out.append(joint)
        second = noun_phrase(out, phrase.second).relate("conj")
        joint.head, second.head = second, head
        return head
    form = "what" if kind == Kind.WHAT else "who"
    if kind == Kind.THIS:
        form = "these" if phrase.many else "this"
    head = Word(form, bits)
    out.append(head)
    return head


def noun(out: list[Word], phrase: NounPhrase) -> Word:
    assert phrase.noun is not None
    bits, det = phrase.bits, phrase.det
    start = len(out)
    if det == Det.MY:
        out.append(Word(OWNERS[phrase.owner], bits * DET, None, "nmod:poss"))
    elif det == Det.NAMED:
        assert phrase.name is not None
        owner = Word(phrase.name.form, bits * NUMBER, None, "nmod:poss")
        out.append(owner)
        out.append(Word("'s", bits * DET, owner, "case"))
    elif det < Det.BARE:
        form = "these" if det == Det.THIS and phrase.many else DETS[det]
        out.append(Word(form, bits * DET, None, "det"))
    elif det == Det.NUMBER:
        assert phrase.number is not None
        out.append(Word(phrase.number.english, bits * NUMBER, None, "nummod"))
    elif det == Det.MANY:
        out.append(Word("many", bits * DET, None, "amod"))
    elif det == Det.HOW_MANY:
        many = Word("many", bits * DET, None, "amod")
        out.append(Word("how", bits * NUMBER, many, "advmod"))
        out.append(many)
    if phrase.adjective is not None:
        out.append(Word(phrase.adjective.english[0], bits * ADJECTIVE, None, "amod"))
    head = Word(phrase.noun.english[phrase.many], bits)
    out.append(head)
    for word in out[start:-1]:
        if word.head is None:
            word.head = head
    if det == Det.A and out[start + 1].form[0] in VOWELS:
        out[start].form = "an"
    if phrase.relative is not None:
        clause = phrase.relative
        about_person = phrase.noun.kind in ("person", "family")
        form = "who" if about_person and clause.subject.kind == Kind.GAP else "that"
        pronoun = Word(form, bits * RELATIVE, None, "nsubj" if clause.subject.kind == Kind.GAP else object_name(clause))
        out.append(pronoun)
        verb = clause_(out, clause).relate("acl:relcl")
        verb.head, pronoun.head = head, verb
    return head


def object_name(clause: Clause) -> str:
    """Name the relation of a clause's object to the verb, which may have a preposition: look at."""
    return "obl" if clause.verb is not None and clause.verb.english.preposition else "obj"


def clause_(out: list[Word], clause: Clause, lead: Word | None = None) -> Word:
    """Say a clause; returns the word that heads it. `lead` is said already and depends on that word."""
    bits, verb, modal, subject, asking = clause.bits, clause.verb, clause.modal, clause.subject, clause.asking
    person = subject.person
    below: list[Word] = [lead] if lead is not None else []  # what depends on the head
    time = None
    if clause.front:
        assert clause.time is not None
        time = say(out, clause.time.english, bits * TIME, clause.number.english if clause.number else "")
        below.append(time)
    if asking == Asking.ADVERB:
        assert clause.wh is not None
        below.append(say(out, clause.wh.english, bits * LINK))
    elif asking == Asking.OBJECT:
        assert clause.object is not None
        below.append(noun_phrase(out, clause.object).relate(object_name(clause)))

    # The finite verb that trades places with the subject, those after it, and the content verb's form.
    support = clause.polarity == Polarity.NOT or asking in (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT)
    finite, own, between, form = "", bits * VERB, (), ""  # type: str, int, tuple[str, ...], str
    past = clause.tense == Tense.PAST
    if modal is not None:
        own = bits * MODAL
        form = verb.english.base if verb is not None else "be"
        if modal in AUXILIARIES:
            finite = AUXILIARIES[modal]
        else:
            base, inflected, before = VERBS[modal]
            if support:
                finite = "did" if before else DO[person]
                between = (base, "to")
            else:
                between = (inflected if before or person == 2 else base, "to")
    elif verb is None:
        finite = (WAS if past else AM)[person]
    elif clause.tense == Tense.PROGRESSIVE:
        finite, form = AM[person], verb.english.progressive
    elif support:
        finite, form = "did" if past else DO[person], verb.english.base
    else:
        form = verb.english.past if past else verb.english.third if person == 2 else verb.english.base

    role = "cop" if verb is None and modal is None else "aux"
    turned = asking in (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT)
    denied = clause.polarity == Polarity.NOT
    if turned:
        below.append(Word(finite, own, None, role))
        out.append(below[-1])
    if subject.kind != Kind.GAP:
        below.append(noun_phrase(out, subject, True).relate("nsubj"))
    if finite and not turned:
        joined = denied and finite == "can"
        below.append(Word("cannot" if joined else finite, own | bits * NOT if joined else own, None, role))
        out.append(below[-1])
        denied = denied and not joined
    if denied:
        below.append(Word("not", bits * NOT, None, "advmod"))
        out.append(below[-1])
    if clause.polarity == Polarity.NEVER:
        below.append(Word("never", bits * NOT, None, "advmod"))
        out.append(below[-1])
    if clause.often is not None:
        below.append(say(out, clause.often.english, bits * OFTEN))
    for each in between:
        below.append(Word(each, own, None, "mark" if each == "to" else "aux"))
        out.append(below[-1])
    head = content(out, clause, form, below)
    if clause.manner is not None:
        below.append(say(out, clause.manner.english, bits * MANNER))
    if clause.complement is not None:
        below.append(complement(out, clause))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).english, bits * PLACE))
    if clause.time is not None and time is None:
        below.append(say(out, clause.time.english, bits * TIME, clause.number.english if clause.number else ""))
    for word in below:
        word.head = head
    return head


def content(out: list[Word], clause: Clause, form: str, below: list[Word]) -> Word:
    """Say the content verb with its objects, or "be" with its predicate; returns the head."""
    bits, verb = clause.bits, clause.verb
    if verb is None:
        if form:
            below.append(Word(form, bits * VERB, None, "cop"))
            out.append(below[-1])
        return predicate(out, clause, below)
    head = Word(form, bits * VERB)
    out.append(head)
    particle = verb.english.particle
    thing, recipient = clause.object, clause.recipient
    if clause.asking == Asking.OBJECT or (thing is not None and thing.kind == Kind.GAP):
        thing = None
    light = thing is not None and thing.kind == Kind.PRONOUN
    if particle and not light:
        below.append(Word(particle, bits * VERB, None, PARTICLES.get(particle, "compound:prt")))
        out.append(below[-1])
    if verb.english.preposition and clause.object is not None:
        preposition = Word(verb.english.preposition, bits * PREPOSITION, None, "case")
        out.append(preposition)
        if thing is not None:
            noun = noun_phrase(out, thing).relate("obl")
            preposition.head = noun
            below.append(noun)
        else:
            below.append(preposition)
    else:
        if recipient is not None and recipient.kind == Kind.PRONOUN and not light and "to" not in verb.traits:
            below.append(noun_phrase(out, recipient).relate("iobj"))
            recipient = None
        if thing is not None:
            below.append(noun_phrase(out, thing).relate("obj"))
        if recipient is not None:
            to = Word("to", bits * PREPOSITION, None, "case")
            out.append(to)
            below.append(noun_phrase(out, recipient).relate("obl"))
            to.head = below[-1]
    if particle and light:
        below.append(Word(particle, bits * VERB, None, PARTICLES.get(particle, "compound:prt")))
        out.append(below[-1])
    if clause.verb2 is not None:
        joint = Word("and", bits * AND, None, "cc")
        out.append(joint)
        english = clause.verb2.english
        other = english.base
        if clause.modal is None:
            if clause.tense == Tense.PROGRESSIVE:
                other = english.progressive
            elif form == verb.english.past and clause.tense == Tense.PAST:
                other = english.past
            elif form == verb.english.third:
                other = english.third
        second = Word(other, bits * VERB2, head, "conj")
        out.append(second)
        joint.head = second
    return head


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Add what follows "to be"."""
    bits = clause.bits
    if clause.idiom is not None:
        head = Word(clause.idiom.english, bits * PREDICATE)
        out.append(head)
        return head
    if clause.profession is not None:
        if clause.subject.many:
            head = Word(clause.profession.english[1], bits * PREDICATE)
        else:
            head = Word(clause.profession.english[0], bits * PREDICATE)
            below.append(Word("an" if head.form[0] in VOWELS else "a", bits * PREDICATE, None, "det"))
            out.append(below[-1])
        out.append(head)
        return head
    if clause.adjective is not None:
        words = clause.adjective.english
        if clause.than is not None:
            if len(words) == 1:
                below.append(Word("more", bits * DEGREE, None, "advmod"))
                out.append(below[-1])
            head = Word(words[-1], bits * PREDICATE if len(words) == 1 else bits * (PREDICATE | DEGREE))
            out.append(head)
            than = Word("than", bits * LINK, None, "case")
            out.append(than)
            below.append(noun_phrase(out, clause.than).relate("obl"))
            than.head = below[-1]
            return head
        if clause.degree is not None:
            below.append(say(out, clause.degree.english, bits * DEGREE))
        head = Word(words[0], bits * PREDICATE)
        out.append(head)
        return head
    if clause.identity is not None:
        return noun_phrase(out, clause.identity)
    if clause.asks_whereabouts:
        return below.pop(0)  # where
    assert clause.place is not None
    return say(out, clause.place.at.english, bits * PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with that or whether, or an infinitive with to."""
    inner = clause.complement
    assert inner is not None
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.english, clause.bits * LINK, relation="mark")
        return clause_(out, inner, lead).relate("ccomp")
    below = [Word("to", inner.bits * TO, None, "mark")]
    out.append(below[0])
    assert inner.verb is not None
    head = content(out, inner, inner.verb.english.base, below)
    if inner.place is not None:
        below.append(say(out, (inner.place.to if inner.to else inner.place.at).english, inner.bits * PLACE))
    for word in below:
        word.head = head
    return head.relate("xcomp")


def speak(sentence: Sentence) -> list[Word]:
    """Say a sentence in English."""
    out: list[Word] = []
    main, other = sentence.main, sentence.other
    bits = sentence.bits
    if other is None:
        head = clause_(out, main)
    else:
        assert sentence.conjunction is not None
        comma = None
        if sentence.first:
            lead = say(out, sentence.conjunction.english, bits * 2, relation="mark")
            below = clause_(out, other, lead).relate("advcl")
            comma = Word(",", bits * 16, below, "punct")
            out.append(comma)
            head = clause_(out, main)
        else:
            head = clause_(out, main)
            if sentence.comma:
                comma = Word(",", bits * 16, None, "punct")
                out.append(comma)
            lead = say(out, sentence.conjunction.english, bits * 2, relation=sentence.relations[0])
            below = clause_(out, other, lead).relate(sentence.relations[1])
            if comma is not None:
                comma.head = below
        below.head = head
    out.append(Word("?" if main.asking else ".", bits, head, "punct"))
    return out
