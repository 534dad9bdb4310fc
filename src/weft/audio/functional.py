"""Spectrograms, mel filters, decibels, masks and resampling."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.nn import functional as F

__all__ = [
    "DB_to_amplitude",
    "amplitude_to_DB",
    "compute_deltas",
    "create_dct",
    "edit_distance",
    "inverse_spectrogram",
    "mask_along_axis",
    "mask_along_axis_iid",
    "melscale_fbanks",
    "mu_law_decoding",
    "mu_law_encoding",
    "preemphasis",
    "resample",
    "spectrogram",
]


def _norms(normalized: bool | str) -> tuple[bool, bool]:
    """Whether to divide by the root of the frame's length, and by the window's."""
    if isinstance(normalized, str):
        if normalized not in ("window", "frame_length"):
            raise ValueError(f"Invalid normalized parameter: {normalized}")
        return normalized == "frame_length", normalized == "window"
    return False, normalized


def spectrogram(
    waveform: Tensor,
    pad: int,
    window: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    power: float | None,
    normalized: bool | str,
    center: bool = True,
    pad_mode: str = "reflect",
    onesided: bool = True,
    return_complex: bool | None = None,
) -> Tensor:
    """The spectrogram (…, frequency, time) of waveforms (…, time); complex if ``power`` is None."""
    if pad > 0:
        waveform = F.pad(waveform, (pad, pad))
    by_frame, by_window = _norms(normalized)
    shape = waveform.shape
    found = weft.stft(
        waveform.reshape(-1, shape[-1]),
        n_fft,
        hop_length,
        win_length,
        window,
        center=center,
        pad_mode=pad_mode,
        normalized=by_frame,
        onesided=onesided,
        return_complex=True,
    )
    found = found.reshape(*shape[:-1], *found.shape[-2:])
    if by_window:
        found = found / window.pow(2.0).sum().sqrt()
    if power is None:
        return found
    return found.abs() if power == 1.0 else found.abs().pow(power)


def inverse_spectrogram(
    spectrogram: Tensor,
    length: int | None,
    pad: int,
    window: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    normalized: bool | str,
    center: bool = True,
    pad_mode: str = "reflect",
    onesided: bool = True,
) -> Tensor:
    """The waveform of a complex spectrogram."""
    if not spectrogram.is_complex():
        raise ValueError("Expected `spectrogram` to be complex dtype.")
    by_frame, by_window = _norms(normalized)
    if by_window:
        spectrogram = spectrogram * window.pow(2.0).sum().sqrt()
    shape = spectrogram.shape
    made = weft.istft(
        spectrogram.reshape(-1, *shape[-2:]),
        n_fft,
        hop_length,
        win_length,
        window,
        center=center,
        normalized=by_frame,
        onesided=onesided,
        length=None if length is None else length + 2 * pad,
    )
    if length is not None and pad > 0:
        made = made[:, pad:-pad]
    return made.reshape(*shape[:-2], made.shape[-1])


def amplitude_to_DB(
    x: Tensor, multiplier: float, amin: float, db_multiplier: float, top_db: float | None = None
) -> Tensor:
    """Decibels, no lower than ``top_db`` below the highest of each spectrogram.

    >>> amplitude_to_DB(weft.tensor([[1.0, 0.1]]), 10.0, 1e-10, 0.0)
    tensor([[  0., -10.]])
    """
    found = multiplier * x.clamp(min=amin).log10() - multiplier * db_multiplier
    if top_db is None:
        return found
    # The channels of one sound share their highest value.
    channels = x.shape[-3] if x.ndim > 2 else 1
    packed = found.reshape(-1, channels, *x.shape[-2:])
    floor = packed.amax(dim=(-3, -2, -1)) - top_db
    return packed.maximum(floor.reshape(-1, 1, 1, 1)).reshape(x.shape)


def DB_to_amplitude(x: Tensor, ref: float, power: float) -> Tensor:
    """Amplitudes (``power`` 0.5) or powers (1) of decibels."""
    return ref * weft.pow(weft.pow(10.0, 0.1 * x), power)


def _hz_to_mel(hertz: float, mel_scale: str) -> float:
    if mel_scale not in ("slaney", "htk"):
        raise ValueError('mel_scale should be one of "htk" or "slaney".')
    if mel_scale == "htk":
        return 2595.0 * math.log10(1.0 + hertz / 700.0)
    # Linear up to 1000 Hz, which is 15 mel; then 27 mel for a factor of 6.4.
    if hertz >= 1000.0:
        return 15.0 + 27.0 * math.log(hertz / 1000.0) / math.log(6.4)
    return hertz * 3 / 200


def _mel_to_hz(mels: Tensor, mel_scale: str) -> Tensor:
    if mel_scale == "htk":
        return 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    above = 1000.0 * weft.exp(math.log(6.4) / 27.0 * (mels - 15.0))
    return weft.where(mels >= 15.0, above, mels * (200.0 / 3))


def melscale_fbanks(
    n_freqs: int,
    f_min: float,
    f_max: float,
    n_mels: int,
    sample_rate: int,
    norm: str | None = None,
    mel_scale: str = "htk",
) -> Tensor:
    """Triangular filters (frequencies, mels), evenly spaced on the mel scale.

    ``norm="slaney"`` gives each the same area.
    """
    if norm is not None and norm != "slaney":
        raise ValueError('norm must be one of None or "slaney"')
    low, high = _hz_to_mel(f_min, mel_scale), _hz_to_mel(f_max, mel_scale)
    points = _mel_to_hz(weft.linspace(low, high, n_mels + 2), mel_scale)
    frequencies = weft.linspace(0, sample_rate // 2, n_freqs)
    widths = points[1:] - points[:-1]
    slopes = points[None] - frequencies[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    filters = rising.minimum(falling).clamp(min=0)
    if norm == "slaney":
        filters = filters * (2.0 / (points[2:] - points[:n_mels]))
    if (filters.amax(dim=0) == 0.0).any():
        warnings.warn(
            "At least one mel filterbank has all zero values. "
            f"The value for `n_mels` ({n_mels}) may be set too high. "
            f"Or, the value for `n_freqs` ({n_freqs}) may be set too low.",
            stacklevel=2,
        )
    return filters


def create_dct(n_mfcc: int, n_mels: int, norm: str | None) -> Tensor:
    """The matrix (mels, coefficients) of the cosine transform of type II."""
    if norm is not None and norm != "ortho":
        raise ValueError('norm must be either "ortho" or None')
    n = weft.arange(float(n_mels))
    k = weft.arange(float(n_mfcc)).unsqueeze(1)
    matrix = weft.cos(math.pi / float(n_mels) * (n + 0.5) * k)
    if norm is None:
        return 2.0 * matrix.t()
    matrix[0] *= 1.0 / math.sqrt(2.0)
    return (matrix * math.sqrt(2.0 / float(n_mels))).t()


def mu_law_encoding(x: Tensor, quantization_channels: int) -> Tensor:
    """Samples from -1 to 1 as whole numbers, finer where they are small."""
    mu = quantization_channels - 1.0
    x = x if x.is_floating_point() else x.float()
    curved = x.sign() * weft.log1p(mu * x.abs()) / math.log1p(mu)
    return ((curved + 1) / 2 * mu + 0.5).to(weft.int64)


def mu_law_decoding(x_mu: Tensor, quantization_channels: int) -> Tensor:
    """The samples of whole numbers that ``mu_law_encoding`` gave."""
    mu = quantization_channels - 1.0
    x = (x_mu if x_mu.is_floating_point() else x_mu.float()) / mu * 2 - 1.0
    return x.sign() * (weft.exp(x.abs() * math.log1p(mu)) - 1.0) / mu


def preemphasis(waveform: Tensor, coeff: float = 0.97) -> Tensor:
    """Each sample less ``coeff`` times the one before."""
    first, rest = waveform[..., :1], waveform[..., 1:] - coeff * waveform[..., :-1]
    return weft.cat([first, rest], dim=-1)


def compute_deltas(specgram: Tensor, win_length: int = 5, mode: str = "replicate") -> Tensor:
    """The slopes of features (…, features, time) over a window of frames."""
    if win_length < 3:
        raise ValueError(
            f"Window length should be greater than or equal to 3. Found win_length {win_length}"
        )
    n = (win_length - 1) // 2
    flat = specgram.reshape(-1, 1, specgram.shape[-1])
    kernel = weft.arange(-n, n + 1, dtype=specgram.dtype).reshape(1, 1, -1)
    slopes = F.conv1d(F.pad(flat, (n, n), mode=mode), kernel)
    return (slopes / (n * (n + 1) * (2 * n + 1) / 3)).reshape(specgram.shape)


def _mask_limit(mask_param: int, p: float, dim: int, axis: int, size: int, least: int) -> int:
    if dim < least:
        raise ValueError(f"Spectrogram must have at least {least} dimensions ({dim} given).")
    if axis not in (dim - 2, dim - 1):
        raise ValueError(
            f"Only Frequency and Time masking are supported (axis {dim - 2} and axis {dim - 1} "
            f"supported; {axis} given)."
        )
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"The value of p must be between 0.0 and 1.0 ({p} given).")
    return mask_param if p == 1.0 else min(mask_param, int(size * p))


def mask_along_axis(
    specgram: Tensor, mask_param: int, mask_value: float, axis: int, p: float = 1.0
) -> Tensor:
    """Mask a range of random length and position, the same for all spectrograms (…, freq, time)."""
    size = specgram.shape[axis]
    limit = _mask_limit(mask_param, p, specgram.ndim, axis, size, 2)
    if limit < 1:
        return specgram
    length = weft.rand(1) * limit
    start = (weft.rand(1) * (size - length)).long()
    places = weft.arange(size)
    mask = (places >= start) & (places < start + length.long())
    if axis == specgram.ndim - 2:
        mask = mask.unsqueeze(-1)
    return specgram.masked_fill(mask, mask_value)


def mask_along_axis_iid(
    specgrams: Tensor, mask_param: int, mask_value: Any, axis: int, p: float = 1.0
) -> Tensor:
    """Mask a range of random length and position, different for each example and channel."""
    size = specgrams.shape[axis]
    limit = _mask_limit(mask_param, p, specgrams.ndim, axis, size, 3)
    if limit < 1:
        return specgrams
    shape = specgrams.shape[:-2]
    length = weft.rand(shape, dtype=specgrams.dtype) * limit
    start = (weft.rand(shape, dtype=specgrams.dtype) * (size - length)).long()
    end = start + length.long()
    places = weft.arange(size)
    transposed = specgrams.transpose(axis, -1)
    mask = (places >= start[..., None, None]) & (places < end[..., None, None])
    return transposed.masked_fill(mask, mask_value).transpose(axis, -1)


def _sinc_kernel(
    orig: int,
    new: int,
    width_in_zeros: int,
    rolloff: float,
    method: str,
    beta: float | None,
) -> tuple[Tensor, int]:
    """A filter (new, 1, taps) for each of the positions of new samples between old ones."""
    if width_in_zeros <= 0:
        raise ValueError(f"lowpass_filter_width is positive, not {width_in_zeros}")
    # Some room below the highest frequency keeps the window's flanks out of the sound.
    cutoff = min(orig, new) * rolloff
    width = math.ceil(width_in_zeros * orig / cutoff)
    taps = weft.arange(-width, width + orig, dtype=weft.float64)[None, None] / orig
    shifts = weft.arange(0, -new, -1, dtype=weft.float64)[:, None, None] / new
    t = ((shifts + taps) * cutoff).clamp(-width_in_zeros, width_in_zeros)
    if method == "sinc_interp_hann":
        window = weft.cos(t * math.pi / width_in_zeros / 2) ** 2
    elif method == "sinc_interp_kaiser":
        beta = 14.769656459379492 if beta is None else beta
        inside = (1 - (t / width_in_zeros) ** 2).sqrt()
        window = weft.i0(beta * inside) / weft.i0(weft.tensor(float(beta), dtype=weft.float64))
    else:
        raise ValueError(
            f"resampling_method is 'sinc_interp_hann' or 'sinc_interp_kaiser', not {method!r}"
        )
    return weft.sinc(t) * window * (cutoff / orig), width


def resample(
    waveform: Tensor,
    orig_freq: int,
    new_freq: int,
    lowpass_filter_width: int = 6,
    rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann",
    beta: float | None = None,
) -> Tensor:
    """Waveforms (…, time) at another sample rate, by interpolation with a windowed sinc."""
    orig, new = _reduced(orig_freq, new_freq)
    if orig == new:
        return waveform
    kernel, width = _sinc_kernel(orig, new, lowpass_filter_width, rolloff, resampling_method, beta)
    return apply_kernel(waveform, orig, new, kernel.to(waveform.dtype), width)


def _reduced(orig_freq: int, new_freq: int) -> tuple[int, int]:
    if orig_freq <= 0 or new_freq <= 0:
        raise ValueError(f"frequencies are positive, not {orig_freq} and {new_freq}")
    if int(orig_freq) != orig_freq or int(new_freq) != new_freq:
        raise ValueError(f"frequencies are whole numbers, not {orig_freq} and {new_freq}")
    common = math.gcd(int(orig_freq), int(new_freq))
    return int(orig_freq) // common, int(new_freq) // common


def apply_kernel(waveform: Tensor, orig: int, new: int, kernel: Tensor, width: int) -> Tensor:
    """Resample by a kernel that is there already."""
    if not waveform.is_floating_point():
        raise TypeError(
            f"Expected floating point type for waveform tensor, but received {waveform.dtype}."
        )
    shape = waveform.shape
    flat = F.pad(waveform.reshape(-1, 1, shape[-1]), (width, width + orig))
    made = F.conv1d(flat, kernel, stride=orig).transpose(1, 2).reshape(flat.shape[0], -1)
    made = made[:, : math.ceil(new * shape[-1] / orig)]
    return made.reshape(*shape[:-1], made.shape[-1])


def edit_distance(seq1: Sequence[Any], seq2: Sequence[Any]) -> int:
    """How many insertions, deletions and replacements turn one sequence into another.

    >>> edit_distance("kitten", "sitting")
    3
    """
    above = list(range(len(seq2) + 1))
    for i, a in enumerate(seq1, 1):
        row = [i]
        for j, b in enumerate(seq2, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]
