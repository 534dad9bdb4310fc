"""The loader: batches of a dataset, made here or in worker processes."""

from __future__ import annotations

import contextlib
import enum
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from weft.utils.data._utils import transport, worker
from weft.utils.data._utils.collate import default_collate, default_convert
from weft.utils.data._utils.progress import IterationPosition, Sources
from weft.utils.data._utils.worker import get_worker_info
from weft.utils.data.dataset import IterableDataset
from weft.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    fresh_seed,
)

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
_ALIVE_CHECK = 1.0  # seconds between looks at workers from which nothing is heard
_GRACE = 2.0  # seconds that a worker has to finish its sample when the loop is left
_SIGNALS = {s.value: s.name for s in signal.Signals}
_FIXED = (
    *("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"),
)


class _DatasetKind(enum.IntEnum):
    """How samples are taken out of a dataset: by indices, or one after another."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> Any:
        """What takes batches out of a dataset, for loaders of other libraries."""
        from weft.compat.stand_ins import workers

        maker: Any = workers._IterableDatasetFetcher if kind else workers._MapDatasetFetcher
        return maker(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    """Stands for the indices of a stream, which has none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Takes samples of a dataset in some order and makes batches of them.

    >>> [b.tolist() for b in torch.utils.data.DataLoader([1, 2, 3], batch_size=2)]
    [[1, 2], [3]]
    """

    __initialized = False
    __multiprocessing_context: Any = None
    # Kept for ``state_dict``: where the next iteration resumes, and the progress of the last one.
    # Iterating reads and writes both past a subclass's own attribute access, which sees what
    # PyTorch's loader asks for and no more.
    _saved: dict[str, Any] | None = None
    _progress: IterationPosition | None = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        _check_sampling(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset, self.num_workers = dataset, num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.generator = batch_size, drop_last, generator
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.collate_fn = collate_fn or (
            default_collate if self._auto_collation else default_convert
        )
        self.persistent_workers = persistent_workers
        self._iterator: _MultiProcessingDataLoaderIter | None = None
        self._IterableDataset_len_called: int | None = None  # the __len__ of a stream
        self.__initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How worker processes are started."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, wanted: Any) -> None:
        self.__multiprocessing_context = _context(wanted, self.num_workers)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        found = self.batch_sampler if self._auto_collation else self.sampler
        assert found is not None
        return found

    def __iter__(self) -> Any:
        if self.persistent_workers and self.num_workers > 0:
            iterator: Any = self._iterator
            if iterator is None or getattr(iterator, "closed", False):
                iterator = self._iterator = self._get_iterator()
            else:
                iterator._reset(self)
        else:
            iterator = self._get_iterator()
        # A subclass may have iterators of its own, which keep no account.
        object.__setattr__(self, "_progress", getattr(iterator, "progress", None))
        object.__setattr__(self, "_saved", None)
        return iterator

    def _get_iterator(self) -> Any:
        """A fresh iterator; subclasses put their own in its place."""
        saved = object.__getattribute__(self, "_saved")
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self, saved)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self, saved)

    def state_dict(self) -> dict[str, Any]:
        """The position in the epoch and all that the rest of it depends on, as plain data.

        The states of the global random generators are not in it; ``weft.utils.checkpointing``
        saves both.
        """
        if self._saved is not None:
            return self._saved  # loaded, and not gone on from yet
        progress = self._progress
        over = progress is None or (progress.ended and not self.persistent_workers)
        return {
            "length": self._length(),
            "num_workers": self.num_workers,
            "generators": self._sources().of_generators(),
            "progress": None if over or progress is None else progress.state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume the next iteration from the saved position of a loader constructed in the same
        way.

        >>> loader = DataLoader(range(6), batch_size=2)
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> again = DataLoader(range(6), batch_size=2)
        >>> again.load_state_dict(loader.state_dict())
        >>> [b.tolist() for b in again]
        [[2, 3], [4, 5]]
        """
        self._check_saved(state_dict)
        self._sources().set_generators(state_dict["generators"])
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None
        self._progress, self._saved = None, state_dict

    def _sources(self) -> Sources:
        return Sources(self._index_sampler, self.generator)

    def _check_saved(self, state: Any) -> None:
        names = {"length", "num_workers", "generators", "progress"}
        if not isinstance(state, dict) or names - state.keys():
            raise ValueError("load_state_dict of a DataLoader takes what its state_dict gave")
        if state["length"] != self._length():
            raise ValueError(
                f"the saved DataLoader had {state['length']} batches and this one has "
                f"{self._length()}: make the loader as it was made before, on the same data"
            )
        if state["progress"] is None or state["num_workers"] == self.num_workers:
            return
        changed = f"num_workers was {state['num_workers']} and is {self.num_workers} now"
        if self._dataset_kind:
            raise ValueError(f"{changed}: the rest of a stream depends on who read its start")
        if any(w["random"] is not None for w in state["progress"]["workers"]):
            warnings.warn(
                f"{changed}, and the workers drew random numbers: the samples come in the saved "
                "order, but what is random in them will differ",
                stacklevel=3,
            )

    def _length(self) -> int | None:
        try:
            return None if self._dataset_kind else len(self._index_sampler)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            return None  # a sampler that does not know

    def __len__(self) -> int:
        if not self._dataset_kind:
            return len(self._index_sampler)  # type: ignore[arg-type]
        count = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warn if there are to be more workers than the machine has processors."""
        if not self.num_workers:
            return
        affinity = getattr(os, "sched_getaffinity", None)
        most = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
        if self.num_workers > most:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our "
                f"suggested max number of worker in current system is {most}, which is smaller "
                "than what this DataLoader is going to create. Please be aware that excessive "
                "worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; "
                         "use num_workers=0 to disable multiprocessing.")  # fmt: skip
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if not num_workers and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. Let num_workers "
            "> 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and not num_workers:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_sampling(
    iterable: bool, batch_size: int | None, shuffle: Any, sampler: Any, batch_sampler: Any,
    drop_last: bool,
) -> None:  # fmt: skip
    if iterable:
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but "
                    f"got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, "
                             "shuffle, sampler, and drop_last")  # fmt: skip
    elif batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually "
                         "exclusive with drop_last")  # fmt: skip


def _context(wanted: Any, num_workers: int) -> Any:
    if wanted is None:
        return None
    if not num_workers:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > "
            f"0), but got num_workers={num_workers}"
        )
    if isinstance(wanted, str):
        valid = multiprocessing.get_all_start_methods()
        if wanted not in valid:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {valid!r}, "
                f"but got multiprocessing_context={wanted!r}"
            )
        return multiprocessing.get_context(wanted)
    if not isinstance(wanted, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={wanted}"
        )
    return wanted


# ------------------------------------------------------------------ iterators


class _BaseDataLoaderIter:
    """What PyTorch's iterators have in common, for the iterators of other libraries.

    These inherit it, make their own ``_next_data``, and use its private names.
    """

    def __init__(self, loader: Any) -> None:
        self._read(loader)
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = fresh_seed(loader.generator)

    def _read(self, loader: Any) -> None:
        """Take over the settings: of the loader itself an iterator keeps nothing."""
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._shared_seed = self._pg = None
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._index_sampler, self._num_workers = loader._index_sampler, loader.num_workers
        self._world_size, self._rank = 1, 0
        self._pin_memory, self._pin_memory_device = False, None  # there is no accelerator
        self._timeout, self._collate_fn = loader.timeout, loader.collate_fn
        self._persistent_workers, self._num_yielded = loader.persistent_workers, 0
        self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another epoch."""
        self._sampler_iter, self._num_yielded = iter(self._index_sampler), 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        data = self._next_data()
        self._count()
        return data

    def _count(self) -> None:
        """Count one more batch, and warn if a stream is longer than its ``__len__``."""
        self._num_yielded += 1
        promised = self._IterableDataset_len_called
        if self._dataset_kind and promised is not None and self._num_yielded > promised:
            _warn_of_length(self._dataset, promised, self._num_yielded, self._num_workers)

    def __len__(self) -> int:
        return len(self._index_sampler)


