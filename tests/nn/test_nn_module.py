"""The contract of Module and the containers: the same scenario on PyTorch and weft."""

from __future__ import annotations

import copy
import functools
import pickle
import random
import warnings
from collections import OrderedDict
from typing import Any

import pytest

import weft
from scenarios import agree, error, scenario, scenarios
from weft.core.modes import MODES


def net(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = T.nn.Linear(3, 4)
            self.blocks = T.nn.ModuleList([T.nn.Linear(4, 4) for _ in range(2)])
            self.scale = T.nn.Parameter(T.ones(4))
            self.register_buffer("count", T.zeros(2))
            self.register_buffer("hidden", T.ones(1), persistent=False)
            self.plain = 3

        def forward(self, x, shift=0.0):
            x = self.first(x)
            for block in self.blocks:
                x = block(x).relu()
            return x * self.scale + shift

    return Net()


@scenario
def walking(T):
    m = net(T)
    m.again = m.first
    return {
        "parameters": [n for n, _ in m.named_parameters()],
        "all": [n for n, _ in m.named_parameters(remove_duplicate=False)],
        "own": [n for n, _ in m.named_parameters(recurse=False)],
        "prefixed": [n for n, _ in m.named_parameters(prefix="p")],
        "buffers": [n for n, _ in m.named_buffers()],
        "modules": [n for n, _ in m.named_modules()],
        "modules twice": [n for n, _ in m.named_modules(remove_duplicate=False)],
        "children": [n for n, _ in m.named_children()],
        "counts": [len(list(m.parameters())), len(list(m.modules())), len(list(m.children()))],
        "found": m.get_parameter("blocks.1.weight"),
        "buffer": m.get_buffer("count"),
        "module": repr(m.get_submodule("blocks.0")),
        "itself": m.get_submodule("") is m,
        "dir": [n for n in dir(m) if n in ("first", "scale", "count", "plain")],
    }


@scenario
def finding_errors(T):
    m = net(T)
    return [
        error(lambda: m.get_submodule("first.x")),
        error(lambda: m.get_submodule("plain")),
        error(lambda: m.get_submodule("nothing")),
        error(lambda: m.get_parameter("first.wei")),
        error(lambda: m.get_parameter("plain")),
        error(lambda: m.get_buffer("plain")),
        error(lambda: m.get_buffer("nothing")),
        error(lambda: m.set_submodule("", T.nn.ReLU())),
        error(lambda: m.set_submodule("plain.x", T.nn.ReLU())),
        error(lambda: m.set_submodule("nothing", T.nn.ReLU(), strict=True)),
        error(lambda: m.nothing),
        error(lambda: delattr(m, "nothing")),
        error(lambda: m.train(3)),
        error(lambda: T.nn.Module(3)),
        error(lambda: T.nn.Module(a=3)),
        error(lambda: T.nn.Module()(3)),
        error(lambda: m.to(T.int32)),
    ]


@scenario
def registration_errors(T):
    m = net(T)
    parameter = T.nn.Parameter(T.zeros(2))

    def early(value):
        class Early(T.nn.Module):
            def __init__(self):
                self.x = value

        return lambda: Early()

    return [
        error(early(T.nn.Linear(1, 1))),
        error(early(parameter)),
        error(early(T.nn.Buffer(T.zeros(1)))),
        error(lambda: setattr(m, "scale", T.zeros(2))),
        error(lambda: setattr(m, "first", T.zeros(2))),
        error(lambda: setattr(m, "first", 3)),
        error(lambda: setattr(m, "scale", 3)),
        error(lambda: setattr(m, "count", 3)),
        error(lambda: m.register_parameter("plain", parameter)),
        error(lambda: m.register_parameter("q.r", parameter)),
        error(lambda: m.register_parameter("", parameter)),
        error(lambda: m.register_parameter(3, parameter)),
        error(lambda: m.register_parameter("q", T.zeros(2))),
        error(lambda: m.register_buffer("plain", T.zeros(1))),
        error(lambda: m.register_buffer("q.r", T.zeros(1))),
        error(lambda: m.register_buffer("", T.zeros(1))),
        error(lambda: m.register_buffer(3, T.zeros(1))),
        error(lambda: m.register_buffer("q", 3)),
        error(lambda: m.add_module("plain", T.nn.ReLU())),
        error(lambda: m.add_module("a.b", T.nn.ReLU())),
        error(lambda: m.add_module("", T.nn.ReLU())),
        error(lambda: m.add_module(3, T.nn.ReLU())),
        error(lambda: m.register_module("z", 3)),
    ]


@scenario
def attributes(T):
    m = net(T)
    m.plain = T.nn.Parameter(T.ones(2))  # a plain attribute becomes a parameter
    m.scale = None
    m.first = None
    m.count = T.ones(3)
    m.extra = T.nn.Buffer(T.ones(2), persistent=False)
    del m.blocks[0]
    names = [list(m._parameters), list(m._buffers), list(m._modules)]
    refused = error(lambda: setattr(m, "plain", T.nn.ReLU()))[0]
    m.extra = T.nn.ReLU()  # a module replaces a buffer
    del m.count
    state = list(m.state_dict())
    return names, refused, state, [list(m._parameters), list(m._buffers), list(m._modules)], repr(m)


@scenario
def state_dicts(T):
    m, other = net(T), net(T)
    state = m.state_dict()
    versions = {k: dict(v) for k, v in state._metadata.items()}
    matched = str(other.load_state_dict(state))
    kept = m.state_dict(keep_vars=True)["scale"] is m.scale
    detached = m.state_dict()["scale"].requires_grad
    sub = list(m.state_dict(prefix="p."))
    return list(state), versions, matched, kept, detached, sub, other.state_dict()


@scenario
def loading_errors(T):
    m = net(T)
    state = m.state_dict()
    state["scale"] = T.zeros(3)
    state["first.zz"] = T.zeros(3)
    state["zz"] = T.zeros(3)
    state["count"] = 3
    del state["blocks.0.weight"]
    fewer = m.state_dict()
    del fewer["scale"]
    fewer["more"] = T.ones(1)
    return [
        error(lambda: m.load_state_dict(state)),
        error(lambda: m.load_state_dict(state, strict=False)),
        error(lambda: m.load_state_dict({})),
        repr(m.load_state_dict(fewer, strict=False)),
        error(lambda: m.load_state_dict(3))[0],
    ]


@scenario
def assigning_state(T):
    m = net(T)
    state = {k: v.double() for k, v in m.state_dict().items()}
    m.load_state_dict(state, assign=True)
    taken = m.state_dict()["scale"].data_ptr() == state["scale"].data_ptr()
    return taken, str(m.scale.dtype), isinstance(m.scale, T.nn.Parameter), m.scale.requires_grad


@scenario
def state_hooks(T):
    m = net(T)
    log = []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append(("pre", prefix, keep)))
    m.register_state_dict_post_hook(
        lambda mod, state, prefix, meta: log.append(("post", len(state), prefix))
    )
    m.first._register_state_dict_hook(lambda mod, state, prefix, meta: state.pop("first.bias"))
    m.register_load_state_dict_pre_hook(lambda mod, state, prefix, *rest: log.append(("l", prefix)))
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    m.first._register_load_state_dict_pre_hook(
        lambda state, prefix, *rest: log.append(("load", prefix, len(state)))
    )
    state = net(T).state_dict()
    del state["scale"]
    m.load_state_dict(state)
    m.first._state_dict_hooks.clear()
    m.state_dict(prefix="x.")
    return log


