"""Tensors among other objects: NumPy arrays, DLPack, buffers, pickles, copies, processes."""

# ruff: noqa: E501 - a case of a table is one line

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import weft
from side_by_side import agree, lines, needs_torch, torch

DTYPES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *(
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ),
    *("complex64", "complex128"),
]
# The types that NumPy itself has.
OF_NUMPY = [name for name in DTYPES if not name.startswith(("float8", "bfloat"))]

# --- NumPy -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_NUMPY)
def test_numpy_both_ways_without_copies(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(name)
    tensor = weft.from_numpy(array)
    assert tensor.dtype is getattr(weft, name)
    assert tensor.numpy() is array or np.shares_memory(tensor.numpy(), array)
    array[0, 0] = 1
    assert tensor[0, 0].item() == 1
    tensor[1, 2] = 0
    assert array[1, 2] == 0
    assert np.shares_memory(tensor.T.numpy(), array)
    assert tensor[:, 1:].numpy().strides == array[:, 1:].strides
    assert np.asarray(tensor).dtype == array.dtype


def test_the_version_sees_changes_through_the_tensor_only() -> None:
    array = np.zeros(3)
    tensor = weft.from_numpy(array)
    array += 1
    assert tensor._version == 0
    tensor += 1
    assert tensor._version == 1
    assert array.tolist() == [2.0, 2.0, 2.0]


def test_memory_lives_as_long_as_a_tensor_needs_it() -> None:
    array = np.arange(1000.0)
    tensor = weft.from_numpy(array)[10:20]
    del array
    assert tensor.tolist() == list(map(float, range(10, 20)))
    view = weft.arange(1000.0)[5:8].numpy()
    assert view.tolist() == [5.0, 6.0, 7.0]


def test_arrays_that_may_not_be_written() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        tensor = weft.from_numpy(array)
    assert (tensor + 1).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises((RuntimeError, ValueError)):
        tensor.add_(1)
    assert array.tolist() == [0.0, 1.0, 2.0]


NUMPY = """
t.numpy(), t.T.numpy(), torch.tensor(3).numpy(), torch.zeros(0, 2).numpy(), torch.tensor([1j]).numpy(), torch.tensor([True]).numpy()
r.numpy()
r.numpy(force=True), r.detach().numpy(), (r * 2).detach().numpy()
t.__array__(), t.__array__(np.float64), np.array(t), np.asarray(t), np.array(t, dtype=np.int32), np.asarray(t, dtype=np.float64)
np.shares_memory(np.asarray(t), t.numpy()), np.shares_memory(np.array(t), t.numpy())
np.asarray(r)
np.array(r)
np.sin(r)
np.sin(t), np.exp(t), np.abs(-t), np.sqrt(t), np.negative(t), np.round(t), np.square(t)
np.add(t, 1), np.maximum(t, 2), np.multiply(t, t), np.isnan(t), np.greater(t, 1), np.add(t, a), np.add(a, t)
np.mean(np.asarray(t)), np.concatenate([t, t]), np.stack([t, t]), np.dot(t, a), np.where(t > 1, t, 0), np.allclose(t, t)
np.matmul(m, m), np.linalg.norm(t), np.outer(t, t), np.tile(t, 2), np.expand_dims(t, 0), np.ones_like(t), np.copy(t)
np.shape(t), np.ndim(t), np.array_equal(t, a), np.isscalar(t), np.float64(t[0]), np.int64(i[1]), np.array([t, t]), np.array([t[0], 2.0])
np.testing.assert_allclose(t, t)
np.vstack([t, t]), np.hstack([t, t]), np.argmax(np.asarray(t)), np.unique(t), np.percentile(t, 50), np.histogram(t, 2)[0]
t + a, t * a, t - a, t / a, t ** a, t // a, t % a, a / t
i & np.array([1, 1]), i | np.array([1, 1]), i << np.array([1, 1])
t == a, a == t
t @ a, m @ np.eye(2), a @ t
np.float32(2) * t, t * np.float32(2), np.float64(2) * t, t * np.float64(2), np.int64(2) + t, t + np.int64(2), t * np.bool_(True)
np.float64(2) / t, np.float64(2) ** t, np.float64(2) - t, t ** np.float64(2), t - np.int8(1), i * np.float32(1.5), i + np.float64(1.5)
np.float64(2) < t, t < np.float64(2), np.float64(2) == t, np.float64(1) >= t
a[i[0]], a[i], a[t > 1], list(a)[i[0]], a[i[0]:], np.zeros(i[1]), np.linspace(0, 1, i[1])
t[np.array([0])], t[np.array([True, False])], t[np.int64(1)], m[np.array([0, 1]), np.array([1, 0])], m[np.array(1)]
a[0] = t[1]; a
a[:] = t; a
t[0] = np.float64(7); t
t[:] = np.array([8.0, 9.0]); t
t[np.array([0])] = 3; t
t.view(np.array(2))
torch.zeros(np.int64(2)), torch.arange(np.int64(3)), torch.full((np.int32(2),), np.float32(1.5)), torch.ones(2).sum(np.int64(0)), torch.arange(6).reshape(np.int64(2), 3)
torch.add(t, np.float32(2)), torch.mul(t, np.float64(2)), torch.pow(t, np.int64(2)), t.add_(np.float32(1)), t.clamp(np.float32(1), np.float32(1.5))
torch.sin(a)
torch.maximum(t, a)
torch.cat([t, a])
torch.stack([a])
torch.equal(t, a)
torch.tensor(np.float64(1.5)), torch.tensor([np.float64(1.5)]), torch.tensor(np.array(2)), torch.as_tensor(np.int32(3))
torch.from_numpy(np.arange(6).reshape(2, 3)[:, ::2]).stride(), torch.from_numpy(np.asfortranarray(np.ones((2, 3)))).stride()
torch.from_numpy(np.broadcast_to(np.ones(1), (3,)).copy()), torch.from_numpy(np.ones((2, 1, 3))[:, 0]).is_contiguous()
torch.from_numpy(np.arange(10, dtype=np.float32)[3:])[0], torch.from_numpy(np.arange(10.0)[3:]).storage_offset()
torch.from_numpy(np.zeros(3, dtype=[('a', 'f4')]))
torch.from_numpy(np.array(['a', 'b']))
torch.from_numpy(np.array([object()]))
torch.from_numpy(np.zeros(2, np.longdouble))
torch.from_numpy(np.matrix([[1.0, 2.0]])).shape, torch.tensor(np.matrix([[1.0, 2.0]])).shape
torch.from_numpy(np.ma.array([1.0, 2.0]))
np.asarray(t.expand(2, 2)).strides, t.expand(2, 2).numpy().shape, m.T.numpy().strides
t.bfloat16().numpy()
"""


@needs_torch
@pytest.mark.parametrize("code", lines(NUMPY))
def test_with_numpy(code: str) -> None:
    setup = """
t, a, i = torch.tensor([1.0, 2.0]), np.array([1.0, 2.0]), torch.tensor([1, 2])
m = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
r = torch.tensor([1.0, 2.0], requires_grad=True)
"""
    if code == "t.bfloat16().numpy()":
        pytest.skip("ml_dtypes gives NumPy a bfloat16, so here this works")
    agree(setup + code)


def test_types_that_numpy_knows_by_ml_dtypes() -> None:
    x = weft.tensor([1.5, -2.0]).bfloat16()
    array = x.numpy()
    assert array.dtype.name == "bfloat16"
    assert weft.from_numpy(array).dtype is weft.bfloat16
    assert array.astype(np.float32).tolist() == [1.5, -2.0]


def test_gradients_flow_through_operators_with_arrays() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (x * np.array([3.0, 4.0], np.float32)).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


# --- DLPack and buffers ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["float32", "float64", "int8", "int64", "uint8", "complex64", "bool"]
)
def test_dlpack_with_numpy(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(name)
    tensor = weft.from_dlpack(array)
    assert tensor.dtype is getattr(weft, name)
    array[0, 1] = 0
    assert tensor[0, 1].item() == 0
    back = np.from_dlpack(tensor.T)
    assert np.shares_memory(back, array)
    assert back.shape == (3, 2)


@needs_torch
@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"]
)
def test_dlpack_with_torch(name: str) -> None:
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    ours = weft.from_dlpack(theirs)
    assert ours.dtype is getattr(weft, name)
    assert ours.tolist() == theirs.tolist()
    theirs[0, 1] = 0
    ours[1, 0] = 1
    assert ours.tolist() == theirs.tolist()
    mine = weft.arange(6).reshape(2, 3).to(getattr(weft, name))
    given = torch.from_dlpack(mine.T)
    assert given.stride() == mine.T.stride()
    given[0, 0] = 1
    mine[1, 1] = 0
    assert given.tolist() == mine.T.tolist()
    assert torch.utils.dlpack.from_dlpack(mine.__dlpack__()).tolist() == mine.tolist()


