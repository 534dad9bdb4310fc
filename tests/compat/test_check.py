"""``weft check``: the names of torch that a package uses, from its source."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from weft import cli
from weft.compat import check, names

SOURCES = {
    "__init__.py": "from . import model\nimport torchvision\n",
    "model.py": """
import torch
import torch.distributed as dist
from torch import nn
torch.zzz.yyy()
nn.Linear, torch.ops.aten.add.Tensor
torch.zzz
dist.all_reduce(1)
if hasattr(torch, "xxx"):
    torch.xxx()
""",
    "deep/other.py": "import torch\ntry: torch.zzz\nexcept AttributeError: pass\n",
    "deep/broken.py": "def (:\n",
    "deep/notes.txt": "import torch.nothing\n",
}


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "some_package"
    for name, text in SOURCES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = tmp_path / "Some_Package-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("some_package\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return folder


TABLE = """\
some-package 1.5: 9 names of torch in 4 files; of these weft lacks 1, and 1 that the code asks \
for first; 1 raises when called

name                          uses                            first use
torch.zzz                        3  missing                   some_package/model.py:5
torch.xxx                        1  missing, asked for first  some_package/model.py:10
torch.distributed.all_reduce     1  raises when called        some_package/model.py:8
"""


def test_an_installed_package(package: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "some-package"]) == 1
    assert capsys.readouterr().out == TABLE
    assert "some_package" not in sys.modules
    assert cli.main(["check", "some_package", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["files"], found["names"]) == ("1.5", 4, 9)
    assert found["rows"][0] == {
        "name": "torch.zzz", "status": "missing", "uses": 3, "first": "some_package/model.py:5",
        "reason": "",
    }  # fmt: skip


def test_a_folder_and_a_file(package: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(package / "deep")]) == 0
    said = capsys.readouterr().out
    assert "2 files" in said and "torch.zzz     1  missing, asked for first  deep/other" in said
    clean = package / "clean.py"
    clean.write_text("import torch\ntorch.ones(1)\n")
    assert cli.main(["check", str(clean)]) == 0
    assert "2 names of torch in 1 files, and weft has them all" in capsys.readouterr().out


def test_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for target, words in (("no_such_package", "weft torch install"), ("no/such.py", "no file")):
        assert cli.main(["check", target]) == 2
        assert words in capsys.readouterr().err


def test_a_namespace_of_ops_is_no_mere_name() -> None:
    assert names.look_up("torch.ops.aten").name == "aten"


def test_names_of_other_vendors_extensions_are_no_fault(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "devices.py"
    path.write_text("import torch\ntorch.npu.synchronize()\ntorch.musa.device_count()\n")
    report = check.check(str(path))
    assert {row.status for row in report.rows} == {check.GUARDED} and not report.sure
