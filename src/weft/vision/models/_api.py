"""Models by name, and the published weights of each."""

from __future__ import annotations

import fnmatch
import functools
import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from weft import hub, nn

_FOLDER = "https://download.pytorch.org/models/"
_HASHED = re.compile(r"-([0-9a-f]{8,})\.pth$")


@dataclass(frozen=True)
class Weights:
    """Where published weights are, how images are prepared for them, and what is known of them."""

    url: str
    transforms: Callable[..., Any] = field(compare=False)
    meta: dict[str, Any] = field(compare=False)


class WeightsEnum(Enum):
    """The weights that are published for a model."""

    @classmethod
    def verify(cls, obj: Any) -> Any:
        """A member from a member, its name or ``ResNet18_Weights.DEFAULT`` as text; None stays."""
        if obj is None or isinstance(obj, cls):
            return obj
        if isinstance(obj, str):
            name = obj.replace(cls.__name__ + ".", "")
            if name not in cls.__members__:
                raise KeyError(f"{cls.__name__} has {', '.join(cls.__members__)}, and no {name!r}")
            return cls[name]
        raise TypeError(
            f"Invalid Weight class provided; expected {cls.__name__} but received "
            f"{type(obj).__name__}."
        )

    def get_state_dict(self, progress: bool = True, check_hash: bool = True) -> Mapping[str, Any]:
        """The weights: from the cache folder of ``torch.hub``, or downloaded there first."""
        return load_weights(self.url, progress, check_hash)

    @property
    def url(self) -> str:
        """Where the file is published."""
        return self.value.url

    @property
    def transforms(self) -> Callable[..., Any]:
        """Makes the preprocessing that the weights were trained for."""
        return self.value.transforms

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of the weights: ``num_params``, ``num_classes``."""
        return self.value.meta

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


def load_weights(url: str, progress: bool = True, check_hash: bool = True) -> Mapping[str, Any]:
    """Weights by address; a cached file whose hash is not the one in its name is refused."""
    name = url.rsplit("/", 1)[-1]
    path = os.path.join(hub.get_dir(), "checkpoints", name)
    found = _HASHED.search(name)
    if check_hash and found and os.path.exists(path):
        digest = _sha256(path)
        if not digest.startswith(found[1]):
            raise RuntimeError(
                f"{path} should have a SHA-256 that begins with {found[1]}, and has {digest[:16]}: "
                "remove the file, it is damaged or another one"
            )
    return hub.load_state_dict_from_url(url, progress=progress, check_hash=check_hash)


def _sha256(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------ the table of weights


@functools.cache
def _rows() -> dict[str, list[tuple[str, bool, Weights]]]:
    text = (Path(__file__).parent / "weights.txt").read_text()
    found: dict[str, list[tuple[str, bool, Weights]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        kind, member, file, classes, parameters, how = line.split()
        meta = {"num_classes": int(classes), "num_params": int(parameters)}
        weights = Weights(f"{_FOLDER}{file}.pth", _preprocessing(how), meta)
        name = f"{kind}_Weights"
        found.setdefault(name, []).append((member.rstrip("*"), member.endswith("*"), weights))
    return found


def _preprocessing(how: str) -> Callable[..., Any]:
    from weft.vision.transforms import _presets

    kind, _, rest = how.partition("=")
    if kind == "detect":
        return _presets.ObjectDetection
    if kind == "segment":
        return functools.partial(_presets.SemanticSegmentation, resize_size=int(rest))
    crop, resize, interpolation, norm = rest.split(",")
    mean, std = _presets.NORMS[norm]
    return functools.partial(
        _presets.ImageClassification,
        crop_size=int(crop),
        resize_size=int(resize),
        interpolation=_presets.interpolation(interpolation),
        mean=mean,
        std=std,
    )


@functools.cache
def weights_enum(name: str) -> type[WeightsEnum]:
    """The enumeration of the weights of a model, such as ``ResNet18_Weights``."""
    rows = _rows()[name]
    members = {member: weights for member, _, weights in rows}
    members["DEFAULT"] = next(weights for _, default, weights in rows if default)
    make: Any = WeightsEnum  # called with members an enumeration makes another
    return make(name, members, module="weft.vision.models")


def weights_names() -> list[str]:
    """The names of all enumerations of weights."""
    return list(_rows())


# ------------------------------------------------------------------ models

_MODELS: dict[str, Callable[..., nn.Module]] = {}
_WEIGHTS: dict[str, str | None] = {}


def _verified(weights: Any, kind: str | None, model: str) -> Any:
    if weights is None or kind is None:
        if weights is not None:
            raise ValueError(f"{model}: no weights are published; load a file of your own")
        return None
    return weights_enum(kind).verify(weights)


def _old_arguments(name: str, kind: str | None, args: tuple[Any, ...], kwargs: dict) -> None:
    """``pretrained=True`` and positional arguments, as programs of before 2022 have them."""
    if args:
        for key, value in zip(("weights", "progress"), args, strict=False):
            kwargs.setdefault(key, value)
    if isinstance(kwargs.get("weights"), bool):
        kwargs["pretrained"] = kwargs.pop("weights")
    for old, new in (("pretrained", "weights"), ("pretrained_backbone", "weights_backbone")):
        if old in kwargs:
            wanted = kwargs.pop(old)
            warnings.warn(
                f"The parameter '{old}' is deprecated, please use '{new}' instead.", stacklevel=4
            )
            kwargs.setdefault(new, "DEFAULT_V1" if wanted else None)
    if kwargs.get("weights") == "DEFAULT_V1":
        kwargs["weights"] = next(iter(weights_enum(kind))) if kind else "DEFAULT"


def model(
    weights: str | None,
    *,
    given: Mapping[str, Any] | None = None,
    classes: str = "num_classes",
    after: Callable[[nn.Module, Mapping[str, Any]], None] | None = None,
) -> Callable[[Callable[..., nn.Module]], Callable[..., Any]]:
    """Register a function that builds a model, and let it load published weights.

    ``given`` are arguments that weights ask for; ``after`` gets the arguments that the caller gave,
    with the member as ``weights``, once weights are loaded.
    """

    def decorate(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        name = make.__name__

        @functools.wraps(make)
        def builder(*args: Any, **kwargs: Any) -> nn.Module:
            _old_arguments(name, weights, args, kwargs)
            chosen = _verified(kwargs.pop("weights", None), weights, name)
            progress = kwargs.pop("progress", True)
            if chosen is None:
                return make(**kwargs)
            asked = {**kwargs, "weights": chosen}
            for key, value in {classes: chosen.meta["num_classes"], **(given or {})}.items():
                if key == classes and kwargs.get(key, value) != value:
                    raise ValueError(
                        f"The parameter '{key}' expected value {value} but got {kwargs[key]} "
                        "instead."
                    )
                kwargs[key] = value
            if "weights_backbone" in signature(make).parameters:
                kwargs["weights_backbone"] = None
            made = make(**kwargs)
            made.load_state_dict(chosen.get_state_dict(progress=progress, check_hash=True))
            if after is not None:
                after(made, asked)
            return made

        own = signature(make)
        first = [
            Parameter("weights", Parameter.KEYWORD_ONLY, default=None, annotation="Any"),
            Parameter("progress", Parameter.KEYWORD_ONLY, default=True, annotation="bool"),
        ]
        builder.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*first, *own.parameters.values()]
        )
        if weights is not None:
            make.__globals__[weights] = weights_enum(weights)
        _MODELS[name], _WEIGHTS[name] = builder, weights
        return builder

    return decorate


def backbone_weights(weights: Any, kind: str) -> Any:
    """The weights of a backbone from a member or a name."""
    return None if weights is None else weights_enum(kind).verify(weights)


def register_model(name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let ``get_model`` find a function of yours, by its name or another."""

    def decorate(make: Callable[..., Any]) -> Callable[..., Any]:
        key = name if name is not None else make.__name__
        if key in _MODELS:
            raise ValueError(f"An entry is already registered under the name '{key}'.")
        _MODELS[key], _WEIGHTS[key] = make, None
        return make

    return decorate