def test_dlpack_refuses_gradients() -> None:
    with pytest.raises(BufferError):
        weft.ones(2, requires_grad=True).__dlpack__()
    assert weft.ones(2).__dlpack_device__() == (1, 0)
    assert weft.utils.dlpack.to_dlpack(weft.ones(2)) is not None


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="classes can offer buffers since Python 3.12"
)
def test_buffers() -> None:
    x = weft.arange(6).reshape(2, 3)
    view = memoryview(x)
    assert view.shape == (2, 3)
    assert view.tolist() == x.tolist()
    view[0, 0] = 7
    assert x[0, 0].item() == 7


def test_bytes_and_back() -> None:
    x = weft.tensor([1.5, 2.5])
    raw = bytearray(x.numpy().tobytes())
    y = weft.frombuffer(raw, dtype=weft.float32)
    assert y.tolist() == [1.5, 2.5]
    y[0] = 0
    assert raw[:4] == b"\0\0\0\0"
    assert bytes(x.untyped_storage()) == x.numpy().tobytes()


# --- pickles and copies ----------------------------------------------------------------


def again(value: Any, protocol: int = 4) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", DTYPES)
def test_pickles_of_every_type(name: str, protocol: int) -> None:
    x = weft.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0]]).to(getattr(weft, name))
    for tensor in (x, x[0, 1], x[:0], x[:, 1], x.T):
        twin = again(tensor, protocol)
        assert twin.dtype is tensor.dtype
        assert tuple(twin.shape) == tuple(tensor.shape)
        assert twin.tolist() == tensor.tolist()
        assert twin.stride() == tensor.stride() or not tensor.numel()


