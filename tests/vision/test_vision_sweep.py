"""Every part of weft.vision beside torchvision itself, on random inputs."""

from __future__ import annotations

import pytest
import sweep

pytest.importorskip("torch")
pytest.importorskip("torchvision", reason="the sweep compares with torchvision itself")


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", list(sweep.PARTS))
def test_sweep(part: str) -> None:
    count = 1 if part in ("models", "detectors") else 10
    said: list[str] = []
    right, total = sweep.run(part, range(count), said.append)
    assert total > 0 and right == total, "\n".join(said)
