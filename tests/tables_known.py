"""Cases of PyTorch's tables that weft does not pass yet, by entry and label, with the reason."""

KNOWN_FAILURES: dict[str, dict[str, str]] = {}
