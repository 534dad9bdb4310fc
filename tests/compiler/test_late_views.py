"""Views that are made when they are read: whoever looks at one sees what eager mode shows."""

from __future__ import annotations

import copy
import gc
import io
import threading
import weakref
from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.compiler.deferred_views import DeferredView
from weft.compiler.plan import ExecutionPlan
from weft.compiler.trace import walk
from weft.core.pending import region_of

QUIET, CALLS = 5, 9  # calls without a look at the view, and all of them


def in_thread(v: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((v.detach() * 2).tolist()))
    thread.start()
    thread.join()
    return found


def saved(v: Any) -> Any:
    file = io.BytesIO()
    torch.save(v.detach(), file)
    file.seek(0)
    return torch.load(file).tolist()


def changed(change: Any) -> Any:
    """What is seen of a view and its base after a change."""

    def look(v: Any) -> Any:
        with torch.no_grad():
            change(v)
        base = None if v._base is None else v._base.detach().tolist()
        return v.detach().tolist(), v.shape, v._version, base

    return look


def refused(look: Any) -> Any:
    def run(v: Any) -> str:
        with pytest.raises(RuntimeError) as error:
            look(v)
        return str(error.value).splitlines()[0]

    return run


LOOKS: dict[str, Any] = {
    "values": lambda v: v.tolist(),
    "sum": lambda v: v.sum().item(),
    "array": lambda v: v.detach().numpy().copy().tolist(),
    "op": lambda v: (v.detach() * 2 + 1).tolist(),
    "two ops": lambda v: ((v * 2).exp() - v).tolist(),
    "version": lambda v: (v._version, v.is_leaf, v.requires_grad, v._is_view()),
    "base": lambda v: (v._base.shape, v._base.tolist(), v._base._version),
    "stride": lambda v: (v.stride(), v.storage_offset(), v.is_contiguous()),
    "node": lambda v: v.grad_fn.name(),
    "backward": refused(lambda v: v.sum().backward()),
    "in place": changed(lambda v: v.add_(1)),
    "in place of the base": changed(lambda v: v._base.mul_(3)),
    "row": changed(lambda v: v.__setitem__(0, 7.0)),
    "fill": changed(lambda v: v.zero_()),
    "cumsum_": changed(lambda v: v.cumsum_(0)),
    "out": changed(lambda v: torch.add(v.detach() + 1, 1, out=v)),
    "data": changed(lambda v: setattr(v, "data", v.detach() * 2)),
    "set_": changed(lambda v: v.set_(v.detach() + 5)),
    "swap": changed(lambda v: torch.utils.swap_tensors(v, v.detach() + 5)),
    "unsqueeze_": changed(lambda v: v.unsqueeze_(0)),
    "detach_": refused(lambda v: v.detach_()),
    "copy": lambda v: copy.deepcopy(v.detach()).tolist(),
    "file": saved,
    "thread": in_thread,
    "alias": lambda v: torch.stack([v, v.detach()]).tolist(),
    "hook": lambda v: v.register_hook(print) is not None,
    "view of it": lambda v: (v.view(-1)[1:] * 2)._base is v._base,
    "pointer": lambda v: v.data_ptr() == v._base.data_ptr(),
    "weak reference": lambda v: weakref.ref(v)().tolist(),
}
VIEWS: dict[str, Any] = {
    "squeeze": lambda x: x.squeeze(1),
    "row": lambda x: x.view(2, 3)[1].view(3),
    "transposed": lambda x: x.view(2, 3).t(),
}


