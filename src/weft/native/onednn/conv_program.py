"""The oneDNN program for a convolution or one of its adjoints, in the layout that is fastest."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from weft.native.onednn.primitive import (
    ATTRIBUTES,
    BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    ENGINE,
    FFI,
    SRC,
    WEIGHTS,
    Ints,
    OneDNNRefused,
    PrimitiveSequence,
    any_layout,
    argument,
    describe,
    dims,
    implementation,
    primitive_desc,
    row_major,
    same,
    wide_vectors,
)

FORWARD, INPUT, WEIGHT = "forward", "input", "weight"
# NCHW in C order, and the same shape over memory in NHWC order; what oneDNN likes best.
PLAIN, LAST, _ANY = "plain", "last", "any"
_TRAINING, _CONVOLUTION, _DECONVOLUTION = 64, 0x1, 0xA


class Case(NamedTuple):
    """All that decides how a convolution is computed."""

    kind: str
    x: Ints
    w: Ints
    y: Ints
    layout: str
    w_layout: str
    biased: bool
    stride: Ints
    padding: Ints
    dilation: Ints
    groups: int


def build(case: Case) -> PrimitiveSequence:
    """The program of a case: its outer slots are two inputs, the output, and the bias if any."""
    return _BUILDERS[case.kind](case)


def _build_forward(case: Case) -> PrimitiveSequence:
    bias = _bias(case, case.y)
    desc = _choose(case, lambda x, y: _forward_desc(case, x, y, bias))
    inputs = {SRC: _user(case.x, case.layout), WEIGHTS: _weight(case)}
    return _assemble(desc, inputs, (DST, _user(case.y, case.layout)), bias)


def _build_input(case: Case) -> PrimitiveSequence:
    g, x = _user(case.y, case.layout), _user(case.x, case.layout)
    bias = _bias(case, case.x)
    if case.biased:
        desc = _choose(case, lambda x, y: _transposed_desc(case, x, y, bias))
        return _assemble(desc, {SRC: g, WEIGHTS: _weight(case, True)}, (DST, x), bias)
    desc = _choose(case, lambda x, y: _input_desc(case, x, y))
    return _assemble(desc, {DIFF_DST: g, WEIGHTS: _weight(case)}, (DIFF_SRC, x), bias)


def _build_weight(case: Case) -> PrimitiveSequence:
    desc = _choose(case, lambda x, y: _weight_desc(case, x, y))
    inputs = {DIFF_DST: _user(case.y, case.layout), SRC: _user(case.x, case.layout)}
    return _assemble(desc, inputs, (DIFF_WEIGHTS, _weight(case)), FFI.NULL)


_BUILDERS = {FORWARD: _build_forward, INPUT: _build_input, WEIGHT: _build_weight}


def _forward_desc(case: Case, x: Any, y: Any, bias: Any, hint: bool = False) -> Any:
    kind, w = (ENGINE, _TRAINING, _CONVOLUTION), any_layout(_grouped(case))
    args = (*kind, x, w, bias, y, *_window(case), ATTRIBUTES)
    return primitive_desc("convolution_forward", *args, slow=hint)


def _transposed_desc(case: Case, x: Any, y: Any, bias: Any) -> Any:
    # With a bias the transpose is an operation of its own, and a forward one.
    kind, w = (ENGINE, _TRAINING, _DECONVOLUTION), any_layout(_exchanged(case, _grouped(case)))
    return primitive_desc("deconvolution_forward", *kind, y, w, bias, x, *_window(case), ATTRIBUTES)


def _input_desc(case: Case, x: Any, y: Any) -> Any:
    hint, w = _forward_desc(case, x, y, FFI.NULL, hint=True), any_layout(_grouped(case))
    args = (ENGINE, _CONVOLUTION, x, w, y, *_window(case), hint, ATTRIBUTES)
    return primitive_desc("convolution_backward_data", *args)


def _weight_desc(case: Case, x: Any, y: Any) -> Any:
    hint, w = _forward_desc(case, x, y, FFI.NULL, hint=True), any_layout(_grouped(case))
    args = (ENGINE, _CONVOLUTION, x, w, FFI.NULL, y, *_window(case), hint, ATTRIBUTES)
    return primitive_desc("convolution_backward_weights", *args)


def _assemble(
    desc: Any, inputs: dict[int, Any], output: tuple[int, Any], bias: Any
) -> PrimitiveSequence:
    """The primitive, with copies into and out of its own layouts where they differ."""
    which, target = output
    outer = [*inputs.values(), target]
    program = PrimitiveSequence(*(outer if bias == FFI.NULL else [*outer, bias]))
    binds = {arg: program.bring(slot, argument(desc, arg)) for slot, arg in enumerate(inputs)}
    slot, wanted = len(inputs), argument(desc, which)
    direct = same(target, wanted)
    binds[which] = slot if direct else program.stage(wanted)
    if bias != FFI.NULL:
        binds[BIAS] = slot + 1
    program.add(desc, binds)
    if not direct:
        program.reorder(binds[which], slot)
    return program


def _user(shape: Ints, layout: str) -> Any:
    return describe(shape, _strides(shape, layout))


def _bias(case: Case, out: Ints) -> Any:
    return describe(out[1:2], (1,)) if case.biased else FFI.NULL


def _weight(case: Case, exchanged: bool = False) -> Any:
    """The caller's weight; a transpose sees its two channel axes exchanged."""
    shape, strides = _grouped(case), _strides(case.w, case.w_layout)
    if case.groups > 1:
        strides = (strides[0] * shape[1], *strides)
    if exchanged:
        shape, strides = _exchanged(case, shape), _exchanged(case, strides)
    return describe(shape, strides)


