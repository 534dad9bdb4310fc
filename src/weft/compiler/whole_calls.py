"""Calls of weft's own functions as a whole: which can be confirmed before they run.

A public function is Python code that ends in ops. Its behaviour is determined by its arguments, by
the kinds of its tensors, and by global modes that are compared (``native_calls.Hook``); so if it is
called again on the same results and leaves, with equal numbers and settings, at the same point of
the trace, the same tokens follow. They are recorded at once, and the function does not run.

A call is observed once while it is followed. It can be confirmed from then on if its tokens read
nothing but its arguments, and it returned its arguments or new results; if it drew no random
numbers and issued no warning; and if nothing keeps a reference to a result that it did not return.
The ``forward`` of weft's own modules is such a function too, as long as the module is unmodified
(``whole_modules``), and so is its caller, ``Module.__call__``, if the module has no hooks.
"""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from numpy import ndarray

from weft.compiler import driver, native_calls, native_matching, whole_modules
from weft.compiler.matching import aside
from weft.compiler.native_calls import (
    FLAT,
    NEW_LEAF,
    OF_ADDRESS,
    OF_ARGUMENT,
    OF_LEAF,
    OF_RESULT,
    OF_VALUE,
    SINGLE,
)
from weft.compiler.native_matching import words
from weft.compiler.trace import (
    ASSIGN,
    CALL,
    DETACH,
    INPLACE,
    LEAF,
    RESULT,
    LeafSlot,
    Token,
    plain_attributes,
    same,
)
from weft.compiler.whole_modules import ModuleState, Unknown
from weft.core import device, dispatch, selection, short
from weft.core import dtype as dt
from weft.core.modes import MODES
from weft.core.overrides import REDIRECTED
from weft.core.pending import region_of
from weft.core.tensor import Parameter, Tensor
from weft.native import contract
from weft.native.codegen import jit
from weft.native.once import once
from weft.nn.module import Module
from weft.operators import overriding
from weft.operators.along import RESULT_TYPES

array_of = Tensor.__dict__["_a"].__get__
MODULE_CALL: FunctionType = vars(Module)["__call__"]
VARIANTS = 4  # of one function at one point
HOPELESS = 16  # calls of users' modules at one point, after which none is observed there
CHANGES = 64  # of modules, after which calls at one point are no longer learned
GENERATORS = 0x20 | 0x80 | 0x100 | 0x200  # flags of generator code
WITH_ARGS, WITH_KEYWORDS = 4, 8  # flags of code with ``*args`` and ``**kwargs``


class NotWhole(Exception):
    """A call that can't be confirmed as a whole."""


def functions() -> Iterator[FunctionType]:
    """The functions whose calls may be confirmed: those that only call ops."""
    for _, function in overriding.methods():
        yield function
    for _, _, function in overriding.functions():
        yield function
    if whole_modules.are_compared():
        yield from whole_modules.forwards()
        yield MODULE_CALL
    for name, module in list(sys.modules.items()):
        if name.startswith("weft.operators.") or module is short:
            yield from (x for x in vars(module).values() if isinstance(x, FunctionType))


