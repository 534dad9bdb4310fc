"""The type stubs say what weft has, and a type checker finds mistakes by them."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import weft
from weft.operators import api

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

ACCEPTED = """
import weft as torch
import weft.nn.functional as F
from weft import nn, optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.out = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = x.mean(dim=(2, 3)).view(x.size(0), -1)
        return F.log_softmax(self.out(x), dim=1)


model = Net().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(1)
x = torch.randn(4, 1, 8, 8, dtype=torch.float32, device=device, generator=generator)
y = torch.randint(0, 10, (4,))
loss = F.nll_loss(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
a = torch.ones(2, 3, requires_grad=True)
b = (2 * a + 1) / 3 - a**2 @ torch.eye(3)
values, indices = b.max(dim=1)
best: torch.Tensor = b.max()
n: int = b.size(0) + b.shape[1]
s: torch.Tensor = b.sum(axis=0) + b.softmax(dim=-1) + torch.sum(b, dim=0)
c = torch.cat([a, b], dim=0).to("cpu").to(torch.float64).permute(1, 0)[None, :2]
a.data.add_(1, alpha=2).clamp_(min=0)
total = float(loss) + loss.item()
top = torch.topk(a, 2).values.view(-1).view(torch.int32)
if a.grad is not None:
    print(a.grad.norm(), total, n, s, c, top, best, indices, values)
with torch.no_grad():
    w = nn.Parameter(torch.zeros(3))
    print(w.abs().max(), torch.where(a > 0, a, 0.0), torch.linalg.norm(a), torch.fft.fft(w))
"""

# A wrong line each, with the kind of error that it should be.
REFUSED = {
    "x.nosuch()": "attr-defined",
    "torch.nosuch(x)": "attr-defined",
    "F.nosuch(x)": "attr-defined",
    "torch.linalg.nosuch(x)": "attr-defined",
    'x.sum(dim="rows")': "arg-type",
    'torch.zeros(2, dtype="float32")': "arg-type",
    'x.view("a")': "arg-type",
    "x.relu(3)": "call-arg",
    "F.relu(x, inplce=True)": "call-arg",
    "number: int = x.sum()": "assignment",
    'x + "a"': "operator",
    "x.softmax()": "call-arg",
    "nn.Linear(3)": "call-arg",
    "x.max(dim=0).nosuch": "attr-defined",
}


def check(path: pathlib.Path) -> str:
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--config-file="]
    done = subprocess.run(
        [*command, "--cache-dir", str(path.parent / "cache"), path.name],
        capture_output=True, text=True, cwd=path.parent, env=environment,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_the_stubs_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "weft" / "py.typed").exists()


def test_every_method_and_function_is_in_a_stub() -> None:
    text = (SOURCE / "weft" / "core" / "tensor.pyi").read_text()
    declared = set(re.findall(r"^    def (\w+)\(", text, re.M))
    methods = {
        name
        for name, value in vars(weft.Tensor).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    assert methods - declared == {"alias_of", "names"}
    text = (SOURCE / "weft" / "__init__.pyi").read_text()
    missing = [name for name in api.FUNCTIONS if not re.search(rf"\b{name}\b", text)]
    assert not missing


def test_names_that_programs_use_are_in_a_stub() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import api_coverage as coverage

    top = (SOURCE / "weft" / "__init__.pyi").read_text()
    tensor = (SOURCE / "weft" / "core" / "tensor.pyi").read_text()
    lacking = []
    for name in coverage.read(coverage.TABLE):
        owner, _, member = name.name.partition(".")
        text = {"torch": top, "Tensor": tensor}.get(owner, "")
        first = member.split(".")[0]
        # Some modules are there for `import torch` under `weft run` alone.
        here = owner == "Tensor" or hasattr(weft, first)
        if text and here and not first.startswith("_") and coverage.present(name.name):
            if not re.search(rf"\b{first}\b", text):
                lacking.append(name.name)
    assert not lacking


def test_a_checker_accepts_right_programs_and_refuses_wrong_ones(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    program = ACCEPTED + "".join(f"\n{line}  # wrong" for line in REFUSED)
    (tmp_path / "program.py").write_text(program)
    lines = program.splitlines()
    found = {
        lines[int(number) - 1].removesuffix("  # wrong"): kind
        for number, kind in re.findall(r"^program\.py:(\d+): error: .*\[([\w-]+)\]$",
                                       check(tmp_path / "program.py"), re.M)
    }  # fmt: skip
    assert found == REFUSED
