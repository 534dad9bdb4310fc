"""``autograd.backward`` and ``autograd.grad``: the engine's, also for edges and batches."""

from __future__ import annotations

from typing import Any

from weft.autograd import engine
from weft.autograd.graph import GradientEdge, tensor_at
from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators import api, overriding


def _many(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) else tuple(value)


def _tensors(value: Any) -> Any:
    return tuple(map(tensor_at, _many(value)))


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the ``.grad`` of their leaves."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    if create_graph:
        errors.warn_of_cycle()
    if inputs is not None:
        inputs = _tensors(inputs)
    engine.backward(_tensors(tensors), grad_tensors, retain_graph, create_graph, inputs)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, as a tuple.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> weft.autograd.grad(x**2, x)
    (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    inputs = _many(inputs)  # which may be an iterator, as model.parameters() is
    edges = [isinstance(x, GradientEdge) for x in inputs]
    if materialize_grads and any(edges):
        found = grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, True,
            is_grads_batched,
        )  # fmt: skip
        if any(g is None and edge for g, edge in zip(found, edges, strict=True)):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge: an edge "
                f"that the outputs don't depend on has no zeros to give\n  at {errors.here()}"
            )
        zeros = api.FUNCTIONS["zeros_like"]
        return tuple(
            zeros(x, requires_grad=create_graph) if g is None else g
            for g, x in zip(found, inputs, strict=True)
        )
    outputs, inputs = _tensors(outputs), _tensors(inputs)
    if not inputs:
        raise RuntimeError(f"`inputs` argument to `grad()` cannot be empty.\n  at {errors.here()}")
    options: dict[str, Any] = {
        "create_graph": create_graph,
        "allow_unused": allow_unused,
        "materialize_grads": materialize_grads,
    }
    if not is_grads_batched:
        return engine.grad(outputs, inputs, grad_outputs, retain_graph, **options)
    rows = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs or ())
    sizes = {g.shape[0] for g in rows if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(
            "grad with is_grads_batched=True: grad_outputs need one more dimension than outputs, "
            f"of the same size for all; found sizes {sorted(sizes)}\n  at {errors.here()}"
        )
    for k, (out, g) in enumerate(zip(outputs, rows, strict=False)):
        if g is not None and g.shape[1:] != out.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                f"match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{k}] has a shape of {g.shape} and output[{k}] has a shape of "
                f"{out.shape}.\n  at {errors.here()}"
            )
    columns = []
    for i in range(sizes.pop()):
        row = tuple(None if g is None else g[i] for g in rows)
        columns.append(engine.grad(outputs, inputs, row, True, **options))
    stack = api.FUNCTIONS["stack"]
    return tuple(
        None if column[0] is None else stack(column) for column in zip(*columns, strict=True)
    )


overriding.offer("torch.autograd", backward=backward, grad=grad)
