"""Symbolic sizes: symbols such as ``batch``, and expressions of them.

A shape may hold a ``Dim`` wherever it may hold an int, and shape rules compute with both alike.
An expression is kept in a normal form, a sum of products with integer coefficients, so that equal
sizes are equal objects however they were computed. Floor divisions, remainders and maxima
that don't come out even stay as they are, as factors of such products.

A symbol stands for a size of at least two: what a size of one or none changes (broadcasting,
empty results) is another program. Equality is by form; a comparison that the form and that bound
don't decide raises ``Undecided``.

>>> batch, length = symbols("batch length")
>>> (batch * length * 6) // (length * 2)
3*batch
>>> batch + length == length + batch, batch > 1
(True, True)
>>> ((length + 2 - 3) // 2 + 1).substitute({"length": 9})
5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

LEAST = 2  # the smallest size that a symbol stands for

Monomial = tuple["Atom", ...]


class Undecided(RuntimeError):
    """A question about a size that depends on what its symbols stand for."""


class Atom:
    """A factor of an expression: a symbol, or an operation that can't be evaluated yet."""

    __slots__ = ("arguments", "key", "kind")

    def __init__(self, kind: str, arguments: tuple[Any, ...]) -> None:
        self.kind, self.arguments = kind, arguments
        self.key = (
            str(arguments[0])
            if kind == "symbol"
            else f"{kind}({', '.join(str(a) for a in arguments)})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key

    def __repr__(self) -> str:
        if self.kind in ("//", "%"):
            return f"({self.arguments[0]} {self.kind} {self.arguments[1]})"
        return self.key

    def least(self) -> int | None:
        """The smallest value that it can have, where that is known."""
        if self.kind == "symbol":
            return LEAST
        if self.kind == "%":
            return 0
        bounds = [_least(a) for a in self.arguments]
        if self.kind == "max":
            known = [b for b in bounds if b is not None]
            return max(known, default=None)
        top, bottom = bounds[0], self.arguments[1]
        if top is None or not isinstance(bottom, int):
            return 0 if top is not None and top >= 0 and (bounds[1] or 0) > 0 else None
        return top // bottom if bottom > 0 else None

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """Its value with sizes substituted for symbols."""
        if self.kind == "symbol":
            return sizes.get(self.arguments[0], Dim({(self,): 1}))
        return OPERATIONS[self.kind](*(substitute(a, sizes) for a in self.arguments))


class Dim:
    """A size as an expression of symbols."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self._terms = {m: terms[m] for m in sorted(terms) if terms[m]}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self._terms == other._terms
        return isinstance(other, int) and self._terms == _terms(other)

    def __hash__(self) -> int:
        return hash(tuple(self._terms.items()))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        total = dict(self._terms)
        for m, c in _terms(other).items():
            total[m] = total.get(m, 0) + c
        return _simple(total)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + other * -1 if isinstance(other, (int, Dim)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        product: dict[Monomial, int] = {}
        for m, c in self._terms.items():
            for n, d in _terms(other).items():
                key = tuple(sorted(m + n))
                product[key] = product.get(key, 0) + c * d
        return _simple(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return floor_divide(self, other) if isinstance(other, (int, Dim)) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return remainder(self, other) if isinstance(other, (int, Dim)) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return remainder(other, self)

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __gt__(self, other: Any) -> bool:
        return _at_least(self - other, 1, f"{self} > {other}")

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return _at_least(self - other, 0, f"{self} >= {other}")

    def __bool__(self) -> bool:
        least = _least(self)
        if least is not None and least > 0:
            return True
        raise Undecided(f"whether {self} is zero depends on what its symbols stand for")

    def __index__(self) -> int:
        raise Undecided(f"a number is needed here, and the size {self} is not known yet")

    __int__ = __index__

    def __repr__(self) -> str:
        text = ""
        for m, c in sorted(self._terms.items(), key=lambda term: (-len(term[0]), term[0])):
            factors = "*".join(map(repr, m))
            part = str(abs(c)) if not m else factors if abs(c) == 1 else f"{abs(c)}*{factors}"
            sign = "-" if c < 0 else "+"
            text += f" {sign} {part}" if text else part if c > 0 else f"-{part}"
        return text or "0"

    def substitute(self, sizes: Mapping[str, Any]) -> Any:
        """The size with others substituted for symbols, by name."""
        total: Any = 0
        for m, c in self._terms.items():
            product: Any = c
            for atom in m:
                product = product * atom.value(sizes)
            total = total + product
        return total


def symbol(name: str) -> Dim:
    """A size that is not known yet."""
    return Dim({(Atom("symbol", (name,)),): 1})


def symbols(names: str) -> tuple[Dim, ...]:
    """Several of them, by names with spaces in between."""
    return tuple(symbol(name) for name in names.split())


def substitute(value: Any, sizes: Mapping[str, Any]) -> Any:
    """A size, or a tuple with sizes in it, with others substituted for symbols."""
    if isinstance(value, Dim):
        return value.substitute(sizes)
    return tuple(substitute(v, sizes) for v in value) if isinstance(value, tuple) else value


def floor_divide(a: Any, b: Any) -> Any:
    """``a // b``, as far as it can be evaluated."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b:
        # The part of the sum that is a multiple of b can be taken out of the floor.
        whole = {m: c // b for m, c in _terms(a).items() if c % b == 0}
        rest = _simple({m: c for m, c in _terms(a).items() if c % b})
        left = rest // b if isinstance(rest, int) else Dim({(Atom("//", (rest, b)),): 1})
        return _simple(whole) + left
    exact = _divided(a, b)
    return Dim({(Atom("//", (a, b)),): 1}) if exact is None else exact


def remainder(a: Any, b: Any) -> Any:
    """``a % b``, as far as it can be evaluated."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and b:
        rest = _simple({m: c % b for m, c in _terms(a).items()})
        return rest % b if isinstance(rest, int) else Dim({(Atom("%", (rest, b)),): 1})
    return Dim({(Atom("%", (a, b)),): 1}) if _divided(a, b) is None else 0


def largest(*sizes: Any) -> Any:
    """The maximum of sizes; if that depends on symbols, an expression for it."""
    best: list[Any] = []
    for size in sizes:
        try:
            if any(other >= size for other in best):
                continue
            best = [other for other in best if not size >= other]
        except Undecided:
            pass
        best.append(size)
    if len(best) == 1:
        return best[0]
    return Dim({(Atom("max", tuple(sorted(best, key=str))),): 1})


def differ(a: Any, b: Any) -> bool:
    """Whether two sizes that ought to be equal are not; ``Undecided`` if symbols can't tell."""
    if a == b:
        return False
    if isinstance(a, Dim) or isinstance(b, Dim):
        raise Undecided(f"whether {a} is {b} depends on what the symbols stand for")
    return True


def product(sizes: Iterable[Any]) -> Any:
    """The number of elements of a shape."""
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


def is_symbolic(shape: Iterable[Any]) -> bool:
    """Whether some size of a shape is not a number."""
    return any(isinstance(size, Dim) for size in shape)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "//": floor_divide,
    "%": remainder,
    "max": largest,
}


def _terms(value: Any) -> Mapping[Monomial, int]:
    return value._terms if isinstance(value, Dim) else {(): value} if value else {}


def _simple(terms: Mapping[Monomial, int]) -> Any:
    """An expression, as an int if it is one."""
    left = {m: c for m, c in terms.items() if c}
    if not left:
        return 0
    return left[()] if set(left) == {()} else Dim(left)


def _divided(a: Any, b: Any) -> Any:
    """``a / b`` where the product ``b`` divides every product of ``a``; else None."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    ((below, coefficient),) = divisor.items()
    found: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        factors = list(m)
        for atom in below:
            if atom not in factors:
                return None
            factors.remove(atom)
        if c % coefficient:
            return None
        found[tuple(factors)] = c // coefficient
    return _simple(found)


def _least(value: Any) -> int | None:
    """The smallest value that an expression can have, where that is known."""
    total = 0
    for m, c in _terms(value).items():
        bound = c
        for atom in m:
            least = atom.least()
            if least is None or least < 0 or c < 0:
                return None
            bound *= least
        total += bound
    return total


def _at_least(difference: Any, bound: int, question: str) -> bool:
    if isinstance(difference, int):
        return difference >= bound
    least = _least(difference)
    if least is not None and least >= bound:
        return True
    most = _least(-difference)
    if most is not None and -most < bound:
        return False
    raise Undecided(f"whether {question} depends on what the symbols stand for")
