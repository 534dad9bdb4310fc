"""Names of PyTorch's that libraries use: those of the table, and what they do where they work."""

from __future__ import annotations

import csv
import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import warnings
from types import ModuleType
from typing import Any

import pytest

import weft
from weft.compat import names, table, tree
from weft.compat.stand_ins import c, datapipes, foreach, helpers, parallel, text
from weft.core import absent
from weft.utils import _pytree

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]
ENTRIES = [
    (module, entry) for module, entries in tree.parsed().modules.items() for entry in entries
]


def status(name: str) -> str:
    """What weft makes of a name: a module, something that works, or a mere name."""
    try:
        found = names.look_up(name)
    except names.RefusedName:
        return "named"
    except names.Missing:
        return "left out"
    return "module" if isinstance(found, ModuleType) else "works"


def test_names_that_libraries_use() -> None:
    with open(pathlib.Path(__file__).with_name("library_names.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 190
    assert [(r["name"], status(r["name"])) for r in rows] == [
        (r["name"], r["status"]) for r in rows
    ]
    assert all(r["status"] != "left out" for r in rows)


def test_every_name_of_the_table_is_found() -> None:
    lost = [f"{m}.{e}" for m, e in ENTRIES if e != "*" and status(f"{m}.{e}") == "left out"]
    assert len(ENTRIES) > 1500 and lost == []


def test_every_reason_is_used_and_says_what_to_do() -> None:
    used = {e.reason for entries in tree.parsed().modules.values() for e in entries.values()}
    assert used - {""} == set(table.REASONS)
    assert all(missing and instead for missing, instead in table.REASONS.values())


def test_pytorch_has_the_public_modules_of_the_table() -> None:
    """The table names what there is: no module and no public name of it is made up."""
    strange = []
    for module in tree.parsed().modules:
        if "._" in module or module.startswith(("torch.utils.data.datapipes", "torch.mtia")):
            continue
        try:
            found = __import__(module, fromlist=["_"])
        except ImportError:
            strange.append(module)
            continue
        public = [n for n in tree.parsed().modules[module] if not n.startswith(("_", "*"))]
        with warnings.catch_warnings():  # some names say that they are old
            warnings.simplefilter("ignore")
            strange += [f"{module}.{n}" for n in public if not hasattr(found, n)]
    assert strange == []


def test_a_mere_name_is_a_class_without_instances() -> None:
    graph: Any = names._member(weft, "torch", "export").ExportedProgram
    assert not isinstance(1, graph) and not isinstance(weft.ones(1), graph)
    assert str(graph | None) == "torch.export.ExportedProgram | None"

    class Own(graph):  # type: ignore[misc]
        pass

    for kind in (graph, Own):
        with pytest.raises(
            RuntimeError, match=r"torch\.export\.ExportedProgram: weft does not export.*record"
        ) as e:
            kind()
        assert "test_torch_names.py" in str(e.value)
    with pytest.raises(AttributeError, match="does not export"):
        graph.some_method()
    assert tree.module("torch.export").ExportedProgram is graph


@pytest.mark.parametrize(
    "name",
    ["complex32", "uint1", "uint4", "int7", "bits16", "quint8", "float4_e2m1fn_x2"],
)
def test_a_dtype_that_weft_lacks_can_be_compared_with(name: str) -> None:
    named, theirs = tree.member("torch", name), getattr(torch, name)
    assert isinstance(named, weft.dtype) and repr(named) == repr(theirs)
    assert weft.ones(1).dtype != named and weft.complex64 not in (named,)
    for about in ("itemsize", "is_complex", "is_floating_point"):
        assert getattr(named, about) == getattr(theirs, about)
    assert pickle.loads(pickle.dumps(named)) is named
    for make in (weft.ones, weft.empty):
        with pytest.raises(TypeError, match=rf"no tensors of dtype torch\.{name}. Use .*"):
            make(1, dtype=named)
    with pytest.raises(TypeError, match="no tensors of dtype"):
        weft.ones(1).to(named)


def test_a_method_that_weft_lacks_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"Tensor\.to_sparse_csr.*few functions.*Use a dense"):
        weft.eye(2).to_sparse_csr()
    with pytest.raises(AttributeError, match=r"_make_wrapper_subclass.*__torch_function__"):
        weft.Tensor._make_wrapper_subclass(weft.Tensor, (2,))
    assert not hasattr(weft.eye(2), "to_sparse_csr")
    missing = {m for names in absent.METHODS.values() for m in names.split()}
    assert [m for m in missing if not hasattr(torch.Tensor, m)] == []
    assert [m for m in missing if hasattr(weft.Tensor, m)] == []


STREAMS = """
s = T.Stream(); e = T.Event(); repr(s)
repr(e)
(s.device.type, s.stream_id, s.query(), s == T.Stream(), len({s, T.Stream()}))
(s.synchronize(), s.wait_event(e), e.query(), e.wait(), e.synchronize())
e.record()
s.wait_stream(s)
s.record_event()
e.elapsed_time(e)
T.Stream(device="cuda")
"""


@pytest.mark.parametrize("line", STREAMS.strip().splitlines()[1:])
def test_streams_and_events_of_the_cpu(line: str) -> None:
    class Ours:
        Stream, Event = tree.member("torch", "Stream"), tree.member("torch", "Event")

    def outcome(library: Any) -> Any:
        names = {"T": library, "s": library.Stream(), "e": library.Event()}
        try:
            return eval(line, names)
        except (RuntimeError, ValueError) as error:
            return type(error), str(error)[:30]

    assert outcome(Ours) == outcome(torch)


DEVICES = """
memory_allocated() max_memory_allocated() memory_reserved() is_bf16_supported() is_initialized()
get_rng_state_all() set_rng_state_all([]) memory_stats() empty_cache() device_count()
get_device_name() get_device_properties() current_device() mem_get_info() set_device(0)
synchronize() manual_seed(0) current_stream() get_arch_list()
"""


@pytest.mark.parametrize("call", DEVICES.split())
def test_xpu_answers_as_pytorch_without_one(call: str) -> None:
    def outcome(library: Any) -> Any:
        try:
            return eval(f"xpu.{call}", {"xpu": library.xpu})
        except AssertionError as error:
            return str(error)[:35]

    assert outcome(weft) == outcome(torch)


def test_mps_has_the_names_of_pytorch_and_refuses() -> None:
    for name in ("current_allocated_memory", "recommended_max_memory", "synchronize"):
        for library in (weft, torch):
            with pytest.raises(RuntimeError, match="MPS"):
                getattr(library.mps, name)()


def test_while_loop_runs_and_is_differentiated() -> None:
    loop = tree.member("torch._higher_order_ops", "while_loop")
    x = weft.tensor(2.0, requires_grad=True)
    count, y = loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (weft.tensor(0), x))
    y.backward()
    assert count == 3 and y == 16.0 and x.grad == 32.0


