"""Every instruction of the reader of pickles, every fault it names, and what each step costs."""

from __future__ import annotations

import io
import pickle
import struct
from collections import Counter, OrderedDict
from types import SimpleNamespace
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
    name,
    push,
)
from weft import serialization
from weft.core.size import Size
from weft.io.unpickle import Machine

MEMORY = weft.tensor([1.0, 2.0])


def from_outside(found: Any) -> Any:
    """What a persistent id stands for here: the storage of two floats, or the id itself."""
    return MEMORY.storage() if found == "storage" else ("outside", found)


def run(code: bytes, at: int = 0) -> Any:
    return Machine(code, from_outside, at).run()[0]


def same(got: Any, want: Any) -> bool:
    """Equal, and of the same type all the way down."""
    if type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    return got == want or (got != got and want != want)


STORAGE = Raw(push("storage") + b"Q")
TENSOR = call(TENSOR_V2, STORAGE, 0, (2,), (1,), False, None)

VALUES: dict[str, tuple[bytes, Any]] = {
    "none": (b"N.", None),
    "true": (b"\x88.", True),
    "false": (b"\x89.", False),
    "protocol 0": (b"\x80\x00N.", None),
    "highest protocol": (b"\x80\x05N.", None),
    "frame": (b"\x95" + bytes(8) + b"N.", None),
    "int": (b"J\xff\xff\xff\x7f.", 2**31 - 1),
    "negative int": (b"J\x00\x00\x00\x80.", -(2**31)),
    "int of one byte": (b"K\xff.", 255),
    "int of two bytes": (b"M\xfe\xff.", 65534),
    "long": (b"\x8a\x03\x01\x00\x80.", -(2**23) + 1),
    "long of no bytes": (b"\x8a\x00.", 0),
    "long of 200 bytes": (b"\x8a\xc8" + b"\x00" * 199 + b"\x01.", 1 << 1592),
    "long long": (b"\x8b\x02\x00\x00\x00\x00\x01.", 256),
    "negative long long": (b"\x8b\x01\x00\x00\x00\xff.", -1),
    "float": (b"G?\xf8\x00\x00\x00\x00\x00\x00.", 1.5),
    "short text": (b"\x8c\x03\xc3\xa9a.", "éa"),
    "long short text": (b"\x8c\xc8" + b"a" * 200 + b".", "a" * 200),
    "text": (b"X\x02\x00\x00\x00ab.", "ab"),
    "text with a lone surrogate": (b"X\x03\x00\x00\x00\xed\xa0\x80.", "\ud800"),
    "text of 64 bits": (b"\x8d" + struct.pack("<Q", 2) + b"ab.", "ab"),
    "short bytes": (b"C\x02a\xff.", b"a\xff"),
    "bytes": (b"B\x02\x00\x00\x00a\xff.", b"a\xff"),
    "bytes of 64 bits": (b"\x8e" + struct.pack("<Q", 1) + b"a.", b"a"),
    "byte array": (b"\x96" + struct.pack("<Q", 2) + b"ab.", bytearray(b"ab")),
    "short old string": (b"U\x02ab.", "ab"),
    "long short old string": (b"U\xc8" + b"a" * 200 + b".", "a" * 200),
    "old string": (b"T\x02\x00\x00\x00ab.", "ab"),
    "empty list": (b"].", []),
    "empty dict": (b"}.", {}),
    "empty set": (b"\x8f.", set()),
    "empty tuple": (b").", ()),
    "tuple": (b"(K\x01K\x02t.", (1, 2)),
    "tuple of nothing": (b"(t.", ()),
    "inner tuple": (b"K\x07(K\x01t\x86.", (7, (1,))),
    "tuple of one": (b"K\x01\x85.", (1,)),
    "tuple of two": (b"K\x01K\x02\x86.", (1, 2)),
    "tuple of three": (b"K\x01K\x02K\x03\x87.", (1, 2, 3)),
    "append": (b"]K\x01aK\x02a.", [1, 2]),
    "appends": (b"]K\x00a(K\x01K\x02e.", [0, 1, 2]),
    "set item": (b"}K\x01K\x02s.", {1: 2}),
    "set items": (b"}(K\x01K\x02K\x03K\x04u.", {1: 2, 3: 4}),
    "set items of nothing": (b"}(u.", {}),
    "add items": (b"\x8fK\x01\x850(K\x01K\x02\x90.", {1, 2}),
    "frozen set": (b"(K\x01K\x02\x91.", frozenset({1, 2})),
    "pop": (b"K\x01K\x020.", 1),
    "pop of a mark": (b"K\x01(0.", 1),
    "pop to a mark": (b"K\x01(K\x02K\x031.", 1),
    "doubled": (b"K\x012\x86.", (1, 1)),
    "memo": (b"K\x05q\x030h\x03.", 5),
    "memo of 255": (b"K\x05q\xff0h\xff.", 5),
    "long memo": (b"K\x05r\x00\x00\x01\x000j\x00\x00\x01\x00.", 5),
    "memo in order": (b"K\x05\x94K\x06\x94K\x07\x94000h\x01.", 6),
    "memo overwritten": (b"K\x05q\x00K\x06q\x0000h\x00.", 6),
    "persistent": (b"K\x05Q.", ("outside", 5)),
    "name": (b"ctorch\nfloat32\n.", weft.float32),
    "name on the stack": (b"\x8c\x05torch\x8c\x07float32\x93.", weft.float32),
    "python 2's name": (b"c__builtin__\nset\n)R.", set()),
    "ordered dict": (b"ccollections\nOrderedDict\n)R.", OrderedDict()),
    "ordered dict of pairs": (
        push(call(ORDERED, [(1, 2), [3, 4]])) + b".", OrderedDict({1: 2, 3: 4}),
    ),
    "ordered dict of a tuple": (push(call(ORDERED, ((1, 2),))) + b".", OrderedDict({1: 2})),
    "ordered dict of a dict": (push(call(ORDERED, {1: 2})) + b".", OrderedDict({1: 2})),
    "items of an ordered dict": (push(call(ORDERED)) + b"K\x01K\x02s.", OrderedDict({1: 2})),
    "new ordered dict": (b"ccollections\nOrderedDict\n)\x81.", OrderedDict()),
    "new counter": (b"ccollections\nCounter\n)\x81.", Counter()),
    "new set": (b"cbuiltins\nset\n)\x81.", set()),
    "set of a list": (push(call(("builtins", "set"), [1, (2,)])) + b".", {1, (2,)}),
    "set of a tuple": (push(call(("builtins", "set"), (1, 2))) + b".", {1, 2}),
    "set of a set": (push(call(("builtins", "set"), {1, 2})) + b".", {1, 2}),
    "counter of a dict": (push(call(("collections", "Counter"), {1: 2})) + b".", Counter({1: 2})),
    "counter of a text": (push(call(("collections", "Counter"), "aab")) + b".", Counter("aab")),
    "bytes as latin1": (push(call(("_codecs", "encode"), "a\xff", "latin1")) + b".", b"a\xff"),
    "bytes as latin-1": (push(call(("_codecs", "encode"), "\xff", "latin-1")) + b".", b"\xff"),
    "bytes by default": (push(call(("_codecs", "encode"), "\xff")) + b".", b"\xff"),
    "bytearray of bytes": (push(call(("builtins", "bytearray"), b"ab")) + b".", bytearray(b"ab")),
    "bytearray of text": (
        push(call(("builtins", "bytearray"), "\xff", "latin-1")) + b".", bytearray(b"\xff"),
    ),
    "bytearray by default": (
        push(call(("builtins", "bytearray"), "\xff")) + b".", bytearray(b"\xff"),
    ),
    "empty bytearray": (push(call(("builtins", "bytearray"))) + b".", bytearray()),
    "complex": (push(call(("builtins", "complex"), 1.5, -2.0)) + b".", 1.5 - 2j),
    "complex of an int": (push(call(("builtins", "complex"), 3)) + b".", 3 + 0j),
    "complex of nothing": (push(call(("builtins", "complex"))) + b".", 0j),
    "size": (push(call(("torch", "Size"), [1, 2])) + b".", Size([1, 2])),
    "size of a tuple": (push(call(("torch", "Size"), (3,))) + b".", Size([3])),
    "empty size": (push(call(("torch", "Size"))) + b".", Size()),
    "device": (push(call(("torch", "device"), "cpu")) + b".", weft.device("cpu")),
    "numbered device": (push(call(("torch", "device"), "cuda", 3)) + b".", weft.device("cuda", 3)),
    "last device": (push(call(("torch", "device"), "cuda", 32767)) + b".",
                    weft.device("cuda", 32767)),
    "first device": (push(call(("torch", "device"), "cuda", 0)) + b".", weft.device("cuda", 0)),
    "no number": (push(call(("torch", "device"), "cpu", None)) + b".", weft.device("cpu")),
    "layout": (push(call(("torch.serialization", "_get_layout"), "torch.strided")) + b".",
               weft.strided),
}  # fmt: skip


