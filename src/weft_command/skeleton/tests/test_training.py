"""The training learns, and goes on exactly where it was stopped."""

from __future__ import annotations

from pathlib import Path

import train


def test_it_learns(tmp_path: Path) -> None:
    _, accuracy = train.run(epochs=40, checkpoint=tmp_path / "checkpoint.pt")
    assert accuracy > 0.95


def test_it_resumes_exactly(tmp_path: Path) -> None:
    whole = train.run(epochs=4, checkpoint=tmp_path / "whole.pt")
    train.run(epochs=2, checkpoint=tmp_path / "parts.pt")
    assert train.run(epochs=4, checkpoint=tmp_path / "parts.pt", again=True) == whole
