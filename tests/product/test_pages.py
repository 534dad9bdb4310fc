"""The code on the pages of the documentation runs, and prints what they show."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
from typing import Any

import pytest

import weft

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
# A block of code, and the block right behind it if that shows what is printed.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```$)?", re.S | re.M)
# Pages whose blocks follow one another, with the number of blocks that they have at least.
PAGES = {
    "tutorial": 11,
    "loading": 4,
    "performance": 3,
    "coming_from_pytorch": 3,
    "adding_a_kernel": 2,
    "adding_a_graph_pass": 4,
    "index": 1,
}


def run(code: str, scope: dict[str, Any], where: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), scope)
    return printed.getvalue()


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Any:
    """An empty folder to work in, and the settings as they were afterwards."""
    before, threads, state = os.getcwd(), weft.get_num_threads(), weft.get_rng_state()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
    weft.set_num_threads(threads)
    weft.set_rng_state(state)


def blocks(name: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / f"{name}.md").read_text())


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_and_prints_what_it_shows(name: str, folder: pathlib.Path) -> None:
    if name == "tutorial":
        pytest.importorskip("sklearn")
    found = blocks(name)
    assert len(found) >= PAGES[name]
    scope: dict[str, Any] = {"__name__": f"page_{name}"}
    for code, shown in found:
        printed = run(code, scope, f"{name}.md")
        if shown:
            assert printed.rstrip() == shown.rstrip(), code


RECIPES = [code for code, _ in blocks("cookbook")]


@pytest.mark.parametrize("number", range(1, len(RECIPES)))
def test_a_recipe_runs_by_itself(number: int, folder: pathlib.Path) -> None:
    run(RECIPES[0] + RECIPES[number], {"__name__": "recipe"}, "cookbook.md")
