"""Files made to hurt, by the thousand: mutated bytes, mutated pickles, invented tensors and states.

    PYTHONPATH=tests python -m hostile_files 20000 [first seed]

Each seed makes one file from good ones: a ``.pt`` file in either format, safetensors, or a graph.
Loading it must give a result that can be read, or an error of the documented kinds, within limits
of time and memory, and run nothing. A child process does the loading, so that a crash or a hang is
seen too; the seed of every fault is printed, and ``python -m hostile_files 1 SEED`` tries it again.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import math
import os
import pickle
import pickletools
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from pickle_code import (
    HEADS,
    ORDERED,
    PARAMETER,
    PARAMETER_WITH_STATE,
    TENSOR_V2,
    TENSOR_V3,
    TYPED,
    Raw,
    archive_of,
    build,
    call,
    name,
    push,
    stop,
    storage,
)
from weft import serialization
from weft.graph import Graph, GraphError

SECONDS, MORE_MEMORY = int(os.environ.get("HOSTILE_FILES_SECONDS", "10")), 1 << 30
KINDS = ("zip", "zip", "old", "safetensors", "graph")
CLEAR = (RuntimeError, pickle.UnpicklingError)


# ------------------------------------------------------------------ good files


def _objects() -> list[Any]:
    base = weft.arange(12.0)
    marked = weft.ones(2)
    marked.note = {"a": [1, (2, None)]}
    parameter = weft.nn.Parameter(weft.ones(2, 3))
    parameter.tag = "x"
    return [
        {"w": base, "view": base[2:5], "t": base.view(3, 4).t(), "n": [1, 2.5, "x", None, True]},
        OrderedDict(weft.nn.Linear(3, 2).state_dict()),
        [marked, parameter, weft.Size([1, 2]), weft.device("cpu"), weft.float16, 1 + 2j],
        {"c": weft.tensor([1 + 2j]), "b": weft.tensor([True, False]), "e": weft.empty(0, 3),
         "u": weft.arange(4).to(weft.uint16), "h": weft.ones(1, dtype=weft.bfloat16)},
        {(1, "a"): {1, 2}, None: Counter("abca"), 2**80: b"bytes", 1.5: bytearray(b"x"),
         "deep": [[[[[]]]]], "set": {1, (2, 3)}},
        weft.ones(1).expand(5), base.untyped_storage(), "text",
    ]  # fmt: skip


def _bytes_of(obj: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    weft.save(obj, file, **options)
    return file.getvalue()


def _graph_files() -> Iterator[bytes]:
    weft.manual_seed(0)
    net = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.ReLU())
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)
    for values in (False, True):
        with weft.graph.record(values=True) as graph:
            net(weft.ones(2, 3)).sum().backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "step.weft")
            graph.save(path, values=values)
            yield path.read_bytes()


@functools.cache
def good_files() -> dict[str, list[bytes]]:
    """Files of each kind that load as they are."""
    objects = _objects()
    old = {"_use_new_zipfile_serialization": False}
    safe = []
    for tensors in (
        {"a": weft.arange(5), "b": weft.ones(2, 3)},
        {"e": weft.empty(0), "m": weft.ones(1).bool()},
    ):
        file = io.BytesIO()
        serialization.save_safetensors(tensors, file, {"note": "x"})
        safe.append(file.getvalue())
    return {
        "zip": [_bytes_of(o, pickle_protocol=p) for o in objects for p in (2, 5)],
        "old": [_bytes_of(o, **old) for o in objects],
        "safetensors": safe,
        "graph": list(_graph_files()),
    }


def load(kind: str, data: bytes) -> Any:
    """Load a file of a kind."""
    if kind in ("zip", "old"):
        return weft.load(io.BytesIO(data))
    if kind == "safetensors":
        file = io.BytesIO(data)
        serialization.safetensors_metadata(file)
        file.seek(0)
        return serialization.load_safetensors(file)
    _scratch().write_bytes(data)
    return weft.graph.load(_scratch())


@functools.cache
def _scratch() -> Path:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name, "graph.weft")


# ------------------------------------------------------------------ mutated bytes

NUMBERS = [
    *(0, 1, 2, 3, 4, 7, 8, 12, 16, 63, 64, 65, 127, 128, 255, 256, 1000, 65535, 1 << 16),
    *(1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62) - 1, 1 << 62),
    *((1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 70),
]


def number(rng: random.Random) -> int:
    value = rng.choice(NUMBERS[:12] if rng.random() < 0.5 else NUMBERS)
    return -value if rng.random() < 0.15 else value


def mutated_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One to four small damages."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice([1, 1, 2, 4, 8, 30, 100]))
        how = rng.randrange(8)
        if how == 0:
            del found[at:end]
        elif how == 1:
            found[at:at] = found[at:end] * rng.randint(1, 3)
        elif how == 2:
            found[at:end] = bytes(rng.randrange(256) for _ in range(end - at))
        elif how == 3 and found:
            found[min(at, len(found) - 1)] ^= 1 << rng.randrange(8)
        elif how == 4:
            wide = rng.choice([2, 4, 8])
            value = number(rng) % (1 << 8 * wide)
            found[at : at + wide] = value.to_bytes(wide, rng.choice(["little", "big"]))
        elif how == 5:
            start = rng.randrange(len(other))
            found[at:end] = other[start : start + rng.choice([1, 8, 60, len(other)])]
        elif how == 6:
            del found[at:]
        else:
            found[at:end] = b"\0" * (end - at)
    return bytes(found)


# ------------------------------------------------------------------ mutated pickles

HOSTILE_NAMES = [
    ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "exec"),
    ("builtins", "getattr"), ("builtins", "open"), ("subprocess", "Popen"), ("torch", "load"),
    ("numpy", "ndarray"), ("ctypes", "c_char_p"), ("collections", "defaultdict"),
    ("weft.serialization", "load"), ("functools", "partial"), ("torch.nn", "Module"),
]  # fmt: skip
KNOWN_NAMES = [
    TENSOR_V2, TENSOR_V3, PARAMETER, PARAMETER_WITH_STATE, TYPED, ORDERED,
    ("torch._utils", "_rebuild_tensor"), ("torch", "Tensor"), ("torch", "Size"),
    ("torch", "device"),
    ("torch.nn.parameter", "Parameter"), ("torch", "FloatStorage"), ("torch", "float32"),
    ("torch.storage", "UntypedStorage"), ("builtins", "set"), ("builtins", "bytearray"),
    ("builtins", "complex"), ("collections", "Counter"), ("_codecs", "encode"),
    ("torch.serialization", "_get_layout"), ("torch", "bool"), ("torch", "complex64"),
]  # fmt: skip
PLAIN = b"(.012N)]}abcestuQR\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x94\x93"
PLAIN_CODES = [
    bytes([c]) for c in b"(.012N)]}abcestuQR\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x94\x93"
]


def instructions(code: bytes) -> list[bytes]:
    """A pickle cut into its instructions."""
    places = [at for _, _, at in pickletools.genops(code)]
    return [code[a:b] for a, b in zip(places, [*places[1:], len(code)], strict=True)]


def mutated_pickle(rng: random.Random, code: bytes) -> bytes:
    """Instructions dropped, doubled, moved, replaced, or with other arguments."""
    found = instructions(code)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found))
        how = rng.randrange(7)
        if how == 0 and len(found) > 1:
            del found[at]
        elif how == 1:
            found.insert(at, found[rng.randrange(len(found))])
        elif how == 2:
            other = rng.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        elif how == 3:
            found.insert(at, rng.choice(PLAIN_CODES))
        elif how == 4:
            found[at] = push(number(rng))
        elif how == 5:
            found[at] = name(*rng.choice(KNOWN_NAMES * 2 + HOSTILE_NAMES))
        else:
            found[at] = push(value(rng, 2))
    return b"".join(found)


# ------------------------------------------------------------------ invented values

NAMES = [
    "__array_interface__", "__array_struct__", "__array_ufunc__", "__class__", "__dict__", "note",
    "__setstate__", "__reduce__", "_a", "grad", "_node", "_as_parameter_", "items", "requires_grad",
    "_metadata", "shape", "", "a b", "ß", "__", "_backward_hooks",
]  # fmt: skip
INTERFACE = {"version": 3, "typestr": "<f4", "shape": (4,), "data": (4096, False)}


def shape(rng: random.Random) -> tuple[int, ...]:
    return tuple(number(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 70])))


def any_storage(rng: random.Random) -> Raw:
    key, kind = rng.choice(
        [("f", "FloatStorage"), ("f", "FloatStorage"), ("b", "BoolStorage"), ("l", "LongStorage"),
         ("c", "ComplexFloatStorage"), ("b", "UntypedStorage")]
    )  # fmt: skip
    count = 8 if rng.random() < 0.8 else number(rng)
    return storage(count, key if rng.random() < 0.9 else rng.choice("fblcx"), kind)


def any_tensor(rng: random.Random, depth: int) -> Raw:
    dims = rng.choice([0, 1, 1, 2, 2, 3])
    sizes = tuple(rng.choice([0, 1, 2, 3, 1 << 40]) for _ in range(dims))
    steps = tuple(rng.choice([0, 0, 1, 1, 2, 3]) for _ in range(dims))
    if rng.random() < 0.3:
        sizes, steps = shape(rng), shape(rng)
    offset = rng.choice([0, 0, 0, 1, number(rng)])
    metadata = rng.choice([{}, {"neg": True}, {"conj": True}, {"conj": True, "neg": True}])
    arguments: list[Any] = [any_storage(rng), offset, sizes, steps, rng.random() < 0.2, None]
    if rng.random() < 0.2:
        dtype = name("torch", rng.choice(["float32", "bool", "uint16", "float64", "complex64"]))
        return call(TENSOR_V3, *arguments, dtype, metadata)
    made = call(TENSOR_V2, *arguments, metadata)
    how = rng.random()
    if how < 0.15:
        return call(PARAMETER, made, rng.choice([True, False, value(rng, depth - 1)]), None)
    if how < 0.3:
        return call(PARAMETER_WITH_STATE, made, False, None, state(rng, depth - 1))
    if how < 0.45:
        kind = name(*rng.choice([("torch", "Tensor"), ("torch.nn.parameter", "Parameter")]))
        return call(
            TYPED, name(*rng.choice(KNOWN_NAMES[:6])), kind, tuple(arguments), state(rng, 1)
        )
    if how < 0.6:
        return build(made, state(rng, depth - 1))
    return made


def state(rng: random.Random, depth: int) -> Any:
    made: Any = {
        rng.choice(NAMES): INTERFACE if rng.random() < 0.3 else value(rng, depth - 1)
        for _ in range(rng.randint(0, 3))
    }
    if rng.random() < 0.2:
        return rng.choice([(None, made), (made, None), (made, made), [made], (made,)])
    return made


def value(rng: random.Random, depth: int) -> Any:
    """Any value that a pickle can spell, right or wrong."""
    how = rng.randrange(14 if depth > 0 else 6)
    if how == 0:
        return number(rng)
    if how == 1:
        return rng.choice([None, True, False, 1.5, float("nan"), -0.0, 1e308])
    if how == 2:
        return rng.choice([*NAMES, "storage", "cpu", "cuda:0", "latin1", "x" * 500])
    if how == 3:
        return rng.choice([b"", b"ab", bytes(300)])
    if how == 4:
        return name(*rng.choice(KNOWN_NAMES if rng.random() < 0.9 else HOSTILE_NAMES))
    if how == 5:
        return any_storage(rng)
    few = [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if how == 6:
        return few
    if how == 7:
        return tuple(few)
    if how == 8:
        keys = [Raw(push(value(rng, depth - 2))) for _ in few]
        return Raw(b"}(" + b"".join(k + push(v) for k, v in zip(keys, few, strict=True)) + b"u")
    if how == 9:
        return call(rng.choice(KNOWN_NAMES), *few)
    if how == 10:
        return build(call(ORDERED), state(rng, depth - 1))
    if how == 11:
        return Raw(b"](" + push(any_tensor(rng, depth - 1)) + b"q\x01h\x01h\x01e")
    return any_tensor(rng, depth - 1)


STORAGES = {
    "f": np.arange(8, dtype=np.float32).tobytes(), "b": bytes(range(8)),
    "l": np.arange(8).tobytes(), "c": np.arange(8, dtype=np.complex64).tobytes(),
}  # fmt: skip


# ------------------------------------------------------------------ mutated JSON


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON tree."""
    yield path
    for key in (
        tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    ):
        yield from places(tree[key], (*path, key))


