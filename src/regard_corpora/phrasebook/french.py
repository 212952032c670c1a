"""French: turning a meaning into a French sentence.

Clitics stand before the verb ("je le vois", "je ne l' ai pas vu", "je veux le voir"), ne … pas around the finite verb,
most adjectives after the noun. Questions are asked with est-ce que. Participles agree with the subject of être and with
a direct object before avoir. Elided words end in their apostrophe and stand apart: "l' homme", "qu' il". Heads as in
`english`.
"""

import itertools

from regard_corpora.phrasebook.inflection import Forms
from regard_corpora.phrasebook.lexicon import Phrase, Verb
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

__all__ = ["speak", "vowel"]

SUBJECTS = ("je", "tu", "il", "elle", "nous", "ils", "il")
DIRECT = ("me", "te", "le", "la", "nous", "les", "le")
INDIRECT = ("me", "te", "lui", "lui", "nous", "leur")
APART = ("moi", "toi", "lui", "elle", "nous", "eux")
REFLEXIVE = ("me", "te", "se", "nous", "se")
OWNERS = (
    ("mon", "ma", "mes"),
    ("ton", "ta", "tes"),
    ("son", "sa", "ses"),
    ("son", "sa", "ses"),
    ("notre", "notre", "nos"),
    ("leur", "leur", "leurs"),
)
DETS = {  # masculine, feminine, plural
    Det.THE: ("le", "la", "les"),
    Det.NAMED: ("le", "la", "les"),
    Det.A: ("un", "une", "des"),
    Det.THIS: ("ce", "cette", "ces"),
    Det.EVERY: ("chaque", "chaque", ""),
}
WHICH = ("quel", "quelle", "quels", "quelles")
BEFORE_VOWEL = {"ma": "mon", "ta": "ton", "sa": "son", "ce": "cet"}
ELIDED = {
    "je": "j'",
    "me": "m'",
    "te": "t'",
    "se": "s'",
    "le": "l'",
    "la": "l'",
    "ne": "n'",
    "de": "d'",
    "que": "qu'",
}
MUTE = ("homme", "histoire", "heur", "hôp", "hôt", "habit", "hiver")  # whose h is not heard
VOWELS = frozenset("aeiouyàâéèêëîïôùûœAEIOUÉ")
CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
EST: Forms = ("suis", "es", "est", "sommes", "sont")
A: Forms = ("ai", "as", "a", "avons", "ont")
PRESENT: dict[str, Forms] = {"être": EST, "avoir": A, "faire": ("fais", "fais", "fait", "faisons", "font")}
IMPERFECT: dict[str, Forms] = {
    "être": ("étais", "étais", "était", "étions", "étaient"),
    "avoir": ("avais", "avais", "avait", "avions", "avaient"),
    "faire": ("faisais", "faisais", "faisait", "faisions", "faisaient"),
}
MODALS: dict[Modal, Forms] = {
    Modal.WILL: ("vais", "vas", "va", "allons", "vont"),
    Modal.CAN: ("peux", "peux", "peut", "pouvons", "peuvent"),
    Modal.MUST: ("dois", "dois", "doit", "devons", "doivent"),
    Modal.SHOULD: ("devrais", "devrais", "devrait", "devrions", "devraient"),
    Modal.WANT: ("veux", "veux", "veut", "voulons", "veulent"),
    Modal.LIKE: ("aime", "aimes", "aime", "aimons", "aiment"),
    Modal.COULD: ("pouvais", "pouvais", "pouvait", "pouvions", "pouvaient"),
    Modal.HAD: ("devais", "devais", "devait", "devions", "devaient"),
    Modal.WANTED: ("voulais", "voulais", "voulait", "voulions", "voulaient"),
}
PLAIN, GENERAL, DENIED = range(3)  # un chien; aimer les chiens; pas de chien


def vowel(word: str) -> bool:
    """Return whether a word begins with a vowel sound before which others are elided."""
    first = word[0]
    return word != "onze" if first in VOWELS else first == "h" and word.startswith(MUTE)


def noun_phrase(out: list[Word], phrase: NounPhrase, manner: int = PLAIN) -> Word:
    """Say a noun phrase that is not a subject pronoun or a clitic; returns its head."""
    kind, bits = phrase.kind, phrase.bits
    if kind == Kind.NOUN:
        return noun(out, phrase, manner)
    if kind == Kind.PRONOUN:
        head = Word(APART[phrase.owner], bits)
    elif kind == Kind.NAME:
        assert phrase.name is not None
        head = Word(phrase.name.form, bits)
    elif kind == Kind.BOTH:
        assert phrase.first is not None
        assert phrase.second is not None
        head = noun_phrase(out, phrase.first, manner)
        joint = Word("et", bits, None, "cc")
        out.append(joint)
        second = noun_phrase(out, phrase.second, manner).relate("conj")
        joint.head, second.head = second, head
        return head
    elif kind == Kind.THIS:
        head = Word("ce", bits)
    else:
        head = Word("que" if kind == Kind.WHAT else "qui", bits)
    out.append(head)
    return head


