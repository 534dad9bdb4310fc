"""The profiler measures what ran: ops, backward nodes, optimizer steps, named blocks."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import pytest

import weft as torch
from weft.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def test_ops_are_counted_and_timed() -> None:
    x = torch.randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU]) as p:
        for _ in range(3):
            x.exp()
        (x @ x).sum()
    rows = {row.key: row for row in p.key_averages()}
    assert rows["aten::exp"].count == 3 and rows["aten::sum"].count == 1
    assert all(row.cpu_time_total > 0 for row in rows.values())
    assert rows["aten::exp"].cpu_time == rows["aten::exp"].cpu_time_total / 3
    x.exp()
    assert p.key_averages()[0].count == 3  # nothing is measured after the block


def test_ops_in_place_are_timed() -> None:
    x, y = torch.ones(600, 600), torch.ones(600, 600)
    with profile(record_shapes=True) as p:
        with record_function("block"):
            for _ in range(5):
                x.mul_(y)
            (y.requires_grad_() * 2).relu_().sum().backward()
    rows = {row.key: row for row in p.key_averages()}
    assert rows["aten::mul_"].count == 5 and rows["aten::relu_"].count == 1
    # 360,000 products and their write take longer than hearing of a call, which is some 5 us.
    assert rows["aten::mul_"].cpu_time > 20
    assert rows["aten::mul_"].self_cpu_time_total <= rows["block"].cpu_time_total
    event = next(e for e in p.events() if e.name == "aten::mul_")
    assert event.input_shapes == [[600, 600], [600, 600]]
    assert event.cpu_parent is not None and event.cpu_parent.name == "block"


def test_a_failed_op_holds_nothing_of_what_follows() -> None:
    x = torch.ones(2, 3)
    with profile() as p:
        with pytest.raises(RuntimeError):
            x @ x
        with pytest.raises(RuntimeError):
            x.add_(torch.ones(5, 2, 3))
        x.exp()
    (exp,) = (e for e in p.events() if e.name == "aten::exp")
    assert exp.cpu_parent is None


def test_a_block_holds_what_runs_in_it() -> None:
    x = torch.ones(4)
    with profile() as p:
        with record_function("outer"):
            time.sleep(0.02)
            with record_function("inner"):
                x.exp()
            x.sin()
    events = {e.name: e for e in p.events()}
    outer, inner = events["outer"], events["inner"]
    assert events["aten::exp"].cpu_parent is inner and inner.cpu_parent is outer
    assert outer.cpu_time_total >= 20000 > inner.cpu_time_total
    children = events["inner"].cpu_time_total + events["aten::sin"].cpu_time_total
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - children)
    total = p.key_averages().self_cpu_time_total
    assert total == pytest.approx(outer.cpu_time_total)
    assert p.key_averages().total_average().count == 4


def test_training_is_seen_whole() -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with profile(record_shapes=True, profile_memory=True) as p:
        layer(torch.ones(5, 3)).relu().sum().backward()
        optimizer.step()
    events = {e.name: e for e in p.events()}
    assert {"backward", "AddmmBackward0", "ReluBackward0", "SumBackward0"} <= events.keys()
    assert events["ReluBackward0"].cpu_parent is events["backward"]
    assert events["Optimizer.step#SGD.step"].cpu_time_total > 0
    relu = events["aten::relu"]
    assert relu.input_shapes == [[5, 2]] and relu.cpu_memory_usage == 40
    grads = layer.weight.grad
    layer.zero_grad()
    layer(torch.ones(5, 3)).relu().sum().backward()
    assert grads is not None and layer.weight.grad is not None


def test_gradients_are_the_same_under_a_profile() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    (plain,) = torch.autograd.grad(x.softmax(1).log().square().mean(), x)
    with profile():
        (seen,) = torch.autograd.grad(x.softmax(1).log().square().mean(), x)
    assert torch.equal(plain, seen)


def test_an_error_leaves_the_profile_usable() -> None:
    with profile() as p:
        with pytest.raises(RuntimeError), record_function("fails"):
            torch.ones(2, 3) @ torch.ones(2, 3)
        torch.ones(2).exp()
    events = {e.name: e for e in p.events()}
    assert events["aten::exp"].cpu_parent is None
    assert events["fails"].cpu_time_total > 0


def test_the_table() -> None:
    x = torch.randn(20, 20)
    with profile(record_shapes=True, with_stack=True) as p:
        x @ x
        with record_function("slow"):
            time.sleep(0.2)
    rows = p.key_averages(group_by_input_shape=True, group_by_stack_n=1)
    text = rows.table(sort_by="cpu_time_total", row_limit=1, header="what ran")
    assert text.startswith("what ran\n") and "slow" in text and "aten::mm" not in text
    assert "Self CPU time total:" in text and "# of Calls" in text
    text = rows.table()
    assert "[[20, 20], [20, 20]]" in text and "test_profiler.py" in text
    assert "aten::mm" in str(p.key_averages())
    rows.table(sort_by="self_cuda_time_total")
    with pytest.raises(AttributeError, match="no_such"):
        rows.table(sort_by="no_such")


def test_other_threads_are_not_in_it() -> None:
    with profile() as p:
        thread = threading.Thread(target=lambda: torch.ones(2).exp())
        thread.start()
        thread.join()
    assert p.events() == []


def test_record_function_decorates_and_does_nothing_outside() -> None:
    @record_function("named")
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    assert double(torch.ones(1)).item() == 2
    with profile() as p:
        double(torch.ones(1))
    assert next(e.name for e in p.events()) == "named" and double.__name__ == "double"


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize(
    "settings",
    [
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 2},
        {"wait": 0, "warmup": 0, "active": 1},
        {"wait": 2, "warmup": 0, "active": 3, "skip_first": 4},
        {"wait": 2, "warmup": 1, "active": 1, "skip_first": 2, "skip_first_wait": 1},
    ],
)
def test_schedules_are_those_of_pytorch(settings: dict[str, int]) -> None:
    theirs = pytest.importorskip("torch").profiler.schedule(**settings)
    ours = schedule(**settings)
    assert [ours(i).name for i in range(30)] == [theirs(i).name for i in range(30)]


def test_a_scheduled_profile_hands_over_each_round(tmp_path: Path) -> None:
    rounds: list[list[str]] = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(
        schedule=plan, on_trace_ready=lambda p: rounds.append([e.name for e in p.events()])
    ) as p:
        for _ in range(10):
            torch.ones(1).exp()
            p.step()
    first = ["ProfilerStep#2", "aten::exp", "ProfilerStep#3", "aten::exp"]
    assert rounds == [first, [n.replace("#2", "#6").replace("#3", "#7") for n in first]]
    assert p.current_action is ProfilerAction.NONE


def test_traces_are_written(tmp_path: Path) -> None:
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=True)
    with profile(on_trace_ready=handler, with_stack=True) as p:
        torch.ones(3).exp()
    (file,) = (tmp_path / "log").iterdir()
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert [e["name"] for e in events] == ["aten::exp"] and events[0]["dur"] > 0
    p.export_chrome_trace(str(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_text())["traceEvents"] == events
    p.export_stacks(str(tmp_path / "stacks"))
    assert "test_profiler.py" in (tmp_path / "stacks").read_text()


def test_the_older_form() -> None:
    import weft.autograd.profiler as older

    with older.profile(record_shapes=True) as p:
        with older.record_function("part"):
            torch.ones(2).exp()
    assert [e.name for e in p.function_events] == ["part", "aten::exp"]
    assert "part" in p.table() and p.self_cpu_time_total > 0
    with older.profile(enabled=False) as off:
        torch.ones(2).exp()
    assert off.function_events == []
    assert torch.autograd.profiler.profile is older.profile


def training(**options: bool) -> profile:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Sequential(torch.nn.ReLU()))
    x = torch.randn(128, 64)
    with profile(**options) as p:
        with record_function("forward"):
            loss = model(x).square().mean()
        loss.backward()
    return p


def test_time_by_module() -> None:
    p = training()
    rows = {row.key: row for row in p.by_module()}
    assert {"0", "1.0", "(no module)"} == set(rows)
    names = {"0": ("aten::", "AddmmBackward0"), "1.0": ("aten::relu", "ReluBackward0")}
    for module, expected in names.items():
        inside = [e.name for e in p.events() if e.scope == module]
        assert all(any(name.startswith(x) for name in inside) for x in expected), inside
        assert rows[module].count == len(inside)
    total = sum(row.self_cpu_time_total for row in rows.values())
    assert total == pytest.approx(p.key_averages().self_cpu_time_total)
    assert "1.0" in p.by_module().table()


def test_time_by_line() -> None:
    p = training(with_stack=True)
    rows = [row.key for row in p.by_line()]
    forward = next(key for key in rows if "model(x).square().mean()" in key)
    assert forward.startswith("tests/product/test_profiler.py:") or "test_profiler.py:" in forward
    backward = [e for e in p.events() if e.name == "PowBackward0"]
    assert all("model(x)" in e.stack[0] for e in backward), "the line of the forward op"
    with pytest.raises(RuntimeError, match="with_stack=True"):
        training().by_line()


def test_operations_are_counted() -> None:
    p = training(with_flops=True)
    product = next(e for e in p.events() if e.flops >= 2 * 128 * 64 * 256)
    assert product.scope == "0"
    assert "Total FLOPs" in p.key_averages().table()
    assert "Total FLOPs" not in training().key_averages().table()


def test_flame_graphs_are_written(tmp_path: Path) -> None:
    p = training(with_stack=True)
    p.export_speedscope(str(tmp_path / "flame.json"), "mine")
    told = json.loads((tmp_path / "flame.json").read_text())
    assert told["$schema"].startswith("https://www.speedscope.app/")
    frames = [frame["name"] for frame in told["shared"]["frames"]]
    (flame,) = told["profiles"]
    assert flame["type"] == "sampled" and len(flame["samples"]) == len(flame["weights"])
    assert flame["endValue"] == pytest.approx(sum(flame["weights"]))
    assert sum(flame["weights"]) == pytest.approx(p.key_averages().self_cpu_time_total)
    stacks = [[frames[k] for k in sample] for sample in flame["samples"]]
    assert ["forward", "1", "1.0", "aten::relu"] in stacks
    assert ["backward", "1", "1.0", "ReluBackward0"] in stacks
    relu = told["shared"]["frames"][frames.index("aten::relu")]
    assert relu["file"].endswith(".py") and relu["line"] > 0


def test_memory_over_time(tmp_path: Path) -> None:
    with profile(profile_memory=True) as p:
        x = torch.ones(1 << 18)  # 1 MB
        kept = [x.exp() for _ in range(4)]
        del kept
        x.sin()
    used = [count for _, count in p.memory_timeline()]
    times = [when for when, _ in p.memory_timeline()]
    assert times == sorted(times) and max(used) - used[0] >= 2 << 20
    assert used[-1] < max(used)
    p.export_memory_timeline(str(tmp_path / "m.json"))
    assert json.loads((tmp_path / "m.json").read_text()) == [times, used]
    p.export_memory_timeline(str(tmp_path / "m.html.gz"))
    assert b"<svg" in gzip.decompress((tmp_path / "m.html.gz").read_bytes())
    p.export_memory_timeline(str(tmp_path / "m.svg"))
    with pytest.raises(ValueError, match=r"\.json, \.html or \.svg"):
        p.export_memory_timeline(str(tmp_path / "m.png"))
    with pytest.raises(RuntimeError, match="profile_memory=True"):
        training().memory_timeline()
    p.add_metadata("who", "me")
    p.add_metadata_json("settings", '{"lr": 1}')
    p.export_chrome_trace(str(tmp_path / "t.json"))
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["who"] == "me" and trace["settings"] == {"lr": 1}
    counters = [e["args"]["bytes"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters == used
