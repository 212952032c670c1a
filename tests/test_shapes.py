"""The checks of types and shapes in the tests: what they accept, and what they refuse."""

import dataclasses

import jaxtyping
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

pytest.importorskip("beartype")
import shapes


def checked(function):
    return shapes.jaxtyped(function, typechecker=shapes.check)


@checked
def join(x: Float[Tensor, "b n"], *more: Float[Tensor, "b m"], flip: bool = False) -> Float[Tensor, "b k"]:
    joined = torch.cat([x, *more], -1)
    return joined.mT if flip else joined


@checked
@dataclasses.dataclass
class Row:
    numbers: Float[Tensor, "b n"]
    counts: "Int[Tensor, 'b']"
    name: str | None = None


@checked
def ones(count: int) -> Float[Tensor, "{count} c"]:
    return torch.ones(3, 2)


def around(size):
    """Create and decorate the inner function at each call."""

    @checked
    def inside(x: Float[Tensor, "n"], count: float = size) -> Float[Tensor, "n n"]:
        return x.expand(size, -1)

    return inside


def test_what_fits_passes():
    assert join(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 4)).shape == (2, 11)
    assert Row(torch.ones(2, 3), torch.ones(2, dtype=torch.int64)).name is None
    assert ones(3).shape == (3, 2)
    for size in (2, 3):
        assert around(size)(torch.ones(size), 1).shape == (size, size)  # an int passes for a float


@pytest.mark.parametrize(
    "call",
    [
        lambda: join(torch.ones(2)),
        lambda: join(torch.ones(2, 3, dtype=torch.int64)),
        lambda: join(torch.ones(2, 3), torch.ones(3, 4)),
        lambda: join(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 5)),
        lambda: join(torch.ones(2, 3), flip=1),
        lambda: join(torch.ones(2, 3), flip=True),  # b is 2: the result is wrong
        lambda: Row(torch.ones(2, 3), torch.ones(3, dtype=torch.int64)),
        lambda: Row(torch.ones(2, 3), torch.ones(2, dtype=torch.int64), 1),
        lambda: ones(4),
        lambda: around(2)(torch.ones(3)),
        lambda: around(2)(torch.ones(2), "a"),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(jaxtyping.TypeCheckError, match=r"join|Row|ones|inside"):
        call()


def test_a_call_that_no_function_takes_is_an_error_as_without_checks():
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        join()


def test_sizes_are_bound_for_one_call():
    assert join(torch.ones(2, 3)).shape == (2, 3)
    assert join(torch.ones(5, 4)).shape == (5, 4)


def test_checks_can_be_switched_off():
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        assert join(torch.ones(2, 3), flip=True).shape == (3, 2)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_what_has_no_annotation_is_left_as_it_is():
    def plain(x):
        return x

    assert checked(plain) is plain


def test_a_kernel_is_left_as_it_is():
    """Triton compiles a function's source, and finds other functions in its module."""

    class constexpr:
        pass

    def kernel(x, SIZE: constexpr):
        return x

    assert checked(kernel) is kernel
