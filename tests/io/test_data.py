"""Datasets, samplers and loaders: the same batches in the same order as PyTorch."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.utils import data as ours

torch = pytest.importorskip("torch")
theirs = torch.utils.data

PAIRS = ((weft, ours), (torch, theirs))
Point = namedtuple("Point", "x y")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def plain(value: Any) -> Any:
    """Tensors of either library as something that compares, with its dtype and kind."""
    if isinstance(value, (weft.Tensor, torch.Tensor)):
        return ("tensor", str(value.dtype), tuple(value.shape), value.tolist())
    if isinstance(value, dict):
        return (type(value).__name__, {k: plain(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(v) for v in value])
    if isinstance(value, np.ndarray):
        return ("array", value.tolist())
    return value


def both(make: Any) -> Any:
    """The result of ``make(library, its data module)`` for both, which must be the same."""
    results = []
    for library, module in PAIRS:
        library.manual_seed(7)
        results.append(plain(make(library, module)))
    assert results[0] == results[1]
    return results[0]


def raised(make: Any) -> None:
    """Both raise an error of the same class."""
    kinds = []
    for library, module in PAIRS:
        with pytest.raises(Exception) as caught:
            make(library, module)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1], kinds


# ------------------------------------------------------------------ datasets


def test_tensor_dataset_and_subset() -> None:
    def make(t: Any, d: Any) -> Any:
        whole = d.TensorDataset(t.arange(12.0).reshape(6, 2), t.arange(6))
        part = d.Subset(whole, [5, 1, 3])
        return [len(whole), whole[2], len(part), part[0], list(part.__getitems__([0, 2]))]

    both(make)
    raised(lambda t, d: d.TensorDataset(t.ones(2), t.ones(3)))


def test_concat_stack_and_chain() -> None:
    def make(t: Any, d: Any) -> Any:
        a, b = d.TensorDataset(t.arange(3)), d.TensorDataset(t.arange(10, 14))
        joined = a + b
        rows = [joined[i] for i in (0, 2, 3, 6, -1, -7)]
        stacked = d.StackDataset(a, d.TensorDataset(t.arange(3.0)))
        named = d.StackDataset(first=a, second=["x", "y", "z"])
        return [len(joined), rows, stacked[1], named[2], named.__getitems__([0, 1]), len(named)]

    both(make)
    raised(lambda t, d: d.ConcatDataset([]))
    raised(lambda t, d: d.ConcatDataset([d.TensorDataset(t.ones(2))])[-3])
    raised(lambda t, d: d.StackDataset())
    raised(lambda t, d: d.StackDataset([1], [1, 2]))
    raised(lambda t, d: d.StackDataset([1], a=[1]))
    raised(lambda t, d: d.Dataset()[0])

    class Stream(ours.IterableDataset):
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Any:
            return iter(range(self.n))

        def __len__(self) -> int:
            return self.n

    chained = Stream(2) + Stream(3)
    assert list(chained) == [0, 1, 0, 1, 2] and len(chained) == 5
    with pytest.raises(AssertionError):
        ours.ConcatDataset([Stream(1)])
    with pytest.raises(AssertionError):
        list(ours.ChainDataset([Stream(1), [1]]))


@pytest.mark.parametrize("lengths", [(3, 7), (0.3, 0.7), (0.33, 0.33, 0.34), (1.0,), (10,)])
@pytest.mark.parametrize("seed", [None, 3])
def test_random_split(lengths: Any, seed: int | None) -> None:
    def make(t: Any, d: Any) -> Any:
        generator = None if seed is None else t.Generator().manual_seed(seed)
        return [list(p) for p in d.random_split(range(10), lengths, generator=generator)]

    both(make)


def test_random_split_errors() -> None:
    raised(lambda t, d: d.random_split(range(10), [3, 3]))
    raised(lambda t, d: d.random_split(range(10), [1.5, -0.5]))
    with pytest.warns(UserWarning, match="Length of split"):
        ours.random_split(range(1), [0.5, 0.5])


# ------------------------------------------------------------------ samplers


@pytest.mark.parametrize(
    "make",
    [
        lambda t, d, g: d.SequentialSampler(range(5)),
        lambda t, d, g: d.RandomSampler(range(17), generator=g),
        lambda t, d, g: d.RandomSampler(range(7), num_samples=20, generator=g),
        lambda t, d, g: d.RandomSampler(range(7), num_samples=3, generator=g),
        lambda t, d, g: d.RandomSampler(range(50), True, generator=g),
        lambda t, d, g: d.RandomSampler(range(7), True, 100, generator=g),
        lambda t, d, g: d.SubsetRandomSampler([9, 4, 7, 1], generator=g),
        lambda t, d, g: d.WeightedRandomSampler([0.1, 3.0, 0.4, 1.0], 30, generator=g),
        lambda t, d, g: d.WeightedRandomSampler([0.1, 3.0, 0.4, 1.0], 3, False, generator=g),
        lambda t, d, g: d.BatchSampler(d.RandomSampler(range(10), generator=g), 3, False),
        lambda t, d, g: d.BatchSampler(d.RandomSampler(range(10), generator=g), 3, True),
        lambda t, d, g: d.DistributedSampler(range(11), 3, 1),
        lambda t, d, g: d.DistributedSampler(range(11), 3, 2, shuffle=False),
        lambda t, d, g: d.DistributedSampler(range(11), 3, 2, seed=5, drop_last=True),
        lambda t, d, g: d.DistributedSampler(range(2), 5, 4),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_samplers(make: Any, own: bool) -> None:
    def draw(t: Any, d: Any) -> Any:
        sampler = make(t, d, t.Generator().manual_seed(5) if own else None)
        first = list(sampler)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(3)
        # What is left in the default generator shows that the same was drawn from it.
        return [len(sampler), first, list(sampler), t.rand(3)]

    both(draw)


def test_sampler_errors() -> None:
    raised(lambda t, d: d.RandomSampler(range(3), replacement=1))
    raised(lambda t, d: d.RandomSampler(range(3), num_samples=0))
    raised(lambda t, d: d.RandomSampler([]))
    raised(lambda t, d: d.WeightedRandomSampler([1.0], 0))
    raised(lambda t, d: d.WeightedRandomSampler([[1.0]], 1))
    raised(lambda t, d: d.BatchSampler(range(3), 0, False))
    raised(lambda t, d: d.BatchSampler(range(3), 1, 1))
    raised(lambda t, d: d.DistributedSampler(range(3), 2, 2))


# ------------------------------------------------------------------ collate


SAMPLES = {
    "ints": [1, 2, 3],
    "bools": [True, False],
    "floats": [1.0, 2.5],
    "text": ["a", "bc"],
    "bytes": [b"a", b"bc"],
    "arrays": [np.arange(3, dtype=np.int16), np.ones(3, np.int16)],
    "scalar arrays": [np.array(1.0), np.array(2.0)],
    "float32 scalars": [np.float32(1), np.float32(2)],
    "int64 scalars": [np.int64(1), np.int64(2)],
    "bool scalars": [np.bool_(True), np.bool_(False)],
    "dicts": [{"a": 1, "b": [1.0, 2.0]}, {"a": 2, "b": [3.0, 4.0]}],
    "ordered": [OrderedDict(a=1), OrderedDict(a=2)],
    "named": [Point(1, 2.0), Point(3, 4.0)],
    "tuples": [(1, "x"), (2, "y")],
    "lists": [[1, 2], [3, 4]],
    "nested": [((1, 2), {"k": (3,)}), ((4, 5), {"k": (6,)})],
    "ranges": [range(2), range(2)],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_default_collate(name: str) -> None:
    both(lambda t, d: d.default_collate(SAMPLES[name]))
    both(lambda t, d: d.default_convert(SAMPLES[name][0]))
    both(lambda t, d: d.default_convert(SAMPLES[name]))


def test_collate_tensors_and_custom_types() -> None:
    both(lambda t, d: d.default_collate([t.ones(2), t.zeros(2)]))
    both(lambda t, d: d.default_collate([t.tensor(1, dtype=t.bfloat16)] * 2))
    raised(lambda t, d: d.default_collate([object()]))
    raised(lambda t, d: d.default_collate([None]))
    raised(lambda t, d: d.default_collate([[1], [1, 2]]))
    raised(lambda t, d: d.default_collate([t.ones(2), t.ones(3)]))
    raised(lambda t, d: d.default_collate([np.array("text")]))

    def custom(t: Any, d: Any) -> Any:
        names = d._utils.collate
        total = lambda batch, *, collate_fn_map=None: sum(batch)
        mapping = {int: total, **names.default_collate_fn_map}
        mapping[int] = total
        return names.collate([(1, 1.0), (True, 2.0)], collate_fn_map=mapping)

    both(custom)


# ------------------------------------------------------------------ the loader in one process


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": 4, "shuffle": True},
        {"batch_size": None},
        {"batch_size": None, "shuffle": True},
        {"batch_sampler": [[0, 1], [9]]},
        {"sampler": [3, 1, 2], "batch_size": 2},
        {"batch_size": 2, "collate_fn": list},
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_loader_in_one_process(options: dict[str, Any], own: bool) -> None:
    def make(t: Any, d: Any) -> Any:
        generator = t.Generator().manual_seed(11) if own else None
        dataset = d.TensorDataset(t.arange(20.0).reshape(10, 2), t.arange(10))
        loader = d.DataLoader(dataset, generator=generator, **options)
        epochs = [list(loader), list(loader)]
        return [len(loader), epochs, t.rand(2), t.rand(2, generator=generator)]

    both(make)


def make_stream(module: Any, count: int, with_length: bool = False) -> Any:
    class Stream(module.IterableDataset):
        def __iter__(self) -> Any:
            info = module.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter(range(first, count, step))

    if with_length:
        Stream.__len__ = lambda self: count
    return Stream()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}]
)
def test_streams(options: dict[str, Any], workers: int) -> None:
    def make(t: Any, d: Any) -> Any:
        loader = d.DataLoader(make_stream(d, 11, True), num_workers=workers, **options)
        return [len(loader), list(loader)]

    assert both(make)


def test_a_stream_longer_than_it_says_warns() -> None:
    class Liar(ours.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(5))

        def __len__(self) -> int:
            return 3

    loader = ours.DataLoader(Liar())
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="reported to be 3"):
        list(loader)


def test_loader_errors() -> None:
    for options in (
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"sampler": [0], "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "magic", "num_workers": 1},
        {"multiprocessing_context": 3, "num_workers": 1},
    ):
        raised(lambda t, d, options=options: d.DataLoader([1, 2], **options))
    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        raised(lambda t, d, options=options: d.DataLoader(make_stream(d, 2), **options))
    raised(lambda t, d: setattr(d.DataLoader([1]), "batch_size", 3))
    raised(lambda t, d: list(d.DataLoader([1], timeout=1)))


# ------------------------------------------------------------------ workers


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 5}])
def test_workers_give_the_same_batches_in_order(options: dict[str, Any]) -> None:
    def make(t: Any, d: Any) -> Any:
        dataset = d.TensorDataset(t.arange(40.0).reshape(20, 2), t.arange(20))
        loader = d.DataLoader(dataset, 3, shuffle=True, num_workers=2, **options)
        return [list(loader), list(loader), t.rand(2)]

    both(make)


class Seeds:
    """Samples that show how a worker is seeded."""

    def __init__(self, library: Any, module: Any) -> None:
        self.library, self.module = library, module

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        info = self.module.get_worker_info()
        return (
            index, info.id, info.num_workers, info.seed, self.library.initial_seed(),
            self.library.rand(2), random.random(), float(np.random.rand()),
        )  # fmt: skip


def test_workers_are_seeded_as_in_pytorch() -> None:
    both(lambda t, d: list(d.DataLoader(Seeds(t, d), 2, num_workers=2)))
    assert ours.get_worker_info() is None


class Big(ours.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        kinds = (weft.float32, weft.bfloat16, weft.bool, weft.complex64)
        return {str(k): weft.full((300, 50), index, dtype=k) for k in kinds}


def test_large_batches_arrive_whole_and_can_be_written_to() -> None:
    for found, want in zip(
        ours.DataLoader(Big(), 2, num_workers=2), ours.DataLoader(Big(), 2), strict=True
    ):
        assert plain(found) == plain(want)
        for tensor in found.values():
            tensor.zero_()
            assert not tensor.bool().any()


def test_out_of_order_gives_every_batch_once() -> None:
    loader = ours.DataLoader(list(range(40)), 3, num_workers=2, in_order=False)
    assert sorted(x for b in loader for x in b.tolist()) == list(range(40))
    stream = ours.DataLoader(make_stream(ours, 23), 2, num_workers=2, in_order=False)
    assert sorted(x for b in stream for x in b.tolist()) == list(range(23))


class Faulty(ours.Dataset):
    """A dataset in which one sample does something bad."""

    def __init__(self, deed: Any, at: int = 5) -> None:
        self.deed, self.at = deed, at

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            self.deed()
        return index


class TwoArguments(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, two)


def throw(error: Exception) -> Any:
    def deed() -> None:
        raise error

    return deed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("a bad sample"), ValueError),
        (KeyError("a bad sample"), KeyError),
        (TwoArguments(1, 2), RuntimeError),
        (StopIteration("a bad sample"), RuntimeError),
    ],
)
def test_an_exception_arrives_with_its_traceback(error: Exception, kind: type) -> None:
    loader = ours.DataLoader(Faulty(throw(error)), 2, num_workers=2)
    with pytest.raises(kind) as caught:
        list(loader)
    text = str(caught.value)
    assert "in DataLoader worker process 0" in text or "worker process 1" in text
    assert "in deed" in text and type(error).__name__ in text and "\n" in text


def test_an_unpicklable_batch_is_an_error_and_not_a_hang() -> None:
    loader = ours.DataLoader([1, 2], num_workers=1, collate_fn=lambda b: lambda: b)
    with pytest.raises((AttributeError, pickle.PicklingError, RuntimeError), match="worker"):
        list(loader)


def test_an_exception_in_worker_init_fn_arrives() -> None:
    def init(number: int) -> None:
        raise ValueError(f"no start for {number}")

    with pytest.raises(ValueError, match="no start"):
        list(ours.DataLoader([1, 2], num_workers=1, worker_init_fn=init))


def children() -> set[int]:
    """Processes whose parent is this one and which still run."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(entry.name))
    return found


