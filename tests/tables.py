"""PyTorch's tables of modules, optimizers and erroneous inputs as tests of weft.

Beside the op table (see ``opdb``) PyTorch's wheel carries ``module_db`` (every module with sample
inputs), ``optim_db`` (every optimizer with settings and expected errors) and, for ops and modules,
inputs that must be refused. Each entry is run in both systems.

    python -m tables                       # all of them, with pass rates
    python -m tables errors 'linalg.*'     # one table, entries by name or pattern
"""

from __future__ import annotations

import copy
import fnmatch
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import opdb
import weft
from opdb import Absent, Mismatch, Unsupported, both_seeds, compare, fresh, to_weft, torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

# Entries that no CPU build of weft can have, with the reason.
OUT_OF_SCOPE = {
    "SparseAdam": "sparse gradients",
    "errors jiterator_binary": opdb.CUDA,
}


class NotRaised(AssertionError):
    """weft gives a result where PyTorch refuses."""


Case = tuple[str, Callable[[], None]]


def raised(function: Callable[[], Any]) -> Exception | None:
    """The error of a call, or None. A warning that was asked to be an error is one."""
    try:
        function()
    except Exception as error:
        return error
    return None


def check_refusal(ours: Callable[[], Any], theirs: Callable[[], Any], kind: type) -> None:
    """Both systems refuse, with the same kind of error."""
    expected = raised(theirs)
    if expected is None:
        raise Unsupported("PyTorch itself does not refuse")
    found = raised(ours)
    text = str(expected).split("\n")[0][:120]
    if found is None:
        raise NotRaised(f"no error; torch: {type(expected).__name__}: {text}")
    if isinstance(found, (Absent, Unsupported)):
        raise found
    if not isinstance(found, type(expected)) and not isinstance(found, kind):
        raise NotRaised(
            f"{type(found).__name__}: {str(found).splitlines()[0][:120]}; "
            f"torch: {type(expected).__name__}: {text}"
        )


# --- inputs that an op must refuse ------------------------------------------------------


def error_cases() -> Iterator[tuple[str, Callable[[], list[Case]]]]:
    """The entries of the op table that say which inputs are errors."""
    for name, op in opdb.BY_NAME.items():
        outside = op.name in opdb.OUT_OF_SCOPE or name in opdb.OUT_OF_SCOPE
        if op.error_inputs_func is not None and not outside:
            yield f"errors {name}", lambda op=op: _errors_of(op)


def _errors_of(op: Any) -> list[Case]:
    torch.manual_seed(0)
    cases = []
    for number, error in enumerate(op.error_inputs("cpu")):
        args, kwargs = opdb.parts_of(error.sample_input)

        def case(args: Any = args, kwargs: Any = kwargs, error: Any = error) -> None:
            if any(t.device.type != "cpu" for t in opdb.tensors_in((args, kwargs))):
                raise Unsupported("another device")
            ours = opdb.counterpart(op)

            def call() -> None:
                w_args, w_kwargs = _sharing((args, kwargs))
                ours(*w_args, **w_kwargs)

            check_refusal(call, lambda: op.op(*args, **kwargs), error.error_type)

        cases.append((f"{number}: {opdb.described((args, kwargs))}", case))
    return cases


def _sharing(value: Any) -> Any:
    """A sample for weft in which tensors share memory where PyTorch's do."""
    wholes: dict[int, Any] = {}

    def convert(v: Any) -> Any:
        if not isinstance(v, torch.Tensor) or v.device.type != "cpu" or v.is_complex():
            return to_weft(v)
        storage = v.untyped_storage()
        key = storage.data_ptr()
        if not storage.nbytes() or v.dtype.itemsize > storage.nbytes():
            return to_weft(v)
        if key not in wholes:
            whole = torch.empty(0, dtype=v.dtype).set_(storage)
            wholes[key] = to_weft(whole.clone())
        whole = wholes[key]
        if whole.dtype != to_weft(v.dtype):
            return to_weft(v)
        view = whole.as_strided(tuple(v.shape), v.stride(), v.storage_offset())
        return view.requires_grad_(v.requires_grad)

    return opdb.walk(value, convert)


