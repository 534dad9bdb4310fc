"""Calls of every public function for random programs, taken from PyTorch's own op table.

A sample of the table gives a function and a pattern of arguments; its tensors are replaced by the
program's values, cut or repeated to fit, so that the function stands in the middle of a graph.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from typing import Any
from unittest import mock

import opdb
from opdb import torch

# Results that are unique up to signs or a basis only, undefined, or not a function's.
LEFT_OUT = re.compile(
    r"svd|eig|lowrank|as_strided|empty|resize|^item$|^T$|^H$|^mT$|^mH$|bessel|set_|"
    r"^to$|^contiguous$|norm\.nuc|matrix_rank|cond$|pinv|lstsq|geqrf|ormqr|"
    r"householder|searchsorted|bucketize|einsum|conj|nested|sparse|^qr$|linalg\.qr|_chunk_cat|allclose|equal$"
)
RANDOM = re.compile(
    r"drop|rand|bernoulli|normal|multinomial|rrelu|gumbel|fractional|cauchy|exponential|geometric|"
    r"uniform|poisson|feature_alpha"
)
# Differentiable in weft only (airy), or more so: PyTorch forgets the gradients of the mean and the
# deviation (group norm), and says that copies of what needs no gradient or boundaries need one.
OPEN = re.compile(r"airy|native_group_norm|histogram|triangular_solve")
SAMPLES = 24
LARGEST = 4096
LITERAL = 40


class Unfit(Exception):
    """A sample that cannot be written as a statement."""


@functools.cache
def table() -> list[Any]:
    """The entries of the op table that programs can call."""
    kept = []
    for op in opdb.op_db:
        name = opdb.full_name(op)
        if op.name in opdb.OUT_OF_SCOPE or name in opdb.OUT_OF_SCOPE or LEFT_OUT.search(op.name):
            continue
        if OPEN.search(op.name) or op.name in opdb.UNSPECIFIED or LEFT_OUT.search(name):
            continue
        kept.append(op)
    return kept


@functools.cache
def samples(index: int, dtype: str) -> list[Any]:
    """Sample inputs of an entry; none where it does not take the dtype."""
    op = table()[index]
    if getattr(torch, dtype) not in op.supported_dtypes("cpu"):
        return []
    state = torch.get_rng_state()
    found = []
    # The table seeds before every sample and looks for a test among the callers, by two names for
    # each op: all three take milliseconds.
    internal = "torch.testing._internal"
    with (
        mock.patch("torch.manual_seed", torch.default_generator.manual_seed),
        mock.patch(f"{internal}.common_utils.extract_test_fn", lambda: None),
        mock.patch(f"{internal}.opinfo.core.extract_test_fn", lambda: None),
    ):
        torch.manual_seed(0)
        made = op.sample_inputs("cpu", getattr(torch, dtype))
        for sample in itertools.islice(made, 5 * SAMPLES):
            tensors = opdb.tensors_in(opdb.parts_of(sample))
            if all(t.layout == torch.strided and t.numel() <= LARGEST for t in tensors):
                found.append(sample)
    torch.set_rng_state(state)
    return found[:: max(len(found) // SAMPLES, 1)]


def public(op: Any) -> tuple[str, bool]:
    """How a program spells the function, and whether it is a method."""
    try:
        opdb.look_up(torch, op.name)
        return f"torch.{op.name}", False
    except AttributeError:
        return op.name, True


def call(writer: Any, inplace: bool = False) -> tuple[str, str, bool] | None:
    """A prefix, an expression, and whether it changes an argument."""
    rng = writer.rng
    index = rng.randrange(len(table()))
    op = table()[index]
    try:
        found = samples(index, writer.dtype)
    except Exception:  # a sample that torch itself cannot make
        found = []
    if not found:
        return None
    sample = rng.choice(found)
    args, kwargs = opdb.parts_of(sample)
    name, method = public(op)
    if inplace:
        if op.inplace_variant is None or sample.broadcasts_input:
            return None
        name, method = getattr(op.inplace_variant, "__name__", ""), True
        if not name:
            return None
    elif hasattr(op.method_variant, "__name__") and rng.random() < 0.3:
        name, method = op.method_variant.__name__, True
    if method and not isinstance(args[0], torch.Tensor):
        return None
    if op.name == "cholesky_inverse" and "complex" in writer.dtype:
        return None  # undefined unless the diagonal is real, and a program's values are not
    if op.name.endswith("cosine_similarity") and "eps" in kwargs:
        if not writer.allows("short vector"):
            return None
    try:
        texts = [text(writer, a, k == 0) for k, a in enumerate(args)]
        if "_polynomial_" in op.name and isinstance(args[1], torch.Tensor):
            # Of a high degree far out torch's recurrences end in the difference of infinities.
            texts[1] = f"torch.tensor({numbers(args[1].tolist())}, dtype={args[1].dtype})"
        named = [f"{k}={text(writer, v)}" for k, v in kwargs.items()]
    except Unfit:
        return None
    if "batch_norm" in op.name and (twofold(texts, named) or moved(texts, named)):
        return None
    if inplace and op.name.startswith("logical_"):
        # PyTorch leaves the history as it was, as if nothing had changed, on leaves too.
        return None
    if inplace:
        texts[0] = f"({texts[0]} * 1)" if rng.random() < 0.7 else texts[0]
    if method:
        expression = f"{texts[0]}.{name}({', '.join(texts[1:] + named)})"
    else:
        expression = f"{name}({', '.join(texts + named)})"
    prefix = (
        f"torch.default_generator.manual_seed({rng.randrange(99)}); "
        if RANDOM.search(op.name)
        else ""
    )
    return prefix, expression, name.endswith("_") or inplace


def twofold(texts: list[str], named: list[str]) -> bool:
    """Whether running statistics are also weight or bias, which torch reads after the update."""
    values = re.compile(r"\bv\d+\b")
    return not set(values.findall(" ".join(texts[1:3]))).isdisjoint(
        values.findall(" ".join([*texts[3:], *named]))
    )


def moved(texts: list[str], named: list[str]) -> bool:
    """Whether a value of the program is updated as a running statistic: torch counts no change."""
    return "training=True" in named and bool(re.search(r"\bv\d+\b", " ".join(texts[1:3])))


def text(writer: Any, value: Any, first: bool = False) -> str:
    """A sample's argument as Python."""
    if isinstance(value, torch.Tensor):
        return tensor_text(writer, value, first)
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    if isinstance(value, torch.Size):
        return repr(tuple(value))
    if isinstance(value, list):
        return "[" + ", ".join(text(writer, v) for v in value) + "]"
    if type(value) is tuple:
        return "(" + "".join(f"{text(writer, v)}, " for v in value) + ")"
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device('{value}')"
    if isinstance(value, slice) or value is Ellipsis:
        return repr(value)
    raise Unfit


