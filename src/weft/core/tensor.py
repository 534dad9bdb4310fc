"""The tensor: an array, a version cell, and a place in the graph."""

from __future__ import annotations

import copy
import copyreg
import functools
import importlib
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import errors, overrides, pending, printing
from weft.core.arrays import ARRAYS
from weft.core.devices import (
    DeviceArray,
    address_of,
    copy_of,
    device_of,
    host,
    over_bytes,
    put_like,
)
from weft.core.dlpack import exported
from weft.core.gate import exchange, mark_exported
from weft.core.inference import Untracked, fresh_cell, is_inference
from weft.core.meta import LIVE, NO_DATA, MetaArray, lacks_values, plain
from weft.core.meta import like as like_meta
from weft.core.meta import over as over_meta
from weft.core.modes import INFERRING, MODES
from weft.core.node import (
    NOWHERE,
    AccumulateGrad,
    GraphNode,
    Output,
    RemovableHandle,
    add_hook,
)
from weft.core.pending import METADATA
from weft.core.size import Size
from weft.native.memory.layout import in_channels_last

ndarray, new, new_tuple = np.ndarray, object.__new__, tuple.__new__
getframe = sys._getframe


NUMBERS = frozenset((bool, int, float, complex))  # what NumPy's own types have as elements

GRADIENT_LOST = (
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
    "Consider using tensor.detach() first."
)


GRAD_OF_NON_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead."
)


class _Late:
    """Hooks that higher layers fill, since core imports none of them."""

    refresh: Callable
    backward: Callable
    alias: Callable
    construct: Callable
    missing: Callable
    steps_without_elements: Callable
    absent: frozenset[str] = frozenset()  # names of methods that weft lacks


LATE = _Late


def wrap(array: Any, node: GraphNode | None = None) -> Tensor:
    """A tensor around an array, without copying or checking."""
    t = new(Tensor)
    t._a = array
    t._node = node
    t._vc = [0] if not INFERRING else fresh_cell()
    t._grad = t._base = t._view = t._x = None
    return t


def beside(other: Tensor, array: np.ndarray) -> Tensor:
    """A tensor around an array, on the device of another: without values beside a meta tensor."""
    # Where there are no other devices, or it is pending, it is on the CPU.
    if not LIVE or pending.region_of(other) is not None:
        return wrap(array)
    return wrap(like_meta(array) if other.is_meta else put_like(other._a, array))


def refresh(x: Tensor) -> None:
    """Bring a view's place in the graph up to date after its memory was changed."""
    LATE.refresh(x)


