"""A pickle machine that builds data and runs no code.

It knows the instructions that data needs and an allow-list of names. It never imports a module and
calls nothing but the builders below (and what the user has allowed). Work and memory are limited
by the length of the pickle, so a short file can't keep the machine busy.
"""

from __future__ import annotations

import contextlib
import pickle
import pickletools
import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType, MethodType
from typing import Any

from weft.core import device as dev
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.io import rebuild

_DEEPEST = 1000
_FREE_WORK, _WORK_PER_BYTE, _WORK_PER_COPY = 1_000_000, 8, 8
_WORK_PER_ATTRIBUTE = 64
_LONGEST_NAME = 300
# Names that give a file the run of the machine, however they came to be allowed.
_NEVER = frozenset(
    {"os", "posix", "nt", "sys", "subprocess", "pty", "importlib", "runpy", "ctypes"}
)
_MARK = object()

_allowed: dict[str, Any] = {}


# ------------------------------------------------------------------ what the user allows


def _name(item: Any) -> tuple[str, Any]:
    if isinstance(item, tuple):
        thing, name = item
        return name, thing
    try:
        return f"{item.__module__}.{item.__qualname__}", item
    except AttributeError:
        raise TypeError(
            f"add_safe_globals takes classes and functions, or pairs (class, name), not {item!r}"
        ) from None


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let files name these classes and functions, which ``load`` may then call."""
    _allowed.update(_name(item) for item in safe_globals)


def get_safe_globals() -> list[Any]:
    """What has been allowed so far."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Allow nothing beyond what ``load`` always knows."""
    _allowed.clear()


class safe_globals(contextlib.AbstractContextManager):
    """Allow classes and functions within a ``with`` block."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self.items = list(safe_globals)

    def __enter__(self) -> None:
        self.before = dict(_allowed)
        add_safe_globals(self.items)

    def __exit__(self, *exc: object) -> None:
        _allowed.clear()
        _allowed.update(self.before)


# ------------------------------------------------------------------ what is always allowed


_LATIN = ("latin1", "latin-1")


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    # Python 2's pickles spell bytes like this. Another codec could be a whole decompressor.
    if type(text) is not str or encoding not in _LATIN:
        raise TypeError(f"_codecs.encode is for bytes as latin1, not for {rebuild.shown(encoding)}")
    return text.encode("latin-1")


def _bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    # bytearray(10**12) would be a way to ask for a terabyte.
    return bytearray(data if type(data) is bytes else _encode(data, encoding))


def _complex(real: Any = 0.0, imag: Any = 0.0) -> complex:
    if not {type(real), type(imag)} <= {int, float}:
        raise TypeError("a complex number in the file is not made of numbers")
    return complex(real, imag)


def _device(kind: Any, index: Any = None) -> dev.device:
    if type(kind) is not str or len(kind) > _LONGEST_NAME:
        raise TypeError("a device in the file has no name")
    if index is not None and (type(index) is not int or not 0 <= index < 1 << 15):
        raise TypeError(f"a device in the file has number {rebuild.shown(index)}")
    return dev.device(kind) if index is None else dev.device(kind, index)


def _size(sizes: Any = ()) -> Size:
    if not all(type(length) is int for length in sizes):
        raise TypeError("a torch.Size in the file holds something that is not an int")
    return Size(sizes)


_BUILTINS: dict[str, Any] = {
    "builtins.set": set,
    "builtins.bytearray": bytearray,
    "builtins.complex": complex,
    "collections.Counter": Counter,
    "_codecs.encode": _encode,
}
_KNOWN = {**rebuild.NAMES, **_BUILTINS}
# Callables by identity, with what really is called in their place.
_BUILDERS: dict[int, Callable] = {
    **{id(f): f for f in rebuild.FUNCTIONS.values()},
    id(dev.device): _device,
    id(Size): _size,
    id(rebuild.CLASSES["torch.nn.parameter.Parameter"]): rebuild.rebuild_parameter,
    id(set): set,
    id(bytearray): _bytearray,
    id(complex): _complex,
    id(Counter): Counter,
    id(_encode): _encode,
}
_COPIERS = (set, _bytearray, Counter, _encode, _size, OrderedDict)
# Which argument of these is a dict of attributes.
_STATE_AT = {rebuild.rebuild_from_type_v2: 3, rebuild.rebuild_parameter_with_state: 3}
_PYTHON2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def refused(name: str) -> pickle.UnpicklingError:
    """The error for a name that is not allowed."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}..."
    short = name.rpartition(".")[2]
    if name.startswith("torch") and short in rebuild.UNSUPPORTED:
        return pickle.UnpicklingError(
            f"the file holds a kind of tensor that weft does not have ({name})"
        )
    return pickle.UnpicklingError(
        f"Weights only load failed: the file asks for {name}, which is not data and was not "
        "loaded, because code from a file can do anything to your machine. If you trust the "
        f"source, allow this one name with torch.serialization.add_safe_globals([{short}]) or the "
        f"context manager torch.serialization.safe_globals([{short}]), or allow everything with "
        "torch.load(..., weights_only=False)."
    )


