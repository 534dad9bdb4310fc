"""The base of all optimizers: groups of parameters, their state, and hooks."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.gate import announce
from weft.core.inplace import bump, check_overlap
from weft.core.modes import MODES, enable_grad
from weft.core.node import RemovableHandle, add_hook
from weft.core.tensor import Tensor, wrap

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

StateDict = dict[str, Any]
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_global_optimizer_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable] = OrderedDict()


class _RequiredParameter:
    """Stands for a setting without a default: each group has to give it."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimizer."""
    return add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return add_hook(_global_optimizer_post_hooks, hook)


def _to_scalar(x: Any) -> Any:
    """A tensor of one element as a zero-dim one; anything else as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x


def number(x: Any) -> float:
    """A setting as a Python number, whether it was given as one or as a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def scalar(value: float, fused: Any = None) -> Tensor:
    """A zero-dim tensor for counters, in the type in which PyTorch keeps them."""
    wide = not fused and dt.get_default_dtype() is dt.float64
    return wrap(np.array(value, np.float64 if wide else np.float32))


def count_step(counter: Tensor) -> None:
    """Count one more step."""
    announce(counter._a, counter)
    counter._a += 1
    bump(counter, "step")


def check_range(holds: Any, message: str) -> None:
    """Refuse a setting that is out of its range."""
    if not holds:
        raise ValueError(f"{message}\n  at {errors.here()}")


def check_lr(lr: Any, message: str = "Invalid learning rate") -> None:
    """Refuse a negative learning rate, or one that is a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element\n  at {errors.here()}")
    check_range(lr >= 0.0, f"{message}: {lr}")


def check_betas(betas: Any) -> None:
    """Refuse decay rates outside [0, 1)."""
    for i in (0, 1):
        check_range(0.0 <= betas[i] < 1.0, f"Invalid beta parameter at index {i}: {betas[i]}")


def check_fused(fused: Any, foreach: Any, differentiable: bool) -> None:
    """Refuse combinations of implementations that exclude one another."""
    if fused and differentiable:
        raise RuntimeError(f"`fused` does not support `differentiable`\n  at {errors.here()}")
    if fused and foreach:
        raise RuntimeError(
            f"`fused` and `foreach` cannot be `True` together.\n  at {errors.here()}"
        )


def run_closure(closure: Callable | None) -> Any:
    """The loss that a closure computes, with recording on; None without a closure."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _type_name(value: Any) -> str:
    return value.type() if isinstance(value, Tensor) else type(value).__name__


def check_gradients(groups: Iterable[dict[str, Any]]) -> None:
    """Refuse gradients of another shape, and elements that share memory, before any change."""
    for group in groups:
        for p in group["params"]:
            if p._grad is None:
                continue
            if p._grad._a.shape != p._a.shape:
                refuse_gradient(p)
            check_overlap(p, "step")


def refuse_gradient(p: Tensor) -> None:
    """Raise the error for a gradient that does not fit its parameter."""
    grad: Any = p._grad
    raise RuntimeError(
        f"The size of the gradient {list(grad._a.shape)} must match the size of its parameter "
        f"{list(p._a.shape)}. Nothing was updated; call zero_grad() after a parameter's shape has "
        f"changed\n  at {errors.here()}"
    )


