"""Rare uses of autograd, each run on PyTorch and on weft: what they give must be the same."""

from __future__ import annotations

import warnings

import pytest

import weft
from side_by_side import agree, needs_torch
from weft.profiler._events import EventList, FunctionEvent, FunctionEventAvg
from weft.profiler._recorder import is_on

HOOKS = {
    "a node's hook after accumulation sees the gradient that became .grad": """
x = torch.ones(3, requires_grad=True)
node = x.view_as(x).grad_fn.next_functions[0][0]
x.register_hook(lambda g: g - 2)
node.register_prehook(lambda g: (g[0] / 5,))
x.register_post_accumulate_grad_hook(lambda t: [None, t.grad.add_(0.5)][0])
def after(into, out):
    x.grad = out[0] * 10
node.register_hook(after)
x.sum().backward()
x.grad
""",
    "backward to a tensor runs the hooks of its node, after what it keeps": """
seen = []
a = torch.tensor(1.0, requires_grad=True)
b = a.clone()
b.grad_fn.register_prehook(lambda g: seen.append(2) or (g[0] * 2,))
b.register_hook(lambda g: seen.append(1) or g * 3)
b.sum().backward(inputs=(b,))
(seen, b.grad)
""",
    "var_mean is one node with two gradients": """
x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
var, mean = torch.var_mean(x, dim=0)
seen = []
mean.grad_fn.register_prehook(lambda g: seen.append(len(g)) or tuple(t * 2 for t in g))
(var + mean).sum().backward()
(seen, x.grad, type(var.grad_fn).__name__, var.grad_fn is mean.grad_fn)
""",
    "the mean of one value has a gradient, its variance has not": """
x = torch.ones(1, requires_grad=True)
[torch.autograd.grad(torch.var_mean(x)[k], x)[0] for k in (1, 0)] + list(
    torch.autograd.grad(torch.std_mean(x)[1], x))
""",
}

FUNCTIONS = {
    "one of two leaves takes over the gradient that a function gives to both": """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b
    @staticmethod
    def backward(ctx, g):
        Sum.place = g.data_ptr()
        return g, g
a, b = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
Sum.apply(a, b)[1][0].backward()
(a.grad.data_ptr() == b.grad.data_ptr(), Sum.place in (a.grad.data_ptr(), b.grad.data_ptr()))
""",
}

SAVED = {
    "saved values are tensors in their place": """
a = torch.tensor([0.5, 2.0], requires_grad=True)
b = a * a
c = a * b
d = a.exp()
(b.grad_fn._saved_self is a, b.grad_fn._saved_other is a, c.grad_fn._saved_self is a,
 c.grad_fn._saved_other.grad_fn is b.grad_fn, c.grad_fn._saved_other, d.grad_fn._saved_result,
 d.grad_fn._saved_result.grad_fn is d.grad_fn)
""",
    "a saved result shows later changes": """
b = torch.tensor([0.5], requires_grad=True).exp()
saved = b.grad_fn._saved_result
with torch.no_grad():
    b += 1
(saved, saved._version)
""",
    "an operand that no gradient needs is None": """
a, b = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), 3.0)
found = [a * b, b / a, a / b, a @ b, torch.dot(a[0], b[0]), torch.nn.functional.linear(b, a)]
[(n, getattr(y.grad_fn, n)) for y in found for n in sorted(dir(y.grad_fn))
 if n.startswith("_saved_") and "_sym_" not in n]
""",
    "values kept by losses, convolutions and indices": """
x, w = torch.ones(1, 2, 3, 3, requires_grad=True), torch.ones(2, 1, 2, 2, requires_grad=True)
c = torch.nn.functional.conv_transpose2d(x, w).grad_fn
s = torch.nn.functional.smooth_l1_loss(x, torch.zeros(1, 2, 3, 3)).grad_fn
(c._saved_input is x, c._saved_weight is w, s._saved_target,
 x[torch.tensor([0])].grad_fn._saved_indices)
""",
    "saved values are gone after backward": """
a = torch.ones(2, requires_grad=True)
b = a * a
b.sum().backward()
b.grad_fn._saved_self
""",
    "hooks on one saved value": """
a = torch.tensor([1.0, 3.0], requires_grad=True)
y = a * a
y.grad_fn._raw_saved_self.register_hooks(lambda x: 2 * x, lambda x: x)
seen = y.grad_fn._saved_self
y.sum().backward()
(seen, a.grad)
""",
    "hooks on one saved value, twice differentiable": """
a = torch.tensor([1.0, 3.0], requires_grad=True)
y = a ** 3
y.grad_fn._raw_saved_self.register_hooks(lambda x: x.tolist(), torch.tensor)
(g,) = torch.autograd.grad(y.sum(), a, create_graph=True)
g.sum().backward()
a.grad
""",
    "the other saved value is still guarded": """
a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
y = a * b
y.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)
with torch.no_grad():
    b += 1
y.sum().backward()
""",
    "pack hooks get what is saved, with recording off": """
seen = []
def pack(x):
    seen.append((x.requires_grad, x.is_leaf, x._version, torch.is_grad_enabled()))
    return x
a = torch.ones(2, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
    a * a, a.clone() * a, a * torch.ones(2)
seen
""",
    "hooks that backward switched on are off again": """
a = torch.ones(2, requires_grad=True)
hooks = torch.autograd.graph.saved_tensors_hooks
block = hooks(lambda x: x, lambda x: (x, block.__enter__())[0])
with block:
    a.sin().sum().backward()
y = a.exp()  # kept: PyTorch's handle does not keep its node
y.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)
""",
    "what a function saved and a hook replaced has a version of its own": """
class Sin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, g):
        ctx.saved_tensors[0].add_(1)
        return g
a = torch.tensor(1.0, requires_grad=True)
other = a.clone()
with torch.autograd.graph.saved_tensors_hooks(lambda x: other, lambda x: x):
    b = Sin.apply(a)
b.backward()
(a._version, other._version)
""",
    "a function's saved tensors take hooks": """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]
a = torch.tensor([2.0], requires_grad=True)
y = Same.apply(a)
y.grad_fn._raw_saved_tensors[0].register_hooks(lambda x: x * 10, lambda x: x)
y.sum().backward()
(a.grad, len(Same.apply(a).grad_fn._raw_saved_tensors))
""",
}

