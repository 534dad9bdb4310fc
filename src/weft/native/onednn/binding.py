"""Finding and loading oneDNN: on first use, once a process, safe across fork and threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy

from weft.native import threads
from weft.native.once import once

_NAME = "libdnnl.so.3"
_SEQUENTIAL, _OPENMP = 1, 2  # the runtimes that need nothing from their caller
_CPU, _PAUSE = 1, 1

# Programs that are kept at most: some 150 kB each, and a large network has about two hundred.
KEPT = 512


class OneDNNLibrary:
    """A loaded oneDNN: its functions, and the engine that everything runs on."""

    __slots__ = ("engine", "ffi", "functions", "parallel", "path", "version")

    def __init__(self, path: str) -> None:
        from weft.native.onednn._abi import ffi

        self.path, self.ffi = path, ffi
        # Unloaded at exit, the library would pull the code from under its own waiting threads.
        self.functions = ffi.dlopen(path, os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_NODELETE)
        found = self.functions.dnnl_version()
        self.version = (found.major, found.minor, found.patch)
        if self.version < (3, 0, 0):
            raise OSError(f"version {_dotted(self.version)} is older than 3.0")
        if found.cpu not in (_SEQUENTIAL, _OPENMP):
            raise OSError("it was built for a threading runtime other than OpenMP")
        self.parallel = found.cpu == _OPENMP
        place = ffi.new("void **")
        if self.functions.dnnl_engine_create(place, _CPU, 0):
            raise OSError("it offers no CPU engine")
        self.engine = place[0]
        # Programs are kept by us; what the library keeps beside them is for making them again.
        self.functions.dnnl_set_primitive_cache_capacity(KEPT // 4)

    def optional(self, name: str) -> Callable[..., int] | None:
        """A function that some builds or OpenMP runtimes lack."""
        # The lookup goes through the library's own dependencies, so it finds the very runtime
        # that the library uses, also where several are loaded.
        return getattr(self.functions, name, None) if self.parallel else None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _candidates() -> Iterator[str]:
    """Places where the library may be, best first."""
    packages = Path(numpy.__file__).parents[1]
    conda = os.environ.get("CONDA_PREFIX")
    # A wheel puts it beside lib/python3.x/site-packages, or into site-packages by `pip --target`.
    roots = [Path(sys.prefix), *packages.parents[2:3], packages]
    for root in dict.fromkeys([*roots, *([Path(conda)] if conda else [])]):
        if (root / "lib" / _NAME).exists():
            yield str(root / "lib" / _NAME)
    yield _NAME


@once
def _load() -> OneDNNLibrary | str:
    """The library, or a sentence that says why it is missing."""
    wish = os.environ.get("WEFT_ONEDNN", "")
    if wish.lower() in ("off", "0", "no", "false"):
        return "oneDNN is switched off by WEFT_ONEDNN."
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return f"oneDNN is used on 64-bit Linux only, and this is {sys.platform}."
    try:
        import _cffi_backend  # noqa: F401
    except ImportError:
        return "cffi is not installed; `pip install cffi`."
    reasons = []
    for path in [wish] if wish else _candidates():
        try:
            library = OneDNNLibrary(path)
        except (OSError, AttributeError) as error:
            reasons.append(f"{path}: {error}")
            continue
        _guard_forks(library)
        return library
    return f"No usable {_NAME}; `pip install onednn-cpu-gomp`. Tried {'; '.join(reasons)}."


def library() -> OneDNNLibrary | None:
    """The loaded library, or None."""
    found = _load()
    return found if isinstance(found, OneDNNLibrary) else None


def available() -> bool:
    """Whether oneDNN could be loaded."""
    return library() is not None


def why_not() -> str:
    """A sentence that says why oneDNN is not used; empty if it is."""
    found = _load()
    return found if isinstance(found, str) else ""


def version() -> str | None:
    """The version of the library, such as ``3.2.0``."""
    found = library()
    return _dotted(found.version) if found else None


def _guard_forks(library: OneDNNLibrary) -> None:
    """Make forked children work: OpenMP's threads don't exist there, although its state says so."""
    pause = library.optional("omp_pause_resource_all")
    if pause is not None:
        os.register_at_fork(before=lambda: pause(_PAUSE))


class _Told(threading.local):
    """OpenMP keeps its limit per thread, so it must be set in every thread."""

    count = 0


_told = _Told()


def obey() -> None:
    """Set the requested number of threads in this thread's OpenMP."""
    wanted = threads.count()
    if _told.count != wanted:
        found = library()
        tell = found.optional("omp_set_num_threads") if found else None
        if tell is not None:
            tell(wanted)
        _told.count = wanted
