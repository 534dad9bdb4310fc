"""Ops and derivative rules act on any type that joins ``VALUES``."""

from __future__ import annotations

import pytest

from weft.core.dispatch import REGISTRY, VALUES


class Term:
    """An expression that writes itself down."""

    shape, ndim = (), 0

    def __init__(self, text: str) -> None:
        self.text = text


def _write(op, args, attrs):
    given = [a.text if isinstance(a, Term) else repr(a) for a in args]
    given += [f"{name}={value!r}" for name, value in attrs.items()]
    return Term(f"{op.name}({', '.join(given)})")


for _symbol, _name in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div")):
    setattr(Term, f"__{_symbol}__", lambda a, b, name=_name: REGISTRY[name](a, b))
    setattr(Term, f"__r{_symbol}__", lambda a, b, name=_name: REGISTRY[name](b, a))
Term.__neg__ = lambda a: REGISTRY["neg"](a)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def joined():
    VALUES[Term] = _write
    yield
    del VALUES[Term]


def test_an_op_acts_on_a_type_that_joined():
    assert REGISTRY["exp"](Term("x")).text == "exp(x)"
    assert REGISTRY["mul"](2.0, Term("x")).text == "mul(2.0, x)"
    assert (
        REGISTRY["sum"](Term("x"), dim=(0,), keepdim=False).text
        == "sum(x, dim=(0,), keepdim=False)"
    )


def test_derivative_rules_act_on_it_too():
    rules = {name: REGISTRY[name].rules for name in ("exp", "tanh", "sqrt", "mul")}
    g, x, y = Term("g"), Term("x"), Term("y")
    assert rules["exp"][0](g, y).text == "mul(g, y)"
    assert rules["mul"][0](g, x).text == "mul(g, x)"
    assert "y" in rules["tanh"][0](g, y).text and "g" in rules["tanh"][0](g, y).text
    assert rules["sqrt"][0](g, y).text.count("y") == 1


def test_what_has_not_joined_is_refused():
    del VALUES[Term]
    with pytest.raises((TypeError, AttributeError)):
        REGISTRY["exp"](Term("x"))
    VALUES[Term] = _write
