"""Transforms of sound as modules, with torchaudio's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import nn
from weft.audio import functional as F
from weft.core.tensor import Tensor

__all__ = [
    "MFCC",
    "AmplitudeToDB",
    "ComputeDeltas",
    "FrequencyMasking",
    "InverseSpectrogram",
    "MelScale",
    "MelSpectrogram",
    "MuLawDecoding",
    "MuLawEncoding",
    "Resample",
    "Spectrogram",
    "TimeMasking",
]

Window = Callable[..., Tensor]


class _Windowed(nn.Module):
    """How a waveform is cut into frames: by default whole windows, in steps of half a window."""

    window: Tensor

    def __init__(
        self,
        n_fft: int,
        win_length: int | None,
        hop_length: int | None,
        pad: int,
        window_fn: Window,
        normalized: bool | str,
        wkwargs: dict[str, Any] | None,
        *edges: Any,
    ) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 2 if hop_length is None else hop_length
        self.pad, self.normalized = pad, normalized
        self.center, self.pad_mode, self.onesided = edges
        self.register_buffer("window", window_fn(self.win_length, **(wkwargs or {})))


class Spectrogram(_Windowed):
    """The spectrogram of waveforms."""

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: Window = weft.hann_window,
        power: float | None = 2.0,
        normalized: bool | str = False,
        wkwargs: dict[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
        return_complex: bool | None = None,
    ) -> None:
        edges = center, pad_mode, onesided
        super().__init__(n_fft, win_length, hop_length, pad, window_fn, normalized, wkwargs, *edges)
        self.power = power

    def forward(self, waveform: Tensor) -> Tensor:
        """(…, frequency, time) of (…, time)."""
        return F.spectrogram(
            waveform,
            self.pad,
            self.window,
            self.n_fft,
            self.hop_length,
            self.win_length,
            self.power,
            self.normalized,
            self.center,
            self.pad_mode,
            self.onesided,
        )


class InverseSpectrogram(_Windowed):
    """The waveform of a complex spectrogram."""

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: Window = weft.hann_window,
        normalized: bool | str = False,
        wkwargs: dict[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
    ) -> None:
        edges = center, pad_mode, onesided
        super().__init__(n_fft, win_length, hop_length, pad, window_fn, normalized, wkwargs, *edges)

    def forward(self, spectrogram: Tensor, length: int | None = None) -> Tensor:
        """(…, time) of (…, frequency, time)."""
        return F.inverse_spectrogram(
            spectrogram,
            length,
            self.pad,
            self.window,
            self.n_fft,
            self.hop_length,
            self.win_length,
            self.normalized,
            self.center,
            self.pad_mode,
            self.onesided,
        )


class AmplitudeToDB(nn.Module):
    """Decibels of powers (``stype="power"``) or amplitudes (``"magnitude"``)."""

    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        super().__init__()
        if stype not in ("power", "magnitude"):
            raise ValueError(f"stype is 'power' or 'magnitude', not {stype!r}")
        if top_db is not None and top_db < 0:
            raise ValueError("top_db must be positive value")
        self.stype = stype
        self.top_db = top_db
        self.multiplier = 10.0 if stype == "power" else 20.0
        self.amin = 1e-10

    def forward(self, x: Tensor) -> Tensor:
        """The decibels, with 1 as the reference."""
        return F.amplitude_to_DB(x, self.multiplier, self.amin, 0.0, self.top_db)


class MelScale(nn.Module):
    """Mel bands of a spectrogram."""

    fb: Tensor

    def __init__(
        self,
        n_mels: int = 128,
        sample_rate: int = 16000,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_stft: int = 201,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        super().__init__()
        self.n_mels = n_mels
        self.sample_rate = sample_rate
        self.f_min = f_min
        self.f_max = float(sample_rate // 2) if f_max is None else f_max
        if f_min > self.f_max:
            raise ValueError(f"Require f_min: {f_min} <= f_max: {self.f_max}")
        filters = F.melscale_fbanks(n_stft, f_min, self.f_max, n_mels, sample_rate, norm, mel_scale)
        self.register_buffer("fb", filters)

    def forward(self, specgram: Tensor) -> Tensor:
        """(…, mels, time) of (…, frequency, time)."""
        return (specgram.transpose(-1, -2) @ self.fb).transpose(-1, -2)


class MelSpectrogram(nn.Module):
    """The mel bands of waveforms."""

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        pad: int = 0,
        n_mels: int = 128,
        window_fn: Window = weft.hann_window,
        power: float = 2.0,
        normalized: bool | str = False,
        wkwargs: dict[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool | None = None,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        super().__init__()
        self.sample_rate = sample_rate
        self.n_mels = n_mels
        self.spectrogram = Spectrogram(
            n_fft,
            win_length,
            hop_length,
            pad,
            window_fn,
            power,
            normalized,
            wkwargs,
            center,
            pad_mode,
        )
        self.mel_scale = MelScale(
            n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1, norm, mel_scale
        )

    def forward(self, waveform: Tensor) -> Tensor:
        """(…, mels, time) of (…, time)."""
        return self.mel_scale(self.spectrogram(waveform))


class MFCC(nn.Module):
    """The cosine transform of mel bands in decibels (or logarithms, with ``log_mels``)."""

    dct_mat: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        n_mfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_mels: bool = False,
        melkwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if dct_type != 2:
            raise ValueError(f"DCT type not supported: {dct_type}")
        self.sample_rate = sample_rate
        self.n_mfcc = n_mfcc
        self.log_mels = log_mels
        self.amplitude_to_DB = AmplitudeToDB("power", 80.0)
        self.MelSpectrogram = MelSpectrogram(sample_rate, **(melkwargs or {}))
        if n_mfcc > self.MelSpectrogram.n_mels:
            raise ValueError("Cannot select more MFCC coefficients than # mel bins")
        self.register_buffer("dct_mat", F.create_dct(n_mfcc, self.MelSpectrogram.n_mels, norm))

    def forward(self, waveform: Tensor) -> Tensor:
        """(…, coefficients, time) of (…, time)."""
        mels = self.MelSpectrogram(waveform)
        loud = (mels + 1e-6).log() if self.log_mels else self.amplitude_to_DB(mels)
        return (loud.transpose(-1, -2) @ self.dct_mat).transpose(-1, -2)


class Resample(nn.Module):
    """Waveforms at another sample rate; the kernel is made once, in ``dtype`` (float32)."""

    def __init__(
        self,
        orig_freq: int = 16000,
        new_freq: int = 16000,
        resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.orig_freq, self.new_freq = orig_freq, new_freq
        self.orig, self.new = F._reduced(orig_freq, new_freq)
        if self.orig != self.new:
            kernel, self.width = F._sinc_kernel(
                self.orig, self.new, lowpass_filter_width, rolloff, resampling_method, beta
            )
            self.register_buffer("kernel", kernel.to(dtype or weft.float32))

    def forward(self, waveform: Tensor) -> Tensor:
        """(…, time) at the new rate."""
        if self.orig == self.new:
            return waveform
        return F.apply_kernel(waveform, self.orig, self.new, self.kernel, self.width)


class MuLawEncoding(nn.Module):
    """Samples as whole numbers, finer where they are small."""

    def __init__(self, quantization_channels: int = 256) -> None:
        super().__init__()
        self.quantization_channels = quantization_channels

    def forward(self, x: Tensor) -> Tensor:
        """The whole numbers."""
        return F.mu_law_encoding(x, self.quantization_channels)


class MuLawDecoding(nn.Module):
    """Samples of what ``MuLawEncoding`` gave."""

    def __init__(self, quantization_channels: int = 256) -> None:
        super().__init__()
        self.quantization_channels = quantization_channels

    def forward(self, x_mu: Tensor) -> Tensor:
        """The samples."""
        return F.mu_law_decoding(x_mu, self.quantization_channels)


class ComputeDeltas(nn.Module):
    """The slopes of features over a window of frames."""

    def __init__(self, win_length: int = 5, mode: str = "replicate") -> None:
        super().__init__()
        self.win_length = win_length
        self.mode = mode

    def forward(self, specgram: Tensor) -> Tensor:
        """Slopes of the same shape."""
        return F.compute_deltas(specgram, self.win_length, self.mode)


class _AxisMasking(nn.Module):
    def __init__(self, mask_param: int, axis: int, iid_masks: bool, p: float = 1.0) -> None:
        super().__init__()
        self.mask_param = mask_param
        self.axis = axis
        self.iid_masks = iid_masks
        self.p = p

    def forward(self, specgram: Tensor, mask_value: Any = 0.0) -> Tensor:
        """The spectrogram (…, frequency, time) with a range masked."""
        axis = self.axis + specgram.ndim - 3
        mask = F.mask_along_axis_iid if self.iid_masks else F.mask_along_axis
        return mask(specgram, self.mask_param, mask_value, axis, p=self.p)


class FrequencyMasking(_AxisMasking):
    """Fill up to ``freq_mask_param`` neighbouring frequencies."""

    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        super().__init__(freq_mask_param, 1, iid_masks)


class TimeMasking(_AxisMasking):
    """Fill up to ``time_mask_param`` neighbouring frames, and no more than a share ``p``."""

    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"The value of p must be between 0.0 and 1.0 ({p} given).")
        super().__init__(time_mask_param, 2, iid_masks, p=p)
