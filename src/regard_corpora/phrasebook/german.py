"""German: turning a meaning into a German sentence.

The finite verb stands second in a statement, first in a question, last in a subordinate clause; participle, infinitive
and separable prefix stand at the end. Between them: pronouns, time, definite objects (dative first), negation, manner,
place, indefinite objects, prepositional objects. A relative clause follows the verb that closes its clause. Sentences
start in lower case, nouns with a capital as in print. Heads as in `english`.
"""

from regard_corpora.phrasebook.inflection import HABEN, SEIN, Forms
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

# Cases: 0 nominative, 1 accusative, 2 dative. Genders: 0 der, 1 die, 2 das, 3 plural.
PRONOUNS = (
    ("ich", "du", "er", "sie", "wir", "sie", "es"),
    ("mich", "dich", "ihn", "sie", "uns", "sie", "es"),
    ("mir", "dir", "ihm", "ihr", "uns", "ihnen", "ihm"),
)
WHO = ("wer", "wen", "wem")
THE = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
RELATIVES = (*THE[:2], ("dem", "der", "dem", "denen"))
A = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))  # ein, kein, mein
THIS = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))  # dieser, jeder, welcher
WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
STRONG = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
OWNERS = ("mein", "dein", "sein", "ihr", "unser", "ihr")
STEMS = {Det.THIS: "dies", Det.EVERY: "jed", Det.WHICH: "welch"}
ENDINGS = {
    Det.THE: WEAK,
    Det.THIS: WEAK,
    Det.EVERY: WEAK,
    Det.WHICH: WEAK,
    Det.A: MIXED,
    Det.MY: MIXED,
    Det.NAMED: STRONG,
    Det.BARE: STRONG,
    Det.NUMBER: STRONG,
    Det.MANY: STRONG,
    Det.HOW_MANY: STRONG,
}
WAR: Forms = ("war", "warst", "war", "waren", "waren")
HATTE: Forms = ("hatte", "hattest", "hatte", "hatten", "hatten")
DARF: Forms = ("darf", "darfst", "darf", "dürfen", "dürfen")
MODALS: dict[Modal, Forms] = {
    Modal.WILL: ("werde", "wirst", "wird", "werden", "werden"),
    Modal.CAN: ("kann", "kannst", "kann", "können", "können"),
    Modal.MUST: ("muss", "musst", "muss", "müssen", "müssen"),
    Modal.SHOULD: ("sollte", "solltest", "sollte", "sollten", "sollten"),
    Modal.WANT: ("will", "willst", "will", "wollen", "wollen"),
    Modal.COULD: ("konnte", "konntest", "konnte", "konnten", "konnten"),
    Modal.HAD: ("musste", "musstest", "musste", "mussten", "mussten"),
    Modal.WANTED: ("wollte", "wolltest", "wollte", "wollten", "wollten"),
}
FIRST, SECOND, LAST, INFINITIVE = range(4)  # where the finite verb stands


def noun_phrase(out: list[Word], phrase: NounPhrase, case: int, none: int = 0) -> Word:
    """Say a noun phrase in a case, with kein where `none` (the bits of the negation) is given; returns its head."""
    kind, bits = phrase.kind, phrase.bits
    if kind == Kind.NOUN:
        return noun(out, phrase, case, none)
    if kind == Kind.PRONOUN:
        head = Word(PRONOUNS[case][phrase.owner], bits)
    elif kind == Kind.NAME:
        assert phrase.name is not None
        head = Word(phrase.name.form, bits)
    elif kind == Kind.BOTH:
        assert phrase.first is not None
        assert phrase.second is not None
        head = noun_phrase(out, phrase.first, case)
        joint = Word("und", bits, None, "cc")
        out.append(joint)
        second = noun_phrase(out, phrase.second, case).relate("conj")
        joint.head, second.head = second, head
        return head
    elif kind == Kind.THIS:
        head = Word("das", bits)
    else:
        head = Word("was" if kind == Kind.WHAT else WHO[case], bits)
    out.append(head)
    return head


