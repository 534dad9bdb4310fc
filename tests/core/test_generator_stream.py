"""The generator gives the same numbers as PyTorch's CPU generator, and the same state after.

Comparisons are exact wherever the value comes from words by integer or correctly rounded steps.
Where log, sin, cos, exp or tan of the C library take part, a few units in the last place are
allowed (ULPS), since NumPy may use vector versions of them on some processors.
"""

import copy
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes")

from weft.core import generator  # noqa: E402
from weft.core.generator import ArrayGenerator  # noqa: E402

FLOATS = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
}
INTS = {
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.int16: np.dtype(np.int16),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
}
SIZES = (0, 1, 2, 15, 16, 17, 31, 32, 33, 1000, 100003)
ULPS = 4


def _vector_kernels() -> bool:
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def _plain_scalar_kernels() -> bool:
    """On Intel processors PyTorch hands bernoulli_(p) and exponential_ to another library."""
    source = torch.Generator().manual_seed(0)
    torch.empty(4).bernoulli_(0.5, generator=source)
    return int(source.get_state()[16:24].numpy().view(np.uint64)[0]) == 8


plain_only = pytest.mark.skipif(
    not _plain_scalar_kernels(), reason="this build draws bernoulli_(p) from a vendor library"
)


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


def pair(seed=0):
    return torch.Generator().manual_seed(seed), ArrayGenerator().manual_seed(seed)


def check(tensor, array, ulps=0):
    expected = to_numpy(tensor)
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    if ulps == 0:
        assert np.array_equal(array, expected)
        return
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    np.testing.assert_allclose(
        array.astype(np.float64), expected.astype(np.float64), rtol=ulps * eps, atol=ulps * eps
    )


def same_state(source, generator):
    """The states agree in every byte but for the last bits of the cached normal."""
    ours, theirs = generator.get_state(), source.get_state().numpy()
    cached = slice(5024, 5032)
    np.testing.assert_allclose(
        ours[cached].view(np.float64), theirs[cached].view(np.float64), rtol=1e-14
    )
    ours[cached] = 0
    rest = theirs.copy()
    rest[cached] = 0
    assert np.array_equal(ours, rest)


# ------------------------------------------------------------------------ seeds and states


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**40 + 7, 2**64 - 1, -1, -5, -(2**63)])
def test_seed(seed):
    source, generator = pair(seed)
    assert generator.initial_seed() == source.initial_seed()
    same_state(source, generator)
    check(torch.rand(700, generator=source), generator.uniform((700,)))


def test_bad_seeds():
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError):
            ArrayGenerator().manual_seed(seed)
    with pytest.raises(RuntimeError):
        ArrayGenerator().manual_seed(1.5)


def test_default_seed():
    assert ArrayGenerator().initial_seed() == torch.Generator().initial_seed()
    check(torch.rand(5, generator=torch.Generator()), ArrayGenerator().uniform((5,)))


def test_seed_from_entropy():
    generator = ArrayGenerator()
    first, second = generator.seed(), generator.seed()
    assert first != second
    assert generator.initial_seed() == second


@pytest.mark.parametrize("draws", [0, 1, 5, 623, 624, 625, 1248, 2000])
def test_state_exchange(draws):
    source, generator = pair(11)
    torch.rand(draws, generator=source)
    generator.uniform((draws,))
    same_state(source, generator)
    other = ArrayGenerator().set_state(source.get_state().numpy())
    assert other.initial_seed() == 11
    back = torch.Generator()
    back.set_state(torch.from_numpy(generator.get_state()))
    expected = torch.rand(1500, generator=source)
    check(expected, other.uniform((1500,)))
    check(expected, generator.uniform((1500,)))
    assert torch.equal(expected, torch.rand(1500, generator=back))


