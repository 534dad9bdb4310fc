"""Tracebacks that end at the user's line: weft's own frames are left out where one is shown.

Nothing is wrapped and nothing is caught, so calls cost nothing extra. The filter is applied where
tracebacks are shown: ``sys.excepthook``, ``threading.excepthook``, IPython's display, pytest's
report, and the reports of worker processes. An exception itself keeps all of its frames, so
``pdb.pm()`` and ``%debug`` reach them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, TracebackType
from typing import Any

from weft.core.errors import is_own

__all__ = ["filtered", "get_traceback_filtering", "set_traceback_filtering", "text"]

MODES = ("on", "off")
_SHOW_ALL = ("full", "off")  # of WEFT_TRACEBACK
# Errors that weft did not mean to raise, unless it says ``raise``.
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError,
           ValueError)  # fmt: skip


class _Filtering:
    """Whether own frames are left out, and what showed tracebacks before."""

    on = os.environ.get("WEFT_TRACEBACK", "").lower() not in _SHOW_ALL
    installed = False


def set_traceback_filtering(mode: str) -> None:
    """Leave weft's own frames out of tracebacks ("on"), or show all of them ("off").

    ``WEFT_TRACEBACK=full`` in the environment switches the filter off from the start.

    >>> import weft
    >>> weft.set_traceback_filtering("off")
    >>> weft.set_traceback_filtering("on")
    """
    if mode not in MODES:
        raise ValueError(f"set_traceback_filtering: mode is 'on' or 'off', not {mode!r}")
    _Filtering.on = mode == "on"
    install()


def get_traceback_filtering() -> str:
    """Whether weft's own frames are left out of tracebacks: "on" or "off"."""
    return "on" if _Filtering.on else "off"


# ------------------------------------------------------------------ leaving frames out


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of weft, and of libraries that weft called.

    A traceback that has no other frames is returned unchanged: there is no line to end at.
    """
    kept: list[TracebackType] = []
    inside = False
    at = trace
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        inside = is_own(name) or (inside and _is_library(name))
        if not inside:
            kept.append(at)
        at = at.tb_next
    if not kept:
        return trace
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made


def _is_library(name: str) -> bool:
    """Whether a frame can be there only because weft, or the program, called a library."""
    if name.startswith("<"):
        return True
    standard, libraries = _library_folders()
    if name.startswith(libraries):
        return True
    return name.startswith(standard) and "-packages" not in name[len(standard) :]


@functools.cache
def _library_folders() -> tuple[str, tuple[str, ...]]:
    """The folder of the standard library, and those of the packages that weft is built on."""
    import sysconfig

    found = []
    for package in ("numpy", "scipy", "ml_dtypes", "llvmlite", "cffi"):
        module = sys.modules.get(package)
        for folder in getattr(module, "__path__", ()):
            found.append(os.path.join(folder, ""))
    return os.path.join(sysconfig.get_path("stdlib"), ""), tuple(found) or ("\0",)


def _linked(error: BaseException) -> list[BaseException]:
    """All exceptions that are shown with one: causes, contexts, and the members of groups."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return list(found.values())


@contextlib.contextmanager
def filtered(error: BaseException) -> Iterator[None]:
    """Leave own frames out of an exception, and of those linked to it, while it is shown."""
    if not _Filtering.on:
        yield
        return
    before: list[tuple[BaseException, TracebackType | None, list[str] | None]] = []
    try:
        for each in _linked(error):
            trace, notes = each.__traceback__, getattr(each, "__notes__", None)
            before.append((each, trace, notes))
            cut = without_own_frames(trace)
            if cut is not trace:
                each.__traceback__ = cut
                place = _fault(each, trace)
                if place:
                    each.__notes__ = [*(notes or ()), place]
        yield
    finally:
        for each, trace, notes in before:
            each.__traceback__ = trace
            if notes is not None:
                each.__notes__ = notes
            elif hasattr(each, "__notes__"):
                del each.__notes__


def _fault(error: BaseException, trace: TracebackType | None) -> str:
    """Where inside weft an error arose that weft did not raise on purpose; or nothing."""
    own = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if is_own(name):
            own = trace
        elif own is not None and not _is_library(name):
            own = None
        last, trace = trace, trace.tb_next
    if own is None or not isinstance(error, _FAULTS):
        return ""
    import opcode

    code = last.tb_frame.f_code.co_code
    if opcode.opname[code[last.tb_lasti]] in ("RAISE_VARARGS", "RERAISE"):
        return ""
    name = os.path.basename(os.path.dirname(own.tb_frame.f_code.co_filename))
    file = os.path.basename(own.tb_frame.f_code.co_filename)
    return f"(inside weft, {name}/{file}:{own.tb_lineno}; WEFT_TRACEBACK=full shows all frames)"


def text(error: BaseException) -> str:
    """A traceback as text, for reports that cross to another process."""
    import traceback

    with filtered(error):
        trace: TracebackType | None = error.__traceback__
        while _Filtering.on and trace is not None and is_own(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        if _Filtering.on and trace is None:  # no line of the program is in it
            return "".join(traceback.format_exception_only(error))
        return "".join(traceback.format_exception(error))


# ------------------------------------------------------------------ where they are shown


def install() -> None:
    """Take part wherever tracebacks are shown; once for each place."""
    _into_ipython()
    _into_pytest()
    if _Filtering.installed:
        return
    _Filtering.installed = True
    show, show_in_thread = sys.excepthook, threading.excepthook

    @functools.wraps(show)
    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not _Filtering.on or error is None:
            show(kind, error, trace)
            return
        with filtered(error):
            show(kind, error, without_own_frames(trace))

    @functools.wraps(show_in_thread)
    def thread_excepthook(args: Any) -> None:
        if not _Filtering.on or args.exc_value is None:
            show_in_thread(args)
            return
        with filtered(args.exc_value):
            trace = without_own_frames(args.exc_traceback)
            show_in_thread(
                threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread))
            )

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook


def _into_ipython() -> None:
    """In IPython and notebooks: filter what a cell shows, if no other handler is installed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None  # type: ignore[union-attr]
    if shell is None or getattr(shell, "custom_exceptions", None) != ():
        return

    def show(
        shell: Any, kind: Any, error: BaseException, trace: TracebackType, tb_offset: Any = None
    ) -> None:
        with filtered(error):
            cut = without_own_frames(trace) if _Filtering.on else trace
            shell.showtraceback((kind, error, cut), tb_offset=tb_offset)
        # What %debug looks at.
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
        sys.last_exc = error

    shell.set_custom_exc((Exception,), show)


def hidden(excinfo: Any = None) -> bool:
    """For pytest, which asks this of every frame of a module that has ``__tracebackhide__``."""
    return _Filtering.on


class _Mark:
    """Lets pytest see which frames are weft's, in modules that are loaded from now on."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("weft."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if is_own(str(module.__file__)):
                    module.__tracebackhide__ = hidden
                run(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _into_pytest() -> None:
    if "_pytest" not in sys.modules or _Mark in sys.meta_path:
        return
    sys.meta_path.insert(0, _Mark)  # type: ignore[arg-type]
    for name, module in list(sys.modules.items()):
        if (name == "weft" or name.startswith("weft.")) and isinstance(module, ModuleType):
            if is_own(str(module.__dict__.get("__file__"))):
                module.__tracebackhide__ = hidden
