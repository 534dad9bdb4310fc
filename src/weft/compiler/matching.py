"""Comparing calls with tokens, by code that is generated for each token.

Comparing is the whole cost of a matched call, so nothing is decided twice: which arguments are
earlier results, which are leaves and which of these were met before is known when a token is
learned, and becomes straight-line comparisons. All are made before anything is recorded, so a call
that does not match has no side effects.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from weft.compiler.trace import CALL, LEAF, NUMBER, RESULT, Token, same, same_attributes
from weft.core.gate import EXPORTS
from weft.core.tensor import Tensor


def aside(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides, of memory that could change before it is read."""
    made = array.copy(order="K")
    if made.strides == array.strides:
        return made
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = np.empty(high - low, np.uint8)
    start = array.__array_interface__["data"][0] - low
    made = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
    if array.size:
        np.copyto(made, array)
    return made


PAIRED = 3  # up to so many tensors are compared one with another, which is faster

# The names available to the code. ``array_of`` reads a tensor's slot directly: it fails for a
# pending tensor, which ``x._a`` would compute.
NAMES: dict[str, Any] = {
    "EXPORTS": EXPORTS, "Tensor": Tensor, "aside": aside,
    "array_of": Tensor.__dict__["_a"].__get__, "new": object.__new__, "same": same,
    "same_attributes": same_attributes,
}  # fmt: skip


def prepare(token: Token) -> None:
    """Create the functions of a token: ``match`` for arguments, ``follow`` for whole calls."""
    known = {slot.number for slot in token.leaves}
    names: dict[str, Any] = dict(NAMES)
    checks, notes = _compared(token, known, names)
    count = token.count
    given = "".join(f"x{k}, " for k in range(count))
    body = [
        f"if len(args) != {count}: return None",
        *([f"{given} = args"] if count else []),
        *(["handles = region.handles"] if any(k == RESULT for k, _ in token.slots) else []),
        *(["leaves = region.leaves"] if any(k == LEAF for k, _ in token.slots) else []),
        *_guarded(checks, bool(known)),
        *notes,
    ]
    token.match = _function("match(region, args)", [*body, "return True"], names)
    if token.kind == CALL:
        token.follow = _function("follow(region, args, attrs)", _answer(token, body, names), names)


def _compared(token: Token, known: set[int], names: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The comparisons of a token's arguments, and what is recorded once all hold."""
    checks: list[str] = []
    notes: list[str] = []
    first: dict[int, int] = {}  # leaves that are met here, with their argument
    inside: list[int] = []  # of these arguments the ones in memory that NumPy can't reach
    for k, (kind, wanted) in enumerate(token.slots):
        if kind == RESULT:
            checks.append(f"if handles[{wanted}] is not x{k}: return None")
        elif kind == NUMBER:
            names[f"c{k}"] = wanted
            checks.append(f"if x{k}.__class__ is not c{k}: return None")
            notes.append(f"region.numbers.append(x{k})")
        elif kind != LEAF:
            names[f"c{k}"] = wanted
            checks.append(f"if x{k} is not c{k} and not same(x{k}, c{k}): return None")
        elif wanted.number in first:
            checks.append(f"if x{k} is not x{first[wanted.number]}: return None")
        elif wanted.number not in known:
            checks.append(f"if leaves[{wanted.number}] is not x{k}: return None")
        else:
            checks += _leaf(k, wanted)
            notes += [
                f"leaves.append(x{k})",
                f"region.met.add(id(x{k}))",
                f"region.arrays.append({f'aside(a{k})' if wanted.outside else f'a{k}'})",
                f"region.nodes.append(x{k}._node)",
            ]
            names[f"leaf{k}"], names[f"node{k}"] = wanted, wanted.node
            names[f"class{k}"] = wanted.cls
            first[wanted.number] = k
            if not wanted.outside:
                inside.append(k)
    return [*checks, *_distinct(inside)], notes


def _leaf(k: int, slot: Any) -> list[str]:
    """Whether a tensor can be a leaf that was not met before."""
    read, fits = f"a{k} = array_of(x{k})", f"if not leaf{k}.fits(x{k}): return None"
    if slot.outside:
        return [read, fits]
    if not slot.plain:
        found = [f"array_of(x{k})", fits, read]
    else:  # often in the same memory as last time
        same_as_before = (
            f"a{k} is leaf{k}.last() and x{k}.__class__ is class{k} and x{k}._node is node{k} "
            f"and x{k}._base is None and leaf{k}.seen == EXPORTS[0]"
        )
        # References to the array are counted there: this code must not hold one.
        found = [read, f"if not ({same_as_before}):", f" del a{k}", f" {fits}", f" {read}"]
    return [*found, f"if id(x{k}) in region.met: return None"]


def _distinct(places: list[int]) -> list[str]:
    """Whether arguments are different tensors; of many in one line, since an optimizer's step has
    hundreds, and of as many lines as pairs Python's compiler takes megabytes.
    """
    if len(places) <= PAIRED:
        pairs = itertools.combinations(places, 2)
        return [f"if x{k} is x{j}: return None" for j, k in pairs]
    ids = ", ".join(f"id(x{k})" for k in places)
    return [f"if len({{{ids}}}) != {len(places)}: return None"]


def _guarded(checks: list[str], leaves: bool) -> list[str]:
    """Comparisons that fail if an argument is not a tensor with its own array."""
    if not leaves:
        return checks
    return ["try:", *(f" {c}" for c in checks), "except (AttributeError, TypeError): return None"]


def _answer(token: Token, body: list[str], names: dict[str, Any]) -> list[str]:
    """A call from its comparison to its pending results."""
    names["token"], names["after"], names["known"] = token, token.after, token.attrs
    attributes = "if attrs: return None"
    if token.attrs:
        differ = "not same_attributes(known, attrs)"
        attributes = f"if attrs is not known and {differ}: return None"
    lines = [attributes, *body, "region.path.append(token)", "region.at = after",
             "handles = region.handles"]  # fmt: skip
    for k, kind in enumerate(token.kinds):
        names[f"kind{k}"] = kind
        lines += [
            f"y{k} = new(Tensor)",
            f"y{k}._vc = [0]",
            f"y{k}._grad = y{k}._x = None",
            f"y{k}._stamp = (region, {token.first + k}, kind{k})",
            f"handles.append(y{k})",
        ]
    results = "".join(f"y{k}, " for k in range(len(token.kinds)))
    return [*lines, f"return ({results})" if token.op.multiple else "return y0"]


def _function(head: str, lines: list[str], names: dict[str, Any]) -> Any:
    exec(_code(f"def {head}:\n" + "\n".join(f" {line}" for line in lines)), names)
    return names[head.partition("(")[0]]


@functools.lru_cache(4096)
def _code(text: str) -> Any:
    """Code compiled once: the path for another size mostly has the same text."""
    return compile(text, "<token>", "exec")
