"""Ops of one's own beside PyTorch's: schemas, calls, derivatives, batches, meta tensors."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import weft
from agreement import torch

LIBRARIES = (torch, weft)


def _annotated(T: Any, result: Any, **kinds: Any) -> Callable:
    """A decorator that gives a function annotations; ``Tensor`` stands for the library's."""

    def real(kind: Any) -> Any:
        if kind == "Tensor":
            return T.Tensor
        if kind == "Tensor?":
            return T.Tensor | None
        return list[T.Tensor] if kind == "Tensor[]" else kind

    def decorate(function: Any) -> Any:
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        made.__kwdefaults__ = function.__kwdefaults__
        made.__annotations__ = {k: real(v) for k, v in kinds.items()}
        if result != "none":
            made.__annotations__["return"] = real(result)
        return made

    return decorate


def _on_both(run: Callable[[Any], Any]) -> None:
    theirs, ours = run(torch), run(weft)
    assert ours == theirs


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].partition(" Got func with")[0]


def _raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {_first_line(error)}"
    return "nothing"


def test_schemas_of_functions() -> None:
    def schemas(T: Any) -> Any:
        @_annotated(
            T, "Tensor", x="Tensor", k=float, n=int, s=str, b=bool, o="Tensor?",
            sizes=Sequence[int] | None, e=float | None, kind=T.dtype,
        )  # fmt: skip
        def many(x, k, n=2, s="q", b=True, o=None, sizes=None, *, e=None, kind=T.float32):
            return x

        @_annotated(T, None, x="Tensor", ts="Tensor[]", number=int | float | bool)
        def changing(x, ts, number=1):
            return None

        @_annotated(T, tuple[T.Tensor, T.Tensor], x="Tensor")
        def two(x):
            return x + 1, x + 2

        infer = T.library.infer_schema
        return [
            infer(many, mutates_args=()),
            infer(changing, mutates_args=("x", "ts")),
            infer(changing, mutates_args="unknown"),
            infer(two, mutates_args=()),
            _raised(lambda: infer(lambda x: x, mutates_args=())),
            _raised(lambda: infer(_annotated(T, "none", x="Tensor")(two), mutates_args=())),
            _raised(lambda: infer(two, mutates_args=("no",))),
        ]

    _on_both(schemas)


def _scaled(T: Any, name: str) -> Any:
    @T.library.custom_op(f"custom_ops::{name}", mutates_args=())
    @_annotated(T, "Tensor", x="Tensor", k=float, n=int)
    def scaled(x, k, *, n=2):
        return x * k * n

    return scaled


def test_calls_are_bound_by_the_schema() -> None:
    def run(T: Any) -> Any:
        op = _scaled(T, "scaled")
        packet = T.ops.custom_ops.scaled
        x = T.ones(2)
        assert packet.default is op._opoverload and packet.default.overloadpacket is packet
        called = [op(x, 1.0), packet(x, k=2.0), packet.default(x, 1.0, n=3), op(k=1.0, x=x)]
        words = [str(op), str(packet), repr(packet), str(packet.default), packet.default.name()]
        more = [packet.overloads(), packet.default._schema.arguments[2].kwarg_only]
        wrong = [
            _raised(lambda: op(1, 2.0)),
            _raised(lambda: op(x)),
            _raised(lambda: op(x, 1.0, 2)),
            _raised(lambda: op(x, 1.0, n=2, m=2)),
            _raised(lambda: op(x, 1.0, m=2)),
            _raised(lambda: op(x, 1.0, k=2)),
        ]
        return [c.tolist() for c in called], words, more, wrong, str(packet.default._schema)

    _on_both(run)


def test_ops_by_schema_take_its_defaults_and_overloads() -> None:
    def run(T: Any) -> Any:
        library = T.library.Library("custom_ops_by_schema", "DEF")
        names = [library.define("f(Tensor x, int n=3) -> Tensor"), library.define(
            "f.two(Tensor x, Tensor y) -> Tensor"
        )]  # fmt: skip
        library.impl("f", lambda x, n=3: x + n, "CPU")
        library.impl("f.two", lambda x, y: x * y, "CPU")
        f = T.ops.custom_ops_by_schema.f
        x = T.full((2,), 5.0)
        found = [f(x), f(x, 1), f(x, x), f.two(x, x), f.default(x)]
        told = str(f.default._schema), str(f.two._schema), sorted(f.overloads())
        return names, [v.tolist() for v in found], told

    _on_both(run)