def test_state_keeps_the_cached_normal():
    source, generator = pair(3)
    torch.randn(3, generator=source)
    generator.normal((3,))
    assert generator.get_state()[5040] == 1
    other = ArrayGenerator().set_state(source.get_state().numpy())
    back = torch.Generator()
    back.set_state(torch.from_numpy(generator.get_state()))
    expected = torch.randn(4, generator=source)
    check(expected, other.normal((4,)), ULPS)
    check(torch.randn(4, generator=back), generator.normal((4,)), ULPS)


def test_bad_states():
    with pytest.raises(TypeError):
        ArrayGenerator().set_state(np.zeros(5056, np.int32))
    with pytest.raises(RuntimeError, match="5056"):
        ArrayGenerator().set_state(np.zeros(10, np.uint8))
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        ArrayGenerator().set_state(np.zeros(5056, np.uint8))


def test_clones():
    generator = ArrayGenerator().manual_seed(9)
    generator.normal((5,))
    clones = [
        generator.clone_state(),
        copy.deepcopy(generator),
        pickle.loads(pickle.dumps(generator)),
    ]
    expected = generator.normal((40,))
    for clone in clones:
        assert np.array_equal(clone.normal((40,)), expected)
        assert clone.initial_seed() == 9


# ------------------------------------------------------------------------ uniform and normal


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype):
    source, generator = pair(1)
    for n in SIZES:
        check(torch.rand(n, dtype=dtype, generator=source), generator.uniform((n,), FLOATS[dtype]))
        for low, high in ((-3.3, 7.7), (0.0, 0.3), (5.0, 6.0), (-1.0, 1.0), (2.0, 2.0)):
            expected = torch.empty(n, dtype=dtype).uniform_(low, high, generator=source)
            check(expected, generator.uniform((n,), FLOATS[dtype], low, high))
        same_state(source, generator)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype):
    source, generator = pair(2)
    name = FLOATS[dtype]
    for n in SIZES:
        # float32 blocks repeat the steps of the vector kernel; the rest calls the C library.
        exact = n >= 16 and dtype != torch.float64 and _vector_kernels()
        ulps = 0 if exact else ULPS
        check(torch.randn(n, dtype=dtype, generator=source), generator.normal((n,), name), ulps)
        for mean, std in ((1.7, 0.3), (0.0, 0.02), (2.2, 1.0), (3.0, 0.0)):
            expected = torch.empty(n, dtype=dtype).normal_(mean, std, generator=source)
            check(expected, generator.normal((n,), name, mean, std), ulps)
        same_state(source, generator)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_without_contiguity(dtype):
    source, generator = pair(4)
    for n in (2, 3, 16, 17, 1001):
        expected = torch.empty(n, 2, dtype=dtype)[:, 0].normal_(0.1, 2.0, generator=source)
        array = generator.normal((n,), FLOATS[dtype], 0.1, 2.0, contiguous=False)
        check(expected, array, ULPS)
        same_state(source, generator)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_with_arrays(dtype):
    source, generator = pair(5)
    for n in (1, 7, 16, 100):
        mean = torch.linspace(-1, 1, n).to(dtype)
        std = torch.linspace(0.1, 2, n).to(dtype)
        a, b = to_numpy(mean), to_numpy(std)
        check(torch.normal(mean, 0.3, generator=source), generator.normal_tensor(a, 0.3), ULPS)
        check(torch.normal(0.4, std, generator=source), generator.normal_tensor(0.4, b), ULPS)
        check(torch.normal(mean, std, generator=source), generator.normal_tensor(a, b), ULPS)
        wide = torch.normal(mean, std[:, None], generator=source)
        check(wide, generator.normal_tensor(a, b[:, None]), ULPS)
    same_state(source, generator)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex(dtype):
    source, generator = pair(6)
    name = np.complex64 if dtype == torch.complex64 else np.complex128
    for n in (0, 3, 8, 9, 1000):
        expected = torch.rand(n, 2, dtype=dtype, generator=source)
        check(expected, generator.uniform((n, 2), name))
        expected = torch.view_as_real(torch.randn(n, dtype=dtype, generator=source))
        array = generator.normal((n,), name)
        assert array.dtype == name
        check(expected, np.stack((array.real, array.imag), -1), ULPS)
    same_state(source, generator)


