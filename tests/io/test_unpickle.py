"""The reader of pickles: what it builds, what it refuses, and how much it may cost."""

from __future__ import annotations

import ctypes
import io
import pickle
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import weft
from pickle_code import (
    ORDERED,
    PARAMETER,
    PARAMETER_WITH_STATE,
    TENSOR_V2,
    TENSOR_V3,
    TYPED,
    Raw,
    build,
    call,
    file_of,
    limited_memory,
    name,
    old_file_of,
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
    start = time.process_time()
    with limited_memory(), pytest.raises(CLEAR, match=match):
        value_of(value, **storages)
    assert time.process_time() - start < 8


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
    refused(call(TYPED, name(*TENSOR_V2), of(Plain), inner, None), "not a class of tensors")
    got = value_of(call(TYPED, *once))
    assert type(got) is weft.Tensor and got.tolist() == [1.0, 2.0]
    got = value_of(call(TYPED, name(*TENSOR_V2), of(Sub), (*inner[:4], True, None), {"note": 1}))
    assert type(got) is Sub and got.requires_grad and got.is_leaf and got.note == 1


# ------------------------------------------------------------------ what it may cost


def equal_hashes(count: int) -> list[tuple[int, int]]:
    """Pairs of ints whose hashes are all the same."""
    one, two, five = 11400714785074694791, 14029467366897019727, 2870177450012600261
    full = 1 << 64

    def turned(value: int) -> int:
        return ((value << 31) | (value >> 33)) % full * one % full

    goal, back, found, k = 12345678901234567890, pow(two, -1, full), [], 0
    while len(found) < count:
        k += 1
        lane = (goal - turned((five + k * two) % full)) * back % full
        signed = lane - full if lane >> 63 else lane
        if abs(signed) < (1 << 61) - 1 and signed != -1:
            found.append((k, signed))
    return found


PAIRS = equal_hashes(3000)
COMPLEX = [(-1000003.0 * k, float(k)) for k in range(1, 3001)]


def test_the_keys_really_share_a_hash() -> None:
    assert len({hash(pair) for pair in PAIRS}) == 1
    assert len({hash(complex(*pair)) for pair in COMPLEX}) == 1


def as_complex(pair: tuple[float, float]) -> Raw:
    return call(("builtins", "complex"), *pair)


KEYS = {
    "tuples": [Raw(push(pair)) for pair in PAIRS],
    "nested tuples": [Raw(push((pair, 1))) for pair in PAIRS],
    "complex numbers": [as_complex(pair) for pair in COMPLEX],
    "tuples of complex numbers": [Raw(push((as_complex(pair),))) for pair in COMPLEX],
    "frozen sets": [Raw(b"(" + push(pair) + b"\x91") for pair in PAIRS],
    "sizes": [call(("torch", "Size"), pair) for pair in PAIRS],
    "large ints": [Raw(push((2**61 - 1) * k * 2**20)) for k in range(1, 3001)],
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_that_share_a_hash(kind: str) -> None:
    keys = KEYS[kind]
    items = b"".join(keys)
    pairs = b"".join(key + b"N" for key in keys)
    single = b"".join(key + b"Ns" for key in keys)
    tables = {
        "dict": Raw(b"}(" + pairs + b"u"),
        "dict, one by one": Raw(b"}" + single),
        "ordered dict": Raw(call(ORDERED) + b"(" + pairs + b"u"),
        "set": Raw(b"\x8f(" + items + b"\x90"),
        "frozen set": Raw(b"(" + items + b"\x91"),
        "set of a list": call(("builtins", "set"), Raw(b"](" + items + b"e")),
        "counter": call(("collections", "Counter"), Raw(b"](" + items + b"e")),
        "ordered dict of a list": call(
            ORDERED, Raw(b"](" + b"".join(key + b"N\x86" for key in keys) + b"e")
        ),
    }
    for table in tables.values():
        refused(table, "more work")


def test_many_honest_keys() -> None:
    keys = {(k, str(k)): k for k in range(9000)} | {k + 0.5: k for k in range(9000)}
    keys |= {complex(k, k): k for k in range(1000)} | {2**70 + k: k for k in range(5000)}
    file = io.BytesIO()
    weft.save([keys, set(keys), Counter(keys)], file)
    assert load(file.getvalue()) == [keys, set(keys), Counter(keys)]


def test_one_large_key_many_times() -> None:
    large = push(1 << 4_000_000) + b"q\x000"
    refused(Raw(large + b"}(" + b"h\x00N" * 60000 + b"u"), "more work")
    refused(Raw(large + b"}(" + b"h\x00\x85N" * 60000 + b"u"), "more work")
    text = push("x" * 4_000_000) + b"q\x000" + push("x" * 4_000_000) + b"q\x010"
    refused(Raw(text + b"}(" + b"h\x00\x85Nh\x01\x85N" * 60000 + b"u"), "more work")


def test_one_large_state_many_times() -> None:
    state = push({f"a{k}": None for k in range(5000)}) + b"q\x000"
    inner = push((storage(), 0, (2,), (1,), False, call(ORDERED))) + b"q\x010"
    typed = name(*TYPED) + b"(" + name(*TENSOR_V2) + name("torch", "Tensor") + b"h\x01h\x00tR0"
    refused(Raw(state + inner + typed * 1000 + b"N"), "more work")
    with_state = name(*PARAMETER_WITH_STATE) + b"(" + tensor() + b"\x88Nh\x00tR0"
    refused(Raw(state + with_state * 1000 + b"N"), "more work")
    refused(Raw(state + (call(ORDERED) + b"h\x00b0") * 1000 + b"N"), "more work")
    with serialization.safe_globals([Plain]):
        refused(Raw(state + (new(Plain) + b"h\x00b0") * 1000 + b"N"), "more work")
        refused(Raw(state + (new(Plain) + b"h\x00N\x86b0") * 1000 + b"N"), "more work")


@pytest.mark.parametrize("mark", ["neg", "conj"])
@pytest.mark.parametrize("layout", [((1 << 31,), (0,)), ((1 << 16, 1 << 15), (0, 0))])
def test_marked_tensors_are_no_larger_than_their_storage(mark: str, layout: Any) -> None:
    shape, stride = layout
    for data in (
        file_of(tensor(shape, stride, metadata={mark: True}), s0=FLOATS),
        old_file_of(
            tensor(shape, stride, on=storage(2, "0", "FloatStorage", None), metadata={mark: True}),
            s0=(2, FLOATS),
        ),
    ):
        assert len(data) < 1000
        with limited_memory():
            got = load(data)
        assert got.shape == shape and got.stride() == stride
        assert got[(0,) * len(shape)].item() == (-1.0 if mark == "neg" else 1.0)


def test_many_marked_tensors_of_one_storage_share_one_copy() -> None:
    large = np.ones(1 << 20, np.float32).tobytes()
    on = push(storage(1 << 20)) + b"q\x000"
    head = on + name(*TENSOR_V2) + b"q\x010" + push({"neg": True}) + b"q\x020"
    one = b"h\x01(h\x00K\x00" + push((1 << 20,)) + push((1,)) + b"\x89Nh\x02tR"
    with limited_memory():
        got = load(file_of(Raw(head + b"](" + one * 1000 + b"e"), s0=large))
    got[0][0] = 7
    assert len(got) == 1000 and got[999][:2].tolist() == [7.0, -1.0]


def test_marks_in_both_formats() -> None:
    content = np.array([1 + 2j, 3 - 4j], np.complex64)
    for conj in (False, True):
        for neg in (False, True):
            want = content.conj() if conj else content
            want = -want if neg else want
            marks = {"conj": conj, "neg": neg}
            plain = {"on": storage(2, "0", "ComplexFloatStorage"), "metadata": marks}
            got = load(file_of(tensor(**plain), s0=content.tobytes()))
            assert got.tolist() == want.tolist()
            plain["on"] = storage(2, "0", "ComplexFloatStorage", None)
            got = load(old_file_of(tensor(**plain), s0=(2, content.tobytes())))
            assert got.tolist() == want.tolist()
    for marks in ({"neg": 1}, {"conj": "x"}, {"neg": tensor()}):
        refused(tensor(metadata=marks), "marks")
    bools = storage(2, "0", "BoolStorage")
    with pytest.raises(RuntimeError, match="bool"):
        load(file_of(tensor(on=bools, metadata={"neg": True}), s0=b"\0\1"))
    part = storage(2, "0", "FloatStorage", ("v", 1, 1))
    with pytest.raises(RuntimeError, match="only part of its storage"):
        load(old_file_of(tensor((1,), on=part, metadata={"neg": True}), s0=(2, FLOATS)))
    assert load(old_file_of(tensor((1,), on=part), s0=(2, FLOATS))).tolist() == [2.0]


def test_bytes_of_bools() -> None:
    content, want = bytes([0, 1, 2, 255]), [False, True, True, True]
    on = storage(4, "0", "BoolStorage")
    got = load(file_of(tensor((4,), on=on), s0=content))
    assert got.tolist() == want and got.view(weft.uint8).tolist() == [0, 1, 1, 1]
    on = storage(4, "0", "BoolStorage", None)
    got = load(old_file_of(tensor((4,), on=on), s0=(4, content)))
    assert got.view(weft.uint8).tolist() == [0, 1, 1, 1]
    header = b'{"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}'
    file = io.BytesIO(len(header).to_bytes(8, "little") + header + content)
    assert serialization.load_safetensors(file)["a"].view(weft.uint8).tolist() == [0, 1, 1, 1]
    for kind in ("UntypedStorage", "ByteStorage"):
        v3 = call(
            TENSOR_V3, storage(4, "0", kind), 0, (4,), (1,), False, None, name("torch", "bool")
        )
        with pytest.raises(RuntimeError, match="bool"):
            load(file_of(v3, s0=content))


def test_places_in_memory() -> None:
    # A view of bytes may begin anywhere; an array of doubles may not.
    on = storage(17, "0", "UntypedStorage", ("v", 1, 16))
    v3 = call(TENSOR_V3, on, 0, (1,), (1,), False, None, name("torch", "float64"))
    with pytest.raises(RuntimeError, match="misaligned"):
        load(old_file_of(v3, s0=(17, bytes(17))))
    # The stride of a single element means nothing, however large it is.
    assert value_of(tensor((1, 2), ((1 << 62) - 1, 1))).tolist() == [[1.0, 2.0]]
    for shape in ((0, 1 << 61), (1 << 61, 0, 1 << 61)):
        refused(tensor(shape, (1,) * len(shape)), "too large")
    assert value_of(tensor((0, 5), (1, 1))).shape == (0, 5)


def test_requires_grad_of_tensors_and_parameters() -> None:
    assert value_of(tensor(requires_grad=True)).requires_grad
    assert not value_of(tensor(requires_grad=None)).requires_grad
    assert value_of(call(PARAMETER, tensor(), 1, None)).requires_grad
    assert not value_of(call(PARAMETER, tensor(), False, None)).requires_grad
    for wrong in (tensor(), "yes", [1], 1.5):
        refused(tensor(requires_grad=wrong), "requires_grad")
        refused(call(PARAMETER, tensor(), wrong, None), "requires_grad")
