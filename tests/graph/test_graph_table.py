"""What printing a graph gives, for small graphs and for large ones."""

from __future__ import annotations

import pytest

import weft
from weft import nn


@pytest.fixture
def step():
    """A training step of an encoder, with dropout, whose masks belong to no module."""
    weft.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 12)
    optimizer = weft.optim.Adam(net.parameters())
    x = weft.randn(2, 3, 16)
    with weft.graph.record(profile=True) as g:
        net(x).square().mean().backward()
        optimizer.step()
    return g


def rows(text):
    return [line.split() for line in text.splitlines()]


def test_a_large_model_folds_to_a_row_for_each_layer_and_pass(step):
    found = rows(repr(step))
    assert len(found) < 62
    for k in range(12):
        mine = [" ".join(row) for row in found if row[0] == f"layers.{k}.*"]
        assert len(mine) == 4
        for what in ("forward", "backward", "gradients", "optimizer"):
            assert sum(f" {what}" in row for row in mine) == 1, what
    # What stands between modules is a row of its own; masks are with the module that reads them.
    assert [row[0] for row in found[1:2]] == ["x"] and not any(r[0] == "constant" for r in found)
    assert "square" in {row[0] for row in found}


def test_counts_and_sizes_of_a_folded_module_are_those_of_its_nodes(step):
    inside = [n for n in step if n.module.startswith("layers.3") and n.kind == "forward"]
    (row,) = [
        line for line in repr(step).splitlines() if line.startswith("layers.3.*") and "forw" in line
    ]
    assert f"{len(inside)} forward" in row
    size = sum(n.bytes for n in inside)
    assert f"{size / 1000:.1f} kB" in row
    assert sum(n.time for n in inside) > 0 and ("us" in row or "ms" in row)


def test_every_depth_shows_every_node_once(step):
    for depth in (1, 2, 3, 9, None):
        table = step.table(depth) if depth else step.table()
        count = 0
        for line in table.splitlines()[1:-1]:
            words = line.split()
            if words[0].endswith(".*"):
                # "36 forward, 16 leaves" or "12 gradients"
                count += int(words[1]) + (int(words[3]) if words[2].endswith(",") else 0)
            else:
                count += 1
        assert count == len(step), depth


def test_the_middle_of_a_long_graph_is_left_out_when_printed():
    x = weft.ones(2)
    functions = (weft.sin, weft.cos, weft.exp, weft.tanh, weft.relu, weft.abs, weft.neg)
    with weft.graph.record() as g:
        y = x
        for k in range(3000):
            y = functions[(k * k + k // 5) % 7](y)  # a pattern longer than what is folded
    lines = repr(g).splitlines()
    assert len(lines) < 110
    (left,) = [line for line in lines if line.startswith("...")]
    hidden = int(left.split()[1])
    assert hidden + len(lines) - 3 == len(g) == 3001
    assert lines[1].startswith("x ")
    assert len(g.table().splitlines()) == 3003


def test_what_repeats_is_a_row_when_printed():
    x = weft.ones(2)
    with weft.graph.record(profile=True) as g:
        y = x
        for _ in range(2500):
            y = (y * 2).sin()
        for _ in range(100):
            y = y + 1
    lines = repr(g).splitlines()
    assert len(lines) == 5 and lines[1].startswith("x ")
    assert lines[2].startswith("mul … sin:2500") and "2500 \u00d7 mul, sin" in lines[2]
    assert "40.0 kB" in lines[2] and "100 \u00d7 add" in lines[3]
    assert lines[-1].startswith("5101 nodes") and "g.table()" in lines[-1]
    assert len(g.table().splitlines()) == 5103


def test_a_loop_of_many_ops_is_a_row():
    x = weft.ones(2)
    with weft.graph.record() as g:
        y = x
        for _ in range(10):
            y = ((y * 2).sin() + 1).exp().neg().tanh()
    lines = repr(g).splitlines()
    assert len(lines) == 4 and "10 \u00d7 mul, sin, add" in lines[2]


def test_modules_that_repeat_are_a_row_where_they_would_not_fit():
    net = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(4, 4), nn.ReLU())])
    optimizer = weft.optim.Adam(net.parameters())
    x = weft.randn(2, 4)
    with weft.graph.record() as g:
        net(x).square().mean().backward()
        optimizer.step()
    lines = repr(g).splitlines()
    assert len(lines) < 15
    (forward,) = [line for line in lines if "20 \u00d7 linear" in line]
    assert (
        forward.startswith("0.* \u2026 39.*") and f"{20 * 2 * 2 * 4 * 4 / 1000:.1f} kB" in forward
    )
    assert "g.table(depth=...)" in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_a_clipped_step_of_twelve_layers_fits_the_terminal(step, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 12)
    x = weft.randn(2, 3, 16)
    with weft.graph.record(profile=True) as g:
        net(x).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    lines = repr(g).splitlines()
    assert len(lines) <= 62
    assert max(len(line) for line in lines[:-1]) <= width
    assert sum("144 \u00d7" in line or "…" in line for line in lines) >= 2
    assert max(len(line) for line in g.table(width=0).splitlines()) > 200  # nothing is cut off


def test_what_is_left_out_of_a_narrow_table(step, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    narrow = rows(repr(step))[0]
    monkeypatch.setenv("COLUMNS", "180")
    wide = rows(repr(step))[0]
    assert narrow == ["name", "op", "result", "bytes", "time"]
    assert wide == ["name", "op", "result", "bytes", "time", "from", "module", "line"]


def test_a_node_with_many_inputs_stays_on_a_line():
    x = weft.ones(2)
    with weft.graph.record() as g:
        weft.stack([x + k for k in range(100)])
    table = g.table(width=0)
    (line,) = [line for line in table.splitlines() if line.startswith("stack")]
    assert "add, add:2" in line and "... 92 more" in line and len(line) < 300


def test_times_are_shown_where_they_were_taken():
    x = weft.ones(2)
    for profile in (True, False):
        with weft.graph.record(profile=profile) as g:
            x.sin()
        assert ("time" in rows(repr(g))[0]) == profile


def test_graphs_are_asked_of_tensors():
    for wrong in ((), (3,), (weft.ones(2, requires_grad=True) * 2, "x")):
        with pytest.raises(TypeError, match=r"graph.of takes tensors, not"):
            weft.graph.of(*wrong)