def noun(out: list[Word], phrase: NounPhrase, case: int, none: int) -> Word:
    entry = phrase.noun
    assert entry is not None
    bits, det, many = phrase.bits, phrase.det, phrase.many
    gender = 3 if many else entry.gender
    endings = ENDINGS[det]
    start = len(out)
    if none:
        own = none | (bits * DET if det == Det.A else bits)
        out.append(Word("kein" + A[case][gender], own, None, "det"))
        endings = MIXED
    elif det == Det.THE:
        out.append(Word(THE[case][gender], bits * DET, None, "det"))
    elif det == Det.MY:
        out.append(Word(OWNERS[phrase.owner] + A[case][gender], bits * DET, None, "det:poss"))
    elif det == Det.A:
        out.append(Word("ein" + A[case][gender], bits * DET, None, "det"))
    elif det in STEMS:
        out.append(Word(STEMS[det] + THIS[case][gender], bits * DET, None, "det"))
    elif det == Det.NUMBER:
        assert phrase.number is not None
        out.append(Word(phrase.number.german, bits * NUMBER, None, "nummod"))
    elif det == Det.NAMED:
        assert phrase.name is not None
        out.append(Word(phrase.name.form + "s", bits * (DET | NUMBER), None, "nmod:poss"))
    elif det == Det.MANY:
        out.append(Word("viel" + THIS[case][3], bits * DET, None, "det"))
    elif det == Det.HOW_MANY:
        much = Word("viel" + THIS[case][3], bits * DET, None, "det")
        out.append(Word("wie", bits * NUMBER, much, "advmod"))
        out.append(much)
    if phrase.adjective is not None:
        out.append(Word(phrase.adjective.stem + endings[case][gender], bits * ADJECTIVE, None, "amod"))
    head = Word(entry.german[many][case], bits)
    out.append(head)
    for word in out[start:-1]:
        if word.head is None:
            word.head = head
    return head


def relative(out: list[Word], phrase: NounPhrase, head: Word, closes: bool) -> None:
    """Say the relative clause of a noun phrase between commas; one that ends the sentence has no second comma."""
    clause, entry = phrase.relative, phrase.noun
    assert clause is not None
    assert entry is not None
    case, role = 0, "nsubj"
    if clause.subject.kind != Kind.GAP:
        assert clause.verb is not None
        case, role = clause.verb.german.case, "obj"
    comma = Word(",", 0, None, "punct")
    pronoun = Word(RELATIVES[case][3 if phrase.many else entry.gender], phrase.bits * RELATIVE, None, role)
    out += (comma, pronoun)
    verb = clause_(out, clause, LAST).relate("acl:relcl")
    comma.head, pronoun.head, verb.head = verb, verb, head
    if not closes:
        out.append(Word(",", 0, verb, "punct"))


def definite(phrase: NounPhrase) -> bool:
    if phrase.kind == Kind.BOTH:
        assert phrase.first is not None
        return definite(phrase.first)
    return phrase.kind == Kind.NAME or (phrase.kind == Kind.NOUN and phrase.det <= Det.WHICH)


def verbal(clause: Clause) -> tuple[str, int, str, int]:
    """Return the finite form and its bits, then the end of the clause (participle, infinitive, prefix) and its bits."""
    bits, verb, modal, person = clause.bits, clause.verb, clause.modal, clause.subject.person
    own = bits * VERB
    if verb is not None and verb.english.preposition and not verb.german.preposition and clause.object is not None:
        own |= bits * PREPOSITION  # look for: suchen
    if modal is not None and modal != Modal.LIKE:
        forms = DARF if modal == Modal.MUST and clause.polarity == Polarity.NOT else MODALS[modal]
        if verb is not None:
            last = verb.german.infinitive
        else:
            last = clause.idiom.german_verb if clause.idiom is not None else "sein"
        return forms[person], bits * MODAL, last, own
    past = clause.tense == Tense.PAST
    if verb is None:
        if clause.idiom is not None and clause.idiom.german_verb == "haben":
            return (HATTE if past else HABEN)[person], own, "", own
        return (WAR if past else SEIN)[person], own, "", own
    if past:
        return verb.german.auxiliary[person], own, verb.german.participle, own
    return verb.german.present[person], own, verb.german.prefix, own


