"""Connectionist temporal classification and bags of embeddings."""

from __future__ import annotations

import numpy as np


def ctc_loss(
    log_probs: np.ndarray,
    targets: np.ndarray,
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of every sample of (T, N, C) and log_alpha (N, T, 2 * S + 1)."""
    states, skip, inside = _ctc_states(targets, target_lengths, blank)
    emission = _emissions(log_probs, states)
    log_alpha = np.full(emission.shape, -np.inf, log_probs.dtype)
    log_alpha[:1, :, :2] = emission[:1, :, :2]
    for t in range(1, len(log_probs)):
        log_alpha[t] = _sum_paths(log_alpha[t - 1], skip) + emission[t]
    log_alpha = np.where(inside, log_alpha, -np.inf).swapaxes(0, 1)
    loss = _final_loss(log_alpha, input_lengths, target_lengths)
    if zero_infinity:
        loss = np.where(np.isposinf(loss), 0, loss)
    return loss.astype(log_probs.dtype, copy=False), log_alpha


def ctc_loss_grad(
    g: np.ndarray,
    log_probs: np.ndarray,
    targets: np.ndarray,
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
    log_alpha: np.ndarray,
    blank: int = 0,
    zero_infinity: bool = False,
) -> np.ndarray:
    """Return the gradient (T, N, C) of the losses for log_probs that sum to one."""
    states, skip, inside = _ctc_states(targets, target_lengths, blank)
    emission = _emissions(log_probs, states)
    log_beta = _log_beta(emission, skip, inside, input_lengths, target_lengths)
    loss = _final_loss(log_alpha, input_lengths, target_lengths)
    with np.errstate(invalid="ignore"):
        log_share = log_alpha.swapaxes(0, 1) + log_beta + loss[:, None] - emission
    occupancy = np.zeros_like(log_probs)
    time, sample = np.arange(len(log_probs))[:, None, None], np.arange(len(loss))[:, None]
    np.add.at(occupancy, (time, sample, states), np.where(inside, np.exp(log_share), 0))
    # A path through a class of probability zero has no defined share, even if none exists.
    occupancy[np.isneginf(log_probs)] = np.nan
    # The softmax term belongs to the normalisation of log_probs, which is taken for granted.
    grad = (np.exp(log_probs) - occupancy) * g[:, None]
    infinite = np.isposinf(loss)
    grad[:, infinite] = 0 if zero_infinity else np.nan
    running = np.arange(len(log_probs))[:, None] < input_lengths
    return np.where(running[..., None], grad, 0).astype(log_probs.dtype, copy=False)


def embedding_bag(
    weight: np.ndarray,
    indices: np.ndarray,
    offsets: np.ndarray | None = None,
    mode: str = "mean",
    per_sample_weights: np.ndarray | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Reduce the rows of every bag: the result, bag of each index, bag sizes, max_indices.

    Indices are (n,) with offsets or (bags, width) without; max_indices is given for "max" only.
    """
    bag, count = _bags(indices, offsets, include_last_offset)
    keep = _kept(indices, padding_idx, len(weight), bag, count)
    used, used_bag = indices.reshape(-1)[keep], bag[keep]
    sizes = np.bincount(used_bag, minlength=count)
    rows = weight[used]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1)[keep, None]
    filled = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[filled]
    out = np.zeros((count, weight.shape[1]), weight.dtype)
    if mode == "max":
        largest, position = _largest_rows(rows, starts, sizes[filled])
        out[filled] = largest
        max_indices = np.full(out.shape, -1, np.int64)
        max_indices[filled] = used[position]
        return out, bag, sizes, max_indices
    if len(starts):
        out[filled] = np.add.reduceat(rows, starts, axis=0)
    if mode == "mean":
        out /= np.maximum(sizes, 1)[:, None].astype(out.dtype)
    return out, bag, sizes, None


