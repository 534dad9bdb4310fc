"""Following a region: Python runs, ops confirm the trace, and values are computed at the end.

``Region`` listens to a thread's ops. Where the trace knows what follows, an op call is compared
with it and returns a pending tensor; nothing is computed. When a value is read, or the region ends,
all pending ops are computed by a plan, in one native call. If the program does something new, the
pending ops are run one by one as eager mode would have run them, and the new continuation is
learned while the program continues eagerly.

So decisions made in Python take effect: branches, loops, globals, exceptions and attributes act in
every step, and a misprediction costs time and never changes a result.
"""

from __future__ import annotations

import functools
import struct
import sys
import threading
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.compiler import native_matching, stepping, whole_calls
from weft.compiler.deferred_views import DeferredView, read_deferred_views
from weft.compiler.eager_fallback import EagerFallback, ordinary
from weft.compiler.learning import Learning
from weft.compiler.plan import ExecutionPlan, Impossible
from weft.compiler.segment import TraceMemory, takes_gradient
from weft.compiler.trace import (
    ASSIGN,
    BACKWARD,
    CALL,
    DETACH,
    INPLACE,
    LEAF,
    NUMBER,
    RESULT,
    STEP,
    Kind,
    Point,
    Root,
    Token,
    same_attributes,
)
from weft.core import dtype as dt
from weft.core.dispatch import Op
from weft.core.gate import LISTENERS
from weft.core.inplace import cells_of, note_change, note_changes, tick
from weft.core.modes import MODES, SPECIAL, State
from weft.core.pending import region_of
from weft.core.tensor import Tensor, enable_pending_tensors
from weft.graph.collecting import collect_as_usual, put_off_collection
from weft.graph.spec import listening

new, getrefcount = object.__new__, sys.getrefcount
array_of = Tensor.__dict__["_a"].__get__
PLAIN_PASS = (None, False, None)  # the options of a plain backward pass
PLANS = 8  # sets of held results that a point has plans for
MANY = 200  # pending calls, whose tensors set off a pass of the cyclic garbage collector

# Ops that run immediately: they fail by value, or the shape of their result depends on values.
AT_ONCE = frozenset(("factorizations", "linalg", "spectral", "fft", "stft"))


@functools.cache
def at_once(op: Op) -> bool:
    """Whether an op can't be deferred: its result's shape, or whether it fails, depends on
    values.
    """
    if op.shape is None:
        return True
    home = getattr(op.reference, "__module__", "") or ""
    return home.rpartition(".")[2] in AT_ONCE