def noun(out: list[Word], phrase: NounPhrase, manner: int) -> Word:
    entry, adjective = phrase.noun, phrase.adjective
    assert entry is not None
    bits, det, many, feminine = phrase.bits, phrase.det, phrase.many, entry.feminine
    head = Word(entry.french[many], bits)
    first = head.form  # after the determiner
    described = None
    if adjective is not None:
        described = Word(adjective.french[feminine + 2 * many], bits * ADJECTIVE, head, "amod")
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
        owner = Word(phrase.name.form, bits * NUMBER, head, "nmod")
        out += (Word("de", bits * DET, owner, "case"), owner)
    if phrase.relative is not None:
        clause = phrase.relative
        form, role = ("qui", "nsubj") if clause.subject.kind == Kind.GAP else ("que", "obj")
        pronoun = Word(form, bits * RELATIVE, None, role)
        out.append(pronoun)
        verb = clause_(out, clause).relate("acl:relcl")
        verb.head, pronoun.head = head, verb
    return head


def determine(out: list[Word], phrase: NounPhrase, first: str, manner: int, preceded: bool) -> None:
    """Say what stands before a noun or its adjective, of which `first` is the first word."""
    bits, det, many = phrase.bits, phrase.det, phrase.many
    feminine = phrase.noun.feminine if phrase.noun is not None else 0
    if manner == GENERAL and det == Det.BARE:
        out.append(Word(DETS[Det.THE][2 if many else feminine], bits))
    elif manner == DENIED and det in (Det.A, Det.BARE):
        out.append(Word("de", bits * DET if det == Det.A else bits))
    elif det in DETS:
        form = DETS[det][2 if many else feminine]
        out.append(Word(BEFORE_VOWEL.get(form, form) if vowel(first) else form, bits * DET))
    elif det == Det.MY:
        form = OWNERS[phrase.owner][2 if many else feminine]
        out.append(Word(BEFORE_VOWEL.get(form, form) if vowel(first) else form, bits * DET))
    elif det == Det.BARE:
        if many:
            out.append(Word("de" if preceded else "des", bits))
        elif feminine or vowel(first):
            out += (Word("de", bits), Word("la", bits))
        else:
            out.append(Word("du", bits))
    elif det == Det.NUMBER:
        assert phrase.number is not None
        out.append(Word(phrase.number.french, bits * NUMBER, None, "nummod"))
    elif det == Det.WHICH:
        out.append(Word(WHICH[feminine + 2 * many], bits * DET))
    elif det == Det.MANY:
        much = Word("beaucoup", bits * DET)
        out += (much, Word("de", bits * DET, much, "fixed"))
    else:
        much = Word("combien", bits * (DET | NUMBER))
        out += (much, Word("de", bits * DET, much, "fixed"))


def add_governed(out: list[Word], preposition: str, bits: int, phrase: NounPhrase) -> Word:
    """Say a preposition and what it governs, contracted: au, aux, du, des."""
    word = Word(preposition, bits, None, "case")
    out.append(word)
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
    """Say the pronouns that stand before the verb; returns the direct object among them."""
    verb = clause.verb
    if verb is None:
        return None
    pronouns: list[tuple[int, Word]] = []
    direct = None
    if verb.french.reflexive:
        pronouns.append((0, Word(REFLEXIVE[clause.subject.person], clause.bits * VERB, None, "expl:pv")))
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
    """Choose which of its four forms the participle takes."""
    verb, subject = clause.verb, clause.subject
    assert verb is not None
    if verb.french.being:
        return subject.feminine + 2 * subject.many
    if (clause.asking == Asking.OBJECT and verb.french.link == "") or (
        clause.about is not None and clause.object is not None and clause.object.kind == Kind.GAP
    ):
        direct = clause.object
    return direct.feminine + 2 * direct.many if direct is not None else 0


def add_word(out: list[Word], below: list[Word], form: str, bits: int, relation: str) -> None:
    """Say a word that depends on the head of the clause."""
    word = Word(form, bits, None, relation)
    out.append(word)
    below.append(word)


