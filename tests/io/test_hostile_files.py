"""A sample of files made to hurt, and that the judge of them would notice."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

import hostile_files
import weft
from weft.graph import GraphError


def test_hostile_files_load_or_are_refused() -> None:
    assert hostile_files.run(500) == {}


@pytest.mark.deep
def test_twenty_thousand_hostile_files() -> None:
    assert hostile_files.run(20000, 1000) == {}


def test_the_files_are_of_many_kinds() -> None:
    loaded: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    messages = set()
    for seed in range(400):
        kind, data = hostile_files.file_of(seed)
        assert hostile_files.file_of(seed) == (kind, data)
        try:
            hostile_files.load(kind, data)
            loaded[kind] += 1
        except Exception as error:
            refused[kind] += 1
            messages.add(str(error)[:40])
    assert set(refused) == set(loaded) == {"zip", "old", "safetensors", "graph"}
    assert len(messages) > 60


def test_the_judge_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, data = "zip", hostile_files.good_files()["zip"][0]
    assert hostile_files.judge(kind, data) is None
    for name, found in (("pointer", "attributes"), ("unclear", "IndexError")):
        fault = hostile_files.judge(kind, data, hostile_files.FAULTY[name])
        assert fault is not None and found in fault
    monkeypatch.setenv("HOSTILE_FILES_LOADERS", "shell hog crash hang")
    monkeypatch.setenv("HOSTILE_FILES_SECONDS", "1")
    faults = hostile_files.run(4)
    for seed, found in enumerate(("os.system", "MemoryError", "died (-11)", "no end within")):
        assert found in faults[seed]


def test_a_graph_file_that_asks_the_same_of_every_node(tmp_path: Path) -> None:
    path = tmp_path / "step.weft"
    path.write_bytes(hostile_files.good_files()["graph"][0])
    weft.graph.load(path)

    def changed(header: dict) -> dict:
        notes = header["__metadata__"]
        graph = json.loads(notes["weft_graph"])
        (last,) = [n for n in graph["nodes"] if n["name"].endswith("0.weight.grad")]
        spare = max(n["id"] for n in graph["nodes"]) + 1
        graph["nodes"] += [{**last, "id": spare + k, "name": f"n{k}"} for k in range(3000)]
        graph["passes"][0]["roots"] *= 30000
        notes["weft_graph"] = json.dumps(graph)
        return header

    path.write_bytes(hostile_files.with_header(path.read_bytes(), changed))
    start = time.process_time()
    try:
        weft.graph.load(path)
    except GraphError as error:
        raise AssertionError("refused before the work was done") from error
    assert time.process_time() - start < 8
