"""Languages: which model serves a pair, which language a text is in, and names for people who choose from a list."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from regard.data import DataSettings, language_profile, language_tags
from regard.serving.models import ServedModel

NAMES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian",
    "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "fy": "Frisian", "ga": "Irish", "gd": "Scottish Gaelic",
    "gl": "Galician", "gu": "Gujarati", "ha": "Hausa", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "ht": "Haitian Creole", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "ig": "Igbo", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "jv": "Javanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer",
    "kn": "Kannada", "ko": "Korean", "ku": "Kurdish", "ky": "Kyrgyz", "la": "Latin", "lb": "Luxembourgish",
    "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mg": "Malagasy", "mi": "Māori", "mk": "Macedonian",
    "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese",
    "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian",
    "ny": "Chichewa", "oc": "Occitan", "or": "Odia", "pa": "Punjabi", "pl": "Polish", "ps": "Pashto",
    "pt": "Portuguese", "qu": "Quechua", "rm": "Romansh", "ro": "Romanian", "ru": "Russian", "rw": "Kinyarwanda",
    "sd": "Sindhi", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "sn": "Shona", "so": "Somali",
    "sq": "Albanian", "sr": "Serbian", "st": "Sesotho", "su": "Sundanese", "sv": "Swedish", "sw": "Swahili",
    "ta": "Tamil", "te": "Telugu", "tg": "Tajik", "th": "Thai", "tk": "Turkmen", "tl": "Tagalog", "tr": "Turkish",
    "tt": "Tatar", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa", "yi": "Yiddish",
    "yo": "Yoruba", "zh": "Chinese", "zu": "Zulu", "ces": "Czech", "dan": "Danish", "deu": "German", "ell": "Greek",
    "eng": "English", "fin": "Finnish", "fra": "French", "hsb": "Upper Sorbian", "dsb": "Lower Sorbian",
    "hun": "Hungarian", "ita": "Italian", "jpn": "Japanese", "kor": "Korean", "nld": "Dutch", "nor": "Norwegian",
    "pol": "Polish", "por": "Portuguese", "ron": "Romanian", "rus": "Russian", "spa": "Spanish", "swe": "Swedish",
    "tur": "Turkish", "ukr": "Ukrainian", "zho": "Chinese", "nds": "Low German", "gsw": "Swiss German",
}  # fmt: skip
CERTAIN = 50.0  # confidence from which a text that is in the target language already is left as it is


def language_name(code: str) -> str:
    """The name of a language; one that has none here is called by its code, and a region or a script is added."""
    letters, _, rest = code.replace("_", "-").partition("-")
    name = NAMES.get(letters.lower())
    if name is None:
        return code
    return f"{name} ({rest})" if rest else name


def same_language(given: str, code: str) -> bool:
    """Return whether a code that somebody gives means this language: pt-BR is pt_BR, and pt if there is no other."""
    return given.replace("_", "-").lower() == code.replace("_", "-").lower()


@dataclass(frozen=True)
class LanguagePair:
    """A model, the languages that it translates between, and the tag that asks for the second one."""

    model: str
    source: str
    target: str
    tag: str | None = None
    named: bool = False  # the model knows several languages, and is told these two


class LanguageTable:
    """The pairs of all models whose languages are known, and the profiles of their languages."""

    def __init__(self, models: Iterable[ServedModel]):
        self.pairs: list[LanguagePair] = []
        self.many: dict[str, tuple[list[str], list[str]]] = {}  # sources and targets of models that know several
        self.unknown: list[str] = []  # models that translate, and do not say between which languages
        profiles: dict[str, list[language_profile.LanguageProfile]] = {}
        for model in models:
            if not model.run.can("translate"):
                continue
            languages, known = model.card["languages"], model.card["known_languages"]
            if known is not None and known["sources"]:
                self.many[model.name] = known["sources"], known["targets"]
            if languages is None:
                self.unknown += [] if model.name in self.many else [model.name]
                continue
            data, source = model.run.settings.data, languages["source"]
            own = language_profile.RunLanguages.read(model.run.folder)
            if own.source is not None:
                profiles.setdefault(source, []).append(own.source)
            for target in languages["targets"]:
                tag = find_tag(data, target)
                self.pairs.append(LanguagePair(model.name, source, target, tag))
                if (tag or "") in own.targets:
                    profiles.setdefault(target, []).append(own.targets[tag or ""])
        self.profiles = {language: language_profile.merge_profiles(each) for language, each in profiles.items()}

    @property
    def codes(self) -> list[str]:
        """All languages, sources first, each once."""
        sources, targets = [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]
        for more, others in self.many.values():
            sources += more
            targets += others
        return list(dict.fromkeys([*sources, *targets]))

    def targets(self, source: str) -> list[str]:
        """The languages that a text in this one can be had in; one of them is its own."""
        targets = [pair.target for pair in self.pairs if pair.source == source]
        for sources, others in self.many.values():
            targets += others if source in sources else []
        return list(dict.fromkeys([*targets, source]))

    def find_code(self, given: str) -> str | None:
        """The language that a code means: with another case or dash, or the only one of these letters."""
        codes = self.codes
        exact = [code for code in codes if same_language(given, code)]
        letters = given.replace("_", "-").partition("-")[0].lower()
        near = [code for code in codes if code.replace("_", "-").partition("-")[0].lower() == letters]
        return exact[0] if exact else near[0] if len(near) == 1 else None

    def find_pair(self, source: str, target: str) -> LanguagePair | None:
        """The first model that translates between two languages."""
        found = next((pair for pair in self.pairs if (pair.source, pair.target) == (source, target)), None)
        if found is not None or source == target:
            return found
        able = (name for name, (sources, targets) in self.many.items() if source in sources and target in targets)
        return next((LanguagePair(name, source, target, named=True) for name in able), None)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The languages of a text with their confidence, the likeliest first; those without a profile have none."""
        found = language_profile.detect_language(text, self.profiles)
        return [*found, *((code, 0.0) for code in self.codes if code not in self.profiles)]

    def detect_source(self, text: str, target: str) -> tuple[str, float]:
        """The likeliest language of a text that is wanted in another one."""
        found = self.detect(text)
        sources = {pair.source for pair in self.pairs if pair.target == target}
        sources |= {code for many, targets in self.many.values() if target in targets for code in many}
        for code, confidence in found:
            if code in sources or (code == target and confidence >= CERTAIN):
                return code, confidence
        return found[0]


def find_tag(data: DataSettings, target: str) -> str | None:
    """The tag of a run's corpora that asks for a language, if they have tags."""
    return next(
        (corpus.tag for corpus in data.corpora if corpus.tag and language_tags.tag_language(corpus.tag) == target), None
    )


def as_detection(found: tuple[str, float]) -> dict[str, Any]:
    """A language that was detected, as LibreTranslate writes it."""
    return {"confidence": round(found[1], 1), "language": found[0]}
