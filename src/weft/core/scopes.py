"""The path of the running module, and its root model.

Two models of one program may have modules of the same path. So a path begins with the number of
its model, which costs an op nothing; graphs take it off again, or give the model's name for it
where there are several (see ``weft.graph.naming``).
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

MARK = "\0"
MODELS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def number_model(module: Any) -> str:
    """The path of a model that is called for the first time; nothing for a mere function."""
    own = module.__dict__
    tag = ""
    if own["_parameters"] or own["_modules"] or own["_buffers"]:
        tag = f"{MARK}{next(_numbers)}"
        MODELS[tag] = module
    own["_model_tag"] = tag
    return tag


def split(scope: str) -> tuple[str, str]:
    """The number of the model that a path begins at, if it does, and the path in that model."""
    if scope[:1] != MARK:
        return "", scope
    tag, _, path = scope.partition(".")
    return tag, path


def path_of(scope: str) -> str:
    """A path as people write it."""
    return split(scope)[1] if scope[:1] == MARK else scope