def mutated_json(rng: random.Random, tree: Any) -> Any:
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.randint(1, 3)):
        *path, last = rng.choice([p for p in places(tree) if p] or [("x",)])
        holder = functools.reduce(lambda t, k: t[k], path, tree)
        new = rng.choice(
            [number(rng), number(rng), None, True, "x", "t0", "F64", "C64", [], {}, [number(rng)],
             -1, 1.5, {"ref": [number(rng), 0]}, {"array": {"name": "t0"}}, {"op": "mul"}, "mul",
             [0, number(rng)], {"tuple": [{"list": []}]}, {"slice": [1, 2, 0]}]
        )  # fmt: skip
        how = rng.random()
        if how < 0.2 and isinstance(holder, dict):
            holder.pop(last, None)
        elif how < 0.3 and isinstance(holder, list):
            holder.append(holder[last])
        elif how < 0.4 and isinstance(holder, dict):
            holder[rng.choice(["x", "dtype", "__metadata__", "op"])] = new
        else:
            holder[last] = new
        if not isinstance(tree, (dict, list)) or not tree:
            break
    return tree


def with_header(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A safetensors file with another header."""
    (length,) = struct.unpack_from("<Q", data)
    text = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _other_graph(rng: random.Random, header: dict[str, Any]) -> dict[str, Any]:
    notes = header["__metadata__"]
    notes["weft_graph"] = json.dumps(mutated_json(rng, json.loads(notes["weft_graph"])))
    return header


# ------------------------------------------------------------------ one file for a seed


def _records(data: bytes) -> dict[str, bytes]:
    with serialization._open_zipfile_reader(io.BytesIO(data)) as reader:
        return {label: reader.get_record(label) for label in reader.get_all_records()}


def _with_pickle(rng: random.Random, kind: str, change: Callable[[bytes], bytes]) -> bytes:
    """A good file with a changed pickle in it, and everything else right."""
    data = rng.choice(good_files()[kind])
    if kind == "zip":
        records = _records(data)
        records["data.pkl"] = change(records["data.pkl"])
        return archive_of(records)
    at = 0
    ends = []
    for _ in range(5):
        stream = io.BytesIO(data)
        stream.seek(at)
        for _ in pickletools.genops(stream):
            pass
        at = stream.tell()
        ends.append(at)
    return data[: ends[2]] + change(data[ends[2] : ends[3]]) + data[ends[3] :]


def _invented(rng: random.Random, kind: str) -> bytes:
    code = stop(value(rng, 4) if rng.random() < 0.5 else any_tensor(rng, 3))
    if kind == "zip":
        records = {f"data/{key}": content for key, content in STORAGES.items()}
        return archive_of({"data.pkl": code, "version": b"3", **records})
    code = code.replace(b"tQ", b"NtQ")
    keys = [key for key in STORAGES if push(key) + push("cpu") in code]
    parts = [*HEADS, code, stop(keys)]
    for key in keys:
        parts += [struct.pack("<q", 8), STORAGES[key]]
    return b"".join(parts)


def file_of(seed: int) -> tuple[str, bytes]:
    """The kind and the bytes of a seed's file."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    files = good_files()[kind]
    how = rng.random()
    if how < 0.3:
        return kind, mutated_bytes(rng, rng.choice(files), rng.choice(files))
    if kind == "safetensors":
        return kind, with_header(rng.choice(files), lambda h: mutated_json(rng, h))
    if kind == "graph":
        return kind, with_header(rng.choice(files), lambda h: _other_graph(rng, h))
    if how < 0.6:
        return kind, _with_pickle(rng, kind, lambda code: mutated_pickle(rng, code))
    if how < 0.65:
        return kind, _with_pickle(rng, kind, lambda code: mutated_bytes(rng, code, code))
    return kind, _invented(rng, kind)


# ------------------------------------------------------------------ the judge

_ran: list[str] = []
_FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "os.remove"),
    *("os.rename", "os.mkdir", "socket.connect", "ctypes.dlopen", "ctypes.dlsym", "pty.spawn"),
    *("exec", "compile", "import"),
)


