"""Random programs, run on weft and on torch side by side.

    python -m programs 100000 [--seed S] [-j 2] [--theme sharing]
    python -m programs --show SEED

A program is a list of Python statements. ``program_steps`` writes it while torch runs it, so every
statement fits the values that exist at that point; weft then runs the same statements. Compared
are values, gradients, what hooks were given and when, version counters, which class of error was
raised, and which tensors share memory. A program that shows a difference is cut down, by leaving
out statements, and printed as a script.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

import opdb
import weft
from opdb import torch

PRELUDE = """
import copy
import math
import pickle
import numpy as np
Function, checkpoint = torch.autograd.Function, torch.utils.checkpoint.checkpoint
F, grad = torch.nn.functional, torch.autograd.grad
U = torch.nn.utils

def rand(seed, shape, dtype=torch.float64, low=-1.5, high=1.5):
    rng = np.random.default_rng(seed)
    values = rng.uniform(low, high, shape)
    if dtype.is_complex:
        values = values + 1j * rng.uniform(low, high, shape)
    return torch.from_numpy(np.asarray(values)).to(dtype)

def fit(x, *shape):
    flat, n = x.reshape(-1), math.prod(shape)
    if flat.numel() < n:
        flat = flat.repeat(-(-n // flat.numel()))
    return flat[:n].reshape(shape)

class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g

class Alias(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, g):
        return g

class Kept(Function):
    @staticmethod
    def forward(ctx, x, log, tag):
        ctx.log, ctx.tag = log, tag
        return x + 0
    @staticmethod
    def backward(ctx, g):
        ctx.log.append((ctx.tag, g))
        return g, None, None

class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x * x

class Pair(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1, x * 2
    @staticmethod
    def backward(ctx, g, h):
        return g + 2 * h

class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)
    @staticmethod
    def backward(ctx, g):
        return 2 * g

class Both(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(x, y)
        return y
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (1 - y * y) + 0 * x

class Lazy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x.sin()
    @staticmethod
    def backward(ctx, g, h):
        if g is None or h is None:
            return None if g is h else 3 * (h if g is None else g)
        return g + h

class Product(Function):
    @staticmethod
    def forward(x, y):
        return x * y
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return g * y if wanted[0] else None, g * x if wanted[1] else None

class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * ctx.factor, None

class Marked(Function):
    @staticmethod
    def forward(ctx, x):
        y, z = x * 2, x.sign()
        ctx.mark_non_differentiable(z)
        return y, z
    @staticmethod
    def backward(ctx, g, h):
        return 2 * g + h

class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch.enable_grad():
            a = x.detach().requires_grad_()
            return (a * a).sin().detach()
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            a = ctx.saved_tensors[0].detach().requires_grad_()
            return torch.autograd.grad((a * a).sin(), a, g)[0]

class Nothing(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1
    @staticmethod
    def backward(ctx, g):
        return None

class Through(Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, g):
        return g * 2

class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()
    @staticmethod
    def backward(ctx, g):
        return Product.apply(g, ctx.saved_tensors[0].exp())

class Shaped(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x * y).sum()
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

def filled(module, seed, dtype=None):
    module = module if dtype is None else module.to(dtype)
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(rand(seed + k, tuple(p.shape), p.dtype, -0.5, 0.5))
    return module

def tangent(function, x, along):
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        return forward.unpack_dual(function(forward.make_dual(x, along))).tangent
"""


class Step(NamedTuple):
    """One statement: its text, the names it defines, and whether it can change other values."""

    code: str
    new: tuple[str, ...] = ()
    effect: bool = False


class Seen(NamedTuple):
    """What can be seen of a tensor."""

    facts: tuple[Any, ...]
    values: np.ndarray
    version: int
    grad: np.ndarray | None


@dataclass
class Look:
    """What can be seen after a statement."""

    error: str | None = None
    message: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    log: list[Any] | None = None
    first: list[Any] | None = None  # the same, each entry as it was when it was made


class Difference(NamedTuple):
    """Where and how weft's run of a program is not torch's."""

    kind: str
    step: int
    text: str


# --- running ---------------------------------------------------------------------------

# PyTorch's choice between these two depends on where in its layers it gave up.
FAMILY = {"NotImplementedError": "RuntimeError", "_LinAlgError": "LinAlgError"}
STEP = re.compile(r"\bo\d+\.step\(")
TIES = 3000  # noise from here on separates equal values too


@functools.cache
def names_for(lib: Any) -> dict[str, Any]:
    """The names that every program can use."""
    scope: dict[str, Any] = {"torch": lib}
    exec(compile(PRELUDE, "<prelude>", "exec"), scope)
    return scope


@functools.lru_cache(maxsize=4096)
def compiled(code: str) -> CodeType:
    return compile(code, "<program>", "exec")


def array(t: Any) -> np.ndarray:
    """A copy of a tensor's values as NumPy has them; half types widened."""
    t = t.detach()
    if t.is_complex():
        t = t.resolve_conj()
    if t.__class__ is torch.Tensor and t._is_zerotensor():
        t = t.clone()
    if t.dtype.itemsize == 2 and t.dtype.is_floating_point:
        t = t.float()
    elif t.dtype.itemsize == 4 and t.is_complex():
        t = t.cfloat()
    elif t.is_neg():
        t = t.resolve_neg()
    return np.array(t.numpy())


def version_of(t: Any) -> int:
    """How often a tensor was changed; nobody counts that of inference tensors."""
    return 0 if t.is_inference() else t._version


class Log(list[Any]):
    """What hooks keep, and in ``first`` what each entry was when it was made."""

    def __init__(self, lib: Any) -> None:
        self.lib, self.first = lib, list[Any]()

    def append(self, entry: Any) -> None:
        super().append(entry)
        self.first.append(plain(entry, self.lib))


class Session:
    """A program's names and log in one library."""

    def __init__(self, lib: Any, noise: int = 0) -> None:
        self.lib, self.noise, self.ties = lib, noise, noise >= TIES
        self.log = Log(lib)
        self.scope: dict[str, Any] = {**names_for(lib), "log": self.log}
        self.names: dict[str, int] = {}  # tensor -> its version when it was made
        self.gradients: set[str] = set()  # names of gradients with a graph
        if noise:
            for name in ("fit", "rand"):
                self.scope[name] = functools.partial(self.off, self.scope[name])
        lib.default_generator.manual_seed(7)

    def do(self, step: Step) -> Look:
        """Run one statement and look at what it may have changed."""
        look = Look()
        before = self.versions() if STEP.search(step.code) else {}
        try:
            exec(compiled(step.code), self.scope)
        except NameError:
            look.error = "NameError"  # a statement that needs one which was left out
            return look
        except Exception as error:
            kind = type(error).__name__
            look.error, look.message = FAMILY.get(kind, kind), str(error)
        else:
            for name in step.new:
                value = self.scope[name]
                if isinstance(value, self.lib.Tensor):
                    self.names[name] = version_of(value)
                    if self.noise:
                        self.shake(value)
                    if "create_graph" in step.code:
                        self.gradients.add(name)
                else:
                    look.values[name] = plain(value, self.lib)
            if self.noise and step.effect:
                for name in self.names:
                    if name in self.scope:
                        self.shake(self.scope[name])
        for name, version in before.items():  # in how many changes a step is made is not compared
            self.names[name] += max(version_of(self.scope[name]) - version - 1, 0)
        for name in list(self.names) if step.effect else step.new:
            if name not in self.scope:
                self.names.pop(name, None)
            elif name in self.names:
                self.look_at(name, look)
        if step.effect and self.log:
            self.look_at_log(look)
        return look

    def versions(self) -> dict[str, int]:
        return {n: version_of(self.scope[n]) for n in self.names if n in self.scope}

    def look_at_log(self, look: Look) -> None:
        """Add what hooks have kept, as it is and as it was when they were given it."""
        look.log, look.first = plain(self.log, self.lib), list(self.log.first)

    def look_at(self, name: str, look: Look) -> None:
        """Add what can be seen of a tensor; one on which even looking is an error is dropped."""
        t = self.scope[name]
        try:
            own = t.is_leaf or t.retains_grad
            grad = t.grad if own else None
            facts = (
                *(tuple(t.shape), str(t.dtype), t.requires_grad, t.is_leaf, t.retains_grad),
                None if grad is None else (tuple(grad.shape), str(grad.dtype), grad.requires_grad),
            )
            if name in self.gradients:  # whether a rule uses its inputs is not compared
                facts = (*facts[:2], None, None, *facts[4:])
            version = version_of(t) - self.names[name]
            look.values[name] = Seen(
                facts, array(t), version, None if grad is None else array(grad)
            )
        except RuntimeError as error:
            look.values[name] = "forbidden"
            if "INTERNAL ASSERT" in str(error):
                look.message = str(error)  # a fault of torch's own, as where a statement meets it

    def shake(self, t: Any) -> None:
        """Change a value by about as much as rounding could have."""
        if t.is_floating_point() or t.is_complex():
            try:
                t.data.mul_(self.factor(t))
                if self.ties:  # equal values, zeros above all, are no longer equal
                    t.data.add_((self.factor(t) - 1) * t.detach().abs().max().clamp(1e-3))
            except RuntimeError:
                return  # elements that share memory

    def off(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """What a function gives, off by a rounding error."""
        return self.shaken(function(*args, **kwargs))

    def shaken(self, t: Any) -> Any:
        """The same for a value in the middle of an expression."""
        return t * self.factor(t) if t.is_floating_point() or t.is_complex() else t

    def factor(self, t: Any) -> Any:
        self.noise += 1
        size = 4 * self.lib.finfo(t.dtype).eps
        kick = np.random.default_rng(self.noise).uniform(-size, size, tuple(t.shape))
        return 1 + self.lib.from_numpy(np.asarray(kick)).to(t.dtype)

    def kept(self) -> Iterator[tuple[str, Any]]:
        """Everything that the program can still reach, with a name for it."""
        for name in self.names:
            t = self.scope.get(name)
            if t is None:
                continue
            yield name, t
            try:
                if (t.is_leaf or t.retains_grad) and t.grad is not None:
                    yield f"{name}.grad", t.grad
            except RuntimeError:
                continue
        for k, entry in enumerate(self.log):
            for j, g in enumerate(opdb.tensors_in(entry)):
                yield f"log[{k}][{j + 1}]", g


def plain(value: Any, lib: Any) -> Any:
    """Containers as lists, tensors as arrays with their dtype's name."""
    if isinstance(value, lib.Tensor):
        return str(value.dtype), array(value)
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, (list, tuple)):
        return [plain(v, lib) for v in value]
    if isinstance(value, dict):
        return {k: plain(v, lib) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return type(value).__name__


# --- comparing -------------------------------------------------------------------------


SHARE = [1.0]  # of the tolerances


def unlike(a: np.ndarray, e: np.ndarray, dtype: str) -> str | None:
    """How weft's values differ from torch's, or None."""
    if a.shape != e.shape or a.dtype != e.dtype:
        return f"{a.dtype}{list(a.shape)} where torch has {e.dtype}{list(e.shape)}"
    if np.array_equal(a, e):
        return None
    if a.dtype.kind not in "fc":
        return f"{brief(a)} where torch has {brief(e)}"
    name = dtype.removeprefix("torch.")
    relative, absolute = (SHARE[0] * t for t in opdb.TOLERANCE.get(name, (0.0, 0.0)))
    with np.errstate(all="ignore"):
        size = np.abs(e)
        finite = np.isfinite(size)
        absolute *= min(max(size[finite].max(initial=0.0), 1.0), opdb.LARGEST_SCALE)
        close = (np.abs(a - e) <= absolute + relative * size) & finite | (a == e)
        if a.dtype.kind == "c":
            close |= ~np.isfinite(a) & ~finite
        else:
            close |= np.isnan(a) & np.isnan(e)
    if close.all():
        return None
    return f"{brief(a)} where torch has {brief(e)} ({int((~close).sum())} of {a.size} differ)"


def brief(a: np.ndarray) -> str:
    return np.array2string(a, threshold=12, edgeitems=2, precision=6).replace("\n", "")


def unlike_plain(a: Any, e: Any) -> str | None:
    """The same for containers, numbers and arrays."""
    if isinstance(e, tuple) and isinstance(a, tuple):
        if a[0] != e[0]:
            return f"{a[0]} where torch has {e[0]}"
        return unlike(a[1], e[1], e[0])
    if isinstance(e, np.ndarray) and isinstance(a, np.ndarray):
        return unlike(a, e, str(e.dtype))
    if isinstance(e, list) and isinstance(a, list):
        if len(a) != len(e):
            return f"{len(a)} entries where torch has {len(e)}"
        for k, (x, y) in enumerate(zip(a, e, strict=True)):
            found = unlike_plain(x, y)
            if found:
                return f"[{k}]: {found}"
        return None
    if isinstance(e, dict) and isinstance(a, dict):
        return unlike_plain([*a, *a.values()], [*e, *e.values()])
    if type(a) is type(e) and isinstance(e, (float, complex)):
        return unlike(np.asarray(a), np.asarray(e), "torch.float32")
    return None if type(a) is type(e) and a == e else f"{a!r} where torch has {e!r}"


def compare(found: Look, expected: Look) -> tuple[str, str] | None:
    """The kind of difference and a text, or None."""
    if found.error and expected.error and found.error != expected.error:
        if "setStorage" in expected.message:
            return None  # torch stumbled over its own storage, before it looked at the arguments
        said = found.message.split("\n")[0]
        return "class", f"weft raised {found.error}, torch {expected.error} ({said[:200]})"
    if found.error != expected.error:
        said = (found.message if found.error else expected.message).split("\n")[0]
        return "error", f"weft raised {found.error}, torch {expected.error} ({said[:200]})"
    if found.log is not None or expected.log is not None:
        mine, theirs = ([e[0] for e in log or []] for log in (found.log, expected.log))
        if mine != theirs:
            return "hooks", f"calls {mine} where torch has {theirs}"
    for name, e in expected.values.items():
        a = found.values.get(name)
        if not isinstance(e, Seen) or not isinstance(a, Seen):
            text = unlike_plain(a, e)
            if text:
                return "value", f"{name} is {text}"
            continue
        # A rule of torch's may use an input that the gradient does not depend on.
        same = a.facts == e.facts or (
            a.facts[:-1] == e.facts[:-1]
            and None not in (a.facts[-1], e.facts[-1])
            and (*a.facts[-1][:2], True) == e.facts[-1]
        )
        if not same:
            return "facts", f"{name} is {a.facts} where torch has {e.facts}"
        text = unlike(a.values, e.values, e.facts[1])
        if text:
            return "value", f"{name} is {text}"
        if a.version != e.version:
            return "version", f"{name} changed {a.version} times where torch counts {e.version}"
        if e.grad is not None:
            text = unlike(a.grad, e.grad, e.facts[1])  # type: ignore[arg-type]
            if text:
                return "grad", f"{name}.grad is {text}"
    for k, entry in enumerate(expected.log or []):
        text = unlike_plain(found.log[k], entry)  # type: ignore[index]
        # torch may let a leaf take over memory that a hook keeps, and then adds to it. No
        # statement writes to what is in the log, so weft may also have what it was at first.
        if text and unlike_plain(found.log[k], expected.first[k]):  # type: ignore[index]
            return "log", f"log[{k}]: {text}"
    return None


def shared(mine: Session, theirs: Session) -> str | None:
    """Two tensors that share memory in weft and do not in torch, in words."""
    spans = []
    for name, t in mine.kept():
        a = t.detach()._a
        if a.size and a.flags.writeable:
            low, high = np.lib.array_utils.byte_bounds(a)
            spans.append((low, high, name))
    spans.sort()
    homes: dict[str, tuple[int, int]] = {}
    for k, (_, high, name) in enumerate(spans):
        for low, _, other in itertools.islice(spans, k + 1, None):
            if low >= high:
                break
            homes = homes or dict(storages(theirs))
            if name not in homes or other not in homes:  # in torch one is no plain memory
                continue
            if name[0] == other[0] == "l":  # hooks must not change what they are given
                continue
            (begin, end), (start, stop) = homes[name], homes[other]
            if end <= start or stop <= begin:
                return f"{name} and {other} share memory"
    return None


def storages(session: Session) -> Iterator[tuple[str, tuple[int, int]]]:
    """Where torch's tensors have their storage; what is not contiguous is left out.

    Which results are contiguous, and so what ``contiguous`` and ``reshape`` copy, is not compared.
    """
    for name, t in session.kept():
        if not t._is_zerotensor() and (t.is_contiguous() or name[0] == "l" or "." in name):
            storage = t.untyped_storage()
            yield name, (storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def replay(steps: list[Step], expected: list[Look], theirs: Session) -> Difference | None:
    """Run a program on weft and compare with what torch showed."""
    mine = Session(weft)
    for k, (step, look) in enumerate(zip(steps, expected, strict=True)):
        if look.error == "NameError":
            continue
        if "INTERNAL ASSERT" in look.message:
            return None  # a fault of torch's own, after which anything may happen there
        found = mine.do(step)
        different = compare(found, look)
        if different:
            return Difference(different[0], k, different[1])
        for name, seen in look.values.items():
            if seen == "forbidden":  # from here on any error would do
                for session in (mine, theirs):
                    session.names.pop(name, None)
    text = shared(mine, theirs)
    return Difference("memory", len(steps) - 1, text) if text else None


def run(steps: list[Step], noise: int = 0, lib: Any = torch) -> tuple[list[Look], Session]:
    """A program on torch; with noise, every value is off by about a rounding error."""
    session = Session(lib, noise)
    looks = []
    for step in steps:
        look = session.do(step)
        for name, seen in look.values.items():
            if seen == "forbidden":
                session.names.pop(name, None)
        looks.append(look)
    return looks, session


def shaky(steps: list[Step], expected: list[Look], until: int, lib: Any = torch) -> bool:
    """Whether a system itself gives something else when every value is off by a rounding error."""
    SHARE[0] = 0.25  # of what two systems may differ by, each with errors of its own
    try:
        for noise in (*range(0, TIES, 1000), *range(TIES, 3 * TIES, 1000)):
            looks, _ = run(steps[: until + 1], noise + 1, lib)
            if any(compare(a, e) for a, e in zip(looks, expected, strict=False)):
                return True
        return False
    finally:
        SHARE[0] = 1.0


def difference(
    steps: list[Step], expected: list[Look] | None = None, theirs: Session | None = None
) -> Difference | None:
    """What a program shows of a difference between the two, or None."""
    if expected is None or theirs is None:
        expected, theirs = run(steps)
    found = replay(steps, expected, theirs)
    if found is None or found.kind == "memory":
        return found
    if shaky(steps, expected, found.step):
        return None
    # A difference that is exactly zero in one system need not be so in the other.
    if found.kind == "value" and shaky(steps, run(steps, lib=weft)[0], found.step, weft):
        return None
    return found


# --- finite differences ----------------------------------------------------------------

# Functions that hide a dependence from the gradient, or lose the digits that differences need.
ROUGH = re.compile(r"detach|\.data|float32|half|bfloat16|checkpoint|manual_seed|renorm")


def slope_error(seed: int, order: int = 1) -> str | None:
    """How the gradient of a program's last value differs from its finite differences in weft.

    With ``order`` 2 the same of a sum of its first derivatives. None where it does not, and where
    the value has a kink or is too steep to tell.
    """
    from program_steps import program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps, looks, _ = program(seed, "smooth")
        good = [k for k, look in enumerate(looks) if look.error is None and steps[k].new]
        steps, looks = [steps[k] for k in good], [looks[k] for k in good]
        if any(ROUGH.search(s.code) for s in steps):
            return None
        value, leaves = evaluated(steps, 0.0, order)
        if not value.requires_grad:
            return None
        grads = weft.autograd.grad(value, list(leaves), allow_unused=True)
        along = sum(
            float((g * d).sum())
            for g, d in zip(grads, leaves.values(), strict=True)
            if g is not None
        )
        slopes = []
        for h in (1e-5, 1e-6):
            ahead, behind = (float(evaluated(steps, sign * h, order)[0]) for sign in (1, -1))
            slopes.append((ahead - behind) / (2 * h))
    scale = max(abs(along), abs(float(value)), 1.0)
    if not abs(slopes[0] - slopes[1]) <= 1e-5 * scale:
        return None
    if abs(slopes[1] - along) <= 1e-4 * scale:
        return None
    return f"seed {seed}: gradient {along}, difference {slopes[1]}\n{script(steps, looks)}"


def evaluated(steps: list[Step], h: float, order: int = 1) -> tuple[Any, dict[Any, Any]]:
    """A program's last value in weft with its leaves moved, and the direction of each leaf.

    With ``order`` 2 a weighted sum of the derivatives of that value.
    """
    session = Session(weft)
    leaves: dict[Any, Any] = {}
    rng = np.random.default_rng(5)
    for step in steps:
        exec(compiled(step.code), session.scope)
        for name in step.new:
            t = session.scope[name]
            if isinstance(t, weft.Tensor) and t.is_leaf and t.requires_grad and t not in leaves:
                direction = weft.from_numpy(np.asarray(rng.uniform(-1, 1, tuple(t.shape))))
                leaves[t] = direction
                t.data.add_(h * direction)
    value = session.scope[steps[-1].new[-1]]
    if order == 2 and value.requires_grad:
        slopes = weft.autograd.grad(value, list(leaves), create_graph=True, allow_unused=True)
        weights = [d * d + 0.5 for d in leaves.values()]
        parts = [(g * w).sum() for g, w in zip(slopes, weights, strict=True) if g is not None]
        value = sum(parts, weft.zeros((), dtype=weft.float64))
    return value, leaves


# --- cutting down ----------------------------------------------------------------------


def smallest(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A failing program without the statements that it fails without."""
    size = max(len(steps) // 2, 1)
    while size:
        k, cut = 0, False
        while k < len(steps):
            fewer = steps[:k] + steps[k + size :]
            if fewer and fails(fewer):
                steps, cut = fewer, True
            else:
                k += size
        if size > 1 or not cut:
            size //= 2
    return steps


def script(steps: list[Step], expected: list[Look]) -> str:
    """A program as Python that runs by itself."""
    lines = []
    for step, look in zip(steps, expected, strict=True):
        if look.error and look.error != "NameError":
            lines.append(
                f"try:\n    {step.code}\nexcept Exception as error:\n    print(repr(error))"
            )
        elif look.error is None:
            lines.append(step.code)
    text = "\n".join(lines)
    parts = re.split(r"\n(?=\S)", PRELUDE.strip())
    chosen: list[str] = []
    for part in reversed(parts):  # a helper may use what stands above it
        names = re.findall(r"^(?:def|class|import|from \w+ import) (\w+)| as (\w+)$", part)
        names = [n for pair in names for n in pair if n] or re.findall(r"(\w+)[,=\s]", part)[:2]
        if any(re.search(rf"\b{n}\b", "\n".join([*chosen, text])) for n in names):
            chosen.insert(0, part.rstrip())
    start = "import weft as torch  # or: import torch"
    return "\n".join([start, *chosen, "log = []", text])


@dataclass
class Report:
    """A program that shows a difference."""

    seed: int
    kind: str
    text: str
    script: str
    key: str


def check(
    seed: int, theme: str | None = None, cut: bool = True, show_open: bool = False
) -> Report | None:
    """Run a seed's program; a report with the smallest failing one if it shows a difference."""
    from program_blocks import theme_of
    from program_steps import program

    with warnings.catch_warnings(), opdb.time_limit(60):
        warnings.simplefilter("ignore")
        try:
            steps, expected, theirs = program(seed, theme or theme_of(seed), show_open)
            found = difference(steps, expected, theirs)
            if found is None:
                return None
            if cut:
                steps, found, expected = cut_down(steps, found)
        except opdb.Slow:
            return Report(seed, "slow", "took too long", "", "slow")
        except Exception:
            return Report(seed, "harness", traceback.format_exc(), "", "harness")
    code = script(steps, expected)
    called = sorted(set(re.findall(r"\.(\w+)\(", "\n".join(s.code for s in steps))))
    where = f"`{steps[found.step].code}`: {found.text}" if found.step < len(steps) else found.text
    return Report(seed, found.kind, where, code, f"{found.kind}: {' '.join(called)}")


def cut_down(steps: list[Step], found: Difference) -> tuple[list[Step], Difference, list[Look]]:
    """The smallest program with the same kind of difference."""
    if found.kind != "memory":
        steps = steps[: found.step + 1]

    def fails(fewer: list[Step]) -> bool:
        now = difference(fewer)
        return now is not None and now.kind == found.kind

    if not fails(steps):
        return steps, found, run(steps)[0]
    steps = smallest(steps, fails)
    expected, theirs = run(steps)
    return steps, replay(steps, expected, theirs) or found, expected


# --- command line ----------------------------------------------------------------------


def work(first: int, last: int, theme: str | None, cut: bool, show_open: bool) -> None:
    """Run seeds and print a line of JSON for each: what a worker process does."""
    for seed in range(first, last):
        print(json.dumps({"begin": seed}), flush=True)
        found = check(seed, theme, cut, show_open)
        if found:
            print(json.dumps(vars(found)), flush=True)


def worker(first: int, last: int, options: list[str]) -> subprocess.Popen:
    """A process that runs a range of seeds: a crash there is a finding like any other."""
    command = [sys.executable, "-m", "programs", "--work", str(first), str(last), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def results(first: int, last: int, options: list[str]) -> Iterator[dict[str, Any]]:
    """What the seeds of a range showed, with a crash as a report of its own."""
    while first < last:
        process = worker(first, last, options)
        assert process.stdout is not None
        at = first
        for line in process.stdout:
            entry = json.loads(line)
            at = entry.get("begin", at)
            yield entry
        code = process.wait()
        if code == 0:
            return
        yield vars(Report(at, "crash", f"the process ended with {code}", "", "crash"))
        first = at + 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="programs", description=__doc__.split("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, help="the first seed; a fresh one if not given")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes")
    parser.add_argument("--theme", help="only programs of this theme")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed")
    parser.add_argument("--all", action="store_true", help="print every failing program")
    parser.add_argument("--whole", action="store_true", help="do not cut failing programs down")
    parser.add_argument("--open", action="store_true", help="show known differences too")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def show(seed: int, theme: str | None) -> None:
    """Print a seed's whole program, and its difference if it has one."""
    from program_blocks import theme_of
    from program_steps import program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps, expected, theirs = program(seed, theme or theme_of(seed))
        print(script(steps, expected))
        print(f"# {difference(steps, expected, theirs)}")


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    if args.work:
        work(*args.work, args.theme, not args.whole, args.open)
        return 0
    if args.show is not None:
        show(args.show, args.theme)
        return 0
    seed = args.seed if args.seed is not None else int(time.time()) % 10**6 * 10**6
    share = -(-args.count // args.jobs)
    options = ["--theme", args.theme] if args.theme else []
    options += [f"--{name}" for name in ("whole", "open") if getattr(args, name)]
    start, kinds = time.perf_counter(), Counter[str]()
    from concurrent.futures import ThreadPoolExecutor

    def collect(k: int) -> None:
        first = seed + k * share
        last = min(first + share, seed + args.count)
        for entry in results(first, last, options):
            if "begin" in entry:
                continue
            kinds[entry["key"]] += 1
            if args.all or kinds[entry["key"]] == 1:
                print(f"# seed {entry['seed']}, {entry['kind']}: {entry['text']}")
                print(entry["script"], "\n", flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(collect, range(args.jobs)))
    seconds = time.perf_counter() - start
    for key, count in kinds.most_common():
        print(f"{count:6} {key}")
    failed = sum(kinds.values())
    print(
        f"{args.count} programs from seed {seed} in {seconds:.0f} s "
        f"({args.count / seconds:.0f}/s): {failed} with a difference, {len(kinds)} kinds"
    )
    return int(bool(failed))


if __name__ == "__main__":
    import programs  # the module that program_steps knows, not a second one named __main__

    sys.exit(programs.main())
