"""The same calls of PyTorch's SummaryWriter and of ours leave files that say the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")
pytest.importorskip("PIL")

from google.protobuf import text_format  # noqa: E402
from PIL import Image  # noqa: E402
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader  # noqa: E402
from tensorboard.compat.proto import config_pb2, event_pb2, graph_pb2  # noqa: E402
from tensorboard.plugins.custom_scalar import layout_pb2  # noqa: E402
from tensorboard.plugins.hparams import plugin_data_pb2 as hparams_pb2  # noqa: E402
from tensorboard.plugins.mesh import plugin_data_pb2 as mesh_pb2  # noqa: E402
from tensorboard.plugins.pr_curve import plugin_data_pb2 as curve_pb2  # noqa: E402
from tensorboard.plugins.projector import projector_config_pb2  # noqa: E402
from tensorboard.util import tensor_util  # noqa: E402
from torch.utils.tensorboard import SummaryWriter as TorchWriter  # noqa: E402

from weft.utils.tensorboard import SummaryWriter  # noqa: E402

Call = Callable[[Any, Any], None]  # a writer, and the library whose tensors it gets


def events_of(folder: Path) -> list[Any]:
    """All events, as TensorBoard's own reader finds them."""
    found = []
    for path in sorted(folder.glob("**/events.out.tfevents.*")):
        for record in RawEventFileLoader(str(path)).Load():
            found.append((str(path.parent.relative_to(folder)), event_pb2.Event.FromString(record)))
    return found


PLUGINS = {"hparams": hparams_pb2.HParamsPluginData, "mesh": mesh_pb2.MeshPluginData,
           "pr_curves": curve_pb2.PrCurvePluginData}  # fmt: skip


def plain(value: Any) -> Any:
    """A summary's value with everything decoded, so that encodings don't matter."""
    plugin = value.metadata.plugin_data
    told: dict[str, Any] = {"tag": value.tag, "plugin": plugin.plugin_name}
    if plugin.content:
        told["content"] = str(PLUGINS[plugin.plugin_name].FromString(plugin.content))
    kind = value.WhichOneof("value")
    if kind == "image":
        picture = value.image
        pixels = np.asarray(Image.open(io.BytesIO(picture.encoded_image_string)))
        told["image"] = (picture.height, picture.width, picture.colorspace, pixels.tolist())
    elif kind == "tensor":
        array = tensor_util.make_ndarray(value.tensor)
        if plugin.plugin_name == "custom_scalars":
            told["layout"] = str(layout_pb2.Layout.FromString(array.item()))
        else:
            told["tensor"] = (array.dtype.name, array.shape, array.tolist())
    elif kind is not None:
        told[kind] = str(getattr(value, kind))
    return told


def told_by(folder: Path) -> list[Any]:
    said: list[Any] = []
    for place, event in events_of(folder):
        if event.HasField("summary"):
            said += [(place, event.step, plain(v)) for v in event.summary.value]
        else:
            event.wall_time = 0
            event.ClearField("source_metadata")  # says which library wrote it
            said.append((place, event.step, str(event)))
    return sorted(said, key=str)


def both(tmp_path: Path, call: Call, **options: Any) -> tuple[list[Any], list[Any]]:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with SummaryWriter(ours, **options) as writer:
        call(writer, weft)
    with TorchWriter(str(theirs), **options) as writer:
        call(writer, torch)
    return told_by(ours), told_by(theirs)


def ramp(lib: Any, *shape: int) -> Any:
    return lib.arange(0, int(np.prod(shape))).reshape(shape) / float(np.prod(shape))


def spread(lib: Any, low: float, high: float, count: int) -> Any:
    return lib.tensor(np.linspace(low, high, count))


