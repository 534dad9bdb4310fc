"""``WEFT_CPU``: weft and the libraries under it keep to the instructions of a level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft import _cpu
from weft.native.codegen import jit

HOST = (
    "znver4",
    "+sse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+avx512f,+avx512vl,-amx-tile,+vaes,+bmi2",
)


@pytest.mark.parametrize(
    "level, cpu, has, lacks",
    [
        ("", "znver4", "avx512f avx2 fma", "amx-tile"),
        ("avx512", "znver4", "avx512f avx2 fma", "amx-tile"),
        ("avx2", "x86-64-v3", "avx2 fma f16c avx", "avx512f avx512vl"),
        ("avx", "x86-64-v2", "avx f16c sse4.2", "avx2 fma vaes avx512f"),
        ("sse4", "x86-64-v2", "sse4.1 sse4.2 popcnt", "avx avx2 fma f16c vaes"),
        ("baseline", "x86-64", "", "sse3 sse4.1 popcnt avx avx2 bmi2"),
    ],
)
def test_what_llvm_is_told(level: str, cpu: str, has: str, lacks: str) -> None:
    name, features = _cpu.keep_to(level, *HOST)
    assert name == cpu
    told = features.split(",")
    assert all(f"+{f}" in told for f in has.split())
    assert all(f"-{f}" in told for f in lacks.split())


def test_a_level_that_the_processor_does_not_reach_changes_nothing() -> None:
    host = ("nehalem", "+sse3,+sse4.1,+sse4.2,-avx,-avx2")
    assert _cpu.keep_to("avx2", *host) == host


def test_what_the_others_are_told() -> None:
    told = {"WEFT_CPU": "avx2", "OPENBLAS_CORETYPE": "Zen"}
    _cpu.tell_others(told)
    assert told["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert told["OPENBLAS_CORETYPE"] == "Zen"  # the user's own word
    assert (
        "X86_V4" in told["NPY_DISABLE_CPU_FEATURES"]
        or "AVX512F" in told["NPY_DISABLE_CPU_FEATURES"]
    )
    for nothing in ({}, {"WEFT_CPU": "native"}):
        before = dict(nothing)
        _cpu.tell_others(nothing)
        assert nothing == before
    with pytest.raises(ValueError, match="one of native, avx512, avx2, avx, sse4, baseline"):
        _cpu.tell_others({"WEFT_CPU": "avx9"})


PROGRAM = """
import warnings
warnings.simplefilter("error")
import sys
import torch as weft
import numpy as np
from weft.native import onednn
from weft.native.codegen import jit
from weft.native.gemm import blocks
x = weft.randn(96, 128)
assert np.allclose((x @ x.T).numpy(), x.numpy() @ x.numpy().T, atol=1e-3)
assert np.allclose(x.exp().numpy(), np.exp(x.numpy()), rtol=1e-5)
assert np.allclose(x.half().exp().float().numpy(), np.exp(x.half().float().numpy()), rtol=2e-3)
from numpy._core._multiarray_umath import __cpu_features__ as found
wide = found.get("X86_V3", found.get("AVX2", False))
isa = onednn.binding.library().functions.dnnl_get_effective_cpu_isa() if onednn.available() else 0
print("+avx2" in jit.engine().features, blocks.block()[0], wide, isa & 4 != 0)
"""


@pytest.mark.skipif(
    jit.why_not() is not None or "+avx2" not in jit.engine().features, reason="needs AVX2"
)
@pytest.mark.parametrize(
    "level, wanted",
    [("avx2", "True 8 True"), ("sse4", "False 4 False"), ("baseline", "False 4 False")],
)
def test_a_run_at_a_level(level: str, wanted: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    env = {k: v for k, v in os.environ.items() if k != "WEFT_CPU"}
    env["PYTHONPATH"] = str(Path(weft.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "--cpu", level, "--no-check", str(script)],
        env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(wanted)


def test_an_unknown_level_is_refused() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])}
    command = [sys.executable, "-m", "weft", "run", "--cpu=vax", "x.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "one of native, avx512" in done.stderr
