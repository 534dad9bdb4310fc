"""The progress of a loader's epoch, so that another process can resume from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.operators.random import Generator, default_generator
from weft.utils._random_state import random_state, set_random_state


def keeps_state(thing: Any) -> bool:
    """Whether an object offers ``state_dict`` and ``load_state_dict``."""
    return all(callable(getattr(thing, n, None)) for n in ("state_dict", "load_state_dict"))


class WorkerProgress:
    """What one worker has done in an epoch, as far as its batches were handed out."""

    FIELDS = ("batches", "begin", "random", "dataset")

    def __init__(self) -> None:
        self.batches = 0
        self.begin: Any = None  # its random states before its first batch; None when just seeded
        self.random: Any = None  # and after its last one
        self.dataset: Any = None  # the dataset's own state_dict

    def note(self, seen: dict[str, Any] | None) -> None:
        """Store the state that a worker reported, which it does only if it has changed."""
        for name, value in (seen or {}).items():
            setattr(self, name, value)

    def next_epoch(self) -> None:
        """Begin another epoch in the same process."""
        self.batches, self.begin = 0, self.random


class IterationPosition:
    """The position of an iteration: what was handed out, and what the rest depends on."""

    FIELDS = ("base_seed", "low", "beyond", "start", "last", "ended")

    def __init__(self, base_seed: int, num_workers: int) -> None:
        self.base_seed = base_seed
        self.low = 0  # batches with a lower number were all handed out
        self.beyond: list[int] = []  # handed out before an earlier one, if that is allowed
        self.start: Any = None  # the random sources before the first index was drawn
        self.last = -1  # the worker that made the last batch
        self.ended = False
        self.workers = [WorkerProgress() for _ in range(num_workers)]
        self.dataset: Any = None  # the state that a dataset in this process had
        self.live: Any = None  # what can say the state that it has

    @property
    def given(self) -> int:
        """How many batches were handed out."""
        return self.low + len(self.beyond)

    def took(self, number: int, worker: int | None = None, note: Any = None) -> None:
        """A batch was handed out."""
        if number == self.low:
            self.low += 1
            while self.low in self.beyond:
                self.beyond.remove(self.low)
                self.low += 1
        else:
            self.beyond.append(number)
        if worker is not None:
            self.last = worker
            self.workers[worker].batches += 1
            self.workers[worker].note(note)

    def next_epoch(self) -> None:
        """Begin another epoch with the same workers."""
        self.low, self.beyond, self.start, self.last, self.ended = 0, [], None, -1, False
        for w in self.workers:
            w.next_epoch()

    def state(self) -> dict[str, Any]:
        """All of this as plain data."""
        state = {name: getattr(self, name) for name in self.FIELDS}
        state["beyond"] = list(self.beyond)
        state["dataset"] = self.live.state() if self.live is not None else None
        state["workers"] = [{n: getattr(w, n) for n in w.FIELDS} for w in self.workers]
        return state

    @classmethod
    def restored(cls, state: dict[str, Any], num_workers: int) -> IterationPosition:
        """The progress that ``state`` gave."""
        made = cls(state["base_seed"], num_workers)
        for name in cls.FIELDS:
            setattr(made, name, state[name])
        made.beyond, made.dataset = list(state["beyond"]), state["dataset"]
        for w, saved in zip(made.workers, state["workers"], strict=False):
            for name in w.FIELDS:
                setattr(w, name, saved[name])
        return made


class Sources:
    """All that the order of a loader's samples may depend on."""

    def __init__(self, indices: Any, generator: Any) -> None:
        self.samplers = _distinct([indices, getattr(indices, "sampler", None)])
        found = [generator, *(getattr(s, "generator", None) for s in self.samplers)]
        own = [g for g in found if isinstance(g, Generator) and g is not default_generator]
        self.generators = _distinct(own)

    def of_generators(self) -> list[Any]:
        """The states of the generators that were given to the loader or its samplers."""
        return [g.get_state() for g in self.generators]

    def set_generators(self, states: list[Any]) -> None:
        """Put those generators back."""
        if len(states) != len(self.generators):
            raise ValueError(
                f"the saved loader drew from {len(states)} generators of its own, and this one "
                f"from {len(self.generators)}: make the loader as it was made before"
            )
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)

    def take(self) -> dict[str, Any]:
        """The states of everything, before the first index of an epoch is drawn."""
        return {
            "random": random_state(),
            "generators": self.of_generators(),
            "samplers": [_state_of_sampler(s) for s in self.samplers],
        }

    @contextmanager
    def replaying(self, start: dict[str, Any] | None) -> Iterator[None]:
        """Draw once more what was drawn from a start on; afterwards all is as it was before."""
        if start is None:
            yield
            return
        outer, own = random_state(), self.of_generators()
        set_random_state(start["random"])
        self.set_generators(start["generators"])
        for sampler, state in zip(self.samplers, start["samplers"], strict=True):
            _set_sampler(sampler, state)
        try:
            yield
        finally:
            set_random_state(outer)
            self.set_generators(own)


def _distinct(things: list[Any]) -> list[Any]:
    return list({id(t): t for t in things if t is not None}.values())


def _state_of_sampler(sampler: Any) -> Any:
    if keeps_state(sampler):
        return {"state": sampler.state_dict()}
    return {"epoch": sampler.epoch} if hasattr(sampler, "set_epoch") else None


def _set_sampler(sampler: Any, state: Any) -> None:
    if state is None:
        return
    if "state" in state:
        sampler.load_state_dict(state["state"])
    else:
        sampler.set_epoch(state["epoch"])
