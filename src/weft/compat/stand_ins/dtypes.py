"""PyTorch's dtypes that weft has no tensors of: programs list them and compare with them."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.core import errors
from weft.core.dtype import dtype


class NamedDtype(dtype):
    """A dtype that can be named, compared and asked about, and that no tensor has."""

    __slots__ = ("_instead",)
    unavailable = True

    def __init__(self, name: str, itemsize: int, category: int, signed: bool, instead: str) -> None:
        self.name, self.itemsize, self.category = name, itemsize, category
        self.is_complex = category == self.COMPLEX
        self.is_floating_point = category == self.FLOAT
        self.is_signed = signed
        self._instead = instead

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    @property
    def np(self) -> NoReturn:  # type: ignore[override]
        """What every creation of a tensor asks for."""
        raise TypeError(
            f"weft has no tensors of dtype {self!r}. Use {self._instead}\n  at {errors.here()}"
        )


def _by_name(name: str) -> NamedDtype:
    return globals()[name]


complex32 = NamedDtype("complex32", 4, dtype.COMPLEX, True, "torch.complex64")
float4_e2m1fn_x2 = NamedDtype("float4_e2m1fn_x2", 1, dtype.FLOAT, True, "torch.float8_e4m3fn")
for _bits in range(1, 8):
    for _kind in ("int", "uint"):
        _name = f"{_kind}{_bits}"
        globals()[_name] = NamedDtype(
            _name, 1, dtype.INTEGER, _kind == "int", f"torch.{_kind}8, which holds its values"
        )
for _name, _size in {"bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2}.items():
    globals()[_name] = NamedDtype(_name, _size, dtype.INTEGER, False, "torch.uint8 or torch.int16")
for _name, _size in {"quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1}.items():
    globals()[_name] = NamedDtype(
        _name, _size, dtype.INTEGER, _name[0] == "q" and _name[1] == "i", "float32 or bfloat16"
    )
