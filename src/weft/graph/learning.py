"""On which tensors a pattern can be tried: kinds of values that a graph really has.

A pattern is an ordinary function, so its ops are known only once it has run on something. Its
placeholders are tensors that are bound to a shape and dtype when they are first looked at, to one
of those that ops of the graph read. A try ends as soon as it runs an op that the graph has not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from weft.core import overrides
from weft.core.dispatch import Op
from weft.core.dtype import F32
from weft.core.modes import enable_grad
from weft.core.tensor import Tensor, wrap
from weft.graph.listen import Listener
from weft.graph.spec import FORWARD, Ref, Spec, listening

Kind = Any  # (shape, dtype); NUMBER for a plain number
NUMBER: Kind = ((), None)
_TRIES = 4000


class Vocabulary:
    """The ops of a graph or of a running program, each with the kinds of what it reads."""

    def __init__(self) -> None:
        self.calls: set[tuple[Any, ...]] = set()
        self.beside: dict[Kind, dict[Kind, None]] = {}  # kinds that one op reads together

    @classmethod
    def of(cls, specs: dict[int, Spec]) -> Vocabulary:
        """What a graph has."""
        made = cls()
        for spec in specs.values():
            if spec.kind == FORWARD:
                kinds = [
                    specs[x.node].kind_of(x.index) if x.__class__ is Ref else _constant(x)
                    for x in spec.args
                ]
                made.add(spec.op_name, kinds)
        return made

    def add(self, name: str, kinds: Iterable[Kind | None]) -> bool:
        """Take in a use of an op; whether it was new."""
        call = (name, *kinds)
        if call in self.calls:
            return False
        self.calls.add(call)
        read = [k for k in call[1:] if k is not None and k[0] is not None]
        for kind in read:
            self.beside.setdefault(kind, {}).update(dict.fromkeys(read))
        return True

    def candidates(self, near: Iterable[Kind]) -> list[Kind]:
        """All kinds, those first that an op reads together with one that is there already."""
        first: dict[Kind, None] = {}
        for kind in near:
            first.update(self.beside.get(kind, {}))
        return list({**first, **dict.fromkeys(self.beside)})


def kind_of(x: Any) -> Kind | None:
    """What a running op reads, as a vocabulary has it."""
    return (x._a.shape, x._a.dtype) if isinstance(x, Tensor) else _constant(x)


def _constant(x: Any) -> Kind | None:
    return NUMBER if isinstance(x, (int, float, complex)) else None


class Unlike(Exception):
    """A pattern ran an op that the graph has not."""


class _Open(Tensor):
    """A placeholder whose shape and dtype are chosen when they are first asked for."""

    __torch_function__ = overrides.disabled_torch_function  # type: ignore[assignment]

    def _bound(name: str) -> Any:  # type: ignore[misc]
        def get(self: _Open) -> Any:
            own = self.__dict__
            if "inner" not in own:
                own["inner"] = own["bind"]()
            return getattr(own["inner"], name)

        def put(self: _Open, value: Any) -> None:
            get(self)
            setattr(self.__dict__["inner"], name, value)

        return property(get, put)

    bind: Callable[[], Tensor]
    _a, _node, _vc = _bound("_a"), _bound("_node"), _bound("_vc")


def _placeholder(bind: Callable[[], Tensor]) -> Tensor:
    made = object.__new__(_Open)  # without the array that a tensor is made from
    made._base = made._view = made._grad = made._x = None
    made._stamp, made.bind = 0, bind
    return made


class _Try(Listener):
    """One run of a pattern, with choices made as before up to a point, and then the first ones."""

    def __init__(self, known: Vocabulary, choices: list[int], count: int) -> None:
        self.known, self.choices = known, choices
        self.counts: list[int] = []  # how many candidates there were for each choice
        self.kinds: list[Kind | None] = [None] * count
        self.near: list[Kind] = []
        self.numbers: set[int] = set()
        self.held: list[Any] = []
        self.ops: list[Any] = []

    def bind(self, k: int) -> Tensor:
        at = len(self.counts)
        found = self.known.candidates(self.near)
        if not found:
            raise Unlike
        self.counts.append(len(found))
        if at == len(self.choices):
            self.choices.append(0)
        kind = self.kinds[k] = found[self.choices[at]]
        self.near.append(kind)
        shape, dtype = kind
        with listening():
            made = wrap(np.ones(shape, F32 if dtype is None else dtype))
            if made._a.dtype.kind in "fcV":
                made = made.requires_grad_() * 1
        if dtype is None:
            self.numbers.add(id(made._a))
            self.held.append(made)
        return made

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        kinds = [
            NUMBER if isinstance(x, Tensor) and id(x._a) in self.numbers else kind_of(x)
            for x in args
        ]
        if (op.name, *kinds) not in self.known.calls:
            raise Unlike
        self.near += [(r._a.shape, r._a.dtype) for r in results]
        self.ops.append((op.name, [x for x in args if not isinstance(x, Tensor)]))

    def changing(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        self.saw(op, args, attrs, [])


class Learned:
    """The kinds on which a pattern runs ops that a vocabulary has, one set for each way it runs."""

    def __init__(self, function: Callable, count: int, known: Vocabulary) -> None:
        self.function, self.count, self.known = function, count, known
        self.problem: Exception | None = None  # a mistake in the pattern itself
        self.ran = False  # whether the pattern came as far as its first op, or failed on shapes

    def __iter__(self) -> Iterator[list[Kind]]:
        seen: set[str] = set()
        choices: list[int] = []
        for _ in range(_TRIES):
            attempt = _Try(self.known, choices, self.count)
            if self._runs(attempt) and None not in attempt.kinds:
                ops = repr(attempt.ops)
                if ops not in seen:
                    seen.add(ops)
                    yield list(attempt.kinds)
            # The next choices: the last one that has candidates left moves on.
            del choices[len(attempt.counts) :]
            while choices and choices[-1] + 1 >= attempt.counts[len(choices) - 1]:
                choices.pop()
            if not choices:
                return
            choices[-1] += 1

    def _runs(self, attempt: _Try) -> bool:
        placeholders = [_placeholder(functools.partial(attempt.bind, k)) for k in range(self.count)]
        try:
            with listening(), enable_grad(), attempt:
                self.function(*placeholders)
        except Unlike:
            self.ran = True
            return False
        except (AttributeError, NameError) as error:
            self.problem = self.problem or error
            return False
        except Exception:
            self.ran = True  # shapes or dtypes that it does not take
            return False
        self.ran = True
        return True
