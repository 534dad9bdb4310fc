"""What a user sees of a tensor: how it is made, what it is called, says, shares and refuses."""

# ruff: noqa: E501 - a case of a table is one line

from __future__ import annotations

import builtins
import threading
import types
from typing import Any

import pytest

import weft
from side_by_side import agree, lines, needs_torch, rounded, run, torch

# --- making tensors --------------------------------------------------------------------

MAKING = """
torch.tensor(3), torch.tensor(3.5), torch.tensor(True), torch.tensor(2j)
torch.tensor([]), torch.tensor([[]]), torch.tensor([[], []])
torch.tensor([1, 2.5]), torch.tensor([True, 2]), torch.tensor([True, 2.5]), torch.tensor([1, 2j])
torch.tensor((1, 2)), torch.tensor([(1, 2), (3, 4)]), torch.tensor(range(3))
torch.tensor([[[1], [2]], [[3], [4]]])
torch.tensor([[1, 2], [3]])
torch.tensor([[1, 2], 3])
torch.tensor([1, [2]])
torch.tensor([[1], [[2]]])
torch.tensor('abc')
torch.tensor(['a'])
torch.tensor(None)
torch.tensor([None])
torch.tensor([1, None])
torch.tensor({})
torch.tensor({1, 2})
torch.tensor(object())
torch.tensor([object()])
torch.tensor(b'ab')
torch.tensor(lambda: 0)
torch.tensor(np.arange(3)), torch.tensor(np.float32(2)), torch.tensor(np.int8(2)), torch.tensor(np.bool_(1))
torch.tensor([np.float32(1), np.float64(2)])
torch.tensor([np.int32(1), 2])
torch.tensor([np.int32(1), 2.5])
torch.tensor([np.arange(2), np.arange(2)])
torch.tensor([np.arange(2), [3, 4]])
torch.tensor(np.array(['a']))
torch.tensor(np.array([None]))
torch.tensor(np.array([1, 2], dtype='>i4'))
torch.tensor(np.zeros((2, 0)))
torch.tensor(np.arange(6).reshape(2, 3).T).stride()
torch.tensor([torch.tensor(1), torch.tensor(2)])
torch.tensor([torch.tensor(1.5), 2])
torch.tensor([torch.tensor(1), torch.tensor(2.5)])
torch.tensor([torch.ones(2), torch.ones(2)])
torch.tensor([torch.ones(1), torch.ones(1)])
torch.tensor([[torch.tensor(1.0), 2.0], [3.0, 4.0]])
torch.tensor(torch.ones(2))
torch.tensor([1, 2], dtype=torch.float16), torch.tensor([1.9, -1.9], dtype=torch.int32)
torch.tensor([1.5, 0.0], dtype=torch.bool), torch.tensor([1 + 2j], dtype=torch.complex128)
torch.tensor([1 + 2j], dtype=torch.float32)
torch.tensor([1e40]), torch.tensor([1e40], dtype=torch.float64), torch.tensor([2 ** 62])
torch.tensor([2 ** 63])
torch.tensor(2 ** 64, dtype=torch.float32)
torch.tensor([300], dtype=torch.uint8)
torch.tensor([-1], dtype=torch.uint8)
torch.tensor([float('nan'), float('inf')])
torch.tensor([float('nan')], dtype=torch.int64)
torch.tensor([1.0], requires_grad=True), torch.tensor([1j], requires_grad=True)
torch.tensor([1], requires_grad=True)
torch.tensor([True], requires_grad=True)
torch.zeros(2, dtype=torch.int64, requires_grad=True)
torch.tensor([1], dtype=torch.float32, requires_grad=True)
torch.tensor(data=[1])
torch.tensor()
torch.tensor([1], [2])
torch.tensor([1], nonsense=3)
torch.tensor([1], device='cpu'), torch.tensor([1], device=torch.device('cpu'))
torch.as_tensor([1, 2]), torch.as_tensor(3.5), torch.as_tensor(np.ones(2)), torch.as_tensor((1, 2), dtype=torch.float32)
t = torch.ones(2); torch.as_tensor(t) is t, torch.as_tensor(t, dtype=torch.float64) is t
t = torch.ones(2, requires_grad=True); torch.as_tensor(t) is t
t = torch.ones(2); torch.asarray(t) is t, torch.asarray(t, copy=True) is t
torch.asarray([1, 2], dtype=torch.float32), torch.asarray(3), torch.asarray(np.float64(2))
torch.asarray(torch.ones(2, requires_grad=True), requires_grad=True)
torch.asarray([1, 2], copy=False)
a = np.ones(3); t = torch.as_tensor(a); t[0] = 5; a[0]
a = np.ones(3); t = torch.tensor(a); t[0] = 5; a[0]
a = np.ones(3); t = torch.from_numpy(a); a[0] = 5; t
a = np.ones(3, np.float32); t = torch.as_tensor(a, dtype=torch.float64); t[0] = 5; a[0]
torch.from_numpy([1])
torch.from_numpy(np.array('a'))
torch.from_numpy(np.arange(3)[::-1])
torch.from_numpy(np.arange(4)[::2]).stride()
torch.from_numpy(np.array(3.5)), torch.from_numpy(np.ones((0, 2)))
torch.from_numpy(np.float64(3))
torch.from_numpy(np.arange(3, dtype='>i8'))
torch.from_numpy(np.arange(3).astype('datetime64[s]'))
torch.frombuffer(bytearray(b'abcd'), dtype=torch.uint8), torch.frombuffer(bytearray(8), dtype=torch.int16, offset=2, count=2)
torch.frombuffer(bytearray(3), dtype=torch.int16)
torch.Tensor(2, 3).shape, torch.Tensor((2, 3)), torch.Tensor([2, 3]), torch.Tensor().shape, torch.Tensor([[1, 2]])
torch.Tensor(3).shape
torch.Tensor(3.5)
torch.Tensor(torch.ones(2)), torch.Tensor(np.ones(2, np.float32))
torch.Tensor('a')
torch.Tensor(torch.arange(2))
torch.Tensor(torch.Size([2, 3])).shape
torch.Tensor([True, False]), torch.Tensor(range(2))
torch.Tensor(2, device='cpu').shape
torch.Tensor(2, requires_grad=True)
torch.FloatTensor([1, 2]), torch.DoubleTensor([1]), torch.LongTensor([1.9]), torch.IntTensor(2, 2).shape
torch.ByteTensor([255]), torch.BoolTensor([0, 2]), torch.HalfTensor([1.5]), torch.CharTensor([1]), torch.ShortTensor([1])
torch.LongTensor(3).shape, torch.LongTensor(), torch.FloatTensor(torch.FloatTensor([1]))
torch.FloatTensor(torch.LongTensor([1]))
torch.LongTensor(np.array([1, 2]))
torch.LongTensor(np.array([1.0]))
isinstance(torch.ones(2), torch.FloatTensor), isinstance(torch.ones(2), torch.LongTensor), isinstance(torch.ones(2).long(), torch.LongTensor)
isinstance(torch.ones(2), torch.Tensor), isinstance(torch.ones(2), torch.DoubleTensor)
torch.is_tensor(torch.ones(1)), torch.is_tensor([1]), torch.is_tensor(np.ones(1))
torch.scalar_tensor(3), torch.scalar_tensor(3, dtype=torch.int64)
x = torch.arange(3); x.new_tensor([1.5, 2]), x.new_zeros(2), x.new_ones((2, 1)), x.new_full((2,), 7), x.new_empty(3).shape
x = torch.ones(2, dtype=torch.float64); x.new_tensor([1, 2]), x.new_zeros(2, dtype=torch.int8), x.new_full((1,), 2)
x = torch.ones(2); x.new(3).shape, x.new([1, 2]), x.new(), x.new(2, 2).dtype
x = torch.ones(2); x.new_empty_strided((2, 3), (1, 2)).stride(), x.new_tensor(x + 1)
x = torch.ones(2); x.new_zeros(2, requires_grad=True), x.new_ones(1, device='cpu')
torch.empty(2, 3).shape, torch.empty((2, 3), dtype=torch.int8).dtype, torch.empty(0), torch.empty(()).shape
torch.empty(-1)
torch.zeros(2, -1)
torch.zeros('a')
torch.zeros(2.0)
torch.zeros((2.5,))
torch.zeros([]), torch.zeros(()), torch.zeros((2,)), torch.zeros([2, 1]), torch.zeros(torch.Size([1])), torch.zeros(size=(2,))
torch.zeros(torch.tensor(2)), torch.zeros(np.int64(2), 2).shape
torch.full((2,), 3), torch.full((2,), 3.0), torch.full((2,), True), torch.full((), 2j), torch.full([2], 1, dtype=torch.float32)
torch.full(2, 3)
torch.full((2,), 300, dtype=torch.uint8)
torch.arange(3), torch.arange(3.0), torch.arange(1, 2, 0.25), torch.arange(5, 0, -2), torch.arange(0), torch.arange(2, dtype=torch.float16)
torch.arange(0, 3, 0)
torch.arange(3, 0)
torch.arange(float('inf'))
torch.arange(torch.tensor(3)), torch.arange(True)
torch.linspace(0, 1, 3), torch.linspace(0, 10, steps=1), torch.linspace(3, 1, 5, dtype=torch.int64), torch.logspace(0, 2, 3)
torch.linspace(0, 1)
torch.linspace(0, 1, -1)
torch.eye(2), torch.eye(2, 3), torch.eye(3, 2, dtype=torch.int64), torch.eye(0)
torch.eye(-1)
torch.ones_like(torch.arange(2)), torch.zeros_like(torch.ones(2), dtype=torch.int8), torch.full_like(torch.arange(2), 5)
torch.ones_like(torch.ones(2, 3).T).stride(), torch.zeros_like(torch.ones(1).expand(3)).stride()
torch.empty_like(torch.ones(2, requires_grad=True)).requires_grad, torch.ones_like(torch.ones(2), requires_grad=True)
torch.zeros_like([1])
torch.complex(torch.ones(2), torch.zeros(2)), torch.polar(torch.ones(1), torch.zeros(1))
torch.tril_indices(2, 3), torch.triu_indices(3, 2, 1), torch.cartesian_prod(torch.arange(2), torch.arange(2))
torch.empty_strided((2, 3), (1, 2)).stride(), torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
torch.zeros(2, out=torch.ones(3)), torch.arange(3, out=torch.empty(0)), torch.full((2,), 1.5, out=torch.empty(2, dtype=torch.float64))
torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.nn.Parameter().shape
torch.nn.Parameter(torch.arange(2))
torch.nn.Parameter(torch.arange(2), requires_grad=False)
p = torch.nn.Parameter(torch.ones(2)); isinstance(p, torch.Tensor), type(p) is torch.nn.Parameter, type(p.data).__name__, type(p + 1).__name__
p = torch.nn.Parameter(torch.ones(2)); type(p.detach()).__name__, type(p.clone()).__name__, p.is_leaf
t = torch.ones(2, requires_grad=True); p = torch.nn.Parameter(t * 2); p.is_leaf, p.grad_fn
torch.range(0, 2)
torch.vander(torch.arange(3)), torch.block_diag(torch.ones(1, 2), torch.ones(2, 1)), torch.diag_embed(torch.ones(2))
torch.from_dlpack(torch.ones(2)), torch.from_dlpack(np.ones(2))
"""


