"""The page on graphs, the examples and the examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_page_runs(tmp_path):
    text = (ROOT / "docs" / "graph.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 10
    path = tmp_path / "page.py"
    path.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for expected in (
        "'2.linear'",
        "step 2 is not like step 1",
        "slope of sqrt is infinite at 0",
        "log made the first",
        "leak: `losses` holds 3 tensors",
        "outputs on the example are kept",
    ):
        assert expected in done.stdout, expected


EXPECTED = {
    "graph_compare": ["+ 2.dropout", "changes at [3, 4]"],
    "graph_edit": ["edits: replace 1.relu by silu; replace 3.relu by silu"],
    "graph_grow": ["0.weight: [4, 2] -> [32, 2]", "outputs on the example are kept"],
    "graph_nan": ["div made the first NaN", "unused: the loss does not depend on it"],
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_runs(name):
    path = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in EXPECTED[name]), done.stdout


@pytest.mark.parametrize(
    "module",
    ["build", "recording", "ruling", "selecting", "watching"],
    ids=lambda name: f"weft.graph.{name}",
)
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(f"weft.graph.{module}"))
    assert results.attempted and not results.failed
