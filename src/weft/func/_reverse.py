"""Function transforms on top of the one graph: each opens a scope in it, and closes it again.

Inside a scope the inputs are variables of its own, tied to the graph outside if that asks for
gradients. What leaves the scope keeps its history only if that history leads outside: so transforms
nest in each other and in plain autograd.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.autograd.transposed import CLOSED, without_history
from weft.core.batching import spread
from weft.core.devices import ones_like, zeros_like
from weft.core.dual import (
    forget_tangents,
    in_layout,
    set_tangent,
    tangents_of,
    without_tangent,
)
from weft.core.meta import filled
from weft.core.modes import MODES, enable_grad, set_grad_enabled
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor, wrap
from weft.func._vmap import vmap
from weft.operators import api
from weft.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

Argnums = int | tuple[int, ...]


class Scope:
    """One run of a transform."""

    def __init__(self) -> None:
        self.recording = MODES.now.grad
        self.own: set[Any] = set()

    def variable(self, x: Any) -> Tensor:
        """An input as a variable of this scope."""
        if not isinstance(x, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        if MODES.now.batches:
            x = spread(x)  # each example has a gradient of its own
        if self.recording and x.requires_grad:
            return x.view_as(x)
        inside = without_history(x).requires_grad_()
        self.own.add(inside._node)
        return inside

    def probe(self, like: Tensor) -> Tensor:
        """A variable for the gradient of an output."""
        inside = spread(wrap(zeros_like(like._a))).requires_grad_()
        self.own.add(inside._node)
        return inside

    def leads_out(self, tensors: Any) -> bool:
        """Whether the history of some tensor leads out of this scope."""
        stack = [t._node for t in tensors if t.requires_grad]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if isinstance(node, AccumulateGrad):
                if node not in self.own and node not in CLOSED:
                    return True
                continue
            for edge in engine.edges_of(node):
                if edge not in seen:
                    seen.add(edge)
                    stack.append(edge)
        return False

    def needs_graph(self, tensors: Any) -> bool:
        """Whether a backward from these must itself be recorded."""
        return MODES.now.dual_level >= 0 or (self.recording and self.leads_out(tensors))

    def close(self, tree: Any) -> Any:
        """Results without any history that ends in this scope."""
        CLOSED.update(self.own)
        leaves, spec = tree_flatten(tree)
        tensors = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
        if not tensors:
            return tree
        if self.recording and self.leads_out(tensors):
            cut = {id(t) for t in tensors if not self.leads_out((t,))}
        else:
            cut = {id(t) for t in tensors}
        return spec.unflatten(self._alone(x) if id(x) in cut else x for x in leaves)

    def _alone(self, x: Tensor) -> Tensor:
        """A tensor without its history, and without that of its tangents if it ends here."""
        alone = without_history(x)
        for level, tangent in (tangents_of(alone) or {}).items():
            if tangent.requires_grad and not (self.recording and self.leads_out((tangent,))):
                set_tangent(alone, level, self._alone(tangent))
        return alone


def backward(
    outs: Any, inputs: Any, seeds: Any, create: bool, keep: bool | None = True
) -> list[Tensor]:
    """Gradients for all inputs: zeros where no way leads from the outputs to one."""
    live = [(o, s) for o, s in zip(outs, seeds, strict=True) if o.requires_grad]
    found: Any = [None] * len(inputs)
    if live and inputs:
        found = engine.grad(
            [o for o, _ in live], inputs, [s for _, s in live],
            retain_graph=keep, create_graph=create, allow_unused=True,
        )  # fmt: skip
    return [wrap(zeros_like(x._a)) if g is None else g for g, x in zip(found, inputs, strict=True)]


# --- which arguments -------------------------------------------------------------------


def pick(args: tuple[Any, ...], argnums: Argnums, name: str) -> tuple[int, ...]:
    """The positions to differentiate by, counted from the front."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(f"{name}: argnums must be an int or a tuple of ints, got {argnums}")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    found = tuple(n % len(args) for n in numbers)
    if len(set(found)) != len(found):
        raise RuntimeError(f"All elements in argnums must be unique, got argnums={argnums}")
    return found


def with_values(args: tuple[Any, ...], places: tuple[int, ...], values: Any) -> list[Any]:
    """The arguments with other values in some places."""
    changed = list(args)
    for place, value in zip(places, values, strict=True):
        changed[place] = value
    return changed