class _TensorMeta(type):
    """Lets ``isinstance(x, torch.FloatTensor)`` and friends live beside the class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return LATE.missing(f"Tensor.{name}")


def tell_of_cut(tensor: Tensor) -> None:
    """Let recorders know where a tensor was cut off from its graph."""
    for recorder in MODES.now.recorders:
        recorder.detached(tensor)


def tell_of_relinking(tensor: Tensor) -> None:
    """Notify listeners that a tensor is about to move in the graph."""
    for recorder in MODES.now.recorders:
        recorder.relinking(tensor)


class Tensor(metaclass=_TensorMeta):
    """An array with elements of one dtype, which remembers how it was made.

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    # _a     the array _node  the node that made this tensor, a leaf's AccumulateGrad, or None _vc
    # the version cell, shared by all tensors on the same memory: [version, *changes] _base, _view,
    # _stamp  for views: whose memory, by which ops, node as of which version _grad  the value of
    # ``grad``, which weft itself reads and writes without its checks _x     rare things: tangents,
    # names, hooks of a tensor without a node, grad_dtype
    __slots__ = (
        *("__dict__", "__weakref__", "_a", "_base", "_grad", "_node", "_stamp", "_vc", "_view"),
        "_x",
    )
    _a: np.ndarray
    _base: Tensor | None
    _grad: Tensor | None
    _node: Any
    _stamp: int
    _vc: list[Any]
    _view: Any  # a tuple; None or a ``viewing.Turned`` for tensors that are not views
    _x: dict[str, Any] | None

    # Arrays on the left of an operator defer to the tensor on its right.
    __array_priority__ = 1000

    if TYPE_CHECKING:
        # The op blocks put the operators on this class. A type checker looks for operators on
        # the class alone, so it is told of them here; methods reach it by ``__getattr__``.
        def __add__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __lshift__(self, other: Any) -> Any: ...
        def __rshift__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...
        def __rmod__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __rand__(self, other: Any) -> Any: ...
        def __ror__(self, other: Any) -> Any: ...
        def __rxor__(self, other: Any) -> Any: ...
        def __rlshift__(self, other: Any) -> Any: ...
        def __rrshift__(self, other: Any) -> Any: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        t = new(cls)
        made = LATE.construct(*args, **kwargs)
        if args and isinstance(args[0], Tensor):
            with overrides.DisableTorchFunctionSubclass():
                return _of_class(LATE.alias(args[0]), cls)
        t._a, t._node, t._vc = made._a, None, made._vc
        t._grad = t._base = t._view = t._x = None
        return t

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] != "weft":
            overrides.switch_on()
            # Only now, since a metaclass that is asked makes every isinstance slower.
            _ParameterMeta.__instancecheck__ = _is_parameter  # type: ignore[method-assign]

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """How functions act on tensors of this class: as on others, with results of the class."""
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with overrides.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result if func in keep_class() else _converted(result, cls)

    def as_subclass(self, cls: type) -> Any:
        """The same values and memory as an object of a subclass of Tensor; recorded as a view."""
        _check_subclass(cls)
        with overrides.DisableTorchFunctionSubclass():
            return _of_class(LATE.alias(self), cls)

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """The same memory as an object of a subclass of Tensor, unseen by autograd."""
        _check_subclass(cls)
        if not isinstance(data, Tensor):
            raise TypeError(
                "_make_subclass(): argument 'data' (position 2) must be Tensor, not "
                f"{type(data).__name__}\n  at {errors.here()}"
            )
        with overrides.DisableTorchFunctionSubclass():
            t = _of_class(Tensor.detach(data), cls)
            return t.requires_grad_() if require_grad else t

    def alias_of(self) -> Tensor:
        """The same memory and the same place in the graph, as another object."""
        t = wrap(self._a, self._node)
        t._vc, t._base, t._view = self._vc, self._base, self._view
        if t._base is not None:
            t._stamp = self._stamp
        return t

    # --- what it is ---

    @property
    def shape(self) -> Size:
        """The length of each dimension.

        >>> x = torch.zeros(2, 3)
        >>> x.shape
        torch.Size([2, 3])
        >>> x.shape[0]
        2
        """
        return new_tuple(Size, self._a.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension.

        >>> x = torch.zeros(2, 3)
        >>> x.size()
        torch.Size([2, 3])
        >>> x.size(-1)
        3
        """
        if dim is None:
            return new_tuple(Size, self._a.shape)
        try:
            size = self._a.shape[dim]
        except IndexError:
            rank = max(self._a.ndim, 1)
            raise IndexError(
                f"size: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
                f"but got {dim}); the shape is {list(self._a.shape)}\n  at {errors.here()}"
            ) from None
        if size.__class__ is tuple:
            raise TypeError(f"size: dim must be an int, not a slice\n  at {errors.here()}")
        return size

    @property
    def dtype(self) -> dt.dtype:
        """The type of the elements.

        >>> torch.tensor([1, 2]).dtype
        torch.int64
        >>> torch.tensor([1.0]).dtype
        torch.float32
        """
        return dt.OF_NUMPY[self._a.dtype]

    @property
    def device(self) -> dev.device:
        """Where the tensor lives.

        >>> torch.ones(2).device
        device(type='cpu')
        """
        a = self._a
        if a.__class__ is ndarray:
            return dev.CPU
        return dev.META if a.__class__ is MetaArray else device_of(a)

    @property
    def layout(self) -> Layout:
        """How elements are laid out; always dense here."""
        return LAYOUT

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        >>> torch.zeros(2, 3).ndim
        2
        """
        return self._a.ndim

    def dim(self) -> int:
        """The number of dimensions.

        >>> torch.zeros(2, 3, 4).dim()
        3
        """
        return self._a.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements.

        >>> torch.zeros(2, 3, 4).numel()
        24
        """
        return self._a.size

    nelement = numel

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._a.itemsize

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._a.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._a.nbytes

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours, in elements."""
        size = self._a.itemsize
        strides = tuple(s // size for s in self._a.strides)
        if not self._a.size and not any(strides):
            strides = LATE.steps_without_elements(self)  # NumPy's own empty arrays all have zeros
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Where the first element stands in the storage, in elements."""
        owner = storage_array(self._a)
        return (address_of(self._a) - address_of(owner)) // self._a.itemsize

    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is none."""
        if not self._a.size or self._a.__class__ is MetaArray:
            return 0
        return address_of(self._a)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether elements follow one another in memory in row-major order."""
        if memory_format is not None and memory_format.name.startswith("channels_last"):
            rank = 4 if memory_format.name == "channels_last" else 5
            return self._a.ndim == rank and in_channels_last(self._a)
        return self._a.flags.c_contiguous

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating one."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is a complex one."""
        return self._a.dtype.kind == "c"

    def is_signed(self) -> bool:
        """Whether the dtype can hold negative values."""
        return self.dtype.is_signed

    names = property(
        lambda self: (None,) * self._a.ndim, doc="The names of the dimensions: None for each."
    )

    def is_inference(self) -> bool:
        """Whether it was made in inference mode, or is a view of what was."""
        return is_inference(self)

    def is_conj(self) -> bool:
        """Conjugation is done at once here, so there is no pending one."""
        return False

    is_neg = is_shared = is_pinned = is_conj

    def get_device(self) -> int:
        """The number of the device; -1 for the CPU."""
        return -1

    @property
    def _version(self) -> int:
        if self._vc.__class__ is Untracked:
            raise RuntimeError(
                f"Inference tensors do not track version counter.\n  at {errors.here()}"
            )
        return self._vc[0]

    def _is_view(self) -> bool:
        return self._base is not None

    # --- gradients ---

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is wanted for this tensor.

        >>> x = torch.ones(2, requires_grad=True)
        >>> (x * 2).requires_grad, x.detach().requires_grad
        (True, False)
        """
        if self._base is not None and self._stamp != self._vc[0] and self._view[5]:
            refresh(self)
        node = self._node
        if node is NOWHERE and self._base is not None:
            return self._base._node is not None  # a view made in no_grad follows its base
        return node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether a gradient is required; only leaves can be changed.

        >>> model = nn.Linear(2, 2)
        >>> model.weight.requires_grad_(False).requires_grad
        False
        """
        node = self._node
        if node is None and isinstance(self._a, MetaArray) and self._a.is_batch:
            self._node = self._a.physical.requires_grad_(requires_grad)._node
            return self
        if requires_grad:
            if node is None or (node is NOWHERE and self._base is not None):
                if self._a.dtype.kind not in "fcV":
                    raise RuntimeError(
                        "requires_grad_: only Tensors of floating point and complex dtype can "
                        f"require gradients, not {self.dtype}; convert it with .float() first\n"
                        f"  at {errors.here()}"
                    )
                if self._vc.__class__ is Untracked and not MODES.now.inference:
                    raise RuntimeError(
                        "Setting requires_grad=True on inference tensor outside InferenceMode is "
                        f"not allowed; clone() it first\n  at {errors.here()}"
                    )
                tell_of_relinking(self)
                # A leaf that was frozen temporarily is still the leaf of earlier graphs, with its
                # hooks.
                leaf = self._x.pop("leaf", None) if self._x else None
                self._node = AccumulateGrad(self) if leaf is None else leaf
                self._x = self._x or None
        elif node is not None:
            if not isinstance(node, AccumulateGrad):
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    f"use var_no_grad = var.detach().\n  at {errors.here()}"
                )
            tell_of_relinking(self)
            self._keep_leaf()
            # A view keeps following its base.
            plain = self._base is None or self._base._node is None
            self._node = None if plain else NOWHERE
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        if self._base is not None and self._stamp != self._vc[0]:
            refresh(self)
        return self._node is None or isinstance(self._node, AccumulateGrad)

    @property
    def grad_fn(self) -> GraphNode | None:
        """The node that made this tensor, or None for leaves.

        >>> x = torch.ones(2, requires_grad=True)
        >>> (x * 2).sum().grad_fn.name()
        'SumBackward0'
        >>> print(x.grad_fn)
        None
        """
        if self._base is not None and self._stamp != self._vc[0]:
            refresh(self)
        node = self._node
        if node is None or isinstance(node, AccumulateGrad):
            return None
        return (node.node if isinstance(node, Output) else node).named()

    @property
    def output_nr(self) -> int:
        """Which output of its node this tensor is."""
        return self._node.index if isinstance(self._node, Output) else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has summed up for this tensor, or None.

        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> print(x.grad)
        None
        >>> (x * x).backward()
        >>> x.grad
        tensor(6.)
        """
        held = self._grad
        if held is None and not self.is_leaf and not self.retains_grad:
            warnings.warn(GRAD_OF_NON_LEAF, stacklevel=2)
        return held

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def _check_grad(self, value: Any) -> None:
        """Refuse what can't be this tensor's gradient."""
        if not isinstance(value, Tensor):
            raise TypeError(
                "assigned grad expected to be a Tensor or None but got grad of type "
                f"{type(value).__name__}\n  at {errors.here()}"
            )
        if value is self:
            raise RuntimeError(f"can't assign Variable as its own grad\n  at {errors.here()}")
        wanted = _grad_dtype(self)
        if wanted is not None and value.dtype is not wanted:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{value.dtype!r}' to a tensor with "
                f"grad_dtype '{dt.TYPE_NAMES[wanted.name]}'. The gradient must match the tensor's "
                f"grad_dtype (its own dtype if nothing else was set): convert it with "
                f".to({wanted!r}), or set grad_dtype, to None for any dtype\n  at {errors.here()}"
            )
        if value._a.shape != self._a.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value._a.shape)}' to a tensor of "
                f"size '{list(self._a.shape)}'. Please ensure that the gradient and the tensor are "
                f"the same size\n  at {errors.here()}"
            )

    @property
    def grad_dtype(self) -> dt.dtype | None:
        """The dtype that a leaf's gradient is summed up in; None takes any."""
        if not self.is_leaf:
            raise RuntimeError(
                f"grad_dtype can only be accessed on leaf tensors.\n  at {errors.here()}"
            )
        return _grad_dtype(self)

    @grad_dtype.setter
    def grad_dtype(self, wanted: dt.dtype | None) -> None:
        if wanted is not None and not isinstance(wanted, dt.dtype):
            raise RuntimeError(
                "grad_dtype must be a torch.dtype or None, but got "
                f"{type(wanted).__name__}\n  at {errors.here()}"
            )
        if not self.is_leaf:
            raise RuntimeError(f"grad_dtype can only be set on leaf tensors.\n  at {errors.here()}")
        held = self._grad
        if held is not None and wanted is not None and held.dtype is not wanted:
            raise RuntimeError(
                f"Cannot set grad_dtype to '{dt.TYPE_NAMES[wanted.name]}' because there is already "
                f"a gradient with dtype '{held.dtype!r}'. Please clear the gradient (.grad = None) "
                "before changing grad_dtype, or ensure the new grad_dtype matches the existing "
                f"gradient's dtype.\n  at {errors.here()}"
            )
        self._x = {**(self._x or {}), "grad_dtype": wanted}

    @property
    def volatile(self) -> bool:
        """Always False; replaced by ``no_grad``."""
        warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
        return False

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Compute the gradient of this tensor with respect to its leaves.

        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> (x**3).sum().backward()
        >>> x.grad
        tensor([ 3., 12.])
        """
        if create_graph:
            errors.warn_of_cycle()
        LATE.backward((self,), (gradient,), retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """The same values, cut off from the graph; memory is shared.

        >>> x = torch.ones(2, requires_grad=True)
        >>> y = (x * 2).detach()
        >>> y, y.requires_grad
        (tensor([2., 2.]), False)
        """
        for recorder in MODES.now.recorders:
            instead = recorder.detaching(self)
            if instead is not None:
                return instead
        a = self._a
        t = wrap(a.detached() if isinstance(a, MetaArray) else a)
        t._vc = self._vc
        if self._node is not None:
            tell_of_cut(self)
        return t

    def detach_(self) -> Tensor:
        """Cut this very tensor off from the graph."""
        if self._base is not None:
            raise RuntimeError(
                f"Can't detach views in-place. Use detach() instead\n  at {errors.here()}"
            )
        tell_of_relinking(self)
        self._keep_leaf()
        self._node = None
        if self._x is not None:
            self._x = {k: v for k, v in self._x.items() if k != "tangents"}
        return self

    def _keep_leaf(self) -> None:
        """Remember the leaf that graphs lead to, before this tensor stops requiring a gradient."""
        node = self._node
        if node.__class__ is AccumulateGrad and node is not NOWHERE:
            self._x = {**(self._x or {}), "leaf": node}

    @property
    def data(self) -> Tensor:
        """The same values and memory, unseen by autograd.

        >>> w = torch.ones(2, requires_grad=True)
        >>> w.data.mul_(3)
        tensor([3., 3.])
        >>> w
        tensor([3., 3.], requires_grad=True)
        """
        for recorder in MODES.now.recorders:
            recorder.meets(self)  # what is written by the new name is written to this
        if self._node is not None:
            tell_of_cut(self)
        return wrap(self._a)

    @data.deleter
    def data(self) -> None:
        raise RuntimeError(
            f"Deleting tensor data is not allowed. Delete tensor instead!\n  at {errors.here()}"
        )

    @data.setter
    def data(self, other: Tensor) -> None:
        if not isinstance(other, Tensor):
            raise TypeError(
                f"Variable data has to be a tensor, but got {type(other).__name__}\n"
                f"  at {errors.here()}"
            )
        if self._node is not None and other._a.dtype.kind not in "fcV":
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, not {other.dtype}\n  at {errors.here()}"
            )
        if other.is_meta is not self.is_meta:
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have "
                "incompatible tensor type: one is on the meta device. Make a new tensor\n"
                f"  at {errors.here()}"
            )
        exchange(self, other._a)

    def retain_grad(self) -> None:
        """Keep ``.grad`` for this tensor although it is not a leaf."""
        wanted = self.requires_grad  # brings a view up to date
        node = self._node
        if not wanted:
            raise RuntimeError(
                f"can't retain_grad on Tensor that has requires_grad=False\n  at {errors.here()}"
            )
        if not isinstance(node, AccumulateGrad) and not self.retains_grad:
            node._extras().retained.append(weakref.ref(self))

    @property
    def retains_grad(self) -> bool:
        """Whether a non-leaf keeps its ``.grad``."""
        node = self._node
        if node is None or isinstance(node, AccumulateGrad) or node.extras is None:
            return False
        return any(r() is self for r in node.extras.retained)

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad)`` when this tensor's gradient is known; it may return another.

        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = x.register_hook(lambda grad: grad * 10)
        >>> x.sum().backward()
        >>> x.grad
        tensor([10., 10.])
        """
        if not self.requires_grad:
            raise RuntimeError(
                "cannot register a hook on a tensor that doesn't require gradient\n"
                f"  at {errors.here()}"
            )

        def on_output(grads: tuple[Any, ...]) -> Any:
            replaced = hook(grads[0])
            return None if replaced is None else (replaced,)

        on_output.__wrapped__ = hook  # type: ignore[attr-defined]
        return add_hook(self._node._extras().pre, on_output)

    def register_post_accumulate_grad_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(tensor)`` after ``.grad`` of this leaf has been updated."""
        node = self._node
        if not isinstance(node, AccumulateGrad):
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors or on "
                f"tensors that don't require grad\n  at {errors.here()}"
            )
        if node.post_accumulate is None:
            node.post_accumulate = OrderedDict()
        return add_hook(node.post_accumulate, hook)

    # --- values for Python and NumPy ---

    @property
    def is_meta(self) -> bool:
        """Whether it has a shape and a dtype but no values."""
        return self._a.__class__ is MetaArray

    @property
    def is_cpu(self) -> bool:
        """Whether it has values in the memory of the processor."""
        return self._a.__class__ is not MetaArray and not isinstance(self._a, DeviceArray)

    def item(self) -> Any:
        """The one value of a one-element tensor, as a Python number.

        >>> torch.tensor([2.5]).item()
        2.5
        """
        a = self._a
        if a.__class__ is ndarray and a.size == 1 and not MODES.now.recorders:
            value = a.item()
            if value.__class__ in NUMBERS:
                return value
        if self._a.size != 1:
            raise RuntimeError(
                f"a Tensor with {self._a.size} elements cannot be converted to Scalar "
                f"(shape {list(self._a.shape)}); use tolist(), or index one element\n"
                f"  at {errors.here()}"
            )
        if self._a.__class__ is MetaArray:
            raise RuntimeError(
                "Tensor.item() cannot be called on meta tensors: they have no values\n"
                f"  at {errors.here()}"
            )
        for recorder in MODES.now.recorders:
            recorder.asked(self)
        a = self._a
        value = (a if a.__class__ is ndarray else host(self)).item()
        return value if self._a.dtype.kind != "V" else float(value)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers.

        >>> torch.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        for recorder in MODES.now.recorders:
            recorder.asked(self)
        a = self._a
        if a.__class__ is ndarray and a.dtype.kind != "V":
            return a.tolist()
        if self._a.__class__ is MetaArray:
            raise NotImplementedError(f"{NO_DATA}\n  at {errors.here()}")
        a = host(self)
        return (a.astype(np.float32) if a.dtype.kind == "V" else a).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The values as a NumPy array on the same memory.

        >>> x = torch.tensor([1.0, 2.0])
        >>> a = x.numpy()
        >>> a[0] = 7
        >>> x
        tensor([7., 2.])
        """
        if self._a.__class__ is MetaArray:
            raise TypeError(
                "can't convert meta device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first: a meta tensor has no values, so make it on the CPU\n"
                f"  at {errors.here()}"
            )
        if self.requires_grad and not force and MODES.now.grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                f"instead.\n  at {errors.here()}"
            )
        if isinstance(self._a, DeviceArray):
            if force:
                return host(self)
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                f"copy the tensor to host memory first.\n  at {errors.here()}"
            )
        mark_exported(self._a)
        return self._a.view()  # whose shape and flags are the caller's to change

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version < "2021.12":
            raise ValueError(f"array API version {api_version!r} is not supported")
        return sys.modules["weft"]

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if not self.is_cpu:
            why = ": they have no values" if self.is_meta else "; copy them with .cpu() first"
            raise BufferError(f"Cannot pack tensors on {self.device.type}{why}")
        mark_exported(self._a)
        return exported(self._a, **{k: v for k, v in options.items() if k != "stream"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __buffer__(self, flags: int) -> memoryview:
        if not self.is_cpu:
            raise BufferError(f"a tensor on {self.device} has no values that the host can read")
        mark_exported(self._a)
        return memoryview(self._a.data)

    def __bool__(self) -> bool:
        if self._a.size != 1:
            kind = "no values" if not self._a.size else "more than one value"
            raise RuntimeError(
                f"Boolean value of Tensor with {kind} is ambiguous (shape "
                f"{list(self._a.shape)}); use .any() or .all()\n  at {errors.here()}"
            )
        return bool(self.item())

    def _number(self, kind: str) -> Any:
        if self._a.size != 1:
            raise ValueError(
                "only one element tensors can be converted to Python scalars; this one has the "
                f"shape {list(self._a.shape)}\n  at {errors.here()}"
            )
        value = self.item()
        if isinstance(value, complex) and kind != "complex":
            if value.imag:
                raise RuntimeError(
                    f"value cannot be converted to type {kind} without overflow: it is {value}\n"
                    f"  at {errors.here()}"
                )
            return value.real
        return value

    def __float__(self) -> float:
        if self._node is not None:
            errors.warn_once(GRADIENT_LOST)
        if self._a.size == 1:
            value = self.item()
            if value.__class__ is float:
                return value
        return float(self._number("double"))

    def __int__(self) -> int:
        return int(self._number("int64_t"))

    def __complex__(self) -> complex:
        if self._node is not None:
            errors.warn_once(GRADIENT_LOST)
        return complex(self._number("complex"))

    def __index__(self) -> int:
        if self._a.dtype.kind not in "iub" or self._a.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self._a.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._a.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._a.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __delitem__(self, index: Any) -> None:
        raise TypeError("Tensor does not support deleting items")

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, int, float, complex, np.generic)):
            raise RuntimeError(
                "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}.\n  at {errors.here()}"
            )
        return bool((self == element).any().item())

    def __hash__(self) -> int:
        return id(self)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        return sorted(names - {"_stamp"} - LATE.absent)  # only views have a stamp

    if TYPE_CHECKING:  # the op blocks put methods on this class

        def __getattr__(self, name: str) -> Any: ...

    # --- printing ---

    def __repr__(self) -> str:
        node, made_by = self._node, None
        try:
            if self._base is not None or not (node is None or isinstance(node, AccumulateGrad)):
                made_by = self.grad_fn
            grad_fn = None if made_by is None else made_by.name()
        except RuntimeError:
            grad_fn = "Invalid"  # a view that is not to be used: printing it must still work
        with_dtype = self.dtype
        plain = type(self) is Tensor or type(self) is Parameter
        text = printing.format_tensor(
            self._a if self._a.__class__ is MetaArray else host(self),
            device="" if self._a.__class__ is np.ndarray else str(self.device),
            dtype_name=with_dtype.name,
            default_dtype_name=dt.get_default_dtype().name,
            requires_grad=node is not None,
            grad_fn_name=grad_fn,
            prefix="tensor(" if plain else f"{type(self).__name__}(",
            suffixes=self._tangent_notes(),
        )
        return text if plain or not isinstance(self, Parameter) else f"Parameter({text})"

    def _repr_html_(self) -> str:
        """The notebook representation: the text, and a thumbnail of the values."""
        return importlib.import_module("weft.graph.notebook").tensor_html(self)

    def _tangent_notes(self) -> list[str]:
        found = self._x.get("tangents") if self._x is not None else None
        return [f"tangent={found[max(found)]!r}"] if found else []

    def __format__(self, spec: str) -> str:
        if not self._a.ndim and type(self) is Tensor and self._a.__class__ is not MetaArray:
            return printing.format_scalar(self.item(), spec)
        return object.__format__(self, spec)

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment. Use tensor.detach().clone() or tensor.clone()\n"
                f"  at {errors.here()}"
            )
        if id(self) in memo:
            return memo[id(self)]
        memory = memo.setdefault("weft storages", {})  # type: ignore[call-overload]
        array = copy_sharing(self._a, memory)
        twin = new(type(self))
        twin._a, twin._node, twin._vc = array, None, [0]
        twin._grad = twin._base = twin._view = twin._x = None
        memo[id(self)] = twin
        if self._node is not None:
            twin._node = AccumulateGrad(twin)
        if type(self) is Parameter:
            return twin  # as in PyTorch: without its gradient and added attributes
        if self.grad is not None and not isinstance(self, Parameter):
            twin.grad = copy.deepcopy(self.grad, memo)
        if self.__dict__:
            twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        for name, value in values_of_slots(self).items():
            object.__setattr__(twin, name, copy.deepcopy(value, memo))
        return twin

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # The owner of the memory goes along as one object, so that a pickle of several tensors
        # holds it once and they share it again. As in PyTorch a tensor comes back as a leaf.
        array = self._a
        owner = storage_array(array)
        if isinstance(owner, DeviceArray):
            start = array.address - owner.address  # type: ignore[attr-defined]
            place = (plain(array.dtype), array.shape, array.strides, start)
            return self._reduced(owner, place)
        known = type(owner) is np.ndarray or type(owner) is MetaArray
        if not known or dense(owner) is None:
            owner = array = array.copy()
        elif not owner.flags.c_contiguous and not owner.flags.f_contiguous:
            owner = np.asarray(dense(owner))  # NumPy's own pickles forget other orders
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        place = (array.dtype, array.shape, array.strides, start if array.size else 0)
        return self._reduced(owner, place)

    def _reduced(self, owner: Any, place: tuple[Any, ...]) -> tuple[Any, ...]:
        state: Any = self.__dict__ or None
        slots = values_of_slots(self)
        if slots:
            state = (state, slots)
        return (_rebuild, (type(self), owner, place, self.requires_grad), state)

    def __setstate__(self, state: Any) -> None:
        attributes, slots = state if isinstance(state, tuple) else (state, {})
        self.__dict__.update(attributes or {})
        for name, value in slots.items():
            object.__setattr__(self, name, value)


