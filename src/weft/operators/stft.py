"""Short-time Fourier transforms: spectra of overlapping windows, and back."""

from __future__ import annotations

import warnings

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api
from weft.operators.fft import COUNT, NONE, ROOT, fft_c2c_op, fft_c2r_op, fft_r2c_op
from weft.operators.views import place_op, unfold_back_op


def _check(good: bool, name: str, message: str) -> None:
    if not good:
        raise RuntimeError(f"{name}: {message}\n  at {errors.here()}")


def _full_window(window: Tensor | None, win_length: int, n_fft: int, name: str) -> Tensor | None:
    """The window filled up with zeros on both sides; None where it would be ones throughout."""
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied, which is known to "
            "cause spectral leakage. To suppress this warning, explicitly set "
            f"`window=torch.ones({'n_fft' if win_length == n_fft else 'win_length'})`.",
            UserWarning,
            stacklevel=3,
        )
        if win_length == n_fft:
            return None
        window = wrap(np.ones(win_length, np.float32))
    _check(
        window.ndim == 1 and window._a.size == win_length,
        name,
        f"expected a 1D window tensor of size equal to win_length={win_length}, but got window "
        f"with size {list(window._a.shape)}",
    )
    if win_length == n_fft:
        return window
    left = (n_fft - win_length) // 2
    return place_op(window, shape=(n_fft,), index=(slice(left, left + win_length),))


def _sizes(n_fft: int, hop: int | None, win: int | None, name: str) -> tuple[int, int]:
    hop = n_fft // 4 if hop is None else int(hop)
    win = n_fft if win is None else int(win)
    _check(hop > 0, name, f"expected hop_length > 0, but got hop_length={hop}")
    _check(0 < win <= n_fft, name, f"expected 0 < win_length <= n_fft, but got win_length={win}")
    return hop, win


def _padded(x: Tensor, amount: int, mode: str) -> Tensor:
    from weft.operators.arranging import pad

    return pad(x.unsqueeze(1), (amount, amount), mode).squeeze(1)


@api.both
@api.no_view
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of windows that move over a signal."""
    complex_result = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        _check(
            complex_result,
            "stft",
            "stft requires the return_complex parameter be given for real inputs; set "
            "return_complex=True",
        )
        return_complex = True
    _check(
        not center or align_to_window is None,
        "stft",
        "stft align_to_window should only be set when center = false",
    )
    _check(
        input.is_floating_point() or input.is_complex(),
        "stft",
        "expected a tensor of floating point or complex values",
    )
    _check(1 <= input.ndim <= 2, "stft", "expected a 1D or 2D tensor")
    hop, win = _sizes(n_fft, hop_length, win_length, "stft")
    x = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        x = _padded(x, n_fft // 2, pad_mode)
    elif align_to_window:
        left = (n_fft - win) // 2
        length = x._a.shape[1]
        shape = (x._a.shape[0], length + n_fft - win)
        x = place_op(x, shape=shape, index=(slice(None), slice(left, left + length)))
    length = x._a.shape[1]
    _check(0 < n_fft <= length, "stft", f"expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    whole = _full_window(window, win, n_fft, "stft")
    one_side = not complex_result if onesided is None else onesided
    _check(
        not (one_side and complex_result),
        "stft",
        "Cannot have onesided output if window or input is complex",
    )
    frames = x.unfold(1, n_fft, hop)
    frames = frames if whole is None else frames * whole
    spectra = _spectra(frames, ROOT if normalized else NONE, one_side).transpose(1, 2)
    spectra = spectra if input.ndim == 2 else spectra.squeeze(0)
    return spectra if return_complex else api.FUNCTIONS["view_as_real"](spectra)


def _spectra(frames: Tensor, norm: int, one_side: bool) -> Tensor:
    if frames.is_complex():
        return fft_c2c_op(frames, dim=(2,), norm=norm, forward=True)
    return fft_r2c_op(frames, dim=(2,), norm=norm, onesided=one_side)


def _added_up(frames: Tensor, length: int, hop: int) -> Tensor:
    """Frames laid over one another and added."""
    shape = (frames._a.shape[0], length)
    return unfold_back_op(frames, shape=shape, dim=1, size=frames._a.shape[2], step=hop)


@api.both
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose ``stft`` is given, by the least squares of overlapping windows."""
    _check(
        input.is_complex(),
        "istft",
        "istft requires a complex-valued input tensor matching the output from stft with "
        "return_complex=True.",
    )
    _check(2 <= input.ndim <= 3 and input._a.size > 0, "istft", "expected a 2D or 3D tensor")
    hop, win = _sizes(n_fft, hop_length, win_length, "istft")
    _check(hop <= win, "istft", "expected 0 < hop_length <= win_length")
    x = (input if input.ndim == 3 else input.unsqueeze(0)).transpose(1, 2)
    one_side = x._a.shape[2] != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if one_side else n_fft
    _check(
        x._a.shape[2] == wanted,
        "istft",
        "expected the frequency dimension (3rd to the last) of the input tensor to match "
        f"{'n_fft / 2 + 1' if one_side else 'n_fft'}={wanted}, but got {x._a.shape[2]}",
    )
    _check(
        not (one_side and (return_complex or (window is not None and window.is_complex()))),
        "istft",
        "Cannot have onesided output if window or input is complex",
    )
    whole = _full_window(window, win, n_fft, "istft")
    frames = _signals(x, n_fft, ROOT if normalized else COUNT, one_side, return_complex)
    y = _overlapped(frames, whole, n_fft, hop, center, length)
    return y if input.ndim == 3 else y.squeeze(0)


def _signals(x: Tensor, n_fft: int, norm: int, one_side: bool, return_complex: bool) -> Tensor:
    if return_complex:
        return fft_c2c_op(x, dim=(2,), norm=norm, forward=False)
    if not one_side:
        x = x[:, :, : n_fft // 2 + 1]
    return fft_c2r_op(x, dim=(2,), norm=norm, size=n_fft)


def _overlapped(
    frames: Tensor, window: Tensor | None, n_fft: int, hop: int, center: bool, length: int | None
) -> Tensor:
    """The frames added up and divided by what the windows add up to."""
    if window is None:
        window = beside(frames, np.ones(n_fft, frames.dtype.to_real().np))
    count = frames._a.shape[1]
    total = n_fft + hop * (count - 1)
    y = _added_up(frames * window, total, hop)
    weight = window * window
    envelope = _added_up(weight.expand(1, count, n_fft), total, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    y, envelope = y[:, start:end], envelope[:, start:end]
    lowest = 1.0 if envelope.is_meta else np.abs(host(envelope)).min(initial=np.inf)
    _check(lowest > 1e-11, "istft", f"window overlap add min: {lowest:g} is too small")
    y = y / envelope
    if end > total:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=3,
        )
        kept = y._a.shape[1]
        y = place_op(y, shape=(y._a.shape[0], end - start), index=(slice(None), slice(0, kept)))
    return y