@scenario
def extra_state(T):
    class Extra(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    m, other = T.nn.Sequential(Extra()), T.nn.Sequential(Extra())
    m[0].seen = 5
    other.load_state_dict(m.state_dict())
    missing = error(lambda: other.load_state_dict({}))
    unexpected = error(lambda: T.nn.Sequential(T.nn.ReLU()).load_state_dict(m.state_dict()))
    return m.state_dict(), other[0].seen, missing, unexpected


@scenario
def own_loading(T):
    class Old(T.nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.w = T.nn.Parameter(T.zeros(2))

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            if local_metadata.get("version", 1) < 3:
                state_dict[prefix + "w"] = state_dict.pop(prefix + "weight")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    m = T.nn.Sequential(Old())
    m.load_state_dict({"0.weight": T.ones(2)})
    return m.state_dict(), dict(m.state_dict()._metadata["0"])


@scenario
def forward_hooks(T):
    m = T.nn.Linear(2, 2)
    log = []
    x = T.ones(1, 2)
    h1 = m.register_forward_pre_hook(lambda mod, args: log.append("pre") or (args[0] * 2,))
    h2 = m.register_forward_hook(lambda mod, args, out: log.append("post") or out + 1)
    m.register_forward_hook(lambda mod, args, out: log.append("first"), prepend=True)
    y = m(x)
    h1.remove()
    h2.remove()
    z = m(x)
    with m.register_forward_hook(lambda *a: log.append("block")):
        m(x)
    m(x)
    return y, z, log


@scenario
def hooks_with_kwargs(T):
    m = net(T)
    log = []
    m.register_forward_pre_hook(
        lambda mod, args, kwargs: (args, {"shift": kwargs["shift"] + 1}), with_kwargs=True
    )
    m.register_forward_hook(
        lambda mod, args, kwargs, out: log.append(kwargs) or out * 2, with_kwargs=True
    )
    y = m(T.ones(1, 3), shift=1.0)
    bad = T.nn.Linear(1, 1)
    bad.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    return y, log, error(lambda: bad(T.ones(1)))


@scenario
def hooks_called_always(T):
    m = T.nn.Linear(2, 2)
    log = []
    m.register_forward_hook(lambda mod, args, out: log.append(out is None), always_call=True)
    m.register_forward_hook(lambda mod, args, out: log.append("never"))
    failed = error(lambda: m("no tensor"))[0] != "no error"
    m(T.ones(2))
    return failed, log


@scenario
def full_backward_hooks(T):
    log = []

    class Two(T.nn.Module):
        def forward(self, a, flag, b):
            return a * b, a + b

    m = Two()
    m.register_full_backward_pre_hook(lambda mod, g: log.append([len(g), g[0], g[1]]))
    m.register_full_backward_hook(lambda mod, gi, go: log.append([gi, go]))
    a, b = T.ones(2, requires_grad=True), T.full((2,), 3.0, requires_grad=True)
    m(a, "flag", b)[0].sum().backward()
    double = T.nn.Linear(2, 2)
    double.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
    double.register_full_backward_hook(lambda mod, gi, go: (gi[0] + 1,), prepend=True)
    double.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    x = T.ones(1, 2, requires_grad=True)
    double(x).sum().backward()
    name = double(x).grad_fn.name()
    seen = []
    plain_input = T.nn.Linear(2, 2)
    plain_input.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go)))
    plain_input(T.ones(1, 2)).sum().backward()
    with T.no_grad():
        plain_input(T.ones(1, 2))
    wrong = T.nn.Linear(2, 2)
    wrong.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    bad = error(lambda: wrong(x).sum().backward())
    both = error(lambda: wrong.register_backward_hook(lambda *a: None))
    return log, a.grad, b.grad, x.grad, double.weight.grad, name, seen, bad, both


