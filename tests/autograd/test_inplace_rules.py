"""Small programs that change tensors and views in place, run in torch and in weft.

Each runs twice, the second time while hooks see what is saved, where ops take the general path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

oracle = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
PROGRAMS: list[Callable[[Any], Any]] = []
# The parts of PyTorch's messages that tell which rule was broken.
RULES = (
    "This view is the output of a function that returns multiple views",
    "created in no_grad mode",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "more than one element of the written-to tensor refers to a single memory location",
    "some elements of the input tensor and the written-to tensor refer to a single memory location",
    "one of the variables needed for gradient computation has been modified by an inplace",
    "doesn't match the broadcast shape",
    "can't be cast to the desired output type",
)


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(function)
    return function


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the class of its error and the rule that its message names."""
    try:
        return call()
    except Exception as error:
        return type(error).__name__, next((rule for rule in RULES if rule in str(error)), None)


def rounded(value: Any) -> Any:
    """Numbers to nine digits: the libraries may differ in the last bits of a sine."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return f"{value:.9g}" if isinstance(value, (float, complex)) else value


def leaf(torch: Any, *shape: int) -> Any:
    values = torch.arange(1.0, 1.0 + int(np.prod(shape)), dtype=torch.float64)
    return values.reshape(shape).clone().requires_grad_()


def inner(torch: Any, *shape: int) -> tuple[Any, Any]:
    x = leaf(torch, *shape)
    return x, x * 1


VIEWS: dict[str, Callable[[Any], Any]] = {
    "part": lambda b: b[0],
    "slice": lambda b: b[:, 1:],
    "transposed": lambda b: b.mT,
    "reshaped": lambda b: b.view(-1),
    "chain": lambda b: b.mT[1:].unsqueeze(0),
    "expanded": lambda b: b[:1].expand(2, 3),
    "split": lambda b: b.split(1)[1],
    "unbind": lambda b: b.unbind(0)[0],
    "chunk": lambda b: b.chunk(2)[1],
    "of a split": lambda b: b.split(1)[1][0],
    "split of a view": lambda b: b.mT.split(2)[1],
    "diagonal": lambda b: b.diagonal(),
    "copied": lambda b: b.mT.reshape(-1),
    "detached": lambda b: b.detach()[0],
}


def every_view(torch: Any, use: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """What a program gives for each kind of view, or how it fails."""
    return {name: outcome(lambda make=make: use(torch, make)) for name, make in VIEWS.items()}


@program
def changes_without_a_derivative_of_views_of_plain_tensors(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        b = torch.arange(6.0).view(2, 3)
        v = make(b)
        with torch.no_grad():
            unseen = make(b)
        return v.logical_not_().tolist(), unseen.eq_(1).tolist(), b.tolist()

    return every_view(torch, use)


@program
def changes_without_a_derivative_of_views_of_intermediates(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        v = make(b)
        with torch.no_grad():
            unseen = make(b)
        return outcome(lambda: v.eq_(1).tolist()), outcome(lambda: unseen.ge_(1).tolist())

    return every_view(torch, use)


@program
def hooks_of_large_views_that_functions_of_one_tensor_change(torch: Any) -> Any:
    x, b = inner(torch, 64, 1024)
    w = b.view(128, 512)
    w.register_hook(lambda g: g * 2)
    w.exp_()
    b.sum().backward()
    return x.grad.sum().item(), b.sum().item()


@program
def changes_of_views_whose_base_was_detached(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        v = make(b)
        changed = outcome(lambda: b.detach_().tolist())
        seen = outcome(lambda: (v.requires_grad, v.is_leaf))
        return changed, seen, outcome(lambda: v.mul_(2).tolist()), b.tolist()

    return every_view(torch, use)


@program
def changes_by_a_detached_alias(torch: Any) -> Any:
    x, y = inner(torch, 2, 3)
    w = y.detach()
    y.mul_(w)  # saves what it has just overwritten
    return outcome(lambda: y.sum().backward()), None if x.grad is None else x.grad.tolist()


@program
def changes_of_tensors_repeated_once(torch: Any) -> Any:
    a = torch.arange(3.0)
    return a.expand(1, 3).add_(1).tolist(), a.expand(1, 1, 3).mul_(a).tolist(), a.tolist()


@program
def a_stale_view_that_is_looked_at_without_recording(torch: Any) -> Any:
    _, b = inner(torch, 2, 3)
    v = b[0]
    b.mul_(2)
    with torch.no_grad():
        known = v.grad_fn is not None
        y = v * 2
    return known, y.requires_grad, v.requires_grad, (v * 2).requires_grad


@program
def views_outside_of_an_inference_block_inside_another(torch: Any) -> Any:
    with torch.inference_mode(), torch.inference_mode(False):
        x, b = inner(torch, 2, 3)
        v = b[0]
        v.mul_(2)
        b.sum().backward()
    return x.grad.tolist(), v.is_inference()


@program
def views_of_inference_tensors(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        with torch.inference_mode():
            b = torch.arange(6.0).view(2, 3)
        return make(b).is_inference()

    return every_view(torch, use)


@program
def views_without_recording_of_a_leaf(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        with torch.no_grad():
            v = make(x)
        seen = v.requires_grad, v.is_leaf
        v.mul_(2)
        return seen, v.tolist(), x.tolist()

    return every_view(torch, use)


@program
def views_without_recording_of_an_intermediate(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        with torch.no_grad():
            v = make(b)
        seen = v.requires_grad, v.is_leaf
        v.mul_(2)
        return seen, v.tolist(), b.tolist()

    return every_view(torch, use)


@program
def views_of_views_without_recording(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        with torch.no_grad():
            between = b.view(2, 3)
        v = make(between)
        seen = v.requires_grad, v.is_leaf
        # Which of two broken rules is named, that of parts or that of no_grad, is not compared.
        return seen, v.tolist(), outcome(lambda: v.mul_(2).tolist())[0]

    return every_view(torch, use)


@program
def views_without_recording_of_views(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        between = b.view(2, 3)
        with torch.no_grad():
            v = make(between)
        seen = v.requires_grad, v.is_leaf
        v.mul_(2)
        return seen, v.tolist(), b.tolist()

    return every_view(torch, use)


@program
def views_without_recording_changed_without_recording(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        with torch.no_grad():
            v = make(b)
            v.mul_(2)
        b.sum().backward()
        return v.tolist(), b.tolist(), x.grad.tolist()

    return every_view(torch, use)


@program
def views_without_recording_of_constants(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 1)
        b = torch.ones(2, 3, dtype=torch.float64)
        with torch.no_grad():
            v = make(b)
        seen = v.requires_grad, v.is_leaf
        v.add_(3)
        first = v.tolist(), b.tolist()
        return seen, first, outcome(lambda: v.mul_(x).tolist()), b.requires_grad

    return every_view(torch, use)


@program
def views_of_a_leaf(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        make(x).mul_(2)
        return x.tolist()

    return every_view(torch, use)


@program
def views_of_a_leaf_that_is_a_view(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = torch.arange(12.0).reshape(2, 2, 3)[1].requires_grad_()
        make(x).mul_(2)
        return x.tolist()

    return every_view(torch, use)


@program
def views_of_a_leaf_detached(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        v = make(x.detach())
        v.mul_(2)
        y = (x * x).sum()
        y.backward()
        return x.tolist(), v.requires_grad, x.grad.tolist()

    return every_view(torch, use)


@program
def views_that_become_part_of_the_graph(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        w, b = leaf(torch, 1), torch.ones(2, 3, dtype=torch.float64)
        v, other = make(b), b[1:]
        v.mul_(w)
        seen = v.requires_grad, v.is_leaf, b.requires_grad, b.is_leaf, other.requires_grad
        (b * torch.arange(6.0).view(2, 3)).sum().backward()
        return seen, w.grad.tolist(), b.tolist(), other.grad_fn is None

    return every_view(torch, use)


@program
def views_read_after_their_base_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        v = make(b)
        b.mul_(3)
        (v * 2).sum().backward()
        return v.requires_grad, v.tolist(), x.grad.tolist()

    return every_view(torch, use)


@program
def views_without_recording_read_after_their_base_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        _, b = inner(torch, 2, 3)
        with torch.no_grad():
            v = make(b)
        b.mul_(3)
        return v.tolist(), v.grad_fn is None

    return every_view(torch, use)


@program
def views_read_after_a_sibling_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        v = make(b)
        b[:, :2].mul_(3)
        v.sum().backward()
        return v.tolist(), x.grad.tolist()

    return every_view(torch, use)


@program
def constant_views_read_after_their_base_joined_the_graph(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        w, b = leaf(torch, 1), torch.ones(2, 3, dtype=torch.float64)
        v = make(b)
        b.mul_(w)
        seen = v.requires_grad
        v.sum().backward()
        return seen, w.grad.tolist()

    return every_view(torch, use)


@program
def views_with_hooks_and_kept_gradients_changed_in_place(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        log: list[Any] = []
        x, b = inner(torch, 2, 3)
        v = make(b)
        v.retain_grad()
        b.retain_grad()
        v.register_hook(lambda g: log.append(("view before", g.tolist())))
        b.register_hook(lambda g: log.append(("base before", g.tolist())))
        v.mul_(3)
        v.register_hook(lambda g: log.append(("view after", g.tolist())))
        b.register_hook(lambda g: log.append(("base after", g.tolist())))
        (b * torch.arange(6.0).view(2, 3)).sum().backward(retain_graph=True)
        (v * 2).sum().backward()
        kept = None if v.grad is None else v.grad.tolist()
        return sorted(log, key=str), kept, b.grad.tolist(), x.grad.tolist(), v.retains_grad

    return every_view(torch, use)


@program
def kept_gradients_of_views_whose_base_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        v = make(b)
        v.retain_grad()
        b.retain_grad()
        b.mul_(3)
        (v * 2).sum().backward()
        kept = None if v.grad is None else v.grad.tolist()
        return kept, b.grad.tolist(), x.grad.tolist(), v.retains_grad

    return every_view(torch, use)


@program
def kept_gradients_of_two_tensors_of_one_node(torch: Any) -> Any:
    x, b = inner(torch, 3)
    b.retain_grad()
    old = b.grad_fn
    b.mul_(2)
    b.exp_()
    b.sum().backward()
    return b.grad.tolist(), x.grad.tolist(), type(old).__name__, type(b.grad_fn).__name__


@program
def a_kept_gradient_beside_another_of_the_same_node(torch: Any) -> Any:
    x, b = inner(torch, 3)
    twin = b.view(3)
    twin.retain_grad()
    b.retain_grad()
    twin.mul_(2)
    (b + twin).sum().backward()
    return b.grad.tolist(), twin.grad.tolist(), x.grad.tolist()


@program
def constant_views_without_recording_whose_base_joined_the_graph(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        w, b = leaf(torch, 1), torch.ones(2, 3, dtype=torch.float64)
        with torch.no_grad():
            v = make(b)
        b.mul_(w)
        seen = v.requires_grad
        v.sum().backward()
        return seen, w.grad.tolist()

    return every_view(torch, use)


@program
def views_that_are_leaves_whose_base_joined_the_graph(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        w, b = leaf(torch, 1), torch.ones(2, 3, dtype=torch.float64)
        v = make(b).requires_grad_()
        b.mul_(w)
        seen = v.requires_grad, v.is_leaf
        (v * 2).sum().backward()
        return seen, [None if t.grad is None else t.grad.tolist() for t in (v, w)]

    return every_view(torch, use)


@program
def views_that_are_leaves_whose_base_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        b = torch.ones(2, 3, dtype=torch.float64)
        v = make(b).requires_grad_()
        b.mul_(3)
        seen = v.requires_grad, v.is_leaf
        (v * v).sum().backward()
        return seen, v.grad.tolist(), outcome(lambda: v.mul_(2)), outcome(lambda: b.mul_(v[0, 0]))

    return every_view(torch, use)


@program
def views_without_recording_of_a_leaf_that_changed_without_recording(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        with torch.no_grad():
            v = make(x)
            x.mul_(2)
        return v.tolist(), v.requires_grad, v.grad_fn is None, (v * 2).requires_grad

    return every_view(torch, use)


@program
def views_of_a_leaf_that_changed_without_recording(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        v = make(x)
        with torch.no_grad():
            x.mul_(2)
        (v * v).sum().backward()
        return v.tolist(), x.grad.tolist()

    return every_view(torch, use)


@program
def the_node_of_a_view_whose_base_changed(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        v = make(b)
        b.mul_(3)
        with torch.no_grad():
            seen = v.requires_grad, v.is_leaf, v.grad_fn is v.grad_fn
        v.sum().backward()
        return seen, x.grad.tolist()

    return every_view(torch, use)


@program
def gradients_that_nobody_asked_to_keep(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x, b = inner(torch, 2, 3)
        b.mul_(2)
        v = make(b)
        v.mul_(2)
        w = make(b)
        b.exp_()
        (b.sum() + v.sum() + w.sum()).backward()
        return [(t.retains_grad, t.grad) for t in (b, v, w)], x.grad.tolist()

    return every_view(torch, use)


@program
def a_leaf(torch: Any) -> Any:
    x = leaf(torch, 3)
    said = outcome(lambda: x.mul_(2))
    with torch.no_grad():
        x.mul_(2)
    version = x._version
    x.detach().floor_()
    return said, x.tolist(), version, outcome(lambda: x.floor_()), x._version


@program
def ops_without_a_gradient_on_views_and_leaves(torch: Any) -> Any:
    def use(torch: Any, make: Any) -> Any:
        x = leaf(torch, 2, 3)
        said = outcome(lambda: make(x).eq_(2).tolist())
        x, b = inner(torch, 2, 3)
        v = make(b)
        v.eq_(2)
        b.sum().backward()
        return said, b.tolist(), x.grad.tolist()

    return every_view(torch, use)


@program
def elements_that_share_memory(torch: Any) -> Any:
    one = torch.ones(3)
    found = []
    for make in (
        lambda: torch.ones(1).expand(3),
        lambda: torch.ones(3, 1).expand(3, 2),
        lambda: torch.ones(1).expand(1),
        lambda: torch.ones(1, 3).expand(1, 3),
        lambda: torch.ones(0, 1).expand(0, 3),
        lambda: torch.ones(1).expand(2, 1)[:1],
        lambda: torch.ones(1).expand(2, 3)[:0],
    ):
        x = make()
        found.append(outcome(lambda x=x: x.add_(1).tolist()))
        found.append(outcome(lambda x=x: x.zero_().tolist()))
        found.append(outcome(lambda x=x: x.copy_(torch.ones(())).tolist()))
    return found, one.tolist()


@program
def inputs_that_overlap_what_is_written(torch: Any) -> Any:
    found = []
    for target, other in (
        ("x[:3]", "x[:3]"),
        ("x[:3]", "x[1:4]"),
        ("x[1:4]", "x[:3]"),
        ("x[:3]", "x[3:]"),
        ("x[3:]", "x[:3]"),
        ("x[:3]", "x[2:5]"),
        ("x[2:5]", "x[:3]"),
        ("x[:1]", "x[:1]"),
        ("x[:2]", "x[:1]"),
        ("x[:4].view(2, 2)", "x[:4].view(2, 2)"),
        ("x[:4].view(2, 2)", "x[:4].view(2, 2).mT"),
        ("x[::2]", "x[1::2]"),
        ("x[:3]", "x[::2]"),
        ("x[:0]", "x[:1]"),
        ("x[:3]", "x[:3].clone()"),
    ):
        for code in (f"{target}.add_({other})", f"{target}.addcmul_({target}, {other})"):
            x = torch.arange(6.0)
            found.append(
                (code, outcome(lambda c=code, x=x: eval(c, {"x": x}).tolist()), x.tolist())
            )
    return found


@program
def results_that_do_not_fit(torch: Any) -> Any:
    return [
        outcome(call)
        for call in (
            lambda: torch.ones(3).add_(torch.ones(2, 3)),
            lambda: torch.ones(1).add_(torch.ones(3)),
            lambda: torch.ones(3).add_(torch.ones(1)).tolist(),
            lambda: torch.ones(3, dtype=torch.int64).add_(torch.ones(3)),
            lambda: (
                torch.ones(3, dtype=torch.int32).add_(torch.ones(3, dtype=torch.int64)).tolist()
            ),
            lambda: torch.ones(3).add_(torch.ones(3, dtype=torch.float64)).dtype == torch.float32,
            lambda: torch.ones(3).add_(torch.ones(3, dtype=torch.complex64)),
            lambda: torch.ones(3, dtype=torch.bool).add_(torch.ones(3, dtype=torch.int64)),
            lambda: torch.ones(3, dtype=torch.float16).mul_(torch.ones(3)).tolist(),
            lambda: torch.ones(3, dtype=torch.bfloat16).mul_(torch.full((3,), 2.5)).tolist(),
            lambda: torch.ones(3, dtype=torch.uint8).add_(torch.full((3,), -3)).tolist(),
            lambda: torch.ones(3, dtype=torch.int8).mul_(torch.full((3,), 300)).tolist(),
        )
    ]


@program
def a_refused_change_leaves_everything_as_it_was(torch: Any) -> Any:
    x = torch.ones(3)
    said = outcome(lambda: x.add_(torch.ones(2, 3)))
    whole = torch.ones(3, dtype=torch.int64)
    outcome(lambda: whole.mul_(torch.full((3,), 2.5)))
    return said, x.tolist(), x._version, whole.tolist(), whole._version


@program
def saved_values_overwritten(torch: Any) -> Any:
    def attempt(use: Callable[[Any, Any], Any]) -> Any:
        x, b = inner(torch, 3)
        y = use(x, b)
        return outcome(lambda: (y.sum().backward(), x.grad.tolist())[1])

    def after(value: Any, change: Callable[[Any], Any], b: Any) -> Any:
        change(b)
        return value

    return [
        attempt(use)
        for use in (
            lambda x, b: after(b * b, lambda b: b.add_(1), b),
            lambda x, b: after(b * 2, lambda b: b.add_(1), b),
            lambda x, b: after(b.exp(), lambda b: b.add_(1), b),
            lambda x, b: after(b.sin(), lambda b: b.add_(1), b),
            lambda x, b: after(b.sin(), lambda b: b[0].add_(1), b),
            lambda x, b: after(b[0].sin(), lambda b: b[1].add_(1), b),
            lambda x, b: b.mul_(b),
            lambda x, b: b.mul_(b[0]),
            lambda x, b: b[0].mul_(b[1]),
            lambda x, b: b.mul_(b.detach()),
            lambda x, b: b.mul_(b.view(3)),
            lambda x, b: b.exp_().mul_(2),
            lambda x, b: b.sin_().add_(1),
            lambda x, b: b.sigmoid_().sin_().exp_(),
            lambda x, b: b.div_(b.clone()),
            lambda x, b: b.pow_(2).pow_(3),
            lambda x, b: b.clone().div_(b),
            lambda x, b: b.addcmul_(b, b),
            lambda x, b: b.copy_(b * 2),
            lambda x, b: x.clone().mul_(x),
            lambda x, b: after(x.clone().mul_(b), lambda b: b.add_(1), b),
            lambda x, b: after(x.clone().add_(b), lambda b: b.add_(1), b),
        )
    ]


@program
def changes_of_parts_one_after_the_other(torch: Any) -> Any:
    x, b = inner(torch, 2, 3)
    first, second = b[0], b[:, 1]
    first.mul_(2)
    second.exp_()
    first.add_(b[1] * 2)
    b.mT[0].sin_()
    second.mul_(first[0])
    total = (b * torch.arange(6.0).view(2, 3)).sum() + first.sum() * second.sum()
    total.backward()
    return b.tolist(), x.grad.tolist(), b._version, first._version


@program
def second_derivatives_of_changes_of_parts(torch: Any) -> Any:
    x, b = inner(torch, 2, 3)
    b[0].sin_()
    b[:, 1].mul_(b[:, 0])
    (g,) = torch.autograd.grad((b**3).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return g.tolist(), x.grad.tolist()


@program
def new_shapes_in_place(torch: Any) -> Any:
    x, b = inner(torch, 2, 3)
    v = b[0]
    w = v[1:]
    b.t_()
    v.unsqueeze_(0)
    u = v.mT
    u.mul_(2)
    w.mul_(3)
    b.squeeze_().unsqueeze_(1)
    b.retain_grad()
    (b * 2).sum().backward()
    return b.grad.tolist(), x.grad.tolist(), v.tolist(), w.tolist(), u.tolist()


@program
def complex_numbers_and_their_parts(torch: Any) -> Any:
    x = leaf(torch, 3)
    c = torch.complex(x, x * 2)
    c.mul_(c.clone())
    torch.view_as_real(c)[0].mul_(3)
    c.real.add_(1)
    (c.abs() ** 2).sum().backward()
    return x.grad.tolist(), c.tolist()


@program
def large_tensors_written_over(torch: Any) -> Any:
    """Functions of one large tensor, which native code may write in place."""
    names = ("exp_", "sin_", "sigmoid_", "neg_", "relu_", "sqrt_", "square_", "floor_", "abs_")
    found = []
    for name in names:
        for make in (lambda b: b, lambda b: b[1:], lambda b: b.view(300, 200), lambda b: b[::2]):
            for tracked in (False, True):
                x = torch.linspace(0.1, 2, 60_000, dtype=torch.float64, requires_grad=tracked)
                b = x * 1
                if tracked:
                    b.register_hook(lambda g: None)
                v = make(b)
                saved = v.cos()
                at = v.data_ptr()
                assert getattr(v, name)() is v
                w = b[:5] * 2
                found.append(
                    (name, v.data_ptr() == at, v._version, b[:5].tolist(), v.requires_grad)
                )
                if tracked:
                    (b[-4:] * torch.arange(1.0, 5)).sum().backward(retain_graph=True)
                    found.append((x.grad[:3].tolist(), x.grad[-5:].tolist(), v.is_leaf))
                    (w.sum() + v[3]).backward()
                    found.append(x.grad[:9].tolist())
                    found.append(outcome(lambda saved=saved: saved.sum().backward()))
    return found


@program
def forward_derivatives_of_changes_in_place(torch: Any) -> Any:
    ad = torch.autograd.forward_ad

    def attempt(change: Callable[[Any, Any], Any], with_graph: bool) -> Any:
        x, t, s = (
            torch.tensor(v, dtype=torch.float64, requires_grad=with_graph)
            for v in ([1.0, 2.0, 3.0], [3.0, 5.0, 7.0], [2.0, 4.0, 8.0])
        )
        a, b = ad.make_dual(x * 2, t * 1), ad.make_dual(x + 3, s * 1)
        y = change(a, b)
        found: list[Any] = []
        for value, tangent in map(ad.unpack_dual, (a, b, y)):
            found.append((value.tolist(), None if tangent is None else tangent.tolist()))
        if tangent is not None and tangent.requires_grad:
            grads = torch.autograd.grad(tangent.sum() + y.sum(), [x, t, s], allow_unused=True)
            found.append([None if g is None else g.tolist() for g in grads])
        return found

    with ad.dual_level():
        return [
            outcome(lambda change=change, with_graph=with_graph: attempt(change, with_graph))
            for change in (
                lambda a, b: a.mul_(b),
                lambda a, b: a.mul_(2),
                lambda a, b: a.exp_(),
                lambda a, b: a[0].mul_(b[1]),
                lambda a, b: a.view(3).mul_(b),
                lambda a, b: a.floor_(),
                lambda a, b: a.eq_(b),
                lambda a, b: a.view(3).mul_(a.detach() + b),
                lambda a, b: a.copy_(b),
                lambda a, b: a.fill_(1.0),
                lambda a, b: a.detach().mul_(b),
                lambda a, b: a.addcmul_(b, b),
                lambda a, b: b.detach().clone().mul_(a),
            )
            for with_graph in (False, True)
        ]


CHANGES = """
b.add_(1)
b.mul_(b.detach().clone())
b.exp_()
b.zero_()
b.fill_(2)
b.copy_(b.detach() * 2)
b.uniform_()
b.normal_()
b.clamp_(0, 1)
b.masked_fill_(b > 0, 0)
b[0] = 1
b[b > 0] = 1
b[[0, 1]] = 1
b += 1
b[:1].mul_(2)
b.index_fill_(0, torch.tensor([0]), 1)
b.addcmul_(b.detach(), b.detach())
torch.nn.functional.relu(b, inplace=True)
torch.add(b, 1, out=b)
torch.nn.init.ones_(b)
"""


@program
def own_elements_as_values(torch: Any) -> Any:
    """One element of a tensor, given as the value to put, is read before anything is written."""
    index = torch.tensor([0, 2])
    changes = (
        lambda a: a.fill_(a[2]),
        lambda a: a[:2].fill_(a[3]),
        lambda a: a.index_fill_(0, index, a[1]),
        lambda a: a.masked_fill_(a > 2, a[1]),
        lambda a: a.__setitem__(a > 2, a[1]),
        lambda a: a.__setitem__(a > 2, a[1:2]),
        lambda a: a.index_put_((a > 2,), a[3]),
        lambda a: a.index_put_((a > 2,), a[3], accumulate=True),
        lambda a: a.__setitem__(index, a[1]),
        lambda a: a.index_fill_(0, a.long() * 0, a[1]),
    )

    def changed(change: Callable[[Any], Any], tracked: bool) -> Any:
        x = leaf(torch, 4)
        a = x * 1 if tracked else x.detach().clone()
        change(a)
        if tracked:
            (a * a).sum().backward()
        return a.tolist(), x.grad.tolist() if tracked else None

    return [
        outcome(lambda change=change, tracked=tracked: changed(change, tracked))
        for change in changes
        for tracked in (False, True)
    ]


@pytest.mark.parametrize("size", [3, 60_000])
@pytest.mark.parametrize("code", CHANGES.strip().splitlines())
def test_an_error_names_the_change_and_its_line(code: str, size: int) -> None:
    x = weft.linspace(0.5, 1.5, size, requires_grad=True)
    b = x * 1
    twin = weft.ones(size, requires_grad=True)
    y = b.sin() * twin * b
    scope: dict[str, Any] = {"torch": weft}
    exec(
        compile(f"def outer(b):\n    inner(b)\n\ndef inner(b):\n    {code}\n", "my.py", "exec"),
        scope,
    )
    with weft.no_grad():
        scope["outer"](b)
        weft.ones(3).add_(1)
    with pytest.raises(RuntimeError, match=r"overwritten by \w+_ at my.py:5 \(1 version"):
        y.sum().backward()


def test_an_error_names_the_last_change_and_their_number() -> None:
    x = weft.ones(3, requires_grad=True)
    b = x * 1
    y = b.sin()
    with weft.no_grad():
        for _ in range(29):
            b.add_(1)
        b.mul_(2)
    with pytest.raises(RuntimeError, match=r"overwritten by mul_ at .* \(30 version\(s\) later\)"):
        y.sum().backward()
    assert b._version == 30
    assert [change[:2] for change in b._vc[1:]] == [
        *((k, "add") for k in range(23, 30)),
        (30, "mul"),
    ]


def test_an_error_names_the_change_of_the_value_that_was_changed() -> None:
    """Also if another saved value was changed before it was saved."""
    a, b = (weft.ones(3, requires_grad=True) * 1 for _ in range(2))
    b.add_(1)
    y = a * b
    a.detach().mul_(2)
    with pytest.raises(RuntimeError, match=r"overwritten by mul_ at .* \(1 version\(s\) later\)"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_both_systems_agree(function: Callable[[Any], Any], hooked: bool) -> None:
    outcomes = []
    for torch in (oracle, weft):
        if hooked:
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
                outcomes.append(outcome(lambda torch=torch: function(torch)))
        else:
            outcomes.append(outcome(lambda torch=torch: function(torch)))
    assert rounded(outcomes[0]) == rounded(outcomes[1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda b: b.split(1)[1], "Output 1 of Split{} is a view and {}. This view is the output"),
        (
            lambda b: b.unbind(0)[0],
            "Output 0 of Unbind{} is a view and {}. This view is the output",
        ),
    ],
)
def test_refusals_name_the_view(make: Callable[[Any], Any], words: str) -> None:
    """As torch's words do, but for the digits behind the name of the node."""
    for change, how in (("view", "is being modified inplace"), ("base", "its base or another")):
        texts = []
        for torch in (oracle, weft):
            b = leaf(torch, 2, 3) * 1
            v = make(b)
            with pytest.raises(RuntimeError) as error:
                if change == "view":
                    v.mul_(2)
                else:
                    b.mul_(2)
                    _ = v.grad_fn
            texts.append(str(error.value))
        for text in texts:
            assert all(part in text for part in words.split(" is a view")[0].split("{}"))
            assert how in text
        assert texts[1].startswith("mul_: ") == (change == "view")


def test_refusals_name_the_function_and_the_mode() -> None:
    b = leaf(weft, 2, 3) * 1
    with weft.no_grad():
        v = b[0]
    with pytest.raises(RuntimeError, match=r"^mul_: A view was created in no_grad mode and is be"):
        v.mul_(2)
    b.mul_(2)
    with pytest.raises(RuntimeError, match=r"^A view was created in no_grad mode and its base or"):
        _ = v.grad_fn

    class Alias(weft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(RuntimeError, match=r"^mul_: Output 0 of Alias is a view and is being mod"):
        Alias.apply(leaf(weft, 2, 3) * 1).mul_(2)
    y = leaf(weft, 2, 3) * 1
    y.mul_(y.detach())
    with pytest.raises(RuntimeError, match=r"overwritten by mul_ at .*\(1 version\(s\) later\)"):
        y.sum().backward()
