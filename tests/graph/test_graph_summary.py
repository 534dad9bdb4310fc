"""A graph by module, as data frames, by category, and in a notebook."""

from __future__ import annotations

import base64
import html
import re
import sys
import types
import zlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.dispatch import REGISTRY
from weft.graph.categories import CATEGORIES, of_op


class Net(nn.Module):
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.inp = nn.Linear(6, 8)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(layers)
        )
        self.out = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def recorded(profile: bool = True) -> tuple[Net, Any]:
    net, x = Net(), weft.randn(5, 6)
    optimizer = weft.optim.SGD(net.parameters(), 0.1)
    with weft.graph.record(profile=profile) as g:
        F.cross_entropy(net(x), weft.tensor([0, 1, 2, 0, 1])).backward()
        optimizer.step()
    return net, g


# --- by module ---


def test_sums_of_modules_are_those_of_their_nodes() -> None:
    net, g = recorded()
    rows = {row["module"]: row for row in g.summary().rows}
    assert rows[""]["parameters"] == sum(p.numel() for p in net.parameters())
    for path, module in net.named_modules():
        if not path:
            continue
        inside = [n for n in g if n.module == path or n.module.startswith(f"{path}.")]
        forward = [n for n in inside if n.kind == "forward"]
        row = rows[path]
        assert row["parameters"] == sum(p.numel() for p in module.parameters()), path
        assert row["flops"] == sum(n.flops for n in forward)
        assert row["bytes"] == sum(n.bytes for n in forward)
        assert row["forward"] == pytest.approx(sum(n.time for n in forward))
        later = [n for n in inside if n.kind in ("backward", "optimizer") and n.time is not None]
        assert row["backward"] == pytest.approx(sum(n.time for n in later))
        if not isinstance(module, nn.ModuleList):  # which is never called
            assert row["class"] == type(module).__name__
    assert rows["inp"]["flops"] == 2 * 5 * 6 * 8
    assert rows["out"]["result"] == "float32[5, 3]"


def test_printed_summary_shows_alike_layers_once() -> None:
    _, g = recorded()
    text = g.summary().text(width=0)
    lines = text.splitlines()
    (folded,) = [line for line in lines if "…" in line]
    assert "0 … 3" in folded and "Sequential \u00d74" in folded and "288" in folded
    (inner,) = [line for line in lines if "Linear \u00d74" in line]
    assert "288" in inner  # of all four
    assert lines[-1].startswith(f"{6 * 8 + 8 + 4 * 72 + 8 * 3 + 3} parameters, ")
    assert all(len(line) <= 70 for line in g.summary().text(width=70).splitlines())
    assert len(g.summary(depth=1).rows) == 4
    without = recorded(profile=False)[1].summary()
    assert "forward" not in str(without).splitlines()[0] and without.rows[0]["forward"] is None


# --- pandas ---


def test_without_pandas_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    _, g = recorded()
    monkeypatch.setitem(sys.modules, "pandas", None)  # type: ignore[arg-type]
    for call, name in ((g.to_pandas, "Graph"), (g.summary().to_pandas, "Summary")):
        with pytest.raises(ImportError, match=rf"{name}.to_pandas needs pandas.*pip install"):
            call()


def test_frames_have_a_row_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        def __init__(self, rows: list[dict[str, Any]]) -> None:
            self.rows = rows

        def set_index(self, name: str) -> Frame:
            self.index = [row.pop(name) for row in self.rows]
            return self

    fake = types.ModuleType("pandas")
    fake.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    _, g = recorded()
    frame = g.to_pandas()
    assert frame.index == [n.name for n in g]
    row = frame.rows[frame.index.index("out.linear")]
    assert row["op"] == "linear_with_bias" and row["category"] == "linear"
    assert (row["module"], row["class"], row["shape"]) == ("out", "Linear", (5, 3))
    assert row["inputs"][1:] == ["out.weight", "out.bias"] and row["time"] > 0
    assert g.summary().to_pandas().index[0] == ""


def test_frames_of_the_real_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    _, g = recorded()
    frame = g.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(g)
    assert frame.loc["inp.linear", "flops"] == g["inp.linear"].flops


# --- categories ---


def test_every_op_has_a_category() -> None:
    """A new file of ops needs a line in the table of ``weft.graph.categories``."""
    ours = {n: op for n, op in REGISTRY.items() if _is_ours(op)}
    assert len(ours) > 300
    assert {name for name in ours if of_op(name) == "function"} == set()
    assert {of_op(name) for name in ours} | {"function"} == set(CATEGORIES)


def _is_ours(op: Any) -> bool:
    """Whether an op is part of weft: tests register others."""
    module = str(getattr(op.reference, "__module__", None) or "numpy")
    return module.startswith(("weft.", "numpy"))


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("convolution", "convolution"), ("linear_with_bias", "linear"), ("bmm", "linear"),
        ("native_layer_norm", "norm"), ("relu", "activation"), ("tanh", "activation"),
        ("scaled_dot_product_attention", "attention"), ("permute", "shape"),
        ("nll_loss", "loss"), ("mse_loss", "loss"), ("embedding", "embedding"),
        ("lstm_layer", "recurrent"), ("max_pool_with_indices", "pooling"), ("add", "elementwise"),
        ("sum", "reduction"), ("gather", "indexing"), ("nothing of the sort", "function"),
    ],
)  # fmt: skip
def test_categories_of_well_known_ops(name: str, category: str) -> None:
    assert of_op(name) == category


