"""Cases of PyTorch's tables that weft does not pass yet, by entry and label, with the reason."""

KNOWN_FAILURES: dict[str, dict[str, str]] = {
    "errors arange": {
        "6: ((0, 64, 0.5), {out=int64[0]})": "ZeroDivisionError, not ValueError",
    },
    "errors kthvalue": {
        "0: ((float32[10], 5), {out=(float32[10], int64[])})": "out on the input's memory passes",
    },
    "errors nn.functional.soft_margin_loss": {
        "1: ((float32[5, 4], float32[5]), {})": "ValueError, not RuntimeError",
    },
    "errors narrow_copy": {
        "1: ((float32[10, 5, 20], 3, 0, 0), {})": "IndexError, not RuntimeError",
    },
    "errors __radd__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
        "1: ((2, 3), {})": "an operator's method called on a number gives a result",
    },
    "errors __rdiv__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
        "1: ((2, 3), {})": "an operator's method called on a number gives a result",
    },
    "errors __rmul__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
        "1: ((2, 3), {})": "an operator's method called on a number gives a result",
    },
    "errors __rand__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
    },
    "errors __ror__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
    },
    "errors __rxor__": {
        "0: ((2, int64[3]), {})": "an operator's method called on a number gives a result",
    },
}
