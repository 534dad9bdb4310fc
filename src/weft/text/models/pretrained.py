"""Reading and writing models in the layout of Hugging Face: config.json and model.safetensors."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, ClassVar, Self

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.io import atomic
from weft.io.safetensors import load_safetensors, save_safetensors

WEIGHTS = "model.safetensors"


@dataclasses.dataclass
class Config:
    """What a ``config.json`` says of a model; subclasses have a field for each name they read."""

    # Values of names that change what a model computes, of which only these can be done.
    only: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Self:
        """From the content of a config.json; names that are not known are left out."""
        for name, allowed in cls.only.items():
            if name in found and found[name] not in allowed:
                raise ValueError(f"config {name}={found[name]!r} is not supported, only {allowed}")
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in known})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """From a config.json."""
        return cls.from_dict(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))


class Pretrained(nn.Module):
    """A model whose parameters have Hugging Face's names."""

    config_class: ClassVar[type[Config]]
    model_type: ClassVar[str]
    # The name of the inner model, by which files of a model with a head name its parameters.
    base_prefix: ClassVar[str]
    # Ends of names in published files that are not parameters here.
    ignored: ClassVar[tuple[str, ...]] = ()
    # Parts of a model that a file of the inner model alone does not have.
    heads: ClassVar[tuple[str, ...]] = ()

    config: Any

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], strict: bool = True) -> Self:
        """The model of a local folder with ``config.json`` and weights, in evaluation mode.

        Files of the inner model and of models with other heads are read too; a head that a file
        does not have is drawn at random if ``strict`` is off.
        """
        place = pathlib.Path(folder)
        if not place.is_dir():
            raise FileNotFoundError(
                f"{cls.__name__}: there is no folder {str(place)!r}; models are read from local "
                "folders, nothing is downloaded"
            )
        model = cls(cls.config_class.from_file(place / "config.json"))
        model.load_weights(_read(place), strict)
        return model.eval()

    def load_weights(self, weights: dict[str, Tensor], strict: bool = True) -> None:
        """Copy tensors by Hugging Face's names, with or without the inner model's prefix."""
        own = self.state_dict()
        named = {self._own_name(name, own): tensor for name, tensor in weights.items()}
        used = {name: tensor for name, tensor in named.items() if name in own}
        tied = self._tied()
        for name, other in tied.items():
            if name not in used and other in used:
                used[name] = used[other]
        missing = [name for name in own if name not in used]
        if missing and (strict or any(not n.startswith(self.heads or ("\0",)) for n in missing)):
            raise RuntimeError(
                f"{type(self).__name__}: the file has no {', '.join(missing[:4])}"
                f"{' and others' if len(missing) > 4 else ''}; strict=False draws a new head"
            )
        for name, tensor in used.items():
            if tensor.shape != own[name].shape:
                raise RuntimeError(
                    f"{type(self).__name__}: {name} is of shape {tuple(tensor.shape)} in the file "
                    f"and {tuple(own[name].shape)} in the model: another config.json?"
                )
        self.load_state_dict(used, strict=False)

    def _own_name(self, name: str, own: dict[str, Tensor]) -> str:
        """A name in a file as this model spells it."""
        # The first conversions from TensorFlow kept its names of normalisation layers.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        prefix = f"{self.base_prefix}."
        for spelled in (name, prefix + name, name.removeprefix(prefix)):
            if spelled in own and not name.endswith(self.ignored or ("\0",)):
                return spelled
        return name

    def _tied(self) -> dict[str, str]:
        """Names of parameters that are another one under a second name."""
        return {}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write ``config.json`` and ``model.safetensors``, which Hugging Face's classes read."""
        place = pathlib.Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        found = {
            "architectures": [type(self).__name__],
            "model_type": self.model_type,
            **dataclasses.asdict(self.config),
        }
        with atomic.replacing(place / "config.json") as file:
            file.write(json.dumps(found, indent=2, sort_keys=True).encode())
        state = {n: t for n, t in self.state_dict().items() if n not in self._tied()}
        save_safetensors(state, place / WEIGHTS, metadata={"format": "pt"})

    def _initialize(self, std: float) -> None:
        """Draw weights as Hugging Face does: normal, with biases and padding rows of zero."""
        with weft.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Embedding):
                    module.weight.normal_(0.0, std)
                    if module.padding_idx is not None:
                        module.weight[module.padding_idx].zero_()
                elif isinstance(module, nn.LayerNorm):
                    module.weight.fill_(1.0)
                    module.bias.zero_()
                elif isinstance(getattr(module, "weight", None), nn.Parameter):
                    module.weight.normal_(0.0, std)
                    if module.bias is not None:
                        module.bias.zero_()


def _read(folder: pathlib.Path) -> dict[str, Tensor]:
    """The weights of a folder: one safetensors file, several with an index, or a .bin file."""
    if (folder / WEIGHTS).is_file():
        return load_safetensors(folder / WEIGHTS)
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file():
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        found: dict[str, Tensor] = {}
        for part in sorted(parts):
            if pathlib.Path(part).name != part:
                raise ValueError(f"{str(index)!r} names {part!r}, which is outside of its folder")
            found.update(load_safetensors(folder / part))
        return found
    if (folder / "pytorch_model.bin").is_file():
        return weft.load(folder / "pytorch_model.bin", weights_only=True)
    raise FileNotFoundError(
        f"{str(folder)!r} has none of {WEIGHTS}, {WEIGHTS}.index.json and pytorch_model.bin"
    )


def activation(name: str) -> Any:
    """An activation by the name that a config.json has for it."""
    tanh = lambda x: nn.functional.gelu(x, approximate="tanh")
    known = {
        "gelu": nn.functional.gelu,
        "gelu_new": tanh,
        "gelu_pytorch_tanh": tanh,
        "relu": nn.functional.relu,
        "silu": nn.functional.silu,
        "swish": nn.functional.silu,
        "tanh": weft.tanh,
    }
    if name not in known:
        raise ValueError(f"unknown activation {name!r}; known are {', '.join(known)}")
    return known[name]
