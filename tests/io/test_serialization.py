"""Files: both ways between weft and PyTorch, hostile ones, damaged ones, and interrupted writes."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import mmap
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
import zoneinfo
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft import serialization
from weft.core.tensor import Parameter
from weft.io.unpickle import Machine

try:
    import torch
except ImportError:  # what weft must withstand is tested without it
    torch = None
with_torch = pytest.mark.skipif(torch is None, reason="compares with PyTorch")
LIBRARIES = [weft] if torch is None else [weft, torch]
TENSORS = tuple(library.Tensor for library in LIBRARIES)

OLD_TYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
)
NEW_TYPES = "uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
CLEAR = (RuntimeError, pickle.UnpicklingError)


def save_bytes(obj: Any, library: Any = weft, **options: Any) -> bytes:
    file = io.BytesIO()
    library.save(obj, file, **options)
    return file.getvalue()


def load_bytes(data: bytes, library: Any = weft, **options: Any) -> Any:
    return library.load(io.BytesIO(data), **options)


def everything(t: Any, types: str) -> dict[str, Any]:
    """All that a checkpoint may hold, made with either library."""
    base = t.arange(6.0)
    parameter = t.nn.Parameter if t is torch else Parameter
    marked = t.ones(2)
    marked.note = "mine"
    found = {
        "base": base, "view": base[2:4], "transposed": t.arange(6).reshape(2, 3).t(),
        "expanded": t.ones(1).expand(5), "empty": t.empty(0, 3), "scalar": t.tensor(3),
        "parameter": parameter(t.ones(2)), "frozen": parameter(t.ones(2), requires_grad=False),
        "leaf": t.ones(2, requires_grad=True), "computed": t.ones(2, requires_grad=True) * 2,
        "marked": marked, "size": t.Size([1, 2]), "device": t.device("cpu"), "layout": t.strided,
        "set": {1, (2, 3)}, "ordered": OrderedDict(b=1, a=2), "counter": Counter("aab"),
        "bytes": b"x\xff", "bytearray": bytearray(b"1"), "complex": 1 + 2j, "none": None,
        "ints": [0, 255, 256, 65536, -1, -(2**31), 2**40, 2**80, -(2**80)],
        "numbers": [1, 2.5, True, None] * 600, "floats": (1.5, float("inf")), "text": "naïve ✓",
        "nested": {"a": [{"b": (1, [2])}]},
        1: "int key", (1, 2): "tuple key", None: "no key",
    }  # fmt: skip
    for name in types.split():
        values = found[name] = t.arange(5).to(getattr(t, name))
        found[f"{name} view"], found[f"{name} type"] = values[1:3], getattr(t, name)
    return found


def check_equal(got: Any, want: Any, where: str = "") -> None:
    if isinstance(want, TENSORS):
        assert str(got.dtype) == str(want.dtype), where
        assert tuple(got.shape) == tuple(want.shape), where
        assert got.requires_grad == want.requires_grad, where
        assert got.is_leaf, where
        assert got.tolist() == want.tolist(), where
        assert type(got).__name__ == type(want).__name__, where
        if want.numel():
            assert got.stride() == want.stride(), where
            assert got.storage_offset() == want.storage_offset(), where
    elif isinstance(want, dict):
        assert type(got) is type(want) and list(got) == list(want), where
        for key in want:
            check_equal(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, (int, float, str, bytes, set, bytearray, complex)):
        assert type(got) is type(want) and got == want, where
    else:
        assert repr(got) == repr(want), where


WAYS = [
    pytest.param(a, b, zipped, id=f"{a.__name__} to {b.__name__}{'' if zipped else ', old'}")
    for a in LIBRARIES
    for b in LIBRARIES
    for zipped in (True, False)
    if weft in (a, b)
]


@pytest.mark.parametrize(("writer", "reader", "zipped"), WAYS)
def test_everything_goes_both_ways(writer: Any, reader: Any, zipped: bool) -> None:
    # PyTorch can't read the newer dtypes in the older format, not even its own.
    types = OLD_TYPES if reader is torch and not zipped else f"{OLD_TYPES} {NEW_TYPES}"
    data = save_bytes(everything(writer, types), writer, _use_new_zipfile_serialization=zipped)
    for safely in (True, False):
        got = load_bytes(data, reader, weights_only=safely)
        check_equal(got, everything(LIBRARIES[-1], types))
        assert got["marked"].note == "mine"
        got["view"][0] = 99.0
        assert got["base"][2].item() == 99.0
        for name in types.split():
            got[f"{name} view"][0] = 0
            assert got[name][1].item() == 0, name


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(protocol: int) -> None:
    want = load_bytes(save_bytes(everything(weft, OLD_TYPES)))
    for library in LIBRARIES:
        data = save_bytes(everything(library, OLD_TYPES), library, pickle_protocol=protocol)
        check_equal(load_bytes(data), want)


@with_torch
def test_optimizer_states() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    got = load_bytes(save_bytes(state, torch))
    check_equal(got, state)
    check_equal(load_bytes(save_bytes(got), torch), state)


def test_shared_memory_stays_shared_and_is_written_once() -> None:
    base = weft.zeros(1000)
    data = save_bytes([base, base, base[1:], base.view(10, 100).t(), [base]])
    assert len(data) < 2 * 4000
    a, b, c, d, (e,) = load_bytes(data)
    assert a is b and a is e
    c[0] = 5.0
    assert a[1].item() == 5.0 and d[1, 0].item() == 5.0
    with pytest.raises(RuntimeError, match="different types"):
        save_bytes([base, base.view(weft.int32)])


@with_torch
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_cycles_and_storages() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    got = load_bytes(save_bytes(loop))
    assert got[1] is got
    storage = load_bytes(save_bytes(torch.arange(3, dtype=torch.int16).untyped_storage(), torch))
    assert bytes(storage.tolist()) == np.arange(3, dtype=np.int16).tobytes()
    data = save_bytes(weft.arange(3).untyped_storage())
    for library in (weft, torch):
        assert bytes(load_bytes(data, library).tolist()) == np.arange(3).tobytes()


@with_torch
def test_conjugated_tensors_of_pytorch() -> None:
    value = torch.tensor([1 + 2j, 3 - 1j])
    assert load_bytes(save_bytes(value.conj(), torch)).tolist() == value.conj().tolist()
    assert load_bytes(save_bytes(value.conj().imag, torch)).tolist() == [-2.0, 1.0]


@with_torch
def test_paths_file_objects_and_positions(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    for target in (path, str(path)):
        weft.save(weft.ones(2), target)
        assert weft.load(target).tolist() == torch.load(target).tolist() == [1.0, 1.0]
    with open(path, "wb") as file:
        weft.save(weft.zeros(2), file)
    with open(path, "rb") as file:
        assert weft.load(file).tolist() == [0.0, 0.0]
    stream = io.BytesIO(b"before" + path.read_bytes())
    stream.seek(6)
    assert weft.load(stream).tolist() == [0.0, 0.0]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert {"archive/data.pkl", "archive/byteorder", "archive/version", "archive/data/0",
            "archive/.format_version", "archive/.storage_alignment"} == set(names)  # fmt: skip
    for wrong in (3, None):
        with pytest.raises(AttributeError):
            weft.save(1, wrong)
        with pytest.raises(AttributeError):
            weft.load(wrong)
    with pytest.raises(FileNotFoundError):
        weft.load(tmp_path / "absent.pt")
    with pytest.raises(RuntimeError, match="Parent directory"):
        weft.save(1, tmp_path / "absent" / "x.pt")


def test_records_begin_at_multiples_of_64(tmp_path: Path) -> None:
    data = save_bytes([weft.full((n,), float(n)) for n in range(1, 9)])
    for n in range(1, 9):
        assert data.find(struct.pack("<f", n) * n) % 64 == 0


@with_torch
@pytest.mark.parametrize("writer", LIBRARIES)
def test_mmap(tmp_path: Path, writer: Any) -> None:
    path = tmp_path / "m.pt"
    writer.save({"a": writer.arange(1000.0), "b": writer.ones(3).to(writer.bfloat16)}, path)
    got = weft.load(path, mmap=True)
    assert got["a"].tolist() == list(range(1000)) and got["b"].tolist() == [1.0] * 3
    before = path.read_bytes()
    got["a"].zero_()  # a private copy
    weft.save(got, path)
    assert path.read_bytes() != before and weft.load(path)["a"].sum().item() == 0
    with pytest.raises(ValueError, match="file path"):
        weft.load(io.BytesIO(before), mmap=True)
    torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap"):
        weft.load(path, mmap=True)


def test_map_location() -> None:
    data = save_bytes(weft.ones(2))
    moved = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00gpu")
    moved = repaired(moved)
    seen = []
    for place in ("cpu", weft.device("cpu"), {"gpu": "cpu"}, lambda s, loc: seen.append(loc) or s):
        assert load_bytes(moved, map_location=place).tolist() == [1.0, 1.0]
    assert seen == ["gpu"]
    for place in (None, "cuda", {"cpu": "gpu"}, lambda s, loc: None):
        with pytest.raises(RuntimeError, match=r"map_location=torch\.device"):
            load_bytes(moved, map_location=place)
    assert load_bytes(data, map_location=lambda s, loc: None).tolist() == [1.0, 1.0]


def repaired(data: bytes) -> bytes:
    """The same archive with right checksums."""
    return archive_of(records_of(data))


def records_of(data: bytes) -> dict[str, bytes]:
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            start = (
                info.header_offset
                + 30
                + sum(struct.unpack_from("<2H", data, info.header_offset + 26))
            )
            found[info.filename.partition("/")[2]] = data[start : start + info.file_size]
    return found


def archive_of(records: dict[str, bytes], folder: str = "archive", method: int = 0) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in records.items():
            archive.writestr(f"{folder}/{name}", content)
    return file.getvalue()


def pickled(code: bytes, **records: bytes) -> bytes:
    """A file with this pickle in it."""
    more = {name.replace("_", "/"): content for name, content in records.items()}
    return archive_of({"data.pkl": code, "byteorder": b"little", "version": b"3\n", **more})


def test_big_endian_files() -> None:
    records = records_of(save_bytes([weft.arange(3), weft.tensor([1 + 2j])]))
    records["byteorder"] = b"big"
    records["data/0"] = np.arange(3, dtype=">i8").tobytes()
    records["data/1"] = np.array([1 + 2j], dtype=">c8").tobytes()
    a, b = load_bytes(archive_of(records))
    assert a.tolist() == [0, 1, 2] and b.tolist() == [1 + 2j]
    records["byteorder"] = b"middle"
    with pytest.raises(RuntimeError, match="byte order"):
        load_bytes(archive_of(records))


@with_torch
def test_checksums_can_be_left_out() -> None:
    torch.serialization.set_crc32_options(False)
    serialization.set_crc32_options(False)
    try:
        files = [save_bytes(t.ones(2), t) for t in (weft, torch)]
        assert serialization.get_crc32_options() is False
    finally:
        torch.serialization.set_crc32_options(True)
        serialization.set_crc32_options(True)
    for data in files:
        for library in (weft, torch):
            assert load_bytes(data, library).tolist() == [1.0, 1.0]


# ------------------------------------------------------------------ code in files


class Evil:
    """Pickles as a call of anything."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


