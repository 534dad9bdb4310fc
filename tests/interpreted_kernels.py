"""Every kernel of the loop language in plain Python, against the reference.

    WEFT_KERNELS=python PYTHONPATH=tests python -m interpreted_kernels [op ...]

The same text is compiled by LLVM elsewhere, so this checks what the kernels say, apart from how
they are compiled. One line for each op; the last one counts.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft  # noqa: F401 - fills the registry
from weft.core import selection
from weft.core.dispatch import REGISTRY, Op
from weft.native.codegen import jit
from weft.native.memory import buffers
from weft.operators.build import Make

TOLERANCE = {"f4": 2e-6, "f8": 1e-13}


def check(op: Op, dtype: str) -> int:
    """How many of the op's samples a kernel took; raises where it differs from the reference."""
    taken = 0
    for sample in op.samples(Make()) if op.samples else ():
        args = [
            a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
            for a in sample.args
        ]
        with np.errstate(all="ignore"):
            found = selection.forward(op, args, sample.attrs)
            if found is None:
                continue
            want = op.compute(args, sample.attrs)
        taken += 1
        compare(op, found, want, dtype)
    return taken


def compare(op: Op, found: Any, want: Any, dtype: str) -> None:
    results = zip(
        found if isinstance(found, tuple) else (found,),
        want if isinstance(want, tuple) else (want,),
        strict=True,
    )
    for k, (a, b) in enumerate(results):
        if k not in op.inner_outputs and b is not None:
            size = np.abs(np.nan_to_num(np.asarray(b, "f8"))).max(initial=1.0)
            near = TOLERANCE[dtype] * 8
            np.testing.assert_allclose(a, b, rtol=near, atol=near * size, err_msg=op.name)


def main(only: list[str]) -> int:
    assert jit.INTERPRETED, "set WEFT_KERNELS=python"
    selection.start()
    buffers.ANY_SIZE.append(True)
    bad, total, ops = 0, 0, 0
    for name, op in sorted(REGISTRY.items()):
        if not (op.native or op.traced) or (only and name not in only):
            continue
        for dtype in TOLERANCE:
            try:
                taken = check(op, dtype)
            except Exception as error:
                bad += 1
                print(f"{name} {dtype}: {type(error).__name__} {str(error)[:300]}")
                continue
            total, ops = total + taken, ops + bool(taken)
    print(f"{ops} ops and types, {total} samples, {bad} wrong")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
