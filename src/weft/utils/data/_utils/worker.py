"""What runs in a worker process of a loader."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from weft.core.settings import set_num_threads
from weft.ops.random import manual_seed
from weft.utils.data._utils import transport

_PARENT_CHECK = 2.0  # seconds between looks whether the parent is still there


class WorkerInfo(NamedTuple):
    """Which worker of how many this is, with its seed and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What is known of this worker process; None in the main process."""
    return _info


@dataclass
class Job:
    """All that a worker is told when it starts."""

    dataset: Any
    iterable: bool
    batched: bool
    drop_last: bool
    collate_fn: Callable
    init_fn: Callable | None
    worker_id: int
    num_workers: int
    base_seed: int


class Fetcher:
    """Samples of a dataset as batches."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.stream = iter(job.dataset) if job.iterable else None

    def fetch(self, indices: Any) -> Any:
        """The batch of these indices, or the next one of a stream; StopIteration at its end."""
        job = self.job
        if self.stream is not None:
            found = self._from_stream(indices)
        elif not job.batched:
            found = job.dataset[indices]
        elif callable(getattr(job.dataset, "__getitems__", None)):
            found = job.dataset.__getitems__(indices)
        else:
            found = [job.dataset[i] for i in indices]
        return job.collate_fn(found)

    def _from_stream(self, indices: Any) -> Any:
        assert self.stream is not None
        if not self.job.batched:
            return next(self.stream)
        found = []
        for _ in indices:
            try:
                found.append(next(self.stream))
            except StopIteration:
                break
        if not found or (self.job.drop_last and len(found) < len(indices)):
            raise StopIteration
        return found


class _Message(str):
    """A KeyError shows the repr of its message; this one stays readable."""

    def __repr__(self) -> str:
        return str(self)


class Failure:
    """An exception on its way to the main process."""

    def __init__(self, error: BaseException, where: str) -> None:
        kind = type(error)
        self.name, self.where = kind.__name__, where
        self.text = "".join(traceback.format_exception(error))
        try:
            self.kind = pickle.dumps(kind)
        except Exception:
            self.kind = pickle.dumps(RuntimeError)  # a class that the other side can't find

    def reraise(self) -> None:
        """Raise it again, with the traceback of the worker in its message."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        try:
            kind = pickle.loads(self.kind)
        except Exception:
            kind = RuntimeError
        if issubclass(kind, StopIteration) or not issubclass(kind, Exception):
            kind = RuntimeError  # it would end the loop as if all were well
        try:
            error = kind(_Message(message) if issubclass(kind, KeyError) else message)
        except Exception:
            error = RuntimeError(message)
        raise error


def seeds_for_numpy(base_seed: int, worker_id: int) -> list[int]:
    """Four words for ``numpy.random.seed`` that differ in every bit between workers."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4).tolist()


def _seed(job: Job) -> int:
    seed = job.base_seed + job.worker_id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(seeds_for_numpy(job.base_seed, job.worker_id))
    return seed


class _Inbox:
    """Takes tasks off the pipe at once, so that the parent never waits for a busy worker."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.parent = connection, os.getppid()
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.epoch, self.closed = 0, False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                while not self.connection.poll(_PARENT_CHECK):
                    if os.getppid() != self.parent:
                        os._exit(1)
                task = self.connection.recv()
                if task is None:
                    break
                self.epoch = task[0]
                self.tasks.put(task)
        except (EOFError, OSError):
            if os.getppid() != self.parent:
                os._exit(1)
        self.closed = True
        self.tasks.put(None)


def run(connection: Connection, job: Job) -> None:
    """Answer tasks ``(epoch, number, indices)`` with ``(epoch, number, kind, batch)``."""
    global _info
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    where = f"in DataLoader worker process {job.worker_id}"
    inbox = _Inbox(connection)
    failure: Failure | None = None
    try:
        set_num_threads(1)
        _info = WorkerInfo(job.worker_id, job.num_workers, _seed(job), job.dataset)
        if job.init_fn is not None:
            job.init_fn(job.worker_id)
    except Exception as error:
        failure = Failure(error, where)
    epoch, fetcher, ended = -1, None, False
    while (task := inbox.tasks.get()) is not None and not inbox.closed:
        if task[0] != inbox.epoch:
            continue  # the loop that wanted this was left
        if task[0] != epoch:
            epoch, fetcher, ended = task[0], None, False
        if ended:
            continue
        answer: Any = failure
        failure = None
        if answer is None:
            try:
                fetcher = fetcher or Fetcher(job)
                answer = fetcher.fetch(task[2])
            except Exception as error:
                ended = job.iterable and isinstance(error, StopIteration)
                answer = None if ended else Failure(error, where)
        if not _answer(connection, task, "end" if ended else "batch", answer, where):
            return


def _answer(connection: Connection, task: Any, kind: str, answer: Any, where: str) -> bool:
    """Send a result; False if nobody is there to take it."""
    if isinstance(answer, Failure):
        kind = "failure"
    try:
        transport.send(connection, (task[0], task[1], kind, answer))
    except ConnectionError:
        return False
    except Exception as error:  # a batch that can't be pickled, or no memory to share
        return _answer(connection, task, "failure", Failure(error, where), where)
    return True
