"""Pickles made where ``import torch`` means weft are read by PyTorch, and the other way round."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN = [sys.executable]
ON_WEFT = [sys.executable, "-m", "weft", "run", "--no-check"]

SCRIPT = """
import pickle, sys, warnings
import torch
from torch import nn

warnings.simplefilter("ignore")


def objects():
    torch.manual_seed(0)
    base = torch.arange(12.0).reshape(3, 4)
    yield "views", [base, base[1], base.t(), base[:, ::2]]
    for d in ("int64", "bool", "bfloat16", "float16", "complex64", "uint8"):
        yield d, torch.arange(2).to(getattr(torch, d))
    yield "empty", torch.empty(0, 3)
    yield "scalar", torch.tensor(3.5, requires_grad=True)
    parameter = nn.Parameter(torch.ones(2))
    parameter.note = "mine"
    yield "parameters", [nn.Parameter(torch.ones(2), requires_grad=False), parameter]
    yield "plain", [torch.float32, torch.bool, torch.device("cpu"), torch.device("cpu", 0),
                    torch.Size([2, 3]), torch.strided, torch.channels_last]
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    yield "generator", generator
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    for module in (
        nn.Linear(3, 2), nn.Conv2d(2, 2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2, 2), nn.GRU(3, 2),
        nn.Embedding(4, 2), nn.MultiheadAttention(4, 2), nn.TransformerEncoder(layer, 1),
        nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Dropout(0.1)), nn.CrossEntropyLoss(),
        nn.ModuleDict({"a": nn.Linear(2, 2)}), nn.ParameterList([torch.ones(2)]), nn.LSTMCell(2, 2),
    ):
        yield type(module).__name__, module
    model = nn.Linear(2, 1)
    for kind in (torch.optim.Adam, torch.optim.Adagrad, torch.optim.RMSprop):
        optimizer = kind(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        yield kind.__name__, optimizer
    yield "schedule", torch.optim.lr_scheduler.StepLR(optimizer, 1)
    yield "normal", torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    yield "state", nn.Linear(2, 2).state_dict()


def show(o):
    if isinstance(o, torch.Tensor):
        kept = (type(o).__name__, o.dtype, o.requires_grad, tuple(o.shape), o.stride(), o.tolist())
        return f"{kept} {o.__dict__}"
    if isinstance(o, nn.Module):
        return f"{o!r} {[(k, show(v)) for k, v in o.state_dict().items()]} {o.training}"
    if isinstance(o, torch.Generator):
        return f"{o.initial_seed()} {torch.rand(3, generator=o).tolist()}"
    if isinstance(o, (list, tuple)) and type(o) is not torch.Size:
        return str([show(x) for x in o])
    if isinstance(o, torch.distributions.Distribution):
        return f"{o} {o.log_prob(torch.ones(2)).tolist()}"
    return f"{type(o).__name__} {o.state_dict()}" if hasattr(o, "state_dict") else repr(o)


if sys.argv[1] == "dump":
    with open(sys.argv[2], "wb") as file:
        pickle.dump({name: pickle.dumps(o) for name, o in objects()}, file)
else:
    with open(sys.argv[2], "rb") as file:
        for name, data in pickle.load(file).items():
            print(name, show(pickle.loads(data)))
    with open(sys.argv[2], "rb") as file:
        first, row, *_ = pickle.loads(pickle.load(file)["views"])
    row.zero_()
    print("shared", bool((first[1] == 0).all()))
"""


def run(command: list[str], script: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run(
        [*command, str(script), *arguments], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("maker", ["torch", "weft"])
def test_what_one_writes_the_other_reads(tmp_path: pathlib.Path, maker: str) -> None:
    pytest.importorskip("torch")
    script, made = tmp_path / "objects.py", str(tmp_path / "made.pkl")
    script.write_text(SCRIPT)
    run(PLAIN if maker == "torch" else ON_WEFT, script, "dump", made)
    theirs, ours = run(PLAIN, script, "load", made), run(ON_WEFT, script, "load", made)
    kept = [line for line in theirs.splitlines() if not line.startswith("shared")]
    assert [line for line in ours.splitlines() if not line.startswith("shared")] == kept
    assert len(kept) > 30
    # PyTorch's pickles hold the memory of each tensor apart; weft's hold it once.
    assert ours.splitlines()[-1] == f"shared {maker == 'weft'}"


HOSTILE = """
import io, os, pickle, torch

class Bad:
    def __reduce__(self):
        return os.mkdir, ("made",)

class Storage:
    def __reduce__(self):
        return torch.storage._load_from_bytes, (pickle.dumps(Bad()),)

data = pickle.dumps(Storage())
try:
    pickle.loads(data)
except Exception as error:
    print(type(error).__name__, os.path.exists("made"))
"""


def test_the_bytes_of_a_storage_are_read_as_a_file_that_is_not_trusted(
    tmp_path: pathlib.Path,
) -> None:
    script = tmp_path / "hostile.py"
    script.write_text(HOSTILE)
    said = run(ON_WEFT, script).split()
    assert said[1] == "False" and said[0].endswith("Error")


def test_without_the_name_torch_pickles_are_wefts_own(tmp_path: pathlib.Path) -> None:
    import weft

    x = weft.arange(6.0).reshape(2, 3)
    data = pickle.dumps([x, x[1], weft.float32])
    assert b"torch" not in data.replace(b"weft", b"")
    first, row, kind = pickle.loads(data)
    row.zero_()
    assert kind is weft.float32 and first[1].sum() == 0
    assert hasattr(x, "__array_namespace__")
