"""German: turn a meaning into a German sentence.

The finite verb is second in a statement, first in a question and last in a subordinate clause; participle, infinitive
and separable prefix are at the end. Between them come pronouns, time, definite objects (dative first), negation,
manner, place, indefinite objects and prepositional objects. The relative clause of an object follows the verb at the
end of the main clause. Sentences start in lower case, and nouns with a capital. Heads are as in `english`.
"""

from regard_corpora.phrasebook.inflection import HABEN, SEIN, forms_of, keyed
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
from regard_corpora.phrasebook.words import LAST, SECOND, Word, add, join, put, say, say_sentence, say_time

# Cases: 0 nominative, 1 accusative, 2 dative. Genders: 0 der, 1 die, 2 das, 3 plural.
FORMS = forms_of("german")
PRONOUNS, WHO, THE, RELATIVES, OWNERS = (FORMS[name] for name in ("pronouns", "who", "the", "relatives", "owners"))
A, THIS, WEAK, MIXED, STRONG = (FORMS[name] for name in ("a", "this", "weak", "mixed", "strong"))  # endings
ENDINGS = (  # adjective endings by determiner
    *(WEAK, MIXED, WEAK, STRONG, WEAK, WEAK),  # die alte Frau, meine, diese, Annas, jede, welche
    *(MIXED, STRONG, STRONG, STRONG, STRONG),  # eine alte Frau, alte, zwei, viele, wie viele
)
STEMS, MODALS = keyed(Det, FORMS["stems"]), keyed(Modal, FORMS["modals"])
WAR, HATTE, DARF = (FORMS[name] for name in ("war", "hatte", "darf"))
INFINITIVE = LAST + 1  # the order of a clause without a finite verb


def noun_phrase(out: list[Word], phrase: NounPhrase, case: int, none: int = 0) -> Word:
    """Say a noun phrase in a case, with kein if `none` (the bits of the negation) is not 0; return its head."""
    kind = phrase.kind
    if kind == Kind.NOUN:
        return noun(out, phrase, case, none)
    if kind == Kind.PRONOUN:
        return put(out, PRONOUNS[case][phrase.owner], phrase.bits)
    if kind == Kind.NAME:
        assert phrase.name is not None
        return put(out, phrase.name.form, phrase.bits)
    if kind == Kind.BOTH:
        return join(out, phrase, "und", lambda each: noun_phrase(out, each, case))
    return put(out, "das" if kind == Kind.THIS else "was" if kind == Kind.WHAT else WHO[case], phrase.bits)


def noun(out: list[Word], phrase: NounPhrase, case: int, none: int) -> Word:
    entry = phrase.noun
    assert entry is not None
    bits, det, many = phrase.bits, phrase.det, phrase.many
    gender = 3 if many else entry.gender
    endings = ENDINGS[det]
    start = len(out)
    if none:
        own = none | (bits * Bit.DET if det == Det.A else bits)
        put(out, "kein" + A[case][gender], own, None, "det")
        endings = MIXED
    elif det == Det.THE:
        put(out, THE[case][gender], bits * Bit.DET, None, "det")
    elif det == Det.MY:
        put(out, OWNERS[phrase.owner] + A[case][gender], bits * Bit.DET, None, "det:poss")
    elif det == Det.A:
        put(out, "ein" + A[case][gender], bits * Bit.DET, None, "det")
    elif det in STEMS:
        put(out, STEMS[det] + THIS[case][gender], bits * Bit.DET, None, "det")
    elif det == Det.NUMBER:
        assert phrase.number is not None
        put(out, phrase.number.german, bits * Bit.NUMBER, None, "nummod")
    elif det == Det.NAMED:
        assert phrase.name is not None
        put(out, phrase.name.form + "s", bits * (Bit.DET | Bit.NUMBER), None, "nmod:poss")
    elif det == Det.MANY:
        put(out, "viel" + THIS[case][3], bits * Bit.DET, None, "det")
    elif det == Det.HOW_MANY:
        much = Word("viel" + THIS[case][3], bits * Bit.DET, None, "det")
        out += (Word("wie", bits * Bit.NUMBER, much, "advmod"), much)
    if phrase.adjective is not None:
        put(out, phrase.adjective.stem + endings[case][gender], bits * Bit.ADJECTIVE, None, "amod")
    head = put(out, entry.german[many][case], bits)
    for word in out[start:-1]:
        if word.head is None:
            word.head = head
    return head