@scenario
def old_backward_hooks(T):
    log = []
    m = T.nn.ReLU()
    m.register_backward_hook(lambda mod, gi, go: log.append((gi, go)))
    x = T.tensor([1.0, -1.0], requires_grad=True)
    (m(x) * 2).sum().backward()
    return log, error(lambda: m.register_full_backward_hook(lambda *a: None))


@scenario
def hooks_of_all_modules(T):
    module = T.nn.modules.module
    log = []
    handles = [
        module.register_module_forward_pre_hook(lambda m, a: log.append(("pre", m._get_name()))),
        module.register_module_forward_hook(lambda m, a, o: log.append(("post", m._get_name()))),
        module.register_module_full_backward_hook(lambda m, gi, go: log.append(("b", len(gi)))),
        module.register_module_full_backward_pre_hook(lambda m, go: log.append(("bp", len(go)))),
        module.register_module_parameter_registration_hook(lambda m, n, p: log.append((n, 1))),
        module.register_module_module_registration_hook(lambda m, n, p: log.append((n, 2))),
        module.register_module_buffer_registration_hook(lambda m, n, p: log.append((n, 3))),
    ]
    m = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.BatchNorm1d(2))
    m(T.ones(2, 2)).sum().backward()
    for handle in handles:
        handle.remove()
    module._global_is_full_backward_hook = None
    m(T.ones(2, 2))
    return log


