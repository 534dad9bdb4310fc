"""Models and weights from a folder or from the net.

>>> import weft as torch
>>> torch.hub.load("folder", "tiny", source="local", width=4)  # doctest: +SKIP
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

from weft.core import errors

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir",
]  # fmt: skip

_CONFIG = "hubconf.py"
_DEFAULT_BRANCHES = ("main", "master")
# Names such as resnet50-0676ba61.pth end with the start of the file's SHA-256.
_HASH = re.compile(r"-([a-f0-9]*)\.")
_CHUNK = 1 << 17
_folder: str | None = None


def get_dir() -> str:
    """Where downloads go: ``set_dir``, or $TORCH_HOME/hub, or ~/.cache/torch/hub."""
    if _folder is not None:
        return _folder
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", os.path.join(cache, "torch"))
    return os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Say where downloads go."""
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


# ------------------------------------------------------------------ files


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download a file; it is at ``dst`` only when it is whole and has the hash that it should."""
    from urllib.request import Request, urlopen

    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    request = Request(url, headers={"User-Agent": "torch.hub"})
    number, passing = tempfile.mkstemp(dir=os.path.dirname(dst) or ".", suffix=".partial")
    try:
        with os.fdopen(number, "wb") as file, urlopen(request) as source:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
            )
        shutil.move(passing, dst)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(passing)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The weights behind an address; downloaded once, and loaded as data that runs no code."""
    from weft.serialization import load as load_file

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}\n', file=sys.stderr)
        found = _HASH.search(name) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress)
    return load_file(path, map_location=map_location, weights_only=weights_only)


# ------------------------------------------------------------------ repositories


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: bool | str | None = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What a repository's ``hubconf.py`` gives for a name. Its code runs: load what you trust."""
    with _config(repo_or_dir, source, trust_repo, force_reload, verbose) as config:
        return _entry(config, model)(*args, **kwargs)


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    verbose: bool = True,
    source: str = "github",
) -> builtins.list[str]:
    """The names that a repository's ``hubconf.py`` offers."""
    with _config(github, source, trust_repo, force_reload, verbose) as config:
        return [n for n in dir(config) if callable(getattr(config, n)) and not n.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    verbose: bool = True,
    source: str = "github",
) -> str | None:
    """What a repository says of one of its names."""
    with _config(github, source, trust_repo, force_reload, verbose) as config:
        return _entry(config, model).__doc__


def _entry(config: ModuleType, name: str) -> Callable:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    missing = [d for d in getattr(config, "dependencies", ()) if not _present(d)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(config, name, None)
    if found is None or not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf\n  at {errors.here()}")
    return found


def _present(package: str) -> bool:
    return package == "torch" or importlib.util.find_spec(package) is not None


@contextlib.contextmanager
def _config(
    place: str, source: str, trust: bool | str | None, reload: bool, verbose: bool
) -> Iterator[ModuleType]:
    """A repository's ``hubconf`` as a module, with the repository on the path meanwhile."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    folder = place if source == "local" else _fetched(place, trust, reload, verbose)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(_CONFIG, os.path.join(folder, _CONFIG))
        if spec is None or spec.loader is None:
            raise RuntimeError(f"there is no {_CONFIG} in {folder}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(folder)


def _parsed(github: str) -> tuple[str, str, str | None]:
    """Owner, name and branch of ``owner/name[:branch]``."""
    repository, _, branch = github.partition(":")
    owner, _, name = repository.partition("/")
    if not owner or not name or "/" in name:
        raise ValueError(f"expected owner/name or owner/name:branch, but got {github!r}")
    return owner, name, branch or None


def _fetched(github: str, trust: bool | str | None, reload: bool, verbose: bool) -> str:
    """The folder of a repository, downloaded unless it is there already."""
    owner, name, branch = _parsed(github)
    os.makedirs(get_dir(), exist_ok=True)
    for candidate in (branch,) if branch else _DEFAULT_BRANCHES:
        folder = _folder_of(owner, name, candidate)
        if os.path.exists(folder) and not reload:
            if verbose:
                print(f"Using cache found in {folder}", file=sys.stderr)
            return folder
    _check_trust(owner, name, trust)
    return _download(owner, name, (branch,) if branch else _DEFAULT_BRANCHES)


def _folder_of(owner: str, name: str, branch: str) -> str:
    return os.path.join(get_dir(), "_".join((owner, name, branch.replace("/", "_"))))


def _download(owner: str, name: str, branches: tuple[str, ...]) -> str:
    from urllib.error import HTTPError

    for i, branch in enumerate(branches):
        url = f"https://github.com/{owner}/{name}/zipball/{branch}"
        folder = _folder_of(owner, name, branch)
        with tempfile.TemporaryDirectory(dir=get_dir()) as passing:
            archive = os.path.join(passing, "it.zip")
            print(f'Downloading: "{url}"', file=sys.stderr)
            try:
                download_url_to_file(url, archive, progress=False)
            except HTTPError as error:
                if error.code == 404 and i + 1 < len(branches):
                    continue
                raise
            with zipfile.ZipFile(archive) as file:
                (top,) = {entry.split("/", 1)[0] for entry in file.namelist()}
                file.extractall(passing)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.move(os.path.join(passing, top), folder)
        return folder
    raise AssertionError("unreachable: the last branch either loads or raises")


def _check_trust(owner: str, name: str, trust: bool | str | None) -> None:
    """Ask before code from a repository runs for the first time, unless it is trusted."""
    path, this = os.path.join(get_dir(), "trusted_list"), f"{owner}_{name}"
    known: builtins.list[str] = []
    if os.path.exists(path):
        with open(path) as file:
            known = file.read().split()
    if this in known:
        return
    if trust is not True:
        answer = input(
            f"The repository {owner}/{name} does not belong to the list of trusted repositories "
            "and as such cannot be downloaded. Do you trust this repository and wish to add it to "
            "the trusted list of repositories (y/N)?"
        )
        if answer.lower() not in ("y", "yes"):
            raise Exception("Untrusted repository.")
    with open(path, "a") as file:
        file.write(f"{this}\n")
