"""Devices: the CPU, and ``meta`` for shapes alone; others can be named but raise when used."""

from __future__ import annotations

from typing import Any

KNOWN: tuple[str, ...] = (
    "cpu",
    "cuda",
    "mps",
    "xpu",
    "xla",
    "hpu",
    "mtia",
    "meta",
    "privateuseone",
    "ipu",
    "hip",
)


class device:
    """Where a tensor lives: on the CPU, or nowhere (``meta``: it has a shape and no values).

    ``device("cuda:0")`` can be named, but nothing can be put there.

    >>> torch.device("cpu")
    device(type='cpu')
    >>> torch.ones(2, device=torch.device("meta")).device
    device(type='meta')
    """

    __slots__ = ("_previous", "index", "type")

    def __init__(self, type: str | int | device, index: int | None = None) -> None:
        if isinstance(type, device):
            index = type.index if index is None else index
            type = type.type
        elif isinstance(type, int) and not isinstance(type, bool):
            index, type = type, "cuda"
        elif not isinstance(type, str):
            raise TypeError(f"device(): a name such as 'cpu' is needed, not {type!r}")
        if index is not None and (isinstance(index, bool) or not hasattr(index, "__index__")):
            raise TypeError(f"device(): argument 'index' must be int, not {index!r}")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, but got {index}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was "
                    f"passed explicitly: {type}"
                )
            if not number.isdigit() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if name not in KNOWN:
            raise RuntimeError(
                f"Expected one of {', '.join(KNOWN)} device type at start of device string: {type}"
            )
        self.type: str = name
        self.index: int | None = index
        self._previous: device | None = None

    def __repr__(self) -> str:
        where = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{where})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.type, self.index))

    def __enter__(self) -> device:
        self._previous = get_default_device()
        set_default_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        set_default_device(self._previous)


CPU, META = device("cpu"), device("meta")
PRESENT = {"cpu", "meta"}  # and the names of devices that were registered: see ``core.devices``


def add(name: str) -> None:
    """Make the name of a device known, on which tensors can be from now on."""
    global KNOWN
    KNOWN = (*(known for known in KNOWN if known != name), name)
    PRESENT.add(name)


_default = CPU


def get_default_device() -> device:
    """The device on which new tensors are made."""
    return _default


def set_default_device(where: device | str | None) -> None:
    """Set the device on which new tensors are made.

    >>> torch.set_default_device("meta")
    >>> torch.ones(2).device
    device(type='meta')
    >>> torch.set_default_device("cpu")
    """
    global _default
    _default = CPU if where is None else present(where)


def present(where: device | str | int | None) -> device:
    """The device as an object, or an error that says it is not there."""
    if where is None:
        return _default
    found = where if isinstance(where, device) else device(where)
    if found.type not in PRESENT:
        raise RuntimeError(
            f"device '{found}' is not available: weft runs on the CPU. Choose it with "
            "torch.device('cuda' if torch.cuda.is_available() else 'cpu'), or drop the device."
        )
    return found


def on_meta(where: device | str | int | None) -> bool:
    """Whether a new tensor for a device, by default that for new tensors, has no values."""
    if where is None and _default is CPU:
        return False
    return present(where).type == "meta"
