"""`regard bench` from the command line: wrong names and options."""

import pytest
from child import regard


def test_an_unknown_benchmark_lists_what_there_is():
    done = regard("bench", "atention")
    assert done.status == 2
    assert (
        done.stderr == "regard: bench: 'atention' is no benchmark; choose one of attention, training, decoding, "
        "serving, lstmn\n"
    )
    assert not done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["bench"], "missing argument"),
        (["bench", "attention", "--rounds", "1"], "--rounds"),
        (["bench", "attention", "--threads", "0"], "--threads"),
    ],
)
def test_wrong_options_are_named(wrong, said):
    done = regard(*wrong)
    assert done.status == 2
    assert said in done.stderr