def named_globals(data: bytes) -> set[str]:
    """The names of classes and functions in a pickle, found by reading it without running it."""
    found: set[str] = set()
    texts: list[str] = []  # the last two of which STACK_GLOBAL takes
    memo: dict[Any, str | None] = {}
    last: str | None = None  # the text that was pushed last, if nothing came after it
    try:
        for step, argument, _ in pickletools.genops(data):
            if step.name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                memo[len(memo) if argument is None else argument] = last
                continue
            if step.name in ("GLOBAL", "INST"):
                found.add(str(argument).replace(" ", "."))
            elif step.name == "STACK_GLOBAL":
                found.add(".".join(texts[-2:]))
            text = memo.get(argument) if step.name.endswith("GET") else argument
            last = text if type(text) is str and step.name not in ("GLOBAL", "INST") else None
            texts += [] if last is None else [last]
    except ValueError as error:
        raise pickle.UnpicklingError(f"the pickle is damaged: {error}") from error
    return found


def is_known(full: str) -> bool:
    """Whether files may name this, by the rules of ``load`` or because the user allowed it."""
    module, _, name = full.rpartition(".")
    try:
        find_global(module, name)
    except pickle.UnpicklingError:
        return False
    return True


def find_global(module: str, name: str) -> Any:
    """What a name in a file stands for, if it is allowed."""
    full = f"{_PYTHON2.get(module, module)}.{name}"
    if full in _KNOWN:
        return _KNOWN[full]
    own = "weft" + full[5:] if full.startswith("torch.") else full
    for spelling in (full, own):
        if spelling in _allowed:
            if module.partition(".")[0] in _NEVER:
                raise pickle.UnpicklingError(
                    f"Weights only load failed: {full} is refused even if it was allowed, since "
                    f"module {module} can do anything to your machine"
                )
            return _allowed[spelling]
    raise refused(full)


# ------------------------------------------------------------------ the machine


