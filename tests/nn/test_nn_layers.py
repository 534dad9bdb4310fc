"""Layers in their corners, init and utils: the same scenario on PyTorch and weft."""

from __future__ import annotations

import copy
import functools
import importlib

import pytest

from scenarios import agree, error, scenario, scenarios


@scenario
def initial_values(T):
    init = T.nn.init
    log = []
    for function in (
        *(init.uniform_, init.normal_, init.ones_, init.zeros_, init.eye_, init.trunc_normal_),
        *(init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_),
        init.orthogonal_,
    ):
        log.append(function(T.empty(4, 6)))
    log += [
        init.constant_(T.empty(2, 2), 3.5),
        init.dirac_(T.empty(4, 2, 3), 2),
        init.dirac_(T.empty(2, 2, 3, 3)),
        init.sparse_(T.empty(6, 3), 0.4),
        init.orthogonal_(T.empty(6, 2, 2), gain=2.0),
        init.trunc_normal_(T.empty(50), mean=1.0, std=0.5, a=0.5, b=1.2),
        init.uniform_(T.empty(3), -1, 2, generator=T.Generator().manual_seed(4)),
        init.normal_(T.empty(3), 1, 2, generator=T.Generator().manual_seed(4)),
        init.kaiming_normal_(T.empty(3, 4), mode="fan_out", nonlinearity="relu"),
        init.xavier_uniform_(T.empty(3, 4, 2), gain=init.calculate_gain("tanh")),
        [init.calculate_gain(n) for n in ("linear", "sigmoid", "relu", "selu", "leaky_relu")],
        init.calculate_gain("leaky_relu", 0.3),
        init._calculate_fan_in_and_fan_out(T.empty(3, 4, 2)),
        error(lambda: init.eye_(T.empty(3))),
        error(lambda: init.dirac_(T.empty(3))),
        error(lambda: init.xavier_normal_(T.empty(3))),
        error(lambda: init.kaiming_normal_(T.empty(3, 3), mode="x")),
        error(lambda: init.calculate_gain("x")),
        error(lambda: init.orthogonal_(T.empty(3))),
        error(lambda: init.sparse_(T.empty(3), 0.1)),
        T.rand(2),
    ]
    return log


@scenario
def packed_sequences(T):
    rnn = T.nn.utils.rnn
    x = T.rand(5, 3, 2, requires_grad=True)
    log = []
    for enforce, lengths in ((True, [5, 3, 2]), (False, T.tensor([2, 5, 3]))):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce)
        padded, sizes = rnn.pad_packed_sequence(packed, padding_value=-1.0, total_length=6)
        log += [tuple(packed), padded, sizes, rnn.unpack_sequence(packed)]
        for name in ("RNN", "GRU", "LSTM"):
            layer = getattr(T.nn, name)(2, 3, 2, bidirectional=True)
            output, state = layer(packed)
            state_in = state if name == "LSTM" else (state,)
            given = tuple(s.detach() for s in state_in)
            again, last = layer(packed, given if name == "LSTM" else given[0])
            x.grad = None
            (again.data.sum() + output.data.cos().sum()).backward(retain_graph=True)
            log += [tuple(output), state_in, tuple(again), last, x.grad]
            log += [p.grad for p in layer.parameters()]
    parts = [T.ones(3, 2), T.ones(5, 2) * 2, T.ones(1, 2) * 3]
    log += [
        rnn.pad_sequence(parts),
        rnn.pad_sequence(parts, True, 9.0, padding_side="left"),
        tuple(rnn.pack_sequence(parts, enforce_sorted=False)),
        rnn.unpad_sequence(rnn.pad_sequence(parts), T.tensor([3, 5, 1])),
        error(lambda: rnn.pack_padded_sequence(x, [2, 5, 3])),
        error(lambda: rnn.pack_padded_sequence(x, [5, 3, 0])),
        error(lambda: rnn.pad_packed_sequence(packed, total_length=2)),
        str(packed.double().data.dtype),
    ]
    return log


