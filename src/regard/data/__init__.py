"""Corpora, tokenizers and batches.

Settings: what is read, and how it is cut. Built-in corpora: `CORPORA`, `generate`, and what a plugin's has. Reading:
pairs, tables, documents, pictures with their captions, gold alignments; `prepare` and its like encode them once; what
is found wrong (`data_report`). Tokenizers: `Tokenizer`, `Tokenizers`, special pieces, checks of foreign ones,
languages, and what a run keeps of its texts (`language_profile`, `sentence_shares`, `unknown_words`). Batches: `Batch`,
`Order`, packed ones and those of pictures.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.data import (
        batching,
        builtin,
        builtin_files,
        cache,
        language_pieces,
        language_profile,
        packing,
        sentence_split,
        sentencepiece,
        special_pieces,
        tokenizer_checks,
        unknown_words,
    )
    from regard.data import check as data_report
    from regard.data import documents as document_texts
    from regard.data import extension as vocabulary_extension
    from regard.data import languages as language_tags
    from regard.data import sentence_share as sentence_shares
    from regard.data import settings as data_settings
    from regard.data.alignments import Linking, Links
    from regard.data.batching import Batch, Order, Position, collate
    from regard.data.bpe_dropout import BpeDropout
    from regard.data.builtin import CORPORA, BuiltIn, Example, PicturedExample, generate
    from regard.data.cache import Encoded
    from regard.data.corpus import Side, TableTexts, pairs, read_tables
    from regard.data.documents import Splitter
    from regard.data.images import batching as picture_batches
    from regard.data.images import caption_files
    from regard.data.images import corpus as picture_corpus
    from regard.data.images.batching import PictureBatch
    from regard.data.images.corpus import prepare_images
    from regard.data.packing import PackedBatch
    from regard.data.pre_tokenizer import MARK
    from regard.data.preparation import Prepared, cached_valid_pairs, prepare
    from regard.data.rows import Reading
    from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
    from regard.data.special_pieces import END, PAD, START, UNKNOWN
    from regard.data.text_profile import TextProfile
    from regard.data.tokenizer import BYTE_MARK, Tokenizer, Tokenizers, open_tokenizer, read
    from regard.data.vocabulary import BYTES, train

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
    "Reading",
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
    "builtin_files",
    "cache",
    "cached_valid_pairs",
    "caption_files",
    "collate",
    "data_report",
    "data_settings",
    "document_texts",
    "generate",
    "language_pieces",
    "language_profile",
    "language_tags",
    "open_tokenizer",
    "packing",
    "pairs",
    "picture_batches",
    "picture_corpus",
    "prepare",
    "prepare_images",
    "read",
    "read_tables",
    "sentence_shares",
    "sentence_split",
    "sentencepiece",
    "special_pieces",
    "tokenizer_checks",
    "train",
    "unknown_words",
    "vocabulary_extension",
]

__getattr__, __dir__ = door(__name__)
