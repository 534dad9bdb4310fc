"""A region that is followed: Python runs, ops confirm what is expected, values come at the end.

``Region`` listens to a thread's work. Where the trace knows what follows, an op call is compared
with it and answered with a pending tensor; nothing is computed. When a value is read, or the region
ends, all that is pending is computed by a plan, in one native call. Where the program does
something new, what is pending is run op by op as eager mode would have run it, and the new
continuation is learned while the program goes on eagerly.

So what Python decides, happens: branches, loops, globals, exceptions and attributes act in every
step, and a wrong expectation costs time, never a result.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.compiler import trace
from weft.compiler.plan import Impossible, Plan, become, needed_for, reached
from weft.compiler.trace import (
    BACKWARD,
    CALL,
    CONSTANT,
    DETACH,
    INPLACE,
    LEAF,
    NUMBER,
    NUMBERS,
    RESULT,
    Kind,
    LeafSlot,
    Point,
    Root,
    Token,
    same,
    same_attributes,
)
from weft.core import dtype as dt
from weft.core import errors, frames
from weft.core.dispatch import Op, apply
from weft.core.gate import LISTENERS
from weft.core.inplace import apply_inplace
from weft.core.modes import MODES, set_grad_enabled
from weft.core.node import AccumulateGrad, Node, Output
from weft.core.tensor import Parameter, Tensor, shares, wrap
from weft.graph.listen import Listener
from weft.graph.spec import listening

ndarray = np.ndarray
new, getrefcount = object.__new__, sys.getrefcount
BRANCHES = 16  # continuations that are remembered at one point
PLANS = 8  # sets of held results that a point has plans for
FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
LONGEST = 100_000  # tokens that may be pending

# Ops that run at once: they fail by value, or what they give depends on values.
AT_ONCE = frozenset(("factorizations", "linalg", "spectral", "fft", "stft"))


def at_once(op: Op) -> bool:
    """Whether an op can't wait: its result's shape, or whether it fails, depends on values."""
    if op.shape is None:
        return True
    home = getattr(op.reference, "__module__", "") or ""
    return home.rpartition(".")[2] in AT_ONCE


class Learned:
    """What a compiled function knows: the tree of its traces, and counts for ``explain``."""

    def __init__(self, name: str, fullgraph: bool = False) -> None:
        self.name, self.fullgraph = name, fullgraph
        # By the default dtype, which decides what integers beside a float become.
        self.roots: dict[Any, Point] = {}
        self.calls = self.followed = self.diverged = self.compiled = self.tokens = 0
        self.reasons: dict[str, int] = {}  # why values were computed before the region's end
        self.refused: dict[str, int] = {}  # what could not be compiled
        self.lock = threading.RLock()

    def note(self, table: dict[str, int], why: str) -> None:
        table[why] = table.get(why, 0) + 1


class Region(Listener):
    """One run of a compiled function."""

    def __init__(self, learned: Learned, stance: str = "default") -> None:
        self.learned, self.stance = learned, stance
        self.thread = threading.get_ident()
        self.learning = False
        self.busy = False  # while what is pending is being computed
        self.at_once: dict[Op, bool] = {}
        self.default = dt.get_default_dtype()
        self.lock = threading.RLock()  # another thread may read what is pending here
        self.start(learned.roots.setdefault(self.default, Point()))

    # --- the state of a stretch between two computations ---

    def start(self, point: Point) -> None:
        self.at = point
        self.path: list[Token] = []
        self.handles: list[Any] = []  # results by number
        self.leaves: list[Tensor] = []
        self.met: set[int] = set()  # the identities of the leaves
        self.arrays: list[ndarray] = []  # of the leaves, as they were when they were met
        self.nodes: list[Any] = []
        self.numbers: list[float] = []
        # Leaves with pending changes in place, and one entry for each such change.
        self.hidden: dict[int, tuple[Tensor, int]] = {}
        self.bumped: list[Tensor] = []
        self.ids: dict[int, tuple[int, Any]] = {}  # while learning: what a tensor is to the trace
        self.updated: set[int] = set()  # while learning: parameters that were changed in place
        self.learning = False

    def __enter__(self) -> Any:
        LISTENERS.append(self.written_to)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        LISTENERS.remove(self.written_to)
        super().__exit__(*exc)

    def written_to(self, array: Any, target: Any) -> None:
        """Memory is about to change, in whatever thread: what is still to read it goes first."""
        if self.path and not self.learning and not self.busy:
            if any(np.may_share_memory(array, held) for held in self.arrays):
                with self.lock:
                    self.cut("memory was written to")

    def outline(self, number: int, name: str) -> Any:
        """What can be told of a pending tensor without computing it."""
        kind = self.kind_of(number)
        if name == "_a":
            return kind.outline
        return PENDING if name == "_node" and kind.requires else None

    def kind_of(self, number: int) -> Kind:
        for token in reversed(self.path):
            if token.first <= number:
                return token.kinds[number - token.first]
        raise AssertionError("a result that no call gave")

    def read(self, frame: Any) -> None:
        """A value is wanted, by whatever thread: compute all that is pending."""
        with self.lock:
            if self.busy:
                raise RuntimeError("a pending value was read while it was being computed")
            self.compute(f"a value was read in {frame.f_code.co_qualname}")

    # --- following ---

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        with self.lock:
            return self.met_call(op, args, attrs)

    def met_call(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An op is called: its results, if it was expected."""
        if MODES.now.backward is not None:
            return None  # a hook or a recomputation; nothing is pending then
        if len(self.path) >= LONGEST:
            self.cut("many calls are pending")
        if self.refuses(op):
            self.cut(f"{op.name} runs at once")
            return None
        if not self.learning:
            token = self.find(CALL, op, args, attrs)
            if token is not None:
                return self.answer(token, op.multiple)
            self.diverge(op.name)
        self.prepare(args)
        return None

    def find(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token that a call is; if values were computed here before, they are again."""
        token = self.expected(kind, op, args, attrs)
        if token is None and self.at.resume is not None and self.path:
            self.compute("as the last time")
            token = self.expected(kind, op, args, attrs)
        return token

    def refuses(self, op: Op) -> bool:
        found = self.at_once.get(op)
        if found is None:
            found = self.at_once[op] = at_once(op)
        return found or MODES.now.unusual or dt.get_default_dtype() is not self.default

    def expected(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token that a call is, if it was seen here before."""
        grad = MODES.now.grad
        for token in self.at.next:
            if token.op is op and token.kind == kind and token.grad is grad:
                known = token.attrs
                if (known is attrs or same_attributes(known, attrs)) and self.fits(token, args):
                    return token
        return None

    def fits(self, token: Token, args: Any) -> bool:
        """Whether arguments are those of a token; leaves met for the first time are noted."""
        if len(args) != token.count:
            return False
        handles, leaves = self.handles, self.leaves
        met, numbers = len(leaves), len(self.numbers)
        for x, (kind, wanted) in zip(args, token.slots, strict=True):
            if kind == RESULT:
                if handles[wanted] is x:
                    continue
            elif kind == LEAF:
                if wanted.number < len(leaves):
                    if leaves[wanted.number] is x:
                        continue
                elif wanted.outside or id(x) not in self.met:
                    if pending_in(x) is None and wanted.fits(x):
                        leaves.append(x)
                        self.met.add(id(x))
                        self.arrays.append(aside(x._a) if wanted.outside else x._a)
                        self.nodes.append(x._node)
                        continue
            elif kind == NUMBER:
                if x.__class__ is wanted:
                    self.numbers.append(x)
                    continue
            elif same(x, wanted):
                continue
            self.take_back(met, numbers)
            return False
        return True

    def take_back(self, met: int, numbers: int) -> None:
        """Forget the leaves and numbers from some on, of a call that was not followed."""
        self.met.difference_update(map(id, self.leaves[met:]))
        del self.leaves[met:], self.arrays[met:], self.nodes[met:], self.numbers[numbers:]

    def answer(self, token: Token, many: bool) -> Any:
        """Pending tensors in the place of a call's results."""
        self.advance(token)
        made = [
            self.pending(number) for number in range(token.first, token.first + len(token.kinds))
        ]
        return tuple(made) if many else made[0]

    def advance(self, token: Token) -> None:
        self.path.append(token)
        self.at = token.after

    def pending(self, number: int) -> Tensor:
        t = new(Tensor)
        t._vc = [0]
        t._grad = t._x = None
        t._stamp = (self, number)  # type: ignore[assignment]
        self.handles.append(t)
        return t

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        with self.lock:
            return self.met_change(op, args, attrs)

    def met_change(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """An op is called in place: its target, if that was expected."""
        if MODES.now.backward is not None:
            return None
        if self.refuses(op):
            self.cut(f"{op.name}_ runs at once")
            return None
        if self.learning:
            self.learn_change(op, args, attrs)
            return None
        token = self.find(INPLACE, op, args, attrs)
        if token is not None and self.change(token, args[0]):
            return args[0]
        self.diverge(f"{op.name}_")
        self.learn_change(op, args, attrs)
        return None

    def change(self, token: Token, target: Tensor) -> bool:
        """Note that a tensor will have another value, with a new number."""
        kind, wanted = token.slots[0]
        if kind == LEAF:
            # Whoever else holds the array could see that it has not changed yet.
            array = self.arrays[wanted.number]
            if target._a is not array or getrefcount(array) > UNSHARED + 1:
                self.forget(token)
                return False
            self.hidden[id(target)] = (target, wanted.number)
            del target._a
        else:
            self.handles[wanted] = None
        if id(target) in self.hidden:
            self.bumped.append(target)
        self.advance(token)
        target._stamp = (self, token.first)  # type: ignore[assignment]
        self.handles.append(target)
        cell = target._vc
        cell[0] += 1
        cell.append((cell[0], token.op.name, token.code, token.instruction))
        if len(cell) > 9:
            del cell[1]
        return True

    def forget(self, token: Token) -> None:
        """Take back what ``fits`` has noted for a token that was not followed after all."""
        given = sum(kind == NUMBER for kind, _ in token.slots)
        self.take_back(len(self.leaves) - len(token.leaves), len(self.numbers) - given)

    def detaching(self, tensor: Tensor) -> Any:
        if MODES.now.backward is not None:
            return None
        if not self.learning:
            if pending_in(tensor) is not self:
                return None
            token = self.find(DETACH, "detach", (tensor,), {})
            if token is not None:
                return self.answer(token, False)
            self.diverge("detach")
        slot = self.ids.get(id(tensor))
        if slot is None or slot[0] != RESULT:
            return None
        with listening():
            made = tensor.detach()
        kinds = (Kind(made._a, False),)
        token = self.add(DETACH, "detach", (tensor,), {}, kinds, lambda s, n: (self.root_of(s[0]),))
        if token is not None:
            self.keep(token, (made,))
        return made

    def backs(self, tensors: Any, gradients: Any, options: tuple[Any, ...]) -> bool:
        retain, create, inputs = options
        root = tensors[0] if isinstance(tensors, tuple) and len(tensors) == 1 else tensors
        plain = (
            isinstance(root, Tensor)
            and not (retain or create or inputs is not None or engine.WATCHERS)
            and (gradients is None or gradients == (None,))
            and not MODES.now.unusual
            and MODES.now.backward is None
        )
        if self.learning:
            self.learn_backward(root if plain else None)
            return False
        if plain and pending_in(root) is self:
            token = self.expected(BACKWARD, "backward", (root,), {})
            if token is not None and self.gradients_wait(token):
                return True
        if self.at.resume is not None or any(t.kind == BACKWARD for t in self.at.next):
            self.cut("backward")
        else:
            self.diverge("backward")
        if self.learning:
            self.learn_backward(root if plain else None)
        return False

    def gradients_wait(self, token: Token) -> bool:
        """Put pending gradients into leaves, if these are as they were when this was learned."""
        tensors = [self.leaves[slot.number] for slot in token.targets]
        if not all(map(takes_gradient, tensors)):
            return False
        self.advance(token)
        for k, tensor in enumerate(tensors):
            tensor._grad = self.pending(token.first + k)
        return True

    # --- learning ---

    def diverge(self, why: str) -> None:
        """The program does something new: run what is pending eagerly, and learn from here on."""
        learned = self.learned
        strict = learned.fullgraph or self.stance == "fail_on_recompile"
        if strict and learned.calls > 1 and self.settled:
            self.reify()
            how = "with fullgraph=True" if learned.fullgraph else "under fail_on_recompile"
            raise RuntimeError(
                f"{learned.name} was compiled {how}, but took another course than before: {why}"
                f"\n  at {errors.here()}"
            )
        learned.diverged += 1
        self.reify()
        if len(self.at.next) >= BRANCHES or self.stance == "eager_on_recompile":
            self.at = Point()  # this course is not remembered
        self.learning = True
        self.ids = {id(t): (RESULT, k) for k, t in enumerate(self.handles) if t is not None}
        slots = {slot.number: slot for token in self.path for slot in token.leaves}
        for k, t in enumerate(self.leaves):
            self.ids.setdefault(id(t), (LEAF, slots[k]))

    def slots_of(
        self, op: Any, args: Any
    ) -> tuple[tuple[tuple[int, Any], ...], list[LeafSlot]] | None:
        """What arguments are to the trace; None if regions don't know such."""
        slots: list[tuple[int, Any]] = []
        met: list[LeafSlot] = []
        for x in args:
            if isinstance(x, Tensor):
                slot = self.ids.get(id(x))
                if slot is None or (slot[0] == LEAF and slot[1].outside):
                    if x.__class__ not in (Tensor, Parameter) or not trace.known_leaf(x):
                        return None
                    leaf = LeafSlot(len(self.leaves), x)
                    self.leaves.append(x)
                    self.met.add(id(x))
                    self.arrays.append(x._a)
                    self.nodes.append(x._node)
                    met.append(leaf)
                    slot = self.ids[id(x)] = (LEAF, leaf)
                slots.append(slot)
            elif x.__class__ in NUMBERS and varies(op, args):
                slots.append((NUMBER, x.__class__))
            elif trace.plain_attributes(x):
                slots.append((CONSTANT, x))
            else:
                return None
        return tuple(slots), met

    def add(
        self, kind: int, op: Any, args: Any, attrs: dict[str, Any], kinds: Any, roots: Any
    ) -> Token | None:
        """Append a call to the trace; None, after a cut, if regions don't know such."""
        found = self.slots_of(op, args) if trace.plain_attributes(attrs) else None
        if found is None:
            self.cut(f"{op if isinstance(op, str) else op.name} on what regions don't know")
            return None
        slots, met = found
        first = len(self.handles)
        token = Token(kind, op, slots, attrs, MODES.now.grad, kinds, roots(slots, first), first)
        token.leaves = tuple(met)
        token.scope = MODES.now.scope
        frame = frames.caller(sys._getframe(2))
        if frame is not None:
            token.code, token.instruction = frame.f_code, frame.f_lasti
        self.at.next.append(token)
        self.learned.tokens += 1
        self.path.append(token)
        self.at = token.after
        return token

    def keep(self, token: Token, results: Any) -> None:
        """Remember the tensors that a call gave, so that later calls on them are known."""
        for k, t in enumerate(results):
            self.ids[id(t)] = (RESULT, token.first + k)
            self.handles.append(t)

    def root_of(self, slot: tuple[int, Any]) -> Root:
        kind, what = slot
        if kind == LEAF:
            return Root(LEAF, what.number)
        for token in reversed(self.path):
            if token.first <= what:
                return token.roots[what - token.first]
        raise AssertionError("a result that no call gave")

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        if not self.learning or MODES.now.backward is not None or self.refuses(op):
            return
        kinds = tuple(Kind(t._a, t._node is not None) for t in results)

        def roots(slots: Any, first: int) -> tuple[Root, ...]:
            alike = op.view and isinstance(args[0], Tensor)
            return tuple(
                self.root_of(slots[0])
                if alike and shares(t._a, args[0]._a)
                else Root(RESULT, first + k)
                for k, t in enumerate(results)
            )

        token = self.add(CALL, op, args, attrs, kinds, roots)
        if token is not None:
            self.keep(token, results)

    def prepare(self, args: Any) -> None:
        """A call that is about to run while its trace is learned."""
        self.changing_now = self.going_back = None
        # A parameter that was changed is the same leaf, which a later backward has to reach.
        if self.updated and MODES.now.grad and any(id(x) in self.updated for x in args):
            self.cut("a parameter was changed and is used again")

    def learn_change(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        """An op in place is about to run; if regions know such, it is learned when it writes."""
        self.prepare(args)
        if not self.learning:
            return
        if self.may_change(args[0]):
            self.changing_now = (op, args, attrs)
        else:
            self.cut(f"{op.name}_ on a view, or on a tensor that has views")

    changing_now: Any = None  # the op in place that is running

    def writing(self, target: Tensor, result: Any) -> None:
        if MODES.now.backward is not None:
            return
        call, self.changing_now = self.changing_now, None
        whole = call is not None and call[1][0] is target
        if not whole or result.dtype != target._a.dtype or result.shape != target._a.shape:
            self.cut("a tensor was written to")
            return
        op, args, attrs = call
        flows = MODES.now.grad and op.differentiable
        requires = flows and any(isinstance(x, Tensor) and x._node is not None for x in args)
        slot = self.ids.get(id(target))
        ours = slot is not None and slot[0] == RESULT and id(target) not in self.met
        if requires and not ours:
            self.cut("a tensor from outside gets a history")
            return
        if (
            target._node is not None
            and not requires
            and (ours or not isinstance(target._node, AccumulateGrad))
        ):
            self.cut("a tensor with a history is changed unseen by autograd")
            return
        kinds = (Kind(target._a, requires or target._node is not None),)
        roots = lambda slots, first: (Root(RESULT, first),)
        token = self.add(INPLACE, op, args, attrs, kinds, roots)
        if token is not None:
            kind, what = token.slots[0]
            if kind == RESULT:
                self.handles[what] = None
            self.keep(token, (target,))
            if isinstance(target._node, AccumulateGrad):
                self.updated.add(id(target))

    def may_change(self, target: Tensor) -> bool:
        slot = self.ids.get(id(target))
        if target._base is not None or target._a.base is not None:
            return False
        if isinstance(target._node, AccumulateGrad) and MODES.now.grad:
            return False
        if slot is None:
            return True
        root = self.root_of(slot)
        views = (t.roots[k] for t in self.path for k in range(len(t.kinds)) if is_view(t, k))
        return all(other != root for other in views)

    def learn_backward(self, root: Tensor | None) -> None:
        """A backward pass that is about to run."""
        slot = None if root is None else self.ids.get(id(root))
        if slot is None or slot[0] != RESULT:
            self.cut("backward")
            return
        targets = reached(self.path, slot[1])
        tensors = [self.leaves[slot.number] for slot in targets]
        once = len({id(t) for t in tensors}) == len(tensors)
        if (
            not once
            or not all(map(takes_gradient, tensors))
            or any(t.kind == BACKWARD for t in self.path)
        ):
            self.cut("backward into gradients that are there, or past hooks")
            return
        self.going_back = (root, targets)

    going_back: Any = None

    def went_back(self, work: Any, roots: Any) -> None:
        found, self.going_back = self.going_back, None
        if found is None:
            return
        root, targets = found
        grads = [self.leaves[slot.number]._grad for slot in targets]
        if any(g is None for g in grads):
            self.cut("backward")
            return
        kinds = tuple(Kind(g._a, False) for g in grads)
        roots_of = lambda slots, first: tuple(Root(RESULT, first + k) for k in range(len(grads)))
        token = self.add(BACKWARD, "backward", (root,), {}, kinds, roots_of)
        if token is not None:
            token.targets = tuple(targets)
            self.keep(token, grads)

    # --- computing ---

    def cut(self, why: str) -> None:
        """Something happens that no trace goes through: all before it is computed first."""
        if self.learning:
            if self.path:
                self.start(self.at.resumed())
                self.learning = not self.at.next
        else:
            self.compute(why)

    def compute(self, why: str) -> None:
        """Compute all that is pending; what follows begins anew."""
        if self.busy or not self.path:
            return
        if self.learning:
            return
        point = self.at
        self.learned.note(self.learned.reasons, why)
        self.busy = True
        try:
            with ordinary():
                done = self.by_plan(point)
        finally:
            self.busy = False
        if not done:
            self.reify()
        self.start(point.resumed())

    def by_plan(self, point: Point) -> bool:
        """Compute in one native call; False if that can't be, with nothing changed."""
        held = self.held()
        plan = point.plans.get(held)
        if plan is None:
            plan = self.plan_for(point, held)
        if plan is False:
            return False
        return plan.run(self)

    def plan_for(self, point: Point, held: int) -> Any:
        if len(point.plans) >= PLANS:
            wider = [p for known, p in point.plans.items() if p and not held & ~known]
            return wider[0] if wider else False
        try:
            plan: Any = Plan(self.path, self.arrays, held, self.numbers)
            self.learned.compiled += 1
        except Impossible as error:
            self.learned.note(self.learned.refused, str(error))
            plan = False
        point.plans[held] = plan
        return plan

    def held(self) -> int:
        """The set of results that somebody else still holds."""
        found, bit = 0, 1
        handles = self.handles
        for k in range(len(handles)):
            if getrefcount(handles[k]) > HELD and handles[k] is not None:
                found |= bit
            bit <<= 1
        return found

    def reify(self) -> None:
        """Run what is pending op by op, as eager mode would have."""
        if self.learning:
            return
        path, self.busy = self.path, True
        self.show_hidden(self.bumped)
        values: list[Any] = []
        numbers = iter(self.numbers)
        try:
            with ordinary():
                for token in path:
                    self.redo(token, values, numbers)
        except BaseException:
            self.path = []  # what failed is not tried again
            raise
        finally:
            self.busy = False

    def redo(self, token: Token, values: list[Any], numbers: Any) -> None:
        views = getattr(token.op, "view", False)
        args = [self.argument(slot, values, numbers, views) for slot in token.slots]
        if token.kind == BACKWARD:
            self.redo_backward(token, args[0], values)
            return
        with set_grad_enabled(token.grad):
            if token.kind == INPLACE:
                results: Any = (apply_inplace(token.op, args, token.attrs),)
            else:
                results = perform(token, args)
        for k, result in enumerate(results):
            handle = self.handles[token.first + k]
            if handle is not None and handle is not result:
                become(handle, result)
                result = handle
            values.append(result)
            place(token, result)

    def redo_backward(self, token: Token, root: Tensor, values: list[Any]) -> None:
        tensors = [self.leaves[slot.number] for slot in token.targets]
        since = [t._grad for t in tensors]  # what the program has made of them
        nodes = [(t._node, t._node.extras, t._node.post_accumulate) for t in tensors]
        for t in tensors:
            t._grad = t._node.extras = t._node.post_accumulate = None  # hooks have come since
        engine.backward(root)
        for node, extras, hooks in nodes:
            node.extras, node.post_accumulate = extras, hooks
        for k, t in enumerate(tensors):
            handle, found = self.handles[token.first + k], t._grad
            t._grad = since[k]
            if handle is not None and found is not None:
                become(handle, found)
                found = handle
            values.append(found)

    def argument(self, slot: tuple[int, Any], values: list[Any], numbers: Any, views: bool) -> Any:
        kind, what = slot
        if kind == RESULT:
            return values[what]
        if kind == LEAF:
            t = self.leaves[what.number]
            array = self.arrays[what.number]
            # A view shows the leaf's memory. All else reads the leaf as it was then: since, the
            # program may have given it another array, or others may have written to it.
            if t._a is array or views:
                return t
            return wrap(array, self.nodes[what.number])
        return next(numbers) if kind == NUMBER else what

    def show_hidden(self, uncounted: list[Tensor] = []) -> None:
        """Give leaves with pending changes their array back."""
        for tensor, number in self.hidden.values():
            tensor._a = self.arrays[number]
            del tensor._stamp
        for tensor in uncounted:  # a change is counted again when it is made
            cell = tensor._vc
            cell[0] -= 1
            if len(cell) > 1:
                cell.pop()
        self.hidden, self.bumped = {}, []

    # --- what else happens in a thread ---

    def steps(self, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(MODES.now.recorders) > 1:
            self.cut("an optimizer's step")
            return super().steps(step, args, kwargs)
        self.cut("an optimizer's step")
        if any(callable(a) for a in (*args[1:], *kwargs.values())):
            return super().steps(step, args, kwargs)
        with listening():
            return step(*args, **kwargs)

    def calls(self, function: Any, args: tuple[Any, ...]) -> Any:
        self.cut(f"{function.__name__} runs at once")
        with listening():
            return function.apply(*args)

    @property
    def settled(self) -> bool:
        """Whether a course from here on was learned, so that another one is news."""
        return bool(self.at.next) or self.at.resume is not None or bool(self.path)

    def finish(self) -> None:
        """The region has ended: nothing pending outlives it."""
        if not self.learning:
            self.compute("the region ended")

    def abandon(self) -> None:
        """The region has ended by an exception: what came before it happens, as in eager mode."""
        self.reify()
        self.start(self.at)


def aside(array: ndarray) -> ndarray:
    """A copy with the same strides, of memory that could change before it is read."""
    made = array.copy(order="K")
    if made.strides == array.strides:
        return made
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = np.empty(high - low, np.uint8)
    start = array.__array_interface__["data"][0] - low
    made = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
    if array.size:
        np.copyto(made, array)
    return made


def varies(op: Any, args: Any) -> bool:
    """Whether numbers among the operands may be others in each run of one program."""
    kinds = {x._a.dtype for x in args if isinstance(x, Tensor)}
    return getattr(op, "traced", False) and len(kinds) == 1 and kinds <= FLOATS


class ordinary(listening):
    """A block without all that came about since the calls that it makes up for."""

    SWITCHES = ("anomaly", "autocast", "batches", "dual_level", "inference",
                "saved_hooks")  # fmt: skip
    USUAL = (False, None, (), -1, False, ())

    def __enter__(self) -> None:
        now = MODES.now
        self.before = [getattr(now, name) for name in self.SWITCHES]
        for name, value in zip(self.SWITCHES, self.USUAL, strict=True):
            setattr(now, name, value)
        super().__enter__()

    def __exit__(self, *exc: object) -> None:
        for name, value in zip(self.SWITCHES, self.before, strict=True):
            setattr(MODES.now, name, value)
        super().__exit__(*exc)


def pending_in(x: Any) -> Region | None:
    """The region that a pending tensor belongs to."""
    try:
        object.__getattribute__(x, "_a")
    except AttributeError:
        try:
            return object.__getattribute__(x, "_stamp")[0]
        except (AttributeError, TypeError):
            return None
    return None


def is_view(token: Token, k: int) -> bool:
    """Whether a result of a call lies in memory of something else."""
    return token.roots[k] != Root(RESULT, token.first + k)


def takes_gradient(tensor: Tensor) -> bool:
    """Whether a gradient that arrives at a leaf becomes its ``.grad`` and does nothing else."""
    node = tensor._node
    return (
        tensor._grad is None
        and node.__class__ is AccumulateGrad
        and node.extras is None
        and not node.post_accumulate
        and (tensor._x is None or "grad_dtype" not in tensor._x)
    )


def place(token: Token, result: Any) -> None:
    """Let the node of a result say which line of the program it comes from."""
    node = result._node
    node = node.node if isinstance(node, Output) else node
    if isinstance(node, Node) and token.code is not None:
        node.code, node.instruction, node.scope = token.code, token.instruction, token.scope


def perform(token: Token, args: Any) -> Any:
    """What a call gives; a change in place gives the new value alone."""
    if token.kind == DETACH:
        return (args[0].detach(),)
    out = apply(token.op, tuple(args), token.attrs)
    return out if token.op.multiple else (out,)


def rerun(path: Any, leaves: Any, numbers: Any, known: dict[int, Any], wanted: int) -> Any:
    """A result of a path's calls by ordinary ops, with a history; nothing is written to.

    ``known`` are results that have a history of their own. What the result does not depend on is
    not run, so that its leaves need not be there.
    """
    needed = set(needed_for(path, [wanted], known))
    values: list[Any] = []
    left = iter(numbers)
    for token in path:
        given = [next(left) if kind == NUMBER else None for kind, _ in token.slots]
        if token not in needed:
            values += [known.get(token.first + k) for k in range(len(token.kinds))]
            continue
        args = [
            values[what] if kind == RESULT else leaves[what.number] if kind == LEAF
            else number if kind == NUMBER else what
            for (kind, what), number in zip(token.slots, given, strict=True)
        ]  # fmt: skip
        with set_grad_enabled(token.grad):
            values += perform(token, args)
        for k in range(token.first, len(values)):
            values[k] = known.get(k, values[k])
    return values[wanted]


class _Pending(engine.GraphNode):
    """Stands for the node of a pending tensor where only its being there is asked for."""

    __slots__ = ()


PENDING = _Pending()
PENDING.extras = None


def _held_by_one() -> int:
    handles = [object()]
    for k in range(1):
        return getrefcount(handles[k])
    return 0


HELD = _held_by_one()  # the count of an object that nobody but ``Region.handles`` holds
UNSHARED = 3  # that of a leaf's array: the tensor's slot, ``Region.arrays``, the argument