# --- modules ----------------------------------------------------------------------------


def module_cases() -> Iterator[tuple[str, Callable[[], list[Case]]]]:
    """Every module of the table: construction, forward, backward, state, errors."""
    for info in module_db:
        yield f"modules {info.name}", lambda info=info: _uses_of(info)


def _uses_of(info: Any) -> list[Case]:
    cases: list[Case] = []
    for dtype in (torch.float32, torch.float64):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            for use in info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            ):
                label = f"{str(dtype)[6:]} training={training} {use.desc}"
                cases.append((label, lambda a=(info, use, dtype, training): _compare_module(*a)))
    if info.module_error_inputs_func is not None:
        for error in info.module_error_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
        ):
            cases.append((f"error {error.error_regex}", lambda e=error: _refused_module(info, e)))
    return cases


def _built(library: Any, info: Any, given: Any, dtype: Any) -> Any:
    both_seeds()
    kwargs = dict(given.kwargs)
    if library is weft:
        path = info.module_cls.__module__.removeprefix("torch.").split(".modules")[0]
        path = path if path.startswith("ao") else "nn"
        cls = opdb.look_up(weft, f"{path}.{info.module_cls.__name__}")
        args, kwargs = to_weft(_converted((fresh(given.args), fresh(kwargs))))
        return cls(*args, **kwargs).to(to_weft(dtype))
    return info.module_cls(*fresh(given.args), **fresh(kwargs)).to(dtype)


def _converted(value: Any) -> Any:
    """Modules among the arguments, by way of a file."""

    def convert(v: Any) -> Any:
        if not isinstance(v, torch.nn.Module) or isinstance(v, torch.nn.PairwiseDistance):
            return v
        file = io.BytesIO()
        torch.save(v, file)
        file.seek(0)
        return weft.load(file, weights_only=False)

    return opdb.walk(value, convert)


def _compare_module(info: Any, use: Any, dtype: Any, training: bool) -> None:
    theirs, ours = (_built(lib, info, use.constructor_input, dtype) for lib in (torch, weft))
    theirs.train(training)
    ours.train(training)
    if not info.is_lazy:
        compare(dict(ours.state_dict()), dict(theirs.state_dict()), "state at first", 1.0)
    if use.forward_input is None:
        return
    args, kwargs = fresh((list(use.forward_input.args), dict(use.forward_input.kwargs)))
    w_args, w_kwargs = to_weft((args, kwargs))
    both_seeds()
    expected = theirs(*args, **kwargs)
    both_seeds()
    actual = ours(*w_args, **w_kwargs)
    compare(actual, expected, "result", 1.0)
    compare(dict(ours.state_dict()), dict(theirs.state_dict()), "state", 1.0)
    if str(ours) != str(theirs):
        raise Mismatch(f"prints as {ours!s}, torch's as {theirs!s}")
    outs = [t for t in opdb.tensors_in(expected) if t.requires_grad]
    w_outs = [t for t in opdb.tensors_in(actual) if t.requires_grad]
    if len(outs) != len(w_outs):
        raise Mismatch(f"{len(w_outs)} results need a gradient, {len(outs)} of torch's")
    if not outs:
        return
    for library, results in ((torch, outs), (weft, w_outs)):
        weights = [opdb.cotangent(library, t, (0, i)) for i, t in enumerate(results)]
        library.autograd.backward(results, weights)
    pairs = zip(opdb.tensors_in((w_args, w_kwargs)), opdb.tensors_in((args, kwargs)), strict=True)
    for number, (w, t) in enumerate(pairs):
        compare(w.grad, t.grad, f"gradient of input {number}", 10.0)
    for (name, w), (_, t) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        compare(w.grad, t.grad, f"gradient of {name}", 10.0)
    twin = copy.deepcopy(ours)
    compare(dict(twin.state_dict()), dict(theirs.state_dict()), "state of a copy", 1.0)