def relative(out: list[Word], phrase: NounPhrase, head: Word, closes: bool) -> None:
    """Say the relative clause of a noun phrase between commas; with `closes`, it has no second comma."""
    clause, entry = phrase.relative, phrase.noun
    assert clause is not None
    assert entry is not None
    case, role = 0, "nsubj"
    if clause.subject.kind != Kind.GAP:
        assert clause.verb is not None
        case, role = clause.verb.german.case, "obj"
    comma = put(out, ",", 0, None, "punct")
    pronoun = put(out, RELATIVES[case][3 if phrase.many else entry.gender], phrase.bits * Bit.RELATIVE, None, role)
    verb = clause_(out, clause, LAST).relate("acl:relcl")
    comma.head, pronoun.head, verb.head = verb, verb, head
    if not closes:
        put(out, ",", 0, verb, "punct")


def definite(phrase: NounPhrase) -> bool:
    if phrase.kind == Kind.BOTH:
        assert phrase.first is not None
        return definite(phrase.first)
    return phrase.kind == Kind.NAME or (phrase.kind == Kind.NOUN and phrase.det <= Det.WHICH)


def verbal(clause: Clause) -> tuple[str, int, str, int]:
    """Return the finite form and its bits, and the verb at the clause's end (or a prefix, or nothing) and its bits."""
    bits, verb, modal, person = clause.bits, clause.verb, clause.modal, clause.subject.person
    own = bits * Bit.VERB
    if verb is not None and verb.english.preposition and not verb.german.preposition and clause.object is not None:
        own |= bits * Bit.PREPOSITION  # look for: suchen
    if modal is not None and modal != Modal.LIKE:
        forms = DARF if modal == Modal.MUST and clause.polarity == Polarity.NOT else MODALS[modal]
        if verb is not None:
            last = verb.german.infinitive
        else:
            last = clause.idiom.german_verb if clause.idiom is not None else "sein"
        return forms[person], bits * Bit.MODAL, last, own
    past = clause.tense == Tense.PAST
    if verb is None:
        if clause.idiom is not None and clause.idiom.german_verb == "haben":
            return (HATTE if past else HABEN)[person], own, "", own
        return (WAR if past else SEIN)[person], own, "", own
    if past:
        return verb.german.auxiliary[person], own, verb.german.participle, own
    return verb.german.present[person], own, verb.german.prefix, own


