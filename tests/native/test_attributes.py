"""Attributes that compiled code reads: what Python's properties say, until types have a say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.core import selection

if not selection.ready():
    pytest.skip("no native code here", allow_module_level=True)

# In processes of their own, since the first subclass of a process puts Python's code back, as does
# a program that names the method by which types have a say; so these do it behind weft's back.
HEAD = """
import sys
import numpy as np
import weft
from weft.core import making, selection
assert selection.ready() and making.records() is not None
NAMES = tuple(making.PROPERTIES)
assert NAMES == ("shape", "dtype", "device", "requires_grad")
kind = lambda name: type(vars(weft.Tensor)[name].fget).__name__
"""
SAME = """
base = weft.ones(3, 4, requires_grad=True) * 1
stale = base[:2]
base.mul_(2)
with weft.no_grad():
    hidden = base[1:]
with weft.inference_mode():
    inner = weft.ones(2)
plain = weft.ones(3)
late = plain[:2]
plain.mul_(weft.ones(3, requires_grad=True))
tensors = [
    base, stale, late, hidden, inner, weft.tensor(1.0), weft.zeros(0, 3),
    weft.ones(2, 1, 5, 1, 7).mT,
    weft.nn.Parameter(weft.ones(2)), weft.ones(2, device="meta"), weft.nn.Buffer(weft.ones(2)),
    weft.nn.UninitializedParameter(), weft.ones(2).detach(),
    *(weft.ones(2).to(d) for d in (weft.float16, weft.bfloat16, weft.complex64, weft.uint8,
      weft.int32, weft.bool)),
]
def outcome(read, x):
    try:
        found = read(x)
    except Exception as error:
        return type(error), str(error).partition("\\n  at")[0]
    return type(found), found
for x in tensors:
    for name in NAMES:
        own = making.PROPERTIES[name].fget
        assert outcome(vars(weft.Tensor)[name].fget, x) == outcome(own, x), (name, type(x))
assert late.requires_grad and stale.requires_grad and stale.grad_fn is not None
assert weft.Tensor.shape.__doc__.startswith("The length of each dimension")
x = weft.ones(2)
x.requires_grad = True
assert x.requires_grad is True
for wrong in (lambda: weft.Tensor.shape.fget(3), lambda: weft.Tensor.shape.fget()):
    try:
        wrong()
    except (AttributeError, TypeError):
        continue
    raise AssertionError
"""
COUNTS = """
x, y = weft.ones(70000, 4), weft.nn.Parameter(weft.tensor(1.0))
held = [x, y, x._a, y._a, x._node, y._node, None, True, False, weft.float32, weft.device("cpu"),
        x.device, weft.Size, weft.Tensor, np.dtype(np.float32)]
def all_of(count):
    for _ in range(count):
        for t in (x, y):
            t.shape, t.dtype, t.device, t.requires_grad
all_of(100)
before = [sys.getrefcount(h) for h in held]
shapes = [x.shape for _ in range(100)]
assert [sys.getrefcount(s) for s in shapes] == [3] * 100 and shapes == [(70000, 4)] * 100
del shapes
all_of(100_000)
moved = [sys.getrefcount(h) - n for h, n in zip(held, before)]
assert all(abs(m) < 50 for m in moved), moved
"""
SUBCLASS = """
exec('''
assert all(kind(name) == "builtin_function_or_method" for name in NAMES)
seen = []
class Mine(weft.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func)
        return super().__torch_function__(func, types, args, kwargs)
assert all(kind(name) == "function" for name in NAMES)
x = weft.ones(2, 3).as_subclass(Mine)
seen.clear()
assert x.shape == (2, 3) and x.dtype is weft.float32 and not x.requires_grad
assert seen == [weft.Tensor.shape.__get__, weft.Tensor.dtype.__get__,
                weft.Tensor.requires_grad.__get__], seen
''')
"""
MODE = """
exec('''
from weft.overrides import TorchFunctionMode, resolve_name
seen = []
class Watch(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(resolve_name(func))
        return func(*args, **(kwargs or {}))
x = weft.ones(2, 3)
with Watch():
    x.shape, x.device
assert seen == ["torch.Tensor.shape.__get__", "torch.Tensor.device.__get__"], seen
''')
"""
PENDING = """
@weft.compile
def step(x):
    y = x * 2
    assert y.shape == (2, 3) and y.dtype is weft.float32 and not y.requires_grad
    return y.reshape(y.shape[0] * y.shape[1]) + 1
for k in range(40):
    x = weft.full((2, 3), float(k))
    assert step(x).tolist() == [2.0 * k + 1] * 6
"""


@pytest.mark.parametrize(
    "program",
    [SAME, COUNTS, SUBCLASS, MODE, PENDING],
    ids=["same", "counts", "subclass", "mode", "pending"],
)
def test_in_a_process_of_its_own(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
