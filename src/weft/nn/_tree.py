"""Walking over a module's tree: children, parameters, buffers, and finding one by name."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from weft.core.tensor import Parameter, Tensor


class TreeMethods:
    """What a module offers for looking at its parts."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below it, with their full names.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU()))
        >>> [name for name, _ in model.named_modules()]
        ['', '0', '1', '1.0']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        # One generator walks the whole tree: with one for each level, all would be resumed for
        # each module.
        levels = [(prefix, iter(self._modules.items()))]
        while levels:
            outer, children = levels[-1]
            for name, child in children:
                if child is None:
                    continue
                inner = f"{outer}.{name}" if outer else name
                if not _is_usual(child, "named_modules"):
                    yield from child.named_modules(memo, inner, remove_duplicate)
                elif child not in memo:
                    if remove_duplicate:
                        memo.add(child)
                    yield inner, child
                    levels.append((inner, iter(child._modules.items())))
                    break
            else:
                levels.pop()

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all below it.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU()))
        >>> [type(m).__name__ for m in model.modules()]
        ['Sequential', 'Linear', 'Sequential', 'ReLU']
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules right below this one, with their names.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        >>> [name for name, _ in model.named_children()]
        ['0', '1']
        """
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Any]:
        """The modules right below this one.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU()))
        >>> [type(m).__name__ for m in model.children()]
        ['Linear', 'Sequential']
        """
        for _, child in self.named_children():
            yield child

    def _named_members(
        self,
        get_members_fn: Callable,
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their full names.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        >>> [name for name, _ in model.named_parameters()]
        ['0.weight', '0.bias']
        """
        warn_of_hidden(self)
        yield from self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once.

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> sum(p.numel() for p in model.parameters())
        23
        """
        # Training loops ask for parameters in every step: few functions are called, and the
        # parameters are collected at once.
        cls, own, usual = type(self), self.__dict__, _usual
        if (
            cls.named_parameters is not usual["named_parameters"]
            or cls._named_members is not usual["_named_members"]
            or "named_parameters" in own
            or "_named_members" in own
        ):
            for _, param in self.named_parameters(recurse=recurse):
                yield param
            return
        if id(self) not in _looked:
            warn_of_hidden(self)
        found: dict[int, Parameter] = {}
        for module in _walk(self) if recurse else (self,):
            for param in module._parameters.values():
                if param is not None:
                    found.setdefault(id(param), param)
        yield from found.values()

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their full names."""
        yield from self._named_members(
            lambda m: m._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """The module with this full name, such as ``"encoder.layers.0"``."""
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, TreeMethods):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put a module in the place with this full name."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, TreeMethods):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), TreeMethods):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _member(self, target: str) -> tuple[Any, str, Any]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, name, getattr(owner, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with this full name."""
        _, name, found = self._member(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with this full name."""
        owner, name, found = self._member(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found


# For each class the names of plain attributes that a warning was given for.
_warned: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


# Modules that have been looked through for such attributes, by identity.
_looked: dict[int, weakref.ref[Any]] = {}


_usual = dict(vars(TreeMethods))


def _is_usual(module: Any, name: str) -> bool:
    """Whether a module has a method of the class above, not one of its own."""
    return getattr(type(module), name, None) is _usual[name] and name not in module.__dict__


def _walk(root: Any) -> list[Any]:
    """The modules that ``named_modules`` gives."""
    usual = _usual["named_modules"]
    if type(root).named_modules is not usual or "named_modules" in root.__dict__:
        return [module for _, module in root.named_modules()]
    found: list[Any] = []
    met: set[Any] = set()
    stack = [root]
    while stack:
        module = stack.pop()
        if module is None or module in met:
            continue
        own = module.__dict__
        if type(module).named_modules is not usual or "named_modules" in own:
            found += [inner for _, inner in module.named_modules(met, "", True)]
            continue
        met.add(module)
        found.append(module)
        if children := own["_modules"]:
            stack += reversed(children.values())
    return found


def warn_of_hidden(root: Any) -> None:
    """Warn of modules in plain lists and dicts anywhere below a module: they get lost."""
    known = id(root)
    if known in _looked:
        return
    _looked[known] = weakref.ref(root, lambda _: _looked.pop(known, None))
    tree: set[Any] | None = None
    for module in root.modules():
        for name, value in module.__dict__.items():
            if value.__class__ in (list, tuple, dict) and value and name != "_modules":
                if _holds_modules(value):
                    if tree is None:
                        tree = set(root.modules())
                    warn_if_hidden(module, name, value, tree, stacklevel=4)


def _holds_modules(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value
    return [v for v in items if isinstance(v, TreeMethods)]


def warn_if_hidden(
    module: Any, name: str, value: Any, known: set[Any] | None = None, stacklevel: int = 3
) -> None:
    """Warn, once for each class and name, of modules that are stored but not registered."""
    held = _holds_modules(value)
    if not held:
        return
    known = set(module.modules()) if known is None else known
    told = _warned.setdefault(type(module), set())
    if name in told or all(m in known for m in held):
        return
    told.add(name)
    kind = "ModuleDict" if isinstance(value, dict) else "ModuleList"
    warnings.warn(
        f"{type(module).__name__}.{name} is a plain {type(value).__name__} that holds modules: "
        "they are not registered, so parameters(), to() and state_dict() do not see them. "
        f"Use torch.nn.{kind} instead.",
        stacklevel=stacklevel,
    )
