"""Growing and shrinking a network while it trains; parameters and optimizer state follow.

Which parameters share a width is read off the graph of a run on an example: two dimensions that
an op keeps together form one channel. Wider channels are copies of old units whose outgoing
weights share the old one's, so the network computes what it computed (Net2Net); the shares are
uneven, so that copies learn different things.
"""

from __future__ import annotations

import contextlib
import gc
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.gate import exchange
from weft.core.modes import no_grad
from weft.core.tensor import Tensor, wrap
from weft.graph import record
from weft.graph.graph import Graph
from weft.nn._channels import CONSUMED, PRODUCED, TIED, Channels
from weft.nn.module import Module
from weft.operators.outputs import tensors_in
from weft.operators.random import default_generator

# Names under which layers remember their widths.
_WIDTHS = (
    *("in_features", "out_features", "num_features", "in_channels", "out_channels"),
    *("num_channels", "num_parameters", "num_embeddings", "embedding_dim", "normalized_shape"),
)


class ResizeError(ValueError):
    """The network can't be resized as asked; nothing was changed."""


class Resized:
    """What a resize did: the new shapes, and how far the outputs on the example moved."""

    def __init__(self, shapes: dict[str, tuple[Any, Any]], moved: float | None) -> None:
        self.shapes, self.moved = shapes, moved

    @property
    def preserved(self) -> bool | None:
        """Whether the network computes what it did, up to rounding; None without an example."""
        return None if self.moved is None else self.moved < 1e-4

    def __repr__(self) -> str:
        lines = [f"{n}: {_shown(old)} -> {_shown(new)}" for n, (old, new) in self.shapes.items()]
        if self.moved is not None:
            kept = "kept" if self.preserved else "changed"
            lines.append(f"outputs on the example are {kept} (moved by {self.moved:.2g}, relative)")
        return "\n".join(lines)


def _shown(shape: Any) -> str:
    return "gone" if shape is None else str(list(shape)) if shape != "new" else "new"


def resize(
    target: Any,
    path: str | None = None,
    *,
    width: int | None = None,
    shape: Any = None,
    insert: dict[int, Module] | None = None,
    remove: bool = False,
    example: Any = None,
    optimizer: Any = None,
    keep: Any = None,
    noise: float = 0.0,
) -> Resized:
    """Change a network's size in the middle of training. If it fails, nothing is changed.

    ``resize(model, "fc1", width=128, example=x)`` gives a layer so many units; all that its units
    pass through follow. ``insert={2: nn.Linear(8, 8)}`` puts layers into the container at ``path``,
    as the identity where the layer can be one; ``remove=True`` takes the layer at ``path`` out.
    ``resize(parameter, shape=(4, 8))`` cuts or pads a parameter alone. The optimizer given keeps
    its state for what stays. ``keep`` names the units that stay when a layer gets narrower
    (otherwise those with the largest weights); ``noise`` is added to copies, in parts of their
    spread.
    """
    asked = [width is not None, shape is not None, insert is not None, remove]
    if sum(asked) != 1:
        raise TypeError(
            f"resize takes one of width=, shape=, insert= and remove=True\n  at {errors.here()}"
        )
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    optimizers = [o for o in optimizers if o is not None]
    for o in optimizers:
        if not hasattr(o, "param_groups"):
            raise TypeError(f"resize: {type(o).__name__} is not an optimizer\n  at {errors.here()}")
    if width is not None and not isinstance(width, numbers.Integral):
        raise TypeError(f"resize: width= is a whole number, not {width!r}\n  at {errors.here()}")
    if insert is not None and not (
        isinstance(insert, dict) and all(isinstance(k, numbers.Integral) for k in insert)
    ):
        raise TypeError(
            f"resize: insert= is a dict of layers by their new places, such as "
            f"{{2: nn.Linear(8, 8)}}\n  at {errors.here()}"
        )
    if shape is not None:
        return _reshape(target, tuple(int(n) for n in shape), optimizers)
    layer = _module_at(target, path)
    inputs = _as_inputs(example)
    with _Undo(target, optimizers) as undo:
        before = None if inputs is None else _outputs(target, inputs)
        if width is not None:
            if inputs is None:
                raise _refused("width= needs example=, an input to see what reads the layer")
            shapes = _set_width(target, layer, path, int(width), inputs, optimizers, keep, noise)
        elif insert is not None:
            shapes = _insert(layer, path or "", insert, optimizers)
        else:
            shapes = _remove(target, path or "", layer, optimizers)
        moved = None if inputs is None else _distance(before, _outputs(target, inputs))
        undo.done = True
    _forget_directions(optimizers)
    return Resized(shapes, moved)


