"""The pages of the API reference, made from docstrings."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

import stubs

import weft
from weft.operators import api

# Page -> title and module; ``torch`` and ``Tensor`` are made by the op blocks.
MODULES = {
    "torch": "torch",
    "tensor": "torch.Tensor",
    "nn": "torch.nn",
    "functional": "torch.nn.functional",
    "init": "torch.nn.init",
    "nn_utils": "torch.nn.utils",
    "rnn": "torch.nn.utils.rnn",
    "optim": "torch.optim",
    "lr_scheduler": "torch.optim.lr_scheduler",
    "data": "torch.utils.data",
    "autograd": "torch.autograd",
    "func": "torch.func",
    "linalg": "torch.linalg",
    "fft": "torch.fft",
    "special": "torch.special",
    "distributions": "torch.distributions",
    "amp": "torch.amp",
    "serialization": "torch.serialization",
    "graph": "weft.graph",
    "train": "weft.train",
    "watching": "weft.watching",
    "tensorboard": "torch.utils.tensorboard",
    "profiler": "torch.profiler",
    "memory": "weft.memory",
    "vision_models": "weft.vision.models",
    "vision_transforms": "weft.vision.transforms.v2",
    "vision_datasets": "weft.vision.datasets",
    "vision_ops": "weft.vision.ops",
    "text_data": "weft.text.data",
    "text_vocab": "weft.text.vocab",
    "text_tokenizers": "weft.text.tokenizers",
    "text_transforms": "weft.text.transforms",
    "text_models": "weft.text.models",
    "text_datasets": "weft.text.datasets",
    "audio": "weft.audio",
    "audio_functional": "weft.audio.functional",
    "audio_transforms": "weft.audio.transforms",
    "audio_models": "weft.audio.models",
}
# Modules whose functions have stubs.
STUBBED = ("torch", "torch.Tensor", "torch.nn.functional")
STUBBED += ("torch.linalg", "torch.fft", "torch.special")
# A signature that is longer stands on several lines.
WIDE = 88
# Methods of these classes stand below them.
WITH_METHODS = (
    *("Module", "Optimizer", "Trainer", "Graph", "Node", "SummaryWriter", "LRScheduler"),
    *("DataLoader", "Distribution", "profile"),
)


@functools.cache
def titles() -> dict[str, str]:
    """The pages and their titles; of packages that are there and offer something."""
    return {name: title for name, title in MODULES.items() if entries(name)}


def _module(title: str) -> Any:
    if title in ("torch", "torch.Tensor"):
        return weft
    try:
        return importlib.import_module(re.sub(r"^torch", "weft", title))
    except ImportError:
        return None


@functools.cache
def entries(page: str) -> dict[str, Any]:
    """The public names of a page."""
    title = MODULES[page]
    if title == "torch":
        names = dict(api.FUNCTIONS)
        names |= {
            n: v for n, v in vars(weft).items() if inspect.isclass(v) or inspect.isfunction(v)
        }
        names |= {n: getattr(weft, n) for n in ("load", "save", "compile", "autocast")}
    elif title == "torch.Tensor":
        names = dict(vars(weft.Tensor))
    else:
        module = _module(title)
        if module is None:
            return {}
        names = {n: getattr(module, n) for n in getattr(module, "__all__", dir(module))}
    found = [(n, v) for n, v in names.items() if _belongs(n, v)]
    return dict(sorted(found, key=lambda item: (item[0].lower(), item[0])))


def _belongs(name: str, value: Any) -> bool:
    if name.startswith("_"):
        return False
    if isinstance(value, property):
        return True
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return False
    return str(getattr(value, "__module__", "")).startswith("weft") and bool(inspect.getdoc(value))


def meaning(page: str) -> str:
    """One line on a page."""
    if page == "torch":
        return "Functions on tensors, and what makes them."
    if page == "tensor":
        return "Methods and properties of tensors."
    return (inspect.getdoc(_module(MODULES[page])) or "").split("\n\n")[0].replace("\n", " ")


def signature(name: str, value: Any, title: str) -> str:
    """How a thing is called: from the stubs if it stands there, else as it was written."""
    if title in STUBBED and inspect.isfunction(value):
        home = title.removeprefix("torch.") if title.count(".") == 1 else ""
        method = title == "torch.Tensor"
        home = "" if method or title == "torch" else home or "-"
        source = stubs.in_place(name, value) if method and name.endswith("_") else value
        lines = stubs.signatures(name, source, method=method, home=home)
        return "\n".join(f"{name}{wrapped(_readable(line))}" for line in lines)
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    # A string annotation is shown with quotes; defaults keep theirs.
    plain = [p.replace(annotation=_bare(p.annotation)) for p in found.parameters.values()]
    made = inspect.isclass(value)
    returned = inspect.Signature.empty if made else _bare(found.return_annotation)
    return name + wrapped(str(found.replace(parameters=plain, return_annotation=returned)))


def _readable(line: str) -> str:
    """A line of a stub without the names that only stubs need."""
    for alias, meaning in (
        ("_return_types.", "return_types."),
        ("_Operand", "Tensor | Number"),
        ("_Ints", "int | Sequence[int]"),
        ("_Dtype", "dtype"),
        ("_Device", "device | str | int"),
        ("_Size", "Size"),
        ("_Generator", "Generator"),
        ("(self, ", "("),
        ("(self)", "()"),
    ):
        line = line.replace(alias, meaning)
    return re.sub(
        r"\b_(int|float|bool|str|bytes|complex|type|dtype|device|memory_format)\b", r"\1", line
    )


def wrapped(line: str) -> str:
    """A signature with one parameter on each line, if it is long."""
    if len(line) <= WIDE:
        return line
    parts, depth, start = [], 0, 1
    for i, letter in enumerate(line):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or depth == 0:
            parts.append(line[start:i].strip())
            start = i + 1
        if depth == 0:
            break
    return "(\n    " + ",\n    ".join(parts) + ",\n)" + line[start:]


class _Name:
    """An annotation that shows itself as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _bare(annotation: Any) -> Any:
    return _Name(annotation) if isinstance(annotation, str) else annotation


