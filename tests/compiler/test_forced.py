"""Functions that need no values to go on: a stretch goes through them."""

from __future__ import annotations

import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled

FUNCTIONS = {
    "group norm": lambda x, net: net["group"](x * 2),
    "group norm, changed in place": lambda x, net: net["bare"](x * 2).add_(1),
    "a mask of attention": lambda x, net: attended(x, net, attn_mask=True),
    "a padding mask": lambda x, net: attended(x, net, attn_mask=False),
    "exponential_": lambda x, net: torch.empty(4).exponential_() * (x * 2),
}


def networks():
    torch.manual_seed(0)
    return {
        "group": nn.GroupNorm(2, 4),
        "bare": nn.GroupNorm(2, 4, affine=False),
        "attention": nn.MultiheadAttention(8, 2, batch_first=True),
    }


def attended(x, net, attn_mask):
    """Attention that a mask keeps away from what depends on the input."""
    y = x.reshape(2, -1, 8)
    if attn_mask:
        length = y.shape[1]
        mask = (torch.ones(length, length) * 2).triu(1) > 1
        return net["attention"](y, y, y, attn_mask=mask, need_weights=False)[0]
    return net["attention"](y, y, y, key_padding_mask=y.sum(-1) > 2)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("grad", [True, False])
def test_no_value_is_read(name, grad):
    function, mine, theirs = FUNCTIONS[name], networks(), networks()

    def step(x, net):
        out = function(x, net)
        return out, out.sum()

    compiled = Compiled(step)
    with torch.set_grad_enabled(grad):
        for k in range(5):
            x = torch.randn(2, 4, 4, 4)
            found, views = [], []
            for run, net in ((compiled, mine), (step, theirs)):
                torch.manual_seed(k)
                out, total = run(x, net)
                views.append(out._is_view())
                if grad and total.requires_grad:
                    total.backward()
                parts = [p for module in net.values() for p in module.parameters()]
                found.append([out.detach(), *[p.grad for p in parts if p.grad is not None]])
            assert views[0] == views[1]
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    # A change of what is a view to the region, though to nobody else, is made at once.
    changed = (
        {"values were computed at this point in earlier calls"} if "in place" in name else set()
    )
    assert set(compiled.learned.reasons) == {"the region ended"} | changed
