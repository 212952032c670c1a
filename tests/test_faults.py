"""The faults of `faults.py` can be planted: each line is in the source, and the tests that should fail exist."""

import pytest
from faults import FAULTS, ROOT, is_there


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
def test_it_can_be_planted(fault):
    assert is_there(fault, ROOT), f"{fault.file} has no longer, or more than once: {fault.line.strip()}"
    assert fault.fault != fault.line


def test_every_package_has_one():
    packages = {path.name for path in (ROOT / "src" / "regard").iterdir() if (path / "__init__.py").exists()}
    packages |= {path.name for path in (ROOT / "src").glob("regard_*")}
    without = {"regard_bench", "regard_corpora"}  # no user's result depends on them
    assert packages - {fault.file.partition("/")[0] for fault in FAULTS} == without
    assert len(FAULTS) >= 70
