"""Notebooks as pages of the site, and as programs for the tests.

A notebook keeps only output that is the same on every machine: text that its cells print or show.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any


def cells(path: pathlib.Path) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    return json.loads(path.read_text())["cells"]


def shown(cell: dict[str, Any]) -> str:
    """The text that is kept below a cell."""
    parts = []
    for output in cell.get("outputs", []):
        text = output.get("text") or output.get("data", {}).get("text/plain", [])
        parts.append("".join(text))
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def page(path: pathlib.Path) -> str:
    """A notebook as Markdown."""
    lines = []
    for cell in cells(path):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines.append(source)
            continue
        lines.append(f"```python\n{source}\n```")
        if shown(cell):
            lines.append(f"```text\n{shown(cell)}```")
    lines.append(f"This page is the notebook `docs/notebooks/{path.name}`.")
    return "\n\n".join(lines) + "\n"


def run(path: pathlib.Path) -> list[str]:
    """Run a notebook's cells, one after the other; what each prints and shows."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()
    found = []
    for cell in cells(path):
        if cell["cell_type"] != "code":
            found.append("")
            continue
        with capture_output(display=False) as captured:
            result = shell.run_cell("".join(cell["source"]))
        result.raise_error()
        text = captured.stdout
        if result.result is not None:
            # The shell has printed it already, with the number of the cell.
            text = text[: text.rfind("Out[")] + f"{result.result!r}"
        found.append(text if not text or text.endswith("\n") else text + "\n")
    return found


def keep(path: pathlib.Path) -> None:
    """Run a notebook and keep what its cells print."""
    document = json.loads(path.read_text())
    for cell, text in zip(document["cells"], run(path), strict=True):
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            cell["outputs"] = [_stream(text)] if text else []
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _stream(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        keep(pathlib.Path(name))
