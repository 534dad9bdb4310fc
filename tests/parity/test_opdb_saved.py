"""PyTorch's names for what nodes keep, over its op table: one sample of every op."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the op table comes from PyTorch, which is absent")
opdb_saved = pytest.importorskip("opdb_saved")

from side_by_side import agree  # noqa: E402

GROUPS = 12


@pytest.mark.parametrize("group", range(GROUPS))
def test_saved_names_and_values(group: int) -> None:
    found = opdb_saved.Findings()
    for name in opdb_saved.in_scope()[group::GROUPS]:
        opdb_saved.compare_op(name, 1, found)
    assert found.nodes.total() > 20
    assert not opdb_saved.unknown(found)


def test_only_known_nodes_have_other_edges() -> None:
    """Inputs that never get a gradient, such as indices and masks, have no edge."""
    found = opdb_saved.Findings()
    for name in ("gather", "scatter_add", "index_select", "masked_select", "addcmul", "clamp"):
        opdb_saved.compare_op(name, 3, found)
    assert not found.other_edges and found.nodes["GatherBackward0"]


CASES = {
    "a convolution of which only the weight needs a gradient": """
x, w = torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2, requires_grad=True)
n = torch.nn.functional.conv2d(x, w, stride=2).grad_fn
(n._saved_weight is w, n._saved_input is x, n._saved_transposed, n._saved_output_padding,
 n._saved_bias_sym_sizes_opt, n._saved_stride)""",
    "a transposed convolution": """
x, w = torch.ones(1, 1, 3, 3, requires_grad=True), torch.ones(1, 1, 2, 2)
n = torch.nn.functional.conv_transpose2d(x, w, torch.ones(1), stride=2, output_padding=1).grad_fn
(n._saved_weight is w,
 n._saved_transposed, n._saved_output_padding, n._saved_bias_sym_sizes_opt)""",
    "sizes and strides of the operands of a product": """
x, w = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
n = torch.nn.functional.linear(x, w, torch.ones(4)).grad_fn
(n._saved_mat1_sym_sizes, n._saved_mat1_sym_strides, n._saved_mat2_sym_sizes,
 n._saved_mat2_sym_strides, n._saved_alpha, n._saved_beta)""",
    "views": """
x = torch.ones(4, 5, requires_grad=True)
found = [x[1:3, ::2], x[1], x[:, -2:], x[0, 1:], x[None].squeeze(0), x.split(2)[0],
         x.unfold(0, 2, 1)]
[(n, getattr(y.grad_fn, n)) for y in found for n in sorted(dir(y.grad_fn))
 if n.startswith("_saved_")]""",
    "negative numbers": """
x = torch.ones(2, 3, requires_grad=True)
n = torch.nn.functional.nll_loss(x, torch.tensor([0, 1])).grad_fn
(n._saved_ignore_index, n._saved_total_weight, n._saved_reduction,
 torch.nn.functional.pad(x, (-1, 1)).grad_fn._saved_pad)""",
    "numbers": """
x = torch.ones(2, requires_grad=True)
((x * 2).grad_fn._saved_other, (x / 2.5).grad_fn._saved_other, (x**2).grad_fn._saved_exponent,
 (2**x).grad_fn._saved_self, (x * 2).grad_fn._saved_self, (2 * x).grad_fn._saved_other,
 x.clamp(max=2).grad_fn._saved_max, torch.lerp(x, x, 0.5).grad_fn._saved_weight)""",
    "no hooks on what was not saved": """
x = torch.ones(2, requires_grad=True)
(x * torch.ones(2)).grad_fn._raw_saved_self.register_hooks(lambda v: v, lambda v: v)""",
    "no hooks on what is no tensor": """
torch.ones(2, requires_grad=True).sum(0).grad_fn._raw_saved_dim""",
    "pooling of volumes": """
x = torch.ones(1, 1, 4, 4, 4, requires_grad=True)
F = torch.nn.functional
[F.avg_pool3d(x, 2).grad_fn.name(), F.max_pool3d(x, 2).grad_fn.name(),
 F.adaptive_avg_pool3d(x, 2).grad_fn.name(), F.adaptive_max_pool3d(x, 2).grad_fn.name()]""",
}


@pytest.mark.parametrize("case", CASES)
def test_corners(case: str) -> None:
    agree(CASES[case])
