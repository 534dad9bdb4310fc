"""Tensors between processes share their memory; what goes wrong in a process is reported."""

from __future__ import annotations

import os
import pickle
import signal
import time
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import multiprocessing as mp

METHODS = ["fork", "spawn"]


def add_one(tensor: Any, queue: Any = None) -> None:
    with torch.no_grad():
        tensor.add_(1)
    if queue is not None:
        queue.put(tensor)


def run(method: str, target: Any, *args: Any) -> None:
    process = mp.get_context(method).Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_shared_tensor_is_changed_for_all(method: str) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert not tensor.is_shared()
    assert tensor.share_memory_() is tensor and tensor.is_shared()
    run(method, add_one, tensor)
    assert tensor.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_fork_without_sharing_copies() -> None:
    tensor = torch.zeros(3)
    run("fork", add_one, tensor)
    assert tensor.tolist() == [0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_stays_one(method: str) -> None:
    layer = torch.nn.Linear(2, 1)
    layer.share_memory()
    assert layer.weight.is_shared() and layer.weight.requires_grad
    before = layer.weight.tolist()
    run(method, train, layer)
    assert layer.weight.tolist() != before
    moved = layer.weight.tolist()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight.is_shared() and layer.weight.tolist() != moved


def train(layer: Any) -> None:
    assert isinstance(layer.weight, torch.nn.Parameter) and layer.weight.is_leaf
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(4.0),
        lambda: torch.arange(4, dtype=torch.int64),
        lambda: torch.ones(3, dtype=torch.bfloat16),
        lambda: torch.tensor(2.0, dtype=torch.float64),
        lambda: torch.zeros(0, 3),
        lambda: torch.arange(12.0).reshape(3, 4)[1:, ::2],
        lambda: torch.arange(12.0).reshape(3, 4).t(),
        lambda: torch.ones(1).expand(4),
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.ones(2) * 1j,
    ],
)
def test_any_tensor_goes_through_a_queue(make: Any) -> None:
    sent = make()
    queue = mp.SimpleQueue()
    queue.put(sent)
    got = queue.get()
    assert got.dtype is sent.dtype and got.shape == sent.shape and got.stride() == sent.stride()
    assert got.requires_grad == sent.requires_grad and torch.equal(got, sent)
    if sent.numel() and not sent.requires_grad and sent.dtype.is_floating_point:
        got.fill_(7)
        assert (sent == 7).all()


def test_a_view_and_its_base_stay_together() -> None:
    base = torch.zeros(4)
    view = base[1:3]
    view.share_memory_()
    view.fill_(5)
    assert base.tolist() == [0, 5, 5, 0] and base.is_shared()
    assert view.storage_offset() == 1 and view._base is base


def test_what_is_not_a_leaf_is_refused() -> None:
    result = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        mp.SimpleQueue().put(result)


def test_plain_pickles_copy() -> None:
    tensor = torch.ones(2).share_memory_()
    copy = pickle.loads(pickle.dumps(tensor))
    copy.fill_(3)
    assert tensor.tolist() == [1, 1] and not copy.is_shared()


def send(queue: Any, size: int) -> None:
    queue.put(torch.ones(size))


def test_a_sender_that_has_ended() -> None:
    context = mp.get_context("spawn")
    queue = context.Queue()
    for size in (3, 1 << 16):
        process = context.Process(target=send, args=(queue, size))
        process.start()
        process.join(60)
        if size == 3:
            assert queue.get(timeout=30).tolist() == [1, 1, 1]
        else:
            with pytest.raises(RuntimeError, match="the process that sent it has ended"):
                queue.get(timeout=30)


def test_no_file_stays_open() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    torch.ones(10).share_memory_()
    before = count()
    for _ in range(20):
        torch.ones(1000).share_memory_()
    assert count() <= before


# ------------------------------------------------------------------ spawn


def put_rank(index: int, out: Any, factor: float) -> None:
    out[index] = factor * index


def fail(index: int, deed: str) -> None:
    if index == 1:
        if deed == "raise":
            raise KeyError("a bad rank")
        if deed == "exit":
            os._exit(5)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_spawn_runs_a_function_in_every_process() -> None:
    out = torch.zeros(3).share_memory_()
    assert mp.spawn(put_rank, args=(out, 2.0), nprocs=3) is None
    assert out.tolist() == [0, 2, 4]


def test_spawn_without_waiting() -> None:
    out = torch.zeros(2).share_memory_()
    context = mp.start_processes(put_rank, (out, 1.0), nprocs=2, join=False, start_method="fork")
    assert len(context.pids()) == 2
    while not context.join(timeout=30):
        pass
    assert out.tolist() == [0, 1] and context.join()


@pytest.mark.parametrize(
    ("deed", "kind", "text"),
    [
        ("raise", mp.ProcessRaisedException, "-- Process 1 terminated(.|\n)*a bad rank"),
        ("exit", mp.ProcessExitedException, "process 1 terminated with exit code 5"),
        ("kill", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_failure_ends_all_processes(deed: str, kind: type, text: str) -> None:
    start = time.monotonic()
    context = mp.start_processes(fail, (deed,), nprocs=2, join=False, start_method="fork")
    with pytest.raises(kind, match=text) as caught:
        while not context.join():
            pass
    assert time.monotonic() - start < 20
    assert not any(p.is_alive() for p in context.processes)
    assert caught.value.error_index == 1 and caught.value.pid == context.pids()[1]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names_of_the_standard_module() -> None:
    import multiprocessing

    assert mp.Process is multiprocessing.Process and mp.get_context is multiprocessing.get_context
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError, match="no_such"):
        mp.set_sharing_strategy("no_such")
    with mp.get_context("fork").Pool(1) as pool:
        assert pool.map(np.negative, [1, 2]) == [-1, -2]
