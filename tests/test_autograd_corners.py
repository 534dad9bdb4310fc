"""Rare uses of autograd, each run on PyTorch and on weft: what they give must be the same."""

from __future__ import annotations

import pytest

from side_by_side import agree, needs_torch

HOOKS = {
    "a node's hook after accumulation sees the gradient that became .grad": """
x = torch.ones(3, requires_grad=True)
node = x.view_as(x).grad_fn.next_functions[0][0]
x.register_hook(lambda g: g - 2)
node.register_prehook(lambda g: (g[0] / 5,))
x.register_post_accumulate_grad_hook(lambda t: [None, t.grad.add_(0.5)][0])
def after(into, out):
    x.grad = out[0] * 10
node.register_hook(after)
x.sum().backward()
x.grad
""",
    "backward to a tensor runs the hooks of its node, after what it keeps": """
seen = []
a = torch.tensor(1.0, requires_grad=True)
b = a.clone()
b.grad_fn.register_prehook(lambda g: seen.append(2) or (g[0] * 2,))
b.register_hook(lambda g: seen.append(1) or g * 3)
b.sum().backward(inputs=(b,))
(seen, b.grad)
""",
    "var_mean is one node with two gradients": """
x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
var, mean = torch.var_mean(x, dim=0)
seen = []
mean.grad_fn.register_prehook(lambda g: seen.append(len(g)) or tuple(t * 2 for t in g))
(var + mean).sum().backward()
(seen, x.grad, type(var.grad_fn).__name__, var.grad_fn is mean.grad_fn)
""",
    "the mean of one value has a gradient, its variance has not": """
x = torch.ones(1, requires_grad=True)
[torch.autograd.grad(torch.var_mean(x)[k], x)[0] for k in (1, 0)] + list(
    torch.autograd.grad(torch.std_mean(x)[1], x))
""",
}

FUNCTIONS = {
    "one of two leaves takes over the gradient that a function gives to both": """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b
    @staticmethod
    def backward(ctx, g):
        Sum.place = g.data_ptr()
        return g, g
a, b = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
Sum.apply(a, b)[1][0].backward()
(a.grad.data_ptr() == b.grad.data_ptr(), Sum.place in (a.grad.data_ptr(), b.grad.data_ptr()))
""",
}

CASES = {**HOOKS, **FUNCTIONS}


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_autograd_agrees(name: str) -> None:
    agree(CASES[name])
