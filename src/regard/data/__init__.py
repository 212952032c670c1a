"""Corpora, tokenizers and batches.

Settings: the corpus and the tokenizer of a run. Built-in corpora: `CORPORA`, `generate`, and the types that a plugin's
corpus needs. Reading: pairs, tables, documents, pictures with captions, gold alignments; `prepare` and
`prepare_images` encode a corpus once; `data_report` finds its faults. Tokenizers: `Tokenizer`, `Tokenizers`, special
pieces, checks of files made elsewhere. Facts about its texts that a run keeps: `run_languages`, `sentence_split`,
`unknown_words`. Batches: `Batch`, `PackedBatch`, `PictureBatch` and their `Order`.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.data import (
        batching,
        builtin,
        cache,
        caption_files,
        sentence_split,
        sentencepiece,
        special_pieces,
        tokenizer_checks,
        unknown_words,
    )
    from regard.data import check as data_report
    from regard.data import documents as document_texts
    from regard.data import extension as vocabulary_extension
    from regard.data import images as picture_corpus
    from regard.data import languages as run_languages
    from regard.data import pixels as picture_pixels
    from regard.data import settings as data_settings
    from regard.data.alignments import Linking, Links
    from regard.data.batching import Batch, Order, PackedBatch, PictureBatch, Position, collate
    from regard.data.bpe_dropout import BpeDropout
    from regard.data.builtin import CORPORA, BuiltIn, Example, PicturedExample, generate
    from regard.data.cache import Encoded
    from regard.data.corpus import Side, TableTexts, pairs, read_tables
    from regard.data.documents import Splitter
    from regard.data.images import prepare_images
    from regard.data.pre_tokenizer import MARK
    from regard.data.preparation import Prepared, cached_valid_pairs, prepare, training_texts
    from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
    from regard.data.special_pieces import END, PAD, START, UNKNOWN
    from regard.data.tokenizer import BYTE_MARK, Tokenizer, Tokenizers, open_tokenizer, read
    from regard.data.vocabulary import BYTES, TextProfile, train

__all__ = [
    "BYTES",
    "BYTE_MARK",
    "Batch",
    "BpeDropout",
    "BuiltIn",
    "CORPORA",
    "CorpusSettings",
    "DataSettings",
    "END",
    "Encoded",
    "Example",
    "Linking",
    "Links",
    "MARK",
    "Order",
    "PAD",
    "PackedBatch",
    "PictureBatch",
    "PicturedExample",
    "Position",
    "Prepared",
    "START",
    "Side",
    "Splitter",
    "TableTexts",
    "TextProfile",
    "Tokenizer",
    "TokenizerSettings",
    "Tokenizers",
    "UNKNOWN",
    "batching",
    "builtin",
    "cache",
    "cached_valid_pairs",
    "caption_files",
    "collate",
    "data_report",
    "data_settings",
    "document_texts",
    "generate",
    "open_tokenizer",
    "pairs",
    "picture_corpus",
    "picture_pixels",
    "prepare",
    "prepare_images",
    "read",
    "read_tables",
    "run_languages",
    "sentence_split",
    "sentencepiece",
    "special_pieces",
    "tokenizer_checks",
    "train",
    "training_texts",
    "unknown_words",
    "vocabulary_extension",
]

__getattr__, __dir__ = door(__name__)
