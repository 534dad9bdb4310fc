"""Small programs that once showed a difference: what random programs have found stays mended."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

from test_programs import steps

import programs

PROGRAMS = {
    "a view of what is transposed later leads through the transposed value": (
        "v0 = rand(1, (2, 1)).requires_grad_()",
        "v1 = v0 / 1",
        "v2 = v1.unsqueeze(0)",
        "v3 = v1.t()[0]",
        "v1.transpose_(0, -1)",
        "v1.register_hook(lambda g: log.append(('h0', g)))",
        "(v2.sin().sum() + v3.sum()).backward(retain_graph=True, inputs=[v0, v1])",
        "v2.mul_(3)",
        "v1.squeeze_(0)",
        "(v3 * v2.flatten() * v1).sum().backward(inputs=[v0, v1])",
    ),
    "a view of what gets and loses dimensions can still be changed": (
        "v0 = rand(1, (3,)).requires_grad_()",
        "v1 = v0 * 2",
        "v2 = v1[1:]",
        "v1.unsqueeze_(0)",
        "v3 = v1[:, :2]",
        "v1.unsqueeze_(0)",
        "v2.mul_(v0[1:])",
        "v3.sin_()",
        "v1.squeeze_()",
        "(v1 * v2.sum() * v3.sum()).sum().backward()",
    ),
    "a hook of a node sees the outputs that can have a gradient": (
        "v0 = rand(1, (2, 3)).requires_grad_()",
        "v1 = v0.sort(-1)[0]",
        "v2, v3 = v0.unbind(0)",
        "v4 = F.layer_norm(v0, (3,))",
        "v1.grad_fn.register_hook(lambda gi, go: log.append(('h0', go)))",
        "v2.grad_fn.register_hook(lambda gi, go: log.append(('h1', go)))",
        "v4.grad_fn.register_prehook(lambda go: log.append(('h2', go)) or (go[0] * 2,))",
        "(v1.sum() + v2.sum() + (v4 * v4).sum()).backward()",
    ),
    "the hook of a fused norm sees one gradient": (
        "v0 = rand(1, (2, 3)).requires_grad_()",
        "v1 = F.rms_norm(v0, (3,))",
        "v1.grad_fn.register_hook(lambda gi, go: log.append(('h0', go)))",
        "v1.sin().sum().backward()",
    ),
    "an infinite gradient reaches only the greatest value": (
        "v0 = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)",
        "v0.max().backward(torch.tensor(float('inf')))",
        "v0.min().backward(torch.tensor(float('nan')))",
    ),
    "a scaled complex sum keeps nothing that backward uses up": (
        "v0 = rand(1, (2,), torch.complex128).requires_grad_()",
        "v1 = torch.add(v0, v0.clone(), alpha=2)",
        "v2 = torch.rsub(v0, v0.clone(), alpha=2 - 1j)",
        "(v1 + v2).backward(rand(2, (2,), torch.complex128))",
        "(v1 - v2).backward(rand(3, (2,), torch.complex128))",
    ),
    "a scaled difference with booleans is refused": (
        "v0 = rand(1, (2,)).requires_grad_()",
        "v1 = torch.sub(v0, v0 > 0, alpha=2)",
    ),
    "a view made without recording of what no longer requires a gradient can be changed": (
        "v0 = rand(1, (2, 2)).requires_grad_()",
        "with torch.no_grad(): v1 = v0.unsqueeze(-1)",
        "v0.requires_grad_(False)",
        "v1.cumsum_(0)",
        "v1.mul_(2)",
    ),
    "the whole of a value written anew leaves nothing that backward uses up": (
        "v0 = rand(1, (2, 3)).requires_grad_()",
        "v1 = rand(2, (2, 3))",
        "v1[...] = v0",
        "v2 = grad((v1 + (v1 + 1)).sum(), [v0])",
        "(v1 * v1).sum().backward()",
    ),
    "running products of one element pass the gradient on": (
        "v0 = rand(1, (1, 3)).requires_grad_()",
        "v0.cumprod(0).sum().backward(create_graph=True)",
    ),
    "a copy in another shape need not be a view": (
        "v0 = rand(1, (5, 1, 1)).expand(5, 5, 5)",
        "v1 = torch.view_copy(v0, (25, 5))",
        "v2 = torch.view_copy(v0[0, 0], torch.int64)",
    ),
    "a group of one value has no deviation": (
        "v0 = rand(1, (1, 1))",
        "v1 = torch.group_norm(v0, 1)",
        "v2 = F.group_norm(v0, 1)",
    ),
    "results that are shaped last are no views": (
        "v0 = rand(1, (1, 4, 2, 2)).requires_grad_()",
        "v1 = torch.put(v0 * 1, torch.tensor([0]), v0[0, 0, 0, :1])",
        "v2, v3 = F.pixel_shuffle(v0, 2), F.group_norm(v0, 2)",
        "v1.register_hook(lambda g: log.append(('h0', g)) or g * 2)",
        "v2.register_hook(lambda g: log.append(('h1', g)))",
        "v3.register_hook(lambda g: log.append(('h2', g)))",
        "v1.square_()",
        "v2.sin_()",
        "v3.mul_(3)",
        "(v1.sum() + v2.sum() + (v3 * v3).sum()).backward()",
    ),
    "nor are pooled planes without a batch": (
        "v0 = rand(1, (2, 2, 4)).requires_grad_()",
        "v1 = F.max_pool2d(v0, 2)",
        "v1.register_hook(lambda g: log.append(('h0', g)) or g * 2)",
        "v1.square_()",
        "v1.sum().backward()",
    ),
    "the product of a single number passes the gradient on": (
        "v0 = rand(1, (4,)).requires_grad_()",
        "v0.max().prod().backward(create_graph=True)",
    ),
    "cosine similarity of integers and floats": (
        "v0 = rand(1, (2, 3))",
        "v1 = F.cosine_similarity(v0, torch.tensor([[1, 2, 3], [3, 0, 1]]))",
        "v2 = F.cosine_similarity(torch.tensor([[1, 2, 3]]), torch.tensor([[3, 0, 1]]))",
    ),
    "a truncated half quotient is rounded first, whatever the size": (
        "v0 = torch.full((40000,), 3.0, dtype=torch.float16)",
        "v1 = torch.div(v0, torch.full((40000,), 0.3, dtype=torch.float16), rounding_mode='trunc')",
    ),
    "an empty complex batch is normalised": (
        "v0 = rand(1, (0, 8, 8), torch.complex128)",
        "v1 = F.batch_norm(v0, None, None, training=True)",
    ),
    "a checkpoint runs again on what its inputs are by then": (
        "v0 = rand(1, (3, 2)).requires_grad_()",
        "v1 = v0.exp()",
        "v2 = checkpoint(lambda a, b: a + b, v1, v1 * 2, use_reentrant=True)",
        "v3 = checkpoint(lambda a: a.exp() * a, v0, use_reentrant=True)",
        "v1.detach_()",
        "v2.sum().backward()",
        "with torch.no_grad(): v0.requires_grad_(False)",
        "v3.mean().backward()",
    ),
    "a group norm keeps a copy of what is not in order": (
        "v0 = rand(1, (4, 4)).mT.requires_grad_()",
        "v1 = v0 - 0.5",
        "v2 = F.group_norm(v1, 1)",
        "v1[..., :1].zero_()",
        "(v2 * v2).sum().backward()",
        "v3 = rand(2, (2, 4, 3)).requires_grad_()",
        "v4 = v3 - 0.5",
        "v5 = F.group_norm(v4, 2)",
        "v4.zero_()",
        "(v5 * v5).sum().backward()",
    ),
    "running products of nothing pass the gradient on": (
        "v0 = rand(1, (3,)).requires_grad_()",
        "v0[:0].cumprod(0).sum().backward(create_graph=True)",
    ),
    "what renorm gives is in order": (
        "v0 = rand(1, (1, 2, 4, 4)).requires_grad_()",
        "v1 = v0.tanh().transpose(0, -1).renorm(2, 0, 1.0)",
        "v2 = v1.reshape(-1, 2)",
        "v2.pow_(2)",
        "v1.sum().backward()",
    ),
    "a view goes on saying of gradients what its base says": (
        "v0 = rand(1, (3, 3)).requires_grad_()",
        "with torch.no_grad(): v1 = v0.diagonal()",
        "v1.requires_grad_(False)",
        "v2 = v1 * 2",
        "v1.requires_grad_()",
        "(v1 * 3).sum().backward()",
        "v1.requires_grad_(False)",
        "v0.requires_grad_(False)",
        "v3 = v1 * 2",
    ),
    "slices that take all are the tensor itself to what is written": (
        "v0 = rand(1, (2, 3)).requires_grad_()",
        "v1, v2, v3, v4 = v0 * 1, v0 * 1, v0 * 1, v0 * 1",
        "v1[:2] = v0 * 2",
        "v2[..., 0:9:1] = v0 * 2",
        "v3[:, :2] = v0[:, :2] * 2",
        "v4[-2:] = v0 * 2",
        "grad((v1 * v2 * v3 * v4).sum(), [v0])",
        "v1.sum().backward()",
        "v2.sum().backward()",
        "v3.sum().backward()",
        "v4.sum().backward()",
    ),
    "without elements there is an order too": (
        "v0 = rand(1, (1, 2, 4, 4)).requires_grad_()",
        "v1, v2 = v0.split([1, 0])",
        "v3 = v2.contiguous(memory_format=torch.channels_last)",
        "v3.sigmoid_()",
    ),
    "results of composites are no views": (
        "v0 = rand(1, (3, 3)).requires_grad_()",
        "v1 = torch.linalg.solve(v0 + 4 * torch.eye(3, dtype=torch.float64), v0[0] * 1)",
        "v2 = torch.stft(v0.flatten(), 4, return_complex=True, window=torch.ones(4).double())",
        "v3 = torch.linalg.solve_triangular(v0 + 0, v0 * 2, upper=True, left=False)",
        "v1.register_hook(lambda g: log.append(('h0', g)) or g * 2)",
        "v3.register_hook(lambda g: log.append(('h1', g)) or g * 2)",
        "v1.mul_(2)",
        "v3.sin_()",
        "(v1.sum() + v2.abs().sum() + v3.sum()).backward()",
        "v1.detach_()",
        "v2.detach_()",
        "v3.detach_()",
    ),
    "given bin edges stay apart from those that are returned": (
        "v0, v1 = rand(1, (5,)), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)",
        "v2, v3 = torch.histogram(v0, v1)",
        "v3.mul_(2)",
    ),
    "no maximum of nothing, before there is none of complex numbers": (
        "v0 = rand(1, (0,), torch.complex64)",
        "v1 = v0.max(-1)",
    ),
    "the gate of glu comes from the input as it is when backward runs": (
        "v0 = rand(1, (4, 3)).requires_grad_()",
        "v1 = F.glu(v0, 0)",
        "v0.data.copy_(rand(2, (4, 3)))",
        "(v1 * v1.detach()).sum().backward()",
    ),
    "a slice that requires no gradient any more keeps the one that it has": (
        "v0 = rand(1, (8, 4))[::2].requires_grad_()",
        "v1 = v0 * v0",
        "v1.sum().backward(retain_graph=True)",
        "v0.requires_grad_(False)",
        "v1.sum().backward()",
    ),
    "a loss of a view made without recording uses up what both its gradients would need": (
        "v0 = rand(1, (2, 2)).requires_grad_()",
        "with torch.no_grad(): v1 = v0.unsqueeze(-1)",
        "v2, v3, v4 = F.mse_loss(v1, v1), v1 * v1, v1 / (v1 * v1 + 1)",
        "v2.backward()",
        "v2.backward()",
        "v3.sum().backward()",
        "v3.sum().backward()",
        "v4.sum().backward()",
        "v4.sum().backward()",
    ),
    "windows of nothing are views, of half types too": (
        "v0 = rand(1, (2, 0), torch.bfloat16)",
        "v1, v2 = v0.unfold(0, 2, 1), v0.as_strided((0, 1), (1, 1))",
        "v1.mul_(2)",
        "v2.mul_(2)",
    ),
    "a result of another shape changes its place once": (
        "v0, v1, v2 = rand(1, (2, 3)), rand(2, (4,)), rand(3, (2,))",
        "v3 = torch.zeros(2, dtype=torch.int64)",
        "torch.add(v0, 1, out=v1)",
        "torch.max(v0, 1, out=(v2, v3))",
        "torch.cat([v0, v0], out=v2)",
    ),
    "distances of empty points of half types": (
        "v0 = rand(1, (2, 0), torch.bfloat16).requires_grad_()",
        "v1, v2 = torch.cdist(v0, v0), torch.cdist(v0.t(), v0.t(), 1.0)",
        "v3 = torch.cdist(rand(2, (2, 0), torch.float16), rand(3, (1, 0), torch.float16))",
        "v1.sum().backward()",
    ),
    "the gradient of a scale does not hang on values that require none": (
        "v0 = rand(1, (3,)).requires_grad_()",
        "F.rms_norm(rand(2, (2, 3)), (3,), v0).sum().backward(create_graph=True)",
    ),
    "what is empty and joined has a gradient without history": (
        "v0 = rand(1, (0,)).requires_grad_()",
        "v1 = torch.cat([v0, v0])",
        "(v1 * v1).sum().backward(create_graph=True)",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_mended(name: str) -> None:
    assert programs.difference(steps(*PROGRAMS[name])) is None