def watch() -> None:
    """Note what a loaded file should never do."""
    sys.addaudithook(_note)


def _note(event: str, args: Any) -> None:
    if event in _FORBIDDEN and not _is_a_plan(event, args):
        _ran.append(event)


def _is_a_plan(event: str, args: Any) -> bool:
    """Whether weft compiles how an op's own derivative rules are called: nothing of a file's."""
    place = args[1] if event == "compile" else getattr(args[0], "co_filename", "") if args else ""
    return event in ("compile", "exec") and str(place).endswith("core/<rules>")


def readable(found: Any) -> str | None:
    """Read all that was loaded, as far as it is not too much; what is wrong with it."""
    waiting, seen = [found], set()
    while waiting and len(seen) < 3000:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, weft.Tensor):
            special = [k for k in item.__dict__ if not k.isidentifier() or k.startswith("__")]
            if special or type(np.asarray(item.detach())) is not np.ndarray:
                return f"a tensor has attributes {special}"
            array = item._a
            if array.size and array.size < 1 << 16:
                array.tobytes()
            if math.prod(array.shape) and array.nbytes < 1 << 16:
                repr(item)
            waiting += item.__dict__.values()
        elif isinstance(item, dict):
            waiting += [*item.keys(), *item.values(), *vars(item).values()] if hasattr(
                item, "__dict__") else [*item.keys(), *item.values()]  # fmt: skip
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += item
        elif isinstance(item, Graph):
            [n.name for n in item]
    return None