REFUSED_HOOKS = {
    name: f"""
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g
def add(x):
    x += 1
    return x
a = torch.ones(2, requires_grad=True)
y, f = a * a, Same.apply(a)
saved, held = y.grad_fn._raw_saved_self, f.grad_fn._raw_saved_tensors
{code}
"""
    for name, code in {
        "one function": "saved.register_hooks(lambda x: x)",
        "numbers": "held[0].register_hooks(1, 1)",
        "on None": "held[1].register_hooks(lambda x: x, lambda x: x)",
        "twice": "[s.register_hooks(lambda x: x, lambda x: x) for s in (saved, saved)]",
        "twice on a function's": "[held[0].register_hooks(len, len) for _ in range(2)]",
        "that change their input": "saved.register_hooks(add, lambda x: x)",
        "of a block that change their input": """
with torch.autograd.graph.saved_tensors_hooks(add, lambda x: x):
    a.exp()""",
        "that give no tensor": """
saved.register_hooks(lambda x: x, lambda x: 1)
y.grad_fn._saved_self""",
        "after backward": """
y.sum().backward()
y.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)""",
        "made by hand": "torch.autograd.SavedTensor()",
    }.items()
}

MUTATION = {
    name: f"""
a = torch.tensor([[0.5, 2.0, 1.0]], requires_grad=True)
allow = torch.autograd.graph.allow_mutation_on_saved_tensors
{code}
"""
    for name, code in {
        "a saved tensor is copied once, when it changes": """
with allow() as ctx:
    b = a.clone()
    c, d = b**2, b**2
    counts = [len(ctx.cloned)]
    b.sin_()
    counts.append(len(ctx.cloned))
    (c + d).sum().backward()
    counts.append(len(ctx.cloned))
(counts, a.grad)""",
        "versions are copied apart, and die with their graph": """
with allow() as ctx:
    b = a.clone()
    c = b**2
    b.sin_()
    d = b**2
    b.zero_()
    counts = [len(ctx.cloned)]
    del c
    counts.append(len(ctx.cloned))
    d.sum().backward()
(counts, a.grad)""",
        "a view of what was saved changes": """
with allow():
    b = a.clone()
    c = (b**2).sum()
    b[:, :1].mul_(10)
    c.backward()
a.grad""",
        "what was saved is changed by out=, random numbers and an optimizer": """
with allow():
    b, p = torch.ones(1, 3), torch.full((1, 3), 2.0, requires_grad=True)
    c, d, e = a * b, a * (w := torch.ones(3) * 2), a * p
    torch.sin(torch.ones(1, 3), out=b)
    w.normal_()
    p.grad = torch.ones(1, 3)
    torch.optim.SGD([p], 0.1).step()
    (c + d + e).sum().backward()
(a.grad, p.grad)""",
        "differentiated twice": """
with allow():
    b = a.clone()
    c = (b**3).sum()
    b.sin_()
    (g,) = torch.autograd.grad(c, a, create_graph=True)
    (g2,) = torch.autograd.grad(g.sum(), a)
(g, g2)""",
        "backward after the block": """
with allow():
    b = (a**2).sum()
b.backward()""",
        "backward in another block": """
with allow():
    b = (a**2).sum()
with allow():
    b.backward()""",
        "a block in a block": """
with allow():
    with allow():
        pass""",
    }.items()
}

