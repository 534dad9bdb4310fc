"""Long runs are left out unless they are asked for by ``-m deep``."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("WEFT_TRACEBACK", "full")  # a failing test of weft is about weft's frames

# Workers share the processors: threads that spin while they wait would take time from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest

from weft.compat import distribution

# Under some hypervisors processors announce AMX and then refuse it: torch's oneDNN dies of it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A shell starts what runs in its background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    if distribution.active().kind in ("weft", "partial"):
        pytest.exit(
            "torch is weft in this environment, so that weft would be compared with itself; "
            "run `weft torch remove`, and `pip install torch==2.13.0` for the parity tests",
            returncode=4,
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("deep")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
