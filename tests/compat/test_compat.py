"""Programs that say ``import torch`` run on weft, as plain Python would run them."""

from __future__ import annotations

import csv
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import weft
from weft.compat import names, scan

WEFT = [sys.executable, "-m", "weft"]


def write(folder: pathlib.Path, name: str, text: str) -> pathlib.Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def call(*command: str, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120
    )


def output(*command: str, cwd: pathlib.Path | None = None) -> str:
    done = call(*command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_function_named_as_its_module_stays_what_it_is(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "names.py",
        """
        from torch.autograd.gradcheck import GradcheckError
        import torch.autograd.gradcheck as module
        import torch, importlib

        assert callable(torch.autograd.gradcheck) and issubclass(GradcheckError, RuntimeError)
        assert importlib.import_module("torch.autograd.gradcheck").GradcheckError is GradcheckError
        assert callable(torch.autograd.gradcheck)
        print("ok")
        """,
    )
    assert output(*WEFT, "run", "names.py", cwd=tmp_path) == "ok\n"


def test_every_form_of_import_gives_the_modules_of_weft(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "forms.py",
        """
        import importlib, importlib.util, sys
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        import torch.optim.lr_scheduler
        from torch import Tensor, autograd, linalg
        from torch.utils.data import DataLoader
        import weft, weft.optim.lr_scheduler

        assert torch is weft and nn is weft.nn and F is weft.nn.functional
        assert Tensor is weft.Tensor and linalg is weft.linalg
        assert DataLoader is weft.utils.data.DataLoader
        assert torch.optim.lr_scheduler is weft.optim.lr_scheduler
        for name in [n for n in sys.modules if n.split(".")[0] == "torch"]:
            own = sys.modules.get("weft" + name[5:])
            assert own is None or sys.modules[name] is own or ".modules." in name, name
        assert weft.nn.__spec__.name == "weft.nn" and weft.__name__ == "torch"
        assert importlib.import_module("torch.fft") is weft.fft
        assert importlib.reload(torch.special) is weft.special
        assert importlib.util.find_spec("torch.no_such_thing") is None
        assert importlib.util.find_spec("torch.nn") is not None
        print("fine")
        """,
    )
    assert output(*WEFT, "run", "forms.py", cwd=tmp_path) == "fine\n"


def test_hooks_of_all_modules_are_reset_by_binding_their_names_anew(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "reset.py",
        """
        from collections import OrderedDict
        import torch
        from torch.nn.modules import module

        module.register_module_forward_hook(lambda m, args, result: result + 1)
        print(torch.nn.Identity()(1), len(module._global_forward_hooks))
        module._global_forward_hooks = OrderedDict()
        print(torch.nn.Identity()(1), len(module._global_forward_hooks))
        module.register_module_full_backward_hook(print)
        print(module._global_is_full_backward_hook)
        """,
    )
    assert output(*WEFT, "run", "reset.py", cwd=tmp_path) == "2 1\n1 0\nTrue\n"


PROBE = '''
"""What a script can see of how it was started."""
import sys
print(__name__, __file__, __spec__, __package__, __cached__, __doc__, __annotations__)
print(type(__loader__).__name__, __loader__.name, __loader__.path, __builtins__)
print(sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print(sys.argv, sys.path)
import beside
print(beside.__file__)
sys.exit(int(sys.argv[1]))
'''


@pytest.mark.parametrize("where", ["probe.py", "./deep/probe.py", "link.py"])
def test_a_script_sees_what_it_sees_under_plain_python(tmp_path: pathlib.Path, where: str) -> None:
    write(tmp_path, "deep/probe.py", PROBE)
    write(tmp_path, "deep/beside.py", "")
    write(tmp_path, "probe.py", PROBE)
    write(tmp_path, "beside.py", "")
    (tmp_path / "link.py").symlink_to(tmp_path / "deep" / "probe.py")
    arguments = ["3", "-h", "--", "--no-check", "run"]
    plain = call(sys.executable, where, *arguments, cwd=tmp_path)
    assert plain.returncode == 3, plain.stderr
    for command in ([*WEFT, "run"], WEFT):
        ours = call(*command, where, *arguments, cwd=tmp_path)
        assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, "", 3)


