"""Hooks of modules: before and after forward, and around backward."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.core.modes import MODES
from weft.core.node import RemovableHandle
from weft.core.tensor import Tensor

# Hooks of all modules. ``EVERYWHERE.active`` is what each call looks at.
_global_forward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_backward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_is_full_backward_hook: bool | None = None
_global_buffer_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Callable] = OrderedDict()

# Where the hooks of all modules are looked up: ``weft.nn.module``, once that is imported. Programs
# for PyTorch reset them by binding its names again.
HOME: Any = sys.modules[__name__]


class _Everywhere:
    active = False


EVERYWHERE = _Everywhere


def everywhere() -> list[Callable]:
    """The hooks of all modules."""
    if not EVERYWHERE.active:
        return []
    tables = (
        *(HOME._global_forward_pre_hooks, HOME._global_forward_hooks),
        *(HOME._global_backward_pre_hooks, HOME._global_backward_hooks),
    )
    return [hook for table in tables for hook in table.values()]


class _HookHandle(RemovableHandle):
    """Takes a hook off together with the notes on how to call it; can be copied and pickled."""

    def __init__(self, hooks: Any, *notes: dict[int, Any]) -> None:
        super().__init__(hooks)
        self.notes = notes

    def remove(self) -> None:
        super().remove()
        for note in self.notes:
            note.pop(self.id, None)

    # A copy belongs to the copied module's hooks, so those go along instead of the reference.
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "hooks_dict_ref": self.hooks_dict_ref()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        hooks = state["hooks_dict_ref"]
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)


class _GlobalHandle(_HookHandle):
    """Also switches the longer way of calling off when no hook of all modules is left."""

    def remove(self) -> None:
        super().remove()
        EVERYWHERE.active = bool(
            HOME._global_forward_pre_hooks
            or HOME._global_forward_hooks
            or HOME._global_backward_pre_hooks
            or HOME._global_backward_hooks
        )


def add(
    hooks: OrderedDict[int, Callable],
    hook: Callable,
    prepend: bool = False,
    *marks: tuple[dict[int, Any], bool],
    kind: type[_HookHandle] = _HookHandle,
) -> RemovableHandle:
    """Put a hook last (or first), and note for its key how it is to be called."""
    handle = kind(hooks, *(notes for notes, _ in marks))
    hooks[handle.id] = hook
    for notes, wanted in marks:
        if wanted:
            notes[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class HookMethods:
    """What a module offers for hooks on its calls and their backward."""

    # Whether this module ever had a hook: what each call looks at, instead of four dicts.
    _hooked = False
    # The dicts are made by Module.
    _forward_hooks: OrderedDict[int, Callable]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: OrderedDict[int, Callable]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _backward_hooks: OrderedDict[int, Callable]
    _backward_pre_hooks: OrderedDict[int, Callable]
    _is_full_backward_hook: bool | None
    forward: Callable[..., Any]

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before each forward; it may return other arguments.

        >>> layer = nn.Identity()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        >>> layer(torch.ones(2))
        tensor([2., 2.])
        """
        self._hooked = True
        marks = ((self._forward_pre_hooks_with_kwargs, with_kwargs),)
        return add(self._forward_pre_hooks, hook, prepend, *marks)

    def register_forward_hook(
        self,
        hook: Callable,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after each forward; it may return another output.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        >>> seen = []
        >>> def look(module, args, output):
        ...     seen.append(output.shape)
        >>> handle = model[0].register_forward_hook(look)
        >>> _ = model(torch.zeros(2, 4))
        >>> handle.remove()
        >>> seen
        [torch.Size([2, 3])]
        """
        self._hooked = True
        marks = (
            (self._forward_hooks_with_kwargs, with_kwargs),
            (self._forward_hooks_always_called, always_call),
        )
        return add(self._forward_hooks, hook, prepend, *marks)

    def register_full_backward_pre_hook(
        self, hook: Callable, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before this module's part of backward."""
        self._hooked = True
        return add(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` after this module's part of backward."""
        self._choose_backward_hooks(full=True)
        return add(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The old kind of backward hook, which sees the last op only; prefer the full one."""
        self._choose_backward_hooks(full=False)
        return add(self._backward_hooks, hook)

    def _choose_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook not in (None, full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = full
        self._hooked = True

    def _get_backward_hooks(self) -> tuple[list[Callable], list[Callable]]:
        """The full backward hooks for a call, and the old ones."""
        full: list[Callable] = []
        old: list[Callable] = []
        if HOME._global_backward_hooks:
            chosen = full if HOME._global_is_full_backward_hook else old
            chosen.extend(HOME._global_backward_hooks.values())
        (full if self._is_full_backward_hook else old).extend(self._backward_hooks.values())
        return full, old

    def _get_backward_pre_hooks(self) -> list[Callable]:
        return [*HOME._global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = _Call(args, kwargs)
        try:
            return self._run_hooks(call)
        except Exception:
            self._run_always_called(call)
            raise

    def _run_hooks(self, call: _Call) -> Any:
        args, kwargs = call.args, call.kwargs
        full, old = self._get_backward_hooks()
        before = self._get_backward_pre_hooks()
        args, kwargs = self._run_pre_hooks(args, kwargs)
        around = BackwardHook(self, full, before) if full or before else None
        if around is not None:
            args = around.setup_input_hook(args)
        call.args, call.kwargs = args, kwargs
        call.result = result = self.forward(*args, **kwargs)
        for key, hook, with_kwargs, _ in self._hooks_after():
            call.called.add(key)
            changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if changed is not None:
                call.result = result = changed
        if around is not None:
            if not isinstance(result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple "
                    f"of Tensors but received {type(result)}",
                    stacklevel=4,
                )
            result = around.setup_output_hook(result)
        if old:
            self._attach_old_hooks(args, result, old)
        return result

    def _run_pre_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        pairs = [(hook, False) for hook in HOME._global_forward_pre_hooks.values()]
        takes = self._forward_pre_hooks_with_kwargs
        pairs += [(hook, key in takes) for key, hook in list(self._forward_pre_hooks.items())]
        for hook, with_kwargs in pairs:
            if with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed}."
                    )
                args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        return args, kwargs

    def _hooks_after(self) -> list[tuple[int, Callable, bool, bool]]:
        """Hooks after forward: key, hook, whether it takes kwargs, whether it is always called."""
        found = [
            (
                *(key, hook, key in HOME._global_forward_hooks_with_kwargs),
                key in HOME._global_forward_hooks_always_called,
            )
            for key, hook in HOME._global_forward_hooks.items()
        ]
        takes, always = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        own = self._forward_hooks.items()
        return found + [(key, hook, key in takes, key in always) for key, hook in own]

    def _run_always_called(self, call: _Call) -> None:
        """After an error: the hooks that were asked to be called in any case."""
        for key, hook, with_kwargs, always in self._hooks_after():
            if not always or key in call.called:
                continue
            try:
                if with_kwargs:
                    hook(self, call.args, call.kwargs, call.result)
                else:
                    hook(self, call.args, call.result)
            except Exception as error:
                warnings.warn(
                    "module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}",
                    stacklevel=5,
                )

    def _attach_old_hooks(self, args: Any, result: Any, hooks: list[Callable]) -> None:
        found = result
        while not isinstance(found, Tensor):
            if not found:
                return
            found = next(iter(found.values())) if isinstance(found, dict) else found[0]
        if found.grad_fn is None:
            return
        for hook in hooks:
            found.grad_fn.register_hook(_old_hook(self, hook))
        missing = _missed_by_old_hooks(args, result, found.grad_fn)
        if missing:
            warnings.warn(missing, FutureWarning, stacklevel=5)


def _old_hook(module: Any, hook: Callable) -> Callable:
    def call(grad_input: tuple[Any, ...], grad_output: tuple[Any, ...]) -> Any:
        changed = hook(module, grad_input, grad_output)
        if isinstance(changed, tuple) and len(changed) != len(grad_input):
            name = getattr(hook, "__name__", type(hook).__name__)
            raise RuntimeError(
                f"hook '{name}' has returned an incorrect number of values (got {len(changed)}, "
                f"but expected {len(grad_input)})"
            )
        return changed

    return call


class _Call:
    """The progress of one call of a module: the arguments of its hooks, and those already
    called.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.result: Any = None
        self.called: set[int] = set()


_INSTEAD = "; use register_full_backward_hook to get the documented behavior"


def _missed_by_old_hooks(args: Any, result: Any, node: Any) -> str:
    """What an old backward hook, which sees one node only, does not see of a module; or nothing."""
    results = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(results, tuple) and all(isinstance(r, Tensor) for r in results)):
        return (
            "Using non-full backward hooks on a Module that does not return a single Tensor or a "
            f"tuple of Tensors is deprecated: some of the grad_output is missing{_INSTEAD}"
        )
    if not all(isinstance(a, Tensor) for a in args):
        return (
            "Using non-full backward hooks on a Module that does not take as input a single Tensor "
            f"or a tuple of Tensors is deprecated: some of the grad_input is missing{_INSTEAD}"
        )
    nodes = {r.grad_fn for r in results if r.grad_fn is not None}
    if nodes != {node}:
        how = "generated by different autograd Nodes" if len(nodes) > 1 else "nested"
        return (
            f"Using a non-full backward hook when outputs are {how} is deprecated: some of the "
            f"grad_output is missing{_INSTEAD}"
        )
    before = {a.grad_fn for a in args if a.grad_fn is not None}
    if before != {n for n, _ in node.next_functions}:
        return (
            "Using a non-full backward hook when the forward contains multiple autograd Nodes is "
            f"deprecated: some of the grad_input is missing{_INSTEAD}"
        )
    return ""


class BackwardHook:
    """Puts itself around one call of a module, and sees the gradients pass on both sides."""

    def __init__(self, module: Any, hooks: list[Callable], pre_hooks: list[Callable]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.inputs: list[int] | None = None
        self.outputs: list[int] = []
        self.input_count = self.output_count = -1

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, by way of a node whose gradients are the module's grad_input."""
        args, where, node = _through_identity(args, fill=True)
        self.input_count, self.inputs = len(args), where
        if node is not None:
            node.register_hook(self._after)
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """The results, by way of a node whose gradients are the module's grad_output."""
        single = not isinstance(result, tuple)
        results, where, node = _through_identity((result,) if single else result, fill=False)
        self.output_count, self.outputs = len(results), where or []
        if node is not None:
            node.register_prehook(self._before)
        return results[0] if single else results

    def _before(self, grad_output: tuple[Any, ...]) -> Any:
        grads = _spread(self.outputs, grad_output, self.output_count)
        for hook in self.pre_hooks:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = _as_many(changed, grads, "Backward pre hook", "grad_output")
        self.grad_outputs = grads
        if self.inputs is None:
            self._call_without_inputs(grads)
        return tuple(grads[i] for i in self.outputs)

    def _call_without_inputs(self, grads: tuple[Any, ...]) -> None:
        nothing = (None,) * self.input_count
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module "
            "outputs since no inputs require gradients.",
            stacklevel=5,
        )
        for hook in self.hooks:
            found = hook(self.module, nothing, grads)
            if found is not None and any(g is not None for g in found):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )
        self.grad_outputs = None

    def _after(self, grad_input: tuple[Any, ...], _: Any) -> Any:
        if self.grad_outputs is None or self.inputs is None:
            return None
        grads = _spread(self.inputs, grad_input, self.input_count)
        for hook in self.hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is not None:
                grads = _as_many(changed, grads, "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(grads[i] for i in self.inputs)


def _spread(where: list[int], values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    found = [None] * count
    for i, value in zip(where, values, strict=False):
        found[i] = value
    return tuple(found)


def _as_many(changed: Any, grads: tuple[Any, ...], hook: str, what: str) -> tuple[Any, ...]:
    changed = changed if isinstance(changed, tuple) else (changed,)
    if len(changed) != len(grads):
        raise RuntimeError(
            f"{hook} returned an invalid number of {what}, got {len(changed)}, but expected "
            f"{len(grads)}"
        )
    return changed


def _through_identity(
    values: tuple[Any, ...], fill: bool
) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """The values with their tensors sent through one node, where those stood, and the node.

    With ``fill`` the node has zeros for gradients that did not arrive.
    """
    where = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not MODES.now.grad or not any(values[i].requires_grad for i in where):
        return values, None, None
    passed = _identities()[fill].apply(*(values[i] for i in where))
    passed = passed if isinstance(passed, tuple) else (passed,)
    changed = list(values)
    for i, value in zip(where, passed, strict=True):
        changed[i] = value
    node = next(p.grad_fn for p in passed if p.grad_fn is not None)
    kind: Any = type(values)
    return (tuple(changed) if kind is tuple else kind(*changed)), where, node


@functools.cache
def _identities() -> tuple[Any, Any]:
    """Functions that return their inputs: without and with zeros for missing gradients."""
    from weft.autograd.function import Function

    class BackwardHookFunction(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.mark_non_differentiable(*(t for t in tensors if not t.requires_grad))
            return tensors

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads

    filling = BackwardHookFunction

    class BackwardHookFunction(Function):  # type: ignore[no-redef]  # the name is that of its nodes
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.set_materialize_grads(False)
            return filling.forward(ctx, *tensors)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads

    return BackwardHookFunction, filling


# --- hooks of all modules --------------------------------------------------------------


def _add_global(
    hooks: OrderedDict[int, Callable], hook: Callable, *marks: tuple[dict[int, Any], bool]
) -> RemovableHandle:
    EVERYWHERE.active = True
    return add(hooks, hook, False, *marks, kind=_GlobalHandle)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, args)`` before the forward of every module."""
    return _add_global(HOME._global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after the forward of every module."""
    marks = (
        (HOME._global_forward_hooks_with_kwargs, with_kwargs),
        (HOME._global_forward_hooks_always_called, always_call),
    )
    return _add_global(HOME._global_forward_hooks, hook, *marks)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` before every module's part of backward."""
    return _add_global(HOME._global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after every module's part of backward."""
    return _add_global_backward(hook, full=True)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """The old kind of backward hook, for all modules."""
    return _add_global_backward(hook, full=False)


def _add_global_backward(hook: Callable, full: bool) -> RemovableHandle:
    if HOME._global_is_full_backward_hook not in (None, full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    HOME._global_is_full_backward_hook = full
    return _add_global(HOME._global_backward_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` when a buffer is registered; it may return another."""
    return add(HOME._global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` when a submodule is registered."""
    return add(HOME._global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Call ``hook(module, name, param)`` when a parameter is registered."""
    return add(HOME._global_parameter_registration_hooks, hook)


def registered(hooks: OrderedDict[int, Callable], module: Any, name: str, value: Any) -> Any:
    """The value that is to be registered, after the hooks have seen it."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


__all__ = sorted(n for n in vars(sys.modules[__name__]) if n.startswith("register_module_"))
