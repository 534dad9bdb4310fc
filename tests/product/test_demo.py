"""``weft demo``: what it learns, what it tells, what it writes, in a pipe and in a browser."""

from __future__ import annotations

import csv
import io
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

import browser as browsers
import weft
from weft.demo.terminal import Terminal, TerminalProgress

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {
    "index.html", "graph.html", "model.safetensors", "step.weft", "metrics.csv", "loss.svg",
    "accuracy.svg",
}  # fmt: skip


def call(*arguments: str, cwd: pathlib.Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments],
        capture_output=True, text=True, cwd=cwd, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, pathlib.Path]]:
    """What a short demo printed, and its folder."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("demo")
    ran = call("demo", "--epochs", "3", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    yield ran.stdout, folder / "weft-demo"


def test_in_a_pipe_it_prints_plain_lines(done: tuple[str, pathlib.Path]) -> None:
    printed, folder = done
    assert "\r" not in printed and "\x1b" not in printed
    assert len(re.findall(r"^  epoch +\d of 3  loss \d\.\d+  test accuracy", printed, re.M)) == 3
    assert f"report: {(folder / 'index.html').as_uri()}" in printed


def test_commands_that_it_names_can_be_called(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.demo.program import command

    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "weft").write_text("#!/bin/sh\n")
    (folder / "weft").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert command() == str(pathlib.Path(".venv", "bin", "weft")), "no environment is active"
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(folder))
    assert command() == "weft"
    (folder / "weft").unlink()
    assert command() == "weft", "python -m weft"


def test_it_learns_and_its_numbers_agree(done: tuple[str, pathlib.Path]) -> None:
    printed, folder = done
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)
    assert float(rows[-1]["test_accuracy"]) > 0.85
    final = re.search(r"(\d+\.\d+)% of the test digits", printed)
    assert final and float(final[1]) == pytest.approx(100 * float(rows[-1]["test_accuracy"]), 1e-3)


def test_it_edits_explains_and_compares(done: tuple[str, pathlib.Path]) -> None:
    printed, _ = done
    assert "features.0.weight: [16, 1, 3, 3] -> [32, 1, 3, 3]" in printed
    edited = re.search(r"before the edit (\S+), after it (\S+)", printed)
    assert edited and edited[1] == edited[2]  # the edit changed the network, not what it computes
    assert re.search(r"replace\(gelu, op='relu', module='head.\*'\): \d+ uses", printed)
    assert "div made the first NaN" in printed
    assert re.search(r"acts\.py:\d+: return images / images\.amax", printed)
    assert re.search(r"\+ head\.1\.dropout .*network\.py:\d+", printed)
    assert "values part at head.2.linear" in printed
    assert re.search(r"weft\.compile\(step\) +\S+ ms", printed)
    apart = re.search(r"losses of all 60 steps agree to (\S+)\.", printed)
    assert apart and float(apart[1]) < 1e-4


def test_its_files_can_be_read_again(done: tuple[str, pathlib.Path]) -> None:
    _, folder = done
    assert {p.name for p in folder.iterdir()} == FILES
    from weft.demo import acts, network
    from weft.io.safetensors import load_safetensors

    net = network.Network()
    weft.graph.resize(net, "features.0", width=32, example=weft.ones(1, 1, 8, 8))
    acts.settle(net)
    net.load_state_dict(load_safetensors(folder / "model.safetensors"))
    assert len(weft.graph.load(folder / "step.weft").find(op="gelu")) == 1


def test_it_says_what_is_missing_in_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nold = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'sklearn' else old(n, *a)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "weft", "demo"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr == (
        "weft demo: the demo needs scikit-learn, which has the digits: pip install 'weft[demo]'\n"
    )


def test_an_output_that_cannot_be_is_refused_before_the_training(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "taken").write_text("")
    ran = call("demo", "--output", "taken", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "weft demo: taken: Not a folder\n"
    ran = call("demo", "--epochs", "0", cwd=tmp_path)
    assert ran.returncode == 2 and "is not a positive number" in ran.stderr


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    terminal = Terminal(screen)
    progress = TerminalProgress(terminal, epochs=2)
    for step in (1, 2):
        progress.step(1, step, 2, 0.5)
    progress.epoch(1, 0.5, 0.9)
    progress.step(2, 1, 2, 0.25)
    terminal.line("after")
    lines = screen.getvalue().split("\n")
    drawn = lines[0].split("\r")
    assert len(drawn) == 5 and lines[1] == "after"
    assert "epoch  1/2  loss 0.5000  test 90.0%" in drawn[3], "an epoch ends with its own accuracy"
    assert "epoch  2/2  loss 0.2500  test 90.0%" in drawn[4] and "s left" in drawn[4]
    assert all(len(re.sub(r"\x1b\[[\d;]*[mK]", "", d)) <= 90 for d in drawn)
    monkeypatch.setenv("COLUMNS", "20")
    progress.step(2, 2, 2, 0.25)  # a narrow one is no fault
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal(screen).style("x", "bold") == "x"


def test_the_bar_is_plain_where_the_terminal_is() -> None:
    class Old(Screen):
        encoding = "ascii"

    screen = Old()
    Terminal(screen).bar(0.5, "half")
    screen.getvalue().encode("ascii")


def test_the_live_demo_serves_the_training(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    code = (
        "import webbrowser; webbrowser.open = print\n"
        "from weft_command import main\n"
        "raise SystemExit(main(['demo', '--live', '--epochs', '1', '--wait', '0']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    address = re.search(r"weft graph: (\S+)", ran.stderr)
    assert address and urllib.parse.urlsplit(address[1]).hostname == "127.0.0.1"
    assert "shows the training live" in ran.stdout
    assert (tmp_path / "weft-demo" / "index.html").is_file()


# --- the pages, in a browser ---------------------------------------------------------------


@pytest.mark.skipif(browsers.find() is None, reason="there is no Chromium here")
def test_the_pages_are_drawn_in_light_and_dark(done: tuple[str, pathlib.Path]) -> None:
    _, folder = done
    with browsers.running() as browser:
        seen = {}
        for dark in (False, True):
            page = browser.page((folder / "index.html").as_uri(), dark)
            assert page.complaints() == []
            assert all(r.startswith(("file:", "data:")) for r in page.requests())
            assert page.run("document.querySelectorAll('figure svg').length") >= 4
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            # Nothing stands outside of its picture.
            assert page.run(OUTSIDE) == []
            seen[dark] = page.run("getComputedStyle(document.body).backgroundColor")
            links = page.run("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
            assert set(links) <= {p.name for p in folder.iterdir()}
            page.close()
        assert seen[False] != seen[True]
        graph = browser.page((folder / "graph.html").as_uri())
        assert graph.complaints() == []
        assert graph.run("weftGraph.index") == 1  # the second of two steps
        graph.close()


OUTSIDE = """
[...document.querySelectorAll('figure svg')].flatMap(picture => {
  const frame = picture.getBoundingClientRect();
  return [...picture.querySelectorAll('text, image, path, rect')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  }).map(e => e.outerHTML.slice(0, 120));
})
"""


# --- from a clean checkout -----------------------------------------------------------------


@pytest.mark.deep
def test_make_demo_in_an_empty_environment(tmp_path: pathlib.Path) -> None:
    """What a newcomer does: clone, ``make demo``, look."""
    checkout = tmp_path / "weft"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    environment.pop("WEFT_TRACEBACK", None)
    ran = subprocess.run(
        ["make", "demo"], capture_output=True, text=True, cwd=checkout, env=environment,
        timeout=1200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"(\S+)% of the test digits .* in (\S+) s", ran.stdout)
    assert found and float(found[1]) > 97.0 and float(found[2]) < 60.0
    assert {p.name for p in (checkout / "weft-demo").iterdir()} == FILES
