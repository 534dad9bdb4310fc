"""JIT compilation of LLVM IR, with an on-disk cache, and calls of the result."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from weft import _cpu
from weft.native import threads
from weft.native.codegen import ahead, cache, entry, linker, recipes, whole
from weft.native.codegen.compiler import KernelFunction, argument_kinds, build, read
from weft.native.codegen.whole import EntrySpec
from weft.native.once import LOCK, lazy, once

ndarray = np.ndarray
KINDS = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(np.int64): "i64",
    np.dtype(np.int32): "i32",
    np.dtype(np.int16): "i16",
    np.dtype(np.int8): "i8",
    np.dtype(np.uint8): "u8",
    np.dtype(np.uint16): "u16",
    np.dtype(np.uint32): "u32",
    np.dtype(np.bool_): "b1",
}
_word = ctypes.c_size_t.from_address
_OFFSET = object.__basicsize__  # where an array object keeps the address of its data


def pointer(a: ndarray) -> int:
    """The address of an array's first element, ten times as fast as NumPy gives it."""
    return _word(id(a) + _OFFSET).value


for _probe in (np.empty(3), np.empty((4, 4), np.float32)[1:, ::-2]):
    if pointer(_probe) != _probe.ctypes.data:  # pragma: no cover - another Python's objects
        pointer = lambda a: a.ctypes.data


@once
def why_not() -> str | None:
    """Why kernels can't be compiled here, if so."""
    try:
        engine()
    except ImportError as error:
        return f"llvmlite can't be imported ({error}): pip install llvmlite"
    return entry.why_not()


