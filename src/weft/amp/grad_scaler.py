"""Scaling of losses, so that small gradients survive float16."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import weft
from weft.core import errors
from weft.core.devices import taken
from weft.core.tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """What was done with an optimizer since the last update."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _refuse(message: str) -> RuntimeError:
    return RuntimeError(f"{message}\n  at {errors.here()}")


class GradScaler:
    """Multiplies losses by a scale, divides gradients by it, and adapts it.

    A step whose gradients hold an infinity or a NaN is left out and the scale is lowered by
    ``backoff_factor``; after ``growth_interval`` good steps it is raised by ``growth_factor``.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda":
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                UserWarning,
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            assert growth_factor > 1.0, "The growth factor must be > 1.0."
            assert backoff_factor < 1.0, "The backoff factor must be < 1.0."
            self._init_scale = init_scale
            self._scale: Tensor | None = None
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(
                _refresh_per_optimizer_state
            )

    def _needs(self, function: str) -> Tensor:
        """The scale; an error if there is none yet."""
        fix = (
            "This may indicate your script did not use scaler.scale(loss or outputs) earlier in "
            "the iteration."
        )
        assert self._scale is not None, f"Attempted {function} but _scale is None.  {fix}"
        assert self._growth_tracker is not None, (
            f"Attempted {function} but _growth_tracker is None.  {fix}"
        )
        return self._scale

    def _start(self) -> None:
        assert self._growth_tracker is None, "_growth_tracker initialized before _scale"
        self._scale = weft.tensor(self._init_scale, dtype=weft.float32)
        self._growth_tracker = weft.tensor(self._init_growth_tracker, dtype=weft.int32)

    def scale(self, outputs: Any) -> Any:
        """Losses (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._start()
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError(
            f"outputs must be a Tensor or an iterable of Tensors\n  at {errors.here()}"
        )

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        factor = float(inv_scale)
        grads = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if not allow_fp16 and grad.dtype == weft.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                grads.append(grad)
        with weft.no_grad():
            for grad in grads:
                if not taken(weft.isfinite(grad).all()):
                    found_inf.fill_(1.0)
                grad.mul_(factor)
        return {found_inf.device: found_inf} if grads else {}

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the scale, for example before clipping them."""
        if not self._enabled:
            return
        scale = self._needs("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise _refuse(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise _refuse("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        found_inf = weft.zeros((), dtype=weft.float32)
        found = self._unscale_grads_(optimizer, inverse, found_inf, False)
        state["found_inf_per_device"] = found
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise _refuse("Closure use is not currently supported if GradScaler is enabled.")
        self._needs("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise _refuse("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._leave_scaling_to(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found = state["found_inf_per_device"]
        assert len(found) > 0, "No inf checks were recorded for this optimizer."
        result = None
        if not any(float(v) for v in found.values()):
            result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _leave_scaling_to(self, optimizer: Any, state: Any, args: Any, kwargs: Any) -> Any:
        """The step of an optimizer that unscales gradients, and skips steps, by itself."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
                "`found_inf: Tensor` to the passed optimizer and let the optimizer use them "
                "directly.",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, grad_scaler=self, **kwargs)
        else:
            unscaled = state["stage"] is OptState.UNSCALED
            if not unscaled:
                self._check_inf_per_device(optimizer)
            optimizer.grad_scale = None if unscaled else self._scale
            found = state["found_inf_per_device"].values()
            optimizer.found_inf = sum(found, start=weft.zeros(()))
            try:
                result = optimizer.step(*args, **kwargs)
            finally:
                del optimizer.grad_scale, optimizer.found_inf
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the steps found, or set it."""
        if not self._enabled:
            return
        scale = self._needs("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor):
                assert new_scale.numel() == 1 and new_scale.requires_grad is False, (
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                    "torch.FloatTensor with requires_grad=False."
                )
                scale.copy_(new_scale)
            else:
                scale.fill_(new_scale)
        else:
            found = [
                value
                for state in self._per_optimizer_states.values()
                for value in state["found_inf_per_device"].values()
            ]
            assert len(found) > 0, "No inf checks were recorded prior to update."
            self._adapt(any(float(v) for v in found))
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def _adapt(self, bad: bool) -> None:
        scale, tracker = self._scale, self._growth_tracker
        assert scale is not None and tracker is not None
        if bad:
            scale.mul_(self._backoff_factor)
            tracker.fill_(0)
            return
        good = int(tracker) + 1
        if good == self._growth_interval:
            grown = scale * self._growth_factor
            if math.isfinite(float(grown)):
                scale.copy_(grown)
            good = 0
        tracker.fill_(good)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The scale; 1 if scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale)

    def get_growth_factor(self) -> float:
        """By how much the scale is raised."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Say by how much the scale is raised."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By how much the scale is lowered."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Say by how much the scale is lowered."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale is raised."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Say after how many good steps the scale is raised."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker)

    def is_enabled(self) -> bool:
        """Whether scaling takes place."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and the settings; empty if scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise _refuse(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            assert len(self._per_optimizer_states) == 0, (
                "A GradScaler instance may only be pickled at the beginning of an iteration, or "
                "at the end after scaler.update()."
            )
            # The tensors are recreated from the numbers.
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        self._needs("_check_inf_per_device")
        one, found = weft.ones(()), weft.zeros((), dtype=weft.float32)
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, found, True)
        return state["found_inf_per_device"]

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