CALLS: dict[str, Call] = {
    "scalar": lambda w, t: [w.add_scalar("a/b", v, k) for k, v in enumerate(
        [1, 2.5, t.tensor(0.1), t.tensor([[3.0]]), np.float64(1e-60), 0, True, -0.5,
         float("inf"), float("nan"), t.tensor(2, dtype=t.int64), np.array([7])])],
    "scalar, negative step": lambda w, t: w.add_scalar("é", 1.0, -3),
    "scalar, no step": lambda w, t: w.add_scalar("x", 1.0),
    "scalar, new style": lambda w, t: w.add_scalar("x", 0.1, 2, new_style=True),
    "scalar, double": lambda w, t: w.add_scalar(
        "x", 0.1, 2, new_style=True, double_precision=True),
    "scalars": lambda w, t: [w.add_scalars("l/oss", {"a": k, "b": 2 * k}, k) for k in range(3)],
    "histogram": lambda w, t: w.add_histogram("h", spread(t, -3, 5, 101), 1),
    "histogram, auto": lambda w, t: w.add_histogram(
        "h", t.tensor(np.linspace(-3, 5, 101) ** 3), 1, "auto"),
    "histogram, one value": lambda w, t: w.add_histogram("h", t.zeros(4, 2), 1),
    "histogram, coarse": lambda w, t: w.add_histogram(
        "h", spread(t, -3, 5, 101), 1, bins=[k / 7 for k in range(-70, 71)], max_bins=30),
    "histogram, from the first bucket": lambda w, t: w.add_histogram(
        "h", spread(t, 0, 5, 50), 1, bins=[0, 1, 2, 3, 10, 20]),
    "histogram, raw": lambda w, t: w.add_histogram_raw(
        "h", 0.0, 3.0, 3, 4.5, 9.0, [1.0, 2.0, 3.0], [1, 0, 2], 5),
    "image": lambda w, t: w.add_image("i", ramp(t, 3, 5, 7), 1),
    "image, grey": lambda w, t: w.add_image("i", ramp(t, 1, 5, 7) * 3 - 1, 1),
    "image, HW": lambda w, t: w.add_image("i", ramp(t, 5, 7), 1, dataformats="HW"),
    "image, alpha": lambda w, t: w.add_image("i", ramp(t, 5, 7, 4), 1, dataformats="HWC"),
    "image, bytes": lambda w, t: w.add_image(
        "i", t.arange(0, 60, dtype=t.uint8).reshape(3, 4, 5), 1),
    "images": lambda w, t: w.add_images("i", ramp(t, 11, 3, 4, 5), 1),
    "images, NHWC": lambda w, t: w.add_images("i", ramp(t, 3, 4, 5, 1), 1, dataformats="NHWC"),
    "boxes": lambda w, t: w.add_image_with_boxes(
        "i", ramp(t, 3, 40, 60), t.tensor([[5.0, 6.0, 30.0, 20.0], [1.0, 2.0, 50.0, 35.0]]), 1,
        labels=["cat", "dog"]),
    "boxes, scaled": lambda w, t: w.add_image_with_boxes(
        "i", ramp(t, 3, 20, 30), t.tensor([[5.0, 6.0, 10.0, 15.0]]), 1, rescale=2),
    "audio": lambda w, t: w.add_audio("s", (ramp(t, 1, 200) * 9).sin(), 1, sample_rate=8000),
    "text": lambda w, t: w.add_text("t", "**bold** é", 4),
    "curve": lambda w, t: w.add_pr_curve(
        "p", t.tensor([0, 1, 1, 0, 1]), t.tensor([0.1, 0.9, 0.4, 0.6, 1.0]), 1),
    "curve, weights": lambda w, t: w.add_pr_curve(
        "p", np.array([0, 1, 1]), np.array([0.1, 0.9, 0.4]), 1, num_thresholds=10,
        weights=np.array([1.0, 2.0, 0.5])),
    "curve, raw": lambda w, t: w.add_pr_curve_raw(
        "p", *([1.0, 2.0], [0.0, 1.0], [3.0, 4.0], [2.0, 2.0], [0.5, 0.6], [0.7, 0.8]), 1, 2),
    "charts": lambda w, t: w.add_custom_scalars(
        {"A": {"one": ["Multiline", ["a", "b"]], "two": ["Margin", ["a", "b", "c"]]}, "B": {}}),
    "line chart": lambda w, t: w.add_custom_scalars_multilinechart(["a", "b"]),
    "margin chart": lambda w, t: w.add_custom_scalars_marginchart(["a", "b", "c"], "k", "t"),
    "mesh": lambda w, t: w.add_mesh(
        "m", ramp(t, 1, 4, 3), t.zeros((1, 4, 3), dtype=t.uint8), t.tensor([[[0, 1, 2]]]),
        {"camera": {"cls": "PerspectiveCamera"}}, 2),
    "points": lambda w, t: w.add_mesh("m", ramp(t, 2, 4, 3)),
    "hparams": lambda w, t: w.add_hparams(
        {"lr": 0.1, "layers": 3, "flag": True, "name": "net", "none": None}, {"acc": 0.5},
        {"lr": [0.1, 0.01], "name": ["net", "other"]}, run_name="run", global_step=3),
    "hparams, tensor": lambda w, t: w.add_hparams(
        {"x": t.tensor([2.0])}, {"acc": 0}, run_name="run"),
    **{f"tensor, {name}": lambda w, t, name=name: w.add_tensor(
        "t", t.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(t, name)), 1)
       for name in ("float32", "float64", "int16", "int32", "int64", "int8", "bool",
                    "complex64", "complex128")},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_files_say_the_same(name: str, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, CALLS[name])
    assert len(ours) > 1
    assert ours == theirs


def test_purging_says_the_same(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, lambda w, t: w.add_scalar("a", 1.0, 9), purge_step=7)
    assert ours == theirs
    assert "START" in str(ours)


def test_file_names_have_the_same_form(tmp_path: Path) -> None:
    for kind in (SummaryWriter, TorchWriter):
        kind(str(tmp_path / kind.__module__), filename_suffix=".mine").close()
    ours, theirs = (p.name.split(".") for p in sorted(tmp_path.glob("*/*"), key=str)[::-1])
    assert len(ours) == len(theirs) and ours[-1] == theirs[-1] == "mine"
    assert ours[:3] == theirs[:3] and ours[4:-2] == theirs[4:-2]