@scenario
def conversions(T):
    m = net(T)
    m.register_buffer("index", T.arange(3))
    weight = m.first.weight
    m(T.ones(1, 3)).sum().backward()
    m.double()
    kinds = [str(m.first.weight.dtype), str(m.index.dtype), str(weight.grad.dtype)]
    identical = weight is m.first.weight
    m.to(T.float32).half().bfloat16().float()
    m.to("cpu")
    m.to(device="cpu", dtype=T.float64)
    m.to(T.ones(1))
    m.cpu().share_memory()
    m.type(T.float64)
    doubled = T.nn.Linear(2, 2, dtype=T.float64)
    doubled._apply(lambda t: t * 2)
    return kinds, identical, str(m.scale.dtype), str(m.index.dtype), doubled.weight


@scenario
def modes(T):
    m = net(T)
    m.eval()
    off = [c.training for c in m.modules()]
    m.train()
    m.requires_grad_(False)
    frozen = [p.requires_grad for p in m.parameters()]
    m.requires_grad_()
    m(T.ones(1, 3)).sum().backward()
    m.zero_grad(set_to_none=False)
    zeros = [float(p.grad.abs().sum()) for p in m.parameters()]
    m.zero_grad()
    order = []
    m.apply(lambda c: order.append(c._get_name()))
    return off, frozen, zeros, [p.grad is None for p in m.parameters()], order


@scenario
def copies(T):
    m = net(T)
    m.tied = m.scale
    m(T.ones(1, 3)).sum().backward()
    m.scale.note = 3
    twin = copy.deepcopy(m)
    lost = [p.grad is None for p in twin.parameters()], hasattr(twin.scale, "note")
    twin.scale.data.fill_(7.0)
    shallow = copy.copy(m)
    own = twin.tied is twin.scale and twin.first is not m.first
    again = pickle.loads(pickle.dumps(T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3))))
    return lost, m.scale, twin.scale, own, shallow.first is m.first, repr(again), again.state_dict()


@scenario
def printing(T):
    nn = T.nn
    m = net(T)
    tree = nn.Sequential(
        OrderedDict(a=nn.Linear(2, 2), b=nn.Sequential(nn.ReLU(), nn.Tanh()), c=m, d=nn.Identity())
    )
    tree.e = None
    lists = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Sequential(nn.ReLU())])

    class Lines(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = nn.ReLU()

        def extra_repr(self):
            return "one\ntwo"

    return [
        repr(tree),
        str(lists),
        repr(nn.ModuleDict({"x": m, "y": nn.ModuleList()})),
        repr(Lines()),
        repr(nn.Module()),
        repr(nn.ParameterList([T.ones(2), T.ones(2, 3), 3])),
        repr(nn.ParameterList([T.ones(2)])),
        repr(nn.ParameterDict({"b": T.ones(2), "a": T.ones(()), "c": nn.ReLU()})),
        repr(nn.ParameterList()),
        repr(nn.ParameterList([nn.ReLU(), "s"])),
    ]


@scenario
def sequences(T):
    nn = T.nn
    s = nn.Sequential(nn.ReLU(), nn.Linear(1, 1), nn.Tanh())
    log = [repr(s[1:]), repr(s[-1]), len(s), [m._get_name() for m in s]]
    del s[0]
    log.append(repr(s))
    s.insert(1, nn.Sigmoid())
    s.append(nn.ReLU()).extend([nn.Tanh()])
    log += [repr(s), repr(s + nn.Sequential(nn.ReLU())), repr(s * 2), repr(s.pop(-1))]
    s[0] = nn.Identity()
    s += nn.Sequential(nn.GELU())
    named = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh()))
    named.append(nn.ReLU())
    log += [repr(s), repr(named), repr(named[:2]), named.b._get_name()]
    log += [
        error(lambda: s[9]),
        error(lambda: s["a"]),
        error(lambda: nn.Sequential(3)),
        error(lambda: s + 3)[0],
        error(lambda: s * 0)[0],
        error(lambda: s * 2.5)[0],
        error(lambda: s.insert(99, nn.ReLU())),
        error(lambda: s.append(3)),
    ]
    return log


