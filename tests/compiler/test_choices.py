"""What programs may choose of PyTorch's compiler: names, settings, and honest answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
from weft import compiler


def test_modes_are_those_of_pytorch() -> None:
    for mode in ("default", "reduce-overhead", "max-autotune"):
        assert weft.compile(lambda x: x + 1, mode=mode)(weft.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=r"Unrecognized mode=fast[\s\S]*test_choices.py"):
        weft.compile(lambda x: x, mode="fast")
    with pytest.raises(RuntimeError, match="both can't be specified"):
        weft.compile(lambda x: x, mode="default", options={"freezing": True})


def test_a_backend_that_gets_no_graph_is_named() -> None:
    def mine(graph: object, inputs: object) -> object:
        raise AssertionError("not called")

    with pytest.warns(UserWarning, match="does not support custom backends.*mine is not called"):
        double = weft.compile(lambda x: x * 2, backend=mine)
    assert double(weft.ones(2)).tolist() == [2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.compile(lambda x: x, backend="eager")


def test_the_default_backend_can_be_chosen() -> None:
    assert compiler.get_default_backend() == "inductor"
    compiler.set_default_backend("eager")
    try:
        step = weft.compile(lambda x: x + 1)
        step(weft.ones(1))
        assert step.learned.calls == 0  # it ran eagerly
        with pytest.raises(RuntimeError, match="unknown backend"):
            compiler.set_default_backend("fastest")
        assert compiler.get_default_backend() == "eager"
    finally:
        compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "inductor"


def test_requests_without_a_meaning_change_nothing() -> None:
    def plain(x: weft.Tensor) -> weft.Tensor:
        return x + 1

    assert compiler.substitute_in_graph(len)(plain) is plain
    assert compiler.nested_compile_region(plain) is plain
    assert compiler.nested_compile_region(max_reuse_entries=2)(plain) is plain
    assert compiler.save_cache_artifacts() is None
    assert compiler.load_cache_artifacts(b"code") is None
    assert compiler.set_enable_guard_collectives(True) is False
    assert compiler.set_enable_guard_collectives(False) is True
    assert compiler.skip_guard_on_globals_unsafe([1, 2]) == [True, True]
    assert "eager" in compiler.list_backends(None)
    assert "eager" not in compiler.list_backends()


def test_numpy_functions_take_tensors() -> None:
    norm = compiler.wrap_numpy(lambda pair, scale=1: {"norm": np.hypot(*pair) * scale})
    found = norm((weft.tensor([3.0]), weft.tensor([4.0])), scale=2)
    assert isinstance(found["norm"], weft.Tensor)
    assert found["norm"].tolist() == [10]


def test_explain_counts_programs_and_says_why_they_end() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        y = x.sin() + 1
        if y.sum() > 0:
            y = y * 2
        return y.cos()

    found = weft._dynamo.explain(f)(weft.ones(4))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 6)
    (reason,) = found.break_reasons
    assert "a value was read" in reason.reason
    assert "Graph Break Count: 1" in str(found)
    assert weft._dynamo.explain(f, weft.ones(4)).graph_count == 2


def test_switches_are_set_for_a_block() -> None:
    config = weft._dynamo.config
    before = dict(vars(config))
    with config.patch(verbose=True, brand_new=1):
        assert config.verbose
        assert config.brand_new == 1
    with config.patch("recompile_limit", 3):
        assert config.recompile_limit == 3

    @config.patch({"suppress_errors": True})
    def inside() -> bool:
        return config.suppress_errors

    assert inside()
    assert vars(config) == before
    weft._inductor.config.triton.unique_kernel_names = True


def test_the_older_name() -> None:
    @weft._dynamo.optimize("inductor")
    def double(x: weft.Tensor) -> weft.Tensor:
        return x * 2

    assert weft._dynamo.run(double)(weft.ones(2)).tolist() == [2, 2]
    assert isinstance(double, compiler.Compiled)
