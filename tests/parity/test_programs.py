"""weft and torch must agree on random programs; and the programs must be able to tell."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

import programs
import weft
from opdb import torch
from program_steps import OPEN
from programs import Step

BLOCK = 100


def differences(first: int, count: int) -> str:
    """The reports of a range of seeds, as text."""
    found = [r for seed in range(first, first + count) if (r := programs.check(seed))]
    return "\n\n".join(f"# seed {r.seed}, {r.kind}: {r.text}\n{r.script}" for r in found)


@pytest.mark.parametrize("block", range(20))
def test_random_programs_agree_with_torch(block: int) -> None:
    assert not differences(block * BLOCK, BLOCK)


@pytest.mark.deep
@pytest.mark.parametrize("block", range(20, 300))
def test_many_random_programs_agree_with_torch(block: int) -> None:
    assert not differences(block * BLOCK, BLOCK)


@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("block", range(4))
def test_gradients_agree_with_finite_differences(block: int, order: int) -> None:
    found = [programs.slope_error(seed, order) for seed in range(block * 50, block * 50 + 50)]
    assert not [text for text in found if text]


@pytest.mark.parametrize("name", OPEN)
def test_known_differences_are_still_there(name: str) -> None:
    """Remove from ``OPEN`` what has been mended: programs then use it again."""
    found = programs.difference(steps(*OPEN[name][1]))
    assert found is not None, f"{name!r} is no difference any more"


# --- that they can tell ----------------------------------------------------------------


def steps(*codes: str) -> list[Step]:
    """Statements; those that begin with a name and = define it, the others have an effect."""
    made = []
    for code in codes:
        name, equals, _ = code.removeprefix("with torch.no_grad(): ").partition(" = ")
        new = tuple(name.split(", ")) if equals and name.replace(", ", "").isalnum() else ()
        made.append(Step(code, new, not new))
    return made


HOOKED = steps(
    "v0 = rand(1, (2, 3)).requires_grad_()",
    "v1 = v0 * 2",
    "v1.register_hook(lambda g: log.append(('h0', g)))",
    "(v1 * v0).sum().backward()",
    "v2 = v0.clone()",
    "v3 = torch.sin(v2)",
    "v3.mul_(2)",
    "pass",
)


def test_a_program_without_a_difference() -> None:
    assert programs.difference(HOOKED) is None


def _aliased(x: Any) -> Any:
    return x.view_as(x)


def _off_by_little(x: Any, f: Any = weft.sin) -> Any:
    return f(x) * (1 + 1e-5)


def _without_a_version(x: Any, value: Any) -> Any:
    x.data.copy_(x.detach() * value)
    return x


def _called_twice(x: Any, hook: Any, register: Any = weft.Tensor.register_hook) -> Any:
    register(x, hook)
    return register(x, hook)


def _refusing(x: Any, value: Any) -> Any:
    raise TypeError


FAULTS = {
    "memory": (weft.Tensor, "clone", _aliased),
    "value": (weft, "sin", _off_by_little),
    "version": (weft.Tensor, "mul_", _without_a_version),
    "hooks": (weft.Tensor, "register_hook", _called_twice),
    "error": (weft.Tensor, "mul_", _refusing),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_seen_as_what_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[kind])
    found = programs.difference(HOOKED)
    assert found is not None and found.kind == kind


class WrongTwice(weft.autograd.Function):
    """The cube, with a wrong second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3 * (ctx.saved_tensors[0] ** 2).detach()


def test_finite_differences_see_a_wrong_second_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(programs.names_for(weft), "Cube", WrongTwice)
    assert programs.slope_error(343, 1) is None
    assert "Cube.apply" in (programs.slope_error(343, 2) or "")


def test_what_rounding_explains_is_no_difference() -> None:
    chaotic = steps("v0 = rand(3, (4,))", *["v0 = 3.99 * v0.abs() % 1"] * 80)
    shaken = programs.run(chaotic, noise=5)[0]
    plain, _session = programs.run(chaotic)
    assert any(programs.compare(a, e) for a, e in zip(shaken, plain, strict=True))
    assert programs.shaky(chaotic, plain, len(chaotic) - 1)


def test_a_zero_that_rounding_explains_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One system may subtract two equal products where the other rounds one of them less."""
    counted = steps(
        "v0 = rand(3, (4,))",
        "v1 = v0 * v0",
        "v2 = v0 * v0",
        "v3 = torch.count_nonzero(torch.sub(v1, v2))",
    )
    nearly = lambda a, b, subtract=torch.sub: subtract(a * (1 + 1e-16), b + 1e-16)
    monkeypatch.setattr(torch, "sub", nearly)
    plain, theirs = programs.run(counted)
    assert programs.replay(counted, plain, theirs) is not None
    assert programs.difference(counted) is None


def test_a_failing_program_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft, "sin", _off_by_little)
    found = programs.difference(HOOKED)
    assert found is not None
    small, _, looks = programs.cut_down(HOOKED, found)
    assert [s.code.partition(" = ")[0] for s in small] == ["v0", "v2", "v3"]
    text = programs.script(small, looks)
    assert "def rand" in text and "class" not in text
    monkeypatch.undo()
    exec(compile(text, "<script>", "exec"), {})
