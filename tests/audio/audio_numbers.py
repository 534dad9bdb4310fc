"""Numbers of torchaudio that weft.audio is compared with, and how they are made.

``python tests/audio/audio_numbers.py`` in an environment with torchaudio (its compiled half is not
needed) writes ``numbers.json``; the tests compute the same from weft. Both run the functions below.
"""

from __future__ import annotations

import json
import pathlib
import warnings
from typing import Any

import numpy as np

PATH = pathlib.Path(__file__).with_name("numbers.json")


def numbers() -> dict[str, Any]:
    return json.loads(PATH.read_text())


def sound(torch: Any, channels: int = 2, count: int = 900) -> Any:
    """Made channels: tones that rise, with some noise."""
    t = np.arange(count) / 8000
    draw = np.random.default_rng(0)
    made = [
        0.5 * np.sin(2 * np.pi * (300 + 200 * c + 2000 * t) * t) + 0.01 * draw.normal(size=count)
        for c in range(channels)
    ]
    return torch.from_numpy(np.stack(made).astype(np.float32))


def digest(value: Any) -> list[Any]:
    """The shape, some sums and some elements of a tensor."""
    array = np.asarray(value)
    if np.iscomplexobj(array):
        array = np.stack([array.real, array.imag], -1)
    flat = array.astype(np.float64).ravel()
    weights = np.cos(np.arange(flat.size))
    some = flat[:: max(1, flat.size // 12)]
    return [list(array.shape), [float(np.abs(flat).sum()), float(flat @ weights)], some.tolist()]


SPECTROGRAMS = {
    "default": {},
    "small": {"n_fft": 64, "hop_length": 16, "power": 1.0},
    "short window": {"n_fft": 128, "win_length": 100, "pad": 5, "normalized": True},
    "by frame": {"n_fft": 64, "normalized": "frame_length", "center": False},
    "complex": {"n_fft": 64, "power": None, "normalized": "window"},
    "two sides": {"n_fft": 32, "onesided": False, "pad_mode": "constant"},
}
BANKS = {
    "htk": (65, 0.0, 4000.0, 20, 8000),
    "slaney": (201, 50.0, 7000.0, 30, 16000, "slaney", "slaney"),
    "htk of one area": (129, 20.0, 3800.0, 24, 8000, "slaney", "htk"),
    "slaney plain": (101, 0.0, 11025.0, 16, 22050, None, "slaney"),
}
RESAMPLED = {
    "down": (8000, 5000, {}),
    "up": (8000, 11025, {}),
    "kaiser": (8000, 6000, {"resampling_method": "sinc_interp_kaiser", "lowpass_filter_width": 16}),
    "wide": (8000, 16000, {"lowpass_filter_width": 20, "rolloff": 0.9}),
    "same": (8000, 8000, {}),
}


def made(torch: Any, audio: Any) -> dict[str, Any]:
    F, T = audio.functional, audio.transforms
    x = sound(torch)
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # filters of some defaults are empty, which warns
        for name, options in SPECTROGRAMS.items():
            found[f"spectrogram {name}"] = T.Spectrogram(**options)(x)
        for name, arguments in BANKS.items():
            found[f"bank {name}"] = F.melscale_fbanks(*arguments)
        for norm in (None, "ortho"):
            found[f"dct {norm}"] = F.create_dct(7, 20, norm)
        power = T.Spectrogram(n_fft=64)(x)
        for top in (None, 30.0):
            found[f"decibels {top}"] = T.AmplitudeToDB("power", top)(power)
        found["decibels of a batch"] = T.AmplitudeToDB("magnitude", 20.0)(power[:, None])
        found["decibels of one"] = T.AmplitudeToDB("magnitude", 20.0)(power[0])
        found["amplitude"] = F.DB_to_amplitude(T.AmplitudeToDB()(power), 2.0, 0.5)
        found["mel"] = T.MelSpectrogram(8000, n_fft=256, n_mels=20, mel_scale="slaney")(x)
        found["mel scale"] = T.MelScale(12, 8000, n_stft=33)(power)
        found["mfcc default"] = T.MFCC()(x)
        small = {"n_fft": 256, "hop_length": 80, "n_mels": 23, "center": False}
        found["mfcc"] = T.MFCC(8000, 13, melkwargs=small)(x)
        found["mfcc log"] = T.MFCC(8000, 13, norm=None, log_mels=True, melkwargs=small)(x[0])
    for name, (old, new, options) in RESAMPLED.items():
        found[f"resample {name}"] = F.resample(x, old, new, **options)
        found[f"resample module {name}"] = T.Resample(old, new, **options)(x)
    found["deltas"] = F.compute_deltas(power)
    found["deltas wide"] = T.ComputeDeltas(9, "constant")(power)
    coded = T.MuLawEncoding(64)(x)
    found["mu law"] = coded
    found["mu law back"] = T.MuLawDecoding(64)(coded)
    found["preemphasis"] = F.preemphasis(x)
    whole = T.Spectrogram(64, power=None)(x)
    found["inverse"] = T.InverseSpectrogram(64)(whole, 900)
    for name, mask in {
        "time": T.TimeMasking(20),
        "time, a share": T.TimeMasking(20, p=0.2),
        "each time": T.TimeMasking(20, iid_masks=True),
        "frequency": T.FrequencyMasking(15),
        "each frequency": T.FrequencyMasking(15, iid_masks=True),
    }.items():
        torch.manual_seed(5)
        found[f"mask {name}"] = mask(power[None].repeat(3, 1, 1, 1), -1.0)
    result = {name: digest(value) for name, value in found.items()}
    result["names"] = [list(T.MFCC(melkwargs={"n_mels": 40}).state_dict())]
    result["distance"] = [F.edit_distance("sitting", "kitten"), F.edit_distance([], [1, 2])]
    return result


def main() -> None:
    import torch
    import torchaudio

    source = f"torchaudio {torchaudio.__version__}, torch {torch.__version__}"
    text = json.dumps({"source": source, "numbers": made(torch, torchaudio)}, separators=(",", ":"))
    PATH.write_text(text + "\n")


if __name__ == "__main__":
    main()