def on_chosen(
    func: Callable, args: tuple[Any, ...], argnums: Argnums, kwargs: Any, name: str
) -> tuple[Callable, tuple[Any, ...]]:
    """The function of the chosen arguments alone, with those arguments."""
    places = pick(args, argnums, name)

    def alone(*values: Any) -> Any:
        return func(*with_values(args, places, values), **kwargs)

    return alone, tuple(args[p] for p in places)


def split_aux(out: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """A function's output and what it gives beside it."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return out


# --- grad ------------------------------------------------------------------------------


def grad_and_value(func: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func`` and its value.

    >>> import weft
    >>> weft.func.grad_and_value(lambda x: x**2)(weft.tensor(3.0))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        name = "grad_and_value(f)(*args)"
        places = pick(args, argnums, name)
        scope = Scope()
        with enable_grad():
            leaves, spec = tree_flatten([args[p] for p in places])
            inputs = [scope.variable(x) for x in leaves]
            out = func(*with_values(args, places, tree_unflatten(inputs, spec)), **kwargs)
            out, aux = split_aux(out, has_aux, name)
            _check_scalar(out, name)
            create = scope.needs_graph((out,))
            ones = wrap(ones_like(out._a))
            found = backward((out,), inputs, (ones,), create, keep=create)
        grads = tree_unflatten(found, spec)
        grads = tuple(grads) if isinstance(argnums, tuple) else grads[0]
        return scope.close((grads, (out, aux) if has_aux else out))

    return wrapper


def _check_scalar(out: Any, name: str) -> None:
    if not isinstance(out, Tensor):
        raise RuntimeError(f"{name}: Expected f(*args) to return a Tensor, got {type(out)}")
    if out.ndim:
        raise RuntimeError(
            f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {out.ndim} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    if out.is_complex():
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {out.dtype!r}"
        )


def grad(func: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func``.

    >>> import weft
    >>> weft.func.grad(weft.func.grad(weft.sin))(weft.tensor(0.0))
    tensor(-0.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


# --- vjp and jvp -----------------------------------------------------------------------


def _flat_tensors(out: Any, name: str) -> tuple[list[Tensor], TreeSpec]:
    leaves, spec = tree_flatten(out)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"{name}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(x)}"
            )
    return leaves, spec


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of ``func``, and a function from cotangents to gradients.

    >>> import weft
    >>> value, pull = weft.func.vjp(weft.sin, weft.tensor(0.0))
    >>> pull(weft.tensor(2.0))
    (tensor(2.),)
    """
    name = "vjp(f, *primals)"
    scope = Scope()
    with enable_grad():
        leaves, spec = tree_flatten(primals)
        inputs = [scope.variable(x) for x in leaves]
        out, aux = split_aux(func(*tree_unflatten(inputs, spec)), has_aux, name)
    outs, out_spec = _flat_tensors(out, name)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        seeds, form = tree_flatten(cotangents)
        if form != out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {form}, primal output: {out_spec}"
            )
        recorded = any(s.requires_grad for s in seeds) or scope.needs_graph(outs)
        create = recorded if create_graph is None else create_graph
        with set_grad_enabled(MODES.now.grad and create):
            found = backward(outs, inputs, seeds, create and MODES.now.grad)
        return tree_unflatten(_leave(scope, found), spec)

    value = scope.close((out, aux) if has_aux else (out,))
    return (value[0], pull, value[1]) if has_aux else (value[0], pull)


def _leave(scope: Scope, found: list[Tensor]) -> list[Tensor]:
    # Cotangents may have come from anywhere, at any time: only this scope's own ends are cut.
    ends = [g.requires_grad and not scope.leads_out((g,)) for g in found]
    return [without_history(g) if end else g for g, end in zip(found, ends, strict=True)]


