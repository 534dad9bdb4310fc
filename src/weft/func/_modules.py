"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.operators import api


def _named(module: Any) -> dict[str, Tensor]:
    """All parameters and buffers, each under every name it has."""
    found: dict[str, Tensor] = {}
    for kind in ("named_parameters", "named_buffers"):
        getter = getattr(module, kind, None)
        if getter is None:
            continue
        try:
            found.update(getter(remove_duplicate=False))
        except TypeError:
            found.update(getter())
    return found


MISSING = object()


class _Swapped:
    """Other tensors instead of a module's own, for the time of a block."""

    def __init__(self, module: Any, values: dict[str, Tensor]) -> None:
        self.module, self.values = module, values
        self.undo: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        try:
            for name, value in self.values.items():
                path, _, last = name.rpartition(".")
                owner = self.module
                for part in filter(None, path.split(".")):
                    owner = getattr(owner, part)
                place = self._place(owner, last)
                self.undo.append((place, last, place.get(last, MISSING)))
                place[last] = value
        except BaseException:
            self.__exit__()
            raise

    @staticmethod
    def _place(owner: Any, name: str) -> dict[str, Any]:
        for kind in ("_parameters", "_buffers"):
            held = owner.__dict__.get(kind)
            if held is not None and name in held:
                return held
        return owner.__dict__  # a new attribute, as in PyTorch, if it is none yet

    def __exit__(self, *exc: object) -> None:
        for place, name, value in reversed(self.undo):
            if value is MISSING:
                del place[name]
            else:
                place[name] = value


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors instead of its parameters and buffers."""
    values = _merged(parameter_and_buffer_dicts)
    own = _named(module)
    if strict:
        missing, unexpected = own.keys() - values.keys(), values.keys() - own.keys()
        if tie_weights:
            given = {id(own[n]) for n in values if n in own}
            missing = {n for n in missing if id(own[n]) not in given}
        if missing or unexpected:
            raise RuntimeError(
                f"Error(s) in functional_call for {type(module).__name__}: missing key(s) "
                f"{sorted(missing)}, unexpected key(s) {sorted(unexpected)}."
            )
    if tie_weights:
        values = _tied(own, values)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _Swapped(module, {n: v for n, v in values.items() if n in own or not strict}):
        return module(*args, **(kwargs or {}))


def _merged(given: Any) -> dict[str, Tensor]:
    if isinstance(given, dict):
        return dict(given)
    if not isinstance(given, Sequence):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(given)}"
        )
    merged: dict[str, Tensor] = {}
    for part in given:
        if not isinstance(part, dict):
            raise ValueError(
                "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
            )
        repeated = sorted(merged.keys() & part.keys())
        if repeated:
            raise ValueError(
                f"{repeated} appeared in multiple dictionaries; behavior of functional call is "
                "ambiguous"
            )
        merged.update(part)
    return merged


def _tied(own: dict[str, Tensor], values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same value for all names of one tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in own.items():
        names.setdefault(id(tensor), []).append(name)
    tied = dict(values)
    for name, value in values.items():
        if name not in own:
            continue
        for other in names[id(own[name])]:
            if other in values and values[other] is not value:
                raise ValueError(
                    f"functional_call got multiple values for keys {names[id(own[name])]}, which "
                    "are tied. Consider using tie_weights=False"
                )
            tied[other] = value
    return tied


def stack_module_state(
    models: Sequence[Any],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several modules of one kind, stacked by name."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(getattr(m, "training", None) != getattr(models[0], "training", None) for m in models):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([dict(m.named_parameters()) for m in models]),
        _stacked([dict(m.named_buffers()) for m in models]),
    )


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    found = {}
    for name in states[0]:
        tensors = [s[name] for s in states]
        wanted = {t.requires_grad for t in tensors}
        if len(wanted) > 1:
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        stacked = api.FUNCTIONS["stack"]([t.detach() for t in tensors])
        found[name] = stacked.requires_grad_() if wanted.pop() else stacked
    return found


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Make all batch norms of a module do without running statistics."""
    for module in root.modules():
        if "BatchNorm" in type(module).__name__ and hasattr(module, "running_mean"):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