@scenario
def module_lists(T):
    nn = T.nn
    m = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    m.append(nn.Linear(1, 1))
    m.insert(0, nn.GELU())
    m.extend([nn.ReLU()])
    log = [repr(m), repr(m[1:3]), repr(m[-1]), len(m)]
    m[0] = nn.Tanh()
    del m[1]
    m += [nn.SiLU()]
    log += [repr(m), repr(m.pop(0)), repr(m.__add__([nn.ReLU()])), [x._get_name() for x in m]]
    del m[0:2]
    log += [
        *(repr(m), error(lambda: m[9]), error(lambda: m(3)), error(lambda: nn.ModuleList([3]))),
        *(error(lambda: nn.ModuleList(3)), error(lambda: m.append("x"))),
    ]
    return log


@scenario
def module_dicts(T):
    nn = T.nn
    m = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    m["c"] = nn.Linear(1, 1)
    m.update([["d", nn.GELU()]])
    log = [repr(m), len(m), "a" in m, list(m), list(m.keys())]
    log += [[v._get_name() for v in m.values()], [k for k, _ in m.items()]]
    log.append(repr(m.pop("a")))
    del m["b"]
    log.append(repr(m))
    log += [
        *(error(lambda: m["zz"]), error(lambda: nn.ModuleDict(3)), error(lambda: m.update([1]))),
        *(error(lambda: m.update([(1, 2, 3)])), error(lambda: nn.ModuleDict({"a": 3}))),
        error(lambda: nn.ModuleDict({1: nn.ReLU()})),
    ]
    m.clear()
    return [*log, repr(m)]


@scenario
def parameter_containers(T):
    nn = T.nn
    m = nn.ParameterList([T.ones(2), nn.Parameter(T.zeros(1))])
    m.append(T.ones(3)).extend([T.ones(1)])
    m[0] = T.full((2,), 5.0)
    log = [list(m.state_dict()), len(m), m[0], m[-1], [p.requires_grad for p in m], len(m[1:3])]
    log += [error(lambda: m[9]), error(lambda: m()), error(lambda: nn.ParameterList(3))]
    d = nn.ParameterDict({"b": T.ones(2), "a": nn.Parameter(T.zeros(1))})
    d["c"] = T.ones(3)
    d.update({"e": T.ones(1)})
    log += [list(d), list(d.state_dict()), d["b"], "a" in d, d.get("zz", 3), len(d)]
    log += [d.pop("a"), d.popitem()[0], list(d.keys()), [v.shape[0] for v in d.values()]]
    d.setdefault("x", T.ones(4))
    other = d.copy()
    other |= nn.ParameterDict({"y": T.ones(1)})
    log += [list(other), list(d | other), list(reversed(other)), list(d.fromkeys(["p", "q"]))]
    log += [error(lambda: nn.ParameterDict({1: T.ones(1)})), error(lambda: nn.ParameterDict(3))]
    d.clear()
    return [*log, len(d)]


@scenario
def functional_calls(T):
    m = net(T)
    values = {n: p * 0 + 1 for n, p in m.named_parameters()}
    y = T.func.functional_call(m, values, (T.ones(1, 3),), {"shift": 2.0})
    return y, T.nn.utils.stateless.functional_call(m, values, (T.ones(1, 3),)), m(T.ones(1, 3))


