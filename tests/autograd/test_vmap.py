"""``vmap`` as programs use it, beside torch: what is mapped, drawn, changed and differentiated."""

from __future__ import annotations

import pytest

import weft
from side_by_side import agree, lines, needs_torch

SETTING = """
F, vmap, func = torch.nn.functional, torch.func.vmap, torch.func
x = torch.arange(24.0, dtype=torch.float64).reshape(4, 6) / 10
i = torch.tensor([1, 0, 3, 2])

def changed(r, key, value):
    y = r.clone()
    y[key] = value
    return y

class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a):
        return a**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]

class Cube(Square):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, a):
        return (a**3).t(), 1

class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a**2

def leaf(a):
    return a.clone().requires_grad_()

def back(f, a):
    a = leaf(a)
    f(a).sum().backward()
    return a.grad
"""

PROGRAMS = """
vmap(lambda r, k: r[k])(x, i)
vmap(lambda k: x[k])(i)
vmap(lambda k: x[:, k])(i)
vmap(lambda r: r[torch.tensor([0, 2])])(x)
vmap(lambda r, k: r[k])(x, torch.stack([i, i, i, i]))
vmap(lambda r, k: r.reshape(2, 3)[:, k])(x, i % 3)
vmap(lambda r, k: r.reshape(2, 3)[:, k])(x, torch.stack([i % 3] * 4))
vmap(lambda r: r[1:4:2])(x)
vmap(lambda r: r.reshape(2, 3)[..., None, 1].clone())(x)
vmap(lambda r: torch.where(r > 1, r, 0 * r))(x)
vmap(lambda r: changed(r, 0, 5.0))(x)
vmap(lambda r: changed(r, slice(0, 2), r[2:4]))(x)
vmap(lambda r: r.clone().mul_(2).add_(r))(x)
vmap(lambda r: r.clone().reshape(2, 3).t().add_(1).sum(0))(x)
vmap(lambda r: torch.zeros(6).double().add_(r))(x)
vmap(lambda r: r.clone().zero_())(x)
vmap(lambda r: changed(torch.zeros_like(r), 0, r[1]))(x)
vmap(lambda r: changed(r.new_zeros(2), 0, r[1]))(x), vmap(lambda r: r.new_full((2,), 3) * r[0])(x)
vmap(lambda r: torch.full_like(r, 2.0).add_(r))(x), vmap(lambda r: torch.ones_like(r).mul_(r))(x)
vmap(lambda r: r.as_strided((2, 2), (2, 1), 1))(x).contiguous()
vmap(lambda k: F.embedding(k, x))(i)
vmap(lambda r, k: F.cross_entropy(r[None], k[None]))(x, i)
vmap(lambda r: F.cross_entropy(r.reshape(2, 3), torch.tensor([1, 2])))(x)
vmap(lambda r: F.mse_loss(r, x[0]))(x)
vmap(lambda r: F.batch_norm(r.reshape(3, 2), None, None, training=True) + 1)(x).contiguous()
vmap(lambda r: F.layer_norm(r, (6,), x[1], x[2]))(x)
vmap(lambda r, w: F.layer_norm(r.reshape(2, 3), (3,), w[:3], w[3:]))(x, x * 2)
vmap(lambda r: F.group_norm(r.reshape(1, 6), 2) + 1)(x)
vmap(lambda k: F.one_hot(k, 4))(i)
vmap(lambda r, w: F.conv1d(r.reshape(1, 1, 6), w.reshape(2, 1, 3)))(x, x.flip(0))
vmap(lambda r, w: F.linear(r.reshape(2, 3), w.reshape(2, 3), w[:2]))(x, x.flip(0))
vmap(lambda r: F.max_pool1d(r.reshape(1, 1, 6), 2))(x)
vmap(lambda r: F.scaled_dot_product_attention(*[r.reshape(1, 3, 2)] * 3))(x)
vmap(lambda r: torch.einsum('ij,ik->jk', r.reshape(2, 3), r.reshape(2, 3)))(x)
vmap(lambda r: r * 2, out_dims=1)(x)
vmap(lambda r: (r, r.sum()), out_dims=(1, 0))(x)
vmap(lambda r: torch.ones(2))(x)
vmap(lambda r: r.sum(), out_dims=None)(x)
vmap(lambda r: r, in_dims=1)(x)
vmap(lambda r: r.sum(), chunk_size=3)(x)
vmap(lambda d: d['a'] + d['b'], in_dims=({'a': 0, 'b': None},))({'a': x, 'b': x[0]})
vmap(lambda r: r.sum())(torch.zeros(0, 3))
vmap(lambda r: (r.cumsum(0), r.sort(descending=True)[0], r.topk(2)[1], r.argmax(), r.max(0)[1]))(x)
vmap(lambda r: torch.linalg.det(r[:4].reshape(2, 2) + torch.eye(2)))(x)
vmap(lambda r: torch.ones(3) * r)(torch.arange(4.0, dtype=torch.float64))
vmap(lambda r: torch.ones(3, dtype=torch.int32) + r)(torch.arange(4))
vmap(lambda r: torch.cat([r, r[:1]]))(x), vmap(lambda r: torch.stack([r, x[0]]))(x)
vmap(vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(x[0], x[1])
vmap(lambda r: r.sum().item())(x)
vmap(lambda r: r if r.sum() > 0 else -r)(x)
vmap(lambda r: r * 0 + torch.rand(6))(x)
vmap(lambda r: r * 0 + torch.rand(6), randomness='same')(x)
vmap(lambda r: r * 0 + torch.rand(6), randomness='different')(x)
vmap(lambda r: torch.randn_like(r), randomness='different')(x)
vmap(lambda r: r.clone().uniform_(), randomness='different')(x)
vmap(lambda r: torch.bernoulli(r / 3), randomness='different')(x)
vmap(lambda r: r.clone().uniform_(), randomness='same')(x.reshape(-1, 2, 3).permute(1, 2, 0))
vmap(lambda r: F.gumbel_softmax(r), randomness='different')(x.t())
F.gumbel_softmax(x.t())
vmap(lambda r: F.dropout(torch.ones(6) + r * 0), randomness='different')(x)
func.jacrev(lambda a: F.softmax(a, 0))(x[0])
func.jacfwd(lambda a: F.softmax(a, 0))(x[0]).contiguous()
func.hessian(lambda a: (a.sin() * a).sum())(x[0]).contiguous()
vmap(func.jacrev(lambda a: F.softmax(a, 0)))(x).contiguous()
vmap(func.hessian(lambda a: (a**3).sum()))(x[:, :2]).contiguous()
vmap(func.grad(lambda w, r: (w * r).sin().sum()), in_dims=(None, 0))(x[0], x)
func.jvp(lambda a: vmap(lambda r: r.sin() * x[0])(a), (x,), (x,))
torch.autograd.functional.jacobian(lambda a: F.softmax(a, 0), x[0], vectorize=True)
torch.autograd.grad(*[leaf(x[0])] * 2, torch.eye(6).double(), is_grads_batched=True)
(lambda a: torch.autograd.grad(a**3, a, torch.eye(6).double(), is_grads_batched=True))(leaf(x[0]))
vmap(lambda v, a=leaf(x[0]): torch.autograd.grad(Square.apply(a), a, v))(torch.eye(6).double())
vmap(lambda v, a=leaf(x[0]): torch.autograd.grad(a**3, [a, a], v))(torch.eye(6).double())
back(lambda a: vmap(lambda r: (r**2).sum())(a), x)
back(lambda a: vmap(func.grad(lambda r: (r**3).sum()))(a), x)
back(lambda w: vmap(lambda r: (w * r).sin().sum())(x), x[0])
back(lambda a: vmap(lambda r, k: r[k] * 2)(a, i), x)
vmap(Square.apply)(x), vmap(func.grad(lambda r: Square.apply(r).sum()))(x)
vmap(Cube.apply)(x)
vmap(Old.apply)(x)
back(lambda a: vmap(Square.apply)(a), x)
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_values_drawn_for_a_batch_arrive_in_whatever_memory_order(order: tuple[int, ...]) -> None:
    x = weft.zeros(3, 4, 5).permute(order)
    drawn = weft.func.vmap(lambda r: r.clone().uniform_(), randomness="different")(x)
    assert drawn.shape == x.shape and len(set(drawn.flatten().tolist())) == 60


@needs_torch
@pytest.mark.parametrize("program", lines(PROGRAMS))
def test_as_in_torch(program: str) -> None:
    agree(f"{SETTING}\ntorch.manual_seed(3)\n{program}")


NETWORK = """
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
).double()
weights = {k: v.detach() for k, v in net.named_parameters()}
images = torch.randn(4, 1, 4, 4).double()

