"""Tracebacks end at the user's line, wherever they are shown; a switch shows weft's frames."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft.core import tracebacks

OWN = os.path.dirname(weft.__file__) + os.sep

HEAD = """
import sys, weft
from weft import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(7, 2)
    def forward(self, x):
        return self.inner(x)

def fail():
    Net()(weft.ones(3, 8))
"""


def run(
    folder: pathlib.Path, text: str, *, mode: str = "", command: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(HEAD + textwrap.dedent(text))
    environment = {k: v for k, v in os.environ.items() if k != "WEFT_TRACEBACK"}
    environment |= {"OMP_NUM_THREADS": "1"} | ({"WEFT_TRACEBACK": mode} if mode else {})
    return subprocess.run(
        [sys.executable, *(command or ("program.py",))],
        capture_output=True, text=True, cwd=folder, env=environment, timeout=120,
    )  # fmt: skip


def files(text: str) -> list[str]:
    """The files of the frames of a traceback, outermost first."""
    return [line.split('"')[1] for line in text.splitlines() if line.startswith('  File "')]


@pytest.fixture
def on() -> Iterator[None]:
    before = weft.get_traceback_filtering()
    weft.set_traceback_filtering("on")
    yield
    weft.set_traceback_filtering(before)


def test_an_uncaught_error_ends_at_the_user(tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, "fail()")
    assert done.returncode == 1
    assert [os.path.basename(f) for f in files(done.stderr)] == ["program.py"] * 3
    assert done.stderr.endswith(
        "RuntimeError: linear: mat1 and mat2 shapes cannot be multiplied (3x8 and 7x2): the "
        "layer takes 7 features, and the input's last dimension has 8\n"
        "  inputs: float32[3, 8], float32[2, 7], float32[2]\n"
        "  at program.py:10: return self.inner(x)\n"
    )


@pytest.mark.parametrize("mode", ["full", "off"])
def test_the_environment_shows_all_frames(tmp_path: pathlib.Path, mode: str) -> None:
    done = run(tmp_path, "fail()", mode=mode)
    assert any(f.startswith(OWN) for f in files(done.stderr))


def test_the_function_shows_all_frames(tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, "weft.set_traceback_filtering('off'); fail()")
    assert any(f.startswith(OWN) for f in files(done.stderr))
    with pytest.raises(ValueError, match="'on' or 'off', not 'auto'"):
        weft.set_traceback_filtering("auto")


def test_under_weft_run(tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, "fail()", command=("-m", "weft", "run", "program.py"))
    assert done.returncode == 1
    assert [os.path.basename(f) for f in files(done.stderr)] == ["program.py"] * 3


def test_causes_contexts_groups_and_notes(tmp_path: pathlib.Path) -> None:
    done = run(
        tmp_path,
        """
        def both():
            errors = []
            for _ in range(2):
                try:
                    fail()
                except RuntimeError as error:
                    error.add_note("a note")
                    errors.append(error)
            raise ExceptionGroup("two", errors)
        try:
            try:
                both()
            except ExceptionGroup as error:
                raise KeyError("caused") from error
        except KeyError:
            weft.ones(3)[7]
        """,
    )
    assert not any(f.startswith(OWN) for f in files(done.stderr.replace("| ", "")))
    assert OWN not in done.stderr
    assert "direct cause" in done.stderr and "During handling" in done.stderr
    assert done.stderr.count("| a note") == 2
    assert done.stderr.splitlines()[-2].startswith("IndexError: ")


def test_in_threads_and_pools(tmp_path: pathlib.Path) -> None:
    done = run(
        tmp_path,
        """
        import concurrent.futures, threading
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            pool.submit(fail).result()
        """,
    )
    assert "Exception in thread" in done.stderr
    assert done.stderr.count("shapes cannot be multiplied (3x8 and 7x2)") == 2
    assert OWN not in done.stderr


def test_in_processes_and_loaders(tmp_path: pathlib.Path) -> None:
    done = run(
        tmp_path,
        """
        class Data(weft.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return weft.ones(3) + weft.ones(i + 4)
        def in_process(rank):
            fail()
        if __name__ == "__main__":
            for work in (
                lambda: weft.multiprocessing.spawn(in_process, nprocs=1),
                lambda: list(weft.utils.data.DataLoader(Data(), num_workers=1)),
                lambda: list(weft.utils.data.DataLoader([1, "a"], batch_size=2, num_workers=1)),
            ):
                try:
                    work()
                except Exception as error:
                    print(error, end="\\n---\\n")
        """,
    )
    spawned, own, default, _ = done.stdout.split("\n---\n")
    assert OWN not in done.stdout, done.stdout
    assert spawned.count("in forward") == 1 and "program.py:10" in spawned
    assert "Original Traceback (most recent call last)" in own
    assert "in __getitem__" in own and "add: The size of tensor a (3)" in own
    # No line of the program is behind this one, and no line of Python's own stands in for it.
    assert "Original TypeError: new(): invalid data type 'str'" in default
    assert "at <a worker, outside the lines of the program>" in default


def test_errors_of_a_backward_pass_name_the_forward_line(tmp_path: pathlib.Path) -> None:
    done = run(
        tmp_path,
        """
        class Odd(weft.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, g):
                return g @ weft.ones(9, 9)
        x = weft.ones(3, 4, requires_grad=True)
        y = Odd.apply(x)
        y.sum().backward()
        """,
    )
    assert OWN not in done.stderr
    assert "in backward" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "  in the backward of Odd, recorded at program.py:23: y = Odd.apply(x)"


def test_a_note_names_the_node_whose_hook_failed_and_only_that() -> None:
    x = weft.ones(3, requires_grad=True)
    y = x * 2  # recorded here
    y.register_hook(lambda g: g.no_such_thing)
    with pytest.raises(AttributeError) as caught:
        y.exp().sum().backward()
    (note,) = caught.value.__notes__
    assert "in the backward of mul, recorded at" in note and "# recorded here" in note
    x = weft.ones(3, requires_grad=True)
    x.register_hook(lambda g: g.no_such_thing)  # of a leaf: no op made it
    with pytest.raises(AttributeError) as caught:
        (x * 2).sum().backward()
    assert not hasattr(caught.value, "__notes__")


def test_an_error_that_weft_did_not_mean_says_where(on: None) -> None:
    def shown(error: BaseException) -> str:
        return tracebacks.text(error)

    scope: dict[str, Any] = {}
    exec(compile("def faulty(x):\n    return x._a", f"{OWN}ops/made_up.py", "exec"), scope)
    try:
        scope["faulty"]("text")
    except AttributeError as error:
        text, notes = shown(error), getattr(error, "__notes__", None)
    assert text.splitlines()[-2:] == [
        "AttributeError: 'str' object has no attribute '_a'",
        "(inside weft, ops/made_up.py:2; WEFT_TRACEBACK=full shows all frames)",
    ]
    assert notes is None  # it was there only while it was shown
    try:
        weft.ones(2) + weft.ones(3)
    except RuntimeError as error:
        assert "inside weft" not in shown(error)

    def meddle(*args: Any) -> Any:
        return {}["missing"]  # the user's fault, though weft called it

    x = weft.ones(2, requires_grad=True)
    x.register_hook(meddle)
    try:
        (x * 2).sum().backward()
    except KeyError as error:
        assert "inside weft" not in shown(error) and "in meddle" in shown(error)


def test_the_exception_keeps_its_frames_for_debuggers(tmp_path: pathlib.Path) -> None:
    done = run(
        tmp_path,
        """
        import traceback
        before = sys.excepthook
        def look(kind, error, trace):
            before(kind, error, trace)
            print(len(traceback.extract_tb(error.__traceback__)))
            print(error.__traceback__ is sys.last_traceback)
        sys.excepthook = look
        fail()
        """,
    )
    shown = len(files(done.stderr))
    count, same = done.stdout.split()
    assert shown == 3 and int(count) > shown and same == "True"


def test_post_mortem_reaches_the_frames_of_weft(tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(HEAD)
    code = "import pdb, sys, program\ntry:\n    program.fail()\nexcept RuntimeError:\n"
    code += "    pdb.post_mortem()"
    done = subprocess.run(
        [sys.executable, "-c", code], input="where\nquit\n",
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert "dispatch.py" in done.stdout


def test_a_hook_that_was_there_before_is_called(tmp_path: pathlib.Path) -> None:
    program = """
        import sys
        def mine(kind, error, trace):
            import traceback
            print("mine", len(traceback.extract_tb(trace)), error.__traceback__ is not None)
        sys.excepthook = mine
        import program
        program.fail()
    """
    (tmp_path / "program.py").write_text(HEAD)
    (tmp_path / "first.py").write_text(textwrap.dedent(program))
    environment = {k: v for k, v in os.environ.items() if k != "WEFT_TRACEBACK"}
    done = subprocess.run(
        [sys.executable, "first.py"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stdout == "mine 3 True\n"


def test_only_frames_that_weft_caused_are_left_out(on: None) -> None:
    """The standard library's frames stay where the program itself called it."""
    import functools

    def user(g: Any) -> Any:
        return functools.reduce(lambda a, b: weft.ones(2) + weft.ones(3), [1, 2])

    try:
        user(None)
    except RuntimeError as error:
        names = [f.name for f in traceback.extract_tb(error.__traceback__)]
        cut = tracebacks.without_own_frames(error.__traceback__)
        left = [f.name for f in traceback.extract_tb(cut)]
    assert left == names[: names.index("<lambda>") + 1] and len(left) < len(names)
    assert tracebacks.without_own_frames(None) is None


def test_a_traceback_of_own_frames_alone_stays_whole() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=weft.ones, args=("x",))
    before, threading.excepthook = threading.excepthook, lambda args: found.append(args)
    try:
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    trace = found[0].exc_traceback
    while trace.tb_frame.f_code.co_filename.endswith("threading.py"):
        trace = trace.tb_next
    assert tracebacks.without_own_frames(trace) is trace