# ------------------------------------------------------------------------ integers


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool])
def test_random_without_bounds(dtype):
    name = {**FLOATS, **INTS, torch.bool: np.dtype(np.bool_)}[dtype]
    source, generator = pair(7)
    for n in SIZES[:-1]:
        check(torch.empty(n, dtype=dtype).random_(generator=source), generator.random((n,), name))
        expected = torch.empty(n, dtype=dtype).random_(1, None, generator=source)
        check(expected, generator.random((n,), name, 1))
    same_state(source, generator)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_randint(dtype):
    name = {**FLOATS, **INTS}[dtype]
    source, generator = pair(8)
    for n in SIZES:
        for low, high in ((0, 100), (3, 4), (0, 64)):
            expected = torch.randint(low, high, (n,), dtype=dtype, generator=source)
            check(expected, generator.randint((n,), low, high, name))
    same_state(source, generator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", FLOATS)
def test_randint_keeps_inside_after_rounding(dtype):
    source, generator = pair(9)
    for low, high in ((0, 65504), (-65504, 60001), (-60001, 65504), (-2049, 2049)):
        expected = torch.empty(3000, dtype=dtype).random_(low, high, generator=source)
        check(expected, generator.randint((3000,), low, high, FLOATS[dtype]))
    same_state(source, generator)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 2**28 - 1),
        (0, 2**28),
        (-5, 2**28 - 5),
        (-(2**40), 2**40),
        (0, 2**62 + 12345),
        (-(2**63), 2**63 - 1),
    ],
)
def test_randint_word_width(low, high):
    source, generator = pair(10)
    for n in (1, 17, 1000):
        expected = torch.randint(low, high, (n,), generator=source)
        check(expected, generator.randint((n,), low, high))
    same_state(source, generator)


def test_full_int64_range():
    source, generator = pair(11)
    expected = torch.empty(100, dtype=torch.int64).random_(-(2**63), None, generator=source)
    check(expected, generator.random((100,), np.int64, -(2**63)))
    same_state(source, generator)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 399, 400, 401, 1000, 100003])
def test_randperm(n):
    source, generator = pair(12)
    check(torch.randperm(n, generator=source), generator.randperm(n))
    expected = torch.randperm(n, dtype=torch.int32, generator=source)
    check(expected, generator.randperm(n, np.int32))
    same_state(source, generator)


# ------------------------------------------------------------------------ inversion


@plain_only
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool])
def test_bernoulli_number(dtype):
    name = {**FLOATS, **INTS, torch.bool: np.dtype(np.bool_)}[dtype]
    source, generator = pair(13)
    for n in SIZES:
        for p in (0.0, 0.3, 1.0):
            expected = torch.empty(n, dtype=dtype).bernoulli_(p, generator=source)
            check(expected, generator.bernoulli(p, (n,), name))
    same_state(source, generator)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_array(dtype):
    source, generator = pair(14)
    for n in SIZES:
        p = torch.linspace(0, 1, n).to(dtype)
        expected = torch.bernoulli(p, generator=source)
        check(expected, generator.bernoulli(to_numpy(p), None, FLOATS[dtype]))
        expected = torch.empty(3, n).bernoulli_(p, generator=source)
        check(expected, generator.bernoulli(to_numpy(p), (3, n)))
    same_state(source, generator)


@plain_only
def test_dropout_mask():
    generator = ArrayGenerator().manual_seed(15)
    torch.manual_seed(15)
    for n in (1, 16, 1000):
        expected = torch.nn.functional.dropout(torch.ones(n), 0.3)
        mask = generator.bernoulli(0.7, (n,))
        assert np.array_equal(expected.numpy() != 0, mask != 0)


