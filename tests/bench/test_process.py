"""A decoder in a process of its own: what fails there is reported here."""

import multiprocessing
from functools import partial

import pytest
from bench.cases import LENGTH, TINY

from regard.bench import decoding
from regard.bench.process import DecoderProcess
from regard.errors import RegardError


def test_what_goes_wrong_elsewhere_is_told_here(monkeypatch):
    # test_decoding.py starts new processes, which import torch for seconds.
    monkeypatch.setattr(multiprocessing, "get_context", lambda method, real=multiprocessing.get_context: real("fork"))
    with pytest.raises(RegardError, match="bench: ZeroDivisionError: .*by zero"):
        DecoderProcess(partial(divmod, 1, 0), ours=True)
    gone = DecoderProcess(partial(decoding.make, "Regard", TINY, 0, LENGTH), ours=False)
    gone.process.kill()
    with pytest.raises(RegardError, match="a system ended with status -9"):
        gone.time_batches([], 1)