@scenario
def imports(T):
    modules = T.nn.modules
    return [
        modules.conv.Conv2d is T.nn.Conv2d,
        modules.Linear is T.nn.Linear,
        modules.module.Module is T.nn.Module,
        issubclass(T.nn.BatchNorm2d, modules.batchnorm._BatchNorm),
        issubclass(T.nn.Conv2d, modules.conv._ConvNd),
        modules.linear.NonDynamicallyQuantizableLinear.__name__,
        modules.activation.MultiheadAttention is T.nn.MultiheadAttention,
        modules.rnn.RNNBase is T.nn.RNNBase,
        T.nn.utils.rnn.PackedSequence.__name__,
        T.nn.parameter.Parameter is T.nn.Parameter,
        T.nn.attention.SDPBackend.MATH.name,
        isinstance(T.nn.Buffer(T.ones(1)), T.nn.Buffer),
        isinstance(T.ones(1), T.nn.Buffer),
        T.nn.DataParallel(T.nn.Identity())(T.ones(2)),
        T.nn.utils.skip_init(T.nn.Linear, 2, 3).weight.shape,
    ]


@scenario
def keys_of_parameters_that_are_none(T):
    keys = {"weight": T.ones(2, 2), "bias": T.ones(2)}
    module = T.nn.Linear(2, 2, bias=False)
    batch = T.nn.BatchNorm1d(2, track_running_stats=False)
    return [
        error(lambda: module.load_state_dict(keys)),
        list(module.load_state_dict(keys, strict=False)),
        list(batch.load_state_dict({"running_mean": T.ones(2)}, strict=False)),
        error(lambda: batch.load_state_dict({"weight": T.ones(2, 2)}, strict=False, assign=True)),
    ]


@scenario
def conversions_that_overwrite_or_swap(T):
    log = []
    for way in ("overwrite", "swap"):
        switch = getattr(T.__future__, f"set_{way}_module_params_on_conversion")
        asked = getattr(T.__future__, f"get_{way}_module_params_on_conversion")
        module = T.nn.Linear(2, 1)
        module(T.ones(3, 2)).sum().backward()
        before, grad = module.weight, module.weight.grad
        log.append(asked())
        switch(True)
        try:
            module.double()
            now = module.weight
            log += [asked(), now is before, now.grad is grad, now, now.grad, str(before.dtype)]
            module.weight.grad = None
            state = T.nn.Linear(2, 1).double().state_dict()
            log += [list(module.load_state_dict(state)), module.weight is now, module.weight]
            wrong = {"weight": T.ones(3), "bias": T.ones(1)}
            log += [error(functools.partial(module.load_state_dict, wrong))]
            module.load_state_dict({k: v.float() for k, v in state.items()}, assign=True)
            log += [module.weight is now, str(module.weight.dtype), module.weight.requires_grad]
        finally:
            switch(False)
    return log


@pytest.mark.parametrize("scenario", scenarios(dict(globals())), ids=lambda f: f.__name__)
def test_scenario(scenario):
    agree(scenario)


# --- what weft does on its own ---------------------------------------------------------


