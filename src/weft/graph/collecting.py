"""Garbage collection and large graphs: many small objects are made at once, and none is garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """A block without passes of the cyclic garbage collector, which would look at all it makes."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


WAITING = 20_011  # the allocations between two passes while they wait
_usual = [0]  # what that number was before


def put_off_collection() -> None:
    """Let passes wait for ``collect_as_usual``, unless the program has decided otherwise.

    They are put off, and not switched off: a program that switches them off meanwhile is heeded,
    and so is one that sets thresholds. Many allocations still lead to a pass.
    """
    threshold = gc.get_threshold()[0]
    if 0 < threshold < WAITING:
        _usual[0] = threshold  # first: a signal's handler may raise in between
        gc.set_threshold(WAITING)


def collect_as_usual() -> None:
    """Let passes come as often as before; threads that still work lose nothing but time."""
    if gc.get_threshold()[0] == WAITING:
        gc.set_threshold(_usual[0])