@scenario
def recurrent_errors(T):
    nn, z = T.nn, T.zeros
    calls = [
        lambda: nn.RNN(2, 3, nonlinearity="x"),
        lambda: nn.RNN(2, 3, proj_size=1),
        lambda: nn.LSTM(2, 3, proj_size=3),
        lambda: nn.LSTM(2, 3, proj_size=-1),
        lambda: nn.LSTM(2, 3, dropout=3),
        lambda: nn.LSTM(2, 0),
        lambda: nn.LSTM(2, 3.5),
        lambda: nn.LSTM(2, 3, 0),
        lambda: nn.RNN(2, 3)(z(1)),
        lambda: nn.LSTM(2, 3)(z(1)),
        lambda: nn.RNN(2, 3)(z(1, 1, 3)),
        lambda: nn.RNN(2, 3)(z(1, 1, 2), z(1, 1, 2)),
        lambda: nn.RNN(2, 3)(z(1, 2), z(1, 1, 2)),
        lambda: nn.RNN(2, 3)(z(1, 1, 2), z(1, 2)),
        lambda: nn.LSTM(2, 3)(z(1, 1, 2), (z(1, 1, 3), z(1, 1, 2))),
        lambda: nn.LSTM(2, 3)(z(1, 1, 2), (z(1, 3), z(1, 3))),
        lambda: nn.LSTM(2, 3)(z(0, 1, 2)),
        lambda: nn.RNNCell(2, 3, nonlinearity="x")(z(1, 2)),
        lambda: nn.GRUCell(2, 3)(z(1, 1, 1)),
        lambda: nn.GRUCell(2, 3)(z(1, 2), z(2)),
        lambda: nn.GRUCell(2, 3)(z(1, 3)),
    ]
    layer = nn.LSTM(2, 3, 2, bidirectional=True, proj_size=2)
    names = layer._all_weights, layer._flat_weights_names, [len(w) for w in layer.all_weights]
    return [error(c) for c in calls], names


@scenario
def attention_masks(T):
    nn = T.nn
    x = T.rand(2, 4, 6)
    padding = T.tensor([[False, False, False, True], [False, False, True, True]])
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    log = [causal]
    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    log += [
        attention(x, x, x, key_padding_mask=padding),
        attention(x, x, x, attn_mask=causal, average_attn_weights=False),
        attention(x, x, x, attn_mask=causal, is_causal=True, need_weights=False),
        attention(x, x, x, attn_mask=causal != 0, need_weights=False),
        attention(x[0], x[1], x[1]),
    ]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2)
    model = nn.Transformer(6, 2, 1, 1, 8, batch_first=True)
    for mode in (encoder.train, encoder.eval):
        mode()
        log += [
            encoder(x, mask=causal),
            encoder(x, mask=causal, is_causal=True),
            encoder(x, src_key_padding_mask=padding),
        ]
    with T.no_grad():
        log.append(encoder(x, src_key_padding_mask=padding))
        hidden = T.zeros(2, 4).masked_fill(padding, float("-inf"))
        log.append(encoder(x, src_key_padding_mask=hidden))
    model.eval()
    log += [
        model(x, x, tgt_mask=causal),
        model(
            *(x, x),
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_key_padding_mask=padding,
            src_key_padding_mask=padding,
        ),
        error(lambda: model(x, x[:1])),
        error(lambda: model(x[..., :3], x)),
        error(lambda: nn.MultiheadAttention(4, 3)),
        error(lambda: nn.MultiheadAttention(0, 3)),
        error(lambda: attention(x, x, x[0])),
        error(lambda: attention(T.ones(6), x, x)),
        error(lambda: nn.TransformerEncoderLayer(4, 2, activation="x")),
    ]
    return log


@scenario
def attention_that_may_look_at_nothing(T):
    nn, F = T.nn, T.nn.functional
    q, k, v = (T.rand(2, 3, 4, 6).requires_grad_() for _ in range(3))
    blocked = T.rand(4, 4) > 0.5
    blocked[1] = True
    added = T.zeros(4, 4).masked_fill(blocked, float("-inf"))
    log = []
    for mask in (~blocked, added, T.full((4, 4), float("-inf"))):
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        log += [y, T.autograd.grad((y * y).sum(), [q, k, v])]
    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    x = T.rand(2, 4, 6, requires_grad=True)
    padding = T.tensor([[True] * 4, [False, False, True, True]])
    for masks in ({"key_padding_mask": padding}, {"attn_mask": blocked}, {"attn_mask": added}):
        y, _ = attention(x, x, x, need_weights=False, **masks)
        log += [y, T.autograd.grad((y * y).sum(), [x, *attention.parameters()])]
    return log


