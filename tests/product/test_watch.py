"""The training view: what it reads from log folders and from a running program, and the page."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from test_graph_serve import ask

import browser as browsers
import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.train import CSVLogger, JSONLogger
from weft.utils.tensorboard import SummaryWriter
from weft.watching import folders, page, series
from weft.watching.folders import Folders

needs_browser = pytest.mark.skipif(browsers.find() is None, reason="there is no Chromium here")
EVIL = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1>&amp;'\""


def runs_of(source: Any) -> dict[str, Any]:
    """The runs by name, with their curves as (step, value)."""
    found = source.document()["training"]["runs"]
    return {
        run["name"]: {tag: [(p[0], p[1]) for p in ps] for tag, ps in run["series"].items()}
        for run in found
    }


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the disk whenever asked."""
    monkeypatch.setattr(folders, "LOOK_EVERY", 0.0)


# --- log folders -------------------------------------------------------------------------


def test_all_kinds_of_logs_are_read_as_they_grow(tmp_path: Path, eager: None) -> None:
    table, lines = (
        CSVLogger(tmp_path / "c" / "metrics.csv"),
        JSONLogger(tmp_path / "j/metrics.jsonl"),
    )
    writer = SummaryWriter(tmp_path / "deep" / "t")
    source = Folders(tmp_path)
    first = source.version()
    assert source.version() == first
    for step in range(3):
        for logger in (table, lines):
            logger.log({"loss": 1 / (step + 1)}, step)
        writer.add_scalar("loss", 1 / (step + 1), step)
        found = runs_of(source)
        assert set(found) == {"c", "j", "deep/t"}
        for run in found.values():
            assert [s for s, _ in run["loss"]] == list(range(step + 1))
            assert run["loss"][-1][1] == pytest.approx(1 / (step + 1))
    assert source.version() > first
    table.log({"loss": 0.1, "new": float("nan")}, 3)  # widens the table: another file
    lines.log({"loss": float("inf")}, 3)
    writer.close()
    found = runs_of(source)
    assert len(found["c"]["loss"]) == 4 and math.isnan(found["c"]["new"][0][1])
    assert found["j"]["loss"][-1] == (3, math.inf)


def test_a_resumed_run_goes_back(tmp_path: Path, eager: None) -> None:
    source = Folders(tmp_path)
    logger = JSONLogger(tmp_path / "j" / "metrics.jsonl")
    for step in range(5):
        logger.log({"loss": step}, step)
    with SummaryWriter(tmp_path / "t") as writer:
        for step in range(5):
            writer.add_scalar("loss", step, step)
    assert len(runs_of(source)["t"]["loss"]) == len(runs_of(source)["j"]["loss"]) == 5
    logger.resume_at(2)
    logger.log({"loss": 30.0}, 3)
    with SummaryWriter(tmp_path / "t", purge_step=3) as writer:
        writer.add_scalar("loss", 30.0, 3)
    expected = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0)]
    assert runs_of(source) == {"j": {"loss": expected}, "t": {"loss": expected}}


def test_several_folders_and_none(tmp_path: Path, eager: None) -> None:
    for top in ("a", "b"):
        JSONLogger(tmp_path / top / "x" / "metrics.jsonl").log({"loss": 1.0}, 0)
    assert set(runs_of(Folders(tmp_path / "a", tmp_path / "b"))) == {"a/x", "b/x"}
    assert set(runs_of(Folders(tmp_path / "a" / "x"))) == {"x"}
    (tmp_path / "empty").mkdir()
    note = Folders(tmp_path / "empty").document()["training"]["note"]
    assert "No logs below" in note and "empty" in note
    with pytest.raises(NotADirectoryError, match="nowhere is not a folder"):
        weft.watch(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="a model, or the folders of logs, not int"):
        weft.watch(3)


def test_broken_logs_are_passed_over(tmp_path: Path, eager: None) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "metrics.jsonl").write_bytes(
        b'{"step": 0, "loss": 1}\n[1]\nnot json\n{"loss": 2}\n{"step": "x", "loss": 2}\n'
        + b"[" * 100_000
        + b'\n\xff\xfe\n{"step": 1, "loss": [], "ok": true, "a": "NaN"}\n{"step": 2, "lo'
    )
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.csv").write_text("step,loss\n0,1\n1,\n2,x\n3,4,5,6\n")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "events.out.tfevents.1").write_bytes(os.urandom(500))
    found = runs_of(Folders(tmp_path))
    assert found["j"]["loss"] == [(0, 1.0)] and math.isnan(found["j"]["a"][0][1])
    assert found["c"] == {"loss": [(0, 1.0), (3, 4.0)]}
    assert "t" not in found