class Shell:
    """What IPython's shell has to do with it."""

    custom_exceptions: tuple[type, ...] = ()

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def set_custom_exc(self, kinds: tuple[type, ...], handler: Any) -> None:
        self.custom_exceptions, self.handler = kinds, handler

    def showtraceback(self, given: tuple[Any, Any, Any], tb_offset: Any = None) -> None:
        self.shown = traceback.format_exception(given[1].with_traceback(given[2]))


def test_in_ipython(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    for name in ("last_type", "last_value", "last_traceback"):
        monkeypatch.setattr(sys, name, None, raising=False)
    tracebacks.install()
    try:
        weft.ones(2) + weft.ones(3)
    except RuntimeError as error:
        shell.handler(shell, type(error), error, error.__traceback__)
        assert OWN not in "".join(shell.shown)
        assert len(traceback.extract_tb(sys.last_traceback)) > 1  # for %debug
        assert error.__traceback__ is sys.last_traceback
    handler = shell.handler
    tracebacks.install()
    assert shell.handler is handler  # once is enough, and others' handlers stay


def test_in_a_real_ipython(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("IPython")
    code = """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.colors = "nocolor"
        shell.run_cell("import weft\\nweft.ones(2) + weft.ones(3)")
    """
    (tmp_path / "shell.py").write_text(textwrap.dedent(code))
    done = run(tmp_path, "", command=("shell.py",))
    assert "must match the size of tensor b (3)" in done.stdout
    assert OWN not in done.stdout


def test_in_pytest(tmp_path: pathlib.Path) -> None:
    text = """
        def test_it():
            fail()
        def test_late():
            weft.utils.data.DataLoader([1], batch_size=-1)
    """
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "program.py")
    done = run(tmp_path, text, command=pytest_)
    assert "2 failed" in done.stdout
    assert "module.py" not in done.stdout and "dataloader.py" not in done.stdout
    assert "E       RuntimeError: linear" in done.stdout
    assert "E       ValueError: batch_size should be a positive integer" in done.stdout
    done = run(tmp_path, text, command=pytest_, mode="full")
    assert "module.py" in done.stdout and "dataloader.py" in done.stdout