def test_gradients_have_the_category_of_their_op() -> None:
    _, g = recorded()
    nodes = {n["name"]: n for n in weft.graph.document(g)["steps"][0]["nodes"]}
    assert nodes["layers.0.1.relu"]["category"] == "activation"
    assert nodes["layers.0.1.relu.backward"]["category"] == "activation"
    assert nodes["inp.weight"]["category"] == nodes["inp.weight.sgd"]["category"] == ""


# --- notebooks ---


def pixels(text: str) -> list[np.ndarray]:
    """The pictures of a piece of HTML."""
    found = []
    for data in re.findall(r"data:image/png;base64,([^\"]+)", text):
        raw = base64.b64decode(data)
        width, height = (int.from_bytes(raw[k : k + 4], "big") for k in (16, 20))
        start = raw.index(b"IDAT") + 4
        rows = np.frombuffer(zlib.decompress(raw[start:]), np.uint8).reshape(height, -1)
        assert (rows[:, 0] == 2).all()  # each row is the difference from the one above
        found.append(np.cumsum(rows[:, 1:], 0, dtype=np.uint8).reshape(height, width, -1))
    return found


def test_a_matrix_has_a_picture_with_its_signs() -> None:
    t = weft.tensor([[1.0, -1.0, 0.0], [float("nan"), 0.5, -0.5]])
    text = t._repr_html_()
    assert html.escape(repr(t)) in text and "1 NaN" in text
    (picture,) = pixels(text)
    assert picture.shape == (2, 3, 3)
    red, blue, white = picture[0]
    assert red[0] > red[2] + 100 and blue[2] > blue[0] + 100 and min(white) > 240
    assert len(set(picture[1, 0])) == 1 and picture[1, 0][0] < 150


def test_pictures_of_images_batches_and_vectors() -> None:
    image = weft.zeros(3, 200, 100)
    image[1] = 1.0
    (green,) = pixels(image._repr_html_())
    assert green.shape == (96, 96, 3) and (green == (0, 255, 0)).all()
    assert len(pixels(weft.randn(2, 5, 4, 4)._repr_html_())) == 6
    assert "<svg" in weft.arange(9.0)._repr_html_()
    assert pixels(weft.arange(12).reshape(3, 4)._repr_html_())
    assert pixels(weft.ones(3, 4, dtype=weft.bfloat16)._repr_html_())


@pytest.mark.parametrize(
    "make",
    [
        lambda: weft.tensor(3.0),
        lambda: weft.empty(0, 3),
        lambda: weft.empty(4, 4, device="meta"),
        lambda: weft.full((5,), float("nan")),
        lambda: weft.ones(3, 3, requires_grad=True) * 2,
        lambda: nn.Parameter(weft.ones(2, 3)),
        lambda: weft.ones(3, 3, dtype=weft.complex64),
        lambda: weft.ones(3, 3, dtype=weft.bool),
    ],
)
def test_every_tensor_can_be_shown(make: Any) -> None:
    t = make()
    text = t._repr_html_()
    assert html.escape(repr(t)) in text
    assert text.count("<img") <= 1


def test_a_module_lists_its_parts_once() -> None:
    text = Net()._repr_html_()
    assert "0 … 3 \u00d74" in text and text.count("in_features=8, out_features=8") == 1
    assert "<b>out</b> Linear(in_features=8, out_features=3" in text
    assert f"{6 * 8 + 8 + 4 * 72 + 8 * 3 + 3} parameters" in text

    class Evil(nn.Module):
        def extra_repr(self) -> str:
            return "<script>alert(1)</script>"

    assert "<script>" not in nn.Sequential(Evil())._repr_html_()


def test_graphs_and_differences_in_a_notebook() -> None:
    _, g = recorded()
    text = g._repr_html_()
    assert text.startswith('<iframe title="weft graph" sandbox="allow-scripts allow-downloads" ')
    inner = re.search(r'srcdoc="([^"]*)"', text)
    assert inner and html.unescape(inner[1]) == g.to_html()
    y = weft.ones(2, requires_grad=True)
    for _ in range(5000):
        y = y + 1
    large = weft.graph.of(y)._repr_html_()
    assert "<iframe" not in large and "5,001 nodes" in large and "<table" in large
    other = g.replace("layers.0.1.relu", weft.tanh)
    words = weft.graph.diff(g, other)._repr_html_()
    assert "first divergence" in words and "relu" in words and "<script" not in words
    assert "no difference" in weft.graph.diff(g, g)._repr_html_()


def test_ipython_asks_for_these() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(weft.ones(4, 4))
    assert "<img" in shown["text/html"] and shown["text/plain"].startswith("tensor(")


# --- documents of large graphs ---


def test_documents_say_the_same_as_text_and_as_data() -> None:
    import json

    _, g = recorded()
    assert json.loads(g.to_json("t")) == weft.graph.document(g, "t")
    assert json.loads(g.to_json("t", indent=1)) == weft.graph.document(g, "t")
    step = weft.graph.document(g)["steps"][0]
    node = next(n for n in step["nodes"] if n["name"] == "layers.2.1.relu")
    file, _, line = node["source"].rpartition(":")
    assert "x = layer(x)" in step["lines"][file][line]
    assert len(step["lines"][file]) >= 5
    assert step["stacks"][node["stack"]][0] == node["source"]
    assert any("net(x)" in step["lines"][p.rpartition(":")[0]][p.rpartition(":")[2]]
               for p in step["stacks"][node["stack"]][1:])  # fmt: skip
