"""Anomaly mode: remember where each op was called, and stop at the first NaN in backward."""

from __future__ import annotations

import warnings

from weft.core.modes import MODES, _Switch
from weft.ops import api


class set_detect_anomaly(_Switch):
    """Switch anomaly mode on or off, at once or for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        now = MODES.now
        self.previous = now.anomaly, now.anomaly_check_nan
        self.chosen = mode, check_nan
        self._enter()

    def _enter(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.chosen
        MODES.now.update()

    def _exit(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.previous
        MODES.now.update()


class detect_anomaly(_Switch):
    """A block in which backward names the op that made a NaN, and the line that called it."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def _enter(self) -> None:
        now = MODES.now
        self.previous = now.anomaly, now.anomaly_check_nan
        now.anomaly, now.anomaly_check_nan = True, self.check_nan
        now.update()

    def _exit(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.previous
        MODES.now.update()

    def _again(self) -> detect_anomaly:
        return self


@api.top
def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return MODES.now.anomaly


@api.top
def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode stops at NaN."""
    return MODES.now.anomaly_check_nan