@scenario
def attention_with_a_causal_hint(T):
    nn = T.nn
    x = T.rand(2, 4, 6)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    log = []
    for options in ({"add_bias_kv": True}, {"add_zero_attn": True}, {}):
        attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        for weights in (False, True):
            log.append(attention(x, x, x, attn_mask=causal, is_causal=True, need_weights=weights))
    return log


@scenario
def lazy_modules(T):
    nn = T.nn
    m = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    before = repr(m), m[0].has_uninitialized_params(), list(m.state_dict())
    use = error(lambda: m[0].weight + 1)[0]
    shape = error(lambda: m[0].weight.shape)
    m.double()
    copied = copy.deepcopy(m[0])  # a buffer without a shape can't be copied in PyTorch
    copied(T.ones(4, 2, dtype=T.float64))
    m(T.ones(4, 5, dtype=T.float64))
    loaded = nn.LazyLinear(3)
    loaded.load_state_dict(nn.Linear(4, 3).state_dict())
    made = nn.parameter.UninitializedParameter()
    lazy = nn.parameter.is_lazy(made)
    made.materialize((2, 3))
    return [
        *(before, use, shape, repr(m), repr(copied), m[0].weight.shape, str(m[0].weight.dtype)),
        *(loaded.weight, loaded(T.ones(1, 4)), type(loaded).__name__, lazy, made.shape),
    ]


@scenario
def pretrained_tables(T):
    table = T.arange(6.0).reshape(3, 2)
    frozen = T.nn.Embedding.from_pretrained(table)
    bag = T.nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum")
    index = T.tensor([[0, 2], [1, 1]])
    return [
        *(frozen(index), frozen.weight.requires_grad, bag(index), bag.weight.requires_grad),
        error(lambda: T.nn.Embedding.from_pretrained(T.ones(3))),
        error(lambda: T.nn.Embedding(3, 4, 5)),
    ]


@scenario
def transposed_sizes(T):
    m = T.nn.ConvTranspose2d(1, 1, 3, stride=2)
    x = T.rand(1, 1, 4, 4)
    return [
        m(x, output_size=[10, 9]),
        m(x, output_size=(1, 1, 9, 10)),
        m(x[0], output_size=[10, 10]),
        error(lambda: m(x, output_size=[9, 20])),
        error(lambda: m(x, output_size=[9])),
    ]


@scenario
def constructor_errors(T):
    nn, z = T.nn, T.zeros
    calls = [
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(4, 3, 3, groups=2),
        lambda: nn.Conv2d(4, 3, 3, groups=0),
        lambda: nn.Conv2d(4, 3, 3, padding="same", stride=2),
        lambda: nn.ConvTranspose2d(4, 3, 3, padding_mode="reflect"),
        lambda: nn.BatchNorm1d(3)(z(3)),
        lambda: nn.BatchNorm2d(3)(z(3, 3)),
        lambda: nn.InstanceNorm2d(3)(z(3, 3)),
        lambda: nn.InstanceNorm2d(3, affine=True)(z(1, 4, 5, 5)),
        lambda: nn.GroupNorm(2, 3),
        lambda: nn.Dropout(2.0),
        lambda: nn.Hardtanh(1, -1),
        lambda: nn.Unflatten(1, 3),
        lambda: nn.FractionalMaxPool2d(2),
        lambda: nn.FractionalMaxPool2d(2, 1, 1),
        lambda: nn.FractionalMaxPool2d(2, output_ratio=2),
        lambda: nn.TripletMarginLoss(margin=-1),
        lambda: nn.MultiMarginLoss(p=3),
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5, 2]),
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, []),
        lambda: nn.Bilinear(0, 1, 1),
        lambda: nn.Softmax2d()(z(2)),
        lambda: nn.CircularPad2d(1)(z(2)),
    ]
    return [error(c) for c in calls], nn.MSELoss(size_average=False).reduction


@scenario
def adaptive_softmax(T):
    m = T.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0)
    x = T.rand(4, 8)
    return [
        *(m.log_prob(x), m.predict(x), m(x[0], T.tensor(7)), list(m.state_dict())),
        error(lambda: m(x, T.tensor([1, 2, 3, 10]))),
        error(lambda: m(x, T.tensor([1, 2]))),
        error(lambda: m(x, T.tensor(2))),
    ]


