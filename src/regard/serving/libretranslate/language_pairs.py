"""Languages: the model that serves a pair, the language that a text is in, and the names of languages."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from regard.data import run_languages
from regard.serving.models import ServedModel

NAMES: dict[str, str] = tomllib.loads(
    resources.files("regard.serving.libretranslate").joinpath("languages.toml").read_text(encoding="utf-8")
)
CERTAIN = 50.0  # confidence from which a text in the target language is left untranslated


def language_name(code: str) -> str:
    """Return a language's name, with its region or script in brackets, or the code if the language has no name here."""
    letters, _, rest = code.replace("_", "-").partition("-")
    name = NAMES.get(letters.lower())
    if name is None:
        return code
    return f"{name} ({rest})" if rest else name


@dataclass(frozen=True)
class LanguagePair:
    """A model, the two languages it translates between, and the tag that selects the second one."""

    model: str
    source: str
    target: str
    tag: str | None = None
    named: bool = False  # the model knows several languages, and each request names two


class LanguageTable:
    """The language pairs of all models whose languages are known, and profiles of the languages."""

    def __init__(self, models: Iterable[ServedModel]):
        self.pairs: list[LanguagePair] = []
        self.many: dict[str, tuple[list[str], list[str]]] = {}  # sources and targets of multilingual models
        self.unknown: list[str] = []  # translation models whose languages are not known
        profiles: dict[str, list[run_languages.LanguageProfile]] = {}
        for model in models:
            if not model.translates:
                continue
            languages, known = model.card["languages"], model.card["known_languages"]
            if known is not None and known["sources"]:
                self.many[model.name] = known["sources"], known["targets"]
            if languages is None:
                self.unknown += [] if model.name in self.many else [model.name]
                continue
            data, source = model.run.settings.data, languages["source"]
            own = run_languages.RunLanguages.read(model.run.folder)
            if own.source is not None:
                profiles.setdefault(source, []).append(own.source)
            for target in languages["targets"]:
                asking = (each.tag for each in data.corpora if each.tag)
                tag = next((each for each in asking if run_languages.tag_language(each) == target), None)
                self.pairs.append(LanguagePair(model.name, source, target, tag))
                if (tag or "") in own.targets:
                    profiles.setdefault(target, []).append(own.targets[tag or ""])
        self.profiles = {language: run_languages.merge_profiles(each) for language, each in profiles.items()}
        sources, targets = [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]
        for more, others in self.many.values():
            sources += more
            targets += others
        self.codes = list(dict.fromkeys([*sources, *targets]))  # of all languages, sources first

    def targets(self, source: str) -> list[str]:
        """List the languages into which a text in this one can be translated, with its own language last."""
        targets = [pair.target for pair in self.pairs if pair.source == source]
        for sources, others in self.many.values():
            targets += others if source in sources else []
        return list(dict.fromkeys([*targets, source]))

    def find_code(self, given: str) -> str | None:
        """Return the language that a code means, ignoring case and dashes; or the only one with its first part."""
        given = given.replace("_", "-").lower()
        plain = [(code.replace("_", "-").lower(), code) for code in self.codes]
        near = [code for name, code in plain if name.partition("-")[0] == given.partition("-")[0]]
        return next((code for name, code in plain if name == given), near[0] if len(near) == 1 else None)

    def find_pair(self, source: str, target: str) -> LanguagePair | None:
        """Return the first model that translates between two languages."""
        found = next((pair for pair in self.pairs if (pair.source, pair.target) == (source, target)), None)
        if found is not None or source == target:
            return found
        able = (name for name, (sources, targets) in self.many.items() if source in sources and target in targets)
        return next((LanguagePair(name, source, target, named=True) for name in able), None)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Detect the languages of a text with their confidence, the likeliest first; it is 0 without a profile."""
        found = run_languages.detect_language(text, self.profiles)
        return [*found, *((code, 0.0) for code in self.codes if code not in self.profiles)]

    def detect_source(self, text: str, target: str) -> tuple[str, float]:
        """Detect the likeliest source language of a text to translate into `target`."""
        found = self.detect(text)
        sources = {pair.source for pair in self.pairs if pair.target == target}
        sources |= {code for many, targets in self.many.values() if target in targets for code in many}
        for code, confidence in found:
            if code in sources or (code == target and confidence >= CERTAIN):
                return code, confidence
        return found[0]


def as_detection(found: tuple[str, float]) -> dict[str, Any]:
    """Return a detected language in LibreTranslate's form."""
    return {"confidence": round(found[1], 1), "language": found[0]}