def _refused_module(info: Any, error: Any) -> None:
    use = error.module_error_input
    if error.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
        build = lambda lib: _built(lib, info, use.constructor_input, torch.float32)
        check_refusal(lambda: build(weft), lambda: build(torch), error.error_type)
        return
    theirs, ours = (
        _built(lib, info, use.constructor_input, torch.float32) for lib in (torch, weft)
    )
    args, kwargs = list(use.forward_input.args), dict(use.forward_input.kwargs)
    w_args, w_kwargs = to_weft((fresh(args), fresh(kwargs)))
    check_refusal(
        lambda: ours(*w_args, **w_kwargs), lambda: theirs(*args, **kwargs), error.error_type
    )


# --- optimizers -------------------------------------------------------------------------

STEPS = 6
SEARCHES = 2  # steps of an optimizer that itself evaluates until it converges


def optimizer_cases() -> Iterator[tuple[str, Callable[[], list[Case]]]]:
    """Every optimizer of the table with all its settings: steps, state, errors."""
    for info in optim_db:
        if info.optim_cls.__name__ not in OUT_OF_SCOPE:
            yield f"optimizers {info.optim_cls.__name__}", lambda info=info: _settings_of(info)


def _settings_of(info: Any) -> list[Case]:
    cases: list[Case] = []
    # A search stops when it has converged, so rounding in float32 decides how long it is.
    kinds = [torch.float64] if info.step_requires_closure else [torch.float32, torch.float64]
    if info.supports_complex:
        kinds.append(torch.complex128)
    for use in info.optim_inputs_func(device="cpu"):
        for dtype in kinds:
            for extra in ({}, {"foreach": True}, {"differentiable": True}, {"fused": True}):
                if any(k not in (*info.supported_impls, "differentiable") for k in extra):
                    continue
                label = f"{use.desc} {str(dtype)[6:]} {extra or ''}"
                cases.append(
                    (label, lambda a=(info, use, dtype, extra): _compare_steps(*a, groups=False))
                )
            if info.supports_param_groups:
                label = f"{use.desc} {str(dtype)[6:]} in two groups"
                cases.append(
                    (label, lambda a=(info, use, dtype, {}): _compare_steps(*a, groups=True))
                )
    for error in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        cases.append((f"error {error.error_regex}", lambda e=error: _refused_optimizer(info, e)))
    return cases


def _parameters(library: Any, dtype: Any, flat: bool) -> list[Any]:
    """Two parameters with fixed values, as matrices where an optimizer wants no others."""
    rng = np.random.default_rng(3)
    made = []
    for shape in ((4, 3), (3, 5) if flat else (5,)):
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
        tensor = torch.tensor(values, dtype=dtype)
        made.append(tensor.requires_grad_() if library is torch else to_weft(tensor))
    return [p.requires_grad_() for p in made]


def _loss(library: Any, params: list[Any], step: int) -> Any:
    total = 0.0
    for k, p in enumerate(params):
        x = library.view_as_real(p) if p.is_complex() else p
        total = total + ((x * (k + 1) - 0.1 * step) ** 4).mean() + x.sin().sum() * 0.01
    return total


def _compare_steps(info: Any, use: Any, dtype: Any, extra: dict[str, Any], groups: bool) -> None:
    results = []
    for library in (torch, weft):
        kwargs = {**use.kwargs, **extra}
        if library is weft:
            kwargs = to_weft(fresh(kwargs))
        else:
            kwargs = fresh(kwargs)
        params = _parameters(library, dtype, info.optim_cls.__name__ == "Muon")
        given: Any = params
        if groups:
            given = [{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.05}]
        cls = getattr(library.optim, info.optim_cls.__name__)
        try:
            results.append(
                _train(library, cls(given, **kwargs), params, info.step_requires_closure)
            )
        except Exception as error:
            if library is torch:
                raise Unsupported(str(error)) from None
            raise
    for what, theirs, ours in zip(("parameters", "state"), *results, strict=True):
        compare(ours, theirs, what, 10.0)


