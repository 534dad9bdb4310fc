"""Setting parts of weights to zero for good, by masks."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from weft.core.tensor import Tensor
from weft.operators import api


def _f(name: str) -> Any:
    return api.FUNCTIONS[name]


def _ones(t: Tensor) -> Tensor:
    return _f("ones_like")(t)


class BasePruningMethod(ABC):
    """A way to choose what is pruned; a hook then applies its mask before each call."""

    _tensor_name: str
    PRUNING_TYPE = "unstructured"

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for a tensor that has a mask already."""

    def apply_mask(self, module: Any) -> Tensor:
        """The weight with its mask on."""
        name = self._tensor_name
        mask = getattr(module, name + "_mask")
        original = getattr(module, name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a module's tensor, after what has pruned it before."""
        method, old_key = cls._with_earlier(module, name, args, kwargs)
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        if old_key is None:
            module.register_parameter(name + "_orig", module._parameters[name])
            del module._parameters[name]
            default = _ones(original).detach()
        else:
            del module._forward_pre_hooks[old_key]
            default = getattr(module, name + "_mask").detach().clone()
        mask = method.compute_mask(scores.detach(), default_mask=default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    @classmethod
    def _with_earlier(
        cls, module: Any, name: str, args: Any, kwargs: Any
    ) -> tuple[BasePruningMethod, int | None]:
        """The method to use: a new one, or a container of the earlier ones and the new one."""
        found = [
            (key, hook)
            for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(found) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}."
                " Use a PruningContainer."
            )
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if not found:
            return method, None
        key, earlier = found[0]
        container = earlier
        if not isinstance(earlier, PruningContainer):
            container = PruningContainer(earlier)
        container.add_pruning_method(method)
        return container, key

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Any = None
    ) -> Tensor:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        default_mask = _ones(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default_mask)

    def remove(self, module: Any) -> None:
        """Make the pruned weight a plain parameter; what was set to zero stays so."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = weight.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods, each of which prunes what the earlier ones left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        for i, method in enumerate(methods):
            if i == 0:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method for the same tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last method's mask over what is left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            place: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            others = tuple(d for d in range(t.ndim) if d != method.dim % t.ndim)
            kept = mask.sum(others) != 0
            place = (slice(None),) * (method.dim % t.ndim) + (kept,)
        elif method.PRUNING_TYPE == "global":
            place = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        found = mask.clone()
        found[place] = method.compute_mask(t[place], default_mask=mask[place]).to(found.dtype)
        return found


class Identity(BasePruningMethod):
    """Prunes nothing, but puts a mask in place."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it is."""
        return default_mask


class _ByAmount(BasePruningMethod):
    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with some more zeros."""
        _validate_pruning_amount(self.amount, t.numel())
        count = _compute_nparams_toprune(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            chosen = _f("rand_like")(t).view(-1).topk(count).indices
            mask.view(-1)[chosen] = 0
        return mask


class L1Unstructured(_ByAmount):
    """Prunes the smallest elements."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with some more zeros."""
        _validate_pruning_amount(self.amount, t.numel())
        count = _compute_nparams_toprune(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            chosen = t.abs().view(-1).topk(count, largest=False).indices
            mask.view(-1)[chosen] = 0
        return mask


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"
    amount: Any
    dim: int

    def _kept(self, t: Tensor, count: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with some more slices of zeros."""
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        _validate_pruning_amount(self.amount, size)
        count = _compute_nparams_toprune(self.amount, size)
        if not count:
            return default_mask
        mask = _f("zeros_like")(t)
        place: list[Any] = [slice(None)] * t.ndim
        place[self.dim] = self._kept(t, size - count)
        mask[tuple(place)] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(_Structured):
    """Prunes whole slices at random."""

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def _kept(self, t: Tensor, count: int) -> Tensor:
        size = t.shape[self.dim]
        chance = _f("rand")(size)
        # All but as many as are to be pruned; ties are as good as impossible.
        threshold = chance.kthvalue(size - count).values
        return chance > threshold


class LnStructured(_Structured):
    """Prunes the slices with the smallest norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def _kept(self, t: Tensor, count: int) -> Tensor:
        return _compute_norm(t, self.n, self.dim).topk(count, largest=True).indices


class CustomFromMask(BasePruningMethod):
    """Prunes what a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Both masks together."""
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Put a mask of ones on a tensor."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune elements at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prune the smallest elements."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune slices along a dim at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Any:
    """Prune the slices along a dim with the smallest norms."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune what a mask says."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune several tensors as if they were one."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    held = list(parameters)
    known = importance_scores if importance_scores is not None else {}
    if not isinstance(known, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    scores = [known.get((m, n), getattr(m, n)).detach().reshape(-1) for m, n in held]
    masks = [getattr(m, n + "_mask", _ones(getattr(m, n))).detach().reshape(-1) for m, n in held]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    final = container.compute_mask(_f("cat")(scores), _f("cat")(masks))
    start = 0
    for module, name in held:
        param = getattr(module, name)
        part = final[start : start + param.numel()].view_as(param)
        custom_from_mask(module, name, mask=part)
        start += param.numel()


def remove(module: Any, name: str) -> Any:
    """Take the mask off; what was set to zero stays so."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Any) -> bool:
    """Whether a module or one of its parts has a mask."""
    return any(
        isinstance(hook, BasePruningMethod)
        for child in module.modules()
        for hook in child._forward_pre_hooks.values()
    )


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    integral = isinstance(amount, numbers.Integral)
    if (integral and amount < 0) or (not integral and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune="
            f"{tensor_size}"
        )


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    if isinstance(amount, numbers.Integral):
        return int(amount)
    return round(amount * tensor_size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    others = [d for d in range(t.ndim) if d != dim % t.ndim]
    return _f("norm")(t, p=n, dim=others)


__all__ = [
    *("BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured"),
    *("PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask"),
    *("global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured"),
    *("random_structured", "random_unstructured", "remove"),
]