class Optimizer:
    """Changes parameters to make a loss smaller; subclasses say how, in ``step``.

    >>> import weft as torch
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> optimizer = torch.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.item()
    1.0

    ``param_groups`` holds the parameters and their settings, which may be changed at any time.

    >>> for group in optimizer.param_groups:
    ...     group["lr"] *= 0.5
    >>> optimizer.param_groups[0]["lr"]
    0.125
    """

    # Settings that state dicts of older versions may lack.
    _late_defaults: dict[str, Any] = {}
    # Counters in the state of a parameter, which older state dicts may hold as numbers.
    _scalars: tuple[str, ...] = ()

    defaults: dict[str, Any]
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {_type_name(params)}\n  at {errors.here()}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError(f"optimizer got an empty parameter list\n  at {errors.here()}")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        for kind in ("step_pre", "step_post", "state_dict_pre", "state_dict_post"):
            self.__dict__.setdefault(f"_optimizer_{kind}_hooks", OrderedDict())
        for kind in ("load_state_dict_pre", "load_state_dict_post"):
            self.__dict__.setdefault(f"_optimizer_{kind}_hooks", OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name, value in self._late_defaults.items():
                group.setdefault(name, value)
            for p in group["params"]:
                own = self.state.get(p, {})
                for name in self._scalars:
                    if name in own and not isinstance(own[name], Tensor):
                        own[name] = scalar(float(own[name]), group.get("fused"))

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(
                f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"
            )
        return text + ")"

    # --- steps and their hooks ---

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; a closure recomputes the loss, which is returned."""
        raise NotImplementedError

    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """A step that calls the hooks around it."""

        @functools.wraps(func)
        def step(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            if MODES.now.recorders and not self.defaults.get("differentiable"):
                return MODES.now.recorders[0].steps(step, args, kwargs)
            if not (
                _global_optimizer_pre_hooks
                or self._optimizer_step_pre_hooks
                or _global_optimizer_post_hooks
                or self._optimizer_step_post_hooks
            ):
                return func(*args, **kwargs)
            before = (_global_optimizer_pre_hooks, self._optimizer_step_pre_hooks)
            for hook in chain.from_iterable([*hooks.values()] for hooks in before):
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError(
                        f"{func} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {result}.\n  at {errors.here()}"
                    )
                args, kwargs = result
            out = func(*args, **kwargs)
            after = (self._optimizer_step_post_hooks, _global_optimizer_post_hooks)
            for hook in chain.from_iterable([*hooks.values()] for hooks in after):
                hook(self, args, kwargs)
            return out

        return step

    def _patch_step_function(self) -> None:
        cls: Any = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)
            cls.step.hooked = True

    def _register(self, kind: str, hook: Callable, prepend: bool = False) -> RemovableHandle:
        hooks = getattr(self, f"_optimizer_{kind}_hooks")
        handle = add_hook(hooks, hook)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ones."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[[Optimizer], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[[Optimizer, StateDict], StateDict | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; it may return another."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[[Optimizer, StateDict], StateDict | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[[Optimizer], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return self._register("load_state_dict_post", hook, prepend)

    # --- saving and loading ---

    def state_dict(self) -> StateDict:
        """The state and the settings, with parameters by number; tensors are not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            for i, p in enumerate(group["params"], start):
                numbers.setdefault(id(p), i)
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, result)
            if replaced is not None:
                result = replaced
        return result

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor,
        value: Tensor,
        param_id: int,
        param_groups: list[dict[Any, Any]],
        key: Hashable = None,
    ) -> Tensor:
        """A loaded tensor in the type that goes with its parameter; counters keep their own."""
        if key == "step":
            group: dict[Any, Any] = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=dt.float32)
            return value
        return value.to(dtype=param.dtype) if param.is_floating_point() else value

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over the state and the settings that ``state_dict`` gave."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        saved = deepcopy(state_dict["param_groups"])
        self._check_groups(saved)
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        ids = chain.from_iterable(group["params"] for group in saved)
        by_id = dict(zip(ids, params, strict=True))

        def cast(value: Any, param: Tensor, param_id: Any, key: Any = None) -> Any:
            if isinstance(value, Tensor):
                return Optimizer._process_value_according_to_param_policy(
                    param, value, param_id, state_dict["param_groups"], key
                )
            if isinstance(value, dict):
                return {k: cast(v, param, param_id, k) for k, v in value.items()}
            if isinstance(value, Iterable):
                made: Any = type(value)
                return made(cast(v, param, param_id) for v in value)
            return value

        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_id:
                state[by_id[key]] = cast(value, by_id[key], key)
            else:
                state[key] = value
        for group, loaded in zip(self.param_groups, saved, strict=True):
            loaded["params"] = group["params"]
            if "param_names" in group:
                loaded.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _check_groups(self, saved: list[dict[str, Any]]) -> None:
        if len(self.param_groups) != len(saved):
            raise ValueError(
                "loaded state dict has a different number of parameter groups "
                f"({len(saved)}, not {len(self.param_groups)})\n  at {errors.here()}"
            )
        for group, loaded in zip(self.param_groups, saved, strict=True):
            if len(group["params"]) != len(loaded["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group ({len(loaded['params'])} parameters, not "
                    f"{len(group['params'])})\n  at {errors.here()}"
                )

    # --- parameters and gradients ---

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero.

        >>> w = torch.tensor([1.0], requires_grad=True)
        >>> optimizer = torch.optim.SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.zero_grad()
        >>> print(w.grad)
        None
        """
        for group in self.param_groups:
            for p in group["params"]:
                grad = p._grad
                if grad is None:
                    continue
                if set_to_none:
                    p._grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: list[list[Any]], with_indices: bool = False
    ) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
        """Lists of tensors in groups, by the device and dtype of those in the first list."""
        groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
        for i, first in enumerate(tensorlistlist[0]):
            key = (first.device, first.dtype)
            lists, indices = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
            for row, source in zip(lists, tensorlistlist, strict=True):
                if source:
                    row.append(source[i])
            indices.append(i)
        return groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize further parameters, with settings of their own where the group gives them."""
        if not isinstance(param_group, dict):
            raise TypeError(
                f"param_group must be a dict, but got {type(param_group)}\n  at {errors.here()}"
            )
        self._take_names(param_group)
        for p in param_group["params"]:
            self._check_parameter(p)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}\n  at {errors.here()}"
                )
            param_group.setdefault(name, default)
        chosen = set(param_group["params"])
        if len(param_group["params"]) != len(chosen):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} to the optimizer\n  at {errors.here()}"
                )
        if any(not chosen.isdisjoint(group["params"]) for group in self.param_groups):
            raise ValueError(
                f"some parameters appear in more than one parameter group\n  at {errors.here()}"
            )
        self.param_groups.append(param_group)

    @staticmethod
    def _take_names(group: dict[str, Any]) -> None:
        """Turn the group's parameters into a list, and pairs with names into two lists."""
        params = group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list "
                f"instead.\n  at {errors.here()}"
            )
        given = [params] if isinstance(params, Tensor) else list(params)
        names = [p[0] for p in given if isinstance(p, tuple)]
        group["params"] = [p[1] if isinstance(p, tuple) else p for p in given]
        if names and len(names) != len(given):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are "
                f"missing\n  at {errors.here()}"
            )
        if names:
            group["param_names"] = names

    def _check_parameter(self, p: Any) -> None:
        if not isinstance(p, Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, but one of the params is "
                f"{_type_name(p)}\n  at {errors.here()}"
            )
        if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
            raise ValueError(f"can't optimize a non-leaf Tensor\n  at {errors.here()}")