@needs_torch
@pytest.mark.parametrize("code", lines(MAKING))
def test_making(code: str) -> None:
    agree(code)


def test_making_literally() -> None:
    assert weft.tensor([1, 2]).dtype is weft.int64
    assert weft.tensor([1, 2.0]).dtype is weft.float32
    assert weft.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        weft.tensor([[1, 2], [3]])
    with pytest.raises(RuntimeError, match="floating point"):
        weft.tensor([1], requires_grad=True)
    with pytest.raises(TypeError):
        weft.tensor("abc")


# --- names -----------------------------------------------------------------------------

# What PyTorch has and weft has not, by the reason why.
REASONS = {
    "sparse tensors": """
        ccol_indices coalesce col_indices crow_indices indices is_coalesced resize_as_sparse_
        row_indices smm sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm
        to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr values
        ccol_indices_copy col_indices_copy crow_indices_copy dsmm hsmm hspmm indices_copy
        row_indices_copy saddmm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor
        sparse_csc_tensor sparse_csr_tensor spmm values_copy
        """,
    "quantised tensors": """
        int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
        q_zero_point qscheme QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage
        QUInt8Storage choose_qparams_optimized empty_quantized fake_quantize_per_channel_affine
        fake_quantize_per_tensor_affine fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix fused_moving_avg_obs_fake_quant
        per_channel_affine per_channel_affine_float_qparams per_channel_symmetric
        per_tensor_affine per_tensor_symmetric qint32 qint8 quantize_per_channel
        quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_gru
        quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_max_pool1d
        quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell
        quint2x4 quint4x2 quint8
        """,
    "nested tensors": "to_padded_tensor",
    "dtypes that NumPy has no counterpart of": """
        chalf complex32 bit bits16 bits1x8 bits2x4 bits4x2 bits8 float4_e2m1fn_x2
        int1 int2 int3 int4 int5 int6 int7 uint1
        uint2 uint3 uint4 uint5 uint6 uint7
        """,
    "other devices and their streams": """
        __cuda_array_interface__ ipu mtia record_stream xpu Event Stream get_device_module
        """,
    "kernels of other libraries": """
        to_mkldnn cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution
        cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose
        cudnn_grid_sampler cudnn_is_acceptable miopen_batch_norm miopen_convolution
        miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose
        miopen_ctc_loss miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d
        mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d
        mkldnn_rnn_layer native_norm batch_norm_backward_elemt batch_norm_backward_reduce
        batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_stats batch_norm_update_stats scaled_mm scaled_grouped_mm grouped_mm
        ScalingType SwizzleType
        """,
    "subclasses of Tensor that take part in dispatch": """
        __torch_dispatch__ DisableTorchFunction
        DisableTorchFunctionSubclass handle_torch_function has_torch_function
        has_torch_function_unary has_torch_function_variadic
        """,
    "removed from PyTorch, where it only raises or warns": """
        eig lstsq matrix_rank reinforce solve symeig
        """,
    "internal to PyTorch": """
        __dlpack_c_exchange_api__ slice_inverse index
        Capsule DeepCopyMemoTable DispatchKey DispatchKeySet ExcludeDispatchKeyGuard FatalError
        LockingLogger LoggerBase NoopLogger PRIVATE_OPS StorageBase Tag ThroughputBenchmark
        USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH BenchmarkConfig BenchmarkExecutionStats
        AggregationType AVG SUM classproperty get_file_path init_num_threads OperatorInfo
        set_anomaly_enabled sym_constrain_range sym_constrain_range_for_size sym_fresh_size SymBool
        SymFloat SymInt thread_safe_generator DeviceObjType StreamObjType SymBoolType SymIntType
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 reproducibility_notes
        sparse_support_notes tf32_notes GRID_SAMPLE_INTERPOLATION_MODES GRID_SAMPLE_PADDING_MODES
        assert_int_or_pair boolean_dispatch
        prepare_multiprocessing_environment DeserializationStorageContext
        SerializationStorageContext PyTorchFileReader PyTorchFileWriter
        """,
    "TorchScript": """
        AliasDb AnyType Argument ArgumentSpec AwaitType Block BoolType BufferDict CallStack
        ClassType Code CompilationUnit CompleteArgumentSpec ComplexType ConcreteModuleType
        ConcreteModuleTypeBuilder DictType EnumType ErrorReport ExecutionPlan FileCheck FloatType
        FunctionSchema FutureType Gradient Graph GraphExecutorState IODescriptor
        InferredType IntType InterfaceType JITException ListType LiteScriptModule ModuleDict Node
        NoneType NumberType OptionalType ParameterDict PyObjectType RRefType ScriptClass
        ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator
        ScriptList ScriptListIterator ScriptMethod ScriptModuleSerializer
        ScriptObject ScriptObjectProperty StaticModule StringType TensorType TracingState
        TupleType Type UnionType Use Value fork import_ir_module import_ir_module_from_buffer
        merge_type_from_type_comment parse_ir parse_schema parse_type_comment unify_type_list wait
        BroadcastingList1 BroadcastingList2 BroadcastingList3
        """,
    "control flow for compilers": "while_loop",
    "not yet": "segment_reduce",
}
ABSENT = {name: reason for reason, names in REASONS.items() for name in names.split()}

PLACES = ["Tensor", "", "nn.functional"]
COMPLETE = ["linalg", "fft", "special"]


def place(system: Any, path: str) -> Any:
    for part in filter(None, path.split(".")):
        system = getattr(system, part)
    return system


def names_of(path: str) -> list[str]:
    """The public names of a place in PyTorch; submodules and imported helpers are not its own."""
    there = place(torch, path)
    found = []
    for name in dir(there):
        special = path == "Tensor" and name.startswith("__") and name != "__slotnames__"
        if name.startswith("_") and not special:
            continue
        value = getattr(there, name, None)
        imported = getattr(value, "__module__", "") in ("typing", "collections.abc", "builtins")
        if isinstance(value, types.ModuleType) or (imported and not hasattr(builtins, name)):
            continue
        if path != "Tensor" and name in ("Tensor", "TYPE_CHECKING", "Callable", "Optional"):
            continue
        found.append(name)
    return found


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PLACES)
def test_every_name_is_there_or_absent_for_a_reason(path: str) -> None:
    here = place(weft, path)
    lacking = {name for name in names_of(path) if not hasattr(here, name)}
    assert not lacking - set(ABSENT), f"weft.{path} lacks {sorted(lacking - set(ABSENT))}"
    there = {name for name in names_of(path) if name in ABSENT} - lacking
    assert not there, f"take these off the list: {sorted(there)}"


@needs_torch
@pytest.mark.parametrize("path", COMPLETE)
def test_whole_namespaces(path: str) -> None:
    here, notes = place(weft, path), ("common_args", "common_notes", "factory_common_args")
    lacking = {name for name in names_of(path) if not hasattr(here, name)}
    assert not lacking - {*notes, "multi_dim_common"}


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_listed_that_pytorch_lacks() -> None:
    known = {name for path in PLACES for name in names_of(path)}
    assert set(ABSENT) <= known, sorted(set(ABSENT) - known)