def program(view: Any, look: Any, keeps: bool = False) -> tuple[Any, list[Any], list[Any]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    twin = copy.deepcopy(model)
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[Any] = []
    held: list[Any] = []

    def step(k: int) -> Any:
        shown = view(model(x).sin())
        loss = ((shown - view(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if look is not None and k >= QUIET:
            seen.append(look(shown))
        if keeps:
            held.append(shown)
        with torch.no_grad():
            for p, q in zip(twin.parameters(), model.parameters(), strict=True):
                p.mul_(0.5).add_(q)
        if look is not None and k > QUIET:
            seen.append(look(shown))
        return loss

    return step, seen, held


def outcome(function: Any) -> Any:
    try:
        return function().item()
    except RuntimeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("look", LOOKS)
def test_what_is_seen_of_a_view(look: str, view: str) -> None:
    eager, wanted, _ = program(VIEWS[view], LOOKS[look])
    step, seen, _ = program(VIEWS[view], LOOKS[look])
    compiled = torch.compile(step)
    for k in range(CALLS):
        losses = outcome(lambda k=k: compiled(k)), outcome(lambda k=k: eager(k))
        assert losses[0] == pytest.approx(losses[1]) or losses[0] == losses[1]
    assert str(seen) == str(wanted) or all(
        a == b or torch.allclose(torch.tensor(a), torch.tensor(b))
        for a, b in zip(flat(seen), flat(wanted), strict=True)
    )


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [x]


def plans(compiled: Any) -> list[ExecutionPlan]:
    roots = compiled.learned.roots.values()
    return [p for root in roots for point in walk(root) for p in point.plans.values() if p]


def test_a_view_that_nobody_reads_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    step, _, _ = program(VIEWS["squeeze"], None)
    compiled = torch.compile(step)
    for k in range(QUIET):
        compiled(k)
    assert any(plan.late for plan in plans(compiled))
    monkeypatch.setattr(ExecutionPlan, "_view", lambda *_: pytest.fail("made"))
    compiled(0)


def test_nothing_pending_outlives_the_region() -> None:
    eager, _, wanted = program(VIEWS["squeeze"], None, keeps=True)
    step, _, held = program(VIEWS["squeeze"], None, keeps=True)
    compiled = torch.compile(step)
    for k in range(CALLS):
        compiled(k)
        eager(k)
        assert all(region_of(v) is None for v in held)
    for mine, theirs in zip(held, wanted, strict=True):
        assert torch.allclose(mine, theirs) and mine._base is not None
    assert not any(plan.late for plan in plans(compiled)), "they are made at once by now"


def test_nothing_pending_outlives_an_exception() -> None:
    model, x = nn.Linear(2, 1), torch.ones(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept: list[Any] = []

    def step(fails: bool) -> None:
        shown = model(x).squeeze(1)
        shown.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if fails:
            kept.append(shown)
            raise ValueError("here")

    compiled = torch.compile(step)
    for _ in range(QUIET):
        compiled(False)
    with pytest.raises(ValueError, match="here"):
        compiled(True)
    assert region_of(kept[0]) is None
    assert kept[0].shape == (3,)


def test_memory_that_others_reach_is_shown_at_once() -> None:
    """Two views of one result, or a view beside the result itself: each sees what others write."""

    def program() -> Any:
        torch.manual_seed(0)
        model, x = nn.Linear(2, 2), torch.ones(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(how: int) -> Any:
            result = model(x).sin()
            first, second = result[:, 0], result[:, 1:]
            if how == 0:
                del result
            elif how == 1:
                del second
            (first.sum() * 2).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                target = second if how == 0 else result
                target._base.add_(1) if how == 0 else target.add_(1)
                other = target.detach() + 0
            # The first view goes on showing the old memory.
            (second._base if how == 0 else result).data = torch.zeros(3, 2)
            return other.tolist(), first.tolist(), first._version

        return step

    eager, compiled = program(), torch.compile(program())
    for k in range(12):
        for mine, theirs in zip(flat(compiled(k % 2)), flat(eager(k % 2)), strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)


def test_views_that_are_looked_at_are_not_learned_anew() -> None:
    step, _, _ = program(VIEWS["squeeze"], LOOKS["op"])
    compiled = torch.compile(step)
    for k in range(2 * CALLS):
        compiled(k)
    tokens = compiled.learned.tokens
    for _ in range(4):
        compiled(CALLS)
    assert compiled.learned.tokens == tokens


@pytest.mark.parametrize(
    "use",
    (
        lambda v: v * 2,
        lambda v: v.relu_(),
        lambda v: v.detach() + 1,
        lambda v: v.add_(torch.ones(3)),
        lambda v: v.cumsum_(0),
        lambda v: torch.stack([v, v])[0],
    ),
)
def test_a_view_that_is_used_later_is_no_other_course(use: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(2, 1), torch.ones(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        shown = model(x).squeeze(1)
        shown.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            return use(shown).sum()

    compiled = torch.compile(step, fullgraph=True)
    for _ in range(6):
        compiled()


def test_late_views_form_no_cycle() -> None:
    step, _, _ = program(VIEWS["squeeze"], None)
    compiled = torch.compile(step)
    for k in range(QUIET):
        compiled(k)
    gc.collect()
    gc.disable()
    try:
        compiled(0)
        assert not [x for x in gc.get_objects() if type(x) is DeferredView and x.is_pending]
    finally:
        gc.enable()