ENGINE = {
    "nodes are instances of graph.Node": """
Node = torch.autograd.graph.Node
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        seen.append(isinstance(ctx, Node))
        return x
    @staticmethod
    def backward(ctx, g):
        return g
seen = []
a = torch.ones(2, requires_grad=True)
nodes = [a.exp().grad_fn, a.exp().grad_fn.next_functions[0][0], Same.apply(a).grad_fn]
seen + [isinstance(n, Node) for n in nodes] + [Node in type(n).mro() for n in nodes] + [
    n.name() for n in nodes] + [isinstance(1, Node), issubclass(Node, Node)]
""",
    "the shape and dtype of a gradient given to grad": """
x = torch.ones(2, requires_grad=True)
found = []
for g in (torch.ones(3), torch.ones(2, dtype=torch.complex64)):
    try:
        torch.autograd.grad(x * 2, x, g)
    except RuntimeError as error:
        found.append(str(error).partition("\\n  at ")[0])
found
""",
    "batched gradients of another shape": """
x = torch.ones(2, 2, requires_grad=True)
torch.autograd.grad(x * 2, x, torch.ones(2), is_grads_batched=True)
""",
    "levels of forward mode do not nest": """
with torch.autograd.forward_ad.dual_level():
    torch.autograd.forward_ad.enter_dual_level()
""",
    "tangents can be switched off": """
ad = torch.autograd.forward_ad
with ad.dual_level():
    x = ad.make_dual(torch.ones(2), torch.full((2,), 3.0))
    with ad._set_fwd_grad_enabled(False):
        off = (ad._is_fwd_grad_enabled(), x * 2, ad.unpack_dual(x).tangent)
    on = (ad._is_fwd_grad_enabled(), ad.unpack_dual(x * 2).tangent, ad.unpack_dual(off[1]).tangent)
off + on
""",
    "lobpcg differentiates the symmetric part": """
torch.manual_seed(0)
a = torch.rand(6, 6, dtype=torch.float64)
a = (a @ a.mT / 10).requires_grad_()
e, _ = torch.lobpcg(a, k=1, X=torch.eye(6, 1, dtype=torch.float64))
e.sum().backward()
(a.grad - a.grad.mT).abs().max() < 1e-6
""",
    "the basis that jacobians are made by": """
torch.autograd.functional._construct_standard_basis_for(
    (torch.ones(2, dtype=torch.float64), torch.ones(()), torch.ones(1, 2)), (2, 1, 2))
""",
    "the first vmap refuses random numbers": """
torch._vmap_internals._vmap(lambda x: x + torch.rand(2))(torch.ones(3, 2))
""",
    "the first vmap": """
torch._vmap_internals._vmap(lambda x, y: (x @ y, x), (0, None))(torch.ones(3, 2), torch.ones(2))
""",
}

NAMED = {
    "names that dir() gives are there": """
x = torch.ones(2)
[name for name in dir(x) if name not in ("imag", "volatile") and not hasattr(x, name)]
""",
    "a view of what changed is made by strides, or by its own op": """
def name():
    y = torch.ones(2, 2, requires_grad=True).clone().view(-1)
    y.add_(1)
    return (type(y.grad_fn).__name__, torch.autograd.is_view_replay_enabled())
track = torch.autograd._force_original_view_tracking
found = [name()]
with track(True):
    found.append(name())
with track(False):
    track(True)
    found.append(name())
found.append(name())
found
""",
    "an error in a node that a backward made names both": """
class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(0, keepdim=True)
    @staticmethod
    def backward(ctx, g):
        return Inner.apply(g * ctx.saved_tensors[0])
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g / 0 * 0
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        with torch.autograd.detect_anomaly():
            x = torch.ones(3, requires_grad=True)
            (g,) = torch.autograd.grad(Outer.apply(x), x, create_graph=True)
            g.sum().backward()
    except RuntimeError as error:
        seen = [str(w.message).strip().splitlines()[0].partition(" Traceback")[0] for w in seen]
        seen.append(str(error).partition(chr(10))[0])
seen
""",
}