def _forget_directions(optimizers: list[Any]) -> None:
    """Let LBFGS start over: its history is of vectors over all parameters as they were."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            if isinstance(state, dict) and {"old_dirs", "prev_flat_grad"} & state.keys():
                calls = state.get("func_evals", 0)
                state.clear()
                state.update(func_evals=calls, n_iter=0)


def _refused(reason: str) -> ResizeError:
    return ResizeError(f"resize: {reason}\n  at {errors.here()}")


def _module_at(model: Any, path: str | None) -> Module:
    if not isinstance(model, Module):
        raise TypeError(
            f"resize takes a module (or a parameter with shape=), not {type(model).__name__}"
            f"\n  at {errors.here()}"
        )
    try:
        return model.get_submodule(path or "")
    except AttributeError as error:
        raise _refused(str(error)) from None


def _as_inputs(example: Any) -> tuple[Any, ...] | None:
    if example is None:
        return None
    return tuple(example) if isinstance(example, (tuple, list)) else (example,)


# --- trying and taking back ------------------------------------------------------------


class _Undo:
    """Puts a model and its optimizers back as they were, unless the block says it is done."""

    def __init__(self, model: Any, optimizers: list[Any]) -> None:
        self.done = False
        self.modules = [
            (m, {k: v.copy() if isinstance(v, (dict, set)) else v for k, v in m.__dict__.items()})
            for m in model.modules()
        ]
        tensors = [*model.parameters(), *model.buffers()]
        self.tensors = [(t, wrap(t._a), t._grad, t._vc[0]) for t in tensors]
        self.optimizers = [
            (
                o,
                {p: dict(s) if isinstance(s, dict) else s for p, s in o.state.items()},
                [(g, list(g["params"])) for g in o.param_groups],
            )
            for o in optimizers
        ]

    def __enter__(self) -> _Undo:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.done:
            return
        if error is not None and not isinstance(error, ResizeError):
            error.add_note("  resize: the model does not run at the new size; nothing was changed")
        for module, held in self.modules:
            module.__dict__.clear()
            module.__dict__.update(held)
            module._name_scope(module._scope_name)
        for tensor, before, grad, _ in self.tensors:
            tensor._a, tensor._grad = before._a, grad
        for optimizer, state, groups in self.optimizers:
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, params in groups:
                group["params"] = params


@contextlib.contextmanager
def _quietly(model: Module) -> Iterator[None]:
    """Evaluation mode without gradients; modes and the random stream are as before after it."""
    modes = [(m, m.training) for m in model.modules()]
    state = default_generator.get_state()
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        default_generator.set_state(state)


def _outputs(model: Module, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    with _quietly(model):
        out = model(*inputs)
    return [host(t).astype(np.float64) for t in tensors_in(out)]


def _distance(before: Any, after: list[np.ndarray]) -> float:
    worst = 0.0
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape:
            return float("inf")
        scale = max(float(np.abs(a).max(initial=0.0)), 1e-12)
        worst = max(worst, float(np.abs(a - b).max(initial=0.0)) / scale)
    return worst


# --- widths ----------------------------------------------------------------------------


def _set_width(
    model: Module,
    layer: Module,
    path: str | None,
    width: int,
    inputs: tuple[Any, ...],
    optimizers: list[Any],
    keep: Any,
    noise: float,
) -> dict[str, tuple[Any, Any]]:
    if width < 1:
        raise _refused(f"a width of {width}")
    with _quietly(model), record() as graph:
        model(*inputs)
    channels = Channels(graph)
    start, old = _width_of(graph, channels, layer, path)
    if width == old:
        return {}
    reasons = channels.reasons(start)
    if reasons:
        raise _refused(f"the width of {path or 'the module'!r} can't change: {reasons[0]}")
    root_block = channels.find(start)[1]
    places = {
        place: block // root_block if block % root_block == 0 else 0
        for place, block in channels.group(start).items()
        if place in channels.roles
    }
    if 0 in places.values():
        raise _refused("its units are grouped in two ways")
    choice = _choose(graph, channels, places, old, width, keep)
    tied = any(channels.roles[place] == TIED for place in places)
    shares = None if tied else _shares(choice, old)
    done: dict[Any, tuple[Tensor, tuple[int, ...]]] = {}
    for (node, _, dim), block in places.items():
        tensor = graph._specs[node].leaf.tensor  # type: ignore[union-attr]
        assert tensor is not None
        tensor = _owner(model, tensor)
        role = channels.roles[node, 0, dim]
        done.setdefault(node, (tensor, tensor._a.shape))
        scale = shares if role == CONSUMED else None
        if tied and role != CONSUMED:
            # A shared weight can't be copied on one side and scaled on the other: units that
            # give nothing at first keep the function too.
            scale = (np.arange(len(choice)) < old).astype(np.float64)
        _take(tensor, dim, block, choice, scale, optimizers, noise)
    names = {id(p): n for n, p in (*model.named_parameters(), *model.named_buffers())}
    _rename_widths(model, [t for t, _ in done.values()])
    return {
        names.get(id(t), graph._names()[k]): (shape, t._a.shape) for k, (t, shape) in done.items()
    }


def _owner(model: Module, tensor: Tensor) -> Tensor:
    """The model's own tensor, where the graph read another on its array."""
    for held in (*model.parameters(), *model.buffers()):
        if held is tensor or held._a is tensor._a:
            return held
    raise _refused("a parameter that the model does not own takes part")