class Region(Learning, EagerFallback):
    """One run of a compiled function."""

    follows, is_late_view = True, False
    puts_off = True  # creates views that may never be read
    longest = 100_000  # calls that may be pending
    watched_call: Any = None  # of a function: see ``whole_calls``
    hooked: Any = None  # removes the frame evaluation hook

    def __init__(self, learned: TraceMemory, stance: str = "default") -> None:
        self.learned = learned
        self.longest_room = struct.pack("q", self.longest)
        enable_pending_tensors()
        self.lock = threading.RLock()  # another thread may read what is pending here
        self.busy = False
        self.late: list[DeferredView] = []  # views that are still to be made
        self.interruptions = []
        self.clear()
        self.begin(stance)
        if learned.compiled:
            self.before = native_matching.before(self)  # type: ignore[method-assign]

    def begin(self, stance: str) -> None:
        """Go to the root of the learned trace."""
        self.going_back = self.changing_now = None
        self.stance, self.default, learned = stance, dt._default, self.learned
        self.start(learned.roots.get(self.default) or learned.begin(self.default))

    def enter(self, now: State) -> None:
        """Listen as the only recorder of the thread."""
        LISTENERS.append(self.written_to)
        now.recorders = (self,)
        self._entered = (now,)
        now.mode = SPECIAL
        if self.learned.most >= MANY:
            put_off_collection()
        self.hook()

    def hook(self) -> None:
        """Install the hook that confirms whole calls of functions, once there are any to
        confirm.
        """
        if not self.learned.tokens or whole_calls.is_monitored():
            return
        if (made := whole_calls.compiled()) is not None:
            self.hooked = made.switch_off  # first, since a signal handler may raise in between
            if not made.switch(self, MODES.now):
                self.hooked = None

    def unhook(self) -> None:
        if self.hooked is not None:
            self.hooked()
            self.hooked = None

    def leave(self, now: State) -> None:
        """Stop listening."""
        self.unhook()
        if self.learned.most >= MANY:
            collect_as_usual()
        if now.recorders == (self,):
            LISTENERS.remove(self.written_to)
            now.recorders = ()
            now.update()
        else:
            self.__exit__()

    def drop(self, now: State) -> None:
        """The same after an exception, which a signal handler may have raised in between."""
        self.unhook()
        collect_as_usual()
        LISTENERS[:] = [f for f in LISTENERS if f != self.written_to]
        now.recorders = tuple(r for r in now.recorders if r is not self)
        now.update()

    def __enter__(self) -> Any:
        LISTENERS.append(self.written_to)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        self.unhook()
        LISTENERS.remove(self.written_to)
        super().__exit__(*exc)

    def defer_view(self, plan: ExecutionPlan, number: int) -> None:
        """Defer a view until it is read."""
        if self.handles[number] is not None:
            late = [view for view in self.late if view.is_pending] if self.late else []
            self.late = [*late, DeferredView(self, plan, number)]

    def create_deferred_views(self) -> None:
        """Create the views that are still referenced."""
        late, self.late = self.late, []
        for view in late:
            if view.tensor() is not None:
                view.read()

    def written_to(self, array: Any, target: Any) -> None:
        """Memory is about to change, in any thread: pending ops that still have to read it go
        first.
        """
        if self.path and not self.learning and not self.busy:
            if any(np.may_share_memory(array, held) for held in self.arrays):
                with self.lock:
                    self.cut("memory was written to")

    def read(self, frame: Any) -> None:
        """A value is requested, by any thread: compute everything pending."""
        with self.lock:
            if self.busy:
                raise RuntimeError("a pending value was read while it was being computed")
            self.compute(f"a value was read in {frame.f_code.co_qualname}")

    # --- following ---

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        with self.lock:
            now = MODES.now
            if not (self.learning or now.unusual or now.backward is not None) and (
                dt._default is self.default and len(self.path) < self.reach
            ):
                grad = now.grad
                for token in self.at.next:
                    if token.op is op and token.kind == CALL and token.grad is grad:
                        quick = token.quick
                        made = None if quick is None else quick(self, args, attrs)
                        if made is None:
                            made = token.follow(self, args, attrs)
                        if made is not None:
                            return made
            return self.on_unexpected_call(op, args, attrs)

    def on_unexpected_call(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An op is called that is not the next one expected, or that can't be deferred."""
        if MODES.now.backward is not None:
            return None  # a hook or a recomputation; nothing is pending there
        if len(self.path) >= self.reach and self.is_full():
            self.cut("the limit of pending ops was reached")
        if self.refuses(op):
            self.cut(f"{op.name} is executed immediately")
            return None
        if not self.learning:
            token = self.find(CALL, op, args, attrs)
            if token is not None:
                return self.answer(token, op.multiple)
            if self.at.runs_at_once(op):
                self.cut(f"{op.name} is executed immediately")
                return None
            self.diverge(op.name)
        self.prepare(args)
        return None

    def find(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token that matches a call; if values were computed here before, they are computed
        again.
        """
        if self.late:
            read_deferred_views(args)
        token = self.known(kind, op, args, attrs)
        if token is None and self.path and self.at.resumes:
            self.compute("values were computed at this point in earlier calls")
            token = self.known(kind, op, args, attrs)
        return token

    def known(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token that matches a call, seen here before, or at other sizes; its leaves are
        recorded.
        """
        token = self.expected(kind, op, args, attrs)
        if token is None:
            token = self.derive(kind, op, args, attrs)
            if token is not None and not token.match(self, args):
                return None
        return token

    def refuses(self, op: Op) -> bool:
        return at_once(op) or MODES.now.unusual or dt._default is not self.default

    def expected(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token that matches a call, if it was seen here before; its leaves are recorded."""
        grad = MODES.now.grad
        for token in self.at.next:
            if token.op is op and token.kind == kind and token.grad is grad:
                known = token.attrs
                if (known is attrs or same_attributes(known, attrs)) and token.match(self, args):
                    return token
        return None

    def take_back(self, met: int, numbers: int) -> None:
        """Forget the leaves and numbers recorded for a call that was not followed."""
        self.met.difference_update(map(id, self.leaves[met:]))
        del self.leaves[met:], self.arrays[met:], self.nodes[met:], self.numbers[numbers:]

    def answer(self, token: Token, many: bool) -> Any:
        """Pending tensors instead of a call's results."""
        self.advance(token)
        made = [self.pending(number, kind) for number, kind in enumerate(token.kinds, token.first)]
        return tuple(made) if many else made[0]

    def advance(self, token: Token) -> None:
        self.path.append(token)
        self.at = token.after

    def pending(self, number: int, kind: Kind) -> Tensor:
        t = new(Tensor)
        t._vc = [0]
        t._grad = t._x = None
        t._stamp = (self, number, kind)  # type: ignore[assignment]
        self.handles.append(t)
        return t

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        with self.lock:
            instead = self.on_unexpected_change(op, args, attrs)
            if instead is None:  # the op that runs now compares the memory of its arguments
                read_deferred_views(args)
            return instead

    def on_unexpected_change(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An in-place op is called: its target, if the call was expected."""
        if MODES.now.backward is not None:
            return None
        if self.refuses(op):
            self.cut(f"{op.name}_ is executed immediately")
            return None
        if self.learning:
            self.learn_change(op, args, attrs)
            return None
        token = self.find(INPLACE, op, args, attrs)
        if token is not None:
            return args[0] if self.change(token, args[0]) else None
        if self.at.runs_at_once(op):
            self.cut(f"{op.name}_ is executed immediately")
            return None
        self.diverge(f"{op.name}_")
        self.learn_change(op, args, attrs)
        return None

    def overlooks(self, target: Tensor) -> bool:
        known = self.ids if self.learning else self.met
        return region_of(target) is None and id(target) not in known

    def takes_on(self, target: Tensor, result: Tensor, name: str) -> bool:
        with self.lock:
            if MODES.now.backward is not None:
                return False
            if self.learning:
                self.learn_assignment(target, result, name)
                return False
            if region_of(result) is not self:
                return False  # the write itself ends the segment
            token = self.find(ASSIGN, sys.intern(name), (target, result), {})
            if token is not None:
                return self.change(token, target)
            if region_of(result) is self:
                self.diverge(f"{name}_")
                self.learn_assignment(target, result, name)
            return False

    def change(self, token: Token, target: Tensor) -> bool:
        """Record that a tensor will have a new value, with a new number; False if that can't be
        deferred.
        """
        kind, wanted = token.slots[0]
        if kind == LEAF and not self.is_alone(target, wanted.number):
            self.forget(token)
            self.cut(f"{token.name}_ on memory that something else references")
            return False
        self.change_later(token, target)
        return True

    def can_defer(self, token: Token, target: Any) -> bool:
        """Whether a change can be deferred of a tensor that may be a leaf not met yet."""
        kind, wanted = token.slots[0]
        if kind != LEAF:
            return True
        try:
            array = array_of(target)
        except (AttributeError, TypeError):
            return False
        met = wanted.number < len(self.arrays)
        if met and self.arrays[wanted.number] is not array:
            return False
        return getrefcount(array) <= UNSHARED + met and owned(array)

    def change_later(self, token: Token, target: Any) -> None:
        """Record a change of a tensor that can be deferred."""
        self.advance(token)
        self.renew(target, token.slots[0], token.first, token.kinds[0])
        if id(target) in self.hidden:
            self.bumped.append((target, True))
        note_change(target._vc, token.name, token.code, token.instruction)

    def is_alone(self, target: Any, number: int) -> bool:
        """Whether a leaf's memory has no other reference, through which the deferral would be
        visible.
        """
        array = self.arrays[number]
        return target._a is array and getrefcount(array) <= UNSHARED + 1 and owned(array)

    def renew(self, target: Any, slot: tuple[int, Any], number: int, kind: Kind) -> None:
        """Turn a tensor into a pending result."""
        if slot[0] == LEAF:
            self.hidden[id(target)] = (target, slot[1].number)
            del target._a
        else:
            self.handles[slot[1]] = None
        target._stamp = (self, number, kind)
        self.handles.append(target)

    def note_bump(self, gradient: Any) -> None:
        """Increment the version as the engine does, which does not record where the change was
        made.
        """
        gradient._vc[0] += 1
        if id(gradient) in self.hidden:
            self.bumped.append((gradient, False))

    def forget(self, token: Token) -> None:
        """Undo what ``match`` has recorded for a token that was not followed after all."""
        given = sum(kind == NUMBER for kind, _ in token.slots)
        self.take_back(len(self.leaves) - len(token.leaves), len(self.numbers) - given)

    def detaching(self, tensor: Tensor) -> Any:
        if MODES.now.backward is not None:
            return None
        if not self.learning:
            if region_of(tensor) is not self:
                return None
            token = self.find(DETACH, "detach", (tensor,), {})
            if token is not None:
                return self.answer(token, False)
            self.diverge("detach")
        return self.learn_detach(tensor)

    def relinking(self, tensor: Tensor) -> None:
        """Compute what is pending: views created later would get the new ``grad_fn``."""
        if self.path and id(tensor) in (self.ids if self.learning else self.met):
            with self.lock:
                self.cut("a tensor was detached, or its requires_grad was set")

    def sets_apart(self, result: Tensor, inputs: Any) -> bool:
        """Record that a pending result will not be a view, unless of these; False if that is
        unclear.

        Called by ``api.apart``: the result of a composite may use memory that only it references.
        """
        root = self.home_of(result)
        homes = [self.home_of(x) for x in inputs]
        if root is None or None in homes:
            return False
        if root not in homes:
            self.apart.add(object.__getattribute__(result, "_stamp")[1])
        return True

    def owns(self, tensor: Tensor) -> bool:
        """Whether a pending tensor is not a view of another."""
        number = object.__getattribute__(tensor, "_stamp")[1]
        return self.root_of((RESULT, number)) == Root(RESULT, number)

    def may_share(self, view: Tensor, target: Tensor) -> bool:
        """Whether a pending tensor may share the memory of one that is about to be written."""
        number = object.__getattribute__(view, "_stamp")[1]
        root = self.root_of((RESULT, number))
        if root == Root(RESULT, number):
            return view is target
        if root.where == LEAF:
            return self.leaves[root.number]._vc is target._vc
        holder = self.handles[root.number]
        return holder is None or holder is target  # None: it has a new value by now

    def home_of(self, tensor: Tensor) -> Root | None:
        """Whose memory a result or leaf of the segment is in."""
        if region_of(tensor) is self:
            return self.root_of((RESULT, object.__getattribute__(tensor, "_stamp")[1]))
        known = next((k for k, leaf in enumerate(self.leaves) if leaf is tensor), None)
        return None if known is None or tensor._base is not None else Root(LEAF, known)

    def backs(self, tensors: Any, gradients: Any, options: tuple[Any, ...]) -> bool:
        self.going_back = None  # left by a pass that has failed
        if not self.path:
            return False
        if options == PLAIN_PASS and self.confirms_pass(tensors, gradients):
            return True
        retain, create, inputs = options
        root = tensors[0] if isinstance(tensors, tuple) and len(tensors) == 1 else tensors
        now = MODES.now
        plain = (
            isinstance(root, Tensor)
            and not (retain or create or inputs is not None or engine.WATCHERS)
            and (gradients is None or gradients == (None,))
            and not now.unusual
            and now.backward is None
        )
        if self.learning:
            self.learn_backward(root if plain else None)
            return False
        known = [t for t in self.at.next if t.kind == BACKWARD]
        found = plain and region_of(root) is self
        if found and any(self.defer_gradients(token, root) for token in known):
            return True
        if found and not known and self.known_pass(root):
            return True
        if self.at.resumes or (known and not (found and self.is_new_gradient_state(known))):
            self.cut("backward")
        else:
            self.diverge("backward")
        if self.learning:
            self.learn_backward(root if plain else None)
        return False

    def confirms_pass(self, tensors: Any, gradients: Any) -> bool:
        """Whether compiled code has confirmed a pass; otherwise the Python code below decides."""
        now = MODES.now
        if (
            self.learning
            or now.unusual
            or now.backward is not None
            or engine.WATCHERS
            or tensors.__class__ is not tuple
            or len(tensors) != 1
            or gradients != (None,)
        ):
            return False
        for token in self.at.next:
            if (
                token.kind == BACKWARD
                and token.quick is not None
                and token.grad is now.grad
                and token.quick(self, tensors[0])
            ):
                return True
        return False

    def defer_gradients(self, token: Token, root: Tensor) -> bool:
        """Put pending gradients into leaves, if these are as they were when the pass was
        learned.
        """
        if token.grad is not MODES.now.grad or self.handles[token.slots[0][1]] is not root:
            return False
        if token.quick is not None and token.quick(self, root):
            return True
        tensors = [self.leaves[slot.number] for slot in token.targets]
        if not all(map(takes_gradient, tensors)) or any(map(differs, tensors, token.held)):
            return False
        if not token.match(self, (root, *[t._grad for t in tensors if t._grad is not None])):
            return False
        if not self.may_grow_later(token, tensors):
            self.forget(token)
            return False
        self.advance(token)
        for k, (tensor, kind) in enumerate(zip(tensors, token.kinds, strict=True)):
            if token.held[k]:
                self.renew(tensor._grad, token.slots[token.held[k]], token.first + k, kind)
                self.note_bump(tensor._grad)
            else:
                tensor._grad = self.pending(token.first + k, kind)
        return True

    def known_pass(self, root: Tensor) -> bool:
        """Whether a pass is known at other sizes, and can be deferred."""
        for like in [t for point in self.at.like for t in point.next if t.kind == BACKWARD]:
            tensors = [self.leaves[slot.number] for slot in like.targets]
            args = (root, *[t._grad for t in tensors if t._grad is not None])
            token = self.derive(BACKWARD, like.op, args, {})
            if token is not None:
                return self.defer_gradients(token, root)
        return False

    def is_new_gradient_state(self, known: list[Token]) -> bool:
        """Whether gradients exist for other leaves than in all passes known here."""
        leaves = self.leaves
        for token in known:
            tensors = [leaves[slot.number] for slot in token.targets]
            if not all(map(takes_gradient, tensors)) or not any(map(differs, tensors, token.held)):
                return False
        return True

    def may_grow_later(self, token: Token, tensors: list[Tensor]) -> bool:
        """Whether the memory of gradients that will be accumulated into has no other reference."""
        for tensor, place in zip(tensors, token.held, strict=True):
            kind, slot = token.slots[place]
            if place and kind == LEAF and not self.is_alone(tensor._grad, slot.number):
                return False
        return True

    def steps(self, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(MODES.now.recorders) > 1 or len(args) > 1 or kwargs:
            self.cut("an optimizer's step")
            if len(MODES.now.recorders) > 1 or any(map(callable, (*args[1:], *kwargs.values()))):
                return super().steps(step, args, kwargs)
            with listening():
                return step(*args, **kwargs)
        optimizer = args[0]
        if not self.path:  # nothing to compute together with it
            with listening():
                return step(optimizer)
        if not self.learning:
            with self.lock:
                if self.takes_step(optimizer):
                    return None
            if self.at.resumes or any(t.kind == STEP for t in self.at.next):
                self.cut("an optimizer's step")
            else:
                self.diverge("an optimizer's step")
        if self.learning:
            return self.learn_step(step, optimizer)
        with listening():
            return step(optimizer)

    def takes_step(self, optimizer: Any) -> bool:
        """Run an optimizer's step together with everything pending, if it was expected."""
        if MODES.now.unusual:
            return False
        plain = False
        if self.at.like and not self.at.next:
            self.derive_step(optimizer)
        for token in self.at.next:
            if token.kind != STEP or token.op is not optimizer:
                continue
            step, usual = token.step, token.step.usual
            last = usual is not None and usual.is_the_last(self)
            plain = plain or last or stepping.is_plain(optimizer)
            if not plain:
                return False
            if last or (usual is not None and usual.matches(self)):
                written = usual.written
            else:
                args = step.arguments()
                if args is None or not token.match(self, args):
                    continue
                written = (*step.params, *args[2 * step.count :])
                step.settle(token, args)
            self.path.append(token)
            self.at = token.after
            self.handles += step.nothing
            if self.compute("an optimizer's step"):
                mark = type(optimizer).__name__, token.code, token.instruction
                if step.note_changes is None:
                    note_changes(cells_of(written), *mark)
                else:
                    step.note_changes(written, ((0, *mark, tick()),))
            return True
        return False

    # --- computing ---

    def cut(self, why: str) -> None:
        """Something happens that a trace can't contain: everything before it is computed first."""
        if self.learning:
            if self.path:
                self.go_on(self.at)
        else:
            self.compute(why)

    def go_on(self, point: Point) -> None:
        """Begin a new segment, after everything up to a point was computed; learn it if it is
        new.
        """
        learning = self.learning
        self.start(point.resume or point.resumed())
        self.learning = learning and not self.at.next
        if self.learning:
            self.look_often()

    def compute(self, why: str) -> bool:
        """Compute everything pending and begin a new segment. False if it was done eagerly."""
        with self.lock:  # another thread may be computing it right now
            if self.busy or not self.path or self.learning:
                return False
            self.busy = True  # before anything is read: calls in the region's thread depend on it
            try:
                point, learned = self.at, self.learned
                reasons = learned.reasons
                if len(self.path) > learned.most:
                    learned.most = len(self.path)
                reasons[why] = reasons.get(why, 0) + 1
                done = self.by_plan(point)
                if not done:
                    self.run_eagerly()
                self.go_on(point)
                if self.interruptions:
                    raise self.interruptions.pop()
            except BaseException:
                if not self.path:
                    self.go_on(point)
                raise
            finally:
                self.busy = False
            return done

    def by_plan(self, point: Point) -> bool:
        """Compute in one native call; False if that is impossible, with nothing changed."""
        held = self.held(point)
        if self.candidates:
            whole_calls.settle(self, held)
        plan = point.plans.get(held)
        if plan is not None and plan is not False and plan.native:
            return plan.run(self)
        with ordinary(self.default):
            if plan is None:
                plan = self.plan_for(point, held)
            return plan is not False and plan.run(self)

    def plan_for(self, point: Point, held: int) -> Any:
        if len(point.plans) >= PLANS:
            wider = [p for known, p in point.plans.items() if p and not held & ~known]
            return wider[0] if wider else False
        try:
            given = self.path, self.arrays, held, self.numbers, self.learned.memory
            plan: Any = ExecutionPlan(*given, late=self.puts_off and not self.apart)
            self.learned.compiled += 1
            for token in self.path:
                native_matching.equip(token)
            if "before" not in self.__dict__:
                self.before = native_matching.before(self)  # type: ignore[method-assign]
        except Impossible as error:
            self.learned.note(self.learned.refused, str(error))
            plan = False
        except (IndexError, RuntimeError, TypeError, ValueError):
            if not self.path[-1].derived:
                raise
            plan = False  # eager mode raises the same error, with its line
        point.plans[held] = plan
        return plan

    def held(self, point: Point) -> int:
        """The set of results that are still referenced elsewhere."""
        watched = point.watched
        if watched is None:
            numbers = [
                k
                for token in self.path
                for k in range(token.first, token.first + len(token.kinds))
                if token.kind != STEP
            ]
            made = native_matching.functions()
            count = None if made is None else made.held
            watched = point.watched = numbers, native_matching.words(numbers), count
        numbers, given, count = watched
        found = None if count is None else count(self, given)
        return self.held_among(numbers) if found is None else found

    def held_among(self, numbers: list[int]) -> int:
        """The same in Python, and its specification."""
        found = 0
        handles = self.handles
        for k in numbers:
            if getrefcount(handles[k]) > HELD and handles[k] is not None:
                found |= 1 << k
        return found

    # --- what else happens in a thread ---

    def source(self, generator: Any) -> Any:
        if self.watched_call is not None:
            self.watched_call.spoilt = True
        return generator

    def calls(self, function: Any, args: tuple[Any, ...]) -> Any:
        self.cut(f"{function.__name__} is executed immediately")
        with listening():
            return function.apply(*args)

    def finish(self) -> None:
        """The region has ended: nothing pending outlives it, and it keeps no references."""
        if self.path:
            if self.learning:
                self.start(self.at)
            else:
                self.compute("the region ended")
        if self.late:
            self.create_deferred_views()

    def abandon(self) -> None:
        """The region has ended by an exception: everything before it is executed, as in eager
        mode.
        """
        while self.path and not self.learning and not self.is_noted(self.path[-1]):
            self.path.pop()
        self.run_eagerly()
        self.start(self.at)
        self.create_deferred_views()

    def is_noted(self, token: Token) -> bool:
        """Whether the last call was recorded completely; if a signal interrupted it, it did not
        happen.

        An optimizer's step is recorded when it is executed.
        """
        numbers = sum(kind == NUMBER for t in self.path for kind, _ in t.slots)
        return (
            token.kind != STEP
            and len(self.handles) >= token.first + len(token.kinds)
            and len(self.arrays) >= max((s.number + 1 for s in token.leaves), default=0)
            and len(self.numbers) >= numbers
        )


def differs(tensor: Tensor, place: int) -> bool:
    """Whether a leaf has a gradient although it had none, or vice versa."""
    return (tensor._grad is None) is (place > 0)


def owned(array: np.ndarray) -> bool:
    """Whether the memory of an array has no other owner: no other array shows it."""
    owner = array.base
    if owner is None:
        return True
    return owner.__class__ is np.ndarray and owner.base is None and getrefcount(owner) == OWNED


def _count_of_owner() -> int:
    array = np.empty(2)[:]
    owner = array.base
    return getrefcount(owner)


OWNED = _count_of_owner()  # the reference count of an array that one view and a local variable hold


def _held_by_one() -> int:
    handles = [object()]
    for k in range(1):
        return getrefcount(handles[k])
    return 0


HELD = _held_by_one()  # the reference count of an object that only ``Region.handles`` holds


def _held_by_slot() -> int:
    slot = [object()]
    held = slot[0]
    return getrefcount(held)


# That of a leaf's array, which the tensor's slot and a local variable hold. From Python 3.14 on an
# argument that is a local variable counts no more.
UNSHARED = _held_by_slot()