def _grouped(case: Case) -> Ints:
    w, groups = case.w, case.groups
    return w if groups == 1 else (groups, w[0] // groups, *w[1:])


def _exchanged(case: Case, axes: Ints) -> Ints:
    first = int(case.groups > 1)
    return (*axes[:first], axes[first + 1], axes[first], *axes[first + 2 :])


def _window(case: Case) -> tuple[Any, ...]:
    """Stride, dilation and both paddings as oneDNN counts them."""
    axes = zip(
        case.x[2:], case.w[2:], case.y[2:], case.stride, case.padding, case.dilation, strict=True
    )
    right = [_right_padding(*axis) for axis in axes]
    return tuple(map(dims, (case.stride, [d - 1 for d in case.dilation], case.padding, right)))


def _right_padding(x: int, w: int, y: int, stride: int, padding: int, dilation: int) -> int:
    reach = dilation * (w - 1) + 1
    if (x + 2 * padding - reach) // stride + 1 == y:
        return padding
    return (y - 1) * stride + reach - x - padding  # input after the last window: less than none


def _strides(shape: Ints, layout: str) -> Ints:
    if layout == PLAIN:
        return row_major(shape)
    steps = row_major((shape[0], *shape[2:], shape[1]))
    return (steps[0], steps[-1], *steps[1:-1])


def _choose(case: Case, make: Callable[[Any, Any], Any]) -> Any:
    """The description of the primitive in the layout that is fastest for the case."""
    for choice in (_best(case), case.layout, PLAIN, LAST):
        try:
            desc = make(_inner(case.x, choice), _inner(case.y, choice))
        except OneDNNRefused:
            continue
        # What oneDNN would do by copying windows and GEMM, it does in the caller's layout as well.
        if choice != _ANY or "gemm" not in implementation(desc):
            return desc
    raise OneDNNRefused


def _inner(shape: Ints, choice: str) -> Any:
    return any_layout(shape) if choice == _ANY else _user(shape, choice)


def _best(case: Case) -> str:
    """The layout for the inner computation, as measured; ``any`` leaves it to oneDNN."""
    if case.layout == LAST:
        return _best_of_last(case)
    return _ANY if wide_vectors() or case.groups > 1 else _best_of_plain(case)


def _best_of_last(case: Case) -> str:
    if case.kind == WEIGHT and not wide_vectors():
        return LAST if case.w[1] < (256 if _is_pointwise(case) else 16) else _ANY
    return _ANY if case.kind == FORWARD and case.x[1] == 1 else LAST


def _best_of_plain(case: Case) -> str:
    """Without AVX-512 oneDNN's own choice for plain arrays is often not the fastest."""
    few = case.w[1]
    if _is_pointwise(case):
        shallow = few < 128 and max(case.stride) == 1
        return _ANY if case.kind == INPUT and shallow else PLAIN
    if case.kind == WEIGHT:
        return LAST if few == 1 else _ANY
    one_place = prod(case.y[2:]) == 1
    if case.kind == INPUT and (few < 8 or one_place):
        return PLAIN
    small = prod(case.x) + prod(case.y) <= 1 << 21
    return LAST if small and min(few, case.w[0]) >= 32 and not one_place else _ANY


def _is_pointwise(case: Case) -> bool:
    return prod(case.w[2:]) == 1 and not any(case.padding)
