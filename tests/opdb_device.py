"""PyTorch's op table on the device that exists in tests only: see ``mirror``.

Every sample runs on weft's CPU and on that device, forward and backward. Results must be on the
device, and have the CPU's values, shapes and dtypes.

    python -m opdb_device add 'linalg.*'   # some ops, by name or pattern; all without names
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import mirror
import opdb
import weft
from opdb import Absent, Mismatch, Settings, torch
from weft.core import devices
from weft.core.devices import host
from weft.core.tensor import storage_array, wrap

QUICK = Settings(samples=2, dtypes=("float32",), seconds=20.0)
FULL = Settings(samples=20, dtypes=("float32", "int64", "bool", "complex128"), seconds=60.0)


def to_mirror(value: Any) -> Any:
    """A weft sample on the device, with the geometry that it has in memory."""

    def change(v: Any) -> Any:
        if isinstance(v, weft.device) or v == "cpu":
            return weft.device("mirror")
        if not isinstance(v, weft.Tensor):
            return v
        owner = mirror.MIRROR.put(storage_array(v._a))
        start = v.storage_offset() * v.itemsize
        made = wrap(mirror.MIRROR.view(owner, v._a.dtype, v._a.shape, v._a.strides, start))
        return made.requires_grad_() if v.requires_grad else made

    return opdb.walk(value, change)


def like_the_cpu(actual: Any, expected: Any, where: str, values: bool = True) -> None:
    """Raise Mismatch unless results are on the device and otherwise like the CPU's."""
    made, wanted = opdb.tensors_in(actual), opdb.tensors_in(expected)
    if len(made) != len(wanted):
        raise Mismatch(f"{where}: {len(made)} tensors where the CPU has {len(wanted)}")
    for a, e in zip(made, wanted, strict=True):
        if a._a.__class__ is not mirror.MirrorArray:
            raise Mismatch(f"{where}: the result is on {a.device}")
        if (a.shape, a.dtype) != (e.shape, e.dtype):
            raise Mismatch(f"{where}: {a.dtype}{a.shape} where the CPU has {e.dtype}{e.shape}")
        x, y = host(a), e._a
        if x.dtype.kind == "V":
            x, y = x.astype(np.float32), y.astype(np.float32)
        if values and not np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True):
            raise Mismatch(f"{where}: other values than on the CPU")


def gradients(function: Callable, args: Any, kwargs: Any) -> Any:
    """The gradients of all results with respect to all inputs that want one."""
    wanted = [t for t in opdb.tensors_in((args, kwargs)) if t.requires_grad]
    outputs = [y for y in opdb.tensors_in(function(*args, **kwargs)) if y.requires_grad]
    if not wanted or not outputs:
        return ()
    seeds = [weft.ones_like(y) for y in outputs]
    found = weft.autograd.grad(outputs, wanted, seeds, allow_unused=True)
    return tuple(g for g in found if g is not None)


def compared(ours: Callable, sample: Any, where: str, values: bool) -> None:
    """One sample on both devices; without ``values`` only shapes and dtypes count."""
    for run in (lambda args, kwargs: ours(*args, **kwargs), lambda *given: gradients(ours, *given)):
        here, there = (opdb.to_weft(opdb.parts_of(sample)) for _ in range(2))
        there = to_mirror(there)
        weft.manual_seed(0)
        try:
            expected = run(*here)
        except Exception:
            return
        weft.manual_seed(0)
        with weft.device("mirror"):
            actual = run(*there)
        like_the_cpu(actual, expected, where, values)


def check(name: str, settings: Settings) -> tuple[int, str | None]:
    """How many samples were compared, and what differs first; None if all is well."""
    op, count = opdb.BY_NAME[name], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ours = opdb.counterpart(op)
            with opdb.time_limit(settings.seconds):
                for dtype in settings.dtypes:
                    grad = dtype in ("float32", "complex128") and op.supports_autograd
                    try:
                        samples = list(opdb.samples_of(op, dtype, settings, grad))
                    except Exception:
                        continue
                    for k, sample in enumerate(samples):
                        count += 1
                        values = op.name not in opdb.UNSPECIFIED
                        compared(ours, sample, f"{dtype} sample {k}", values)
        except (Absent, opdb.Slow):
            pass
        except Mismatch as error:
            return count, str(error)
        except Exception as error:
            return count, f"{type(error).__name__}: {error}".replace("\n", " | ")
    return count, None


def names_in_scope() -> list[str]:
    """The functions of the table that weft has."""
    out = opdb.OUT_OF_SCOPE
    return [n for n in opdb.BY_NAME if n not in out and opdb.BY_NAME[n].name not in out]


def main() -> int:
    """Check the ops named on the command line, or all, and print what differs."""
    settings = FULL if "--all" in sys.argv else QUICK
    asked = [a for a in sys.argv[1:] if a != "--all"]
    names = opdb.selected(asked) if asked else names_in_scope()
    devices.register(mirror.MIRROR)
    bad = samples = 0
    for name in names:
        count, text = check(name, settings)
        samples += count
        if text is not None:
            bad += 1
            print(f"{name}: {text[:300]}", flush=True)
    print(f"{len(names)} functions, {samples} samples: {bad} functions differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main() if torch is not None else 0)
