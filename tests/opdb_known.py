"""Ops of PyTorch's table that weft does not pass yet, with the first reason.

Written by ``python -m opdb --all --write-known``; an op here that passes fails its test.
"""

# With few samples of float32 and float64, as the test suite runs them.
KNOWN_FAILURES: dict[str, str] = {}

# Only with more samples and all dtypes.
DEEP_FAILURES: dict[str, str] = {
    "H": "complex128: result 0: shares no memory with argument 0, unlike torch's",
    "conj": "complex128: result 0: shares no memory with argument 0, unlike torch's",
    "mH": "complex128: result 0: shares no memory with argument 0, unlike torch's",
}
