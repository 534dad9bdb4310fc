"""Small programs about views, leaves, hooks and ``inputs=``, run in torch and in weft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

oracle = pytest.importorskip("torch")
PROGRAMS: list[Callable[[Any], Any]] = []


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(function)
    return function


@program
def a_view_made_before_its_base_was_transposed(torch: Any) -> Any:
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    b = x * 1
    w = b[0]
    b.t_()
    (w * torch.tensor([1.0, 2.0])).sum().backward()
    return x.grad.tolist()


@program
def such_a_view_changed_in_place(torch: Any) -> Any:
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    b = x * 1
    w = b[0]
    b.t_()
    w.mul_(torch.tensor([5.0, 2.0]))
    (b * torch.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    return x.grad.tolist(), b.tolist(), w.tolist()


@program
def a_view_reshaped_and_changed_in_place(torch: Any) -> Any:
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    c = x * 1
    v = c.t()
    v.unsqueeze_(0)
    v.mul_(2)
    c.sum().backward()
    return x.grad.tolist(), list(v.shape)


@program
def a_part_of_a_leaf_that_is_a_view(torch: Any) -> Any:
    x = torch.arange(6.0).reshape(2, 3).mT.requires_grad_()
    x[0].neg_()


@program
def a_view_without_recording_of_a_leaf_that_is_a_view(torch: Any) -> Any:
    x = torch.arange(6.0).reshape(2, 3).mT.requires_grad_()
    with torch.no_grad():
        v = x[..., :1]
    return v.requires_grad


@program
def backward_from_a_view_made_without_recording(torch: Any) -> Any:
    x = torch.ones(2, 3).requires_grad_()
    with torch.no_grad():
        v = x[None]
    v.backward(torch.ones(1, 2, 3))


@program
def backward_from_a_part_of_a_view_made_without_recording(torch: Any) -> Any:
    x = torch.ones(1, 3).requires_grad_()
    v = x.squeeze()
    with torch.no_grad():
        w = v[:1]
    w.backward(torch.ones(1))


@program
def an_intermediate_among_the_inputs_of_backward(torch: Any) -> Any:
    x = torch.ones(4).requires_grad_()
    y = x + x
    z = y.sum()
    z.backward(inputs=[y])
    first = y.retains_grad, y.grad.tolist(), x.grad
    (y * 2).sum().backward()
    return first, y.grad.tolist(), x.grad.tolist()


@program
def its_node_runs_and_frees_what_it_saved(torch: Any) -> Any:
    x = torch.ones(4).requires_grad_()
    y = x * x
    z, other = y.sum(), y * 2
    z.backward(inputs=[y])
    other.sum().backward()


@program
def a_grad_with_history_after_a_plain_backward(torch: Any) -> Any:
    x = torch.ones(4).requires_grad_()
    (x**3).sum().backward(create_graph=True)
    x.sum().backward()
    return x.grad.requires_grad, x.grad.tolist()


@program
def zeros_for_an_unused_input_of_a_differentiable_grad(torch: Any) -> Any:
    x, y = torch.ones(4).requires_grad_(), torch.ones(2).requires_grad_()
    found = torch.autograd.grad(x.sum(), [x, y], create_graph=True, materialize_grads=True)
    return [(g.requires_grad, g.tolist()) for g in found]


@program
def parts_of_tensor_split_changed_in_place(torch: Any) -> Any:
    x = torch.ones(5).requires_grad_()
    b = x * 1
    parts = b.tensor_split(2)
    parts[0].neg_()
    b.sum().backward()
    return x.grad.tolist(), [p.tolist() for p in parts]


@program
def a_hook_on_a_root_that_leads_to_no_input(torch: Any) -> Any:
    log: list[Any] = []
    x, y = torch.ones(4).requires_grad_(), torch.ones(2).requires_grad_()
    z = x * 2
    z.register_hook(lambda g: log.append(g.tolist()))
    z.backward(torch.ones(4), inputs=[y])
    return log, x.grad, y.grad


@program
def a_hook_on_a_result_that_got_no_gradient(torch: Any) -> Any:
    log: list[Any] = []
    x = torch.ones(4).requires_grad_()
    p, q = x.split(2)
    q.register_hook(log.append)
    p.sum().backward()
    return log, x.grad.tolist()


@program
def a_new_shape_for_a_view_of_a_leaf(torch: Any) -> Any:
    torch.ones(2, 3).requires_grad_()[0].unsqueeze_(0)


@program
def a_new_shape_for_one_of_several_views(torch: Any) -> Any:
    (torch.ones(2, 2).requires_grad_() * 1).unbind(0)[0].unsqueeze_(0)


@program
def a_leaf_frozen_after_its_use(torch: Any) -> Any:
    x, y = torch.ones(3).requires_grad_(), torch.ones(3).requires_grad_()
    z = (x * y).sum()
    x.requires_grad_(False)
    z.backward()
    return x.grad, y.grad.tolist()


@program
def a_leaf_frozen_for_a_while_keeps_its_hooks(torch: Any) -> Any:
    log: list[Any] = []
    x = torch.ones(3).requires_grad_()
    x.register_hook(lambda g: log.append(g.tolist()))
    x.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.tolist()))
    x.requires_grad_(False)
    x.requires_grad_()
    (x * 2).sum().backward()
    return log


@program
def a_hook_on_an_input_on_the_way_to_another(torch: Any) -> Any:
    x = torch.arange(3.0).requires_grad_()
    v = x * 1
    v.register_hook(lambda g: g * 2)
    both = torch.autograd.grad((v + v).sum(), [x, v], retain_graph=True)
    alone = torch.autograd.grad((v + v).sum(), [v])
    return [g.tolist() for g in (*both, *alone)]


@program
def zeros_for_an_input_asked_for_twice(torch: Any) -> Any:
    x, y = torch.ones(3).requires_grad_(), torch.ones(2).requires_grad_()
    a, b = torch.autograd.grad(
        x.sum(), [y, y], materialize_grads=True, create_graph=True, allow_unused=True
    )
    return a is b, a.tolist(), b.requires_grad


@program
def a_backward_that_fails_keeps_nothing(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    v = x * 1
    try:
        torch.ones(3).sum().backward(inputs=[v])
    except RuntimeError:
        return v.retains_grad


@program
def a_view_of_a_base_that_was_detached_and_changed(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    b = x * 2
    v = b[0]
    b.detach_()
    b.sin_()
    v.sum().backward()
    return x.grad, v.requires_grad


@program
def one_of_several_views_of_a_base_that_was_detached_and_changed(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    b = x * 2
    v, _ = b.split([1, 2])
    b.detach_()
    b.sin_()
    return v.requires_grad, v.grad_fn


@program
def asking_for_an_output_that_was_not_used(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    a, b, c = (x * 1).unbind(0)
    c.retain_grad()
    y = torch.hypot(c, c)
    found = torch.autograd.grad(y, [a, b], allow_unused=True)
    assert found == (None, None)
    kept = c.grad.item()
    try:
        y.backward()
    except RuntimeError:
        return kept


@program
def a_norm_of_order_zero_has_no_gradient(torch: Any) -> Any:
    x = torch.tensor([1.0, 0.0, 2.0]).requires_grad_()
    (torch.linalg.vector_norm(x, 0) + torch.norm(x, 0) + torch.dist(x, torch.ones(3), 0)).backward()
    return x.grad


@program
def a_view_that_a_function_made_and_a_changed_base(torch: Any) -> Any:
    class Alias(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 10

    x = torch.ones(2).requires_grad_()
    b = x * 1
    v = Alias.apply(b)
    b.mul_(2)
    (v * 1).sum().backward()
    return x.grad.tolist()


@program
def a_view_of_a_leaf_that_is_a_view_and_was_changed(torch: Any) -> Any:
    x = torch.arange(8.0)[::2].requires_grad_()
    v = x[::2]
    w = v[...]
    with torch.no_grad():
        x.fill_(1)
    found = torch.autograd.grad((w * w - v).mean(), [x, w], allow_unused=True)
    return v.is_leaf, [None if g is None else g.tolist() for g in found]


@program
def hooks_of_the_node_that_accumulates(torch: Any) -> Any:
    x = torch.ones(2).requires_grad_()
    log: list[Any] = []
    node = (x * 2).grad_fn.next_functions[0][0]
    node.register_prehook(lambda g: (g[0] * 3,))
    node.register_hook(lambda gi, go: log.append((gi, go[0].tolist())))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return x.grad.tolist(), log


@program
def hooks_of_a_leaf_that_wants_no_gradient_any_more(torch: Any) -> Any:
    x = torch.ones(2).requires_grad_()
    log: list[Any] = []
    y = x * 2
    x.register_post_accumulate_grad_hook(lambda p: log.append(p.grad))
    x.register_hook(lambda g: log.append(g.tolist()))
    x.requires_grad_(False)
    y.sum().backward()
    return x.grad, log


@program
def a_checkpoint_whose_input_was_changed(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    y = torch.utils.checkpoint.checkpoint(lambda a: a.sin(), x, use_reentrant=False)
    with torch.no_grad():
        x.mul_(2)
    y.sum().backward()


@program
def averages_can_be_differentiated_once(torch: Any) -> Any:
    x = torch.ones(1, 1, 4, 4).requires_grad_()
    y = torch.nn.functional.avg_pool2d(x, 2)
    y.sum().backward()
    y.sum().backward()


@program
def both_extremes_are_one_node(torch: Any) -> Any:
    x = torch.tensor([2.0, 1.0, 3.0, 3.0]).requires_grad_()
    low, high = x.aminmax()
    (low + 2 * high).backward()
    return x.grad.tolist(), low.grad_fn is high.grad_fn, low.grad_fn.name()


@program
def results_that_are_no_views(torch: Any) -> Any:
    f, x = torch.nn.functional, torch.ones(1, 1, 2, 2)
    results = [
        *(f.pixel_shuffle(x, 1), f.pixel_unshuffle(x, 1), f.channel_shuffle(x, 1)),
        *(f.unfold(x, 1), torch.chain_matmul(x[0, 0]), torch.einsum("abcd->cd", x)),
    ]
    return [r.data_ptr() == x.data_ptr() for r in results]


@program
def asking_for_a_view_made_without_recording(torch: Any) -> Any:
    x = torch.ones(3).requires_grad_()
    with torch.no_grad():
        v = x[1:]
    y = v.sort(0)[0].sin()
    found = torch.autograd.grad(y.sum(), [v], allow_unused=True)
    y.sum().backward()
    return found, x.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_both_systems_agree(function: Callable[[Any], Any]) -> None:
    outcomes = []
    for torch in (oracle, weft):
        try:
            outcomes.append(function(torch))
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