@pytest.mark.parametrize(
    "deed", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)]
)
def test_a_killed_worker_is_an_error_at_once(deed: Any) -> None:
    before, start = children(), time.monotonic()
    with pytest.raises(RuntimeError, match=r"exited unexpectedly.*(SIGKILL|exit code 3)"):
        list(ours.DataLoader(Faulty(deed), 2, num_workers=2))
    assert time.monotonic() - start < 5
    assert children() <= before


def test_workers_killed_between_epochs() -> None:
    loader = ours.DataLoader(list(range(8)), 2, num_workers=2, persistent_workers=True)
    want = [b.tolist() for b in loader]
    for w in loader._iterator.workers:
        w.process.kill()
        w.process.join()
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(loader)
    assert [b.tolist() for b in loader] == want  # with new workers


def test_timeout() -> None:
    before, start = children(), time.monotonic()
    loader = ours.DataLoader(Faulty(lambda: time.sleep(60)), 2, num_workers=2, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5"):
        list(loader)
    assert time.monotonic() - start < 10
    assert children() <= before


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_the_loop_leaves_no_process(persistent: bool) -> None:
    before = children()
    loader = ours.DataLoader(list(range(1000)), 2, num_workers=2, persistent_workers=persistent)
    for batch in loader:
        assert batch.tolist() == [0, 1]
        break
    if persistent:
        workers = children() - before
        assert len(workers) == 2
        assert len(list(loader)) == 500  # what was left of the first loop is not in the second
        assert children() - before == workers
        del loader
    assert children() <= before


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, sys, time
        from weft.utils.data import DataLoader
        loader = DataLoader(list(range(100000)), 2, num_workers=2)
        it = iter(loader)
        next(it)
        print(*(w.process.pid for w in it.workers), flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(p) for p in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{p}/cmdline").exists() and running(p) for p in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_spawned_workers() -> None:
    dataset = ours.TensorDataset(weft.arange(6.0))
    loader = ours.DataLoader(dataset, 2, num_workers=1, multiprocessing_context="spawn")
    assert plain(list(loader)) == plain(list(ours.DataLoader(dataset, 2)))


def test_many_large_indices_do_not_block() -> None:
    batches = [list(range(60000)) for _ in range(6)]
    loader = ours.DataLoader(
        range(60000), batch_sampler=batches, num_workers=1, prefetch_factor=4, collate_fn=len
    )
    assert list(loader) == [60000] * 6


class _Private:
    """Gives the iterators just what PyTorch's ask of a loader, by its private names."""

    _IterableDataset_len_called = generator = worker_init_fn = multiprocessing_context = None
    _auto_collation, drop_last, in_order, pin_memory, persistent_workers = False, False, True, 0, 0
    prefetch_factor, timeout, pin_memory_device = 2, 0, ""

    def __init__(self, library: Any, num_workers: int) -> None:
        self.dataset, self.num_workers = self, num_workers
        self._dataset_kind = library.utils.data.dataloader._DatasetKind.Iterable
        self._index_sampler = itertools.count()

    def _get_shared_seed(self) -> int:
        return 0

    def collate_fn(self, sample: Any) -> Any:
        return sample

    def __iter__(self) -> Any:
        return iter([weft.ones(1), 2, "three"])


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_ask_of_a_loader_what_pytorch_asks(workers: int) -> None:
    for library in (weft, torch):
        kinds = library.utils.data.dataloader
        kind = (
            kinds._MultiProcessingDataLoaderIter if workers else kinds._SingleProcessDataLoaderIter
        )
        found = list(kind(_Private(library, workers)))
        assert len(found) == 3 and found[1:] == [2, "three"]
    loader = weft.utils.data.DataLoader(range(3))
    assert isinstance(iter(loader), weft.utils.data.dataloader._BaseDataLoaderIter)
    assert loader._dataset_kind == weft.utils.data.dataloader._DatasetKind.Map


def _asked(library: Any, **options: Any) -> set[str]:
    """The attributes that a loader is asked for while it is iterated over."""
    names: set[str] = set()

    class Loader(library.utils.data.DataLoader):
        watched = False

        def __getattribute__(self, name: str) -> Any:
            if type(self).watched:
                names.add(name)
            return super().__getattribute__(name)

    loader = Loader(range(4), batch_size=2, **options)
    Loader.watched = True
    assert len(list(loader)) == 2
    Loader.watched = False
    return names


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_iterating_asks_a_loader_for_nothing_that_pytorch_has_not(options: dict) -> None:
    names = _asked(weft, **options)
    assert "_get_iterator" in names
    # What it asks for beyond that is there in loaders that were not set up as PyTorch's are.
    more = names - _asked(torch, **options)
    assert all(hasattr(weft.utils.data.DataLoader, name) for name in more), more


def test_a_subclass_puts_its_own_iterator_in_place() -> None:
    for library in (weft, torch):

        class Twice(library.utils.data.DataLoader):
            def _get_iterator(self) -> Any:
                return iter([1, 1])

        assert list(Twice(range(3))) == [1, 1]