# The kinds of tensor that weft does not have; code that asks gets an honest no.
for _kind in (
    *("cuda", "sparse", "sparse_csr", "quantized", "mkldnn", "nested", "mps", "xpu"),
    *("ipu", "xla", "mtia", "vulkan", "maia"),
):
    _doc = f"Whether it is a tensor of the kind ``{_kind}``: never."
    setattr(Tensor, f"is_{_kind}", property(lambda self: False, doc=_doc))


@functools.cache
def keep_class() -> frozenset[Any]:
    """Functions whose results keep the class that they have."""
    return frozenset((Tensor._base.__get__, Tensor._grad.__get__, Tensor.grad.__get__))  # type: ignore[attr-defined, union-attr]


def _check_subclass(cls: Any) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a type (got {type(cls).__name__})\n  at {errors.here()}")
    if not issubclass(cls, Tensor):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not "
            f"possible. Make sure your class inherits from Tensor; {cls.__name__} does not\n"
            f"  at {errors.here()}"
        )


def _of_class(made: Tensor, cls: type) -> Any:
    """A new tensor, converted to another class."""
    try:
        made.__class__ = cls
        return made
    except TypeError:  # the class has slots of its own
        t: Any = new(cls)
        for name in ("_a", "_node", "_vc", "_grad", "_base", "_view", "_x"):
            setattr(t, name, getattr(made, name))
        if made._base is not None:
            t._stamp = made._stamp
        return t


