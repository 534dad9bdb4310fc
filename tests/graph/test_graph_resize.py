"""Growing and shrinking a network in the middle of its training."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import resize
from weft.nn.resize import ResizeError


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.two(F.relu(self.norm(self.one(x)))))


def image_net():
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), Residual(4), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(4 * 16, 10), nn.ReLU(), nn.Linear(10, 2)),
    )


class Training:
    def __init__(self, net, x, y, kind=weft.optim.Adam, **options):
        self.net, self.x, self.y = net, x, y
        self.optimizer = kind(net.parameters(), lr=1e-2, **options)

    def step(self):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def resize(self, path, **options):
        return resize(self.net, path, example=self.x, optimizer=self.optimizer, **options)


@pytest.fixture
def images():
    weft.manual_seed(0)
    made = Training(image_net(), weft.randn(5, 3, 8, 8), weft.randn(5, 2))
    for _ in range(3):
        made.step()
    return made


def everything(training):
    state = training.optimizer.state_dict()
    arrays = [v.numpy().copy() for v in training.net.state_dict().values()]
    moments = [
        v.numpy().copy() for s in state["state"].values() for v in s.values() if hasattr(v, "numpy")
    ]
    return [a.tobytes() for a in (*arrays, *moments)], repr(training.net), state["param_groups"]


@pytest.mark.parametrize(
    ("path", "width", "touched"),
    [
        ("0", 7, {"0.weight", "0.bias", "2.one.weight", "2.two.weight", "2.two.bias", "5.weight"}),
        ("2.one", 9, {"2.one.weight", "2.one.bias", "2.norm.weight", "2.norm.bias",
                      "2.norm.running_mean", "2.norm.running_var", "2.two.weight"}),
        ("5", 16, {"5.weight", "5.bias", "7.weight"}),
    ],
)  # fmt: skip
def test_wider_is_the_same_function(images, path, width, touched):
    before = images.step()
    found = images.resize(path, width=width)
    assert found.preserved and set(found.shapes) == touched
    images.net.eval()
    images.net.train()
    after = images.step()
    assert after < before * 1.5
    losses = [images.step() for _ in range(20)]
    assert losses[-1] < losses[0]
    assert all(p.grad.shape == p.shape for p in images.net.parameters())


def test_layers_know_their_new_widths(images):
    images.resize("0", width=6)
    images.resize("2.one", width=5)
    images.resize("5", width=12)
    shown = repr(images.net)
    assert "Conv2d(3, 6" in shown and "Conv2d(6, 5" in shown and "BatchNorm2d(5" in shown
    assert "in_features=96, out_features=12" in shown
    copy = nn.Sequential(*images.net)
    copy.load_state_dict(images.net.state_dict())


def test_copies_learn_different_things(images):
    images.resize("5", width=20)
    for _ in range(5):
        images.step()
    rows = images.net[5].weight.detach().numpy()
    assert np.abs(rows[:10] - rows[10:]).max() > 1e-4


@pytest.mark.parametrize("kind", [weft.optim.SGD, weft.optim.Adam, weft.optim.RMSprop])
def test_optimizer_state_follows(kind):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    options = {"momentum": 0.9} if kind is weft.optim.SGD else {}
    training = Training(net, weft.randn(6, 3), weft.randn(6, 1), kind, **options)
    for _ in range(3):
        training.step()
    weight = net[0].weight
    old = {k: v.numpy().copy() for k, v in training.optimizer.state[weight].items()
           if isinstance(v, weft.Tensor) and v.ndim}  # fmt: skip
    assert training.resize("0", width=6).preserved
    assert net[0].weight is weight and weight.shape == (6, 3)
    for key, before in old.items():
        now = training.optimizer.state[weight][key].numpy()
        assert now.shape == (6, 3) and np.array_equal(now, before[[0, 1, 2, 3, 0, 1]])
    assert np.isfinite(training.step())


def test_narrower_keeps_the_strongest_units():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with weft.no_grad():
        net[0].weight[1] = 0.0
        net[2].weight[:, 1] = 0.0
        net[0].bias[1] = 0.0
    x = weft.randn(5, 3)
    found = resize(net, "0", width=3, example=x)
    assert found.preserved and net[2].weight.shape == (2, 3)
    rows = net[0].weight.detach().clone()
    resize(net, "0", width=1, keep=[2], example=x)
    assert np.array_equal(net[0].weight.detach().numpy(), rows[2:].numpy())


def test_layers_come_and_go():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    training = Training(net, weft.randn(6, 4), weft.randn(6, 1))
    training.step()
    found = training.resize("", insert={2: nn.Linear(8, 8), 3: nn.ReLU()})
    assert found.preserved and len(net) == 5  # relu of relu is relu
    count = len(training.optimizer.param_groups[0]["params"])
    assert count == len(list(net.parameters())) == 6
    before = net[2].weight.detach().clone()
    training.step()
    assert not np.array_equal(net[2].weight.detach().numpy(), before.numpy())
    training.resize("3", remove=True)
    training.resize("2", remove=True)
    assert len(net) == 3 and len(training.optimizer.param_groups[0]["params"]) == 4
    assert len(training.optimizer.state) == 4
    training.step()


def test_embeddings_norms_and_a_way_around():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(11, 4)
            self.norm = nn.LayerNorm(4)
            self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, tokens):
            x = self.words(tokens)
            x = x + self.down(F.gelu(self.up(self.norm(x))))
            return self.head(x.mean(1))

    weft.manual_seed(0)
    model, tokens = Model(), weft.tensor([[1, 2, 3], [4, 5, 10]])
    assert resize(model, "up", width=9, example=tokens).preserved
    # Twice the width copies every unit once, which a mean over units does not notice.
    found = resize(model, "words", width=8, example=tokens)
    assert found.preserved
    assert model.words.embedding_dim == 8 and model.norm.normalized_shape == (8,)
    assert model.words.weight.shape == (11, 8) and model.head.in_features == 8


def test_a_parameter_alone():
    p = nn.Parameter(weft.arange(6.0).reshape(2, 3))
    optimizer = weft.optim.Adam([p])
    p.sum().backward()
    optimizer.step()
    before = p.detach().clone()
    resize(p, shape=(3, 2), optimizer=optimizer)
    assert p.shape == (3, 2) and p.grad.shape == (3, 2)
    assert np.array_equal(p.detach().numpy()[:2], before.numpy()[:, :2])
    assert optimizer.state[p]["exp_avg"].shape == (3, 2)
    optimizer.step()
    with pytest.raises(ResizeError, match="a shape"):
        resize(p, shape=(3,))


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("7", {"width": 3}, "width of the model's output"),
        ("6", {"width": 3}, "not a layer whose results have a width"),
        ("5", {"width": 0}, "a width of 0"),
        ("5", {"width": 4, "keep": [1, 1, 2, 3]}, "4 different units"),
        ("9", {"width": 4}, "9"),
        ("2", {"insert": {0: nn.ReLU()}}, "not a Sequential or ModuleList"),
        ("", {"insert": {77: nn.ReLU()}}, "no place 77"),
        ("2.one", {"remove": True}, "not a layer of a Sequential"),
        ("5", {"remove": True}, "cannot be multiplied"),
        ("", {"insert": {5: nn.Linear(3, 3)}}, "cannot be multiplied"),
    ],
)
def test_a_failed_resize_changes_nothing(images, path, options, message):
    before = everything(images)
    loss = F.mse_loss(images.net(images.x), images.y).item()
    state = weft.get_rng_state().numpy().tobytes()
    before = everything(images)
    with pytest.raises((ResizeError, RuntimeError), match=message):
        images.resize(path, **options)
    assert everything(images) == before and weft.get_rng_state().numpy().tobytes() == state
    assert F.mse_loss(images.net(images.x), images.y).item() == loss
    images.step()


def test_what_the_graph_can_not_follow_is_refused():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(2, 1)

        def forward(self, x):
            a, b = self.one(x).chunk(2, 1)
            return self.two(a * b)

    model = Split()
    with pytest.raises(ResizeError, match=r"can't change: split .*chunk\(2, 1\)"):
        resize(model, "one", width=6, example=weft.randn(2, 3))
    with pytest.raises(TypeError, match="one of width="):
        resize(model, "one")
    with pytest.raises(TypeError, match="width= is a whole number, not 'a'"):
        resize(model, "one", width="a", example=weft.randn(2, 3))
    with pytest.raises(TypeError, match="insert= is a dict of layers"):
        resize(model, "", insert=[nn.ReLU()])
    with pytest.raises(TypeError, match="str is not an optimizer"):
        resize(model, "one", width=6, example=weft.randn(2, 3), optimizer="adam")
    grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, 1))
    with pytest.raises(ResizeError, match="'0' is a convolution in groups"):
        resize(grouped, "0", width=8, example=weft.randn(1, 4, 5, 5))
    with pytest.raises(ResizeError, match="needs example="):
        resize(model, "one", width=6)


# --- optimizers with a history, shared weights, layers that know their widths ----------


def test_lbfgs_goes_on_after_a_resize():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = weft.randn(16, 2), weft.randn(16, 1)
    optimizer = weft.optim.LBFGS(net.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    before = closure().item()
    resize(net, "0", width=7, example=x, optimizer=optimizer)
    assert closure().item() == pytest.approx(before, rel=1e-4)
    optimizer.step(closure)
    assert closure().item() < before
    resize(net[0].weight, shape=(9, 2), optimizer=optimizer)
    resize(net[0].bias, shape=(9,), optimizer=optimizer)
    resize(net[2].weight, shape=(1, 9), optimizer=optimizer)
    optimizer.step(closure)


class Tied(nn.Module):
    def __init__(self, between=None):
        super().__init__()
        self.emb = nn.Embedding(10, 4)
        self.between = between or nn.Identity()
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, i):
        return self.out(self.between(self.emb(i)))


@pytest.mark.parametrize("between", [None, nn.ReLU, lambda: nn.Linear(4, 4)])
def test_an_embedding_that_shares_its_weight(between):
    weft.manual_seed(0)
    model = Tied(between and between())
    i = weft.tensor([[1, 2, 9]])
    optimizer = weft.optim.Adam(model.parameters())
    model(i).sum().backward()
    optimizer.step()
    done = resize(model, "emb", width=7, example=i, optimizer=optimizer)
    assert done.preserved and model.emb.weight is model.out.weight
    assert model.emb.weight.shape == (10, 7)
    assert (model.emb.embedding_dim, model.out.in_features) == (7, 7)
    model(i).square().sum().backward()
    optimizer.step()
    resize(model, "emb", width=3, example=i, optimizer=optimizer)
    assert model(i).shape == (1, 3, 10)


def test_a_layer_knows_the_shape_of_its_parameter():
    emb = nn.Embedding(10, 4, padding_idx=8)
    other = nn.Linear(4, 10)
    other.weight = emb.weight
    resize(emb.weight, shape=(12, 5))
    assert (emb.num_embeddings, emb.embedding_dim) == (12, 5) and "12, 5" in repr(emb)
    assert (other.out_features, other.in_features) == (12, 5)
    with pytest.raises(ResizeError, match="padding is number 8"):
        resize(emb.weight, shape=(8, 5))
    assert emb.num_embeddings == 12
