"""The command ``weft``: one line and the right exit code for whatever goes wrong."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import weft
from weft.io.safetensors import load_safetensors, save_safetensors
from weft_command import COMMANDS, completion, main, tree

WEFT = [sys.executable, "-m", "weft"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def call(*words: str, cwd: pathlib.Path | None = None, **more: Any) -> Any:
    return subprocess.run(
        [*WEFT, *words], capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, timeout=120,
        **more,
    )  # fmt: skip


@pytest.fixture
def model(tmp_path: pathlib.Path) -> str:
    path = str(tmp_path / "model.safetensors")
    save_safetensors({f"layer{k}": weft.ones(2, 3) for k in range(2000)}, path)
    return path


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on the error stream, which must be a single line."""
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err.strip()


# --- help ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: weft {name}") and re.search(r"^examples.*:$", text, re.M)
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_help_and_the_version_load_neither_weft_nor_numpy() -> None:
    code = (
        "import sys; from weft_command import main\n"
        "for words in ([], ['--version']):\n    assert main(words) == 0\n"
        "for words in (['--help'], ['info', '--help'], ['new', '--help']):\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as end:\n        assert not end.code\n"
        "assert 'weft' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "exit codes:" in done.stdout and f"weft {weft.version.weft}\n" in done.stdout


@pytest.mark.parametrize(
    "words",
    [["no_such"], ["info"], ["info", "a", "b"], ["convert", "a"], ["--no-such"], ["torch", "fly"],
     ["demo", "--epochs", "many"], ["graph"], ["graph", "fly"], ["completion", "cmd"], ["new"],
     ["run"], ["bench", "no_such"]],
)  # fmt: skip
def test_wrong_arguments_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = one_line(capsys)
    assert said.startswith("weft") and "--help)" in said


# --- files that are not as they should be ---------------------------------------------------


@pytest.mark.parametrize("command", [["info"], ["graph", "show"], ["convert"]])
def test_a_file_that_is_not_there_or_is_a_folder(
    command: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [str(tmp_path / "out.pt")] if command == ["convert"] else []
    missing = str(tmp_path / "missing.safetensors")
    assert main([*command, missing, *more]) == 2
    assert one_line(capsys) == f"weft {command[0]}: {missing}: No such file or directory"
    assert main([*command, str(tmp_path), *more]) == 2
    assert str(tmp_path) in one_line(capsys)
    assert not (tmp_path / "out.pt").exists()


def test_every_cut_of_every_kind_of_file_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = weft.nn.Linear(3, 2)
    weft.save({"net": net.state_dict(), "epoch": 3}, tmp_path / "a.pt")
    weft.save(net.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    save_safetensors(net.state_dict(), tmp_path / "b.safetensors")
    weft.graph.of(net(weft.ones(1, 3)).sum()).save(tmp_path / "c.weft")
    (tmp_path / "d.onnx").write_bytes(ONNX)
    for path in sorted(tmp_path.iterdir()):
        assert main(["info", str(path)]) == 0, capsys.readouterr().err
        capsys.readouterr()
        data = path.read_bytes()
        cut = tmp_path / "cut"
        for end in sorted({0, 1, 7, 8, 9, 20, len(data) // 3, len(data) // 2, len(data) - 1}):
            cut.write_bytes(data[:end])
            assert main(["info", str(cut)]) == 2, (path, end)
            assert one_line(capsys).startswith(f"weft info: {cut}: ")
        cut.unlink()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_that_may_not_be_read(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.chmod(model, 0)
    assert main(["info", model]) == 3
    assert one_line(capsys) == f"weft info: {model}: Permission denied"


def test_what_the_system_refuses_has_its_own_code(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft.io import describing

    for error, words in (
        (PermissionError(13, "Permission denied", model), f"{model}: Permission denied"),
        (OSError(28, "No space left on device"), "can't write: No space left on device"),
        (MemoryError(), "out of memory"),
    ):

        def refuse(path: str, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(describing, "describe", refuse)
        assert main(["info", model]) == 3
        assert one_line(capsys) == f"weft info: {words}"


def test_debug_shows_the_traceback(tmp_path: pathlib.Path) -> None:
    for words in (["--debug", "info", "missing"], ["info", "missing", "--debug"]):
        done = call(*words, cwd=tmp_path)
        assert done.returncode == 1 and "Traceback (most recent call last)" in done.stderr
        assert done.stderr.rstrip().endswith("No such file or directory: 'missing'")


def test_debug_shows_the_frames_of_weft_for_a_script(tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text("import sys, torch\ntorch.ones(2) + torch.ones(3)\n")
    environment = {k: v for k, v in ENVIRONMENT.items() if k != "WEFT_TRACEBACK"}
    shown = []
    for words in (["run"], ["run", "--debug"]):
        done = subprocess.run(
            [*WEFT, *words, "script.py", "--debug"], capture_output=True, text=True, cwd=tmp_path,
            env=environment,
        )  # fmt: skip
        assert done.returncode == 1
        shown.append("dispatch.py" in done.stderr)
    assert shown == [False, True]  # what follows the script is the script's


# --- readers that stop, disks that are full, interrupts --------------------------------------


def test_a_reader_that_has_enough(model: str) -> None:
    done = subprocess.run(
        f'{" ".join(WEFT)} info --all "{model}" | head -1; echo "${{PIPESTATUS[0]}}"',
        shell=True, executable=shutil.which("bash"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    first, code = done.stdout.splitlines()
    assert first.startswith(f"{model}: safetensors") and code == "0"
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk(model: str, tmp_path: pathlib.Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*WEFT, "info", "--all", model], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3
    assert done.stderr == "weft info: can't write: No space left on device\n"


def test_a_disk_that_fills_up_while_a_file_is_written(tmp_path: pathlib.Path, model: str) -> None:
    """A limit on file sizes stands for the end of the disk; what was there stays as it was."""
    resource = pytest.importorskip("resource")
    target = tmp_path / "model.pt"
    target.write_bytes(b"before")
    limit = lambda: (
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    done = subprocess.run(
        [*WEFT, "convert", model, str(target), "--force"], capture_output=True, text=True,
        preexec_fn=limit, timeout=120,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(tmp_path / "c")},
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1 and "File too large" in done.stderr
    assert target.read_bytes() == b"before"
    left = {p.name for p in tmp_path.iterdir()} - {"c"}
    assert left == {"model.pt", "model.safetensors"}


def test_an_interrupt(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*WEFT, "info", str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=ENVIRONMENT,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        # It waits for somebody to write into the pipe once it has come to opening it.
        if "weft/io/describing" in _modules(process.pid):
            break
        time.sleep(0.1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "weft info: interrupted\n")


def _modules(process: int) -> str:
    """A sign that a process waits where it should: its kernel function, on Linux."""
    try:
        waits = pathlib.Path(f"/proc/{process}/wchan").read_text()
    except OSError:
        return ""
    return "weft/io/describing" if "fifo" in waits or "wait_for_partner" in waits else ""


# --- info ------------------------------------------------------------------------------------


def message(*parts: tuple[int, bytes | int]) -> bytes:
    """A message in protobuf's wire format."""

    def varint(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    made = b""
    for number, value in parts:
        if isinstance(value, int):
            made += varint(number << 3) + varint(value)
        else:
            made += varint(number << 3 | 2) + varint(len(value)) + value
    return made


def value_info(name: bytes, *dims: bytes | int) -> bytes:
    shape = b"".join(message((1, message((2 if isinstance(d, bytes) else 1, d)))) for d in dims)
    return message((1, name), (2, message((1, message((1, 1), (2, shape))))))


WEIGHT = message((1, 300), (1, 4), (2, 1), (8, b"w"), (9, bytes(300 * 4 * 4)))
INNER = message((4, b"Loop"), (5, message((6, message((1, message((4, b"Add"))))))))
ONNX = message(
    (1, 9), (2, b"maker"), (3, b"2.0"), (8, message((1, b""), (2, 17))),
    (14, message((1, b"author"), (2, b"me"))),
    (7, message(
        (2, b"net"), (1, message((4, b"MatMul"))), (1, INNER), (5, WEIGHT),
        (11, value_info(b"x", b"batch", 300)), (11, value_info(b"w", 300, 4)),
        (12, value_info(b"y", b"batch", 4)),
    )),
)  # fmt: skip


def test_info_of_an_onnx_model(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(ONNX)
    assert main(["info", str(tmp_path / "m.onnx")]) == 0
    text = capsys.readouterr().out
    for words in (
        "ONNX model", "opset            ai.onnx 17", "producer         maker 2.0",
        "nodes            3 (1 MatMul, 1 Add, 1 Loop)",
        "inputs           x: float32[batch, 300]\n",  # a weight is no input
        "outputs          y: float32[batch, 4]", "metadata author  me",
        "1 with 1,200 elements, 4.688 KiB", "  w  float32  [300, 4]",
    ):  # fmt: skip
        assert words in text


def test_info_agrees_with_the_onnx_package(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    import numpy as np

    made = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((3, 4), np.float16), "w")
    kind = onnx.TensorProto.FLOAT16
    graph = made.make_graph(
        [made.make_node("MatMul", ["x", "w"], ["y"]), made.make_node("Relu", ["y"], ["z"])], "net",
        [made.make_tensor_value_info("x", kind, ["N", 3])],
        [made.make_tensor_value_info("z", kind, None)], [weight],
    )  # fmt: skip
    onnx.save(made.make_model(graph), tmp_path / "m.onnx")
    assert main(["info", str(tmp_path / "m.onnx")]) == 0
    text = capsys.readouterr().out
    assert "2 (1 MatMul, 1 Relu)" in text and "x: float16[N, 3]" in text
    assert "w  float16  [3, 4]" in text and "12 elements, 24 bytes" in text


def test_info_of_a_checkpoint_runs_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = weft.ones(2, 2)
    weft.save({"a": shared, "b": shared, "lr": 0.1, "deep": {"x": [1, 2]}}, tmp_path / "a.pt")
    assert main(["info", str(tmp_path / "a.pt")]) == 0
    text = capsys.readouterr().out
    assert (
        re.search(r"^  a +float32  \[2, 2\]$", text, re.M)
        and "note: b shares memory with a" in text
    )
    assert re.search(r"lr +float +0\.1", text) and re.search(r"deep\.x\.1 +int +2", text)
    weft.save(Danger(), tmp_path / "b.pt")
    assert main(["info", str(tmp_path / "b.pt")]) == 0
    text = capsys.readouterr().out
    assert "system" in text and "only load it if you trust" in text
    assert not (tmp_path / "harm").exists()


class Danger:
    def __reduce__(self) -> Any:
        return os.system, ("touch harm",)


def test_info_keeps_a_terminal_safe(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_safetensors({"a\x1b[2J": weft.ones(1)}, tmp_path / "x.safetensors", {"k": "\x1b]0;hi\x07"})
    assert main(["info", str(tmp_path / "x.safetensors")]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_info_on_a_terminal_of_few_characters(tmp_path: pathlib.Path) -> None:
    save_safetensors({"größe_网络": weft.ones(1)}, tmp_path / "x.safetensors")
    done = subprocess.run(
        [*WEFT, "info", "x.safetensors"], capture_output=True, cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0 and b"gr\\xf6\\xdfe_\\u7f51" in done.stdout


def test_info_as_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["info", "--json", model]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "safetensors" and len(found["entries"]) == 2000
    assert found["entries"][0] == {
        "name": "layer0", "kind": "float32", "shape": [2, 3], "bytes": 24,
    }  # fmt: skip


# --- convert -----------------------------------------------------------------------------------


def test_convert_there_and_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = weft.nn.Sequential(weft.nn.Linear(3, 3), weft.nn.BatchNorm1d(3), weft.nn.Linear(3, 3))
    net[2].weight = net[0].weight
    state = net.state_dict()
    a, b, c = (str(tmp_path / n) for n in ("a.pt", "b.safetensors", "c.pth"))
    weft.save(state, a)
    assert main(["convert", a, b]) == 0 and main(["convert", b, c]) == 0
    assert len(load_safetensors(b)) == len(state) - 1  # tied weights are written once
    again = weft.load(c)
    assert set(again) == set(state)
    assert all(weft.equal(again[k], state[k]) and again[k].dtype == state[k].dtype for k in state)
    assert again["0.weight"].data_ptr() == again["2.weight"].data_ptr()
    assert again._metadata == state._metadata
    assert "1 of them tied to others" in capsys.readouterr().out


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["convert", *words]) == 2
    return one_line(capsys)


def test_convert_refuses_what_would_be_lost(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lambda name: str(tmp_path / name)
    x = weft.randn(4, 4)
    weft.save({"state": {"w": x}, "epoch": 3}, path("a.pt"))
    said = refused([path("a.pt"), path("o.safetensors")], capsys)
    assert "epoch (int) would be lost" in said and "--key state converts" in said
    assert main(["convert", path("a.pt"), path("o.safetensors"), "--key", "state"]) == 0
    assert weft.equal(load_safetensors(path("o.safetensors"))["w"], x)
    assert "no part 'x'" in refused([path("a.pt"), path("p.safetensors"), "--key", "x"], capsys)

    weft.save({"w": x, "part": x[1:3]}, path("b.pt"))
    said = refused([path("b.pt"), path("p.safetensors")], capsys)
    assert "'w' and 'part' share a part of their memory" in said and "--copy-shared" in said
    assert main(["convert", path("b.pt"), path("p.safetensors"), "--copy-shared"]) == 0
    assert weft.equal(load_safetensors(path("p.safetensors"))["part"], x[1:3])

    weft.save({"w": x[:2], "other": x[2:]}, path("c.pt"))  # one storage, and nothing shared
    assert main(["convert", path("c.pt"), path("q.safetensors")]) == 0

    save_safetensors({"w": x}, path("d.safetensors"), {"author": "me"})
    assert "metadata author" in refused([path("d.safetensors"), path("d.pt")], capsys)
    assert main(["convert", path("d.safetensors"), path("d.pt"), "--drop-metadata"]) == 0

    weft.save({"z": weft.ones(1, dtype=weft.complex128)}, path("e.pt"))
    assert "complex128" in refused([path("e.pt"), path("e.safetensors")], capsys)
    weft.save(weft.ones(1), path("f.pt"))
    assert "single tensor" in refused([path("f.pt"), path("f.safetensors")], capsys)
    assert "safetensors file already" in refused(
        [path("d.safetensors"), path("g.safetensors")], capsys
    )
    assert "is there already; --force" in refused([path("d.safetensors"), path("d.pt")], capsys)
    assert "is the file to be read" in refused([path("d.pt"), path("d.pt"), "--force"], capsys)
    assert "must end in" in refused([path("d.pt"), path("d.txt")], capsys)
    for name in ("e", "f", "g"):
        assert not (tmp_path / f"{name}.safetensors").exists()


def test_convert_agrees_with_torch(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 2)
    torch.save(net.state_dict(), tmp_path / "a.pt")
    a, b, c = (str(tmp_path / n) for n in ("a.pt", "b.safetensors", "c.pt"))
    assert main(["convert", a, b]) == 0 and main(["convert", b, c]) == 0
    again = torch.load(c)
    assert all(torch.equal(again[k], v) for k, v in net.state_dict().items())


# --- new, doctor, bench, completion --------------------------------------------------------------


def test_a_new_project_trains_and_its_tests_pass(tmp_path: pathlib.Path) -> None:
    done = call("new", "spirals", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    project = tmp_path / "spirals"
    assert 'name = "spirals"' in (project / "pyproject.toml").read_text()
    assert "PROJECT_NAME" not in "".join(p.read_text() for p in project.rglob("*") if p.is_file())
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ran = subprocess.run(
        tests, cwd=project, capture_output=True, text=True, env=ENVIRONMENT, timeout=240
    )
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout
    assert call("new", "spirals", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("name", ["9lives", "a b", "..", "", "a.b", "-x/"])
def test_a_project_needs_a_name(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["new", name]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_project_is_made_whole_or_not_at_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft_command import new

    def fail(path: str, folder: str, name: str) -> None:
        if path == "train.py":
            raise OSError(28, "No space left on device", path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new, "_write", fail)
    assert main(["new", "project"]) == 3
    assert "No space left" in one_line(capsys) and list(tmp_path.iterdir()) == []


def test_the_doctor_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-speed"]) in (0, 1)
    text = capsys.readouterr().out
    for words in (f"weft {weft.version.weft}, Python", "processors usable", "LLVM kernels",
                  "threads", "kernel cache", "memory pool", "scikit-learn", "torch"):  # fmt: skip
        assert words in text
    from weft import doctor

    lines = list(doctor.measure(seconds=0.05))
    assert len(lines) == 5 and all(re.search(r" [\d.]+ (GFLOP/s|GB/s|us)", line) for line in lines)


def test_the_doctor_copes_with_packages_that_pip_did_not_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.metadata

    plain = importlib.metadata.version

    def version(name: str) -> str:
        if name == "scipy":
            raise importlib.metadata.PackageNotFoundError(name)
        return plain(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert main(["doctor", "--no-speed"]) in (0, 1)
    assert re.search(r"ok +scipy +of an unknown version", capsys.readouterr().out)


def test_bench_without_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft_command import bench

    monkeypatch.setattr(bench, "_pytorch", lambda: False)
    assert main(["bench", "ops"]) == 2
    assert "pip install torch==" in one_line(capsys)
    import benchmarks.workloads as workloads

    monkeypatch.setattr(workloads, "WORKLOADS", {"dqn": workloads.WORKLOADS["dqn"]})
    assert main(["bench"]) == 0
    assert re.search(r"^dqn +[\d.]+ ms$", capsys.readouterr().out, re.M)


@pytest.mark.deep
def test_bench_with_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    main(["bench", "models", "--rows", "dqn", "--rounds", "1"])
    assert "losses of both agree" in capsys.readouterr().out


def completed(shell: str, line: str) -> list[str]:
    """What a shell offers at the end of a line."""
    points = completion._points("", tree.parser(every=True))
    if shell == "bash":
        words = " ".join(f"'{w}'" for w in line.split(" "))
        script = f"{completion.bash(points)}\nCOMP_WORDS=({words})\n"
        script += "COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))\n"
        script += '_weft; printf "%s\\n" "${COMPREPLY[@]}"'
        command = ["bash", "-c", script]
    else:
        command = ["fish", "-N", "-c", f"{completion.fish(points)}\ncomplete -C '{line}'"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return [row.split("\t")[0] for row in done.stdout.split("\n") if row]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    assert set(completed(shell, "weft do")) == {"doctor"}
    assert set(completed(shell, "weft info --j")) == {"--json"}
    assert set(completed(shell, "weft graph d")) >= {"diff"}
    assert set(completed(shell, "weft graph diff --val")) == {"--values"}
    assert "--live" in completed(shell, "weft demo --")
    assert "--live" not in completed(shell, "weft info --")


def test_completion_for_zsh_is_well_formed() -> None:
    done = subprocess.run([*WEFT, "completion", "zsh"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("#compdef weft\n")
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh here")
    text = f"autoload -U compinit; compinit -u -D\n{done.stdout}\nprint $_comps[weft]"
    ran = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, timeout=60)
    assert (
        ran.stderr == ""
        and ran.stdout.strip() == "_bash_complete -o default -o bashdefault -F _weft"
    )


def test_the_levels_of_a_processor_are_those_of_weft() -> None:
    from weft import _cpu
    from weft_command import running

    assert ("native", *_cpu.LEVELS) == running.LEVELS


def test_the_list_of_commands_is_that_of_the_modules() -> None:
    for name in COMMANDS:
        module = tree.load(name)
        assert callable(module.configure) and callable(module.run)
