"""Clauses of a few words, as the grammar draws them: what something is, where it is, and the weather.

The second edition has them as sentences of their own, for people type them; in the first the weather is a reason.
"""

from regard_corpora.phrasebook.meaning import (
    CLAUSE_BITS,
    Asking,
    Clause,
    Det,
    Kind,
    Modal,
    NounPhrase,
    Polarity,
    Tense,
)
from regard_corpora.phrasebook.nouns import Nouns
from regard_corpora.phrasebook.weights import DEFINITE_DETS, FAMILY_DETS, MASS_DETS, PLURAL_DETS, SINGLE_DETS

__all__ = ["Everyday"]


class Everyday(Nouns):
    """A source of short clauses, to which a grammar adds those with verbs and objects."""

    def new_clause(self, subject: NounPhrase) -> Clause:
        clause = Clause(subject, self.bit)
        self.bit <<= CLAUSE_BITS
        return clause

    def set_weather(self, clause: Clause, mode: str) -> None:
        """Choose the tense and time of a clause about the weather."""
        choice = self.pick(("past", "present", "progressive", "modal")) if mode == "any" else mode
        if choice == "modal" or choice == "past":
            clause.modal = Modal.WILL if choice == "modal" else None
            clause.tense = Tense.PAST if choice == "past" else Tense.PRESENT
            if self.random() < 0.3:
                clause.time = self.pick(self.pool.future_times if choice == "modal" else self.pool.past_times)
                if clause.time.counted:
                    clause.number = self.pick(self.pool.numbers)
        elif choice == "progressive" and clause.verb is not None:
            clause.tense = Tense.PROGRESSIVE
        if self.pool.edition > 1 and clause.modal is None and clause.tense != Tense.PAST:
            if self.random() < 0.2:
                lasts = clause.verb is not None and clause.tense == Tense.PRESENT
                clause.time = self.pick(self.pool.habits if lasts else self.pool.now)
            if clause.time is None and self.random() < 0.15:
                clause.polarity = Polarity.NOT

    def identity(self) -> Clause:
        """Say what something is: this is my brother; is this a station?"""
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
        """Ask for the whereabouts: where is the station? where were you yesterday?"""
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
                clause.time = self.pick(pool.past_times)
                if clause.time.counted:
                    clause.number = self.pick(pool.numbers)
        elif random() < 0.1:
            clause.time = self.pick(pool.now)
        return clause
