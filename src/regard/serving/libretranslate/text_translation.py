"""Texts and HTML through a service: from a pair of languages to the outputs of each text, with tags and links."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from regard.decoding import Options, first_model
from regard.serving.libretranslate.language_pairs import LanguagePair
from regard.serving.libretranslate.markup import parse_html
from regard.serving.libretranslate.tag_placement import Link
from regard.serving.requests import TranslateRequest
from regard.serving.service import Service

LinkedText = tuple[str, Sequence[Link]]


class Renderable(Protocol):
    """Something whose texts are translated, and that is written again with their translations."""

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        ...

    def render(self, translations: Sequence[LinkedText]) -> str:
        """Write it with the translation of each text, and the links of its words."""
        ...


async def translate_plain(
    service: Service, pair: LanguagePair, texts: Sequence[str], options: Options
) -> list[list[str]]:
    """The outputs of each text, best first; white space around a text is kept."""
    outputs = await translate_linked(service, pair, texts, options, links=False)
    return [[keep_space(text, output) for output, _ in each] for text, each in zip(texts, outputs, strict=True)]


async def translate_linked(
    service: Service, pair: LanguagePair, texts: Sequence[str], options: Options, links: bool = True
) -> list[list[LinkedText]]:
    """The outputs of each text with the links of its words, where the model has attention to make them of."""
    words = [number for number, text in enumerate(texts) if text.strip()]
    outputs: list[list[LinkedText]] = [[(text, ())] for text in texts]
    if not words:
        return outputs
    tag = f"{pair.tag} " if pair.tag else ""
    aligned = links and bool(first_model(service.models[pair.model].run.model).cross_attentions)
    given = tuple(tag + texts[number].strip() for number in words)
    source, target = (pair.source, pair.target) if pair.named else (None, None)
    request = TranslateRequest(pair.model, source, target, texts=given, alignment=aligned)
    answer = await service.translate(request, options)
    for number, result in zip(words, answer["results"], strict=True):
        outputs[number] = [
            (output["text"], [(source - bool(tag), target) for source, target in output.get("alignment", ())])
            for output in result["outputs"]
        ]
    return outputs


async def translate_documents(
    service: Service, pair: LanguagePair, texts: Sequence[str], options: Options
) -> list[list[str]]:
    """The outputs of HTML texts, each with the tags of its source."""
    documents = await asyncio.to_thread(lambda: [parse_html(text) for text in texts])
    return await render_all(service, pair, documents, options)


async def render_all(
    service: Service, pair: LanguagePair, documents: Sequence[Renderable], options: Options
) -> list[list[str]]:
    """The outputs of documents: all their texts are translated together, and then each is written again."""
    texts = [text for document in documents for text in document.texts]
    outputs = await translate_linked(service, pair, texts, options)

    def render() -> list[list[str]]:
        rest, rows = iter(outputs), []
        for document in documents:
            own = [next(rest) for _ in document.texts]
            most = max(map(len, own), default=1)
            rows.append([document.render([each[min(rank, len(each) - 1)] for each in own]) for rank in range(most)])
        return rows

    return await asyncio.to_thread(render)


def keep_space(text: str, output: str) -> str:
    """Put the white space around a text around its translation."""
    core = text.strip()
    if not core:
        return text
    return text[: len(text) - len(text.lstrip())] + output + text[len(text.rstrip()) :]