def test_pickles_keep_what_a_tensor_is() -> None:
    x = again(weft.ones(2, requires_grad=True))
    assert x.requires_grad
    assert x.is_leaf
    p = again(weft.nn.Parameter(weft.ones(2)))
    assert type(p) is weft.nn.Parameter
    assert p.requires_grad
    assert not again(weft.nn.Parameter(weft.ones(2), requires_grad=False)).requires_grad
    x = weft.ones(2)
    x.note = "kept"
    assert again(x).note == "kept"
    x = again(weft.ones(2, requires_grad=True) * 2)
    assert x.is_leaf
    assert x.requires_grad


def test_pickles_keep_shared_memory_shared() -> None:
    x = weft.arange(6.0)
    a, b, c, d = again([x, x, x[2:4], x.view(2, 3).T])
    assert a is b
    a[3] = 9
    assert c.tolist() == [2.0, 9.0]
    assert d[0, 1].item() == 9.0
    assert d.stride() == (1, 3)
    assert c.storage_offset() == 2
    assert a.untyped_storage().data_ptr() == c.untyped_storage().data_ptr()
    large = np.zeros(100000)
    for part in (weft.zeros(100000)[:2].clone(), weft.from_numpy(large[:2])):
        assert len(pickle.dumps(part)) < 2000


@pytest.mark.parametrize("name", DTYPES)
def test_copies_of_every_type(name: str) -> None:
    x = weft.tensor([[1.0, 0.0], [2.0, 3.0]]).to(getattr(weft, name))
    for twin in (copy.deepcopy(x), copy.copy(x), x.clone()):
        assert twin is not x
        assert twin.dtype is x.dtype
        assert twin.tolist() == x.tolist()