def slots_of(kind: type) -> list[str]:
    """The names of the slots that a class of a program's own adds to those of Tensor."""
    if kind is Tensor or kind is Parameter:
        return []
    return [name for name in copyreg._slotnames(kind) if name not in Tensor.__slots__]  # type: ignore[attr-defined]


def values_of_slots(x: Tensor) -> dict[str, Any]:
    """The values of those slots."""
    return {name: getattr(x, name) for name in slots_of(type(x)) if hasattr(x, name)}


def _converted(result: Any, cls: type) -> Any:
    """A result with its tensors as objects of a class, also those in lists and tuples."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)) and result.__class__ is not Size:
        parts = [_converted(part, cls) for part in result]
        make = getattr(type(result), "_make", type(result))
        return make(parts)
    return result


class _ParameterMeta(_TensorMeta):
    """Lets tensors of other classes be parameters too, which ``Parameter(x)`` marks so."""


def _is_parameter(cls: type, instance: Any) -> bool:
    if type.__instancecheck__(cls, instance):
        return True
    return (
        cls is Parameter
        and isinstance(instance, Tensor)
        and bool(instance.__dict__.get("_is_param"))
    )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module owns and an optimizer changes.

    >>> module = nn.Module()
    >>> module.scale = nn.Parameter(torch.ones(2))
    >>> list(module.parameters())
    [Parameter containing:
    tensor([1., 1.], requires_grad=True)]
    """

    __slots__ = ()
    __torch_function__ = overrides.disabled_torch_function  # type: ignore[assignment]

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        source = wrap(np.empty(0, dt.get_default_dtype().np)) if data is None else data
        if overrides.has_say(type(source)):
            return _marked_parameter(source, requires_grad)
        t = new(cls)
        t._a, t._node, t._vc = source._a, None, source._vc
        t._grad = t._base = t._view = t._x = None
        if requires_grad:
            t.requires_grad_()
        return t

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        super().__init__()

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


