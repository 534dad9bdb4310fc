"""A tensor's array belongs to its device: code outside of the boundary reads its geometry alone."""

from __future__ import annotations

from collections import Counter

import boundary

ON_THE_CPU = "a short path of the CPU, behind a test that the arrays are the CPU's own"
WITHOUT_VALUES = "an array without values, which belongs to no device"

# Functions in op blocks that read more of an array, with the reason.
ALLOWED = {
    ("operators/arithmetic.py", "_in_place.change"): ON_THE_CPU,
    ("operators/indexing.py", "_write_plainly"): ON_THE_CPU,
    ("operators/indexing.py", "_put"): ON_THE_CPU,
    ("operators/random.py", "_drawn_batch"): "random values, which the host draws",
    ("operators/arithmetic.py", "_written_over"): ON_THE_CPU,
    ("operators/random.py", "normal"): WITHOUT_VALUES,
    ("operators/random.py", "_prepared"): "whose callers look at its geometry",
}


def test_op_blocks_keep_to_the_geometry():
    found = [p for p in boundary.violations() if p.module.startswith("operators/")]
    wrong = [p for p in found if (p.module, p.function) not in ALLOWED]
    assert not wrong, "\n".join(f"{p.module}:{p.line}: {p.text}" for p in wrong)
    unused = set(ALLOWED) - {(p.module, p.function) for p in found}
    assert not unused, unused


def test_other_packages_do_so_without_exception():
    found = [p for p in boundary.violations() if not p.module.startswith("operators/")]
    shown = "\n".join(f"{p.module}:{p.line}: {p.text}" for p in found)
    assert not found, f"ask core.devices.host for values, or write an op:\n{shown}"


def test_the_check_tells_values_from_geometry(tmp_path, monkeypatch):
    monkeypatch.setattr(boundary, "ROOT", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(
        "def fine(x, y):\n"
        "    a, b = x._a, y._a\n"
        "    if x._a.flags.c_contiguous and a.ndim == len(b.shape):\n"
        "        y._a = strided(x._a, (1,), (4,))\n"
        "    return wrap(x._a), host(y), getattr(x, '_a', x).dtype\n"
        "def wrong(x):\n"
        "    a = x._a\n"
        "    return a + 1\n"
        "def worse(x):\n"
        "    x._a[0] = np.sum(x._a)\n"
    )
    assert Counter(p.function for p in boundary.violations()) == {"wrong": 1, "worse": 2}
