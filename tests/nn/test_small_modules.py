"""Names around the library that programs lean on: compile, jit, futures, benchmark and the like."""

from __future__ import annotations

import threading
import time

import pytest

import weft as torch
from weft import futures, jit
from weft.utils import benchmark

# ------------------------------------------------------------------ compile


def test_compile_takes_what_programs_give_it() -> None:
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
    assert compiled._orig_mod is model and compiled.weight is model.weight
    assert torch.compile(model, disable=True) is model

    @torch.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.compile(dynamic=True, backend="eager")
    def with_arguments(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    @torch.compiler.disable
    def never(x: torch.Tensor) -> torch.Tensor:
        return x + 3

    @torch.compiler.disable(recursive=False)
    def nor(x: torch.Tensor) -> torch.Tensor:
        return x + 4

    zero = torch.zeros(())
    assert [f(zero).item() for f in (plain, with_arguments, never, nor)] == [1, 2, 3, 4]
    assert model.compile() is None and not torch.compiler.is_compiling()
    with torch.compiler.set_stance("force_eager"):
        torch.compiler.reset()
    with pytest.raises(RuntimeError, match="both can't be specified"):
        torch.compile(model, mode="default", options={})
    with pytest.raises(TypeError, match="not int"):
        torch.compile(3)
    with pytest.raises(RuntimeError, match="no_such"):
        torch.compiler.set_stance("no_such")


# ------------------------------------------------------------------ jit


def test_jit_runs_python() -> None:
    model = torch.nn.Linear(2, 2)
    assert jit.script(model) is model and jit.trace(model, torch.ones(1, 2)) is model
    assert not jit.is_scripting() and not jit.is_tracing()
    assert not isinstance(model, (jit.ScriptModule, torch.jit.ScriptFunction))

    class Old(jit.ScriptModule):
        @jit.script_method
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.twice(x)

        @jit.ignore
        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @jit.unused
        def never(self) -> None:
            raise AssertionError

        @jit.ignore(drop=True)
        def dropped(self) -> None:
            raise AssertionError

        @jit.export
        def more(self) -> int:
            return jit.annotate(int, 3)

    old = Old()
    assert old(torch.ones(1)).item() == 2 and old.more() == 3 and jit.isinstance(old, Old)
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(old)
    assert jit.freeze(old.eval()) is old and jit.optimize_for_inference(old) is old
    for refused in (lambda: jit.save(old, "x.pt"), lambda: jit.load("x.pt")):
        with pytest.raises(RuntimeError, match=r"TorchScript files(.|\n)*state_dict(.|\n)*at .*\d"):
            refused()
    with pytest.raises(TypeError, match="not int"):
        jit.trace(3, ())


def test_jit_fork() -> None:
    future = jit.fork(torch.add, torch.ones(1), 2)
    assert jit.wait(future).item() == 3
    with pytest.raises(ZeroDivisionError):
        jit.wait(jit.fork(lambda: 1 / 0))


# ------------------------------------------------------------------ futures


def test_a_future_waits_for_its_value() -> None:
    future: futures.Future[int] = futures.Future()
    seen: list[int] = []
    future.add_done_callback(lambda done: seen.append(done.value()))
    chained = future.then(lambda done: done.value() + 1).then(lambda done: done.wait() * 10)
    assert not future.done()
    with pytest.raises(RuntimeError, match="no value yet"):
        future.value()
    thread = threading.Timer(0.05, lambda: future.set_result(4))
    thread.start()
    assert future.wait() == 4 and chained.wait() == 50
    thread.join()
    assert seen == [4] and future.done()
    with pytest.raises(RuntimeError, match="only be set once"):
        future.set_result(5)
    future.add_done_callback(lambda done: seen.append(-1))
    assert seen == [4, -1]


def test_errors_of_futures_reach_who_asks() -> None:
    future: futures.Future[int] = futures.Future()
    following = future.then(lambda done: done.value())
    future.set_exception(KeyError("gone"))
    for f in (future, following):
        with pytest.raises(KeyError, match="gone"):
            f.wait()
    with pytest.raises(AssertionError):
        futures.Future().set_exception("text")  # type: ignore[arg-type]


def test_many_futures() -> None:
    made = [futures.Future() for _ in range(3)]
    together = futures.collect_all(made)
    for i, future in enumerate(reversed(made)):
        assert not together.done()
        future.set_result(i)
    assert together.wait() == made and futures.wait_all(made) == [2, 1, 0]
    assert futures.wait_all([]) == []


# ------------------------------------------------------------------ benchmark


def test_timer_measures() -> None:
    slept = benchmark.Timer("time.sleep(0.01)", setup="import time").timeit(3)
    assert 0.01 <= slept.median < 0.1 and slept.mean == slept.median
    assert slept.number_per_run == 3 and len(slept.times) == 1
    assert "time.sleep(0.01)\nsetup: import time\n" in repr(slept)
    assert "ms\n  1 measurement, 3 runs, 1 thread" in repr(slept)


def test_timer_takes_globals_and_knows_torch() -> None:
    calls: list[int] = []
    benchmark.Timer("f(); torch.ones(1)", globals={"f": lambda: calls.append(1)}).timeit(5)
    assert len(calls) == 7


def test_blocked_autorange() -> None:
    heard: list[tuple[int, float]] = []
    found = benchmark.Timer("sum(range(100))").blocked_autorange(
        callback=lambda number, t: heard.append((number, t)), min_run_time=0.05
    )
    assert sum(found.raw_times) >= 0.05 and len(found.times) > 1
    assert heard == [(found.number_per_run, t) for t in found.raw_times]
    assert 0 < found.median < 1e-3 and "Median:" in repr(found)
    ranged = benchmark.Timer("sum(range(100))").adaptive_autorange(
        min_run_time=0.01, max_run_time=0.05
    )
    assert ranged.raw_times


def test_statistics_of_measurements() -> None:
    spec = benchmark.TaskSpec("x", "pass", label="add", sub_label="row", description="a")
    m = benchmark.Measurement(10, [10.0, 11.0, 12.0, 13.0, 30.0], spec)
    assert m.median == 1.2 and m.mean == pytest.approx(1.52) and m.iqr == pytest.approx(0.2)
    assert m.has_warnings and m.meets_confidence(0.3) and "WARNING" in repr(m)
    (merged,) = benchmark.Measurement.merge([m, benchmark.Measurement(10, [9.0], spec)])
    assert merged.raw_times == [10.0, 11.0, 12.0, 13.0, 30.0, 9.0]
    for value, digits in [(123.456, 2), (0.0012345, 3), (-9.99, 2), (0.0, 2)]:
        theirs = pytest.importorskip("torch.utils.benchmark").trim_sigfig
        if value:
            assert benchmark.trim_sigfig(value, digits) == pytest.approx(theirs(value, digits))
    assert benchmark.select_unit(3e-5) == ("us", 1e-6)
    assert benchmark.unit_to_english("ms") == "millisecond"


def test_a_table_of_measurements() -> None:
    def made(row: str, column: str, seconds: float, threads: int = 1) -> benchmark.Measurement:
        spec = benchmark.TaskSpec(
            "x", "", label="sums", sub_label=row, description=column, num_threads=threads
        )
        return benchmark.Measurement(1, [seconds] * 4, spec)

    table = benchmark.Compare([made("8", "ours", 2e-6), made("8", "theirs", 3e-6)])
    table.extend_results([made("64", "ours", 5e-6), made("8", "ours", 1e-6, 2)])
    table.colorize()
    text = str(table)
    assert "[ sums ]" in text and "Times are in us." in text
    assert "  8         |  2.0 *  |     3.0" in text
    assert "2 threads:" in text and "  64        |  5.0 *  |" in text
    with pytest.raises(ValueError, match="Measurement"):
        table.extend_results([3])  # type: ignore[list-item]


def test_timer_refuses_what_it_can_not_do() -> None:
    with pytest.raises(ValueError, match="str"):
        benchmark.Timer(time.sleep)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only Python"):
        benchmark.Timer("int x;", language="c++")


# ------------------------------------------------------------------ distributed, hooks


def test_there_is_one_process() -> None:
    import weft.distributed as dist
    from weft.distributed import init_process_group

    assert not dist.is_available() and not dist.is_initialized()
    assert not dist.is_nccl_available() and not dist.is_backend_available("gloo")
    assert dist.ReduceOp.SUM is not dist.ReduceOp.MAX and dist.group.WORLD is None
    for call in (lambda: init_process_group("gloo"), dist.get_rank, dist.ProcessGroup):
        with pytest.raises(RuntimeError, match=r"is_available\(\) is False(.|\n)*at .*test_small"):
            call()
    with pytest.raises(AttributeError):
        _ = dist.no_such_name
    with pytest.raises(RuntimeError, match="weft runs in one"):
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))


