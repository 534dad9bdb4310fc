"""What surrounds an op: modes, modules, optimizers, functions of users, function transforms.

Each takes a ``program_steps.Writer``. Values are the writer's own, so that what happens inside a
block or a module is part of a graph that goes on outside of it.
"""

from __future__ import annotations

import re
from typing import Any

from opdb import torch

ENDS = {"backward": 8, "gradient": 4, "retain": 2}
GRAPH = {"leaf": 4, "keep": 6, "share": 10, "pair": 8, "unary": 6, "view": 4}
THEMES: dict[str, dict[str, int]] = {
    "modes": {
        **GRAPH,
        **ENDS,
        "hook": 4,
        "change": 6,
        "with": 3,
        "quiet": 3,
        "guarded": 14,
        "packed": 12,
        "cast": 6,
        "inferred": 8,
        "copied": 4,
    },
    "modules": {
        **GRAPH,
        **ENDS,
        "hook": 3,
        "change_grad": 4,
        "backward": 16,
        "module": 10,
        "call_module": 26,
        "module_hook": 8,
        "optimizer": 6,
        "step": 14,
        "module_state": 6,
    },
    "functions": {
        **GRAPH,
        **ENDS,
        "hook": 5,
        "change": 4,
        "create": 6,
        "kept": 2,
        "user_function": 26,
    },
    "transforms": {**GRAPH, **ENDS, "hook": 2, "create": 4, "transform": 24, "user_function": 2},
}


