"""The reader of pickles: what it builds, what it refuses, and how much it may cost."""

from __future__ import annotations

import ctypes
import io
import pickle
import time
from typing import Any

import numpy as np
import pytest

import weft
from pickle_code import (
    ORDERED,
    PARAMETER,
    PARAMETER_WITH_STATE,
    TENSOR_V2,
    TYPED,
    Raw,
    build,
    call,
    file_of,
    limited_memory,
    name,
    push,
    storage,
    tensor,
)  # fmt: skip
from weft import nn, serialization
from weft.io.unpickle import Machine

CLEAR = (RuntimeError, pickle.UnpicklingError)
FLOATS = np.array([1, 2], np.float32).tobytes()


def load(data: bytes, **options: Any) -> Any:
    return weft.load(io.BytesIO(data), **options)


def value_of(value: Any, **storages: bytes) -> Any:
    """What a hand-written value loads as."""
    return load(file_of(value, s0=FLOATS, **storages))


def refused(value: Any, match: str = ".", **storages: bytes) -> None:
    start = time.monotonic()
    with limited_memory(), pytest.raises(CLEAR, match=match):
        value_of(value, **storages)
    assert time.monotonic() - start < 8


def machine(code: bytes) -> Any:
    return Machine(code, lambda found: found).run()[0]


# ------------------------------------------------------------------ state

SECRET = ctypes.create_string_buffer(b"not for files to read")
INTERFACE = {
    "version": 3, "typestr": "|u1", "shape": (8,), "data": (ctypes.addressof(SECRET), False),
}  # fmt: skip
PARAMETER_OF = call(PARAMETER, tensor(), True, call(ORDERED))


class Sub(weft.Tensor):
    """A class of tensors of the user's, with a default for an attribute."""

    note = "default"

    def method(self) -> None: ...


class Plain:
    """A class of the user's without a way of its own to set state."""

    note = "default"

    def method(self) -> str:
        return "own"