def _identity() -> str:
    """An identifier of this processor and this LLVM, or nothing if it can't be determined."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        return ""
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
    try:
        folder = os.path.join(spec.submodule_search_locations[0], "binding")
        about = os.stat(os.path.join(folder, "libllvmlite.so"))
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = itertools.takewhile(str.strip, file)
            processor = "".join(line for line in lines if line.startswith(wanted))
    except OSError:
        return ""
    return f"{folder} {about.st_size} {about.st_mtime_ns}\n{processor}" if processor else ""


_loaded: list[bool] = []  # whether LLVM is


def compiles_ahead() -> bool:
    """Whether other threads compile what is submitted, and something had to be compiled so far."""
    return bool(_loaded) and ahead.QUEUE.most > 0


class PassPipeline(NamedTuple):
    """The passes that a piece of code is worth: some by name, or those of a level of LLVM's own.

    Bits can depend on the pipeline, since it decides in which order a sum is taken where that is
    left open. So a kernel has one, and the key of its code in the cache says which.
    """

    level: int
    passes: tuple[str, ...] = ()
    strided: bool = False  # whether addresses in loops are worth LLVM's strength reduction


# Level 3 is level 2 with larger limits for unrolling, and with copies of loops for each outcome of
# the branches inside that do not change: that takes up to six times as long to compile, and few
# kernels run faster for it.
LOOPS, UNSWITCHED = PassPipeline(2), PassPipeline(3)
# LLVM ends the process at an option that it does not know, so newer ones have to be tried first.
LATEST_LLVM = 22
# Functions on Python objects, and what calls kernels: their variables become registers and their
# branches are joined. They have no loops worth a transformation.
GLUE = PassPipeline(1, ("always_inliner", "sroa", "simplify_cfg"))


class _CodeEngine:
    """Machine code for this processor. LLVM is loaded when something has to be compiled.

    Loading it takes longer than all else that a first op needs, and with a warm cache there is
    nothing for it to do. So what it says of the processor is kept in the cache too.
    """

    reducing: NoStrengthReduction | None = None  # where LLVM can't be told

    def __init__(self) -> None:
        key = hashlib.sha256(_identity().encode()).digest()
        known = cache.read("host", key)
        if known is None:
            llvm = self.llvm
            host = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
            known = "\0".join((*host, ".".join(map(str, llvm.llvm_version_info)))).encode()
            if _identity():
                cache.write("host", key, known)
        cpu, features, self.version = known.decode().split("\0")
        self.cpu, self.features = _cpu.keep_to(_cpu.word(), cpu, features)
        if "+avx512f" in self.features:
            # LLVM vectorizes strided loops with gathers and scatters wherever there is AVX-512;
            # they are microcoded, and slower than the scalar loads and stores that they replace.
            self.features += ",+prefer-no-gather,+prefer-no-scatter"
        self.holders: list[Any] = []

    @lazy
    def llvm(self) -> Any:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name, address in threads.symbols().items():
            llvm.add_symbol(name, address)
        # Here, since other threads compile without the lock of what is made on first use.
        passes = getattr(llvm, "ModulePassManager", None)
        known = llvm.llvm_version_info[0] <= LATEST_LLVM
        if known and hasattr(passes, "add_loop_strength_reduce_pass"):
            self.reducing = NoStrengthReduction(llvm.set_option)
        _loaded.append(True)
        return llvm

    @lazy
    def target(self) -> Any:
        return self.llvm.Target.from_default_triple()

    def machine(self) -> Any:
        return self.target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, jit=True, codemodel="jitdefault"
        )

    def load(
        self,
        name: str,
        text: str | Callable[[], str],
        symbols: list[str],
        recipe: str = "",
        pipeline: PassPipeline = LOOPS,
    ) -> list[int]:
        """The addresses of compiled functions; their code comes from disk if it is there.

        ``recipe`` says all that the text is made from, where that is quicker to say.
        """
        return CodeUnit(self, name, text, symbols, recipe, pipeline).addresses

    def ahead(self, *given: Any, **more: Any) -> CodeUnit:
        """What ``load`` takes, to be compiled by another thread until it is needed."""
        unit = CodeUnit(self, *given, **more)
        unit.submit()
        return unit

    def compile(self, text: str, pipeline: PassPipeline = LOOPS) -> bytes:
        llvm, machine = self.llvm, self.machine()
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = self.target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=pipeline.level)
        options.loop_vectorization = options.slp_vectorization = True
        options.loop_interleaving = options.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, options)
        manager = llvm.create_new_module_pass_manager()
        steps = [getattr(manager, f"add_{name}_pass", None) for name in pipeline.passes]
        if steps and None not in steps:
            for add in steps:
                add()
        else:  # the first llvmlite with this pass manager lacks some
            manager = builder.getModulePassManager()
        # Measured with thirty-two vector registers only.
        reducing = self.reducing if "+avx512f" in self.features else None
        if pipeline.strided and reducing is not None:
            manager.add_loop_strength_reduce_pass()
        run, emit = manager.run, machine.emit_object
        if self.unlocked is not None:
            run = functools.partial(self.unlocked.run_passes, manager)
            emit = functools.partial(self.unlocked.emit_object, machine)
        run(module, builder)
        with contextlib.nullcontext() if reducing is None else reducing:
            return emit(module)

    @lazy
    def unlocked(self) -> UnlockedCalls | None:
        return unlocked_calls()

    def link(self, symbols: list[str], code: bytes) -> list[int]:
        try:
            holder, addresses = linker.link(code, symbols)
        except linker.Unlinkable:
            return self.link_by_llvm(symbols, code)
        self.holders.append(holder)
        return addresses

    def link_by_llvm(self, symbols: list[str], code: bytes) -> list[int]:
        llvm = self.llvm
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        addresses = [engine.get_function_address(name) for name in symbols]
        if not all(addresses):
            raise RuntimeError(f"the compiled code does not define all of {symbols}")
        self.holders.append(engine)
        return addresses


class CodeUnit:
    """Some compiled functions that are linked when their addresses are requested."""

    def __init__(
        self,
        engine: _CodeEngine,
        name: str,
        text: str | Callable[[], str],
        symbols: list[str],
        recipe: str = "",
        pipeline: PassPipeline = LOOPS,
    ) -> None:
        self.engine, self.name, self.text = engine, name, text
        self.symbols, self.pipeline = symbols, pipeline
        source = recipe if callable(text) else text
        processor = engine.cpu, engine.features, engine.version
        words = "\0".join((name, source, repr(pipeline), *processor))
        self.key = hashlib.sha256(words.encode()).digest()

    def submit(self) -> bool:
        """Have it compiled by another thread; False if there is none, or nothing to compile."""
        engine = self.engine
        linked = "addresses" in vars(self)
        if linked or not ahead.QUEUE.most or cache.has(self.name, self.key):
            return False
        with LOCK:
            # What the other thread needs is created here: it must never wait for this lock.
            if engine.unlocked is None or engine.target is None:
                return False
            self.text = text = self.text() if callable(self.text) else self.text
        ahead.QUEUE.submit(self.key, lambda: self._made(text))
        return True

    def _made(self, text: str) -> bytes:
        code = self.engine.compile(text, self.pipeline)
        cache.write(self.name, self.key, code)
        return code

    @lazy
    def addresses(self) -> list[int]:
        code = cache.read(self.name, self.key) or ahead.QUEUE.take(self.key)
        if code is None:
            code = self._made(self.text() if callable(self.text) else self.text)
        found = self.engine.link(self.symbols, code)
        self.text = ""  # which may be long
        return found


class NoStrengthReduction:
    """A block in which code generation leaves out LLVM's loop strength reduction.

    It takes two fifths of code generation, most of it in large loops on vectors whose addresses are
    simple already; processors that add and scale addresses by themselves gain nothing there. LLVM
    has this as an option of the process alone, which others that use LLVM share: it is reset when
    nobody is in such a block.
    """

    def __init__(self, set_option: Callable[[str, str], None]) -> None:
        self.set_option, self.inside, self.lock = set_option, 0, threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.set_option("", "-disable-lsr=true")
            self.inside += 1

    def __exit__(self, *exc: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.set_option("", "-disable-lsr=false")


class UnlockedCalls(NamedTuple):
    """The two calls of LLVM that take long, without llvmlite's lock around them.

    llvmlite makes one call at a time. LLVM itself works in any number of threads if each has a
    context of its own, so these two are made by way of another handle on the same library.
    """

    run: Any
    emit: Any
    lib: Any

    def run_passes(self, manager: Any, module: Any, builder: Any) -> None:
        self.run(manager, module, builder)

    def emit_object(self, machine: Any, module: Any) -> bytes:
        failed = ctypes.c_char_p()
        buffer = self.emit(machine, module, 1, ctypes.byref(failed))
        if not buffer:
            raise RuntimeError(f"LLVM emits no code: {failed.value!r}")
        try:
            size = self.lib.LLVMPY_GetBufferSize(buffer)
            return ctypes.string_at(self.lib.LLVMPY_GetBufferStart(buffer), size)
        finally:
            self.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def unlocked_calls() -> UnlockedCalls | None:
    """These calls, or None where llvmlite is built otherwise."""
    from llvmlite.binding import ffi

    try:
        library, found = ctypes.CDLL(ffi.lib._name), []
        for name in ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory"):
            locked, function = getattr(ffi.lib, name), getattr(library, name)
            function.argtypes, function.restype = locked.argtypes, locked.restype
            found.append(function)
        return UnlockedCalls(found[0], found[1], ffi.lib)
    except (AttributeError, OSError):  # pragma: no cover - another llvmlite
        return None


@once
def engine() -> _CodeEngine:
    """The one engine of this process."""
    return _CodeEngine()


@once
def reads_half() -> bool:
    """Whether this processor converts float16 by itself."""
    features = engine().features
    return "+f16c" in features or "+fullfp16" in features


class Symbol:
    """A kernel for one choice of types, as compiled code sees it.

    ``kinds`` are the types of its parameters, of which the last two are the size of the divided
    range and the number of threads. As a number it is the address of a function that takes all of
    them from memory, one word each; until somebody asks for that, it need not be compiled.
    """

    def __init__(self, kernel: Kernel, choice: Any, kinds: tuple[str, ...], code: CodeUnit) -> None:
        self.kernel, self.name, self.kinds, self.code = kernel, kernel.name, kinds, code
        self.choice = choice  # the types and the fixed parameters

    def __int__(self) -> int:
        return self.code.addresses[-1]


class PlannedKernel:
    """A kernel that is being compiled: plans know it by its key, and a call waits for it."""

    def __init__(self, key: int, finish: Callable[[], Callable]) -> None:
        self.key, self.finish = key, finish
        self.code: Callable | None = None

    def __call__(self, *args: Any) -> None:
        code = self.code
        if code is None:
            listener = entry.LISTENERS.get(get_ident())
            if listener is not None:
                listener(self.key, list(args))
                return
            code = self.code = self.finish()
        code(*args)


class BeingCompiled(Exception):
    """Raised when compiling ahead: a kernel was submitted that plans can't name before it is
    done.
    """


# Threads that plan for no other reason than to have kernels compiled.
SCOUTS: set[int] = set()


@contextlib.contextmanager
def scouting() -> Iterator[None]:
    """A block that submits the kernels that it comes across."""
    SCOUTS.add(get_ident())
    try:
        yield
    finally:
        SCOUTS.discard(get_ident())


# What has been compiled, by the key under which calls are reported: see ``entry.WATCHED``.
SYMBOLS: dict[int, Symbol] = {}


# Kernels run in Python (``weft.native.codegen.interpret``). What is compiled is remembered in many
# places, so this is for the environment to say, before anything runs.
INTERPRETED = os.environ.get("WEFT_KERNELS") == "python"


def _declines(*args: Any) -> None:
    """Instead of an entry point that is a whole op."""


# Calls of an op's entry points for which compiling them pays.
ENTRY_USES = 200


class _EntryUses:
    """How often the entry points were called that one function gives."""

    def __init__(self, again: Callable[[], None]) -> None:
        self.again, self.calls = again, 0

    def late(self, made: Callable[[], Callable]) -> Callable:
        """An entry point that declines until it pays."""

        def call(*args: Any) -> Any:
            self.calls += 1  # other threads count too
            if self.calls < ENTRY_USES:
                return None
            self.again()
            return made()(*args)

        return call


_asking: list[_EntryUses] = []  # for whom entry points are being made, under the lock


def entry_points(make: Callable) -> Callable:
    """A cached function of entry points, which are compiled once they have been called often.

    Until then they decline, all of them, so that what takes several steps ends at the first one.
    What their callers do then gives the same bits, and needs no code for small arrays alone.
    """
    uses: dict[Any, _EntryUses] = {}

    @functools.cache
    def found(*key: Any) -> Any:
        with LOCK:
            _asking.append(uses.setdefault(key, _EntryUses(found.cache_clear)))
            try:
                return make(*key)
            finally:
                _asking.pop()

    return functools.wraps(make)(found)


class Kernel:
    """A compiled loop. Called with its arguments and ``over``, the size of the divided range.

    ``grain`` is how much of that range is worth a thread of its own.
    """

    def __init__(self, function: KernelFunction) -> None:
        self.function, self.name = function, function.name
        pipeline = UNSWITCHED if function.unswitched else LOOPS
        self.pipeline = pipeline._replace(strided=function.strided)
        self.compiled: dict[Any, Callable] = {}
        self.planned: dict[Any, PlannedKernel] = {}
        self.symbols: dict[Any, tuple[int, Symbol]] = {}
        self.origin: Any = None  # what its code was written from

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The names and types of what it takes, but for the range."""
        return self.function.parameters[:-2]

    def get(self, *types: str, **consts: Any) -> Callable:
        """The native function for types (of ``T``, then ``U``) and fixed parameters.

        It takes arrays, addresses or None, and numbers; then the size of the range and the number
        of threads. Planning gets it before it is compiled.
        """
        key = (types, *consts.items()) if consts else types
        found = self.compiled.get(key)
        if found is None:
            with LOCK:
                found = self.compiled.get(key)
                if found is None and get_ident() in entry.LISTENERS:
                    found = self.planned.get(key) or self._plan(key, types, consts)
                if found is None:
                    found = self.compiled[key] = self._compile(types, consts)
                    self.planned.pop(key, None)
        return found

    def _plan(self, key: Any, types: tuple[str, ...], consts: dict[str, Any]) -> Callable | None:
        """The kernel while other threads compile it; None if they don't."""
        number, symbol = self._symbol(types, consts)
        if not symbol.code.submit():
            return None
        found = PlannedKernel(number, lambda: self.get(*types, **consts))
        self.planned[key] = found
        return found

    def symbol(self, *types: str, **consts: Any) -> Symbol:
        """The same as ``get``, for code that builds calls; it may still be being compiled."""
        with LOCK:
            _, found = self._symbol(types, consts)
        found.code.submit()
        return found

    def _symbol(self, types: tuple[str, ...], consts: dict[str, Any]) -> tuple[int, Symbol]:
        """The key under which the kernel reports calls, and what is known by it."""
        choice = (types, *consts.items())
        found = self.symbols.get(choice)
        if found is not None:
            return found
        bound, parallel = dict(zip(("T", "U"), types, strict=False)), threads.available()
        host = engine()
        made_from = recipes.recipe(self.function, bound, consts, parallel, host.cpu, host.features)
        write = lambda: build(self.function, bound, consts, parallel)
        digest, text = recipes.written(self.name, made_from, write)
        key = _reported_as(self.name, digest)
        if key not in SYMBOLS:
            kinds = tuple(argument_kinds(self.function, bound, consts).values())
            code = CodeUnit(host, self.name, text, [f"{self.name}.packed"], digest, self.pipeline)
            SYMBOLS[key] = Symbol(self, (types, consts), kinds, code)
        self.symbols[choice] = key, SYMBOLS[key]
        return key, SYMBOLS[key]

    def _compile(self, types: tuple[str, ...], consts: dict[str, Any]) -> Callable:
        if INTERPRETED:
            from weft.native.codegen import interpret

            bound = dict(zip(("T", "U"), types, strict=False))
            return interpret.runner(self.function, bound, consts)
        return self._callable(*self._symbol(types, consts))

    def _callable(self, key: int, symbol: Symbol) -> Callable:
        threads.count()  # compiled code reads it
        (code,) = caller().addresses
        return entry.kernel_call(self.name, code, symbol.kinds, key, int(symbol))

    def loop(self, kind: str, result: str, grain: int, least: int) -> list[Callable]:
        """For an elementwise loop: a native function that makes the result as well, and, if that
        has the type of the first argument, one that writes over it.

        They take plain arrays of one shape, from ``least`` elements on.
        """
        if INTERPRETED:
            return [_declines]
        with LOCK:
            bound = {"T": kind}
            text = build(self.function, bound, {}, threads.available(), packed=False)
            *kinds, _, _ = argument_kinds(self.function, bound, {}).values()
            entries = ["fresh", "over"] if kinds[0] == f"{result}*" else ["fresh"]
            given = self.name, kinds[:-1], result, grain
            text += entry.HELPERS + whole.SHAPES + whole.PACKING
            text += "".join(whole.elementwise(name, *given, least) for name in entries)
            return self._functions(text, *entries)

    def __call__(self, *args: Any, over: int, grain: int = 1, **consts: Any) -> None:
        """Run on arrays and numbers; array dtypes say what the type names stand for."""
        bound: dict[str, str] = {}
        names = [p for p in self.parameters if p[0] not in consts]
        for (_, kind), value in zip(names, args, strict=True):
            if value.__class__ is ndarray and kind[:-1] in ("T", "U"):
                bound[kind[:-1]] = KINDS[value.dtype]
        types = tuple(bound[k] for k in ("T", "U") if k in bound)
        self.get(*types, **consts)(*args, over, threads.how_many(over, grain))

    def whole(self, spec: EntrySpec, *types: str, **consts: Any) -> Callable:
        """A built-in function that is a whole op: see ``whole.EntrySpec``."""
        if INTERPRETED:
            return _declines
        key = (spec, types, *consts.items())
        with LOCK:
            if _asking and _asking[-1].calls < ENTRY_USES:
                return _asking[-1].late(lambda: self.whole(spec, *types, **consts))
            found = self.compiled.get(key) or self._compile_whole(spec, types, consts)
            self.compiled[key] = found
        return found

    def _compile_whole(
        self, spec: EntrySpec, types: tuple[str, ...], consts: dict[str, Any]
    ) -> Callable:
        bound = dict(zip(("T", "U"), types, strict=False))
        text = build(self.function, bound, consts, threads.available(), packed=False)
        *kinds, _, _ = argument_kinds(self.function, bound, consts).values()
        text += entry.HELPERS + whole.SHAPES + whole.SIZES + whole.whole(self.name, kinds, spec)
        return self._functions(text, "whole")[0]

    def _functions(self, text: str, *entries: str) -> list[Callable]:
        """The compiled code as functions of Python."""
        wanted = [f"{self.name}.{e}" for e in entries]
        code = CodeUnit(engine(), self.name, text, wanted, pipeline=self.pipeline)
        if get_ident() in SCOUTS and code.submit():
            raise BeingCompiled
        found = [entry.function(self.name, address) for address in code.addresses]
        threads.count()  # compiled code reads it
        return found


@once
def caller() -> CodeUnit:
    """The function by which Python calls kernels."""
    text = entry.INLINED + entry.CALL
    return engine().ahead("kernel_call", text, ["kernel_call"], pipeline=GLUE)


def _reported_as(name: str, text: str) -> int:
    """The key under which a kernel reports calls; ``text`` tells its code from other code."""
    digest = hashlib.sha256(f"{name}\0{text}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def kernel(
    fn: Callable | None = None,
    *,
    reassociate: bool = False,
    unswitched: bool = False,
    strided: bool = False,
) -> Any:
    """Make a function of the language a kernel; it is compiled when first called."""
    if fn is None:
        return functools.partial(
            kernel, reassociate=reassociate, unswitched=unswitched, strided=strided
        )
    return Kernel(read(fn, reassociate, unswitched=unswitched, strided=strided))
