"""Compiled comparisons against Python's: what they confirm, Python confirms and notes alike.

The changes that are tried between two steps are those that a comparison is there for: left out,
one of these tests gives another result than eager mode.
"""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import native_matching, whole_calls
from weft.compiler.following import Region
from weft.compiler.segment import Segment
from weft.compiler.trace import CALL, walk


@pytest.fixture(autouse=True)
def single_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every op be compared: calls of functions are not confirmed as a whole."""
    monkeypatch.setattr(whole_calls, "compiled", lambda: None)


LISTS = ("arrays", "handles", "leaves", "nodes", "numbers", "path")


def twin_of(region: Any) -> Any:
    """An object in the same state as a region, apart from it."""
    twin = Segment.__new__(Segment)
    for name in LISTS:
        setattr(twin, name, list(getattr(region, name)))
    twin.met, twin.at = set(region.met), region.at
    twin.busy, twin.default, twin.learning = region.busy, region.default, region.learning
    return twin


def state_of(region: Any) -> Any:
    """What a region has noted, but for the pending tensors of its last call."""
    lists = [list(map(id, getattr(region, name))) for name in LISTS if name != "handles"]
    kinds = [
        None if t is None else (type(t), list(t._vc), object.__getattribute__(t, "_stamp")[1:])
        for t in region.handles
    ]
    return lists, kinds, region.met, id(region.at)


def tokens_of(compiled: Any) -> list[Any]:
    roots = compiled.learned.roots.values()
    return [token for root in roots for point in walk(root) for token in point.next]


def check(compiled: Any, seen: Counter[tuple[bool, bool]]) -> None:
    """Let every compiled answer be compared with Python's, which is given."""

    def checked(token: Any, quick: Any) -> Any:
        def call(region: Any, args: Any, attrs: Any) -> Any:
            twin = twin_of(region)
            before = state_of(twin)
            made = quick(twin, args, attrs)
            if made is None:
                assert state_of(twin) == before
            answer = token.follow(region, args, attrs)
            seen[made is not None, answer is not None] += 1
            if made is not None:
                assert answer is not None
                assert state_of(twin) == state_of(region)
                assert type(made) is type(answer)
            return answer

        call.checked = True  # type: ignore[attr-defined]
        return call

    for token in tokens_of(compiled):
        if token.kind == CALL and token.quick is not None:
            if not hasattr(token.quick, "checked"):
                token.quick = checked(token, token.quick)


