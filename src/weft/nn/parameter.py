"""Parameters and buffers, also those whose shape is not known yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.node import AccumulateGrad
from weft.core.tensor import Parameter, Tensor, new, wrap
from weft.operators import api

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer:
            return isinstance(instance, Tensor) and "_is_buffer" in instance.__dict__
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module registers as a buffer when it is assigned to an attribute."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        source = wrap(np.empty(0, dt.get_default_dtype().np)) if data is None else data
        made = source.detach()
        if source.requires_grad:
            made.requires_grad_()
        made.persistent = persistent
        made._is_buffer = True
        return made


_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens "
    "in `load_state_dict` when trying to load an uninitialized parameter into an initialized one. "
    "Call `forward` to initialize the parameters before accessing their attributes."
)
_NO_VALUES = (
    "Attempted to use an uninitialized parameter in an operation. This error happens when you are "
    "using a `LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` "
    "objects. When using LazyModules Call `forward` with a dummy batch to initialize the "
    "parameters before calling torch functions"
)


class UninitializedTensorMixin:
    """A place for a tensor: it knows its dtype, and gets its shape by ``materialize``."""

    cls_to_become: type[Tensor] = Tensor

    # Ops read an argument's array, so this is where each of them learns that there is none.
    @property
    def _a(self) -> np.ndarray:
        raise ValueError(_NO_VALUES)

    @_a.setter
    def _a(self, array: np.ndarray) -> None:
        vars(Tensor)["_a"].__set__(self, array)

    @property
    def dtype(self) -> dt.dtype:
        """The type that the elements will have."""
        return self.__dict__["_dtype"]

    @property
    def is_meta(self) -> bool:
        """Whether it will have no values."""
        return "_on_meta" in self.__dict__

    @property
    def device(self) -> dev.device:
        """Where it will be."""
        return dev.META if self.is_meta else dev.CPU

    @property
    def shape(self) -> Any:
        """Not known yet: always an error."""
        raise RuntimeError(_NO_SHAPE)

    def size(self, dim: int | None = None) -> Any:
        """Not known yet: always an error."""
        raise RuntimeError(_NO_SHAPE)

    def is_complex(self) -> bool:
        """Whether the elements will be complex."""
        return self.dtype.is_complex

    def materialize(self, shape: Any, device: Any = None, dtype: dt.dtype | None = None) -> None:
        """Become a tensor of this shape, with whatever values the memory has."""
        wanted, where = dtype or self.dtype, self.device if device is None else device
        del self.__dict__["_dtype"]
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        self._a = api.FUNCTIONS["empty"](shape, dtype=wanted, device=where)._a

    @property
    def data(self) -> Any:
        """Itself: there are no values to look at."""
        return self

    @data.setter
    def data(self, other: Any) -> None:
        self.__dict__["_dtype"] = other.dtype

    def detach(self) -> Any:
        """Itself: there is nothing to cut off."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The same place with another dtype."""
        changed = api.FUNCTIONS["empty"](0, dtype=self.dtype, device=self.device)
        changed = changed.to(*args, **kwargs)
        return _blank(type(self), changed.dtype, self._node is not None, changed.is_meta)  # type: ignore[attr-defined]

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Itself, from a place that has no values either."""
        if not is_lazy(src):
            raise ValueError(_NO_VALUES)
        return self

    def cpu(self) -> Any:
        """Itself: it will be on the CPU."""
        return self

    def cuda(self, device: Any = None) -> Any:
        """Always an error: there is no such device here."""
        return wrap(np.empty(0)).cuda(device)

    def share_memory_(self) -> Any:
        """There is no memory yet: always an error."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            wants = self._node is not None  # type: ignore[attr-defined]
            memo[id(self)] = _blank(type(self), self.dtype, wants, self.is_meta)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _blank, (type(self), self.dtype, self._node is not None, self.is_meta)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def _blank(cls: type, dtype: dt.dtype | None, requires_grad: bool, on_meta: bool = False) -> Any:
    t: Any = new(cls)
    t._node, t._vc = None, [0]
    t._grad = t._base = t._view = t._x = None
    t.__dict__["_dtype"] = dtype or dt.get_default_dtype()
    if on_meta:
        t.__dict__["_on_meta"] = True
    if requires_grad:
        t._node = AccumulateGrad(t)
    return t


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is found out later."""

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: dt.dtype | None = None
    ) -> Any:
        return _blank(cls, dtype, requires_grad, dev.on_meta(device))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is found out later."""

    cls_to_become = Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: dt.dtype | None = None,
        persistent: bool = True,
    ) -> Any:
        t = _blank(cls, dtype, requires_grad, dev.on_meta(device))
        t.persistent, t._is_buffer = persistent, True
        return t

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