def test_derivatives_have_pytorchs_name_and_are_kept_once() -> None:
    def run(T: Any) -> Any:
        op = _scaled(T, "derived")
        y = op(T.ones(2, requires_grad=True), 2.0)
        before = y.grad_fn.name(), _raised(y.sum().backward)

        def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
            ctx.by = inputs[1] * keyword_only_inputs["n"]

        op.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=setup)
        x = T.ones(2, requires_grad=True)
        op(x, 2.0, n=5).sum().backward()
        return before, x.grad.tolist()

    _on_both(run)


def test_meta_tensors_need_a_fake_kernel() -> None:
    for T in LIBRARIES:
        op = _scaled(T, "fake")
        with pytest.raises(RuntimeError, match="no fake impl registered"):
            op(T.ones(2, device="meta"), 1.0)
        op.register_fake(lambda x, k, n=2: x.new_empty(7))
        assert op(T.ones(2, device="meta"), 1.0).shape == (7,)


def test_results_may_not_be_arguments() -> None:
    for T in LIBRARIES:

        @T.library.custom_op("custom_ops::same", mutates_args=())
        @_annotated(T, "Tensor", x="Tensor")
        def same(x: Any) -> Any:
            return x[:1]

        with pytest.raises(RuntimeError, match="may not alias any inputs"):
            same(T.ones(2))


def test_changed_arguments_count_as_changed() -> None:
    for T in LIBRARIES:

        @T.library.custom_op("custom_ops::filled", mutates_args=("x",))
        @_annotated(T, None, x="Tensor", y="Tensor")
        def filled(x: Any, y: Any) -> None:
            x.detach().numpy()[:] = 3

        x, y = T.zeros(2), T.ones(2, requires_grad=True)
        saved = y * x
        filled(x, y)
        assert x.tolist() == [3, 3]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()


def test_vmap_by_a_rule_and_by_slices() -> None:
    for T in LIBRARIES:
        calls = []

        @T.library.custom_op("custom_ops::squared", mutates_args=())
        @_annotated(T, "Tensor", x="Tensor")
        def squared(x: Any) -> Any:
            return x * x

        def rule(info: Any, in_dims: Any, x: Any, calls: Any = calls, op: Any = squared) -> Any:
            calls.append((info.batch_size, in_dims))
            return op(x), in_dims[0]

        squared.register_vmap(rule)
        x = T.arange(6.0).reshape(3, 2)
        assert T.vmap(squared)(x).tolist() == (x * x).tolist()
        assert calls == [(3, (0,))]
    op = _scaled(weft, "sliced")
    assert weft.vmap(lambda v: op(v, 2.0))(weft.ones(3, 2)).tolist() == [[4.0, 4.0]] * 3


def test_autocast_casts_what_was_registered() -> None:
    for T in LIBRARIES:
        op = _scaled(T, "cast")
        op.register_autocast("cpu", T.bfloat16)
        with T.autocast("cpu", dtype=T.bfloat16):
            assert op(T.ones(2), 1.0).dtype == T.bfloat16
        assert op(T.ones(2), 1.0).dtype == T.float32


def _calling_asked(T: Any) -> Callable:
    return lambda x: T.ops.custom_ops.asked(x, 2.0)


def test_types_and_tracers_are_asked() -> None:
    for T in LIBRARIES:
        _scaled(T, "asked")
        asked = []

        class Asking(T.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, asked=asked):
                asked.append(str(func))
                return 3

        packet = T.ops.custom_ops.asked
        assert packet(T.ones(2).as_subclass(Asking), 1.0) == 3
        assert asked == ["custom_ops.asked"]
        graph = T.fx.symbolic_trace(_calling_asked(T))
        assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [packet]
        assert graph(T.ones(1)).tolist() == [4.0]


def test_opcheck() -> None:
    op = _scaled(weft, "checked")
    x = weft.ones(2, requires_grad=True)
    found = weft.library.opcheck(op, (x, 2.0), raise_exception=False)
    assert found["test_schema"] == "SUCCESS"
    assert "no autograd formula" in str(found["test_autograd_registration"])
    assert "no fake impl" in str(found["test_faketensor"])
    op.register_autograd(lambda ctx, g: (g, None))
    op.register_fake(lambda x, k, n=2: x.new_empty(7))
    with pytest.raises(Exception, match=r"test_faketensor failed .* of shape \(7,\)"):
        weft.library.opcheck(op, (x, 2.0))
    op.register_fake(lambda x, k, n=2: x.new_empty(x.shape))
    assert set(weft.library.opcheck(op, (x, 2.0)).values()) == {"SUCCESS"}

    @weft.library.custom_op("custom_ops::secret", mutates_args=())
    @_annotated(weft, "Tensor", x="Tensor")
    def secret(x: Any) -> Any:
        return x.add_(1).clone()

    with pytest.raises(Exception, match="changes an argument"):
        weft.library.opcheck(secret, (weft.ones(1),), test_utils="test_schema")