def test_products_of_scaled_float8_matrices() -> None:
    def product(T: Any, scaled: Any) -> list[Any]:
        T.manual_seed(0)
        a = (T.randn(16, 32) * 3).to(T.float8_e4m3fn)
        b = T.randn(16, 32).to(T.float8_e4m3fn)
        by = T.tensor(0.5), T.tensor(2.0)
        return [
            scaled(a, b.t(), *by, out_dtype=dtype).float().tolist()
            for dtype in (T.float32, T.bfloat16)
        ]

    ours = product(weft, tree.member("torch", "_scaled_mm"))
    for mine, theirs in zip(ours, product(torch, torch._scaled_mm), strict=True):
        assert weft.allclose(weft.tensor(mine), weft.tensor(theirs), rtol=0.01, atol=1e-3)


def test_backends_can_be_named() -> None:
    ours, theirs = tree.member("torch.distributed", "Backend"), torch.distributed.Backend
    assert ours("GLOO") == theirs("GLOO") == "gloo" and ours.NCCL == theirs.NCCL
    assert ours.backend_list == theirs.backend_list
    with pytest.raises(ValueError, match="string-ish"):
        ours(3)
    with pytest.raises(RuntimeError, match="one process"):
        ours.register_backend("mine", print)


def test_marks_for_other_profilers_can_be_switched_off() -> None:
    nvtx = tree.member("torch.autograd.profiler", "emit_nvtx")
    with nvtx(enabled=False):
        pass
    with pytest.raises(RuntimeError, match="enabled=False"), nvtx():
        pass


