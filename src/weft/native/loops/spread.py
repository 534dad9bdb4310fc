"""Copies of images with padding around them, cut into the phases of a stride.

In such a copy each element of a window is at the address of the window's position plus a fixed
offset, for any stride, padding, dilation and number of dimensions.

The loops take a table of integers: the number of channels; the steps of the array in (n, c, z, y,
x); then for z, y and x in turn its size, the padding before it, the stride, the number of phases
and the size of a phase. ``phases`` has the phases of z, y and x one after the other; ``spans`` for
each phase of x the first place that is inside the array, the end of those, and where the first lies
in the array.
"""

from __future__ import annotations

from weft.native.codegen.compiler import FLOATS, SIZES, Assembly, Ptr, T, i32, i64
from weft.native.codegen.jit import kernel

LINE = 16  # elements of a line of the cache


def _transpose(name: str, kind: str) -> str:
    """LLVM IR that copies four rows of four, ``step`` apart, as columns to four places."""
    scalar, align = FLOATS[kind], SIZES[kind]
    vector = f"<4 x {scalar}>"
    low, high = "<i32 0, i32 4, i32 1, i32 5>", "<i32 2, i32 6, i32 3, i32 7>"
    given = "ptr noalias %x, i64 %step, ptr %q0, ptr %q1, ptr %q2, ptr %q3"
    lines = [f"define private void @{name}({given}) alwaysinline nounwind {{"]
    for i in range(4):
        lines += [
            f"  %i{i} = mul i64 %step, {i}",
            f"  %p{i} = getelementptr {scalar}, ptr %x, i64 %i{i}",
            f"  %r{i} = load {vector}, ptr %p{i}, align {align}",
        ]
    for to, a, b in (("s", 0, 2), ("t", 1, 3)):
        lines += [
            f"  %{to}0 = shufflevector {vector} %r{a}, {vector} %r{b}, <4 x i32> {low}",
            f"  %{to}1 = shufflevector {vector} %r{a}, {vector} %r{b}, <4 x i32> {high}",
        ]
    for i in range(4):
        how = high if i % 2 else low
        lines += [
            f"  %c{i} = shufflevector {vector} %s{i // 2}, {vector} %t{i // 2}, <4 x i32> {how}",
            f"  store {vector} %c{i}, ptr %q{i}, align {align}",
        ]
    return "\n".join([*lines, "  ret void", "}"])


_GIVEN = ("ptr", "i64", "ptr", "ptr", "ptr", "ptr")
transpose64 = Assembly("transpose64", _GIVEN, lambda: _transpose("transpose64", "f64"))
transpose = Assembly("transpose", _GIVEN, lambda: _transpose("transpose", "f32"), transpose64)


@kernel
def spread(
    x: Ptr[T], to: Ptr[T], phases: Ptr[i64], spans: Ptr[i64], info: Ptr[i64], by: i64, apart: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    # The range is that of planes: channels of samples. `by` and `apart` are the stride and the
    # step along x, where they are known.
    channels = info[0]
    nz, fz, sz, pz, uz = info[6], info[7], info[8], info[9], info[10]
    ny, fy, sy, py, uy = info[11], info[12], info[13], info[14], info[15]
    px, ux = info[19], info[20]
    sx = by if by else info[18]
    step = apart if apart else info[5]
    plane = uz * uy * ux
    for one in range(lo, hi):
        source = x + ((one // channels) * info[1] + (one % channels) * info[2])
        for a in range(pz):
            for b in range(py):
                first = to + ((one * pz + a) * py + b) * px * plane
                for k in range(uz * uy):
                    z = k // uy * sz + phases[a] - fz
                    y = k % uy * sy + phases[pz + b] - fy
                    within = z >= 0 and z < nz and y >= 0 and y < ny
                    line = source + (z * info[3] + y * info[4])
                    for c in range(px):
                        target = first + (c * plane + k * ux)
                        start = spans[3 * c] if within else ux
                        stop = spans[3 * c + 1] if within else ux
                        from_ = line + spans[3 * c + 2] * step
                        for u in range(start):
                            target[u] = 0.0
                        inner = target + start
                        for u in range(stop - start):
                            inner[u] = from_[u * sx * step]
                        for u in range(stop, ux):
                            target[u] = 0.0


@kernel
def spread_small(
    x: Ptr[T], to: Ptr[T], places: Ptr[i32], size: i64, channels: i64, sample: i64, channel: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    # The same for small images, element by element: `places` says where each lies in a plane of
    # the array, or is -1.
    for one in range(lo, hi):
        source = x + ((one // channels) * sample + (one % channels) * channel)
        target = to + one * size
        for i in range(size):
            at = places[i]
            value = source[max(at, 0)]
            target[i] = value if at >= 0 else 0.0


@kernel
def spread_last(
    x: Ptr[T], to: Ptr[T], phases: Ptr[i64], spans: Ptr[i64], info: Ptr[i64], places: Ptr[i64],
    apart: i64, transposed: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The same with the channels innermost; the range is that of lines: z and y of the phases of
    # samples. `apart` is the step between channels, where it is known; `places` says where an
    # element of a line goes, or -1; `transposed` that lines of x lie in one piece.
    channels = info[0]
    nz, fz, sz, pz, uz = info[6], info[7], info[8], info[9], info[10]
    ny, fy, sy, py, uy = info[11], info[12], info[13], info[14], info[15]
    nx, px, ux = info[16], info[19], info[20]
    cs = apart if apart else info[2]
    xs = info[5]
    plane = uz * uy * ux
    even = channels - channels % 4
    for one in range(lo, hi):
        k = one % (uz * uy)
        b = one // (uz * uy) % py
        a = one // (uz * uy * py) % pz
        n = one // (uz * uy * py * pz)
        z = k // uy * sz + phases[a] - fz
        y = k % uy * sy + phases[pz + b] - fy
        within = z >= 0 and z < nz and y >= 0 and y < ny
        target = to + (((n * pz + a) * py + b) * px * plane + k * ux) * channels
        for c in range(px):
            start = spans[3 * c] if within else ux
            stop = spans[3 * c + 1] if within else ux
            line = target + c * plane * channels
            for i in range(start * channels):
                line[i] = 0.0
            for i in range(stop * channels, ux * channels):
                line[i] = 0.0
        if within:
            source = x + (n * info[1] + z * info[3] + y * info[4])
            for x0 in range(0, nx, LINE):
                x1 = min(nx, x0 + LINE)
                done = x0
                if transposed:
                    least = 0
                    for i in range(x0, x1):
                        least = min(least, places[i])
                    if least == 0:
                        done = x1 - (x1 - x0) % 4
                        for c in range(0, even, 4):
                            for i in range(x0, done, 4):
                                t0 = target + (places[i] + c)
                                t1 = target + (places[i + 1] + c)
                                t2 = target + (places[i + 2] + c)
                                t3 = target + (places[i + 3] + c)
                                transpose(source + (i + c * cs), cs, t0, t1, t2, t3)
                        for c in range(even, channels):
                            for i in range(x0, done):
                                target[places[i] + c] = source[i + c * cs]
                for i in range(done, x1):
                    if places[i] >= 0:
                        line = target + places[i]
                        for c in range(channels):
                            line[c] = source[i * xs + c * cs]
