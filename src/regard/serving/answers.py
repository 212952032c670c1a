"""Answers of a server: outputs and errors as JSON holds them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from regard.data import Tokenizer
from regard.decoding import Options, Output
from regard.errors import RegardError
from regard.serving.requests import ApiError
from regard.serving.texts import SplitText
from regard.tasks import Translation, to_translation


def join_texts(
    texts: Sequence[SplitText], translations: Sequence[list[Translation]], options: Options
) -> list[dict[str, Any]]:
    """The outputs of texts from those of their sentences, as an answer holds them."""
    pieces, answers = iter(translations), []
    for each in texts:
        joined = each.join(pieces, options.nbest, not options.sample)
        answers.append({"text": joined[0].text, "cut": each.cut, "outputs": [as_table(output) for output in joined]})
    return answers


def write_texts(
    texts: Sequence[SplitText], outputs: Sequence[Sequence[Output]], tokenizer: Tokenizer, options: Options
) -> list[dict[str, Any]]:
    """Write the outputs of searches as an answer holds them: what `join_texts` gives, with fewer steps on the way."""
    written = iter(tokenizer.decode_batch([output.tokens for each in outputs for output in each]))
    searched, answers = iter(outputs), list[dict[str, Any]]()
    for each in texts:
        if not each.whole:
            pieces = [list(next(searched)) for _ in each.texts]
            rows = [[to_translation(output, tokenizer, next(written)) for output in own] for own in pieces]
            answers += join_texts([each], rows, options)
            continue
        tables = [
            {
                "text": next(written),
                "score": finite(score),
                "log_prob": finite(log_prob),
                "tokens": tokenizer.pieces(tokens),
                "finished": finished,
            }
            for tokens, log_prob, score, finished in next(searched)
        ]
        answers.append({"text": tables[0]["text"], "cut": each.cut, "outputs": tables})
    return answers


def add_unknown(answers: Sequence[dict[str, Any]], unknown: Sequence[list[str]]) -> list[dict[str, Any]]:
    """Add to the answer for each text those of its words that did not occur in training."""
    return [{**answer, "unknown": words} for answer, words in zip(answers, unknown, strict=True)]


def check_pairs(texts: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse lists of other lengths."""
    if len(texts) != len(targets):
        message = f"targets: {len(targets)} given, expected one for each of {len(texts)} texts"
        raise ApiError(422, "invalid_value", message, "targets")


def as_table(output: Translation) -> dict[str, Any]:
    """An output as an answer holds it."""
    table: dict[str, Any] = {
        "text": output.text,
        "score": finite(output.score),
        "log_prob": finite(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
    }
    if output.alignment is not None:
        table["alignment"] = [list(link) for link in output.alignment]
    if output.untranslated is not None:
        table["untranslated"] = [list(span) for span in output.untranslated]
    if output.token_log_probs is not None:
        table["scores"] = [finite(each) for each in output.token_log_probs]
    return table


def finite(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else None


def replace_scores(output: Translation, log_probs: tuple[float, ...]) -> Translation:
    """A translation with the log-probabilities of its tokens."""
    return dataclasses.replace(output, token_log_probs=log_probs)


def error_of(error: Exception) -> ApiError | None:
    """The answer to an error of the library's: the sentence that the command line has; None for a fault of its own."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RegardError):
        name = str(error).partition(":")[0]
        return ApiError(422, "invalid_value", str(error), name if name.replace("_", "").isalnum() else None)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return ApiError(
            503, "out_of_memory", "out of memory; send less at once, or try again", headers={"Retry-After": "5"}
        )
    return None
