"""Derivatives against finite differences: ``gradcheck`` and ``gradgradcheck``.

Complex numbers are looked at as pairs of reals, on both sides: then the Jacobian of every function
is a real matrix, also where the function is not holomorphic.

Inputs are perturbed in their own memory: a function may reach them by a closure, or ask whether
they require a gradient, and has to see the same tensors every time.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.autograd import forward_ad
from weft.autograd.entry import grad
from weft.autograd.function import Function
from weft.core.devices import host, write_into, zeros_like
from weft.core.gate import announce
from weft.core.tensor import Tensor, wrap
from weft.operators import api


class GradcheckError(RuntimeError):
    """Raised when a derivative is wrong."""


# --- values ----------------------------------------------------------------------------


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x._a.dtype.kind in "fcV"


def _floats(out: Any) -> list[Tensor]:
    return [o for o in _as_tuple(out) if _is_float(o)]


def _reals(array: np.ndarray) -> np.ndarray:
    """All values in a row, complex ones as real part, imaginary part."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return np.stack([flat.real, flat.imag], -1).reshape(-1)
    return flat.astype(np.float64)


def _units(like: np.ndarray) -> Iterator[np.ndarray]:
    """The unit vectors of a shape; for complex numbers one for each part."""
    flat = np.zeros(like.size, like.dtype)
    for k in range(like.size):
        for unit in (1, 1j) if like.dtype.kind == "c" else (1,):
            flat[k] = unit
            yield flat.reshape(like.shape).copy()
            flat[k] = 0


@contextlib.contextmanager
def _moved(x: Tensor, change: np.ndarray) -> Iterator[None]:
    """A tensor with other values for a while; autograd does not notice."""
    kept = np.array(host(x))
    announce(x._a, x)
    write_into(x._a, kept + change)
    try:
        yield
    finally:
        announce(x._a, x)
        write_into(x._a, kept)


# --- the two sides ---------------------------------------------------------------------


class _Problem:
    """A function, the inputs to check it at, and what counts as equal."""

    def __init__(
        self, func: Callable, inputs: tuple[Any, ...], eps: float, atol: float, rtol: float
    ) -> None:
        self.func, self.inputs = func, inputs
        self.eps, self.atol, self.rtol = eps, atol, rtol
        self.checked = [
            (i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad
        ]

    def close(self, a: np.ndarray, b: np.ndarray, scale: float = 1.0) -> bool:
        return bool(np.allclose(a, b, self.rtol, self.atol * scale))

    def floats(self) -> list[Tensor]:
        """The outputs that can have a derivative."""
        return _floats(self.func(*self.inputs))

    def differentiable(self) -> list[Tensor]:
        return [o for o in self.floats() if o.requires_grad]

    def numerical(self, x: Tensor, direction: np.ndarray) -> list[np.ndarray]:
        """The derivative of the outputs in a direction of one input, by central differences."""
        change = (direction * self.eps).astype(x._a.dtype)
        with _moved(x, -change):
            low = [np.array(host(o)) for o in self.floats()]
        with _moved(x, change):
            high = [np.array(host(o)) for o in self.floats()]
        for a, b in zip(low, high, strict=False):
            self._same_kind(a, b)
        return [(_reals(b) - _reals(a)) / (2 * self.eps) for a, b in zip(low, high, strict=True)]

    def _same_kind(self, a: np.ndarray, b: np.ndarray) -> None:
        for what, one, other in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
            if one != other:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are "
                    f"perturbed by {self.eps}, but got: {what}s {one} and {other}."
                )

    def numerical_matrices(self, x: Tensor, outs: list[Tensor]) -> list[np.ndarray]:
        """For each output its Jacobian with respect to one input: outputs by inputs."""
        return _by_columns([self.numerical(x, v) for v in _units(host(x))], outs)

    def forward(self, directions: dict[int, list[np.ndarray]]) -> dict[int, list[list[np.ndarray]]]:
        """The derivatives in directions of each input, by forward mode."""
        found: dict[int, list[list[np.ndarray]]] = {}
        with forward_ad.dual_level():
            duals, tangents = self._duals()
            for i, chosen in directions.items():
                found[i] = []
                for direction in chosen:
                    write_into(tangents[i]._a, direction)
                    outs = _floats(self.func(*duals))
                    found[i].append([_tangent(o) for o in outs])
                write_into(tangents[i]._a, np.zeros(()))
        return found

    def _duals(self) -> tuple[list[Any], dict[int, Tensor]]:
        """The inputs with tangents that are zero, and the tangents."""
        duals, tangents = list(self.inputs), {}
        for i, x in self.checked:
            tangents[i] = wrap(zeros_like(x._a))
            duals[i] = forward_ad.make_dual(x.detach(), tangents[i])
        return duals, tangents