def arguments(code: CodeType) -> int:
    """How many of the variables of some code are arguments."""
    many = bool(code.co_flags & WITH_ARGS) + bool(code.co_flags & WITH_KEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + many


def may_be_confirmed(function: FunctionType) -> bool:
    home = function.__module__ or ""
    ours = home.startswith(("weft.operators", "weft.nn", "weft.special"))
    return (ours or home in ("weft", "weft.core.short")) and not (
        function.__code__.co_flags & GENERATORS
    )


def is_monitored() -> bool:
    """Whether a debugger or another tool watches by ``sys.monitoring``, from Python 3.12 on: it
    has to see the functions that are called.
    """
    return TOOL is not None and any(TOOL(number) is not None for number in range(6))


TOOL = getattr(getattr(sys, "monitoring", None), "get_tool", None)


def compiled() -> native_calls.HookFunctions | None:
    """The hook, if there is one for this Python."""
    return _compiled[0] if _compiled else _compile()


_compiled: list[native_calls.HookFunctions] = []


@once
def compile_ahead() -> None:
    """Compile in the background what every compiled function needs, while one runs for the first
    time.
    """
    if selection.ready():
        native_matching.prepared()
        _hook()
        driver.code()
        driver.call_code()
        jit.caller()
        contract.helpers()


def _hook() -> native_calls.HookFunctions | None:
    return native_calls.functions(begin, end, LeafSlot.fits, _backward())


def _backward() -> Any:
    plain: Any = Tensor.backward
    return REDIRECTED.get(plain, plain)


def _compile() -> native_calls.HookFunctions | None:
    made, back = _hook(), _backward()
    if made is not None:
        made.marks.add(back.__code__, arguments(back.__code__))
        for function in {REDIRECTED.get(f, f) for f in functions() if may_be_confirmed(f)}:
            if function.__closure__:
                # Closures created from the same code share a code object: each gets its own, which
                # identifies it.
                function.__code__ = function.__code__.replace()
            made.marks.add(function.__code__, arguments(function.__code__))
        _compiled.append(made)
    return made


class Watched:
    """A call in progress, and the state of the region when it began."""

    def __init__(self, region: Any, code: CodeType, args: tuple[Any, ...]) -> None:
        self.region, self.code, self.args = region, code, args
        self.home, self.path, self.first = region.at, region.path, len(region.path)
        self.counts = tuple(map(len, (region.handles, region.leaves, region.numbers)))
        self.apart, self.grad = set(region.apart), MODES.now.grad
        self.spoilt = False  # by a warning, or by drawing random numbers
        self.module = state_of(code, args)

    @property
    def is_kept(self) -> bool:
        """Whether the called module is unmodified since the call began."""
        now = state_of(self.code, self.args)
        return now is self.module or (
            now is not None and self.module is not None and now.guards == self.module.guards
        )


def state_of(code: CodeType, args: tuple[Any, ...]) -> ModuleState | None:
    """The comparisons for the state of the module that a call belongs to; None for functions."""
    if not args or not isinstance(args[0], Module):
        return None
    try:
        return ModuleState(args[0], hooks=is_module_call(code))
    except Unknown:
        return None


def is_module_call(code: CodeType) -> bool:
    """Whether a code object is that of ``Module.__call__``."""
    return code is MODULE_CALL.__code__


def is_hopeless(code: CodeType, args: tuple[Any, ...]) -> bool:
    """Whether a call can never be confirmed, so that its inner calls may be observed instead: that
    of a user's module.
    """
    return is_module_call(code) and args[0].__class__ not in whole_modules.classes()


_watched: list[Watched] = []
_warn = warnings.warn


def _noticed(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None) -> None:
    """Replaces ``warnings.warn`` while a call is observed."""
    for watched in _watched:
        watched.spoilt = True
    _warn(message, category, stacklevel + 1, source)


def begin(region: Any, code: CodeType, args: tuple[Any, ...]) -> bool:
    """A function is about to run and be observed; False if that does not pay."""
    global _warn
    if is_hopeless(code, args):
        region.at.hopeless += 1
        if region.at.hopeless >= HOPELESS:  # until then a module inside may be called here
            region.at.tried.append(code)
        return False
    _watched.append(Watched(region, code, args))
    region.watched_call = _watched[-1]
    if warnings.warn is not _noticed:  # as inside a call that is observed
        _warn, warnings.warn = warnings.warn, _noticed
    return True


def end(result: Any) -> None:
    """The function has returned a result, or has failed."""
    watched = _watched.pop()
    if not _watched and warnings.warn is _noticed:
        warnings.warn = _warn
    region, home = watched.region, watched.home
    region.watched_call = None
    try:
        call = Whole(watched, result)
    except NotWhole:
        home.tried.append(watched.code)
        return
    region.candidates.append(call)


def settle(region: Any, held: int) -> None:
    """All results of a segment exist, some of them referenced: keep the calls that returned
    those.
    """
    for call in region.candidates:
        home, code = call.home, call.code
        if held & call.inner:
            home.tried.append(code)
            continue
        kept = [own for own in home.whole if not call.replaces(own)]
        home.changes += len(home.whole) - len(kept)
        home.whole = [*kept, call.own]
        variants = sum(own[native_calls.CODE] is code for own in home.whole)
        if variants >= VARIANTS or home.changes >= CHANGES:
            home.tried.append(code)
    region.candidates.clear()


class Whole:
    """One call as compiled code compares it, and what it records and returns."""

    def __init__(self, watched: Watched, result: Any) -> None:
        region = watched.region
        self.watched, self.home, self.code = watched, watched.home, watched.code
        handles, _, numbers = watched.counts
        tokens = self.tokens()
        self.flat: list[Any] = []
        lengths, classes = self.flatten()
        self.places: dict[int, int] = {}
        state, tensors = self.take_module()
        for k, x in enumerate(self.flat):
            if isinstance(x, Tensor):
                self.places.setdefault(id(x), k)
        self.check_reads(tokens)
        change = tokens.pop() if tokens[-1].kind in (ASSIGN, INPLACE) else None
        met = [slot for token in (*tokens, change) if token is not None for slot in token.leaves]
        meeting = [self.places[id(region.leaves[slot.number])] for slot in met]
        outside = any(slot.outside for slot in met)
        recipe, objects = self.recipe(meeting)
        count = sum(len(token.kinds) for token in tokens)
        results, sort = self.results(result, count, change)
        given = self.given(results, tokens)
        kinds = [kind for token in tokens for kind in token.kinds]
        self.inner = sum(1 << handles + k for k in range(count) if k not in given)
        made = compiled()
        assert made is not None
        guards = words([x for guard in state.guards for x in guard]) if state else b""
        module = id(watched.args[0]) if state else None
        outermost = is_module_call(self.code) and not watched.args[0]._scope_name
        self.own = (
            made.table, self.code, words(lengths), tuple(classes), words(recipe), tuple(objects),
            tuple(tokens), tokens[-1].after if tokens else self.home,
            tuple(kind if k in given else None for k, kind in enumerate(kinds)),
            tuple(range(handles, handles + count)), self.home, watched.grad,
            tuple(region.numbers[numbers:]), words(meeting), tuple(met), words(results), sort,
            change_items(change), same, take if outside else None, type(region).can_defer,
            guards, words([id(t) for t in tensors]), module, tuple(state.kept) if state else (),
            outermost,
        )  # fmt: skip
        del self.watched, self.flat  # a tensor that they reference would count as a held one

    def tokens(self) -> list[Token]:
        """The tokens of the call: a contiguous part of the path, and nothing else."""
        watched, region = self.watched, self.watched.region
        if watched.spoilt or region.learning or region.busy or region.path is not watched.path:
            raise NotWhole("something else happened during the call")
        tokens: list[Token] = region.path[watched.first :]
        if not tokens or tokens[0].home is not self.home or region.at is not tokens[-1].after:
            raise NotWhole("its tokens are not contiguous on the path")
        if region.apart != watched.apart:
            raise NotWhole("some of its results are computed separately")
        if any(t.grad is not watched.grad for t in tokens) or MODES.now.grad is not watched.grad:
            raise NotWhole("gradient recording was switched")
        if any(t.kind not in (CALL, DETACH) for t in tokens[:-1]):
            raise NotWhole("it does more than call ops")
        if tokens[-1].kind not in (CALL, DETACH, INPLACE, ASSIGN):
            raise NotWhole("it does more than call ops")
        return tokens

    def flatten(self) -> tuple[list[int], list[Any]]:
        """The arguments and the items of lists with tensors: their lengths, and their classes."""
        lengths: list[int] = []
        classes: list[Any] = []
        for x in self.watched.args:
            listed = x.__class__ in (list, tuple) and any(isinstance(y, Tensor) for y in x)
            lengths.append(len(x) if listed else SINGLE)
            classes.append(x.__class__ if listed else None)
            self.flat += x if listed else (x,)
        if len(self.flat) > FLAT:
            raise NotWhole("too many arguments")
        return lengths, classes

    def take_module(self) -> tuple[ModuleState | None, list[Tensor]]:
        """The state of the module that runs; its tensors are read like arguments."""
        watched = self.watched
        if not watched.args or not isinstance(watched.args[0], Module):
            return None, []
        state = watched.module
        if state is None or not watched.is_kept:
            raise NotWhole("a module that can't be compared")
        given = {id(x) for x in self.flat}
        tensors = list({id(t): t for t in state.tensors if id(t) not in given}.values())
        self.flat += tensors
        if len(self.flat) > FLAT:
            raise NotWhole("too many parameters")
        return state, tensors

    def replaces(self, own: tuple[Any, ...]) -> bool:
        """Whether another call is this one with the module in a different state."""
        return self.own[native_calls.MODULE] is not None and (
            own[native_calls.CODE] is self.code
            and own[native_calls.MODULE] == self.own[native_calls.MODULE]
            and own[native_calls.GUARDS] != self.own[native_calls.GUARDS]
        )

    def check_reads(self, tokens: list[Token]) -> None:
        """All that the ops read from before the call must be arguments of it."""
        region, first = self.watched.region, self.watched.counts[0]
        for token in tokens:
            for kind, what in token.slots:
                if kind == LEAF:
                    read = region.leaves[what.number]
                elif kind == RESULT and what < first:
                    read = region.handles[what]
                    if read is None and token.kind in (ASSIGN, INPLACE):
                        read = region.handles[token.first]  # it has a new number by now
                else:
                    continue
                if id(read) not in self.places:
                    raise NotWhole("it reads tensors that are not among its arguments")
        if tokens[-1].kind in (ASSIGN, INPLACE):
            target = region.handles[tokens[-1].first]
            if not self.flat or target is not self.flat[0]:
                raise NotWhole("it modifies a tensor other than its first argument")

    def recipe(self, meeting: list[int]) -> tuple[list[int], list[Any]]:
        """How each argument is compared."""
        found: list[int] = []
        objects: list[Any] = []
        for k, x in enumerate(self.flat):
            way, number, wanted = OF_VALUE, 0, None
            if k == 0 and isinstance(x, Module):
                way, number = OF_ADDRESS, id(x)
            elif not isinstance(x, Tensor):
                wanted = constant(x)
            elif self.places[id(x)] != k:
                way, number = OF_ARGUMENT, self.places[id(x)]
            elif k in meeting:
                way = NEW_LEAF
            else:
                way, number = self.known(x)
            found += (way, number)
            objects.append(wanted)
        return found, objects

    def known(self, x: Tensor) -> tuple[int, int]:
        """Which result or leaf from before the call a tensor is."""
        region, (handles, leaves, _) = self.watched.region, self.watched.counts
        if region_of(x) is region:
            number = object.__getattribute__(x, "_stamp")[1]
            if number < handles and region.handles[number] is x:
                return OF_RESULT, number
            last = region.path[-1]  # it was modified by the call itself
            if last.kind in (ASSIGN, INPLACE) and number == last.first:
                kind, what = last.slots[0]
                if kind == RESULT:
                    return OF_RESULT, what
                if what.number < leaves:
                    return OF_LEAF, what.number
        for number in range(leaves):
            if region.leaves[number] is x:
                return OF_LEAF, number
        raise NotWhole("a tensor that no op has read")

    def results(self, result: Any, count: int, change: Token | None) -> tuple[list[int], Any]:
        """Where each returned tensor is found: among the new results, or among the arguments."""
        cls = result.__class__
        if cls in (Tensor, Parameter):
            return [self.place(result, count)], None
        if cls is not tuple and cls is not list and cls not in RESULT_TYPES.values():
            raise NotWhole("a result of an unsupported type")
        if not result:
            raise NotWhole("no results")
        made: Any = cls if cls in (tuple, list) else functools.partial(tuple.__new__, cls)
        return [self.place(x, count) for x in result], made

    def place(self, x: Any, count: int) -> int:
        if id(x) in self.places and isinstance(x, Tensor):
            return ~self.places[id(x)]
        region, first = self.watched.region, self.watched.counts[0]
        if x.__class__ is not Tensor or region_of(x) is not region:
            raise NotWhole("a result that no op computed")
        number = object.__getattribute__(x, "_stamp")[1]
        plain = x._vc == [0] and x._grad is None and x._x is None
        if not first <= number < first + count or not plain or region.handles[number] is not x:
            raise NotWhole("a result that was computed outside the call")
        return number - first

    def given(self, results: list[int], tokens: list[Token]) -> set[int]:
        """The results that need tensors: those that are returned, and those whose memory is."""
        first = self.watched.counts[0]
        roots = [root for token in tokens for root in token.roots]
        found = {k for k in results if k >= 0}
        for k in tuple(found):
            root = roots[k]
            if root.where == RESULT and root.number >= first:
                found.add(root.number - first)
        return found


def change_items(token: Token | None) -> tuple[Any, ...] | None:
    """The in-place change with which a call ends, as compiled code records it."""
    if token is None:
        return None
    kind, what = token.slots[0]
    number = what.number if kind == LEAF else ~what
    return (
        *(token, token.after, words([number]), number, token.first, token.kinds[0]),
        *(token.name, token.code, token.instruction),
    )


def constant(x: Any) -> Any:
    """A value that later calls are compared with, copied so that the program can't change it."""
    if x.__class__ in (dt.dtype, device.device) or isinstance(x, dispatch.Op):
        return x
    if not plain_attributes(x):
        raise NotWhole("an argument that can't be compared")
    return copy.deepcopy(x) if x.__class__ in (list, tuple, dict) else x


def take(slot: LeafSlot, x: Any) -> Any:
    """A copy of a leaf in memory from outside; None if a tensor can't be that leaf."""
    try:
        array = array_of(x)
    except (AttributeError, TypeError):
        return None
    kind = slot.kind
    alike = (
        x.__class__ is Tensor
        and array.__class__ is ndarray
        and array.dtype is kind.dtype
        and array.shape == kind.shape
        and array.strides == kind.strides
        and x._node is None
        and not kind.requires
        and x._base is None
        and slot.plain
        and x._x is None
    )
    # Memory that is no longer exported is copied nevertheless, which does no harm.
    return aside(array) if alike or slot.fits(x) else None