def _width_of(graph: Graph, channels: Channels, layer: Module, path: str | None) -> tuple[Any, int]:
    weights = [p for p in layer._parameters.values() if p is not None]
    found = []
    for spec in graph._specs.values():
        tensor = None if spec.leaf is None else spec.leaf.tensor
        if tensor is None or not any(tensor is p for p in weights):
            continue
        for dim in range(len(spec.shape)):
            place = (spec.id, 0, dim)
            if channels.roles.get(place) in (PRODUCED, TIED):
                found.append((place, spec.shape[dim]))
    if found:
        # A weight that two layers share has several; the one that can change is meant.
        return min(found, key=lambda pair: bool(channels.reasons(pair[0])))
    name = repr(path or "the module")
    if getattr(layer, "groups", 1) > 1:
        raise _refused(f"{name} is a convolution in groups, whose units belong together")
    raise _refused(
        f"{name} is not a layer whose results have a width of their own (Linear, Conv, Embedding, "
        "a normalisation), or the example did not run it"
    )


def _choose(
    graph: Graph, channels: Channels, places: dict[Any, int], old: int, width: int, keep: Any
) -> np.ndarray:
    """For each new unit the old unit that it takes after."""
    if width > old:
        if keep is not None:
            raise _refused("keep= is for making a layer narrower")
        extra = np.resize(np.arange(old), width - old)
        return np.concatenate([np.arange(old), extra])
    if keep is not None:
        chosen = np.asarray(keep, np.int64)
        if chosen.shape != (width,) or len(set(chosen.tolist())) != width or (
            (chosen < 0) | (chosen >= old)
        ).any():  # fmt: skip
            raise _refused(f"keep= must name {width} different units below {old}")
        return chosen
    weight = np.zeros(old)
    for (node, _, dim), block in places.items():
        array = host(graph._specs[node].leaf.tensor)  # type: ignore[union-attr]
        if array.ndim < 2:
            continue
        rows = np.moveaxis(array, dim, 0).astype(np.float64)
        weight += (rows.reshape(old, block, -1) ** 2).sum((1, 2))
    return np.sort(np.argsort(-weight, kind="stable")[:width])


