"""The grammar: draw random meanings from a pool of words.

This module decides for all languages which parts fit together, such as a verb and its objects, or a tense and a time.
It leaves out meanings that have no simple equivalent in some language, or whose English would be ambiguous ("I read
it": now or in the past?). Every choice uses a new number from [0, 1), so a seed gives the same sentences everywhere.
"""

from collections.abc import Sequence

from regard_corpora.phrasebook.lexicon import Phrase
from regard_corpora.phrasebook.meaning import (
    CLAUSE_BITS,
    SENTENCE_BITS,
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
from regard_corpora.phrasebook.nouns import (
    DEFINITE_DETS,
    FAMILY_DETS,
    MASS_DETS,
    PEOPLE,
    PLURAL_DETS,
    SAME,
    SINGLE_DETS,
    Nouns,
    choices,
)

SHAPES, LONG_SHAPES = choices("shapes"), choices("long-shapes")
EVERYDAY_SHAPES = SHAPES + choices("everyday-shapes")
CONTENTS, SUBORDINATES, RELATIVES, TENSES = map(choices, ("contents", "subordinates", "relatives", "tenses"))
MODALS, PRESENT_MODALS = choices("modals", Modal), choices("present-modals", Modal)
PAST_MODALS = (Modal.COULD, Modal.HAD, Modal.WANTED)


class Grammar(Nouns):
    """A grammar that draws sentences from a pool with numbers from [0, 1); `rich`, from 0 to 1, makes them longer."""

    def add_relative(self, phrase: NounPhrase) -> None:
        """Add a relative clause to a noun phrase: who lives in Berlin, that we bought."""
        noun = phrase.noun
        assert noun is not None
        gap = NounPhrase(Kind.GAP, 0)
        gap.person, gap.many, gap.feminine = phrase.person, phrase.many, phrase.feminine
        phrase.adjective = None
        if noun.kind == "person" and self.random() < 0.6:
            clause = self.clause(self.pick(RELATIVES), "any", gap, plain=True)
        else:
            subject = self.pronoun(self.pick(self.pool.subjects)) if self.random() < 0.7 else self.people(True)
            clause = self.new_clause(subject)
            clause.verb = self.pick(self.pool.governing[noun.kind])
            clause.object = gap
            self.set_tense(clause, "any", plain=True)
        clause.about = phrase
        phrase.relative = clause

    # Clauses.

    def new_clause(self, subject: NounPhrase) -> Clause:
        clause = Clause(subject, self.bit)
        self.bit <<= CLAUSE_BITS
        return clause

    def set_time(self, clause: Clause, times: Sequence[Phrase]) -> None:
        clause.time = self.pick(times)
        if clause.time.counted:
            clause.number = self.pick(self.pool.numbers)

    def set_tense(self, clause: Clause, mode: str, plain: bool = False, timed: bool = True) -> None:
        """Choose a tense or modal, and a negation and a time that fit it."""
        random, verb, pool = self.random, clause.verb, self.pool
        traits = verb.traits if verb is not None else ()
        choice = self.pick(TENSES) if mode == "any" else mode
        state = verb is None or ("still" in traits and "past" not in traits)
        lasting = verb is None and not (clause.idiom or clause.place or clause.adjective in pool.passing)
        if verb is None or "still" in traits:
            if choice == "progressive":
                choice = "present"
            if verb is not None and "past" not in traits:
                choice = "present" if choice != "modal" or mode != "modal" else choice
            elif choice == "modal" and mode != "modal" and (lasting or random() < 0.7):
                choice = "past" if random() < 0.5 else "present"
        if choice == "modal":
            modal = self.pick(PRESENT_MODALS if mode == "modal" or verb is None or "still" in traits else MODALS)
            if verb is None or "still" in traits:
                modal = Modal.WILL if modal not in (Modal.WILL, Modal.CAN) or verb is None else modal
            elif modal == Modal.LIKE and verb not in pool.liked:
                modal = Modal.WANT
            clause.modal = modal
            times = pool.past_times if modal in PAST_MODALS else pool.future_times
            if modal == Modal.LIKE:
                times = pool.habits
            elif modal != Modal.WILL and modal not in PAST_MODALS and random() < 0.3:
                times = pool.now
        elif choice == "past":
            clause.tense, times = Tense.PAST, pool.past_times
        elif choice == "progressive":
            clause.tense, times = Tense.PROGRESSIVE, pool.now
        else:
            times = pool.habits if verb is not None else pool.now
        asking = clause.asking
        if asking == Asking.NOTHING or clause.wh is pool.why:
            chance = random()
            if chance < 0.15 and clause.modal != Modal.HAD:
                clause.polarity = Polarity.NOT
            elif chance < 0.21 and choice == "present" and not state and clause.wh is None:
                clause.polarity = Polarity.NEVER
        if (
            verb is not None
            and verb.english.base == verb.english.past
            and choice == "past"
            and clause.subject.person != 2
            and clause.polarity == Polarity.YES
            and asking in (Asking.NOTHING, Asking.SUBJECT)
        ):
            clause.tense, times = Tense.PROGRESSIVE, pool.now  # "I read" would be ambiguous
            choice = "progressive"
        if clause.polarity != Polarity.YES and times is pool.habits:
            return
        habit = choice == "present" and asking == Asking.NOTHING and clause.polarity == Polarity.YES
        if habit and not lasting and "still" not in traits and random() < 0.2:
            clause.often = self.pick(pool.often)
            return
        if lasting or not timed or ("still" in traits and choice == "present"):
            return
        if random() < (0.22 if plain else 0.5):
            self.set_time(clause, times)
            clause.front = not plain and asking == Asking.NOTHING and random() < 0.3

    def set_weather(self, clause: Clause, mode: str) -> None:
        """Choose the tense and time of a clause about the weather."""
        choice = self.pick(("past", "present", "progressive", "modal")) if mode == "any" else mode
        if choice == "modal" or choice == "past":
            clause.modal = Modal.WILL if choice == "modal" else None
            clause.tense = Tense.PAST if choice == "past" else Tense.PRESENT
            if self.random() < 0.3:
                self.set_time(clause, self.pool.future_times if choice == "modal" else self.pool.past_times)
        elif choice == "progressive" and clause.verb is not None:
            clause.tense = Tense.PROGRESSIVE
        if self.pool.edition > 1 and clause.modal is None and clause.tense != Tense.PAST:
            if self.random() < 0.2:
                lasts = clause.verb is not None and clause.tense == Tense.PRESENT
                clause.time = self.pick(self.pool.habits if lasts else self.pool.now)
            if clause.time is None and self.random() < 0.15:
                clause.polarity = Polarity.NOT

    def clause(
        self,
        content: str,
        mode: str,
        subject: NounPhrase | None = None,
        plain: bool = False,
        asking: Asking = Asking.NOTHING,
        wh: Phrase | None = None,
    ) -> Clause:
        """Draw a clause with a kind of content; a `plain` one has no time in front, and few relative clauses."""
        random, pool = self.random, self.pool
        decorated = (not plain or self.rich > 0.5) and asking == Asking.NOTHING and subject is None
        if content == "sky" or content == "weather":
            clause = self.new_clause(self.pronoun(6))
            if content == "sky":
                clause.idiom = self.pick(pool.skies)
            else:
                clause.verb = self.pick(pool.weather)
            clause.asking, clause.wh = asking, wh
            self.set_weather(clause, mode)
            return clause
        verb = None
        if content == "verb":
            verb = self.pick(pool.lively if mode in ("progressive", "modal") else pool.verbs)
        elif content == "give":
            verb = self.pick(pool.giving)
        elif content == "go":
            verb = self.pick(pool.walking if wh is not None and wh is pool.whither else pool.going)
        elif content == "stay":
            verb = self.pick(pool.staying)
        if subject is None:
            if content == "adjective" and random() < 0.4:
                kind = self.pick(pool.described)
                noun = self.pick(pool.nouns[kind])
                many = bool(noun.english[1]) and random() < 0.3
                subject = self.noun(noun, self.pick(DEFINITE_DETS), many)
                subject.adjective = None
            elif content == "than":
                subject = self.compared()
            else:
                animal = verb is not None and "animal" in verb.traits
                subject = self.subject(animal, decorated)
        clause = self.new_clause(subject)
        clause.verb, clause.asking, clause.wh = verb, asking, wh
        if verb is None:
            self.predicate(clause, content)
        timed = wh is not pool.asked_when and subject.kind != Kind.GAP
        self.set_tense(clause, mode, plain or subject.relative is not None, timed)
        if verb is None:
            if subject.det == Det.A and subject.kind == Kind.NOUN:
                subject.det = Det.THE
            return clause
        if subject.det in (Det.A, Det.NUMBER, Det.EVERY) and subject.kind == Kind.NOUN:
            clause.polarity = Polarity.YES
        asked_where = wh is pool.where or wh is pool.whither
        if content == "verb":
            self.add_objects(clause, decorated and subject.relative is None)
        elif content == "give":
            self.add_gift(clause)
        elif not asked_where:
            kinds = verb.objects or (("far", "town") if "still" in verb.traits else ("near", "near", "town", "far"))
            clause.place, clause.to = self.pick(pool.places[self.pick(kinds)]), content == "go"
        thing = clause.object
        if thing is not None and thing.relative is not None:
            if not clause.front:
                clause.time = clause.number = None
            return clause
        self.decorate(clause, asked_where)
        return clause

    def predicate(self, clause: Clause, content: str) -> None:
        """Choose the predicate of a clause with "to be"."""
        pool, subject = self.pool, clause.subject
        if content == "profession":
            clause.profession = self.pick(pool.professions)
        elif content == "idiom":
            clause.idiom = self.pick(pool.idioms)
        elif content == "place":
            clause.place = self.pick(pool.places[self.pick(("near", "near", "near", "town", "far"))])
        elif content == "than":
            kind = subject.noun.kind if subject.noun is not None else "person"
            clause.adjective = self.pick(pool.comparable["person" if kind == "family" else kind])
            clause.than = self.rival(subject)
        elif content == "feeling":
            clause.adjective = self.pick(pool.feelings)
        else:
            kind = subject.noun.kind if subject.noun is not None else "person"
            clause.adjective = self.pick(pool.predicates["person" if kind == "family" else kind])
            graded = clause.adjective.comparative != "-" or clause.adjective in pool.graded
            if graded and self.random() < 0.25:
                clause.degree = self.pick(pool.degrees)

    def compared(self) -> NounPhrase:
        """Choose the subject of a comparison."""
        if self.random() < 0.5:
            noun = self.pick(self.pool.nouns[self.pick(self.pool.rivals)])
            phrase = self.noun(noun, self.pick(DEFINITE_DETS), bool(noun.english[1]) and self.random() < 0.2)
            phrase.adjective = None
            return phrase
        return self.subject()

    def rival(self, subject: NounPhrase) -> NounPhrase:
        noun = subject.noun
        if noun is None or noun.kind in PEOPLE:
            if self.random() < 0.5:
                owner = self.pick(self.pool.objects)
                if subject.kind != Kind.PRONOUN or owner not in (subject.owner, *SAME[subject.owner]):
                    return self.pronoun(owner)
            other = self.people(True)
        else:
            second = self.pick(self.pool.nouns[noun.kind])
            other = self.noun(second, self.pick(DEFINITE_DETS), bool(second.english[1]) and subject.many)
            if other.noun is noun and other.det == subject.det:
                other.det = Det.MY if subject.det == Det.THE else Det.THE
                other.owner = self.pick(self.pool.owners)
        other.adjective = None
        return other

    def add_objects(self, clause: Clause, relative: bool) -> None:
        """Choose the verb's objects, or a second verb."""
        verb = clause.verb
        assert verb is not None
        if not verb.objects:
            mates = self.pool.mates.get(verb)
            if mates and clause.polarity == Polarity.YES and self.random() < 0.12:
                clause.verb2 = self.pick(mates)
            return
        if "may" in verb.traits and self.random() < 0.35:
            return
        clause.object = self.thing(verb, clause.subject, clause.polarity != Polarity.YES, relative)

    def add_gift(self, clause: Clause) -> None:
        """Choose the object and the recipient of a verb of giving."""
        verb, random = clause.verb, self.random
        assert verb is not None
        denied = clause.polarity != Polarity.YES
        if random() < 0.5:
            owner = self.pick(self.pool.objects)
            subject = clause.subject
            if subject.kind == Kind.PRONOUN and owner in SAME[subject.owner]:
                owner = 3 if 3 in self.pool.objects else self.pick(self.pool.objects)
            clause.recipient = self.pronoun(owner)
        elif random() < 0.4:
            clause.recipient = self.name(self.pick(self.pool.names))
        else:
            clause.recipient = self.people(random() < 0.5)
            if clause.recipient.det in (Det.A, Det.EVERY, Det.NUMBER):
                clause.recipient.det = Det.THE
        clause.object = self.thing(verb, clause.subject, denied, False)
        recipient, thing = clause.recipient, clause.object
        if (
            recipient.kind == Kind.PRONOUN
            and recipient.owner == 3
            and thing.kind == Kind.NOUN
            and thing.det == Det.BARE
        ):
            thing.det = Det.THE  # "gives her books" would be ambiguous

    def decorate(self, clause: Clause, asked_where: bool) -> None:
        """Add a manner and a place to some clauses."""
        verb, random, pool = clause.verb, self.random, self.pool
        assert verb is not None
        if clause.polarity == Polarity.YES and clause.verb2 is None and clause.modal != Modal.LIKE:
            if clause.subject.many and not verb.objects and not verb.english.particle and random() < 0.15:
                clause.manner = self.pick(pool.together) if verb.traits else None
            elif random() < (0.14 if verb.objects else 0.28):
                manners = pool.manners.get(verb)
                if manners:
                    manner = self.pick(manners)
                    if manner in pool.slow or (clause.object is None and clause.modal is None):
                        clause.manner = manner
        where = clause.place is None and not asked_where and "here" in verb.traits
        if where and clause.subject.kind != Kind.GAP and clause.asking != Asking.SUBJECT and random() < 0.22:
            clause.place = self.pick(pool.places[self.pick(("near", "near", "near", "town", "far"))])

    # Typical short clauses: what or where something is.

    def identity(self) -> Clause:
        """Draw a clause that says what something is: this is my brother; is this a station?"""
        random, pool = self.random, self.pool
        noun = self.pick(pool.nouns[self.pick(pool.kinds)])
        many = bool(noun.english[1]) and random() < 0.25
        this = NounPhrase(Kind.THIS, self.noun_bits())
        this.many, this.person = many, 4 if many else 2
        clause = self.new_clause(this)
        dets = FAMILY_DETS if noun.kind == "family" else MASS_DETS if not noun.english[1] else SINGLE_DETS
        det = self.pick(PLURAL_DETS if many else dets)
        if det == Det.THIS or det > Det.BARE:
            det = Det.THE
        clause.identity = self.noun(noun, det, many)
        if random() < 0.2:
            clause.tense = Tense.PAST
        chance = random()
        if chance < 0.2:
            clause.asking = Asking.WHETHER
        elif chance < 0.4:
            clause.polarity = Polarity.NOT
        return clause

    def whereabouts(self) -> Clause:
        """Draw a question for a location: where is the station? where were you yesterday?"""
        random, pool = self.random, self.pool
        chance = random()
        if chance < 0.7:
            kinds = ("place",) if chance < 0.35 else ("thing", "dish", "device", "clothes", "text", "animal")
            noun = self.pick(pool.nouns[self.pick(kinds)])
            subject = self.noun(noun, self.pick(DEFINITE_DETS), random() < 0.2)
        else:
            subject = self.subject()
            if subject.det in (Det.A, Det.EVERY, Det.NUMBER):
                subject.det = Det.THE
        clause = self.new_clause(subject)
        clause.asking, clause.wh = Asking.ADVERB, self.pick(pool.wheres)
        if random() < 0.25:
            clause.tense = Tense.PAST
            if random() < 0.5:
                self.set_time(clause, pool.past_times)
        elif random() < 0.1:
            clause.time = self.pick(pool.now)
        return clause

    # Sentences.

    def sentence(self) -> Sentence:
        """Draw a sentence."""
        self.bit = 1
        shapes = SHAPES if self.pool.edition == 1 else EVERYDAY_SHAPES
        shape = self.pick(shapes if self.random() > self.rich - 0.4 else LONG_SHAPES)
        if shape in ("reason", "event", "condition", "while", "joined"):
            return self.complex(shape)
        if shape == "statement":
            clause = self.clause(self.pick(CONTENTS), "any")
        elif shape == "question":
            clause = self.clause(self.pick(CONTENTS), "any", asking=Asking.WHETHER)
        elif shape in ("where", "when", "why"):
            clause = self.adverb_question(shape)
        elif shape in ("object", "which"):
            clause = self.object_question(shape == "which")
        elif shape == "who":
            who = NounPhrase(Kind.WHO, self.noun_bits())
            clause = self.clause(self.pick(CONTENTS[: CONTENTS.index("profession")]), "any", who, asking=Asking.SUBJECT)
        elif shape == "try":
            clause = self.trying()
        elif shape == "this":
            clause = self.identity()
        elif shape == "whereabouts":
            clause = self.whereabouts()
        elif shape == "weather":
            clause = self.clause(self.pick(("sky", "weather")), "any")
        else:
            clause = self.thinking(shape)
        return self.finished(clause)

    def finished(self, clause: Clause) -> Sentence:
        sentence = Sentence(clause, self.bit)
        self.bit <<= SENTENCE_BITS
        return sentence

    def complex(self, shape: str) -> Sentence:
        """Draw a sentence of two clauses with a conjunction."""
        pool, random = self.pool, self.random
        first = False
        if shape == "reason":
            conjunction = self.pick(pool.reasons)
            main = self.clause(self.pick(CONTENTS), "any", plain=True)
            other = self.clause(self.pick(SUBORDINATES), "any", plain=True)
            first = conjunction not in pool.because and random() < 0.4
        elif shape == "event":
            past = random() < 0.5
            mode = "past" if past else "present"
            conjunction = self.pick(pool.then if past else pool.when)
            contents = ("verb", "verb", "verb", "go", "stay", "feeling", "idiom")
            main = self.clause(self.pick(contents), mode, plain=True)
            other = self.clause(self.pick(SUBORDINATES), mode, plain=True)
            first = random() < 0.5
            if (main.tense == Tense.PAST) != past or (other.tense == Tense.PAST) != past:  # states have no past here
                conjunction, first = self.pick(pool.reasons), False
            else:
                main.time = other.time = main.number = other.number = None
        elif shape == "condition":
            conjunction = self.pick(pool.conditions)
            main = self.clause(self.pick(("verb", "verb", "verb", "go", "stay", "give")), "modal", plain=True)
            other = self.clause(self.pick(SUBORDINATES), "present", plain=True)
            other.time = other.number = None
            first = random() < 0.5
        elif shape == "while":
            conjunction = self.pick(pool.whiles)
            main = self.clause("verb", "progressive", plain=True)
            other = self.clause("verb", "progressive", plain=True)
            other.time = other.number = None
            first = random() < 0.3
        else:
            conjunction = self.pick(pool.joints)
            main = self.clause(self.pick(CONTENTS), "any", plain=True)
            other = self.clause(self.pick(CONTENTS), "any", plain=True)
        sentence = self.finished(main)
        sentence.other, sentence.conjunction, sentence.first = other, conjunction, first
        sentence.coordinate = shape == "joined"
        sentence.comma = first or conjunction is pool.but
        return sentence

    def adverb_question(self, shape: str) -> Clause:
        pool = self.pool
        if shape == "where":
            content = self.pick(("verb", "verb", "go", "stay"))
            if content == "verb":
                wh = self.pick(pool.wheres)
                clause = self.clause("verb", self.pick(("past", "progressive", "modal")), asking=Asking.ADVERB, wh=wh)
                if clause.verb is not None and "here" in clause.verb.traits:
                    return clause
                content = "go"
            wh = self.pick(pool.whithers if content == "go" else pool.wheres)
            return self.clause(content, "any", asking=Asking.ADVERB, wh=wh)
        content = self.pick(("verb", "verb", "verb", "give", "go"))
        if shape == "when":
            return self.clause(content, self.pick(("past", "modal")), asking=Asking.ADVERB, wh=self.pick(pool.whens))
        if self.random() < 0.25:
            content = "adjective"
        return self.clause(content, "any", asking=Asking.ADVERB, wh=self.pick(pool.whys))

    def object_question(self, which: bool) -> Clause:
        pool, random = self.pool, self.random
        verb = self.pick(pool.governors)
        clause = self.new_clause(self.subject("animal" in verb.traits))
        clause.verb, clause.asking = verb, Asking.OBJECT
        kind = self.pick(pool.classes[verb])
        if which:
            noun = self.pick(pool.nouns[kind])
            many = bool(noun.english[1]) and random() < 0.5
            det = Det.HOW_MANY if many and random() < 0.7 else Det.WHICH
            clause.object = self.noun(noun, det, many)
        else:
            clause.object = NounPhrase(Kind.WHO if kind in PEOPLE else Kind.WHAT, self.noun_bits())
        self.set_tense(clause, "any")
        self.decorate(clause, "here" not in verb.traits)
        return clause

    def thinking(self, shape: str) -> Clause:
        """Draw a sentence such as: I think that …; I do not know whether …"""
        clause = self.new_clause(self.subject())
        clause.verb = self.pick(self.pool.thinking if shape == "that" else self.pool.knowing)
        if shape == "that":
            clause.conjunction = self.pick(self.pool.that)
        else:
            clause.conjunction = self.pick(self.pool.whether)
            if self.random() < 0.5:
                clause.asking = Asking.WHETHER
            else:
                clause.polarity = Polarity.NOT
        clause.complement = self.clause(self.pick(CONTENTS), "any", plain=True)
        return clause

    def trying(self) -> Clause:
        """Draw a sentence such as: he tries to open the window."""
        clause = self.new_clause(self.subject())
        clause.verb = self.pick(self.pool.trying)
        inner = self.new_clause(clause.subject)
        inner.verb = self.pick(self.pool.willed)
        self.add_objects(inner, False)
        inner.verb2 = None
        clause.complement = inner
        if self.random() < 0.6:
            clause.tense = Tense.PAST
            if self.random() < 0.4:
                self.set_time(clause, self.pool.past_times)
                clause.front = self.random() < 0.3
        return clause