@scenario
def clipping(T):
    utils = T.nn.utils
    m = T.nn.Linear(3, 2)
    log = []
    for norm in (2.0, 1.0, float("inf")):
        m.zero_grad()
        (m(T.ones(4, 3)) * 10).sum().backward()
        log += [utils.clip_grad_norm_(m.parameters(), 1.5, norm), m.weight.grad, m.bias.grad]
    utils.clip_grad_value_(m.parameters(), 0.1)
    log += [m.weight.grad, utils.get_total_norm([T.ones(3), T.ones(2)])]
    log.append(utils.clip_grad_norm_([], 1.0))
    m.weight.grad.fill_(float("nan"))
    log.append(error(lambda: utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)))
    vector = utils.parameters_to_vector(m.parameters())
    utils.vector_to_parameters(vector * 2, m.parameters())
    return [*log, vector, m.weight, m.bias]


@scenario
def norms_by_hooks(T):
    utils = T.nn.utils
    log = []
    m = utils.weight_norm(T.nn.Linear(3, 2))
    m(T.ones(1, 3)).sum().backward()
    log += [list(m.state_dict()), m.weight_g.grad, m.weight_v.grad]
    utils.remove_weight_norm(m)
    log += [list(m.state_dict()), m.weight]
    s = utils.spectral_norm(T.nn.Conv2d(2, 3, 3), n_power_iterations=2)
    s(T.ones(1, 2, 4, 4)).sum().backward()
    log += [list(s.state_dict()), s.weight, s.weight_orig.grad, s.weight_u]
    s.eval()
    log.append(s(T.ones(1, 2, 4, 4)))
    utils.remove_spectral_norm(s)
    log += [list(s.state_dict()), error(lambda: utils.remove_weight_norm(m))[0]]
    return log


@scenario
def parametrized_modules(T):
    nn, parametrize = T.nn, T.nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Symmetric())
    log = [repr(m), list(m.state_dict()), m.weight, parametrize.is_parametrized(m, "weight")]
    m(T.ones(1, 3)).sum().backward()
    log.append(m.parametrizations.weight.original.grad)
    m.weight = T.eye(3) * 2
    twin = copy.deepcopy(m)
    log += [m.weight, twin.weight, isinstance(m, nn.Linear)]
    with parametrize.cached():
        log.append(m.weight is m.weight)
    log.append(parametrize.type_before_parametrizations(m) is nn.Linear)
    parametrize.remove_parametrizations(m, "weight")
    log += [repr(m), list(m.state_dict()), parametrize.is_parametrized(twin)]
    log.append(error(lambda: parametrize.remove_parametrizations(m, "weight"))[0])
    log.append(error(lambda: parametrize.register_parametrization(m, "zz", Symmetric()))[0])
    return log


@scenario
def ready_parametrizations(T):
    nn, p = T.nn, T.nn.utils.parametrizations
    log = []
    w = p.weight_norm(nn.Linear(3, 2))
    w(T.ones(1, 3)).sum().backward()
    log += [repr(w), list(w.state_dict()), [q.grad for q in w.parameters()], w.weight]
    s = p.spectral_norm(nn.Linear(3, 2))
    s(T.ones(1, 3)).sum().backward()
    log += [repr(s), list(s.state_dict()), s.weight, [q.grad for q in s.parameters()]]
    for kind in ("matrix_exp", "cayley", "householder"):
        for shape in ((3, 3), (4, 2), (2, 4)):
            o = p.orthogonal(nn.Linear(*shape), orthogonal_map=kind)
            o(T.ones(1, shape[0])).sum().backward()
            log += [o.weight, list(o.state_dict()), [q.grad for q in o.parameters()]]
    plain = p.orthogonal(nn.Linear(3, 3), orthogonal_map="householder", use_trivialization=False)
    return [*log, plain.weight, error(lambda: p.orthogonal(nn.Linear(2, 2), "bias"))[0]]


@scenario
def fused_layers(T):
    nn, utils = T.nn, T.nn.utils
    conv, norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
    norm(T.rand(4, 3, 2, 2))
    conv.eval(), norm.eval()
    x = T.rand(1, 2, 5, 5)
    fused = utils.fuse_conv_bn_eval(conv, norm)
    linear, flat = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    both = utils.fuse_linear_bn_eval(linear, flat)
    return (
        fused(x),
        norm(conv(x)),
        both(T.ones(2, 3)),
        error(lambda: utils.fuse_conv_bn_eval(conv.train(), norm)),
    )