def judge(kind: str, data: bytes, load: Callable[[str, bytes], Any] = load) -> str | None:
    """What is wrong with how a file was loaded, or None."""
    _ran.clear()
    clear = (GraphError,) if kind == "graph" else CLEAR
    found, raised = None, None
    try:
        found = load(kind, data)
    except Exception as error:
        raised = error
    if _ran:  # before anything else is done here
        return f"it did {_ran}"
    if raised is None:
        return readable(found) or (f"reading it did {_ran}" if _ran else None)
    if isinstance(raised, clear) and str(raised) and not isinstance(raised, RecursionError):
        return None
    return "".join(traceback.format_exception(raised, limit=-3, chain=False))


# ------------------------------------------------------------------ many of them


def work(count: int, first: int) -> None:
    """What the child does: judge files, and say which one it is at."""
    out = sys.stdout
    for kind, files in good_files().items():
        for data in files:
            fault = readable(load(kind, data))  # imports what is imported when first needed
            assert fault is None, fault
    for seed in range(1 << 40, (1 << 40) + 60):
        judge(*file_of(seed))
    # For the test of this file: loaders that do what must not be, by turns.
    loaders = [FAULTY[n] for n in os.environ.get("HOSTILE_FILES_LOADERS", "").split()] or [load]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    watch()
    for seed in range(first, first + count):
        kind, data = file_of(seed)
        print("at", seed, file=out, flush=True)
        # Of computing, since others may use the machine too; of waiting, many times that.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(20 * SECONDS)
        fault = judge(kind, data, loaders[seed % len(loaders)])
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if fault is not None:
            print("fault", json.dumps(f"{kind}: {fault}"), file=out, flush=True)
    print("done", file=out, flush=True)