def test_absent_names_say_so() -> None:
    for name in ("quantize_per_tensor", "sparse_csr_tensor"):
        assert not hasattr(weft, name)
        with pytest.raises(AttributeError, match=f"weft does not have torch.{name}"):
            getattr(weft, name)
    with pytest.raises(AttributeError, match=r"torch\.Tensor\.to_sparse_csr"):
        weft.ones(2).to_sparse_csr()


# --- what is printed -------------------------------------------------------------------

PRINTED = """
torch.tensor(1.5)
torch.tensor([1, 2, 3])
torch.tensor([[1.0, 2.5], [3.25, -4.0]])
torch.tensor([True, False])
torch.tensor([1 + 2j])
torch.tensor([1.0, 2.0], dtype=torch.float64)
torch.tensor([1], dtype=torch.int8)
torch.zeros(0), torch.zeros(2, 0), torch.zeros(0, dtype=torch.int64)
torch.arange(2000), torch.zeros(30, 40)
torch.ones(2, requires_grad=True)
torch.ones(2, requires_grad=True) * 2
torch.ones(2, dtype=torch.float64, requires_grad=True) * 2
torch.ones(2, 3, requires_grad=True).sum()
torch.nn.Parameter(torch.ones(2))
torch.nn.Parameter(torch.ones(2), requires_grad=False)
torch.tensor([1e-10, 1.0]), torch.tensor([1e10, 1.0]), torch.tensor([float('nan'), 1.0, -float('inf')])
torch.tensor([0.1, 0.2]).half(), torch.tensor([0.1]).bfloat16()
torch.ones(2).requires_grad_().detach()
torch.ones(2, 2).T, torch.ones(1).expand(3)
torch.Size([2, 3]), torch.ones(2, 3).shape, torch.ones(()).shape
torch.device('cpu'), torch.device('cuda', 1), torch.float32, torch.strided, torch.contiguous_format
torch.ones(2).max(0), torch.ones(2, 2).sort()
torch.finfo(torch.float32).dtype
x = torch.ones(2, requires_grad=True); y = x.clone(); y.add_(1)
x = torch.ones(2, requires_grad=True); y = x.clone(); y[0] = 2.0; y
x = torch.ones(2, requires_grad=True); x.view(1, 2)[0]
x = torch.ones(2, requires_grad=True); x.clone().copy_(torch.zeros(2))
"""


@needs_torch
@pytest.mark.parametrize("code", lines(PRINTED))
def test_printed_forms(code: str) -> None:
    *first, last = code.split("; ")
    setup = "".join(f"{line}\n" for line in first)
    for form in ("repr(_)", "str(_)", "f'{_}'", "'{!r:>3}'.format(_)"):
        agree(f"{setup}_ = {last}\n{form}")


FORMATTED = """
f'{torch.tensor(1.23456):.2f}', f'{torch.tensor(7):5d}|', f'{torch.tensor(True)}', f'{torch.tensor(1.5)}'
f'{torch.tensor(1.5):d}'
f'{torch.ones(2):.2f}'
f'{torch.tensor([1.5]):.2f}'
f'{torch.tensor(2.0, requires_grad=True):.1f}', f'{torch.tensor(2.0, requires_grad=True)}'
f'{torch.nn.Parameter(torch.tensor(2.0)):.1f}'
'%s' % torch.tensor(2), '%d' % torch.tensor(2), '%.1f' % torch.tensor(2.5)
'{:>8}'.format(torch.tensor(3)), format(torch.tensor(3), '03d')
torch.tensor(3).__repr__(), torch.tensor([3]).__str__(), torch.tensor([3]).__format__('')
torch.set_printoptions(precision=2); r = repr(torch.tensor([1.23456])); torch.set_printoptions(profile='default'); r
torch.set_printoptions(sci_mode=True); r = repr(torch.tensor([1.5])); torch.set_printoptions(profile='default'); r
str(torch.ones(2, 2).dtype), str(torch.ones(1).device), str(torch.ones(1).layout), repr(torch.ones(1).is_cuda)
"""


@needs_torch
@pytest.mark.parametrize("code", lines(FORMATTED))
def test_formatting(code: str) -> None:
    agree(code)


def test_printed_forms_literally() -> None:
    x = weft.tensor([1.0, 2.5], requires_grad=True)
    assert repr(x) == "tensor([1.0000, 2.5000], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 5.], grad_fn=<MulBackward0>)"
    assert repr(x.detach()) == "tensor([1.0000, 2.5000])"
    assert repr(weft.nn.Parameter(weft.ones(1))) == (
        "Parameter containing:\ntensor([1.], requires_grad=True)"
    )
    assert f"{weft.tensor(1.23456):.2f}" == "1.23"


