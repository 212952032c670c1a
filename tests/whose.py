"""Stand-ins for decoding, in a module that other processes can import, too."""

import multiprocessing
import os

from regard.data.images.cache import Picture


def decoded_by(folder, names, side):
    """Says who was asked."""
    return [Picture(name, None, str(os.getpid())) for name in names]


def dies_elsewhere(folder, names, side):
    """Decodes in the first process only; any other is gone."""
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return decoded_by(folder, names, side)
