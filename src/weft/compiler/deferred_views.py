"""Views that are created when they are read.

A program sets the values of results that are still referenced. For views (``squeeze``, ``x[:, 0]``)
that takes longer than for others: an op recreates each, with its place in the graph. Most are
released before they are read: they were intermediate values of the loss, in variables of the step.
If a view is the only reference to the memory that it shows, it does not matter when it is created,
so it stays pending until it is read or the region ends. A plan whose view was read once creates it
immediately from then on.
"""

from __future__ import annotations

import weakref
from typing import Any

from weft.compiler.eager_fallback import ordinary
from weft.core.pending import region_of
from weft.core.tensor import Tensor


class DeferredView:
    """Replaces the region of a tensor that is a view: it knows how to create the view."""

    is_late_view = True
    leaves = ()  # the memory belongs to a result

    def __init__(self, region: Any, plan: Any, number: int) -> None:
        view = region.handles[number]
        self.tensor, self.lock, self.default = weakref.ref(view), region.lock, region.default
        self.plan, self.number, self.root = plan, number, plan.roots[number].number
        self.base = region.handles[self.root]
        self.apart = ()
        view._stamp = (self, number, plan.kinds[number])

    @property
    def is_pending(self) -> bool:
        view = self.tensor()
        return view is not None and region_of(view) is self

    def read(self, frame: Any = None) -> None:
        """The view is requested, by any thread."""
        with self.lock:
            view = self.tensor()
            if view is None or region_of(view) is not self:
                return
            self.plan.make_at_once(self.number)
            self.handles: list[Any] = [None] * (1 + max(self.number, self.root))
            self.handles[self.root], self.handles[self.number] = self.base, view
            with ordinary(self.default):
                self.plan._view(self, self.number, {})

    # The queries to a region: all callers then read the tensor.

    def owns(self, view: Any) -> bool:
        """Whether it is not a view."""
        return False

    def may_share(self, view: Any, target: Any) -> bool:
        """Whether it may share the memory of a tensor that is about to be written."""
        return True

    def sets_apart(self, result: Any, inputs: Any) -> bool:
        """Whether it could be marked as not a view."""
        return False


def read_deferred_views(args: Any) -> None:
    """Create the late views among some arguments: a call on them is compared like one on leaves."""
    for x in args:
        late = region_of(x) if isinstance(x, Tensor) else None
        if late is not None and late.is_late_view:
            late.read()
