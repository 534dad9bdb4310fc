"""The training learns, and resumes exactly where it was stopped."""

from __future__ import annotations

from pathlib import Path

import train


def test_it_learns(tmp_path: Path) -> None:
    assert train.run(40, tmp_path, progress=False)["val_accuracy"] > 0.95


def test_it_resumes_exactly(tmp_path: Path) -> None:
    whole = train.run(4, tmp_path / "whole", progress=False)
    train.run(2, tmp_path / "parts", progress=False)
    parts = train.run(4, tmp_path / "parts", resume=True, progress=False)
    for name in ("loss", "val_loss", "val_accuracy"):
        assert parts[name] == whole[name]
