"""The graph's page, as text and in a real browser."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import browser as browsers
import weft
from graph_documents import Builder, changing, flat, resnet, transformer, wide
from weft import nn
from weft.graph import page

needs_browser = pytest.mark.skipif(browsers.find() is None, reason="there is no Chromium here")

EVIL = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1>&amp;\u2028'\""


def real() -> dict[str, Any]:
    """A step of a real network."""
    model = weft.nn.Sequential(
        weft.nn.Linear(4, 8), weft.nn.ReLU(), weft.nn.Sequential(weft.nn.Linear(8, 2))
    )
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    x = weft.randn(3, 4)
    with weft.graph.record(values=True, profile=True) as graph:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
    return weft.graph.document(graph, "A small network")


# --- as text ---


def parts(text: str) -> tuple[str, str, str, Any]:
    """The policy, style, script and document of a page."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    data = re.search(r'id="document">(.*?)</script>', text, re.S)
    script = re.search(r"<script>(.*?)</script>", text, re.S)
    assert policy and style and data and script
    return policy[1], style[1], script[1], json.loads(data[1])


def test_document_comes_back_whole() -> None:
    document = changing()
    assert parts(page.html(document))[3] == document


def test_policy_allows_our_script_and_nothing_else() -> None:
    policy, style, script, _ = parts(page.html(transformer(1)))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    digest = lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest(script)}'"
    assert rules["style-src"] == f"'sha256-{digest(style)}'"


