"""``out=`` of every function in PyTorch's op table that takes it, against PyTorch.

Each function is given an ``out`` that is a strided view, of other dtypes, of another shape, that
overlaps itself or an input, or that gradients would have to flow through.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the op table comes from PyTorch, which is absent")
opdb = pytest.importorskip("opdb")

import weft  # noqa: E402

NO_OUT = "a layer's function, which here takes no out="
# op -> scenarios that are not compared, and why
EXCEPTIONS: dict[str, dict[str, str]] = {
    "equal": {"*": "gives a bool"},
    "histogramdd": {"*": "takes no out="},
    "lu": {"*": "superseded by linalg.lu_factor, and takes no out= here"},
    "native_batch_norm": {"*": NO_OUT},
    "nn.functional.avg_pool2d": {"*": NO_OUT},
    "nn.functional.avg_pool3d": {"*": NO_OUT},
    "nn.functional.linear": {"*": NO_OUT},
    "narrow_copy": {"*": "PyTorch writes beyond an out that is not contiguous"},
    "nn.functional.gelu": {"strided": "PyTorch leaves a strided out as it was"},
    "nn.functional.logsigmoid": {"resized": "PyTorch does not warn"},
    "all": {"uint8": "PyTorch rounds the input to uint8 first"},
    "normal": {"input overlap 0": "PyTorch draws over the means before it reads them"},
    "geqrf": {"input gradient": "its result has no gradient here"},
    "linalg.matrix_power": {"uint8": "PyTorch's rule depends on the power", "int64": "the same"},
    "linalg.multi_dot": {"self-overlap": "PyTorch's rule depends on the count of matrices"},
    "matmul": {"strided": "PyTorch can't fold the batch of a strided out into its rows"},
    "std": {"complex64": "PyTorch's rule depends on the count of dimensions"},
    "var": {"complex64": "PyTorch's rule depends on the count of dimensions"},
    "norm.nuc": {
        "self-overlap": "PyTorch's rules for norm depend on the norm",
        "input gradient": "PyTorch's rules for norm depend on the norm",
    },
}
# PyTorch has no gradient for these; weft does, and so refuses to lose it.
HAS_GRADIENT = ("special.airy_ai", "special.bessel", "special.modified", "special.scaled")
HAS_GRADIENT += ("special.spherical",)

# Ops whose values in a wider ``out`` differ by their own rounding, not by what ``out`` does.
UNROUNDED = ("polygamma", "special.", "fft.", "linalg.", "geqrf")

NAMES = [
    name
    for name, op in opdb.BY_NAME.items()
    if op.supports_out
    and op.name not in opdb.OUT_OF_SCOPE
    and name not in opdb.OUT_OF_SCOPE
    and "*" not in EXCEPTIONS.get(name, {})
]
# The suite takes every sixth, and one of each kind; the long run takes all.
KINDS = ("add", "cat", "eq", "gather", "linalg.svd", "max.reduction_with_dim", "sum", "zeros")
FEW = [name for i, name in enumerate(NAMES) if i % 6 == 0 or name in KINDS]
ALL = [pytest.param(n, marks=[] if n in FEW else [pytest.mark.deep]) for n in NAMES]


def listed(value: Any) -> list[Any]:
    """Several results, or the only one."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


