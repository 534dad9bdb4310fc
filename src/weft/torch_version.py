"""A version that is text and compares as a version, as programs expect of PyTorch's."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import total_ordering
from typing import Any

from weft.version import __version__ as _text

__all__ = ["TorchVersion"]

# The grammar of PEP 440, with the spellings that it allows.
_GRAMMAR = re.compile(
    r"""v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d*))?
    (?P<post>-(?P<post_short>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?""",
    re.VERBOSE | re.IGNORECASE,
)
_STAGES = {"alpha": "a", "beta": "b", "preview": "rc", "pre": "rc", "c": "rc"}


@total_ordering
class _End:
    """Comes before (or after) every other part of a version."""

    def __init__(self, last: bool) -> None:
        self.last = last

    def __lt__(self, other: object) -> bool:
        return not self.last and other is not self


_FIRST, _LAST = _End(False), _End(True)


def _key(text: str) -> tuple[Any, ...] | None:
    """What versions are ordered by; None for a text that is not a version."""
    found = _GRAMMAR.fullmatch(text.strip())
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    while release and not release[-1]:
        release = release[:-1]
    post: Any = _FIRST
    if found["post"]:
        post = int(found["post_short"] or found["post_number"] or 0)
    dev: Any = int(found["dev_number"] or 0) if found["dev"] else _LAST
    pre: Any = _LAST
    if found["pre"]:
        stage = found["pre"].lower()
        pre = _STAGES.get(stage, stage), int(found["pre_number"] or 0)
    elif found["dev"] and not found["post"]:
        pre = _FIRST  # 1.0.dev1 comes before 1.0a1
    return int(found["epoch"] or 0), release, pre, post, dev, _local(found["local"])


def _local(text: str | None) -> Any:
    if text is None:
        return _FIRST
    parts = re.split("[-_.]", text.lower())
    return tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts)


def _text_of(other: Any) -> Any:
    if isinstance(other, str):
        return str(other)
    if hasattr(other, "release"):  # a Version of the package "packaging"
        return str(other)
    if isinstance(other, Iterable):
        return ".".join(str(part) for part in other)
    return None


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    compare, plain = getattr(operator, name), getattr(str, name)

    def method(self: Any, other: Any) -> Any:
        text = _text_of(other)
        keys = _key(str(self)), None if text is None else _key(text)
        if None in keys:
            return plain(self, other)
        return compare(*keys)

    method.__name__ = name
    return method


class TorchVersion(str):
    """A version: text that compares with versions, as text or as tuples of numbers.

    >>> TorchVersion("2.13.0") > "2.2", TorchVersion("2.13.0+weft.0.1.0") >= (2, 13)
    (True, True)
    """

    __slots__ = ()
    __hash__ = str.__hash__
    __lt__, __le__ = _comparison("__lt__"), _comparison("__le__")
    __gt__, __ge__ = _comparison("__gt__"), _comparison("__ge__")
    __eq__ = _comparison("__eq__")
    __ne__ = str.__ne__  # PyTorch compares the texts here


__version__ = TorchVersion(_text)