overrides.PLAIN.update((Tensor, Parameter))
pending.reads_metadata(
    *(Tensor.shape, Tensor.size, Tensor.dtype, Tensor.device, Tensor.ndim, Tensor.dim),
    *(Tensor.numel, Tensor.itemsize, Tensor.element_size, Tensor.nbytes, Tensor.stride),
    *(Tensor.is_complex, Tensor.requires_grad, Tensor.is_leaf, Tensor.is_meta, Tensor.is_cpu),
    *(Tensor.__len__, Tensor.__iter__, lacks_values),
)


def _marked_parameter(data: Tensor, requires_grad: bool) -> Any:
    """A parameter that keeps the class of its values, as its methods make it."""
    t = data.detach().requires_grad_(requires_grad)
    if type(t) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that "
            "detach() returns an instance of the same type, but return type "
            f"{type(t).__name__} was found instead. To use the type as a Parameter, please correct "
            f"the detach() semantics defined by its __torch_function__\n  at {errors.here()}"
        )
    t._is_param = True
    return t


def _rebuild(
    cls: type[Tensor], owner: np.ndarray, place: tuple[Any, ...], requires_grad: bool
) -> Tensor:
    t = new(cls)
    t._a, t._node, t._vc = over(owner, *place), None, [0]
    t._grad = t._base = t._view = t._x = None
    if requires_grad:
        t._node = AccumulateGrad(t)
    return t