class Case:
    """One op with one sample, and the shapes and dtypes of its results."""

    def __init__(self, name: str) -> None:
        self.name, self.op = name, opdb.BY_NAME[name]
        supported = {str(d).removeprefix("torch.") for d in self.op.supported_dtypes("cpu")}
        usual = ("float32", "int64", "complex64", "bool")
        self.dtype = next(d for d in usual if d in supported)
        self.ours = opdb.counterpart(self.op)
        few = opdb.Settings(samples=3)
        for sample in opdb.samples_of(self.op, self.dtype, few):
            args, kwargs = opdb.fresh(opdb.parts_of(sample))
            opdb.both_seeds()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self.op.op(*args, **kwargs)
            self.sample, self.several = sample, not isinstance(result, torch.Tensor)
            self.results = [(tuple(t.shape), str(t.dtype)[6:]) for t in listed(result)]
            if all(t.numel() > 1 for t in listed(result)):
                break

    def arguments(self, library: Any) -> tuple[list[Any], dict[str, Any]]:
        """The sample's arguments, on memory of their own."""
        args, kwargs = opdb.fresh(opdb.parts_of(self.sample))
        return (args, kwargs) if library is torch else opdb.to_weft((args, kwargs))

    def run(self, library: Any, given: tuple[Any, Any], outs: list[Any]) -> Any:
        """What the call says: nothing, the class of its error, or that it warned."""
        function = self.op.op if library is torch else self.ours
        opdb.both_seeds()
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                function(*given[0], out=tuple(outs) if self.several else outs[0], **given[1])
        except Exception as e:
            return type(e).__name__, marked(str(e))
        finally:
            torch.set_warn_always(False)
        resized = any("An output with one or more elements" in str(w.message) for w in caught)
        return ["resized with a warning"] if resized else []

    def compare(self, what: str, prepare: Callable[[Any], Any], values: bool = True) -> None:
        """Call both, and compare what they say and what is in memory afterwards."""
        if what in EXCEPTIONS.get(self.name, {}):
            return
        ways, memory = [], []
        for library in (torch, weft):
            prepared = prepare(library)
            if prepared is None:
                return
            given, outs, buffers = prepared
            ways.append(self.run(library, given, outs))
            memory.append((buffers, [tuple(o.shape) for o in outs]))
        said = f"{what}: {ways[1]} where torch has {ways[0]}"
        if isinstance(ways[0], tuple):
            kind, phrases = ways[0]
            assert ways[1] and ways[1][0] == kind and set(phrases) <= set(ways[1][1]), said
            return
        assert ways[1] == ways[0], said
        assert memory[1][1] == memory[0][1], f"{what}: shapes"
        free = self.op.name in opdb.UNSPECIFIED or self.op.name in opdb.UNIQUE_PARTS
        if values and not free:
            for ours, theirs in zip(memory[1][0], memory[0][0], strict=True):
                opdb.compare(ours, theirs, f"{what}: memory afterwards", 10.0)


MARKS = (
    "can't be cast to the desired output type",
    "Expected out tensor to have dtype",
    "safely castable",
    "more than one element of the written-to tensor",
    "some elements of the input tensor and the written-to tensor",
    "does not match dtype of out parameter",
)


def marked(message: str) -> list[str]:
    """The phrases of a message that people match on."""
    return [m for m in MARKS if m in message]


def strided(library: Any, shape: tuple[int, ...], d: Any) -> tuple[Any, Any]:
    """Every second element of a larger tensor, and that tensor."""
    if not shape:
        whole = library.full((3,), 7, dtype=d)
        return whole, whole[1]
    whole = library.full((*shape[:-1], 2 * shape[-1] + 1), 7, dtype=d)
    return whole, whole[..., 1 : 2 * shape[-1] : 2]


def plain(case: Case, library: Any, dtype: str | None = None, shape: Any = None) -> list[Any]:
    """Ordinary tensors for all results; the first of another dtype or shape."""
    made = []
    for i, (own, d) in enumerate(case.results):
        d = dtype if dtype and not i else d
        made.append(library.full(shape or own, 3, dtype=getattr(library, d)))
    return made


@pytest.mark.parametrize("name", ALL)
def test_out_is_as_in_torch(name: str) -> None:
    case = Case(name)

    def with_views(library: Any) -> Any:
        pairs = [strided(library, s, getattr(library, d)) for s, d in case.results]
        return case.arguments(library), [v for _, v in pairs], [w for w, _ in pairs]

    def with_shape(library: Any) -> Any:
        outs = plain(case, library, shape=(2, 3, 2))
        return case.arguments(library), outs, outs

    def with_repeats(library: Any) -> Any:
        outs = plain(case, library)
        shape, d = case.results[0]
        if not shape or max(shape) < 2:
            return None
        outs[0] = library.zeros(1, dtype=getattr(library, d)).expand(shape)
        return case.arguments(library), outs, outs

    def with_gradient(library: Any) -> Any:
        given, outs = case.arguments(library), plain(case, library)
        floating = [t for t in opdb.tensors_in(given) if t.is_floating_point() or t.is_complex()]
        for t in floating:
            t.requires_grad_()
        return (given, outs, []) if floating else None

    case.compare("strided", with_views)
    case.compare("resized", with_shape)
    for dtype in ("uint8", "int64", "float64", "complex64"):
        if dtype == case.results[0][1]:
            continue

        def with_dtype(library: Any, dtype: str = dtype) -> Any:
            outs = plain(case, library, dtype)
            return case.arguments(library), outs, outs

        drawn = case.op.name.startswith(("rand", "normal"))
        case.compare(dtype, with_dtype, values=not drawn and not name.startswith(UNROUNDED))
    case.compare("self-overlap", with_repeats, values=False)
    if not name.startswith(HAS_GRADIENT):
        case.compare("input gradient", with_gradient, values=False)


