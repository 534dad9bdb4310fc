"""Compiled code is linked without LLVM, and with a warm cache LLVM is not even loaded."""

from __future__ import annotations

import copy
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.native.codegen import cache, jit, linker

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
TEXT = """
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@calls = internal global i64 0
declare double @exp(double)
define double @scaled(i64 %k, double %x) {
  %old = load i64, ptr @calls
  %new = add i64 %old, 1
  store i64 %new, ptr @calls
  %at = getelementptr double, ptr @table, i64 %k
  %by = load double, ptr %at
  %e = call double @exp(double %x)
  %y = fmul double %e, %by
  ret double %y
}
define i64 @count() {
  %n = load i64, ptr @calls
  ret i64 %n
}
"""


def functions(addresses: list[int]) -> tuple:
    scaled = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(addresses[0])
    return scaled, ctypes.CFUNCTYPE(ctypes.c_int64)(addresses[1])


def test_code_does_the_same_as_linked_by_llvm() -> None:
    engine = jit.engine()
    code = engine.compile(TEXT)
    holder, addresses = linker.link(code, ["scaled", "count"])
    ours, ours_count = functions(addresses)
    theirs, _ = functions(engine.link_by_llvm(["scaled", "count"], code))
    for k in range(4):
        assert ours(k, 0.1 * k - 3) == theirs(k, 0.1 * k - 3) != 0.0
    assert ours_count() == 4  # data that is written to is its own
    assert holder


def test_code_can_not_be_written_to() -> None:
    code = jit.engine().compile(TEXT)
    holder, (address, _) = linker.link(code, ["scaled", "count"])
    maps = Path("/proc/self/maps").read_text().splitlines()
    for line in maps:
        span, rights = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            assert rights.startswith("r-x")
            break
    else:
        raise AssertionError("not mapped")
    assert holder


def test_a_forked_child_writes_to_data_of_its_own() -> None:
    code = jit.engine().compile(TEXT)
    holder, addresses = linker.link(code, ["scaled", "count"])
    scaled, count = functions(addresses)
    child = os.fork()
    if child == 0:
        scaled(0, 0.0)
        os._exit(count())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1 and count() == 0
    assert holder


@pytest.mark.parametrize("change", ["text", "cut", "machine", "symbol", "relocation"])
def test_other_files_are_refused(change: str) -> None:
    code = bytearray(jit.engine().compile(TEXT))
    wanted = ["scaled"]
    if change == "text":
        code = bytearray(b"no object file at all")
    elif change == "cut":
        code = code[:6]
    elif change == "machine":
        code[18:20] = (183).to_bytes(2, "little")
    elif change == "symbol":
        wanted = ["missing"]
    else:
        relocations = next(s for s in linker._sections(bytes(code)) if s.kind == 4)
        code[relocations.offset + 8 : relocations.offset + 12] = (2).to_bytes(4, "little")
    with pytest.raises(linker.Unlinkable):
        linker.link(bytes(code), wanted)


FIRST = """
import sys
import weft
x = weft.linspace(-3, 3, 5000)
y = x.exp()
assert abs(float(y.log().sum())) < 1e-2
print("llvmlite" in sys.modules)
"""


def test_a_warm_cache_needs_no_llvm(tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_CACHE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run() == "True"
    assert run() == "False"
    # Another processor or another LLVM: what is known of the host does not count.
    for file in tmp_path.glob("host-*.o"):
        file.write_bytes(cache.MAGIC + b"\0" * 80)
    assert run() == "True"


def test_code_of_one_pipeline_is_not_taken_for_that_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The order in which a sum is taken can depend on the pipeline, and so can its bits.
    tmp_path.chmod(0o700)
    monkeypatch.setattr(cache, "place", lambda: cache.CacheFolder(tmp_path))
    engine, compiled = jit.engine(), []
    compile = type(engine).compile

    def counted(self: Any, text: str, pipeline: jit.PassPipeline) -> bytes:
        compiled.append(pipeline)
        return compile(self, text, pipeline)

    monkeypatch.setattr(type(engine), "compile", counted)
    every = [jit.LOOPS, jit.UNSWITCHED, jit.GLUE, jit.LOOPS._replace(strided=True)]
    for pipeline in (*every, *every):
        scaled, _ = functions(engine.load("k", TEXT, ["scaled", "count"], pipeline=pipeline))
        assert scaled(1, 0.5) != 0.0
    assert compiled == every


def test_a_kernel_has_one_pipeline_whatever_it_is_made_from() -> None:
    plain, unswitched = (jit.kernel(unswitched=on)(_kernel_body) for on in (False, True))
    assert plain.pipeline == jit.LOOPS and unswitched.pipeline == jit.UNSWITCHED
    assert jit.Kernel(copy.copy(unswitched.function)).pipeline == jit.UNSWITCHED
    strided = jit.kernel(strided=True)(_kernel_body)
    assert strided.pipeline == jit.LOOPS._replace(strided=True)


def test_strength_reduction_is_switched_off_only_while_code_is_generated() -> None:
    # The option is one of the process, which others that use LLVM share.
    said: list[str] = []
    block = jit.NoStrengthReduction(lambda _, option: said.append(option))
    with block:
        with block:  # of another thread
            pass
        assert said == ["-disable-lsr=true"]
    with pytest.raises(RuntimeError), block:
        raise RuntimeError
    assert said == ["-disable-lsr=true", "-disable-lsr=false"] * 2


def test_llvm_that_an_empty_cache_asks_for_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Then it is loaded while the engine is made, to describe the processor.
    usual = jit.engine()
    assert usual.llvm
    monkeypatch.setattr(cache, "read", lambda *_: None)
    monkeypatch.setattr(cache, "write", lambda *_: None)
    assert (type(usual)().reducing is None) == (usual.reducing is None)
    assert usual.reducing is not None or usual.llvm.llvm_version_info[0] != jit.LATEST_LLVM


def test_kernels_say_whether_their_addresses_are_reduced() -> None:
    engine = jit.engine()
    llvm, machine = engine.llvm, engine.machine()
    if engine.reducing is None:
        pytest.skip("not with this LLVM")
    text = """
define void @gather(ptr noalias %x, ptr noalias %y, i64 %n, i64 %step) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %k = mul i64 %i, %step
  %from = getelementptr float, ptr %x, i64 %k
  %v = load volatile float, ptr %from
  %to = getelementptr float, ptr %y, i64 %i
  store float %v, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
    plain, strided = (engine.compile(text, jit.LOOPS._replace(strided=on)) for on in (False, True))
    assert (plain != strided) == ("+avx512f" in engine.features)
    # Who generates code by LLVM in the same process gets what it gets without weft.
    module = llvm.parse_assembly(text, llvm.create_context())
    before = machine.emit_object(module)
    engine.compile(text)
    assert machine.emit_object(llvm.parse_assembly(text, llvm.create_context())) == before
    with engine.reducing:
        assert machine.emit_object(llvm.parse_assembly(text, llvm.create_context())) != before


def _kernel_body(x: Any, lo: int, hi: int) -> None:
    pass