def test_a_mere_function_refuses_and_an_enumeration_has_its_members() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.onnx\.export: .*ONNX.*Save the weights"):
        tree.member("torch.onnx", "export")(None)
    importlib.import_module("torch.distributed.fsdp")
    strategy = tree.member("torch.distributed.fsdp", "ShardingStrategy")
    assert strategy.FULL_SHARD.name in torch.distributed.fsdp.ShardingStrategy.__members__
    error = tree.member("torch._dynamo.exc", "Unsupported")
    assert issubclass(error, Exception)
    with pytest.raises(AttributeError, match=r"weft does not have torch\.fx\.zzz"):
        tree.member("torch.fx", "zzz")


WEFT_RUN = [sys.executable, "-m", "weft", "run", "--no-check"]


def run(script: str, folder: pathlib.Path) -> str:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*WEFT_RUN, str(path)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_and_classes_say_torch(tmp_path: pathlib.Path) -> None:
    script = """
        import inspect, pickle, sys
        import torch, torch.nn.functional as F
        assert torch.__name__ == "torch" and torch.torch is torch
        assert F.__name__ == "torch.nn.functional" and torch.nn.__name__ == "torch.nn"
        from torch.nn.modules.batchnorm import _BatchNorm, BatchNorm2d
        from torch.nn.modules.utils import _pair
        from torch.nn.parallel.data_parallel import DataParallel
        from torch.nn.parallel.scatter_gather import scatter
        from torch.optim.adam import Adam
        import torch.export, torch.fx.node, torch.distributed.tensor.parallel, torch.nn.modules.conv
        assert callable(torch.nn.parallel.data_parallel) and _pair(2) == (2, 2)
        assert torch.nn.modules.conv.Conv2d is torch.nn.Conv2d
        assert torch.nn.modules.conv.__name__ == "torch.nn.modules.conv"
        assert inspect.getsourcefile(BatchNorm2d).endswith("normalization.py")
        homes = {
            torch.Tensor: "torch", torch.nn.Parameter: "torch.nn.parameter", torch.Size: "torch",
            torch.nn.Linear: "torch.nn.modules.linear", BatchNorm2d: "torch.nn.modules.batchnorm",
            torch.optim.Adam: "torch.optim.adam", F.relu: "torch.nn.functional",
            torch.no_grad: "torch.autograd.grad_mode", torch.dtype: "torch",
            torch.optim.lr_scheduler.OneCycleLR: "torch.optim.lr_scheduler",
            torch.distributions.Normal: "torch.distributions.normal",
            torch.utils.data.DataLoader: "torch.utils.data.dataloader",
            torch.FloatTensor: "torch", torch.Generator: "torch._C",
        }
        for thing, home in homes.items():
            assert thing.__module__ == home, (thing, thing.__module__)
            assert pickle.loads(pickle.dumps(thing)) is thing
        from weft import compat, graph
        assert graph.record.__module__.startswith("weft.graph")
        import weft
        assert weft is torch and torch.ops.aten.add.Tensor(torch.ones(1), 1).item() == 2
        compat.uninstall()
        assert weft.__name__ == "weft" and weft.nn.Linear.__module__ == "weft.nn.linear"
        assert "torch" not in sys.modules and not hasattr(weft, "export")
        print("done")
        """
    assert run(script, tmp_path) == "done\n"


def test_type_hints_of_renamed_classes(tmp_path: pathlib.Path) -> None:
    script = """
        import typing, torch
        class Net(torch.nn.Module):
            size: int
        hints = typing.get_type_hints(Net)
        print(hints["size"], hints["training"])
        from torch.jit.annotations import BroadcastingList2, List, Optional
        def pool(x: List[int], size: BroadcastingList2[int]): pass
        print(Optional[int])
        """
    assert run(script, tmp_path) == "<class 'int'> <class 'bool'>\ntyping.Optional[int]\n"


# ------------------------------------------------------------------ what works


