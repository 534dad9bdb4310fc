"""Profiles as files: traces of browsers, flame graphs of speedscope, memory over time."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_WIDTH, _HEIGHT, _EDGE = 900, 320, 70


def _write(path: str | os.PathLike[str], text: str) -> None:
    if os.fspath(path).endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def chrome_trace(
    events: Iterable[Any],
    path: str | os.PathLike[str],
    used: Sequence[tuple[float, int]] = (),
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a trace; the memory in use is a counter in it."""
    process = os.getpid()
    found: list[dict[str, Any]] = [
        {
            "ph": "X", "cat": _category(e), "name": e.name, "pid": process, "tid": e.thread,
            "ts": e.time_range.start, "dur": e.cpu_time_total,
            "args": {
                **({"Input Dims": e.input_shapes} if e.input_shapes else {}),
                **({"Module": e.scope} if e.scope else {}),
                **({"Call stack": "; ".join(e.stack)} if e.stack else {}),
                **({"FLOPs": e.flops} if e.flops else {}),
            },
        }
        for e in events
    ]  # fmt: skip
    found += [
        {"ph": "C", "name": "memory", "pid": process, "ts": when, "args": {"bytes": count}}
        for when, count in used
    ]
    _write(path, json.dumps({"schemaVersion": 1, **(metadata or {}), "traceEvents": found}))


def _category(event: Any) -> str:
    return "cpu_op" if "::" in event.name or "Backward" in event.name else "user_annotation"


def speedscope(events: Sequence[Any], path: str | os.PathLike[str], name: str) -> None:
    """Write what each event took by itself, under the blocks and modules that it ran in."""
    frames: dict[tuple[str, str, int], int] = {}
    samples, weights = [], []
    for event in sorted(events, key=lambda e: e.time_range.start):
        own = event.self_cpu_time_total
        if own > 0:
            samples.append([frames.setdefault(f, len(frames)) for f in _frames_of(event)])
            weights.append(own)
    profile = {
        "type": "sampled", "name": name, "unit": "microseconds", "startValue": 0,
        "endValue": sum(weights), "samples": samples, "weights": weights,
    }  # fmt: skip
    shown = [
        {"name": title, **({"file": file, "line": line} if file else {})}
        for title, file, line in frames
    ]
    written = {"$schema": _SCHEMA, "exporter": "weft", "name": name}
    _write(path, json.dumps({**written, "shared": {"frames": shown}, "profiles": [profile]}))


def _frames_of(event: Any) -> list[tuple[str, str, int]]:
    """From the outermost block to the event: blocks, modules one inside the other, the event."""
    chain = [event]
    while chain[-1].cpu_parent is not None:
        chain.append(chain[-1].cpu_parent)
    found: list[tuple[str, str, int]] = []
    inside = ""
    for each in reversed(chain):
        if each.scope and each.scope != inside:
            parts = each.scope.split(".")
            known = inside.split(".") if each.scope.startswith(f"{inside}.") else []
            found += [(".".join(parts[: k + 1]), "", 0) for k in range(len(known), len(parts))]
        inside = each.scope or inside
        found.append((each.name, *_place(each)))
    return found


def _place(event: Any) -> tuple[str, int]:
    """File and line, from ``file.py:12: text``."""
    if not event.stack:
        return "", 0
    file, _, rest = event.stack[0].partition(".py:")
    line = rest.partition(":")[0]
    return (f"{file}.py", int(line)) if line.isdecimal() else ("", 0)


def memory_timeline(used: Sequence[tuple[float, int]], path: str | os.PathLike[str]) -> None:
    """Write the memory in use over time, as numbers or as a picture, by the file's ending."""
    name = os.fspath(path).removesuffix(".gz")
    if name.endswith(".json"):
        _write(path, json.dumps([[t for t, _ in used], [count for _, count in used]]))
    elif name.endswith(".svg"):
        _write(path, _picture(used))
    elif name.endswith(".html"):
        head = "<!doctype html><meta charset=utf-8><title>Memory</title>"
        _write(path, f"{head}<style>body {{ margin: 0 }}</style>{_picture(used)}")
    else:
        raise ValueError(f"the memory timeline is a .json, .html or .svg file, not {name!r}")


_STYLE = (
    "<style>rect { fill: #fff } text { fill: #555 } path { fill: #c7cdf6; stroke: #3c4fd0 } "
    "@media (prefers-color-scheme: dark) { rect { fill: #15161a } text { fill: #b4b4bb } "
    "path { fill: #2f3667; stroke: #8f9bff } }</style>"
)


def _picture(used: Sequence[tuple[float, int]]) -> str:
    start, end = (used[0][0], used[-1][0]) if used else (0.0, 1.0)
    most = max((count for _, count in used), default=0) or 1
    x = lambda t: _EDGE + (t - start) / ((end - start) or 1) * (_WIDTH - 2 * _EDGE)
    y = lambda count: _HEIGHT - _EDGE + 20 - count / most * (_HEIGHT - 2 * _EDGE)
    # Steps: memory stays as it is until it changes.
    line = "".join(f"H{x(t):.1f}V{y(count):.1f}" for t, count in used)
    floor = y(0)
    space = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    text = f'<svg {space} font-family="sans-serif" font-size="12">{_STYLE}'
    text += f'<rect width="{_WIDTH}" height="{_HEIGHT}"/>'
    text += f'<path d="M{_EDGE} {floor:.1f}{line}V{floor:.1f}Z"/>'
    text += (
        f'<text x="{_EDGE - 8}" y="{y(most) + 4:.1f}" text-anchor="end">{_megabytes(most)}</text>'
    )
    text += f'<text x="{_EDGE - 8}" y="{floor + 4:.1f}" text-anchor="end">0</text>'
    seconds = (end - start) / 1e6
    text += (
        f'<text x="{_WIDTH - _EDGE}" y="{floor + 20:.1f}" text-anchor="end">{seconds:.3g} s</text>'
    )
    return f'{text}<text x="{_EDGE}" y="24">Memory in use</text></svg>\n'


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3g} MB"