def test_a_module_runs_by_its_name(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/other.py", "x = 1")
    write(
        tmp_path,
        "pack/go.py",
        """
        import sys
        import torch
        from . import other
        print(__name__, __spec__.name, sys.argv[1:], torch.__name__, other.x)
        """,
    )
    out = output(*WEFT, "run", "-m", "pack.go", "-m", "x", cwd=tmp_path)
    assert out == "__main__ pack.go ['-m', 'x'] torch 1\n"
    assert call(*WEFT, "run", "-m", "pack.no_such", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise KeyError('no')\n\ntry:\n    1 / 0\nexcept ValueError:\n    pass\n",
        "def f():\n    raise KeyError('no')\ntry:\n    1 / 0\nexcept ArithmeticError:\n    f()\n",
        "x = (1 +\n",
        "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\nnothing\n",
        "raise SystemExit('a message')",
        "import atexit\natexit.register(print, 'at exit')\nraise KeyboardInterrupt",
    ],
)
def test_tracebacks_are_those_of_plain_python(tmp_path: pathlib.Path, text: str) -> None:
    write(tmp_path, "script.py", text)
    plain, ours = (
        call(*command, "script.py", cwd=tmp_path) for command in ([sys.executable], WEFT)
    )
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert ours.returncode == (130 if "Keyboard" in text else plain.returncode)


