"""Derivatives against finite differences: ``gradcheck`` and ``gradgradcheck``.

Complex numbers are looked at as pairs of reals, on both sides: then the Jacobian of every function
is a real matrix, also where the function is not holomorphic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd import forward_ad
from weft.autograd.entry import grad
from weft.core.modes import enable_grad, no_grad
from weft.core.tensor import Tensor, wrap


class GradcheckError(RuntimeError):
    """Raised when a derivative is wrong."""


def _outputs(out: Any) -> tuple[Tensor, ...]:
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    return tuple(o for o in outs if isinstance(o, Tensor) and o._a.dtype.kind in "fcV")


def _units(array: np.ndarray) -> tuple[complex, ...]:
    return (1, 1j) if array.dtype.kind == "c" else (1,)


def _reals(array: np.ndarray) -> np.ndarray:
    """All values in a row, complex ones as real part, imaginary part."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return np.stack([flat.real, flat.imag], -1).reshape(-1)
    return flat.astype(np.float64) if flat.dtype.kind == "V" else flat


class _Problem:
    """A function and the inputs to check it at."""

    def __init__(self, func: Callable, inputs: tuple[Any, ...]) -> None:
        self.func, self.inputs = func, inputs
        self.checked = [
            (i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad
        ]

    def run(self) -> tuple[Tensor, ...]:
        return _outputs(self.func(*self.inputs))

    def at(self, changes: dict[int, np.ndarray]) -> list[np.ndarray]:
        """The outputs with some inputs moved."""
        moved = list(self.inputs)
        for i, change in changes.items():
            moved[i] = wrap(self.inputs[i]._a + change.astype(self.inputs[i]._a.dtype))
        with no_grad():
            return [_reals(o._a).copy() for o in _outputs(self.func(*moved))]

    def numerical(self, i: int, direction: np.ndarray, eps: float) -> list[np.ndarray]:
        """The derivative of the outputs in a direction of one input, by central differences."""
        high, low = self.at({i: direction * eps}), self.at({i: direction * -eps})
        return [(a - b) / (2 * eps) for a, b in zip(high, low, strict=True)]

    def numerical_matrix(self, i: int, eps: float, outputs: int) -> list[np.ndarray]:
        x = self.inputs[i]._a
        columns = []
        for k in range(x.size):
            for unit in _units(x):
                direction = np.zeros(x.size, x.dtype)
                direction[k] = unit
                columns.append(self.numerical(i, direction.reshape(x.shape), eps))
        if not columns:
            return [np.zeros((_reals(o._a).size, 0)) for o in self.run()]
        return [np.stack([c[k] for c in columns], 1) for k in range(outputs)]


def _vjp(out: Tensor, inputs: list[Tensor], seed: np.ndarray) -> list[np.ndarray]:
    """Rows of the real Jacobians for one row of an output."""
    grads: Any = [None] * len(inputs)
    if out.requires_grad:
        grads = grad(out, inputs, wrap(seed), retain_graph=True, allow_unused=True)
    return [
        np.zeros(_reals(x._a).size) if g is None else _reals(g._a)
        for g, x in zip(grads, inputs, strict=True)
    ]


def _analytical(out: Tensor, inputs: list[Tensor]) -> list[np.ndarray]:
    rows = []
    for k in range(out._a.size):
        for unit in _units(out._a):
            seed = np.zeros(out._a.size, out._a.dtype)
            seed[k] = unit
            rows.append(_vjp(out, inputs, seed.reshape(out._a.shape)))
    if not rows:
        return [np.zeros((0, _reals(x._a).size)) for x in inputs]
    return [np.stack([r[i] for r in rows]) for i in range(len(inputs))]


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
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad")
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    problem = _Problem(func, tuple(given))
    try:
        _check_inputs(problem, eps)
        with enable_grad():
            outs = problem.run()
            if not any(o.requires_grad for o in outs):
                return _check_constant(problem, eps, atol, rtol)
            compare = _fast if fast_mode else _slow
            compare(problem, outs, eps, atol, rtol, check_backward_ad, check_forward_ad)
            if check_backward_ad:
                _check_repeats(problem, nondet_tol)
                if check_undefined_grad:
                    _check_undefined(problem)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_inputs(problem: _Problem, eps: float) -> None:
    if not problem.checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    for i, x in problem.checked:
        if x._a.dtype not in (np.dtype(np.float64), np.dtype(np.complex128)):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex.",
                stacklevel=3,
            )
        if any(n > 1 and s == 0 for n, s in zip(x._a.shape, x._a.strides, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients correctly. "
                "You should call .contiguous on the input before passing it to gradcheck."
            )


def _check_constant(problem: _Problem, eps: float, atol: float, rtol: float) -> bool:
    for i, x in problem.checked:
        for found in problem.numerical(i, np.ones_like(x._a), eps):
            if not np.allclose(found, 0, rtol, atol):
                raise GradcheckError(
                    "Numerical gradient for function expected to be zero: no output requires grad, "
                    f"yet input {i} moves the outputs"
                )
    return True


def _mismatch(k: int, i: int, numerical: Any, analytical: Any, forward: bool, more: str) -> None:
    mode = " computed with forward mode" if forward else ""
    raise GradcheckError(
        f"Jacobian{mode} mismatch for output {k} with respect to input {i},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n{more}"
    )


def _slow(
    problem: _Problem, outs: Any, eps: float, atol: float, rtol: float, back: bool, forward: bool
) -> None:
    inputs = [x for _, x in problem.checked]
    found = [_analytical(o, inputs) for o in outs] if back else []
    for n, (i, _) in enumerate(problem.checked):
        numerical = problem.numerical_matrix(i, eps, len(outs))
        ahead = _forward_matrix(problem, i, len(outs)) if forward else []
        for k, expected in enumerate(numerical):
            if back and not np.allclose(found[k][n], expected, rtol, atol, equal_nan=True):
                _mismatch(k, i, expected, found[k][n], False, "")
            if forward and not np.allclose(ahead[k], expected, rtol, atol, equal_nan=True):
                _mismatch(k, i, expected, ahead[k], True, "")


def _forward(problem: _Problem, i: int, direction: np.ndarray) -> list[np.ndarray]:
    """The derivative in a direction of one input, by forward mode."""
    with forward_ad.dual_level():
        moved = list(problem.inputs)
        moved[i] = forward_ad.make_dual(problem.inputs[i], wrap(direction))
        outs = _outputs(problem.func(*moved))
        tangents = [forward_ad.unpack_dual(o).tangent for o in outs]
        return [
            np.zeros(_reals(o._a).size) if t is None else _reals(t._a)
            for o, t in zip(outs, tangents, strict=True)
        ]


def _forward_matrix(problem: _Problem, i: int, outputs: int) -> list[np.ndarray]:
    x = problem.inputs[i]._a
    columns = []
    for k in range(x.size):
        for unit in _units(x):
            direction = np.zeros(x.size, x.dtype)
            direction[k] = unit
            columns.append(_forward(problem, i, direction.reshape(x.shape)))
    if not columns:
        return [np.zeros((_reals(o._a).size, 0)) for o in problem.run()]
    return [np.stack([c[k] for c in columns], 1) for k in range(outputs)]


def _fast(
    problem: _Problem, outs: Any, eps: float, atol: float, rtol: float, back: bool, forward: bool
) -> None:
    """Compare u.J.v for random unit u and v instead of every entry of J."""
    rng = np.random.default_rng(0)
    inputs = [x for _, x in problem.checked]
    seeds = [_random(rng, o._a) for o in outs]
    rows = [_vjp(o, inputs, u) for o, u in zip(outs, seeds, strict=True)] if back else []
    for n, (i, x) in enumerate(problem.checked):
        v = _random(rng, x._a)
        numerical = problem.numerical(i, v, eps)
        ahead = _forward(problem, i, v) if forward else []
        for k, u in enumerate(seeds):
            expected = _reals(u) @ numerical[k]
            # The sum of n entries that are each off by atol.
            slack = atol * max(1.0, float(np.abs(_reals(v)).sum() * np.abs(_reals(u)).sum()))
            more = "\nThe above quantities relating the numerical and analytical jacobians are \
computed in fast mode. Run gradcheck with fast_mode=False to see all entries."
            if back:
                got = rows[k][n] @ _reals(v)
                if not np.allclose(got, expected, rtol, slack, equal_nan=True):
                    _mismatch(k, i, expected, got, False, more)
            if forward:
                got = _reals(u) @ ahead[k]
                if not np.allclose(got, expected, rtol, slack, equal_nan=True):
                    _mismatch(k, i, expected, got, True, more)


def _random(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    values = rng.random(like.shape)
    if like.dtype.kind == "c":
        values = values + 1j * rng.random(like.shape)
    norm = np.linalg.norm(values.reshape(-1))
    return (values / norm if norm else values).astype(like.dtype)


def _check_repeats(problem: _Problem, nondet_tol: float) -> None:
    """Backward twice over must give the same."""
    inputs = [x for _, x in problem.checked]
    for k, out in enumerate(problem.run()):
        if not out.requires_grad:
            continue
        seed = np.ones_like(out._a)
        first, second = _vjp(out, inputs, seed), _vjp(out, inputs, seed)
        for a, b in zip(first, second, strict=True):
            if not np.allclose(a, b, 0.0, nondet_tol, equal_nan=True):
                raise GradcheckError(
                    f"Backward is not reentrant, i.e., running backward with same input and "
                    f"grad_output multiple times gives different values (output {k}), although "
                    "analytical gradient matches numerical gradient. The tolerance for "
                    f"nondeterminism was {nondet_tol}."
                )


def _check_undefined(problem: _Problem) -> None:
    """Backward must take outputs without a gradient (None) as it takes zeros."""
    inputs = [x for _, x in problem.checked]
    outs = [o for o in problem.run() if o.requires_grad]
    seeds = [wrap(np.zeros_like(o._a)) for o in outs]
    try:
        grads = grad(outs, inputs, seeds, allow_unused=True)
    except RuntimeError as error:
        raise GradcheckError(
            "Expected backward function to handle undefined output grads. Please look at the "
            f"message of the error it raised: {error}"
        ) from error
    for g in grads:
        if g is not None and not np.all((g._a == 0) | np.isnan(g._a)):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                "undefined or zero."
            )


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
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    seeds = _seeds(func, given, grad_outputs)
    count = len(given)

    def first(*values: Any) -> tuple[Tensor, ...]:
        own, vectors = values[:count], values[count:]
        own = tuple(
            x.detach().requires_grad_() if _loose(x, kept) else x
            for x, kept in zip(own, given, strict=True)
        )
        with enable_grad():
            outs = [o for o in _outputs(func(*own)) if o.requires_grad]
            wanted = [x for x in own if isinstance(x, Tensor) and x.requires_grad]
            grads = grad(outs, wanted, vectors, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        first,
        (*given, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )


def _loose(x: Any, kept: Any) -> bool:
    """Whether an input lost its claim to a gradient when finite differences moved it."""
    return isinstance(x, Tensor) and kept.requires_grad and not x.requires_grad


def _seeds(func: Callable, inputs: tuple[Any, ...], grad_outputs: Any) -> tuple[Tensor, ...]:
    if grad_outputs is not None:
        return tuple(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)
    rng = np.random.default_rng(0)
    with enable_grad():
        outs = [o for o in _outputs(func(*inputs)) if o.requires_grad]
    return tuple(wrap(_random(rng, o._a)).requires_grad_() for o in outs)


def get_numerical_jacobian(
    fn: Callable, inputs: Any, target: Any = None, eps: float = 1e-3
) -> list[Tensor]:
    """The Jacobian by finite differences, inputs by rows, as PyTorch's old helper gives it."""
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    problem = _Problem(fn, given)
    return [wrap(problem.numerical_matrix(i, eps, 1)[0].T.copy()) for i, _ in problem.checked]


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