def clause_(out: list[Word], clause: Clause, lead: Word | None = None) -> Word:
    """Say a clause; returns the word that heads it. `lead` is said already and depends on that word."""
    bits, verb, subject, asking = clause.bits, clause.verb, clause.subject, clause.asking
    below: list[Word] = [lead] if lead is not None else []
    if clause.front:
        below.append(time(out, clause))
    if asking == Asking.ADVERB:
        assert clause.wh is not None
        below.append(say(out, clause.wh.french, bits * LINK))
    elif asking == Asking.OBJECT:
        assert clause.object is not None
        assert verb is not None
        if verb.french.link:
            below.append(add_governed(out, "à", bits * (PREPOSITION | VERB), clause.object))
        else:
            below.append(noun_phrase(out, clause.object).relate("obj"))
    behind = clause.asks_whereabouts and subject.kind != Kind.PRONOUN  # où est la gare
    if asking in (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT) and not behind:
        add_word(out, below, "est-ce", 0, "mark")
        add_word(out, below, "que", 0, "mark")
    if subject.kind == Kind.PRONOUN:
        add_word(out, below, SUBJECTS[subject.owner], subject.bits, "nsubj")
    elif subject.kind != Kind.GAP and not behind:
        below.append(noun_phrase(out, subject).relate("nsubj"))
    if clause.polarity != Polarity.YES:
        add_word(out, below, "ne", bits * NOT, "advmod")
    head = verbs(out, clause, below)
    if behind:
        below.append(noun_phrase(out, subject).relate("nsubj"))
    after(out, clause, below, head)
    for word in below:
        word.head = head
    return head


