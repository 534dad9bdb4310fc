"""Lists and dictionaries that can't be changed: what the arguments of a node are made of.

A node knows which nodes use it. That stays true because arguments change as a whole only, by
``node.args = ...``.
"""

from __future__ import annotations

from typing import Any

from weft.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(
        f"'{type(self).__name__}' object does not support mutation. If you are attempting to "
        "modify the kwargs or args of a torch.fx.Node object, make a changed copy and assign it to "
        "node.args or node.kwargs"
    )


class immutable_list(list):
    """A list that refuses to be changed."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dictionary that refuses to be changed."""

    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (tuple(self.items()),)


_pytree.register_pytree_node(
    immutable_list, lambda x: (list(x), None), lambda children, _: immutable_list(children)
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda children, keys: immutable_dict(zip(keys, children, strict=True)),
)