def test_nothing_from_the_network() -> None:
    text = page.html(transformer(1))
    found = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`]*", text))
    assert found == {"http://www.w3.org/2000/svg"}  # a name, which is never fetched


def test_names_cannot_leave_their_script() -> None:
    document = transformer(1)
    document["title"] = EVIL
    document["steps"][0]["nodes"][0]["name"] = EVIL
    text = page.html(document)
    assert "<img src=x" not in text
    assert parts(text)[3] == document


def test_numbers_that_json_lacks() -> None:
    document = transformer(1)
    node = document["steps"][0]["nodes"][5]
    node["time"], node["grad_norm"], node["stats"]["min"] = (
        float("nan"),
        float("inf"),
        -float("inf"),
    )
    found = parts(page.html(document))[3]["steps"][0]["nodes"][5]
    assert (found["time"], found["grad_norm"]) == ("NaN", "Infinity")
    assert found["stats"]["min"] == "-Infinity"


def test_other_data_is_refused() -> None:
    for wrong in ({}, {"weft_graph": 2, "steps": []}, {"weft_graph": 1}):
        with pytest.raises(ValueError, match="not a graph document of version 1"):
            page.html(wrong)


# --- in a browser ---

Open = Callable[..., browsers.Page]
CHECKS = Path(__file__).with_name("graph_page_checks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[browsers.Browser]:
    with browsers.running() as running:
        yield running


@pytest.fixture
def show(browser: browsers.Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens documents; each page must have been silent and stayed at home."""
    opened = []

    def open_(document: dict[str, Any], dark: bool = False) -> browsers.Page:
        path = tmp_path / f"page{len(opened)}.html"
        path.write_text(page.html(document), encoding="utf-8")
        opened.append(browser.page(path.as_uri(), dark))
        opened[-1].run(CHECKS)
        return opened[-1]

    yield open_
    for each in opened:
        complaints, requests = each.complaints(), each.requests()
        each.close()
        assert complaints == []
        assert [r for r in requests if not r.startswith(("file:", "data:"))] == []


def place(shown: browsers.Page, key: str) -> tuple[float, float]:
    """The middle of a face, or the header of an open group, on the screen."""
    x, y = shown.run(f"checks.place({json.dumps(key)})")
    return x, y


def faces(shown: browsers.Page) -> list[str]:
    return shown.run("weftGraph.scene.faces.map((face) => face.key)")


LONE = {
    "weft_graph": 1,
    "title": "one",
    "steps": [Builder().step(0, [])],
}
MARKS = ("added", "removed", "changed")
CASES = {
    "transformer": transformer,
    "resnet": resnet,
    "changing": changing,
    "braid": lambda: flat(300),
    "chains": lambda: wide(12, 8),
    "real": real,
    "nothing": lambda: {"weft_graph": 1, "title": "", "steps": []},
    "empty step": lambda: LONE,
}


@needs_browser
@pytest.mark.parametrize("name", CASES)
def test_draws_everything_in_its_place(show: Open, name: str) -> None:
    """Nothing overlaps, groups hold their members, edges run with their pass and end at faces."""
    shown = show(CASES[name]())
    assert shown.run("checks.wrong()") == shown.run("checks.crossed()") == []
    for act in ("unfoldAll()", "setLanes('fore')", "setLanes('back')"):
        shown.run(f"weftGraph.{act}; 0")
        assert shown.run("checks.wrong()") == shown.run("checks.crossed()") == [], act


@needs_browser
@pytest.mark.parametrize("make", [transformer, resnet])
def test_starts_folded_and_fits_the_screen(show: Open, make: Callable[[], Any]) -> None:
    shown = show(make())
    assert shown.run("weftGraph.view.k") > 0.5  # large enough to read
    assert shown.run("weftGraph.scene.faces.length") < 60
    assert shown.run("checks.allInSight()")


@needs_browser
def test_canvas_has_a_picture(show: Open) -> None:
    shown = show(transformer())
    for mode, wanted in (("kind", {"forward", "backward"}), ("category", {"norm", "linear"})):
        shown.run(f"weftGraph.setColour('{mode}'); 0")
        colours = shown.run("checks.colours()")
        fills = shown.run("checks.fills()")
        assert {fills[name] for name in wanted} <= set(colours)


@needs_browser
def test_every_edge_is_drawn_once(show: Open) -> None:
    document = transformer(2)
    shown = show(document)
    shown.run("weftGraph.unfoldAll(); 0")
    nodes = {n["id"]: n for n in document["steps"][0]["nodes"]}
    back = ("backward", "optimizer")
    wanted = {
        f"{nodes[i]['name']}>{n['name']}"
        for n in nodes.values()
        if n["kind"] not in back
        for i, _ in n["inputs"]
    }
    assert shown.run("checks.edges()") == sorted(wanted)


@needs_browser
def test_click_unfolds_and_folds(show: Open) -> None:
    shown = show(transformer())
    assert "g:blocks" in faces(shown)  # twelve that are alike stand as one
    shown.click(*place(shown, "g:blocks"))
    before = faces(shown)
    assert "g:blocks" not in before
    shown.run("weftGraph.fit(); 0")
    shown.click(*place(shown, "g:blocks.3"))
    after = faces(shown)
    assert "g:blocks.3" not in after
    assert {"g:blocks.3.attn", "g:blocks.3.mlp", "n:blocks.3.add"} <= set(after)
    assert shown.run("document.querySelector('#panel h2').textContent") == "blocks.3"
    shown.click(*place(shown, "g:blocks.3"))
    assert faces(shown) == before


@needs_browser
def test_click_shows_details_with_links(show: Open) -> None:
    shown = show(transformer(2))
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.1.attn.softmax')); 0")
    shown.click(*place(shown, "n:blocks.1.attn.masked_fill"))
    panel = "document.getElementById('panel').innerText"
    assert shown.run("weftGraph.chosen.name") == "blocks.1.attn.masked_fill"
    text = shown.run(panel)
    for words in (
        "8\u00d78\u00d7128\u00d7128",
        "float32",
        "4.00 MiB",
        "-inf",
        "model.py:",
        "blocks.1.attn.mul",
    ):
        assert words in text
    assert shown.run("document.querySelectorAll('#panel .histogram rect').length") == 24
    link = "[...document.querySelectorAll('#panel .link')].find(b => b.innerText.trim() === 'tril')"
    shown.run(f"{link}.click()")
    assert shown.run("weftGraph.chosen.name") == "tril"
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.1.mlp.fc.weight')); 0")
    assert "blocks.1.mlp.fc.weight.update" in shown.run(panel)


@needs_browser
def test_search_opens_folds(show: Open) -> None:
    document = transformer()
    shown = show(document)
    shown.key("/")
    assert shown.run("document.activeElement.id") == "search"
    shown.type("mlp gelu")
    found = "document.getElementById('found').textContent"
    nodes = document["steps"][0]["nodes"]
    names = [n["name"] for n in nodes if "mlp" in n["module"] and "gelu" in n["name"]]
    assert shown.run(found) == f"{len(names)} found"
    assert shown.run("weftGraph.hits.groups.has('g:blocks.7')")
    shown.key("Enter")
    assert shown.run(found) == f"1 / {len(names)}"
    assert shown.run("weftGraph.chosen.name") == names[0]
    assert f"n:{names[0]}" in faces(shown)
    shown.key("Enter")
    assert shown.run("weftGraph.chosen.name") == names[1]
    shown.key("Enter", shift=True)
    shown.key("Enter", shift=True)
    assert shown.run("weftGraph.chosen.name") == names[-1]
    x, y = place(shown, f"n:{names[-1]}")
    width, height = shown.run("[weftGraph.painter.width, weftGraph.painter.height]")
    assert 0 < x < width and 0 < y < height + 60
    shown.key("Escape")
    assert shown.run("[document.getElementById('search').value, weftGraph.hits]") == ["", None]


@needs_browser
@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("op:softmax", "op"),
        ("model.py:58", "source"),
        ("kind:optimizer", "kind"),
        ("dtype:bool", "dtype"),
    ],
)
def test_search_by_field(show: Open, words: str, field: str) -> None:
    document = transformer(2)
    shown = show(document)
    shown.run(f"weftGraph.search({json.dumps(words)}); 0")
    wanted = words.split(":", 1)[1] if field != "source" else words
    names = [n["name"] for n in document["steps"][0]["nodes"] if wanted in n[field]]
    assert names
    assert shown.run("weftGraph.found.map((node) => node.name)") == names


@needs_browser
def test_search_finds_nothing(show: Open) -> None:
    shown = show(transformer(1))
    shown.run("weftGraph.search('nowhere'); 0")
    assert shown.run("document.getElementById('found').textContent") == "none"
    shown.key("n")
    assert shown.run("weftGraph.chosen") is None


@needs_browser
def test_scrubbing_marks_differences(show: Open) -> None:
    shown = show(changing())
    step = "document.getElementById('step')"
    where = "document.getElementById('where').innerText.replaceAll('\\u00a0', ' ')"
    assert shown.run("weftGraph.index") == 3

    def to(index: int) -> dict[str, list[str]]:
        shown.run(f"{step}.value = {index}; {step}.dispatchEvent(new Event('input')); 0")
        return {mark: shown.run(f"checks.marked('{mark}')") for mark in MARKS}

    assert to(1) == {"added": [], "removed": [], "changed": []}
    extra = ["blocks.1.attn.dropout", "blocks.1.attn.dropout_backward"]
    third = to(2)
    assert third["added"] == extra
    assert third["removed"] == []
    assert {"blocks.2.mlp.gelu", "blocks.1.attn.matmul:2"} <= set(third["changed"])
    assert shown.run(where).startswith("Step 2 (3 of 4) +1 ~1 and ")
    causes = shown.run("weftGraph.step.nodes.filter((n) => n.mark && !n.faint).map((n) => n.name)")
    assert causes == ["blocks.1.attn.dropout", "blocks.2.mlp.gelu"]
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.2.mlp.gelu')); 0")
    assert "gelu → relu" in shown.run("document.getElementById('panel').innerText")
    fourth = to(3)
    assert (fourth["added"], fourth["removed"]) == ([], extra)
    shown.run("weftGraph.unfoldAll(); 0")
    assert f"n:{extra[0]}" in faces(shown)  # what is gone stands there as a ghost
    assert shown.run("checks.wrong()") == []
    shown.wait("document.querySelectorAll('#ticks i').length === 2")


@needs_browser
def test_marks_of_a_folded_group_are_those_of_its_lane(show: Open) -> None:
    first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net = nn.Sequential(first, nn.Linear(4, 4), nn.Linear(4, 2))
    x = weft.randn(3, 4)
    with weft.graph.record() as g:
        net(x).sum().backward()
    edited = g.replace("0.1.relu", weft.tanh).slice_to("sum")  # and without the backward pass
    shown = show(weft.graph.document([g, edited]))
    shown.run("weftGraph.open = new Set(['']); weftGraph.relayout(); 0")
    marks = shown.run(
        "Object.fromEntries(weftGraph.scene.faces.map((face) => [face.key, face.mark]))"
    )
    assert marks["g:0"] == "changed" and marks["g:0:back"] == "removed"
    assert marks["g:1"] is None  # it reads what stands in the place of what it read
    assert marks["g:2"] is None and marks["g:2:back"] == "removed"
    ghosts = shown.run("weftGraph.scene.routes.map((route) => [route.lane, route.ghost])")
    assert {tuple(pair) for pair in ghosts} == {(0, False), (1, True)}


@needs_browser
def test_unfolding_leaves_words_that_can_be_read(show: Open) -> None:
    shown = show(transformer())
    x, y = place(shown, next(key for key in faces(shown) if key.startswith("g:")))
    shown.mouse("mouseMoved", x, y)
    shown.wait("!document.getElementById('tip').hidden")
    text = shown.run("document.getElementById('tip').innerText")
    assert text.count("·") == len(set(text.split(" · "))) - 1  # nothing is said twice
    shown.run("document.getElementById('unfold').click(); 0")
    assert shown.run("document.getElementById('tip').hidden")
    cut = "weftGraph.scene.faces.filter((f) => f.w < 330 && f.subShown !== f.sub).map((f) => f.key)"
    assert shown.run(cut) == []
    assert shown.run("weftGraph.view.k") >= 0.5
    shown.run("document.getElementById('fit').click(); 0")
    assert shown.run("checks.allInSight()")


@needs_browser
def test_step_keeps_folds_and_choice(show: Open) -> None:
    shown = show(changing())
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.3.mlp.gelu')); 0")
    view = shown.run("weftGraph.view")
    shown.key("[")
    shown.key("[")
    assert shown.run("weftGraph.index") == 1
    assert shown.run("weftGraph.chosen.name") == "blocks.3.mlp.gelu"
    assert "n:blocks.3.mlp.gelu" in faces(shown)
    assert shown.run("weftGraph.view") == view
    shown.key("]")
    assert shown.run("weftGraph.index") == 2


@needs_browser
def test_same_structure_keeps_its_layout(show: Open) -> None:
    shown = show(changing())
    shown.run("weftGraph.unfoldAll(); weftGraph.showStep(0); 0")
    places = "weftGraph.scene.faces.map((face) => [face.key, face.x, face.y])"
    before, plan = shown.run(places), "weftGraph.plans.get('blocks.1')"
    shown.run(f"window.plan = {plan}; weftGraph.showStep(1); 0")
    assert shown.run(f"window.plan === {plan}")
    assert shown.run(places) == before
    shown.run("weftGraph.showStep(2); 0")
    assert shown.run(f"window.plan !== {plan}")
    assert shown.run("checks.wrong()") == []


@needs_browser
def test_pan_and_zoom_by_keys_and_mouse(show: Open) -> None:
    shown = show(transformer())
    shown.run("document.getElementById('graph').focus()")
    shown.key("0")
    start = shown.run("weftGraph.view")
    shown.key("ArrowDown")
    shown.key("ArrowRight")
    assert shown.run("weftGraph.view") == {
        "k": start["k"],
        "x": start["x"] - 80,
        "y": start["y"] - 80,
    }
    shown.key("+")
    assert shown.run("weftGraph.view.k") == pytest.approx(1.25 * start["k"])
    shown.key("-")
    shown.key("0")
    assert shown.run("weftGraph.view") == start
    shown.mouse("mousePressed", 700, 700, button="left", buttons=1, clickCount=1)
    shown.mouse("mouseMoved", 760, 720, button="left", buttons=1)
    shown.mouse("mouseReleased", 760, 720, button="left", clickCount=1)
    moved = shown.run("weftGraph.view")
    assert (moved["x"] - start["x"], moved["y"] - start["y"]) == (60, 20)
    under = (
        "[(500 - weftGraph.view.x) / weftGraph.view.k, (400 - weftGraph.view.y) / weftGraph.view.k]"
    )
    before = shown.run(under)
    frame = "document.getElementById('graph').getBoundingClientRect()"
    left, top = shown.run(f"[{frame}.left, {frame}.top]")
    shown.mouse("mouseWheel", 500 + left, 400 + top, deltaX=0, deltaY=-240)
    shown.wait(f"weftGraph.view.k > {moved['k']} * 1.2")
    assert shown.run(under) == pytest.approx(before)  # what is under the pointer stays there


@needs_browser
def test_keys_walk_along_edges(show: Open) -> None:
    shown = show(transformer(2))
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.0.attn.softmax'))")
    shown.run("document.getElementById('graph').focus()")
    shown.key("ArrowDown", shift=True)
    assert shown.run("weftGraph.chosen.name") == "blocks.0.attn.matmul:2"
    shown.key("ArrowUp", shift=True)
    shown.key("ArrowUp", shift=True)
    assert shown.run("weftGraph.chosen.op") in ("softmax", "masked_fill", "transpose")
    shown.key("Enter")
    assert shown.run("weftGraph.chosen.path") == "blocks.0.attn"
    assert "g:blocks.0.attn" in faces(shown)
    assert "attn" in shown.run("document.getElementById('say').textContent")


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_in_all_colours(show: Open, dark: bool) -> None:
    document = transformer(2)
    document["steps"][0]["nodes"][40]["grad_norm"] = float("nan")
    shown = show(document, dark)
    assert shown.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    shown.run("weftGraph.unfoldAll(); 0")
    legends = set()
    for mode in ("category", "kind", "time", "bytes", "flops", "dtype", "gradient"):
        shown.run(f"weftGraph.setColour('{mode}'); 0")
        legends.add(shown.run("document.getElementById('legend').innerText"))
        assert shown.run("checks.worstContrast()") >= 4.5, mode
    assert len(legends) == 7
    compared = show(changing(), dark)
    compared.run("weftGraph.showStep(2); weftGraph.unfoldAll(); 0")
    for mode in ("changes", "category"):
        compared.run(f"weftGraph.setColour('{mode}'); 0")
        assert compared.run("checks.worstContrast()") >= 4.5, mode


@needs_browser
def test_theme_button(show: Open) -> None:
    shown = show(transformer(1))
    paper = shown.run("weftGraph.look.theme.paper")
    shown.run("document.getElementById('theme').click()")
    assert shown.run("document.documentElement.dataset.theme") == "dark"
    assert shown.run("weftGraph.look.theme.paper") != paper


@needs_browser
def test_controls_have_names_and_can_be_reached(show: Open) -> None:
    shown = show(changing())
    shown.run("weftGraph.go(weftGraph.step.byName.get('blocks.1.mlp.gelu'))")
    shown.send("Accessibility.enable")
    tree = shown.send("Accessibility.getFullAXTree")["nodes"]
    controls = [
        n
        for n in tree
        if not n["ignored"]
        and n["role"]["value"]
        in ("button", "searchbox", "slider", "combobox", "application", "link")
    ]
    assert len(controls) > 20
    assert [n for n in controls if not n.get("name", {}).get("value", "").strip()] == []
    shown.run("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        shown.key("Tab")
        reached.add(shown.run("document.activeElement.id || document.activeElement.className"))
    assert {"search", "colour", "unfold", "graph", "step", "theme", "link"} <= reached


@needs_browser
def test_evil_names_do_nothing(show: Open) -> None:
    document = transformer(1)
    document["title"] = EVIL
    for node in document["steps"][0]["nodes"][10:14]:
        node["name"] = f"{node['id']}{EVIL}"
        node["attrs"] = {EVIL: EVIL}
        node["source"] = node["op"] = EVIL
    shown = show(document)
    for k in range(10, 14):
        shown.run(f"weftGraph.go(weftGraph.step.nodes[{k}]); 0")
    assert EVIL in shown.run("document.getElementById('panel').textContent")
    assert shown.run("document.title") == EVIL
    assert shown.run("typeof window.evil") == "undefined"


@needs_browser
def test_policy_holds(browser: browsers.Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page.html(transformer(1)), encoding="utf-8")
    shown = browser.page(path.as_uri())
    shown.run(
        "const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
        "document.body.append(s)"
    )
    assert shown.run("typeof window.evil") == "undefined"
    assert (
        shown.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    )
    assert any("Content Security Policy" in said for said in shown.complaints())
    shown.close()


@needs_browser
def test_backward_alone_and_loops(show: Open) -> None:
    """Backward nodes without partners, modules that run twice, inputs that are not there."""
    document = copy.deepcopy(transformer(2))
    for node in document["steps"][0]["nodes"]:
        if node["kind"] == "backward" and node["id"] % 3 == 0:
            node["forward"] = None
        if node["name"] == "blocks.1.ln_1.layer_norm":
            node["module"] = "blocks.0.ln_1"  # a module that is used again further down
        if node["name"] == "norm.layer_norm":
            node["inputs"].append([10**9, 0])
    shown = show(document)
    shown.run("weftGraph.unfoldAll(); 0")
    assert shown.run("weftGraph.scene.routes.some((route) => route.turned)")
    assert shown.run("weftGraph.scene.faces.every((f) => Number.isFinite(f.x + f.y))")
    shown.run("weftGraph.foldAll(); 0")
    only = {**document, "steps": [dict(document["steps"][0])]}
    only["steps"][0]["nodes"] = [
        {**n, "forward": None} for n in document["steps"][0]["nodes"] if n["kind"] == "backward"
    ]
    lone = show(only)
    assert lone.run("weftGraph.scene.faces.length") > 0