def tensor_text(writer: Any, t: Any, first: bool) -> str:
    """A tensor of a sample: one of the program's values if it can be, or a literal."""
    rng = writer.rng
    shape = tuple(t.shape)
    same = str(t.dtype) == f"torch.{writer.dtype}"
    if same and t.numel() and rng.random() < (0.75 if first else 0.6):
        name = writer.pick(lambda u: tuple(u.shape) == shape and u.dtype == t.dtype)
        if name is not None and rng.random() < 0.6:
            return name if rng.random() < 0.6 else writer.keeper(name, t)
        name = writer.pick(lambda u: u.numel() > 0 and u.dtype == t.dtype and u.requires_grad)
        if name is not None:
            sizes = "".join(f", {n}" for n in shape)
            return f"fit({name}{sizes})"
    if not t.numel():
        return f"torch.empty({shape}, dtype={t.dtype})"
    if t.numel() <= LITERAL:
        values = numbers(t.detach().resolve_conj().resolve_neg().tolist())
        wants = ".requires_grad_()" if same and rng.random() < 0.3 else ""
        return f"torch.tensor({values}, dtype={t.dtype}){wants}"
    if not t.dtype.is_floating_point and not t.dtype.is_complex:
        if t.numel() > 8 * LITERAL:
            raise Unfit
        return f"torch.tensor({t.tolist()}, dtype={t.dtype})"
    return f"rand({rng.randrange(10**6)}, {shape}, {t.dtype})"


def numbers(value: Any) -> str:
    """Nested lists of numbers as Python."""
    if isinstance(value, list):
        return "[" + ", ".join(numbers(v) for v in value) + "]"
    if isinstance(value, float):
        return f"float('{value}')" if not math.isfinite(value) else repr(value)
    if isinstance(value, complex) and not (math.isfinite(value.real) and math.isfinite(value.imag)):
        return f"complex('{value}')"
    return repr(value)