def run(count: int, first: int = 0, most: int = 10) -> dict[int, str]:
    """Judge files in a child, and in another one if it dies; the faults by seed."""
    faults: dict[int, str] = {}
    at, end = first, first + count
    while at < end and len(faults) < most:
        code = f"import hostile_files; hostile_files.work({end - at}, {at})"
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env
        )
        assert child.stdout is not None
        here, done = None, False
        for line in child.stdout:
            word, _, rest = line.partition(" ")
            if word == "at":
                here = int(rest)
            elif word == "fault" and here is not None:
                faults[here] = json.loads(rest)
                if len(faults) >= most:
                    child.kill()
            done = done or word.strip() == "done"
        child.wait()
        if done or len(faults) >= most:
            break
        if here is None:
            raise RuntimeError("the child that judges files does not start")
        hung = -child.returncode in (signal.SIGALRM, signal.SIGPROF)
        why = f"no end within {SECONDS} s" if hung else f"the process died ({child.returncode})"
        faults[here] = f"{file_of(here)[0]}: {why}"
        at = here + 1
    return faults


def _crash(kind: str, data: bytes) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(kind: str, data: bytes) -> Any:
    while True:
        pass


def _hog(kind: str, data: bytes) -> Any:
    return bytearray(MORE_MEMORY * 2)


def _shell(kind: str, data: bytes) -> Any:
    os.system("true")


def _pointer(kind: str, data: bytes) -> Any:
    made = weft.ones(2)
    made.__dict__["__array_interface__"] = INTERFACE
    return made


def _unclear(kind: str, data: bytes) -> Any:
    raise IndexError("list index out of range")


# Loaders that do what must not be, to see that it is noticed.
FAULTY = {
    "crash": _crash, "hang": _hang, "hog": _hog, "shell": _shell, "pointer": _pointer,
    "unclear": _unclear,
}  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.monotonic()
    faults = run(count, first)
    for seed, fault in faults.items():
        print(f"seed {seed}: {fault}")
    print(f"{count} files, {len(faults)} with a fault, {time.monotonic() - start:.0f} s")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
