"""What functions say to unusual and to wrong arguments: PyTorch's results, errors and warnings."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from side_by_side import needs_torch, shown, torch

EXPRESSIONS = """
torch.nn.functional.dropout2d(torch.zeros(1, 2, 2))
torch.nn.functional.dropout2d(torch.zeros(1, 2, 2), training=False)
torch.nn.functional.dropout2d(torch.zeros(2))
torch.nn.functional.feature_alpha_dropout(torch.zeros(2), training=True)
torch.nn.functional.embedding_bag(torch.tensor([[11, 8]]), torch.ones(10, 2))
torch.nn.functional.embedding_bag(torch.tensor([[-1, 8]]), torch.ones(10, 2), mode="sum")
torch.nn.functional.embedding_bag(torch.tensor([[11, 8]]), torch.ones(10, 2), padding_idx=0)
torch.nn.functional.embedding_bag(torch.tensor([[1, 12]]), torch.ones(10, 2), mode="max")
torch.topk(torch.ones(3), 2.0)
torch.topk(torch.ones(3), True)
torch.topk(torch.tensor([1.0, 3, 2]), torch.tensor(2))
torch.kthvalue(torch.ones(3), 1.5)
torch.kthvalue(torch.ones(3), True)
torch.tile(torch.arange(2), (3,))
torch.tile(torch.arange(2), (1.5,))
torch.roll(torch.arange(3), 1.0)
torch.roll(torch.arange(3), 1, 0.5)
torch.roll(torch.arange(3), [True])
torch.roll(torch.arange(3), torch.tensor(1))
torch.triu_indices(2, 3, 1.0)
torch.tril_indices(2.5, 3)
torch.repeat_interleave(torch.ones(3), 2.5)
torch.histogram(torch.ones(3), 1.5)
torch.unravel_index(torch.tensor([1, 5], dtype=torch.uint8), (2, 3))
torch.allclose(torch.ones(2), torch.ones(2), rtol=float("nan"))
torch.isclose(torch.ones(2), torch.ones(2), atol=float("nan"))
torch.diff(torch.ones(3), 0, 7)
torch.diff(torch.ones(3), 0, 0.5)
torch.fft.fftshift(torch.tensor(1.0))
torch.linalg.tensorinv(torch.tensor(1.0), ind=3)
torch.linalg.slogdet(torch.full((2, 2), float("nan")))
torch.linalg.slogdet(torch.tensor([[1.0, float("nan")], [0, 1]]))
torch.trapezoid(torch.ones(2, 3), torch.ones(1, 2, 3), dim=1)
torch.trapezoid(torch.ones(2, 3), torch.arange(6.0).reshape(2, 3), dim=0)
torch.cumulative_trapezoid(torch.ones(2, 3), torch.ones(1, 2, 3))
torch.special.chebyshev_polynomial_t(torch.tensor(0.5), float("nan"))
torch.special.hermite_polynomial_h(torch.tensor(0.5), torch.tensor(float("inf")))
torch.ones(1).index_add(0, torch.tensor([0]), torch.tensor(2.0))
torch.tensor(1.0).index_add(0, torch.tensor([0]), torch.ones(1))
torch.tensor(1.0).index_reduce(0, torch.tensor([0]), torch.ones(1), "amax")
torch.ones(3).index_fill(0, torch.tensor([0], dtype=torch.int32), 2.0)
torch.ones(3, dtype=torch.uint8).index_fill(0, torch.tensor([0]), -1.5)
torch.ones(3, dtype=torch.uint8).index_fill(0, torch.tensor([0]), -1)
torch.ones(3, 3).index_put((torch.tensor([0]),), torch.ones(1, 1, 3))
torch.ones(3).index_put((torch.tensor([0, 1]),), torch.ones(1))
torch.masked.cumsum(torch.tensor([1, 2], dtype=torch.uint8), 0)
torch.masked.cumprod(torch.tensor([1, 2], dtype=torch.int32), 0, mask=torch.tensor([True, False]))
torch.masked.cumsum(torch.ones(2), 0, mask=torch.ones(1, 2, dtype=torch.bool))
torch.masked.logaddexp(torch.ones(2, dtype=torch.float16), torch.ones(2))
torch.masked.var(torch.tensor([True, False]))
torch.nn.functional.multi_margin_loss(torch.full((2, 3), float("nan")), torch.tensor([0, 1]))
torch.nn.functional.multi_margin_loss(torch.tensor([[float("nan"), 1, 2]]), torch.tensor([1]))
torch.nn.functional.multilabel_margin_loss(torch.full((3,), float("inf")), torch.tensor([0, -1, 1]))
torch.nn.functional.multilabel_margin_loss(torch.ones(2), torch.tensor([0, 1], dtype=torch.int32))
torch.nn.functional.hinge_embedding_loss(torch.arange(3), torch.tensor([1, -1, 1]))
torch.nn.functional.hinge_embedding_loss(torch.arange(3), torch.tensor([1, -1, 1]), reduction="sum")
torch.nn.functional.mse_loss(torch.arange(3), torch.ones(3))
torch.nn.functional.mse_loss(torch.arange(3), torch.arange(3))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(1, 4))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(2, 1))
torch.nn.functional.linear(torch.ones(3), torch.ones(4, 3), torch.ones(1, 4))
torch.nn.functional.linear(torch.ones(5, 2, 3), torch.ones(4, 3), torch.ones(2, 4))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(3, 4))
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.zeros(1, 3), torch.ones(3))
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.zeros(3).double(), torch.ones(3))
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3).half())
torch.nn.functional.batch_norm(torch.ones(2, 3).half(), torch.zeros(3), torch.ones(3))
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3), torch.ones(1, 3))
torch.nn.functional.instance_norm(torch.ones(2, 3, 4), weight=torch.ones(1, 3))
torch.nn.functional.instance_norm(torch.ones(2, 3, 4), weight=torch.ones(1))
torch.nn.functional.instance_norm(torch.ones(2, 3, 4), torch.zeros(3).double(), torch.ones(3))
torch.nn.functional.pad(torch.ones(0, 3), (1, 1), mode="reflect")
torch.nn.functional.pad(torch.ones(0, 2, 3), (1, 1), mode="reflect")
torch.nn.functional.pad(torch.ones(0, 2, 3), (1, 1, 1, 1), mode="replicate")
torch.nn.functional.interpolate(torch.ones(1, 1, 4), size=0, mode="area")
torch.nn.functional.interpolate(torch.ones(1, 1, 4), size=0)
torch.nn.functional.conv_transpose1d(torch.ones(4, 3, 1), torch.ones(3, 3, 2), padding=1)
torch.nn.functional.grid_sample(torch.ones(1, 1, 2, 2) * torch.nan, torch.full((1, 1, 1, 2), 9.0))
torch.nn.functional.grid_sample(torch.ones(1, 1, 2, 2), torch.full((1, 1, 1, 2), float("nan")))
torch.nn.functional.grid_sample(torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 1, 1, 3) * torch.nan)
torch.arange(0, 4, out=torch.zeros(7))
torch.range(0, 4)
torch.dstack(torch.zeros(2))
torch.hstack(torch.zeros(2))
torch.vstack(torch.zeros(2))
torch.column_stack(torch.zeros(2))
torch.stack(torch.zeros(2))
torch.zeros(2, 2).flip()
torch.zeros(2, 2).flip(0, 1)
torch.flip(torch.zeros(2, 2))
torch.flip(torch.zeros(2, 2), 0)
torch.flip(torch.zeros(2, 2), (0, 0))
torch.flip(torch.arange(4).reshape(2, 2), [0])
torch.cat([torch.zeros(0), torch.zeros(0)], dim=1)
torch.cat([torch.zeros(0), torch.zeros(2, 3)], dim=1)
torch.cat([torch.zeros(0, 2), torch.zeros(0, 2)], dim=2)
torch.cat([torch.ones(3), torch.ones(3)], out=torch.zeros(6, dtype=torch.uint8))
torch.hann_window(3, layout=torch.sparse_coo)
torch.signal.windows.hann(3, layout=torch.sparse_coo)
torch.kaiser_window(3, dtype=torch.long)
torch.complex(torch.tensor([1]), torch.tensor([1]))
torch.complex(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
torch.polar(torch.tensor([1]), torch.tensor([1]))
torch.polar(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
torch.asarray(np.float32(3.0), copy=False)
torch.frombuffer([1, 2], dtype=torch.int32)
torch.frombuffer(b'abcdabcd', dtype=torch.int32)
torch.tensor([0, 'torch'])
torch.tensor(['torch', 0])
torch.tensor([[1, 2], ['a', 'b']])
torch.tensor((lambda x: x.append(x) or x)([0]))
torch.Tensor(torch.tensor([1.0]), device='cpu')
torch.tensor([1]).new(torch.tensor([1]), device='cpu')
torch.empty_strided((2**62,), (8,))
torch.empty_strided((3,), (2**62,))
torch.meshgrid(torch.arange(2), torch.arange(3))
torch.meshgrid(torch.arange(2), torch.arange(3), indexing='ij')
torch.nonzero(torch.tensor([1, 0]), as_tuple=True, out=torch.empty(0, dtype=torch.long))
torch.hash_tensor(torch.zeros(2, 0), dim=1)
torch.searchsorted(torch.tensor([1.0, 2.0]), torch.tensor([1, 2], dtype=torch.int32))
torch.searchsorted(torch.tensor([1, 2]), torch.tensor([1.5, 1.0]))
torch.searchsorted(torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([-1, 300]))
torch.searchsorted(torch.tensor([1.0, 2.0]), torch.tensor(1.00000001, dtype=torch.float64))
torch.searchsorted(torch.arange(4.0).view(2, 2).t(), torch.ones(2, 2))
torch.bucketize(torch.tensor([1.5]), torch.tensor([1, 2]))
torch.randint(6, (2,), dtype=torch.complex64)
torch.zeros(2, layout=torch.sparse_coo, out=torch.zeros(2))
torch.add(torch.tensor(True), torch.tensor(True), True)
torch.add(torch.tensor([1.0]), torch.tensor(2.0), torch.tensor([3.0]))
torch.zeros(2).uniform_(1, 0)
torch.zeros(2).half().uniform_(-1e5, 0)
torch.zeros(2).uniform_(0, math.inf)
torch.zeros(2).uniform_(-3e38, 3e38)
torch.zeros(2).random_(2, 1)
torch.zeros(2).random_(0, 2**30).shape
torch.zeros(2).random_(2**25 + 1, 2**30).shape
torch.zeros(2, dtype=torch.half).random_(0, 10**5)
torch.zeros(2, dtype=torch.half).random_(0, 3000).shape
torch.zeros(2, dtype=torch.bfloat16).random_(0, 257).shape
torch.zeros(2, dtype=torch.bfloat16).random_(0, 258).shape
torch.zeros(2, dtype=torch.complex64).random_(0, 3)
torch.zeros(2).random_(-2**70, 3)
torch.randperm(65537, dtype=torch.half)
torch.randperm(2049, dtype=torch.half).shape
torch.randperm(255, dtype=torch.uint8).shape
torch.randperm(256, dtype=torch.uint8).shape
torch.randperm(257, dtype=torch.uint8)
torch.randperm(300, out=torch.empty(3, dtype=torch.uint8))
torch.randperm(3, dtype=torch.bool)
torch.randperm(-1)
torch.unravel_index(torch.tensor(0.5), (2, 2))
torch.unravel_index(torch.tensor(5), (2, 0.5))
torch.unravel_index(torch.tensor(3), (2, 2))
torch.add(True, True)
torch.add(5, 5)
torch.add(2, 1j)
torch.add(1, 1, alpha=True)
torch.ones(2).add(1, alpha=True)
torch.sub(torch.ones(2).int(), 1, alpha=True)
torch.add(torch.tensor(True), True, alpha=True)
torch.arange(0, 1e30)
torch.unravel_index(torch.tensor([1]), torch.tensor([1, 2, 3]))
torch.sub(1, 2)
torch.mul(2, 3)
torch.div(2, 3)
torch.maximum(1, 2)
torch.zeros(3)[torch.tensor(1).short()]
torch.zeros(3)[torch.tensor([1]).short()]
torch.zeros(3)[-2**63]
torch.zeros(3)[2**63]
torch.zeros(3)[torch.tensor([1, 0, 1], dtype=torch.uint8)]
torch.zeros(3, 3)[torch.tensor([1, 0, 1], dtype=torch.uint8), torch.ones(3).byte()]
torch.rand([]).index_put([], torch.tensor([1.0]), True)
torch.rand(3).index_put([], torch.tensor(1.0))
torch.device('cuda:')
torch.device('cuda', -1)
torch.device(-1)
torch.device('cuda:1,2')
torch.Size([1]) + [2]
torch.Size([1]) + Wildcard()
torch.set_num_threads(2**65)
torch.set_num_interop_threads(-1)
torch.use_deterministic_algorithms(1)
torch.use_deterministic_algorithms(False, warn_only=1)
torch.zeros(2).apply_(lambda v: 'x')
torch.zeros(2).map_(torch.zeros(2, dtype=torch.double), lambda a, b: a)
torch.zeros(2).map2_(torch.zeros(2), torch.zeros(2), lambda a, b, c: 'x')
torch.zeros(2).map2_(torch.zeros(2), torch.zeros(2, requires_grad=True), lambda a, b, c: a)
torch.zeros(2).map2_(torch.ones(1), torch.ones(2), lambda a, b, c: b + c)
torch.ones(3, 3).new(size=(3, 4)).shape
torch.ones(2).new(torch.ones(2).double().storage())
torch.isclose(torch.ones(2), torch.ones(2), torch.tensor(1.5), torch.tensor(1))
torch.isclose(torch.ones(2), torch.ones(2), torch.ones(2))
torch.isclose(torch.ones(2), torch.ones(2), 1.0, torch.tensor(1.0, requires_grad=True))
torch.cumsum(torch.ones(3), 0.0)
torch.cumsum(torch.ones(3), torch.tensor(0))
torch.cumsum(torch.ones(3), torch.tensor([0]))
torch.cumsum(torch.ones(3), torch.tensor(0.0))
torch.cumsum(torch.ones(3), np.int64(0))
torch.cumsum(torch.ones(3), True)
torch.ones(3).type(torch.Tensor).dtype
torch.ones(3).int().type(torch.Tensor).dtype
torch.ones(3).type(int)
torch.gradient(torch.arange(4.0))
torch.addcdiv(torch.ones(2), 2, torch.ones(2), torch.ones(2))
torch.addcmul(torch.ones(2), 2, torch.ones(2), torch.ones(2))
torch.ones(2).addcmul_(2, torch.ones(2), torch.ones(2))
float(torch.tensor(1.0, requires_grad=True))
complex(torch.tensor(1.0, requires_grad=True))
int(torch.tensor(1.0, requires_grad=True))
torch.tensor(1.0, requires_grad=True).item()
torch.cov(torch.tensor([[1 + 1j], [2]]))
torch.linspace(1j, 2, 3, dtype=torch.float32)
torch.linspace(1j, 2, 3, dtype=torch.int32)
torch.logspace(1j, 2, 3, dtype=torch.float32)
torch.linspace(0, 1, 3, dtype=torch.bool)
torch.linspace(0, 1, 2.5)
torch.linspace(0, 1, 3, dtype=torch.float32, out=torch.zeros(3, dtype=torch.float64))
torch.tensor(Items([1.0, 2.0]))
torch.tensor(NoItems([1.0, 2.0]))
torch.asarray(torch.ones(2).__dlpack__())
torch.asarray(torch.ones(2, dtype=torch.bfloat16).__dlpack__())
torch.from_dlpack(torch.ones(2).bfloat16().__dlpack__())
torch.from_dlpack(torch.ones(2).bfloat16())
torch.from_dlpack(torch.tensor([True, False]))
torch.asarray(memoryview(np.arange(5)), dtype=torch.int64)
torch.asarray(torch.ones(2, requires_grad=True) * 1).requires_grad
torch.asarray(torch.ones(2, requires_grad=True) * 1, requires_grad=True).is_leaf
torch.asarray(torch.ones(2, requires_grad=True) * 1, requires_grad=False).requires_grad
torch.asarray(torch.ones(2, requires_grad=True), dtype=torch.float64).grad_fn is None
torch.asarray(torch.ones(2, requires_grad=True), copy=True).is_leaf
torch.add(torch.tensor(True), 1, torch.tensor(True))
torch.add(torch.ones(2), 3, torch.ones(2))
torch.add(torch.ones(2), torch.ones(2), 2)
torch.add(torch.ones(2), 3, torch.ones(2), 4)
torch.sub(torch.ones(2), 3, torch.ones(2))
torch.ones(2).add(3, torch.ones(2))
torch.ones(2).add_(3, torch.ones(2))
torch.ones(2).sub_(3, torch.ones(2))
torch.addmm(2, torch.ones(2, 2), 3, torch.ones(2, 2), torch.ones(2, 2))
torch.addmm(2, torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2))
torch.ones(2, 2).addmm(2, torch.ones(2, 2), torch.ones(2, 2))
torch.addmm(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2), 3)
torch.addmv(2, torch.ones(2), 3, torch.ones(2, 2), torch.ones(2))
torch.addr(2, torch.ones(2, 2), 3, torch.ones(2), torch.ones(2))
torch.addbmm(2, torch.ones(2, 2), 3, torch.ones(2, 2, 2), torch.ones(2, 2, 2))
torch.baddbmm(2, torch.ones(2, 2, 2), 3, torch.ones(2, 2, 2), torch.ones(2, 2, 2))
torch.add(x1=torch.ones(2), x2=torch.ones(2))
torch.div(torch.ones(2), x2=torch.ones(2))
torch.mean(a=torch.ones(3, 2), axis=0, keepdims=True)
torch.softmax(torch.ones(3), axis=0)
torch.max(torch.ones(3), x2=torch.zeros(3))
torch.clamp(x=torch.ones(2), max=0)
torch.mm(x1=torch.ones(2, 2), x2=torch.ones(2, 2))
torch.cat([torch.ones(2, 1), torch.ones(2, 1)], axis=1)
torch.stack([torch.ones(2), torch.ones(2)], axis=1)
torch.squeeze(torch.ones(1, 1, 2), axis=0)
torch.unbind(torch.ones(1, 2), axis=1)
torch.sum(torch.ones(3, 4), 0, out=torch.ones(4), dtype=torch.float64)
torch.sum(torch.ones(3, 4), 0, out=torch.ones(4), dtype=torch.float32)
torch.prod(torch.ones(3, 4), 0, out=torch.ones(4, dtype=torch.int32), dtype=torch.int16)
torch.cumsum(torch.ones(3), 0, out=torch.ones(3), dtype=torch.float64)
torch.cumprod(torch.ones(3), 0, out=torch.ones(3), dtype=torch.complex64)
torch.mean(torch.ones(3, 4), 0, out=torch.ones(4), dtype=torch.float64)
torch.mean(torch.ones(3, 4), 0, out=torch.ones(4, dtype=torch.float64))
torch.nansum(torch.ones(3, 4), 0, out=torch.ones(4), dtype=torch.float64)
torch.nanmean(torch.ones(3, 4), 0, out=torch.ones(4), dtype=torch.float64)
torch.nonzero_static(torch.tensor([8]), size=1, out=torch.empty(1, 1))
torch.nonzero_static(torch.tensor([8]), size=1, out=torch.empty(0, dtype=torch.long))
torch.histc(torch.tensor([-1e38, 0, 1e38]), 4)
torch.histc(torch.tensor([1.0, 1.0, 0.5, 1.5]), 4, min=1, max=1 + 1e-10)
torch.Size([1]) + 1
torch.Size([1]) * 2.5
torch.Size([1]) * Wildcard()
torch.histc(torch.tensor([1e30, 1e30]), 4, min=1e30, max=1e30)
torch.tensor([[1, 2], 3])
torch.tensor([1, [2]])
torch.tensor([[[1], [2]], [[1], 2]])
torch.tensor([[1.5], [[2]]])
torch.from_numpy(np.zeros(3, [('a', 'u1'), ('b', 'f4')])['b'])
torch.empty(0, 4, 2**61)
torch.empty(()).resize_([2, 4, 2**29, 2**29])
torch.empty(()).resize_([0, 4, 2**61])
torch.empty_strided((2**40, 2**40), (2**40, 1))
torch.eye(2**40)
torch.UntypedStorage(np.int16(3)).size()
torch.FloatStorage(np.int16(3)).untyped().size()
torch.ones(2, requires_grad=True).view(torch.float32)
torch.ones(2).view(torch.float32)._is_view()
torch.view_as_complex(torch.zeros(0).reshape(0, 2))._is_view()
torch.index_select(torch.zeros(0, 3), 0, torch.tensor([0, 1]))
torch.index_select(torch.zeros(0, 3), 1, torch.tensor([0, 1]))
torch.index_select(torch.zeros(3, 0), 0, torch.tensor([5]))
torch.index_select(torch.zeros(0), 0, torch.tensor([0]))
torch.normal(torch.zeros(2, 3), torch.ones(6))
torch.normal(torch.zeros(2, 1), torch.ones(1, 3)).shape
torch.ones(2, 3).dim_order(ambiguity_check=True)
torch.ones(2, 1).dim_order(ambiguity_check=True)
torch.ones(2, 3).dim_order(ambiguity_check='x')
torch.ones(2, 3).dim_order(ambiguity_check=['x'])
torch.ones(2, 2, 1, 2).dim_order(ambiguity_check=[torch.contiguous_format])
torch.ones(2, 3, 1, 1).dim_order(ambiguity_check=[torch.contiguous_format])
torch.ones(2, 1, 3, 1).dim_order(ambiguity_check=[torch.contiguous_format, torch.channels_last])
torch.zeros(2, 1).expand(2, 4).dim_order(ambiguity_check=True)
torch._check_tensor_all(True)
torch._check_tensor_all(torch.ones(1))
torch._check_tensor_all(torch.zeros(2).bool())
torch._check_tensor_all(torch.ones(2).bool())
torch.set_default_tensor_type(torch.FloatTensor)
torch.from_numpy(np.frombuffer(b'abcd', np.uint8))
"""

# In place on memory that is shared, within the tensor or with what is read.
SHARING = """
expanded.index_fill_(0, places, 1.0)
expanded.index_put_((places,), values)
expanded.__setitem__(places, 2.0)
expanded.masked_fill_(torch.arange(6) < 3, 5.0)
expanded.put_(places, values)
expanded.index_add_(0, places, values)
expanded.index_copy_(0, places, values)
expanded.index_reduce_(0, places, values, 'prod')
expanded.scatter_(0, places, values)
expanded.scatter_(0, places, 1.0)
expanded.scatter_add_(0, places, values)
expanded.masked_scatter_(torch.ones(6).bool(), torch.ones(6))
expanded.addcmul_(torch.ones(6), torch.ones(6))
expanded.lerp_(torch.ones(6), 0.5)
floats.index_add_(0, places, floats[:2])
floats.index_copy_(0, places, floats[:2])
floats.index_reduce_(0, places, floats[:2], 'prod')
floats.scatter_(0, places, floats[:2])
floats.scatter_add_(0, places, floats[:2])
floats.put_(places, floats[:2])
floats.put_(places[0], floats[0])
floats.index_put_((places,), floats[:2])
floats.index_put_((places,), floats[:2], accumulate=True)
floats[2:4].__setitem__(slice(None), floats[3])
floats.__setitem__(slice(2, 4), floats[3:4])
floats.__setitem__(slice(2, 4), floats[1:3])
floats[1:].addcmul_(floats[:-1], floats[:-1])
floats.addcmul_(floats, floats)
floats[1:].lerp_(floats[:-1], 0.5)
floats.masked_fill_(torch.ones(6).bool(), floats[1])
whole.index_add_(0, whole[:2], torch.ones(2, dtype=torch.long))
whole.index_fill_(0, whole[:2], 1)
whole.scatter_(0, whole[:2], 1)
whole.put_(whole, whole)
whole.index_put_((whole[:2],), torch.tensor(1))
marks[1:].masked_fill_(marks[:-1], False)
marks.masked_fill_(marks, False)
"""


class Wildcard:
    """Can be added to anything, from the right, and multiplied with it."""

    def __radd__(self, other: Any) -> str:
        return "mine"

    __rmul__ = __radd__


class Items:
    """A length and items, but no Sequence."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> float:
        return self.values[i]


