"""What can listen to a thread's work while it runs: the base of recorders and rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.dispatch import Op
from weft.core.modes import MODES, State
from weft.core.tensor import Tensor
from weft.graph.spec import listening


class Listener:
    """Is told of ops, writes, backward passes and optimizer steps. A block switches it on."""

    follows = False  # whether it computes later, so that the least part of a write should vary
    by_closure = False  # whether the optimizer's step that is going on was given a closure
    _entered: tuple[State, ...] = ()  # the threads that have entered a block and not left it

    def __enter__(self) -> Any:
        now = MODES.now
        now.recorders = (*now.recorders, self)
        self._entered = (*self._entered, now)
        now.update()
        return self

    def __exit__(self, *exc: object) -> None:
        now = MODES.now
        if _last(now.recorders, self) == len(now.recorders):
            # A generator that another thread closes, or the garbage collector in it.
            now = next((s for s in self._entered if self in s.recorders), now)
        k = _last(self._entered, now)
        self._entered = (*self._entered[:k], *self._entered[k + 1 :])
        k = _last(now.recorders, self)
        now.recorders = (*now.recorders[:k], *now.recorders[k + 1 :])
        now.update()

    def deaf(self) -> Any:
        """A block that this one does not hear; others that listen do."""
        return listening(*(r for r in MODES.now.recorders if r is not self))

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An op is about to run; whatever is returned stands in for it."""

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        """An op has run."""

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An op is about to run in place; whatever is returned stands in for it."""

    def overlooks(self, target: Tensor) -> bool:
        """Whether values may be put into a tensor without telling: nobody here has met it."""
        return False

    def changing(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        """An op has run and is about to write over its first input."""

    def changed(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        """An op has run in place, and its history is recorded."""

    def takes_on(self, target: Tensor, result: Tensor, name: str) -> bool:
        """A tensor is about to be changed to what a function gave; True if that will be done."""
        return False

    def writing(self, target: Tensor, result: Any) -> None:
        """An array is about to be written into a tensor."""

    def source(self, generator: Any) -> Any:
        """A random function asks for its generator; what is returned stands in for it."""
        return generator

    def seeded(self, generator: Any, new: bool) -> None:
        """A generator was seeded or put into another state, or is new."""

    def detaching(self, tensor: Tensor) -> Any:
        """A tensor is about to be detached; whatever is returned stands in for the result."""

    def detached(self, tensor: Tensor) -> None:
        """A tensor was cut off from its graph, by ``detach()`` or ``data``."""

    def relinking(self, tensor: Tensor) -> None:
        """A tensor is about to be detached in place, or to require a gradient, or not to."""

    def backs(self, tensors: Any, gradients: Any, options: tuple[Any, ...]) -> bool:
        """``backward`` was called; True if it need not be done, since it will be."""
        return False

    def born(self, cell: list[Any]) -> None:
        """A tensor is being made, with this version cell; told to recorders only."""

    def asked(self, tensor: Tensor) -> None:
        """Python has read a number from a tensor."""

    def takes(self, tensor: Tensor) -> None:
        """An op takes values of a tensor as they are, and what it makes of them is a constant."""

    def meets(self, tensor: Tensor) -> None:
        """Somebody is about to take a tensor's array by another name than the tensor."""

    def exchanges(self, tensor: Tensor) -> None:
        """A tensor is about to be given another array."""

    def puts(self, array: Any, made: Any) -> None:
        """An array of the host was copied to a device."""

    def goes_back(self, work: Any, roots: Any) -> None:
        """A backward pass begins."""

    def went_back(self, work: Any, roots: Any) -> None:
        """A backward pass has ended."""

    def gave(self, wanted: Any, results: Any) -> None:
        """``autograd.grad`` has answered with gradients."""

    def step_begins(self, optimizer: Any) -> None:
        """An optimizer is about to change its parameters."""

    def step_ended(self, optimizer: Any) -> None:
        """An optimizer has changed its parameters."""

    def repeats(self) -> Callable[[], Any] | None:
        """A block in which a second run of the same code is edited as the one that begins now."""
        return None

    def calling(self, function: Any, args: tuple[Any, ...]) -> None:
        """A custom autograd function is about to run."""

    def called(self, function: Any, args: tuple[Any, ...], out: Any) -> None:
        """A custom autograd function has run."""

    def steps(self, step: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an optimizer's step as one event; what its closure does is heard as usual."""
        optimizer, *rest = args
        around = MODES.now.recorders
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True
            for listener in around:
                listener.step_begins(optimizer)

        def end() -> None:
            nonlocal begun
            if begun:
                begun = False
                for listener in around:
                    listener.step_ended(optimizer)

        def heard(closure: Callable) -> Callable:
            # What a closure computes comes before the change that is made of it; an optimizer
            # that asks again has changed the parameters since.
            def run(*args: Any, **kwargs: Any) -> Any:
                end()
                with listening(*around):
                    out = closure(*args, **kwargs)
                begin()
                return out

            return run

        given = [a for a in (*rest, *kwargs.values()) if callable(a)]
        rest = [heard(a) if callable(a) else a for a in rest]
        kwargs = {k: heard(v) if callable(v) else v for k, v in kwargs.items()}
        for listener in around:
            listener.by_closure = bool(given)
        if not given:
            begin()
        with listening():
            out = step(optimizer, *rest, **kwargs)
        end()
        return out

    def calls(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Run a custom autograd function as one event."""
        around = MODES.now.recorders
        for listener in around:
            listener.calling(function, args)
        with listening():
            out = function.apply(*args)
        for listener in around:
            listener.called(function, args, out)
        return out


def _last(items: tuple[Any, ...], wanted: Any) -> int:
    """Where a thing stands last; the end if it is not there."""
    return max((k for k, x in enumerate(items) if x is wanted), default=len(items))
