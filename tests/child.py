"""A command, or any work, in a process of its own that is forked from this one, where torch is loaded already."""

import functools
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch


class Ended(NamedTuple):
    """How a process ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


def forked(
    work: Callable[[], object],
    *,
    room: int | None = None,
    stdin: bytes = b"",
    before: Callable[[], object] = lambda: None,
) -> Ended:
    """Do it; `room` is the memory in bytes that it may take beyond what this process has.

    `before` is called when standard input, output and error are files: it may close or replace them.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 99
            try:
                signal.alarm(120)
                for number, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), number)
                before()
                sys.stdin, sys.stdout, sys.stderr = (opened(number) for number in range(3))
                torch.set_num_threads(1)  # there are no others in this process
                if room is not None:
                    pages = int(Path("/proc/self/statm").read_text().split()[0])
                    most = pages * resource.getpagesize() + room
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                status = ended(work)
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:
                        stream.flush()
            finally:
                os._exit(status)
        _, how = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return Ended(
            os.waitstatus_to_exitcode(how),
            out.read().decode(errors="surrogateescape"),
            err.read().decode(errors="surrogateescape"),
        )


def opened(number: int):
    """A standard stream as Python itself has it: None where it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    return open(number, "w" if number else "r", closefd=False)


def ended(work: Callable[[], object]) -> int:
    """The status that Python would end with."""
    try:
        work()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@functools.cache
def load_commands() -> Callable[[], None]:
    """The command line, with what it imports on the way imported here, once for all children."""
    import torch._dynamo  # noqa: F401 (every optimiser imports it)
    from typer.testing import CliRunner

    from regard import report  # noqa: F401
    from regard.cli.main import app, main
    from regard.decoding import translate_file  # noqa: F401
    from regard.evaluation import text  # noqa: F401
    from regard.inspection.collect import ablation, from_run  # noqa: F401
    from regard.inspection.draw import page, picture  # noqa: F401
    from regard.io import output  # noqa: F401

    assert CliRunner().invoke(app, ["configs"]).exit_code == 0  # reading options imports more
    return main


def regard(*arguments: object, **options) -> Ended:
    """Run the command line in a child."""
    main = load_commands()

    def command() -> None:
        sys.argv = ["regard", *map(str, arguments)]
        main()

    return forked(command, **options)
