"""CTranslate2 behind a minimal HTTP server, for comparison with `regard serve`.

    python -m regard_bench.peer_server RUN cpu

It accepts the benchmark's requests to `/v1/translate`, and answers with texts. Each request is one call of
`translate_batch` in a thread, as in a typical small service around that library; the library queues the calls. It runs
on uvicorn, as Regard does, without a framework.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import uvicorn

from regard.models import TransformerModel
from regard.run import Run, load
from regard_bench.decoding_peers import CTranslate2Decoder

THREADS = 64  # concurrent calls of the library
COMPUTE = {"cpu": "float32", "cuda": "bfloat16"}


def make_app(run: Run, device: str) -> Callable[..., Awaitable[None]]:
    """Create an application that translates with a run's weights in CTranslate2."""
    assert isinstance(run.model, TransformerModel)
    decoder = CTranslate2Decoder(run.model, 0, COMPUTE[device], device)
    pool, tokenizers = ThreadPoolExecutor(THREADS), run.tokenizers

    def translate(body: bytes) -> bytes:
        request = json.loads(body)
        sources = [[decoder.words[i] for i in ids] for ids in tokenizers.source.encode_batch(request["texts"])]
        results = decoder.translator.translate_batch(
            sources,
            beam_size=request["beam"],
            min_decoding_length=request["shortest"] + 1,  # Regard takes one more step, which scores END
            max_decoding_length=request["longest"] + 1,
        )
        outputs = [[decoder.numbers[word] for word in each.hypotheses[0][: request["longest"]]] for each in results]
        return json.dumps({"results": [{"text": text} for text in tokenizers.target.decode_batch(outputs)]}).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = await asyncio.get_running_loop().run_in_executor(pool, translate, body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


class PeerServer(uvicorn.Server):
    """A server that prints its address, as the benchmark expects."""

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and print the address."""
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"regard: ready: http://127.0.0.1:{port}", file=sys.stderr, flush=True)


def main(folder: str, device: str) -> None:
    """Serve a run."""
    torch.set_grad_enabled(False)
    app = make_app(load(folder), device)
    PeerServer(uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="off")).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
