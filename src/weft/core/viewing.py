"""Views: whose memory they share, and their place in the graph when it changes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.core import errors
from weft.core.inference import Untracked
from weft.core.modes import INFERRING, MODES, no_grad
from weft.core.node import NOWHERE, AccumulateGrad, GraphNode, OpNode
from weft.core.tensor import LATE, Tensor, shares, wrap
from weft.native.memory.layout import rows_of

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ref = weakref.ref


class Origin:
    """Where a view comes from whose place in the graph can't be found by replaying view ops.

    It stands where other views have True or False for "made with recording on", and is false.
    """

    __slots__ = ("words",)

    def __init__(self, words: str) -> None:
        self.words = words

    def __bool__(self) -> bool:
        return False


IN_FUNCTION = Origin(
    "This view was created inside a custom Function (or because an input was returned as-is) and "
    "the autograd logic to handle view+inplace would override the custom backward associated with "
    "the custom Function, leading to incorrect gradients. Clone the output of the custom Function"
)
OF_SEVERAL = Origin(
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. Use the out-of-place form"
)


IN_INFERENCE = Origin("")


class Turned:
    """The ``_view`` of a base that was reshaped in place while it had views.

    The history of a view ends in what its base had there when the view was made, so it shows which
    changes of shape have to be undone before that history can be followed.
    """

    __slots__ = ("before", "undo")

    def __init__(self, undo: tuple[Any, ...], before: Turned | None) -> None:
        self.undo, self.before = undo, before


def _named(x: Tensor) -> str:
    node: Any = x._node
    owner = getattr(node, "node", node)
    who = "a view" if owner is None else called(owner.name())
    return f"Output {getattr(node, 'index', 0)} of {who}"


def called(name: str) -> str:
    """The name of the function whose nodes have this name."""
    return name.rstrip("0123456789").removesuffix("Backward")


def refusal(x: Tensor, name: str = "") -> RuntimeError:
    """Why a view that was not made by recorded view ops can't be changed, or used when stale.

    ``name`` is the op that is to change it.
    """
    origin = x._view[5] if x._base is not None else False
    how = (
        "is being modified inplace"
        if name
        else ("its base or another view of its base has been modified inplace")
    )
    start = f"{name}_: " if name else ""
    mode = "inference" if origin is IN_INFERENCE else "no_grad"
    if origin is IN_FUNCTION or origin is OF_SEVERAL:
        what = f"{_named(x)} is a view and {how}. {origin.words}"
    elif name:
        what = (
            f"A view was created in {mode} mode and {how} with grad mode enabled. Given that this "
            "use case is ambiguous and error-prone, it is forbidden. Move both the view and the "
            "in-place op inside it, or both outside"
        )
    else:
        what = (
            f"A view was created in {mode} mode and {how} with grad mode enabled. Move both the "
            "view and the in-place op inside it, or both outside"
        )
    return RuntimeError(f"{start}{what}\n  at {errors.here()}")


def link_views(op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
    """Tie results to the tensor whose memory they share."""
    for k, result in enumerate(results):
        link_view(result, args, op, attrs, k)


def link_view(result: Tensor, args: Any, op: Op, attrs: dict[str, Any], k: int) -> None:
    """Tie a result to the tensor whose memory it shares, if it does."""
    source = args[0]
    held = result._a.base
    if held is not source._a and not shares(result._a, source._a):
        return
    cell = source._vc
    if cell.__class__ is Untracked:
        result._vc = cell  # another inference tensor, which autograd does not treat as a view
        return
    base = source._base
    enabled = MODES.now.grad
    visible: Any = enabled and (base is None or source._view[5])
    if INFERRING and MODES.now.inference:
        visible = IN_INFERENCE
    result._vc = cell
    result._base = source if base is None else base
    result._stamp = cell[0]
    result._view = (op, args[1:], attrs, k, source._view, visible)
    if not enabled and result._base._node is not None:
        # PyTorch's rule: a view made in no_grad requires a gradient, which goes nowhere.
        result._node = NOWHERE


def root_of(x: Tensor) -> Tensor | None:
    """The base of a view. One that was given another shape in place is a view by now itself."""
    base = x._base
    while base is not None and base._base is not None:
        base = x._base = base._base
    return base


def follow(x: Any, chain: tuple[Any, ...]) -> Any:
    """Apply the view ops that lead from a base to one of its views."""
    for op, rest, attrs, k, _, _ in links_of(chain):
        x = op(x, *rest, **attrs)
        if op.multiple:
            x = x[k]
    return x


def links_of(chain: Any) -> list[Any]:
    """The steps of a view's history, the first one first."""
    links = []
    while chain.__class__ is tuple:
        links.append(chain)
        chain = chain[4]
    links.reverse()
    return links


def chain_of(x: Tensor) -> Any:
    """The view ops that lead to a view from its base, in the shape that the base has now."""
    base, link = root_of(x), x._view
    shape: Any = None if base is None else base._view
    links = []
    while link.__class__ is tuple:
        links.append(link)
        link = link[4]
    if base is not None and (short := _by_strides(links, base)) is not None:
        links, chain = short, shape
    elif link is not shape:
        chain, turn = shape, shape
        while turn is not link and turn is not None:
            chain = (*turn.undo, chain, True)
            turn = turn.before
    else:
        return x._view
    for op, rest, attrs, k, _, visible in reversed(links):
        chain = (op, rest, attrs, k, chain, visible)
    x._view = chain
    return chain


