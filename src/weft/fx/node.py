"""One step of a traced program."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from weft.core import overrides
from weft.core.tensor import Tensor
from weft.fx.immutable_collections import immutable_dict, immutable_list
from weft.operators import api

if TYPE_CHECKING:
    from weft.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")

# Functions of torch.nn.functional that PyTorch has in compiled form.
COMPILED = frozenset(
    (
        *("adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_"),
        *("channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d"),
        *("conv_transpose2d", "conv_transpose3d", "cosine_similarity", "elu_", "gelu"),
        *("hardshrink", "hardtanh_", "leaky_relu_", "linear", "logsigmoid"),
        *("native_channel_shuffle", "one_hot", "pairwise_distance", "pdist", "pixel_shuffle"),
        *("pixel_unshuffle", "prelu", "relu_", "rrelu_", "scaled_dot_product_attention", "selu_"),
        *("softplus", "softshrink", "threshold_"),
    )
)

_side_effects: set[Callable] = set()


def has_side_effect(fn: Callable) -> Callable:
    """Mark a function whose calls stay in a graph even if their results are unused."""
    _side_effects.add(fn)
    return fn


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Replace every node in an argument, however deep it stands, by what a function gives."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Replace everything in an argument that is not a container by what a function gives."""
    if isinstance(a, tuple):
        mapped = [map_aggregate(v, fn) for v in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return immutable_list([map_aggregate(v, fn) for v in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(v, fn) for key, v in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(v, fn) for v in (a.start, a.stop, a.step)))
    return fn(a)


def qualified_name(target: Any) -> str:
    """The name by which generated code calls a function: ``torch.relu``, ``operator.add``."""
    known = getattr(target, "__name__", None)
    if known is not None and getattr(builtins, known, None) is target:
        return known
    public = overrides.PUBLIC_NAMES[0]().get(target) if _hashable(target) else None
    if public is not None:
        # One function under two names here, where PyTorch has two; tanh is called as torch.tanh.
        own = known not in COMPILED and known not in ("sigmoid", "tanh")
        shared = own and api.NAMESPACES["nn.functional"].get(str(known)) is target
        return f"torch.nn.functional.{known}" if shared else public
    if known is None:
        raise RuntimeError(f"cannot find the name of the target {target!r} of a call_function node")
    if known == "<lambda>":
        return "_lambda_"
    module = getattr(target, "__module__", None) or ""
    if module.startswith(("weft.operators.", "torch.operators.")):
        return f"torch.{known}"  # where ops are defined is weft's own business
    if module == "weft" or module.startswith("weft."):
        module = "torch" + module.removeprefix("weft")
    return f"{module}.{known}" if module else known


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None


class Node:
    """A step: the callee, its arguments, and the users of the result.

    ``op`` is one of ``placeholder`` (an input), ``get_attr`` (a parameter or buffer of the
    module), ``call_function``, ``call_method``, ``call_module`` and ``output``; ``target`` is the
    name or function in question.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"op {op!r} is none of {', '.join(OPS[:-1])}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a Callable is expected"
            )
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        self._set_arguments(args, kwargs)

    # --- arguments and users ---

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def note(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments; assigning new ones updates the users."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set_arguments(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The keyword arguments; assigning new ones updates the users."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set_arguments(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        self.args = (*self.args[:idx], arg, *self.args[idx + 1 :])

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put a positional argument before another."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(
                "insert_args index must be between 0 and the length of self.args, not {idx}"
            )
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace one keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node instead of one among the arguments."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_arguments(map_arg(self.args, swap), map_arg(self.kwargs, swap))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let the users of this node use another; gives the nodes that were changed."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # --- the place in the graph ---

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Put a node before this one; it may be in the graph already."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Put a node after this one."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    # --- what it does ---

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the step does something besides giving a result, so that it must stay."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            return self.target in _side_effects or name in ("setitem", "_assert", "_assert_async")
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = self.graph.owning_module.get_submodule(str(self.target))
            return getattr(module, "_is_impure", False)
        return False

    @property
    def stack_trace(self) -> str | None:
        """Where the step was traced, if the tracer was asked to note it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        name = qualified_name(target).replace("_operator", "operator")
        return f"builtins.{name}" if "." not in name and hasattr(builtins, name) else name

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """One line that describes the step, as in the text of a graph."""
        users = f"[num_users={len(self.users)}]"
        kind = "" if self.type is None else f"{type_name(self.type)} "
        target = self._pretty_print_target(self.target)
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target} : {kind}".rstrip(" :"))
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {kind}{users} = {self.op}[target={target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {kind}{users} = {self.op}[target={target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        return (
            f"%{self.name} : {kind}{users} = {self.op}[target={target}]"
            f"(args = {_format(self.args)}, kwargs = {_format(self.kwargs)})"
        )

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, other: Node) -> bool:
        """Whether the step comes before another in their graph."""
        if self.graph is not other.graph:
            return NotImplemented
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        return order[self] < order[other]


def type_name(kind: Any) -> str:
    """A type as annotations write it."""
    if isinstance(kind, type) and not hasattr(kind, "__origin__"):
        if kind is Tensor:
            return "torch.Tensor"
        if kind.__module__ == "builtins":
            return kind.__qualname__
        return f"{kind.__module__}.{kind.__qualname__}"
    return "..." if kind is ... else kind.__name__ if isinstance(kind, FunctionType) else repr(kind)


def _format(value: Any) -> str:
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return repr(value)
        inner = ", ".join(map(_format, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(_format, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_format(v)}" for key, v in value.items()) + "}"
    return f"%{value.name}" if isinstance(value, Node) else str(value)


def linked(root: Node, backwards: bool = False) -> Iterator[Node]:
    """The nodes after a root; those erased or moved meanwhile do not disturb the walk."""
    at = root._prev if backwards else root._next
    while at is not root:
        following = at._prev if backwards else at._next
        if not at._erased:
            yield at
            # What was put in after this node meanwhile is visited too.
            if not at._erased and at._next is not at:
                following = at._prev if backwards else at._next
        at = following


def nodes_in(value: Any) -> Iterable[Node]:
    """The nodes in an argument."""
    found: list[Node] = []
    map_arg(value, lambda node: found.append(node))
    return found


# Operators by the text they are in generated code.
MAGIC = {
    **{
        name: f"{{}} {sign} {{}}"
        for name, sign in {
            "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%",
            "pow": "**", "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
            "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
        }.items()
    },
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]",
}  # fmt: skip
INPLACE = {
    name: f"{{}} {sign} {{}}"
    for name, sign in {
        "iadd": "+=", "iand": "&=", "ifloordiv": "//=", "ilshift": "<<=", "imod": "%=",
        "imul": "*=", "imatmul": "@=", "ior": "|=", "ipow": "**=", "irshift": ">>=", "isub": "-=",
        "itruediv": "/=", "ixor": "^=",
    }.items()
}  # fmt: skip
INPLACE["setitem"] = "{}[{}] = {}"
