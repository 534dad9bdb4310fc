"""Nested containers as a flat list of leaves and a description of what was around them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

# For each kind of container: how to take it apart (children, what else it is) and back.
_KINDS: dict[type, tuple[Callable, Callable]] = {}


def register_pytree_node(
    cls: type, flatten_fn: Callable, unflatten_fn: Callable, **more: Any
) -> None:
    """Let a class of containers be looked into.

    ``flatten_fn(x)`` gives the children and a context, ``unflatten_fn(children, context)`` goes
    back.
    """
    _KINDS[cls] = (flatten_fn, unflatten_fn)


register_pytree_node(tuple, lambda x: (list(x), None), lambda c, _: tuple(c))
register_pytree_node(list, lambda x: (x, None), lambda c, _: list(c))
register_pytree_node(
    dict,
    lambda x: (list(x.values()), list(x)),
    lambda c, keys: dict(zip(keys, c, strict=True)),
)
register_pytree_node(
    OrderedDict,
    lambda x: (list(x.values()), list(x)),
    lambda c, keys: OrderedDict(zip(keys, c, strict=True)),
)
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), (x.default_factory, list(x))),
    lambda c, context: defaultdict(context[0], zip(context[1], c, strict=True)),
)
register_pytree_node(deque, lambda x: (list(x), x.maxlen), lambda c, size: deque(c, size))


def _kind(tree: Any) -> type | None:
    cls = type(tree)
    if cls in _KINDS:
        return cls
    return _NamedTuple if isinstance(tree, tuple) and hasattr(cls, "_fields") else None


class _NamedTuple:
    """Stands for every class of named tuples; the context says which one."""


register_pytree_node(_NamedTuple, lambda x: (list(x), type(x)), lambda c, cls: cls(*c))


class TreeSpec:
    """What was around the leaves of a tree."""

    def __init__(self, kind: type | None, context: Any, children: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = kind, context, children
        self.num_leaves: int = 1 if kind is None else sum(c.num_leaves for c in children)

    def is_leaf(self) -> bool:
        """Whether this is no container."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """A tree of this form with other leaves."""
        return _build(self, iter(leaves))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and (self.type, self.context) == (other.type, other.context)
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inside = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"


def _build(spec: TreeSpec, leaves: Any) -> Any:
    if spec.type is None:
        return next(leaves)
    return _KINDS[spec.type][1]([_build(c, leaves) for c in spec.children_specs], spec.context)


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """All leaves in order, and the form of the tree."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        leaves.append(tree)
        return TreeSpec(None, None, [])
    children, context = _KINDS[kind][0](tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a form with these leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec "
            f"refers to a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """All leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The form of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """A tree of the results of ``func`` on each leaf (and its partners in further trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(r, is_leaf) for r in rests]
    for _, form in others:
        if form != spec:
            raise ValueError(f"tree_map: trees of different form, {spec} and {form}")
    return spec.unflatten(map(func, leaves, *(found for found, _ in others)))


def tree_map_only(
    kinds: Any, func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree_map`` on the leaves of some types (or that satisfy a predicate)."""
    chosen = kinds if callable(kinds) and not isinstance(kinds, type) else None
    fits = chosen or (lambda x: isinstance(x, kinds))
    return tree_map(lambda x: func(x) if fits(x) else x, tree, is_leaf=is_leaf)


def tree_all(predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether all leaves satisfy a predicate."""
    return all(map(predicate, tree_leaves(tree)))


def tree_any(predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether some leaf satisfies a predicate."""
    return any(map(predicate, tree_leaves(tree)))


def broadcast_prefix(prefix: Any, spec: TreeSpec) -> list[Any] | None:
    """A value for each leaf from a tree whose leaves may stand for whole branches."""
    if _kind(prefix) is None or spec.type is None:
        return [prefix] * spec.num_leaves if _kind(prefix) is None else None
    children, context = _KINDS[_kind(prefix)][0](prefix)  # type: ignore[index]
    same = _kind(prefix) is spec.type and context == spec.context
    if not same or len(children) != len(spec.children_specs):
        return None
    found: list[Any] = []
    for child, form in zip(children, spec.children_specs, strict=True):
        part = broadcast_prefix(child, form)
        if part is None:
            return None
        found += part
    return found