class Updates(Plain):
    """A class that takes any state, as many do."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__ = state


class Slots:
    __slots__ = ("a",)


class Both(Slots):
    """With slots and a dict."""

    def __init__(self) -> None:
        self.a, self.b = 1, 2


OURS = [Sub, Plain, Updates, Slots, Both]


def of(kind: type) -> Raw:
    return Raw(name(__name__, kind.__qualname__))


def new(kind: type) -> Raw:
    return Raw(of(kind) + b")\x81")


def ways_to_set(state: Any) -> dict[str, Raw]:
    """Every way by which a pickle gives an object a state."""
    inner = (storage(), 0, (2,), (1,), False, call(ORDERED))
    function = name(*TENSOR_V2)
    with_state = name(*PARAMETER_WITH_STATE)
    return {
        "build on a tensor": build(tensor(), state),
        "build on a parameter": build(PARAMETER_OF, state),
        "build on a dict": build(call(ORDERED), state),
        "parameter with state": call(PARAMETER_WITH_STATE, tensor(), True, call(ORDERED), state),
        "typed": call(TYPED, function, name("torch", "Tensor"), inner, state),
        "typed subclass": call(TYPED, function, of(Sub), inner, state),
        "typed with state inside": call(
            TYPED,
            with_state,
            name("torch.nn.parameter", "Parameter"),
            (tensor(), True, call(ORDERED), state),
            None,
        ),
        "build on a subclass": build(call(TYPED, function, of(Sub), inner, None), state),
        "build on an object": build(new(Plain), state),
        "build on an object with a method": build(new(Updates), state),
        "build on an object with slots": build(new(Both), state),
        "build on a module": build(
            Raw(name("torch.nn.modules.linear", "Linear") + b")\x81"), state
        ),
    }


WAYS = list(ways_to_set(None))
DUNDERS = [
    *("__array_interface__", "__array_struct__", "__array_ufunc__", "__array_function__"),
    *("__array__", "__array_priority__", "__array_wrap__", "__array_finalize__", "__copy__"),
    *("__deepcopy__", "__reduce_ex__", "__reduce__", "__setstate__", "__class__", "__dict__"),
    *("__dlpack__", "__buffer__", "__torch_function__", "__len__", "__unheard_of__", "__"),
]


@pytest.fixture
def allowed() -> Any:
    linear = (nn.Linear, "torch.nn.modules.linear.Linear")
    with serialization.safe_globals([*OURS, linear]):
        yield


@pytest.mark.parametrize("way", WAYS)
def test_no_state_leads_numpy_to_foreign_memory(way: str, allowed: Any) -> None:
    for dunder in DUNDERS:
        for state in ({dunder: INTERFACE}, (None, {dunder: INTERFACE}), ({dunder: 1}, None)):
            refused(ways_to_set(state)[way])
    assert value_of(ways_to_set({"note": 5})[way]).note == 5


def test_the_interface_would_read_memory() -> None:
    class Holder:
        pass

    holder = Holder()
    holder.__array_interface__ = INTERFACE
    assert bytes(np.asarray(holder)) == SECRET.raw[:8]


def test_names_that_come_later_into_a_dict_do_not_count(allowed: Any) -> None:
    late = push("__array_interface__") + push(INTERFACE) + b"s0"
    head = push({"a": 1}) + b"q\x000"
    for target in (new(Plain), new(Updates), tensor(), call(ORDERED)):
        got = value_of(Raw(head + target + b"h\x00bh\x00" + late))
        assert got.a == 1
        assert not hasattr(got, "__array_interface__")
    linear = Raw(name("torch.nn.modules.linear", "Linear") + b")\x81")
    state = push({"_parameters": {}, "_modules": {}, "_buffers": Raw(b"h\x00")})
    got = value_of(Raw(head + linear + state + b"bh\x00" + late))
    assert got.a == 1 and not hasattr(got, "__array_interface__")
    for part in ("_parameters", "_modules", "_buffers"):
        refused(build(linear, {part: {"__array_interface__": INTERFACE}}), "special names")


@pytest.mark.parametrize("way", [w for w in WAYS if "tensor" in w or "typed" in w or "dict" in w])
def test_attributes_of_data(way: str, allowed: Any) -> None:
    values: list[Any] = [
        1, 1.5, True, None, "text", b"bytes", (1, 2), [1], {"a": 1}, {3}, tensor(), storage(),
        name("torch", "float32"), call(("torch", "device"), "cpu"), call(("torch", "Size"), (1,)),
        call(ORDERED), new(Plain), of(Plain),
    ]  # fmt: skip
    for value in values:
        assert hasattr(value_of(ways_to_set({"mine": value, "_own": value})[way]), "mine")
    functions = [name("torch", "Tensor"), name(*TENSOR_V2), name(*ORDERED), name("torch", "Size")]
    for value in functions:
        refused(ways_to_set({"mine": value})[way], "not data")
    taken = [
        "_a",
        "grad",
        "shape",
        "_as_parameter_",
        "_repr_html_",
        "a b",
        "",
        "1",
        3,
        None,
        ("x",),
    ]
    taken += ["add_", "numpy", "_node"] if "dict" not in way else ["items", "move_to_end"]
    for attribute in taken if "dict" not in way else taken[3:]:
        refused(ways_to_set({attribute: 1})[way], "not a name")
    if "subclass" in way:
        refused(ways_to_set({"method": 1})[way], "not a name")
    for state in (3, [1], ({}, 3), ({}, {}, {}), "x"):
        refused(ways_to_set(state)[way], "state of an object")
    assert value_of(ways_to_set(({"a": 1}, {"b": 2}))[way]).b == 2


def test_state_of_allowed_classes(allowed: Any) -> None:
    for kind in (Plain, Updates):
        got = value_of(build(new(kind), {"note": 1, "other": [2]}))
        assert (got.note, got.other) == (1, [2])
        refused(build(new(kind), {"method": 1}), "not data")
    assert value_of(build(new(Slots), (None, {"a": 4}))).a == 4
    got = value_of(build(new(Both), ({"b": 5}, {"a": 4})))
    assert (got.a, got.b) == (4, 5)
    for wrong in ("b", "method", "__class__"):
        refused(build(new(Slots), (None, {wrong: 1})))
    refused(build(new(Plain), (None, {"note": 1})), "not a slot")
    refused(build(name("torch", "Size"), {"a": 1}), "sets the state")
    refused(build(call(("collections", "Counter")), {"a": 1}), "sets the state")


def test_the_class_of_a_tensor_is_made_by_tensor_builders_only(allowed: Any) -> None:
    inner = (storage(), 0, (2,), (1,), False, call(ORDERED))
    kind = name("torch", "Tensor")
    once = (name(*TENSOR_V2), kind, inner, None)
    for function in (
        name(*TYPED), name(*ORDERED), name("torch", "Size"), name("torch", "device"), of(Plain),
        name("builtins", "bytearray"), name("builtins", "set"), name("torch", "Tensor"),
    ):  # fmt: skip
        refused(call(TYPED, function, kind, once, None), "not allowed")
        refused(call(TYPED, function, kind, (1 << 40,), None), "not allowed")
    for wrong in (name("builtins", "set"), name(*ORDERED), tensor(), None):
        refused(call(TYPED, name(*TENSOR_V2), wrong, inner, None), "not allowed")
    refused(call(TYPED, name(*TENSOR_V2), of(Plain), inner, None), "no class of tensors")
    got = value_of(call(TYPED, *once))
    assert type(got) is weft.Tensor and got.tolist() == [1.0, 2.0]
    got = value_of(call(TYPED, name(*TENSOR_V2), of(Sub), (*inner[:4], True, None), {"note": 1}))
    assert type(got) is Sub and got.requires_grad and got.is_leaf and got.note == 1
