KNOWN_FAILURES: dict[str, str] = {}
DEEP_FAILURES: dict[str, str] = {}
