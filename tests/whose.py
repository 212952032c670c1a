"""Stand-ins for picture decoding, in a module that other processes can import, too."""

import multiprocessing
import os
import time
from pathlib import Path

from regard.data.pixels import Picture


def decoded_by(folder, names, side):
    """Return the process that decoded each picture."""
    return [Picture(name, None, str(os.getpid())) for name in names]


def decoded_by_both(folder, names, side):
    """Return the process that decoded each picture; of two other processes, each waits until both have been called."""
    if multiprocessing.parent_process() is not None:
        here = Path(f"{folder}-asked")
        here.mkdir(exist_ok=True)
        (here / str(os.getpid())).touch()
        end = time.monotonic() + 60
        while len(list(here.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    return decoded_by(folder, names, side)


def dies_elsewhere(folder, names, side):
    """Decode in the first process only; any other dies."""
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return decoded_by(folder, names, side)
