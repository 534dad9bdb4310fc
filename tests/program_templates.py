"""What random programs write: expressions and statements with gaps for values and numbers."""

from __future__ import annotations

# Same shape and dtype; the gradient passes through as it is, or nearly so.
KEEPERS = (
    *("({x} + 1)", "({x} + 1)", "(1 + {x})", "({x} - 1)", "({x} - 0.5)", "{x}.add(2)"),
    *("{x}.clone()", "{x}.clone()", "{x}.expand_as({x})", "{x}.view_as({x})", "{x}.contiguous()"),
    *("{x}.to({x}.dtype)", "{x}[...]", "{x}.positive()", "{x}.reshape({x}.shape)"),
    *("{x}.unsqueeze(0).squeeze(0)", "{x}.unsqueeze(-1)[..., 0]", "{x}.broadcast_to({x}.shape)"),
    *(
        "{x}.flatten().view({x}.shape)",
        "F.dropout({x}, 0.5, False)",
        "Same.apply({x})",
        "Alias.apply({x})",
    ),
    *("torch.nn.Identity()({x})", "{x}.type_as({x})", "{x}.nan_to_num()", "torch.add({x}, 1)"),
    *("{x}.clone().add_(1)", "torch.stack([{x}])[0]", "torch.stack([{x}, {x}])[1]"),
    *("torch.stack([{x}, {x}]).sum(0)", "torch.atleast_1d({x}).view({x}.shape)"),
    *("torch.where({x} == 7, 0.0, {x})", "{x}.masked_fill({x} == 7, 0)", "{x}.detach()"),
    *("({x} * 1)", "({x} / 1)", "({x} * 2)", "(-{x})", "(3 - {x})", "{x}.mul(0.5)"),
    *("checkpoint(lambda a: a + 1, {x}, use_reentrant=False)", "Pair.apply({x})[0]"),
    *("{x}.view({x}.shape)", "{x}.sum_to_size({x}.shape)"),
)
KEEPERS_1D = (
    *("torch.cat([{x}])", "torch.cat([{x}, {x}])[:{n}]", "torch.cat({x}.split(1))"),
    *("torch.stack({x}.unbind(0))", "{x}.narrow(0, 0, {n})", "{x}[:{n}]", "{x}.flip(0).flip(0)"),
    *("{x}.split({n})[0]", "torch.split({x}, {n})[0]", "{x}.movedim(0, -1).movedim(-1, 0)"),
    *("{x}.transpose(0, -1).transpose(0, -1)", "{x}.roll(1, 0).roll(-1, 0)"),
    *("{x}.index_select(0, torch.arange({n}))", "{x}[torch.arange({n})]", "{x}.chunk(1)[0]"),
    *("torch.cat([{x}[:1], {x}[1:]])", "{x}.swapaxes(0, -1).contiguous().swapaxes(0, -1)"),
)
# Two of the same shape and dtype.
PAIRS = (
    *("{a} + {b}",) * 8,
    *("{a} - {b}", "{a} * {b}", "{a} * {b}", "torch.add({a}, {b}, alpha=2)"),
    *("torch.stack([{a}, {b}])", "sum([{a}, {b}, {a}])", "{a}.clone().add_({b})"),
    *("torch.where({a} == {b}, {a}, {b})", "{a}.lerp({b}, 0.25)", "torch.addcmul({a}, {a}, {b})"),
    *("{a} / ({b} * {b} + 1)", "{a}.add({b}).add({a})", "torch.sub({a}, {b})"),
    *("({a} * {b}).sum()", "F.mse_loss({a}, {b})", "torch.dot({a}.flatten(), {b}.flatten())"),
    *("torch.cat([{a}.flatten(), {b}.flatten()])", "{a}.mul({b}).mean()", "{a} + {b} + {a}"),
    *("torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "{a}.addcdiv({b}, {a} * {a} + 1)"),
    *("checkpoint(lambda a, b: a * b.sin(), {a}, {b}, use_reentrant=False)",),
    *("checkpoint(lambda a, b: a + b, {a}, {b}, use_reentrant=True)",),
    *("torch.atan2({a}, {b})", "torch.hypot({a}, {b})", "{a}.clone().copy_({b})"),
    *("torch.einsum('...,...->...', {a}, {b})", "torch.outer({a}.flatten(), {b}.flatten())"),
    *("{a}.flatten() @ {b}.flatten()", "F.smooth_l1_loss({a}, {b})", "F.l1_loss({a}, {b})"),
)
PAIRS_1D = (
    *("torch.cat([{a}, {b}])", "torch.cat([{a}, {b}], -1)", "torch.hstack([{a}, {b}])"),
    *("torch.cat([{a}, {b}, {a}])", "{a} @ {b}.mT", "torch.matmul({a}, {b}.mT)", "{a} @ {b}.T"),
    *(
        "F.cosine_similarity({a}, {b}, -1)",
        "F.pairwise_distance({a}, {b})",
        "torch.cdist({a}, {b})",
    ),
    *("F.linear({a}, {b})", "torch.einsum('...i,...i->...', {a}, {b})"),
)
UNARY = (
    *("sin()", "cos()", "exp()", "tanh()", "sigmoid()", "relu()", "abs()", "neg()", "square()"),
    *("softmax(-1)", "log_softmax(-1)", "cumsum(0)", "erf()", "reciprocal()", "pow(2)", "pow(3)"),
    *("sum()", "sum(0)", "sum(-1, keepdim=True)", "mean()", "mean(0)", "mean(-1, keepdim=True)"),
    *("amax(-1)", "amin(0)", "max()", "min()", "var()", "std()", "norm()", "prod()", "clone()"),
    *("max(-1)[0]", "min(0)[0]", "sort(-1)[0]", "logsumexp(-1)", "cumprod(0)", "clamp(-0.5, 0.5)"),
    *("flip(0)", "roll(1)", "tril()", "triu()", "expm1()", "atan()", "asinh()", "trace()"),
    *("square().add(1).sqrt()", "square().add(1).log()", "square().add(0.5).rsqrt()", "frac()"),
    *("repeat(2)", "repeat(2, 1)", "tile(2)", "cummax(0)[0]"),
    *("median()", "argmax()", "nonzero()", "floor()", "round()", "sign()", "to(torch.float32)"),
    *("to(torch.float64)", "half()", "bfloat16()", "real", "imag", "abs().sum()"),
    *("masked_select({x} > 0)", "gather(0, ({x} * 0).real.long())", "diag()", "sgn()", "angle()"),
    *("unfold(0, 2, 1).sum()", "renorm(2, 0, 1.0)", "index_add(0, torch.tensor([0]), {x}[:1])"),
    *("index_select(0, torch.tensor([0, 0, 0]))", "var(0)", "std(-1)", "diff()", "logcumsumexp(0)"),
)
FUNCTIONS = (
    *("F.gelu({x})", "F.silu({x})", "F.softplus({x})", "F.elu({x})", "F.leaky_relu({x}, 0.1)"),
    *("F.layer_norm({x}, {x}.shape[-1:])", "F.normalize({x}, dim=-1)", "F.pad({x}, (1, 1))"),
    *("F.hardtanh({x})", "F.mish({x})", "F.logsigmoid({x})", "F.glu({x}, 0)", "F.selu({x})"),
    *("Cube.apply({x})", "Pair.apply({x})", "Twice.apply({x} * 1)", "{x} @ {x}.mT", "{x}[{x} > 0]"),
    *(
        "{x} * {n}",
        "{n} - {x}",
        "{x} / {n}",
        "{x} ** 2",
        "{n} * {x}",
        "{x} + {n}",
        "1 / ({x} ** 2 + 1)",
    ),
    *("torch.logsumexp({x}, 0)", "torch.where({x} > 0, {x}, {n} * {x})", "{x}[[0, 0]]", "{x} % 2"),
    *("checkpoint(lambda a: (a * a).sin(), {x}, use_reentrant=False)", "{x}.T @ {x}"),
    *(
        "checkpoint(lambda a: a.exp() * a, {x}, use_reentrant=True)",
        "F.rms_norm({x}, {x}.shape[-1:])",
    ),
    *("torch.nn.Flatten(0)({x})", "F.relu({x} * 1, inplace=True)", "F.softmin({x}, -1)"),
    *(
        "torch.default_generator.manual_seed({s}) and F.dropout({x})",
        "F.avg_pool1d({x}, 2)",
        "F.max_pool1d({x}, 2)",
    ),
    *("F.batch_norm({x}, None, None, training=True)", "F.group_norm({x}, 1)", "F.unfold({x}, 2)"),
    *("F.interpolate({x}, scale_factor=2)", "F.avg_pool2d({x}, 2)", "F.max_pool2d({x}, 2)"),
    *(
        "F.conv2d({x}, {x}[:1])",
        "F.conv1d({x}, {x}[:1])",
        "F.scaled_dot_product_attention({x}, {x}, {x})",
    ),
)
VIEWS = (
    *("[0]", "[-1]", "[..., :1]", "[..., 1:]", "[::2]", "[:, ::2]", "[None]", "[..., 0]", "[1:]"),
    *(".t()", ".transpose(0, -1)", ".view(-1)", ".unsqueeze(0)", ".unsqueeze(-1)", ".reshape(-1)"),
    *(".expand(2, *{x}.shape)", ".narrow(0, 0, 1)", ".diagonal()", ".squeeze()", ".flatten()"),
    *(".permute(*range({x}.dim())[::-1])", ".view_as({x})", ".select(-1, 0)", ".unfold(0, 2, 1)"),
    *(".detach()", ".contiguous()", ".T", ".mT", ".data", ".view(2, -1)", ".reshape(-1, 2)"),
    *(".contiguous(memory_format=torch.channels_last)", ".swapdims(0, -1)", ".view({x}.shape)"),
)
SEVERAL = (
    *(".chunk(2)", ".unbind(0)", ".split(1)", ".split(1, -1)", ".chunk(2, -1)", ".unbind(-1)"),
    *(".tensor_split(2)", ".max(0)", ".sort(0)", ".topk(1)", ".split([1, {rest}])", ".aminmax()"),
)
ALONE = (
    *("mul_({n})", "add_({n})", "fill_({n})", "zero_()", "sigmoid_()", "relu_()", "tanh_()"),
    *("sin_()", "neg_()", "exp_()", "sub_({n})", "div_(2)", "clamp_(-0.5, 0.5)", "abs_()"),
    *("masked_fill_({x} > 0, {n})", "square_()", "pow_(2)", "cumsum_(0)", "tril_()", "erf_()"),
    *(
        "detach_()",
        "requires_grad_()",
        "requires_grad_(False)",
        "clamp_min_(0)",
        "copy_({n} * {x})",
    ),
)
TRANSPOSED = ("t_()", "unsqueeze_(0)", "squeeze_()", "transpose_(0, -1)", "swapaxes_(0, -1)")
WITH = (
    "add_({y})",
    "mul_({y})",
    "copy_({y})",
    "sub_({y})",
    "div_({y} * {y} + 1)",
    "lerp_({y}, 0.5)",
)
PUT = (
    *("{x}[0] = {y}", "{x}[..., 0] = {n}", "{x}[{x} > 1] = {n}", "{x}[:1] = {y}", "{x}[0] += {y}"),
    *("{x}[[0, 1]] = {y}", "{x}[...] = {y}", "{x}[1:] *= {n}", "{x} += {y}", "{x} *= {n}"),
    *("F.relu({x}, inplace=True)", "torch.add({y}, {n}, out={x})", "torch.nn.init.ones_({x})"),
    *(
        "{x}.index_fill_(0, torch.tensor([0]), {n})",
        "{x}.index_add_(0, torch.tensor([0]), {x}[:1] * 1)",
    ),
)
HOOKS = (
    *("{x}.register_hook(lambda g: log.append(('{t}', g)))",) * 4,
    *("{x}.register_hook(lambda g: log.append(('{t}', g)) or g * 2)",) * 3,
    "{x}.register_hook(lambda g: log.append(('{t}', g)) or g)",
    "{x}.register_hook(lambda g: log.append(('{t}', g)) or g.clone())",
    "{x}.register_hook(lambda g: g * 2)",
    "{x}.register_hook(lambda g: g + 1)",
    "{x}.register_hook(lambda g: log.append(('{t}', g.clone())))",
    "{x}.register_hook(lambda g: log.append(('{t}', g)) or torch.zeros_like(g))",
    "{x}.register_hook(lambda g: log.append(('{t}', g.sum())) or -g)",
)
LEAF_HOOKS = (
    "{x}.register_post_accumulate_grad_hook(lambda p: log.append(('{t}', p.grad.clone())))",
    "{x}.register_post_accumulate_grad_hook(lambda p: log.append(('{t}', p.grad)))",
    "{x}.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(0.5)].clear())",
    "{x}.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))",
)
NODE_HOOKS = (
    "{x}.grad_fn.register_hook(lambda gi, go: log.append(('{t}', go)))",
    "{x}.grad_fn.register_prehook(lambda go: log.append(('{t}', go)))",
    "{x}.grad_fn.register_prehook(lambda go: log.append(('{t}', go)) or tuple(g * 2 for g in go))",
)
LOSSES = (
    *("{x}.sum()",) * 5,
    *("{x}.mean()", "({x} * {x}).sum()", "{x}.sin().sum()", "({x} * 2).sum()", "{x}.norm()"),
    *("({x} + {x}).sum()", "{x}.flatten()[0]", "{x}.sum().clone()", "({x} + ({x} + 1)).sum()"),
)
GRADS = (
    *("{x}.grad.zero_()", "{x}.grad.mul_(0.5)", "{x}.grad = None", "{x}.grad.add_(1)"),
    *("torch.nn.utils.clip_grad_norm_([{x}], 0.1)", "torch.nn.utils.clip_grad_value_([{x}], 0.1)"),
    *("torch.nn.utils.clip_grad_norm_([{x}, {y}], 0.1)", "torch.optim.SGD([{x}]).zero_grad(False)"),
    *("torch.optim.SGD([{x}], lr=0.1).step()", "torch.optim.Adam([{x}, {y}], lr=0.1).step()"),
    *("{x}.grad = {x}.grad.clone()", "{x}.grad = {x}.detach() * 2", "{x}.grad.copy_({x}.detach())"),
    *("torch.optim.SGD([{x}], lr=0.1, momentum=0.9, weight_decay=0.1).step()", "{x}.grad[...] = 1"),
)