def test_what_is_registered_with_exporters_and_other_processes_is_kept() -> None:
    kept = tree.member("torch.onnx.symbolic_helper", "parse_args")("v", "f")(len)
    assert kept is len
    assert tree.member("torch.onnx", "register_custom_op_symbolic")("a::b", len, 11) is None
    called = tree.member("torch.distributed.rpc.api", "_require_initialized")(len)
    with pytest.raises(RuntimeError, match=r"RPC has not been initialized.*one process"):
        called([])


def test_a_bar_that_shows_nothing() -> None:
    from weft.compat.stand_ins import progress

    with progress.tqdm(range(3), disable=True) as bar:
        assert list(bar) == [0, 1, 2]
        bar.update(1)


def both(function: Any) -> tuple[Any, Any]:
    return function(weft), function(torch)


FOREACH = [
    ("_foreach_add", lambda T, a, b: (a, b)),
    ("_foreach_add", lambda T, a, b: (a, 2.0)),
    ("_foreach_add", lambda T, a, b: (a, [1.0, 2.0])),
    ("_foreach_sub_", lambda T, a, b: (a, b)),
    ("_foreach_mul_", lambda T, a, b: (a, T.tensor(3.0))),
    ("_foreach_div", lambda T, a, b: (a, b)),
    ("_foreach_pow", lambda T, a, b: (a, 2)),
    ("_foreach_sqrt", lambda T, a, b: (b,)),
    ("_foreach_neg_", lambda T, a, b: (a,)),
    ("_foreach_zero_", lambda T, a, b: (a,)),
    ("_foreach_maximum_", lambda T, a, b: (a, b)),
    ("_foreach_maximum", lambda T, a, b: (a, 0.5)),
    ("_foreach_lerp_", lambda T, a, b: (a, b, 0.25)),
    ("_foreach_addcmul_", lambda T, a, b: (a, b, b, 0.5)),
    ("_foreach_addcdiv", lambda T, a, b: (a, b, b, [0.5, 2.0])),
    ("_foreach_copy_", lambda T, a, b: (a, b)),
    ("_foreach_norm", lambda T, a, b: (a,)),
]


@pytest.mark.parametrize(
    ("name", "arguments"), FOREACH, ids=lambda v: v if isinstance(v, str) else ""
)
def test_foreach(name: str, arguments: Any) -> None:
    def call(T: Any) -> Any:
        a = [T.tensor([0.1, -0.7]), T.tensor([[2.0], [3.0]])]
        b = [T.tensor([1.5, 0.25]), T.tensor([[4.0], [0.5]])]
        function = getattr(foreach if T is weft else torch, name)
        result = function(*arguments(T, a, b))
        return type(result), [t.tolist() for t in (*a, *result)]

    ours, theirs = both(call)
    assert ours == theirs


def test_foreach_lists_of_different_lengths() -> None:
    with pytest.raises(RuntimeError, match="same number of tensors, got 1 and 2"):
        foreach._foreach_add([weft.ones(1)], [weft.ones(1)] * 2)  # type: ignore[attr-defined]


def grouped(T: Any, kind: str) -> Any:
    T.manual_seed(0)
    a2, a3 = T.randn(16, 8), T.randn(2, 16, 8)
    b2, b3 = T.randn(8, 24), T.randn(2, 8, 24)
    last = T.randn(8, 16), T.randn(16, 24)
    a, b = {"23": (a2, b3), "33": (a3, b3), "32": (a3, b2), "22": last}[kind]
    ends = None if kind == "33" else T.tensor([8, 24 if kind == "32" else 16], dtype=T.int32)
    return a, b, ends


@pytest.mark.parametrize("kind", ["23", "33", "32", "22"])
def test_grouped_mm(kind: str) -> None:
    a, b, ends = grouped(weft, kind)
    result = helpers.grouped_mm(a, b, offs=ends)
    a, b, ends = grouped(torch, kind)
    expected = torch.nn.functional.grouped_mm(a.bfloat16(), b.bfloat16(), offs=ends).float()
    assert result.shape == expected.shape
    torch.testing.assert_close(torch.tensor(result.tolist()), expected, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("initial", [None, 0, 2.5])
def test_segment_reduce(reduce: str, initial: float | None) -> None:
    def reduced(T: Any) -> Any:
        function = helpers.segment_reduce if T is weft else torch.segment_reduce
        x = T.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]], requires_grad=True)
        found = [
            function(x, reduce, lengths=T.tensor([2, 1]), initial=initial),
            function(x.detach(), reduce, offsets=T.tensor([0, 0, 3]), initial=initial),
        ]
        found[0].pow(2).sum().backward()
        return str([(t + 0.0).tolist() for t in (*found, x.grad)])

    ours, theirs = both(reduced)
    assert ours == theirs


