"""Products with Jacobians and Hessians, by plain autograd: ``autograd.functional``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd.entry import grad
from weft.core import errors
from weft.core.devices import ones_like, zeros_like
from weft.core.modes import MODES, enable_grad
from weft.core.tensor import Tensor, wrap
from weft.operators import api


def _tuple(value: Any, name: str, function: str) -> tuple[bool, tuple[Tensor, ...]]:
    many = isinstance(value, tuple)
    values = value if many else (value,)
    for i, x in enumerate(values):
        if not isinstance(x, Tensor):
            where = f" at index {i}" if many else ""
            raise TypeError(
                f"The {name} given to {function} must be either a Tensor or a tuple of Tensors "
                f"but the value{where} has type {type(x)}."
            )
    return many, values


def _fresh(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Inputs that the work inside can differentiate by, tied to the outside if asked for."""
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in values
    )


def _call(func: Callable, inputs: tuple[Tensor, ...], function: str) -> tuple[bool, Any]:
    return _tuple(func(*inputs), "outputs of the user-provided function", function)


def _check_vector(
    v: Any, like: tuple[Tensor, ...], many: bool, name: str, function: str
) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if the {name} a single Tensor with a single "
                "element."
            )
        return (wrap(ones_like(like[0]._a)),)
    _, vectors = _tuple(v, "v", function)
    if len(vectors) != len(like):
        if many:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(vectors, like, strict=True)):
        if a.shape != b.shape:
            which = f"Entry {i} in v" if many else "v"
            raise RuntimeError(f"{which} has invalid size: should be {b.shape} but got {a.shape}.")
    return vectors


def _grad(
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    vectors: tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> list[Any]:
    """Gradients with None where there is no way from an output to an input."""
    seeds = [None] * len(outputs) if vectors is None else vectors
    live = [(o, v) for o, v in zip(outputs, seeds, strict=True) if o.requires_grad]
    if not live:
        return [None] * len(inputs)
    return list(
        grad(
            [o for o, _ in live],
            inputs,
            [v for _, v in live],
            create_graph=create_graph,
            retain_graph=retain_graph,
            allow_unused=True,
        )
    )


# What strict mode calls things that do not depend on an input, or on an entry, of number {i}.
_OUTPUT = "The output of the user-provided function is independent of input {i}"
_JACOBIAN = "The jacobian of the user-provided function is independent of input {i}"
_HESSIAN = "The hessian of the user-provided function is independent of input {i}"
_CONSTANT = (
    "While computing the hessian, found that the jacobian of the user-provided function with "
    "respect to input {i} is independent of the input"
)


def _filled(
    grads: list[Any],
    like: tuple[Tensor, ...],
    strict: bool,
    create_graph: bool,
    missing: str,
    constant: str = "",
) -> tuple[Tensor, ...]:
    """Zeros for missing gradients; with ``strict`` an error that says what is independent.

    With ``create_graph`` a gradient must depend on the inputs itself; ``constant`` says so.
    """
    found = []
    for i, (g, x) in enumerate(zip(grads, like, strict=True)):
        if strict and g is None:
            raise _independent(missing, i)
        if strict and create_graph and not g.requires_grad:
            raise _independent(constant, i)
        found.append(wrap(zeros_like(x._a)) if g is None else g)
    return tuple(found)


def _independent(what: str, i: int) -> RuntimeError:
    return RuntimeError(
        f"{what.format(i=i)}. This is not allowed in strict mode: check that the function uses it, "
        f"or leave strict out\n  at {errors.here()}"
    )


def _depend(outs: tuple[Tensor, ...], strict: bool) -> None:
    """In strict mode all outputs of the function must depend on its inputs."""
    for i, out in enumerate(outs if strict else ()):
        if not out.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The "
                "outputs must be computed in a differentiable manner from the input when running "
                f"in strict mode.\n  at {errors.here()}"
            )


def _done(values: tuple[Tensor, ...], many: bool, create_graph: bool) -> Any:
    if not create_graph:
        values = tuple(v.detach() for v in values)
    return values if many else values[0]


