"""Errors name the op, the shapes, the user's own line and what to do, and change nothing."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.nn import functional as F


def line_of(marker: str) -> int:
    """The number of the line of this file that carries a marker."""
    source, start = inspect.getsourcelines(inspect.currentframe().f_back.f_code)  # type: ignore[union-attr,arg-type]
    return start + next(i for i, text in enumerate(source) if f"# {marker}" in text)


def test_shape_mismatch_names_op_shapes_and_line() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) + torch.ones(4)  # here
    message = str(caught.value)
    assert "add" in message and "[2, 3]" in message and "[4]" in message
    assert f"test_errors.py:{line_of('here')}" in message
    assert "The size of tensor a (3) must match the size of tensor b (4)" in message


def test_matmul_mismatch_names_both_shapes() -> None:
    with pytest.raises(RuntimeError, match="2x3 and 4x5"):
        torch.ones(2, 3) @ torch.ones(4, 5)


def test_overwritten_value_names_the_saver_the_overwriter_and_both_lines() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = y * y  # saves
    y.add_(1)  # overwrites
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    message = str(caught.value)
    assert "modified by an inplace operation" in message
    assert "mul (MulBackward0)" in message and "add_" in message
    assert f"test_errors.py:{line_of('saves')}" in message
    assert f"test_errors.py:{line_of('overwrites')}" in message


def test_backward_twice_says_which_node_and_what_to_do() -> None:
    x = torch.ones(3, requires_grad=True)
    loss = (x * x).sum()  # recorded
    loss.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True") as caught:
        loss.backward()
    assert f"test_errors.py:{line_of('recorded')}" in str(caught.value)


def test_no_grad_root_says_why() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(3).sum().backward()
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (torch.ones(3, requires_grad=True) * 2).backward()


def test_dtype_mismatch_in_matmul() -> None:
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64)


def test_index_out_of_range_names_dimension_and_size() -> None:
    with pytest.raises(IndexError, match=r"index 5 is out of bounds for dimension 0 with size 3"):
        torch.ones(3)[5]
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(3).sum(2)


def test_size_takes_one_dimension() -> None:
    with pytest.raises(TypeError, match="not a slice"):
        torch.ones(2, 3).size(slice(0, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(torch.ones(7)),
        lambda x: x.copy_(torch.ones(7)),
        lambda x: x.mul_(torch.ones(2, 3, 4)),
        lambda x: x.__setitem__(5, 1.0),
        lambda x: x.__setitem__([0, 9], 1.0),
        lambda x: x.__setitem__(0, torch.ones(7)),
        lambda x: x.index_add_(0, torch.tensor([0, 9]), torch.ones(2, 3)),
        lambda x: x.scatter_(0, torch.tensor([[0, 1, 9]]), 1.0),
        lambda x: x.masked_fill_(torch.ones(7, dtype=torch.bool), 1.0),
        lambda x: x.view(5),
        lambda x: x.index_fill_(0, torch.tensor([9]), 1.0),
    ],
)
def test_a_failed_change_changes_nothing(change) -> None:  # type: ignore[no-untyped-def]
    x = torch.arange(6.0).reshape(2, 3)
    before, version = x.clone(), x._version
    with pytest.raises((RuntimeError, IndexError)):
        change(x)
    assert torch.equal(x, before)
    assert x._version == version


def test_unknown_names_say_that_weft_lacks_them() -> None:
    for ask in (
        lambda: torch.no_such_function,
        lambda: torch.nn.functional.no_such_function,
        lambda: torch.linalg.no_such_function,
    ):
        with pytest.raises(AttributeError, match=r"weft does not have torch\.\S*no_such"):
            ask()


def test_unknown_attributes_of_tensors_are_python_s_own_error() -> None:
    # As in PyTorch; of the methods that PyTorch has, the error says that weft lacks them.
    for ask in (lambda: torch.ones(1).no_such_method, lambda: torch.ones(1)[0].no_such_method):
        with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'no_such_met"):
            ask()
    with pytest.raises(AttributeError, match=r"weft does not have torch\.Tensor\.chalf"):
        torch.ones(1).chalf()
    x = torch.ones(1)
    assert "chalf" not in dir(x) and not hasattr(x, "chalf") and not hasattr(torch.Tensor, "chalf")
    x.chalf = 3  # type: ignore[attr-defined]
    assert x.chalf == 3  # type: ignore[attr-defined]


def test_absent_devices_are_honest() -> None:
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="not available"):
        torch.ones(2).to("cuda")
    with pytest.raises(RuntimeError, match="not available"):
        torch.ones(2, device="cuda")
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.ones(2).to(where).device == torch.device("cpu")


def test_errors_inside_weft_functions_point_at_the_user() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4))  # user
    assert re.search(rf"test_errors\.py:{line_of('user')}", str(caught.value))


MISTAKES = [
    # A typical mistake, the kind of error, PyTorch's words for it, and the way out.
    (lambda: nn.Linear(3, 2)(torch.ones(4, 3, dtype=torch.float64)), RuntimeError,
     "mat1 and mat2 must have the same dtype, but got Double and Float", ".to(torch.float32)"),
    (lambda: nn.Linear(10, 5)(torch.ones(2, 8)), RuntimeError,
     "mat1 and mat2 shapes cannot be multiplied (2x8 and 10x5)", "takes 10 features"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3])), IndexError,
     "Target 3 is out of bounds.", "labels go from 0 to 2"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0.0, 1.0])), RuntimeError,
     "expected target dtype to be Long or Byte, but got Float", "target.long()"),
    (lambda: F.binary_cross_entropy_with_logits(torch.ones(2), torch.tensor([0, 1])), RuntimeError,
     "result type Float can't be cast to the desired output type Long", "target.float()"),
    (lambda: nn.Embedding(5, 2)(torch.tensor([[1, 7]])), IndexError,
     "index out of range in self", "7, in a table of 5 rows"),
    (lambda: nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5, dtype=torch.uint8)), RuntimeError,
     "expected scalar type Byte but found Float", ".to(torch.float32)"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "kind", "words", "way_out"), MISTAKES)
def test_a_typical_mistake_is_told_with_its_way_out(
    mistake: Any, kind: type[Exception], words: str, way_out: str
) -> None:
    with pytest.raises(kind) as caught:
        mistake()
    message = str(caught.value)
    assert words in message and way_out in message
    assert "test_errors.py:" in message.splitlines()[-1]


def test_a_misspelt_name_of_a_module_is_guessed() -> None:
    with pytest.raises(AttributeError) as caught:
        nn.Linear(1, 1).weights  # noqa: B018
    # From these Python makes "Did you mean: 'weight'?".
    assert caught.value.name == "weights" and "weight" in dir(caught.value.obj)


def test_the_loss_of_logits_has_the_type_of_its_target() -> None:
    for given, wanted in ((torch.float64, torch.float32), (torch.float32, torch.float64)):
        x = torch.linspace(-3, 3, 7, dtype=given).requires_grad_()
        target = (torch.arange(7) % 2).to(wanted)
        loss = F.binary_cross_entropy_with_logits(x, target)
        loss.backward()
        assert loss.dtype == wanted and x.grad.dtype == given
        assert loss.item() == pytest.approx(1.09581447, abs=2e-7)
