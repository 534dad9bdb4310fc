"""The page on images runs, and so do short forms of the examples that read files."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_vision_data import write_cifar, write_idx

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_on_images_runs() -> None:
    path = ROOT / "docs" / "vision.md"
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
    assert len(blocks) >= 6
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), scope)


def test_examples_on_files(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is the extra 'vision'")
    for part in ("train", "t10k"):
        write_idx(tmp_path / "FashionMNIST" / "raw", 64, part)
    write_cifar(tmp_path / "cifar-10-batches-py")
    for name in ("fashion_mnist", "cifar10"):
        path = str(ROOT / "examples" / f"{name}.py")
        out = run(path, "--data", str(tmp_path), "--steps", "2")
        assert len(re.findall(r"^step \d+ loss \d", out, re.M)) == 2
        assert "of the test pictures right" in out
