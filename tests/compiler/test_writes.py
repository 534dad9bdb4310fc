"""Changes in place that wait: whoever looks sees them, wherever the stretch stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import weft as torch
from weft.compiler import Compiled

CALLS = 5


def caches():
    """Two equal caches, and rows to put into them."""
    torch.manual_seed(0)
    cache = torch.randn(2, 6, 3)
    return cache, cache.clone(), [torch.tensor([k]) for k in range(6)], torch.randn(6, 2, 1, 3)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, check_stride=True)


def agree(body, calls=CALLS):
    """Run ``body(cache, place, row)`` on equal caches, eagerly and compiled; all must be equal."""
    mine, theirs, places, rows = caches()
    compiled = Compiled(body)
    for k in range(calls):
        expected, found = body(theirs, places[k], rows[k]), compiled(mine, places[k], rows[k])
        close(found, expected)
        assert mine._version == theirs._version
        close(mine, theirs)
    return compiled.learned


def put(cache, place, row):
    cache.index_copy_(1, place, row * 2)


def test_a_cache_is_written_by_the_program_that_reads_it():
    def step(cache, place, row):
        before = cache.sum()
        put(cache, place, row)
        put(cache, place - 0, row + 1)
        return before, (cache * row).sum(1)

    learned = agree(step)
    assert set(learned.reasons) == {"the region ended"}


@pytest.mark.parametrize(
    "change",
    [
        lambda x, i, r: x.index_copy_(1, i, r),
        lambda x, i, r: x.index_add_(1, i, r, alpha=2),
        lambda x, i, r: x.index_fill_(1, i, 0.5),
        lambda x, i, r: x.scatter_(1, i.view(1, 1, 1).expand(2, 1, 3), r),
        lambda x, i, r: x.masked_fill_(x > 0, -1.0),
        lambda x, i, r: x.float_power_(2) if x.dtype == torch.float64 else x.cumsum_(1),
    ],
)
def test_changes_by_functions_wait(change):
    def step(cache, place, row):
        change(cache, place, row)
        return cache + 1

    learned = agree(step)
    assert set(learned.reasons) == {"the region ended"}
    assert learned.diverged == 1


@pytest.mark.parametrize(
    "alias",
    [
        lambda c: c.detach(),
        lambda c: c[:, 1:],
        lambda c: torch.empty(0).set_(c.untyped_storage(), 3, (2, 3)),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_other_tensors_on_the_memory_show_the_change(alias, own):
    def step(cache, place, row, other):
        cache.index_copy_(1, place, row * 2)
        return other * 1, cache.sum()

    mine, theirs, places, rows = caches()
    mine, theirs = (x.clone() if own else x for x in (mine, torch.randn_like(theirs)))
    assert own == (mine._a.base is None), "an array of its own, or one that shows another's memory"
    theirs.copy_(mine)
    others, compiled = (alias(mine), alias(theirs)), Compiled(step)
    for k in range(CALLS):
        found = compiled(mine, places[k], rows[k], others[0])
        close(found, step(theirs, places[k], rows[k], others[1]))


def test_numpy_shows_the_change():
    def step(cache, place, row, array):
        cache.index_copy_(1, place, row * 2)
        seen = array.copy()
        return torch.from_numpy(seen), cache.sum()

    mine, theirs, places, rows = caches()
    compiled, arrays = Compiled(step), (mine.numpy(), theirs.numpy())
    for k in range(CALLS):
        found = compiled(mine, places[k], rows[k], arrays[0])
        close(found, step(theirs, places[k], rows[k], arrays[1]))


def test_views_made_before_and_after_show_the_change():
    def step(cache, place, row):
        early = cache[:, 2:]
        put(cache, place, row)
        late = cache[:, :3]
        return early + 0, late * 2, early, late

    agree(step)


def test_a_value_that_is_read_between_two_changes():
    def step(cache, place, row):
        put(cache, place, row)
        first = cache[0, 0, 0].item()
        cache.index_add_(1, place, row)
        return torch.tensor(first), cache.sum()

    agree(step)


def test_an_exception_leaves_what_was_changed():
    def step(cache, place, row):
        put(cache, place, row)
        after = cache + 1
        cache.index_copy_(1, place + 6, row)  # out of bounds
        return after

    mine, theirs, places, rows = caches()
    compiled = Compiled(step)
    for k in range(CALLS):
        errors = []
        for run, cache in ((step, theirs), (compiled, mine)):
            with pytest.raises(IndexError) as caught:
                run(cache, places[k], rows[k])
            errors.append(str(caught.value).split("\n")[0])
        assert errors[0] == errors[1]
        assert mine.equal(theirs)
        assert mine._version == theirs._version == k + 1


def test_another_thread_reads_what_is_about_to_change():
    mine, theirs, places, rows = caches()

    def step(cache, place, row):
        put(cache, place, row)
        found: list[float] = []
        reader = threading.Thread(target=lambda: found.append(cache.sum().item()))
        reader.start()
        reader.join()
        return found[0], cache * 1

    compiled = Compiled(step)
    for k in range(CALLS):
        found, expected = compiled(mine, places[k], rows[k]), step(theirs, places[k], rows[k])
        assert found[0] == expected[0]
        assert found[1].equal(expected[1])


def test_what_backward_saved_and_a_function_changed_is_an_error():
    w = torch.randn(3, requires_grad=True)

    def step(x, place):
        loss = (w * x).sum()
        x.index_fill_(0, place, 1.0)
        loss.backward()

    compiled, messages = Compiled(step), []
    for run in (step, *[compiled] * CALLS):
        x = torch.randn(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            run(x, torch.tensor([1]))
        messages.append(str(caught.value).split("\n")[0].partition(" saved ")[2])
        assert w.grad is None
    assert len(set(messages)) == 1


def test_a_function_that_gives_its_input_or_another_layout():
    def step(cache, place, row):
        same = torch.nn.functional.dropout(cache, 0.0, training=False, inplace=True)
        turned = cache.permute(2, 0, 1).clone()
        turned.cumsum_(1)
        turned.masked_fill_(turned > 1, 0.5)
        after = turned * 2
        return same + 1, turned, after

    agree(step)


def test_the_written_value_is_computed_from_the_old_one_everywhere():
    def step(cache, place, row):
        old = cache * 3
        cache.index_copy_(1, place, old[:, :1])
        new = cache.sum(1)
        cache.index_copy_(1, place, new[:, None])
        return old, new, cache.clone()

    learned = agree(step)
    assert set(learned.reasons) == {"the region ended"}


@pytest.mark.parametrize(
    "write",
    [
        lambda x, k, row: x.__setitem__((slice(None), k), row[:, 0]),
        lambda x, k, row: x.__setitem__((slice(None), k - 6), row[:, 0]),
        lambda x, k, row: x.__setitem__((slice(None), slice(k, k + 1)), row),
        lambda x, k, row: x.__setitem__((..., slice(k, k + 1), slice(None)), row * 2),
        lambda x, k, row: x.__setitem__((slice(None), k), row[0, 0]),
        lambda x, k, row: x.__setitem__((slice(None), k), 0.5),
        lambda x, k, row: x.__setitem__((slice(None), slice(k, k + 1)), row[:1] + 1),
        lambda x, k, row: x.__setitem__(k % 2, row.sum()),
    ],
)
def test_rows_at_changing_places_are_one_course(write):
    places = iter([k for k in range(6) for _ in range(2)])

    def step(cache, place, row):
        before = cache * 2
        write(cache, place.shape[0] - 1, row)
        return before, cache.sum(0)

    mine, theirs, _, rows = caches()
    compiled = Compiled(step)
    for k in places:
        place, row = torch.empty(k + 1), rows[k].clone()
        close(compiled(mine, place, row), step(theirs, place, row))
        assert mine._version == theirs._version
        close(mine, theirs)
    assert set(compiled.learned.reasons) == {"the region ended"}
    assert compiled.learned.diverged == 1


@pytest.mark.parametrize(
    "key",
    [
        6, (slice(None), 9), slice(0, 2, 2), (slice(None), slice(4, 1)), (None, 0), (0, 1),
        (slice(None), slice(None, None, 2)), (slice(1), slice(1)), ..., (0, 0, 0), (0, 0, 0, 0),
    ],
)  # fmt: skip
def test_other_keys_write_as_eager_mode_does(key):
    def step(cache, place, row):
        outcome = 0
        for value in (row[:, 0] + 1, row[0, 0] * 2, row.double()[0, 0], 2, cache[0, 0]):
            try:
                cache[key] = value
            except (IndexError, RuntimeError, TypeError) as error:
                outcome = 10 * outcome + len(str(error).partition(" at ")[0])
        return torch.tensor(outcome), cache * 1

    agree(step)


def test_rows_of_views_and_of_what_has_a_history():
    def step(cache, place, row):
        part = cache[:, 1:]
        part[:, 0] = row[:, 0]
        scale = torch.ones(2, 6, 3, requires_grad=True)
        made = scale * 2
        made[:, 2] = row[:, 0]
        made[:, 3] = 1.0
        (made * cache).sum().backward()
        cache[:, 4] = (scale[:, 0] * 2).detach()
        return part + 0, made.detach(), scale.grad, cache + 0

    agree(step)


def test_a_row_that_wants_a_gradient_gets_it():
    def step(cache, place, row):
        weight = (row[:, 0] * 1).requires_grad_()
        fresh = torch.zeros(2, 6, 3)
        fresh[:, 1] = weight * 2
        (fresh * cache).sum().backward()
        cache[:, 0] = weight.detach()
        return weight.grad, cache + 0

    agree(step)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, v: x.index_copy_(0, torch.tensor([0, 1, 2, 3, 4]), v),
        lambda x, v: x.__setitem__(slice(1, None), v),
        lambda x, v: (x.cumsum_(0), x.__setitem__(slice(1, None), v)),
        lambda x, v: (x.cumsum_(0), x.index_copy_(0, torch.tensor([1]), x[1:2])),
    ],
)
def test_writing_a_tensor_from_a_part_of_itself_is_refused(write):
    def step(x):
        part, before = x[:-1], x * 2
        try:
            write(x, part)
        except RuntimeError as error:
            return before, str(error).partition(" at ")[0]
        return before, "fine"

    mine = torch.arange(6.0) + 1
    theirs, compiled = mine.clone(), Compiled(step)
    for _ in range(CALLS):
        (before, error), (expected, wanted) = compiled(mine), step(theirs)
        close(before, expected)
        assert error == wanted != "fine"
        close(mine, theirs)
        assert mine._version == theirs._version


@pytest.mark.parametrize("sort", ["view of a result", "view of a leaf", "view that is not held"])
def test_a_view_that_backward_needs_is_missed_when_it_was_overwritten(sort: str) -> None:
    x = torch.randn(4, requires_grad=True)

    def program(leaf: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        part = (leaf if sort == "view of a leaf" else y)[:2]
        z = (part * x[2:] * part).sum()
        return (part, z) if sort == "view of a result" else (y, z)

    compiled = torch.compile(program)
    for _ in range(4):
        for function in (program, compiled):
            leaf = torch.randn(4)
            changed, z = function(leaf)
            with torch.no_grad():
                (leaf if sort == "view of a leaf" else changed).add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()
            x.grad = None
            function(leaf)[1].backward()
            x.grad = None


def test_a_change_of_memory_from_outside_is_noticed_after_another_course():
    """What ran eagerly after all has saved a copy of the leaf, which was changed since."""

    @torch.compile
    def run(x, flag):
        y = torch.nn.functional.softplus(x)
        y = y * 2 if flag else y.tanh()
        with torch.no_grad():
            x.exp_()
        y.sum().backward()

    for flag in (False, False, True):
        x = torch.from_numpy(numpy.ones((2, 3))).requires_grad_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(x, flag)


WRITTEN: dict[str, Callable] = {
    "number": lambda h, x: h.__setitem__(0, 1.0),
    "column": lambda h, x: h.__setitem__((slice(None), 1), x[:, 0]),
    "added": lambda h, x: h[:, :2].add_(1.0),
    "history": lambda h, x: torch.zeros(3, 4).add_(h),
    "element": lambda h, x: h.__setitem__((0, 1), x[1, 1]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_course_with_writes_that_run_at_once_is_learned_once(name: str) -> None:
    layer = torch.nn.Linear(4, 4)

    def step(x: Any) -> Any:
        layer.zero_grad()
        h = layer(x)
        loss = h.pow(2).sum() if (made := WRITTEN[name](h, x)) is None else made.pow(2).sum()
        loss.backward()
        return loss

    compiled = torch.compile(step)
    for _ in range(6):
        x = torch.randn(3, 4)
        expected = step(x).item(), layer.weight.grad.clone()
        assert compiled(x).item() == pytest.approx(expected[0], rel=1e-5)
        assert torch.allclose(layer.weight.grad, expected[1], atol=1e-5)
    assert compiled.learned.diverged == 1


OVERLAPPING: dict[str, Callable] = {
    "lerp": lambda t: t.lerp_(t[0], 0.5),
    "addcmul": lambda t: t.addcmul_(t[:1], t[:, :1]),
    "index_add": lambda t: t.index_add_(0, torch.tensor([0]), t[1:2]),
    "out": lambda t: torch.add(t[:2], 1, out=t[1:3]),
    "where": lambda t: torch.where(t > 0, t[0], t, out=t),
    "index_put": lambda t: t.index_put_((torch.tensor([0, 1]),), t[1:3]),
    "broadcast": lambda t: t.__setitem__(slice(0, 2), t[0, 0]),
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("part", [False, True])
def test_memory_that_is_read_and_written_is_noticed_in_pending_views(name: str, part: bool) -> None:
    def step(x: Any) -> Any:
        t = (x * 2)[:3] if part else x * 2
        before = t + 0.0
        try:
            OVERLAPPING[name](t)
        except RuntimeError as error:
            return str(error).partition("\n")[0], before + t
        return "written", before + t

    compiled, x = Compiled(step), torch.randn(3, 3)
    for _ in range(CALLS):
        (told, made), (said, expected) = compiled(x), step(x)
        assert told == said
        close(made, expected)
