"""PyTorch's op table on the meta device: shapes, dtypes and strides without values.

Every sample runs on weft's CPU, on weft's meta device and on PyTorch's. A meta result must be like
the CPU's in weft, and like PyTorch's meta result where PyTorch has one.

    python -m opdb_meta add 'linalg.*'   # some ops, by name or pattern; all without names
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import opdb
import weft
from opdb import Absent, Mismatch, Settings, Unsupported, torch
from weft.core.meta import MetaArray, NoValues, like
from weft.core.tensor import wrap

QUICK = Settings(samples=2, dtypes=("float32",), seconds=10.0)
FULL = Settings(samples=20, seconds=40.0)


def to_meta(value: Any) -> Any:
    """A weft sample without values; numbers in tensors stay where they are."""

    def change(v: Any) -> Any:
        if isinstance(v, weft.device) or v == "cpu":
            return weft.device("meta")
        if not isinstance(v, weft.Tensor):
            return v
        made = wrap(like(v._a))
        return made.requires_grad_() if v.requires_grad else made

    return opdb.walk(value, change)


def to_torch_meta(value: Any) -> Any:
    """The same for a sample of PyTorch's."""

    def change(v: Any) -> Any:
        if isinstance(v, torch.device) or v == "cpu":
            return torch.device("meta")
        if not isinstance(v, torch.Tensor):
            return v
        made = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta")
        return made.requires_grad_(v.requires_grad)

    return opdb.walk(value, change)


def geometry(x: Any, with_strides: bool) -> Any:
    """Shape, dtype and, where asked for, strides; those of single elements tell nothing."""
    found = tuple(x.shape), str(x.dtype).removeprefix("torch.")
    if not with_strides or not x.numel():
        return found
    return *found, tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1)


def like_the_cpu(actual: Any, expected: Any, where: str) -> None:
    """Raise Mismatch unless weft's meta result is like weft's CPU result."""
    made, wanted = opdb.tensors_in(actual), opdb.tensors_in(expected)
    if len(made) != len(wanted):
        raise Mismatch(f"{where}: {len(made)} tensors where the CPU has {len(wanted)}")
    for a, e in zip(made, wanted, strict=True):
        if a._a.__class__ is not MetaArray:
            raise Mismatch(f"{where}: the result is not a meta tensor")
        if geometry(a, True) != geometry(e, True):
            raise Mismatch(f"{where}: {geometry(a, True)} where the CPU has {geometry(e, True)}")


def like_torch(actual: Any, expected: Any, where: str, strides: bool) -> None:
    """Raise Mismatch unless weft's meta result is like PyTorch's."""
    made, wanted = opdb.tensors_in(actual), opdb.tensors_in(expected)
    if len(made) != len(wanted):
        raise Mismatch(f"{where}: {len(made)} tensors where torch has {len(wanted)}")
    for a, e in zip(made, wanted, strict=True):
        if geometry(a, strides) != geometry(e, strides):
            raise Mismatch(
                f"{where}: {geometry(a, strides)} where torch has {geometry(e, strides)}"
            )


def gradients(library: Any, function: Callable, args: Any, kwargs: Any) -> Any:
    """The gradients of all results with respect to all inputs that want one."""
    wanted = [t for t in opdb.tensors_in((args, kwargs)) if t.requires_grad]
    outputs = [y for y in opdb.tensors_in(function(*args, **kwargs)) if y.requires_grad]
    if not wanted or not outputs:
        return ()
    seeds = [library.empty_like(y) for y in outputs]
    found = library.autograd.grad(outputs, wanted, seeds, allow_unused=True)
    return tuple(g for g in found if g is not None)


def check(name: str, settings: Settings, strides: bool = True) -> dict[str, str]:
    """What differs, by kind of difference; nothing if all is well."""
    op = opdb.BY_NAME[name]
    problems: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ours = opdb.counterpart(op)
            with opdb.time_limit(settings.seconds):
                for where, kind, step in steps(op, ours, settings, strides):
                    try:
                        step()
                    except (Unsupported, Absent):
                        continue
                    except NoValues as error:
                        problems.setdefault("values", f"{where}: {error}".partition("\n")[0])
                    except Mismatch as error:
                        problems.setdefault(kind, str(error))
                    except Exception as error:
                        text = f"{where}: {type(error).__name__}: {error}"
                        problems.setdefault("error", text)
        except (Absent, opdb.Slow):
            pass
    return problems


def steps(
    op: Any, ours: Callable, settings: Settings, strides: bool
) -> Iterator[tuple[str, str, Callable]]:
    """What is compared for each sample, as functions."""
    for dtype in settings.dtypes:
        differentiable = dtype in ("float32", "float64", "complex128")
        try:
            samples = opdb.samples_of(op, dtype, settings, differentiable and op.supports_autograd)
        except Exception:
            continue
        for k, sample in enumerate(samples):
            where = f"{dtype} sample {k}"
            yield where, "cpu", lambda s=sample, w=where: against_cpu(op, ours, s, w)
            yield where, "torch", lambda s=sample, w=where: against_torch(op, ours, s, w, strides)


def against_cpu(op: Any, ours: Callable, sample: Any, where: str) -> None:
    """weft's meta device against weft's CPU, forward and backward."""
    args, kwargs = opdb.to_weft(opdb.parts_of(sample))
    try:
        expected = ours(*args, **kwargs)
    except Exception as error:
        raise Unsupported(str(error)) from None
    args, kwargs = opdb.to_weft(opdb.parts_of(sample))
    without = to_meta((args, kwargs))
    with weft.device("meta"):
        actual = ours(*without[0], **without[1])
    like_the_cpu(actual, expected, where)
    args, kwargs = opdb.to_weft(opdb.parts_of(sample))
    try:
        expected = gradients(weft, ours, args, kwargs)
    except Exception:
        return
    args, kwargs = opdb.to_weft(opdb.parts_of(sample))
    without = to_meta((args, kwargs))
    like_the_cpu(gradients(weft, ours, *without), expected, f"{where}, gradients")


def against_torch(op: Any, ours: Callable, sample: Any, where: str, strides: bool) -> None:
    """weft's meta device against PyTorch's."""
    args, kwargs = opdb.parts_of(sample)
    theirs = to_torch_meta((args, kwargs))
    try:
        with torch.device("meta"):
            expected = op.op(*theirs[0], **theirs[1])
        ours(*opdb.to_weft(args), **opdb.to_weft(kwargs))
    except Exception as error:
        raise Unsupported(str(error)) from None  # PyTorch takes dtypes here that no kernel takes
    without = to_meta(opdb.to_weft(opdb.parts_of(sample)))
    with weft.device("meta"):
        actual = ours(*without[0], **without[1])
    like_torch(actual, expected, where, strides)


def main() -> int:
    """Check the ops named on the command line, or all, and print what differs."""
    names = opdb.selected(sys.argv[1:]) if len(sys.argv) > 1 else list(opdb.BY_NAME)
    bad = 0
    for name in names:
        if name in opdb.OUT_OF_SCOPE or opdb.BY_NAME[name].name in opdb.OUT_OF_SCOPE:
            continue
        for kind, text in check(name, QUICK).items():
            bad += 1
            print(f"{name} [{kind}] {text[:300]}", flush=True)
    print(bad)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
