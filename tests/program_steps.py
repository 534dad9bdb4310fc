"""The statements of random programs: what ``programs`` runs.

Statements are written while torch runs the program, so each can be chosen to fit the shapes and
dtypes that there are. Values are used again and again: most bugs of a gradient engine need a value
that is reached along several paths.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import program_blocks
import program_pool
from opdb import torch
from program_templates import (
    ALONE,
    FUNCTIONS,
    GRADS,
    HOOKS,
    KEEPERS,
    KEEPERS_1D,
    LEAF_HOOKS,
    LOSSES,
    NODE_HOOKS,
    PAIRS,
    PAIRS_1D,
    PUT,
    SEVERAL,
    TRANSPOSED,
    UNARY,
    VIEWS,
    WITH,
)
from programs import Look, Session, Step, version_of

SHAPES = (
    *((2, 3), (3,), (3, 2), (4,), (2, 2, 3), (), (1, 3), (3, 3), (2, 1), (4, 4), (1,)),
    *((2, 2), (2, 2), (2, 3, 4, 2), (1, 2, 4, 4)),
)
EMPTY = ((0,), (2, 0), (0, 3))
# Around the sizes at which another implementation takes over.
THRESHOLDS = (64, 1024, 4096, 8192, 16384, 32768)
DTYPES = {
    "float64": 55,
    "float32": 27,
    "bfloat16": 3,
    "float16": 3,
    "complex128": 5,
    "complex64": 2,
}
NUMBERS = ("0.5", "-1.25", "2.0", "2", "-0.5", "1.5", "1", "3")
MODEST = 1e4  # values beyond this are seldom used again

# Differences that are known and not mended: why, and a program that shows each. Programs leave them
# out unless asked for; a test fails when one no longer is a difference.
OPEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "late leaf": (
        "a view does not require a gradient when its base begins to",
        ("v0 = rand(1, (1,))", "v1 = v0.expand(2, 1)", "v0.requires_grad_()"),
    ),
    "expanded primal": (
        "torch copies a tangent into memory laid out like its primal, where elements may share it",
        ("v0 = rand(1, (1,)).expand(2)", "v1 = rand(2, (2,))", "v2 = tangent(torch.sin, v0, v1)"),
    ),
    "constant tangent": (
        "torch multiplies by tangents of zeros, so that of a product leads back to all factors",
        ("v0 = rand(1, (2,)).requires_grad_()", "v1 = tangent(lambda a: a * 2, v0, v0.detach())"),
    ),
    "short vector": (
        "torch clamps norms where it does not record, so the gradient of the clamped ones is wrong",
        (
            "v0 = rand(1, (3,)).requires_grad_()",
            "v1 = F.cosine_similarity(v0, rand(2, (3,)), 0, eps=9.0)",
            "v1.backward()",
        ),
    ),
}

# torch says IndexError for too few dimensions here, for no reason but its layers.
DIMS = {"unfold": 4, "avg_pool": 3, "max_pool": 3, "batch_norm": 2, "group_norm": 2, "conv": 3}

# What programs are about: weights of the kinds of statement.
COMMON = {"leaf": 4, "keep": 8, "share": 14, "pair": 10, "unary": 8, "function": 6, "view": 6}
ENDS = {"backward": 8, "gradient": 5}
THEMES: dict[str, tuple[int, dict[str, int]]] = {
    "sharing": (22, {**COMMON, **ENDS, "share": 40, "several": 4, "retain": 2, "log_hook": 2}),
    "hooks": (
        20,
        {
            **COMMON,
            **ENDS,
            "hook": 18,
            "leaf_hook": 6,
            "node_hook": 4,
            "retain": 5,
            "change_grad": 8,
            "change": 5,
            "put": 2,
            "several": 3,
            "unhook": 2,
            "numpy": 1,
            "kept": 4,
            "multi_hook": 2,
        },
    ),
    "inplace": (
        20,
        {
            "leaf": 4,
            "unary": 4,
            "pair": 5,
            "share": 3,
            "function": 2,
            "keep": 3,
            "view": 20,
            "several": 4,
            "hidden": 5,
            "change": 22,
            "with": 10,
            "put": 10,
            "turned": 2,
            "backward": 8,
            "gradient": 4,
            "drop": 2,
            "fresh": 2,
            "retain": 3,
            "hook": 4,
            "numpy": 2,
        },
    ),
    "pool": (24, {**COMMON, "pool": 45, "hook": 3, "backward": 5, "gradient": 3, "pool_in": 4}),
    "second": (
        8,
        {**COMMON, "gradient": 8, "create": 16, "backward": 5, "hook": 4, "pool": 8, "retain": 2},
    ),
    # For finite differences: nothing but functions of the leaves.
    "smooth": (0, {**COMMON, "share": 30, "several": 3}),
    "training": (
        6,
        {
            **COMMON,
            "backward": 22,
            "change_grad": 18,
            "gradient": 4,
            "quiet": 8,
            "numpy": 3,
            "hook": 5,
            "leaf_hook": 5,
            "retain": 2,
            "create": 1,
        },
    ),
}


class Writer:
    """Writes one program, statement by statement."""

    def __init__(self, seed: int, theme: str | None, show_open: bool = False) -> None:
        self.open = show_open
        self.rng = random.Random(f"program {seed}")
        self.session = Session(torch)
        self.steps: list[Step] = []
        self.looks: list[Look] = []
        self.good: list[str] = []  # names of float tensors worth using
        self.count = self.tags = 0
        self.over = False  # whether what follows would be undefined
        # What the program has so far, where that limits what may come next.
        self.pooled = self.veiled = self.saves_more = False
        self.several_hooked = False
        self.frozen: set[int] = set()  # storages that must not be changed
        names = list(THEMES)
        self.theme = theme or self.rng.choices(names, [THEMES[n][0] for n in names])[0]
        self.module_shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.dtype = self.rng.choices(list(DTYPES), list(DTYPES.values()))[0]
        if self.theme == "smooth":
            self.dtype = "float64"
        self.size = self.rng.choice(THRESHOLDS) if self.rng.random() < 0.06 else 0

    # --- emitting ----------------------------------------------------------------------

    def emit(self, code: str, new: tuple[str, ...] = (), effect: bool = False) -> bool:
        """Run a statement on torch and write it down, unless torch simply has no such thing."""
        if self.veiled and "detach_" in code:  # a view taken without recording is detached too
            return False
        step = Step(code, new, effect)
        look = self.session.do(step)
        self.saves_more |= bool(SAVES_MORE.search(code))
        if "INTERNAL ASSERT" in look.message:
            self.over = True  # torch stopped half-way, and may even crash later on
            return False
        if look.error:
            missing = any(text in look.message for text in MISSING)
            if missing and effect:
                self.over = True  # what a half-done backward leaves behind is nobody's promise
                return False
            if missing or (not effect and self.rng.random() < 0.7):
                return False
            if OVERWRITTEN.search(look.message) and (self.pooled or self.saves_more):
                self.over = True
                return False
        for name, seen in look.values.items():
            if seen == "forbidden":
                self.session.names.pop(name, None)
                self.good = [g for g in self.good if g != name]
        self.steps.append(step)
        self.looks.append(look)
        return look.error is None

    def define(self, expression: str, prefix: str = "", effect: bool = False) -> list[str]:
        """``v7 = expression``, or several names when it gives several values."""
        name = self.name()
        scope = self.session.scope
        before = len(self.steps)
        if not self.emit(f"{prefix}{name} = {expression}", (name,), effect):
            return []
        value = scope[name]
        if isinstance(value, (tuple, list)) and 1 < len(value) < 9:
            if all(isinstance(v, torch.Tensor) for v in value):
                del self.steps[before:], self.looks[before:], scope[name]
                names = tuple(self.name() for _ in value)
                for n, v in zip(names, value, strict=True):
                    scope[n] = v
                    self.session.names[n] = version_of(v)
                step = Step(f"{prefix}{', '.join(names)} = {expression}", names, effect)
                look = Look()
                for n in self.session.names if effect else names:
                    self.session.look_at(n, look)
                if effect and self.session.log:
                    self.session.look_at_log(look)
                self.steps.append(step)
                self.looks.append(look)
                for n in names:
                    self.consider(n)
                return list(names)
        self.consider(name)
        return [name]

    def allows(self, difference: str) -> bool:
        """Whether a difference that is known may be shown again."""
        return self.open or difference not in OPEN

    def name(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def tag(self) -> str:
        self.tags += 1
        return f"h{self.tags - 1}"

    def consider(self, name: str) -> None:
        """Whether a new value is of use to later statements."""
        t = self.session.scope[name]
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()):
            return
        if t.numel() > 70_000:
            return
        if t.numel():
            top = t.detach().abs().max().item()
            if not top < MODEST and self.rng.random() < 0.95:
                return
        self.good.append(name)

    # --- choosing ----------------------------------------------------------------------

    def get(self, name: str) -> Any:
        return self.session.scope[name]

    def pick(self, fits: Callable[[Any], bool] | None = None) -> str | None:
        """One of the values, later ones more often."""
        names = self.good
        if fits is not None:
            names = [n for n in names if fits(self.get(n))]
        if not names:
            return None
        k = int(len(names) * self.rng.random() ** 0.6)
        return names[min(k, len(names) - 1)]

    def some(self) -> str:
        name = self.pick() if self.rng.random() < 0.2 else self.pick(lambda t: t.requires_grad)
        return name or self.pick() or self.leaf(True)

    def like(self, name: str) -> str:
        """A value of the same shape and dtype, often the same one."""
        if self.rng.random() < 0.3:
            return name
        t = self.get(name)
        return self.pick(lambda u: u.shape == t.shape and u.dtype == t.dtype) or name

    def keeper(self, text: str, t: Any) -> str:
        choices = KEEPERS
        if t.dim() and t.shape[0] and self.rng.random() < 0.4:
            choices = KEEPERS_1D
        n = t.shape[0] if t.dim() else 1
        return self.rng.choice(choices).format(x=text, n=n)

    def kept(self, name: str) -> str:
        """A gradient-preserving function of a value, up to three deep."""
        text = name
        for _ in range(self.rng.choices((1, 2, 3), (6, 3, 1))[0]):
            text = self.keeper(text, self.get(name))
        return text

    def number(self) -> str:
        return self.rng.choice(NUMBERS)

    def shape(self) -> tuple[int, ...]:
        rng = self.rng
        if self.size and rng.random() < 0.8:
            n = self.size + rng.choice((-1, 0, 0, 1))
            return rng.choice(((n,), (n // 32, 32), (2, n // 2), (n // 64, 8, 8)))
        if rng.random() < 0.03:
            return rng.choice(EMPTY)
        return rng.choice(SHAPES)

    # --- kinds of statement ------------------------------------------------------------

    def leaf(self, grad: bool | None = None) -> str:
        rng = self.rng
        shape, dtype = self.shape(), self.dtype
        if rng.random() < 0.03 and self.theme != "smooth":
            dtype = rng.choice(list(DTYPES))
        low = rng.choice(("", "", ", 0.5, 1.5"))
        text = f"rand({rng.randrange(10**6)}, {{}}, torch.{dtype}{low})"
        layout = rng.random()
        if layout < 0.06 and len(shape) >= 2:
            text = text.format((*shape[:-2], shape[-1], shape[-2])) + ".mT"
        elif layout < 0.12 and shape:
            text = text.format((2 * shape[0], *shape[1:])) + "[::2]"
        elif layout < 0.15 and shape and self.theme != "smooth":
            # Rounding errors of the same number summed thousands of times have all one sign.
            short = ".mul(8).round().div(8)" if self.size else ""
            text = text.format((1, *shape[1:])) + f"{short}.expand({', '.join(map(str, shape))})"
        elif layout < 0.2 and len(shape) == 4:
            text = text.format(shape) + ".contiguous(memory_format=torch.channels_last)"
        else:
            text = text.format(shape)
        wants = rng.random() < 0.85 if grad is None else grad
        made = self.define(text + (".requires_grad_()" if wants else ""))
        if made and made[0] not in self.good:
            self.good.append(made[0])
        return made[0] if made else self.leaf(grad)

    def keep(self) -> None:
        self.define(self.kept(self.some()))

    def combine(self, a: str, b: str, t: Any) -> None:
        choices = PAIRS_1D if t.dim() and self.rng.random() < 0.25 else PAIRS
        if t.numel() > 64:
            choices = tuple(c for c in choices if "outer" not in c and "@" not in c)
        if t.dim() and t.numel() > 2048 * t.shape[-1]:  # products of all rows: gigabytes
            choices = tuple(c for c in choices if not re.search("matmul|linear|cdist", c))
        text = self.rng.choice(choices)
        for name in self.define(text.format(a=a, b=b)):
            if re.search(PRODUCTS, text) and self.get(name)._is_view():
                # Turned round by torch where that is cheaper, and so no value of its own.
                self.good = [n for n in self.good if n != name]

    def share(self) -> None:
        x = self.some()
        a, b = x, self.kept(x)
        if self.rng.random() < 0.3:
            a = self.kept(x)
        if self.rng.random() < 0.5:
            a, b = b, a
        self.combine(a, b, self.get(x))

    def pair(self) -> None:
        x = self.some()
        if self.rng.random() < 0.25:  # whatever broadcasts
            other = self.pick()
            if other and not enormous(self.get(x), self.get(other)):
                self.define(self.rng.choice(("{} + {}", "{} * {}", "{} - {}")).format(x, other))
                return
        self.combine(x, self.like(x), self.get(x))

    def unary(self) -> None:
        x = self.some()
        text = self.rng.choice(UNARY).format(x=x)
        if text == "diag()" and self.get(x).dim() == 1 and self.get(x).numel() > 512:
            return  # gigabytes
        self.define(f"{x}.{text}")

    def function(self) -> None:
        x, big = self.some(), None
        text = self.rng.choice(FUNCTIONS)
        big = self.get(x).numel() > 2048
        if any(name in text and self.get(x).dim() < n for name, n in DIMS.items()):
            return
        if "dropout" in text and not self.get(x).is_contiguous():
            return  # random numbers go by the order in memory, which is not compared
        if big and ("@" in text or "conv" in text or "attention" in text):
            return
        if "layer_norm" in text and self.get(x).dim() and self.get(x).shape[-1] == 2:
            # Pairs become 1 and -1, so the gradient is rounding, much of which torch's formula
            # cancels and ours does not.
            if self.get(x).dtype != torch.float64:
                return
        if "conv" in text and 0 in self.get(x).shape:
            return  # of no channels torch makes no channels, however many the weight has
        text = text.format(x=x, n=self.number(), s=self.rng.randrange(99))
        for name in self.define(text, effect="Twice" in text):
            t = self.get(name)
            if "pool1d" in text and isinstance(t, torch.Tensor):
                # A view of a pooled image in torch, and so can't be detached, and forgets its
                # hooks when it is changed; here a value of its own.
                self.frozen.add(home(t))

    def view(self) -> None:
        x = self.some()
        text = self.rng.choice(VIEWS).format(x=x)
        if text == ".mT" and not self.get(x).dim():
            return  # deprecated in torch, where it is the scalar itself
        self.define(f"{x}{text}")

    def several(self) -> None:
        x = self.some()
        t = self.get(x)
        rest = t.shape[0] - 1 if t.dim() else 0
        text = self.rng.choice(SEVERAL).format(rest=rest)
        if "topk" in text and 0 in t.stride():
            return  # which of equal values it points at is not compared
        self.define(f"{x}{text}")

    def hidden(self) -> None:
        x, text = self.pick(), self.rng.choice(VIEWS)
        if x is None or "contiguous" in text or not self.get(x).dim():
            return
        self.veiled = True
        self.define(f"{x}{text.format(x=x)}", "with torch.no_grad(): ")

    def quiet(self) -> None:
        """A change that is not recorded, such as a step of training."""
        x = self.pick(lambda t: t.is_leaf and t.requires_grad) or self.some()
        if self.writable(x) is None:
            return
        text = self.rng.choice(ALONE).format(x=x, n=self.number())
        if self.rng.random() < 0.4:
            text = f"sub_({x}.grad, alpha=0.1)"
        if unchecked(self.get(x), text):
            return
        self.emit(f"with torch.no_grad(): {x}.{text}", (), True)

    def writable(self, name: str) -> Any:
        """The tensor, unless writing to it is undefined: elements that share memory.

        Nor is what autograd.grad gives: torch's results may share memory with each other.
        """
        t = self.get(name)
        return None if home(t) in self.frozen or tangled(t) else t

    def target(self) -> str | None:
        """A value to change: views and results rather than leaves."""
        if self.rng.random() < 0.85:
            return self.pick(lambda t: not (t.is_leaf and t.requires_grad))
        return self.pick()

    def change(self) -> None:
        x = self.target()
        if x is None or self.writable(x) is None:
            return
        prefix = "with torch.no_grad(): " if self.rng.random() < 0.08 else ""
        text = self.rng.choice(ALONE).format(x=x, n=self.number())
        if text == "requires_grad_()" and not self.allows("late leaf"):
            return
        if unchecked(self.get(x), text):
            return
        self.emit(f"{prefix}{x}.{text}", (), True)

    def turned(self) -> None:
        x = self.target()
        if x is None or self.writable(x) is None:
            return
        t = self.get(x)
        if t.retains_grad:
            return  # torch keeps a retained gradient in the shape that the value had before
        self.emit(f"{x}.{self.rng.choice(TRANSPOSED)}", (), True)

    def other(self, x: str) -> str | None:
        """A value to write into another one; a copy where they share memory."""
        t = self.get(x)
        fits = lambda u: u.dim() <= t.dim() and u.numel() <= t.numel()
        y = self.like(x) if self.rng.random() < 0.5 else self.pick(fits)
        if y is None:
            return None
        u = self.get(y)
        if u.untyped_storage().data_ptr() == t.untyped_storage().data_ptr():
            return f"{y}.clone()" if y != x or 0 in t.stride() else y
        return y

    def with_(self) -> None:
        x = self.target()
        if x is None or self.writable(x) is None:
            return
        y = self.other(x)
        if y is not None:
            self.emit(f"{x}.{self.rng.choice(WITH).format(y=y)}", (), True)

    def put(self) -> None:
        x = self.target()
        if x is None or (t := self.writable(x)) is None:
            return
        y, text = self.other(x), self.rng.choice(PUT)
        if y is None:
            return
        y = f"{y}.clone()" if y == x else y
        if "[[0, 1]]" in text and (not t.dim() or t.shape[0] < 2):
            return  # torch leaves a half-written tensor behind when an index is out of range
        if 0 in t.stride() and ("> 1" in text or "[[" in text or "index" in text):
            return  # torch only warns when an index writes to memory that elements share
        if t.requires_grad and expanded(t) and "= {n}" in text:
            return  # torch fills an expanded view and then has no gradient of that
        self.emit(text.format(x=x, y=y, n=self.number()), (), True)

    def hook(self, choices: tuple[str, ...] = HOOKS) -> None:
        # torch calls a hook on one of several results with None when only others got a gradient,
        # and none on a view that was taken without recording.
        x = self.pick(lambda t: t.requires_grad and alone(t))
        if x is None or self.veiled:
            return
        text = self.rng.choice(choices).format(x=x, t=self.tag())
        keep = self.rng.random() < 0.3
        self.emit(f"r{self.tags - 1} = {text}" if keep else text)
        t = self.get(x)
        if not t.is_leaf and self.rng.random() < 0.2 and self.writable(x) is not None:
            text = self.rng.choice(ALONE).format(x=x, n=self.number())
            if not unchecked(t, text):
                self.emit(f"{x}.{text}", (), True)

    def log_hook(self) -> None:
        self.hook(HOOKS[:1])

    def unhook(self) -> None:
        handles = [n for n in self.session.scope if n[0] == "r" and n[1:].isdigit()]
        if handles:
            self.emit(f"{self.rng.choice(handles)}.remove()")

    def leaf_hook(self) -> None:
        x = self.pick(lambda t: t.is_leaf and t.requires_grad)
        if x:
            self.emit(self.rng.choice(LEAF_HOOKS).format(x=x, t=self.tag()))

    def node_hook(self) -> None:
        simple = lambda t: t.grad_fn is not None and t.grad_fn.name() in SIMPLE
        x = self.pick(simple)
        if x:
            self.emit(self.rng.choice(NODE_HOOKS).format(x=x, t=self.tag()))

    def multi_hook(self) -> None:
        a, b = self.some(), self.some()
        if (
            a != b
            and alone(self.get(a))
            and alone(self.get(b))
            and self.get(a).requires_grad
            and self.get(b).requires_grad
        ):
            self.several_hooked = True
            when = self.rng.choice(("'all'", "'any'"))
            self.emit(
                f"torch.autograd.graph.register_multi_grad_hook([{a}, {b}], "
                f"lambda gs: log.append(('{self.tag()}', gs)), mode={when})"
            )

    def kept_function(self) -> None:
        self.define(f"Kept.apply({self.some()}, log, '{self.tag()}')")

    def retain(self) -> None:
        self.emit(f"{self.some()}.retain_grad()")

    def loss(self, x: str) -> str:
        return self.rng.choice(LOSSES).format(x=x)

    def leaves(self) -> list[str]:
        return [n for n in self.good if self.get(n).is_leaf and self.get(n).requires_grad]

    def backward(self, last: bool = False) -> None:
        rng, x = self.rng, self.some()
        t = self.get(x)
        options = []
        if rng.random() < 0.5 or (self.pooled and not last):
            options.append("retain_graph=True")
        if rng.random() < 0.12:
            # The last node of each is run too. torch's may be a mere view behind the one that
            # computes, where weft has one for both, whose values may have been used up.
            plain = lambda t: t.is_leaf or t.grad_fn.name() in SIMPLE
            inputs = [n for n in self.good if self.get(n).requires_grad and plain(self.get(n))]
            chosen = rng.sample(inputs, min(len(inputs), rng.choice((1, 2))))
            if chosen:
                options.append(f"inputs=[{', '.join(chosen)}]")
        if rng.random() < 0.04:
            options.append("create_graph=True")
        form = rng.random()
        if self.several_hooked:  # torch counts a root that has such a hook otherwise
            form = max(form, 0.25)
        if form < 0.25 and t.numel() < 5000:
            seed = rng.randrange(10**6)
            weights = f"rand({seed}, {tuple(t.shape)}, {t.dtype})"
            self.emit(f"{x}.backward({', '.join([weights, *options])})", (), True)
        elif form < 0.32:
            roots = f"[{self.loss(x)}, {self.loss(self.some())}]"
            self.emit(f"torch.autograd.backward({', '.join([roots, *options])})", (), True)
        else:
            self.emit(f"{self.loss(x)}.backward({', '.join(options)})", (), True)

    def gradient(self, create: bool = False) -> None:
        rng, x = self.rng, self.some()
        inputs = [n for n in self.good if self.get(n).requires_grad]
        if not inputs:
            return
        chosen = rng.choices(inputs, k=rng.choice((1, 1, 2, 3)))
        options = [f"[{', '.join(chosen)}]"]
        if rng.random() < 0.8:
            options.append("allow_unused=True")
        if rng.random() < 0.1:
            options.append("materialize_grads=True")
        if create:
            options.append("create_graph=True")
        elif rng.random() < 0.5 or self.pooled:
            options.append("retain_graph=True")
        for name in self.define(f"grad({', '.join([self.loss(x), *options])})", effect=True):
            t = self.get(name)
            if not isinstance(t, torch.Tensor):
                continue
            self.frozen.add(home(t))
            if not create and not t.is_contiguous():
                # weft's lie in memory of their own, so there ``contiguous`` is no copy.
                self.good = [n for n in self.good if n != name]

    def create(self) -> None:
        self.gradient(create=True)

    def change_grad(self) -> None:
        holders = [n for n in self.leaves() if self.get(n).grad is not None]
        if not holders:
            return
        x, y = self.rng.choice(holders), self.rng.choice(holders)
        text = self.rng.choice(GRADS)
        if "{y}" in text and (expanded(self.get(x)) or expanded(self.get(y))):
            return  # torch refuses to change the one that is expanded when others have changed
        self.emit(text.format(x=x, y=y), (), True)

    def drop(self) -> None:
        if len(self.good) > 3:
            x = self.rng.choice(self.good)
            if self.emit(f"del {x}"):
                self.good.remove(x)

    def fresh(self) -> None:
        wants = self.rng.choice((".requires_grad_()", ""))
        self.define(f"{self.some()}.detach().clone(){wants}")

    def numpy(self) -> None:
        x = self.some()
        if self.get(x).dtype.itemsize > 2:
            self.define(f"torch.from_numpy({x}.detach().numpy())")

    def pool(self) -> None:
        call = program_pool.call(self)
        if call is not None:
            self.pooled = True
            prefix, expression, effect = call
            for name in self.define(expression, prefix, effect):
                t = self.get(name)
                if not isinstance(t, torch.Tensor):
                    continue
                named = {id(self.get(n)) for n in self.good if n != name}
                if (
                    # In which order a result lies in memory is not compared, so nothing may
                    # depend on it.
                    (not t._is_view() and not t.is_contiguous())
                    # Nor whether it is a view of something hidden, and so forgets its hooks when
                    # it is changed.
                    or (t._is_view() and id(t._base) not in named)
                    # The gradient of a sign is zero in weft, and none at all in torch.
                    or (t.grad_fn is not None and t.grad_fn.name() in SIGNS and not t.output_nr)
                ):
                    self.good = [n for n in self.good if n != name]

    def pool_in(self) -> None:
        call = program_pool.call(self, inplace=True)
        if call is not None:
            self.pooled = True
            self.emit(call[0] + call[1], (), True)


PRODUCTS = r"@|matmul|linear|einsum"
# torch's rules for these save more than the gradient needs, and so forbid more changes.
OVERWRITTEN = re.compile(r"modified by an inplace operation|its base has been modified inplace")
SAVES_MORE = re.compile(
    r"aminmax|_pool|cummax|cummin|gather|index_add|masked_select|median|topk|sort|attention"
)
# What torch says of functions that it lacks for a dtype, or of gradients that it lacks; and of a
# matrix that has a factor or not by the rounding of pivots that should be zero.
MISSING = (
    "not positive-definite",
    *("not implemented", "not supported", "does not support", "not differentiable"),
    *("not intended", "expected common dtype", "ZeroTensors", "error message be improved"),
)
SIMPLE = {
    *("AddBackward0", "SubBackward0", "MulBackward0", "CloneBackward0", "SinBackward0"),
    *("ExpBackward0", "TanhBackward0", "SumBackward0", "TBackward0", "ViewBackward0"),
    *("SelectBackward0", "UnsqueezeBackward0", "ExpandBackward0", "NegBackward0"),
}
SIGNS = {"LinalgSlogdetBackward0"}
METHODS = {
    "with": Writer.with_,
    "kept": Writer.kept_function,
    **{
        kind: getattr(program_blocks, kind)
        for weights in program_blocks.THEMES.values()
        for kind in weights
        if hasattr(program_blocks, kind)
    },
}


def home(t: Any) -> int:
    return 0 if t._is_zerotensor() else t.untyped_storage().data_ptr()


def alone(t: Any) -> bool:
    """Whether a tensor is the only result of its op."""
    return t.grad_fn is None or len(t.grad_fn._input_metadata) == 1


def unchecked(t: Any, text: str) -> bool:
    """Whether torch does here what it should not.

    It writes to elements that share memory, or only warns; it fills an expanded view and then has
    no gradient of that; it goes on saying that a detached tensor's gradient is retained.
    """
    if text == "detach_()":
        return t.retains_grad
    if t.requires_grad and ("fill_" in text or "zero_" in text) and expanded(t):
        return True
    return 0 in t.stride() and ("masked_fill_" in text or "tril_" in text)


def enormous(a: Any, b: Any) -> bool:
    """Whether two tensors broadcast to gigabytes."""
    try:
        return math.prod(torch.broadcast_shapes(a.shape, b.shape)) > 10**7
    except RuntimeError:
        return False


def expanded(t: Any) -> bool:
    """Whether elements along a dimension are one element in memory."""
    return any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride(), strict=True))


def tangled(t: Any) -> bool:
    """Whether elements overlap in memory in a way that nobody checks: results are undefined."""
    shape, stride = tuple(t.shape), tuple(t.stride())
    if t.is_contiguous() or expanded(t):
        return False
    places = np.zeros(shape, np.int64)
    for dim, (n, s) in enumerate(zip(shape, stride, strict=True)):
        places += (np.arange(n) * s).reshape((n,) + (1,) * (len(shape) - dim - 1))
    return len(np.unique(places)) < places.size


def program(
    seed: int, theme: str | None = None, show_open: bool = False
) -> tuple[list[Step], list[Look], Session]:
    """The program of a seed, what torch shows after each statement, and torch's names."""
    writer = Writer(seed, theme, show_open)
    rng = writer.rng
    weights = program_blocks.THEMES.get(writer.theme) or THEMES[writer.theme][1]
    kinds = list(weights)
    for k in range(rng.choice((1, 2, 3))):
        writer.leaf(True if not k else None)
    for kind in rng.choices(kinds, list(weights.values()), k=rng.randrange(4, 18)):
        if writer.over or len(writer.steps) > 40:
            break
        method = METHODS.get(kind) or getattr(Writer, kind)
        method(writer)
    if writer.theme == "smooth":
        writer.define(f"({writer.some()} * 1.5).sum()")
    elif not writer.over:
        writer.backward(last=True)
    if writer.session.names:
        writer.emit("pass", (), True)
    return writer.steps, writer.looks, writer.session