@plain_only
@pytest.mark.parametrize("dtype", FLOATS)
def test_exponential(dtype):
    source, generator = pair(16)
    for n in SIZES:
        for rate in (1.0, 0.3):
            expected = torch.empty(n, dtype=dtype).exponential_(rate, generator=source)
            check(expected, generator.exponential((n,), FLOATS[dtype], rate), ULPS)
    same_state(source, generator)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cauchy_and_log_normal(dtype):
    source, generator = pair(17)
    name = FLOATS[dtype]
    for n in SIZES[:-1]:
        expected = torch.empty(n, dtype=dtype).cauchy_(0.3, 1.7, generator=source)
        check(expected, generator.cauchy((n,), name, 0.3, 1.7), ULPS)
        expected = torch.empty(n, dtype=dtype).log_normal_(0.3, 0.7, generator=source)
        check(expected, generator.log_normal((n,), name, 0.3, 0.7), ULPS)
        same_state(source, generator)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_geometric(dtype):
    source, generator = pair(18)
    for n in SIZES[:-1]:
        expected = torch.empty(n, dtype=dtype).geometric_(0.3, generator=source)
        check(expected, generator.geometric((n,), 0.3, {**FLOATS, **INTS}[dtype]))
    same_state(source, generator)


# ------------------------------------------------------------------------ categories


@plain_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5,), (1000,), (3, 8), (4, 5000)])
def test_multinomial(dtype, shape):
    source, generator = pair(19)
    weights = torch.rand(shape, dtype=dtype, generator=source)
    array = generator.uniform(shape, FLOATS[dtype])
    for count, replacement in ((1, False), (1, True), (4, False), (10, True), (5, False)):
        expected = torch.multinomial(weights, count, replacement, generator=source)
        check(expected, generator.multinomial(array, count, replacement))
    same_state(source, generator)


@plain_only
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_multinomial_half(dtype):
    # Without replacement equal quotients are common in half precision; their order is open,
    # so only single draws and draws with replacement are compared.
    source, generator = pair(20)
    weights = torch.rand(3, 50, dtype=dtype, generator=source)
    array = generator.uniform((3, 50), FLOATS[dtype])
    for count, replacement in ((1, False), (20, True)):
        expected = torch.multinomial(weights, count, replacement, generator=source)
        check(expected, generator.multinomial(array, count, replacement))
    same_state(source, generator)


def test_multinomial_errors():
    generator = ArrayGenerator()
    for weights, count in (
        (np.ones((2, 2, 2)), 1),
        (np.ones(3), 0),
        (np.ones(3), 4),
        (np.array([1.0, -1.0]), 1),
        (np.array([1.0, math.inf]), 1),
        (np.zeros(3), 1),
    ):
        with pytest.raises(RuntimeError):
            generator.multinomial(weights, count)