class Layout:
    """How a tensor's elements are laid out."""

    by_name: dict[str, Layout] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        Layout.by_name[name] = self

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_layout_named, (self.name,))

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: Any) -> Layout:
        return self


def _layout_named(name: str) -> Layout:
    return Layout.by_name[name]


LAYOUT = Layout("strided")


def _grad_dtype(x: Tensor) -> dt.dtype | None:
    return x.dtype if x._x is None else x._x.get("grad_dtype", x.dtype)


def storage_array(array: Any) -> Any:
    """The array that owns the memory."""
    while isinstance(array.base, ARRAYS):
        array = array.base
    return array


def dense(owner: np.ndarray) -> np.ndarray | None:
    """An owner of memory with its dimensions in the order of memory; None if it has gaps."""
    if owner.flags.c_contiguous:
        return owner
    order = sorted(range(owner.ndim), key=lambda i: (-owner.strides[i], i))
    rows = owner.transpose(order)
    return rows if rows.flags.c_contiguous else None


def over(owner: np.ndarray, d: Any, shape: Any, strides: Any, start: int) -> np.ndarray:
    """An array of a geometry on the memory of an owner without gaps, ``start`` bytes into it."""
    if (d, shape, strides) == (owner.dtype, owner.shape, owner.strides):
        return owner
    if isinstance(owner, DeviceArray):
        return over_bytes(owner, d, shape, strides, start)
    if 0 in shape:
        start = 0  # it may point to or beyond the end of the memory, and reads nothing there
        if owner.__class__ is MetaArray:
            return MetaArray(shape, d, owner, 0, strides)
    rows: Any = dense(owner)
    if d.kind == "V" or rows.dtype.kind == "V":
        rows = rows.reshape(-1).view(np.uint8)  # such types offer no buffer
    return rows.__class__(shape, d, rows, start, strides)