def test_handles_of_hooks() -> None:
    from weft.utils.hooks import RemovableHandle

    layer = torch.nn.Linear(1, 1)
    handle = layer.register_forward_hook(lambda *a: None)
    assert isinstance(handle, RemovableHandle)
    assert isinstance(torch.ones(1, requires_grad=True).register_hook(print), RemovableHandle)


# ------------------------------------------------------------------ SyncBatchNorm


def test_sync_batch_norm_is_batch_norm_in_one_process() -> None:
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    net = torch.nn.Sequential(block, torch.nn.BatchNorm1d(4, affine=False))
    x = torch.randn(6, 3)
    wanted = net(x)
    net[0][1].reset_running_stats()
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert converted is net and isinstance(net[0][1], torch.nn.SyncBatchNorm)
    assert isinstance(net[1], torch.nn.SyncBatchNorm) and net[1].weight is None
    assert torch.equal(net(x), wanted)
    alone = torch.nn.BatchNorm2d(2).eval()
    made = torch.nn.SyncBatchNorm.convert_sync_batchnorm(alone)
    assert made.weight is alone.weight and not made.training
    with pytest.raises(ValueError, match="at least 2D"):
        torch.nn.SyncBatchNorm(3)(torch.ones(3))


# ------------------------------------------------------------------ checks and choices


