"""English names of languages, by their codes of two or three letters, for people who choose one from a list."""

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