def test_parse_to() -> None:
    for arguments in (
        lambda T: (T.float64,),
        lambda T: ("cpu", T.float16, True),
        lambda T: (T.ones(1, dtype=T.int64),),
        lambda T: (T.device("cpu"),),
    ):
        ours = c._parse_to(*arguments(weft))
        theirs = torch._C._nn._parse_to(*arguments(torch))
        assert [str(v) for v in ours] == [str(v) for v in theirs]


TREES = """
tree_structure([1, {'a': (2, 3)}]).num_nodes
tree_structure([1, (2, 3)]).children()[1].num_leaves
[(keystr(k), v) for k, v in tree_flatten_with_path({'a': [1, Pair(2, 3)]})[0]]
tree_map_with_path(lambda k, x, y: keystr(k) + str(x + y), {'a': [1, 2]}, {'a': [3, 4]})
_dict_flatten({'b': 1, 'a': 2}), _dict_flatten_with_keys({'b': 1})[1]
_dict_unflatten([1, 2], ['a', 'b'])
_get_node_type([1]), _get_node_type(3), _get_node_type(Pair(1, 2)), _get_node_type({})
isinstance(tree_structure(3), LeafSpec), isinstance(tree_structure([3]), LeafSpec)
tree_structure([1, [2]]).flatten_up_to([{'x': 1}, [3]])
SUPPORTED_NODES[dict].flatten_fn({'k': 5}), list in SUPPORTED_NODES
arg_tree_leaves([1, 2], x=(3,)), list(tree_iter([1, (2,)])), tree_is_leaf([1]), tree_is_leaf(1)
str(SequenceKey(1)), str(MappingKey('a')), str(GetAttrKey('x'))
key_get([1, {'a': 2}], (SequenceKey(1), MappingKey('a')))
tree_structure([1]).flatten_up_to((1,))
"""


@pytest.mark.parametrize("line", TREES.strip().splitlines())
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_pytrees(line: str) -> None:
    from collections import namedtuple

    import torch.utils._pytree as other

    pair = namedtuple("Pair", "x y")

    def value(module: Any) -> Any:
        try:
            return str(eval(line, {**vars(module), "Pair": pair}))
        except ValueError as error:
            return str(error).split(";")[0]

    assert value(_pytree) == value(other)


def test_own_containers_in_pytrees() -> None:
    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    _pytree._register_pytree_node(Box, lambda b: ([b.value], None), lambda v, _: Box(*v))
    try:
        assert _pytree.tree_map(lambda x: x + 1, [Box(1)])[0].value == 2
    finally:
        _pytree._deregister_pytree_node(Box)
    assert _pytree.tree_leaves(Box(1))[0].value == 1


def test_parts_and_back() -> None:
    def scattered(T: Any) -> Any:
        x = {"a": T.arange(6.0).reshape(3, 2), "b": [T.ones(3), 7]}
        if T is weft:
            return parallel.scatter(x, ["cpu", "cpu"])
        parts = [t.chunk(2) for t in (x["a"], x["b"][0])]
        return [{"a": parts[0][i], "b": [parts[1][i], 7]} for i in range(2)]

    ours, theirs = both(scattered)
    assert [p["a"].tolist() for p in ours] == [p["a"].tolist() for p in theirs]
    assert [p["b"][1] for p in ours] == [7, 7]
    module = weft.nn.Linear(2, 1)
    copies = parallel.replicate(module, ["cpu", "cpu"])
    results = parallel.parallel_apply(copies, [p["a"] for p in ours])
    parallel.gather(results, "cpu").sum().backward()
    assert module.weight.grad is not None
    assert parallel.gather(results, "cpu").shape == (3, 1)


