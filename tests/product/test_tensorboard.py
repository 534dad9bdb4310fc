"""Event files: framing, checksums, threads, killed processes, full disks, wrong arguments."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.utils.tensorboard import FileWriter, SummaryWriter, _crc, _records, _wire, read, reader
from weft.utils.tensorboard.summary import hparams

SCALARS = [1.0, 0.5, 0.25]


def log(folder: Path, **options: Any) -> None:
    with SummaryWriter(folder, **options) as writer:
        for step, value in enumerate(SCALARS):
            writer.add_scalar("loss", value, step)


def scalars(folder: Path) -> list[Any]:
    return [(e.tag, e.step, e.value) for e in read(folder) if e.kind == "scalar"]


EXPECTED = [("loss", k, v) for k, v in enumerate(SCALARS)]


# --- the form ----------------------------------------------------------------------------


def test_checksums_are_those_of_the_standard() -> None:
    # RFC 3720, B.4
    assert _crc.crc32c(bytes(32)) == 0x8A9136AA
    assert _crc.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert _crc.crc32c(bytes(range(32))) == 0x46DD794E
    assert _crc.crc32c(b"123456789") == 0xE3069283
    assert _crc.crc32c(b"") == 0


def test_long_data_have_the_checksum_of_the_plain_loop() -> None:
    source = np.random.default_rng(1).integers(0, 256, 70001, np.uint8).tobytes()
    for length in (2047, 2048, 2049, 2050, 4095, 4096, 9999, 65536, 70001):
        plain = _crc._plain(0xFFFFFFFF, source[:length]) ^ 0xFFFFFFFF
        assert _crc.crc32c(source[:length]) == plain, length
    assert _crc.crc32c(memoryview(source)) == _crc.crc32c(source)


def test_a_record_is_framed() -> None:
    framed = _records.frame(b"hello")
    assert framed[:8] == struct.pack("<Q", 5) and framed[12:17] == b"hello"
    crc = _crc.crc32c(b"hello")
    turned = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert framed[17:] == struct.pack("<I", turned)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)])
def test_integers_on_the_wire(value: int) -> None:
    (number, found), *more = _wire.fields(_wire.integer(7, value, always=True))
    assert (number, _wire.signed(found), more) == (7, value, [])


@pytest.mark.parametrize("content", [b"\x80", b"\xff" * 11, b"\x0a\x05ab", b"\x09abc", b"\x0b"])
def test_broken_messages_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a protocol buffer"):
        list(_wire.fields(content))


def test_pictures_are_png_files(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (5, 4, 3), np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("i", pixels, 1, dataformats="HWC")
    data = next(e.value for e in read(tmp_path) if e.kind == "image")
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length :][:4])[0] == zlib.crc32(kind + content)
        found[kind] = content
        at += 12 + length
    assert struct.unpack(">IIBB", found[b"IHDR"][:10]) == (4, 5, 8, 2)
    lines = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(5, 13)
    assert (lines[:, 0] == 2).all(), "each row is what is added to the one above"
    restored = np.cumsum(lines[:, 1:], axis=0, dtype=np.uint8).reshape(5, 4, 3)
    assert (restored == pixels).all()


# --- writing -----------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    log(tmp_path)
    assert scalars(tmp_path) == EXPECTED


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="-mine") as writer:
        assert writer.get_logdir() == writer.log_dir
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-mine")


def test_several_writers_and_a_suffix(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, filename_suffix=".a") as one, SummaryWriter(tmp_path) as two:
        one.add_scalar("x", 1.0, 0)
        two.add_scalar("x", 2.0, 1)
    assert len(reader.event_files(tmp_path)) == 2
    assert any(p.name.endswith(".a") for p in tmp_path.iterdir())
    assert sorted(scalars(tmp_path)) == [("x", 0, 1.0), ("x", 1, 2.0)]


def test_a_closed_writer_goes_on_in_a_new_file(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("x", 1.0, 0)
    writer.close()
    writer.close()
    writer.add_scalar("x", 2.0, 1)
    writer.close()
    assert scalars(tmp_path) == [("x", 0, 1.0), ("x", 1, 2.0)]
    file = FileWriter(tmp_path)
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.add_summary(b"")
    file.reopen()
    file.close()


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:

        def work(k: int) -> None:
            for step in range(50):
                writer.add_scalar(f"t{k}", step, step)
                writer.add_scalars("group", {str(k): step}, step)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    found = scalars(tmp_path)
    assert len(found) == 300
    for k in range(6):
        assert [s for tag, s, _ in found if tag == f"t{k}"] == list(range(50))
        assert len(scalars(tmp_path / f"group_{k}")) == 50


def test_protocol_buffers_of_others_are_taken(tmp_path: Path) -> None:
    class Foreign:
        def SerializeToString(self) -> bytes:
            return _wire.message(1, _wire.data(1, "foreign"), _wire.single(2, 3.0))

    with SummaryWriter(tmp_path) as writer:
        assert writer.file_writer is not None
        writer.file_writer.add_summary(Foreign(), 4)
        for part in hparams({"lr": 0.1}, {"acc": 1}):
            writer.file_writer.add_summary(part)
    assert ("foreign", 4, 3.0) in scalars(tmp_path)
    assert [e.kind for e in read(tmp_path)].count("hparams") == 3


def test_the_disk_is_asked_for_every_so_many_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "fsync", asked.append)
    with SummaryWriter(tmp_path / "now", flush_secs=0) as writer:
        before = len(asked)
        writer.add_scalar("x", 1.0, 0)
        assert len(asked) == before + 1
    with SummaryWriter(tmp_path / "later", flush_secs=1000) as writer:
        before = len(asked)
        writer.add_scalar("x", 1.0, 0)
        assert len(asked) == before
        writer.flush()
        assert len(asked) == before + 1


def test_purging_marks_the_step(tmp_path: Path) -> None:
    log(tmp_path, purge_step=2)
    assert next((e.kind, e.step) for e in read(tmp_path)) == ("start", 2)


# --- what goes wrong ---------------------------------------------------------------------

KILLED = """
import os, signal, sys
from weft.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1])
for step in range(100):
    writer.add_scalar("loss", step, step)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_everything_that_it_logged(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [s for _, s, _ in scalars(tmp_path)] == list(range(100))


def test_a_torn_record_ends_the_reading_and_can_be_gone_on_from(tmp_path: Path) -> None:
    log(tmp_path)
    (path,) = reader.event_files(tmp_path)
    whole = path.read_bytes()
    end = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        found = list(reader.events_in(path))
        assert [(e.tag, e.step, e.value) for e, _ in found] == EXPECTED[: len(found)]
        if len(found) == 2:
            end = found[-1][1]
    path.write_bytes(whole)
    assert [e.step for e, _ in reader.events_in(path, end)] == [2]


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    log(tmp_path)
    (path,) = reader.event_files(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[-6] ^= 1
    path.write_bytes(whole)
    assert scalars(tmp_path) == EXPECTED[:2]


FULL = """
import resource, signal, sys
import numpy as np
from weft.utils.tensorboard import SummaryWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = SummaryWriter(sys.argv[1])
writer.add_scalar("a", 1.0, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    writer.add_image("noise", np.random.default_rng(0).random((3, 64, 64)), 1)
except OSError as error:
    print(error)
writer.add_scalar("a", 2.0, 2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_a_disk_without_room_says_so_and_what_follows_stays_readable(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "the event file can't be written (File too large)" in done.stdout
    assert "tfevents" in done.stdout
    assert scalars(tmp_path) == [("a", 0, 1.0), ("a", 2, 2.0)]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="event file can't be written") as caught:
        SummaryWriter(tmp_path / "file" / "runs")
    assert "test_tensorboard.py" in str(caught.value) and "log_dir" in str(caught.value)


def test_a_failed_write_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 0)
        real, calls = os.write, []

        def short(number: int, data: bytes) -> int:
            calls.append(1)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return real(number, data[:10])

        monkeypatch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left on device"):
            writer.add_scalar("loss", 9.0, 9)
        monkeypatch.undo()
        writer.add_scalar("loss", 0.5, 1)
    assert scalars(tmp_path) == EXPECTED[:2]


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "scalar of many": (lambda w: w.add_scalar("a", weft.ones(2)), AssertionError, "'a' was given"),
    "scalar of a list": (lambda w: w.add_scalar("a", [1.0]), NotImplementedError, "list"),
    "step": (lambda w: w.add_scalar("a", 1.0, "x"), TypeError, "global_step is a whole number"),
    "empty": (lambda w: w.add_histogram("a", weft.ones(0)), ValueError, "The input has no element"),
    "NaN": (lambda w: w.add_histogram("a", weft.full((3,), weft.nan)), ValueError, "all are NaN"),
    "raw": (lambda w: w.add_histogram_raw("a", 0, 1, 1, 1, 1, [1], [1, 2]), ValueError, "1 upper"),
    "format": (lambda w: w.add_image("a", weft.ones(3, 4)), ValueError, "are different"),
    "letters": (lambda w: w.add_image("a", weft.ones(3, 4), dataformats="HH"), ValueError, "HW"),
    "channels": (lambda w: w.add_images("a", weft.ones(2, 5, 4, 4)), ValueError, "1 or 3 channels"),
    "pixels": (lambda w: w.add_image("a", weft.ones(3, 0, 4)), ValueError, "one pixel"),
    "sound": (lambda w: w.add_audio("a", weft.ones(2, 2)), AssertionError, "1 dimensional"),
    "video": (lambda w: w.add_video("a", weft.ones(2, 3, 4, 4)), ValueError, "N, T, C, H, W"),
    "fps": (lambda w: w.add_video("a", weft.ones(1, 1, 3, 4, 4), fps=0), ValueError, "fps > 0"),
    "mesh": (lambda w: w.add_mesh("a", weft.ones(4, 3)), ValueError, "BxNx3"),
    "margin": (lambda w: w.add_custom_scalars_marginchart(["a"]), AssertionError, "three tags"),
    "points": (lambda w: w.add_embedding(weft.ones(3)), AssertionError, "mat should be 2D"),
    "labels": (lambda w: w.add_embedding(weft.ones(3, 2), ["a"]), AssertionError, "1 and 3"),
    "onnx": (lambda w: w.add_onnx_graph("m.onnx"), NotImplementedError, "add_graph"),
    "hparams": (lambda w: w.add_hparams([1], {}), TypeError, "hparam_dict should be"),
    "hparam": (lambda w: w.add_hparams({"a": [1]}, {}), ValueError, "should be one of int"),
    "domain": (lambda w: w.add_hparams({"a": 1}, {}, {"a": ["x"]}), TypeError, "same type"),
    "tensor": (lambda w: w.add_tensor("a", np.array(["x"])), ValueError, "unsupported"),
    "graph": (lambda w: w.add_graph(lambda: 3), RuntimeError, "returned no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named_and_write_nothing(name: str, tmp_path: Path) -> None:
    call, kind, words = WRONG[name]
    with SummaryWriter(tmp_path) as writer:
        before = sorted((p, p.stat().st_size) for p in tmp_path.glob("**/*"))
        with pytest.raises(kind, match=words) as caught:
            call(writer)
        assert "test_tensorboard.py" in str(caught.value), "the user's line"
        assert sorted((p, p.stat().st_size) for p in tmp_path.glob("**/*")) == before


def test_names_of_embeddings_stay_in_their_folder(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "runs") as writer:
        writer.add_embedding(weft.ones(2, 2), ["a\tb\nc", "d"], tag="../../../out", global_step=1)
        with pytest.warns(UserWarning, match="did you set global_step"):
            writer.add_embedding(weft.ones(2, 2), tag="../../../out", global_step=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs"]
    (labels,) = (tmp_path / "runs").glob("**/metadata.tsv")
    assert labels.read_text() == "a b c\nd\n"


def test_loud_sound_is_clipped_and_said_so(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.warns(UserWarning, match="auto clipped"):
            writer.add_audio("a", weft.tensor([0.0, 3.0]))


def test_half_types_and_nan_pixels(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", weft.tensor(70000.0, dtype=weft.bfloat16), 0)
        writer.add_histogram("h", weft.ones(3, dtype=weft.bfloat16))
        writer.add_image("i", weft.full((3, 2, 2), weft.nan))
    assert scalars(tmp_path) == [("a", 0, 70144.0)]