def _shares(choice: np.ndarray, old: int) -> np.ndarray:
    """How much of the old unit's outgoing weight each new unit has; copies share it unevenly."""
    raw = default_generator.uniform((len(choice),), np.dtype(np.float64), 0.5, 1.5)
    counts = np.bincount(choice, minlength=old)
    raw = np.where(counts[choice] == 1, 1.0, raw)
    return raw / np.bincount(choice, raw, minlength=old)[choice]


def _take(
    tensor: Tensor,
    dim: int,
    block: int,
    choice: np.ndarray,
    shares: np.ndarray | None,
    optimizers: list[Any],
    noise: float,
) -> None:
    """Give a tensor, its gradient and its optimizer state the chosen units along a dimension."""
    index = (choice[:, None] * block + np.arange(block)).reshape(-1)
    before = host(tensor)
    new = before.take(index, dim)
    if shares is not None:
        scale = np.repeat(shares, block).astype(before.dtype)
        new = new * scale.reshape((-1,) + (1,) * (before.ndim - dim - 1))
    elif noise and before.ndim > 1:
        copies = np.arange(len(choice)) >= len(np.unique(choice))
        jitter = default_generator.normal(new.shape, before.dtype, 0.0, noise * float(before.std()))
        mask = np.repeat(copies, block).reshape((-1,) + (1,) * (before.ndim - dim - 1))
        new = new + jitter * mask
    _exchange(tensor, np.ascontiguousarray(new), lambda a: a.take(index, dim), optimizers)


def _exchange(
    tensor: Tensor, new: np.ndarray, follow: Callable[[np.ndarray], np.ndarray], optimizers: Any
) -> None:
    """Put a new array into a tensor; the gradient and the optimizer state follow by a function."""
    shape = tensor._a.shape
    if tensor._grad is not None:
        tensor._grad = wrap(np.ascontiguousarray(follow(host(tensor._grad))))
    exchange(tensor, new.astype(tensor._a.dtype, copy=False))
    tensor._vc[0] += 1
    for optimizer in optimizers:
        state = optimizer.state.get(tensor)
        for key, value in list(state.items()) if state else ():
            if isinstance(value, Tensor) and value._a.shape == shape and shape:
                state[key] = wrap(np.ascontiguousarray(follow(host(value))))


def _rename_widths(model: Module, changed: list[Tensor]) -> None:
    """Let layers know their new widths, as the shapes of their tensors tell them."""
    for module in model.modules():
        mine = [*module._parameters.values(), *module._buffers.values()]
        if not any(t is c for t in mine for c in changed):
            continue
        _note_widths(module)


def _note_widths(module: Module) -> None:
    """Let a layer know its widths, as the shapes of its tensors tell them."""
    weight = module._parameters.get("weight")
    if weight is None:
        weight = module._buffers.get("running_mean")
    if weight is None:
        return
    transposed = getattr(module, "transposed", False)
    dims = weight._a.shape
    for name in _WIDTHS:
        if name not in module.__dict__:
            continue
        if name == "normalized_shape":
            value: Any = tuple(dims)
        elif name.startswith("in_"):
            value = dims[0 if transposed else 1]
        elif name == "embedding_dim" or (name.startswith("out_") and transposed):
            value = dims[1]
        else:
            value = dims[0]
        module.__dict__[name] = value


def _holds(module: Module, parameter: Tensor) -> bool:
    return any(p is parameter for p in module._parameters.values())


# --- layers ----------------------------------------------------------------------------