def clause_(out: list[Word], clause: Clause, order: int, lead: Word | None = None) -> Word:
    """Say a clause; returns the word that heads it. `lead` is said already and depends on that word."""
    bits, verb, subject, asking = clause.bits, clause.verb, clause.subject, clause.asking
    below: list[Word] = [lead] if lead is not None else []
    form, own, last, own_last = verbal(clause)
    copula = verb is None and not last  # the finite verb is sein itself
    finite = Word(form, own, None, "cop" if copula else "aux")

    # Before the finite verb.
    if order != INFINITIVE:
        if clause.front and order == SECOND:
            below.append(time(out, clause))
        elif asking == Asking.ADVERB:
            assert clause.wh is not None
            below.append(say(out, clause.wh.german, bits * LINK))
        elif asking == Asking.OBJECT:
            assert clause.object is not None
            assert verb is not None
            below.append(noun_phrase(out, clause.object, verb.german.case).relate("obj"))
        first = order == LAST or (order == SECOND and not clause.front) or asking == Asking.SUBJECT
        if asking in (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT):
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
            below.append(Word(last, own_last, None, "cop"))
            out.append(below[-1])
        if order == LAST:
            out.append(finite)
    elif order == INFINITIVE:
        *zu, form = verb.german.zu_infinitive
        head = Word(form, own)
        if zu:
            below.append(Word("zu", bits * TO, None, "mark"))
            out.append(below[-1])
        else:
            head.bits |= bits * TO
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
    """Say the verbs that close a clause, of which the content verb is the head."""
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
        joint, word = Word("und", bits * AND, None, "cc"), Word(other, bits * VERB2, head, "conj")
        joint.head = word
        if simple and order != LAST:  # sie singt und tanzt jeden Tag
            out[out.index(finite) + 1 : out.index(finite) + 1] = (joint, word)
        else:
            out += (joint, word)
    if not simple and order == LAST:
        out.append(finite)
    return head


def time(out: list[Word], clause: Clause) -> Word:
    assert clause.time is not None
    return say(out, clause.time.german, clause.bits * TIME, clause.number.german if clause.number else "")


def middle(out: list[Word], clause: Clause, below: list[Word]) -> tuple[NounPhrase, Word] | None:
    """Add what stands between the finite verb and the clause's end; returns a relative clause that is to follow."""
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
        below.append(say(out, clause.often.german, bits * OFTEN))
    if clause.time is not None and not clause.front:
        below.append(time(out, clause))
    if recipient is not None:
        below.append(noun_phrase(out, recipient, 2).relate("iobj"))
    if plain is not None and definite(plain):
        below.append(noun_phrase(out, plain, case).relate("obj"))
        if plain.relative is not None:
            trailing = (plain, below[-1])
        plain = None
    none = 0
    if clause.polarity == Polarity.NEVER:
        below.append(Word("nie", bits * NOT, None, "advmod"))
        out.append(below[-1])
    elif clause.polarity == Polarity.NOT:
        if plain is not None or takes_kein(clause):
            none = bits * NOT
        else:
            below.append(Word("nicht", bits * NOT, None, "advmod"))
            out.append(below[-1])
    if clause.modal == Modal.LIKE:
        below.append(Word("gern", bits * MODAL, None, "advmod"))
        out.append(below[-1])
    if clause.manner is not None:
        below.append(say(out, clause.manner.german, bits * MANNER))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).german, bits * PLACE))
    if plain is not None:
        below.append(noun_phrase(out, plain, case, none).relate("obj"))
        if plain.relative is not None:
            trailing = (plain, below[-1])
    if preposition and thing is not None:
        word = Word(preposition, bits * PREPOSITION, None, "case")
        out.append(word)
        below.append(noun_phrase(out, thing, case).relate("obl"))
        word.head = below[-1]
        if thing.relative is not None:
            trailing = (thing, below[-1])
        elif preposition == "von" and thing.kind == Kind.NOUN and thing.det == Det.THE:
            article = out[out.index(word) + 1]
            if article.form == "dem":
                word.form, word.bits = "vom", word.bits | article.bits
                out.remove(article)
    return trailing