class Owned:
    """A class of the user's, with a state."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


class Slotted:
    __slots__ = ("a", "b")


def marker(path: str) -> None:
    Path(path).write_text("it ran")


def hostile(path: str) -> dict[str, bytes]:
    """Pickles that would run something, each by another way."""
    shell = f"echo ran > {path}"
    code = f"open({path!r}, 'w').write('ran')"
    dumped = {
        "os.system": Evil(os.system, shell),
        "subprocess": Evil(subprocess.check_call, ["sh", "-c", shell]),
        "eval": Evil(eval, code),
        "exec": Evil(exec, code),
        "open": Evil(open, path, "w"),
        "getattr": Evil(getattr, "x", "upper"),
        "import": Evil(__import__, "os"),
        "map": Evil(map, marker, [path]),
        "own function": Evil(marker, path),
        "chain": Evil(getattr, Evil(__import__, "os"), "system"),
        "in a list": [1, {"a": (Evil(marker, path),)}],
        "as a dict key": {Evil(marker, path): 1},
        "bytes by zip": Evil(__import__("codecs").decode, b"x", "zip"),
        "object": Owned(),
        "slots": Slotted(),
        "numpy array": np.ones(2),
        "exception": ValueError("x"),
        "defaultdict": defaultdict(list),
        "weft function": Evil(weft.load, path),
        "weft class": Evil(weft.Generator),
        "partial": __import__("functools").partial(marker, path),
    }
    found = {
        f"{name}, protocol {p}": pickle.dumps(obj, p)
        for name, obj in dumped.items()
        for p in (0, 1, 2, 4, 5)
        if p > 1 or name != "slots"
    }
    quoted = path.encode()
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n"
    found |= {
        "INST": b"(S'" + quoted + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nS'x'\no.",
        "dotted name": b"\x80\x04\x8c\x05torch\x8c\x0fTensor.__init__\x93.",
        "dotted builtin": b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.fromkeys\x93.",
        "dunder of a type": b"\x80\x04\x8c\x05torch\x8c\x10Size.__class__.x\x93.",
        "extension": b"\x82\x01.",
        "persistent text": b"Pos.system\n.",
        "persistent non-tuple": b"X\x02\x00\x00\x00osQ.",
        "set attribute of a class": b"ctorch\nTensor\n}X\x05\x00\x00\x00shapeK\x01sb.",
        "set attribute of a function": tensor + b"}X\x08\x00\x00\x00__code__K\x01sb.",
        "slots of a class": b"ctorch\nTensor\n(N}X\x05\x00\x00\x00shapeK\x01stb.",
        "new function": tensor + b")\x81.",
        "new tensor": b"ctorch\nTensor\n)\x81.",
        "call a class": b"ctorch\nTensor\n(K\x01tR.",
        "call a dtype": b"ctorch\nfloat32\n)R.",
        "call a result": b"ccollections\nOrderedDict\n)R)R.",
        "codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
        "new builtin": b"c__builtin__\nset\n(K\x01t\x81.",
        "typed by a class": b"ctorch._tensor\n_rebuild_from_type_v2\n(c__builtin__\nset\nctorch\n"
        b"Tensor\n)NtR.",
        "typed by itself": b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n"
        b"_rebuild_from_type_v2\nctorch\nTensor\n)NtR.",
        "typed into a builtin": b"ctorch._tensor\n_rebuild_from_type_v2\n(" + tensor
        + b"c__builtin__\nset\n)NtR.",
    }  # fmt: skip
    return found


@pytest.mark.parametrize("old", [False, True])
def test_no_code_runs(tmp_path: Path, old: bool) -> None:
    trace = tmp_path / "trace"
    head = save_bytes(weft.ones(1), _use_new_zipfile_serialization=False)
    head = head[: head.index(b"ctorch._utils") - 2]
    for name, code in hostile(str(trace)).items():
        data = head + code if old else pickled(code)
        with pytest.raises(CLEAR) as caught:
            load_bytes(data)
        assert not trace.exists(), name
        assert str(caught.value), name
    assert "shape" not in vars(weft.Tensor) or isinstance(vars(weft.Tensor)["shape"], property)


@pytest.mark.parametrize("name", ["os.system", "eval", "exec", "own function", "in a list"])
def test_the_hostile_files_are_alive(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "trace"
    load_bytes(pickled(hostile(str(trace))[f"{name}, protocol 2"]), weights_only=False)
    assert trace.exists()


def test_a_refusal_says_what_and_how_to_allow_it() -> None:
    with pytest.raises(pickle.UnpicklingError) as caught:
        load_bytes(save_bytes(Owned(3)))
    text = str(caught.value)
    assert f"{__name__}.Owned" in text
    assert "add_safe_globals([Owned])" in text and "weights_only=False" in text


def test_allowing_classes() -> None:
    data = save_bytes({"x": Owned(3), "t": weft.ones(1)})
    slotted = Slotted()
    slotted.a = 4
    serialization.clear_safe_globals()
    with serialization.safe_globals([Owned, Slotted]):
        assert load_bytes(data)["x"].value == 3
        assert load_bytes(save_bytes(slotted)).a == 4
        assert serialization.get_safe_globals() == [Owned, Slotted]
    assert serialization.get_safe_globals() == []
    with pytest.raises(pickle.UnpicklingError):
        load_bytes(data)
    serialization.add_safe_globals([(Owned, f"{__name__}.Owned")])
    assert load_bytes(data)["x"].value == 3
    serialization.clear_safe_globals()
    with serialization.safe_globals([os.system, (os.system, "posix.system")]):
        with pytest.raises(pickle.UnpicklingError, match="refused even"):
            load_bytes(pickled(pickle.dumps(Evil(os.system, "true"), 2)))
    with pytest.raises(TypeError):
        serialization.add_safe_globals([3])


def test_trusting_is_explicit(tmp_path: Path) -> None:
    data = save_bytes([Owned(3), np.ones(2), weft.ones(2)])
    got = load_bytes(data, weights_only=False)
    assert got[0].value == 3 and got[1].tolist() == got[2].tolist() == [1.0, 1.0]
    assert load_bytes(data, pickle_module=pickle)[0].value == 3
    with pytest.raises(RuntimeError, match="pickle_module"):
        load_bytes(data, pickle_module=pickle, weights_only=True)


# ------------------------------------------------------------------ files made to hurt


def tensor_code(
    shape: bytes = b"K\x02",
    stride: bytes = b"K\x01",
    offset: bytes = b"K\x00",
    count: bytes = b"K\x02",
    key: bytes = b"0",
    kind: bytes = b"FloatStorage",
) -> bytes:
    text = b"X" + struct.pack("<I", len(key)) + key
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n" + kind
        + b"\n" + text + b"X\x03\x00\x00\x00cpu" + count + b"tQ" + offset + b"(" + shape + b"t("
        + stride + b"t\x89ccollections\nOrderedDict\n)RtR."
    )  # fmt: skip


HUGE = b"\x8a\x06\x00\x00\x00\x00\x00\x01"  # 2 ** 40


@with_torch
def test_the_hand_made_tensor_is_right() -> None:
    data = pickled(tensor_code(), data_0=np.array([1, 2], np.float32).tobytes())
    assert load_bytes(data).tolist() == load_bytes(data, torch).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "options",
    [
        {"count": HUGE},
        {"shape": HUGE},
        {"shape": HUGE * 5, "stride": b"K\x00" * 5},
        {"shape": b"K\x02", "stride": HUGE},
        {"offset": HUGE},
        {"offset": b"J\xff\xff\xff\xff"},
        {"stride": b"J\xff\xff\xff\xff"},
        {"shape": b"J\xff\xff\xff\xff"},
        {"count": b"J\xff\xff\xff\xff"},
        {"shape": b"K\x02K\x01"},
        {"shape": b"K\x01" * 70, "stride": b"K\x01" * 70},
        {"shape": b"G?\xf0\x00\x00\x00\x00\x00\x00"},
        {"shape": b"\x88"},
        {"key": b"1"},
        {"key": b"../data.pkl"},
        {"kind": b"DoubleStorage"},
        {"kind": b"QInt8Storage"},
        {"kind": b"float32"},
    ],
)
def test_tensors_that_reach_too_far(options: dict[str, bytes]) -> None:
    content = np.array([1, 2], np.float32).tobytes()
    with limited_memory(), pytest.raises(CLEAR):
        load_bytes(pickled(tensor_code(**options), data_0=content))


class limited_memory:
    """At most 1 GiB more than now."""

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (size, self.before[1]))

    def __exit__(self, *exc: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.before)


WIDE = b"]" + b"q\x00]h\x00ah\x00a" * 60  # a list whose repr has 2 ** 60 brackets
LARGE = b"\x8b" + struct.pack("<i", 100000) + b"\x7f" * 100000

BOMBS = {
    "deep lists": b"]" * 200000 + b"a" * 199999 + b".",
    "deep tuples": b")" + b"\x85" * 200000 + b".",
    "deep tuple as key": b"}" + b")" + b"\x85" * 200000 + b"Ns.",
    "deep dicts": b"}" + b"K\x00}" * 100000 + b"s" * 100000 + b".",
    "wide key": b"})" + b"q\x00h\x00\x86" * 60 + b"Ns.",
    "wide key in a set": b"c__builtin__\nset\n](K\x01)" + b"q\x00h\x00\x86" * 60 + b"e\x85R.",
    "deep by the memo": b"]q\x00" + b"]h\x00aq\x00" * 100000 + b".",
    "many copies": b"c__builtin__\nset\nq\x00]q\x01(" + b"".join(
        b"M" + struct.pack("<H", i) for i in range(60000)
    ) + b"e0](" + b"h\x00h\x01\x85R" * 40000 + b"e.",
    "many byte copies": b"c__builtin__\nbytearray\nq\x00B" + struct.pack("<I", 1 << 20)
    + b"x" * (1 << 20) + b"\x85q\x010](" + b"h\x00h\x01R" * 20000 + b"e.",
    "terabyte of bytes": b"c__builtin__\nbytearray\n" + HUGE + b"\x85R.",
    "long bytes": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "long text": b"X\xff\xff\xff\xff.",
    "long int": b"\x8b\xff\xff\xff\x7f.",
    "negative int": b"\x8b\xff\xff\xff\xff.",
    "long frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "far memo": b"Nr\xff\xff\xff\xff" * 10 + b"000000000h\x05.",
    "keys of one hash": b"}(" + b"".join(
        b"\x8a\x0c" + ((2**61 - 1) * k * 2**20).to_bytes(12, "little") + b"N"
        for k in range(1, 20000)
    ) + b"u.",
    "equal long keys": b"}(" + b"X\x00\x00\x40\x00" + b"a" * (1 << 22) + b"q\x00NX\x00\x00\x40\x00"
    + b"a" * (1 << 22) + b"q\x01N" + b"h\x00Nh\x01N" * 200000 + b"u.",
    "endless repr as shape": b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00)" + WIDE
    + b"\x89NtR.",
    "endless repr as storage": WIDE + b"Q.",
    "endless repr as key": b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + WIDE
    + b"X\x03\x00\x00\x00cpuK\x02tQ.",
    "endless repr as shape of a tensor": tensor_code(shape=WIDE),
    "endless repr as dtype": tensor_code(kind=b"float32\n0" + WIDE + b"N0N0c__builtin__\nset"),
    "call of an endless repr": WIDE + b")R.",
    "endless repr in a dict": b"ccollections\nOrderedDict\n)RN" + WIDE + b"sQ.",
    "endless repr as device": b"ctorch\ndevice\n" + WIDE + b"\x85R.",
    "endless repr as codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00a" + WIDE + b"tR.",
    "endless repr as layout": b"ctorch.serialization\n_get_layout\n" + WIDE + b"\x85R.",
    "heavy keys in copies": b"})" + b"q\x00h\x00\x86" * 18 + b"Nsq\x010]ccollections\nOrderedDict\n"
    b"q\x02" + b"h\x02h\x01\x85R0" * 100000 + b".",
    "large numbers": tensor_code(shape=LARGE * 60, stride=LARGE * 60),
    "methods of a dict": b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsNsb.",
    "no end": b"N",
    "nothing": b"",
    "only end": b".",
    "two values": b"NN.",
    "mark at the end": b"(.",
    "empty pops": b"0.",
    "append to nothing": b"Na.",
    "append to text": b"X\x01\x00\x00\x00aNa.",
    "items of a list": b"]NNs.",
    "odd items": b"}(Nu.",
    "list as key": b"}]Ns.",
    "unknown memo": b"h\x09.",
    "memo of a mark": b"(q\x00h\x00.",
    "bad text": b"X\x01\x00\x00\x00\xff.",
    "bad name": b"c\xff\n\xff\n.",
    "name without end": b"ctorch",
    "bad protocol": b"\x80\xff.",
    "call without tuple": b"ccollections\nOrderedDict\nNR.",
    "bad size": b"ctorch\nSize\n(K\x01K\x02tR.",
    "bad device": b"ctorch\ndevice\nX\x05\x00\x00\x00bogus\x85R.",
    "bad layout": b"ctorch.serialization\n_get_layout\nN\x85R.",
    "parameter of nothing": b"ctorch._utils\n_rebuild_parameter\n(N\x88NtR.",
    "tensor on nothing": b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89NtR.",
    "sparse": b"ctorch._utils\n_rebuild_sparse_tensor\n)R.",
    "behind the end": b"N.N.",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_pickles_made_to_hurt(name: str) -> None:
    start = time.process_time()
    with limited_memory(), pytest.raises(CLEAR):
        load_bytes(pickled(BOMBS[name]))
    assert time.process_time() - start < 8


def test_long_but_honest_files_load() -> None:
    value = {
        "list": list(range(100000)), "keys": {(i, str(i)): i for i in range(20000)},
        "set": set(range(50000)), "deep": None, "long": "x" * 1000000,
    }  # fmt: skip
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    value["deep"] = deep
    assert load_bytes(save_bytes(value)) == value


# ------------------------------------------------------------------ archives made to hurt


def raw_zip(entries: list[tuple[bytes, bytes]], **tricks: Any) -> bytes:
    """A stored zip in which single numbers can be lies."""
    body, directory = b"", b""
    for number, (name, content) in enumerate(entries):
        crc = __import__("zlib").crc32(content)
        place = tricks.get("places", {}).get(number, len(body))
        size = tricks.get("sizes", {}).get(number, len(content))
        flags, method = tricks.get("flags", 0), tricks.get("method", 0)
        body += struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, method, 0, 33, crc, len(content),
                            len(content), len(name), 0) + name + content  # fmt: skip
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\1\2", 20, 20, flags, method, 0, 33, crc, size, size, len(name), 0,
            0, 0, 0, 0, place,
        ) + name  # fmt: skip
    count = tricks.get("count", len(entries))
    return body + directory + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, count, count, tricks.get("length", len(directory)),
        tricks.get("start", len(body)), 0,
    )  # fmt: skip


GOOD = [(b"a/data.pkl", b"\x80\x02N."), (b"a/version", b"3\n"), (b"a/data/0", b"12345678")]


def test_the_hand_made_archive_is_right() -> None:
    assert load_bytes(raw_zip(GOOD)) is None


ARCHIVES = {
    "twice": raw_zip([*GOOD, (b"a/data.pkl", b"\x80\x02N.")]),
    "parent folder": raw_zip([*GOOD, (b"a/../../etc/passwd", b"x")]),
    "absolute": raw_zip([*GOOD, (b"/etc/passwd", b"x")]),
    "backslash": raw_zip([*GOOD, (b"a\\b/c", b"x")]),
    "null": raw_zip([*GOOD, (b"a/b\0", b"x")]),
    "not text": raw_zip([*GOOD, (b"a/\xff", b"x")]),
    "two folders": raw_zip([*GOOD, (b"b/x", b"x")]),
    "no folder": raw_zip([(b"data.pkl", b"N.")]),
    "no pickle": raw_zip(GOOD[1:]),
    "overlap": raw_zip(GOOD, places={2: 0}),
    "one record, two names": raw_zip([*GOOD, (b"a/data/1", b"")], places={3: 0}),
    "too large": raw_zip(GOOD, sizes={0: 1 << 31}),
    "too large at the end": raw_zip(GOOD, sizes={2: 1 << 30}),
    "outside": raw_zip(GOOD, places={0: 1 << 31}),
    "encrypted": raw_zip(GOOD, flags=1),
    "compressed": archive_of({"data.pkl": b"N." + b"\0" * 10000}, method=zipfile.ZIP_DEFLATED),
    "odd method": raw_zip(GOOD, method=99),
    "many": raw_zip(GOOD, count=65000),
    "few": raw_zip(GOOD, count=1),
    "long directory": raw_zip(GOOD, length=1 << 31),
    "far directory": raw_zip(GOOD, start=1 << 31),
    "empty": raw_zip([]),
    "something in front": b"#!/bin/sh\n" + raw_zip(GOOD),
    "something behind": raw_zip(GOOD) + b"x",
    "script": archive_of({"constants.pkl": b"N.", "data.pkl": b"N."}),
    "64-bit lie": raw_zip(GOOD)[:-22]
    + struct.pack("<4sLQL", b"PK\6\7", 0, 1 << 62, 1) + raw_zip(GOOD)[-22:],
    "wrong name inside": raw_zip(GOOD).replace(b"a/data.pkl", b"a/DATA.pkl", 1),
    "wrong checksum": raw_zip(GOOD).replace(b"\x80\x02N.", b"\x80\x03N.", 1),
    "end only": b"PK\5\6" + b"\0" * 18,
    "start only": b"PK\3\4",
    "half a word": b"PK",
    "text": b"hello, world",
    "nothing": b"",
    "tar": b"\0" * 1024,
    "bare pickle": pickle.dumps({"a": 1}),
    "bare hostile pickle": pickle.dumps(Evil(os.system, "true")),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_made_to_hurt(name: str, tmp_path: Path) -> None:
    with limited_memory(), pytest.raises(CLEAR):
        load_bytes(ARCHIVES[name])
    path = tmp_path / "x.pt"
    path.write_bytes(ARCHIVES[name])
    with pytest.raises(CLEAR):
        weft.load(path)


# ------------------------------------------------------------------ damage


SAMPLE = {"w": weft.arange(30.0), "b": weft.ones(3, dtype=weft.int16), "lr": 0.5, "name": "net"}
FILES = {
    "ours": save_bytes(SAMPLE),
    "theirs": save_bytes(
        {"w": LIBRARIES[-1].arange(30.0), "b": LIBRARIES[-1].ones(3), "n": [1, (2, "x")]},
        LIBRARIES[-1],
    ),
    "old": save_bytes(SAMPLE, _use_new_zipfile_serialization=False),
}
LOADED = {name: load_bytes(data) for name, data in FILES.items()}
few = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("name", FILES)
@few
@given(data=st.data())
def test_cut_off_files_are_refused(name: str, data: Any) -> None:
    whole = FILES[name]
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CLEAR):
        load_bytes(whole[:end])


@pytest.mark.parametrize("name", ["ours", "theirs"])
@few
@given(data=st.data())
def test_flipped_bits_are_noticed_or_harmless(name: str, data: Any) -> None:
    damaged = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        got = load_bytes(bytes(damaged))
    except CLEAR:
        return
    check_equal(got, LOADED[name])  # bits that mean nothing, as in the padding


@few
@given(data=st.data())
def test_damaged_old_files_are_refused_or_load(data: Any) -> None:
    damaged = bytearray(FILES["old"])
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(*CLEAR):
        load_bytes(bytes(damaged))


@few
@given(code=st.binary(max_size=60))
def test_random_pickles_never_crash(code: bytes) -> None:
    with contextlib.suppress(*CLEAR):
        Machine(code, lambda found: None).run()


CODES = st.sampled_from(
    [bytes([c]) for c in b"(.012Nabc}])stuReQhqK\x85\x86\x87\x88\x81\x8f\x90\x91\x94\x93"]
)
PIECES = st.one_of(
    CODES, CODES, CODES,
    st.sampled_from([b"ccollections\nOrderedDict\n", b"c__builtin__\nset\n", b"ctorch\nTensor\n",
                     b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nSize\n", b"q\x00", b"h\x00",
                     b"X\x01\x00\x00\x00a", b"ctorch._tensor\n_rebuild_from_type_v2\n"]),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(pieces=st.lists(PIECES, max_size=40))
def test_random_instructions_never_crash(pieces: list[bytes]) -> None:
    storage = weft.arange(3).untyped_storage()
    with contextlib.suppress(*CLEAR):
        Machine(b"".join(pieces) + b".", lambda found: storage).run()


# ------------------------------------------------------------------ interrupted writes


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    weft.save(weft.ones(3), path)
    before = path.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        weft.save({"a": weft.ones(100000), "b": lambda: 0}, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, hard))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for save in (weft.save, lambda t, p: serialization.save_safetensors({"a": t}, p)):
            with pytest.raises(OSError, match="File too large"):
                save(weft.ones(100000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.pt"]


def test_without_nameless_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.io.atomic._open_nameless", lambda folder: None)
    test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path)
    weft.save(weft.zeros(3), tmp_path / "model.pt")
    assert weft.load(tmp_path / "model.pt").tolist() == [0.0] * 3
    assert os.listdir(tmp_path) == ["model.pt"]


def test_where_nameless_files_get_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", fails)
    weft.save(weft.ones(3), tmp_path / "model.pt")
    assert weft.load(tmp_path / "model.pt").tolist() == [1.0] * 3
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_killed_process_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    program = textwrap.dedent(
        f"""
        import weft
        print("ready", flush=True)
        while True:
            for value in (1.0, 2.0):
                weft.save([weft.full((1 << 20,), value) for _ in range(4)], {str(path)!r})
        """
    )
    complete = 0
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2, 0.31):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        until = time.monotonic() + 60
        while delay > 0.1 and not path.exists() and time.monotonic() < until:
            time.sleep(0.01)  # a busy machine may need long for its first file
        time.sleep(delay)
        child.kill()
        child.wait()
        child.stdout.close()
        if path.exists():
            complete += 1
            got = weft.load(path)
            assert {float(t.max()) for t in got} <= {1.0, 2.0}
            assert all(float(t.min()) == float(got[0].max()) for t in got)
        if hasattr(os, "O_TMPFILE"):
            # A file gets a name only when it is whole, and the old one's with the next system call.
            litter = set(os.listdir(tmp_path)) - {"model.pt"}
            assert all(len(weft.load(tmp_path / name)) == 4 for name in litter)
        weft.save([weft.ones(1)] * 4, path)
        assert os.listdir(tmp_path) == ["model.pt"]
        path.unlink()
    assert complete


@pytest.mark.skipif(sys.platform == "win32", reason="no locks, so nothing is removed")
def test_a_save_removes_only_what_killed_saves_to_the_same_file_left(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "model.pt"
    left = tmp_path / ".model.pt.0123456789abcdef.tmp"
    kept = [
        tmp_path / name
        for name in (
            *("model.pt.0123456789abcdef.tmp", ".model.pt.tmp", ".model.pt.0123456789abcdeg.tmp"),
            *(".model.pt2.0123456789abcdef.tmp", ".model.pt.0123456789abcdef.tmp2"),
            *(".modelxpt.0123456789abcdef.tmp", "other.pt", ".model.pt.aaaaaaaaaaaaaaaa.tmp"),
        )
    ]
    for file in (left, *kept):
        file.write_bytes(b"left")
    linked = tmp_path / ".model.pt.bbbbbbbbbbbbbbbb.tmp"
    linked.symlink_to("other.pt")
    pipe = tmp_path / ".model.pt.cccccccccccccccc.tmp"
    os.mkfifo(pipe)
    with open(kept[-1], "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as one that is being written is
        weft.save(weft.ones(3), path)
    assert not left.exists() and linked.is_symlink() and pipe.exists()
    assert all(file.read_bytes() == b"left" for file in kept)
    weft.save(weft.ones(3), path)
    assert not kept.pop().exists()
    assert all(file.read_bytes() == b"left" for file in kept)


@pytest.mark.skipif(sys.platform == "win32", reason="no locks, so nothing is removed")
@pytest.mark.parametrize("way", ["nameless", "named", "copied"])
def test_saves_at_the_same_time_leave_each_others_files(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "named":
        monkeypatch.setattr("weft.io.atomic._open_nameless", lambda folder: None)
    elif way == "copied":
        monkeypatch.setattr(os, "link", lambda *args, **options: os.stat("/none/such"))
    replace = os.replace

    def slowly(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        weft.save(weft.zeros(2), path)  # another save, while this file has its passing name
        replace(source, target)

    path = tmp_path / "model.pt"
    monkeypatch.setattr(os, "replace", slowly)
    weft.save(weft.ones(3), path)
    assert weft.load(path).tolist() == [1.0] * 3 and os.listdir(tmp_path) == ["model.pt"]


def test_modes_links_and_pipes(tmp_path: Path) -> None:
    path, link = tmp_path / "real.pt", tmp_path / "link.pt"
    weft.save(weft.ones(1), path)
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    path.chmod(0o600)
    link.symlink_to(path)
    weft.save(weft.zeros(1), link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert weft.load(path).tolist() == [0.0]
    weft.save(weft.ones(1), os.devnull)
    assert not Path(os.devnull).is_file()


# ------------------------------------------------------------------ safetensors


SAFE_TYPES = f"{OLD_TYPES} {NEW_TYPES}".replace("complex128", "")


def test_safetensors_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {n: weft.arange(7).to(getattr(weft, n)) for n in SAFE_TYPES.split()}
    tensors |= {"empty": weft.empty(0, 2), "scalar": weft.tensor(2.5), "naïve": weft.ones(2, 3)}
    tensors["strided"] = weft.arange(6).reshape(2, 3).t()
    serialization.save_safetensors(tensors, path, metadata={"format": "pt"})
    got = serialization.load_safetensors(path)
    assert set(got) == set(tensors)
    for name, want in tensors.items():
        assert got[name].dtype is want.dtype and got[name].shape == want.shape
        assert got[name].tolist() == want.tolist()
        got[name].zero_()
    assert serialization.safetensors_metadata(path) == {"format": "pt"}
    assert os.listdir(tmp_path) == ["model.safetensors"]


def safe_file(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def test_the_layout_of_safetensors() -> None:
    file = io.BytesIO()
    serialization.save_safetensors({"b": weft.ones(1, dtype=weft.uint8), "a": weft.ones(1)}, file)
    data = file.getvalue()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0 and data[8 + length :] == struct.pack("<f", 1) + b"\1"
    by_hand = safe_file(b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"\0\0\x80?")
    assert serialization.load_safetensors(io.BytesIO(by_hand))["x"].tolist() == [1.0]


ENTRY = b'{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'


@pytest.mark.parametrize(
    "content",
    [
        b"", b"1234567", safe_file(b""), safe_file(b"[]"), safe_file(b"{"), safe_file(b"{}x"),
        safe_file(b'{"\xff":1}'), safe_file(b"{}", b"x"), safe_file(b'{"a":1}'),
        struct.pack("<Q", 1 << 62) + b"{}", struct.pack("<Q", 99_000_000) + b"{}",
        safe_file(b'{"a":' + ENTRY + b"}", b"1"), safe_file(b'{"a":' + ENTRY + b"}", b"123"),
        safe_file(b'{"a":' + ENTRY + b',"a":' + ENTRY + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY + b',"b":' + ENTRY + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"U8", b"X8") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b'"U8"', b"[1]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"[2]", b"[-2]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"[2]", b"[2.0]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"[2]", b"[true]") + b"}", b"1"),
        safe_file(b'{"a":' + ENTRY.replace(b"[2]", b"[3]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"[0,2]", b"[1,3]") + b"}", b"123"),
        safe_file(b'{"a":' + ENTRY.replace(b"[0,2]", b"[2,0]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"[0,2]", b"[0,2,4]") + b"}", b"12"),
        safe_file(b'{"a":' + ENTRY.replace(b"}", b',"x":1}') + b"}", b"12"),
        safe_file(b'{"__metadata__":{"a":1}}'), safe_file(b'{"__metadata__":[]}'),
        safe_file(b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"),
        safe_file(b'{"a":' + b"9" * 10000 + b"}"),
    ],
)  # fmt: skip
def test_damaged_safetensors_are_refused(content: bytes) -> None:
    with limited_memory(), pytest.raises(RuntimeError):
        serialization.load_safetensors(io.BytesIO(content))


def test_what_safetensors_cannot_hold() -> None:
    shared = weft.ones(2)
    for wrong in ({"a": shared, "b": shared}, {"a": 1}, {1: shared}, {"__metadata__": shared},
                  {"a": weft.ones(1, dtype=weft.complex128)}):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            serialization.save_safetensors(wrong, io.BytesIO())
    with pytest.raises(TypeError):
        serialization.save_safetensors({"a": shared}, io.BytesIO(), metadata={"a": 1})


@few
@given(data=st.data())
def test_random_damage_to_safetensors(data: Any) -> None:
    file = io.BytesIO()
    serialization.save_safetensors({"a": weft.arange(5), "b": weft.ones(2)}, file)
    damaged = bytearray(file.getvalue())
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RuntimeError):
        serialization.load_safetensors(io.BytesIO(bytes(damaged)))


def test_old_files_made_to_hurt() -> None:
    heads = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    keys = pickle.dumps([], 2)
    huge = pickle.dumps(10**5000, 2)
    files = {
        "keys no texts": [*heads, b"N.", b"][a".replace(b"[", b"]") + b"."],
        "keys no list": [*heads, b"N.", b"N."],
        "heavy keys": [*heads, b"N.", b"])" + b"q\x00h\x00\x86" * 60 + b"a."],
        "keys of nothing": [*heads, b"N.", pickle.dumps(["1"], 2)],
        "wrong version": [heads[0], huge, heads[2], b"N.", keys],
        "wrong system": [heads[0], heads[1], b"N.", b"N.", keys],
        "no storages": [*heads, tensor_code().replace(b"K\x02tQ", b"K\x02NtQ"), keys],
        "huge storage": [
            *heads, tensor_code(count=HUGE).replace(b"tQ", b"NtQ"), pickle.dumps(["0"], 2),
        ],
        "cut storage": [*heads, tensor_code().replace(b"tQ", b"NtQ"), pickle.dumps(["0"], 2),
                        struct.pack("<q", 2), b"1234"],
        "storage of another size": [*heads, tensor_code().replace(b"tQ", b"NtQ"),
                                    pickle.dumps(["0"], 2), struct.pack("<q", 1), b"12345678"],
        "storage in the head": [heads[0], tensor_code(), heads[2]],
        "heavy view": [
            *heads,
            tensor_code().replace(b"tQ", b")" + b"q\x00h\x00\x86" * 60 + b"K\x00K\x01\x87tQ"),
        ],
    }  # fmt: skip
    good = [*heads, tensor_code().replace(b"tQ", b"NtQ"), pickle.dumps(["0"], 2),
            struct.pack("<q", 2), np.ones(2, np.float32).tobytes()]  # fmt: skip
    assert load_bytes(b"".join(good)).tolist() == [1.0, 1.0]
    for name, parts in files.items():
        with limited_memory(), pytest.raises(CLEAR):
            load_bytes(b"".join(parts))
            raise AssertionError(name)


# ------------------------------------------------------------------ files and positions


def test_what_was_saved_can_be_read_by_name_at_once(tmp_path: Path) -> None:
    for zipped in (True, False):
        with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
            weft.save(weft.arange(3), file, _use_new_zipfile_serialization=zipped)
            assert weft.load(file.name).tolist() == [0, 1, 2]
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        serialization.save_safetensors({"a": weft.arange(3)}, file)
        assert serialization.load_safetensors(file.name)["a"].tolist() == [0, 1, 2]

    class Unbuffered:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: Any) -> None:
            self.data += bytes(data)

    stream = Unbuffered()
    weft.save(weft.arange(3), stream)
    assert load_bytes(stream.data).tolist() == [0, 1, 2]


@pytest.mark.parametrize("safely", [True, False])
def test_several_objects_in_one_old_file(safely: bool) -> None:
    file = io.BytesIO()
    pickle.dump(41, file)
    for n in (3, 1000):
        weft.save(weft.arange(n), file, _use_new_zipfile_serialization=False)
        pickle.dump(n, file)
    file.seek(0)
    assert pickle.load(file) == 41
    for n in (3, 1000):
        assert weft.load(file, weights_only=safely).tolist() == list(range(n))
        assert pickle.load(file) == n


def test_a_mapped_storage_in_an_old_file_is_filled() -> None:
    data = save_bytes(weft.arange(3.0), _use_new_zipfile_serialization=False)
    got = load_bytes(data, map_location=lambda storage, location: storage.clone())
    assert got.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="map_location"):
        load_bytes(data, map_location=lambda storage, location: weft.UntypedStorage(3))


def test_safetensors_by_load(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    serialization.save_safetensors({"a": weft.arange(3)}, path)
    for place in (None, "cpu", weft.device("cpu")):
        for name in (path, str(path)):
            assert weft.load(name, map_location=place)["a"].tolist() == [0, 1, 2]
    for wrong in ({"cpu": "cpu"}, lambda storage, location: storage):
        with pytest.raises(RuntimeError, match="map_location is not supported"):
            weft.load(path, map_location=wrong)


@pytest.mark.parametrize("shape", [[0, 2**70], [2**70, 0], [0, 2**62, 2**62], [0, 2**63 - 1, 8]])
def test_empty_safetensors_of_impossible_shapes(shape: list[int]) -> None:
    header = f'{{"x":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}}}'.encode()
    with pytest.raises(serialization.SafetensorError, match="too large"):
        serialization.load_safetensors(io.BytesIO(safe_file(header)))


def test_changes_of_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    weft.save({"a": weft.ones(3)}, path)
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    weft.load(path, mmap=True)["a"][0] = 5.0
    assert weft.load(path)["a"].tolist() == [1.0] * 3
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        weft.load(path, mmap=True)["a"][0] = 5.0
        assert weft.load(path, mmap=True)["a"].tolist() == [5.0, 1.0, 1.0]
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    serialization.set_default_mmap_options(mmap.MAP_SHARED)
    assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
    serialization.set_default_mmap_options(mmap.MAP_PRIVATE)
    with pytest.raises(ValueError, match="MAP_PRIVATE"):
        serialization.set_default_mmap_options(77)
    path.write_bytes(b"")
    with pytest.raises(EOFError):
        weft.load(path, mmap=True)


def test_a_mapped_file_of_many_tensors_needs_one_mapping(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    weft.save([weft.full((4,), float(k)) for k in range(600)], path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        got = weft.load(path, mmap=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [t[3].item() for t in got] == list(range(600))
    assert got[7].untyped_storage().nbytes() == 16


def test_a_mapped_file_with_records_at_odd_places(tmp_path: Path) -> None:
    for padding in range(9):
        records = records_of(save_bytes([weft.arange(3.0), weft.arange(4)]))
        path = tmp_path / "m.pt"
        path.write_bytes(archive_of({"x" * (padding + 1): b"", **records}))
        a, b = weft.load(path, mmap=True)
        assert a.tolist() == [0.0, 1.0, 2.0] and b.tolist() == [0, 1, 2, 3]
        for tensor in (a, b):
            assert tensor.data_ptr() % tensor.itemsize == 0


@pytest.mark.parametrize("record", ["version", ".format_version", ".storage_alignment"])
def test_damage_to_records_that_hold_no_data(record: str) -> None:
    data = bytearray(FILES["ours"])
    content = records_of(FILES["ours"])[record]
    at = data.index(content, data.index(f"archive/{record}".encode()))
    at = data.index(b"Z" + content, at - 1) + 1 if data[at - 1 : at] != b"Z" else at
    data[at] ^= 0xFF
    with pytest.raises(RuntimeError, match="your checkpoint file is corrupted"):
        load_bytes(bytes(data))


def test_versions_of_the_format() -> None:
    records = records_of(FILES["ours"])
    for version in (b"1", b"10", b"3\n"):
        check_equal(load_bytes(archive_of({**records, "version": version})), LOADED["ours"])
    for version in (b"", b"0", b"11", b"three", b"\xff"):
        with pytest.raises(RuntimeError, match="version"):
            load_bytes(archive_of({**records, "version": version}))


def test_the_environment_decides_about_code(monkeypatch: pytest.MonkeyPatch) -> None:
    data = save_bytes(Owned(3))
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    for asked in (None, False, True):
        with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
            load_bytes(data, weights_only=asked)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "yes")
    with pytest.raises(RuntimeError, match="both were set"):
        load_bytes(data)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load_bytes(data, weights_only=True)
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert load_bytes(data).value == 3


def test_bound_methods_can_be_allowed() -> None:
    zone = zoneinfo.ZoneInfo("UTC")
    data = save_bytes(zone)
    method = zoneinfo.ZoneInfo._unpickle
    with serialization.safe_globals([getattr, zoneinfo.ZoneInfo, method]):
        assert load_bytes(data) is zone
    with serialization.safe_globals([getattr, zoneinfo.ZoneInfo, zoneinfo.ZoneInfo.from_file]):
        with pytest.raises(pickle.UnpicklingError, match="_unpickle, which is not allowed"):
            load_bytes(data)


def test_records_by_pytorchs_own_names() -> None:
    file = io.BytesIO(FILES["theirs"])
    with serialization._open_zipfile_reader(file) as records:
        assert records.has_record("byteorder") and not records.has_record("nothing")
        assert records.get_record("byteorder").decode() == sys.byteorder
        assert "data.pkl" in records.get_all_records()
        at = records.get_record_offset("data/0")
        assert FILES["theirs"][at : at + 4] == records.get_record("data/0")[:4]
    with serialization._open_file_like(file, "rb") as same:
        assert same is file


NET = """
import weft

