"""Traced graphs against PyTorch's: the same nodes, the same code, the same results."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import pytest

import weft
from weft import fx
from weft.fx import _symbolic_trace, passes, proxy
from weft.fx.passes import shape_prop

MODELS: dict[str, Any] = {}


def model(make):
    MODELS[make.__name__] = make
    return make


@model
def linear_and_constants(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = T.nn.Linear(3, 3)
            self.scale = T.nn.Parameter(T.ones(3))
            self.register_buffer("shift", T.zeros(3))
            self.held = T.ones(3)

        def forward(self, x: T.Tensor) -> T.Tensor:
            y = self.layer(x) + self.scale * self.shift
            return T.relu(y) - self.held * T.tensor(2.0)

    return Net(), (2, 3)


@model
def methods_and_indexing(T):
    class Net(T.nn.Module):
        def forward(self, x, y=3, *, flag: int = 4):
            z = x.view(x.shape[0], -1).transpose(0, 1)
            z = z[..., None][:, 0:2]
            a, b = T.max(x, dim=1)
            return {"a": -z, "b": [a, b], "c": (2**x, x @ x.t(), 1 - x)}, y, flag

    return Net(), (2, 3)


@model
def containers(T):
    nn = T.nn
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([inner, nn.Sequential(nn.Tanh(), nn.Dropout(0.0))])
            self.named = nn.ModuleDict({"head": nn.Linear(4, 2)})

        def forward(self, x):
            for block in self.blocks:
                x = block(x) + x
            return self.named["head"](x)

    return Net(), (2, 4)


@model
def functional(T):
    F = T.nn.functional

    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = T.nn.Parameter(T.ones(4, 3, 3, 3) * 0.1)

        def forward(self, x):
            x = F.conv2d(x, self.w, padding=1)
            x = F.max_pool2d(F.relu(x, inplace=True), 2)
            x = F.dropout(x, p=0.5, training=self.training)
            x = F.softmax(T.flatten(x, 1), dim=-1)
            return F.layer_norm(x, (16,)).sum().to(T.float64)

    return Net().eval(), (2, 3, 4, 4)


@model
def convolutions(T):
    nn = T.nn
    layers = (
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(4, 2)),
    )
    return nn.Sequential(*layers).eval(), (2, 3, 6, 6)


@model
def residual(T):
    nn = T.nn

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
            self.bn1 = nn.BatchNorm2d(channels)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.relu(self.bn1(self.conv1(x)))
            out += x
            return self.relu(out)

    return nn.Sequential(Block(3), Block(3)).eval(), (1, 3, 5, 5)


@model
def attention_by_hand(T):
    nn = T.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.heads = nn.Linear(8, 24), nn.Linear(8, 8), 2

        def forward(self, x):
            b, n, c = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).unbind(2)
            weights = (q @ k.transpose(-2, -1)) / math.sqrt(4)
            return self.out((weights.softmax(dim=-1) @ v).reshape(b, n, c))

    return Attention(), (2, 2, 8)


@model
def transformer_layers(T):
    nn = T.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(4, 8)
            self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            x = self.encoder(self.embed(x))
            return self.attend(x, x, x, need_weights=False)[0]

    return Net().eval(), (2, 3, 4)


@model
def recurrent(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = T.nn.LSTM(3, 4, batch_first=True), T.nn.Linear(4, 1)

        def forward(self, x):
            out, (h, _) = self.rnn(x)
            return self.head(out[:, -1]) + h[-1].mean()

    return Net(), (2, 5, 3)


@model
def a_function(T):
    def norm(x, y):
        total = (x * x).sum(-1, keepdim=True).sqrt()
        return T.cat([x / total, T.stack([y, y]).mean(0)], dim=-1).clamp(min=0.0), math.pi

    return norm, (2, 3), (2, 3)


@model
def operators(T):
    def f(x, y):
        a = (x // 2, x % 2, x**2, abs(x), +x, x != y, x <= y, 2 * x, 3.0 / x, x.T)
        return *a, x[:, None], x[T.tensor([0, 1])], x.new_zeros(2), x.size(), x.dtype

    return f, (2, 3), (2, 3)


@model
def annotations(T):
    class Net(T.nn.Module):
        def forward(self, x: T.Tensor, k: int = 2, names: list[str] | None = None) -> T.Tensor:
            return x.repeat(k, 1)

    return Net(), (2, 3)


@model
def variable_arguments(T):
    class Net(T.nn.Module):
        def forward(self, x, *args, scale=2, **kwargs):
            return x * scale + args[0] - kwargs["b"]

    return Net(), None


def describe(T, traced) -> list[Any]:
    name = T.fx.node._get_qualified_name if hasattr(T, "_C") else T.fx.node.qualified_name
    return [
        (n.op, n.name, n.target if isinstance(n.target, str) else name(n.target), str(n.args),
         str(n.kwargs), [u.name for u in n.users])
        for n in traced.graph.nodes
    ]  # fmt: skip


def inputs(T, shapes) -> list[Any]:
    T.manual_seed(1)
    return [T.rand(*shape) for shape in shapes]


@pytest.mark.parametrize("name", MODELS)
def test_nodes_code_and_text_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for T in (weft, torch):
        T.manual_seed(0)
        root, *_ = MODELS[name](T)
        traced = T.fx.symbolic_trace(root)
        traced.graph.lint()
        readable = traced.print_readable(print_output=False)
        found.append((describe(T, traced), traced.code, str(traced.graph), readable))
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs


@pytest.mark.parametrize("name", [n for n in MODELS if n != "variable_arguments"])
def test_a_traced_module_computes_the_same(name: str) -> None:
    weft.manual_seed(0)
    root, *shapes = MODELS[name](weft)
    traced = fx.symbolic_trace(root)
    args = inputs(weft, shapes)
    expected = leaves(root(*args))
    for again in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        same(leaves(again(*args)), expected)
    same(leaves(fx.Interpreter(traced).run(*args)), expected)
    same(leaves(fx.Transformer(traced).transform()(*args)), expected)
    same(leaves(fx.symbolic_trace(traced)(*args)), expected)
    if isinstance(root, weft.nn.Module):
        assert traced.training == root.training


def leaves(value: Any) -> list[Any]:
    return weft.utils._pytree.tree_leaves(value)


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert weft.equal(a, b) if isinstance(b, weft.Tensor) else a == b


def test_resnet_is_traced_as_in_torchvision() -> None:
    from weft.vision import models

    weft.manual_seed(0)
    net = models.resnet18().eval()
    traced = fx.symbolic_trace(net)
    kinds = [n.op for n in traced.graph.nodes]
    # 20 convolutions, 20 norms, 17 activations, two pools, the head.
    assert kinds.count("call_module") == 60 and kinds.count("call_function") == 9
    assert [str(n.target) for n in traced.graph.nodes][1:5] == ["conv1", "bn1", "relu", "maxpool"]
    x = weft.randn(1, 3, 32, 32)
    assert weft.equal(traced(x), net(x))
    assert traced.state_dict().keys() == net.state_dict().keys()


def test_gradients_flow_through_a_traced_module() -> None:
    root = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Tanh())
    traced = fx.symbolic_trace(root)
    traced(weft.ones(1, 3)).sum().backward()
    assert root[0].weight.grad is not None and getattr(traced, "0") is root[0]


# --- changing graphs ---------------------------------------------------------------------

EDITS = """
insert_before insert_after insert_two_after replace erase_used erase rename dead_code move
args_are_kept lint_order node_copy find
"""


def edit(T, what: str) -> Any:
    traced = T.fx.symbolic_trace(lambda x, y: T.relu(x + y) * 2)
    graph = traced.graph
    x, y, add, relu, mul, output = graph.nodes
    if what == "insert_before":
        with graph.inserting_before(relu):
            graph.call_function(T.neg, (add,))
        graph.call_method("last", (mul,))
    elif what == "insert_after":
        with graph.inserting_after(add):
            relu.args = (graph.call_function(T.neg, (add,)),)
    elif what == "insert_two_after":
        with graph.inserting_after(add):
            graph.call_function(T.neg, (add,))
            graph.call_function(T.abs, (add,))
    elif what == "replace":
        with graph.inserting_after(relu):
            new = graph.call_function(T.tanh, (add,))
        assert relu.replace_all_uses_with(new) == [mul]
        graph.erase_node(relu)
    elif what == "erase_used":
        graph.erase_node(relu)
    elif what == "erase":
        output.args = (add,)
        graph.erase_node(mul)
        graph.erase_node(relu)
    elif what == "rename":
        for _ in range(3):
            graph.create_node("call_function", T.neg, (add,), name="neg_1")
        graph.create_node("call_function", T.sum, (add,), {"dim": 0})
    elif what == "dead_code":
        with graph.inserting_before(output):
            graph.call_function(T.neg, (mul,))
            graph.call_function(operator.setitem, (mul, 0, x))
        assert graph.eliminate_dead_code()
    elif what == "move":
        output.prepend(add)
        graph.lint()
    elif what == "args_are_kept":
        mul.args = ([add, {"a": (relu, slice(x, None))}], 2)
        mul.update_arg(1, y)
        mul.update_kwarg("k", relu)
        mul.insert_arg(0, 5)
        mul.args[1].append(3)
    elif what == "lint_order":
        relu.args = (mul,)
        graph.lint()
    elif what == "node_copy":
        other = T.fx.Graph()
        values = {}
        other.output(other.graph_copy(graph, values))
        graph = other
    elif what == "find":
        found = graph.find_nodes(op="call_function", target=T.relu)
        return (
            [n.name for n in found],
            graph.output_node().name,
            [n.name for n in reversed(graph.nodes)],
        )
    return str(graph), [(n.name, [u.name for u in n.users]) for n in graph.nodes]


@pytest.mark.parametrize("what", EDITS.split())
def test_edits_do_what_they_do_in_pytorch(what: str) -> None:
    torch = pytest.importorskip("torch")

    def outcome(T):
        try:
            return edit(T, what)
        except (RuntimeError, TypeError) as error:
            return type(error), str(error)[:60]

    assert outcome(weft) == outcome(torch)


def test_a_changed_graph_runs_after_recompile() -> None:
    traced = fx.symbolic_trace(lambda x: weft.relu(x) + 1)
    for node in traced.graph.nodes:
        if node.target is weft.relu:
            node.target = weft.neg
    x = weft.tensor([-1.0, 2.0])
    assert traced(x).tolist() == [1.0, 3.0]
    traced.recompile()
    assert traced(x).tolist() == [2.0, -1.0] and "torch.neg" in traced.code


def test_a_module_from_a_dictionary() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(
        graph.call_function(weft.add, (graph.call_module("a.b", (x,)), graph.get_attr("w")))
    )
    made = fx.GraphModule({"a.b": weft.nn.ReLU(), "w": weft.ones(2)}, graph)
    assert made(weft.tensor([-1.0, 2.0])).tolist() == [1.0, 3.0]
    assert list(made.state_dict()) == ["w"]
    with pytest.raises(RuntimeError, match="refers to target w, but it was not provided"):
        fx.GraphModule({"a.b": weft.nn.ReLU()}, graph)
    assert made.add_submodule("c.d", weft.nn.ReLU()) and made.delete_submodule("c.d")
    made.add_submodule("c.d", weft.nn.ReLU())
    made.delete_all_unused_submodules()
    assert [name for name, _ in made.named_modules()] == ["", "a", "a.b"]


PATTERNS = {
    "two_places": (
        lambda T: lambda x, y: T.relu(x + y) - T.relu(y + x),
        lambda T: lambda a, b: T.relu(a + b),
        lambda T: lambda a, b: T.tanh(a * b),
    ),
    "value_used_elsewhere": (
        lambda T: lambda x, y: (x + y) * T.relu(x + y) + (x + y).neg(),
        lambda T: lambda a, b: T.relu(a + b),
        lambda T: lambda a, b: T.tanh(a),
    ),
    "chain": (
        lambda T: lambda x, y: x.neg().neg().neg().neg() + y,
        lambda T: lambda a: a.neg().neg(),
        lambda T: lambda a: a.abs(),
    ),
    "numbers": (
        lambda T: lambda x, y: T.clamp(x, 0, 1) + T.clamp(y, 0, 2),
        lambda T: lambda a: T.clamp(a, 0, 1),
        lambda T: lambda a: T.sigmoid(a),
    ),
    "no_place": (
        lambda T: lambda x, y: x - y,
        lambda T: lambda a, b: a * b,
        lambda T: lambda a, b: a + b,
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_are_replaced_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")

    def outcome(T):
        program, pattern, replacement = (make(T) for make in PATTERNS[name])
        traced = T.fx.symbolic_trace(program)
        matches = T.fx.replace_pattern(traced, pattern, replacement)
        result = traced(T.tensor([0.5, -2.0]), T.tensor([1.0, 3.0]))
        return len(matches), traced.code, [round(v, 5) for v in result.tolist()]

    assert outcome(weft) == outcome(torch)


# --- tracing -----------------------------------------------------------------------------

REFUSED = {
    "if": (lambda x: x if x.sum() > 0 else -x, proxy.TraceError, "control flow"),
    "for": (lambda x: [v + 1 for v in x], proxy.TraceError, "cannot be iterated"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_traced_says_why(case: str) -> None:
    torch = pytest.importorskip("torch")
    function, error, said = REFUSED[case]
    for trace in (fx.symbolic_trace, torch.fx.symbolic_trace):
        with pytest.raises((error, ValueError), match=said):
            trace(function)
    with pytest.raises(RuntimeError, match=r"torch\.fx\.wrap\('len'\)"):
        fx.Proxy(fx.Graph().placeholder("x")).__len__()
    assert not _symbolic_trace.is_fx_tracing()
    assert weft.nn.Linear(2, 2)(weft.ones(1, 2)).shape == (1, 2)  # nothing stays patched


@fx.wrap
def kept_whole(x: Any) -> Any:
    return x + len(x)


fx.wrap("len")


def test_wrapped_functions_are_one_node() -> None:
    traced = fx.symbolic_trace(lambda x: kept_whole(x) * len(x) + math.floor(x[0]))
    names = [n.name for n in traced.graph.nodes]
    assert names == ["x", "kept_whole", "len_1", "mul", "getitem", "floor", "add", "output"]
    assert traced(weft.tensor([1.5, 2.0])).tolist() == [8.0, 9.0]
    assert 'wrap("len")' in traced.code
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("max")


def test_a_tracer_of_ones_own() -> None:
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, weft.nn.Sequential) or super().is_leaf_module(m, name)

    class Net(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = weft.nn.Sequential(weft.nn.Linear(2, 2), weft.nn.ReLU())

        def forward(self, x):
            return self.body(x)

    net = Net()
    tracer = Whole()
    graph = tracer.trace(net)
    assert [n.op for n in graph.nodes] == ["placeholder", "call_module", "output"]
    assert weft.equal(fx.GraphModule(tracer.root, graph)(weft.ones(1, 2)), net(weft.ones(1, 2)))
    inner = fx.symbolic_trace(net).graph.find_nodes(op="call_module")
    assert list(inner[0].meta["nn_module_stack"]) == ["body", "body.0"]


def test_arguments_with_a_fixed_value() -> None:
    def f(x, flag):
        return x + 1 if flag else x - 1

    traced = fx.symbolic_trace(f, concrete_args={"flag": True})
    assert traced(weft.ones(1), True).tolist() == [2.0]
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(weft.ones(1), False)
    with pytest.raises(NotImplementedError, match="takes numbers"):
        fx.symbolic_trace(f, concrete_args={"flag": [fx.PH]})


def test_stack_traces_are_noted_if_asked_for() -> None:
    class Noting(fx.Tracer):
        record_stack_traces = True

    graph = Noting().trace(lambda x: weft.relu(x))
    assert "test_fx.py" in str(list(graph.nodes)[1].stack_trace)


def test_interpreters_say_which_node_failed() -> None:
    traced = fx.symbolic_trace(lambda x: weft.relu(x) @ x)
    with pytest.raises(RuntimeError, match=r"While executing %matmul"):
        fx.Interpreter(traced).run(weft.ones(2, 3))
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(traced).run()


def test_a_transformer_changes_what_nodes_become() -> None:
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(weft.neg if target is weft.relu else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("tanh" if target == "sigmoid" else target, args, kwargs)

    traced = Swap(fx.symbolic_trace(lambda x: weft.relu(x).sigmoid())).transform()
    assert [n.name for n in traced.graph.nodes] == ["x", "neg", "tanh", "output"]


def test_shapes_of_values() -> None:
    traced = fx.symbolic_trace(weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.ReLU()))
    shape_prop.ShapeProp(traced).propagate(weft.ones(2, 3))
    shapes = [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes]
    assert shapes == [(2, 3), (2, 4), (2, 4), (2, 4)]
    assert ': "f32[2, 4]" = ' in traced.print_readable(print_output=False)
    assert passes.__doc__


def test_the_source_can_be_written_to_a_folder(tmp_path) -> None:
    traced = fx.symbolic_trace(weft.nn.Sequential(weft.nn.Linear(3, 4)))
    traced.to_folder(tmp_path / "made")
    text = (tmp_path / "made" / "module.py").read_text()
    assert "class FxModule(torch.nn.Module):\n    def forward(self, input):" in text
    assert list(weft.load(tmp_path / "made" / "state_dict.pt")) == ["0.weight", "0.bias"]


def test_tables_and_side_effects(capsys) -> None:
    fx.symbolic_trace(lambda x: weft.relu(x)).graph.print_tabular()
    assert capsys.readouterr().out.splitlines()[0].split() == [
        *("opcode", "name", "target", "args", "kwargs")
    ]

    def loud(x):
        return x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(loud, (x,))
    graph.output(x)
    fx.has_side_effect(loud)
    assert not graph.eliminate_dead_code() and len(graph.nodes) == 3