def _by_columns(columns: list[list[np.ndarray]], outs: list[Tensor]) -> list[np.ndarray]:
    if not columns:
        return [np.zeros((_reals(host(o)).size, 0)) for o in outs]
    return [np.stack([c[k] for c in columns], 1) for k in range(len(outs))]


def _tangent(out: Tensor) -> np.ndarray:
    tangent = forward_ad.unpack_dual(out).tangent
    return np.zeros(_reals(host(out)).size) if tangent is None else _reals(host(tangent))


class _CheckOptions(NamedTuple):
    nondet_tol: float
    check_grad_dtypes: bool


def _vjp(out: Tensor, inputs: list[Tensor], seed: np.ndarray) -> list[Any]:
    return list(grad(out, inputs, wrap(seed), retain_graph=True, allow_unused=True))


def _rows(out: Tensor, inputs: list[Tensor], seeds: list[np.ndarray]) -> list[np.ndarray]:
    """For each input the products of some seeds with the real Jacobian of one output."""
    rows = []
    for seed in seeds:
        grads = _vjp(out, inputs, seed)
        rows.append(
            [
                np.zeros(_reals(host(x)).size) if g is None else _reals(host(g)).copy()
                for g, x in zip(grads, inputs, strict=True)
            ]
        )
    if not rows:
        return [np.zeros((0, _reals(host(x)).size)) for x in inputs]
    return [np.stack([r[i] for r in rows]) for i in range(len(inputs))]


def _repeats(first: list[np.ndarray], second: list[np.ndarray], nondet_tol: float) -> bool:
    return not any(
        a.size and bool((np.abs(a - b) > nondet_tol).any())
        for a, b in zip(first, second, strict=True)
    )


def _analytical(
    out: Tensor, inputs: list[Tensor], seeds: list[np.ndarray], options: _CheckOptions
) -> list[np.ndarray]:
    """What backward gives for some seeds; backward has to give it twice."""
    first, second = _rows(out, inputs, seeds), _rows(out, inputs, seeds)
    if options.check_grad_dtypes and seeds:
        for g, x in zip(_vjp(out, inputs, seeds[0]), inputs, strict=True):
            if g is not None and g._a.dtype != x._a.dtype:
                raise GradcheckError("Gradient has dtype mismatch")
    if not _repeats(first, second, options.nondet_tol):
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches "
            f"numerical gradient. The tolerance for nondeterminism was {options.nondet_tol}."
        )
    return first


# --- comparisons -----------------------------------------------------------------------


def _mismatch(
    k: int, i: int, numerical: Any, analytical: Any, part: str = "", forward: bool = False
) -> str:
    mode = "computed with forward mode " if forward else ""
    of = "inputs" if forward else "outputs"
    prefix = f"While considering the {part} part of complex {of} only, " if part else ""
    return (
        f"{prefix}Jacobian {mode}mismatch for output {k} with respect to input {i},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n"
    )


def _parts(complex_: bool) -> tuple[tuple[str, slice], ...]:
    """Which rows or columns of a real matrix are which part of a complex one."""
    if not complex_:
        return (("", slice(None)),)
    return (("imaginary", slice(1, None, 2)), ("real", slice(0, None, 2)))