def test_scope_is_the_path_of_the_running_module():
    seen = {}

    class Leaf(weft.nn.Module):
        def forward(self, x):
            seen.setdefault(MODES.now.scope, 0)
            seen[MODES.now.scope] += 1
            return x * 2

    class Block(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Leaf()

        def forward(self, x):
            return self.attn(x)

    class Model(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = weft.nn.ModuleList([Block()])
            self.layers.append(Block())
            self.parts = weft.nn.ModuleDict({"a": weft.nn.ModuleList([Leaf()])})
            self.last = weft.nn.Sequential(Leaf())

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.last(self.parts["a"][0](x))

    model = weft.nn.Module()
    model.encoder = Model()
    y = model.encoder(weft.ones(1, requires_grad=True))
    assert list(seen) == [
        *("encoder.layers.0.attn", "encoder.layers.1.attn", "encoder.parts.a.0", "encoder.last.0")
    ]
    assert y.grad_fn.scope == "encoder.last.0"
    assert MODES.now.scope == ""
    with pytest.raises(TypeError):
        model.encoder.last()
    assert MODES.now.scope == ""


def test_modules_in_a_plain_list_are_warned_of_once():
    class Hidden(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [weft.nn.Linear(1, 1)]

    with pytest.warns(UserWarning, match=r"Hidden\.layers .*ModuleList"):
        Hidden()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Hidden()


def test_modules_added_to_a_plain_dict_later_are_warned_of():
    class Hidden(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = {}
            self.layers["a"] = weft.nn.Linear(1, 1)

    with pytest.warns(UserWarning, match=r"Hidden\.layers .*ModuleDict"):
        list(Hidden().parameters())


def test_a_list_of_registered_modules_is_fine():
    class Open(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = weft.nn.Linear(1, 1)
            self.order = [self.a]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(Open().parameters())


def test_copies_of_parametrized_modules_are_apart():
    """In PyTorch both share a class, so that removing one parametrization breaks the other."""
    m = weft.nn.utils.parametrizations.weight_norm(weft.nn.Linear(2, 2))
    twin = copy.deepcopy(m)
    weft.nn.utils.parametrize.remove_parametrizations(m, "weight")
    assert weft.equal(twin.weight, m.weight)


def test_other_devices_are_refused():
    for call in (lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.xpu()):
        with pytest.raises(RuntimeError, match="not available"):
            call(weft.nn.Linear(1, 1))


def test_unknown_name_says_so():
    with pytest.raises(AttributeError, match=r"torch\.nn\.NoSuchLayer"):
        _ = weft.nn.NoSuchLayer


def test_a_full_backward_hook_without_inputs_that_need_gradients_warns():
    layer = weft.nn.Linear(1, 1)
    seen = []
    layer.register_full_backward_hook(lambda module, given, got: seen.append(given))
    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        layer(weft.ones(1, 1)).sum().backward()
    assert seen == [(None,)]


@pytest.mark.parametrize("seed", range(20))
def test_parameters_are_those_with_names(seed: int) -> None:
    """In the same order, whatever is shared, and whoever gives names in another way."""
    chosen = random.Random(seed)

    class Named(weft.nn.Module):
        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            yield from reversed(list(super().named_modules(*args, **kwargs)))

    class Chosen(weft.nn.Module):
        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            yield from list(super().named_parameters(*args, **kwargs))[1:]

    made: list[Any] = []
    params = [weft.nn.Parameter(weft.zeros(1)) for _ in range(6)]
    for _ in range(12):
        module = chosen.choice((weft.nn.Module, weft.nn.Module, weft.nn.Module, Named, Chosen))()
        for k in range(chosen.randrange(3)):
            module.register_parameter(f"p{k}", chosen.choice((None, *params)))
        for k in range(chosen.randrange(4)):
            module.add_module(f"m{k}", chosen.choice((None, *made)))
        made.append(module)
        for recurse in (False, True):
            named = [id(p) for _, p in module.named_parameters(recurse=recurse)]
            assert [id(p) for p in module.parameters(recurse)] == named
        names = [name for name, _ in module.named_modules(remove_duplicate=False)]
        assert names == [name for name, _ in recursive_names(module)]


@pytest.mark.parametrize("name", ["named_parameters", "_named_members", "named_modules"])
@pytest.mark.parametrize("patched", ["class", "module", "part"])
def test_parameters_go_by_methods_that_a_program_replaces(name: str, patched: str) -> None:
    class Own(weft.nn.Sequential):
        pass

    module = Own(weft.nn.Linear(2, 2), Own(weft.nn.Linear(2, 3), weft.nn.Linear(3, 2)))
    assert len(list(module.parameters())) == 6
    target = {"class": Own, "module": module, "part": module[1]}[patched]

    def replaced(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        yield from ()

    asked: list[str] = []
    setattr(target, name, replaced)
    found = list(module.parameters())
    expected = [p for _, p in module.named_parameters()]
    assert [id(p) for p in found] == [id(p) for p in expected]
    assert bool(asked) == (patched != "part" or name == "named_modules")


def recursive_names(module: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """``named_modules(remove_duplicate=False)`` as PyTorch has it."""
    found = [(prefix, module)]
    for name, child in module._modules.items():
        if child is not None:
            found += recursive_names(child, f"{prefix}.{name}" if prefix else name)
    return found[::-1] if type(module).__name__ == "Named" else found