def test_swapped_tensors_keep_their_graphs() -> None:
    def swapped(T: Any) -> Any:
        a, b = T.nn.Parameter(T.ones(2)), T.nn.Parameter(T.zeros(3))
        a.note = "a"
        T.utils.swap_tensors(a, b)
        (a * 2).sum().backward()
        return a.tolist(), a.grad.tolist(), b.tolist(), b.grad, b.note, hasattr(a, "note")

    ours, theirs = both(swapped)
    assert ours == theirs


def test_indices_of_sparse_matrices() -> None:
    def converted(T: Any) -> Any:
        owner = helpers if T is weft else torch
        rows, columns = T.tensor([0, 0, 2, 3]), T.tensor([1, 2, 0, 1])
        start = owner._convert_indices_from_coo_to_csr(rows, 5)
        back = owner._convert_indices_from_csr_to_coo(start, columns)
        return start.tolist(), back.tolist(), str(back.dtype)

    ours, theirs = both(converted)
    assert ours == theirs


def test_small_helpers() -> None:
    from torch.nn.modules import utils as theirs

    assert helpers._list_with_default([None, 2], [5, 6, 7]) == theirs._list_with_default(
        [None, 2], [5, 6, 7]
    )
    assert helpers._reverse_repeat_tuple((1, 2), 2) == theirs._reverse_repeat_tuple((1, 2), 2)
    weft.manual_seed(0), torch.manual_seed(0)
    ours = helpers._standard_normal((3,), weft.float32, None).tolist()
    assert ours == torch.distributions.utils._standard_normal((3,), torch.float32, None).tolist()
    x = weft.tensor([[1.0, 2.5], [3.0, -4.0]])
    assert text._tensor_str(x, 0) == torch._tensor_str._tensor_str(torch.tensor(x.tolist()), 0)
    helpers._assert(True, "no")
    with pytest.raises(AssertionError, match="so not"):
        helpers._assert(False, "so not")
    with pytest.raises(RuntimeError, match="single nonzero"):
        helpers._assert_async(weft.tensor(0))
    state = {"module.a": 1, "b": 2}
    weft.nn._state.consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"a": 1, "b": 2}


def test_datapipes() -> None:
    @datapipes.functional_datapipe("doubled")
    class Doubled(datapipes.IterDataPipe):
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Any:
            return (2 * x for x in self.source)

    pipe = datapipes.IterableWrapper(range(5)).doubled().filter(lambda x: x > 0).batch(3)
    assert list(pipe) == [[2, 4, 6], [8]]
    loader = weft.utils.data.DataLoader(datapipes.IterableWrapper(range(4)).map(float), 2)
    assert [b.tolist() for b in loader] == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(AttributeError, match="no attribute 'zzz'"):
        pipe.zzz()
    with pytest.raises(Exception, match="already taken"):
        datapipes.functional_datapipe("doubled")(Doubled)


def test_legacy_classes_of_tensors_are_classes() -> None:
    for T in (weft, torch):
        kind = T.FloatTensor
        assert isinstance(kind, type) and str(kind | None).endswith(".FloatTensor | None")
        assert isinstance(T.ones(1), kind) and not isinstance(T.ones(1, dtype=T.int64), kind)
        assert repr(kind) == "<class 'torch.FloatTensor'>" and kind.dtype == T.float32
        assert isinstance(T.cuda.FloatTensor, type) and not isinstance(
            T.ones(1), T.cuda.FloatTensor
        )
    assert pickle.loads(pickle.dumps(weft.LongTensor)) is weft.LongTensor
    assert weft.LongTensor([1.9]).tolist() == [1]


def test_running_out_of_memory_is_one_class_of_error() -> None:
    for T in (weft, torch):
        assert T.cuda.OutOfMemoryError is T.OutOfMemoryError


# ------------------------------------------------------------------ ops of one's own