def vjp(
    func: Callable,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of ``func``, and ``v`` times its Jacobian."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "vjp")
        given = _fresh(given, create_graph)
        out_many, outs = _call(func, given, "vjp")
        _depend(outs, strict)
        vectors = _check_vector(v, outs, out_many, "user-provided function returns", "vjp")
    with _mode(create_graph):
        grads = _grad(outs, given, vectors, create_graph)
        found = _filled(grads, given, strict, create_graph, _OUTPUT, _JACOBIAN)
    return _done(outs, out_many, create_graph), _done(found, many, create_graph)


def jvp(
    func: Callable,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of ``func``, and its Jacobian times ``v`` (by two backward passes)."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "jvp")
        given = _fresh(given, create_graph)
        vectors = _check_vector(v, given, many, "input to the user-provided function is", "jvp")
        out_many, outs = _call(func, given, "jvp")
        _depend(outs, strict)
        probes = tuple(wrap(zeros_like(o._a)).requires_grad_() for o in outs)
        back = _filled(_grad(outs, given, probes, True), given, strict, False, _OUTPUT)
    with _mode(create_graph):
        grads = _grad(back, probes, vectors, create_graph)
        found = _filled(grads, outs, strict, create_graph, _JACOBIAN, _JACOBIAN)
    return _done(outs, out_many, create_graph), _done(found, out_many, create_graph)


class _mode:
    """Record if a graph is wanted or recording was on anyway."""

    def __init__(self, create_graph: bool) -> None:
        self.wanted = create_graph or MODES.now.grad

    def __enter__(self) -> None:
        self.previous, MODES.now.grad = MODES.now.grad, self.wanted
        MODES.now.update()

    def __exit__(self, *exc: object) -> None:
        MODES.now.grad = self.previous
        MODES.now.update()


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of ``func``: for outputs and inputs of shapes A and B, of shape A + B."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant.'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and "
            '`strategy="forward-mode"` are not supported together (yet).'
        )
    if strategy == "forward-mode" and (strict or not vectorize):
        if strict:
            raise RuntimeError(
                "torch.autograd.functional.jacobian: `strict=True` and "
                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                '`strict=False` or `strategy="reverse-mode"`.'
            )
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    stack = api.FUNCTIONS["stack"]
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "jacobian")
        given = _fresh(given, create_graph)
        out_many, outs = _call(func, given, "jacobian")
        _depend(outs, strict)
        blocks = []
        for j, out in enumerate(outs):
            rows = []
            missing = f"Output {j} of the user-provided function is independent of input {{i}}"
            if out.is_complex() and out.requires_grad and out._a.size and not vectorize:
                raise RuntimeError(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{out.dtype!r}: take the jacobian of view_as_real, or set vectorize=True\n"
                    f"  at {errors.here()}"
                )
            flat = np.zeros(out._a.size, out._a.dtype)
            for k in range(out._a.size):
                flat[k] = 1
                seed = wrap(flat.reshape(out._a.shape).copy())
                flat[k] = 0
                grads = _grad((out,), given, (seed,), create_graph, retain_graph=True)
                rows.append(_filled(grads, given, strict, create_graph, missing, _JACOBIAN))
            blocks.append(
                tuple(
                    stack(column).reshape(*out.shape, *x.shape)
                    for column, x in zip(zip(*rows, strict=True), given, strict=True)
                )
                if rows
                else tuple(wrap(np.zeros((*out._a.shape, *x._a.shape), x._a.dtype)) for x in given)
            )
    if not create_graph:
        blocks = [tuple(j.detach() for j in row) for row in blocks]
    shaped = tuple(row if many else row[0] for row in blocks)
    return shaped if out_many else shaped[0]


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function with one scalar output."""
    if outer_jacobian_strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode", got '
            f"{outer_jacobian_strategy!r}."
        )
    many, given = _tuple(inputs, "inputs", "hessian")

    def gradient(*values: Tensor) -> Any:
        out = _scalar(func(*values), "hessian")
        _depend((out,), strict)
        grads = _grad((out,), values, None, create_graph=True)
        return _filled(grads, values, strict, strict, _CONSTANT, _CONSTANT)

    found = jacobian(gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if many else found[0][0]


def _construct_standard_basis_for(
    tensors: tuple[Tensor, ...], tensor_numels: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """The unit vectors of all tensors laid side by side, cut into a matrix for each tensor."""
    ends = np.cumsum(tensor_numels)
    return tuple(
        wrap(np.eye(ends[-1], n, int(n - end), t._a.dtype))
        for t, n, end in zip(tensors, tensor_numels, ends, strict=True)
    )


def _scalar(out: Any, function: str) -> Tensor:
    many, outs = _tuple(out, "outputs of the user-provided function", function)
    if many:
        raise RuntimeError(
            f"The function given to {function} should return a single Tensor, not a tuple"
        )
    if outs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {function} should contain a single "
            "element"
        )
    return outs[0].reshape(()) if outs[0].ndim else outs[0]


def vhp(
    func: Callable,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a scalar function, and ``v`` times its Hessian."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "vhp")
        given = _fresh(given, create_graph)
        vectors = _check_vector(v, given, many, "input to the user-provided function is", "vhp")
        out = _scalar(func(*given), "vhp")
        _depend((out,), strict)
        first = _filled(_grad((out,), given, None, True), given, strict, strict, _OUTPUT, _CONSTANT)
    with _mode(create_graph):
        grads = _grad(first, given, vectors, create_graph)
        found = _filled(grads, given, strict, create_graph, _JACOBIAN, _HESSIAN)
    return _done((out,), False, create_graph), _done(found, many, create_graph)


def hvp(
    func: Callable,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a scalar function, and its Hessian times ``v``."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "hvp")
        given = _fresh(given, create_graph)
        vectors = _check_vector(v, given, many, "input to the user-provided function is", "hvp")
        out = _scalar(func(*given), "hvp")
        _depend((out,), strict)
        first = _filled(_grad((out,), given, None, True), given, strict, strict, _OUTPUT, _CONSTANT)
        probes = tuple(wrap(zeros_like(x._a)).requires_grad_() for x in given)
        second = _filled(_grad(first, given, probes, True), given, strict, False, _JACOBIAN)
    with _mode(create_graph):
        grads = _grad(second, probes, vectors, create_graph)
        found = _filled(grads, given, strict, create_graph, _HESSIAN, _HESSIAN)
    return _done((out,), False, create_graph), _done(found, many, create_graph)
