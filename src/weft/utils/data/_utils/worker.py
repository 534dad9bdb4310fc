"""What runs in a worker process of a loader."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from weft.core import tracebacks
from weft.core.settings import set_num_threads
from weft.operators.random import manual_seed
from weft.utils._random_state import Fingerprint, random_state, set_random_state
from weft.utils.data._utils import transport
from weft.utils.data._utils.progress import keeps_state

_PARENT_CHECK = 2.0  # seconds between looks whether the parent is still there


class WorkerInfo(NamedTuple):
    """Which worker of how many this is, with its seed and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What is known of this worker process; None in the main process."""
    return _worker_info


class Resume(NamedTuple):
    """The position at which a worker resumes, and the batch size of a stream."""

    batches: int
    random: Any
    dataset: Any
    sizes: Any


@dataclass
class Task:
    """Everything that a worker receives when it starts."""

    dataset: Any
    iterable: bool
    batched: bool
    drop_last: bool
    collate_fn: Callable
    init_fn: Callable | None
    worker_id: int
    num_workers: int
    base_seed: int
    resume: Resume | None = None


class Fetcher:
    """Samples of a dataset as batches."""

    def __init__(self, job: Any, resume: Resume | None = None) -> None:
        self.job = job
        self.stream: Any = None
        self.ended: bool
        kind, state, self.ended = (resume and resume.dataset) or (None, None, False)
        if kind == "dataset":
            job.dataset.load_state_dict(state)
        if job.iterable:
            self.stream = iter(() if self.ended else job.dataset)
            if resume is not None and not self.ended:
                self._catch_up(resume, kind, state)
        keepers = {"stream": self.stream, "dataset": job.dataset}
        self.keepers = {name: k for name, k in keepers.items() if keeps_state(k)}
        self.keeps_state = bool(self.keepers)

    def _catch_up(self, resume: Resume, kind: str | None, state: Any) -> None:
        """Bring a stream to where it was, by its own state or else by reading it again."""
        if kind == "stream":
            self.stream.load_state_dict(state)
        elif kind is None:
            for _ in range(resume.batches):
                self._from_stream(resume.sizes)

    def state(self) -> tuple[str, Any, bool] | None:
        """The stream's own state, or else the dataset's, and whether its end was seen."""
        for name, keeper in self.keepers.items():
            return name, keeper.state_dict(), self.ended
        return None

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
        found = []
        for _ in indices if self.job.batched else (None,):
            try:
                found.append(next(self.stream))
            except StopIteration:
                self.ended = True
                break
        if not found or (self.job.drop_last and len(found) < len(indices)):
            raise StopIteration
        return found if self.job.batched else found[0]


class _Message(str):
    """A KeyError shows the repr of its message; this one stays readable."""

    def __repr__(self) -> str:
        return str(self)


class Failure:
    """An exception on its way to the main process."""

    def __init__(self, error: BaseException, where: str) -> None:
        kind = type(error)
        self.name, self.where = kind.__name__, where
        self.text = tracebacks.text(error)
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


def _seed(job: Task) -> int:
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


class _Watch:
    """Tells what changed of the states in this process, batch by batch."""

    def __init__(self) -> None:
        self.seen = Fingerprint()

    def note(self, fetcher: Fetcher | None) -> dict[str, Any] | None:
        """The state that the main process needs so that another worker can resume from here."""
        found: dict[str, Any] = {}
        now = Fingerprint()
        if now != self.seen:
            self.seen, found["random"] = now, random_state()
        if fetcher is not None and fetcher.keeps_state:
            found["dataset"] = fetcher.state()
        return found or None


def run(connection: Connection, job: Task) -> None:
    """Answer tasks ``(epoch, number, indices)`` with ``(epoch, number, kind, batch, note)``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    where = f"in DataLoader worker process {job.worker_id}"
    inbox = _Inbox(connection)
    failure: Failure | None = None
    try:
        _start(job)
    except Exception as error:
        failure = Failure(error, where)
    watch, resume = _Watch(), job.resume
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
                if fetcher is None:
                    again, resume = resume, None
                    fetcher = Fetcher(job, again)
                answer = fetcher.fetch(task[2])
            except Exception as error:
                ended = job.iterable and isinstance(error, StopIteration)
                answer = None if ended else Failure(error, where)
        kind = "end" if ended else "batch"
        if not _answer(connection, task, kind, answer, watch.note(fetcher), where):
            return


def _start(job: Task) -> None:
    global _worker_info
    set_num_threads(1)
    _worker_info = WorkerInfo(job.worker_id, job.num_workers, _seed(job), job.dataset)
    if job.init_fn is not None:
        job.init_fn(job.worker_id)
    if job.resume is not None and job.resume.random is not None:
        set_random_state(job.resume.random)


def _answer(
    connection: Connection, task: Any, kind: str, answer: Any, note: Any, where: str
) -> bool:
    """Send a result; False if the receiver is gone."""
    if isinstance(answer, Failure):
        kind = "failure"
    try:
        transport.send(connection, (task[0], task[1], kind, answer, note))
    except ConnectionError:
        return False
    except Exception as error:  # a batch that can't be pickled, or no memory to share
        return _answer(connection, task, "failure", Failure(error, where), None, where)
    return True