WORKERS = """
import multiprocessing, sys
import torch
from torch.utils.data import DataLoader, Dataset
import shared_part


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        import torch.nn.functional as F
        assert torch.__name__ == F.__name__.split(".")[0] == "torch", torch
        return torch.tensor(float(i)) ** shared_part.power(), len(sys.argv)


def nested(queue):
    queue.put((torch.__name__, __name__))


def outer(queue, method):
    child = multiprocessing.get_context(method).Process(target=nested, args=(queue,))
    child.start()
    child.join()


if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    loader = DataLoader(Squares(), 4, num_workers=1, multiprocessing_context=context)
    for values, counts in loader:
        print(values.tolist(), counts.tolist())
    queue = context.Queue()
    process = context.Process(target=outer, args=(queue, method))
    process.start()
    print(*queue.get(timeout=60))
    process.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_see_weft_as_well(tmp_path: pathlib.Path, method: str) -> None:
    write(tmp_path, "script.py", WORKERS)
    write(tmp_path, "shared_part.py", "import torch.nn\ndef power(): return 2")
    lines = output(*WEFT, "script.py", method, cwd=tmp_path).splitlines()
    assert lines[:2] == [
        "[0.0, 1.0, 4.0, 9.0] [2, 2, 2, 2]",
        "[16.0, 25.0, 36.0, 49.0] [2, 2, 2, 2]",
    ]
    assert lines[2] == f"torch {'__main__' if method == 'fork' else '__mp_main__'}"


def test_install_and_uninstall_inside_a_program(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "program.py",
        """
        import multiprocessing, sys

        def child(queue):
            import torch
            queue.put(torch.__name__)

        if __name__ == "__main__":
            from weft import compat
            compat.install()
            compat.install()
            import torch, torch.nn
            assert compat.installed() and torch.__name__ == "torch"
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            print(queue.get(timeout=60))
            process.join()
            compat.uninstall()
            compat.uninstall()
            assert not compat.installed() and "torch" not in sys.modules
            assert "torch.nn" not in sys.modules
            from multiprocessing import spawn
            assert not hasattr(spawn.get_preparation_data, "plain")
            assert torch.nn.__name__ == "weft.nn"
        """,
    )
    assert output(sys.executable, "program.py", cwd=tmp_path) == "torch\n"


def test_a_torch_that_is_already_there_is_left_alone(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "torch.py", "mine = True")
    write(tmp_path, "script.py", "print('ran')")
    write(
        tmp_path,
        "program.py",
        """
        import torch
        from weft import cli, compat
        try:
            compat.install()
        except RuntimeError as error:
            print(error)
        print(cli.main(["run", "script.py"]), torch.mine, compat.installed())
        """,
    )
    done = call(sys.executable, "program.py", cwd=tmp_path)
    first, last = done.stdout.splitlines()
    assert str(tmp_path / "torch.py") in first and "already imported" in first
    assert last == "2 True False" and "already imported" in done.stderr


def test_missing_names_are_reported_before_anything_runs(tmp_path: pathlib.Path) -> None:
    script = """\
        import torch
        import torch.no_module as gone
        from torch.nn import Linear, NoLayer
        print("ran")
        gone.use()
        torch.no_function(torch.ones(1))
        """
    write(tmp_path, "script.py", script)
    done = call(*WEFT, "run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    for part in (
        "script.py:2: torch.no_module (also line 5)",
        "script.py:3: torch.nn.NoLayer\n    from torch.nn import Linear, NoLayer",
        "script.py:6: torch.no_function\n    torch.no_function(torch.ones(1))",
        "3 names",
        "weft run --no-check script.py",
    ):
        assert part in done.stderr
    assert "Linear:" not in done.stderr
    done = call(*WEFT, "run", "--no-check", "script.py", cwd=tmp_path)
    assert done.returncode == 1 and "No module named 'torch.no_module'" in done.stderr
    assert "line 2" in done.stderr


def test_guarded_names_only_warn(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "script.py",
        """
        import torch
        try:
            from torch import no_function
        except ImportError:
            no_function = None
        if hasattr(torch, "no_such"):
            torch.no_such()
        print("ran")
        """,
    )
    done = call(*WEFT, "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "script.py:4: no torch.no_function" in done.stderr
    assert "script.py:8: no torch.no_such" in done.stderr


def found(folder: pathlib.Path, text: str) -> list[tuple[str, int, str, bool]]:
    script = write(folder, "script.py", text)
    uses = scan.missing_names(str(script))
    return [(os.path.relpath(u.path, folder), u.line, u.name, u.guarded) for u in uses]


@pytest.mark.parametrize(
    "text",
    [
        "def f(torch): return torch.zzz",
        "import torch\ndef f(torch): return torch.zzz",
        "import torch.nn.functional as F\nf = lambda F: F.zzz",
        "from torch import nn\nx = [nn.zzz for nn in ()]",
        "import torch as t\ndef f():\n    t = 1\n    return t.zzz",
        "import torch\ntorch.backends.cudnn.mine = 1\nprint(torch.backends.cudnn.mine)",
        "import torch\ntorch.float32.zzz",
        "import torch\nx = torch.ones(1)\nx.zzz()",
        "from __future__ import annotations\nimport torch\ndef f(x: torch.zzz) -> torch.zzz: pass",
        "import torchmetrics\ntorchmetrics.zzz",
        "from .torch import zzz",
        "import torch\ntorch.Tensor.__add__, torch.nn.Module.forward, torch.optim.Adam.step",
        "import torch\nfrom torch import *\nfrom torch.nn.functional import *",
    ],
)
def test_the_scan_does_not_cry_wolf(tmp_path: pathlib.Path, text: str) -> None:
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "line", "name", "guarded"),
    [
        ("import torch.zzz.yyy", 1, "torch.zzz", False),
        ("import torch\ntorch.Tensor.zzz(1)", 2, "torch.Tensor.zzz", False),
        ("import torch\ntorch.zzz = 1\ntorch.yyy.x = 1", 3, "torch.yyy", False),
        ("def f():\n    from torch import nn as n\n    n.zzz()", 3, "torch.nn.zzz", False),
        ("import torch\ndef f(x=torch.zzz): pass", 2, "torch.zzz", False),
        ("import torch\ndef f(x: torch.zzz): pass", 2, "torch.zzz", False),
        ("import torch\nclass A:\n    torch = 1\n    def f(s): torch.zzz", 4, "torch.zzz", False),
        ("import torch\n@torch.zzz\nclass A(torch.nn.Module): pass", 2, "torch.zzz", False),
        ("import torch\nf = [torch.zzz for i in ()]", 2, "torch.zzz", False),
        ("import torch\nx = torch.zzz() if hasattr(torch, 'zzz') else 1", 2, "torch.zzz", True),
        ("import torch\nhasattr(torch, 'zzz') and torch.zzz()", 2, "torch.zzz", True),
        ("import torch\nif torch.cuda.is_available(): torch.cuda.zzz()", 2, "torch.cuda.zzz", True),
        ("import torch\ntry: torch.zzz\nexcept AttributeError: pass", 2, "torch.zzz", True),
        ("import torch\ntry: torch.zzz\nexcept KeyError: pass", 2, "torch.zzz", False),
        ("try: import torch\nexcept ImportError: torch = None\ntorch.zzz", 3, "torch.zzz", True),
    ],
)
def test_the_scan_finds(
    tmp_path: pathlib.Path, text: str, line: int, name: str, guarded: bool
) -> None:
    assert found(tmp_path, text) == [("script.py", line, name, guarded)]


def test_the_scan_follows_the_modules_of_the_program(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "models/__init__.py", "from .net import Net")
    write(tmp_path, "models/net.py", "import torch\nfrom .. import unseen\ntorch.zzz")
    write(tmp_path, "tools.py", "import script\nfrom torch import yyy")
    text = "import models, tools, os, no_such_module\nimport torch\ntorch.xxx"
    assert found(tmp_path, text) == [
        ("models/net.py", 3, "torch.zzz", False),
        ("script.py", 3, "torch.xxx", False),
        ("tools.py", 2, "torch.yyy", False),
    ]


def test_look_up() -> None:
    assert names.look_up("torch") is weft
    assert names.look_up("torch.nn.functional.relu") is weft.nn.functional.relu
    assert names.look_up("torch.optim.lr_scheduler").__name__ == "weft.optim.lr_scheduler"
    with pytest.raises(names.Missing, match=r"^torch\.zzz$"):
        names.look_up("torch.zzz.yyy")


def test_the_command_itself(tmp_path: pathlib.Path) -> None:
    assert output(*WEFT, "--version") == f"weft {weft.version.weft}\n"
    assert "--no-check" in output(*WEFT, "run", "--help")
    assert "run" in output(*WEFT, "--help")
    done = call(*WEFT, "run", "no_such.py", cwd=tmp_path)
    assert done.returncode == 2 and "can't open file 'no_such.py'" in done.stderr
    assert call(*WEFT, "run").returncode == 2


TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def test_the_coverage_tool_counts_by_files(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "names.csv",
        """\
        name,count,files
        torch.nn.Linear,9,40
        Tensor.view,9,20
        Module.training,9,10
        Optimizer.param_groups,9,20
        torch.zzz.yyy,9,5
        Tensor.zzz,9,2
        torch.distributed.barrier,9,3
        torch.cuda.nccl.version,9,500
        """,
    )
    lines = output(sys.executable, str(TOOLS / "api_coverage.py"), str(tmp_path / "names.csv"))
    words = [line.split() for line in lines.splitlines()]
    assert words[2][-3:] == ["4", "of", "7"] and words[3][-1] == "90.00%"
    assert words[4][-1] == "3.00%"
    missing = [["5", "torch.zzz.yyy"], ["3", "torch.distributed.barrier"], ["2", "Tensor.zzz"]]
    assert words[5:] == missing


def test_names_are_left_out_of_the_count_for_a_reason() -> None:
    with open(TOOLS / "api_outside.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(row["reason"] for row in rows)
    for row in rows:
        if not row["name"].endswith(".*"):
            with pytest.raises(names.Missing):  # what weft has is counted
                names.look_up(row["name"])


def test_packages_compiled_against_pytorch_are_named_before_anything_runs(
    tmp_path: pathlib.Path,
) -> None:
    text = "print('ran')\nimport torch, torchaudio.transforms as T\nT.MFCC()\n"
    write(tmp_path, "script.py", text)
    write(tmp_path, "torchaudio/__init__.py", "raise OSError('no library of PyTorch')\n")
    write(tmp_path, "torchaudio/lib/_torchaudio.so", "")
    done = call(*WEFT, "run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "script.py:2: torchaudio (also line 3)" in done.stderr
    assert "(the installed torchaudio is compiled against PyTorch's own library" in done.stderr


def test_scripts_log_for_tensorboard(tmp_path: pathlib.Path) -> None:
    text = (
        "import torch\n"
        "from torch.utils.tensorboard import SummaryWriter\n"
        "with SummaryWriter('runs') as writer:\n"
        "    writer.add_scalar('loss', torch.tensor(0.5), 3)\n"
    )
    write(tmp_path, "script.py", text)
    output(*WEFT, "run", "script.py", cwd=tmp_path)
    (event,) = weft.utils.tensorboard.read(tmp_path / "runs")
    assert (event.tag, event.step, event.value) == ("loss", 3, 0.5)


def test_what_only_raises_when_called_may_be_mentioned(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path,
        "script.py",
        """
        import sys
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = torch.nn.Linear(1, 1)
        if len(sys.argv) > 1:
            dist.init_process_group("gloo")
            model = DDP(model)
        print(model(torch.ones(1, 1)).shape)
        """,
    )
    done = call(*WEFT, "run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "torch.Size([1, 1])\n")
    assert "script.py:9: no torch.distributed.init_process_group" in done.stderr
    done = call(*WEFT, "run", "script.py", "many", cwd=tmp_path)
    assert done.returncode == 1 and "at script.py:9: dist.init_process_group" in done.stderr
