"""Elementary functions for kernels.

On float32 they have no branches, no tables and no calls, so that loops over them become vector
code. Errors are at most so many units in the last place, over all float32 numbers:

==================  ====
erfinv, hypot       0.5   rounded from float64
exp, exp2, log      1.0
pow                 1.0
log2                1.1
erf                 1.2
tanh, expm1, atan   1.5
log1p               1.5
sin, cos            1.7   for arguments up to ``SINE_LIMIT``
sigmoid             2.5
==================  ====

Zeros keep their sign, results may be subnormal, and infinities and NaN go through as in the C
library. On float64 errors are at most 1.0 for exp, 1.5 for tanh and 2.5 for sigmoid, and softplus
is made of exp; for the others the C library is called.
"""

from __future__ import annotations

from weft.native.codegen.compiler import (
    T,
    bits,
    bits_wide,
    copysign,
    f32,
    f64,
    floor,
    fma,
    from_bits,
    from_bits_wide,
    horner,
    i32,
    inline,
    rint,
    sqrt,
)

LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
LOG2_E = 1.4426950408889634
# Adding it to a small float32 leaves the nearest integer in the low bits.
ROUND, ROUND_BITS = 12582912.0, 0x4B400000
ROUND_WIDE, ROUND_WIDE_BITS = 6755399441055744.0, 0x4338000000000000  # the same of float64
LN2_HIGH_WIDE, LN2_LOW_WIDE = 0.6931471805598903, 5.497923018708371e-14
SQRT_HALF_BITS = 0x3F3504F3
INFINITY = float("inf")
NAN = float("nan")

# sin and cos are right up to here; callers use another algorithm for larger arguments.
SINE_LIMIT = 1e5
HALF_PI_1 = 1.5707963705062866
HALF_PI_2 = -4.371138828673793e-08
HALF_PI_3 = -1.7151245100058819e-15
TWO_OVER_PI = 0.6366197723675814


# --- exponentials ------------------------------------------------------------------------


@inline
def _power_of_two(n: i32) -> f32:
    """2**n for n in -126...127."""
    return from_bits((n + 127) << 23)