# The node behind each result has PyTorch's name, for these uses.
NODE_NAMES = """
AddBackward0: x+y ; x+1 ; 1+x ; x.mul(2).add(1)
SubBackward0: x-y ; x-1 ; F.tanhshrink(x) ; x.diff() ; x.sub(y,alpha=2)
MulBackward0: x*y ; x*2 ; torch.outer(x[0],y[0]) ; F.dropout(x,0.5) ; x.clone().mul_(2)
DivBackward0: x/y ; x/2 ; F.normalize(x) ; x.nanmean() ; x.true_divide(y)
DivBackward0: F.local_response_norm(i,2) ; F.softsign(x)
NegBackward0: -x
PowBackward0: x**2 ; x.square() ; x.pow(3) ; torch.float_power(x,2)
PowBackward1: x**y
PowBackward2: 2**x ; torch.pow(2.0,x)
RsubBackward1: 1-x
RemainderBackward0: x%2
MmBackward0: x@y.T ; x.matmul(y.T) ; torch.mm(x,y.T) ; F.linear(x,torch.ones(4,3))
MmBackward0: torch.linalg.matrix_power(s,2)
ExpBackward0: x.exp() ; x.clone().exp_()
LogBackward0: x.log()
SqrtBackward0: x.sqrt() ; x.square().sum().sqrt()
RsqrtBackward0: x.rsqrt()
SinBackward0: x.sin()
CosBackward0: x.cos()
TanBackward0: x.tan()
TanhBackward0: x.tanh()
SigmoidBackward0: x.sigmoid()
ReluBackward0: x.relu() ; x.clone().relu_()
AbsBackward0: x.abs() ; torch.complex(x,y).abs()
SumBackward0: x.sum() ; x.sum(dtype=torch.float64)
SumBackward1: x.sum(0) ; F.cosine_similarity(x,y)
MeanBackward0: x.mean() ; F.l1_loss(x,y) ; F.kl_div(x,y) ; F.margin_ranking_loss(x,y,y)
MeanBackward0: F.triplet_margin_loss(x,y,y) ; F.hinge_embedding_loss(x,y)
MeanBackward0: F.cosine_embedding_loss(x,y,torch.ones(2)) ; F.poisson_nll_loss(x,y)
MeanBackward0: F.gaussian_nll_loss(x,y,y)
MeanBackward0: F.ctc_loss(torch.ones(4,1,3).log_softmax(2).requires_grad_(),torch.tensor([[1]]),torch.tensor([4]),torch.tensor([1]))
MeanBackward1: x.mean(1)
ProdBackward0: x.prod()
ProdBackward1: x.prod(0)
MaxBackward1: x.max()
MaxBackward0: x.max(0)[0]
MinBackward1: x.min()
MinBackward0: x.min(1)[0]
AmaxBackward0: x.amax(0)
AminBackward0: x.amin()
MedianBackward0: x.median()
MedianBackward1: x.median(0)[0]
ModeBackward0: x.mode()[0]
ViewBackward0: x.view(-1) ; x.view(6,1) ; x.reshape(6) ; x.flatten() ; x.unflatten(1,(3,1))
ViewBackward0: x.ravel() ; F.instance_norm(i) ; x.view_as(y) ; F.bilinear(x,y,torch.ones(1,3,3))
ViewBackward0: torch.tensordot(x,y,2) ; torch.inner(x,y)
PermuteBackward0: x.permute(1,0) ; x.T ; x.movedim(0,1)
TransposeBackward0: x.transpose(0,1) ; x.mT ; x.swapaxes(0,1)
TBackward0: x.t()
SqueezeBackward0: x.squeeze() ; x.cov()
SqueezeBackward1: x.squeeze(0) ; x.unsqueeze(0).squeeze(0)
UnsqueezeBackward0: x.unsqueeze(0) ; x[None]
ExpandBackward0: x.expand(4,2,3) ; torch.meshgrid(x[0],y[0])[0] ; torch.broadcast_to(x,(4,2,3))
ExpandBackward0: x.expand_as(y)
SelectBackward0: x[0] ; x[:,1] ; x[...,0] ; x[1,2] ; x.select(0,1)
SliceBackward0: x[0:1] ; x.narrow(0,0,1)
IndexBackward0: x[[0,1]] ; x[x>0] ; x[torch.tensor([0])]
CatBackward0: torch.cat([x,y]) ; torch.hstack([x,y]) ; torch.vstack([x,y])
StackBackward0: torch.stack([x,y])
BmmBackward0: torch.bmm(x[None],y.T[None])
MvBackward0: torch.mv(x,y[0])
DotBackward0: torch.dot(x[0],y[0])
AddmmBackward0: F.linear(x,torch.ones(4,3,requires_grad=True),torch.ones(4))
SoftmaxBackward0: F.softmax(x,1) ; x.softmax(0) ; F.softmin(x,0) ; F.gumbel_softmax(x)
LogSoftmaxBackward0: F.log_softmax(x,1)
NllLossBackward0: F.nll_loss(x,torch.tensor([0,1])) ; F.cross_entropy(x,torch.tensor([0,1]))
MseLossBackward0: F.mse_loss(x,y)
SmoothL1LossBackward0: F.smooth_l1_loss(x,y)
HuberLossBackward0: F.huber_loss(x,y)
ConvolutionBackward0: F.conv2d(i,w) ; F.conv2d(i,w,torch.ones(2)) ; F.conv_transpose2d(i,w2)
MaxPool2DWithIndicesBackward0: F.max_pool2d(i,2)
AvgPool2DBackward0: F.avg_pool2d(i,2)
AdaptiveAvgPool2DBackward0: F.adaptive_avg_pool2d(i,2)
AdaptiveMaxPool2DBackward0: F.adaptive_max_pool2d(i,2)
CloneBackward0: x.clone() ; x.T.contiguous() ; x.clone().requires_grad_()
ToCopyBackward0: x.double() ; x.half()
CopyBackwards: x.clone().copy_(y)
GatherBackward0: x.gather(1,torch.tensor([[0],[1]])) ; x.take_along_dim(torch.tensor([[0]]),1)
ScatterBackward0: x.scatter(1,torch.tensor([[0],[1]]),y)
ScatterAddBackward0: x.scatter_add(1,torch.tensor([[0],[1]]),y)
WhereBackward0: torch.where(x>0,x,y) ; torch.where(x>0,x,0.0) ; torch.logdet(s)
ClampBackward1: x.clamp(0,1) ; x.clamp(min=0) ; x.clone().clamp_(0,1) ; x.corrcoef()
StdBackward0: x.std() ; x.std(0)
VarBackward0: x.var() ; x.var(0)
LinalgVectorNormBackward0: x.norm() ; x.norm(dim=0) ; x.norm(1) ; torch.linalg.norm(x)
LinalgVectorNormBackward0: torch.linalg.vector_norm(x) ; torch.linalg.matrix_norm(s)
CumsumBackward0: x.cumsum(0) ; x.cumsum(1) ; torch.cumulative_trapezoid(x)
CumprodBackward0: x.cumprod(0) ; x.cumprod(1)
SplitBackward0: x.split(1)[0] ; x.chunk(2)[1] ; x.chunk(2,1)[0]
UnbindBackward0: x.unbind()[0]
EmbeddingBackward0: F.embedding(torch.tensor([0,1]),x)
NativeLayerNormBackward0: F.layer_norm(x,(3,))
NativeBatchNormBackward0: F.batch_norm(i,None,None,training=True)
GeluBackward0: F.gelu(x) ; F.gelu(x,approximate='tanh')
SiluBackward0: F.silu(x)
GluBackward0: F.glu(x,0)
EluBackward0: F.elu(x) ; F.selu(x)
LeakyReluBackward0: F.leaky_relu(x)
SoftplusBackward0: F.softplus(x)
HardtanhBackward0: F.hardtanh(x) ; F.relu6(x)
HardsigmoidBackward0: F.hardsigmoid(x)
HardswishBackward0: F.hardswish(x)
MishBackward0: F.mish(x)
PreluKernelBackward0: F.prelu(x,torch.tensor([0.1]))
LogSigmoidBackward0: F.logsigmoid(x)
SoftshrinkBackward0: F.softshrink(x)
HardshrinkBackward0: F.hardshrink(x) ; x.hardshrink()
ThresholdBackward0: F.threshold(x,0,0)
ConstantPadNdBackward0: F.pad(x,(1,1))
UpsampleNearest2DBackward0: F.interpolate(i,scale_factor=2)
UpsampleBilinear2DBackward0: F.interpolate(i,scale_factor=2,mode='bilinear')
Im2ColBackward0: F.unfold(i,2)
TopkBackward0: x.topk(1)[0]
SortBackward0: x.sort()[0]
KthvalueBackward0: x.kthvalue(1)[0]
SignBackward0: x.sign()
RoundBackward0: x.round()
FloorBackward0: x.floor()
CeilBackward0: x.ceil()
TruncBackward0: x.trunc()
FracBackward0: x.frac()
ReciprocalBackward0: x.reciprocal()
Log1PBackward0: x.log1p()
Expm1Backward0: x.expm1()
Log2Backward0: x.log2()
Log10Backward0: x.log10()
Exp2Backward0: x.exp2()
ErfBackward0: x.erf()
ErfcBackward0: x.erfc()
ErfinvBackward0: x.erfinv()
LgammaBackward0: x.lgamma()
DigammaBackward0: x.digamma()
AsinBackward0: x.asin()
AcosBackward0: x.acos()
AtanBackward0: x.atan()
SinhBackward0: x.sinh()
CoshBackward0: x.cosh()
AsinhBackward0: x.asinh()
AtanhBackward0: x.atanh()
SincBackward0: x.sinc()
Atan2Backward0: torch.atan2(x,y)
MaximumBackward0: torch.maximum(x,y)
MinimumBackward0: torch.minimum(x,y)
FmaxBackward0: torch.fmax(x,y)
HypotBackward0: torch.hypot(x,y)
LogaddexpBackward0: torch.logaddexp(x,y)
LogsumexpBackward0: x.logsumexp(0)
CummaxBackward0: x.cummax(0)[0]
LogcumsumexpBackward0: x.logcumsumexp(0)
FlipBackward0: x.flip(0)
RollBackward0: x.roll(1,0)
RepeatBackward0: x.repeat(2,1) ; x.tile((2,))
TrilBackward0: x.tril()
TriuBackward0: x.triu()
DiagonalBackward0: x.diagonal()
LinalgInvExBackward0: x[:2,:2].inverse() ; torch.linalg.inv(s)
LinalgDetBackward0: torch.linalg.det(s)
LinalgSlogdetBackward0: torch.linalg.slogdet(s)[1]
LinalgSolveExBackward0: torch.linalg.solve(s,s)
LinalgCholeskyExBackward0: torch.linalg.cholesky(s)
LinalgQrBackward0: torch.linalg.qr(s)[0]
LinalgSvdBackward0: torch.linalg.svd(s)[1]
LinalgEighBackward0: torch.linalg.eigh(s)[0]
LinalgPinvBackward0: torch.linalg.pinv(s)
LinalgLstsqBackward0: torch.linalg.lstsq(s,s)[0]
LinalgMatrixExpBackward0: torch.linalg.matrix_exp(s)
CdistBackward0: torch.cdist(x,y)
IndexSelectBackward0: x.index_select(0,torch.tensor([0]))
MaskedFillBackward0: x.masked_fill(x>0,0.0) ; x.clone().masked_fill_(x>0,0.)
MaskedSelectBackward0: x.masked_select(x>0)
IndexAddBackward0: x.index_add(0,torch.tensor([0]),y[:1])
IndexFillBackward0: x.index_fill(0,torch.tensor([0]),0.0)
IndexCopyBackward0: x.index_copy(0,torch.tensor([0]),y[:1])
TakeBackward0: x.take(torch.tensor([0]))
UnfoldBackward0: x.unfold(0,1,1)
AsStridedBackward0: x.as_strided((2,),(1,))
FftR2CBackward0: torch.fft.fft(x) ; torch.fft.rfft(x)
ViewAsRealBackward0: torch.view_as_real(torch.complex(x,y))
ComplexBackward0: torch.complex(x,y)
ConjBackward0: torch.complex(x,y).conj()
AngleBackward0: torch.complex(x,y).angle()
NanToNumBackward0: x.nan_to_num()
IndexPutBackward0: x.clone().index_put_((torch.tensor([0]),),y[:1])
DivBackward2: x.div(y,rounding_mode='floor')
FmodBackward0: x.fmod(2)
RemainderBackward1: x.remainder(y)
GridSampler2DBackward0: F.grid_sample(i,torch.zeros(1,2,2,2))
AffineGridGeneratorBackward0: F.affine_grid(torch.ones(1,2,3,requires_grad=True),(1,1,2,2))
EmbeddingBagBackward0: F.embedding_bag(torch.tensor([[0,1]]),x)
Col2ImBackward0: F.fold(torch.ones(1,4,1,requires_grad=True),(2,2),2)
LogitBackward0: torch.special.logit(x) ; torch.logit(x)
I0Backward0: torch.special.i0(x) ; x.i0()
SpecialXlog1PyBackward0: torch.special.xlog1py(x,y)
BernoulliBackward0: x.bernoulli()
CopysignBackward0: x.copysign(y)
XlogyBackward0: x.xlogy(y)
Deg2RadBackward0: x.deg2rad()
PolygammaBackward0: x.polygamma(1)
"""


