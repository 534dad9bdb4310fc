"""Sound: torchaudio's numbers, formulas in float64, files, decoders."""

from __future__ import annotations

import doctest
import importlib
import io
import itertools
import math
import pathlib
import pkgutil
import struct
import wave

import audio_numbers as table
import numpy as np
import pytest

import weft
from weft import audio
from weft.audio import functional as F
from weft.audio import transforms as T
from weft.audio.models import decoder

NUMBERS = table.numbers()


def test_numbers_of_torchaudio() -> None:
    assert "torchaudio 2.11" in NUMBERS["source"]
    found = table.made(weft, audio)
    assert found.keys() == NUMBERS["numbers"].keys()
    for name, expected in NUMBERS["numbers"].items():
        if name in ("names", "distance"):
            assert found[name] == expected
            continue
        assert found[name][0] == expected[0], name
        (total, mixed), some = expected[1:]
        # Sums of many terms are compared by what they are sums of.
        assert found[name][1] == pytest.approx([total, mixed], rel=1e-4, abs=1e-5 * total), name
        largest = max(map(abs, some))
        assert found[name][2] == pytest.approx(some, rel=2e-4, abs=1e-5 * largest), name


# --- formulas --------------------------------------------------------------------------------


def test_a_spectrogram_is_the_square_of_a_fourier_transform() -> None:
    x = table.sound(weft)[0]
    found = T.Spectrogram(n_fft=64, hop_length=20)(x)
    padded = np.pad(x.numpy().astype(float), 32, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(64) / 64)
    frames = [padded[i : i + 64] * window for i in range(0, len(padded) - 63, 20)]
    expected = np.abs(np.fft.rfft(frames)) ** 2
    np.testing.assert_allclose(found, expected.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_mel_filters_are_triangles_evenly_spaced_in_mel(scale: str) -> None:
    def mel(f: np.ndarray) -> np.ndarray:
        if scale == "htk":
            return 2595 * np.log10(1 + f / 700)
        return np.where(
            f < 1000, 3 * f / 200, 15 + 27 * np.log(np.maximum(f, 1e-9) / 1000) / np.log(6.4)
        )

    fine = np.linspace(0, 4000, 400001)
    corners = np.interp(
        np.linspace(mel(np.array(100.0)), mel(np.array(3800.0)), 12), mel(fine), fine
    )
    frequencies = np.linspace(0, 4000, 129)
    expected = np.stack([
        np.interp(frequencies, corners[i : i + 3], [0, 1, 0], left=0, right=0) for i in range(10)
    ])  # fmt: skip
    found = F.melscale_fbanks(129, 100.0, 3800.0, 10, 8000, mel_scale=scale)
    np.testing.assert_allclose(found.T, expected, atol=2e-4)
    areas = F.melscale_fbanks(4001, 100.0, 3800.0, 10, 8000, "slaney", scale).sum(0)
    np.testing.assert_allclose(areas, 1.0, rtol=2e-2)


def test_the_cosine_transform_is_scipys() -> None:
    scipy = pytest.importorskip("scipy.fft")
    x = np.random.default_rng(0).normal(size=(3, 20))
    for norm in (None, "ortho"):
        found = weft.from_numpy(x) @ F.create_dct(9, 20, norm).double()
        np.testing.assert_allclose(found, scipy.dct(x, norm=norm)[:, :9], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rates", [(8000, 16000), (16000, 8000), (8000, 11025)])
def test_a_resampled_tone_is_the_tone(rates: tuple[int, int]) -> None:
    old, new = rates
    tone = lambda rate: np.sin(2 * np.pi * 440 * np.arange(math.ceil(rate / 4)) / rate)
    found = F.resample(weft.from_numpy(tone(old)), old, new, lowpass_filter_width=32)
    expected = tone(new)
    assert found.shape == expected.shape
    inner = slice(new // 20, -new // 20)
    np.testing.assert_allclose(found.numpy()[inner], expected[inner], atol=2e-3)


def test_gradients_reach_the_waveform() -> None:
    x = table.sound(weft)[:1, :300].double().requires_grad_()
    mfcc = T.MFCC(8000, 5, melkwargs={"n_fft": 64, "n_mels": 10}).double()
    down = T.Resample(8000, 6000, dtype=weft.float64)
    assert weft.autograd.gradcheck(lambda w: mfcc(down(w)).sum(), (x,), fast_mode=True)


def test_refusals_of_sound() -> None:
    with pytest.warns(UserWarning, match="At least one mel filterbank has all zero values"):
        F.melscale_fbanks(20, 0.0, 4000.0, 40, 8000)
    for message, call in {
        "norm must be one of": lambda: F.melscale_fbanks(9, 0, 1, 2, 8, norm="area"),
        "mel_scale should be": lambda: F.melscale_fbanks(9, 0, 1, 2, 8, mel_scale="bark"),
        "more MFCC coefficients": lambda: T.MFCC(n_mfcc=50, melkwargs={"n_mels": 20}),
        "whole numbers": lambda: F.resample(weft.zeros(9), 8000.5, 4000),
        "not 'linear'": lambda: F.resample(weft.zeros(9), 8, 4, resampling_method="linear"),
        "at least 3 dimensions": lambda: T.TimeMasking(3, iid_masks=True)(weft.zeros(4, 5)),
        "Invalid normalized": lambda: T.Spectrogram(normalized="loud")(weft.zeros(900)),
        "not 'amplitude'": lambda: T.AmplitudeToDB("amplitude"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="floating point type"):
        F.resample(weft.zeros(9, dtype=weft.int16), 8, 4)


def test_examples_in_docstrings_of_audio() -> None:
    modules = [
        "weft.audio",
        *(m.name for m in pkgutil.walk_packages(audio.__path__, "weft.audio.")),
    ]
    results = [doctest.testmod(importlib.import_module(name)) for name in modules]
    assert sum(r.attempted for r in results) >= 5 and not any(r.failed for r in results)


# --- files -----------------------------------------------------------------------------------

WAYS = [
    ({"encoding": "PCM_U", "bits_per_sample": 8}, 1 / 128, "PCM_U", 8),
    ({"encoding": "PCM_S"}, 1 / 32768, "PCM_S", 16),
    ({"bits_per_sample": 24}, 1e-6, "PCM_S", 24),
    ({"encoding": "PCM_S", "bits_per_sample": 32}, 1e-7, "PCM_S", 32),
    ({}, 0, "PCM_F", 32),
    ({"bits_per_sample": 64}, 0, "PCM_F", 64),
]


@pytest.mark.parametrize(("options", "error", "encoding", "bits"), WAYS)
def test_files_come_back(
    options: dict, error: float, encoding: str, bits: int, tmp_path: pathlib.Path
) -> None:
    x = table.sound(weft, channels=3, count=101)
    path = tmp_path / "sound.wav"
    audio.save(path, x, 8000, **options)
    back, rate = audio.load(path)
    assert rate == 8000 and back.dtype == weft.float32
    np.testing.assert_allclose(back, x, atol=error)
    assert audio.info(path) == audio.AudioMetaData(8000, 101, 3, bits, encoding)
    part, _ = audio.load(str(path), frame_offset=40, num_frames=20, channels_first=False)
    assert weft.equal(part, back[:, 40:60].T)
    memory = io.BytesIO()
    audio.save(memory, x.T, 8000, channels_first=False, **options)
    assert memory.getvalue() == path.read_bytes()
    memory.seek(0)
    assert weft.equal(audio.load(memory)[0], back)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_files_are_those_of_the_standard_library(width: int, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "sound.wav")
    data = bytes(np.random.default_rng(0).integers(0, 256, 2 * width * 50, dtype=np.uint8))
    with wave.open(path, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(width)
        file.setframerate(44100)
        file.writeframes(data)
    whole, rate = audio.load(path, normalize=False)
    assert rate == 44100 and whole.shape == (2, 50)
    bits = {"bits_per_sample": 24} if width == 3 else {}
    audio.save(tmp_path / "again.wav", whole, 44100, **bits)
    with wave.open(str(tmp_path / "again.wav"), "rb") as file:
        assert file.getparams()[:4] == (2, width, 44100, 50)
        assert file.readframes(50) == data
    first = int.from_bytes(data[:width], "little", signed=width > 1) - (128 if width == 1 else 0)
    assert float(audio.load(path)[0][0, 0]) == pytest.approx(first / 2 ** (8 * width - 1))


def test_loud_samples_are_cut_off_and_odd_files_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "loud.wav"
    audio.save(path, weft.tensor([2.0, -2.0, 0.0]), 8000, encoding="PCM_S")
    assert audio.load(path, normalize=False)[0].tolist() == [[32767, -32768, 0]]
    whole = path.read_bytes()
    note = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk between, padded to even
    extended = b"fmt " + struct.pack("<IHHIIHH", 40, 0xFFFE, 1, 8000, 16000, 2, 16)
    extended += struct.pack("<HHIH", 22, 16, 0, 1) + b"\0" * 14
    path.write_bytes(whole[:12] + note + extended + whole[36:])
    assert audio.load(path, normalize=False)[0].tolist() == [[32767, -32768, 0]]
    path.write_bytes(whole[:-1])  # the last sample is cut off
    assert audio.load(path)[0].shape == (1, 2)


def test_refusals_of_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.wav"
    for data, message in {
        b"ID3 this is music of another kind": "not a WAV file",
        b"RIFF\0\0\0\0WAVE": "holds no samples",
        b"RIFF\0\0\0\0WAVEdata\0\0\0\0": "before their format",
        b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0\1\0\1\0": "cut off",
        b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 6, 1, 8, 8, 1, 8): "format 6, 8 bits",
        b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 0, 8, 8, 1, 8): "0 channels",
    }.items():
        path.write_bytes(data)
        with pytest.raises(audio.files.WavError, match=message):
            audio.load(path)
    for options, message in (
        ({"format": "mp3"}, "'wav' only"),
        ({"encoding": "ULAW"}, "encoding is one of"),
        ({"encoding": "PCM_S", "bits_per_sample": 8}, "no PCM_S of 8 bits"),
        ({"bits_per_sample": 12}, "of 12 bits"),
    ):
        with pytest.raises(ValueError, match=message):
            audio.save(path, weft.zeros(1, 4), 8000, **options)
    with pytest.raises(ValueError, match=r"shape \(channels, time\), not \(1, 2, 3\)"):
        audio.save(path, weft.zeros(1, 2, 3), 8000)
    with pytest.raises(ValueError, match="not int64"):
        audio.save(path, weft.zeros(1, 3, dtype=weft.long), 8000)


# --- decoders --------------------------------------------------------------------------------


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    joined = [s for i, s in enumerate(path) if i == 0 or s != path[i - 1]]
    return tuple(s for s in joined if s != blank)


@pytest.mark.parametrize("blank", [0, 2])
def test_a_wide_beam_finds_the_sums_over_all_alignments(blank: int) -> None:
    weft.manual_seed(blank)
    log_p = (2 * weft.randn(3, 5, 3, dtype=weft.float64)).log_softmax(-1)
    lengths = weft.tensor([5, 3, 4])
    found = decoder.ctc_beam_search(log_p, lengths, blank, beam_size=500, nbest=500)
    for row, count, best in zip(log_p.tolist(), lengths.tolist(), found, strict=True):
        sums: dict[tuple[int, ...], float] = {}
        for path in itertools.product(range(3), repeat=count):
            p = math.exp(sum(row[t][s] for t, s in enumerate(path)))
            text = collapsed(path, blank)
            sums[text] = sums.get(text, 0.0) + p
        assert {tuple(text) for text, _, _ in best} == set(sums)
        for text, score, frames in best:
            assert math.exp(score) == pytest.approx(sums[tuple(text)])
            assert len(frames) == len(text) and frames == sorted(frames)
        scores = [score for _, score, _ in best]
        assert scores == sorted(scores, reverse=True)


def test_a_beam_beats_the_best_path_where_it_should() -> None:
    # Each frame prefers the blank, but "a" has more probability over all its alignments.
    log_p = weft.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log()
    assert decoder.ctc_greedy_search(log_p) == [[]]
    (best,) = decoder.ctc_beam_search(log_p)[0]
    assert best[0] == [1] and math.exp(best[1]) == pytest.approx(0.64)


def test_decoders_agree_where_a_model_is_sure() -> None:
    weft.manual_seed(0)
    symbols = weft.tensor([0, 1, 1, 0, 1, 2, 2, 0, 3, 3])
    log_p = weft.nn.functional.one_hot(symbols, 5).float().mul(20).log_softmax(-1)[None]
    assert decoder.ctc_greedy_search(log_p) == [[1, 1, 2, 3]]
    search = decoder.ctc_decoder(None, ["-", "a", "b", "c", "d"], nbest=2, beam_size_token=3)
    best = search(log_p)[0]
    assert len(best) == 2 and best[0].score > best[1].score
    assert search.idxs_to_tokens(best[0].tokens) == ["a", "a", "b", "c"]
    assert best[0].timesteps.tolist() == [1, 4, 5, 8]
    assert decoder.ctc_greedy_search(log_p, [4]) == [[1]]


def test_refusals_of_decoders(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"\(batch, time, symbols\), not \(3, 4\)"):
        decoder.ctc_greedy_search(weft.zeros(3, 4))
    with pytest.raises(ValueError, match=r"lengths \[9\] do not fit"):
        decoder.ctc_beam_search(weft.zeros(1, 4, 2), [9])
    with pytest.raises(NotImplementedError, match="without a lexicon"):
        decoder.ctc_decoder("words.txt", ["-"])
    (tmp_path / "tokens").write_text("-\na\n")
    with pytest.raises(ValueError, match="emissions have 3 symbols, the decoder 2"):
        decoder.ctc_decoder(None, tmp_path / "tokens")(weft.zeros(1, 4, 3))
    with pytest.raises(ValueError, match="blank '_' is not among"):
        decoder.ctc_decoder(None, ["-"], blank_token="_")
