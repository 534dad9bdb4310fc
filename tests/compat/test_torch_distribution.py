"""``weft torch install``: in a venv of its own, a torch that hands over to weft."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import venv
import zipfile

import pytest

from weft.compat import distribution

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("numpy", "scipy", "ml_dtypes", "cffi", "llvmlite", "pycparser", "onednn-cpu-gomp")


class Venv:
    """An environment with weft's sources and what weft needs, and no torch."""

    def __init__(self, folder: pathlib.Path, pip: bool = False) -> None:
        venv.create(folder, with_pip=pip, symlinks=True)
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))
        (self.site / "weft_sources.pth").write_text(f"{ROOT / 'src'}\n")
        for name in NEEDED:
            self._link(name)

    def _link(self, name: str) -> None:
        """Make a package of the running environment visible, without its neighbours."""
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return
        home = pathlib.Path(str(found.locate_file("")))
        for first in {f.parts[0] for f in found.files or ()} - {"..", "__pycache__"}:
            if (home / first).exists() and not (self.site / first).exists():
                (self.site / first).symlink_to(home / first)

    def call(self, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        keep = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run(
            [str(self.python), *arguments], capture_output=True, text=True, timeout=120,
            env={**keep, "OMP_NUM_THREADS": "1"}, cwd=self.site.parent, **more,
        )  # fmt: skip

    def output(self, *arguments: str) -> str:
        done = self.call(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def weft(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.call("-m", "weft", "torch", *arguments)

    def listing(self) -> list[str]:
        return sorted(p.name for p in self.site.iterdir() if p.name != "__pycache__")


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Venv:
    return Venv(tmp_path / "venv")


PROGRAM = """
import importlib.metadata, importlib.util, multiprocessing, subprocess, sys

def work(queue):
    import torch.nn.functional as F
    queue.put((F.__name__, __name__))

if __name__ == "__main__":
    assert importlib.util.find_spec("torch").origin.endswith("torch/__init__.py")
    import torch.nn.functional as F
    import torch, weft
    from torch.nn.modules.linear import Linear
    assert torch is weft and sys.modules["torch"] is torch and F is weft.nn.functional
    assert torch.__name__ == "torch" and Linear.__module__ == "torch.nn.modules.linear"
    assert importlib.metadata.version("torch") == "2.13.0" == torch.__version__.split("+")[0]
    assert importlib.metadata.metadata("torch")["Name"] == "torch"
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(*queue.get(timeout=60))
        process.join()
    code = "from torch import nn; import torch; print(nn.Linear(2, 1)(torch.ones(2)).shape)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
"""


def test_installed_used_and_removed(place: Venv) -> None:
    before = place.listing()
    said = place.weft("status")
    assert (said.returncode, said.stdout) == (1, "torch is not installed\n")
    done = place.weft("install")
    assert done.returncode == 0 and "torch 2.13.0 is weft now" in done.stdout
    assert sorted({*place.listing()} - {*before}) == ["torch", "torch-2.13.0.dist-info"]
    again = place.weft("install")
    assert again.returncode == 0 and "nothing to do" in again.stdout
    said = place.weft("status")
    assert said.returncode == 0 and said.stdout.startswith("torch is weft (2.13.0 in ")
    script = place.site.parent / "script.py"
    script.write_text(PROGRAM)
    lines = place.output(str(script)).split("\n")
    assert lines[:3] == [
        "torch.nn.functional __mp_main__",
        "torch.nn.functional __main__",
        "torch.Size([1])",
    ]
    assert "PyTorch version: 2.13.0" in place.output("-m", "torch.utils.collect_env")
    doctor = place.call("-m", "weft", "doctor").stdout
    assert "torch is weft (2.13.0 in " in doctor
    done = place.weft("remove")
    assert done.returncode == 0 and place.listing() == before
    assert place.call("-c", "import torch").returncode == 1
    assert "nothing to do" in place.weft("remove").stdout


def _wheel(folder: pathlib.Path, name: str, version: str, needs: str = "") -> None:
    """A package with nothing in it."""
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", meta + (f"Requires-Dist: {needs}\n" if needs else ""))
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def _check_that_pip_keeps_it(place: Venv, folder: pathlib.Path) -> None:
    """A library whose newest version needs a newer PyTorch comes in the version before."""
    _wheel(folder, "torch", "2.15.0")
    _wheel(folder, "vision", "0.28.0", "torch==2.13.0")
    _wheel(folder, "vision", "0.30.0", "torch==2.15.0")
    offline = ("-m", "pip", "install", "--no-index", "--find-links", str(folder))
    place.output(*offline, "vision")
    installed = place.output("-m", "pip", "list").split()
    assert installed[installed.index("vision") + 1] == "0.28.0"
    assert place.weft("status").stdout.startswith("torch is weft (2.13.0")


def test_pip_settings_of_others_are_kept(place: Venv) -> None:
    settings = place.site.parents[2] / "pip.conf"
    for text, kept in (
        ("[install]\n# mine\nno-compile = true", True),
        ("[global]\ntimeout = 9", True),
        ("[global]\nconstraint = mine.txt\n", False),
    ):
        settings.write_text(text)
        said = place.weft("install").stdout
        after = settings.read_text()
        assert ("pip keeps it at 2.13.0" in said) is kept and ("weft-torch.txt" in after) is kept
        assert "add torch==2.13.0" in said or kept
        assert place.weft("install").returncode == 0 and settings.read_text() == after
        assert place.weft("remove").returncode == 0
        assert settings.read_text().rstrip("\n") == text.rstrip("\n")
    settings.unlink()
    assert place.weft("install").returncode == 0 and settings.exists()
    assert place.weft("remove").returncode == 0
    assert not settings.exists() and not (settings.parent / "weft-torch.txt").exists()


def test_pip_takes_it_for_torch(tmp_path: pathlib.Path) -> None:
    place = Venv(tmp_path / "venv", pip=True)
    before = place.listing()
    assert place.weft("install").returncode == 0
    place.output("-c", "import torch")
    assert "torch" in place.output("-m", "pip", "list")
    library = place.site / "needs_torch-1.0.dist-info"
    library.mkdir()
    text = "Metadata-Version: 2.1\nName: needs-torch\nVersion: 1.0\nRequires-Dist: torch>=2.4\n"
    (library / "METADATA").write_text(text)
    assert "No broken requirements" in place.output("-m", "pip", "check")
    offline = ("-m", "pip", "install", "--no-index", "torch>=2", "torch==2.13.0")
    assert "already satisfied" in place.output(*offline)
    _check_that_pip_keeps_it(place, tmp_path)
    place.output("-m", "pip", "uninstall", "-y", "torch", "vision")
    (library / "METADATA").unlink()
    library.rmdir()
    assert place.listing() == before


def test_the_real_one_is_left_alone(place: Venv) -> None:
    package, info = place.site / "torch", place.site / "torch-2.12.0.dist-info"
    for folder in (package, info):
        folder.mkdir()
    (package / "__init__.py").write_text("__version__ = '2.12.0'\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.0\n")
    (info / "INSTALLER").write_text("pip\n")
    before = place.listing()
    for action, words in (("install", "weft run script.py"), ("remove", "pip uninstall torch")):
        done = place.weft(action)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
    said = place.weft("status")
    assert said.returncode == 1 and said.stdout.startswith("torch is PyTorch (2.12.0 in ")
    # One that has no metadata, such as a build in place, is no less real.
    for name in ("METADATA", "INSTALLER"):
        (info / name).unlink()
    info.rmdir()
    assert place.weft("install").returncode == 1
    assert {*before} - {*place.listing()} == {info.name}
    assert (package / "__init__.py").read_text() == "__version__ = '2.12.0'\n"


KILLED = """
import os, sys
from weft.compat import distribution
count = [0]
plain = os.rename
def rename(a, b):
    if count[0] == int(sys.argv[2]):
        os._exit(9)
    count[0] += 1
    plain(a, b)
os.rename = rename
getattr(distribution, sys.argv[1])()
"""


@pytest.mark.parametrize("action", ["install", "remove"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_killed_run_can_be_repeated(place: Venv, action: str, at: int) -> None:
    before = place.listing()
    if action == "remove":
        assert place.weft("install").returncode == 0
    assert place.call("-c", KILLED, action, str(at)).returncode == 9
    kind = place.weft("status").stdout
    if at == 1:
        assert "half installed" in kind and place.call("-c", "import torch").returncode == 0
    else:
        assert "half" not in kind
    for scratch in place.site.glob(".weft-torch-*"):
        os.utime(scratch, (0, 0))
    assert place.weft("install").returncode == 0
    assert place.weft("status").stdout.startswith("torch is weft (2.13.0 in ")
    assert place.weft("remove").returncode == 0
    assert place.listing() == before


def test_an_outdated_loader_is_replaced_and_strange_files_are_kept(place: Venv) -> None:
    assert place.weft("install").returncode == 0
    loader = place.site / "torch" / "__init__.py"
    current = loader.read_text()
    loader.write_text(current + "# of an older version\n")
    assert "is weft now" in place.weft("install").stdout and loader.read_text() == current
    (place.site / "torch" / "mine.txt").write_text("mine")
    assert "were kept" in place.weft("remove").stdout
    assert [p.name for p in (place.site / "torch").iterdir()] == ["mine.txt"]


def test_without_weft_the_loader_says_what_to_do(place: Venv) -> None:
    assert place.weft("install").returncode == 0
    (place.site / "weft_sources.pth").unlink()
    done = place.call("-c", "import torch")
    assert "weft is not installed" in done.stderr and "pip uninstall torch" in done.stderr


def test_folders_that_cannot_be_written_give_one_line(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(distribution, "site_packages", lambda: tmp_path)
    monkeypatch.setattr(distribution, "active", lambda: distribution.Active("none"))
    monkeypatch.setattr(distribution.tempfile, "mkdtemp", refuse)
    assert distribution.main("install") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"can't write to {tmp_path} (Permission denied)" in said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_beside_a_program_does_not_count(place: Venv) -> None:
    folder = place.site.parent / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    assert place.weft("install").returncode == 0


def test_the_record_is_that_of_the_files(tmp_path: pathlib.Path) -> None:
    for name, text in distribution.files().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = importlib.metadata.PathDistribution(tmp_path / "torch-2.13.0.dist-info")
    assert found.version == "2.13.0" and found.files
    listed = {str(f) for f in found.files}
    assert listed == set(distribution.files())
    for file in found.files:
        if file.hash is not None:
            assert file.size == (tmp_path / str(file)).stat().st_size
