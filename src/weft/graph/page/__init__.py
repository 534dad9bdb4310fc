"""The page that shows a graph in a browser: one file, nothing from the network."""

from __future__ import annotations

import base64
import functools
import hashlib
import html as markup
import json
import math
import string
from importlib import resources
from typing import Any

from weft.graph.categories import CATEGORIES

__all__ = ["html"]

_LOOKS = {
    "categories": {
        name: {"hue": look.hue, "strength": look.strength, "main": look.main}
        for name, look in CATEGORIES.items()
    }
}
_SCRIPTS = (
    *("util", "model", "changes", "layout", "scene", "colour", "draw", "panel", "source", "tree"),
    *("app", "hands", "address", "pictures", "training", "live", "start"),
)


def html(document: dict[str, Any], live: dict[str, Any] | None = None) -> str:
    """A page that draws ``document``; ``live`` holds the settings of one beside a program.

    >>> empty = {"weft_graph": 1, "title": "nothing yet", "steps": []}
    >>> "<title>nothing yet</title>" in html(empty)
    True
    """
    _check(document)
    return wrapped(dumps(document), str(document.get("title") or ""), live)


def wrapped(document: str, title: str = "", live: dict[str, Any] | None = None) -> str:
    """The page around a document that is JSON text already."""
    page, style, script = _assets()
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'none'" if live is None else "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return page.substitute(
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        title=markup.escape(title or "weft graph"),
        style=style,
        script=script,
        document=_in_script(document),
        settings=_in_script(dumps({"live": live is not None, **_LOOKS, **(live or {})})),
    )


def dumps(value: Any) -> str:
    """JSON that a browser can parse: non-finite numbers become strings."""
    try:  # most documents have finite numbers only, and then need no copy
        return _written(value)
    except (ValueError, TypeError):
        return _written(_finite(value))


def _written(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain)


def _check(document: dict[str, Any]) -> None:
    if document.get("weft_graph") != 1 or not isinstance(document.get("steps"), list):
        raise ValueError(
            "graph.page: this is not a graph document of version 1; make one with "
            "weft.graph.export.document(graph)"
        )


@functools.cache
def _assets() -> tuple[string.Template, str, str]:
    here = resources.files(__name__)
    read = lambda name: here.joinpath(name).read_text(encoding="utf-8")
    scripts = "\n".join(read(f"{name}.js") for name in _SCRIPTS)
    return (
        string.Template(read("page.html")),
        read("style.css") + read("training.css"),
        f'(() => {{\n"use strict";\n{scripts}\n}})();\n',
    )


def _digest(text: str) -> str:
    """The word by which a policy allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _in_script(text: str) -> str:
    """JSON that can't end the script element it stands in, nor open a comment there."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's; anything else as its text."""
    item = getattr(value, "item", None)
    return _finite(item()) if callable(item) else str(value)
