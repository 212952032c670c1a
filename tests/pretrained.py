"""Small random models of other toolkits, as folders: stand-ins for those that users download."""

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

TEXTS = {
    "source": [
        "the dog sees a small cat .", "a man rides the old horse , and the woman laughs .", "we eat bread .",
        "two children play in the garden with the dog .", "the horse is brown ; the cats are small .", "i see it .",
        "why does the old woman sing ?", "she reads a long book about horses .", "the man is not small , he is old .",
    ],
    "target": [
        "der Hund sieht eine kleine Katze .", "ein Mann reitet das alte Pferd , und die Frau lacht .", "wir essen .",
        "zwei Kinder spielen mit dem Hund im Garten .", "das Pferd ist braun ; die Katzen sind klein .", "ein Haus .",
        "warum singt die alte Frau ?", "sie liest ein langes Buch über Pferde .", "der Mann ist klein , er ist alt .",
    ],
}  # fmt: skip
NLLB_LANGUAGES = ("eng_Latn", "deu_Latn", "fra_Latn")


def train_pieces(texts: list[str], path: Path, size: int = 80, kind: str = "unigram") -> list[str]:
    """Train a SentencePiece model, and return its pieces."""
    sentencepiece = pytest.importorskip("sentencepiece")
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts * 5), model_writer=content, vocab_size=size, model_type=kind,
            bos_id=-1, eos_id=0, unk_id=1, pad_id=-1, minloglevel=2, hard_vocab_limit=False,
        )  # fmt: skip
    path.write_bytes(content.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def marian_folder(folder: Path, *, seed: int = 0, codes: tuple[str, ...] = (), **options: Any) -> Any:
    """Write a small random MarianMTModel with its vocabulary, like OPUS-MT's folders; return the model."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    sides = [train_pieces(TEXTS[side], folder / f"{side}.spm") for side in ("source", "target")]
    separate = not options.get("share_encoder_decoder_embeddings", True) and options.pop("separate", True)
    lists = [
        [piece for piece in dict.fromkeys(pieces) if piece not in ("</s>", "<unk>")]
        for pieces in (sides if separate else [[*sides[0], *sides[1]]])
    ]
    count = min(map(len, lists)) - 2  # the vocabulary lacks two pieces; <pad> has one number in both
    names = [["</s>", "<unk>", *rest[:count], *codes, "<pad>"] for rest in lists]
    tables = [{name: row for row, name in enumerate(each)} for each in names]
    for name, table in zip(("vocab.json", "target_vocab.json"), tables, strict=False):
        (folder / name).write_text(json.dumps(table, ensure_ascii=False))
    rows = len(tables[-1])
    table: dict[str, Any] = {"vocab_size": len(tables[0]), "decoder_vocab_size": rows, "d_model": 16}
    table |= {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    table |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    table |= {
        "pad_token_id": rows - 1,
        "decoder_start_token_id": rows - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
    }
    table |= {
        "activation_function": "swish",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "init_std": 0.3,
    }
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**table, **options})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                parameter += 0.1 * torch.randn_like(parameter)
        model.final_logits_bias.normal_()
    model.generation_config.bad_words_ids = [[rows - 1]]
    model.save_pretrained(folder)
    settings = {
        "source_lang": "en",
        "target_lang": "de",
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def m2m100_folder(
    folder: Path, *, family: str = "m2m100", seed: int = 0, languages: Sequence[str] = NLLB_LANGUAGES, **options: Any
) -> Any:
    """Write a small random M2M100ForConditionalGeneration with the vocabulary of M2M-100 or NLLB; return the model."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece = pytest.importorskip("sentencepiece")
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*TEXTS["source"], *TEXTS["target"]] * 5), model_writer=content, vocab_size=120,
            model_type="bpe", unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2,
        )  # fmt: skip
    (folder / "sentencepiece.bpe.model").write_bytes(content.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    if family == "m2m100":
        rows = {piece: row for row, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
        (folder / "vocab.json").write_text(json.dumps(rows, ensure_ascii=False))
        count = len(rows) + 100 + 8  # languages, and rows without names
        settings = {"language_codes": "m2m100"}
    else:
        count = 4 + len(pieces) + len(languages) + 1
        settings = {"additional_special_tokens": [*languages], "tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    table: dict[str, Any] = {"vocab_size": count, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    table |= {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    table |= {"max_position_embeddings": 64, "init_std": 0.3}
    torch.manual_seed(seed)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**{**table, **options})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model