class Net(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.size = {size}
"""


def test_old_files_hold_the_source_of_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(size: int) -> Any:
        path = tmp_path / f"network{size}.py"
        path.write_text(NET.format(size=size))
        spec = importlib.util.spec_from_file_location("network_of_the_test", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "network_of_the_test", module)
        spec.loader.exec_module(module)
        return module.Net

    net = made(1)
    data = save_bytes([net(), net()], _use_new_zipfile_serialization=False)
    assert data.count(b"super().__init__()") == 1
    assert isinstance(load_bytes(data, weights_only=False)[1], net)
    changed = made(2)
    with pytest.warns(serialization.SourceChangeWarning, match=r"Net' has changed"):
        assert isinstance(load_bytes(data, weights_only=False)[0], changed)
    linear = save_bytes(weft.nn.Linear(2, 3), _use_new_zipfile_serialization=False)
    assert load_bytes(linear, weights_only=False).weight.shape == (3, 2)


def old_text(text: bytes) -> bytes:
    """A string as Python 2 pickled it, which says neither text nor bytes."""
    return b"U" + bytes([len(text)]) + text


def python2_file(text: bytes) -> bytes:
    """What Python 2 wrote of ``[text, torch.ones(1)]``, in the older format."""
    head = old_text(b"little_endian") + b"\x88"
    storage = b"(" + old_text(b"storage") + b"ctorch\nFloatStorage\n" + old_text(b"7")
    storage += old_text(b"cpu") + b"K\x01NtQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00K\x01\x85K\x01\x85\x89NtR"
    return b"".join(
        [
            pickle.dumps(0x1950A86A20F9469CFC6C, 2),
            pickle.dumps(1001, 2),
            b"\x80\x02}" + head + b"s.",
            b"\x80\x02](" + old_text(text) + tensor + b"e.",
            b"\x80\x02]" + old_text(b"7") + b"a.",
            struct.pack("<qf", 1, 1.0),
        ]
    )


@pytest.mark.filterwarnings("ignore:pickle_load_args only works")
@pytest.mark.parametrize("safely", [True, False])
def test_strings_of_python_2(safely: bool) -> None:
    word = "żąą"
    for library in LIBRARIES:

        def load(data: bytes, library: Any = library, **more: Any) -> Any:
            text, tensor = library.load(io.BytesIO(data), weights_only=safely, **more)
            assert tensor.tolist() == [1]
            return text

        data = python2_file(word.encode())
        assert load(data) == load(data, encoding="utf-8") == word
        assert load(data, encoding="bytes") == word.encode()
        assert load(data, encoding="latin1") == word.encode().decode("latin1")
        with pytest.raises((UnicodeDecodeError, pickle.UnpicklingError)):
            load(data, encoding="ascii")


def test_files_that_do_not_say_their_byte_order() -> None:
    values = weft.tensor([1, 256, -2], dtype=weft.int16)
    file = io.BytesIO()
    serialization.save(values, file, _disable_byteorder_record=True)
    orders = serialization.LoadEndianness
    other = orders.BIG if sys.byteorder == "little" else orders.LITTLE
    expected = {None: values.tolist(), orders.NATIVE: values.tolist(), other: [256, 1, -257]}
    try:
        for order, found in expected.items():
            serialization.set_default_load_endianness(order)
            assert serialization.get_default_load_endianness() is order
            file.seek(0)
            assert weft.load(file).tolist() == found
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="set_default_load_endianness"):
        serialization.set_default_load_endianness("big")  # type: ignore[arg-type]


@pytest.mark.parametrize("safely", [True, False])
def test_values_can_be_left_out(safely: bool) -> None:
    model, whole, empty = weft.nn.Linear(2, 3), io.BytesIO(), io.BytesIO()
    weft.save(model.state_dict(), whole)
    with serialization.skip_data():
        weft.save(model.state_dict(), empty)
        whole.seek(0)
        found = weft.load(whole, weights_only=safely)
        with pytest.raises(RuntimeError, match="Cannot use skip_data=True"):
            weft.save(model.state_dict(), io.BytesIO(), _use_new_zipfile_serialization=False)
    assert len(empty.getvalue()) == len(whole.getvalue())
    empty.seek(0)
    for state in (found, weft.load(empty, weights_only=safely)):
        assert {k: v.shape for k, v in state.items()} == {"weight": (3, 2), "bias": (3,)}
        assert not any(v.any() for v in state.values())
    whole.seek(0)
    assert weft.equal(weft.load(whole)["weight"], model.weight)


class Unknown:
    """A class that nobody has allowed."""


@pytest.mark.parametrize("protocol", range(2, 6))
def test_what_a_file_would_call(protocol: int) -> None:
    content = [Unknown(), "a", "b", Unknown(), Counter("ab"), OrderedDict(), weft.ones(2), Bomb()]
    file = io.BytesIO()
    weft.save(content, file, pickle_protocol=protocol)
    file.seek(0)
    unknown, bomb = f"{__name__}.Unknown", "os.system" if os.name == "nt" else "posix.system"
    found = serialization.get_unsafe_globals_in_checkpoint(file)
    assert found == sorted([unknown, bomb])
    with serialization.safe_globals([Unknown]):
        file.seek(0)
        assert serialization.get_unsafe_globals_in_checkpoint(file) == [bomb]
    with pytest.raises(ValueError, match=r"Expected input to be a checkpoint returned by torch\."):
        serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(python2_file(b"")))


class Bomb:
    """Calls the system's shell when it is loaded with everything that is in it."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)