def operands(system: Any) -> dict[str, Any]:
    return {
        "F": system.nn.functional,
        "x": system.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], requires_grad=True),
        "y": system.tensor([[0.3, 0.2, 0.1], [0.9, 0.8, 0.7]]),
        "i": system.arange(32.0).reshape(1, 2, 4, 4).requires_grad_(),
        "w": system.ones(2, 2, 2, 2),
        "w2": system.ones(2, 2, 2, 2),
        "s": system.tensor([[2.0, 0.5], [0.5, 1.0]], requires_grad=True),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "system", [weft, pytest.param(torch, marks=needs_torch)], ids=["weft", "torch"]
)
@pytest.mark.parametrize("line", lines(NODE_NAMES), ids=lambda line: line.split(":")[0])
def test_names_of_nodes(line: str, system: Any) -> None:
    name, _, uses = line.partition(":")
    for use in uses.split(" ; "):
        result = eval(use.strip(), {"torch": system, **operands(system)})
        assert type(result.grad_fn).__name__ == name, use
        assert result.grad_fn.name().removeprefix("torch::autograd::") == name
        assert f"grad_fn=<{name}>" in repr(result)


# --- as a Python object ----------------------------------------------------------------

ASKED = """
[bool(torch.tensor(v)) for v in (0, 1, 0.0, -2.5, True, 0j)], bool(torch.tensor([[3]]))
bool(torch.ones(2))
bool(torch.zeros(0))
[] and bool(torch.tensor([]))
not torch.tensor([0])
int(torch.tensor(3.9)), int(torch.tensor([2])), int(torch.tensor(True)), float(torch.tensor([[2]])), complex(torch.tensor(1.5))
int(torch.ones(2))
float(torch.ones(2))
float(torch.zeros(0))
complex(torch.ones(2))
int(torch.tensor(1j))
float(torch.tensor(1 + 0j))
int(torch.tensor(float('nan')))
int(torch.tensor(float('inf')))
complex(torch.tensor(1j)), int(torch.tensor(2.5).half()), float(torch.tensor(0.5).bfloat16())
operator.index(torch.tensor(3)), operator.index(torch.tensor([3])), [1, 2, 3][torch.tensor(1)], list(range(torch.tensor(2)))
operator.index(torch.tensor(True))
operator.index(torch.tensor(1.0))
operator.index(torch.tensor([1, 2]))
[1, 2][torch.tensor(1.0)]
'ab' * torch.tensor(2)
len(torch.ones(3)), len(torch.ones(2, 3)), len(torch.zeros(0, 3))
len(torch.tensor(1))
list(torch.arange(3)), [type(t).__name__ for t in torch.ones(2, 2)], list(torch.zeros(0))
list(torch.tensor(1))
a, b = torch.tensor([1, 2]); a + b
[*torch.arange(2)], dict(zip('ab', torch.arange(2)))
max(torch.tensor([1, 3, 2])), min([torch.tensor(2), torch.tensor(1)]), sum(torch.arange(4)), sorted(torch.tensor([2, 1]))
any(torch.tensor([0, 1])), all(torch.tensor([0, 1])), sum([torch.ones(2), torch.ones(2)])
2 in torch.arange(3), 5 in torch.arange(3), torch.tensor(1) in torch.arange(3), 1.0 in torch.arange(3)
'a' in torch.arange(3)
None in torch.arange(3)
[1] in torch.arange(3)
torch.ones(2) in [torch.ones(2)]
x, y = torch.ones(1), torch.ones(1); hash(x) == hash(y), len({x, y})
x = torch.ones(1); {x: 5}[x], hash(x) == hash(x), x in {x}, hash(x) == id(x)
x = torch.ones(2); x == x, x is x, x != x
torch.ones(2) == None, torch.ones(2) != None
torch.ones(2) == 'a', torch.ones(2) != 'a', torch.ones(2) == [1, 1]
torch.ones(2) < 'a'
torch.ones(2) < None
torch.ones(2) + 'a'
torch.ones(2) + None
torch.ones(2) + [1, 1]
torch.ones(2) * (1, 2)
[1, 2] + torch.ones(2)
torch.ones(2) - 'a'
torch.ones(2) / None
torch.ones(2) // 'a'
torch.ones(2) % None
torch.ones(2) ** 'a'
'a' ** torch.ones(2)
torch.ones(2) & 'a'
torch.ones(2).int() << 'a'
torch.ones(2) @ 3
torch.ones(2) @ [1, 2]
divmod(torch.ones(2), 2)
round(torch.tensor(2.6)), round(torch.tensor(2.567), 1), abs(torch.tensor(-2)), +torch.tensor(2), -torch.tensor(2), ~torch.tensor(2)
import math; math.sqrt(torch.tensor(4.0)), math.floor(torch.tensor(2.5)), math.ceil(torch.tensor(2.5)), math.trunc(torch.tensor(2.5))
torch.tensor(2.5).__floor__()
reversed(torch.arange(3)), reversed(torch.arange(4).reshape(2, 2))
2 ** torch.tensor([1, 2]), 2 - torch.tensor(1), 2 / torch.tensor(4), 7 // torch.tensor(2), 7 % torch.tensor(4), 2 << torch.tensor(1), 8 >> torch.tensor(1)
3 & torch.tensor(6), 3 | torch.tensor(6), 3 ^ torch.tensor(6), 2 * torch.ones(2), 2 + torch.ones(2), True + torch.ones(1)
-7 // torch.tensor([2.0, -2.0]), -7 % torch.tensor([2.0, -2.0]), torch.tensor(-7) // 2, torch.tensor(-7) % 2
torch.tensor(7) // 0
torch.tensor(7) % 0
torch.tensor(7.0) // 0, torch.tensor(7.0) / 0, torch.tensor(0) / 0
x = torch.arange(3); x += 1; x -= 2; x *= 3; x
x = torch.arange(3.0); x /= 2; x **= 2; x //= 1; x %= 3; x
x = torch.arange(4); x &= 2; x |= 1; x ^= 3; x <<= 1; x >>= 1; x
x = torch.ones(2); y = x; x += 1; y is x, y
x = torch.ones(2); x @= torch.ones(2, 2); x
del torch.ones(2)[0]
torch.tensor([3]).item(), torch.tensor([[2.5]]).item(), torch.tensor(True).item(), torch.tensor(1j).item(), torch.tensor(2, dtype=torch.uint8).item()
torch.ones(2).item()
torch.zeros(0).item()
torch.ones(2, 2).tolist(), torch.tensor(1).tolist(), torch.zeros(0, 2).tolist(), torch.zeros(2, 0).tolist(), torch.tensor([True]).tolist()
torch.tensor([0.1]).tolist(), torch.tensor([0.1]).half().tolist(), torch.tensor([1j]).tolist()
x = torch.ones(2); x.foo = 3; x.foo, hasattr(x, 'bar'), hasattr(x, 'foo')
torch.ones(2).nonsense
torch.ones(2)()
x = torch.ones(2); x.shape = (1, 2)
x = torch.ones(2); x.dtype = torch.int8
isinstance(hash(torch.float32), int), isinstance(hash(torch.device('cpu')), int), hash(torch.Size([1, 2])) == hash((1, 2))
torch.Size([2, 3]) == (2, 3), (2, 3) == torch.Size([2, 3]), torch.Size([1]) + (2,), (2,) + torch.Size([1]), torch.Size([1, 2]) * 2
torch.Size([1, 2])[0], torch.Size([1, 2, 3])[1:], torch.Size([1, 2]).numel(), len(torch.Size([1])), list(torch.Size([4, 5])), torch.Size()
torch.Size((2.5,))
torch.Size(['a'])
torch.Size([torch.tensor(2), np.int64(3)]), torch.Size(range(3)), 2 * torch.Size([1])
torch.Size([1, 2]).index(2), torch.Size([1, 1]).count(1), 1 in torch.Size([1]), isinstance(torch.Size(), tuple)
torch.Size([1]) + [2]
a, b = torch.ones(2, 3).shape; a * b
torch.ones(2, 3).size(), torch.ones(2, 3).size(0), torch.ones(2, 3).size(-1), torch.ones(2, 3).size(dim=1), torch.ones(2).size(None)
torch.ones(2, 3).size(2)
torch.ones(()).size(0)
torch.ones(2, 3).stride(0), torch.ones(2, 3).stride(-1), torch.ones(2, 3).stride()
torch.ones(2, 3).stride(2)
x = torch.ones(2, 3); x.ndim, x.dim(), x.ndimension(), x.numel(), x.nelement(), x.element_size(), x.itemsize, x.nbytes, torch.numel(x)
x = torch.ones(2); x.is_cuda, x.is_cpu, x.is_sparse, x.is_quantized, x.is_meta, x.is_mkldnn, x.is_mps, x.is_xpu, x.is_nested, x.is_sparse_csr, x.is_vulkan, x.is_ipu, x.is_xla, x.is_mtia, x.is_maia
x = torch.ones(2); x.is_contiguous(), x.is_floating_point(), x.is_complex(), x.is_signed(), x.is_conj(), x.is_neg(), x.is_inference(), x.is_shared(), x.is_pinned(), x.is_distributed(), x.is_set_to(x), x.is_same_size(x)
x = torch.ones(2); x.layout, x.device, x.get_device(), x.names, x.has_names(), x.name, x.output_nr, x.retains_grad, x.grad, x.grad_fn, x.is_leaf
x = torch.ones(2, 3); x.T.shape, x.mT.shape, x.H.shape, x.mH.shape, x.real is x
x.imag if False else torch.ones(2).imag
x = torch.ones(2, 3); x.to_dense() is x, x.dense_dim(), x.sparse_dim(), x.dim_order(), x.const_data_ptr() == x.data_ptr(), x.dequantize()
x = torch.ones(4); x[1:].storage_offset(), x[1:].data_ptr() - x.data_ptr(), x.storage().size(), x.untyped_storage().nbytes(), x[2:].untyped_storage().nbytes()
x = torch.ones(2, 3); x.sum_to_size(1, 3), x.sum_to_size(3), x.sum_to_size((2, 1)), x.sum_to_size(2, 3)
x = torch.ones(2, 3); x.sum_to_size(2)
torch.zeros(4, 2).fill_diagonal_(1), torch.zeros(7, 3).fill_diagonal_(2, wrap=True), torch.zeros(2, 2, 2).fill_diagonal_(3)
torch.zeros(3).fill_diagonal_(1)
torch.zeros(2, 3, 4).fill_diagonal_(1)
torch.norm_except_dim(torch.ones(2, 3), 2, 0), torch.kl_div(torch.tensor([0.5]), torch.tensor([0.3])), torch.sym_max(2, 3)
torch.ones(2).__class__.__name__, torch.Tensor.__name__, torch.ones(2).type(), torch.typename(torch.ones(2))
x = torch.ones(2); x.data is x, x.detach() is x, x.cpu() is x, x.contiguous() is x, x.view(2) is x, x.requires_grad_(False) is x
callable(torch.Tensor.add), torch.Tensor.add(torch.ones(1), 2), torch.Tensor.shape.__get__(torch.ones(2))
"""