def verbs(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Say the finite verb with its clitics and adverbs, what follows it, and the predicate; returns the head."""
    bits, verb, modal, person = clause.bits, clause.verb, clause.modal, clause.subject.person
    own = bits * VERB
    if verb is not None and verb.english.preposition and not verb.french.link and clause.object is not None:
        own |= bits * PREPOSITION  # wait for: attendre
    if modal is not None:
        add_word(out, below, MODALS[modal][person], bits * MODAL, "aux")
        adverbs(out, clause, below)
        if verb is None:
            add_word(out, below, clause.idiom.french_verb if clause.idiom is not None else "être", own, "cop")
            return predicate(out, clause, below)
        clitics(out, clause, below)
        head = Word(verb.french.infinitive, own)
        out.append(head)
    elif verb is None:
        name = clause.idiom.french_verb if clause.idiom is not None else "être"
        add_word(out, below, (IMPERFECT if clause.tense == Tense.PAST else PRESENT)[name][person], own, "cop")
        adverbs(out, clause, below)
        return predicate(out, clause, below)
    elif clause.tense == Tense.PAST:
        direct = clitics(out, clause, below)
        add_word(out, below, (EST if verb.french.being else A)[person], own, "aux")
        adverbs(out, clause, below)
        head = Word(verb.french.participle[agreement(clause, direct)], own)
        out.append(head)
    else:
        clitics(out, clause, below)
        head = Word(verb.french.present[person], own)
        out.append(head)
        adverbs(out, clause, below)
    add_tail(out, below, verb, bits)
    if clause.verb2 is not None:
        joint = Word("et", bits * AND, None, "cc")
        second = Word(second_form(clause, clause.verb2), bits * VERB2, head, "conj")
        joint.head = second
        out += (joint, second)
    return head


def add_tail(out: list[Word], below: list[Word], verb: Verb, bits: int) -> None:
    """Say the fixed object that makes up a verb with it: regarder la télévision, avoir besoin."""
    for form in verb.french.tail:
        add_word(out, below, form, bits * VERB, "obj" if form == verb.french.tail[-1] else "det")


def second_form(clause: Clause, verb: Verb) -> str:
    if clause.modal is not None:
        return verb.french.infinitive
    return verb.french.participle[0] if clause.tense == Tense.PAST else verb.french.present[clause.subject.person]


def inner(phrase: Phrase) -> bool:
    """Return whether an adverb of manner stands next to the finite verb: bien, mal."""
    return phrase.french[0].form in ("bien", "mal")


def adverbs(out: list[Word], clause: Clause, below: list[Word]) -> None:
    """Add the adverbs that stand next to the finite verb."""
    bits = clause.bits
    if clause.polarity != Polarity.YES:
        add_word(out, below, "pas" if clause.polarity == Polarity.NOT else "jamais", bits * NOT, "advmod")
    if clause.often is not None:
        below.append(say(out, clause.often.french, bits * OFTEN))
    if clause.manner is not None and inner(clause.manner):
        below.append(say(out, clause.manner.french, bits * MANNER))


def after(out: list[Word], clause: Clause, below: list[Word], head: Word) -> None:
    """Add what follows the verb: objects, manner, complement, place, time."""
    bits, verb = clause.bits, clause.verb
    thing, recipient = clause.object, clause.recipient
    if verb is not None and thing is not None and thing.kind != Kind.GAP and clause.asking != Asking.OBJECT:
        link = verb.french.link
        if link:
            if link != "à" or thing.kind != Kind.PRONOUN:
                own = bits * PREPOSITION if verb.english.preposition else bits * VERB
                below.append(add_governed(out, link.removeprefix("+"), own, thing))
        elif thing.kind != Kind.PRONOUN:
            manner = GENERAL if "kind" in verb.traits else DENIED if clause.polarity != Polarity.YES else PLAIN
            below.append(noun_phrase(out, thing, manner).relate("obj"))
    if recipient is not None and recipient.kind != Kind.PRONOUN:
        below.append(add_governed(out, "à", bits * PREPOSITION, recipient))
    if clause.manner is not None and not inner(clause.manner):
        below.append(say(out, clause.manner.french, bits * MANNER))
    if clause.complement is not None:
        below.append(complement(out, clause))
    if clause.place is not None and verb is not None:
        below.append(say(out, (clause.place.to if clause.to else clause.place.at).french, bits * PLACE))
    if clause.time is not None and not clause.front:
        below.append(time(out, clause))


def time(out: list[Word], clause: Clause) -> Word:
    assert clause.time is not None
    return say(out, clause.time.french, clause.bits * TIME, clause.number.french if clause.number else "")


def predicate(out: list[Word], clause: Clause, below: list[Word]) -> Word:
    """Add a predicate with être, or with avoir and faire in an idiom."""
    bits, subject = clause.bits, clause.subject
    if clause.idiom is not None:
        head = Word(clause.idiom.french, bits * PREDICATE)
        out.append(head)
        return head
    if clause.profession is not None:
        head = Word(clause.profession.french[subject.feminine][subject.many], bits * PREDICATE)
        out.append(head)
        return head
    if clause.adjective is not None:
        form = clause.adjective.french[subject.feminine + 2 * subject.many]
        if clause.than is not None:
            add_word(out, below, "plus", bits * DEGREE, "advmod")
        elif clause.degree is not None:
            below.append(say(out, clause.degree.french, bits * DEGREE))
        head = Word(form, bits * PREDICATE)
        out.append(head)
        if clause.than is not None:
            below.append(add_governed(out, "que", bits * LINK, clause.than))
        return head
    if clause.identity is not None:
        return noun_phrase(out, clause.identity)
    if clause.asks_whereabouts:
        return below.pop(0)  # où
    assert clause.place is not None
    return say(out, clause.place.at.french, bits * PLACE)


def complement(out: list[Word], clause: Clause) -> Word:
    """Say a clause with que or si, or an infinitive with its preposition."""
    inside, verb = clause.complement, clause.verb
    assert inside is not None
    assert verb is not None
    if clause.conjunction is not None:
        lead = say(out, clause.conjunction.french, clause.bits * LINK, relation="mark")
        return clause_(out, inside, lead).relate("ccomp")
    assert inside.verb is not None
    below: list[Word] = []
    if verb.french.link:
        add_word(out, below, verb.french.link.removeprefix("+"), inside.bits * TO, "mark")
    clitics(out, inside, below)
    waits = inside.verb.english.preposition and not inside.verb.french.link and inside.object is not None
    head = Word(inside.verb.french.infinitive, inside.bits * (VERB | PREPOSITION if waits else VERB))
    out.append(head)
    add_tail(out, below, inside.verb, inside.bits)
    after(out, inside, below, head)
    for word in below:
        word.head = head
    return head.relate("xcomp")


def elide(words: list[Word]) -> None:
    """Elide vowels: je + ai becomes j' ai; si + il becomes s' il."""
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
    out: list[Word] = []
    main, other, bits = sentence.main, sentence.other, sentence.bits
    if other is None:
        head = clause_(out, main)
    else:
        assert sentence.conjunction is not None
        if sentence.first:
            lead = say(out, sentence.conjunction.french, bits * 2, relation="mark")
            below = clause_(out, other, lead).relate("advcl")
            out.append(Word(",", bits * 16, below, "punct"))
            head = clause_(out, main)
        else:
            head = clause_(out, main)
            comma = None
            if sentence.comma:
                comma = Word(",", bits * 16, None, "punct")
                out.append(comma)
            lead = say(out, sentence.conjunction.french, bits * 2, relation=sentence.relations[0])
            below = clause_(out, other, lead).relate(sentence.relations[1])
            if comma is not None:
                comma.head = below
        below.head = head
    elide(out)
    out.append(Word("?" if main.asking else ".", bits, head, "punct"))
    return out