@scenario
def pruning(T):
    nn = T.nn
    prune = importlib.import_module(f"{T.__name__}.nn.utils.prune")
    log = []
    for shorten in (
        lambda m: prune.l1_unstructured(m, "weight", 3),
        lambda m: prune.random_unstructured(m, "weight", 0.4),
        lambda m: prune.random_structured(m, "weight", 2, 1),
        lambda m: prune.ln_structured(m, "weight", 1, 2, 0),
        lambda m: prune.custom_from_mask(m, "bias", T.tensor([1, 0, 1])),
        lambda m: prune.identity(m, "bias"),
        lambda m: prune.l1_unstructured(prune.ln_structured(m, "weight", 1, 2, 0), "weight", 2),
    ):
        m = shorten(nn.Linear(5, 3))
        m(T.ones(1, 5)).sum().backward()
        log += [m.state_dict(), [p.grad for p in m.parameters()], prune.is_pruned(m)]
        prune.remove(m, "weight" if "weight_mask" in m.state_dict() else "bias")
        log += [m.state_dict(), m(T.ones(1, 5)), prune.is_pruned(m)]
    two = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    held = [(two[0], "weight"), (two[1], "weight")]
    prune.global_unstructured(held, pruning_method=prune.L1Unstructured, amount=0.5)
    log += [two.state_dict(), error(lambda: prune.l1_unstructured(two[0], "bias", -1))]
    return [*log, error(lambda: prune.remove(two[0], "bias"))[0]]


@scenario
def gradients_of_convolutions(T):
    grad = T.nn.grad
    x, w = T.rand(1, 2, 6), T.rand(4, 1, 3)
    g = T.rand(1, 4, 3)
    return [
        grad.conv1d_input((1, 2, 6), w, g, 2, 1, 1, 2),
        grad.conv1d_weight(x, (4, 1, 3), g, 2, 1, 1, 2),
        grad.conv2d_weight(T.rand(1, 2, 5, 5), (3, 2, 2, 2), T.rand(1, 3, 4, 4)),
        grad.conv3d_input((1, 1, 3, 3, 3), T.rand(1, 1, 2, 2, 2), T.rand(1, 1, 2, 2, 2)),
    ]


@scenario
def empty_batches_and_images_of_adaptive_pools(T):
    log = []
    for name in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
        for d in (1, 2, 3):
            pool = getattr(T.nn, f"{name}{d}d")(5)
            spatial = (10,) * d
            for shape in ((0, *spatial), (0, 2, *spatial), (2, 0, *spatial)):
                x = T.ones(shape, requires_grad=True)
                try:
                    y = pool(x)
                except RuntimeError:
                    log.append("refused")
                    continue
                log.append(y.shape)
                if not shape[0]:
                    y.sum().backward()
                    log.append(x.grad.shape)
            for shape in ((3, *spatial[1:], 0), (2, 1, 0, *spatial[1:]), (2,)):
                log.append(error(functools.partial(pool, T.ones(shape)))[0])
    return log


@scenario
def the_end_of_the_last_bag(T):
    indices, log = T.tensor([0, 1, 2, 3]), []
    for options in (
        {"mode": "max"},
        {"mode": "sum", "padding_idx": 7},
        {"mode": "mean", "padding_idx": 2},
        {"mode": "mean", "dtype": T.float64},
    ):
        layer = T.nn.EmbeddingBag(10, 3, include_last_offset=True, **options)
        for offsets in ([0, 2, 3], [0, 3, 3], [0, 0, 4]):
            layer.zero_grad()
            y = layer(indices, T.tensor(offsets))
            y.sum().backward()
            log += [y, layer.weight.grad]
    layer = T.nn.EmbeddingBag(10, 3, include_last_offset=True, mode="sum")
    return [*log, layer(indices, T.tensor([0, 2, 3]))]


@scenario
def lazy_parameters_before_they_have_a_shape(T):
    lazy, other = T.nn.LazyLinear(3), T.nn.LazyLinear(3)
    p = T.nn.parameter.UninitializedParameter()
    p.materialize(10)
    return [
        list(lazy.load_state_dict(other.state_dict())),
        lazy.has_uninitialized_params(),
        error(lazy.share_memory),
        error(lambda: T.nn.utils.spectral_norm(lazy)),
        p.shape,
        p.dtype == T.float32,
    ]


@pytest.mark.parametrize("scenario", scenarios(dict(globals())), ids=lambda f: f.__name__)
def test_scenario(scenario):
    agree(scenario)
