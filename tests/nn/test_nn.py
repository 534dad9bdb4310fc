"""Every module of torch.nn: the same seed gives the same numbers, state and printed form."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

# float32 on both sides; sums are taken in different orders.
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def real(*shape, low=-2.0, high=2.0):
    return ("real", shape, low, high)


def positive(*shape):
    return real(*shape, low=0.1, high=0.9)


def integers(high, *shape):
    return ("integers", shape, 0, high)


def signs(*shape):
    return ("signs", shape, 0, 0)


def fixed(value):
    return ("fixed", value, 0, 0)


class Constant:
    """A float array whose gradient is not wanted."""

    def __init__(self, values):
        self.values = values.astype(np.float32)


def arrays(specs):
    rng = np.random.default_rng(7)
    made = []
    for kind, shape, low, high in specs:
        if kind == "real":
            made.append(rng.uniform(low, high, shape).astype(np.float32))
        elif kind == "integers":
            made.append(rng.integers(low, high, shape))
        elif kind == "signs":
            made.append(Constant(rng.integers(0, 2, shape) * 2 - 1))
        else:
            made.append(shape)
    return made


IMAGE = (real(2, 4, 6, 6),)
SIGNAL = (real(2, 4, 9),)
VOLUME = (real(2, 4, 5, 5, 5),)
PLANE = (real(3, 5),)
BY_RANK = {1: SIGNAL, 2: IMAGE, 3: VOLUME}
SAME = (real(3, 5), real(3, 5))

# (name, the module, its inputs); the module is made from torch.nn or weft.nn.
CASES = [
    ("Identity", lambda nn: nn.Identity(3, a=1), PLANE),
    ("Linear", lambda nn: nn.Linear(5, 3), PLANE),
    ("Linear", lambda nn: nn.Linear(5, 3, bias=False), (real(5),)),
    ("Bilinear", lambda nn: nn.Bilinear(5, 4, 3), (real(2, 5), real(2, 4))),
    ("Bilinear", lambda nn: nn.Bilinear(5, 4, 3, bias=False), (real(2, 5), real(2, 4))),
    ("Flatten", lambda nn: nn.Flatten(), IMAGE),
    ("Flatten", lambda nn: nn.Flatten(0, 2), IMAGE),
    ("Unflatten", lambda nn: nn.Unflatten(1, (2, 2)), IMAGE),
    ("LazyLinear", lambda nn: nn.LazyLinear(3), PLANE),
    ("LazyLinear", lambda nn: nn.LazyLinear(3, bias=False), PLANE),
]
for _d in (1, 2, 3):
    _x = BY_RANK[_d]
    CASES += [
        (f"Conv{_d}d", lambda nn, d=_d: getattr(nn, f"Conv{d}d")(4, 6, 3), _x),
        (
            f"Conv{_d}d",
            lambda nn, d=_d: getattr(nn, f"Conv{d}d")(4, 6, 3, 2, 1, 1, 2, bias=False),
            _x,
        ),
        (f"Conv{_d}d", lambda nn, d=_d: getattr(nn, f"Conv{d}d")(4, 2, 2, padding="same"), _x),
        (f"ConvTranspose{_d}d", lambda nn, d=_d: getattr(nn, f"ConvTranspose{d}d")(4, 6, 3), _x),
        (
            f"ConvTranspose{_d}d",
            lambda nn, d=_d: getattr(nn, f"ConvTranspose{d}d")(4, 6, 3, 2, 1, 1, 2),
            _x,
        ),
        (f"LazyConv{_d}d", lambda nn, d=_d: getattr(nn, f"LazyConv{d}d")(6, 3), _x),
        (
            f"LazyConvTranspose{_d}d",
            lambda nn, d=_d: getattr(nn, f"LazyConvTranspose{d}d")(6, 3, 2, bias=False),
            _x,
        ),
        (f"BatchNorm{_d}d", lambda nn, d=_d: getattr(nn, f"BatchNorm{d}d")(4), _x),
        (
            f"BatchNorm{_d}d",
            lambda nn, d=_d: getattr(nn, f"BatchNorm{d}d")(4, momentum=None, bias=False),
            _x,
        ),
        (
            f"BatchNorm{_d}d",
            lambda nn, d=_d: getattr(nn, f"BatchNorm{d}d")(
                4, affine=False, track_running_stats=False
            ),
            _x,
        ),
        (f"LazyBatchNorm{_d}d", lambda nn, d=_d: getattr(nn, f"LazyBatchNorm{d}d")(), _x),
        (f"InstanceNorm{_d}d", lambda nn, d=_d: getattr(nn, f"InstanceNorm{d}d")(4), _x),
        (
            f"InstanceNorm{_d}d",
            lambda nn, d=_d: getattr(nn, f"InstanceNorm{d}d")(
                4, affine=True, track_running_stats=True
            ),
            _x,
        ),
        (f"LazyInstanceNorm{_d}d", lambda nn, d=_d: getattr(nn, f"LazyInstanceNorm{d}d")(), _x),
        (f"MaxPool{_d}d", lambda nn, d=_d: getattr(nn, f"MaxPool{d}d")(2), _x),
        (
            f"MaxPool{_d}d",
            lambda nn, d=_d: getattr(nn, f"MaxPool{d}d")(3, 2, 1, return_indices=True),
            _x,
        ),
        (f"AvgPool{_d}d", lambda nn, d=_d: getattr(nn, f"AvgPool{d}d")(3, 2, 1), _x),
        (f"LPPool{_d}d", lambda nn, d=_d: getattr(nn, f"LPPool{d}d")(2, 2), _x),
        (f"AdaptiveAvgPool{_d}d", lambda nn, d=_d: getattr(nn, f"AdaptiveAvgPool{d}d")(3), _x),
        (f"AdaptiveMaxPool{_d}d", lambda nn, d=_d: getattr(nn, f"AdaptiveMaxPool{d}d")(3), _x),
        (f"Dropout{_d}d", lambda nn, d=_d: getattr(nn, f"Dropout{d}d")(0.4), _x),
        (
            f"ConstantPad{_d}d",
            lambda nn, d=_d: getattr(nn, f"ConstantPad{d}d")((1, 2) * d, 3.5),
            _x,
        ),
        (f"ZeroPad{_d}d", lambda nn, d=_d: getattr(nn, f"ZeroPad{d}d")(2), _x),
        (f"ReflectionPad{_d}d", lambda nn, d=_d: getattr(nn, f"ReflectionPad{d}d")(1), _x),
        (f"ReplicationPad{_d}d", lambda nn, d=_d: getattr(nn, f"ReplicationPad{d}d")(1), _x),
        (f"CircularPad{_d}d", lambda nn, d=_d: getattr(nn, f"CircularPad{d}d")(2), _x),
    ]
CASES += [
    (
        "Conv2d",
        lambda nn, m=m: nn.Conv2d(4, 2, (3, 2), padding=(1, 2), padding_mode=m, dilation=2),
        IMAGE,
    )
    for m in ("reflect", "replicate", "circular")
]
CASES += [
    ("Conv2d", lambda nn: nn.Conv2d(4, 2, 3, padding="same", padding_mode="reflect"), IMAGE),
    ("Conv2d", lambda nn: nn.Conv2d(4, 2, 3), (real(4, 6, 6),)),
    (
        "MaxUnpool1d",
        lambda nn: nn.MaxUnpool1d(2),
        (real(1, 2, 2), fixed(np.array([[[0, 3], [1, 2]]]))),
    ),
    (
        "MaxUnpool2d",
        lambda nn: nn.MaxUnpool2d(2),
        (real(1, 1, 2, 2), fixed(np.array([[[[0, 3], [8, 15]]]]))),
    ),
    (
        "MaxUnpool3d",
        lambda nn: nn.MaxUnpool3d(2),
        (real(1, 1, 1, 1, 2), fixed(np.array([[[[[4, 11]]]]]))),
    ),
    ("FractionalMaxPool2d", lambda nn: nn.FractionalMaxPool2d(2, output_size=3), IMAGE),
    ("FractionalMaxPool2d", lambda nn: nn.FractionalMaxPool2d(2, output_ratio=0.5), IMAGE),
    ("FractionalMaxPool3d", lambda nn: nn.FractionalMaxPool3d(2, output_size=2), VOLUME),
    ("LayerNorm", lambda nn: nn.LayerNorm((6, 6)), IMAGE),
    ("LayerNorm", lambda nn: nn.LayerNorm(5, bias=False), PLANE),
    ("LayerNorm", lambda nn: nn.LayerNorm(5, elementwise_affine=False), PLANE),
    ("RMSNorm", lambda nn: nn.RMSNorm(5), PLANE),
    ("RMSNorm", lambda nn: nn.RMSNorm(5, eps=0.1, elementwise_affine=False), PLANE),
    ("GroupNorm", lambda nn: nn.GroupNorm(2, 4), IMAGE),
    ("GroupNorm", lambda nn: nn.GroupNorm(2, 4, affine=False), IMAGE),
    ("LocalResponseNorm", lambda nn: nn.LocalResponseNorm(2), IMAGE),
    ("CrossMapLRN2d", lambda nn: nn.CrossMapLRN2d(3, alpha=0.1), IMAGE),
    ("Dropout", lambda nn: nn.Dropout(0.3), PLANE),
    ("AlphaDropout", lambda nn: nn.AlphaDropout(0.3), PLANE),
    ("FeatureAlphaDropout", lambda nn: nn.FeatureAlphaDropout(0.3), IMAGE),
    ("Embedding", lambda nn: nn.Embedding(6, 3, padding_idx=-2), (integers(6, 2, 4),)),
    (
        "Embedding",
        lambda nn: nn.Embedding(6, 3, max_norm=1.0, scale_grad_by_freq=True),
        (integers(6, 2, 4),),
    ),
    ("EmbeddingBag", lambda nn: nn.EmbeddingBag(6, 3), (integers(6, 2, 4),)),
    (
        "EmbeddingBag",
        lambda nn: nn.EmbeddingBag(6, 3, mode="sum", padding_idx=1),
        (integers(6, 7), fixed(np.array([0, 3]))),
    ),
    ("EmbeddingBag", lambda nn: nn.EmbeddingBag(6, 3, mode="max"), (integers(6, 2, 4),)),
]
for _name in (
    *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU"),
    *("LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "SiLU", "Sigmoid"),
    *("Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink"),
):
    CASES.append((_name, lambda nn, n=_name: getattr(nn, n)(), (real(3, 4, low=-8, high=8),)))
CASES += [
    ("GELU", lambda nn: nn.GELU("tanh"), PLANE),
    ("GLU", lambda nn: nn.GLU(0), (real(4, 3),)),
    ("PReLU", lambda nn: nn.PReLU(4, 0.1), IMAGE),
    ("Threshold", lambda nn: nn.Threshold(0.5, -1.0), PLANE),
    ("Softmax", lambda nn: nn.Softmax(1), PLANE),
    ("Softmin", lambda nn: nn.Softmin(0), PLANE),
    ("LogSoftmax", lambda nn: nn.LogSoftmax(-1), PLANE),
    ("Softmax2d", lambda nn: nn.Softmax2d(), IMAGE),
    ("Upsample", lambda nn: nn.Upsample(scale_factor=2), IMAGE),
    ("Upsample", lambda nn: nn.Upsample((5, 7), mode="bilinear", align_corners=True), IMAGE),
    ("UpsamplingNearest2d", lambda nn: nn.UpsamplingNearest2d(scale_factor=2), IMAGE),
    ("UpsamplingBilinear2d", lambda nn: nn.UpsamplingBilinear2d(size=(9, 8)), IMAGE),
    ("PixelShuffle", lambda nn: nn.PixelShuffle(2), IMAGE),
    ("PixelUnshuffle", lambda nn: nn.PixelUnshuffle(2), IMAGE),
    ("ChannelShuffle", lambda nn: nn.ChannelShuffle(2), IMAGE),
    ("Unfold", lambda nn: nn.Unfold((2, 3), stride=2), IMAGE),
    ("Fold", lambda nn: nn.Fold((4, 5), 2, padding=1), (real(1, 8, 30),)),
    ("CosineSimilarity", lambda nn: nn.CosineSimilarity(), SAME),
    ("PairwiseDistance", lambda nn: nn.PairwiseDistance(3, keepdim=True), SAME),
]
# --- losses ---
for _r in ("mean", "sum", "none"):
    CASES += [
        ("L1Loss", lambda nn, r=_r: nn.L1Loss(reduction=r), SAME),
        ("MSELoss", lambda nn, r=_r: nn.MSELoss(reduction=r), SAME),
        ("SmoothL1Loss", lambda nn, r=_r: nn.SmoothL1Loss(reduction=r, beta=0.5), SAME),
        ("HuberLoss", lambda nn, r=_r: nn.HuberLoss(r, 0.7), SAME),
        ("NLLLoss", lambda nn, r=_r: nn.NLLLoss(reduction=r), (real(3, 5), integers(5, 3))),
        (
            "CrossEntropyLoss",
            lambda nn, r=_r: nn.CrossEntropyLoss(reduction=r, label_smoothing=0.1),
            (real(3, 5), integers(5, 3)),
        ),
        ("PoissonNLLLoss", lambda nn, r=_r: nn.PoissonNLLLoss(reduction=r, full=True), SAME),
        (
            "GaussianNLLLoss",
            lambda nn, r=_r: nn.GaussianNLLLoss(reduction=r),
            (real(3, 5), real(3, 5), positive(3, 5)),
        ),
        ("KLDivLoss", lambda nn, r=_r: nn.KLDivLoss(reduction=r), (real(3, 5), positive(3, 5))),
        ("BCELoss", lambda nn, r=_r: nn.BCELoss(reduction=r), (positive(3, 5), positive(3, 5))),
        (
            "BCEWithLogitsLoss",
            lambda nn, r=_r: nn.BCEWithLogitsLoss(reduction=r),
            (real(3, 5), positive(3, 5)),
        ),
        (
            "HingeEmbeddingLoss",
            lambda nn, r=_r: nn.HingeEmbeddingLoss(reduction=r),
            (real(3, 5), signs(3, 5)),
        ),
        (
            "MultiLabelMarginLoss",
            lambda nn, r=_r: nn.MultiLabelMarginLoss(reduction=r),
            (real(2, 4), fixed(np.array([[1, 2, -1, 0], [3, -1, 0, 0]]))),
        ),
        (
            "SoftMarginLoss",
            lambda nn, r=_r: nn.SoftMarginLoss(reduction=r),
            (real(3, 5), signs(3, 5)),
        ),
        (
            "CosineEmbeddingLoss",
            lambda nn, r=_r: nn.CosineEmbeddingLoss(0.2, reduction=r),
            (*SAME, signs(3)),
        ),
        (
            "MarginRankingLoss",
            lambda nn, r=_r: nn.MarginRankingLoss(0.3, reduction=r),
            (*SAME, signs(3, 5)),
        ),
        (
            "MultiLabelSoftMarginLoss",
            lambda nn, r=_r: nn.MultiLabelSoftMarginLoss(reduction=r),
            (real(3, 5), positive(3, 5)),
        ),
        (
            "MultiMarginLoss",
            lambda nn, r=_r: nn.MultiMarginLoss(2, 0.5, reduction=r),
            (real(3, 5), integers(5, 3)),
        ),
        (
            "TripletMarginLoss",
            lambda nn, r=_r: nn.TripletMarginLoss(reduction=r, swap=True),
            (*SAME, real(3, 5)),
        ),
        (
            "TripletMarginWithDistanceLoss",
            lambda nn, r=_r: nn.TripletMarginWithDistanceLoss(reduction=r),
            (*SAME, real(3, 5)),
        ),
        (
            "CTCLoss",
            lambda nn, r=_r: nn.CTCLoss(reduction=r),
            (
                *(real(6, 2, 4, low=-3, high=-0.5), fixed(np.array([[1, 2, 1], [3, 1, 2]]))),
                *(fixed((6, 5)), fixed((3, 2))),
            ),
        ),
    ]
CASES += [
    ("NLLLoss2d", lambda nn: nn.NLLLoss2d(), (real(2, 3, 2, 2), integers(3, 2, 2, 2))),
    (
        "LinearCrossEntropyLoss",
        lambda nn: nn.LinearCrossEntropyLoss(5, 4, bias=True),
        (real(3, 5), integers(4, 3)),
    ),
    (
        "AdaptiveLogSoftmaxWithLoss",
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 12, [3, 7], div_value=2.0, head_bias=True),
        (real(6, 16), fixed(np.array([0, 4, 11, 2, 8, 5]))),
    ),
    # --- containers ---
    ("Sequential", lambda nn: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)), PLANE),
]
# --- recurrent ---
for _name in ("RNN", "LSTM", "GRU"):
    CASES += [
        (_name, lambda nn, n=_name: getattr(nn, n)(3, 4), (real(5, 2, 3),)),
        (_name, lambda nn, n=_name: getattr(nn, n)(3, 4, bias=False), (real(5, 3),)),
        (
            _name,
            lambda nn, n=_name: getattr(nn, n)(
                3, 4, 2, batch_first=True, bidirectional=True, dropout=0.3
            ),
            (real(2, 5, 3),),
        ),
    ]
    CASES += [
        (f"{_name}Cell", lambda nn, n=_name: getattr(nn, f"{n}Cell")(3, 4), (real(2, 3),)),
        (f"{_name}Cell", lambda nn, n=_name: getattr(nn, f"{n}Cell")(3, 4, False), (real(3),)),
    ]
CASES += [
    ("RNN", lambda nn: nn.RNN(3, 4, nonlinearity="relu"), (real(5, 2, 3), real(1, 2, 4))),
    ("GRU", lambda nn: nn.GRU(3, 4, 2), (real(5, 2, 3), real(2, 2, 4))),
    ("LSTM", lambda nn: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), (real(5, 2, 3),)),
    ("GRUCell", lambda nn: nn.GRUCell(3, 4), (real(2, 3), real(2, 4))),
    ("RNNCell", lambda nn: nn.RNNCell(3, 4, nonlinearity="relu"), (real(2, 3), real(2, 4))),
]
# --- attention ---
LAYER = {"dim_feedforward": 6, "dropout": 0.2}
CASES += [
    ("MultiheadAttention", lambda nn: nn.MultiheadAttention(4, 2), (real(5, 2, 4),) * 3),
    (
        "MultiheadAttention",
        lambda nn: nn.MultiheadAttention(
            4, 2, dropout=0.2, add_bias_kv=True, add_zero_attn=True, batch_first=True
        ),
        (real(2, 5, 4),) * 3,
    ),
    (
        "MultiheadAttention",
        lambda nn: nn.MultiheadAttention(4, 2, bias=False, kdim=3, vdim=6),
        (real(5, 2, 4), real(7, 2, 3), real(7, 2, 6)),
    ),
    (
        "TransformerEncoderLayer",
        lambda nn: nn.TransformerEncoderLayer(4, 2, **LAYER),
        (real(5, 2, 4),),
    ),
    (
        "TransformerEncoderLayer",
        lambda nn: nn.TransformerEncoderLayer(
            4, 2, **LAYER, activation="gelu", norm_first=True, batch_first=True, bias=False
        ),
        (real(2, 5, 4),),
    ),
    (
        "TransformerDecoderLayer",
        lambda nn: nn.TransformerDecoderLayer(4, 2, **LAYER),
        (real(5, 2, 4), real(6, 2, 4)),
    ),
    (
        "TransformerDecoderLayer",
        lambda nn: nn.TransformerDecoderLayer(4, 2, **LAYER, norm_first=True, activation=nn.SiLU()),
        (real(5, 2, 4), real(6, 2, 4)),
    ),
    (
        "TransformerEncoder",
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, **LAYER), 2, nn.LayerNorm(4)
        ),
        (real(5, 2, 4),),
    ),
    (
        "TransformerDecoder",
        lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, **LAYER), 2),
        (real(5, 2, 4), real(6, 2, 4)),
    ),
    (
        "Transformer",
        lambda nn: nn.Transformer(4, 2, 1, 2, **LAYER),
        (real(5, 2, 4), real(6, 2, 4)),
    ),
]

# Classes that are no layers, are tested elsewhere, or need several processes.
ELSEWHERE = {
    *("Module", "Container", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
    *("RNNBase", "RNNCellBase", "DataParallel", "SyncBatchNorm"),
}


# PyTorch's backward of this one does not fit its own forward: it fails PyTorch's gradcheck.
WRONG_THERE = {"CrossMapLRN2d"}


def test_table_has_every_module():
    classes = {
        n
        for n, c in vars(torch.nn).items()
        if isinstance(c, type) and issubclass(c, torch.nn.Module)
    }
    assert classes - ELSEWHERE == {name for name, _, _ in CASES}


def leaves(value):
    """All tensors of a result, in order."""
    if isinstance(value, (torch.Tensor, weft.Tensor)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in leaves(v)]
    return []


def array(t):
    return t.detach().numpy().copy()


def alike(found, expected, what):
    assert len(found) == len(expected), what
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        f, e = array(f), array(e)
        assert f.shape == e.shape and f.dtype == e.dtype, (what, i, f.shape, e.shape, f.dtype)
        np.testing.assert_allclose(f, e, err_msg=f"{what} {i}", **CLOSE)


def given(T, values):
    made = []
    for value in values:
        if not isinstance(value, np.ndarray):
            made.append(T.tensor(value.values) if isinstance(value, Constant) else value)
            continue
        tensor = T.tensor(value)
        made.append(tensor.requires_grad_() if value.dtype == np.float32 else tensor)
    return made


def run(T, module, values):
    """Results, gradients of the inputs, gradients of the parameters."""
    inputs = given(T, values)
    module.zero_grad()
    T.manual_seed(1)
    results = leaves(module(*inputs))
    total = sum((r * r.detach().cos()).sum() for r in results if r.is_floating_point())
    if total.requires_grad:
        total.backward()
    grads = [x.grad for x in inputs if isinstance(x, T.Tensor) and x.grad is not None]
    weights = [p.grad for p in module.parameters() if p.grad is not None]
    return results, grads, weights


def pair(factory):
    made = []
    for T in (weft, torch):
        T.manual_seed(0)
        made.append(factory(T.nn))
    return made


@pytest.mark.parametrize(
    ("name", "factory", "specs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
@pytest.mark.filterwarnings("ignore")
def test_module(name, factory, specs):
    ours, theirs = pair(factory)
    values = arrays(specs)
    assert repr(ours) == repr(theirs)
    if "Lazy" not in name:
        for (key, drawn), (_, wanted) in zip(
            ours.state_dict().items(), theirs.state_dict().items(), strict=True
        ):
            np.testing.assert_array_equal(array(drawn), array(wanted), err_msg=key)
    for mode in ("train", "eval"):
        getattr(ours, mode)()
        getattr(theirs, mode)()
        found, expected = run(weft, ours, values), run(torch, theirs, values)
        if mode == "train":
            # After the first call, since lazy modules draw their numbers then. Batch statistics
            # have moved by now, on both sides.
            state, wanted = ours.state_dict(), theirs.state_dict()
            assert list(state) == list(wanted)
            alike(list(state.values()), list(wanted.values()), "state")
            assert type(ours).__name__ == type(theirs).__name__
            assert repr(ours) == repr(theirs)
        for what, f, e in zip(
            ("result", "input gradient", "weight gradient"), found, expected, strict=True
        ):
            if what == "result" or name not in WRONG_THERE:
                alike(f, e, f"{mode} {what}")


@pytest.mark.parametrize(
    ("name", "factory", "specs"),
    [c for i, c in enumerate(CASES) if c[0] not in {d[0] for d in CASES[:i]}],
    ids=lambda v: v if isinstance(v, str) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_state_goes_both_ways(name, factory, specs):
    """A state dict taken on one side, as arrays, gives the same results on the other."""
    values = arrays(specs)
    for giver, taker in ((weft, torch), (torch, weft)):
        giver.manual_seed(0)
        source = factory(giver.nn)
        source(*given(giver, values))
        taker.manual_seed(5)
        target = factory(taker.nn)
        if "Lazy" in name:
            target(*given(taker, values))
        state = {k: taker.tensor(array(v)) for k, v in source.state_dict().items()}
        assert str(target.load_state_dict(state)) == "<All keys matched successfully>"
        source.eval()
        target.eval()
        found = run(taker, target, values)
        alike(found[0], run(giver, source, values)[0], name)


def test_table_is_quiet_where_torch_is():
    """Making and calling an ordinary layer gives no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = weft.nn.TransformerEncoderLayer(4, 2)
        layer(weft.ones(3, 2, 4))
        list(layer.parameters())
