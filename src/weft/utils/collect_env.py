"""``python -m torch.utils.collect_env``: the report to put into a bug report."""

from __future__ import annotations

import weft
from weft import doctor

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """What ``weft doctor`` says, below the version that programs see."""
    first = [f"PyTorch version: {weft.__version__} (weft)", "Is CUDA available: False"]
    return "\n".join([*first, "", *doctor.lines()])


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