def _warn_of_length(dataset: Any, promised: int, given: int, workers: int) -> None:
    many = " (for a stream in several workers, __iter__ must give each a part of it)"
    warnings.warn(
        f"Length of IterableDataset {dataset} was reported to be {promised}, but {given} batches "
        f"have been fetched.{many if workers else ''}",
        stacklevel=4,
    )


class _Batches(_BaseDataLoaderIter):
    """What both kinds of iterators share.

    Of a loader they ask what PyTorch's iterators ask, by the same private names: there are
    libraries with loaders of their own that give these iterators just that.
    """

    def __init__(self, loader: Any, saved: dict[str, Any] | None) -> None:
        self._read(loader)
        generator = loader.generator
        self.sources = Sources(self._index_sampler, generator)
        state = (saved or {}).get("progress")
        self.resuming = state is not None
        if state is None:
            self._sampler_iter = iter(self._index_sampler)
            # PyTorch draws this even where no worker needs it, so the stream stays the same.
            self._base_seed = fresh_seed(generator)
            self.progress = IterationPosition(self._base_seed, self._num_workers)
            return
        self.progress = IterationPosition.restored(state, self._num_workers)
        self._base_seed = self.progress.base_seed
        if self.progress.ended:  # only persistent workers have a state then
            self.progress.next_epoch()

    def _go_on(self) -> None:
        """Begin with the indices, or where a saved loader stood."""
        if not self.resuming:
            return
        self._sampler_iter = iter(self._index_sampler)
        if not self._dataset_kind:
            for _ in range(self.progress.low):
                self._draw()

    def _draw(self) -> Any:
        """The next indices; what their order depends on is kept before the first are drawn."""
        if self.progress.start is None:
            self.progress.start = self.sources.take()
        return self._next_index()

    def _job(self, worker_id: int, init_fn: Any, resume: worker.Resume | None) -> worker.Task:
        return worker.Task(
            dataset=self._dataset, iterable=bool(self._dataset_kind),
            batched=self._auto_collation, drop_last=self._drop_last, collate_fn=self._collate_fn,
            init_fn=init_fn, worker_id=worker_id, num_workers=self._num_workers,
            base_seed=self.progress.base_seed, resume=resume,
        )  # fmt: skip

    def _sizes(self) -> Any:
        """What stands for the indices of any batch of a stream."""
        return next(iter(self._index_sampler)) if self._dataset_kind else None