def strided(
    x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], shift: int = 0
) -> np.ndarray:
    """A view by shape and byte strides that starts ``shift`` bytes from ``x``.

    Unlike NumPy's ``as_strided`` it keeps the owner of the memory as its base, and is cheap.
    """
    if isinstance(x, DeviceArray):
        start = address_of(x) - address_of(storage_array(x)) + shift
        return x.home.view(x, x.dtype, shape, strides, start)
    if not shift and x.flags.c_contiguous and x.dtype.kind != "V":
        return x.__class__(shape, x.dtype, x, 0, strides)
    if x.__class__ is MetaArray:
        return over_meta(x, shape, strides, shift)
    owner = storage_array(x)
    if dense(owner) is not None:
        start = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        made = over(owner, x.dtype, shape, strides, start + shift)
        return made.view() if made is owner else made  # a view is an array of its own
    if shift:
        raise RuntimeError("a view of this storage can't start elsewhere")
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def shares(result: np.ndarray, source: np.ndarray) -> bool:
    """Whether an op's result is a view of its input's memory."""
    if result is source:
        return True
    held: Any = result.base
    if held is None:
        return result is storage_array(source)
    if held is source or held is source.base:
        return True
    if not isinstance(held, np.ndarray):
        held = getattr(held, "base", None)  # what NumPy's as_strided puts in between
    return held is not None and storage_array(held) is storage_array(source)