@needs_torch
@pytest.mark.parametrize("code", lines(ASKED))
def test_python_protocols(code: str) -> None:
    agree(code)


def test_python_protocols_literally() -> None:
    x = weft.tensor([1, 2, 3])
    assert len(x) == 3
    assert [int(v) for v in x] == [1, 2, 3]
    assert 2 in x
    assert 5 not in x
    assert "abc"[weft.tensor(1)] == "b"
    assert {x: "x"}[x] == "x"
    for wrong in (bool, int, float, complex):
        with pytest.raises((RuntimeError, ValueError)):
            wrong(x)
    for wrong in (len, iter):
        with pytest.raises(TypeError):
            wrong(weft.tensor(1))


def test_an_object_that_knows_tensors_gets_its_turn() -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "radd"

        def __rmul__(self, other: Any) -> str:
            return "rmul"

        def __rsub__(self, other: Any) -> str:
            return "rsub"

        def __rtruediv__(self, other: Any) -> str:
            return "rtruediv"

        def __rpow__(self, other: Any) -> str:
            return "rpow"

        def __rmatmul__(self, other: Any) -> str:
            return "rmatmul"

        def __rfloordiv__(self, other: Any) -> str:
            return "rfloordiv"

        def __gt__(self, other: Any) -> str:
            return "gt"

    for system in filter(None, (weft, torch)):
        x, other = system.ones(2), Other()
        assert (x + other, x * other, x - other, x / other) == ("radd", "rmul", "rsub", "rtruediv")
        assert (x**other, x @ other, x // other, x < other) == (
            "rpow",
            "rmatmul",
            "rfloordiv",
            "gt",
        )


# --- devices ---------------------------------------------------------------------------

DEVICES = """
torch.device('cpu'), torch.device('cuda'), torch.device('cuda:1'), torch.device('cuda', 0), torch.device(type='cpu'), torch.device('cpu', 0)
torch.device(torch.device('cpu')), torch.device('cpu').type, torch.device('cuda:3').index, torch.device('cpu').index
str(torch.device('cuda:1')), repr(torch.device('cuda:1')), repr(torch.device('cpu')), str(torch.device('cpu', 0))
torch.device('cpu') == torch.device('cpu'), torch.device('cpu') == 'cpu', torch.device('cuda') == torch.device('cuda:0'), torch.device('cpu') != torch.device('cuda')
len({torch.device('cpu'), torch.device('cpu'), torch.device('cuda')})
torch.device('nonsense')
torch.device('')
torch.device('cpu:x')
torch.device('cuda:-1')
torch.device('cuda:01')
torch.device('cuda:1', 1)
torch.device(None)
torch.device(1.5)
torch.device('cpu', 'a')
torch.device('meta'), torch.device('mps'), torch.device('xpu:1')
pickle.loads(pickle.dumps(torch.device('cuda:1'))), copy.deepcopy(torch.device('cpu'))
torch.device('cpu').nonsense
x = torch.ones(2); x.to('cpu') is x, x.to(torch.device('cpu')) is x, x.to('cpu', torch.float64), x.to(torch.float64).dtype, x.to(device='cpu', dtype=torch.int8)
x = torch.ones(2); x.to(torch.ones(1, dtype=torch.int16)), x.to('cpu', copy=True) is x, x.to(x) is x, x.to(torch.float32, False, True) is x, x.to(dtype=torch.float32) is x
x = torch.ones(2); x.to('cpu', non_blocking=True) is x, x.to(torch.float64, copy=True).dtype, x.to(dtype=torch.float64, memory_format=torch.preserve_format).dtype
x = torch.ones(2); x.to() is x
x = torch.ones(2); x.to('nonsense')
x = torch.ones(2); x.to([1])
x = torch.ones(2); x.to(torch.float32, torch.float64)
x = torch.ones(2); x.to(torch.float32, 'cpu')
x = torch.ones(2); x.float() is x, x.double().dtype, x.half().dtype, x.bfloat16().dtype, x.int().dtype, x.long().dtype, x.short().dtype, x.char().dtype, x.byte().dtype, x.bool().dtype, x.cfloat().dtype, x.cdouble().dtype
x = torch.ones(2); x.type_as(torch.ones(1).int()).dtype, x.type(torch.float64).dtype, x.type(), x.type('torch.IntTensor').dtype, x.type(torch.FloatTensor) is x, x.type(dtype=torch.float64).dtype
x = torch.ones(2); x.type(3)
x = torch.ones(2, requires_grad=True); x.to(torch.float64).requires_grad, x.cpu() is x, x.double().is_leaf, x.int().requires_grad
x = torch.ones(2); x.cpu() is x, x.device, x.is_cuda
torch.get_default_device(), torch.set_default_device('cpu'), torch.get_default_device(), torch.set_default_device(None)
with torch.device('cpu') as d: x = torch.ones(2)
with torch.device('cpu'): x = torch.ones(2, device='cpu')
torch.set_default_device('nonsense')
f = torch.device('cpu')(lambda: torch.ones(2)); f()
torch.ones(2, device='cpu'), torch.zeros(1, device=torch.device('cpu')), torch.arange(2, device='cpu:0')
torch.ones(2, device='nonsense')
torch.ones(2, device=[1])
torch.cuda.is_available(), torch.cuda.device_count(), torch.backends.mps.is_available()
torch.ones(2, pin_memory=False), torch.ones(2, layout=torch.strided)
torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.ones(2).share_memory_(), torch.Generator(device='cpu').device
torch.strided, torch.ones(1).layout is torch.strided, torch.sparse_coo, torch.ones(1).layout == torch.sparse_coo
isinstance(torch.device('cpu'), torch.device), isinstance(torch.strided, torch.layout), isinstance(torch.channels_last, torch.memory_format)
"""


@needs_torch
@pytest.mark.parametrize("code", lines(DEVICES))
def test_devices(code: str) -> None:
    agree(code.replace(": x = ", ":\n    x = "))


ELSEWHERE = """
torch.ones(2, device='cuda')
torch.ones(2).to('cuda')
torch.ones(2).cuda()
torch.tensor([1], device='cuda:0')
torch.rand(2, device='mps')
torch.ones(2).to(torch.device('xpu'))
torch.zeros(1, device=0)
torch.set_default_device('cuda')
torch.Generator(device='cuda')
torch.as_tensor([1], device='cuda')
torch.empty_like(torch.ones(1), device='cuda')
torch.ones(1).new_zeros(1, device='cuda')
torch.arange(2, device='cuda')
torch.randn(2, device='cuda')
torch.randperm(2, device='cuda')
torch.full((1,), 2, device='cuda')
torch.eye(2, device='cuda')
torch.linspace(0, 1, 2, device='cuda')
"""


@pytest.mark.parametrize("code", lines(ELSEWHERE))
def test_nothing_can_be_put_on_an_absent_device(code: str) -> None:
    with pytest.raises(RuntimeError, match="is not available: weft runs on the CPU"):
        eval(code, {"torch": weft})
    assert weft.get_default_device() == weft.device("cpu")