class _SingleProcessDataLoaderIter(_Batches):
    """Makes batches in this process."""

    def __init__(self, loader: DataLoader, saved: dict[str, Any] | None = None) -> None:
        super().__init__(loader, saved)
        if self._timeout:
            raise AssertionError("timeout needs num_workers > 0")
        progress, resume = self.progress, None
        if self._dataset_kind and progress.start is None:
            progress.start = self.sources.take()  # a stream may draw as soon as it is made
        if self.resuming:
            resume = worker.Resume(progress.low, None, progress.dataset, self._sizes())
        with self.sources.replaying(progress.start if self.resuming else None):
            self._go_on()
            self.fetcher = worker.Fetcher(self._job(0, None, None), resume)
        if self.fetcher.keeps_state:
            progress.live = self.fetcher

    def __next__(self) -> Any:
        try:
            batch = self.fetcher.fetch(self._draw())
        except StopIteration:
            self.progress.ended = True
            raise
        self.progress.took(self.progress.low)
        self._count()
        return batch


class _Worker:
    """A worker process as seen from the main one."""

    def __init__(self, context: Any, job: worker.Task) -> None:
        self.pipe, other = context.Pipe(duplex=True)
        self.process = context.Process(target=worker.run, args=(other, job), daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            other.close()
        self.number = job.worker_id
        self.active = True  # False once its part of a stream is at its end
        self.waiting = 0
        self.ending: Any = None  # the state that it reported at the end of its part


class _MultiProcessingDataLoaderIter(_Batches):
    """Has batches made by worker processes, some ahead of their use."""

    def __init__(self, loader: DataLoader, saved: dict[str, Any] | None = None) -> None:
        super().__init__(loader, saved)
        method = "fork" if sys.platform == "linux" else None
        context = loader.multiprocessing_context or multiprocessing.get_context(method)
        self._prefetch_factor, self._in_order = loader.prefetch_factor, loader.in_order
        init_fn = loader.worker_init_fn
        self.workers: list[_Worker] = []
        self._finish = weakref.finalize(self, _shut_down, self.workers, os.getpid())
        try:
            for number in range(self._num_workers):
                resume = self._resume(number) if saved is not None else None
                self.workers.append(_Worker(context, self._job(number, init_fn, resume)))
        except BaseException:
            self._finish()
            raise
        self.epoch = 0
        with self.sources.replaying(self.progress.start):
            self._go_on()
            self._begin()

    def _resume(self, number: int) -> worker.Resume:
        """Where a worker of a saved loader stood."""
        done = self.progress.workers[number]
        replay = self._dataset_kind and done.dataset is None
        begin = done.begin if replay else done.random
        return worker.Resume(done.batches, begin, done.dataset, self._sizes())

    @property
    def closed(self) -> bool:
        """Whether the workers are gone."""
        return not self._finish.alive

    def close(self) -> None:
        """End the workers."""
        self._finish()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another epoch with the same workers."""
        super()._reset(loader, first_iter)
        self.epoch += 1
        self.progress.next_epoch()
        self._begin()

    def _begin(self) -> None:
        self.sent = self.next_wanted = self.progress.low
        self.skip = set(self.progress.beyond)
        self.owner: dict[int, _Worker] = {}
        self.arrived: dict[int, tuple[str, Any, Any]] = {}
        for w in self.workers:
            w.active, w.waiting = True, 0
        self.turn = itertools.cycle(self.workers)
        for _ in range(self.progress.last + 1):
            next(self.turn)
        for _ in range((self._prefetch_factor or 0) * len(self.workers)):
            self._send_next()

    def _send_next(self) -> None:
        """Give the next indices to the worker whose turn it is."""
        chosen = self._choose()
        if chosen is None:
            return
        try:
            indices = self._draw()
            while self.sent in self.skip:
                indices = self._draw()
                self.sent += 1
        except StopIteration:
            return
        try:
            chosen.pipe.send((self.epoch, self.sent, indices))
        except OSError:
            self._fail(chosen)
        self.owner[self.sent] = chosen
        chosen.waiting += 1
        self.sent += 1

    def _choose(self) -> _Worker | None:
        turns = [next(self.turn) for _ in self.workers]
        free = [w for w in turns if w.active]
        if not free:
            return None
        # In order, workers take turns; otherwise the least busy one is chosen, so that none idles.
        chosen = free[0] if self._in_order else min(free, key=lambda w: w.waiting)
        while next(self.turn) is not chosen:
            pass
        return chosen

    def __next__(self) -> Any:
        if self.closed:
            raise StopIteration
        if not self._prefetch_factor:
            self._send_next()
        while True:
            number = self._next_number()
            if number is None:
                self._end()
                if not self._persistent_workers:
                    self._finish()
                raise StopIteration
            if number in self.arrived:
                break
            self._receive()
        kind, batch, note = self.arrived.pop(number)
        source = self.owner[number]
        self._settle(number)
        place = self.progress.low if self._dataset_kind else number
        self.progress.took(place, source.number, note)
        if kind == "failure":
            batch.reraise()
        self._count()
        return batch

    def _end(self) -> None:
        self.progress.ended = True
        for w in self.workers:
            self.progress.workers[w.number].note(w.ending)
            w.ending = None

    def _settle(self, number: int) -> None:
        self.owner.pop(number)
        if self._prefetch_factor:
            self._send_next()

    def _next_number(self) -> int | None:
        """The task whose result is due; None if there is none left."""
        if not self._in_order:
            lost = [n for n, w in self.owner.items() if not w.active and n not in self.arrived]
            for n in lost:
                del self.owner[n]
            return next(iter(self.arrived or self.owner), None)
        while self.next_wanted < self.sent:
            number = self.next_wanted
            owner = self.owner.get(number)
            if owner is not None and (owner.active or number in self.arrived):
                return number
            self.owner.pop(number, None)  # its worker's stream has ended
            self.next_wanted += 1
        return None

    def _receive(self) -> None:
        """Wait for a result of any worker."""
        timeout = self._timeout
        deadline = time.monotonic() + timeout if timeout else float("inf")
        by_pipe = {w.pipe: w for w in self.workers}
        while True:
            left = min(_ALIVE_CHECK, deadline - time.monotonic())
            ready = multiprocessing.connection.wait(list(by_pipe), max(left, 0.0))
            if ready:
                break
            self._fail_if_dead()
            if time.monotonic() >= deadline:
                self._finish()
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        for pipe in ready:
            try:
                epoch, number, kind, batch, note = transport.receive(pipe)  # type: ignore[arg-type]
            except (EOFError, OSError):
                self._fail(by_pipe[pipe])  # type: ignore[index]
            if epoch == self.epoch:
                self._take(by_pipe[pipe], number, kind, batch, note)  # type: ignore[index]

    def _take(self, source: _Worker, number: int, kind: str, batch: Any, note: Any) -> None:
        source.waiting -= 1
        if kind != "end":
            self.arrived[number] = (kind, batch, note)
            return
        source.ending = note
        source.active, source.waiting = False, 0
        self.owner.pop(number, None)
        self._send_next()

    def _fail_if_dead(self) -> None:
        for w in self.workers:
            if not w.process.is_alive() and not w.pipe.poll():
                self._fail(w)

    def _fail(self, dead: _Worker) -> None:
        process = dead.process
        process.join(_GRACE)
        code, pid = process.exitcode, process.pid
        self._finish()
        reason = f"with exit code {code}"
        if code is not None and code < 0:
            name = signal.strsignal(-code) if -code not in _SIGNALS else _SIGNALS[-code]
            reason = f"killed by signal {name}"
            if name == "SIGKILL":
                reason += "; the system does this to processes when memory runs out"
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly ({reason})")


def _shut_down(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        return  # a copy in a forked process: the workers are not its own
    for w in workers:
        with contextlib.suppress(OSError, ValueError):
            w.pipe.send(None)
        w.pipe.close()
    deadline = time.monotonic() + _GRACE
    for w in workers:
        w.process.join(max(deadline - time.monotonic(), 0.0))
    for stop in ("terminate", "kill"):
        for w in workers:
            if w.process.is_alive():
                getattr(w.process, stop)()
        for w in workers:
            w.process.join(1.0)