def _train(library: Any, optimizer: Any, params: list[Any], closure: bool) -> tuple[Any, Any]:
    for step in range(SEARCHES if closure else STEPS):

        def evaluate(step: int = step) -> Any:
            optimizer.zero_grad()
            loss = _loss(library, params, step)
            loss.backward()
            return loss

        if closure:
            optimizer.step(evaluate)
        else:
            evaluate()
            optimizer.step()
    state = optimizer.state_dict()
    return [p.detach() for p in params], _plain(library, state)


def _plain(library: Any, value: Any) -> Any:
    """A state without what is a system's own affair, such as tensors that carry history."""
    if isinstance(value, library.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {k: _plain(library, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(library, v) for v in value)
    return value


def _refused_optimizer(info: Any, error: Any) -> None:
    given = error.optimizer_error_input

    def use(library: Any) -> None:
        params, kwargs = given.params, dict(given.kwargs)
        cls = getattr(library.optim, info.optim_cls.__name__)
        if library is weft:
            params, kwargs = _given(params), to_weft(fresh(kwargs))
        with warnings.catch_warnings():
            if issubclass(error.error_type, Warning):
                warnings.simplefilter("error", error.error_type)
            optimizer = cls(params, **kwargs)
            if error.error_on is OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()

    check_refusal(lambda: use(weft), lambda: use(torch), error.error_type)


def _given(params: Any) -> Any:
    """Parameters for weft, with their gradients; one that is given twice is one here too."""
    made: dict[int, Any] = {}

    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return to_weft(value)
        if id(value) not in made:
            made[id(value)] = to_weft(value)
            if value.grad is not None:
                made[id(value)].grad = to_weft(value.grad)
        return made[id(value)]

    return opdb.walk(params, convert)


# --- running ----------------------------------------------------------------------------

TABLES: dict[str, Callable[[], Iterator[tuple[str, Callable[[], list[Case]]]]]] = {
    "modules": module_cases,
    "optimizers": optimizer_cases,
    "errors": error_cases,
}
ENTRIES: dict[str, Callable[[], list[Case]]] = {
    name: cases for table in TABLES.values() for name, cases in table() if name not in OUT_OF_SCOPE
}


def failures(name: str) -> tuple[int, dict[str, str]]:
    """How many cases of an entry were compared, and what became of those that differ."""
    compared, found = 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, case in ENTRIES[name]():
            try:
                case()
            except Unsupported:
                continue
            except Exception as error:
                plain = isinstance(error, (Mismatch, NotRaised))
                text = str(error).split("\n  at ")[0]
                found[label] = text if plain else f"{type(error).__name__}: {text}"
            compared += 1
    return compared, found


def main() -> int:
    """Print what differs and the pass rate of each table."""
    asked = [a for a in sys.argv[1:] if a in TABLES] or list(TABLES)
    patterns = [a for a in sys.argv[1:] if a not in TABLES] or ["*"]
    wrong = 0
    for table in asked:
        entries = passed = cases = right = 0
        for name in ENTRIES:
            kind, _, short = name.partition(" ")
            if kind != table or not any(fnmatch.fnmatchcase(short, p) for p in patterns):
                continue
            compared, found = failures(name)
            for label, text in found.items():
                print(f"{short}  [{label[:150]}]\n    {text[:300]}", flush=True)
            entries += 1
            passed += not found
            cases += compared
            right += compared - len(found)
        rate = 100 * right / max(cases, 1)
        print(f"{table}: {passed} of {entries} entries, {right} of {cases} cases ({rate:.1f}%)")
        wrong += cases - right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
