"""Storages: the same object for the same memory, files and buffers behind them, conversions."""

from __future__ import annotations

import copy
import gc
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def outcome(function: Any, library: Any) -> Any:
    """What a function gives with either library, or the kind of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(library)
        except Exception as error:
            return type(error)


def check(function: Any) -> None:
    assert repr(outcome(function, weft)) == repr(outcome(function, torch))


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t.ByteStorage.from_buffer(bytearray([1, 2, 3, 4])).tolist(),
        lambda t: t.ShortStorage.from_buffer(bytearray([1, 2, 3, 4]), "big").tolist(),
        lambda t: t.IntStorage.from_buffer(bytearray([1, 2, 3, 4]), "little").tolist(),
        lambda t: t.IntStorage.from_buffer(b"abcd", "native").tolist(),
        lambda t: t.FloatStorage.from_buffer(bytearray([0x40, 0x10, 0, 0]), "big")[0],
        lambda t: t.BoolStorage.from_buffer(bytearray([0, 1, 2, 255]), "big").tolist(),
        lambda t: t.BoolStorage.from_buffer(bytearray([0, 1]), "big").type(),
        lambda t: t.ComplexFloatStorage.from_buffer(b"abcdefgh", "big").tolist(),
        lambda t: t.ByteStorage.from_buffer(b"abcd", offset=1, count=2).tolist(),
        lambda t: t.ShortStorage.from_buffer(b"abcd", "little", 1, 2).tolist(),
        lambda t: t.ShortStorage.from_buffer(b"abcd", "little", 2, 2).tolist(),
        lambda t: t.ByteStorage.from_buffer(b"").tolist(),
        lambda t: t.ByteStorage.from_buffer("text"),
        lambda t: t.FloatStorage.from_buffer(bytearray(8)),
        lambda t: t.FloatStorage.from_buffer(bytearray(7), "little"),
        lambda t: t.FloatStorage.from_buffer(bytearray(8), "odd"),
        lambda t: t.FloatStorage.from_buffer(bytearray(8), "little", dtype=t.float32),
        lambda t: t.ByteStorage.from_buffer(b"abcd", offset=9),
        lambda t: t.UntypedStorage.from_buffer(bytearray(4), dtype=t.uint8).tolist(),
        lambda t: t.UntypedStorage.from_buffer(bytearray(4)),
        lambda t: t.TypedStorage.from_buffer(b"abcd", "little", dtype=t.int16).tolist(),
    ],
)
def test_from_buffer(function: Any) -> None:
    check(function)


def test_a_storage_from_a_buffer_has_its_own_memory() -> None:
    buffer = bytearray(b"abcd")
    storage = weft.ByteStorage.from_buffer(buffer)
    buffer[0] = 0
    assert storage[0] == 97


CASTS = "bool byte char short int long half bfloat16 float double complex_float complex_double"


@pytest.mark.parametrize("cast", f"{CASTS} float8_e4m3fn float8_e5m2".split())
def test_casts(cast: str) -> None:
    for make in (
        lambda t: t.IntStorage([-1, 0, 1, 2]), lambda t: t.DoubleStorage([0.5, 3.0]),
        lambda t: t.UntypedStorage([0, 1, 200]), lambda t: t.FloatStorage(0),
    ):  # fmt: skip

        def both(t: Any, make: Any = make) -> Any:
            made = getattr(make(t), cast)()
            return made.tolist(), str(made.dtype), made.nbytes(), made.type()

        check(both)


@pytest.mark.parametrize("dtype", f"{CASTS} ".replace("byte", "uint8").split())
def test_byteswap(dtype: str) -> None:
    names = {"char": "int8", "short": "int16", "complex_float": "complex64",
             "complex_double": "complex128"}  # fmt: skip

    def swapped(t: Any, size: int = 16) -> Any:
        storage = t.UntypedStorage(range(size))
        twin = storage.__copy__()
        assert twin is not storage and copy.deepcopy(storage).tolist() == storage.tolist()
        twin.byteswap(getattr(t, names.get(dtype, dtype)))
        return storage.tolist(), twin.tolist()

    check(swapped)
    check(lambda t: swapped(t, 17))


@pytest.mark.parametrize("name", ["UntypedStorage", "TypedStorage", "FloatStorage"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="weft runs on the CPU"):
        getattr(weft, name)(3, device="cuda")
    assert getattr(weft, name)(3, device="cpu").size() == 3


def test_names_by_dtype_and_back() -> None:
    names = weft.storage._dtype_to_storage_type_map()
    assert names[weft.float32] == "FloatStorage"
    assert weft.storage._storage_type_to_dtype_map() == {v: k for k, v in names.items()}


def test_deep_copies_share_what_was_shared() -> None:
    def both(t: Any) -> Any:
        a, b = t.arange(6.0), t.zeros(2)
        first, bytes_of_b, view, second, storage = copy.deepcopy(
            [a, b.untyped_storage(), a[2:], b, a.storage()]
        )
        first.add_(1)
        second.fill_(7)
        shared = t.tensor([], dtype=t.float32).set_(bytes_of_b)
        return storage.tolist(), shared.tolist(), view.tolist(), a.tolist(), b.tolist()

    check(both)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: [isinstance(t.IntStorage([1]), k) for k in (t.IntStorage, t.FloatStorage)],
        lambda t: isinstance(t.ones(2).storage(), t.FloatStorage),
        lambda t: t.IntStorage(3, dtype=t.float32),
        lambda t: t.IntStorage([1, 2]).type(),
        lambda t: t.UntypedStorage(2).type(),
        lambda t: t.IntStorage([1, 2, 3])[0:2],
        lambda t: t.IntStorage([1, 2, 3])[5],
        lambda t: t.IntStorage([1, 2, 3])[-1],
        lambda t: t.UntypedStorage(5)[7],
        lambda t: t.UntypedStorage(5)[::2],
        lambda t: t.UntypedStorage([1, 300]).tolist(),
        lambda t: t.UntypedStorage(-1),
        lambda t: t.TypedStorage(5.5),
        lambda t: t.IntStorage([1, 2]).copy_(t.FloatStorage([1.5, 2.0])).tolist(),
        lambda t: t.IntStorage([1, 2]).copy_(t.DoubleStorage([1.5, 2.0])).tolist(),
        lambda t: t.UntypedStorage(3).get_device(),
        lambda t: t.Storage([1, 2]).tolist(),
        lambda t: t.Storage.dtype is t.float32,
        lambda t: t.UntypedStorage(3).resizable(),
        lambda t: t.tensor(t.FloatStorage([1.0, 2.0])).tolist(),
        lambda t: t.tensor(t.FloatStorage([1.0, 2.0]), dtype=t.int32),
        lambda t: t.as_tensor(t.FloatStorage([1.0, 2.0]), dtype=t.float64),
        lambda t: t.tensor(t.UntypedStorage(range(17))).tolist(),
        lambda t: t.tensor(t.UntypedStorage(range(5)), dtype=t.uint8).tolist(),
        lambda t: t.Tensor(t.UntypedStorage(range(16))).tolist(),
        lambda t: t.IntTensor(t.FloatStorage([1.0])),
        lambda t: t.empty(0, dtype=t.int32).set_(t.FloatStorage([1.0])),
        lambda t: t.empty(0, dtype=t.int32).set_(t.ones(3)),
        lambda t: t.empty(0).set_(t.ones(3).storage(), 1, (2,)).tolist(),
        lambda t: t.empty(0).set_(t.ones(3).storage(), 0, (2,), (-1,)),
        lambda t: t.empty(0).set_(t.ones(3).storage(), -1, (2,), (1,)),
        lambda t: t.empty(0).set_(t.ones(3).storage(), 0, (-2,), (1,)),
        lambda t: t.empty(0).set_(t.ones(3).storage(), 0, (2,), (1, 1)),
    ],
)
def test_as_in_pytorch(function: Any) -> None:
    check(function)


def test_tensors_share_the_memory_of_a_storage() -> None:
    storage = weft.FloatStorage([1.0, 2.0])
    for made in (weft.tensor(storage), weft.as_tensor(storage), weft.Tensor(storage)):
        assert made.data_ptr() == storage.data_ptr()
        assert made.storage()._cdata == storage._cdata
    other = weft.rand(3, 4)
    empty = weft.tensor([])
    for source in (other, other.storage(), other.untyped_storage()):
        assert empty.set_(source=source).storage()._cdata == other.storage()._cdata
    assert other[1:].untyped_storage() is other.untyped_storage()
    assert other.clone().storage()._cdata != other.storage()._cdata


def test_is_set_to() -> None:
    def answers(t: Any) -> list[bool]:
        a, none = t.zeros(3, 4), t.empty(2, 0)
        return [
            x.is_set_to(y)
            for x, y in [
                (a, a), (a, t.zeros(3, 4)), (a, t.tensor([]).set_(a)), (a, a.view(4, 3)),
                (t.tensor([]), t.tensor([])), (none, none), (none, none.view(0)), (a, a[:2]),
                (a, a.view(t.int32)), (none, none.view(2, 0)), (a, a.t()),
            ]
        ]  # fmt: skip

    check(answers)


def test_sizes_in_memory() -> None:
    for dtype in (weft.float32, weft.uint8):
        empty, ten, hundred = (
            weft.ones(n, dtype=dtype).storage().__sizeof__() for n in (0, 10, 100)
        )
        assert ten - empty == 10 * dtype.itemsize and hundred - empty == 100 * dtype.itemsize


# ------------------------------------------------------------------ how long they live


class Tracker:
    """Says when it is gone."""

    def __init__(self) -> None:
        self.gone = [False]

    def __del__(self) -> None:
        self.gone[0] = True


def tracked(storage: Any) -> list[bool]:
    tracker = Tracker()
    storage.tracker = tracker
    return tracker.gone


def test_attributes_last_as_long_as_the_tensor() -> None:
    a = weft.randn(10)
    s = a.untyped_storage()
    gone = tracked(s)
    assert a.untyped_storage() is s
    del s
    assert not gone[0] and a.untyped_storage().tracker.gone is gone
    s = a.untyped_storage()
    del a
    assert not gone[0] and isinstance(s, weft.UntypedStorage)
    del s
    assert gone[0]


def test_a_storage_lives_on_in_its_tensor() -> None:
    class Mine(weft.UntypedStorage):
        ends = 0

        def __del__(self) -> None:
            Mine.ends += 1

    for kind in (weft.UntypedStorage, Mine):
        s = kind(10)
        gone = tracked(s)
        a = weft.tensor(s)
        del s
        assert not gone[0] and Mine.ends == 0
        s = a.untyped_storage()
        del a
        assert type(s) is kind and not gone[0] and Mine.ends == 0
        del s
        assert gone[0]
    assert Mine.ends == 1


def test_a_storage_without_attributes_holds_no_memory() -> None:
    a = weft.ones(1000)
    a.untyped_storage()
    before = weft.ones(1)
    a.data = before.data
    assert a._x is None or "storage" not in a._x
    gc.collect()
    assert a.untyped_storage().nbytes() == before.untyped_storage().nbytes()


# ------------------------------------------------------------------ files


def test_files_as_storages(tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    first = weft.FloatStorage.from_file(path, True, 1000)
    a = weft.FloatTensor(first).fill_(2.5)
    assert a.data_ptr() == first.data_ptr() and first.filename == path
    b = weft.FloatTensor(weft.FloatStorage.from_file(path, shared=True, size=1000))
    assert b.tolist() == [2.5] * 1000
    b.fill_(-1.0)
    assert a.tolist() == [-1.0] * 1000
    private = weft.FloatStorage.from_file(path, False, 10)
    private.fill_(9.0)
    assert private.filename is None and a[0].item() == -1.0
    assert np.fromfile(path, np.float32).tolist() == [-1.0] * 1000
    assert not first.resizable()
    with pytest.raises(RuntimeError, match="not resizable"):
        first.resize_(5)


@pytest.mark.parametrize("shared", [False, True])
def test_files_as_tensors(shared: bool) -> None:
    for t in (weft, torch):
        with tempfile.NamedTemporaryFile() as file:
            np.arange(10.0).tofile(file)
            file.flush()
            got = t.from_file(file.name, shared=shared, size=10, dtype=t.float64)
            assert got.tolist() == list(range(10))
            want = file.name if shared else None
            assert got.untyped_storage().filename == want == got[2:].untyped_storage().filename
            assert t.UntypedStorage.from_file(file.name, shared, 80).filename == want
    assert weft.ones(3).untyped_storage().filename is None


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    for step in (
        lambda t: t.UntypedStorage.from_file(path, False, 8).tolist(),
        lambda t: t.UntypedStorage.from_file(path, True, 8).tolist(),
        lambda t: t.UntypedStorage.from_file(path, False, 16).tolist(),
        lambda t: t.UntypedStorage.from_file(path, True, 16).tolist(),
        lambda t: Path(path).stat().st_size,
        lambda t: t.UntypedStorage.from_file(path).tolist(),
        lambda t: t.TypedStorage.from_file(path, True, 2),
        lambda t: t.from_file(path, False, 300),
        lambda t: t.UntypedStorage.from_file(path, True, -3),
        lambda t: t.UntypedStorage.from_file(f"{path}/absent/y", True, 3),
    ):
        found = outcome(step, weft)
        if Path(path).exists() and Path(path).stat().st_size == 8:
            Path(path).write_bytes(bytes(8))
        assert found == outcome(step, torch)


def test_a_part_of_a_storage_is_a_storage_of_its_own() -> None:
    torch = pytest.importorskip("torch")

    def outcome(T):
        m, n = T.zeros(10), T.empty([])
        n.set_(m.untyped_storage()[8:24])
        n.fill_(7.0)
        apart = n.untyped_storage().data_ptr() - m.untyped_storage().data_ptr()
        sizes = n.untyped_storage().nbytes(), m.untyped_storage().nbytes()
        return m.tolist(), tuple(n.shape), n.storage_offset(), apart, sizes

    assert outcome(weft) == outcome(torch)


def test_the_size_of_a_storage_is_that_of_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for count in (0, 10):
        ours, theirs = (sys.getsizeof(t.zeros(count).untyped_storage()) for t in (weft, torch))
        assert ours == theirs
