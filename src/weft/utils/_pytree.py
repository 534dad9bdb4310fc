"""Nested containers as a flat list of leaves and a description of what was around them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

PyTree = Any
Context = Any
KeyPath = tuple[Any, ...]
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]


class NodeDef(NamedTuple):
    """How containers of one kind are taken apart (children, what else they are) and made again."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Callable | None = None


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child at this place."""
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """The place of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child at this place."""
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """The place of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child at this place."""
        return getattr(obj, self.name)


# Every class of named tuples is one kind, under the function that makes such classes.
SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: FlattenFunc,
    unflatten_fn: UnflattenFunc,
    *,
    flatten_with_keys_fn: Callable | None = None,
    **more: Any,
) -> None:
    """Let a class of containers be looked into.

    ``flatten_fn(x)`` gives the children and a context, ``unflatten_fn(children, context)`` goes
    back.
    """
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _register_pytree_node(
    cls: Any, flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, *older: Any, **more: Any
) -> None:
    """``register_pytree_node`` under its older name."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **more)


def _deregister_pytree_node(cls: type) -> None:
    """Let a class of containers be leaves again."""
    del SUPPORTED_NODES[cls]


def _sequence_keys(children: list[Any]) -> list[tuple[Any, Any]]:
    return [(SequenceKey(i), child) for i, child in enumerate(children)]


def _mapping_keys(children: list[Any], keys: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(MappingKey(k), child) for k, child in zip(keys, children, strict=True)]


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Any]:
    return list(d), None


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _list_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return _sequence_keys(list(d)), None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return _mapping_keys(list(d.values()), d), list(d)


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), (d.default_factory, list(d))


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _defaultdict_flatten_with_keys(d: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    return _mapping_keys(list(d.values()), d), (d.default_factory, list(d))


def _deque_flatten(d: deque[Any]) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> deque[Any]:
    return deque(values, maxlen=context)


def _deque_flatten_with_keys(d: deque[Any]) -> tuple[list[Any], Any]:
    return _sequence_keys(list(d)), d.maxlen


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return [(GetAttrKey(n), v) for n, v in zip(d._fields, d, strict=True)], type(d)


_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys
for _kind_of, _flat, _back, _keyed in (
    (tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
    (list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
    (dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    (namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys),
    (OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys),
    (defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
    (deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
):
    register_pytree_node(_kind_of, _flat, _back, flatten_with_keys_fn=_keyed)  # type: ignore[arg-type]


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return isinstance(obj, tuple) and hasattr(type(obj), "_fields")


is_namedtuple = _is_namedtuple_instance = is_namedtuple_instance


def _get_node_type(tree: Any) -> Any:
    """The kind of a container, or the class of a leaf."""
    cls = type(tree)
    return namedtuple if cls not in SUPPORTED_NODES and is_namedtuple_instance(tree) else cls


def _kind(tree: Any) -> Any:
    kind = _get_node_type(tree)
    return kind if kind in SUPPORTED_NODES else None


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether a tree is a leaf and no container."""
    return (is_leaf is not None and bool(is_leaf(tree))) or _kind(tree) is None


_is_leaf = tree_is_leaf


class TreeSpec:
    """What was around the leaves of a tree."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = 1 if type is None else sum(c.num_leaves for c in children_specs)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)
        self.num_children = len(children_specs)

    def children(self) -> list[TreeSpec]:
        """The forms of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The form of one child."""
        return self.children_specs[index]

    def entries(self) -> list[Any]:
        """The keys or places of the children."""
        if self.type in (dict, OrderedDict):
            return list(self.context)
        return list(self.context[1]) if self.type is defaultdict else list(range(self.num_children))

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The branches of a tree in the places where this form has leaves."""
        if self.type is None:
            return [tree]
        if _kind(tree) is not self.type:
            raise ValueError(
                f"Node type mismatch; expected {self.type!r}, but got {_get_node_type(tree)!r}."
            )
        children, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {self.num_children}, but got {len(children)}."
            )
        if self.type in (dict, OrderedDict) and context != self.context:
            children = [tree[key] for key in self.context]
        return [
            branch
            for spec, child in zip(self.children_specs, children, strict=True)
            for branch in spec.flatten_up_to(child)
        ]

    def is_leaf(self) -> bool:
        """Whether this is not a container."""
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

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        gap = ",\n" + " " * (indent + 2)
        inside = gap.join(c.__repr__(indent + 2) for c in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"


class _LeafMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TreeSpec) and instance.is_leaf()


class LeafSpec(TreeSpec, metaclass=_LeafMeta):
    """The form of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def treespec_leaf() -> TreeSpec:
    """The form of a leaf."""
    return TreeSpec(None, None, [])


def _build(spec: TreeSpec, leaves: Any) -> Any:
    if spec.type is None:
        return next(leaves)
    return SUPPORTED_NODES[spec.type].unflatten_fn(
        [_build(c, leaves) for c in spec.children_specs], spec.context
    )


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
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
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


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any] | None:
    """The leaves of a tree whose leaves may stand for whole branches of a form; None if not so."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _kind(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        leaves = _broadcast_to_and_flatten(child, spec, is_leaf)
        if leaves is None:
            return None
        found += leaves
    return found


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


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """All leaves in order, one by one."""
    yield from tree_leaves(tree, is_leaf)


def tree_map_(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call ``func`` on each leaf for its side effects, and return the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[KeyPath, Any]]:
    """All leaves in order, each with the keys that lead to it."""
    return list(_with_paths((), tree, is_leaf))


def _with_paths(path: KeyPath, tree: Any, is_leaf: Any) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_kind(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {node.type}. Please pass a "
            "flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from _with_paths((*path, key), child, is_leaf)


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """All leaves in order, each with the keys that lead to it, and the form of the tree."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree_map`` of a function that also takes the keys that lead to a leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    columns = ([path for path, _ in found], [leaf for _, leaf in found], *others)
    return spec.unflatten(map(func, *columns))


def keystr(kp: KeyPath) -> str:
    """Keys as they are written in Python."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What keys lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_leaves(tree)]


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
    children, context = SUPPORTED_NODES[_kind(prefix)].flatten_fn(prefix)
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