def _slow(problem: _Problem, outs: list[Tensor], back: bool, options: _CheckOptions) -> None:
    """Compare every entry of the Jacobians, by backward or by forward mode."""
    live = [k for k, o in enumerate(outs) if o.requires_grad]
    inputs = [x for _, x in problem.checked]
    expected = [problem.numerical_matrices(x, outs) for x in inputs]
    if not live:
        if any((matrix != 0).any() for matrices in expected for matrix in matrices):
            raise GradcheckError(_EXPECTED_ZERO)
        return
    if back:
        for n, k in enumerate(live):
            found = _analytical(outs[k], inputs, list(_units(host(outs[k]))), options)
            for part, rows in _parts(outs[k].is_complex()):
                for j, matrix in enumerate(found):
                    a, b = matrix[rows], expected[j][k][rows]
                    if not problem.close(a, b):
                        raise GradcheckError(_mismatch(n, j, wrap(b.T), wrap(a.T), part))
        return
    moved = problem.forward({i: list(_units(host(x))) for i, x in problem.checked})
    for j, (i, x) in enumerate(problem.checked):
        ahead = _by_columns(moved[i], outs)
        for n, k in enumerate(live):
            for part, columns in _parts(x.is_complex()):
                a, b = ahead[k][:, columns], expected[j][k][:, columns]
                if not problem.close(a, b):
                    raise GradcheckError(_mismatch(n, j, wrap(b.T), wrap(a.T), part, True))


_EXPECTED_ZERO = (
    "Numerical gradient for function expected to be zero: no output requires grad, yet the inputs "
    "move them"
)


def _random(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    values = np.asarray(rng.random(like.shape))
    if like.dtype.kind == "c":
        values = values + 1j * rng.random(like.shape)
    norm = np.linalg.norm(values.reshape(-1))
    return np.asarray(values / norm if norm else values, like.dtype)


def _fast(problem: _Problem, outs: list[Tensor], back: bool, options: _CheckOptions) -> None:
    """Compare products of the Jacobians with random unit vectors instead of every entry."""
    rng = np.random.default_rng(0)
    live = [k for k, o in enumerate(outs) if o.requires_grad]
    inputs = [x for _, x in problem.checked]
    directions = [_random(rng, host(x)) for x in inputs]
    expected = [problem.numerical(x, v) for x, v in zip(inputs, directions, strict=True)]
    if not live:
        for products in expected:
            if any(p.size and np.abs(p).max() > options.nondet_tol for p in products):
                raise GradcheckError(_EXPECTED_ZERO)
        return
    sums = [float(np.abs(_reals(v)).sum()) for v in directions]
    if back:
        for n, k in enumerate(live):
            u = _random(rng, host(outs[k]))
            rows = _analytical(outs[k], inputs, [u], options)
            for j, v in enumerate(directions):
                a, b = rows[j][0] @ _reals(v), _reals(u) @ expected[j][k]
                if not problem.close(a, b, sums[j] * float(np.abs(_reals(u)).sum())):
                    raise GradcheckError(_mismatch(n, j, b, a) + _in_full(problem, k, j, True))
        return
    moved = problem.forward({i: [v] for (i, _), v in zip(problem.checked, directions, strict=True)})
    for j, (i, _) in enumerate(problem.checked):
        for n, k in enumerate(live):
            a, b = moved[i][0][k], expected[j][k]
            if not problem.close(a, b, sums[j]):
                told = _mismatch(n, j, wrap(b), wrap(a), forward=True)
                raise GradcheckError(told + _in_full(problem, k, j, False))


def _in_full(problem: _Problem, k: int, j: int, back: bool) -> str:
    """The whole Jacobians of one output and one input, for the message of a fast check."""
    outs, (i, x) = problem.floats(), problem.checked[j]
    b = problem.numerical_matrices(x, outs)[k]
    if back:
        inputs = [x for _, x in problem.checked]
        a = _rows(outs[k], inputs, list(_units(host(outs[k]))))[j]
    else:
        a = _by_columns(problem.forward({i: list(_units(host(x)))})[i], outs)[k]
    worst = float(np.abs(a - b).max()) if a.size else 0.0
    told = (
        "\nThe quantities above are products with random vectors (fast mode). The Jacobians "
        f"themselves (slow mode):\n\nNumerical:\n{wrap(b.T)}\nAnalytical:\n{wrap(a.T)}\n\n"
        f"The max per-element difference (slow mode) is: {worst}.\n"
    )
    if problem.close(a, b):
        told += (
            "Fast gradcheck failed but element-wise differences are small. This means that the "
            "test might've passed in slow_mode! Call it with fast_mode=False."
        )
    return told


# --- further checks --------------------------------------------------------------------


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    found = False
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        found = True
        if x._a.dtype not in (np.dtype(np.float64), np.dtype(np.complex128)):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex.",
                stacklevel=3,
            )
        steps = zip(x._a.shape, x._a.strides, strict=True)
        if x._a.size and any(n > 1 and s == 0 for n, s in steps):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients correctly. "
                "You should call .contiguous on the input before passing it to gradcheck."
            )
    if not found:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )


def _vmap(function: Callable) -> Callable:
    return importlib.import_module("weft._vmap_internals")._vmap(function)  # a layer above


def _check_batched(problem: _Problem, out: Tensor, k: int) -> None:
    """Gradients for several seeds at once have to be those for one after the other."""
    inputs = [x for _, x in problem.checked]

    def pull(seed: Tensor) -> tuple[Tensor, ...]:
        grads = grad(out, inputs, seed, retain_graph=True, allow_unused=True)
        return tuple(
            wrap(zeros_like(x._a)) if g is None else g for g, x in zip(grads, inputs, strict=True)
        )

    rng = np.random.default_rng(0)
    _compare_batched(pull, [wrap(_random(rng, host(out))) for _ in range(2)], k, "gradgradcheck ")


def _check_batched_forward(problem: _Problem) -> None:
    rng = np.random.default_rng(0)
    for i, x in problem.checked:

        def push(tangent: Tensor, i: int = i, x: Tensor = x) -> tuple[Tensor, ...]:
            with forward_ad.dual_level():
                values = [v.detach() if isinstance(v, Tensor) else v for v in problem.inputs]
                values[i] = forward_ad.make_dual(x.detach(), tangent)
                parts = map(forward_ad.unpack_dual, _floats(problem.func(*values)))
                return tuple(wrap(zeros_like(p._a)) if t is None else t for p, t in parts)

        _compare_batched(push, [wrap(_random(rng, host(x))) for _ in range(2)], i, "")


def _compare_batched(function: Callable, values: list[Tensor], k: int, name: str) -> None:
    stack = api.FUNCTIONS["stack"]
    failed = f"gradcheck {'or ' + name if name else ''}failed while testing batched gradient"
    failed += " computation" + ("" if name else " with forward-mode AD")
    expected = [stack(column) for column in zip(*map(function, values), strict=True)]
    try:
        found = _vmap(function)(stack(values))
    except RuntimeError as error:
        raise GradcheckError(
            f"While computing batched gradients, got: {error}\n\n{failed}"
        ) from error
    for j, (a, b) in enumerate(zip(found, expected, strict=True)):
        if not np.allclose(host(a), host(b)):
            raise GradcheckError(
                f"For output {k} and input {j}:\n\n{failed}\n\nGot:\n{a}\n\nExpected:\n{b}"
            )


def _check_scaled(problem: _Problem, outs: list[Tensor]) -> None:
    """A gradient of zero has to stay zero, whatever backward does with it."""
    inputs = [x for _, x in problem.checked]
    if not outs:
        return
    seeds = [wrap(zeros_like(o._a)) for o in outs]
    for g in grad(outs, inputs, seeds, retain_graph=True, allow_unused=True):
        if g is not None and not (host(g) == 0).all():
            raise GradcheckError("backward not multiplied by grad_output")