def loss(weights, image, label):
    out = torch.func.functional_call(net, weights, (image[None],))
    return torch.nn.functional.cross_entropy(out, label[None])
"""


@needs_torch
@pytest.mark.parametrize("name", ["0.weight", "0.bias", "3.weight", "3.bias"])
def test_gradients_for_each_sample(name: str) -> None:
    agree(
        f"{NETWORK}\ngrads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))\n"
        f"grads(weights, images, torch.tensor([1, 0, 2, 2]))[{name!r}]"
    )


@needs_torch
def test_an_ensemble_of_networks() -> None:
    agree(
        f"{NETWORK}\nmany = {{k: torch.stack([v, 2 * v, v + 1]) for k, v in weights.items()}}\n"
        "torch.func.vmap(lambda w: torch.func.functional_call(net, w, (images,)))(many)"
    )


def test_the_function_runs_once() -> None:
    calls = []

    def function(r: weft.Tensor) -> weft.Tensor:
        calls.append(tuple(r.shape))
        return r * 2

    assert weft.func.vmap(function)(weft.ones(5, 3)).shape == (5, 3)
    assert calls == [(3,)]


def test_an_op_without_a_rule_runs_for_each_example() -> None:
    x = weft.arange(12.0).reshape(3, 4)
    found = weft.func.vmap(lambda r: weft.take(r, weft.tensor([3, 0])))(x)
    assert found.tolist() == [[3.0, 0.0], [7.0, 4.0], [11.0, 8.0]]


def test_a_tensor_that_leaves_its_vmap_has_no_values() -> None:
    kept = []
    weft.func.vmap(lambda r: kept.append(r) or r)(weft.ones(2, 3))
    with pytest.raises((NotImplementedError, RuntimeError)):
        kept[0] + 1
    with pytest.raises((NotImplementedError, RuntimeError)):
        kept[0].tolist()


def test_a_singular_example_is_an_error() -> None:
    matrices = weft.stack([weft.eye(2), weft.zeros(2, 2)])
    with pytest.raises(weft.linalg.LinAlgError, match="singular"):
        weft.func.vmap(weft.linalg.inv)(matrices)


def test_its_array_is_not_written_to() -> None:
    def function(r: weft.Tensor) -> weft.Tensor:
        r._a[...] = 1.0
        return r

    with pytest.raises(NotImplementedError, match="writing to its array"):
        weft.func.vmap(function)(weft.ones(2, 3))


def test_backward_inside_is_refused() -> None:
    def function(r: weft.Tensor) -> weft.Tensor:
        y = r.detach().requires_grad_()
        (y * y).sum().backward()
        return y

    with pytest.raises(RuntimeError, match="inside vmap"):
        weft.func.vmap(function)(weft.ones(2, 3))


def test_a_gradient_that_examples_share_is_refused() -> None:
    w = weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="shared by all examples"):
        weft.func.vmap(lambda r: weft.autograd.grad((w * r).sum(), w)[0])(weft.ones(2, 3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_cross_entropy_for_each_example(reduction, weighted):
    scores, labels = weft.randn(4, 3, 5), weft.randint(0, 5, (4, 3))
    labels[0, 1] = -100
    weight = weft.rand(5) + 0.5 if weighted else None

    def loss(x, y):
        return weft.nn.functional.cross_entropy(x, y, weight, reduction=reduction).sum()

    at_once = weft.vmap(weft.func.grad(loss))(scores, labels)
    by_hand = [weft.func.grad(loss)(x, y) for x, y in zip(scores, labels, strict=True)]
    weft.testing.assert_close(at_once, weft.stack(by_hand), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_are_put_at_the_indices_of_each_example(accumulate):
    x, values = weft.randn(4, 3, 5), weft.randn(4, 2, 5)
    places = weft.tensor([[0, 2], [1, 0], [2, 1], [0, 1]])

    def put(x, i, v):
        return x.index_put((i,), v, accumulate=accumulate)

    def put_in_columns(x, i, v):
        return x.t().index_put((weft.arange(5).unsqueeze(1), i), v.t(), accumulate=accumulate)

    for function in (put, put_in_columns):
        at_once = weft.vmap(function)(x, places, values)
        by_hand = weft.stack([function(*row) for row in zip(x, places, values, strict=True)])
        assert weft.equal(at_once, by_hand)
        one_for_all = weft.vmap(function, (0, None, 0))(x, places[0], values)
        by_hand = weft.stack([function(a, places[0], v) for a, v in zip(x, values, strict=True)])
        assert weft.equal(one_for_all, by_hand)


def _calls(monkeypatch: pytest.MonkeyPatch, run: object) -> dict[str, int]:
    """How often each op runs on batches while a function runs."""
    from weft.core import batching

    counts: dict[str, int] = {}
    plain = batching.BatchedCall.run

    def counting(self, *args, **attrs):
        counts[self.op.name] = counts.get(self.op.name, 0) + 1
        return plain(self, *args, **attrs)

    monkeypatch.setattr(batching.BatchedCall, "run", counting)
    run()  # type: ignore[operator]
    return counts


@pytest.mark.parametrize("inner", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("outer", ["jacrev", "jacfwd"])
def test_second_derivatives_of_a_layer_are_a_few_passes(inner, outer, monkeypatch) -> None:
    weight, x = weft.randn(5, 3, dtype=weft.float64), weft.randn(3, dtype=weft.float64)

    def layer(x):
        return weft.nn.functional.linear(x, weight).tanh()

    # The derivative of tanh'(a) = 1 - t**2 is -2 t (1 - t**2).
    t = layer(x)
    expected = weft.einsum("o,oi,oj->oij", -2 * t * (1 - t**2), weight, weight)
    first, second = getattr(weft.func, inner), getattr(weft.func, outer)
    found = []
    counts = _calls(monkeypatch, lambda: found.append(second(first(layer))(x)))
    assert weft.allclose(found[0], expected, atol=1e-12)
    # A loop over unit vectors would run the product 5 * 3 or 3 * 3 times.
    assert counts["mm"] <= 3


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 7])
def test_jacfwd_in_chunks_of_several_inputs(chunk_size: int | None) -> None:
    a, b = weft.randn(2, 3, dtype=weft.float64), weft.randn(3, 4, dtype=weft.float64)

    def f(a, b):
        return {"product": a @ b, "sum": (a * a).sum()}

    forward = weft.func.jacfwd(f, (0, 1), chunk_size=chunk_size)(a, b)
    reverse = weft.func.jacrev(f, (0, 1))(a, b)
    for name in ("product", "sum"):
        for x, y in zip(forward[name], reverse[name], strict=True):
            assert x.shape == y.shape and weft.allclose(x, y)


def test_products_of_a_vector_and_a_matrix_in_batches() -> None:
    mm = weft.core.dispatch.REGISTRY["mm"]
    vectors, matrices = weft.randn(4, 3), weft.randn(4, 3, 2)
    for dims in ((0, 0), (0, None), (None, 0)):
        operands = [x if d == 0 else x[0] for x, d in zip((vectors, matrices), dims, strict=True)]
        found = weft.vmap(lambda v, m: mm(v, m), in_dims=dims)(*operands)
        for i in range(4):
            v, m = (x[i] if d == 0 else x for x, d in zip(operands, dims, strict=True))
            assert weft.allclose(found[i], v @ m, atol=1e-6)
        turned = operands[1].transpose(-2, -1)
        found = weft.vmap(lambda m, v: mm(m, v), in_dims=dims[::-1])(turned, operands[0])
        for i in range(4):
            v, m = (x[i] if d == 0 else x for x, d in zip(operands, dims, strict=True))
            assert weft.allclose(found[i], v @ m, atol=1e-6)


def test_an_index_past_a_table_does_not_reach_the_next_examples() -> None:
    tables, indices = weft.randn(3, 4, 2), weft.tensor([[0, 1], [4, 0], [2, 3]])
    with pytest.raises(IndexError, match="out of range"):
        weft.func.vmap(weft.nn.functional.embedding)(indices, tables)
