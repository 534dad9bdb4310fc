"""``__torch_function__``: subclasses, duck types and modes, in programs run on both libraries."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import weft

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

PROGRAMS: list[Callable[[Any], Any]] = []


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(function)
    return function


def switches(T: Any) -> Any:
    """Where the blocks are that switch it off."""
    return weft.core.overrides if T is weft else T._C


def logging_class(T: Any, log: list[str]) -> Any:
    """A subclass that notes which functions are called on it."""

    class Logged(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged


def labelled_class(T: Any) -> Any:
    """A subclass that carries metadata, which results take over from their first operand."""

    class Labelled(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            label = next((a.label for a in args if hasattr(a, "label")), None)
            if isinstance(result, cls) and label is not None:
                result.label = label
            return result

    return Labelled


class Pickled(weft.Tensor):
    """Stands in this module, so that pickles find it."""


@program
def results_have_the_class(T: Any) -> Any:
    class Plain(T.Tensor):
        pass

    x = T.arange(6.0).view(2, 3).as_subclass(Plain)
    made = [
        *(x + 1, 1 + x, x * x, -x, x @ x.T, x[0], x[:, 1:], x.view(-1), x.sum(), x.mean(0)),
        *(T.sin(x), T.add(x, 2), T.cat([x, T.zeros(1, 3)]), T.stack([T.zeros(2, 3), x])),
        *(x.detach(), x.clone(), x.double(), x.data, x.mT, x > 2, T.nn.functional.relu(x)),
        *(T.linalg.norm(x), T.fft.fft(x), x.split(1)[1], x.max(0)[0], x.unbind(0)[0]),
        *(x.new_zeros(2), T.zeros_like(x), x.add_(1), x.reshape(3, 2), copy.copy(x)),
    ]
    plain = [T.zeros(2), T.tensor([1.0]), T.ones(2) + 1]
    return [type(r).__name__ for r in (*made, *plain)], x.tolist(), type(x.shape).__name__


@program
def functions_are_told_by_name(T: Any) -> Any:
    log: list[str] = []
    x = T.ones(2, 2).as_subclass(logging_class(T, log))
    _ = x + 1, x * x, T.add(x, 1), x.add(1), T.cat([x, x]), x[0], x.sum(), x.mm(x)
    _ = T.nn.functional.relu(x), T.linalg.norm(x), x.shape, x.dtype, len(x), x == 1
    x.mul_(2)
    x[0] = 3
    return log


@program
def functions_are_the_public_objects(T: Any) -> Any:
    seen = []

    class Asked(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return "taken"

    x = T.ones(2).as_subclass(Asked)
    results = T.add(x, 1), x.add(1), T.nn.functional.softmax(x, 0), x.sum(dim=0), x.shape
    wanted = [T.add, T.Tensor.add, T.nn.functional.softmax, T.Tensor.sum, T.Tensor.shape.__get__]
    return results, [a == b for a, b in zip(seen, wanted, strict=True)]


@program
def metadata_goes_along(T: Any) -> Any:
    Labelled = labelled_class(T)
    x = T.ones(3).as_subclass(Labelled)
    x.label = "image"
    return (x + 1).label, x[1:].label, T.sin(x).label, hasattr(T.ones(2) + 1, "label")


@program
def subclasses_are_asked_before_their_bases(T: Any) -> Any:
    asked: list[str] = []

    def make(base: Any, name: str) -> Any:
        def handler(cls, func, types, args=(), kwargs=None):
            asked.append(cls.__name__)
            return NotImplemented

        return type(base)(name, (base,), {"__torch_function__": classmethod(handler)})

    A = make(T.Tensor, "A")
    B = make(A, "B")
    a, b = T.ones(2).as_subclass(A), T.ones(2).as_subclass(B)
    try:
        T.add(a, b)
    except TypeError:
        asked.append("TypeError")
    return asked


@program
def duck_types_have_tables(T: Any) -> Any:
    handled: dict[Any, Any] = {}

    class Duck:
        def __init__(self, value: float) -> None:
            self.value = value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled:
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    handled[T.mean] = lambda d: d.value
    handled[T.add] = lambda a, b: ("sum", getattr(a, "value", 0), getattr(b, "value", 0))
    T.overrides.is_tensor_like(Duck(1))
    found = [T.mean(Duck(3.0)), T.add(Duck(1.0), Duck(2.0)), T.add(T.ones(1), Duck(2.0))]
    try:
        T.sin(Duck(1.0))
    except TypeError:
        found.append("TypeError")
    return found, T.overrides.is_tensor_like(Duck(1)), T.overrides.is_tensor_like(3)


@program
def modes_see_every_call(T: Any) -> Any:
    log = []

    class Mode(T.overrides.TorchFunctionMode):
        def __init__(self, name: str) -> None:
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((self.name, func.__name__))
            return func(*args, **(kwargs or {}))

    with Mode("outer"):
        a = T.ones(2)
        with Mode("inner"):
            _ = a + 1
        with switches(T).DisableTorchFunction():
            _ = a * 2
        T.sin(a)
    _ = a + 1
    return log


@program
def gradients_pass_through(T: Any) -> Any:
    class Plain(T.Tensor):
        pass

    leaf = T.ones(3, dtype=T.float64, requires_grad=True)
    x = leaf.as_subclass(Plain)
    y = (x * T.arange(3.0, dtype=T.float64)).sum()
    y.backward()
    own = T.ones(2).as_subclass(Plain).requires_grad_()
    (own * 3).sum().backward()
    return leaf.grad.tolist(), type(y).__name__, own.grad.tolist(), own.is_leaf


@program
def modules_and_optimizers_take_them(T: Any) -> Any:
    class Plain(T.Tensor):
        pass

    T.manual_seed(0)
    net = T.nn.Linear(3, 2)
    x = T.ones(4, 3).as_subclass(Plain)
    opt = T.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(round(float(loss.detach()), 5))
    p = T.nn.Parameter(T.ones(2).as_subclass(Plain))
    return losses, type(loss).__name__, isinstance(p, T.nn.Parameter), type(p).__name__


@program
def blocks_switch_it_off(T: Any) -> Any:
    class Plain(T.Tensor):
        pass

    x = T.ones(2).as_subclass(Plain)
    with switches(T).DisableTorchFunctionSubclass():
        inside = type(x + 1).__name__
    return inside, type(x + 1).__name__


@program
def copies_keep_the_class_and_what_it_holds(T: Any) -> Any:
    Labelled = labelled_class(T)
    x = T.ones(3).as_subclass(Labelled)
    x.label = "image"
    x.__deepcopy__  # noqa: B018 - a method that is there
    y = x.clone()
    return type(y).__name__, y.label, y.tolist(), isinstance(x, T.Tensor)


@pytest.mark.skipif(torch is None, reason="compares with PyTorch")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_both_systems_agree(function: Callable[[Any], Any]) -> None:
    assert function(weft) == function(torch)


def test_threads_have_states_of_their_own() -> None:
    found = []

    class Plain(weft.Tensor):
        pass

    x = weft.ones(2).as_subclass(Plain)

    def work() -> None:
        found.append(type(x + 1).__name__)

    with weft.core.overrides.DisableTorchFunctionSubclass():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert type(x + 1) is weft.Tensor
    assert found == ["Plain"]


def test_pickles_and_deep_copies() -> None:
    x = weft.arange(3.0).as_subclass(Pickled)
    x.note = "kept"
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(made) is Pickled and made.note == "kept" and made.tolist() == x.tolist()


def test_files_name_classes_that_are_loaded_only_when_allowed() -> None:
    x = weft.arange(3.0).as_subclass(Pickled)
    file = io.BytesIO()
    weft.save(x, file)
    file.seek(0)
    with pytest.raises(Exception, match="Pickled"):
        weft.load(file)
    file.seek(0)
    with weft.serialization.safe_globals([Pickled]):
        assert type(weft.load(file)) is Pickled


def test_recorded_graphs_know_them() -> None:
    x = weft.arange(3.0).as_subclass(Pickled)
    with weft.graph.record() as g:
        y = (x * 2).sin().sum()
    assert float(g.run()) == float(y)


def test_nothing_is_redirected_without_a_reason() -> None:
    code = """
import weft
from weft.core import overrides
x = weft.ones(2, requires_grad=True)
(weft.add(x, 1) * 2).sum().backward()
weft.optim.Adam(weft.nn.Linear(2, 2).parameters())
assert not overrides.ON and not overrides.REDIRECTED
add, before = weft.add, weft.Tensor.add
class Sub(weft.Tensor):
    pass
assert overrides.ON and weft.add is add and weft.Tensor.add is before
assert type(add(x.as_subclass(Sub), 1)) is Sub
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_signatures_stay() -> None:
    assert weft.overrides.has_torch_function  # importing it switches on
    parameters = inspect.signature(weft.nn.functional.softmax).parameters
    assert list(parameters)[:2] == ["input", "dim"]
