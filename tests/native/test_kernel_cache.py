"""Machine code on disk: whose it may be, what it must hold, and how much of it there may be."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.native.codegen import cache

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")

KEY, OTHER = (hashlib.sha256(text).digest() for text in (b"one", b"other"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    monkeypatch.setattr(cache, "place", lambda: cache.CacheFolder(made))
    monkeypatch.setattr(cache, "_written", [1])
    return made


def test_what_was_written_is_read(folder: Path) -> None:
    assert cache.read("k", KEY) is None
    cache.write("k", KEY, b"code")
    assert cache.read("k", KEY) == b"code"
    assert cache.read("k", OTHER) is None and cache.read("l", KEY) is None
    (file,) = folder.iterdir()  # nothing is left beside it
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [0, 7, 8, 40, 72, 75])
def test_a_truncated_file_is_missing(folder: Path, size: int) -> None:
    cache.write("k", KEY, b"code")
    path = cache.path_of("k", KEY)
    path.write_bytes(path.read_bytes()[:size])
    assert cache.read("k", KEY) is None
    cache.write("k", KEY, b"code")
    assert cache.read("k", KEY) == b"code"


def test_every_changed_byte_is_noticed(folder: Path) -> None:
    cache.write("k", KEY, b"code")
    path = cache.path_of("k", KEY)
    right = path.read_bytes()
    for k in range(len(right)):
        path.write_bytes(right[:k] + bytes([right[k] ^ 1]) + right[k + 1 :])
        assert cache.read("k", KEY) is None
    path.write_bytes(right + b"x")
    assert cache.read("k", KEY) is None
    path.write_bytes(os.urandom(5000))
    assert cache.read("k", KEY) is None


def test_another_kernels_code_is_no_code(folder: Path) -> None:
    """A valid file under another one's name: the digest in it is of what it was made from."""
    cache.write("k", KEY, b"code")
    cache.write("k", OTHER, b"other code")
    os.replace(cache.path_of("k", OTHER), cache.path_of("k", KEY))
    assert cache.read("k", KEY) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_files_that_others_may_write_are_not_read(folder: Path, mode: int) -> None:
    cache.write("k", KEY, b"code")
    cache.path_of("k", KEY).chmod(mode)
    assert cache.read("k", KEY) is None


def test_links_and_other_things_are_not_read(folder: Path, tmp_path: Path) -> None:
    cache.write("k", KEY, b"code")
    path, away = cache.path_of("k", KEY), tmp_path / "away.o"
    path.rename(away)
    path.symlink_to(away)
    assert cache.read("k", KEY) is None
    cache.write("k", KEY, b"code")  # takes the link's place, and leaves what it points to
    assert not path.is_symlink() and cache.read("k", KEY) == b"code"
    path.unlink()
    os.link(away, path)
    assert cache.read("k", KEY) is None
    path.unlink()
    path.mkdir()
    assert cache.read("k", KEY) is None
    path.rmdir()
    os.mkfifo(path)
    assert cache.read("k", KEY) is None  # and does not wait for a writer


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_files_of_other_users_are_not_read(folder: Path) -> None:
    cache.write("k", KEY, b"code")
    os.chown(cache.path_of("k", KEY), 12345, -1)
    assert cache.read("k", KEY) is None
    os.chown(folder, 12345, -1)
    assert "another user" in cache.why_unsafe(folder)


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o720, 0o1777])
def test_a_folder_that_others_may_write_to(folder: Path, mode: int) -> None:
    assert cache.why_unsafe(folder) == ""
    folder.chmod(mode)
    assert "writable by others" in cache.why_unsafe(folder)


def test_a_folder_that_others_may_replace(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert "no sticky bit" in cache.why_unsafe(folder)
    folder.parent.chmod(0o1777)
    assert cache.why_unsafe(folder) == ""


def test_too_large_a_cache_loses_what_was_unused_longest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "1")
    keys = [hashlib.sha256(bytes([k])).digest() for k in range(20)]
    for age, key in enumerate(keys):
        cache.write("k", key, bytes(100_000))
        os.utime(cache.path_of("k", key), (1e9 + age, 1e9 + age))
    assert cache.read("k", keys[0]) is not None  # used just now, and so the youngest
    old = folder / ".new-left"
    old.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    assert cache.size()[0] == 21
    assert cache.prune() > 0
    assert cache.size()[1] <= 1 << 20 and not old.exists()
    assert cache.read("k", keys[0]) is not None and cache.read("k", keys[19]) is not None
    assert cache.read("k", keys[1]) is None
    assert cache.prune() == 0


def test_the_first_write_of_a_process_looks_at_the_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "0")
    monkeypatch.setattr(cache, "_written", [0])
    cache.write("k", KEY, b"code")
    assert cache.size() == (0, 0)
    for k in range(cache.EVERY - 1):
        cache.write("k", bytes([k]) * 32, b"code")
    assert cache.size()[0] == cache.EVERY - 1
    cache.write("k", OTHER, b"code")
    assert cache.size() == (0, 0)


PROGRAM = """
import weft
x = weft.ones(200, 200)
assert (x + x).sum().item() == 80000 and (x - x).sum().item() == 0
assert (x * 3).exp().mean().item() > 20
"""


def run(folder: Path, program: str = PROGRAM) -> str:
    source = str(Path(weft.__file__).parents[1])
    env = {
        **os.environ,
        "WEFT_CACHE": str(folder),
        "PYTHONPATH": source,
        "TMPDIR": str(folder.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_swapped_files_are_compiled_anew(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    run(folder)
    files = sorted(folder.glob("*.o"))
    assert len(files) > 3
    right = {f: f.read_bytes() for f in files}
    for file, other in zip(files, files[1:] + files[:1], strict=True):
        file.write_bytes(right[other])
    run(folder)
    assert {f: f.read_bytes() for f in files} == right


def test_an_unsafe_folder_is_left_alone_and_the_doctor_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    said = run(folder, PROGRAM + "import weft.doctor\nprint('\\n'.join(weft.doctor.lines()))")
    (line,) = [line for line in said.splitlines() if "kernel cache" in line]
    assert line.startswith("missing") and "writable by others" in line and "256 MB" in line
    assert not list(folder.iterdir())
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]  # the other folder went at the end