def test_a_device_is_a_context() -> None:
    with weft.device("cpu") as inside:
        assert inside.type == "cpu"
        assert weft.ones(2).device == inside
    with pytest.raises(RuntimeError, match="not available"), weft.device("cuda"):
        weft.ones(2)
    assert weft.ones(2).device.type == "cpu"


# --- modes -----------------------------------------------------------------------------

MODES = """
with torch.no_grad(): s = torch.is_grad_enabled(); s, torch.is_grad_enabled()
with torch.enable_grad(): s = torch.is_grad_enabled(); s
with torch.no_grad(), torch.enable_grad(): s = (x * 2).requires_grad; s
with torch.enable_grad(), torch.no_grad(): s = (x * 2).requires_grad; s
with torch.set_grad_enabled(False): s = (x * 2).requires_grad; s, torch.is_grad_enabled()
with torch.no_grad(), torch.set_grad_enabled(True): s = (x * 2).requires_grad; s
with torch.inference_mode(): s = (x * 2).requires_grad, torch.is_inference_mode_enabled(), torch.is_grad_enabled(); s, torch.is_inference_mode_enabled()
with torch.inference_mode(False): s = (x * 2).requires_grad, torch.is_inference_mode_enabled(); s
with torch.inference_mode(), torch.inference_mode(False): s = (x * 2).requires_grad; s
with torch.inference_mode(), torch.enable_grad(): s = (x * 2).requires_grad; s
with torch.inference_mode(): y = torch.ones(2); (y.clone() * x).sum().backward(); x.grad
with torch.inference_mode(): y = torch.ones(2).requires_grad_(); y.requires_grad
with torch.no_grad(): y = x * 2; y.requires_grad, y.is_leaf
with torch.no_grad(): y = x.view(2); y.requires_grad, y.is_leaf
with torch.no_grad(): y = torch.ones(2, requires_grad=True); y.requires_grad, y.is_leaf
with torch.no_grad(): x.add_(1); x, x.grad_fn
with torch.no_grad(): x.zero_(); x
x.add_(1)
torch.set_grad_enabled(False); s = (x * 2).requires_grad; torch.set_grad_enabled(True); s, (x * 2).requires_grad
torch.no_grad()(lambda: (x * 2).requires_grad)()
torch.no_grad(lambda: (x * 2).requires_grad)()
torch.enable_grad(lambda: (x * 2).requires_grad)()
torch.inference_mode()(lambda: (x * 2).requires_grad)()
torch.inference_mode(lambda: (x * 2).requires_grad)()
torch.set_grad_enabled(False)(lambda: (x * 2).requires_grad)(), torch.is_grad_enabled()
f = torch.no_grad()(len); f.__name__, f([1, 2]), torch.is_grad_enabled()
y = x * 2; y.detach().requires_grad, y.detach().is_leaf, y.data.requires_grad
y = x.detach(); y.requires_grad_(); y.is_leaf, x.requires_grad
y = (x * 2).requires_grad_(); y.is_leaf, y.requires_grad
(x * 2).requires_grad_(False)
y = (x * 2).detach_(); y.requires_grad, y.grad_fn
y = x * 2; y.retain_grad(); y.sum().backward(); y.grad, y.retains_grad, x.grad
torch.ones(2).retain_grad()
torch.ones(2).backward()
(x * 2).backward()
(x * 2).sum().backward(); (x * 3).sum().backward(); x.grad
x.grad = torch.ones(2); x.grad, x.grad.requires_grad
x.grad = None; x.grad
x.requires_grad = False; x.requires_grad, (x * 2).requires_grad
x.data = torch.zeros(3); x, x.requires_grad
x.data = 3
x.data = torch.zeros(2, dtype=torch.int64)
torch.ones(2).int().requires_grad_()
torch.ones(2).int().requires_grad_(False)
torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
x.register_hook(lambda g: g * 2); (x * 3).sum().backward(); x.grad
torch.ones(2).register_hook(print)
h = x.register_hook(lambda g: g * 2); h.remove(); (x * 3).sum().backward(); x.grad
x.register_post_accumulate_grad_hook(lambda t: None if t.grad.mul_(5) is None else None); (x * 3).sum().backward(); x.grad
(x * 2).register_post_accumulate_grad_hook(print)
y = x * 2; y.grad_fn.next_functions[0][0].variable is x, y.grad_fn.next_functions[0][1]
y = x.exp(); y.grad_fn.name(), type(y.grad_fn.next_functions[0][0]).__name__
"""


@needs_torch
@pytest.mark.parametrize("code", lines(MODES))
def test_modes_and_gradients(code: str) -> None:
    head, _, tail = code.partition(": s = ") if code.startswith("with") else ("", "", code)
    if tail and head:
        body, _, tail = tail.partition("; ")
        code = f"{head}:\n    s = {body}\n{tail}"
    elif code.startswith("with"):
        head, _, tail = code.partition("): ")
        body, _, tail = tail.partition("; ")
        code = f"{head}):\n    {body}\n{tail}"
    setup = "x = torch.tensor([1.0, 2.0], requires_grad=True)\n"
    agree(setup + code)


def test_modes_on_generators() -> None:
    for system in filter(None, (weft, torch)):

        @system.no_grad()
        def counting() -> Any:
            seen = yield system.is_grad_enabled()  # noqa: B023
            while seen is not None:
                seen = yield (seen, system.is_grad_enabled())  # noqa: B023
            return "done"

        generator = counting()
        assert next(generator) is False
        assert system.is_grad_enabled()
        assert generator.send(1) == (1, False)
        assert system.is_grad_enabled()
        with pytest.raises(StopIteration) as stop:
            generator.send(None)
        assert stop.value.value == "done"
        assert system.is_grad_enabled()


def test_modes_on_classes_and_after_errors() -> None:
    for system in filter(None, (weft, torch)):
        with pytest.raises(ZeroDivisionError), system.no_grad():
            1 / 0  # noqa: B018
        assert system.is_grad_enabled()

        @system.no_grad()
        def failing() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert system.is_grad_enabled()


def test_modes_belong_to_their_thread() -> None:
    for system in filter(None, (weft, torch)):
        seen = []

        def look(system: Any = system, seen: list[bool] = seen) -> None:
            seen.append(system.is_grad_enabled())
            with system.no_grad():
                seen.append(system.is_grad_enabled())

        with system.no_grad():
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            assert not system.is_grad_enabled()
        assert seen == [True, False]


def test_one_mode_object_twice_and_nested() -> None:
    for system in filter(None, (weft, torch)):
        off = system.no_grad()
        for _ in range(2):
            with off:
                assert not system.is_grad_enabled()
            assert system.is_grad_enabled()


# --- random numbers --------------------------------------------------------------------

DRAWN = """
torch.rand(3), torch.rand(2, 2, dtype=torch.float64), torch.rand(())
torch.randn(5), torch.randn(40), torch.randn(2, 3, dtype=torch.float64)
torch.randint(10, (5,)), torch.randint(-5, 5, (2, 2)), torch.randint(0, 2, (3,), dtype=torch.bool)
torch.randperm(10), torch.randperm(0)
torch.normal(0.0, 1.0, (3,)), torch.normal(torch.zeros(3), torch.ones(3)), torch.normal(torch.zeros(2), 2.0)
torch.zeros(4).uniform_(), torch.zeros(4).uniform_(-1, 2), torch.zeros(4).normal_(1, 2)
torch.full((6,), 0.3).bernoulli(), torch.zeros(6).bernoulli_(0.7), torch.bernoulli(torch.full((4,), 0.5))
torch.multinomial(torch.tensor([1.0, 2.0, 3.0]), 2), torch.multinomial(torch.ones(2, 4), 3, replacement=True)
torch.zeros(4).exponential_(), torch.zeros(4).exponential_(2.0)
torch.zeros(5).random_(), torch.zeros(5).random_(10), torch.zeros(5, dtype=torch.int64).random_(3, 9)
torch.nn.functional.dropout(torch.ones(20), 0.4), torch.nn.functional.dropout(torch.ones(4), 0.5, training=False)
torch.dropout(torch.ones(20), 0.4, True), torch.nn.functional.alpha_dropout(torch.ones(8), 0.4, training=True)
torch.nn.functional.dropout2d(torch.ones(1, 6, 2, 2), 0.5), torch.nn.functional.dropout1d(torch.ones(2, 4, 2), 0.5)
torch.rand_like(torch.ones(3)), torch.randn_like(torch.ones(20)), torch.randint_like(torch.ones(3), 9)
torch.rand(2, generator=torch.Generator().manual_seed(3)), torch.randn(3, generator=torch.Generator().manual_seed(3))
torch.nn.functional.gumbel_softmax(torch.zeros(4)), torch.nn.functional.rrelu(-torch.ones(4), training=True)
torch.poisson(torch.tensor([3.0, 0.5, 20.0])), torch.zeros(4).geometric_(0.3), torch.zeros(3).cauchy_(), torch.zeros(3).log_normal_()
torch.manual_seed(3).initial_seed(), torch.initial_seed(), torch.rand(2)
torch.manual_seed(-1); torch.initial_seed(), torch.rand(2)
torch.manual_seed('a')
torch.manual_seed(2.5); torch.rand(1)
s = torch.get_rng_state(); a = torch.rand(3); torch.set_rng_state(s); a.tolist() == torch.rand(3).tolist(), s.dtype, s.shape
torch.set_rng_state([1])
g = torch.Generator(); g.manual_seed(5); s = g.get_state(); a = torch.rand(2, generator=g); g.set_state(s); a, torch.rand(2, generator=g), g.initial_seed()
g = torch.Generator().manual_seed(1); h = pickle.loads(pickle.dumps(g)); torch.rand(2, generator=h)
torch.default_generator.initial_seed(), torch.random.initial_seed(), torch.default_generator.manual_seed(4).initial_seed(), torch.rand(1)
a = torch.zeros(2, 3).T.uniform_(); a, a.stride()
torch.cat([torch.rand(2), torch.randn(2)]), torch.rand(3)
"""


