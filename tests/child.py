"""Run a command or any function in a child process forked from this one, where torch is already loaded."""

import functools
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import torch
from tiny import free_port


class Ended(NamedTuple):
    """A finished process: its exit status and its output."""

    status: int
    stdout: str
    stderr: str


class Child(NamedTuple):
    """A process forked from this one, and the files that it writes to."""

    number: int
    out: IO[bytes]
    err: IO[bytes]

    def wait(self) -> Ended:
        """Wait for the process to end and return its status and output."""
        _, how = os.waitpid(self.number, 0)
        texts = []
        for file in (self.out, self.err):
            with file:
                file.seek(0)
                texts.append(file.read().decode(errors="surrogateescape"))
        return Ended(os.waitstatus_to_exitcode(how), *texts)


def fork(
    work: Callable[[], object],
    *,
    room: int | None = None,
    stdin: bytes = b"",
    before: Callable[[], object] = lambda: None,
) -> Child:
    """Start `work` in a child; `room` is the memory in bytes that it may take beyond this process's.

    `before` is called once standard input, output and error are files: it may close or replace them.
    """
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed when the child has ended)
    with tempfile.TemporaryFile() as given:
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
                torch.set_num_threads(1)  # this process has no other threads
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
    return Child(child, out, err)


def forked(work: Callable[[], object], **options) -> Ended:
    """Run `work` in a child and wait for its end; the options are those of `fork`."""
    return fork(work, **options).wait()


def fork_ranks(work: Callable[[], object], count: int = 2) -> list[Ended]:
    """Run `work` in children that find each other through environment variables, as torchrun's do."""
    import torch._dynamo  # every optimiser imports it: import it here once for all children
    import torch.distributed.fsdp  # noqa: F401

    place = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def begin(rank: str) -> Child:
        return fork(work, before=lambda: os.environ.update(place, RANK=rank, LOCAL_RANK=rank))

    return [child.wait() for child in [begin(str(rank)) for rank in range(count)]]


def opened(number: int):
    """Open a standard stream as Python does: None if it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    return open(number, "w" if number else "r", closefd=False)


def ended(work: Callable[[], object]) -> int:
    """Return the exit status that Python would return."""
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
    """Return the command line after importing its dependencies here, once for all children."""
    import torch._dynamo  # noqa: F401 (every optimiser imports it)
    from typer.testing import CliRunner

    from regard import report  # noqa: F401
    from regard.cli import app, main
    from regard.decoding import file_translation as translate_file  # noqa: F401
    from regard.evaluation import text_scores as text  # noqa: F401
    from regard.inspection.collect import from_run  # noqa: F401
    from regard.inspection.draw import picture  # noqa: F401
    from regard.io import results  # noqa: F401

    assert CliRunner().invoke(app, ["configs"]).exit_code == 0  # reading options imports more modules
    return main


def command(*arguments: object) -> Callable[[], None]:
    """Return a function that runs the command line with these arguments in a child."""
    main = load_commands()

    def call() -> None:
        sys.argv = ["regard", *map(str, arguments)]
        main()

    return call


def regard(*arguments: object, **options) -> Ended:
    """Run the command line in a child."""
    return forked(command(*arguments), **options)