class Machine:
    """Runs one pickle from ``data[at:]``; ``run`` gives the object and where the pickle ended."""

    def __init__(
        self, data: bytes, persistent_load: Callable[[Any], Any], at: int = 0,
        encoding: str = "utf-8",
    ) -> None:  # fmt: skip
        self.data, self.at, self.persistent_load = data, at, persistent_load
        self.encoding = encoding
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.depth: dict[int, int] = {}
        self.hashes: dict[int, dict[int, int]] = {}
        self.work = _FREE_WORK + _WORK_PER_BYTE * (len(data) - at)

    def run(self) -> tuple[Any, int]:
        """Build the object; any fault of the pickle is an ``UnpicklingError``."""
        data, end, table = self.data, len(self.data), _TABLE
        try:
            while self.at < end:
                code = data[self.at]
                self.at += 1
                if code == 0x2E:  # STOP
                    if len(self.stack) != 1:
                        raise pickle.UnpicklingError("the pickle ends in the middle of something")
                    return self._pop(), self.at
                step = table.get(code)
                if step is None:
                    raise pickle.UnpicklingError(
                        f"Weights only load failed: pickle instruction {bytes([code])!r} at byte "
                        f"{self.at - 1} is not one that data needs"
                    )
                step(self)
        except (pickle.UnpicklingError, RuntimeError, MemoryError, OSError):
            raise
        except Exception as error:
            raise pickle.UnpicklingError(
                f"the pickle is damaged near byte {self.at}: {type(error).__name__}: {error}"
            ) from error
        raise pickle.UnpicklingError("the pickle is cut off: it has no end")

    # --- bytes, the stack, and the limits ---

    def _take(self, size: int) -> bytes:
        start = self.at
        if size < 0 or start + size > len(self.data):
            raise pickle.UnpicklingError(
                f"the pickle is cut off: it refers to {size} bytes at byte {start}, but has "
                f"{len(self.data)}"
            )
        self.at = start + size
        return self.data[start : start + size]

    def _line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise pickle.UnpicklingError("the pickle is cut off in a name")
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def _pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise pickle.UnpicklingError("the pickle takes a value that is not there")
        return value

    def _pop_mark(self) -> list[Any]:
        stack = self.stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                items = stack[at + 1 :]
                del stack[at:]
                return items
        raise pickle.UnpicklingError("the pickle has no mark where it needs one")

    def _spend(self, amount: int) -> None:
        self.work -= amount
        if self.work < 0:
            raise pickle.UnpicklingError(
                "the pickle asks for much more work than its length justifies: it looks like a "
                "denial-of-service attack"
            )

    def _nest(self, container: Any, items: Iterable[Any]) -> None:
        """Note how deep a container is, now that these items are in it."""
        depth = self.depth
        deepest = depth.get(id(container), 0)
        for item in items:
            if type(item) not in _FLAT:
                deepest = max(deepest, depth.get(id(item), 0) + 1)
        if deepest > _DEEPEST:
            raise pickle.UnpicklingError(f"the pickle is nested more than {_DEEPEST} levels deep")
        if deepest:
            depth[id(container)] = deepest

    def _fresh(self, container: Any, items: Iterable[Any] = ()) -> None:
        # An object that is gone may have had this id.
        self.depth.pop(id(container), None)
        self.hashes.pop(id(container), None)
        self._nest(container, items)
        self.stack.append(container)

    def _check_keys(self, keys: Iterable[Any], table: Any = None) -> None:
        """Pay for putting keys into a table that is there, or into a new one."""
        place, letters = id(table), 0
        if table is None:
            self.hashes.pop(place, None)
        for key in keys:
            if type(key) is str or type(key) is bytes:
                letters += len(key) >> 8  # equal keys are compared to their ends
            else:
                self._check_key(key, place)
        self._spend(letters)

    def _check_key(self, key: Any, place: int) -> None:
        """Pay for putting a key that is not text into the table at a place.

        Hashing walks through tuples without remembering, and a key is compared with all those
        before it that have its hash, which for anything but text can be arranged.
        """
        kind = type(key)
        if kind in _SMALL and not (kind is int and key.bit_length() > 64):
            self._spend(1)
            return
        weight, waiting = 0, [key]
        while waiting:
            part = waiting.pop()
            cost = 1
            if isinstance(part, (tuple, frozenset)):
                waiting.extend(part)
            elif type(part) is int:
                cost += part.bit_length() >> 6
            elif type(part) in (str, bytes):
                cost += len(part) >> 8
            self._spend(cost)
            weight += cost
        counts = self.hashes.setdefault(place, {})
        code = hash(key)
        before = counts.get(code, 0)
        self._spend(before * weight)
        counts[code] = before + 1

    # --- constants ---

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if version > pickle.HIGHEST_PROTOCOL:
            raise pickle.UnpicklingError(f"pickle protocol {version} is unknown")

    def _float(self) -> None:
        self.stack.append(struct.unpack(">d", self._take(8))[0])

    def _long(self, width: int) -> None:
        size = int.from_bytes(self._take(width), "little", signed=width == 4)
        self.stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def _number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _text(self, width: int) -> None:
        self.stack.append(self._take(self._number(width)).decode("utf-8", "surrogatepass"))

    def _bytes(self, width: int) -> None:
        self.stack.append(self._take(self._number(width)))

    def _old_string(self, width: int) -> None:
        # Python 2's, which were text or bytes; the caller knows which.
        found = self._take(self._number(width, signed=width == 4))
        self.stack.append(found if self.encoding == "bytes" else found.decode(self.encoding))

    def _byte_array(self) -> None:
        self.stack.append(bytearray(self._take(self._number(8))))

    # --- containers ---

    def _tuple(self, items: list[Any]) -> None:
        made = tuple(items)
        if made:
            self._fresh(made, made)
        else:
            self.stack.append(made)

    def _short_tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._tuple(items[::-1])

    def _append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise pickle.UnpicklingError(f"the pickle appends to a {type(target).__name__}")
        self._nest(target, items)
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise pickle.UnpicklingError(f"the pickle sets items of a {type(target).__name__}")
        self._nest(target, items)
        self._check_keys(items[::2], target)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[key] = value

    def _add_items(self) -> None:
        items = self._pop_mark()
        target = self.stack[-1]
        if type(target) is not set:
            raise pickle.UnpicklingError(f"the pickle adds to a {type(target).__name__}")
        self._check_keys(items, target)
        self._nest(target, items)
        target.update(items)

    def _frozen_set(self) -> None:
        items = self._pop_mark()
        self._check_keys(items)
        self._fresh(frozenset(items), items)

    # --- the memo ---

    def _put(self, index: int) -> None:
        value = self.stack[-1]
        if value is _MARK:
            raise pickle.UnpicklingError("the pickle remembers a value that is not there")
        self.memo[index] = value

    def _get(self, index: int) -> None:
        if index not in self.memo:
            raise pickle.UnpicklingError(
                f"the pickle reads memo entry {index}, which it never stored"
            )
        self.stack.append(self.memo[index])

    # --- names and objects ---

    def _global(self) -> None:
        module = self._line()
        self.stack.append(find_global(module, self._line()))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise pickle.UnpicklingError("the pickle has a name that is not text")
        self.stack.append(find_global(module, name))

    def _persistent(self) -> None:
        self.stack.append(self.persistent_load(self._pop()))

    def _user_allowed(self, thing: Any) -> bool:
        return any(thing is known or _same_method(thing, known) for known in _allowed.values())

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if type(arguments) is not tuple:
            raise pickle.UnpicklingError("the pickle makes a call without a tuple of arguments")
        builder = _BUILDERS.get(id(function))
        if builder is None:
            if not self._user_allowed(function):
                raise pickle.UnpicklingError(
                    f"Weights only load failed: the file calls {rebuild.shown(function)}, which "
                    "is not allowed"
                )
            builder = function
        elif builder in _STATE_AT:
            self._check_stateful(builder, arguments)
        elif builder in _COPIERS:
            self._check_copy(builder, arguments)
        made = builder(*arguments)
        self._fresh(made, arguments)

    def _check_stateful(self, builder: Any, arguments: tuple[Any, ...]) -> None:
        kind: Any = rebuild.CLASSES["torch.nn.parameter.Parameter"]
        if builder is rebuild.rebuild_from_type_v2:
            function, kind, inner = arguments[:3]
            plain = any(kind is c for c in rebuild.CLASSES.values()) or self._user_allowed(kind)
            known = any(function is f for f in rebuild.TENSOR_FUNCTIONS.values())
            if not plain or not known or not isinstance(kind, type) or type(inner) is not tuple:
                raise pickle.UnpicklingError(
                    f"Weights only load failed: the file makes a {rebuild.shown(kind)} by "
                    f"{rebuild.shown(function)}, which is not allowed"
                )
            if function in _STATE_AT:
                self._check_stateful(function, inner)
        self._check_state(kind, arguments[_STATE_AT[builder]])

    def _check_state(self, kind: type, state: Any) -> None:
        """Attributes have plain names and hold data: nothing else would look them up or call them.

        A tensor whose state has ``__array_interface__`` would be memory at any address to NumPy.
        """
        for name, value in rebuild.attributes(state):
            self._spend(_WORK_PER_ATTRIBUTE)
            rebuild.check_name(kind, name)
            known = rebuild.is_data(value) or self._user_allowed(value)
            if not known and not self._user_allowed(type(value)):
                raise pickle.UnpicklingError(
                    f"Weights only load failed: the file sets attribute {rebuild.shown(name)} of a "
                    f"{kind.__name__} to {rebuild.shown(value)}, which is not data"
                )

    def _check_copy(self, builder: Any, arguments: tuple[Any, ...]) -> None:
        if not arguments:
            return
        source = arguments[0]
        if type(source) not in (list, tuple, dict, set, str, bytes):
            raise pickle.UnpicklingError(f"the pickle copies a {type(source).__name__}")
        self._spend(len(source))
        if builder in (set, Counter, OrderedDict):
            self._spend(len(source) * _WORK_PER_COPY)
        if builder in (set, Counter):
            self._check_keys(source)
        elif builder is OrderedDict:
            pairs = source.items() if type(source) is dict else source
            if not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
                raise pickle.UnpicklingError("the pickle has a dict of things not in pairs")
            self._check_keys(pair[0] for pair in pairs)

    def _new_object(self) -> None:
        arguments, kind = self._pop(), self._pop()
        if type(arguments) is not tuple or not isinstance(kind, type):
            raise pickle.UnpicklingError("the pickle makes an object of something not a class")
        made: Any
        if self._user_allowed(kind):
            made = kind.__new__(kind, *arguments)
        elif kind in (OrderedDict, Counter, set) and not arguments:
            made = kind()
        else:
            raise refused(f"{kind.__module__}.{kind.__qualname__}")
        self._fresh(made, arguments)

    def _build(self) -> None:
        state = self._pop()
        target = self.stack[-1]
        kind = type(target)
        self._nest(target, (state,))
        if self._user_allowed(kind):
            parts = state if isinstance(state, tuple) else (state,)
            count = sum(len(part) for part in parts if isinstance(part, dict))
            self._spend(_WORK_PER_ATTRIBUTE * count)
            _set_state(target, rebuild.allowed_state(kind, state))
        elif isinstance(target, Tensor) or kind is OrderedDict:
            self._check_state(kind, state)
            target.__dict__.update(rebuild.attributes(state))
        else:
            raise pickle.UnpicklingError(
                f"Weights only load failed: the file sets the state of {kind!r}, which is not "
                "allowed"
            )


