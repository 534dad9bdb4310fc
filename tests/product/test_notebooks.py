"""The notebooks run, and show what is kept in them."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import site_notebooks  # noqa: E402

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_prints(path: pathlib.Path) -> None:
    pytest.importorskip("IPython")
    kept = [site_notebooks.shown(cell) for cell in site_notebooks.cells(path)]
    assert site_notebooks.run(path) == kept
    assert sum(bool(text) for text in kept) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_nothing_of_a_machine(path: pathlib.Path) -> None:
    document = json.loads(path.read_text())
    assert document["nbformat"] == 4
    assert set(document["metadata"]) == {"kernelspec", "language_info"}
    for cell in document["cells"]:
        assert not cell["metadata"]
        if cell["cell_type"] == "code":
            assert cell["execution_count"] is None
            assert all(output["output_type"] == "stream" for output in cell["outputs"])
            assert "/" not in site_notebooks.shown(cell).replace("bytes,", "")


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["the_graph", "tutorial"]
