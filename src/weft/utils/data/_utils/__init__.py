"""How samples become batches, and how batches come from other processes."""

from __future__ import annotations

from weft.utils.data._utils import collate, transport, worker

__all__ = ["collate", "transport", "worker"]