def list_models(
    module: ModuleType | None = None,
    include: Iterable[str] | str | None = None,
    exclude: Iterable[str] | str | None = None,
) -> list[str]:
    """The names of models, of a submodule or by patterns.

    >>> from weft.vision.models import list_models
    >>> list_models(include="resnet*")
    ['resnet101', 'resnet152', 'resnet18', 'resnet34', 'resnet50']
    """
    importlib.import_module("weft.vision.models")
    names = {n for n, f in _MODELS.items() if module is None or _is_in(f, module)}
    if include:
        patterns = [include] if isinstance(include, str) else include
        names = {n for p in patterns for n in fnmatch.filter(names, p)}
    if exclude:
        patterns = [exclude] if isinstance(exclude, str) else exclude
        names -= {n for p in patterns for n in fnmatch.filter(names, p)}
    return sorted(names)


def _is_in(function: Callable[..., Any], module: ModuleType) -> bool:
    return vars(module).get(function.__name__) is function


def get_model_builder(name: str) -> Callable[..., nn.Module]:
    """The function that builds a model, by its name."""
    importlib.import_module("weft.vision.models")
    key = name.lower()
    if key not in _MODELS:
        raise ValueError(f"Unknown model {key}; list_models() gives the names")
    return _MODELS[key]


def get_model(name: str, **config: Any) -> nn.Module:
    """A model by its name, with the arguments of its function."""
    return get_model_builder(name)(**config)


def get_model_weights(name: Callable[..., Any] | str) -> type[WeightsEnum]:
    """The enumeration of the weights of a model, by its name or its function."""
    builder = get_model_builder(name) if isinstance(name, str) else name
    kind = _WEIGHTS.get(builder.__name__)
    if kind is None:
        raise ValueError(f"no weights are published for {builder.__name__}")
    return weights_enum(kind)


def get_weight(name: str) -> WeightsEnum:
    """Weights by their full name, such as ``ResNet50_Weights.IMAGENET1K_V2``."""
    kind, _, member = name.partition(".")
    if not member:
        raise ValueError(f"Invalid weight name provided: '{name}'.")
    if kind not in _rows():
        raise ValueError(f"The weight enum '{kind}' for the specific method couldn't be retrieved.")
    return weights_enum(kind)[member]
