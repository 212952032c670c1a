"""Systems that are measured in turn, each in a process of its own.

In one process they would share caches of memory, and the threads of one OpenMP would wait, spinning, while another
works: CTranslate2 in the same process made torch's systems a third slower. Peers get the environment that their users
have: what the command line sets for Regard's own threads is not handed on to them.
"""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from regard.data import Batch
from regard.errors import RegardError
from regard.kernels import pack_weights
from regard_bench.decoding_peers import Decoder, Outputs

__all__ = ["DecoderProcess", "time_decoder"]

OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # what `regard` sets
REST = 0.3  # seconds: threads of an OpenMP spin for 0.2 after their work


def time_decoder(decoder: Decoder, batches: Sequence[Batch], beam: int) -> tuple[float, list[Outputs]]:
    """Seconds for batches one after the other, and what was said."""
    inputs = [decoder.prepare(batch) for batch in batches]
    begin = time.perf_counter()
    outputs = [decoder(each, beam) for each in inputs]
    seconds = time.perf_counter() - begin
    return seconds, [decoder.tokens(*each) for each in zip(outputs, inputs, strict=True)]


class DecoderProcess:
    """A decoder in another process; `make` is a function at the top of a module, or a partial of one."""

    def __init__(self, make: Callable[[], Decoder], ours: bool):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        before = {} if ours else {name: os.environ.pop(name) for name in OWN if name in os.environ}
        try:
            self.process = context.Process(target=serve, args=(make, torch.get_num_threads(), other), daemon=True)
            self.process.start()
        finally:
            os.environ.update(before)
        other.close()
        self.answer()  # it is there

    def time_batches(self, batches: Sequence[Batch], beam: int) -> tuple[float, list[Outputs]]:
        """Time the decoder in the other process, when all others are idle."""
        time.sleep(REST)
        with contextlib.suppress(OSError):  # it is gone: `answer` says so
            self.pipe.send((batches, beam))
        seconds, outputs = self.answer()
        return seconds, outputs

    def answer(self) -> Any:
        """Receive the other process's answer."""
        try:
            problem, answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise RegardError(f"bench: a system ended with status {self.process.exitcode}") from None
        if problem is not None:
            raise RegardError(f"bench: {problem}")
        return answer

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join()


def serve(make: Callable[[], Decoder], threads: int, pipe: Any) -> None:
    """Inside the process: decode what comes through the pipe until it is closed."""
    torch.set_num_threads(threads)
    try:
        decoder = make()
        pipe.send((None, None))
        with pack_weights():  # once for all batches, as `search_in_batches` does
            while True:
                pipe.send((None, time_decoder(decoder, *pipe.recv())))
    except EOFError:
        pass
    except Exception as error:  # told to the parent, whatever it is
        pipe.send((f"{type(error).__name__}: {error}", None))