class NoItems(Items):
    def __getitem__(self, i: int) -> float:
        raise TypeError


def said(code: str, library: Any, **scope: Any) -> Any:
    """The value or the class of the error, and how the warnings begin."""
    scope |= {"torch": library, "math": math, "np": np}
    scope |= {"Wildcard": Wildcard, "Items": Items, "NoItems": NoItems}
    library.set_warn_always(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            value = shown(eval(code, scope))
        except Exception as error:
            value = type(error).__name__
    library.set_warn_always(False)
    told = [str(w.message)[:30] for w in caught if w.category is UserWarning]
    return value, [t for t in told if not t.startswith("TypedStorage is deprecated")]


@needs_torch
@pytest.mark.parametrize("code", EXPRESSIONS.strip().split("\n"))
def test_odd_arguments(code: str) -> None:
    assert said(code, weft) == said(code, torch)


@needs_torch
@pytest.mark.parametrize("code", SHARING.strip().split("\n"))
def test_writing_to_shared_memory(code: str) -> None:
    found = []
    for library in (weft, torch):
        one = library.zeros(1)
        scope = {
            "expanded": one.expand(6),
            "places": library.tensor([0, 1]),
            "values": library.tensor([3.0, 4.0]),
            "floats": library.arange(6.0),
            "whole": library.arange(6),
            "marks": library.tensor([True, False, True, True, False, True]),
        }
        after = said(code, library, **scope)
        found.append((after, {k: v.tolist() for k, v in scope.items() if k != "torch"}))
    assert found[0] == found[1]


def test_asarray_keeps_the_history() -> None:
    x = weft.ones(2, requires_grad=True)
    y = x * 3
    assert weft.asarray(y, requires_grad=True) is y
    weft.asarray(y, dtype=weft.float64, requires_grad=True).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_bfloat16_capsule_shares_memory() -> None:
    x = weft.ones(2, dtype=weft.bfloat16)
    weft.from_dlpack(x.__dlpack__()).fill_(5)
    assert x.tolist() == [5, 5]


def test_factors_first_in_place() -> None:
    x = weft.ones(2, 2)
    with pytest.warns(UserWarning, match="This overload of addmm is deprecated"):
        weft.set_warn_always(True)
        x.addmm_(2, 3, weft.ones(2, 2), weft.ones(2, 2))
        weft.set_warn_always(False)
    assert x.tolist() == [[8, 8], [8, 8]]


def test_triangular_solve_repeats_the_matrix_for_each_system() -> None:
    assert weft.triangular_solve(weft.ones(3, 2, 1), weft.eye(2))[1].shape == (3, 2, 2)


def test_gradient_of_an_empty_transposed_convolution() -> None:
    x = weft.ones(4, 3, 1, requires_grad=True)
    weight = weft.ones(3, 3, 2, requires_grad=True)
    weft.nn.functional.conv_transpose1d(x, weight, padding=1).sum().backward()
    assert not x.grad.any() and not weight.grad.any()


ZEROS = {
    "leaky_relu": lambda T, x, v: T.nn.functional.leaky_relu(x, v),
    "elu": lambda T, x, v: T.nn.functional.elu(x, v),
    "hardtanh": lambda T, x, v: T.nn.functional.hardtanh(x, v, 1.0),
    "threshold": lambda T, x, v: T.nn.functional.threshold(x, 0.5, v),
    "pad": lambda T, x, v: T.nn.functional.pad(x, (1, 1), value=v),
    "clamp": lambda T, x, v: x.clamp(min=v),
    "nan_to_num": lambda T, x, v: T.nan_to_num(x / x * 0, nan=v),
    "add": lambda T, x, v: T.add(x * 0, x, alpha=v),
    "masked_fill": lambda T, x, v: x.masked_fill(x > 0, v),
}


@needs_torch
@pytest.mark.parametrize("size", [8, 9000])
@pytest.mark.parametrize("name", ZEROS)
def test_a_negative_zero_is_not_taken_for_the_zero_before_it(name: str, size: int) -> None:
    values = np.linspace(-2, 2, size).astype(np.float32)
    for v in (0.0, -0.0, 0, 0.0, -0.0):
        ours, theirs = (ZEROS[name](T, T.from_numpy(values), v).numpy() for T in (weft, torch))
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs), err_msg=str(v))