def theme_of(seed: int) -> str | None:
    """Every fourth seed has a theme of this module; the others keep the program they always had."""
    return list(THEMES)[seed // 4 % len(THEMES)] if seed % 4 == 3 else None


# --- modes -----------------------------------------------------------------------------

GUARDS = (
    *("torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)"),
    *("torch.set_grad_enabled(True)", "torch.autograd.graph.save_on_cpu()"),
    "torch.autograd.graph.allow_mutation_on_saved_tensors()",
)
PACKS = (
    "lambda t: t, lambda t: t",
    "lambda t: t.detach().clone(), lambda t: t",
    "lambda t: t.detach().clone(), lambda t: t.clone()",
    "lambda t: [t.detach() * 1], lambda t: t[0]",
    "lambda t: t.detach() * 2, lambda t: t / 2",
)
BODIES = (
    *("{x}.sin()", "{x} * {x}", "{x} * {y}", "{x} / ({y} * {y} + 1)", "{x}.exp()", "{x}.tanh()"),
    *("{x} + 1", "{x}.clone()", "{x}.sigmoid() * {x}", "({x} * {x}).sum()", "{x}.softmax(-1)"),
    *("Cube.apply({x})", "{x}.abs()", "{x}.view(-1)", "{x}.pow(2)", "{x}.square().mean()"),
    *("checkpoint(lambda a: a.sin() * a, {x}, use_reentrant=False)", "{x}.cumsum(0)"),
)


def guarded(writer: Any) -> None:
    """A value computed inside a mode, some of them nested."""
    x = writer.some()
    modes = [writer.rng.choice(GUARDS) for _ in range(writer.rng.choice((1, 1, 2)))]
    text = writer.rng.choice(BODIES).format(x=x, y=writer.like(x))
    if "view" in text:
        writer.veiled = True
    writer.define(text, f"with {', '.join(modes)}: ")


def packed(writer: Any) -> None:
    """A value whose saved tensors are kept in another form; then its input may change."""
    x = writer.some()
    text = writer.rng.choice(BODIES).format(x=x, y=writer.like(x))
    pack = writer.rng.choice(PACKS)
    writer.define(text, f"with torch.autograd.graph.saved_tensors_hooks({pack}): ")


CASTS = (
    *("{x} @ {y}.mT", "F.linear({x}, {y})", "torch.matmul({x}, {y}.mT)", "{x} * {y}", "{x} + {y}"),
    *("({x} @ {y}.mT).sum()", "({x} @ {y}.mT) @ {y}", "({x} @ {y}.mT).relu()", "{x}.sum()"),
    *("F.relu({x}) @ {y}.mT", "torch.cat([{x} @ {y}.mT, {x} @ {x}.mT])", "{x}.cumsum(0)"),
    *("F.mse_loss({x} @ {y}.mT, {x} @ {x}.mT)", "torch.stack([{x}, {y}]).sum(0) @ {x}.mT"),
)


def cast(writer: Any) -> None:
    """Autocast on halves of small integers, which bfloat16 multiplies and adds without rounding."""
    rng = writer.rng
    rows, columns = rng.choice((2, 3)), rng.choice((2, 3))
    names = []
    for _ in range(2):
        text = f"rand({rng.randrange(10**6)}, {(rows, columns)}, torch.float32)"
        made = writer.define(f"{text}.mul(2).round().div(2).requires_grad_()")
        names += made
    if len(names) < 2:
        return
    enabled = rng.choice(("", "", "", ", enabled=False"))
    x, y = names
    text = rng.choice(CASTS).format(x=x, y=y)
    found = writer.define(text, f"with torch.autocast('cpu', torch.bfloat16{enabled}): ")
    if found:
        writer.emit(f"{found[0]}.float().sum().backward(retain_graph=True)", (), True)
    gone = {*names, *found}  # elsewhere they would be rounded
    writer.good = [n for n in writer.good if n not in gone] or writer.good


INFERRED = (
    *("{x} * 2", "{x}.view(-1)", "{x}.clone()", "{x}.detach()", "{x}.sum()", "{x}[...]", "{x}.t()"),
)
THEREAFTER = (
    *("{v} * {x}", "{v} + 1", "{v}.clone()", "{x}.sum() * {v}", "{v}.view(-1)", "{x}.sum() + {v}"),
    *("torch.cat([{v}.flatten(), {x}.flatten()])", "{v}.clone() * {x}.sum()", "{v}.exp()"),
)
CHANGED = ("{v}.mul_(2)", "{v}.add_({x}.sum())", "{v}.copy_({v} * 1)")


def inferred(writer: Any) -> None:
    """A value of inference mode, and what may be done with it outside."""
    x, rng = writer.some(), writer.rng
    made = writer.define(rng.choice(INFERRED).format(x=x), "with torch.inference_mode(): ")
    writer.good = [n for n in writer.good if n not in made]
    for name in made:
        t = writer.get(name)
        if t.is_inference():
            # torch writes to an inference tensor before it says that it must not be written to.
            writer.frozen.add(t.untyped_storage().data_ptr())
        for _ in range(2):
            writer.define(rng.choice(THEREAFTER).format(v=name, x=x))
        if rng.random() < 0.5 and not t.is_inference() and writer.writable(name) is not None:
            writer.emit(rng.choice(CHANGED).format(v=name, x=x), (), True)
            writer.define(rng.choice(THEREAFTER).format(v=name, x=x))


COPIES = (
    *("copy.deepcopy({x})", "torch.clone({x}.detach()).requires_grad_()", "{x}.data.clone()"),
    *("pickle.loads(pickle.dumps({x}.detach()))", "torch.tensor({x}.detach().numpy())"),
    *("torch.nn.Parameter({x}.detach().clone())", "torch.as_tensor({x})", "{x}.new_zeros(2, 3)"),
    *("torch.empty_like({x}).copy_({x})", "torch.asarray({x}.detach())", "{x}.grad * 2"),
)


def copied(writer: Any) -> None:
    """A tensor made of another."""
    x = writer.pick(lambda t: t.is_leaf) or writer.some()
    text = writer.rng.choice(COPIES).format(x=x)
    if "numpy" in text and writer.get(x).dtype.itemsize <= 2:
        return
    writer.define(text)


# --- modules and optimizers ------------------------------------------------------------

# A module, and the shape of what it is called on.
MODULES = (
    *(("Linear(3, 2)", (2, 3)), ("Linear(3, 3, bias=False)", (3,)), ("Linear(2, 4)", (2, 2, 2))),
    *(("BatchNorm1d(3)", (4, 3)), ("LayerNorm((2, 3))", (2, 2, 3)), ("GroupNorm(2, 4)", (3, 4, 2))),
    *(("PReLU()", (2, 3)), ("Conv1d(2, 3, 2)", (2, 2, 4))),
    ("Conv2d(2, 2, 3, padding=1)", (1, 2, 4, 4)),
    ("ConvTranspose1d(2, 3, 2)", (1, 2, 3)),
    ("Bilinear(3, 3, 2)", (2, 3)),
    ("RNN(3, 2)", (4, 3)),
    ("GRU(3, 2, batch_first=True)", (2, 3, 3)),
    ("LSTM(3, 2)", (3, 2, 3)),
    ("MultiheadAttention(4, 2)", (3, 4)),
    ("Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))", (2, 3)),
    ("Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True))", (2, 3)),
    ("TransformerEncoderLayer(4, 2, 4, dropout=0.0)", (3, 2, 4)),
    ("RMSNorm(3)", (2, 3)),
    ("InstanceNorm1d(2, affine=True)", (2, 2, 4)),
    ("Identity()", (2, 3)),
    ("utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))", (2, 3)),
    ("Flatten()", (2, 2, 3)),
)
TAKES = {"Bilinear": "{x}, {x}", "MultiheadAttention": "{x}, {x}, {x}"}


def modules_of(writer: Any) -> list[str]:
    """The names of the program's modules."""
    return [n for n in writer.session.scope if n[0] == "m" and n[1:].isdigit()]


def module(writer: Any) -> str | None:
    """A module, its parameters set and named."""
    rng = writer.rng
    if "complex" in writer.dtype or "16" in writer.dtype:
        writer.dtype = "float64"
    text, shape = rng.choice(MODULES)
    name = f"m{len(modules_of(writer))}"
    made = f"filled(torch.nn.{text}, {rng.randrange(10**6)}, torch.{writer.dtype})"
    if not writer.emit(f"{name} = {made}"):
        return None
    # Some are one node in torch and several here: a backward that fails half-way has not reached
    # the same parameters.
    writer.saves_more = True
    writer.module_shapes[name] = (text, shape)
    for k in range(min(len(list(writer.get(name).parameters())), 3)):
        writer.define(f"list({name}.parameters())[{k}]")
    call_module(writer, name)
    return name


def call_module(writer: Any, name: str | None = None) -> None:
    """A call of a module on values of the program."""
    rng = writer.rng
    known = modules_of(writer)
    if name is None:
        if not known:
            module(writer)
            return
        name = rng.choice(known)
    text, shape = writer.module_shapes[name]
    dtype = next((p.dtype for p in writer.get(name).parameters()), None)
    fits = lambda t: tuple(t.shape) == shape and (dtype is None or t.dtype == dtype)
    x = writer.pick(fits)
    if x is None or rng.random() < 0.3:
        source = writer.pick(
            lambda t: t.numel() > 0 and t.requires_grad and (dtype is None or t.dtype == dtype)
        )
        if source is None:
            return
        x = f"fit({source}, {', '.join(map(str, shape))})"
    takes = next((t for key, t in TAKES.items() if text.startswith(key)), "{x}")
    call = f"{name}({takes.format(x=x)})"
    if text.startswith(("RNN", "GRU", "MultiheadAttention", "LSTM")):
        call += "[0]"
    for made in writer.define(call, effect=True):
        t = writer.get(made)
        if isinstance(t, torch.Tensor) and t._is_view():
            # Of something hidden, in torch: its hooks are forgotten when it is changed.
            writer.frozen.add(t.untyped_storage().data_ptr())


MODULE_HOOKS = (
    "{m}.register_forward_hook(lambda m, i, o: log.append(('{t}', o)))",
    "{m}.register_forward_hook(lambda m, i, o: o * 2 if isinstance(o, torch.Tensor) else None)",
    "{m}.register_forward_pre_hook(lambda m, i: log.append(('{t}', i[0])))",
    "{m}.register_forward_pre_hook(lambda m, i: tuple(a + 1 for a in i))",
    "{m}.register_full_backward_hook(lambda m, gi, go: log.append(('{t}', go)))",
    "{m}.register_full_backward_hook(lambda m, gi, go: log.append(('{t}', gi)))",
    "{m}.register_full_backward_hook(lambda m, gi, go: tuple(g if g is None else -g for g in gi))",
    "{m}.register_full_backward_pre_hook(lambda m, go: log.append(('{t}', go)))",
    "{m}.register_full_backward_pre_hook(lambda m, go: tuple(g if g is None else -g for g in go))",
)


def module_hook(writer: Any) -> None:
    """A hook on a module, and a call that it sees."""
    names = modules_of(writer)
    if not names:
        return
    name = writer.rng.choice(names)
    text = writer.rng.choice(MODULE_HOOKS)
    writer.emit(text.format(m=name, t=writer.tag()))
    call_module(writer, name)


STATES = (
    *("{m}.train()", "{m}.eval()", "{m}.zero_grad()", "{m}.zero_grad(set_to_none=False)"),
    *("{m}.requires_grad_(False)", "{m}.requires_grad_()", "{m}.load_state_dict({m}.state_dict())"),
    *("{m}.load_state_dict(copy.deepcopy({m}.state_dict()))", "filled({m}, 5)"),
    *("torch.nn.utils.clip_grad_norm_({m}.parameters(), 0.1)",),
    "U.vector_to_parameters(U.parameters_to_vector({m}.parameters()).detach(), {m}.parameters())",
)


def module_state(writer: Any) -> None:
    """A change of a module between calls and backward passes."""
    names = modules_of(writer)
    if names:
        name = writer.rng.choice(names)
        writer.emit(writer.rng.choice(STATES).format(m=name), (), True)


OPTIMIZERS = (
    *("SGD({p}, lr=0.1)", "SGD({p}, lr=0.1, momentum=0.9, nesterov=True)", "Adam({p}, lr=0.1)"),
    *("AdamW({p}, lr=0.1, amsgrad=True)", "RMSprop({p}, lr=0.01, centered=True, momentum=0.5)"),
    *("Adagrad({p}, lr=0.1, lr_decay=0.1)", "NAdam({p}, lr=0.1)", "Adadelta({p})", "Rprop({p})"),
    *("SGD({p}, lr=0.1, weight_decay=0.1, maximize=True)", "RAdam({p}, lr=0.1)", "ASGD({p})"),
    *("Adam({p}, lr=0.1, foreach=False, weight_decay=0.1)", "Adamax({p}, lr=0.1)"),
)


def optimizers_of(writer: Any) -> list[str]:
    return [n for n in writer.session.scope if n[0] == "o" and n[1:].isdigit()]


def optimizer(writer: Any) -> None:
    """An optimizer that lives on, of a module's parameters or of leaves."""
    rng, names = writer.rng, modules_of(writer)
    if names and rng.random() < 0.7:
        params = f"{rng.choice(names)}.parameters()"
    else:
        leaves = writer.leaves()
        if not leaves:
            return
        params = f"[{', '.join(rng.sample(leaves, min(len(leaves), 2)))}]"
    text = rng.choice(OPTIMIZERS).format(p=params)
    writer.emit(f"o{len(optimizers_of(writer))} = torch.optim.{text}")


STEPS = (
    *("{o}.step()",) * 4,
    *("{o}.zero_grad()", "{o}.zero_grad(set_to_none=False)", "{o}.step(); {o}.zero_grad()"),
    *(
        "{o}.param_groups[0].update(lr=0.05)",
        "{o}.load_state_dict(copy.deepcopy({o}.state_dict()))",
    ),
)


def step(writer: Any) -> None:
    """Something that an optimizer does."""
    names = optimizers_of(writer)
    if not names:
        optimizer(writer)
        return
    writer.emit(writer.rng.choice(STEPS).format(o=writer.rng.choice(names)), (), True)


# --- functions of users and transforms -------------------------------------------------

FUNCTIONS = (
    *("Both.apply({x})", "Lazy.apply({x})[0]", "Lazy.apply({x})[1]", "Lazy.apply({x})"),
    *("Product.apply({x}, {y})", "Product.apply({x}, {x})", "Product.apply({x}, {y}.detach())"),
    *("Scaled.apply({x}, 2.0)", "Marked.apply({x})[0]", "Inner.apply({x})", "Nothing.apply({x})"),
    *("Through.apply({x})", "Nested.apply({x})", "Cube.apply({x})", "Pair.apply({x})"),
    *("Product.apply({x}, Same.apply({x}))", "Both.apply({x}) * {x}", "Twice.apply({x} * 1)"),
    *("Inner.apply({x}) + {x}", "checkpoint(Both.apply, {x}, use_reentrant=False)"),
    *("checkpoint(Product.apply, {x}, {y}, use_reentrant=True)", "Shaped.apply({x}, {y})"),
)


def user_function(writer: Any) -> None:
    """A function whose backward a user has written."""
    x = writer.some()
    text = writer.rng.choice(FUNCTIONS).format(x=x, y=writer.like(x))
    writer.define(text, effect="Twice" in text)


# Not linearize: torch's result is a constant to whatever the point came from.
TRANSFORMS = (
    "torch.func.grad(lambda a: (a * {y}).sum())({x})",
    "torch.func.grad(lambda a: (a.sin() * a + {y} * a).sum())({x})",
    "torch.func.grad_and_value(lambda a: (a.tanh() * {y}).sum())({x})",
    "torch.func.grad(lambda a, b: (a * b * a).sum(), argnums=(0, 1))({x}, {y})",
    "torch.func.vjp(lambda a: a.exp() * {y}, {x})[1]({y})[0]",
    "torch.func.jvp(lambda a: a.sin() * {y}, ({x},), ({y},))",
    "torch.func.jvp(lambda a: a * a + a, ({x},), ({x},))[1]",
    "torch.func.grad(lambda a: torch.func.grad(lambda b: (b ** 3 * {y}).sum())(a).sum())({x})",
    "torch.func.vmap(lambda a: a * 2 + a.sum())({x})",
    "torch.func.vmap(lambda a, b: a * b.sin())({x}, {y})",
    "torch.func.vmap(torch.func.grad(lambda a: (a.sin() * a).sum()))({x})",
    "torch.func.vmap(lambda a: {x} * a.sum())({x})",
    "torch.func.jacrev(lambda a: a.sin() * a)({x})",
    "torch.func.jacfwd(lambda a: a.sin() * {y})({x})",
    "torch.func.hessian(lambda a: (a.sin() * a).sum())({x})",
    "torch.autograd.functional.jacobian(lambda a: a * a.sum(), {x}, create_graph=True)",
    "torch.autograd.functional.hvp(lambda a: (a ** 3).sum(), {x}, {y}, create_graph=True)[1]",
    "torch.autograd.functional.vjp(lambda a: a.sin(), {x}, {y}, create_graph=True)",
    "torch.autograd.functional.jvp(lambda a: a.sin() * a, {x}, {y}, create_graph=True)[1]",
    "torch.func.functional_call(torch.nn.PReLU(), {{'weight': {x}.flatten()[:1]}}, ({y},))",
    "torch.vmap(lambda a: a[None] * a, out_dims=-1)({x})",
    "torch.vmap(lambda a: F.softmax(a * 2, -1), in_dims=-1)({x})",
)
FORWARD = re.compile(r"func\.(jvp|jacfwd|hessian)")
# Not softmax: torch writes over what its tangent has saved, and can't go back through it.
DUAL = (
    *("a.sin() * a", "a * {y}", "a.exp().sum()", "(a @ a.mT)", "a.sigmoid()", "a + a.clone()"),
    *("a.view(-1)[1:]", "a.clone().mul_(a)", "torch.cat([a, a * 2])", "a.cumsum(0) * {x}"),
)
# Those whose tangent is the same at every point.
CONSTANT = {"a * {y}", "torch.cat([a, a * 2])"}


def transform(writer: Any) -> None:
    """A function transform of values that have a history."""
    x = writer.pick(lambda t: t.requires_grad and t.numel() <= 64) or writer.some()
    if not 0 < writer.get(x).numel() <= 64:
        return  # of no elements, not even whether there is a history is compared
    # Results share nodes in torch that are apart here: what a backward uses up is not the same.
    writer.pooled = True
    y = writer.like(x)
    overlaps = torch._debug_has_internal_overlap(writer.get(x)) == 1
    forward = not overlaps or writer.allows("expanded primal")
    if writer.rng.random() < 0.2:
        body = writer.rng.choice(DUAL)
        constant = body in CONSTANT and writer.get(x).requires_grad
        if forward and (not constant or writer.allows("constant tangent")):
            writer.define(f"tangent(lambda a: {body.format(x=x, y=y)}, {x}, {y})")
        return
    text = writer.rng.choice(TRANSFORMS)
    if FORWARD.search(text) and not forward:
        return
    for name in writer.define(text.format(x=x, y=y)):
        t = writer.get(name)
        if isinstance(t, torch.Tensor):
            # Some are views of something hidden in torch, and may not be changed.
            writer.frozen.add(t.untyped_storage().data_ptr())