@inline
def _scale(x: f32, n: i32) -> f32:
    """x * 2**n in two steps, so that the result may overflow or become subnormal."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


@inline
def _exp_tail(r: f32) -> f32:
    """(exp(r) - 1 - r) / r**2 for abs(r) <= log(2) / 2."""
    return horner(
        r, 0.00019944265659432858, 0.0013932674191892147, 0.008333208039402962, 0.04166648909449577,
        0.1666666716337204, 0.5,
    )  # fmt: skip


@inline
def _exp_near(r: f32) -> f32:
    """e**r for abs(r) <= log(2) / 2."""
    return horner(
        r, 0.0013939535710960627, 0.008368821814656258, 0.041666414588689804, 0.1666651964187622,
        0.5, 1.0, 1.0,
    )  # fmt: skip


@inline
def _exp_wide(x: f64) -> f64:
    """e**x."""
    x = 710.0 if x > 710.0 else x
    x = -746.0 if x < -746.0 else x
    t = fma(x, LOG2_E, ROUND_WIDE)
    n = t - ROUND_WIDE
    r = fma(n, -LN2_LOW_WIDE, fma(n, -LN2_HIGH_WIDE, x))
    y = horner(
        r, 2.510038549551032e-08, 2.7620088445409746e-07, 2.7557268459997064e-06,
        2.4801521295954376e-05, 0.00019841269863053618, 0.0013888888917213717, 0.008333333333330062,
        0.04166666666662413, 0.16666666666666669, 0.5000000000000001, 1.0, 1.0,
    )  # fmt: skip
    # In two steps, so that the result may overflow or become subnormal.
    small = x < -700.0
    k = bits_wide(t) - ROUND_WIDE_BITS + (1222 if small else 1022)
    return y * from_bits_wide(k << 52) * from_bits_wide((824 if small else 1024) << 52)


@inline(f64=_exp_wide)
def exp_below(x: f32) -> f32:
    """e**x for x up to 88."""
    x = -104.0 if x < -104.0 else x
    t = fma(x, LOG2_E, ROUND)
    n = t - ROUND
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return _scale(_exp_near(r), bits(t) - ROUND_BITS)


@inline(f64=_exp_wide)
def exp_flush(x: f32) -> f32:
    """e**x for x up to 88, with zero for subnormal results: for sums and shares of one."""
    x = -88.0 if x < -88.0 else x
    t = fma(x, LOG2_E, ROUND)
    n = t - ROUND
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return _exp_near(r) * _power_of_two(bits(t) - ROUND_BITS)  # 2**-127 comes out as zero


@inline(f64=_exp_wide)
def exp(x: f32) -> f32:
    """e**x."""
    return exp_below(89.0 if x > 89.0 else x)


@inline
def _exp2_near(r: f32) -> f32:
    """2**r for abs(r) <= 1 / 2."""
    return horner(
        r, 0.000154608758748509, 0.0013391174143180251, 0.009618067182600498, 0.055503591895103455,
        0.24022650718688965, 0.6931471824645996, 1.0,
    )  # fmt: skip


@inline(f64="exp2")
def exp2(x: f32) -> f32:
    """2**x."""
    x = 129.0 if x > 129.0 else x
    x = -151.0 if x < -151.0 else x
    t = x + ROUND
    r = x - (t - ROUND)
    return _scale(_exp2_near(r), bits(t) - ROUND_BITS)


@inline(f64="expm1")
def expm1(x: f32) -> f32:
    """exp(x) - 1, also near zero."""
    v = 89.0 if x > 89.0 else x
    v = -18.0 if v < -18.0 else v
    t = fma(v, LOG2_E, ROUND)
    n = t - ROUND
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, v))
    p = fma(r * r, _exp_tail(r), r)
    k = bits(t) - ROUND_BITS
    # 2**k * (p + 1) - 1 with one rounding of the constant part, which is zero for k = 0.
    y = _scale(p + (1.0 - _power_of_two(-min(k, 64))), k)
    return x if x == 0.0 else y


# --- logarithms --------------------------------------------------------------------------


@inline
def _log_tail(f: f32) -> f32:
    """(log(1 + f) - f + f**2 / 2) / f**3 for f in -0.2929...0.4143."""
    return horner(
        f, -0.07868465781211853, 0.12891951203346252, -0.13130520284175873, 0.1417997032403946,
        -0.16624249517917633, 0.20002324879169464, -0.2500081956386566, 0.33333316445350647,
    )  # fmt: skip


@inline
def _log_of(f: f32, e: f32) -> f32:
    """log((1 + f) * 2**e)."""
    square = f * f
    low = fma(square * f, _log_tail(f), fma(e, LN2_LOW, -0.5 * square))
    return fma(e, LN2_HIGH, f + low)


@inline
def _exponent(x: f32) -> i32:
    """e with x / 2**e between the roots of a half and of two, for normal x."""
    return (bits(x) - SQRT_HALF_BITS) >> 23


@inline
def _mantissa(x: f32) -> f32:
    """x / 2**_exponent(x)."""
    return from_bits(((bits(x) - SQRT_HALF_BITS) & 0x7FFFFF) + SQRT_HALF_BITS)


@inline
def _log_edges(x: f32, y: f32) -> f32:
    """The logarithm y of x, with its limits where x has none."""
    y = -INFINITY if x == 0.0 else y
    y = y if x >= 0.0 else NAN
    return INFINITY if x == INFINITY else y


@inline(f64="log")
def log(x: f32) -> f32:
    """The natural logarithm."""
    small = x < 1.1754943508222875e-38
    v = x * 8388608.0 if small else x
    e = f32(_exponent(v)) - (23.0 if small else 0.0)
    return _log_edges(x, _log_of(_mantissa(v) - 1.0, e))


@inline(f64="log2")
def log2(x: f32) -> f32:
    """The logarithm to base 2."""
    small = x < 1.1754943508222875e-38
    v = x * 8388608.0 if small else x
    e = f32(_exponent(v)) - (23.0 if small else 0.0)
    f = _mantissa(v) - 1.0
    square = f * f
    tail = fma(square * f, _log_tail(f), -0.5 * square)
    # f * log2(e) with the error of the product.
    high = f * 1.4426950216293335
    low = fma(f, 1.4426950216293335, -high)
    low = fma(f, 1.925963033500011e-08, low)
    low = fma(tail, LOG2_E, low)
    return _log_edges(x, e + (high + low))


@inline(f64="log1p")
def log1p(x: f32) -> f32:
    """log(1 + x), also near zero."""
    u = 1.0 + x
    e = _exponent(u)
    # (1 + x) / 2**e - 1 without rounding 1 + x; four times the scale is always normal.
    scale = from_bits((129 - e) << 23)
    f = fma(x * 0.25, scale, fma(scale, 0.25, -1.0))
    y = _log_edges(u, _log_of(f, f32(e)))
    return x if abs(x) < 2.9802322387695312e-08 else y


# --- sigmoids ----------------------------------------------------------------------------


@inline
def sigmoid(x: T) -> T:
    """1 / (1 + exp(-x))."""
    e = exp_below(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@inline
def _tanh_wide(x: f64) -> f64:
    a = abs(x)
    s = a * a
    p = horner(
        s, 6.485163482793113e-06, -3.12011014257974e-05, 9.257116129556769e-05,
        -0.0002375906496055562, 0.0005896606577757043, -0.0014557754120478055,
        0.0035921217511549622, -0.008863235103240878, 0.021869488519008305, -0.05396825396789699,
        0.13333333333333042, -0.3333333333333333,
    )  # fmt: skip
    near = fma(p * s, a, a)
    v = 20.0 if a > 20.0 else a
    far = 1.0 - 2.0 / (_exp_wide(v + v) + 1.0)
    return copysign(near if a < 0.625 else far, x)


@inline(f64=_tanh_wide)
def tanh(x: f32) -> f32:
    """The hyperbolic tangent."""
    a = abs(x)
    s = a * a
    p = horner(
        s, -0.0057154991663992405, 0.020649103447794914, -0.05374300479888916, 0.133314847946167,
        -0.3333328366279602,
    )  # fmt: skip
    near = fma(p * s, a, a)
    v = 10.0 if a > 10.0 else a
    far = 1.0 - 2.0 / (exp_flush(v + v) + 1.0)
    return copysign(near if a < 0.625 else far, x)


@inline(f64="erf")
def erf(x: f32) -> f32:
    """The error function."""
    a = abs(x)
    s = a * a
    p = horner(
        s, 8.415403863182291e-05, -0.0008151610963977873, 0.005201525054872036,
        -0.026859372854232788, 0.11283686757087708, -0.37612631916999817, 0.12837916612625122,
    )  # fmt: skip
    near = fma(p, a, a)
    v = 3.95 if a > 3.95 else a
    q = horner(
        v, -2.1157646187930368e-05, 0.0004351774405222386, -0.004174478352069855,
        0.025128284469246864, -0.1082935631275177, -0.6333348751068115, -1.1295207738876343,
        0.00017587632464710623,
    )  # fmt: skip
    far = 1.0 - exp_flush(q)
    return copysign(near if a < 0.92 else far, x)


@inline(f64="erfc")
def erfc(x: f32) -> f32:
    """1 - erf(x); on float32 right to a unit of one, not of the result."""
    return 1.0 - erf(x)


@inline
def softplus(x: T) -> T:
    """log(1 + exp(x))."""
    return (0.0 if x < 0.0 else x) + log1p(exp_below(-abs(x)))


@inline
def silu(x: T) -> T:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


@inline
def _wide_normal_cdf(x: f64) -> f64:
    return 0.5 * erfc(-0.7071067811865476 * x)


@inline(f64=_wide_normal_cdf)
def normal_cdf(x: f32) -> f32:
    """The share of a normal distribution below x."""
    a = abs(x)
    v = 6.0 if a > 6.0 else a
    # The logarithm of the part beyond a, without the square.
    s = v * v
    q = fma(v, 8.13173883784657e-08, -2.118385509675136e-06)
    q = fma(q, s, fma(v, 2.1561767425737344e-05, -8.890914614312351e-05))
    p = fma(v, -0.00020728968956973404, 0.005051690153777599)
    p = fma(p, s, fma(v, -0.03649556264281273, 0.18173526227474213))
    q = fma(fma(q, s * s, p), s, fma(v, -0.7978891134262085, -0.6931471228599548))
    beyond = exp_flush(fma(-0.5 * a, a, q))
    return beyond if x < 0.0 else 1.0 - beyond


@inline
def gelu(x: T) -> T:
    """x times the share of a normal distribution below x."""
    return x * normal_cdf(x)


@inline
def gelu_slope(x: T) -> T:
    """The derivative of gelu: the share below x, and x times the density there."""
    return normal_cdf(x) + x * (exp_flush(-0.5 * x * x) * 0.3989422804014327)


@inline
def gelu_tanh(x: T) -> T:
    """The approximation of gelu by a hyperbolic tangent, which is a sigmoid of twice as much."""
    return x * sigmoid(1.5957691216057308 * fma(0.044715 * x * x, x, x))


@inline
def gelu_tanh_slope(x: T) -> T:
    """The derivative of gelu_tanh."""
    v = 1.5957691216057308 * fma(0.044715 * x * x, x, x)
    e = exp_below(-abs(v))
    part = 1.0 / (1.0 + e)
    inner_slope = 1.5957691216057308 * fma(0.134145 * x, x, 1.0)
    # e * part * part is the sigmoid of v times that of -v.
    return fma(x * (e * part * part), inner_slope, part if v >= 0.0 else e * part)


# --- circles -----------------------------------------------------------------------------


@inline
def _circle(x: f32, quarter: f32) -> f32:
    """sin(x + quarter * pi / 2), for abs(x) <= SINE_LIMIT."""
    t = fma(x, TWO_OVER_PI, ROUND)
    n = t - ROUND
    r = fma(n, -HALF_PI_1, x)
    r = fma(n, -HALF_PI_2, r)
    r = fma(n, -HALF_PI_3, r)
    s = r * r
    p = horner(
        s, 2.8374836347211385e-06, -0.00019853509729728103, 0.008333380334079266,
        -0.1666666716337204,
    )  # fmt: skip
    sine = fma(p * s, r, r)
    q = fma(s, 2.443066841806285e-05, -0.00138873013202101)
    q = fma(q, s, 0.04166664555668831)
    cosine = fma(s * s, q, fma(s, -0.5, 1.0))
    turn = bits(t + quarter)
    y = cosine if (turn & 1) != 0 else sine
    return -y if (turn & 2) != 0 else y


@inline(f64="sin")
def sin(x: f32) -> f32:
    """The sine, for abs(x) <= SINE_LIMIT."""
    y = _circle(x, 0.0)
    return x if x == 0.0 else y


@inline(f64="cos")
def cos(x: f32) -> f32:
    """The cosine, for abs(x) <= SINE_LIMIT."""
    return _circle(x, 1.0)


@inline(f64="atan")
def atan(x: f32) -> f32:
    """The inverse of the tangent."""
    a = abs(x)
    v = 1.0 / a if a > 1.0 else a
    s = v * v
    p = horner(
        s, -0.0018231159774586558, 0.011046255007386208, -0.03142214193940163, 0.05820125713944435,
        -0.08417543023824692, 0.10956933349370956, -0.1426512598991394, 0.1999862790107727,
        -0.33333301544189453,
    )  # fmt: skip
    y = fma(p * s, v, v)
    y = HALF_PI_1 - (y + -HALF_PI_2) if a > 1.0 else y
    return copysign(y, x)


# --- powers ------------------------------------------------------------------------------


@inline
def rsqrt(x: T) -> T:
    """1 / sqrt(x), each step rounded correctly."""
    return 1.0 / sqrt(x)


@inline
def _log2_wide(x: f32) -> f64:
    """log2(x) for x >= 0 in float64, to about 44 bits."""
    small = x < 1.1754943508222875e-38
    v = x * 8388608.0 if small else x
    e = f64(f32(_exponent(v)) - (23.0 if small else 0.0))
    m = f64(_mantissa(v))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = horner(
        z, 0.28291734031928717, 0.31990449760139583, 0.41220928157335235, 0.5770779420762893,
        0.961796694114329, 2.8853900817778495,
    )  # fmt: skip
    y = fma(p, s, e)
    y = -INFINITY if x == 0.0 else y
    return INFINITY if x == INFINITY else y


@inline(f64="pow")
def pow(x: f32, y: f32) -> f32:
    """x**y as the C library has it."""
    a = abs(x)
    z = f64(y) * _log2_wide(a)
    z = 200.0 if z > 200.0 else z
    z = -200.0 if z < -200.0 else z
    t = f32(z) + ROUND
    r = f32(z - f64(t - ROUND))
    k = bits(t) - ROUND_BITS
    p = _scale(_exp2_near(r), k)
    # Of a negative base only whole powers exist, and odd ones are negative.
    whole = floor(y) == y
    half = y * 0.5
    odd = whole and floor(half) != half
    negative = bits(x) < 0
    p = p if x == x and ((not negative) or whole or x == 0.0 or a == INFINITY) else NAN
    p = -p if negative and odd else p
    return 1.0 if (y == 0.0 or x == 1.0) or (x == -1.0 and abs(y) == INFINITY) else p


# --- the inverse of the error function -------------------------------------------------------


@inline
def _quantile_near(q: f64) -> f64:
    """The normal distribution's quantile of 0.5 + q, for abs(q) <= 0.425.

    This and the next function are algorithm AS 241 (M. J. Wichura, Applied Statistics 37, 1988).
    """
    r = 0.180625 - q * q
    a = horner(
        r, 2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987,
        13731.69376550946, 1971.5909503065514, 133.14166789178438, 3.3871328727963665,
    )  # fmt: skip
    b = horner(
        r, 5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597,
        5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0,
    )  # fmt: skip
    return q * a / b


@inline
def _quantile_far(r: f64) -> f64:
    """The same of 1 - exp(-r * r), for larger q."""
    s = r - 1.6
    a = horner(
        s, 0.0007745450142783414, 0.022723844989269185, 0.2417807251774506, 1.2704582524523684,
        3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835,
    )  # fmt: skip
    b = horner(
        s, 1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008,
        0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0,
    )  # fmt: skip
    t = r - 5.0
    c = horner(
        t, 2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784,
        0.026532189526576124, 0.29656057182850487, 1.7848265399172913, 5.463784911164114,
        6.657904643501103,
    )  # fmt: skip
    d = horner(
        t, 2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05,
        0.0007868691311456133, 0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0,
    )  # fmt: skip
    return c / d if r > 5.0 else a / b


@inline
def _erfinv_edges(x: f64, near: f64, far: f64) -> f64:
    """One of two quantiles as the result for x, which may be out of range."""
    y = copysign(far, x) if abs(x) > 0.85 else near
    y = y * 0.7071067811865476
    y = copysign(INFINITY, x) if abs(x) == 1.0 else y
    y = NAN if abs(x) > 1.0 else y
    return x if x == 0.0 else y


@inline
def _erfinv_wide(x: f64) -> f64:
    tail = (1.0 - abs(x)) * 0.5
    return _erfinv_edges(x, _quantile_near(x * 0.5), _quantile_far(sqrt(-log(tail))))


@inline(f64=_erfinv_wide)
def erfinv(x: f32) -> f32:
    """The inverse of erf, rounded from float64."""
    tail = (1.0 - abs(x)) * 0.5
    r = sqrt(_log2_wide(tail) * -0.6931471805599453)
    return f32(_erfinv_edges(f64(x), _quantile_near(f64(x) * 0.5), _quantile_far(r)))


# --- of two values ----------------------------------------------------------------------------


@inline(f64="hypot")
def hypot(x: f32, y: f32) -> f32:
    """sqrt(x * x + y * y), rounded from float64, in which nothing overflows."""
    a, b = f64(x), f64(y)
    found = f32(sqrt(a * a + b * b))
    return INFINITY if abs(x) == INFINITY or abs(y) == INFINITY else found


@inline(f64="fmod")
def fmod(x: f32, y: f32) -> f32:
    """The remainder of x / y with the sign of x, which is exact.

    Multiples of y times 2**250, 2**200 and so on are taken off, 50 bits of the quotient at a time.
    The product with 1 / y is wrong by less than a quarter, so what is left is less than 3/4 of the
    multiple. It is a multiple of the last place of x or y: float64 holds it, and fma is exact.
    """
    a, b = abs(f64(x)), abs(f64(y))
    over = 1.0 / b
    r = a
    r = fma(rint(r * (over * 5.527147875260445e-76)), b * -1.8092513943330656e75, r)
    r = fma(rint(r * (over * 6.223015277861142e-61)), b * -1.6069380442589903e60, r)
    r = fma(rint(r * (over * 7.006492321624085e-46)), b * -1.42724769270596e45, r)
    r = fma(rint(r * (over * 7.888609052210118e-31)), b * -1.2676506002282294e30, r)
    r = fma(rint(r * (over * 8.881784197001252e-16)), b * -1125899906842624.0, r)
    r = fma(rint(r * over), -b, r)
    r = r + b if r < 0.0 else r
    r = a if b == INFINITY and a < INFINITY else r
    return copysign(f32(r), x)