COPIES = """
y = copy.deepcopy(x); y[0] = 5.0; x, y
y = copy.copy(x); y[0] = 5.0; x, y
y = copy.deepcopy(x.requires_grad_()); y.requires_grad, y.is_leaf, y is x
copy.deepcopy(x.requires_grad_() * 2)
copy.copy(x.requires_grad_() * 2).requires_grad
x.requires_grad_().sum().backward(); y = copy.deepcopy(x); y.grad, y.grad is x.grad
p = torch.nn.Parameter(x); q = copy.deepcopy(p); type(q).__name__, q.requires_grad, q
x.note = [1]; y = copy.deepcopy(x); y.note, y.note is x.note
x.note = [1]; y = copy.copy(x); y.note is x.note
a, b = copy.deepcopy([x, x]); a is b
a, b = copy.deepcopy([x, x[1:]]); a[1] = 7.0; b
a, b = copy.deepcopy([x, x.view(3, 1)]); a[1] = 7.0; b, b.stride()
a = copy.deepcopy(torch.ones(2, 3).T); a.stride(), a
a = copy.deepcopy(torch.arange(6.0)[1::2]); a, a.stride(), a.storage_offset()
copy.deepcopy({'a': x, 'b': [x]})['a']
copy.deepcopy(torch.zeros(0, 3)), copy.deepcopy(torch.tensor(2))
copy.deepcopy(torch.Size([1, 2])), copy.deepcopy(torch.float32), copy.copy(torch.device('cpu'))
pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(torch.Size([1, 2]))), pickle.loads(pickle.dumps(torch.float64))
y = pickle.loads(pickle.dumps(x.view(3, 1))); y, y.stride()
a, b = pickle.loads(pickle.dumps((x, x))); a is b
type(pickle.loads(pickle.dumps(torch.nn.Parameter(x)))).__name__
y = pickle.loads(pickle.dumps(x.requires_grad_() * 2)); y, y.is_leaf
pickle.loads(pickle.dumps(x.requires_grad_())).requires_grad
x.requires_grad_().sum().backward(); pickle.loads(pickle.dumps(x)).grad
x.note = 3; pickle.loads(pickle.dumps(x)).note
pickle.loads(pickle.dumps(torch.contiguous_format)), pickle.loads(pickle.dumps(torch.channels_last)) is torch.channels_last
pickle.loads(pickle.dumps(torch.strided)) is torch.strided, copy.deepcopy(torch.strided) is torch.strided
pickle.loads(pickle.dumps(torch.ones(2, 3).max(0))).values, copy.deepcopy(torch.ones(2).max(0)).indices
pickle.loads(pickle.dumps(torch.nn.functional.relu)) is torch.nn.functional.relu, pickle.loads(pickle.dumps(torch.sum)) is torch.sum
pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor
x.__reduce_ex__(2)[0].__name__ != '', x.__deepcopy__({}) is x
"""


@needs_torch
@pytest.mark.parametrize("code", lines(COPIES))
def test_copies_and_pickles(code: str) -> None:
    agree(f"x = torch.arange(3.0)\n{code}")


def test_small_objects_travel() -> None:
    for value in (weft.float32, weft.bfloat16, weft.device("cuda:1"), weft.Size([2, 3]), weft.bool):
        assert again(value) == value
        assert copy.deepcopy(value) == value
    assert again(weft.float64) is weft.float64
    generator = weft.Generator().manual_seed(3)
    weft.rand(3, generator=generator)
    twin = again(generator)
    assert weft.rand(4, generator=twin).tolist() == weft.rand(4, generator=generator).tolist()


def doubled(queue: Any, value: Any) -> None:
    queue.put((value * 2, value.dtype, value.shape, value.device))


def test_tensors_go_to_another_process_and_back() -> None:
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    queue = context.Queue()
    worker = context.Process(target=doubled, args=(queue, weft.tensor([1.0, 2.0])))
    worker.start()
    result, dtype, shape, device = queue.get(timeout=30)
    worker.join(30)
    assert result.tolist() == [2.0, 4.0]
    assert dtype is weft.float32
    assert shape == weft.Size([2])
    assert device == weft.device("cpu")


def test_threads_may_share_tensors() -> None:
    x = weft.ones(50, requires_grad=True)
    results: list[Any] = []

    def work(k: int) -> None:
        (grad,) = weft.autograd.grad((x * k).sum(), x)
        results.append((k, grad[0].item()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(k, float(k)) for k in range(8)]


def test_pickles_written_to_files() -> None:
    file = io.BytesIO()
    pickle.dump({"w": weft.ones(2), "n": 3}, file)
    file.seek(0)
    loaded = pickle.load(file)
    assert loaded["w"].tolist() == [1.0, 1.0]
    assert loaded["n"] == 3


def test_shape_and_flags_of_an_array_are_its_own():
    array = np.arange(6.0)
    tensor = weft.from_numpy(array)
    other = tensor.numpy()
    array.shape, other.shape = (2, 3), (3, 2)
    other.flags.writeable = False
    tensor.add_(1)
    assert tensor.shape == (6,) and array[0, 0] == other[0, 0] == 1