def embedding_bag_grad(
    g: np.ndarray,
    weight_shape: tuple[int, int],
    indices: np.ndarray,
    bag: np.ndarray,
    sizes: np.ndarray,
    max_indices: np.ndarray | None = None,
    mode: str = "mean",
    per_sample_weights: np.ndarray | None = None,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> np.ndarray:
    """Return the gradient of embedding_bag for its weight."""
    gw = np.zeros(weight_shape, g.dtype)
    if max_indices is not None:
        filled = sizes > 0
        np.add.at(gw, (max_indices[filled], np.arange(weight_shape[1])), g[filled])
        return gw
    keep = _kept(indices, padding_idx, weight_shape[0], bag, len(g))
    used, used_bag = indices.reshape(-1)[keep], bag[keep]
    rows = g[used_bag]
    if mode == "mean":
        rows = rows / sizes[used_bag, None].astype(g.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1)[keep, None]
    if scale_grad_by_freq:
        rows = rows / np.bincount(used, minlength=1)[used, None].astype(g.dtype)
    np.add.at(gw, used, rows)
    return gw


def embedding_bag_sample_grad(
    g: np.ndarray,
    weight: np.ndarray,
    indices: np.ndarray,
    bag: np.ndarray,
    padding_idx: int | None = None,
) -> np.ndarray:
    """Return the gradient of a "sum" embedding_bag for its per_sample_weights."""
    keep = _kept(indices, padding_idx, len(weight), bag, len(g))
    grad = np.zeros(indices.size, g.dtype)
    grad[keep] = np.einsum("nd,nd->n", g[bag[keep]], weight[indices.reshape(-1)[keep]])
    return grad.reshape(indices.shape)


def _ctc_states(
    targets: np.ndarray, target_lengths: np.ndarray, blank: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Labels with blanks around them; where a blank may be skipped; which states exist.
    lengths = np.asarray(target_lengths)
    if targets.ndim == 1:
        width = lengths.max(initial=0)
        first = np.cumsum(lengths) - lengths
        column = np.arange(width)
        place = np.minimum(first[:, None] + column, max(len(targets) - 1, 0))
        targets = targets[place] if len(targets) else place
    states = np.full((len(lengths), 2 * targets.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = targets
    inside = np.arange(states.shape[1]) < (2 * lengths + 1)[:, None]
    states[~inside] = blank
    skip = np.zeros(states.shape, bool)
    skip[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    return states, skip, inside


def _emissions(log_probs: np.ndarray, states: np.ndarray) -> np.ndarray:
    return np.take_along_axis(log_probs, states[None], 2)


def _sum_paths(log_alpha: np.ndarray, skip: np.ndarray) -> np.ndarray:
    # From the same state, the one before, and past a blank the one before that.
    paths = np.full((3, *log_alpha.shape), -np.inf, log_alpha.dtype)
    paths[0] = log_alpha
    paths[1, :, 1:] = log_alpha[:, :-1]
    paths[2, :, 2:] = np.where(skip[:, 2:], log_alpha[:, :-2], -np.inf)
    return _log_sum(paths)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    top = terms.max(0)
    top = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - top).sum(0)) + top


def _final_loss(
    log_alpha: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray
) -> np.ndarray:
    inputs, labels = np.asarray(input_lengths), np.asarray(target_lengths)
    sample = np.arange(len(inputs))
    if log_alpha.shape[1] == 0:
        return np.where(labels == 0, 0, np.inf).astype(log_alpha.dtype)
    last = log_alpha[sample, np.maximum(inputs - 1, 0)]
    ends = np.stack([last[sample, 2 * labels], last[sample, np.maximum(2 * labels - 1, 0)]])
    ends[1, labels == 0] = -np.inf
    loss = -_log_sum(ends)
    # Without a single step only the empty target can have been written.
    return np.where(inputs == 0, np.where(labels == 0, 0, np.inf), loss).astype(loss.dtype)


def _log_beta(
    emission: np.ndarray,
    skip: np.ndarray,
    inside: np.ndarray,
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
) -> np.ndarray:
    # Samples end at different times, so each joins the recursion at its own last step.
    inputs, labels = np.asarray(input_lengths), np.asarray(target_lengths)
    number = np.arange(emission.shape[2])
    last = 2 * labels[:, None]
    ending = np.where((number == last) | (number == last - 1), 0, -np.inf)
    reverse_skip = np.zeros_like(skip)
    reverse_skip[:, 2:] = skip[:, 2:][:, ::-1]
    log_beta = np.full(emission.shape, -np.inf, emission.dtype)
    beta = np.full(emission.shape[1:], -np.inf, emission.dtype)
    for t in range(len(emission) - 1, -1, -1):
        moved = _sum_paths(beta[:, ::-1], reverse_skip)[:, ::-1]
        start = np.where((inputs - 1 == t)[:, None], ending, moved)
        beta = np.where(inside & (t < inputs)[:, None], start + emission[t], -np.inf)
        log_beta[t] = beta
    return log_beta


def _bags(
    indices: np.ndarray, offsets: np.ndarray | None, include_last_offset: bool
) -> tuple[np.ndarray, int]:
    if offsets is None:
        count, width = indices.shape
        return np.repeat(np.arange(count), width), count
    count, length = len(offsets) - bool(include_last_offset), len(indices)
    if count < 0:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if len(offsets):
        if offsets[0] != 0:
            raise RuntimeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                f"from position 0. However, got {offsets[0]}"
            )
        if offsets[-1] > length:
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] "
                f"of {offsets[-1]}"
            )
        if (offsets[1:] < offsets[:-1]).any():
            raise RuntimeError("offsets have to be in order: a bag can't end before it starts")
    return np.searchsorted(offsets, np.arange(length), side="right") - 1, count


def _kept(
    indices: np.ndarray, padding_idx: int | None, rows: int, bag: np.ndarray, count: int
) -> np.ndarray:
    """Which of the indices count: those in one of the bags that are not padding."""
    kept = (bag >= 0) & (bag < count)
    if padding_idx is not None:
        kept &= indices.reshape(-1) != padding_idx % rows
    return np.flatnonzero(kept)


def _largest_rows(
    rows: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if not len(starts):
        return rows, np.zeros(rows.shape, np.int64)
    # A NaN counts only as the first row of its bag: nothing compares greater than it.
    first = rows[starts]
    largest = np.where(np.isnan(first), first, np.fmax.reduceat(rows, starts, axis=0))
    equal = rows == np.repeat(largest, sizes, axis=0)
    number = np.where(equal, np.arange(len(rows))[:, None], len(rows))
    position = np.minimum.reduceat(number, starts, axis=0)
    return largest, np.where(np.isnan(first), starts[:, None], position)