# ------------------------------------------------------------------------ rejection


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("top", [0.5, 9.99, 30.0, 1000.0])
def test_poisson(dtype, top):
    source, generator = pair(21)
    rates = torch.rand(300, dtype=dtype, generator=source) * top
    generator.uniform((300,), FLOATS[dtype])
    check(torch.poisson(rates, generator=source), generator.poisson(to_numpy(rates)))
    same_state(source, generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("top", [1, 10, 50, 1000, 100000])
def test_binomial(dtype, top):
    source, generator = pair(22)
    count = (torch.rand(300, dtype=dtype, generator=source) * top).floor()
    prob = torch.rand(300, dtype=dtype, generator=source)
    generator.uniform((2, 300), FLOATS[dtype])
    expected = torch.binomial(count, prob, generator=source)
    check(expected, generator.binomial(to_numpy(count), to_numpy(prob)))
    same_state(source, generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("top", [0.01, 1.5, 10.0, 1000.0])
def test_gamma_and_dirichlet(dtype, top):
    source, generator = pair(23)
    alpha = torch.rand(10, 20, dtype=dtype, generator=source) * top
    generator.uniform((10, 20), FLOATS[dtype])
    expected = torch._standard_gamma(alpha, generator=source)
    check(expected, generator.standard_gamma(to_numpy(alpha)), ULPS)
    same_state(source, generator)
    expected = torch._sample_dirichlet(alpha, generator=source)
    check(expected, generator.dirichlet(to_numpy(alpha)), ULPS)
    same_state(source, generator)


# ------------------------------------------------------------------------ mixed calls


@plain_only
@pytest.mark.parametrize("seed", [0, 77])
def test_mixed_calls(seed):
    source, generator = pair(seed)
    order = np.random.default_rng(seed)
    for _ in range(300):
        n = int(order.choice([0, 1, 3, 15, 16, 17, 50, 700, 1300]))
        kind = int(order.integers(6))
        if kind == 0:
            check(torch.rand(n, generator=source), generator.uniform((n,)))
        elif kind == 1:
            check(torch.randn(n, generator=source), generator.normal((n,)), ULPS)
        elif kind == 2:
            expected = torch.randn(n, dtype=torch.float64, generator=source)
            check(expected, generator.normal((n,), np.float64), ULPS)
        elif kind == 3:
            expected = torch.randint(0, 10, (n,), generator=source)
            check(expected, generator.randint((n,), 0, 10))
        elif kind == 4:
            check(torch.randperm(n, generator=source), generator.randperm(n))
        else:
            expected = torch.empty(n).bernoulli_(0.5, generator=source)
            check(expected, generator.bernoulli(0.5, (n,)))
        same_state(source, generator)


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.uniform((2,), low=1.0, high=0.0),
        lambda g: g.normal((2,), std=-1.0),
        lambda g: g.normal_tensor(0.0, np.array([-1.0])),
        lambda g: g.randint((2,), 3, 3),
        lambda g: g.randint((2,), 0, 1000, np.int8),
        lambda g: g.randperm(-1),
        lambda g: g.bernoulli(1.5, (2,)),
        lambda g: g.bernoulli(np.array([1.5])),
        lambda g: g.exponential((2,), lambd=0.0),
        lambda g: g.geometric((2,), 1.0),
        lambda g: g.cauchy((2,), sigma=0.0),
        lambda g: g.log_normal((2,), std=0.0),
        lambda g: g.poisson(np.array([-1.0])),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(RuntimeError):
        call(ArrayGenerator())


@pytest.mark.parametrize("seed", range(12))
def test_working_ahead_gives_the_same_stream(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small draws are taken from values made for a whole block of words."""
    rng = np.random.default_rng(seed)
    draws = [
        (str(rng.choice(["uniform", "normal", "scaled", "randint", "double", "state"])), int(n))
        for n in rng.choice([1, 2, 3, 15, 16, 17, 32, 48, 100, 128, 129, 700], 300)
    ]

    def stream() -> list[bytes]:
        g, found = ArrayGenerator().manual_seed(seed), []
        for kind, n in draws:
            if kind == "state":
                g.set_state(g.get_state())
            elif kind == "randint":
                found.append(g.randint((n,), 0, 1000).tobytes())
            elif kind == "scaled":
                found.append(g.normal((n,), np.float32, 3.0, 2.0).tobytes())
            elif kind == "double":
                found.append(g.normal((n,), np.float64).tobytes())
            else:
                drawn = getattr(g, kind)((n,))
                found.append(drawn.tobytes())
                assert drawn.base is None or drawn.base.size == n  # not all that was made ahead
        return found

    ahead = stream()
    monkeypatch.setattr(generator, "_FEW", 0)
    assert stream() == ahead
    monkeypatch.setattr(generator.selection, "pays", lambda uses=1: False)
    assert stream() == ahead
    monkeypatch.setattr(generator, "_FEW", 128)
    assert stream() == ahead