def clause_(out: list[Word], clause: Clause, order: int, lead: Word | None = None) -> Word:
    """Say a clause; return its head. `lead` is a word before it, which depends on that head."""
    bits, verb, subject, asking = clause.bits, clause.verb, clause.subject, clause.asking
    below: list[Word] = [lead] if lead is not None else []
    form, own, last, own_last = verbal(clause)
    copula = verb is None and not last  # the finite verb is sein itself
    finite = Word(form, own, None, "cop" if copula else "aux")

    # Before the finite verb.
    if order != INFINITIVE:
        if clause.front and order == SECOND:
            below.append(say_time(out, clause, "german"))
        elif asking == Asking.ADVERB:
            assert clause.wh is not None
            below.append(say(out, clause.wh.german, bits * Bit.LINK))
        elif asking == Asking.OBJECT:
            assert clause.object is not None
            assert verb is not None
            below.append(noun_phrase(out, clause.object, verb.german.case).relate("obj"))
        first = order == LAST or (order == SECOND and not clause.front) or asking == Asking.SUBJECT
        if asking in INVERTED:
            first = False
        if not first:
            out.append(finite)
        if subject.kind != Kind.GAP:
            subject_words = noun_phrase(out, subject, 0).relate("nsubj")
            below.append(subject_words)
            if subject.relative is not None:
                relative(out, subject, subject_words, closes=False)
        if first and order != LAST:
            out.append(finite)

    # The middle.
    trailing = middle(out, clause, below)
    head: Word
    if verb is None:
        head = predicate(out, clause, below)
        below.append(finite)
        if last:
            add(out, below, last, own_last, "cop")
        if order == LAST:
            out.append(finite)
    elif order == INFINITIVE:
        *zu, form = verb.german.zu_infinitive
        head = Word(form, own)
        if zu:
            add(out, below, "zu", bits * Bit.TO, "mark")
        else:
            head.bits |= bits * Bit.TO
        out.append(head)
    else:
        head = close_clause(out, clause, below, finite, Word(last, own_last), order)
    if trailing is not None:
        relative(out, *trailing, closes=True)
    if clause.complement is not None:
        below.append(complement(out, clause))
    for word in below:
        word.head = head
    return head


def close_clause(out: list[Word], clause: Clause, below: list[Word], finite: Word, last: Word, order: int) -> Word:
    """Say the verbs at the end of a clause; return the content verb, which is the head."""
    bits, verb, second = clause.bits, clause.verb, clause.verb2
    assert verb is not None
    simple = clause.tense != Tense.PAST and (clause.modal is None or clause.modal == Modal.LIKE)
    if simple:
        if order == LAST:
            finite.form = verb.german.joined[clause.subject.person]
            out.append(finite)
        elif last.form:
            below.append(last.relate("compound:prt"))
            out.append(last)
        head = finite
    else:
        head = last
        out.append(head)
        below.append(finite)
    if second is not None:
        german = second.german
        if simple:
            other = german.present[clause.subject.person]
        else:
            other = german.infinitive if clause.modal is not None else german.participle
        joint, word = Word("und", bits * Bit.AND, None, "cc"), Word(other, bits * Bit.VERB2, head, "conj")
        joint.head = word
        if simple and order != LAST:  # sie singt und tanzt jeden Tag
            out[out.index(finite) + 1 : out.index(finite) + 1] = (joint, word)
        else:
            out += (joint, word)
    if not simple and order == LAST:
        out.append(finite)
    return head


def middle(out: list[Word], clause: Clause, below: list[Word]) -> tuple[NounPhrase, Word] | None:
    """Say the parts between the finite verb and the clause's end.

    Return the noun phrase and head of a relative clause that has to follow, or None.
    """
    bits, verb = clause.bits, clause.verb
    thing, recipient = clause.object, clause.recipient
    trailing = None
    if thing is not None and (clause.asking == Asking.OBJECT or thing.kind == Kind.GAP):
        thing = None
    german = verb.german if verb is not None else None
    preposition = german.preposition if german is not None else ""
    case = german.case if german is not None else 1
    plain = thing if not preposition else None
    if plain is not None and plain.kind == Kind.PRONOUN:
        below.append(noun_phrase(out, plain, case).relate("obj"))
        plain = None
    if recipient is not None and recipient.kind == Kind.PRONOUN:
        below.append(noun_phrase(out, recipient, 2).relate("iobj"))
        recipient = None
    if clause.often is not None:
        below.append(say(out, clause.often.german, bits * Bit.OFTEN))
    if clause.time is not None and not clause.front:
        below.append(say_time(out, clause, "german"))
    if recipient is not None:
        below.append(noun_phrase(out, recipient, 2).relate("iobj"))
    if plain is not None and definite(plain):
        below.append(noun_phrase(out, plain, case).relate("obj"))
        if plain.relative is not None:
            trailing = (plain, below[-1])
        plain = None
    none = 0
    if clause.polarity == Polarity.NEVER:
        add(out, below, "nie", bits * Bit.NOT, "advmod")
    elif clause.polarity == Polarity.NOT:
        if plain is not None or takes_kein(clause):
            none = bits * Bit.NOT
        else:
            add(out, below, "nicht", bits * Bit.NOT, "advmod")
    if clause.modal == Modal.LIKE:
        add(out, below, "gern", bits * Bit.MODAL, "advmod")
    if clause.manner is not None:
        below.append(say(out, clause.manner.german, bits * Bit.MANNER))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).german, bits * Bit.PLACE))
    if plain is not None:
        below.append(noun_phrase(out, plain, case, none).relate("obj"))
        if plain.relative is not None:
            trailing = (plain, below[-1])
    if preposition and thing is not None:
        word = put(out, preposition, bits * Bit.PREPOSITION, None, "case")
        word.head = noun_phrase(out, thing, case).relate("obl")
        below.append(word.head)
        if thing.relative is not None:
            trailing = (thing, word.head)
        elif preposition == "von" and thing.kind == Kind.NOUN and thing.det == Det.THE:
            article = out[out.index(word) + 1]
            if article.form == "dem":
                word.form, word.bits = "vom", word.bits | article.bits
                out.remove(article)
    return trailing