def test_damaged_event_files_are_passed_over(tmp_path: Path, eager: None) -> None:
    from weft.utils.tensorboard import _records

    with SummaryWriter(tmp_path / "whole") as writer:
        writer.add_scalar("x", 1.0, 1)
        writer.add_scalar("y", 2.0, 2, new_style=True)
        writer.add_image("i", np.zeros((3, 4, 4)), 0)
        writer.add_text("t", "words")
    (path,) = (tmp_path / "whole").iterdir()
    records = [content for content, _ in _records.read(path)]
    rng = np.random.default_rng(5)
    (tmp_path / "cut").mkdir()
    for k in range(300):
        damaged = [np.frombuffer(r, np.uint8).copy() for r in records]
        for r in damaged:
            r[rng.integers(len(r), size=2)] = rng.integers(0, 256, 2)
        target = tmp_path / "cut" / f"events.out.tfevents.{k}"
        # The checksums are right, so that what is in the records is looked at.
        target.write_bytes(b"".join(_records.frame(r.tobytes()) for r in damaged))
    document = Folders(tmp_path / "cut").document()
    assert len(document["training"]["runs"]) == 1


def test_long_tables_are_read_in_pieces(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_AT_ONCE", 100)
    lines = [json.dumps({"step": k, "loss": k}) for k in range(50)]
    lines.insert(20, "x" * 250)
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    source = Folders(tmp_path)
    for _ in range(40):
        source.version()
    (run,) = runs_of(source).values()
    assert [s for s, _ in run["loss"]] == list(range(50))


def test_long_curves_keep_their_ends_and_spikes() -> None:
    values = np.sin(np.linspace(0, 9, 50_000))
    values[31_234], values[777] = 50.0, np.nan
    curve = [(float(k), float(v), 0.0) for k, v in enumerate(values)]
    thin = series.thinned(curve)
    assert len(thin) <= series.MOST_POINTS
    assert thin[0] == curve[0] and thin[-1] == curve[-1] and curve[31_234] in thin
    assert [p[0] for p in thin] == sorted(p[0] for p in thin)


# --- a running program -------------------------------------------------------------------


def test_a_training_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.watching import live

    monkeypatch.setattr(live, "MEASURE_EVERY", 0.0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    x, y = weft.ones(8, 3), weft.zeros(8, 1)
    with weft.watch(model) as served:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            before = [p.detach().clone() for p in model[0].parameters()]
            optimizer.step()
            losses.append(loss.item())
        served.source.log({"accuracy": weft.tensor(0.5)}, other=1)
        served.source.sample("picture", weft.rand(3, 4, 4))
        document = ask(served, "/document")[1]["document"]
    run = document["training"]["runs"][0]
    curves = {tag: [p[1] for p in points] for tag, points in run["series"].items()}
    assert curves["loss"] == losses and curves["lr"] == [0.5] * 3
    grads = math.sqrt(sum(p.grad.square().sum().item() for p in model[0].parameters()))
    weights = math.sqrt(sum(p.square().sum().item() for p in before))
    assert curves["grad_norm/0"][-1] == pytest.approx(grads, rel=1e-5)
    assert curves["update_ratio/0"][-1] == pytest.approx(0.5 * grads / weights, rel=1e-4)
    assert {"grad_norm/2", "update_ratio/2", "memory", "steps_per_second", "other"} <= curves.keys()
    assert base64.b64decode(run["images"][0]["data"]).startswith(b"\x89PNG")
    count = served.source.updates
    optimizer.step()
    assert served.source.updates == count, "nothing is followed after the end"


def test_following_changes_no_bits() -> None:
    def train(watched: bool) -> list[bytes]:
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = optim.Adam(model.parameters())
        served = weft.watch(model) if watched else None
        for _ in range(5):
            optimizer.zero_grad()
            model(weft.randn(4, 3)).square().mean().backward()
            optimizer.step()
        if served is not None:
            served.close()
        return [p.numpy().tobytes() for p in model.state_dict().values()]

    assert train(True) == train(False)


def test_only_this_machine_with_the_token_may_look(tmp_path: Path) -> None:
    JSONLogger(tmp_path / "metrics.jsonl").log({"loss": 1.0}, 0)
    with weft.watch(tmp_path) as served:
        assert ask(served, "/document")[0] == 200
        assert ask(served, "/document", token="wrong")[0] == 403
        assert ask(served, "/document", token=None)[0] == 403
        assert ask(served, "/document", Host="evil.example")[0] == 403
        assert ask(served, "/document", Origin="http://evil.example")[0] == 403
        status, said, _ = ask(served, "/edit", "POST", {"edit": "pause"})
        assert status == 200 and "no running program" in said["error"]
        assert ask(served, "/../metrics.jsonl")[0] == 404


def test_the_command(tmp_path: Path) -> None:
    JSONLogger(tmp_path / "run" / "metrics.jsonl").log({"loss": 1.0}, 0)
    command = [sys.executable, "-m", "weft", "watch"]
    out = tmp_path / "page.html"
    done = subprocess.run([*command, tmp_path, "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = re.search(r'id="document">(.*?)</script>', out.read_text(), re.S)
    assert data and json.loads(data[1])["training"]["runs"][0]["name"] == "run"
    done = subprocess.run([*command, tmp_path / "no"], capture_output=True, text=True)
    assert done.returncode == 2 and "is not a folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    running = subprocess.Popen([*command, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert running.stdout is not None
        line = running.stdout.readline().decode()
        url = re.search(r"http://127.0.0.1:\d+/\?token=\S+", line)
        assert url, line
        with urlopen(url[0]) as answer:
            assert b"Content-Security-Policy" in answer.read()
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.communicate()


# --- in a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[browsers.Browser]:
    with browsers.running() as running:
        yield running


def make_runs(folder: Path) -> None:
    for k, name in enumerate(("one", "two")):
        with SummaryWriter(folder / name) as writer:
            for step in range(100):
                writer.add_scalar(
                    "loss", math.exp(-step / 20 / (k + 1)) if step != 40 else math.nan, step
                )
                writer.add_scalar("lr", 0.1 * 0.9 ** (step // 10), step)
                writer.add_scalar("memory", 1e6 * (k + 1), step)
                for layer in ("a", "b"):
                    writer.add_scalar(f"grad_norm/{layer}", 1 / (step + 1), step)
                    writer.add_scalar(f"update_ratio/{layer}", 1e-3, step)
            for step in (50, 100):
                writer.add_scalar("epoch/loss", 1 / step, step)
                writer.add_scalar("epoch/val_loss", 2 / step, step)
            writer.add_image("sample", np.random.default_rng(k).random((3, 8, 8)), 9)


TITLES = "[...document.querySelectorAll('.chart figcaption')].map(x => x.textContent)"


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_draws_and_compares_runs(
    browser: browsers.Browser, tmp_path: Path, dark: bool
) -> None:
    make_runs(tmp_path / "logs")
    opened = browser.page(Path(page(tmp_path / "logs", path=tmp_path / "p.html")).as_uri(), dark)
    titles = opened.run(TITLES)
    assert titles == [
        *("loss", "loss (by epoch)", "lr", "grad_norm by layer · one", "grad_norm by layer · two"),
        *("update_ratio by layer · one", "update_ratio by layer · two", "memory"),
    ]
    assert opened.run("document.querySelectorAll('.sample img').length") == 2
    assert opened.run("[...document.images].every(i => i.complete && i.naturalWidth === 8)")
    assert opened.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    ink = opened.run("getComputedStyle(document.querySelector('.chart figcaption')).color")
    assert (ink == "rgb(239, 238, 234)") == dark
    assert opened.run("getComputedStyle(document.querySelector('main')).display") == "none"
    gaps = opened.run(
        "document.querySelector('.chart .line').getAttribute('d').split('M').length - 1"
    )
    assert gaps == 2, "a NaN is a gap"
    legend = opened.run("[...document.querySelectorAll('.chart')][1].querySelector('ul').innerText")
    assert "one validation" in legend and "two validation" in legend
    opened.run("document.querySelectorAll('#runs input')[0].click()")
    assert "grad_norm by layer · one" not in opened.run(TITLES)
    opened.run("(() => { const l = document.getElementById('log'); l.click(); })()")
    ticks = opened.run("[...document.querySelectorAll('.chart .tick.end')].map(x => x.textContent)")
    assert "0.1" in ticks
    box = "document.querySelector('.chart > svg').getBoundingClientRect()"
    opened.mouse("mouseMoved", *opened.run(f"(r => [r.x + r.width / 2, r.y + 60])({box})"))
    tip = "document.getElementById('chart-tip')"
    tip = opened.wait(f"!{tip}.hidden && {tip}.innerText")
    assert tip.split() == ["step", "44", "two", "0.3329"], "exp(-44 / 40)"
    assert opened.complaints() == [] and len(opened.requests()) <= 4
    opened.close()


@needs_browser
def test_a_spike_is_cut_off_and_told_and_zeros_have_an_axis(
    browser: browsers.Browser, tmp_path: Path
) -> None:
    with SummaryWriter(tmp_path / "logs" / "run") as writer:
        for step in range(200):
            writer.add_scalar("loss", 500.0 if step == 30 else 1 + step % 2, step)
            writer.add_scalar("steep", 3 * 0.97**step, step)
            writer.add_scalar("memory", 0, step)
    opened = browser.page(Path(page(tmp_path / "logs", path=tmp_path / "p.html")).as_uri())
    opened.run("(e => { e.value = 0; e.dispatchEvent(new Event('input')); })(smooth)")
    charts = dict(
        opened.run(
            "[...document.querySelectorAll('.chart')].map(c => [c.querySelector('figcaption')"
            ".textContent, [...c.querySelectorAll('.tick.end')].map(t => t.textContent)])"
        )
    )
    assert "all from 1 to 500" in charts["loss"] and "2" in charts["loss"]
    assert charts["steep"] == ["0", "1", "2", "3"], "nothing is cut off that can be drawn"
    assert charts["memory"] == ["0 B", "1 B"]
    # Where the spike is, the curve leaves the frame, which hides what is outside.
    frame = "document.querySelector('.chart svg svg')"
    assert opened.run(f"getComputedStyle({frame}).overflow") == "hidden"
    heights = opened.run(
        f"{frame}.querySelector('.line').getAttribute('d').match(/ -?[\\d.]+/g).map(Number)"
    )
    assert min(heights) < 0 < sorted(heights)[1]
    assert opened.complaints() == []
    opened.close()


@needs_browser
def test_names_from_logs_are_text(browser: browsers.Browser, tmp_path: Path) -> None:
    logger = JSONLogger(tmp_path / "run" / "metrics.jsonl")
    logger.log({EVIL: 1.0, "loss": 2.0}, 0)
    opened = browser.page(Path(page(tmp_path, path=tmp_path / "p.html", title=EVIL)).as_uri())
    assert opened.run("window.evil") is None
    # A slash divides names; what is after the last one of the tag is its name in the chart.
    assert any("onerror" in title for title in opened.run(TITLES))
    assert opened.complaints() == []
    opened.close()


@needs_browser
def test_a_served_page_follows_the_logs(browser: browsers.Browser, tmp_path: Path) -> None:
    logger = JSONLogger(tmp_path / "run" / "metrics.jsonl")
    (tmp_path / "run").mkdir()
    with weft.watch(tmp_path) as served:
        opened = browser.page(served.url)
        assert "No logs below" in opened.run("document.querySelector('.note').textContent")
        assert opened.run("document.getElementById('views').hidden")
        logger.log({"loss": 1.0}, 0)
        opened.wait("document.querySelectorAll('.chart').length === 1")
        logger.log({"loss": 0.25}, 7)
        opened.wait("document.querySelector('.chart li code').textContent === '0.25'")
        assert "7 steps" in opened.run("document.getElementById('runs').innerText")
        assert opened.complaints() == []
        opened.close()


@needs_browser
def test_a_program_is_followed_beside_its_graph(browser: browsers.Browser) -> None:
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with weft.watch(model) as served:
        opened = browser.page(served.url)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            optimizer.zero_grad()
            model(weft.ones(2, 3)).square().mean().backward()
            optimizer.step()
            if "loss" in opened.run(TITLES) and opened.run("weftGraph.scene.faces.length > 1"):
                break
        assert "loss" in opened.run(TITLES)
        opened.run("document.querySelector('[data-view=graph]').click()")
        assert opened.run("getComputedStyle(document.getElementById('training')).display") == "none"
        assert opened.run("getComputedStyle(document.querySelector('main')).display") != "none"
        assert not opened.run("document.getElementById('live').hidden")
        inside = (
            "weftGraph.scene.faces.some(f => { const {x, y, k} = weftGraph.view, "
            "[sx, sy] = [f.x * k + x, f.y * k + y]; return sx > 0 && sy > 0 && "
            "sx < innerWidth && sy < innerHeight })"
        )
        assert opened.run(inside)
        assert opened.complaints() == []
        opened.close()
