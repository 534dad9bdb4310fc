"""``weft torch``: a distribution named torch, by which pip and ``import torch`` find weft.

Libraries depend on ``torch``, so installing one pulls PyTorch and gigabytes of CUDA. Where this
distribution is installed the dependency is met, and its loader hands ``import torch`` over to weft.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.machinery
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.compat import pinning

VERSION = "2.13.0"
_PACKAGE = "torch"
_INFO = f"torch-{VERSION}.dist-info"
_INSTALLER = "weft"
_SCRATCH = ".weft-torch-"
_SCRATCH_LIFE = 600.0  # seconds after which a scratch folder is taken for a killed run's

_LOADER = '''\
"""Hands ``import torch`` over to weft. `weft torch remove` takes this out."""

import importlib
import sys

# Read by `weft torch` to tell this loader from PyTorch.
__loader_of_weft__ = True

_this = sys.modules.pop(__name__)
try:
    from weft import compat
except ModuleNotFoundError as error:
    sys.modules[__name__] = _this
    if error.name != "weft":
        raise
    raise ModuleNotFoundError(
        "torch is a loader for weft here, and weft is not installed. Install weft, or take the "
        "loader out with `pip uninstall torch`",
        name="weft",
    ) from None
compat.install()
importlib.import_module("torch")
'''

_METADATA = f"""\
Metadata-Version: 2.1
Name: torch
Version: {VERSION}
Summary: Lets pip and `import torch` find weft. This is not PyTorch.
License: Apache-2.0
Requires-Python: >=3.11

Put here by `weft torch install`; `weft torch remove` or `pip uninstall torch` takes it out.
"""

_WHEEL = "Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Refusal(Exception):
    """Says in one line why nothing was done, and what to do."""


@dataclass(frozen=True)
class Active:
    """Which torch an environment has; ``kind`` is weft, partial, pytorch or none."""

    kind: str
    version: str = ""
    place: str = ""

    def __str__(self) -> str:
        if self.kind == "weft":
            return f"torch is weft ({self.version} in {self.place})"
        if self.kind == "partial":
            return f"torch is weft, half installed in {self.place}: run weft torch install again"
        if self.kind == "pytorch":
            return f"torch is PyTorch ({self.version or 'unknown version'} in {self.place})"
        return "torch is not installed"


def files() -> dict[str, str]:
    """What is put into site-packages, by path."""
    found = {
        f"{_PACKAGE}/__init__.py": _LOADER,
        f"{_INFO}/METADATA": _METADATA,
        f"{_INFO}/INSTALLER": f"{_INSTALLER}\n",
        f"{_INFO}/WHEEL": _WHEEL,
        f"{_INFO}/top_level.txt": f"{_PACKAGE}\n",
    }
    rows = [f"{name},{_digest(text)},{len(text.encode())}" for name, text in found.items()]
    rows.append(f"{_INFO}/RECORD,,")
    return {**found, f"{_INFO}/RECORD": "\n".join(rows) + "\n"}


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def site_packages() -> Path:
    """Where this environment keeps packages written in Python."""
    return Path(sysconfig.get_path("purelib"))


def active() -> Active:
    """Which torch ``import torch`` and pip find in this environment."""
    site = site_packages()
    ours = _is_loader(site / _PACKAGE)
    for distribution in importlib.metadata.distributions(name="torch"):
        if (distribution.read_text("INSTALLER") or "").strip() != _INSTALLER:
            place = str(distribution.locate_file(""))
            return Active("pytorch", distribution.version, place)
    spec = importlib.machinery.PathFinder.find_spec("torch", _search_path())
    if spec is not None and spec.origin is not None and not _is_loader(Path(spec.origin).parent):
        return Active("pytorch", place=str(Path(spec.origin).parent))
    if ours and _is_info(site / _INFO):
        return Active("weft", VERSION, str(site))
    if ours or _is_info(site / _INFO):
        return Active("partial", place=str(site))
    return Active("none")


def _search_path() -> list[str]:
    """Where torch may be installed; a folder of that name beside a program is the program's."""
    here = os.getcwd()
    return [entry for entry in sys.path if entry and os.path.abspath(entry) != here]


