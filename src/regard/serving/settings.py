"""Settings of `regard serve`: the address, the limits on requests, and the runs to serve. Imports no torch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.config import option
from regard.errors import CommandError
from regard.interop import is_export
from regard.io import packs
from regard.tasks import require_run

LOG_FORMAT: dict[str, Any] = {"format": "%(asctime)s %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S"}


@dataclass(frozen=True)
class ServeSettings:
    """The settings of a server: keys of serve.toml, some of them flags of `regard serve`."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: every address of this machine")
    port: int = option(8080, "port to listen on; 0: any free port", least=0, most=65_535)
    device: str = option("auto", "device of every model, or several separated by commas, with a worker for each")
    workers: Literal["auto", "thread", "process"] = option(
        "auto", "where models compute: in threads of the server, or each in a process of its own; auto: on a GPU"
    )
    engine: Literal["regard", "ctranslate2"] = option(
        "regard", "engine that searches: regard, or ctranslate2, which also takes exported folders"
    )
    quantize: Literal["float32", "float16", "int8", "int8_float16"] | None = option(
        None, "number format with engine ctranslate2; default: float32, or that of an exported folder"
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "number format of searches on a GPU: bf16 or fp32; auto is bf16"
    )
    memory: float = option(0.5, "share of a GPU's free memory for the states of searches", above=0, most=0.95)
    characters: int = option(20_000, "maximum number of characters in all texts of a request", least=1, most=10_000_000)
    texts: int = option(128, "maximum number of texts in a request", least=1, most=100_000)
    body_bytes: int = option(1_048_576, "maximum size of a request in bytes, pictures apart", least=1024, most=2**30)
    header_bytes: int = option(32_768, "maximum size of a request's headers in bytes", least=1024, most=1_048_576)
    headers: int = option(100, "maximum number of headers of a request", least=16, most=10_000)
    pictures: int = option(8, "maximum number of pictures in a request", least=1, most=1000)
    picture_bytes: int = option(10_485_760, "maximum size of a picture in bytes", least=1, most=2**30)
    beam: int = option(100, "largest beam size, or number of samples, that a request may ask for", least=1, most=10_000)
    output_tokens: int = option(
        1024, "largest number of tokens of an output that a request may ask for", least=1, most=1_048_576
    )
    look_words: int = option(200, "maximum number of words in a text to look into", least=1, most=10_000)
    waiting: int = option(
        512, "sentences that may wait; beyond that a request is answered with 429", least=1, most=10**6
    )
    connections: int = option(
        1000, "connections that may be open; beyond that idle ones are closed, or new ones wait", least=1, most=100_000
    )
    seconds: float = option(
        30.0, "seconds that a request may take to arrive (then 408), and to be answered (then 504)", above=0, most=3600
    )
    grace: float = option(20.0, "seconds that requests have to finish after SIGTERM", least=0, most=3600)
    keys: str | None = option(None, "file of API keys, one per line; without it no key is asked for")
    rate: int = option(0, "requests per minute that each API key may send; 0: any number", least=0, most=1_000_000)
    hosts: tuple[str, ...] = option((), "names in the Host header that are served beside loopback ones")
    origins: tuple[str, ...] = option((), "origins of web pages that may use the server (CORS)")
    languages: tuple[str, ...] = option((), "languages of models that do not know theirs, such as demo=en-de")
    log_texts: bool = option(False, "write texts into the log")


def parse_runs(arguments: Sequence[str], engine: str = "regard") -> dict[str, list[str]]:
    """Parse RUN, NAME=RUN and NAME=RUN+RUN into the folders of each model, checking them for the engine."""
    models: dict[str, list[str]] = {}
    for argument in arguments:
        name, equals, folders = argument.partition("=")
        if not equals or packs.is_folder(argument):
            path = Path(os.path.abspath(argument))  # the link's own name, not its target's
            name, folders = path.stem if packs.is_pack(path) else path.name, argument
        each = [folders] if packs.is_folder(folders) else folders.split("+")
        if not name or not all(each):
            raise CommandError(f"{argument}: expected RUN, NAME=RUN, or NAME=RUN+RUN for an ensemble")
        if name in models:
            raise CommandError(
                f"{argument}: {name} is the name of another model; give it one of its own: NAME={folders}"
            )
        for folder in each:
            if not is_export(folder):
                require_run(folder)
            elif engine == "regard":
                raise CommandError(
                    f"{folder}: an exported folder, which another engine opens; add --engine ctranslate2"
                )
        models[name] = each
    return models
