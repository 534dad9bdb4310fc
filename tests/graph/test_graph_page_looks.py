"""What the graph's page shows at first sight and beside the drawing, in a real browser."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from test_graph_page import (  # noqa: F401 (fixtures)
    Open,
    browser,
    faces,
    needs_browser,
    place,
    show,
)

import weft
import weft.nn.functional as F
from graph_documents import Builder, changing, resnet, transformer
from weft import nn
from weft.graph.categories import CATEGORIES

LEGIBLE = 9.4  # pixels of the smallest words on opening


def both_halves(layers: int = 12) -> dict[str, Any]:
    """An encoder and a decoder of so many layers each, with their backward pass."""
    b = Builder()
    b.modules.update({"": "Seq2Seq", "encoder": "Encoder", "decoder": "Decoder"})
    x = b.add("source", "input", "", [8, 32, 64])
    y = b.add("target", "input", "", [8, 32, 64])
    for half, value in (("encoder", x), ("decoder", y)):
        for k in range(layers):
            path = f"{half}.layers.{k}"
            b.modules.update({f"{half}.layers": "ModuleList", path: "Layer"})
            h = b.affine(f"{path}.norm", "LayerNorm", "layer_norm", value)
            h = b.same("relu", path, b.linear(f"{path}.fc", h, 64))
            value = b.same("add", path, value, h, *([x] if half == "decoder" else []))
        if half == "encoder":
            x = value
    loss = b.same("cross_entropy", "", b.linear("head", value, 10), shape=[])
    b.train(loss)
    return {"weft_graph": 1, "title": "halves", "steps": [b.step(0, [loss])]}


@needs_browser
@pytest.mark.parametrize("make", [transformer, resnet, both_halves])
def test_opens_legible_and_as_wide_as_the_window(show: Open, make: Any) -> None:  # noqa: F811
    shown = show(make())
    smallest = 10.5 * shown.run("weftGraph.view.k")
    assert smallest >= LEGIBLE
    seen = shown.run(
        "weftGraph.scene.faces.filter((f) => {"
        "  const { view, painter } = weftGraph; const x = view.x + f.x * view.k;"
        "  return x >= 0 && x + f.w * view.k <= painter.width; }).length"
    )
    assert seen == shown.run("weftGraph.scene.faces.length")


@needs_browser
def test_alike_siblings_are_one_box_that_opens(show: Open) -> None:  # noqa: F811
    shown = show(both_halves())
    face = "weftGraph.scene.faces.find((f) => f.key === 'g:encoder.layers')"
    assert shown.run(f"{face}.sub") == "12 \u00d7 Layer"
    assert not any("layers.3" in key for key in faces(shown))
    shown.click(*place(shown, "g:encoder.layers"))
    assert {f"g:encoder.layers.{k}" for k in range(12)} <= set(faces(shown))
    assert shown.run("checks.wrong()") == shown.run("checks.crossed()") == []


@needs_browser
def test_what_differs_stands_outside_the_run(show: Open) -> None:  # noqa: F811
    document = transformer()
    for node in document["steps"][0]["nodes"]:
        if node["name"] == "blocks.5.mlp.gelu":
            node["op"], node["category"] = "relu", "activation"
    shown = show(document)
    shown.run("weftGraph.open.add('blocks'); weftGraph.relayout(); 0")
    labels = shown.run(
        "weftGraph.tree.groups.get('blocks').children"
        ".filter((c) => c.type === 'group').map((c) => [c.label, c.run])"
    )
    assert labels == [["0 … 4", 5], ["5", 0], ["6 … 11", 6]]


@needs_browser
def test_categories_come_from_the_document_and_colour_by_its_table(show: Open) -> None:  # noqa: F811
    shown = show(resnet())
    shown.run("weftGraph.unfoldAll(); 0")
    assert shown.run("weftGraph.colour") == "category"
    fills = shown.run("checks.fills()")
    assert {"convolution", "norm", "activation", "loss"} <= set(fills) - {"several"}
    assert len({fills[name] for name in fills}) == len(fills)
    assert set(fills) <= {*CATEGORIES, "input", "parameter", "update", "constant", "several"}
    # A folded module has the category of its ops, if there is one.
    shown.run("weftGraph.open = new Set(['']); weftGraph.relayout(); 0")
    words = (
        "(key) => { const face = weftGraph.scene.faces.find((f) => f.key === key);"
        "return weftGraph.look.colours.get(face).fill; }"
    )
    assert shown.run(f"({words})('g:conv1')") == fills["convolution"]
    assert shown.run(f"({words})('g:layer1')") == checks_fill(shown, "several")


def checks_fill(shown: Any, name: str) -> str:
    return shown.run("checks.fills()")[name]


@needs_browser
def test_opens_neutral_where_steps_are_compared(show: Open) -> None:  # noqa: F811
    shown = show(changing(3))
    assert shown.run("weftGraph.colour") == "changes"
    shown.run("weftGraph.unfoldAll(); 0")
    paint = "(f) => weftGraph.look.colours.get(f).fill"
    fills = shown.run(
        f"[...new Set(weftGraph.scene.faces.filter((f) => !f.mark || f.faint).map({paint}))]"
    )
    assert fills == [shown.run("weftGraph.look.theme.kinds.none")]
    strong = f"weftGraph.scene.faces.filter((f) => f.mark && !f.faint).map({paint})"
    assert fills[0] not in shown.run(strong)
    assert shown.run(f"{strong}.length") == 2


def step_of(model: Any, x: Any) -> Any:
    with weft.graph.record() as g:
        model(x).square().mean().backward()
    return g


@needs_browser
def test_a_replaced_op_is_the_cause_and_all_else_follows(show: Open) -> None:  # noqa: F811
    first = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    second = nn.Sequential(first[0], nn.Tanh(), nn.Linear(4, 3))
    x = weft.randn(5, 4)
    shown = show(weft.graph.document([step_of(first, x), step_of(second, x)]))
    marks = shown.run(
        "Object.fromEntries(weftGraph.step.nodes.filter((n) => n.mark)"
        ".map((n) => [n.name, [n.mark, n.faint, n.was?.name ?? null]]))"
    )
    assert marks["1.tanh"] == ["changed", False, "1.relu"]
    assert marks["2.weight"] == ["changed", False, "2.weight"]  # another shape, of its own accord
    assert marks["2.linear"][:2] == ["changed", True]  # its shape follows from the weight's
    assert all(faint for name, (_, faint, _) in marks.items() if "backward" in name), marks
    assert "0.linear" not in marks
    assert "This follows from other changes" in shown.run(
        "weftGraph.choose(weftGraph.step.byName.get('2.linear'));"
        "document.getElementById('panel').innerText"
    )


@needs_browser
def test_search_in_a_step_that_lacks_what_was_found(show: Open) -> None:  # noqa: F811
    shown = show(changing())
    shown.run("weftGraph.showStep(2); 0")
    shown.key("/")
    shown.type("dropout")
    shown.key("Enter")
    found = "document.getElementById('found').textContent"
    assert shown.run(found) == "1 / 2"
    shown.key("Escape")
    shown.run("document.getElementById('search').value = 'dropout'; weftGraph.search('dropout'); 0")
    shown.run("weftGraph.findNext(1); weftGraph.showStep(1); weftGraph.drawNow(); 0")
    assert shown.run(found) == "none"
    assert shown.run("weftGraph.look.hits") is None  # nothing is greyed out


@needs_browser
def test_shapes_stand_on_the_wires(show: Open) -> None:  # noqa: F811
    shown = show(transformer(1))
    shown.run("weftGraph.unfoldAll(); 0")
    chips = dict(
        shown.run("weftGraph.scene.chips.map((chip) => [chip.item.primary.name, chip.text])")
    )
    assert chips["blocks.0.attn.softmax"] == "8\u00d78\u00d7128\u00d7128"
    assert chips["head.linear"] == "8\u00d7128\u00d75000"
    assert "cross_entropy" not in chips  # nobody reads it: it says its shape itself
    face = "weftGraph.scene.faces.find((f) => f.key === 'n:cross_entropy')"
    assert shown.run(f"{face}.sub") == "scalar"


@needs_browser
def test_nothing_lies_over_the_drawing_in_any_window(show: Open) -> None:  # noqa: F811
    shown = show(resnet())
    for width, height in ((1440, 900), (1000, 640), (760, 560)):
        shown.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        covered = shown.run(
            "(() => { const at = document.getElementById('graph').getBoundingClientRect();"
            "return ['map', 'legend', 'zoom', 'panel', 'tree'].filter((id) => {"
            "  const box = document.getElementById(id).getBoundingClientRect();"
            "  return box.width && box.left < at.right - 1 && box.right > at.left + 1 &&"
            "    box.top < at.bottom - 1 && box.bottom > at.top + 1; }); })()"
        )
        assert covered == [], (width, height)
        assert shown.run("document.getElementById('graph').clientHeight") > 150


@needs_browser
def test_tree_of_modules_by_keys(show: Open) -> None:  # noqa: F811
    shown = show(transformer(2))
    rows = "[...document.querySelectorAll('#tree [role=treeitem]')].map((row) => row.dataset.path)"
    assert shown.run(rows)[:3] == ["wpe", "wte", "blocks"]
    shown.run("document.querySelector('#tree [tabindex=\"0\"]').focus()")
    shown.key("ArrowDown")
    shown.key("ArrowDown")
    assert shown.run("document.activeElement.dataset.path") == "blocks"
    opened = shown.run("weftGraph.open.has('blocks')")
    shown.key("ArrowLeft" if opened else "ArrowRight")
    assert shown.run("weftGraph.open.has('blocks')") is not opened
    if opened:
        shown.key("ArrowRight")
    shown.key("ArrowDown")
    assert shown.run("document.activeElement.dataset.path") == "blocks.0"
    shown.key("Enter")
    assert shown.run("weftGraph.chosen.path") == "blocks.0"
    selected = "document.querySelector('#tree [aria-selected=true]').dataset.path"
    assert shown.run(selected) == "blocks.0"
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.1.mlp.gelu')); 0")
    assert shown.run(selected) == "blocks.1.mlp"


@needs_browser
def test_the_node_stands_in_the_address(show: Open) -> None:  # noqa: F811
    shown = show(changing())
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.2.mlp.gelu')); 0")
    address = shown.run("location.href")
    assert address.endswith("#node=blocks.2.mlp.gelu&step=3")
    shown.run("weftGraph.choose(null); 0")
    assert "#" not in shown.run("location.href")
    shown.go("about:blank#")
    shown.go(address.replace("step=3", "step=1"))
    assert shown.run("[weftGraph.chosen.name, weftGraph.step.number]") == ["blocks.2.mlp.gelu", 1]
    shown.run("location.hash = '#module=blocks.1'")
    shown.wait("weftGraph.chosen?.path === 'blocks.1'")


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_the_drawing_as_svg_and_png(show: Open, dark: bool) -> None:  # noqa: F811
    document = resnet()
    document["title"] = 'a "title" & <more>'
    shown = show(document, dark)
    shown.run("weftGraph.unfoldAll(); 0")
    root = ElementTree.fromstring(shown.run("weftGraph.svg()"))
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(f"{space}text")]
    drawn = shown.run("weftGraph.scene.faces.map((face) => face.titleShown)")
    assert set(drawn) <= set(texts) and "16\u00d764\u00d732\u00d732" in texts
    fills = {p.get("fill") for p in root.iter(f"{space}path")}
    assert shown.run("weftGraph.look.theme.paper") in fills
    width, height = shown.run("[weftGraph.scene.width, weftGraph.scene.height]")
    assert float(root.get("width") or 0) > width and float(root.get("height") or 0) > height
    kind, size = shown.run("weftGraph.png().then((blob) => [blob.type, blob.size])")
    assert kind == "image/png" and size > 20_000


@needs_browser
def test_several_lines_of_source_with_the_call_stack(show: Open) -> None:  # noqa: F811
    def inner(x: Any) -> Any:
        before = x * 2
        return before.sin()

    def outer(x: Any) -> Any:
        return inner(x)

    with weft.graph.record() as g:
        outer(weft.ones(3))
    shown = show(weft.graph.document(g))
    shown.run("weftGraph.choose(weftGraph.step.byName.get('sin')); 0")
    lines = shown.run("[...document.querySelectorAll('#panel .source')][0].innerText")
    assert "before = x * 2" in lines and "return before.sin()" in lines
    marked = shown.run("document.querySelector('#panel mark').innerText")
    assert "return before.sin()" in marked
    callers = shown.run(
        "[...document.querySelectorAll('#panel .caller .called')].map((c) => c.textContent)"
    )
    assert callers[:2] == ["return inner(x)", "outer(weft.ones(3))"]


def test_show_names_the_classes_of_a_model_that_the_caller_has(tmp_path: Path) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))

        def draw(self) -> str:
            other = nn.Sequential(nn.Tanh(), nn.Tanh())  # has parts of the same names
            loss = F.mse_loss(self.model(weft.ones(2, 4)), weft.zeros(2, 2))
            assert other is not None
            return weft.graph.show(loss, path=tmp_path / "page.html", open=False)

    text = Path(Trainer().draw()).read_text(encoding="utf-8")
    data = re.search(r'id="document">(.*?)</script>', text, re.S)
    assert data is not None
    modules = json.loads(data[1])["steps"][0]["modules"]
    assert modules == {"0": "Linear", "1": "Sequential", "1.0": "ReLU", "1.1": "Linear"}


@needs_browser
def test_what_was_removed_is_drawn_and_not_counted(show: Open) -> None:  # noqa: F811
    def recorded(net: Any) -> Any:
        optimizer = weft.optim.Adam(net.parameters())
        with weft.graph.record() as g:
            net(weft.ones(2, 4)).sum().backward()
            optimizer.step()
        return g

    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    first = recorded(net)
    net[1] = nn.Identity()
    second = recorded(net)
    shown = show(weft.graph.document([first, second]))
    assert shown.run("weftGraph.step.removed.length") > 0
    words = shown.run("document.querySelector('#panel').innerText").replace(",", "")
    numbers = [int(n) for n in re.findall(r"(\d+) (?:forward|backward|updates)", words)]
    assert sum(numbers) == len(second)
    assert re.search(r"parameters\s+30\b", words)
    bare = "[...document.querySelectorAll('#panel .dot')].map((d) => getComputedStyle(d).background"
    assert not [c for c in shown.run(f"{bare}Color)") if c == "rgba(0, 0, 0, 0)"]


@needs_browser
def test_nodes_that_do_the_same_side_by_side_stand_as_one(show: Open) -> None:  # noqa: F811
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.Linear(4, 1))
    with weft.graph.record() as g:
        net(weft.ones(2, 4)).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    shown = show(json.loads(g.to_json()))
    faces_of = "weftGraph.scene.faces.map((f) => `${f.title} ${f.sub}`)"
    titles = shown.run(faces_of)
    norms, scaled = (
        next(t for t in titles if t.startswith(op) and "\u00d7" in t) for op in ("linalg_", "mul")
    )
    count = int(norms.partition("\u00d7 ")[2])
    assert count >= 8 and not any(re.match(r"linalg_vector_norm:[2-8] ", t) for t in titles)
    # They are no modules, and open like any group.
    assert "linalg" not in shown.run("document.getElementById('tree').textContent")
    shown.run(
        "{ const run = [...weftGraph.tree.groups.values()]"
        ".find((g) => g.ops && g.label.startsWith('linalg')); weftGraph.toggle(run); }"
    )
    opened = [t for t in shown.run(faces_of) if t.startswith("linalg_vector_norm")]
    assert len(opened) >= count and scaled in shown.run(faces_of)