@pytest.mark.parametrize("name", ALL)
def test_out_on_the_memory_of_an_input(name: str) -> None:
    case = Case(name)
    read = opdb.tensors_in(case.arguments(torch))
    fitting = [
        i
        for i, t in enumerate(read)
        if (tuple(t.shape), str(t.dtype)[6:]) == case.results[0] and t.numel() > 1
    ]
    for place, shift in [(i, s) for i in fitting for s in (0, 1)]:

        def sharing(library: Any, place: int = place, shift: int = shift) -> Any:
            args, kwargs = case.arguments(library)
            source = opdb.tensors_in((args, kwargs))[place]
            whole = library.zeros(source.numel() + shift, dtype=source.dtype)
            same = whole[: source.numel()].reshape(source.shape)
            same.copy_(source.detach())
            given = replaced((args, kwargs), source, same)
            outs = plain(case, library)
            outs[0] = whole[shift:].reshape(source.shape)
            return given, outs, [whole, *outs[1:]]

        # Where PyTorch lets an input be half overwritten, it reads what it wrote.
        sound = shift == 0 and case.op.name not in ("addmm", "baddbmm", "linalg.matrix_power")
        case.compare(f"input overlap {shift}", sharing, values=sound)


def replaced(value: Any, old: Any, new: Any) -> Any:
    """Nested arguments with one tensor exchanged."""
    if value is old:
        return new
    if type(value) in (list, tuple):
        return type(value)(replaced(v, old, new) for v in value)
    if isinstance(value, dict):
        return {k: replaced(v, old, new) for k, v in value.items()}
    return value


def test_out_that_requires_grad_is_refused() -> None:
    a, leaf = weft.ones(3), weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        weft.add(a, a, out=leaf)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        weft.mul(leaf, leaf, out=weft.empty(3))
    with weft.no_grad():
        assert weft.mul(leaf, a, out=weft.empty(3)).tolist() == [1, 1, 1]


def test_out_of_a_composite_function_is_part_of_the_graph() -> None:
    x, out = weft.tensor([3.0, 4.0], requires_grad=True), weft.empty(())
    weft.linalg.norm(x, out=out).backward()
    assert x.grad.tolist() == pytest.approx([0.6, 0.8])


def test_out_of_several_results_is_checked_before_any_is_written() -> None:
    values, places = weft.full((2,), 7.0), weft.full((2,), 7, dtype=weft.int32)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype long int"):
        weft.max(weft.rand(2, 3), 1, out=(values, places))
    assert values.tolist() == [7, 7]
    with pytest.raises(TypeError, match="must be tuple of 2 Tensors"):
        weft.max(weft.rand(2, 3), 1, out=values)


@pytest.mark.parametrize(
    "make", ["arange(0, 4", "linspace(0, 3, 4", "logspace(0, 3, 4, 2", "range(0, 3"]
)
def test_spaced_values_are_written_through_a_view(make: str) -> None:
    whole = []
    for library in (torch, weft):
        x = library.zeros(2, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(f"torch.{make}, out=view)", {"torch": library, "view": x.narrow(1, 1, 2)})
        whole.append(x.tolist())
    assert whole[1] == whole[0]


def test_sums_are_computed_in_the_dtype_of_out() -> None:
    for function in ("sum", "prod", "cumsum", "cumprod"):
        found = []
        for library in (torch, weft):
            x = library.tensor([0.5, 1.5, 2.5])
            call = getattr(library, function)
            for d in ("int64", "float64", "complex64"):
                found.append(call(x, 0, out=library.empty(0, dtype=getattr(library, d))).tolist())
        assert found[3:] == found[:3], function


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(0,), (1, 2, 4, 4), (2, 3)])
def test_out_of_another_shape_is_changed_once(shape: tuple[int, ...]) -> None:
    """Its version says so; what is resized and written to counts as one change."""
    for library in (torch, weft):
        x, one, two = library.ones(2, 3), library.zeros(shape), library.zeros(shape)
        places = library.zeros(shape, dtype=library.int64)
        library.add(x, 1, out=one)
        library.max(x, 1, out=(two, places))
        assert (one._version, two._version, places._version) == (1, 1, 1)