class _BlockedGradient(Function):
    """Passes a value on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> None:
        return None


def _check_undefined(problem: _Problem) -> None:
    """Backward must take outputs without a gradient (None) as it takes zeros."""
    inputs = [x for _, x in problem.checked]
    count = len(problem.differentiable())
    cases = [set(range(count))] if count else []
    if count > 1:
        cases += [{k} for k in range(count)]
    for missing in cases:
        outs = [
            _BlockedGradient.apply(o) if k in missing else o
            for k, o in enumerate(problem.differentiable())
        ]
        seeds = [wrap(zeros_like(o._a)) for o in outs]
        try:
            grads = grad(outs, inputs, seeds, allow_unused=True)
        except RuntimeError as error:
            _warn_undefined()
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. The error that it "
                f"raised: {error}"
            ) from error
        if any(g is not None and not (host(g) == 0).all() for g in grads):
            _warn_undefined()
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero."
            )


def _warn_undefined() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by "
        "default, but it may break existing callers of this function. If this is true for you, "
        'you can call this function with "check_undefined_grad=False" to disable the feature',
        stacklevel=4,
    )


def _check_undefined_forward(problem: _Problem) -> None:
    """``jvp`` must take inputs without a tangent as it takes those with zeros."""
    rng = np.random.default_rng(0)
    with forward_ad.dual_level():
        duals, tangents = problem._duals()
        for i, x in problem.checked:
            write_into(tangents[i]._a, _random(rng, host(x)))
        for i, x in problem.checked:
            kept = duals[i]
            duals[i] = forward_ad.make_dual(x.detach(), wrap(zeros_like(x._a)))
            zeros = _floats(problem.func(*duals))
            duals[i] = x.detach()
            none = _floats(problem.func(*duals))
            duals[i] = kept
            for k, (a, b) in enumerate(zip(zeros, none, strict=True)):
                one, other = (forward_ad.unpack_dual(o).tangent for o in (a, b))
                if (
                    one is not None
                    and other is not None
                    and not np.allclose(host(one), host(other))
                ):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {k} when input {i} has "
                        f"an undefined tangent value. Got: {one} but expected: {other}"
                    )


# --- what users call -------------------------------------------------------------------


def gradcheck(
    func: Callable,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of ``func`` with finite differences; True if they agree.

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    >>> weft.autograd.gradcheck(lambda x: x.sin(), (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    problem = _Problem(func, _as_tuple(inputs), eps, atol, rtol)
    _check_inputs(problem.inputs)
    options = _CheckOptions(nondet_tol, check_grad_dtypes)
    compare = _fast if fast_mode else _slow
    try:
        outs = problem.floats()
        live = [o for o in outs if o.requires_grad]
        if check_backward_ad:
            compare(problem, outs, True, options)
        if check_forward_ad:
            compare(problem, outs, False, options)
            if check_undefined_grad:
                _check_undefined_forward(problem)
        if check_batched_forward_grad:
            _check_batched_forward(problem)
        if check_backward_ad:
            if check_batched_grad:
                for k, out in enumerate(live):
                    _check_batched(problem, out, k)
            _check_scaled(problem, live)
            if check_undefined_grad:
                _check_undefined(problem)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check the gradients of gradients against finite differences."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    for name, asked in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
    ):
        if asked and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    given = _as_tuple(inputs)
    seeds = _seeds(func, given, grad_outputs, gen_non_contig_grad_outputs)
    count = len(given)
    # Forward mode runs on inputs cut from their graph; the first derivative needs them in one.
    claims = [isinstance(x, Tensor) and x.requires_grad for x in (*given, *seeds)]

    def first(*values: Any) -> tuple[Tensor, ...]:
        values = tuple(
            x.requires_grad_() if claim and not x.requires_grad else x
            for x, claim in zip(values, claims, strict=True)
        )
        own, vectors = values[:count], values[count:]
        outs = [o for o in _floats(func(*own)) if o.requires_grad]
        wanted = [x for x, claim in zip(own, claims, strict=False) if claim]
        grads = grad(outs, wanted, vectors, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None and g.requires_grad)

    return gradcheck(
        first,
        (*given, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _seeds(
    func: Callable, inputs: tuple[Any, ...], grad_outputs: Any, apart: bool
) -> tuple[Tensor, ...]:
    if grad_outputs is not None:
        return _as_tuple(grad_outputs)
    rng = np.random.default_rng(0)
    seeds = []
    for out in _floats(func(*inputs)):
        if not out.requires_grad:
            continue
        values = _random(rng, host(out))
        if apart and values.ndim:
            values = np.repeat(values, 2, -1)[..., ::2]
        seeds.append(wrap(values).requires_grad_())
    return tuple(seeds)


# --- Jacobians by themselves -----------------------------------------------------------


def _warn_private(name: str) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed; use "
        "torch.func.jacrev or torch.autograd.functional.jacobian",
        FutureWarning,
        stacklevel=3,
    )


def _old_form(matrix: np.ndarray, x: Tensor, out: Tensor) -> Tensor:
    """A real matrix, outputs by inputs, as inputs by outputs in the dtype of the input."""
    if out.is_complex():
        matrix = matrix[0::2] + 1j * matrix[1::2]
    if x.is_complex():
        matrix = matrix[:, 0::2] + 1j * matrix[:, 1::2]
    kind = x._a.dtype if x.is_complex() else out._a.dtype
    return wrap(np.ascontiguousarray(matrix.T.astype(kind)))


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable,
    input_idx: int,
    inputs: Any,
    outputs: Any,
    eps: float,
    input: Tensor | None = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """The Jacobian of each output by finite differences, inputs by outputs."""
    x = inputs[input_idx] if input is None else input
    problem = _Problem(fn, _as_tuple(inputs), eps, 0.0, 0.0)
    outs = _floats(outputs)
    found = problem.numerical_matrices(x, outs)
    return tuple(_old_form(m, x, o) for m, o in zip(found, outs, strict=True))


def _check_real_use(name: str, grad_out: float, outs: list[Tensor]) -> None:
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )
    if any(o.is_complex() for o in outs):
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return "
            "complex outputs."
        )


def get_numerical_jacobian(
    fn: Callable, inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """The Jacobian of the first output by finite differences; ``fn`` takes a tuple of inputs."""
    _warn_private("get_numerical_jacobian")
    given = _as_tuple(inputs)
    _check_real_use("get_numerical_jacobian", grad_out, [])
    outs = _floats(fn(given))
    _check_real_use("get_numerical_jacobian", grad_out, outs)
    problem = _Problem(lambda *values: fn(values), given, eps, 0.0, 0.0)
    wanted = given if target is None else _as_tuple(target)
    return tuple(
        _old_form(problem.numerical_matrices(x, outs)[0], x, outs[0])
        for x in wanted
        if isinstance(x, Tensor) and x.requires_grad
    )


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """The Jacobians by backward; whether it repeats itself, and has the right sizes and types."""
    _warn_private("get_analytical_jacobian")
    _check_real_use("get_analytical_jacobian", grad_out, [output])
    wanted = [x for x in _as_tuple(inputs) if isinstance(x, Tensor) and x.requires_grad]
    seeds = list(_units(host(output)))
    first, second = _rows(output, wanted, seeds), _rows(output, wanted, seeds)
    found = tuple(_old_form(m, x, output) for m, x in zip(first, wanted, strict=True))
    return found, _repeats(first, second, nondet_tol), True, True


__all__ = [
    *("GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian"),
    *("get_numerical_jacobian_wrt_specific_input", "gradcheck", "gradgradcheck"),
]
