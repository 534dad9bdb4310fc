"""What ``torch.library.opcheck`` checks of an op."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.library import CustomOpDef, _tensors


class OpCheckError(Exception):
    """An op does not do what was registered of it."""


def check(
    op: CustomOpDef, args: Any, kwargs: dict[str, Any], names: Any, raise_exception: bool
) -> dict[str, Any]:
    """Run checks by their names; what each of them found."""
    results: dict[str, Any] = {}
    for name in names:
        try:
            _CHECKS[name](op, _copied(args), _copied(kwargs))
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
        else:
            results[name] = "SUCCESS"
    return results


def _copied(values: Any) -> Any:
    """Arguments with tensors of their own, since an op may change them."""
    if isinstance(values, dict):
        return {name: _copied(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return type(values)(_copied(value) for value in values)
    if isinstance(values, Tensor):
        return values.detach().clone().requires_grad_(values.requires_grad)
    return values


def _schema(op: CustomOpDef, args: Any, kwargs: Any) -> None:
    """What the schema does not say is changed stays as it is."""
    before = _copied(_tensors((*args, *kwargs.values())))
    with weft.no_grad():
        op(*args, **kwargs)
    changed = {id(t) for t in op._changed(args, kwargs)}
    for old, now in zip(before, _tensors((*args, *kwargs.values())), strict=True):
        if id(now) not in changed and not weft.equal(old, now):
            raise RuntimeError(
                f"{op._qualname} changes an argument that its schema says it only reads: name it "
                f"in mutates_args. Schema: {op._schema}"
            )


def _autograd(op: CustomOpDef, args: Any, kwargs: Any) -> None:
    """What is differentiable has a derivative registered."""
    wanted = any(t.requires_grad for t in _tensors((*args, *kwargs.values())))
    outputs = op(*args, **kwargs)
    found = _tensors(outputs if isinstance(outputs, (list, tuple)) else (outputs,))
    if wanted and op._backward is None and op._composite is None and found:
        raise RuntimeError(
            f"{op._qualname} was given tensors that require gradients and has no autograd formula: "
            "use register_autograd to add one"
        )


def _fake(op: CustomOpDef, args: Any, kwargs: Any) -> None:
    """Results without values have the shapes and dtypes of those with values."""

    def meta(values: Any) -> Any:
        if isinstance(values, (list, tuple)):
            return type(values)(meta(value) for value in values)
        return values.detach().to("meta") if isinstance(values, Tensor) else values

    with weft.no_grad():
        fake = op(*meta(args), **{name: meta(value) for name, value in kwargs.items()})
        real = op(*args, **kwargs)
    for a, b in zip(_listed(fake), _listed(real), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise RuntimeError(
                f"the fake implementation of {op._qualname} gives {a.dtype} of shape "
                f"{tuple(a.shape)} where the op itself gives {b.dtype} of shape {tuple(b.shape)}"
            )


def _listed(outputs: Any) -> list[Tensor]:
    return _tensors(outputs if isinstance(outputs, (list, tuple)) else (outputs,))


_CHECKS = {
    "test_schema": _schema,
    "test_autograd_registration": _autograd,
    "test_faketensor": _fake,
}