def takes_kein(clause: Clause) -> bool:
    """Return whether the predicate itself takes kein: keinen Hunger, kein Lehrer, kein Hund."""
    if clause.identity is not None:
        return not definite(clause.identity)
    return clause.profession is not None or (clause.idiom is not None and bool(clause.idiom.none))


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Add a predicate with sein, or with haben in an idiom."""
    bits = clause.bits
    denied = clause.polarity == Polarity.NOT
    if clause.idiom is not None:
        if denied and clause.idiom.none:
            below.append(Word(clause.idiom.none, bits * NOT, None, "det"))
            out.append(below[-1])
        head = Word(clause.idiom.german, bits * PREDICATE)
        out.append(head)
        return head
    if clause.profession is not None:
        subject = clause.subject
        if denied:
            feminine = subject.feminine or subject.many
            below.append(Word("keine" if feminine else "kein", bits * NOT, None, "det"))
            out.append(below[-1])
        head = Word(clause.profession.german[subject.feminine][subject.many], bits * PREDICATE)
        out.append(head)
        return head
    if clause.adjective is not None:
        if clause.than is not None:
            head = Word(clause.adjective.comparative, bits * (PREDICATE | DEGREE))
            out.append(head)
            than = Word("als", bits * LINK, None, "case")
            out.append(than)
            below.append(noun_phrase(out, clause.than, 0).relate("obl"))
            than.head = below[-1]
            return head
        if clause.degree is not None:
            below.append(say(out, clause.degree.german, bits * DEGREE))
        head = Word(clause.adjective.german, bits * PREDICATE)
        out.append(head)
        return head
    if clause.identity is not None:
        return noun_phrase(out, clause.identity, 0, bits * NOT if denied and takes_kein(clause) else 0)
    if clause.asks_whereabouts:
        return below.pop(0)  # wo
    assert clause.place is not None
    return say(out, clause.place.at.german, bits * PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with dass or ob, or an infinitive with zu, after a comma."""
    inner = clause.complement
    assert inner is not None
    comma = Word(",", 0, None, "punct")
    out.append(comma)
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.german, clause.bits * LINK, relation="mark")
        head = clause_(out, inner, LAST, lead).relate("ccomp")
    else:
        head = clause_(out, inner, INFINITIVE).relate("xcomp")
    comma.head = head
    return head


def speak(sentence: Sentence) -> list[Word]:
    """Say a sentence in German."""
    out: list[Word] = []
    main, other, bits = sentence.main, sentence.other, sentence.bits
    if other is None:
        head = clause_(out, main, SECOND)
    else:
        assert sentence.conjunction is not None
        if sentence.first:
            lead = say(out, sentence.conjunction.german, bits * 2, relation="mark")
            below = clause_(out, other, LAST, lead).relate("advcl")
            out.append(Word(",", bits * 16, below, "punct"))
            head = clause_(out, main, FIRST)
        else:
            head = clause_(out, main, SECOND)
            comma = None
            if sentence.comma or not sentence.coordinate:
                comma = Word(",", bits * 16, None, "punct")
                out.append(comma)
            elif main.object is not None and main.object.relative is not None:
                comma = Word(",", 0, None, "punct")  # closes the relative clause
                out.append(comma)
            order = SECOND if sentence.coordinate else LAST
            lead = say(out, sentence.conjunction.german, bits * 2, relation=sentence.relations[0])
            below = clause_(out, other, order, lead).relate(sentence.relations[1])
            if comma is not None:
                comma.head = below
        below.head = head
    out.append(Word("?" if main.asking else ".", bits, head, "punct"))
    return out
