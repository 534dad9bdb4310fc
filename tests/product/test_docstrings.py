"""Docstrings: every public function says what it does, the most used show it, and it is true."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pathlib
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from weft.compat.names import look_up
from weft.operators import api

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import api_coverage as coverage

MOST_USED = 300
# Imported for what importing them does, or tested beside their pages.
APART = (
    *("weft.__main__", "weft.cli", "weft.compat", "weft.demo", "weft.graph"),
    *("weft.native", "weft.overrides", "weft.train", "weft.vision", "weft.viz", "weft.watching"),
)
OPTIONS = doctest.ELLIPSIS


def most_used() -> list[str]:
    """The names that programs use most, of those that weft has."""
    left_out = coverage.outside()
    names = sorted(coverage.read(coverage.TABLE), key=lambda n: -n.files)
    names = [n for n in names if not coverage.is_outside(n.name, left_out)]
    return [n.name for n in names if coverage.present(n.name)][:MOST_USED]


def documentation(name: str) -> str:
    """What ``help`` says of a name; of a plain value what it says of where the value stands."""
    owner, _, member = name.partition(".")
    if owner != "torch":
        kind = type(coverage._owners()[owner])
        found = inspect.getattr_static(kind, member, None)
        if found is None:  # set by __init__
            text = inspect.getdoc(kind.__mro__[-2]) or ""
            return text if member in text else ""
        return inspect.getdoc(found) or ""
    found = look_up(name)
    if isinstance(found, (bool, int, float)):
        home = importlib.import_module(name.rpartition(".")[0].replace("torch", "weft", 1))
        text = inspect.getdoc(home) or ""
        return text if name in text else ""
    return inspect.getdoc(found) or ""


def namespace(torch: Any) -> dict[str, Any]:
    """What the examples take as given: as in PyTorch's own documentation, the imports."""
    return {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}


def failures(text: str, name: str, scope: dict[str, Any]) -> str:
    """What is wrong with the examples of a docstring."""
    example = doctest.DocTestParser().get_doctest(text, scope, name, None, None)
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    report, state = io.StringIO(), scope["torch"].get_rng_state()
    with contextlib.redirect_stderr(io.StringIO()):
        runner.run(example, out=report.write, clear_globs=False)
    scope["torch"].set_rng_state(state)
    assert example.examples, f"{name} has no example"
    return report.getvalue()


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(weft.__path__, "weft."):
        if not found.name.startswith(APART):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                yield importlib.import_module(found.name)


def documented() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every docstring with an example, once: where it stands, itself, and its module's names."""
    seen = set()
    offered = [("torch", api.FUNCTIONS), ("torch.Tensor", vars(weft.Tensor))]
    offered += [(f"torch.{path}", names) for path, names in api.NAMESPACES.items()]
    for home, names in offered:
        for name, value in list(names.items()):
            text = inspect.getdoc(value) if callable(value) or isinstance(value, property) else ""
            if text and ">>>" in text and text not in seen:
                seen.add(text)
                yield f"{home}.{name}", text, {}
    for module in modules():
        for found in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
            text = inspect.cleandoc(found.docstring)
            if found.examples and text not in seen:
                seen.add(text)
                yield found.name, text, vars(module)


def test_every_public_function_says_what_it_does() -> None:
    offered = {"torch": api.FUNCTIONS, "torch.Tensor": vars(weft.Tensor)}
    offered |= {f"torch.{path}": names for path, names in api.NAMESPACES.items()}
    silent = [
        f"{home}.{name}"
        for home, names in offered.items()
        for name, value in names.items()
        if (inspect.isfunction(value) or isinstance(value, property))
        and not name.startswith(("_", "sym_"))
        and not inspect.getdoc(value)
    ]
    assert not silent


def test_the_most_used_names_show_an_example() -> None:
    names = most_used()
    assert len(names) == MOST_USED
    lacking = [name for name in names if ">>>" not in documentation(name)]
    assert not lacking


def test_examples_print_what_they_say() -> None:
    found = list(documented())
    assert len(found) > 230
    wrong = [
        report
        for name, text, scope in found
        if (report := failures(text, name, {**scope, **namespace(weft), "weft": weft}))
    ]
    assert not wrong, "\n".join(wrong)


def test_examples_of_the_most_used_names_print_the_same_on_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert torch is not weft
    importlib.import_module("torch.utils.benchmark")
    torch.set_printoptions(profile="default")  # other tests in this process may have changed it
    wrong, done = [], set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in most_used():
            text = documentation(name)
            # Examples of what only weft has name it; that of spawn would start torch once more.
            if "weft" in text or "spawn(" in text or text in done:
                continue
            done.add(text)
            if name.startswith("torch.backends"):
                continue  # torch's own test tables, in the same process, freeze its flags
            if report := failures(text, name, namespace(torch)):
                wrong.append(report)
    assert len(done) > 200
    assert not wrong, "\n".join(wrong)