def test_figures(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")

    def draw() -> Any:
        figure, axes = pyplot.subplots(figsize=(2, 1))
        axes.plot([1, 3, 2])
        return figure

    ours, theirs = both(tmp_path, lambda w, t: w.add_figure("f", draw(), 1))
    assert ours == theirs
    assert not pyplot.get_fignums()
    ours, theirs = both(tmp_path / "2", lambda w, t: w.add_figure("f", [draw(), draw()], 1))
    assert ours == theirs


def test_embeddings(tmp_path: Path) -> None:
    def call(writer: Any, lib: Any) -> None:
        points = lib.tensor([[0.5, 1.0, -2.0], [0.25, 3.0, 1e-7], [1.0, 0.0, 2.0]],
                            dtype=lib.float64)  # fmt: skip
        writer.add_embedding(points, ["a", "b", "c é"], ramp(lib, 3, 3, 4, 5), 2, "x/y%")
        writer.add_embedding(points[:, :2], [["a", 1], ["b", 2], ["c", 3]], global_step=None,
                             metadata_header=["name", "n"])  # fmt: skip

    both(tmp_path, call)
    files = {}
    for side in ("ours", "theirs"):
        folder = tmp_path / side
        files[side] = {
            str(p.relative_to(folder)): p.read_bytes()
            for p in folder.glob("**/*") if p.is_file() and "tfevents" not in p.name
        }  # fmt: skip
        parsed = projector_config_pb2.ProjectorConfig()
        text_format.Parse(files[side].pop("projector_config.pbtxt"), parsed)
        files[side]["config"] = str(parsed).encode()
        for name in [n for n in files[side] if n.endswith(".png")]:
            pixels = np.asarray(Image.open(io.BytesIO(files[side][name])))
            files[side][name] = str(pixels.tolist()).encode()
    assert len(files["ours"]) == 6
    assert files["ours"] == files["theirs"]


def test_videos_are_animated(tmp_path: Path) -> None:
    # PyTorch writes a GIF by way of a further package; frames and sizes are what can be compared.
    from torch.utils.tensorboard._utils import _prepare_video

    for count in (1, 2, 3, 4, 5):
        video = np.arange(count * 2 * 3 * 4 * 5, dtype=np.uint8).reshape(count, 2, 3, 4, 5)
        with SummaryWriter(tmp_path / str(count)) as writer:
            writer.add_video("v", weft.tensor(video), 1, fps=4)
        expected = (_prepare_video(video) * 255).round().astype(np.uint8)
        value = events_of(tmp_path / str(count))[-1][1].summary.value[0].image
        found = Image.open(io.BytesIO(value.encoded_image_string))
        assert found.n_frames == 2 and found.info["duration"] == 250
        for k in range(2):
            found.seek(k)
            assert np.asarray(found.convert("RGB")).tolist() == expected[k].tolist()
        assert (value.height, value.width, value.colorspace) == expected.shape[1:]


class Branches(weft.nn.Module):
    """Two ways to go, of which the input chooses one, shared weights, several results."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = weft.nn.Linear(4, 4)
        self.left, self.right = weft.nn.Linear(4, 2), weft.nn.Linear(4, 3)
        self.drop = weft.nn.Dropout(0.5)

    def forward(self, x: Any, y: Any) -> Any:
        x = self.drop(self.stem(x)).relu() + self.stem(y)
        out = self.left(x) if bool(x.sum() > 1e9) else self.right(x)
        low, high = out.chunk(2, dim=0)
        return {"low": low, "high": high.exp(), "all": (out, x)}


def test_a_graph_with_branches(tmp_path: Path) -> None:
    model = Branches().train()
    model.left.eval()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, (weft.ones(2, 4), weft.ones(2, 4)))
    assert model.training and model.drop.training and not model.left.training
    assert all(p.grad is None for p in model.parameters())
    events = [e for _, e in events_of(tmp_path)]
    graph = graph_pb2.GraphDef.FromString(next(e.graph_def for e in events if e.graph_def))
    nodes = {n.name: n for n in graph.node}
    assert len(nodes) == len(graph.node), "names are unique"
    for node in graph.node:
        for source in node.input:
            assert source.partition(":")[0] in nodes, source
    assert "Branches/Linear[right]/weight" in nodes
    assert not any("left" in name for name in nodes), "that branch did not run"
    assert sum(n.op == "Parameter" for n in graph.node) == 4, "shared weights are there once"
    outputs = {n for n in nodes if n.startswith("output/")}
    assert outputs == {f"output/output.{k}" for k in (1, 2, 3, 4)}
    assert {n for n in nodes if n.startswith("input/")} == {"input/x", "input/y"}
    shapes = nodes["output/output.2"].attr["_output_shapes"].list.shape[0]
    assert [d.size for d in shapes.dim] == [1, 3]
    assert any(":1" in source for n in graph.node for source in n.input), (
        "the second of two results"
    )
    tagged = next(e.tagged_run_metadata for e in events if e.HasField("tagged_run_metadata"))
    stats = config_pb2.RunMetadata.FromString(tagged.run_metadata).step_stats.dev_stats[0]
    assert {s.node_name for s in stats.node_stats} <= nodes.keys()
    assert all(s.op_end_rel_micros >= 1 for s in stats.node_stats)