def fresh() -> list[Any]:
    """Tensors that nobody has met: some lie as those that were learned, some in memory of others.

    That one of each is met later is as if a loader had made it.
    """
    kept = np.ones((3, 3), np.float32)
    shown = torch.randn(3, 3)
    shown.kept = shown.numpy()  # type: ignore[attr-defined]
    given = torch.from_numpy(kept)
    given.kept = kept  # type: ignore[attr-defined]
    return [
        *(torch.randn(3, 3), torch.ones(3, 3) * 2, torch.stack([torch.ones(3)] * 3)),
        *(torch.randn(3, 3).t(), torch.randn(4, 3)[1:], torch.randn(3, 6)[:, ::2]),
        *(torch.randn(3, 3).requires_grad_(), torch.ones(3, 3) + 1),
        *(nn.Parameter(torch.randn(3, 3)), torch.from_numpy(np.ones((3, 3), np.float32))),
        *(shown, given, torch.ones(3, 3).detach(), torch.randn(9).view(3, 3)),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_confirmed_is_what_python_confirms(seed: int) -> None:
    torch.manual_seed(seed)
    chosen = random.Random(seed)
    pool = [torch.randn(3, 3, requires_grad=k % 2 == 0) for k in range(4)]
    pool.append(pool[0].detach())  # another tensor on the same array

    def program(a: Any, b: Any, number: Any, dim: int, swapped: bool, recorded: bool) -> Any:
        with torch.set_grad_enabled(recorded):
            x = a * b + number
            y = (b if swapped else a) * x
            first, second = y.split([1, 2], dim)
            return first.sum(dim) + torch.nn.functional.linear(x, a).sum(dim) + second.sum() + b

    compiled = torch.compile(program)
    seen: Counter[tuple[bool, bool]] = Counter()
    usual = (pool[0], pool[1], 2.0, 0, False, True)
    for k in range(60):
        args = list(usual)
        if k > 4 and chosen.random() < 0.5:
            tensors = pool + fresh()
            other = (chosen.choice(tensors), chosen.choice(tensors), chosen.choice([2.0, 3.0, 3]))
            other = (*other, chosen.randrange(2), *(chosen.random() < 0.5 for _ in range(2)))
            place = chosen.randrange(6)
            args[place] = other[place]
        if k > 4 and chosen.random() < 0.2:
            p = chosen.choice(pool)
            change = chosen.choice(("memory", "let out", "requires"))
            if change == "memory":
                p.data = torch.randn(3, 3)
            elif change == "let out":
                p.detach().numpy()
            elif p.is_leaf:
                p.requires_grad_(not p.requires_grad)
        expected = program(*args)
        assert torch.allclose(compiled(*args), expected, rtol=1e-4, atol=1e-4)
        if k > 2:
            check(compiled, seen)
    if native_matching.functions() is not None:
        assert seen[True, True] > 50  # both say yes
        assert seen[False, True]  # left to Python, which knows that it is the same after all


@pytest.mark.parametrize("shape", [(4, 3), (4, 4), (2, 1, 4)])
def test_leaves_that_lie_otherwise(shape: tuple[int, ...]) -> None:
    """Each makes a course of its own, and the first is confirmed again."""
    compiled = torch.compile(lambda x: x.relu() * 2)
    seen: Counter[tuple[bool, bool]] = Counter()
    others = [
        *(torch.ones(3, 4), torch.ones(12), torch.ones(4, 3).double(), torch.ones(3, 4).t()),
        *(torch.ones(4, 3, dtype=torch.int64), torch.ones(4, 6)[:, ::2], torch.ones(1, 4, 3)),
        *(torch.ones(0, 3), torch.ones(1).expand(4, 3), torch.ones(4, 3, dtype=torch.int32)),
        *(torch.ones(4), torch.ones(2), torch.ones(4, 4).t(), torch.ones(8, 1).view(2, 4)),
    ]
    for other in (*others, *others):
        for _ in range(3):
            compiled(torch.ones(shape))
        check(compiled, seen)
        for x in (other, other + 1, torch.ones(shape) - 2):
            found, expected = compiled(x), compiled.function(x)
            assert found.dtype is expected.dtype and found.stride() == expected.stride()
            assert torch.equal(found, expected)
    if native_matching.functions() is not None:
        assert seen[True, True] > 20


def test_a_leaf_that_was_met_is_not_met_again_in_another_role() -> None:
    a = torch.ones(3)
    other = a.detach()  # another tensor on the same array
    compiled = torch.compile(lambda x, y: x * 2 + y * 3)
    seen: Counter[tuple[bool, bool]] = Counter()
    for k in range(8):
        compiled(a, other)
        if k > 2:
            check(compiled, seen)
    compiled(a, a)
    if native_matching.functions() is not None:
        assert seen[True, True] >= 8 and seen[False, False]


def network() -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.idle, model.awake = nn.Parameter(torch.ones(2)), False
    optimizer.param_groups[0]["params"].append(model.idle)
    return model, optimizer


def states(optimizer: Any) -> list[dict[str, Any]]:
    return [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]


def swap_names(model: Any, optimizer: Any) -> None:
    own = states(optimizer)[0]
    values = list(own.values())
    own.clear()  # the same tensors in the same order, under one another's names
    own.update(zip(("step", "exp_avg_sq", "exp_avg"), values, strict=True))


def replace_owned(model: Any, optimizer: Any) -> None:
    table = optimizer.state
    weight = next(iter(table))
    table[weight] = {**table[weight], "exp_avg": table[weight]["exp_avg"] * 3}


def replace_state(model: Any, optimizer: Any) -> None:
    own = states(optimizer)[1]
    own["exp_avg"] = own["exp_avg"] * 5


def replace_memory(model: Any, optimizer: Any) -> None:
    own = states(optimizer)[1]
    own["exp_avg"].data = own["exp_avg"].data * 5


def age(model: Any, optimizer: Any) -> None:
    states(optimizer)[2]["step"].fill_(40.0)


def forget_one(model: Any, optimizer: Any) -> None:
    del optimizer.state[model[0].weight]


def move_entry(model: Any, optimizer: Any) -> None:
    """The same entries in the same order, but one of them belongs to another parameter."""
    first, second = states(optimizer)[:2]
    name, value = "exp_avg_sq", first.pop("exp_avg_sq")
    first["exp_avg_sq"] = value * 2
    second.update({name: second.pop(name)})


def mark_exported(model: Any, optimizer: Any) -> None:
    states(optimizer)[0]["exp_avg"].numpy()[:] += 0.5


def other_state(model: Any, optimizer: Any) -> None:
    optimizer.load_state_dict(optimizer.state_dict())
    states(optimizer)[0]["exp_avg"].mul_(3)


def freeze(model: Any, optimizer: Any) -> None:
    model[0].bias.requires_grad_(False)
    model[0].bias.grad = None


def add_group(model: Any, optimizer: Any) -> None:
    extra = nn.Parameter(torch.ones(2))
    extra.grad = torch.ones(2)
    optimizer.add_param_group({"params": [extra]})
    model.extra = extra


def settings(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0].update(lr=torch.tensor(0.5), betas=(0.5, 0.9))


def amsgrad(model: Any, optimizer: Any) -> None:
    for own in filter(None, states(optimizer)):
        own["max_exp_avg_sq"] = own["exp_avg_sq"] * 4
    optimizer.param_groups[0]["amsgrad"] = True


def hook_gradient(model: Any, optimizer: Any) -> None:
    model[0].weight.register_hook(lambda g: g * 10)


def hook_accumulated(model: Any, optimizer: Any) -> None:
    def hook(p: Any) -> None:
        p.grad.mul_(10)

    model[0].weight.register_post_accumulate_grad_hook(hook)


def hook_step(model: Any, optimizer: Any) -> None:
    def hook(*given: Any) -> None:
        model[0].weight.grad.zero_()

    optimizer.register_step_pre_hook(hook)


def huge(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0].update(lr=1e300)  # infinite in float32


def rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.5


def whole_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 1


def decay(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.3


def ascend(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["maximize"] = True


def decouple(model: Any, optimizer: Any) -> None:
    optimizer.__class__ = torch.optim.SGD
    optimizer.param_groups[0].update(momentum=0, dampening=0, nesterov=False)


def drop_parameter(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["params"].remove(model[0].weight)


def replace_list(model: Any, optimizer: Any) -> None:
    group = optimizer.param_groups[0]
    group["params"] = group["params"][1:]


def params_in_a_tuple(model: Any, optimizer: Any) -> None:
    group = optimizer.param_groups[0]
    group["params"] = tuple(group["params"])


def replace_groups(model: Any, optimizer: Any) -> None:
    optimizer.param_groups = [{**optimizer.param_groups[0], "lr": 0.0}]


def wake(model: Any, optimizer: Any) -> None:
    model.awake = True  # a parameter that had no gradient gets one


CHANGES = (rate, whole_rate, decay, ascend, decouple, drop_parameter, replace_list,
           params_in_a_tuple, replace_groups, wake, swap_names, replace_owned, replace_state,
           replace_memory, age, forget_one, move_entry, mark_exported, other_state, freeze,
           add_group, settings, amsgrad, hook_gradient, hook_accumulated, hook_step,
           huge)  # fmt: skip


def losses(compile: Callable, change: Callable) -> tuple[list[Any], list[Any]]:
    model, optimizer = network()
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    kept: list[Any] = []

    def step(gradients: Any = None, replaced: bool = False) -> Any:
        optimizer.zero_grad()
        if gradients is not None:
            model[2].bias.grad = gradients
        if model.awake:
            model.idle.grad = torch.ones(2)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if replaced:
            kept.append(model[2].weight.grad)
            model[2].weight.grad = model[2].weight.grad * 2
        optimizer.step()
        return loss

    run = compile(step)
    found = [run() for _ in range(5)]
    change(model, optimizer)
    found += [run() for _ in range(3)]
    found += [run(torch.ones(2)), run(), run(None, True), run()]
    ends = [*model.parameters(), *(t for own in states(optimizer) for t in own.values()), *kept]
    return [loss.detach() for loss in found], ends


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_changes_between_two_steps(change: Callable) -> None:
    expected, found = losses(lambda f: f, change), losses(torch.compile, change)
    for a, b in zip((*expected[0], *expected[1]), (*found[0], *found[1]), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)


def test_every_part_of_a_usual_step_is_confirmed_by_compiled_code() -> None:
    if native_matching.functions() is None:
        pytest.skip("objects are not what compiled code knows")
    model, optimizer = network()
    x, y = torch.randn(5, 3), torch.randn(5, 2)

    @torch.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step()
    answers: Counter[tuple[str, bool]] = Counter()

    def counted(name: str, quick: Any) -> Any:
        def call(*args: Any) -> Any:
            found = quick(*args)
            answers[name, found is not None] += 1
            return found

        return call

    for token in tokens_of(step):
        if token.step is not None:
            token.step.usual.quick = counted(token.name, token.step.usual.quick)
        else:
            token.quick = counted(token.name, token.quick)
    for _ in range(3):
        step()
    confirmed = {"linear_with_bias": 6, "relu": 3, "mse_loss": 3, "backward": 3, "Adam": 3}
    assert answers == {(name, True): n for name, n in confirmed.items()}


def test_nothing_is_kept_that_was_let_go_of() -> None:
    """References are counted right: tensors that compiled code made and noted are freed."""
    model, optimizer = network()
    x, y = torch.randn(5, 3), torch.randn(5, 2)

    @torch.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def living() -> int:
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    for _ in range(5):
        step()
    before = living()
    for _ in range(50):
        step()
    assert living() <= before + 5  # what other tests have left may go meanwhile


def test_other_threads_read_what_is_pending_while_calls_go_on() -> None:
    x = torch.ones(64)

    @torch.compile
    def function(read: Any) -> Any:
        y = x * 2
        read(y)
        for _ in range(30):
            y = y + 1
        return y

    for k in range(40):
        found: list[Any] = []
        threads: list[threading.Thread] = []

        def read(y: Any, found: Any = found, threads: Any = threads) -> None:
            threads.append(threading.Thread(target=lambda: found.append(y.sum().item())))
            threads[0].start()

        out = function(read if k > 3 else lambda y: None)
        for thread in threads:
            thread.join()
        assert out.tolist() == [32.0] * 64
        assert found == [128.0] * len(threads)


def test_compiled_code_finds_the_results_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, found, kept = random.Random(3), [], []

    def held(region: Any, point: Any) -> int:
        bits = ordinary(region, point)
        assert bits == region.held_among(point.watched[0])
        found.append(bits)
        return bits

    ordinary = Region.held
    monkeypatch.setattr(Region, "held", held)

    def program(x: Any, keep: list[int], count: int) -> Any:
        for k in range(count):
            x = x + 1
            if k in keep:
                kept.append(x)
        x.add_(1)
        return x

    compiled = torch.compile(program)
    x = torch.zeros(2)
    for count in (70, 70, 70, 1100):
        keep = sorted(chosen.sample(range(count), 5))
        for k in range(3):
            kept.clear()
            assert compiled(x, keep, count).tolist() == [count + 1.0] * 2
            last = count - 1
            assert [t[0].item() for t in kept] == [k + 1.0 + (k == last) for k in keep]
    assert all(bits.bit_count() >= 5 for bits in found)
    assert max(found).bit_length() > 1024
    made = native_matching.functions()
    if made is None:
        return
    region, limit = compiled.learned.spare[0], native_matching.HeldResults.LIMIT
    for count in (limit - 1, limit, limit + 1):  # bits for which there is no room are not set
        region.handles = [*[None] * (count - 1), torch.ones(1)]
        kept = [region.handles[-1]]
        bits = made.held(region, native_matching.words([count - 1]))
        assert bits == (1 << count - 1 if count < limit else None)
    region.start(region.at)
