"""Calls of PyTorch's op table with one argument changed: where weft and PyTorch part ways.

    python -m changed_arguments [pattern]

A sample of every op is taken, and one argument at a time gets another shape, another dtype, values
that are not finite, a number out of range. Printed is what weft takes and PyTorch refuses
(``taken``), what it refuses and PyTorch takes (``refused``), and where results are not alike
(``value``). Where PyTorch merely lacks a dtype nothing is compared.
"""

from __future__ import annotations

import fnmatch
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import foreign_arguments
import opdb
from opdb import torch

# Random or undefined results, or such as are unique up to signs, a basis or rounding only. Of
# native_batch_norm PyTorch does not check the sizes, and writes beyond running statistics.
LEFT_OUT = re.compile(
    r"native_batch_norm|"
    r"rand|empty|normal|bernoulli|multinomial|dropout|poisson|cauchy|exponential|geometric|uniform|"
    r"rrelu|gumbel|fractional|resize|svd|eig|lowrank|pinv|lstsq|qr$|bessel|matrix_rank|cond$|airy|"
    r"cholesky_inverse|as_strided|geqrf|ormqr|householder|searchsorted|bucketize|^item$|set_|lu|"
    r"ldl|conj|^H$|^mH$|chunk_cat|arange|linspace|logspace|full$|full_like"
)
DTYPES = ("int64", "bool", "complex64", "float16", "float64", "uint8", "int32")
MISSING = re.compile("not implemented|INTERNAL ASSERT")


def other_tensors(t: Any) -> dict[str, Any]:
    """Tensors to stand in the place of one, by what is different about them."""
    found = {"more dimensions": t.unsqueeze(0).clone()}
    if t.numel():
        found["scalar"] = t.reshape(-1)[0].clone()
    if t.dim():
        found |= {"empty": t[:0].clone(), "flat": t.reshape(-1), "longer": torch.cat([t, t[:1]])}
        found["transposed"] = t.transpose(0, -1).clone()
        if t.shape[-1] > 1:
            found["shorter"] = t.narrow(-1, 0, t.shape[-1] - 1).clone()
    for name in DTYPES:
        if str(t.dtype) != f"torch.{name}":
            found[name] = t.to(getattr(torch, name))
    if t.is_floating_point():
        found |= {name: torch.full_like(t, float(name)) for name in ("nan", "inf")}
        found["negative"] = -t.abs() - 1
    elif t.dtype != torch.bool and not t.is_complex():
        found |= {"negative": -t - 1, "large": t + 100}
    return found


def other_values(v: Any) -> dict[str, Any]:
    """The same for numbers, strings and sequences of whole numbers."""
    if isinstance(v, torch.Tensor):
        return other_tensors(v)
    if isinstance(v, bool):
        return {"not": not v}
    if isinstance(v, int):
        return {str(n): n for n in (-1, 0, 1, 100, -100, v + 0.5)}
    if isinstance(v, float):
        return {str(n): n for n in (-1.0, 0.0, float("nan"), float("inf"))}
    if isinstance(v, str):
        return {"nonsense": "nonsense"}
    if isinstance(v, (tuple, list)) and v and all(type(n) is int for n in v):
        made = {"longer": [*v, 1], "shorter": v[:-1], "zeros": [0] * len(v), "one": v[:1]}
        made |= {str(n): [n] * len(v) for n in (-1, -2, 100)}
        return {name: type(v)(values) for name, values in made.items()}
    return {}


def outcome(function: Any, args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    opdb.both_seeds()
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error


def differences(op: Any) -> Iterator[tuple[str, str]]:
    """The kind of each difference, and what it is."""
    sample = foreign_arguments.sample_of(op)
    if sample is None:
        return
    args, kwargs = opdb.parts_of(sample)
    ours, name = opdb.counterpart(op), opdb.full_name(op)
    for place, value in (*enumerate(args), *kwargs.items()):
        for change, new in other_values(value).items():
            given = foreign_arguments.replaced(args, kwargs, place, new)
            expected, refusal = outcome(op.op, *opdb.fresh(list(given)))
            if refusal is not None and MISSING.search(str(refusal)):
                continue
            call = f"{name}, {place!r} {change}"
            try:
                with opdb.time_limit(20):
                    found, error = outcome(ours, *opdb.to_weft(list(given)))
            except opdb.Slow:
                yield "slow", call
                continue
            if refusal is not None and error is None:
                yield "taken", f"{call}: {type(refusal).__name__}: {refusal}"
            elif refusal is None and error is not None:
                yield "refused", f"{call}: {type(error).__name__}: {error}"
            elif error is None:
                try:
                    opdb.compare(found, expected, "", 1.0)
                except opdb.Mismatch as mismatch:
                    yield "value", f"{call}{mismatch}"


def main() -> int:
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    kinds = Counter[str]()
    for op in foreign_arguments.ops():
        if LEFT_OUT.search(op.name) or not fnmatch.fnmatch(opdb.full_name(op), pattern):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind, text in differences(op):
                print(kind, text.split("\n")[0][:200], flush=True)
                kinds[kind] += 1
    print(dict(kinds))
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