def _insert(
    container: Module, path: str, insert: dict[int, Module], optimizers: list[Any]
) -> dict[str, tuple[Any, Any]]:
    if not hasattr(container, "insert"):
        raise _refused(f"{path or 'the module'!r} is not a Sequential or ModuleList")
    shapes: dict[str, tuple[Any, Any]] = {}
    for index, module in sorted(insert.items()):
        if not isinstance(module, Module):
            raise _refused(f"{type(module).__name__} is not a module")
        if not 0 <= index <= len(container):  # type: ignore[arg-type]
            raise _refused(f"no place {index} among {len(container)} layers")  # type: ignore[arg-type]
        _make_identity(module)
        container.insert(index, module)
        for name, parameter in module.named_parameters():
            full = ".".join(filter(None, (path, str(index), name)))
            shapes[full] = ("new", tuple(parameter.shape))
            for optimizer in optimizers:
                optimizer.param_groups[0]["params"] = [
                    *optimizer.param_groups[0]["params"], parameter
                ]  # fmt: skip
    return shapes


def _make_identity(module: Module) -> None:
    """Let a layer pass its input through, if it is one that can."""
    weight = module._parameters.get("weight")
    if weight is None or weight.ndim < 2 or weight.shape[0] != weight.shape[1]:
        return
    if type(module).__name__ not in ("Linear", "Conv1d", "Conv2d", "Conv3d"):
        return
    new = np.zeros_like(weight._a)
    middle = tuple(n // 2 for n in new.shape[2:])
    for k in range(new.shape[0]):
        new[(k, k, *middle)] = 1
    with no_grad():
        weight.copy_(wrap(new))
        bias = module._parameters.get("bias")
        if bias is not None:
            bias.zero_()


def _remove(
    model: Any, path: str, layer: Module, optimizers: list[Any]
) -> dict[str, tuple[Any, Any]]:
    where, _, name = path.rpartition(".")
    container = model.get_submodule(where)
    if not path or not hasattr(container, "insert") or not name.isdigit():
        raise _refused(f"{path or 'the model'!r} is not a layer of a Sequential or ModuleList")
    shapes = {f"{path}.{n}": (tuple(p.shape), None) for n, p in layer.named_parameters()}
    del container[int(name)]
    kept = {id(p) for p in model.parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            gone = [p for p in group["params"] if id(p) not in kept and _is_in(p, layer)]
            group["params"] = [p for p in group["params"] if not any(p is g for g in gone)]
            for p in gone:
                optimizer.state.pop(p, None)
    return shapes


def _is_in(p: Tensor, module: Module) -> bool:
    return any(p is q for q in module.parameters())


def _reshape(parameter: Any, shape: tuple[int, ...], optimizers: list[Any]) -> Resized:
    """Cut or pad a parameter alone: what both shapes have stays, new elements are zero."""
    if not isinstance(parameter, Tensor):
        raise TypeError(f"shape= is for a parameter, not {type(parameter).__name__}")
    if len(shape) != parameter.ndim or any(n < 0 for n in shape):
        raise _refused(f"a shape {list(shape)} for a parameter of {list(parameter.shape)}")
    old = tuple(parameter._a.shape)
    common = tuple(slice(0, min(a, b)) for a, b in zip(old, shape, strict=True))

    def follow(array: np.ndarray) -> np.ndarray:
        made = np.zeros(shape, array.dtype)
        made[common] = array[common]
        return made

    holders = [
        m for m in gc.get_objects()
        if issubclass(type(m), Module) and "_parameters" in m.__dict__ and _holds(m, parameter)
    ]  # fmt: skip
    for module in holders:
        pad = getattr(module, "padding_idx", None)
        if isinstance(pad, int) and "num_embeddings" in module.__dict__ and pad >= shape[0]:
            raise _refused(f"{shape[0]} embeddings, and the padding is number {pad} of them")
    _exchange(parameter, follow(host(parameter)), follow, optimizers)
    for module in holders:
        _note_widths(module)
    _forget_directions(optimizers)
    return Resized({"parameter": (old, shape)}, None)


__all__ = ["ResizeError", "Resized", "resize"]