# Views that count memory in other elements than what they are views of.
_OTHER_ELEMENTS = frozenset(("real", "imag", "view_as_real", "view_as_complex"))


def _by_strides(links: list[Any], base: Tensor) -> list[Any] | None:
    """A view's history, newest step first, from its last ``as_strided`` on; None if it has none.

    That shows places in memory, also those which a view that it was made of leaves out.
    """
    at = next((i for i, step in enumerate(links) if step[0].name == "as_strided"), None)
    if at is None or any(step[0].name in _OTHER_ELEMENTS for step in links[at:]):
        return None
    op, rest, attrs, k, before, visible = links[at]
    offset, layout = attrs["storage_offset"], (base.stride(), base.storage_offset())
    attrs = {
        **attrs,
        "storage_offset": attrs["layout"][1] if offset is None else offset,
        "layout": layout,
    }
    return [*links[:at], (op, rest, attrs, k, before, visible)]


def closed(chain: Any) -> Any:
    """A view's history that others can keep: it ends in None."""
    links = []
    while chain.__class__ is tuple:
        links.append(chain)
        chain = chain[4]
    for op, rest, attrs, k, _, visible in () if chain is None else reversed(links):
        chain = (op, rest, attrs, k, None if chain.__class__ is Turned else chain, visible)
    return links[0] if chain is None else chain


def has_several(chain: Any) -> bool:
    """Whether some step of a view's history made several views at once."""
    while chain.__class__ is tuple:
        if chain[0].multiple:
            return True
        chain = chain[4]
    return False


def refresh_view(x: Tensor) -> None:
    """Give a view the node it would have if it were made now from its changed base."""
    base, chain = root_of(x), x._view
    leaf = x._node is None or isinstance(x._node, AccumulateGrad)
    if base is None or chain is None or (base._node is None and leaf):
        x._stamp = x._vc[0]
        return
    if not chain[5]:
        raise refusal(x)
    if has_several(chain):
        raise RuntimeError(
            f"Output {chain[3]} of {called(chain[0].grad_name)} is a view and its base or "
            "another view of its base has been modified inplace. This view is the output of a "
            "function that returns multiple views. Such functions do not allow the output views "
            f"to be modified inplace. Use the out-of-place form\n  at {errors.here()}"
        )
    retained = take_retained(x)
    x._node = node = replayed_node(x)
    if node.__class__ is OpNode and base._a.dtype is x._a.dtype and not MODES.now.view_replay:
        # PyTorch recreates such a view from its base by strides. The gradient is the same.
        node.__class__ = chain[0].node_type("AsStridedBackward0")
    x._stamp = x._vc[0]
    give_retained(x, retained)


def replayed_node(x: Tensor) -> GraphNode | None:
    """The node that a view would have if it were made now from its base."""
    enabled, MODES.now.grad = MODES.now.grad, True
    recorders, MODES.now.recorders = MODES.now.recorders, ()
    MODES.now.update()
    try:
        base: Any = root_of(x)
        # Where a base's history ends (it was detached, say), that of its views does too.
        return follow(wrap(base._a, base._node or NOWHERE), chain_of(x))._node  # type: ignore[arg-type]
    finally:
        MODES.now.grad, MODES.now.recorders = enabled, recorders
        MODES.now.update()


def unhooked_node(x: Tensor) -> GraphNode | None:
    """The node of a tensor about to be changed in place, free of hooks where it is a view.

    PyTorch sends the gradient of the old value straight to the base, so hooks and kept gradients
    of the view, or of views between it and the base, see nothing of it.
    """
    node, base = x._node, root_of(x)
    if base is None or x._view is None or base._node is None:
        return node
    if any(step[0].name == "as_strided" for step in links_of(x._view)[1:]):
        return replayed_node(x)  # a gradient also for what the view in between leaves out
    step: Any = node
    while step.__class__ is not AccumulateGrad and step is not base._node:
        if step.extras is not None:
            return replayed_node(x)
        step = step.inputs[0]
        if not isinstance(step, GraphNode):
            break
    return node


def take_retained(target: Tensor) -> bool:
    node = target._node
    if node is None or node.extras is None or isinstance(node, AccumulateGrad):
        return False
    mine = [r for r in node.extras.retained if r() is target]
    node.extras.retained = [r for r in node.extras.retained if r() is not target]
    return bool(mine)


def give_retained(target: Tensor, wanted: bool) -> None:
    if wanted and target._node is not None:
        target._node._extras().retained.append(ref(target))


def steps_without_elements(x: Tensor) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without elements on an array that has forgotten them.

    NumPy gives every stride of such an array as zero. So the ops of a view are followed from an
    array that has the strides which its base would have with rows.
    """
    base, step = root_of(x), x._a.itemsize
    if base is None or x._view is None:
        return rows_of(x._a.shape)
    steps = [n * base._a.itemsize for n in rows_of(base._a.shape)]
    rows = as_strided(np.empty(1, base._a.dtype), base._a.shape, steps)
    recorders, MODES.now.recorders = MODES.now.recorders, ()
    MODES.now.update()
    try:
        with no_grad():
            seen = follow(wrap(rows), chain_of(x))
    finally:
        MODES.now.recorders = recorders
        MODES.now.update()
    return tuple(n // step for n in seen._a.strides)


LATE.refresh = refresh_view
LATE.steps_without_elements = steps_without_elements
