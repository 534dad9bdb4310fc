"""A course that is known at two sizes runs compiled at a third one in its first call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
from side_by_side import needs_torch
from weft import nn
from weft.compiler import resizing
from weft.nn import functional as F


def looked_at(value: Any) -> Any:
    """All that can be seen of a result: what it is, and its values."""
    if isinstance(value, (tuple, list)):
        found = [looked_at(x) for x in value]
        return [kind for kind, _ in found], [y for _, values in found for y in values]
    if isinstance(value, torch.Tensor):
        kind = value.shape, value.dtype, value.stride(), value.requires_grad, value._is_view()
        return kind, [value.detach().clone().numpy()]
    return value, []


def outcome(function: Callable, *args: Any) -> Any:
    try:
        return looked_at(function(*args))
    except (RuntimeError, ValueError, IndexError) as error:
        return (type(error), str(error).splitlines()[0]), []


def same(mine: Any, theirs: Any, exactly: bool = False) -> bool:
    """Whether outcomes are the same, with values to rounding or in bits."""
    if mine[0] != theirs[0]:
        return False
    for a, b in zip(mine[1], theirs[1], strict=True):
        if exactly and a.tobytes() != b.tobytes():
            return False
        if not np.allclose(a, b, 1e-12, 1e-14, equal_nan=True):
            return False
    return True


def learned_eagerly(function: Callable, *args: Any) -> Any:
    """The outcome of a program that was learned for just these arguments."""
    compiled = torch.compile(function)
    outcome(compiled, *args)
    return outcome(compiled, *args)


def check(function: Callable, batches: list[tuple[Any, ...]], new: int | None = None) -> Any:
    """Compare a function with itself, compiled; ``new`` is how many sizes were not learned.

    The program of a new size has the bits of one that was learned at that size.
    """
    compiled = torch.compile(function)
    for args in batches:
        before = compiled.learned.resized
        mine = outcome(compiled, *args)
        shapes = [getattr(x, "shape", x) for x in args]
        assert same(mine, outcome(function, *args)), shapes
        if compiled.learned.resized > before:
            assert same(mine, learned_eagerly(function, *args), exactly=True), shapes
    assert new is None or compiled.learned.resized == new
    return compiled


def twice(*sizes: int) -> list[int]:
    return [n for size in sizes for n in (size, size)]


def draw(*shape: int) -> Any:
    return torch.randn(*shape).double()


PROGRAMS: dict[str, Callable] = {
    "elements": lambda x, w: (torch.tanh(x) * 2 + x.mean(0)).sum(1),
    "a product": lambda x, w: F.relu(x @ w).max(1).values,
    "a shape": lambda x, w: (x @ w).view(x.shape[0], 2, -1).transpose(1, 2).reshape(-1, 2),
    "views": lambda x, w: (x[1:, ::2], x.t().flatten(), x.expand(2, *x.shape).sum(1)),
    "in place": lambda x, w: (x * 1).mul_(2).add_(x.sum(0)).clamp_(min=0),
    "pieces": lambda x, w: [part * 2 for part in x.split(4, dim=1)],
    "cat": lambda x, w: torch.cat([x, x[:2], torch.zeros(1, x.shape[1]).double()]).cumsum(0),
    "numbers of sizes": lambda x, w: x.sum(0) / x.shape[0] + x.shape[0] ** 0.5,
    "new tensors": lambda x, w: x[torch.arange(len(x) - 1, -1, -1)] + torch.eye(len(x), 8).double(),
    "softmax": lambda x, w: F.log_softmax(x @ w, -1).gather(1, torch.zeros(len(x), 1).long()),
    "moments": lambda x, w: F.layer_norm(x, x.shape[1:]) + x.std(0) + x.var(1, keepdim=True),
    "a triangle": lambda x, w: (x @ x.t()).tril().softmax(0) @ x,
    "a branch": lambda x, w: x.relu() if len(x) > 6 else x.tanh() * 3,
    "a loop": lambda x, w: sum((row * k for k, row in enumerate(x.unbind(1))), start=x[:, 0]),
    "read in between": lambda x, w: x * 2 if (x @ w).sum().item() > 0 else x - 1,
}


@pytest.mark.filterwarnings("ignore:std|var")
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_at_random(name: str) -> None:
    """Zero and one among them, and sizes that other dimensions have."""
    rng = random.Random(name)
    torch.manual_seed(0)
    w = draw(8, 6)
    sizes = [*twice(5, 9), *(rng.choice((0, 1, 2, 3, 6, 7, 8, 12, 33)) for _ in range(24))]
    batches = [(draw(n, 8), w) for n in sizes]
    assert check(PROGRAMS[name], batches).learned.resized > 2


def test_the_first_call_at_a_new_size_is_compiled() -> None:
    w = draw(8, 8)
    function = lambda x: F.gelu(x @ w).sum(1)
    compiled = check(function, [(draw(n, 8),) for n in (*twice(4, 6), 5, 7, 8, 5)], 3)
    assert compiled.learned.diverged == 2
    assert "taken 3 times at a new size" in compiled.explain()


def test_batches_from_numpy_at_a_new_size_are_compiled() -> None:
    """Nobody else holds their arrays: they are inputs like any other, met first or later."""
    w = torch.randn(8, 3)

    def batch(n: int) -> tuple[Any, Any]:
        x = numbers.standard_normal((n, 8)).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(numbers.integers(0, 3, n))

    compiled = torch.compile(lambda x, y: F.cross_entropy(x @ w, y))
    for seed, n in enumerate((*twice(4, 6), 5, 7, 9)):
        found = []
        for run in (compiled, compiled.function):
            numbers = np.random.default_rng(seed)
            found.append(run(*batch(n)))
        assert torch.allclose(*found)
    assert compiled.learned.diverged == 2


def test_one_size_is_not_enough_and_one_element_is_no_size() -> None:
    function = lambda x: (x + torch.ones(1, 8).double()) * 2
    check(function, [(draw(n, 8),) for n in (*twice(4), 5)], 0)
    compiled = check(function, [(draw(n, 8),) for n in (*twice(4, 6), 1, 0, 3)], 1)
    assert compiled.learned.diverged == 4


def test_branches_on_sizes_are_taken() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        return y.relu() if x.shape[0] % 2 else y.tanh()

    sizes = [*twice(4, 6), 8, 7, 7, 10, 9, 11]
    compiled = check(function, [(draw(n, 3),) for n in sizes], 6 - 1)
    assert compiled.learned.divergences["relu"] == 1  # learned where it was first taken


def test_sizes_that_do_not_come_back_run_eagerly() -> None:
    """Learning costs more than a call; what comes back later is compiled after all."""
    compiled = torch.compile(lambda x: x.cumsum(0) * 2)
    for n in range(2, 102):
        x = draw(n, 2)
        assert same(outcome(compiled, x), outcome(lambda x: x.cumsum(0) * 2, x))
    assert compiled.learned.resized == 0
    assert compiled.learned.diverged < 60
    assert f"{compiled.learned.eager_calls} calls ran eagerly" in compiled.explain()
    for _ in range(400):
        compiled(x)
    assert compiled.learned.runs > 100


def test_sizes_among_which_few_come_back_are_not_compiled_at_once() -> None:
    """However often those few do: a program that runs once does not pay."""
    compiled = torch.compile(lambda x: x.exp().sum(1) * 2)
    rng = random.Random(0)
    for n in range(2, 150):
        compiled(draw(n, 2))
        compiled(draw(rng.choice((200, 300, 400, 500)), 2))
    assert compiled.learned.resized < 50
    assert compiled.learned.runs > 140


@pytest.mark.parametrize("grow", ["a slice", "cat"])
def test_caches_that_grow(grow: str) -> None:
    """A prefix of a cache, or a cache that is another tensor each time."""
    store = draw(40, 4)

    def slices(x: Any, k: int) -> Any:
        return (store[:k] @ x).softmax(0)

    def cat(x: Any, k: int) -> Any:
        held[0] = torch.cat([held[0], x[None]])
        return held[0].mean(0) * 2

    held = [draw(2, 4)]
    function = slices if grow == "a slice" else cat
    compiled = torch.compile(function)
    for round in range(3):
        held[0] = start = draw(2, 4)
        for k in range(3, 30):
            x, before = draw(4), held[0]
            mine = outcome(compiled, x, k)
            held[0] = before
            assert same(mine, outcome(function, x, k)), (round, k)
        held[0] = start


def test_old_sizes_are_forgotten() -> None:
    w = draw(6, 6)
    compiled = torch.compile(lambda x: (x @ w).relu())
    for n in twice(*range(2, 60)):
        compiled(draw(n, 6))
    (root,) = compiled.learned.roots.values()
    assert len(root.next) == resizing.BRANCHES
    assert compiled.learned.evicted == 58 - resizing.BRANCHES
    plans = [p for t in root.next for p in t.after.next[0].after.plans.values()]
    assert len(plans) <= resizing.BRANCHES
    assert (
        "42 paths were evicted, since at most 16 are kept at one branch point" in compiled.explain()
    )
    last = draw(59, 6)
    assert same(outcome(compiled, last), outcome(lambda x: F.relu(x @ w), last))


def test_a_size_that_comes_back_outlives_others() -> None:
    compiled = torch.compile(lambda x: x.exp() + 1)
    often = draw(100, 2)
    for n in twice(*range(2, 40)):
        compiled(draw(n, 2))
        compiled(often)
    assert compiled.learned.diverged + compiled.learned.resized == 39


def test_a_size_that_an_op_refuses() -> None:
    function = lambda x: x.view(-1, 4).sum(1) + torch.ones(1)
    check(function, [(draw(n),) for n in (*twice(8, 12), 16, 6, 20, 7)], 2)


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_lies_as_its_kernel_lays_it_out(heads: int) -> None:
    """Which depends on whether there is enough work for a kernel."""

    def function(x: Any) -> Any:
        b, t, width = x.shape
        q = x.view(b, t, heads, width // heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return y.stride(), y.transpose(1, 2).is_contiguous(), y.requires_grad

    sizes = [(4, 32), (4, 32), (6, 16), (6, 16), (2, 2), (8, 64), (2, 64), (3, 5), (16, 2)]
    check(function, [(torch.randn(b, t, 64),) for b, t in sizes], 5)


def test_stances_that_forbid_new_courses_forbid_new_sizes() -> None:
    compiled = torch.compile(lambda x: x.sin().sum())
    for n in twice(3, 4):
        compiled(draw(n))
    with torch.compiler.set_stance("fail_on_recompile"):
        with pytest.raises(RuntimeError, match="different execution path"):
            compiled(draw(5))
    assert compiled(draw(5)).shape == ()


def training(make: Callable[[], tuple[Any, Callable]], optimizer: str) -> Callable[[int], Any]:
    torch.manual_seed(1)
    model, batch = make()
    model = model.double()
    # Where gradients are nothing but rounding, Adam is not to divide them by themselves.
    settings = {"eps": 1e-3} if optimizer == "Adam" else {"momentum": 0.9}
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, **settings)

    def step(n: int, x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        steps.step()
        return loss

    return model, batch, step


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 7), nn.Linear(7, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][-1])


MODELS: dict[str, Callable] = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
        lambda n: (draw(n, 6), draw(n, 2)),
    ),
    "cnn": lambda: (
        nn.Sequential(
            *(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten()),
            nn.Linear(36, 2),
        ),
        lambda n: (draw(n, 2, 8, 8), draw(n, 2)),
    ),
    "lstm": lambda: (Recurrent(), lambda n: (draw(4, n, 5), draw(n, 2))),
    "attention": lambda: (
        nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2)),
        lambda n: (draw(3, n, 8), draw(3, n, 2)),
    ),
}


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("name", MODELS)
def test_training_steps(name: str, optimizer: str) -> None:
    """Losses and parameters are those of eager steps, whatever the size."""
    sizes = [*twice(8, 6), 7, 8, 3, 10, 6, 2, 7, 12]

    def run(compile: Callable) -> Any:
        model, batch, step = training(MODELS[name], optimizer)
        step = compile(step)
        losses = [step(0, *batch(n)).item() for n in sizes]
        return looked_at([torch.tensor(losses).double(), *model.parameters()]), step

    eager, compiled = run(lambda function: function), run(torch.compile)
    assert same(compiled[0], eager[0])
    assert compiled[1].learned.resized == 5
    assert compiled[1].learned.diverged == 2


@needs_torch
@pytest.mark.parametrize("first", range(0, 60, 6))
def test_random_programs(first: int) -> None:
    """With what the rules of ops tell in the place of what eager mode has shown."""
    import compiled_programs

    with compiled_programs.resized():
        reports = [compiled_programs.check(920_000_000 + first + k) for k in range(6)]
    assert not [r for r in reports if r is not None]


@needs_torch
@pytest.mark.parametrize("first", range(0, 60, 6))
def test_random_programs_at_several_sizes(first: int) -> None:
    import compiled_programs

    at_sizes = compiled_programs.difference_at_sizes
    seeds = range(940_000_000 + first, 940_000_006 + first)
    reports = [compiled_programs.check(seed, None, at_sizes) for seed in seeds]
    assert not [r for r in reports if r is not None]


@needs_torch
@pytest.mark.deep
def test_many_random_programs() -> None:
    import compiled_programs

    at_sizes = compiled_programs.difference_at_sizes
    reports = [compiled_programs.check(950_000_000 + k, None, at_sizes) for k in range(2000)]
    with compiled_programs.resized():
        reports += [compiled_programs.check(930_000_000 + k) for k in range(2000)]
    assert not [r for r in reports if r is not None]


@pytest.mark.parametrize("way", ["bias", "values"])
def test_a_call_at_a_new_size_that_does_not_fit_fails_where_it_is_made(way: str) -> None:
    weight, given = torch.randn(5, 8), {"bias": torch.randn(5), "values": torch.randn(2, 8)}
    at = torch.tensor([1, 0])

    def function(x: Any) -> Any:
        try:
            if way == "bias":
                return F.linear(x * 2, weight, given["bias"]) * 2
            return (x * 2).index_put((at,), given["values"]) * 2
        except RuntimeError:
            return x

    compiled = torch.compile(function)
    for n in (6, 6, 6, 3, 3, 3, 2):
        compiled(torch.ones(n, 8))
    given["bias"], given["values"] = torch.randn(3), torch.randn(3, 8)
    assert compiled(torch.ones(4, 8)).tolist() == [[1.0] * 8] * 4
