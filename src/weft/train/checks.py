"""Checks of the arguments of a training before it begins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.nn import Module
from weft.optim import LBFGS
from weft.optim.lr_scheduler import ReduceLROnPlateau
from weft.train.callbacks import Callback

_CHOICES = {
    "schedule": ("epoch", "step"),
    "precision": ("float32", "bfloat16", "float16"),
    "mode": ("min", "max"),
    "guard": ("raise", "skip", None),
}


def _refuse(kind: type[Exception], message: str) -> Exception:
    return kind(f"Trainer: {message}\n  at {errors.here()}")


def arguments(given: dict[str, Any]) -> None:
    """Check the arguments of a trainer."""
    for name, allowed in _CHOICES.items():
        if given[name] not in allowed:
            raise _refuse(
                ValueError, f"{name} is one of {', '.join(map(repr, allowed))}, not {given[name]!r}"
            )
    model = given["model"]
    if not isinstance(model, Module):
        raise _refuse(TypeError, f"model is an nn.Module, not a {type(model).__name__}")
    if not hasattr(given["optimizer"], "param_groups"):
        raise _refuse(
            TypeError,
            "optimizer is an optimizer of the model's parameters, such as "
            f"optim.Adam(model.parameters()), not {given['optimizer']!r}",
        )
    if isinstance(given["optimizer"], LBFGS):
        raise _refuse(
            TypeError,
            "LBFGS computes the loss several times for a step: write its loop by hand",
        )
    _check_parameters(given["optimizer"], model)
    _check_steps(given, model)
    _check_lists(given)
    for name in ("accumulate", "log_every", "save_every"):
        value = given[name]
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not whole and not (name == "save_every" and value is None):
            raise _refuse(ValueError, f"{name} is a whole number of at least 1, not {value!r}")
    for name in ("clip_norm", "clip_value"):
        value = given[name]
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise _refuse(ValueError, f"{name} is a number greater than 0, not {value!r}")
    scheduler = given["scheduler"]
    if scheduler is not None and not hasattr(scheduler, "step"):
        raise _refuse(TypeError, f"scheduler has a step method; this is {scheduler!r}")
    if isinstance(scheduler, ReduceLROnPlateau) and given["schedule"] == "step":
        raise _refuse(ValueError, "ReduceLROnPlateau looks at whole epochs: schedule='epoch'")
    if given["save_every"] is not None and given["folder"] is None:
        raise _refuse(ValueError, "save_every needs a folder to save to")


def _check_steps(given: dict[str, Any], model: Any) -> None:
    by_step = given["step"] is not None or hasattr(type(model), "training_step")
    if given["loss"] is None and not by_step:
        raise _refuse(
            TypeError, "give loss, a function of output and target, or step, one of model and batch"
        )
    if given["metrics"] and given["loss"] is None:
        raise _refuse(
            TypeError, "metrics are of output and target, so they need loss; else use eval_step"
        )
    for name in ("loss", "step", "eval_step"):
        if given[name] is not None and not callable(given[name]):
            raise _refuse(TypeError, f"{name} is a function, not {given[name]!r}")


def _check_parameters(optimizer: Any, model: Any) -> None:
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise _refuse(
            ValueError,
            "the optimizer has none of the model's parameters, so it would train another one; make "
            "it after the model, as in optim.Adam(model.parameters())",
        )


def _check_lists(given: dict[str, Any]) -> None:
    if given["metrics"] is not None and not isinstance(given["metrics"], Mapping):
        raise _refuse(
            TypeError,
            "metrics is a dict of functions by name, such as {'accuracy': accuracy}, not "
            f"{given['metrics']!r}",
        )
    callbacks = given["callbacks"]
    listed = isinstance(callbacks, (list, tuple))
    wrong = [c for c in callbacks if not isinstance(c, Callback)] if listed else [callbacks]
    if wrong:
        raise _refuse(
            TypeError, f"callbacks is a list of objects of train.Callback; {wrong[0]!r} is none"
        )


def fit_arguments(trainer: Any, data: Any, val_data: Any, epochs: Any) -> None:
    """Check what ``fit`` is given."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise _refuse(ValueError, f"epochs is a whole number of at least 1, not {epochs!r}")
    _check_data("data", data, epochs)
    if val_data is not None:
        _check_data("val_data", val_data, epochs)
    watched = {f"val_{name}" for name in ("loss", *trainer.metrics)}
    for who in (trainer, *trainer.callbacks):
        name = getattr(who, "monitor", None)
        if val_data is None and name in watched:
            raise _refuse(
                ValueError,
                f"{type(who).__name__} has monitor={name!r}, which needs val_data: "
                "fit(data, val_data, ...); monitor='loss' looks at the training data",
            )


def _check_data(what: str, data: Any, epochs: int) -> None:
    if not hasattr(data, "__iter__"):
        raise _refuse(
            TypeError,
            f"{what} must yield batches when iterated over; this is a {type(data).__name__}",
        )
    if hasattr(data, "__next__") and epochs > 1:
        raise _refuse(
            TypeError,
            f"{what} is an iterator, which is empty after one epoch: give a DataLoader or a list",
        )
    with contextlib.suppress(TypeError, NotImplementedError):
        if len(data) == 0:
            raise _refuse(ValueError, f"{what} has no batches")


def some_batches(what: str, found: Any) -> None:
    """Check that an epoch was one."""
    if not found:
        raise _refuse(ValueError, f"{what} gave no batches")


def pair(batch: Any) -> tuple[Any, Any]:
    """The input and the target of a batch."""
    if isinstance(batch, (list, tuple)) and len(batch) == 2:
        return batch[0], batch[1]
    size = f" of length {len(batch)}" if isinstance(batch, (list, tuple, dict)) else ""
    raise _refuse(
        TypeError,
        f"a batch is (input, target); this one is a {type(batch).__name__}{size}. Give "
        "step=lambda model, batch: ... to compute the loss of it",
    )


def loss(parts: dict[str, Any]) -> Tensor:
    """The loss among the results of a step."""
    found = parts.get("loss")
    if not isinstance(found, Tensor) or found.numel() != 1:
        what = errors.describe(found) if found is not None else f"a dict of {', '.join(parts)}"
        raise _refuse(
            TypeError,
            f"a step must return the loss as a tensor of one element; this one returned {what}",
        )
    return found


@contextlib.contextmanager
def evaluation_mode(model: Any, mode: Any) -> Iterator[None]:
    """Every module in evaluation mode, and afterwards in the mode it had."""
    before = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with mode:
            yield
    finally:
        for module, training in before:
            module.training = training
