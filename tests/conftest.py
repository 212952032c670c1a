"""What every test starts with: shapes checked at run time, a seed that is printed, two threads, no display."""

import gc
import logging
import os
import random
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is loaded
gc.disable()  # until all is imported and collected, which leaves little garbage

import draws
import hypothesis
import jaxtyping
import pytest
import torch
from draws import SEED
from hypothesis.internal.conjecture import providers

os.environ.setdefault("MPLBACKEND", "Agg")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run here as well, slowly; before Triton is loaded
# On a GPU kernels are compiled and captured, and neither torch's compiler nor Triton's sees through the hook.
TYPECHECK = os.environ.get("REGARD_NO_TYPECHECK", str(int(torch.cuda.is_available()))) != "1"

if TYPECHECK:
    try:
        import shapes
    except ImportError:
        TYPECHECK = False
    else:
        shapes.install("regard")  # before the first import of regard

torch.set_num_threads(min(2, torch.get_num_threads()))
# pytest listens to the root logger, and at every test to each of those that tell it nothing: torch has forty.
for logger in logging.root.manager.loggerDict.values():
    if isinstance(logger, logging.Logger):
        logger.propagate = True
# Set once, not by pytest's `log_level`, which sets it twelve times a test: each time every logger forgets its level.
logging.root.setLevel(logging.INFO)


def seed_torch(number: int) -> None:
    """As `torch.manual_seed`, which writes down the whole stack for each kind of device that is not there."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)


class TorchRandom:
    """torch's generator as Hypothesis wants it: the same tensors when an example is replayed, others in another run."""

    def seed(self, number: int) -> None:
        seed_torch(SEED + number)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


# What a script starts with `&` ignores interrupts, and so would all that is tested here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

COMPILE = "tests/compile/"
SHAPES = "tests/attention/", "tests/kernels/"
COMMANDS = "tests/cli/commands/"  # typer's own classes are not those it documents
TORCH_RANDOM = TorchRandom()  # Hypothesis keeps a weak reference only
hypothesis.register_random(TORCH_RANDOM)
# What Hypothesis draws hangs on the seed alone (`derandomize` would make it hang on nothing): not on failures of an
# earlier run, nor on how busy the machine is, nor on numbers in the modules that happen to be imported by then.
hypothesis.settings.register_profile(
    "regard",
    deadline=None,
    derandomize=False,
    print_blob=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("regard")
providers._get_local_constants = lambda: providers._local_constants


def pytest_report_header() -> str:
    checks = "shapes checked" if TYPECHECK else "shapes not checked"
    return f"regard: seed {SEED} (REGARD_SEED={SEED} repeats it), {checks}, torch {torch.__version__}"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than cores, because tests wait for children and clocks; those with checked shapes do not."""
    if TYPECHECK or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # what xdist says
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """What is less than INFO is not for pytest's handlers either: torch.compile traces at DEBUG."""
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler) if plugin else ():
        handler.setLevel(logging.INFO)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cuda = torch.cuda.is_available()
    drawing = "draws" in config.option.markexpr  # which is read from all files: only where it is asked for
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file.startswith(COMPILE) or file.endswith("/test_flex.py"):  # FlexAttention compiles by itself
            item.add_marker("compile")
        if file.startswith(SHAPES):
            item.add_marker("shapes")
        if file.endswith("/test_errors.py") or file.startswith(COMMANDS):
            item.add_marker("unchecked")
        if drawing and draws.at_random(item.path):
            item.add_marker("draws")
        if not cuda and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is there by now stays: neither is it looked through for garbage, nor do forked children copy it for that."""
    result = yield
    gc.freeze()
    gc.set_threshold(3_000)  # four times the usual: a fortieth of the time was spent looking for garbage
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test draws the same numbers alone as in the whole run."""
    seed = (SEED + zlib.crc32(item.nodeid.encode())) % 2**32
    random.seed(seed)
    seed_torch(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Wrong input must meet what it meets at a user's: the library's own checks, not the hook's."""
    if item.get_closest_marker("unchecked") is None:
        return (yield)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return (yield)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder that all processes of this test run share, for what is dear to make (`REGARD_TEST_SHARED`)."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    folder.mkdir(exist_ok=True)
    os.environ["REGARD_TEST_SHARED"] = str(folder)


@pytest.fixture(scope="session")
def furnish(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A new folder with tiny trained runs in it; see `furnished.py`."""
    from furnished import furnish_in, shared_root

    def make(**runs: str) -> Path:
        return furnish_in(shared_root(tmp_path_factory), tmp_path_factory.mktemp("desk"), **runs)

    return make


@pytest.fixture(scope="module")
def without_report() -> Iterator[None]:
    """A command's training draws no report, as dear as all else of a tiny one; for files that do not look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.report.report", name_report)
        yield


def name_report(out: Path, started: object) -> Path:
    """In place of `regard.report.report`; another process may be given it by its name."""
    return out / "report.html"


@pytest.fixture
def without_tf32() -> Iterator[None]:
    """Products and recurrent layers of float32 on a GPU are in float32.

    Set and put back by hand: `monkeypatch` would delete what is no attribute of its own, as these are not.
    """
    products, layers = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = layers