def test_checks_raise_with_the_message_given() -> None:
    torch._check(True, lambda: 1 / 0)
    for check, kind in [
        (torch._check, RuntimeError),
        (torch._check_index, IndexError),
        (torch._check_value, ValueError),
        (torch._check_type, TypeError),
    ]:
        with pytest.raises(kind, match="sizes 2 and 3"):
            check(False, lambda: "sizes 2 and 3")
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        torch._check_is_size(-1)
    with pytest.raises(TypeError, match="bool"):
        torch._check(1)
    with pytest.raises(RuntimeError, match="nan"):
        torch._check_tensor_all(torch.tensor([True, False]), lambda: "nan")


def test_cond_takes_one_of_two_ways() -> None:
    x = torch.ones(2, requires_grad=True)
    y = torch.cond(x.sum() > 1, lambda x: x * 2, lambda x: x * 3, (x,))
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]
    assert torch.cond(False, lambda: 1, lambda: 2) == 2
    with pytest.raises(RuntimeError, match="single-element"):
        torch.cond(x > 0, lambda: 1, lambda: 2)


def test_switches_of_the_compiler_can_be_set() -> None:
    import weft._dynamo
    import weft._inductor

    weft._dynamo.config.suppress_errors = True
    weft._inductor.config.coordinate_descent_tuning = True
    weft._dynamo.reset()
    torch._logging.set_logs(graph_breaks=True)
    assert isinstance(torch.compile(torch.nn.Linear(1, 1)), weft._dynamo.OptimizedModule)