@needs_torch
@pytest.mark.parametrize("code", lines(DRAWN))
def test_same_seed_same_numbers(code: str) -> None:
    head, _, last = code.rpartition("; ")
    agree(f"torch.manual_seed(11)\n{head}\n{last}, torch.rand(3)")


def test_forked_streams_come_back() -> None:
    for system in filter(None, (weft, torch)):
        system.manual_seed(0)
        with system.random.fork_rng():
            inner = system.rand(2).tolist()
        assert system.rand(2).tolist() == inner
        with system.random.fork_rng(enabled=False):
            system.rand(2)
        assert system.rand(2).tolist() != inner


@needs_torch
def test_states_move_to_pytorch_and_back() -> None:
    weft.manual_seed(5)
    weft.randn(3)
    torch.set_rng_state(torch.from_numpy(weft.get_rng_state().numpy()))
    assert weft.randn(20).tolist() == pytest.approx(torch.randn(20).tolist(), rel=1e-6)
    torch.rand(7)
    weft.set_rng_state(weft.from_numpy(torch.get_rng_state().numpy()))
    assert weft.rand(5).tolist() == torch.rand(5).tolist()
    assert weft.randint(9, (5,)).tolist() == torch.randint(9, (5,)).tolist()


def test_draws_of_a_seed_literally() -> None:
    weft.manual_seed(0)
    assert weft.rand(2).tolist() == pytest.approx([0.4962566, 0.7682218], abs=1e-7)
    weft.manual_seed(0)
    assert weft.randperm(5).tolist() == [4, 0, 1, 3, 2]


# --- views -----------------------------------------------------------------------------

VIEWS = """
x[0]
x[1:]
x[:, 1]
x[..., -1]
x[None]
x[0, 1]
x[::2, 1:3]
x[:]
x[...]
x.view(-1)
x.view(2, 6)
x.view(torch.int32)
x.view_as(torch.ones(12))
x.reshape(4, 3)
x.T
x.t()
x.mT
x.transpose(0, 1)
x.permute(1, 0)
x.movedim(0, 1)
x.swapdims(0, 1)
x.unsqueeze(1)
x[:1].squeeze()
x[:1].squeeze(0)
x.squeeze()
x[:1].expand(5, 4)
x.expand(2, 3, 4)
x.expand_as(torch.ones(2, 3, 4))
x.broadcast_to(2, 3, 4)
x.narrow(1, 1, 2)
x.select(1, 2)
x.split(2, 1)[1]
x.chunk(2, 1)[0]
x.unbind()[1]
x.tensor_split(2, 1)[1]
x.hsplit(2)[1]
x.vsplit(3)[2]
x.diagonal()
x.diagonal(1)
x.unfold(1, 2, 1)
x.as_strided((2, 2), (4, 1), 1)
x.flatten()
x.ravel()
x.unflatten(1, (2, 2))
x.detach()
x.data
x.real
x.T[1:].T[:, ::2]
x.t().contiguous()
x.contiguous()
x.clone()
x.T.clone()
x.T.flatten()
x.T.reshape(-1)
x.T.reshape(4, 3)
x.T.view(4, 3)
x.float()
x.double()
x.to(torch.float32, copy=True)
x.flip(0)
x.roll(1)
x.tril()
x.repeat(2, 1)
x.T.sum(0)
x.T + 1
x.T * x.T
x + x.T.contiguous().T
x.T.abs()
torch.zeros_like(x.T)
x.index_select(0, torch.tensor([0]))
x[torch.tensor([0, 1])]
x[[0]]
x[x > 3]
x[:, torch.tensor([0, 1])]
x[:, [0, 2]]
x[..., [0]]
x.topk(2)[0]
x.topk(2)[1]
x.kthvalue(1)[1]
x.median(1)[1]
x.mode(0)[1]
x.max(0)[1]
x.sort(0)[0]
x.argsort(0)
x.cumsum(0)
x.gather(1, torch.zeros(3, 2, dtype=torch.int64))
x.index_add(1, torch.tensor([0]), torch.ones(3, 1))
x.scatter_add(1, torch.tensor([[0]]), torch.ones(1, 1))
x.masked_scatter(x > 3, torch.ones(12))
x.masked_fill(x > 3, 0)
x.T.ravel()
x[::2].T.ravel()
torch.fill(x, 2.0)
torch.permute_copy(x, (1, 0))
torch.diagonal_copy(x)
torch.cat([x.T, x.T])
torch.stack([x.T, x.T])
torch.where(x.T > 3, x.T, 0.0)
x.T @ x
x.T.matmul(x[:, 0])
x.T.softmax(0)
x.T.mean(1, keepdim=True)
x.cpu()
torch.atleast_3d(x)
torch.broadcast_tensors(x, torch.ones(2, 3, 4))[0]
torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2)))
torch.swapaxes(x, 0, 1)
torch.squeeze(x[None], (0,))
torch.meshgrid(x[0], x[1], indexing='ij')[0]
x.requires_grad_(False)
x.view(3, 1, 4).expand(3, 2, 4)[:, 0]
x.unsqueeze(0).unsqueeze(-1).stride()
torch.linalg.diagonal(x)
x.adjoint()
x.positive()
x.resolve_conj()
x.conj()
x.view(3, 2, 2).permute(2, 0, 1).is_contiguous()
x.view(1, 3, 2, 2).is_contiguous(memory_format=torch.channels_last)
x.view(1, 1, 3, 4).to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
"""


def geometry(code: str, system: Any) -> Any:
    """Where a result lies, whose memory it is, and what a change to either does to both."""
    x = system.arange(12.0).reshape(3, 4).clone()
    try:
        y = eval(code, {"torch": system, "x": x})
    except Exception as error:
        return type(error).__name__
    if not hasattr(y, "storage_offset"):
        return y
    base = y._base
    shared = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    seen = [tuple(y.shape), y.stride(), y.storage_offset(), y.is_contiguous(), str(y.dtype)]
    seen += [y is x, base is x, base is None, y._is_view(), shared, y._version]
    seen += [y.data_ptr() - x.data_ptr() if shared else None]
    x.add_(1)
    seen += [y._version, rounded(y.tolist())]
    if y.numel() and 0 not in y.stride():
        y.fill_(-1)
        seen += [x._version, y._version, rounded(x.tolist())]
    return seen


@needs_torch
@pytest.mark.parametrize("code", lines(VIEWS))
def test_views_and_copies(code: str) -> None:
    assert geometry(code, weft) == geometry(code, torch)


@needs_torch
@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
def test_results_are_contiguous_where_those_of_pytorch_are() -> None:
    # Else a view of the result fails that works in PyTorch. LAPACK's layout is its own affair.
    opdb = pytest.importorskip("opdb")
    few, wrong = opdb.Settings(samples=3), set()
    for op in opdb.op_db:
        if op.name.startswith(("linalg", "svd", "pca")) or "float32" not in str(op.dtypes):
            continue
        try:
            ours = opdb.counterpart(op)
        except AttributeError:
            continue
        for sample in opdb.samples_of(op, "float32", few):
            try:
                args, kwargs = opdb.fresh(opdb.parts_of(sample))
                own_args, own_kwargs = opdb.to_weft((args, kwargs))
                theirs, found = op.op(*args, **kwargs), ours(*own_args, **own_kwargs)
            except Exception:  # what is refused is the op table's own test
                continue
            pairs = zip(opdb.tensors_in(theirs), opdb.tensors_in(found), strict=False)
            if any(t.is_contiguous() and not own.is_contiguous() for t, own in pairs):
                wrong.add(opdb.full_name(op))
    assert not wrong


def test_views_literally() -> None:
    x = weft.zeros(2, 3)
    row = x[1]
    row.fill_(5)
    assert x.tolist() == [[0.0, 0.0, 0.0], [5.0, 5.0, 5.0]]
    assert row._base is x
    assert row._version == x._version == 1
    assert x.T.stride() == (1, 3)
    assert x[:, 1:].storage_offset() == 1
    assert not x.T.is_contiguous()
    assert x.clone()._base is None


def test_codes_that_both_refuse_are_refused() -> None:
    # The helper of this file reports an error as an error, not as a value.
    assert run("1 / 0", weft) == "ZeroDivisionError raised"
    assert run("torch.ones(2).view(3)", weft) == "RuntimeError raised"
