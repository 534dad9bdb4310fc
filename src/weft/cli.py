"""The command ``weft``, which lives in ``weft_command`` so that its help need not load weft."""

from __future__ import annotations

import sys

from weft_command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