STRICT = {
    f"{name} of a function {what}": f"""
F = torch.autograd.functional
x, v = torch.tensor([0.5, 2.0]), torch.ones({"2" if name != "vjp" else "()"})
def function(x):
    return {code}
found = []
for options in ({{}}, {{"strict": True}}, {{"strict": True, "create_graph": True}}):
    try:
        found.append(F.{name}(function, x{", v" if name[-1] == "p" else ""}, **options))
    except RuntimeError as error:
        found.append(str(error)[:70])
found
"""
    for name in ("jacobian", "hessian", "vjp", "jvp", "vhp", "hvp")
    for what, code in {
        "that is detached": "x.detach().sum()",
        "of something else": "x.detach().requires_grad_().clone().sum()",
        "that is linear": "(3 * x).sum()",
        "that is curved": "(x**3).sum()",
    }.items()
}

CASES = {
    **HOOKS,
    **FUNCTIONS,
    **SAVED,
    **{f"refused hooks: {name}": code for name, code in REFUSED_HOOKS.items()},
    **MUTATION,
    **ENGINE,
    **NAMED,
    **STRICT,
}


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_autograd_agrees(name: str) -> None:
    agree(CASES[name])


def test_events_of_a_profile_can_be_made_by_hand() -> None:
    spans = [(1, 0, 1), (1, 1, 2), (0, 0, 2), (0, 1, 2), (0, 1, 3)]
    events = EventList(
        FunctionEvent(id=i, name="a", thread=t, start_us=start, end_us=end)
        for i, (t, start, end) in enumerate(spans)
    )
    events._populate_cpu_children()
    # The last one outlives the first of its thread, which so holds nothing.
    assert [[child.id for child in e.cpu_children] for e in events] == [[], [], [], [], [3]]
    total = FunctionEventAvg()
    total.add(events[2]).add(events[0]).add(total)
    assert (total.key, total.count, total.cpu_time_total, total.cpu_time) == ("a", 4, 6, 1.5)


def test_whether_a_profiler_is_on() -> None:
    with weft.profiler.profile():
        assert is_on()
    assert not is_on()


def test_walks_along_next_functions_and_saved_values_find_what_pytorch_has() -> None:
    torch = pytest.importorskip("torch")
    walk = """
def walk(f):
    return "None" if f is None else f"{f.name()}({', '.join(walk(n) for n, _ in f.next_functions)})"
F = torch.nn.functional
x, w, b = (torch.rand(*s, requires_grad=True) for s in ((2, 3), (4, 3), (4,)))
target = torch.zeros(2, dtype=torch.long)
y = F.linear(x, w, b)
walks = [walk(z.grad_fn) for z in (
    y, F.linear(x.detach(), w, b), F.linear(x, w), F.linear(x, w, b.detach()),
    F.cross_entropy(x, target), torch.where(x > 0, x, 1.0), 1 - x, x - 1, x**2, x**x,
    F.embedding(target, w),
)]
edge = y.grad_fn.next_functions[2][0]
same = edge is y.grad_fn.next_functions[2][0], edge.next_functions[0][0].variable is w
kept = [[n for n in dir(z.grad_fn) if n.startswith("_saved_")] for z in (
    x * x, x.exp(), x**2, x @ w.t(), torch.where(x > 0, x, x), x.softmax(1),
)]
kept = [sorted(n for n in names if not n.endswith(("_sizes", "_strides"))) for names in kept]
shapes = x.sum().grad_fn._saved_self_sym_sizes, F.mse_loss(x, x).grad_fn._saved_self.shape
"""
    found = []
    for library in (weft, torch):
        names: dict = {"torch": library}
        exec(walk, names)
        found.append([str(names[n]) for n in ("walks", "same", "kept", "shapes")])
    assert found[0] == found[1]
    turned = weft.nn.Linear(2, 1)(weft.ones(1, 2)).grad_fn.next_functions[2][0]
    with pytest.raises(RuntimeError, match=r"weight\.register_hook"):
        turned.register_hook(print)
    assert turned(weft.ones(2, 3)).shape == (3, 2)


def test_the_method_split_takes_split_size() -> None:
    torch = pytest.importorskip("torch")
    for library in (weft, torch):
        x = library.arange(5)
        parts = x.split(split_size=2, dim=0), x.split(split_size=[1, 4])
        assert [[p.tolist() for p in ps] for ps in parts] == [
            [[0, 1], [2, 3], [4]],
            [[0], [1, 2, 3, 4]],
        ]
        with pytest.raises(TypeError):
            x.split(split_size_or_sections=2)


def test_the_gradient_of_a_leaf_that_nobody_holds_can_be_differentiated():
    functional = weft.nn.functional
    for f in (functional.softshrink, functional.leaky_relu, functional.relu):
        out = f(weft.tensor([1.5, -0.2]).requires_grad_())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a cycle, said once
            out.sum().backward(create_graph=True)