def test_custom_op() -> None:
    def trained(T: Any) -> Any:
        def scaled(x: Any, k: float = 2.0) -> Any:
            return x * x * k

        scaled.__annotations__.update({"x": T.Tensor, "k": float, "return": T.Tensor})
        scaled = T.library.custom_op(f"names_{T.__name__}::scaled", mutates_args=())(scaled)

        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            scaled(T.ones(2, requires_grad=True)).sum().backward()

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.k = inputs[1]

        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * grad * ctx.k, None

        scaled.register_autograd(backward, setup_context=setup_context)
        x = T.tensor([1.0, 3.0], requires_grad=True)
        scaled(x, k=3.0).sum().backward()
        return x.grad.tolist(), scaled(x.detach()).tolist(), scaled(x.detach()).requires_grad

    ours, theirs = both(trained)
    assert ours == theirs
    packet = weft.library.namespace("names_weft").scaled
    assert packet.default(weft.ones(1), 1.0).item() == 1.0


def test_ops_by_schema() -> None:
    library = weft.library.Library("names_schema", "DEF")
    assert library.define("plus(Tensor x, float y) -> Tensor") == "plus"
    with pytest.raises(NotImplementedError, match="names_schema::plus has no kernel"):
        weft.library.namespace("names_schema").plus(weft.ones(1), 1.0)
    library.impl("plus", lambda x, y: x + y, "CPU")
    assert weft.library.namespace("names_schema").plus(weft.ones(1), 1.0).item() == 2
    weft.library.register_fake("names_other::unknown")(lambda x: x)
    library._destroy()
    with pytest.raises(AttributeError, match="'names_schema' object has no attribute 'plus'"):
        weft.library.namespace("names_schema").plus  # noqa: B018
    with pytest.raises(OSError, match=r"Could not load this library: x\.so"):
        weft.library.load_library("x.so")
    with pytest.raises(ValueError, match="namespace::op"):
        weft.library.custom_op("plain", mutates_args=())(lambda x: x)
    with pytest.raises(RuntimeError, match="Triton"):
        weft.library.triton_op("a::b", mutates_args=())


def test_layouts_are_copied_as_themselves() -> None:
    script = (
        "from weft import compat\ncompat.install()\nimport copy, torch\n"
        "assert copy.deepcopy([torch.sparse_coo]) == [torch.sparse_coo]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_batches_are_fetched_for_loaders_of_other_libraries() -> None:
    def batches(T: Any) -> list[Any]:
        kinds, found = T.utils.data.dataloader._DatasetKind, []
        for kind, data in ((kinds.Map, [3, 1, 4]), (kinds.Iterable, [1, 5, 9])):
            for drop in (False, True):
                fetcher = kinds.create_fetcher(kind, data, True, list, drop)
                found.append(fetcher.fetch([0, 1]))
                try:
                    found.append(fetcher.fetch([2, 0]))
                except StopIteration:
                    found.append("end")
        return [*found, kinds.create_fetcher(kinds.Map, [7], False, str, False).fetch(0)]

    assert batches(weft) == batches(torch)


def test_forms_of_trees_are_printed_and_filled() -> None:
    from torch.utils import _pytree as theirs

    tree = {"a": [1, (2, 3)], "b": None, "c": {}}
    (_, ours), (_, other) = _pytree.tree_flatten(tree), theirs.tree_flatten(tree)
    assert repr(ours) == repr(other)
    for smaller in (1, {"a": 1, "b": 2, "c": 3}, {"a": [1, 5], "b": 2, "c": {}}, [1], {"a": 1}):
        found = _pytree._broadcast_to_and_flatten(smaller, ours)
        assert found == theirs._broadcast_to_and_flatten(smaller, other)


def test_functions_in_pickles_of_pytorch_are_found(tmp_path: pathlib.Path) -> None:
    functions = (torch.relu, torch.matmul, torch.nn.functional.gelu, torch.nn.functional.relu)
    path = tmp_path / "functions.pkl"
    path.write_bytes(pickle.dumps(functions))
    script = f"""
        from weft import compat
        compat.install()
        import pickle, torch
        found = pickle.load(open({str(path)!r}, "rb"))
        F = torch.nn.functional
        assert found == (torch.relu, torch.matmul, F.gelu, F.relu), found
        assert not hasattr(torch._C._nn, "zzz")
        assert not hasattr(torch._C._VariableFunctionsClass, "zzz")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
