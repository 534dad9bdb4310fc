"""What all tests of native code share."""

from __future__ import annotations

import pytest

from weft.native.codegen import jit


@pytest.fixture(autouse=True)
def entry_points_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points are compiled when they are first called, so that tests run them."""
    monkeypatch.setattr(jit, "ENTRY_USES", 0)
