"""Documents for the graph's page, as large and as varied as those of real training steps."""

from __future__ import annotations

import math
from typing import Any

SIZES = {"float32": 4, "int64": 8, "bool": 1}
CATEGORIES = {
    **dict.fromkeys(("add", "mul", "sin", "exp", "masked_fill"), "elementwise"),
    **dict.fromkeys(("relu", "gelu", "softmax", "tanh"), "activation"),
    **dict.fromkeys(("chunk", "view", "transpose", "reshape", "stack"), "shape"),
    **dict.fromkeys(("linear", "matmul"), "linear"),
    **dict.fromkeys(("layer_norm", "batch_norm"), "norm"),
    "conv2d": "convolution",
    "cross_entropy": "loss",
    "dropout": "random",
    "embedding": "embedding",
    "mean": "reduction",
}


class Builder:
    """Writes down a step as a program would run it: forward, then backward and updates."""

    def __init__(self, seed: int = 0, timed: bool = True) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.modules: dict[str, str] = {}
        self.names: dict[str, int] = {}
        self.seed = seed
        self.timed = timed

    def add(
        self,
        op: str,
        kind: str,
        module: str,
        shape: list[int],
        inputs: list[int] = (),
        name: str | None = None,
        **extra: Any,
    ) -> int:
        """One more node; gives its id."""
        base = name or (f"{module}.{op}" if module else op)
        self.names[base] = self.names.get(base, 0) + 1
        count = self.names[base]
        number = len(self.nodes)
        size = math.prod(shape)
        dtype = extra.pop("dtype", "float32")
        self.nodes.append(
            {
                "id": number,
                "name": base if count == 1 else f"{base}:{count}",
                "op": op,
                "category": CATEGORIES.get(op.removesuffix("_backward"), ""),
                "kind": kind,
                "module": module,
                "shape": shape,
                "dtype": dtype,
                "bytes": size * SIZES[dtype],
                "flops": extra.pop("flops", size),
                "time": self._time(number, size, kind),
                "source": f"model.py:{10 + number % 90}",
                "stack": None,
                "inputs": [[i, 0] for i in inputs],
                "forward": extra.pop("forward", None),
                "attrs": extra.pop("attrs", {}),
                "stats": _stats(number + self.seed) if kind != "constant" else None,
                "grad_norm": 10 ** (-3 + (number * 7 + self.seed) % 40 / 10)
                if kind in ("parameter", "backward")
                else None,
                **extra,
            }
        )
        return number

    def _time(self, number: int, size: int, kind: str) -> float | None:
        if not self.timed or kind in ("input", "parameter", "constant"):
            return None
        return 2e-6 + size * 1e-9 * (1 + (number * 13 + self.seed) % 5)

    def parameter(self, module: str, name: str, shape: list[int]) -> int:
        """A leaf that is trained."""
        return self.add("parameter", "parameter", module, shape, name=f"{module}.{name}")

    def linear(self, module: str, x: int, width: int) -> int:
        """A layer as a module of its own."""
        self.modules[module] = "Linear"
        shape = self.nodes[x]["shape"]
        weight = self.parameter(module, "weight", [width, shape[-1]])
        bias = self.parameter(module, "bias", [width])
        out = [*shape[:-1], width]
        flops = 2 * math.prod(out) * shape[-1]
        return self.add("linear", "forward", module, out, [x, weight, bias], flops=flops)

    def affine(self, module: str, kind: str, op: str, x: int) -> int:
        """A normalisation with weight and bias."""
        self.modules[module] = kind
        width = self.nodes[x]["shape"][1 if kind == "BatchNorm2d" else -1]
        weight = self.parameter(module, "weight", [width])
        bias = self.parameter(module, "bias", [width])
        shape = self.nodes[x]["shape"]
        return self.add(op, "forward", module, shape, [x, weight, bias], attrs={"eps": "1e-05"})

    def same(self, op: str, module: str, *inputs: int, **extra: Any) -> int:
        """An op whose result has the shape of its first input."""
        shape = extra.pop("shape", self.nodes[inputs[0]]["shape"])
        return self.add(op, "forward", module, shape, list(inputs), **extra)

    def conv(self, module: str, x: int, channels: int, size: int, stride: int) -> int:
        """A convolution without bias."""
        self.modules[module] = "Conv2d"
        n, c, h, w = self.nodes[x]["shape"]
        weight = self.parameter(module, "weight", [channels, c, size, size])
        out = [n, channels, h // stride, w // stride]
        return self.add(
            "conv2d",
            "forward",
            module,
            out,
            [x, weight],
            flops=2 * math.prod(out) * c * size * size,
            attrs={"stride": f"({stride}, {stride})", "padding": f"({size // 2}, {size // 2})"},
        )

    def train(self, loss: int, optimizer: str = "AdamW") -> None:
        """The backward pass from ``loss`` and one update for each parameter."""
        forward = list(self.nodes)
        grads: dict[int, int] = {}
        wants = {n["id"] for n in forward if n["kind"] == "parameter"}
        for n in forward:
            if any(i in wants for i, _ in n["inputs"]):
                wants.add(n["id"])
        users: dict[int, list[int]] = {}
        for n in forward:
            for i, _ in n["inputs"]:
                users.setdefault(i, []).append(n["id"])
        for n in reversed(forward):
            if n["id"] not in wants or (n["id"] != loss and n["id"] not in users):
                continue
            arriving = [grads[u] for u in dict.fromkeys(users.get(n["id"], ())) if u in grads]
            if n["kind"] == "forward":
                grads[n["id"]] = self.add(
                    f"{n['op']}_backward",
                    "backward",
                    n["module"],
                    n["shape"],
                    [*arriving, *[i for i, _ in n["inputs"]][:2]],
                    forward=n["id"],
                )
            elif n["kind"] == "parameter":
                self.add(
                    optimizer,
                    "optimizer",
                    n["module"],
                    n["shape"],
                    [n["id"], *arriving],
                    name=f"{n['name']}.update",
                    forward=n["id"],
                    attrs={"lr": "0.0003", "weight_decay": "0.01"},
                )

    def step(self, number: int, outputs: list[int]) -> dict[str, Any]:
        """What was written down, as one step of a document."""
        return {
            "step": number,
            "nodes": self.nodes,
            "outputs": outputs,
            "modules": self.modules,
        }


def _stats(seed: int) -> dict[str, Any]:
    centre = (seed % 17) / 17 - 0.5
    hist = [int(400 * math.exp(-(((i - 12) / 5 - centre) ** 2))) for i in range(24)]
    return {
        "min": -2.5 + centre,
        "max": 2.5 + centre,
        "mean": centre,
        "std": 0.9,
        "nan": 3 if seed % 97 == 0 else 0,
        "inf": 0,
        "lo": -2.5 + centre,
        "hi": 2.5 + centre,
        "hist": hist,
    }


def transformer_step(
    number: int = 0, layers: int = 12, width: int = 256, extra: str | None = None
) -> dict[str, Any]:
    """A GPT of so many layers; ``extra`` names a module that gets one more op."""
    b = Builder(seed=number * 31)
    b.modules.update({"": "GPT", "blocks": "ModuleList", "wte": "Embedding", "wpe": "Embedding"})
    tokens = b.add("tokens", "input", "", [8, 128], dtype="int64")
    targets = b.add("targets", "input", "", [8, 128], dtype="int64")
    positions = b.add("arange", "constant", "", [128], dtype="int64")
    te = b.parameter("wte", "weight", [5000, width])
    pe = b.parameter("wpe", "weight", [128, width])
    x = b.add("embedding", "forward", "wte", [8, 128, width], [te, tokens])
    p = b.add("embedding", "forward", "wpe", [128, width], [pe, positions])
    x = b.same("add", "", x, p)
    mask = b.add("tril", "constant", "", [128, 128], dtype="bool")
    for k in range(layers):
        x = _block(b, f"blocks.{k}", x, mask, width, extra)
    x = b.affine("norm", "LayerNorm", "layer_norm", x)
    logits = b.linear("head", x, 5000)
    flat = b.same("reshape", "", logits, shape=[1024, 5000])
    loss = b.same("cross_entropy", "", flat, targets, shape=[])
    b.train(loss)
    return b.step(number, [loss])


def _block(b: Builder, m: str, x: int, mask: int, width: int, extra: str | None) -> int:
    heads, context = 8, 128
    b.modules.update({m: "Block", f"{m}.attn": "SelfAttention", f"{m}.mlp": "MLP"})
    y = b.affine(f"{m}.ln_1", "LayerNorm", "layer_norm", x)
    qkv = b.linear(f"{m}.attn.c_attn", y, 3 * width)
    a = f"{m}.attn"
    parts = [b.same("chunk", a, qkv, shape=[8, context, width]) for _ in range(3)]
    split = [8, heads, context, width // heads]
    q, k, v = (
        b.same("transpose", a, b.same("view", a, part, shape=split), shape=split) for part in parts
    )
    scores = b.same("matmul", a, q, k, shape=[8, heads, context, context], flops=67_108_864)
    scores = b.same("mul", a, scores)
    scores = b.same("masked_fill", a, scores, mask, attrs={"value": "-inf"})
    weights = b.same("softmax", a, scores, attrs={"dim": "-1"})
    if extra == a:
        weights = b.same("dropout", a, weights, attrs={"p": "0.1"})
    out = b.same("matmul", a, weights, v, shape=split, flops=67_108_864)
    out = b.same("reshape", a, b.same("transpose", a, out), shape=[8, context, width])
    x = b.same("add", m, x, b.linear(f"{a}.c_proj", out, width))
    y = b.affine(f"{m}.ln_2", "LayerNorm", "layer_norm", x)
    y = b.same("gelu", f"{m}.mlp", b.linear(f"{m}.mlp.fc", y, 4 * width))
    return b.same("add", m, x, b.linear(f"{m}.mlp.proj", y, width))


def transformer(layers: int = 12) -> dict[str, Any]:
    """One step of a GPT."""
    steps = [transformer_step(layers=layers)]
    return {"weft_graph": 1, "title": f"GPT, {layers} layers", "steps": steps}


def changing(steps: int = 4) -> dict[str, Any]:
    """A GPT whose structure changes at the third step, and back at the last but one."""
    made = []
    for k in range(steps):
        made.append(transformer_step(k, 4, extra="blocks.1.attn" if k == 2 else None))
        if k == 2:
            node = next(n for n in made[-1]["nodes"] if n["name"] == "blocks.2.mlp.gelu")
            node["op"] = "relu"
    return {"weft_graph": 1, "title": "GPT while it changes", "steps": made}


def resnet() -> dict[str, Any]:
    """One step of a ResNet-18 on 32 by 32 images."""
    b = Builder()
    b.modules.update({"": "ResNet"})
    image = b.add("image", "input", "", [16, 3, 32, 32])
    labels = b.add("labels", "input", "", [16], dtype="int64")
    x = b.conv("conv1", image, 64, 3, 1)
    x = b.same("relu", "", b.affine("bn1", "BatchNorm2d", "batch_norm", x))
    for stage, channels in enumerate((64, 128, 256, 512), 1):
        b.modules[f"layer{stage}"] = "Sequential"
        for k in range(2):
            x = _residual(b, f"layer{stage}.{k}", x, channels, 2 if stage > 1 and k == 0 else 1)
    x = b.same("mean", "", x, shape=[16, 512])
    loss = b.same("cross_entropy", "", b.linear("fc", x, 10), labels, shape=[])
    b.train(loss, "SGD")
    return {"weft_graph": 1, "title": "ResNet-18", "steps": [b.step(0, [loss])]}


def _residual(b: Builder, m: str, x: int, channels: int, stride: int) -> int:
    b.modules[m] = "BasicBlock"
    y = b.affine(
        f"{m}.bn1", "BatchNorm2d", "batch_norm", b.conv(f"{m}.conv1", x, channels, 3, stride)
    )
    y = b.conv(f"{m}.conv2", b.same("relu", m, y), channels, 3, 1)
    y = b.affine(f"{m}.bn2", "BatchNorm2d", "batch_norm", y)
    if stride != 1:
        b.modules[f"{m}.downsample"] = "Sequential"
        x = b.conv(f"{m}.downsample.0", x, channels, 1, stride)
        x = b.affine(f"{m}.downsample.1", "BatchNorm2d", "batch_norm", x)
    return b.same("relu", m, b.same("add", m, y, x))


def flat(count: int) -> dict[str, Any]:
    """A program without modules: one long braid of ops."""
    b = Builder()
    made = [b.add("x", "input", "", [4, 4]), b.add("y", "input", "", [4, 4])]
    for k in range(count - 2):
        made.append(b.same(("add", "mul", "sin")[k % 3], "", made[-1], made[-2 - k % 7 // 3]))
    return {"weft_graph": 1, "title": "A braid", "steps": [b.step(0, [made[-1]])]}


def wide(chains: int, length: int) -> dict[str, Any]:
    """Many chains side by side that come together at the end."""
    b = Builder()
    start = b.add("x", "input", "", [4, 4])
    ends = []
    for _ in range(chains):
        y = start
        for k in range(length):
            y = b.same(("sin", "exp", "tanh")[k % 3], "", y)
        ends.append(y)
    out = b.same("stack", "", *ends)
    return {"weft_graph": 1, "title": "Side by side", "steps": [b.step(0, [out])]}
