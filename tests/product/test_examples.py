"""The examples run unchanged on weft, and print the losses that they print on PyTorch."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from forking import Forks

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"
TEXTS = {p.stem: p.read_text() for p in sorted(FOLDER.glob("*.py")) if p.stem != "__main__"}
NAMES = [name for name, text in TEXTS.items() if "import torch" in text.splitlines()]
# Those that use what only weft has; more of them are tested beside what they are about.
OWN = ["detection_shapes", "segmentation_shapes"]
STEPS = 6
LINE = re.compile(r"^step (\d+) loss (\S+)$", re.M)
# Several processes that train one network at once are never twice the same.
OPTIONS = {"a3c": ["--workers", "1"]}

# Importing torch takes longer than most examples do, so one process runs all of them.
ALL_ON_TORCH = """
import contextlib, io, json, os, runpy, sys
printed = {}
sys.path.insert(0, os.getcwd())
for path, *options in json.loads(sys.argv[1]):
    sys.argv = [path, *options]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(path, run_name="__main__")
    printed[path] = out.getvalue()
print(json.dumps(printed))
"""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def short(name: str) -> list[str]:
    if "sklearn" in TEXTS[name]:
        pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
    return [f"{name}.py", "--steps", str(STEPS), *OPTIONS.get(name, [])]


def losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LINE.findall(printed)}


@functools.cache
def on_torch() -> dict[str, str]:
    return json.loads(run("-c", ALL_ON_TORCH, json.dumps([short(name) for name in NAMES])))


@pytest.fixture(scope="module")
def weft_run() -> Iterator[Any]:
    """``weft run`` with arguments; gives what it printed."""
    if not hasattr(os, "fork"):
        yield lambda *arguments: run("-m", "weft", "run", *arguments)
        return
    command = "import sys\nfrom weft_command import main\nraise SystemExit(main(sys.argv[1:]))"
    with Forks("weft", "weft_command.running") as forks:

        def started(*arguments: str) -> str:
            done = forks.run(command, "run", *arguments, cwd=FOLDER)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield started


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_the_same_losses_on_both(name: str, weft_run: Any) -> None:
    printed = weft_run(*short(name))
    ours = losses(printed)
    assert list(ours) == list(range(1, STEPS + 1))
    assert all(map(math.isfinite, ours.values()))
    assert re.search(r"^result: -?\d.* \(goal .*\)$", printed, re.M), "what it has reached"
    if importlib.util.find_spec("torch") is None:
        pytest.skip("ran on weft; torch is not installed, so there is nothing to compare with")
    expected = losses(on_torch()[f"{name}.py"])
    assert ours == pytest.approx(expected, rel=1e-4), "losses differ in the fourth digit"


@pytest.mark.parametrize("name", OWN)
def test_an_example_of_what_only_weft_has(name: str) -> None:
    pytest.importorskip("PIL", reason="Pillow is the extra 'vision'")
    found = losses(run(f"{name}.py", "--steps", "2"))
    assert found and all(map(math.isfinite, found.values()))


@pytest.mark.deep
@pytest.mark.parametrize("name", [*NAMES, *OWN])
def test_an_example_reaches_its_goal(name: str) -> None:
    run("-m", "weft", "run", *short(name)[:1])


# --- the page and its table --------------------------------------------------------------


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that measures the examples."""
    spec = importlib.util.spec_from_file_location("examples_runner", FOLDER / "__main__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_on_the_page(runner: Any) -> None:
    helpers = {"cartpole"}
    assert set(TEXTS) - helpers <= {*runner.EXAMPLES, *runner.OTHERS}
    page = runner.PAGE.read_text()
    assert all(f"examples/{name}.py" in page for name in set(TEXTS) - helpers)
    assert page == runner.page(runner.load()), "python -m examples --table writes it anew"


def test_every_example_has_a_test() -> None:
    tests = "".join(
        p.read_text() for p in pathlib.Path(__file__).resolve().parents[1].rglob("test_*.py")
    )
    untested = set(TEXTS) - {*NAMES, "cartpole"}
    assert not [name for name in untested if f'"{name}"' not in tests and f"{name}.py" not in tests]


def test_a_missed_goal_is_told(runner: Any) -> None:
    runs = {
        "0": {"result": "3.5 of 9 (goal 5)", "reached": False, "seconds": 1.2},
        "1": {"result": "97.0% right (goal 5)", "reached": True, "seconds": 1.0},
    }
    (row,) = [line for line in runner.table({"gan": runs}).splitlines() if "gan.py" in line]
    assert row.endswith("| 1 s | 3.5 of 9 (goal 5): **missed** | 97.0% |")


# --- CartPole ----------------------------------------------------------------------------


def cartpole() -> Any:
    spec = importlib.util.spec_from_file_location("cartpole", FOLDER / "cartpole.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_own_cartpole_is_that_of_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    module = cartpole()
    own, theirs = module.CartPole(), gymnasium.make("CartPole-v1", max_episode_steps=module.LIMIT)
    for seed in (3, None, None):  # then from where its random stream is
        one, two = own.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        over, step = False, 0
        while not over:
            assert one.dtype == two.dtype and one.tolist() == pytest.approx(two.tolist(), rel=1e-5)
            step += 1
            action = int(one[2] + 0.3 * one[3] > 0) if seed == 3 else step % 2
            one, *rest = own.step(action)
            two, *expected = theirs.step(action)
            assert rest[:3] == expected[:3]
            over = rest[1] or rest[2]
        assert (step == module.LIMIT) == (seed == 3)


def test_the_own_cartpole_falls_and_stands() -> None:
    module = cartpole()
    pushing = module.mean_length(lambda state: 1, episodes=3, seed=0)
    assert 8 <= pushing <= 11, "a constant push makes it fall at once"
    assert module.mean_length(lambda s: int(s[2] + 0.3 * s[3] > 0), episodes=3, seed=0) == 200