@pytest.mark.parametrize("what", VALUES)
def test_values(what: str) -> None:
    code, want = VALUES[what]
    made, end = Machine(b"##" + code + b"rest", from_outside, 2).run()
    assert same(made, want) and end == 2 + len(code)
    assert same(run(b"K\x07" + code[:-1] + b"\x86."), (7, want))  # with something below it


LONG = "a" * 301

FAULTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cut off: it has no end"),
    "no end": (b"N", "cut off: it has no end"),
    "empty stack at the end": (b".", "in the middle of something"),
    "two values": (b"NN.", "in the middle of something"),
    "mark at the end": (b"(.", "not there"),
    "unknown instruction": (b"NI1\n.", r"instruction b'I' at byte 1 is not one"),
    "instance": (b"(ios\nsystem\n.", "instruction b'i' at byte 1"),
    "protocol": (b"\x80\x06.", "protocol 6 is unknown"),
    "cut int": (b"J\x01\x02\x03", r"refers to 4 bytes at byte 1, but has 4"),
    "cut text": (b"X\x05\x00\x00\x00abcd", r"refers to 5 bytes at byte 5, but has 9"),
    "huge text": (b"\x8d" + b"\xff" * 8 + b".", "cut off"),
    "negative size": (b"\x8b\xff\xff\xff\xff.", "refers to -1 bytes"),
    "negative old string": (b"T\xff\xff\xff\xff.", "refers to -1 bytes"),
    "text that is none": (b"X\x01\x00\x00\x00\xff.", "damaged near byte 6: UnicodeDecodeError"),
    "old string that is none": (b"U\x01\xff.", "damaged near byte 3: UnicodeDecodeError"),
    "name without end": (b"ctorch", "cut off in a name"),
    "name with half an end": (b"ctorch\nSize", "cut off in a name"),
    "pop of nothing": (b"0.", "damaged near byte 1: IndexError"),
    "value behind a mark": (b"K\x01(\x85.", "takes a value that is not there"),
    "no mark": (b"K\x01t.", "no mark where it needs one"),
    "memo of a mark": (b"(q\x00.", "remembers a value that is not there"),
    "memo of nothing": (b"q\x00.", "IndexError"),
    "unknown memo": (b"h\x09.", "reads memo entry 9, which it never stored"),
    "append to a tuple": (b")Na.", "appends to a tuple"),
    "append to a mark": (b"(Na.", "appends to a object"),
    "item of a list": (b"]NNs.", "sets items of a list"),
    "odd items": (b"}(NNNu.", "sets items of a dict"),
    "list as a key": (b"}]Ns.", "TypeError: unhashable"),
    "add to a list": (b"](N\x90.", "adds to a list"),
    "add to a frozen set": (b"(\x91(N\x90.", "adds to a frozenset"),
    "list in a set": (b"\x8f(]\x90.", "unhashable"),
    "list in a frozen set": (b"(]\x91.", "unhashable"),
    "name of a number": (b"K\x01X\x01\x00\x00\x00a\x93.", "name that is not text"),
    "number as a name": (b"X\x01\x00\x00\x00aK\x01\x93.", "name that is not text"),
    "forbidden name": (b"cos\nsystem\n.", "asks for os.system, which is not data"),
    "forbidden name on the stack": (b"\x8c\x02os\x8c\x06system\x93.", "asks for os.system"),
    "python 2's forbidden name": (b"c__builtin__\neval\n.", r"asks for builtins.eval"),
    "python 2's copy_reg": (b"ccopy_reg\n_reconstructor\n.", r"asks for copyreg._reconstructor"),
    "how to allow it": (b"cmy.own\nThing\n.", r"safe_globals\(\[Thing\]\)"),
    "long name": (b"c" + b"b" * 400 + b"\na\n.", r"asks for b{300}\.\.\., which"),
    "name of 300": (b"c" + b"b" * 298 + b"\na\n.", r"asks for b{298}\.a, which"),
    "sparse": (b"ctorch._utils\n_rebuild_sparse_tensor\n.", "kind of tensor that weft does not"),
    "quantised": (b"ctorch._utils\n_rebuild_qtensor\n.", "kind of tensor that weft does not"),
    "of the same name": (b"cmine\n_rebuild_qtensor\n.", r"asks for mine._rebuild_qtensor"),
    "call without a tuple": (b"ccollections\nOrderedDict\n]R.", "without a tuple of arguments"),
    "call of a class": (b"ctorch\nTensor\n)R.", "calls class Tensor, which is not allowed"),
    "call of a value": (b"K\x01)R.", "calls 1, which is not allowed"),
    "new without a tuple": (b"ccollections\nOrderedDict\n]\x81.", "something not a class"),
    "new of a function": (name(*TENSOR_V2) + b")\x81.", "something not a class"),
    "new with arguments": (b"cbuiltins\nset\n(Nt\x81.", "asks for builtins.set"),
    "new tensor": (b"ctorch\nTensor\n)\x81.", r"asks for weft.core.tensor.Tensor"),
    "state of a list": (b"]}b.", r"sets the state of <class 'list'>"),
    "state of nothing": (b"}b.", "IndexError"),
    "copy of a number": (push(call(("builtins", "bytearray"), 1 << 40)) + b".", "copies a int"),
    "copy of a size": (push(call(("builtins", "set"), call(("torch", "Size"), (1,)))) + b".",
                       "copies a Size"),
    "dict of no pairs": (push(call(ORDERED, [1])) + b".", "not in pairs"),
    "dict of triples": (push(call(ORDERED, [(1, 2), (1, 2, 3)])) + b".", "not in pairs"),
    "dict of texts": (push(call(ORDERED, ["ab"])) + b".", "not in pairs"),
    "codec": (push(call(("_codecs", "encode"), "a", "rot13")) + b".", "not for 'rot13'"),
    "no codec": (push(call(("_codecs", "encode"), "a", 1)) + b".", "not for 1"),
    "encoded bytes": (push(call(("_codecs", "encode"), b"a", "latin1")) + b".", "for bytes as"),
    "not latin": (push(call(("_codecs", "encode"), "\u1234")) + b".", "UnicodeEncodeError"),
    "bytearray of a list": (push(call(("builtins", "bytearray"), [1])) + b".", "for bytes as"),
    "bytearray of another codec": (push(call(("builtins", "bytearray"), "a", "utf-16")) + b".",
                                   "not for 'utf-16'"),
    "complex of text": (push(call(("builtins", "complex"), "1")) + b".", "not made of numbers"),
    "complex of a bool": (push(call(("builtins", "complex"), 1.0, True)) + b".",
                          "not made of numbers"),
    "size of floats": (push(call(("torch", "Size"), [1.0])) + b".", "something that is not an int"),
    "size of bools": (push(call(("torch", "Size"), [True])) + b".", "something that is not an int"),
    "size of tensors": (push(call(("torch", "Size"), [1, TENSOR])) + b".", "that is not an int"),
    "device of a number": (push(call(("torch", "device"), 1)) + b".", "has no name"),
    "device of a long name": (push(call(("torch", "device"), LONG)) + b".", "has no name"),
    "device of 300 letters": (push(call(("torch", "device"), LONG[1:])) + b".", "Expected one of"),
    "far device": (push(call(("torch", "device"), "cuda", 32768)) + b".", "has number 32768"),
    "negative device": (push(call(("torch", "device"), "cuda", -1)) + b".", "has number -1"),
    "device of true": (push(call(("torch", "device"), "cuda", True)) + b".", "has number True"),
    "layout of a number": (push(call(("torch.serialization", "_get_layout"), 1)) + b".",
                           "layout 1 is not supported"),
    "too few arguments": (push(call(TYPED, None)) + b".", "ValueError|IndexError|unpack"),
    "typed without a tuple": (
        push(call(TYPED, name(*TENSOR_V2), name("torch", "Tensor"), [], None)) + b".",
        "which is not allowed",
    ),
    "parameter of nothing": (push(call(PARAMETER, None, True, None)) + b".", "holds a NoneType"),
    "not a method": (push(build(call(ORDERED), {"items": 1})) + b".", "not a name"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_faults(what: str) -> None:
    code, message = FAULTS[what]
    with pytest.raises((pickle.UnpicklingError, RuntimeError), match=message):
        run(code)


def test_errors_of_others_pass_through() -> None:
    for kind in (pickle.UnpicklingError, RuntimeError, MemoryError, OSError):

        def fails(found: Any, kind: type = kind) -> Any:
            raise kind("mine")

        with pytest.raises(kind, match=r"^mine$"):
            Machine(b"NQ.", fails).run()

    def wrong(found: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(pickle.UnpicklingError, match="near byte 2: ZeroDivisionError: mine"):
        Machine(b"NQ.", wrong).run()


# ------------------------------------------------------------------ depth


def nested(levels: int, how: str) -> bytes:
    if how == "lists":
        return b"]" * (levels + 1) + b"a" * levels + b"."
    if how == "tuples":
        return b")" + b"\x85" * levels + b"."
    if how == "dicts":
        return b"}" + b"N}" * levels + b"s" * levels + b"."
    if how == "keys":
        return b"})" + b"\x85" * (levels - 1) + b"Ns."
    if how == "frozen sets":
        return b"(\x91" + b"q\x000(h\x00\x91" * levels + b"."
    if how == "sets":
        return b"(\x91" + b"q\x000(h\x00\x91" * (levels - 1) + b"q\x000\x8f(h\x00\x90."
    if how == "states":
        one = push(call(ORDERED)) + b"q\x000"
        step = push(call(ORDERED)) + b"}" + push("a") + b"h\x00sbq\x000"
        return one + step * (levels // 2) + b"h\x00."
    raise AssertionError(how)


@pytest.mark.parametrize("how", ["lists", "tuples", "dicts", "keys", "frozen sets", "sets"])
def test_the_deepest_nesting(how: str) -> None:
    run(nested(1000, how))
    with pytest.raises(pickle.UnpicklingError, match="nested more than 1000 levels"):
        run(nested(1001, how))


@pytest.mark.parametrize("value", [1, 1.5, "x", True, b"x", None], ids=repr)
def test_plain_values_add_no_depth(value: Any) -> None:
    run(b"]" * 1001 + push(value) + b"a" + b"a" * 1000 + b".")
    run(push(value) + b"\x85" + b"\x85" * 1000 + b".")


def test_complex_numbers_add_no_depth() -> None:
    run(b"]" * 1001 + call(("builtins", "complex"), 1.5, 2.5) + b"a" + b"a" * 1000 + b".")


def test_the_deepest_nesting_of_states() -> None:
    run(nested(998, "states"))
    with pytest.raises(pickle.UnpicklingError, match="nested more than 1000 levels"):
        run(nested(1010, "states"))


def test_width_is_no_depth() -> None:
    assert len(run(b"](" + b"]" * 3000 + b"e.")) == 3000
    assert len(run(b"](" + b"K\x01" * 3000 + b"e.")) == 3000
    # The same id may belong to a deep tuple that is gone and to a flat one.
    assert run((b")" + b"\x85" * 900 + b"0") * 50 + b"N.") is None
    assert run(b"](" + (b")" + b"\x85" * 900 + b"0" + b"](K\x01e0") * 20 + b"e.") == []


# ------------------------------------------------------------------ cost


def cost(code: bytes, at: int = 0) -> int:
    machine = Machine(code, from_outside, at)
    before = machine.work
    machine.run()
    return before - machine.work


def test_the_budget_grows_with_the_pickle() -> None:
    for size, at in ((0, 0), (100, 0), (100, 40)):
        machine = Machine(b"N" * size, from_outside, at)
        assert machine.work == 1_000_000 + 8 * (size - at)


PAIR, LARGE = (1, 2), 1 << 64
COSTS: dict[str, tuple[bytes, int]] = {
    "nothing": (b"](K\x01K\x02e.", 0),
    "short text as a key": (push({"a" * 255: 1}) + b".", 0),
    "text as a key": (push({"a" * 256: 1}) + b".", 1),
    "long text as a key": (push({"a" * 1000: 1}) + b".", 3),
    "bytes as a key": (push({b"a" * 512: 1}) + b".", 2),
    "small keys": (push({1: 1, 2.5: 1, None: 1}) + b".", 3),
    "small keys twice": (
        b"}(" + b"".join((push(k) + b"N") * 2 for k in (1, 2.5, None, False)) + b"u.", 8,
    ),
    "bools as keys": (push({True: 1, False: 1}) + b".", 2),
    "an int of 64 bits": (push({LARGE - 1: 1}) + b".", 1),
    "an int of 65 bits": (push({LARGE: 1}) + b".", 2),
    "an int of 6400 bits": (push({1 << 6399: 1}) + b".", 101),
    "a pair": (push({PAIR: 1}) + b".", 3),
    "a pair of small ones": (push({(1.5, None): 1}) + b".", 3),
    "a pair of a pair": (push({(PAIR, 3): 1}) + b".", 5),
    "a pair with text": (push({("a" * 512, b"a" * 256): 1}) + b".", 6),
    "a pair with large ints": (push({(1 << 128, 1): 1}) + b".", 5),
    "the same pair again": (push([{PAIR: 1}, {PAIR: 1}]) + b".", 6),
    "the same pair twice": (b"}(" + (push(PAIR) + b"N") * 2 + b"u.", 3 + 3 + 3),
    "the same pair three times": (b"}(" + (push(PAIR) + b"N") * 3 + b"u.", 9 + 3 + 6),
    "one by one": (b"}" + (push(PAIR) + b"Ns") * 3 + b".", 9 + 3 + 6),
    "two dicts by turns": (
        b"}q\x00}q\x01" + (b"h\x00" + push(PAIR) + b"Ns0h\x01" + push(PAIR) + b"Ns0") * 2
        + b"0.", 12 + 6,
    ),
    "text between pairs": (b"}(" + push(PAIR) + b"N" + push("a") + b"N" + push(PAIR) + b"Nu.", 9),
    "a number between pairs": (b"}(" + push(PAIR) + b"NK\x05N" + push(PAIR) + b"Nu.", 10),
    "two new tables": (
        (b"(" + push(PAIR) + b"\x910") * 2 + push(call(("builtins", "set"), [PAIR])) + b".",
        3 + 3 + 1 + 8 + 3,
    ),
    "a set": (b"\x8f(" + push(PAIR) * 2 + b"\x90.", 6 + 3),
    "a set in two steps": (b"\x8f" + (b"(" + push(PAIR) + b"\x90") * 2 + b".", 6 + 3),
    "a frozen set": (b"(" + push(PAIR) * 2 + b"\x91.", 6 + 3),
    "a frozen set as a key": (b"}(K\x01K\x02\x91Ns.", 2 + 3),
    "a set of a list": (push(call(("builtins", "set"), [1, 2])) + b".", 2 + 16 + 2),
    "a counter of a list": (push(call(("collections", "Counter"), [PAIR, PAIR])) + b".",
                            2 + 16 + 6 + 3),
    "a counter of text": (push(call(("collections", "Counter"), "abc")) + b".", 3 + 24),
    "an ordered dict of pairs": (push(call(ORDERED, [(PAIR, 1)])) + b".", 1 + 8 + 3),
    "an ordered dict of a dict": (push(call(ORDERED, {5: 1, 6: 1})) + b".", 2 + 2 + 16 + 2),
    "a bytearray": (push(call(("builtins", "bytearray"), b"abcd")) + b".", 4),
    "encoded text": (push(call(("_codecs", "encode"), "abcd")) + b".", 4),
    "a size": (push(call(("torch", "Size"), [1, 2, 3])) + b".", 3),
    "no arguments": (push(call(("builtins", "set"))) + b".", 0),
    "a state": (push(build(call(ORDERED), {"a": 1, "b": 2})) + b".", 2 * 64),
    "a state of a tensor": (push(build(TENSOR, ({"a": 1}, {"b": 2}))) + b".", 2 * 64),
    "a parameter with state": (
        push(call(PARAMETER_WITH_STATE, TENSOR, True, None, {"a": 1})) + b".", 64,
    ),
    "a typed tensor": (
        push(call(TYPED, name(*TENSOR_V2), name("torch", "Tensor"),
                  (STORAGE, 0, (2,), (1,), False, None), {"a": 1})) + b".", 64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", COSTS)
def test_costs(what: str) -> None:
    code, want = COSTS[what]
    assert cost(code) == want


def test_the_last_of_the_budget() -> None:
    machine = Machine(b"", from_outside)
    machine._spend(1_000_000)
    assert machine.work == 0
    with pytest.raises(pickle.UnpicklingError, match="much more work"):
        machine._spend(1)


def test_what_is_gone_is_not_paid_for() -> None:
    # A new dict may get the id of one that is gone.
    one = b"}(" + (push(PAIR) + b"N") * 2 + b"u0"
    assert cost(one * 50 + b"N.") == 50 * 9


# ------------------------------------------------------------------ what the user allows


class Plain:
    """A class of the user's."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __new__(cls, *given: Any) -> Any:
        made = object.__new__(cls)
        made.made_with = given
        return made

    @classmethod
    def eight(cls) -> int:
        return 8


class Slots:
    __slots__ = ("a", "b")


class Own:
    """A class that sets its state itself."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Names(dict):
    """A dict of the user's."""


class Rows(list):
    """A list of the user's."""


def twice(value: Any) -> Any:
    return value * 2


def mine(thing: Any) -> Raw:
    return Raw(name(__name__, thing.__name__))


@pytest.fixture
def allowed() -> Any:
    serialization.clear_safe_globals()
    with serialization.safe_globals([Plain, Slots, Own, Names, Rows, twice]):
        yield
    assert serialization.get_safe_globals() == []


def test_allowed_classes_and_functions(allowed: Any) -> None:
    assert run(mine(twice) + b"K\x04\x85R.") == 8
    made = run(mine(Plain) + b"K\x04\x85R.")
    assert type(made) is Plain and made.given == (4,)
    made = run(mine(Plain) + b"K\x04\x85\x81.")
    assert made.made_with == (4,) and not hasattr(made, "given")
    made = run(mine(Plain) + b")\x81" + push({"x": 1, "y": [2]}) + b"b.")
    assert (made.x, made.y) == (1, [2])
    for state in (None, {}, (), (None, None), ({}, {})):
        assert run(mine(Plain) + b")\x81" + push(state) + b"b.").__dict__ == {"made_with": ()}
    made = run(mine(Slots) + b")\x81" + push((None, {"a": 1, "b": 2})) + b"b.")
    assert (made.a, made.b) == (1, 2)
    for state in ({"x": 1}, 5, ({"x": 1}, 2), [1]):
        assert run(mine(Own) + b")\x81" + push(state) + b"b.").state == state
    made = run(mine(Names) + b")RK\x01K\x02s.")
    assert type(made) is Names and made == {1: 2}
    made = run(mine(Rows) + b")RK\x01a.")
    assert type(made) is Rows and made == [1]


def test_states_of_what_is_not_the_first_on_the_stack(allowed: Any) -> None:
    for target in (TENSOR, call(ORDERED), Raw(mine(Plain) + b")\x81")):
        seven, got = run(b"K\x07" + build(target, {"note": 5}) + b"\x86.")
        assert seven == 7 and got.note == 5


def test_a_state_inside_a_state(allowed: Any) -> None:
    inner = (TENSOR, True, None, {"__array_interface__": {}})
    parameter = name("torch.nn.parameter", "Parameter")
    with pytest.raises(RuntimeError, match="__array_interface__"):
        run(push(call(TYPED, name(*PARAMETER_WITH_STATE), parameter, inner, None)) + b".")
    inner = (*inner[:3], {"a": 1})
    made = run(push(call(TYPED, name(*PARAMETER_WITH_STATE), parameter, inner, None)) + b".")
    assert made.a == 1


def test_faults_of_allowed_classes(allowed: Any) -> None:
    new = mine(Slots) + b")\x81"
    for code, message in {
        new + push({"a": 1}) + b"b.": "no attribute '__dict__'",
        new + push((None, {"c": 1})) + b"b.": "'c' is not a slot of",
        new + push((None, {"__class__": 1})) + b"b.": "__class__",
        mine(Plain) + b")\x81" + push({"__dict__": 1}) + b"b.": "__dict__",
        mine(Plain) + b")\x81" + push({1: 2}) + b"b.": "TypeError",
        mine(Plain) + b")\x81" + push(3) + b"b.": "AttributeError",
        mine(Plain) + b")\x81" + push(({}, {}, {})) + b"b.": "AttributeError",
        mine(twice) + b")\x81.": "not a class",
        mine(twice) + b"}b.": "sets the state of <class 'function'>",
    }.items():
        with pytest.raises((pickle.UnpicklingError, RuntimeError), match=message):
            run(code)
    assert cost(mine(Plain) + b")\x81" + push({"x": 1, "y": 2}) + b"b.") == 2 * 64
    assert cost(mine(Plain) + b")\x81" + push(({"x": 1}, None)) + b"b.") == 64


def test_allowed_by_another_name(allowed: Any) -> None:
    with serialization.safe_globals([(twice, "torch.mine.double"), (twice, "other.name")]):
        assert run(b"ctorch.mine\ndouble\nK\x04\x85R.") == 8
        assert run(b"cother\nname\nK\x04\x85R.") == 8
        assert serialization.get_safe_globals().count(twice) == 3
    with pytest.raises(pickle.UnpicklingError, match=r"asks for other.name"):
        run(b"cother\nname\n.")
    # What PyTorch's files call torch.nn.Linear is weft.nn.Linear here.
    with serialization.safe_globals([(twice, "weft.mine.double")]):
        assert run(b"ctorch.mine\ndouble\nK\x04\x85R.") == 8
        with pytest.raises(pickle.UnpicklingError, match=r"asks for torchmine.double"):
            run(b"ctorchmine\ndouble\n.")


FORBIDDEN = ["os", "posix", "nt", "sys", "subprocess", "pty", "importlib", "runpy", "ctypes"]


@pytest.mark.parametrize("module", [*FORBIDDEN, "os.path"])
def test_names_that_stay_forbidden(module: str) -> None:
    with serialization.safe_globals([(twice, f"{module}.run")]):
        with pytest.raises(pickle.UnpicklingError, match=f"module {module} can do anything"):
            run(f"c{module}\nrun\n.".encode())


def test_allowing_is_by_identity(allowed: Any) -> None:
    class Sly:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    sly = Sly()
    with pytest.raises(pickle.UnpicklingError, match="which is not allowed"):
        Machine(b"NQ)R.", lambda found: sly).run()
    method = io.BytesIO(b"abc").read
    with serialization.safe_globals([(method, "my.read"), (Plain().__init__, "my.init")]):
        for other in (io.BytesIO(b"x").read, method.__self__.getvalue, Plain().__init__):
            with pytest.raises(pickle.UnpicklingError, match="which is not allowed"):
                Machine(b"NQ)R.", lambda found, other=other: other).run()
        assert Machine(b"NQ)R.", lambda found: method.__self__.read).run()[0] == b"abc"
    with serialization.safe_globals([(Plain.eight, "my.eight")]):
        assert Machine(b"NQ)R.", lambda found: Plain.eight).run()[0] == 8


def test_allowing_faults_and_endings() -> None:
    for wrong in (3, "x", SimpleNamespace()):
        with pytest.raises(TypeError, match="classes and functions"):
            serialization.add_safe_globals([wrong])
    serialization.add_safe_globals([twice])
    with serialization.safe_globals([Plain]):
        assert serialization.get_safe_globals() == [twice, Plain]
    assert serialization.get_safe_globals() == [twice]
    serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []


def test_attributes_that_the_user_allowed(allowed: Any) -> None:
    for attribute, want in ((mine(twice), twice), (Raw(mine(Plain) + b")R"), Plain)):
        got = run(push(build(TENSOR, {"mine": attribute})) + b".").mine
        assert got is want or type(got) is want
    with pytest.raises(pickle.UnpicklingError, match="'mine' of a Tensor to class Tensor"):
        run(push(build(TENSOR, {"mine": name("torch", "Tensor")})) + b".")


def test_tensors() -> None:
    for made in (run(TENSOR + b"."), run(push(call(PARAMETER, TENSOR, True, None)) + b".")):
        assert made.tolist() == [1.0, 2.0]
        assert np.shares_memory(made.detach().numpy(), MEMORY.numpy())
    kind = Raw(name("torch.nn.parameter", "Parameter"))
    made = run(kind + push((TENSOR, False)) + b"R.")
    assert isinstance(made, weft.nn.Parameter) and not made.requires_grad