def _same_method(thing: Any, known: Any) -> bool:
    # A method is bound again each time that it is looked up.
    kind = type(thing)
    return kind in (MethodType, BuiltinMethodType) and type(known) is kind and thing == known


def _set_state(target: Any, state: Any) -> None:
    """Set the state of an object whose class the user has allowed, as Python's pickle would."""
    kind = type(target)
    own = getattr(kind, "__setstate__", None)
    if own is not None:
        own(target, state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for name, value in (state or {}).items():
        target.__dict__[sys.intern(name)] = value
    for name, value in (slots or {}).items():
        if not rebuild.is_slot(kind, name):
            raise pickle.UnpicklingError(
                f"Weights only load failed: {rebuild.shown(name)} is not a slot of {kind!r}"
            )
        setattr(target, name, value)


_FLAT = frozenset({int, float, str, bool, bytes, type(None), complex})
# Of these at most some dozens share a hash.
_SMALL = frozenset({int, float, bool, type(None)})

_Step = Callable[[Machine], Any]


def _instructions() -> Iterator[tuple[bytes, _Step]]:
    yield pickle.PROTO, Machine._protocol
    yield pickle.FRAME, lambda m: m._take(8)
    yield pickle.MARK, lambda m: m.stack.append(_MARK)
    yield pickle.POP, lambda m: m.stack.pop()
    yield pickle.POP_MARK, lambda m: m._pop_mark()
    yield pickle.DUP, lambda m: m.stack.append(m.stack[-1])
    yield pickle.NONE, lambda m: m.stack.append(None)
    yield pickle.NEWTRUE, lambda m: m.stack.append(True)
    yield pickle.NEWFALSE, lambda m: m.stack.append(False)
    yield pickle.BININT, lambda m: m.stack.append(m._number(4, True))
    yield pickle.BININT1, lambda m: m.stack.append(m._number(1))
    yield pickle.BININT2, lambda m: m.stack.append(m._number(2))
    yield pickle.LONG1, lambda m: m._long(1)
    yield pickle.LONG4, lambda m: m._long(4)
    yield pickle.BINFLOAT, Machine._float
    yield pickle.SHORT_BINUNICODE, lambda m: m._text(1)
    yield pickle.BINUNICODE, lambda m: m._text(4)
    yield pickle.BINUNICODE8, lambda m: m._text(8)
    yield pickle.SHORT_BINBYTES, lambda m: m._bytes(1)
    yield pickle.BINBYTES, lambda m: m._bytes(4)
    yield pickle.BINBYTES8, lambda m: m._bytes(8)
    yield pickle.SHORT_BINSTRING, lambda m: m._old_string(1)
    yield pickle.BINSTRING, lambda m: m._old_string(4)
    yield pickle.BYTEARRAY8, Machine._byte_array
    yield pickle.EMPTY_LIST, lambda m: m._fresh([])
    yield pickle.EMPTY_DICT, lambda m: m._fresh({})
    yield pickle.EMPTY_SET, lambda m: m._fresh(set())
    yield pickle.EMPTY_TUPLE, lambda m: m.stack.append(())
    yield pickle.TUPLE, lambda m: m._tuple(m._pop_mark())
    yield pickle.TUPLE1, lambda m: m._short_tuple(1)
    yield pickle.TUPLE2, lambda m: m._short_tuple(2)
    yield pickle.TUPLE3, lambda m: m._short_tuple(3)
    yield pickle.APPEND, lambda m: m._append([m._pop()])
    yield pickle.APPENDS, lambda m: m._append(m._pop_mark())
    yield pickle.SETITEM, lambda m: m._set_items([m._pop(), m._pop()][::-1])
    yield pickle.SETITEMS, lambda m: m._set_items(m._pop_mark())
    yield pickle.ADDITEMS, Machine._add_items
    yield pickle.FROZENSET, Machine._frozen_set
    yield pickle.BINPUT, lambda m: m._put(m._number(1))
    yield pickle.LONG_BINPUT, lambda m: m._put(m._number(4))
    yield pickle.MEMOIZE, lambda m: m._put(len(m.memo))
    yield pickle.BINGET, lambda m: m._get(m._number(1))
    yield pickle.LONG_BINGET, lambda m: m._get(m._number(4))
    yield pickle.GLOBAL, Machine._global
    yield pickle.STACK_GLOBAL, Machine._stack_global
    yield pickle.BINPERSID, Machine._persistent
    yield pickle.REDUCE, Machine._reduce
    yield pickle.NEWOBJ, Machine._new_object
    yield pickle.BUILD, Machine._build


_TABLE: dict[int, _Step] = {code[0]: step for code, step in _instructions()}
