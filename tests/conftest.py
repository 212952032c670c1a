"""Set-up of every test: shapes checked at run time, a printed seed, two threads, no display."""

import gc
import logging
import os
import random
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is loaded
gc.disable()  # until all tests are imported and collected, which leaves little garbage

import draws
import hypothesis
import jaxtyping
import pytest
import torch
from draws import SEED
from hypothesis.internal.conjecture import providers

os.environ.setdefault("MPLBACKEND", "Agg")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # interpret kernels without a GPU; must be set before Triton loads
# On a GPU kernels are compiled and captured, and neither torch's nor Triton's compiler can trace the hook.
TYPECHECK = os.environ.get("REGARD_NO_TYPECHECK", str(int(torch.cuda.is_available()))) != "1"

if TYPECHECK:
    try:
        import shapes
    except ImportError:
        TYPECHECK = False
    else:
        shapes.install("regard")  # must precede the first import of regard

torch.set_num_threads(min(2, torch.get_num_threads()))
# pytest attaches handlers to the root logger, and at every test to each non-propagating one: torch has forty.
for logger in logging.root.manager.loggerDict.values():
    if isinstance(logger, logging.Logger):
        logger.propagate = True
# Set the level once. pytest's `log_level` sets it twelve times per test, and each time every logger's cache is cleared.
logging.root.setLevel(logging.INFO)


def seed_torch(number: int) -> None:
    """Seed like `torch.manual_seed`, which formats the whole stack for each missing kind of device."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)


class TorchRandom:
    """torch's generator for Hypothesis: the same tensors when it replays an example, others in another run."""

    def seed(self, number: int) -> None:
        seed_torch(SEED + number)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


# A script's background job (`&`) ignores interrupts, and so would every tested process.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

COMPILE = "tests/compile/"
SHAPES = "tests/attention/", "tests/kernels/"
COMMANDS = "tests/cli/commands/"  # typer's own classes differ from the documented ones
TORCH_RANDOM = TorchRandom()  # Hypothesis keeps a weak reference only
hypothesis.register_random(TORCH_RANDOM)
# Hypothesis's draws depend on the seed alone (`derandomize` would fix them): not on failures of an earlier run, nor on
# the machine's load, nor on numbers in the modules imported so far.
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
    """Use one process more than cores, because tests wait for children and clocks; with checked shapes they do not."""
    if TYPECHECK or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist's default
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep records below INFO from pytest's handlers too: torch.compile traces at DEBUG."""
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler) if plugin else ():
        handler.setLevel(logging.INFO)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cuda = torch.cuda.is_available()
    drawing = "draws" in config.option.markexpr  # needs all files read: do so only on request
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
    """Freeze the objects that exist by now: the garbage collector skips them, and forked children do not copy them."""
    result = yield
    gc.freeze()
    gc.set_threshold(3_000)  # four times the default: a fortieth of the time went to collecting garbage
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed each test so that it draws the same numbers alone as in the whole run."""
    seed = (SEED + zlib.crc32(item.nodeid.encode())) % 2**32
    random.seed(seed)
    seed_torch(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Test wrong input without the hook: users meet the library's own checks."""
    if item.get_closest_marker("unchecked") is None:
        return (yield)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return (yield)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Set a folder that all processes of this test run share, for costly files (`REGARD_TEST_SHARED`)."""
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
    """Skip a command's training report, which takes as long as a tiny training; for files that do not check it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.report.report", name_report)
        yield


def name_report(out: Path, started: object) -> Path:
    """Replace `regard.report.report`; a top-level function, so that another process can import it by name."""
    return out / "report.html"


@pytest.fixture
def without_tf32() -> Iterator[None]:
    """Compute float32 products and recurrent layers on a GPU in float32.

    Set and restore by hand: `monkeypatch` deletes attributes that an object does not define itself, as here.
    """
    products, layers = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = layers