def takes_kein(clause: Clause) -> bool:
    """Return whether the predicate is negated with kein: keinen Hunger, kein Lehrer, kein Hund."""
    if clause.identity is not None:
        return not definite(clause.identity)
    return clause.profession is not None or (clause.idiom is not None and bool(clause.idiom.none))


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Say a predicate of sein, or of haben in an idiom; return its head."""
    bits, subject, adjective = clause.bits, clause.subject, clause.adjective
    denied = clause.polarity == Polarity.NOT
    if clause.idiom is not None:
        if denied and clause.idiom.none:
            add(out, below, clause.idiom.none, bits * Bit.NOT, "det")
        return put(out, clause.idiom.german, bits * Bit.PREDICATE)
    if clause.profession is not None:
        if denied:
            add(out, below, "keine" if subject.feminine or subject.many else "kein", bits * Bit.NOT, "det")
        return put(out, clause.profession.german[subject.feminine][subject.many], bits * Bit.PREDICATE)
    if adjective is not None and clause.than is not None:
        head = put(out, adjective.comparative, bits * (Bit.PREDICATE | Bit.DEGREE))
        than = put(out, "als", bits * Bit.LINK, None, "case")
        than.head = noun_phrase(out, clause.than, 0).relate("obl")
        below.append(than.head)
        return head
    if adjective is not None:
        if clause.degree is not None:
            below.append(say(out, clause.degree.german, bits * Bit.DEGREE))
        return put(out, adjective.german, bits * Bit.PREDICATE)
    if clause.identity is not None:
        return noun_phrase(out, clause.identity, 0, bits * Bit.NOT if denied and takes_kein(clause) else 0)
    if clause.asks_whereabouts:
        return below.pop(0)  # wo
    assert clause.place is not None
    return say(out, clause.place.at.german, bits * Bit.PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with "dass" or "ob", or an infinitive with "zu", after a comma; return its head."""
    inner = clause.complement
    assert inner is not None
    comma = put(out, ",", 0, None, "punct")
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.german, clause.bits * Bit.LINK, relation="mark")
        head = clause_(out, inner, LAST, lead).relate("ccomp")
    else:
        head = clause_(out, inner, INFINITIVE).relate("xcomp")
    comma.head = head
    return head


def speak(sentence: Sentence) -> list[Word]:
    """Say a sentence in German."""
    comma, thing = None, sentence.main.object
    if sentence.comma or not sentence.coordinate:
        comma = sentence.bits * 16
    elif thing is not None and thing.relative is not None:
        comma = 0  # ends the relative clause
    return say_sentence(sentence, "german", clause_, comma)
