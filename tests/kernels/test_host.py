"""Memory that is kept: pages that were freed need not be mapped again."""

import subprocess
import sys

import pytest

CODE = """
import ctypes, resource, sys, torch
from regard.kernels.host import TRIM, keep_freed_memory
ctypes.CDLL(None).mallopt(TRIM, 1 << 17)  # glibc's first limit, which it moves about by itself
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    held = [torch.ones(1 << 21) for _ in range(16)]  # 8 MiB each
    before.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
before = []
torch.set_num_threads(1)
for _ in range(10):
    step()
print(before[-1] - before[-2])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_pages_are_not_mapped_again():
    faults = {
        how: int(subprocess.check_output([sys.executable, "-c", CODE, how], text=True)) for how in ("keep", "leave")
    }
    assert 4 * faults["keep"] < faults["leave"]