def _linear(func: Callable, primals: tuple[Any, ...], has_aux: bool, name: str) -> Any:
    """Run ``func``; give its outputs and a function that moves tangents through it.

    v -> vjp(v) is linear, so its own vjp is the jvp. Two backward passes cost more than a
    forward one, and work for all that backward works for, in-place changes of views included.
    """
    scope = Scope()
    with enable_grad():
        leaves, spec = tree_flatten(primals)
        inputs = [scope.variable(x) for x in leaves]
        out, aux = split_aux(func(*tree_unflatten(inputs, spec)), has_aux, name)
        outs, out_spec = _flat_tensors(out, name)
        probes = [scope.probe(o) for o in outs]
        outward = scope.needs_graph(outs)
        back = backward(outs, inputs, probes, create=True)

    def push(tangents: list[Tensor]) -> list[Tensor]:
        for x, t in zip(leaves, tangents, strict=True):
            _check_tangent(x, t)
        create = MODES.now.grad and (outward or any(t.requires_grad for t in tangents))
        with set_grad_enabled(create):
            return _leave(scope, backward(back, probes, tangents, create))

    value = scope.close((out, aux))
    return value, push, spec, out_spec


def _check_tangent(x: Tensor, t: Any) -> None:
    if not isinstance(t, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
    if x.shape != t.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(x.shape)} while the given "
            f"forward gradient is of size {list(t.shape)}."
        )


def jvp(
    func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> tuple[Any, ...]:
    """The value of ``func`` and its derivative in a direction.

    >>> import weft
    >>> weft.func.jvp(weft.sin, (weft.tensor(0.0),), (weft.tensor(3.0),))
    (tensor(0.), tensor(3.))
    """
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    flat, form = tree_flatten(tangents)
    own, spec = tree_flatten(primals)
    if form != spec:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
            f"structure {spec} and tangents with structure {form}"
        )
    if not own:
        raise RuntimeError(f"{name}: Expected at least one Tensor in primals")
    for x, t in zip(own, flat, strict=True):
        if isinstance(x, Tensor):
            _check_tangent(x, t)
    if _forward_mode(own):
        out, aux, moved, out_spec = _pushed(func, own, spec, flat, has_aux, name)
    else:
        (out, aux), push, _, out_spec = _linear(func, primals, has_aux, name)
        moved = push(flat)
    tree = tree_unflatten(moved, out_spec)
    return (out, tree, aux) if has_aux else (out, tree)


def _forward_mode(leaves: list[Any]) -> bool:
    """Whether tangents can go along with the values.

    Inside ``vmap`` ops take batches apart before they look for tangents.
    """
    return not MODES.now.batches and all(isinstance(x, Tensor) for x in leaves)


def _pushed(
    func: Callable, leaves: Any, spec: TreeSpec, tangents: Any, has_aux: bool, name: str
) -> tuple[Any, Any, list[Tensor], TreeSpec]:
    """The value of ``func`` and the tangents of its outputs, by forward mode."""
    now = MODES.now
    level = now.dual_level = now.dual_level + 1
    now.update()
    try:
        duals = [_dual(x, t, level) for x, t in zip(leaves, tangents, strict=True)]
        out, aux = split_aux(func(*tree_unflatten(duals, spec)), has_aux, name)
        outs, out_spec = _flat_tensors(out, name)
        found = [(tangents_of(o) or {}).get(level) for o in outs]
        moved = [
            wrap(np.zeros_like(o._a)) if t is None else t for o, t in zip(outs, found, strict=True)
        ]
        out, aux = tree_map(lambda x: without_tangent(x, level), (out, aux))
    finally:
        forget_tangents(level)
        now.dual_level = level - 1
        now.update()
    return out, aux, moved, out_spec


def _dual(x: Tensor, tangent: Tensor, level: int) -> Tensor:
    dual = x.view_as(x)
    set_tangent(dual, level, in_layout(tangent, x._a))
    return dual


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """The value of ``func``, and its derivative as a function of the direction."""
    (out, _), push, spec, out_spec = _linear(func, primals, False, "linearize")

    def moved(*tangents: Any) -> Any:
        flat, form = tree_flatten(tangents)
        if form != spec:
            raise RuntimeError(
                "Expected the tangents given to the function from linearize to have the structure "
                f"of its primals: {spec}, got {form}"
            )
        return tree_unflatten(push(flat), out_spec)

    return out, moved


# --- Jacobians -------------------------------------------------------------------------


def _basis(x: Tensor) -> Any:
    """The unit tensors of a shape, one at a time."""
    for k in range(x._a.size):
        unit = np.zeros(x._a.size, x._a.dtype)
        unit[k] = 1
        yield wrap(unit.reshape(x._a.shape))


def _check_real(leaves: list[Any], name: str, kind: str) -> None:
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {kind} to be real but received complex tensor at flattened "
                f"{kind[:-1]} idx: {i}"
            )


