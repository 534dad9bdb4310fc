"""The pages on training and watching, the example and the examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PAGES = {
    "training": (6, ["True\n", "log made the first NaN", "\n256\n"]),
    "watching": (4, ["[(0, 1.0), (1, 0.5), (2, 0.333)]", "['step', 'time', ", "(no module)"]),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs(name: str, tmp_path: pathlib.Path) -> None:
    count, expected = PAGES[name]
    text = (ROOT / "docs" / f"{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= count
    path = tmp_path / "page.py"
    path.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in expected:
        assert words in done.stdout, words
    for picture in re.findall(r"\((images/[^)]+)\)", text):
        assert (ROOT / "docs" / picture).exists()


def test_the_trainer_does_what_the_loop_by_hand_does(tmp_path: pathlib.Path) -> None:
    example = ROOT / "examples" / "trainer.py"
    done = subprocess.run(
        [sys.executable, example, "--epochs", "4", "--folder", "run"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the same weights to the last bit" in done.stdout
    share = re.search(r"epoch 4 .* (\d+\.\d)% right", done.stdout)
    assert share and float(share[1]) > 93
    assert (tmp_path / "run" / "last.pt").exists()


MODULES = [
    *("train", "train.callbacks", "train.seeding", "watching", "utils.tensorboard._crc"),
    "utils.tensorboard.writer",
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"weft.{module}"))
    assert results.attempted and not results.failed