def read_unset(self: Tensor, name: str) -> Any:
    """``Tensor.__getattr__``, from the first compiled region on: see ``core.pending``.

    A class with that method takes two to three times as long for every attribute access, so it has
    none before there can be pending tensors.
    """
    if name == "_a" and METADATA.get(getframe(1).f_code):
        try:  # the answer of ``slot_of`` in the most frequent case
            return self._stamp[2].outline  # type: ignore[index]
        except (AttributeError, TypeError):
            pass
    if name in pending.SLOTS:
        return pending.slot_of(self, name, getframe(1))
    return object.__getattribute__(self, name)  # raises


def enable_pending_tensors() -> None:
    """Make reading an unset slot of a tensor compute what is pending."""
    if "__getattr__" not in vars(Tensor):
        type.__setattr__(Tensor, "__getattr__", read_unset)


def copy_sharing(array: np.ndarray, memory: dict[int, np.ndarray]) -> np.ndarray:
    """A copy that shares memory with copies of arrays that shared memory with this one."""
    owner = storage_array(array)
    twin: Any = memory.get(id(owner))
    if twin is None:
        twin = memory[id(owner)] = copy_of(owner)
        memory[id(twin)] = owner  # keeps the owner's id from being reused
    if owner is array:
        return twin
    if isinstance(array, DeviceArray):
        start = address_of(array) - address_of(owner)
        return array.home.view(twin, array.dtype, array.shape, array.strides, start)
    if dense(twin) is None or twin.strides != owner.strides:
        return array.copy(order="K")
    offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return over(twin, array.dtype, array.shape, array.strides, offset)