def _check_chunks(chunk_size: int | None, name: str) -> None:
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"{name}: `chunk_size` should be greater than 0.")


def jacrev(
    func: Callable,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:
    """A function that gives the Jacobian of ``func``, by one backward for all output elements.

    >>> import weft
    >>> weft.func.jacrev(weft.sin)(weft.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    _check_chunks(chunk_size, "jacrev")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        alone, chosen = on_chosen(func, args, argnums, kwargs, "jacrev")
        inputs, spec = tree_flatten(chosen)
        _check_real(inputs, "jacrev", "inputs")
        out, pull, *aux = vjp(alone, *chosen, has_aux=has_aux)
        outs, out_spec = tree_flatten(out)
        _check_real(outs, "jacrev", "outputs")
        blocks = []
        for k, o in enumerate(outs):
            zeros = [wrap(zeros_like(x._a)) for x in outs]

            def row(unit: Tensor, zeros: list[Any] = zeros, k: int = k) -> tuple[Tensor, ...]:
                seeds = [*zeros[:k], unit, *zeros[k + 1 :]]
                return tuple(tree_flatten(pull(tree_unflatten(seeds, out_spec)))[0])

            found = tree_unflatten(_rows(row, o, inputs, chunk_size), spec)
            blocks.append(found if isinstance(argnums, tuple) else found[0])
        result = tree_unflatten(blocks, out_spec)
        return (result, aux[0]) if has_aux else result

    return wrapper


def _rows(row: Callable, o: Tensor, results: list[Tensor], chunk_size: int | None) -> list[Tensor]:
    """What a linear function of ``o`` gives for its unit vectors, in one pass if it can be done."""
    shapes = [(*o.shape, *x.shape) for x in results]
    if o._a.size > 1 and not o.is_meta:
        units = api.FUNCTIONS["eye"](o._a.size, dtype=o.dtype).reshape(o._a.size, *o.shape)
        try:
            found = vmap(row, chunk_size=chunk_size)(units)
            return [g.reshape(shape) for g, shape in zip(found, shapes, strict=True)]
        except (NotImplementedError, RuntimeError):
            pass  # some rule looks at values: one unit vector after the other
    rows = [row(unit) for unit in _basis(o)]
    return [
        _stacked([r[i] for r in rows], shape, x)
        for i, (shape, x) in enumerate(zip(shapes, results, strict=True))
    ]


def _stacked(parts: list[Tensor], shape: tuple[int, ...], like: Tensor) -> Tensor:
    if not parts:
        return wrap(filled(np.zeros, shape, like._a.dtype))
    return api.FUNCTIONS["stack"](parts).reshape(shape)


def jacfwd(
    func: Callable,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable:
    """A function that gives the Jacobian of ``func``, by one pass for all input elements."""
    _check_chunks(chunk_size, "jacfwd")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        alone, chosen = on_chosen(func, args, argnums, kwargs, "jacfwd")
        inputs, spec = tree_flatten(chosen)
        _check_real(inputs, "jacfwd", "inputs")
        (out, aux), push, _, out_spec = _linear(alone, chosen, has_aux, "jacfwd")
        outs = tree_flatten(out)[0]
        _check_real(outs, "jacfwd", "outputs")
        columns: list[list[Tensor]] = []
        for i, x in enumerate(inputs):
            zeros = [wrap(zeros_like(y._a)) for y in inputs]

            def column(unit: Tensor, zeros: list[Any] = zeros, i: int = i) -> tuple[Tensor, ...]:
                return tuple(push([*zeros[:i], unit, *zeros[i + 1 :]]))

            found = _rows(column, x, outs, chunk_size)
            order = range(x.ndim)
            columns.append([g.permute((*range(x.ndim, g.ndim), *order)) for g in found])
        blocks = []
        for k in range(len(outs)):
            block = tree_unflatten([c[k] for c in columns], spec)
            blocks.append(block if isinstance(argnums, tuple) else block[0])
        result = tree_unflatten(blocks, out_spec)
        return (result, aux) if has_aux else result

    return wrapper


def hessian(func: Callable, argnums: Argnums = 0) -> Callable:
    """A function that gives the Hessian of ``func``."""
    return jacfwd(jacrev(func, argnums), argnums)


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """Tensors are not wrapped by transforms here: the tensor itself."""
    return tree_map(lambda x: x, tensor)