def _is_loader(package: Path) -> bool:
    try:
        return "__loader_of_weft__" in (package / "__init__.py").read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _is_info(folder: Path) -> bool:
    try:
        return (folder / "INSTALLER").read_text().strip() == _INSTALLER
    except OSError:
        return False


def install() -> str:
    """Put the distribution into this environment; says what was done."""
    site, found = site_packages(), active()
    if found.kind == "pytorch":
        raise Refusal(
            f"PyTorch {found.version} is installed in {found.place}, and weft does not replace "
            "it. `weft run script.py` runs a script on weft beside it; or install weft in a new "
            "environment (python -m venv), or run `pip uninstall torch` first"
        )
    if found.kind == "weft" and _is_current(site):
        return f"{found}; nothing to do{pinning.pin(VERSION)}"
    _refuse_managed_by_others()
    with _writing(site):
        _take_out(site)
        with _scratch(site) as folder:
            for name, text in files().items():
                path = folder / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            # Killed in between, import works and pip knows of nothing: a second run finishes it.
            for name in (_PACKAGE, _INFO):
                os.rename(folder / name, site / name)
    pinned = pinning.pin(VERSION)
    return f"torch {VERSION} is weft now, in {site}{pinned}. `weft torch remove` takes it out"


def remove() -> str:
    """Take the distribution out of this environment again; says what was done."""
    site, found = site_packages(), active()
    if not _is_loader(site / _PACKAGE) and not _is_info(site / _INFO):
        if found.kind == "pytorch":
            raise Refusal(
                f"the torch in {found.place} is PyTorch, not weft's loader. "
                "`pip uninstall torch` removes it"
            )
        pinning.unpin()
        return "torch is not installed; nothing to do"
    _refuse_managed_by_others()
    pinning.unpin()
    with _writing(site):
        left = _take_out(site)
    kept = f"; files that are not weft's were kept in {site / _PACKAGE}" if left else ""
    return f"torch {VERSION} was taken out of {site}{kept}"


def _is_current(site: Path) -> bool:
    """Whether what is installed is what this version of weft installs."""
    try:
        return all((site / name).read_text() == text for name, text in files().items())
    except OSError:
        return False


def _refuse_managed_by_others() -> None:
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and marker.is_file():
        raise Refusal(
            f"the system's package manager keeps {site_packages()}. "
            "Make an environment with python -m venv and install weft there"
        )


@contextlib.contextmanager
def _writing(site: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(
            f"can't write to {site} ({error.strerror or error}). "
            "Use an environment of your own: python -m venv, and weft in it"
        ) from None


@contextlib.contextmanager
def _scratch(site: Path) -> Iterator[Path]:
    """A folder on the same file system, so that its parts can be renamed into place."""
    for old in site.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _SCRATCH_LIFE:
                shutil.rmtree(old)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=site))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_out(site: Path) -> list[Path]:
    """Remove what install() puts in, and what Python made of it; gives what was left."""
    package, info, others = site / _PACKAGE, site / _INFO, []
    with _scratch(site) as folder:
        # In the opposite order of install(), so that a kill leaves what one there leaves.
        if _is_info(info):
            os.rename(info, folder / _INFO)
        if _is_loader(package):
            ours = {"__init__.py", "__pycache__"}
            others = [path for path in package.iterdir() if path.name not in ours]
            if not others:
                os.rename(package, folder / _PACKAGE)
            else:
                (package / "__init__.py").unlink()
                shutil.rmtree(package / "__pycache__", ignore_errors=True)
    return others


def main(command: str) -> int:
    """Run ``weft torch install``, ``remove`` or ``status``; gives the exit code."""
    if command == "status":
        found = active()
        print(found)
        return 0 if found.kind == "weft" else 1
    try:
        print(f"weft: {install() if command == 'install' else remove()}")
    except Refusal as refusal:
        print(f"weft torch {command}: {refusal}", file=sys.stderr)
        return 1
    return 0
