"""Logs for TensorBoard: real event files, written and read without TensorBoard.

>>> import weft as torch
>>> from weft.utils.tensorboard import SummaryWriter
"""

from __future__ import annotations

from weft.utils.tensorboard.reader import read
from weft.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter", "read"]
