"""Pairs of languages that models translate between: which model serves one, and which language a text is in."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from regard.data.language_profile import LanguageProfile, RunLanguages, detect_language, merge_profiles
from regard.data.languages import tag_language
from regard.data.settings import DataSettings
from regard.serving.libretranslate.language_names import same_language
from regard.serving.models import ServedModel

__all__ = ["LanguagePair", "LanguageTable", "find_tag"]

CERTAIN = 50.0  # confidence from which a text that is in the target language already is left as it is


@dataclass(frozen=True)
class LanguagePair:
    """A model, the languages that it translates between, and the tag that asks for the second one."""

    model: str
    source: str
    target: str
    tag: str | None = None


class LanguageTable:
    """The pairs of all models whose languages are known, and the profiles of their languages."""

    def __init__(self, models: Iterable[ServedModel]):
        self.pairs: list[LanguagePair] = []
        self.unknown: list[str] = []  # models that translate, and do not say between which languages
        profiles: dict[str, list[LanguageProfile]] = {}
        for model in models:
            if not model.run.can("translate"):
                continue
            languages = model.card["languages"]
            if languages is None:
                self.unknown.append(model.name)
                continue
            data, source = model.run.settings.data, languages["source"]
            own = RunLanguages.read(model.run.folder)
            if own.source is not None:
                profiles.setdefault(source, []).append(own.source)
            for target in languages["targets"]:
                tag = find_tag(data, target)
                self.pairs.append(LanguagePair(model.name, source, target, tag))
                if (tag or "") in own.targets:
                    profiles.setdefault(target, []).append(own.targets[tag or ""])
        self.profiles = {language: merge_profiles(each) for language, each in profiles.items()}

    @property
    def codes(self) -> list[str]:
        """All languages, sources first, each once."""
        sources = [pair.source for pair in self.pairs]
        return list(dict.fromkeys([*sources, *(pair.target for pair in self.pairs)]))

    def targets(self, source: str) -> list[str]:
        """The languages that a text in this one can be had in; one of them is its own."""
        return list(dict.fromkeys([*(pair.target for pair in self.pairs if pair.source == source), source]))

    def find_code(self, given: str) -> str | None:
        """The language that a code means: with another case or dash, or the only one of these letters."""
        codes = self.codes
        exact = [code for code in codes if same_language(given, code)]
        letters = given.replace("_", "-").partition("-")[0].lower()
        near = [code for code in codes if code.replace("_", "-").partition("-")[0].lower() == letters]
        return exact[0] if exact else near[0] if len(near) == 1 else None

    def find_pair(self, source: str, target: str) -> LanguagePair | None:
        """The first model that translates between two languages."""
        return next((pair for pair in self.pairs if (pair.source, pair.target) == (source, target)), None)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The languages of a text with their confidence, the likeliest first; those without a profile have none."""
        found = detect_language(text, self.profiles)
        return [*found, *((code, 0.0) for code in self.codes if code not in self.profiles)]

    def detect_source(self, text: str, target: str) -> tuple[str, float]:
        """The likeliest language of a text that is wanted in another one."""
        found = self.detect(text)
        sources = [pair.source for pair in self.pairs if pair.target == target]
        for code, confidence in found:
            if code in sources or (code == target and confidence >= CERTAIN):
                return code, confidence
        return found[0]


def find_tag(data: DataSettings, target: str) -> str | None:
    """The tag of a run's corpora that asks for a language, if they have tags."""
    return next((corpus.tag for corpus in data.corpora if corpus.tag and tag_language(corpus.tag) == target), None)


def as_detection(found: tuple[str, float]) -> dict[str, Any]:
    """A language that was detected, as LibreTranslate writes it."""
    return {"confidence": round(found[1], 1), "language": found[0]}