def described(value: Any) -> str:
    """A docstring as Markdown: examples become blocks."""
    text = inspect.getdoc(value) or ""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(">>>") and not fenced:
            lines.append("```pycon")
            fenced = True
        elif fenced and not line.strip():
            lines.append("```")
            fenced = False
        lines.append(line.lstrip() if fenced and line.lstrip().startswith(">>>") else line)
    if fenced:
        lines.append("```")
    text = "\n".join(lines).replace("<BLANKLINE>", "")
    # What looks like a tag or a link in prose is neither.
    pieces = re.split(r"(```.*?```|``.*?``)", text, flags=re.S)
    escape = lambda piece: piece.replace("<", "&lt;").replace("[", "&#91;").replace("*", "\\*")
    return "".join(p if i % 2 else escape(p) for i, p in enumerate(pieces))


def entry(name: str, value: Any, page: str = "") -> str:
    """One name of a page."""
    title = f"#### `{name}` {{ #{name} }}"
    if isinstance(value, property):
        return f"{title}\n\n{described(value)}\n"
    call = signature(name, value, page)
    return f"{title}\n\n```python\n{call}\n```\n\n{described(value)}\n"


def _methods(owner: str, kind: type) -> list[str]:
    found = []
    for name, value in inspect.getmembers_static(kind):
        plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        if inspect.getdoc(plain):
            found.append(entry(f"{owner}.{name}", plain))
    return found


def pages() -> dict[str, str]:
    """Every page of the reference by its name."""
    made = {}
    for page, title in titles().items():
        lines = [f"# {title}", meaning(page)]
        letter = ""
        for name, value in entries(page).items():
            if len(entries(page)) > 40 and name[0].upper() != letter:
                letter = name[0].upper()
                lines.append(f"## {letter}")
            lines.append(entry(name, value, title))
            if name in WITH_METHODS and inspect.isclass(value):
                lines += _methods(name, value)
        made[page] = "\n\n".join(lines) + "\n"
    return made
