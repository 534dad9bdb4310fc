"""The names of PyTorch's that weft's own packages do not have: where each is found, or why not.

``[torch.x]`` begins a module. The rows below it name what is in it:

* ``weft.y: a b=c`` takes ``a``, and under the name ``b`` its ``c``, from a file of weft's. PyTorch
  says of ``a`` that ``torch.x`` is its module, and so does weft where ``import torch`` means weft.
* ``*=f`` there takes every other name from the function ``f``.
* ``torch.y: a`` takes it from another of PyTorch's modules, as weft has it.
* ``!reason: a B E=F,G`` are only names, for one of the reasons below: ``a`` is a function and ``B``
  a class that say so when they are called, ``E`` an enumeration.
"""

from __future__ import annotations

# What is missing, and what to do instead.
REASONS: dict[str, tuple[str, str]] = {
    "fx": (
        "weft's torch.fx traces, changes and runs graphs, without this part of PyTorch's",
        "weft.graph.record() gives the graph of what a block of code computes",
    ),
    "many": (
        "weft trains in one process (torch.distributed.is_available() is False)",
        "Run the program in one process, without this",
    ),
    "onnx": (
        "weft does not write ONNX files",
        "Save the weights with torch.save(module.state_dict(), f) and export them with PyTorch",
    ),
    "quantization": (
        "weft has no quantised tensors",
        "Keep the model in float32, bfloat16 or float16",
    ),
    "export": (
        "weft does not export programs",
        "weft.graph.record() and its save() keep the graph of what a block of code computes",
    ),
    "capture": (
        "weft does not capture graphs of Python code: torch.compile follows it while it runs",
        "Call the function without it",
    ),
    "sparse": (
        "weft has sparse tensors in coordinate format only, and few functions for them",
        "Use a dense tensor, or index_add_ and scatter_add_ on the entries",
    ),
    "nested": (
        "weft has no nested tensors",
        "Use torch.nn.utils.rnn.pad_sequence, or a list of tensors",
    ),
    "flex": (
        "weft does not have this kind of attention",
        "Use torch.nn.functional.scaled_dot_product_attention with a mask",
    ),
    "cuda": (
        "weft runs on the CPU",
        "Guard the call with torch.cuda.is_available() or that of the device in question",
    ),
    "package": (
        "weft does not have it",
        "Save the weights with torch.save(module.state_dict(), f)",
    ),
    "extension": (
        "weft does not build extensions against PyTorch's C++ library",
        "Use the library's version of the function in Python",
    ),
    "numa": ("weft does not bind processes to processors", "Start the program with numactl"),
    "script": (
        "weft has no TorchScript; everything runs as Python",
        "Use the Python function or module itself",
    ),
    "subclasses": (
        "weft has no dispatcher below its public functions, so no __torch_dispatch__",
        "Use __torch_function__ or torch.overrides.TorchFunctionMode",
    ),
    "datapipes": (
        "weft has the base classes of datapipes only",
        "Shuffle and shard in the dataset, or use torch.utils.data.DataLoader",
    ),
    "flops": (
        "weft does not count floating-point operations this way",
        "torch.profiler counts calls and times",
    ),
}

TABLE = """
# What has its home in another module of PyTorch's.
[torch]
weft._checks: _check _check_index _check_is_size _check_not_implemented _check_tensor_all
    _check_type _check_value _check_with cond
weft.core.device: device
weft.core.dtype: dtype finfo iinfo
weft.core.size: Size
weft.core.tensor: Tensor layout=Layout
weft.operators.casting: memory_format
[torch.__future__]
weft.nn._conversion: get_overwrite_module_params_on_conversion
    get_swap_module_params_on_conversion set_overwrite_module_params_on_conversion
    set_swap_module_params_on_conversion
[torch._C]
weft.operators.random: Generator
weft.core.settings: _get_deterministic_fill_uninitialized_memory=fills_memory
    _set_deterministic_fill_uninitialized_memory=fill_memory
[torch._C._profiler]
weft.profiler: ProfilerActivity
[torch._lobpcg]
weft.operators.linalg: lobpcg
[torch._lowrank]
weft.operators.linalg: pca_lowrank svd_lowrank
[torch._tensor_str]
weft.core.printing: set_printoptions
[torch.autograd]
weft.autograd.entry: backward grad
[torch.autograd.anomaly_mode]
weft.autograd.anomaly: detect_anomaly set_detect_anomaly
[torch.autograd.grad_mode]
weft.core.modes: enable_grad inference_mode no_grad set_grad_enabled set_multithreading_enabled
[torch.autograd.profiler]
weft.profiler._recorder: record_function
weft.profiler.legacy: profile
[torch.autograd.profiler_util]
weft.profiler._events: EventList FunctionEvent FunctionEventAvg
[torch.cuda.amp.autocast_mode]
weft.cuda.amp: autocast custom_bwd custom_fwd
[torch.cuda.amp.grad_scaler]
weft.cuda.amp: GradScaler
[torch.cuda.streams]
weft.cuda: Event Stream
[torch.distributions.transforms]
weft.distributions._elementary_transforms: AbsTransform AffineTransform ComposeTransform
    CumulativeDistributionTransform ExpTransform IndependentTransform PowerTransform
    ReshapeTransform SigmoidTransform SoftplusTransform TanhTransform Transform
[torch.func]
weft.func._modules: functional_call replace_all_batch_norm_modules_ stack_module_state
weft.func._reverse: debug_unwrap grad grad_and_value hessian jacfwd jacrev jvp linearize vjp
weft.func._vmap: vmap
[torch.functional]
weft.operators.arranging: atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes
    broadcast_tensors cartesian_prod meshgrid unravel_index
weft.operators.einsum: einsum
weft.operators.factorizations: lu=old_lu
weft.operators.matmul: chain_matmul tensordot
weft.operators.norms: cdist
weft.operators.searching: unique unique_consecutive
weft.operators.statistics: norm
weft.operators.stft: stft
weft.operators.views: split
[torch.jit]
weft.futures: Future
[torch.jit._async]
weft.jit: fork wait
[torch.jit._freeze]
weft.jit: freeze optimize_for_inference
[torch.jit._fuser]
weft.jit: fuser optimized_execution set_fusion_strategy
[torch.jit._script]
weft.jit: RecursiveScriptModule ScriptModule script
[torch.jit._trace]
weft.jit: TracerWarning is_tracing trace trace_module
[torch.multiprocessing.reductions]
weft.multiprocessing: init_reductions
[torch.nn.modules.activation]
weft.nn.activation: CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid
    LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus
    Softshrink Softsign Tanh Tanhshrink Threshold
weft.nn.multihead: MultiheadAttention
[torch.nn.modules.adaptive]
weft.nn.adaptive: AdaptiveLogSoftmaxWithLoss _ASMoutput
[torch.nn.modules.batchnorm]
weft.nn.normalization: BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d
    LazyBatchNorm3d SyncBatchNorm _BatchNorm _LazyNormBase _NormBase
[torch.nn.modules.channelshuffle]
weft.nn.upsampling: ChannelShuffle
[torch.nn.modules.container]
weft.nn.containers: Container ModuleDict ModuleList ParameterDict ParameterList Sequential
weft.nn.module: _addindent
[torch.nn.modules.conv]
weft.nn.convolution: Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d
    LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d _ConvNd
    _ConvTransposeNd _LazyConvXdMixin
[torch.nn.modules.distance]
weft.nn.distance: CosineSimilarity PairwiseDistance
[torch.nn.modules.dropout]
weft.nn.dropout: AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout _DropoutNd
[torch.nn.modules.flatten]
weft.nn.fold: Flatten Unflatten
[torch.nn.modules.fold]
weft.nn.fold: Fold Unfold
[torch.nn.modules.instancenorm]
weft.nn.normalization: InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d
    LazyInstanceNorm2d LazyInstanceNorm3d _InstanceNorm
[torch.nn.modules.lazy]
weft.nn.lazy: LazyModuleMixin
[torch.nn.modules.linear]
weft.nn.linear: Bilinear Identity LazyLinear Linear NonDynamicallyQuantizableLinear
[torch.nn.modules.linear_cross_entropy_options]
weft.nn.loss: LinearCrossEntropyOptions
[torch.nn.modules.loss]
weft.nn.loss: BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss
    HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss
    MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss
    SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss _Loss _WeightedLoss
[torch.nn.modules.module]
weft.nn._hooks: register_module_backward_hook register_module_buffer_registration_hook
    register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook
    register_module_full_backward_pre_hook register_module_module_registration_hook
    register_module_parameter_registration_hook
weft.nn._state: _IncompatibleKeys
weft.nn.module: Module _addindent _forward_unimplemented
    _global_backward_hooks _global_backward_pre_hooks _global_buffer_registration_hooks
    _global_forward_hooks _global_forward_hooks_always_called _global_forward_hooks_with_kwargs
    _global_forward_pre_hooks _global_is_full_backward_hook _global_module_registration_hooks
    _global_parameter_registration_hooks
[torch.nn.modules.normalization]
weft.nn.normalization: CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm
[torch.nn.modules.padding]
weft.nn.padding: CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
    ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
    ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d _CircularPadNd _ConstantPadNd _ReflectionPadNd
    _ReplicationPadNd
[torch.nn.modules.pixelshuffle]
weft.nn.upsampling: PixelShuffle PixelUnshuffle
[torch.nn.modules.pooling]
weft.nn.pooling: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d
    AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d
    FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d
    MaxUnpool2d MaxUnpool3d _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _LPPoolNd _MaxPoolNd
    _MaxUnpoolNd
[torch.nn.modules.rnn]
weft.nn.recurrent: GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase
[torch.nn.modules.sparse]
weft.nn.sparse: Embedding EmbeddingBag
[torch.nn.modules.transformer]
weft.nn.transformer: Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
    TransformerEncoderLayer _detect_is_causal_mask
[torch.nn.modules.upsampling]
weft.nn.upsampling: Upsample UpsamplingBilinear2d UpsamplingNearest2d
[torch.nn.parameter]
weft.core.tensor: Parameter
[torch.optim]
weft.optim._adafactor: Adafactor
weft.optim._muon: Muon
weft.optim._stateless: swap_in_optimizer_params_and_state
[torch.optim.lr_scheduler]
weft.optim._cycles: CosineAnnealingWarmRestarts CyclicLR OneCycleLR
weft.optim._schedule: LRScheduler _LRScheduler _format_param
[torch.profiler.profiler]
weft.profiler: ProfilerAction profile schedule supported_activities tensorboard_trace_handler
[torch.random]
weft.operators.random: get_rng_state initial_seed manual_seed seed set_rng_state
[torch.serialization]
weft.io.loading: SourceChangeWarning
weft.io.unpickle: add_safe_globals clear_safe_globals get_safe_globals safe_globals
[torch.storage]
weft.core.storage: TypedStorage UntypedStorage
[torch.testing._comparison]
weft.testing.comparison: assert_close
[torch.testing._creation]
weft.testing.creation: make_tensor
[torch.utils.benchmark.utils.common]
weft.utils.benchmark.measurement: Measurement TaskSpec select_unit set_torch_threads trim_sigfig
    unit_to_english
[torch.utils.benchmark.utils.compare]
weft.utils.benchmark.compare: Compare
[torch.utils.benchmark.utils.timer]
weft.utils.benchmark.timer: Language Timer
[torch.utils.dlpack]
weft.operators.creation: from_dlpack
[torch.utils.hooks]
weft.core.node: RemovableHandle
# Names only.
[torch.fx.passes.infra.pass_base]
!fx: PassResult
[torch.fx.experimental.proxy_tensor]
[torch.fx.experimental.symbolic_shapes]
[torch.fx.experimental.optimization]
!fx: fuse
[torch.distributed.algorithms]
!many: Join JoinHook Joinable
[torch.distributed.algorithms.join]
!many: Join JoinHook Joinable
[torch.distributed.algorithms._checkpoint.checkpoint_wrapper]
!many: CheckpointImpl=REENTRANT,NO_REENTRANT CheckpointWrapper apply_activation_checkpointing
    checkpoint_wrapper offload_wrapper
[torch.distributed.algorithms.ddp_comm_hooks]
[torch.distributed.algorithms.ddp_comm_hooks.default_hooks]
!many: bf16_compress_hook bf16_compress_wrapper fp16_compress_hook fp16_compress_wrapper
[torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook]
!many: PowerSGDState batched_powerSGD_hook powerSGD_hook
[torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook]
!many: PostLocalSGDState post_localSGD_hook
[torch.distributed.algorithms.model_averaging.averagers]
!many: ModelAverager PeriodicModelAverager
[torch.distributed.autograd]
!many: context
[torch.distributed.checkpoint]
!many: BytesStorageMetadata CheckpointException ChunkStorageMetadata DefaultLoadPlanner
    DefaultSavePlanner FileSystemReader FileSystemWriter HuggingFaceStorageReader
    HuggingFaceStorageWriter LoadPlan LoadPlanner Metadata QuantizedHuggingFaceStorageReader
    ReadItem SavePlan SavePlanner StorageReader StorageWriter TensorStorageMetadata WriteItem
    async_save load load_sharded_optimizer_state_dict load_state_dict save save_state_dict
[torch.distributed.checkpoint.default_planner]
!many: DefaultLoadPlanner DefaultSavePlanner
[torch.distributed.checkpoint.format_utils]
[torch.distributed.checkpoint.optimizer]
!many: load_sharded_optimizer_state_dict
[torch.distributed.checkpoint.state_dict]
!many: DictValueType FQNS_T ListDictValueType OptimizerStateType PrimitiveType ValueType
    get_optimizer_state_dict get_state_dict set_optimizer_state_dict set_state_dict
weft.compat.stand_ins.checkpoint: StateDictOptions get_model_state_dict set_model_state_dict
[torch.distributed.checkpoint.state_dict_loader]
[torch.distributed.device_mesh]
!many: DeviceMesh init_device_mesh
[torch.distributed.elastic.multiprocessing]
[torch.distributed.elastic.multiprocessing.errors]
!many: ChildFailedError
[torch.distributed.fsdp]
!many: BackwardPrefetch=BACKWARD_PRE,BACKWARD_POST CPUOffload CPUOffloadPolicy DataParallelMeshDims
    FSDPModule FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel
    LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy
    OptimStateDictConfig OptimStateKeyType=PARAM_NAME,PARAM_ID ShardedOptimStateDictConfig
    ShardedStateDictConfig
    ShardingStrategy=FULL_SHARD,SHARD_GRAD_OP,NO_SHARD,HYBRID_SHARD,_HYBRID_SHARD_ZERO2
    StateDictConfig StateDictSettings
    StateDictType=FULL_STATE_DICT,LOCAL_STATE_DICT,SHARDED_STATE_DICT UnshardHandle fully_shard
    register_fsdp_forward_method share_comm_ctx
[torch.distributed.fsdp.api]
!many: BackwardPrefetch=BACKWARD_PRE,BACKWARD_POST CPUOffload FullOptimStateDictConfig
    FullStateDictConfig LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision
    OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig
    ShardingStrategy=FULL_SHARD,SHARD_GRAD_OP,NO_SHARD,HYBRID_SHARD,_HYBRID_SHARD_ZERO2
    StateDictConfig StateDictSettings
    StateDictType=FULL_STATE_DICT,LOCAL_STATE_DICT,SHARDED_STATE_DICT
[torch.distributed.fsdp.fully_sharded_data_parallel]
!many: FullyShardedDataParallel
torch.distributed.fsdp: BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig
    MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictType
[torch.distributed.fsdp.sharded_grad_scaler]
!many: ShardedGradScaler
[torch.distributed.fsdp.wrap]
!many: CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy
    size_based_auto_wrap_policy transformer_auto_wrap_policy wrap
[torch.distributed.launcher]
!many: LaunchConfig elastic_launch launch_agent
[torch.distributed.launcher.api]
!many: LaunchConfig elastic_launch
[torch.distributed.nn]
!many: RemoteModule all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce
    reduce_scatter scatter
[torch.distributed.nn.functional]
!many: all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter
    scatter
[torch.distributed.optim]
!many: DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer as_functional_optim
[torch.distributed.pipelining]
!many: Pipe PipelineStage Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B
    ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble SplitPoint=BEGINNING,END
    build_stage pipe_split pipeline
[torch.distributed.rpc]
!many: AllGatherStates BackendType=TENSORPIPE RRef TensorPipeRpcBackendOptions get_worker_info
    init_rpc is_available method_factory new_method remote rpc_async rpc_sync shutdown
[torch.distributed.rpc.api]
!many: RRef
[torch.distributed.run]
!many: config_from_args determine_local_world_size get_args_parser get_rdzv_endpoint get_use_env
    main parse_args parse_min_max_nnodes run run_script_path
[torch.distributed.tensor]
!many: DTensor Partial Placement Replicate Shard distribute_module distribute_tensor empty full ones
    rand randn zeros
[torch.distributed.tensor.experimental]
!many: context_parallel
[torch.distributed.tensor.parallel]
!many: ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput
    RowwiseParallel SequenceParallel loss_parallel parallelize_module
[torch.distributed.tensor.placement_types]
!many: Partial Placement Replicate Shard
[torch.distributed.utils]
[torch.distributed.distributed_c10d]
weft.compat.stand_ins.parallel: Backend
!many: AllToAllOptions AllreduceCoalescedOptions AllreduceOptions BackendConfig
    BarrierOptions BroadcastOptions DebugLevel GatherOptions GroupMember GroupName P2POp PrefixStore
    ProcessGroup ProcessGroupGloo ReduceOp ReduceOptions ReduceScatterOptions ScatterOptions Store
    Work all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single
    all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast
    broadcast_object_list default_pg_timeout destroy_process_group gather gather_object get_backend
    get_backend_config get_debug_level get_default_backend_for_device get_global_rank get_group_rank
    get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size group
    init_process_group irecv is_backend_available is_gloo_available is_initialized is_mpi_available
    is_nccl_available is_torchelastic_launched is_ucc_available is_xccl_available isend
    monitored_barrier new_group new_subgroups new_subgroups_by_enumeration record_comm recv
    recv_object_list reduce reduce_op reduce_scatter reduce_scatter_single reduce_scatter_tensor
    scatter scatter_object_list send send_object_list shrink_group split_group supports_complex
[torch.distributed._tensor]
!many: DTensor Replicate Shard
[torch.distributed._composable]
[torch.distributed._composable.fsdp]
[torch.distributed._functional_collectives]
!many: AsyncCollectiveTensor all_gather_tensor all_to_all_single all_to_all_single_autograd
    permute_tensor wait_tensor
[torch.distributed._shard.sharded_tensor]
!many: empty
[torch.onnx]
!onnx: ExportableModule InputObserver ONNXProgram OnnxExporterError export
[torch.onnx.errors]
!onnx: OnnxExporterWarning SymbolicValueError UnsupportedOperatorError
[torch.onnx.symbolic_helper]
[torch.onnx.symbolic_opset9]
[torch.onnx.symbolic_opset11]
[torch.ao.quantization]
!quantization: AffineQuantizedObserverBase DeQuantStub FakeQuantize FakeQuantizeBase
    FixedQParamsFakeQuantize FixedQParamsObserver FusedMovingAvgObsFakeQuantize Granularity
    HistogramObserver MappingType=SYMMETRIC,SYMMETRIC_NO_CLIPPING_ERR,ASYMMETRIC MinMaxObserver
    MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase
    ObserverOrFakeQuantize PerAxis PerBlock PerChannelMinMaxObserver PerGroup PerRow PerTensor
    PerToken PlaceholderObserver QConfig QConfigAny QConfigDynamic QConfigMapping QuantStub
    QuantType=DYNAMIC,STATIC,QAT,WEIGHT_ONLY QuantWrapper RecordingObserver ReuseInputObserver
    TorchAODType=INT1,INT2,INT3,INT4,INT5,INT6,INT7 UniformQuantizationObserverBase
    ZeroPointDomain=INT,FLOAT,NONE add_quant_dequant convert convert_dynamic_jit convert_jit
    default_affine_fixed_qparams_fake_quant default_affine_fixed_qparams_observer
    default_debug_observer default_dynamic_fake_quant default_dynamic_quant_observer
    default_embedding_fake_quant default_embedding_fake_quant_4bit default_eval_fn
    default_fake_quant default_fixed_qparams_range_0to1_fake_quant
    default_fixed_qparams_range_0to1_observer default_fixed_qparams_range_neg1to1_fake_quant
    default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer
    default_float_qparams_observer_4bit default_fused_act_fake_quant
    default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant default_histogram_fake_quant
    default_histogram_observer default_observer default_per_channel_weight_fake_quant
    default_per_channel_weight_observer default_placeholder_observer default_reuse_input_observer
    default_symmetric_fixed_qparams_fake_quant default_symmetric_fixed_qparams_observer
    default_weight_fake_quant default_weight_observer disable_fake_quant disable_observer
    enable_fake_quant enable_observer fuse_conv_bn fuse_conv_bn_jit fuse_conv_bn_relu
    fuse_convtranspose_bn fuse_linear_bn fuse_modules fuse_modules_qat
    fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127
    get_block_size get_default_compare_output_module_list get_default_custom_config_dict
    get_default_dynamic_quant_module_mappings get_default_dynamic_sparse_quant_module_mappings
    get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings
    get_default_qat_qconfig get_default_qat_qconfig_dict get_default_qat_qconfig_mapping
    get_default_qconfig get_default_qconfig_dict get_default_qconfig_mapping
    get_default_qconfig_propagation_list get_default_static_quant_module_mappings
    get_default_static_quant_reference_module_mappings
    get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class
    get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings get_fuser_method
    get_fuser_method_new get_observer_state_dict get_quantized_operator
    get_static_quant_module_class load_observer_state_dict no_observer_set
    per_channel_weight_observer_range_neg_127_to_127 prepare prepare_dynamic_jit prepare_jit
    prepare_qat propagate_qconfig_ qconfig_equals quantize quantize_dynamic quantize_dynamic_jit
    quantize_jit quantize_qat script_qconfig script_qconfig_dict swap_module
    weight_observer_range_neg_127_to_127
[torch.ao.quantization.fx]
[torch.ao.quantization.fx._decomposed]
[torch.ao.pruning]
!quantization: WeightNormSparsifier
[torch.nn.intrinsic]
!quantization: BNReLU2d BNReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d
    ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d LinearReLU
[torch.nn.quantized]
!quantization: BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d DeQuantize Dropout ELU Embedding EmbeddingBag FXFloatFunctional FloatFunctional
    GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU Linear
    MultiheadAttention PReLU QFunctional Quantize ReLU6 Sigmoid Softmax
[torch.nn.qat]
!quantization: Conv1d Conv2d Conv3d Embedding EmbeddingBag Linear
[torch.quantization]
!quantization: DeQuantStub HistogramObserver ObserverBase QConfig QuantStub
    QuantType=DYNAMIC,STATIC,QAT,WEIGHT_ONLY QuantWrapper add_quant_dequant convert
    default_dynamic_qconfig default_eval_fn default_fake_quant
    default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant
    default_histogram_fake_quant default_observer default_per_channel_weight_fake_quant
    default_per_channel_weight_observer default_placeholder_observer default_qat_qconfig
    default_qconfig default_weight_fake_quant default_weight_observer float16_dynamic_qconfig
    float_qparams_weight_only_qconfig fuse_modules get_default_compare_output_module_list
    get_default_dynamic_quant_module_mappings get_default_qat_module_mappings
    get_default_qconfig_propagation_list get_default_static_quant_module_mappings get_fuser_method
    get_quantized_operator get_static_quant_module_class prepare prepare_qat propagate_qconfig_
    quantize quantize_dynamic quantize_dynamic_jit quantize_jit quantize_qat swap_module
[torch.export]
!export: AdditionalInputs Constraint CustomDecompTable Dim ExportBackwardSignature
    ExportGraphSignature ExportedProgram FlatArgsAdapter ModuleCallEntry ModuleCallSignature
    ShapesCollection UnflattenedModule default_decompositions dims draft_export export load
    register_dataclass save unflatten
[torch.export.dynamic_shapes]
!export: Dim
[torch._dynamo]
[torch._dynamo.eval_frame]
[torch._dynamo.exc]
!capture: AutogradGradRestartAnalysis BackendCompilerFailed CompileCollectiveRestartAnalysis
    CondOpArgsMismatchError FailOnRecompileLimitHit InfiniteGeneratorError InternalTorchDynamoError
    InvalidBackend KeyErrorMsg ObservedAttributeError ObservedException ObservedGeneratorExit
    ObservedIndexError ObservedKeyError ObservedLookupError ObservedNotImplementedError
    ObservedRuntimeError ObservedTypeError ObservedUserStopIteration PackageError RecompileError
    RequiresGradRestartAnalysis ResetRequired RestartAnalysis ResumePrologueTracingError
    ShortenTraceback SkipFrame SpeculationRestartAnalysis StepUnsupported
    TensorifyScalarRestartAnalysis TorchDynamoException TorchRuntimeError
    UncapturedHigherOrderOpError UnknownPropertiesDuringBackwardTrace UnsafeScriptObjectError
    UnspecializeRestartAnalysis Unsupported UserError
    UserErrorType=DYNAMIC_CONTROL_FLOW,ANTI_PATTERN,CONSTRAINT_VIOLATION,INVALID_INPUT
    augment_exc_message augment_exc_message_with_hop_name collapse_resume_frames
    exportdb_error_message filter_stack format_error_msg format_error_msg_verbose format_frame_info
    format_graph_break_message format_skip_frame_message get_dynamo_observed_exception
    get_exc_message get_gbid_documentation_link get_real_stack get_stack_above_dynamo
    handle_observed_exception raise_observed_exception raise_type_error raise_value_error
    remove_resume_prefix unimplemented unimplemented_with_warning
[torch._dynamo.utils]
!capture: same
[torch._higher_order_ops]
!capture: foreach_map map
weft.compat.stand_ins.helpers: while_loop
[torch._higher_order_ops.while_loop]
weft.compat.stand_ins.helpers: while_loop
[torch._higher_order_ops.associative_scan]
!capture: associative_scan
[torch._subclasses]
[torch._subclasses.fake_tensor]
!capture: FakeTensorMode
[torch._inductor]
[torch._inductor.utils]
!capture: fresh_inductor_cache
[torch._inductor.cpu_vec_isa]
!capture: pick_vec_isa
[torch._decomp]
!capture: get_decompositions
[torch.sparse]
!sparse: SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT
    SparseSemiStructuredTensorCUTLASS addmm as_sparse_gradcheck check_sparse_tensor_invariants
    log_softmax softmax sum to_sparse_semi_structured
[torch.nested]
!nested: as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged
    to_padded_tensor
[torch.nn.attention.bias]
!flex: CausalBias CausalVariant=UPPER_LEFT,LOWER_RIGHT causal_lower_right causal_upper_left
[torch.cuda.graphs]
!cuda: CUDAGraph graph graph_pool_handle make_graphed_callables
[torch.cuda.nccl]
[torch.cuda.profiler]
!cuda: profile
[torch.cuda.sparse]
[torch.mtia]
[torch.cuda.gds]
!cuda: GdsFile
[torch.cuda.memory]
[torch.package]
!package: Directory EmptyMatchError GlobGroup Importer ObjMismatchError ObjNotFoundError
    OrderedImporter PackageExporter PackageImporter PackagingError is_from_package
[torch.monitor]
!package: TensorboardEventHandler
[torch.utils.cpp_extension]
!extension: BuildExtension CUDAExtension CppExtension SyclExtension check_compiler_is_gcc
    check_compiler_ok_for_platform get_compiler_abi_compatibility_and_version get_cxx_compiler
    get_default_build_root include_paths is_ninja_available library_paths load load_inline
    remove_extension_h_precompiler_headers verify_ninja_availability
[torch.utils._python_dispatch]
[torch.numa]
[torch.numa.binding]
!numa: AffinityMode=NODE,SOCKET,EXCLUSIVE,CORE_COMPLEX NumaOptions
# ---------------------------------------------------------------- names that work
[torch]
torch: torch=*
weft.compat.stand_ins.foreach: _foreach_abs _foreach_abs_ _foreach_add _foreach_add_
    _foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul _foreach_addcmul_ _foreach_ceil
    _foreach_ceil_ _foreach_clamp_max _foreach_clamp_max_ _foreach_clamp_min _foreach_clamp_min_
    _foreach_copy_ _foreach_cos _foreach_cos_ _foreach_div _foreach_div_ _foreach_exp _foreach_exp_
    _foreach_floor _foreach_floor_ _foreach_lerp _foreach_lerp_ _foreach_log _foreach_log_
    _foreach_max _foreach_maximum _foreach_maximum_ _foreach_minimum _foreach_minimum_ _foreach_mul
    _foreach_mul_ _foreach_neg _foreach_neg_ _foreach_norm _foreach_pow _foreach_pow_
    _foreach_reciprocal _foreach_reciprocal_ _foreach_round _foreach_round_ _foreach_rsqrt
    _foreach_rsqrt_ _foreach_sigmoid _foreach_sigmoid_ _foreach_sign _foreach_sign_ _foreach_sin
    _foreach_sin_ _foreach_sqrt _foreach_sqrt_ _foreach_sub _foreach_sub_ _foreach_tanh
    _foreach_tanh_ _foreach_trunc _foreach_trunc_ _foreach_zero_
weft.compat.stand_ins.helpers: _assert _assert_async _shape_as_tensor _softmax_backward_data
    _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo get_device_module
    _grouped_mm=grouped_mm DeviceObjType segment_reduce _segment_reduce=segment_reduce
!sparse: sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
    sparse_compressed_tensor dsmm hsmm
!capture: SymInt SymFloat SymBool
weft.compat.stand_ins.c: set_vital=_false
weft.compat.stand_ins.helpers: while_loop
weft.compat.stand_ins.dtypes: chalf=complex32 complex32 uint1 uint2 uint3 uint4 uint5 uint6 uint7
    int1 int2 int3 int4 int5 int6 int7 bits1x8 bits2x4 bits4x2 bits8 bits16 quint8 qint8 qint32
    quint4x2 quint2x4 float4_e2m1fn_x2
weft.compat.stand_ins.streams: Stream Event
!script: PyTorchFileReader PyTorchFileWriter classes
!quantization: quantize_per_tensor quantize_per_channel _make_per_tensor_quantized_tensor
weft.compat.stand_ins.helpers: _scaled_mm
[torch._C]
weft.core.overrides: DisableTorchFunction DisableTorchFunctionSubclass
    _EnableTorchFunction=EnableTorchFunction _disabled_torch_function_impl=disabled_torch_function
    _is_torch_function_enabled=types_asked _is_torch_function_all_disabled=nobody_asked
    _len_torch_function_stack=count_modes _push_on_torch_function_stack=enter_mode
    _pop_torch_function_stack=leave_mode
torch.overrides: _has_torch_function=has_torch_function
    _has_torch_function_unary=has_torch_function_unary
    _has_torch_function_variadic=has_torch_function_variadic
weft.compat.stand_ins.c: _TensorMeta _log_api_usage_once _ExcludeDispatchKeyGuard _get_tracing_state
    _get_cudnn_enabled _get_default_device _get_accelerator _get_privateuse1_backend_name
    _are_functorch_transforms_active=_false _cuda_isInBadFork=_false _is_tracing=_false
    _jit_can_fuse_on_cpu=_false _jit_can_fuse_on_gpu=_false _jit_texpr_fuser_enabled=_false
    _jit_nvfuser_enabled=_false _get_graph_executor_optimize=_false
    _cuda_clearCublasWorkspaces=_nothing _jit_override_can_fuse_on_cpu=_nothing
    _jit_override_can_fuse_on_gpu=_nothing _jit_set_nvfuser_enabled=_nothing
    _jit_set_nvfuser_guard_mode=_nothing _jit_set_profiling_executor=_nothing
    _jit_set_profiling_mode=_nothing _jit_set_texpr_fuser_enabled=_nothing
    _set_math_sdp_allow_fp16_bf16_reduction=_nothing _set_graph_executor_optimize=_nothing
weft.compat.stand_ins.engine: _current_graph_task_id _current_graph_task_execution_order
    _will_engine_execute_node _current_autograd_node _WeakTensorRef has_lapack has_openmp
    has_spectral is_grad_enabled
weft.autograd.forward_ad: _is_fwd_grad_enabled _set_fwd_grad_enabled=set_fwd_grad_enabled
torch: Size device dtype layout memory_format
torch.futures: Future
!script: ScriptMethod ScriptFunction ScriptModule ScriptObject Graph Value CompilationUnit
    FunctionSchema
weft.compat.stand_ins.c: DispatchKey DispatchKeySet _VariableFunctionsClass
    _VariableFunctions=_VariableFunctionsClass
[torch._C._nn]
weft.compat.stand_ins.c: _parse_to *=_of_layers
[torch._C._functorch]
weft.compat.stand_ins.c: is_batchedtensor=_false is_gradtrackingtensor=_false
    is_legacy_batchedtensor=_false is_functorch_wrapped_tensor=_false
[torch._C._distributed_c10d]
!many: Reducer ProcessGroup Store Work
[torch._C._functions]
weft.compat.stand_ins.engine: AccumulateGrad DelayedError UndefinedGrad
[torch._C._distributed_rpc]
weft.compat.stand_ins.c: _is_current_rpc_agent_set=_false
[torch._C._autograd]
weft.compat.stand_ins.engine: SavedTensor _get_current_graph_task_keep_graph
    _saved_tensors_hooks_is_enabled=hooks_allowed
torch.profiler: ProfilerActivity
[torch._C._profiler]
torch.profiler: ProfilerActivity
[torch._tensor]
torch: Tensor
weft.compat.stand_ins.pickles: _rebuild_from_type_v2
[torch._tensor_str]
torch: set_printoptions get_printoptions printoptions
weft.core.printing: PRINT_OPTS=_options
weft.compat.stand_ins.text: _tensor_str _str _str_intern _add_suffixes
[torch._utils]
weft.compat.stand_ins.helpers: ExceptionWrapper _get_device_index _element_size
    _flatten_dense_tensors _unflatten_dense_tensors
weft.compat.stand_ins.pickles: _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3
    _rebuild_parameter _rebuild_parameter_with_state
torch: torch=*
[torch._jit_internal]
weft.compat.stand_ins.helpers: _copy_to_script_wrapper _overload _overload_method boolean_dispatch
torch.jit: Final Future export ignore is_scripting unused
[torch._prims_common]
weft.compat.stand_ins.helpers: alert_not_deterministic
!capture: is_contiguous_or_false
[torch._linalg_utils]
torch: matmul
[torch._library.custom_ops]
weft.library: CustomOpDef
[torch._ops]
weft.library: OpOverload=_Overload OpOverloadPacket=_Packet
[torch.types]
weft.compat.stand_ins.helpers: Number Device FileLike _bool _int _float _complex _device=Device
torch: _dtype=dtype _layout=layout Storage _size=Size
!capture: SymInt PySymType
[torch.functional]
torch: istft
[torch.autograd]
weft.profiler._recorder: _profiler_enabled=is_on
!cuda: _disable_profiler _enable_profiler
[torch.autograd.profiler]
weft.compat.stand_ins.streams: emit_nvtx emit_itt
[torch.autograd.profiler_util]
weft.compat.stand_ins.helpers: _format_time=format_time
[torch.autograd.profiler_legacy]
torch.autograd.profiler: profile
[torch.backends]
weft.compat.stand_ins.helpers: __allow_nonbracketed_mutation
[torch.backends.cuda]
weft.compat.stand_ins.c: can_use_flash_attention=_false can_use_efficient_attention=_false
    can_use_cudnn_attention=_false is_flash_attention_available=_false
!cuda: SDPAParams
[torch.backends.mps]
weft.compat.stand_ins.c: is_macos_or_newer=_false is_macos13_or_newer=_false
[torch.backends.quantized]
!quantization: engine supported_engines
[torch.backends.mha]
weft.compat.stand_ins.c: get_fastpath_enabled=_false set_fastpath_enabled=_nothing
[torch.compiler]
!capture: load_compiled_function save_cache_artifacts load_cache_artifacts
[torch.cuda]
!cuda: CUDAGraph ExternalStream graph graph_pool_handle make_graphed_callables
    CUDAPluggableAllocator MemPool
weft.compat.stand_ins.streams: StreamContext
weft.compat.stand_ins.c: is_current_stream_capturing=_false is_tf32_supported=_false
[torch.cuda.graphs]
weft.compat.stand_ins.c: is_current_stream_capturing=_false
[torch.cuda.random]
torch.cuda: get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all
    set_rng_state set_rng_state_all
[torch.cuda.memory]
torch.cuda: empty_cache max_memory_allocated max_memory_reserved mem_get_info memory_allocated
    memory_reserved memory_stats memory_summary reset_peak_memory_stats
[torch.cuda.streams]
torch.cuda: Event Stream
[torch.cuda.nvtx]
weft.compat.stand_ins.c: mark=_nothing range_push=_nothing range_pop=_nothing range_start=_nothing
    range_end=_nothing
!cuda: range
[torch.cuda.nccl]
weft.compat.stand_ins.c: is_available=_false
!cuda: version all_reduce broadcast
[torch.cuda.comm]
!cuda: broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter
[torch.cuda.sparse]
!cuda: BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
    ShortTensor
[torch.xpu]
!cuda: Event Stream XPUGraph graph MemPool XPUPluggableAllocator
weft.compat.stand_ins.streams: StreamContext
weft.compat.stand_ins.c: is_current_stream_capturing=_false
[torch.mtia]
weft.compat.stand_ins.c: is_available=_false is_initialized=_false
torch.xpu: device_count
!cuda: current_device synchronize empty_cache memory_allocated get_device_properties
[torch.distributed]
torch.distributed.device_mesh: DeviceMesh
weft.compat.stand_ins.parallel: Backend
!many: FileStore HashStore PrefixStore Store TCPStore P2POp Work batch_isend_irecv
    _rank_not_in_group get_process_group_ranks split_group all_gather_coalesced
[torch.distributed.constants]
torch.distributed: default_pg_timeout
[torch.distributed.distributed_c10d]
torch.distributed: ReduceOp ProcessGroup GroupMember all_gather all_reduce barrier broadcast
    default_pg_timeout get_rank get_world_size init_process_group is_initialized new_group
!many: _pg_map _get_default_group _get_default_store _get_pg_default_device _rank_not_in_group
    _find_pg_by_ranks_and_tag
[torch.distributed._tensor]
!many: DTensor DeviceMesh Placement Replicate Shard distribute_module distribute_tensor
[torch.distributed._tensor.experimental]
!many: implicit_replication
[torch.distributed.tensor.experimental._attention]
!many: context_parallel set_rotate_method
[torch.distributed.checkpoint._consolidate_hf_safetensors]
!many: consolidate_safetensors_files consolidate_safetensors_files_on_every_rank
[torch.distributed.checkpoint.hf_storage]
!many: HuggingFaceStorageReader HuggingFaceStorageWriter
[torch.distributed.rpc.api]
weft.compat.stand_ins.parallel: _require_initialized
!many: _all_gather
[torch.distributed.fsdp.wrap]
!many: _or_policy
[torch.distributed.tensor.placement_types]
!many: _StridedShard
[torch.distributed.tensor._utils]
!many: compute_local_shape_and_global_offset
[torch.distributed.tensor.device_mesh]
!many: DeviceMesh init_device_mesh
[torch.distributed.checkpoint.format_utils]
!many: _EmptyStateDictLoadPlanner _load_state_dict dcp_to_torch_save torch_save_to_dcp
[torch.distributed.checkpoint.state_dict_loader]
!many: _load_state_dict load load_state_dict
[torch.distributed._composable]
!many: checkpoint contract fully_shard replicate
[torch.distributed._composable.fsdp]
!many: CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard
[torch.distributed._composable.fsdp.fully_shard]
!many: FSDPModule
[torch.distributed.fsdp._fully_shard]
!many: FSDPModule fully_shard
[torch.distributed.fsdp._common_utils]
!many: _FSDPState _get_module_fsdp_state
[torch.distributed.utils]
!many: _cast_forward_inputs _sync_module_states _to_kwargs
[torch.distributed.elastic.multiprocessing]
!many: Std=NONE,OUT,ERR,ALL DefaultLogsSpecs start_processes
[torch.distributed.elastic.multiprocessing.errors]
!many: ChildFailedError ErrorHandler ProcessFailure record
[torch.distributed.algorithms.ddp_comm_hooks]
!many: register_ddp_comm_hook
[torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks]
!many: noop_hook
[torch.distributed.nn.jit]
[torch.distributed.autograd]
weft.compat.stand_ins.c: is_available=_false
[torch.distributions.transforms]
weft.distributions._elementary_transforms: _InverseTransform
weft.compat.stand_ins.helpers: _clipped_sigmoid
[torch.distributions.utils]
weft.compat.stand_ins.helpers: _standard_normal
weft.distributions.utils: _sum_rightmost=sum_rightmost
[torch.fx.node]
weft.fx.node: _get_qualified_name=qualified_name
[torch.fx.graph]
weft.fx.graph: _Namespace=Namespace
[torch.fx.graph_module]
weft.fx.graph_module: _copy_attr=_copy_attribute
!fx: reduce_graph_module reduce_package_graph_module
[torch.fx._pytree]
weft.compat.stand_ins.fx: register_pytree_flatten_spec
[torch.fx._compatibility]
weft.compat.stand_ins.fx: compatibility
[torch.fx._symbolic_trace]
weft.compat.stand_ins.fx: compatibility
torch.fx: Proxy
!fx: ScriptObject _Patcher _autowrap_check _orig_module_call _orig_module_getattr
    _patch_wrapped_functions
[torch.fx.proxy]
!fx: MetaProxy Scope ScopeContextManager
[torch.fx.experimental.symbolic_shapes]
weft.compat.stand_ins.fx: free_symbols free_unbacked_symbols guard_or_false guard_or_true
    statically_known_true
!fx: GuardOnDataDependentSymNode ShapeEnv
[torch.fx.experimental.proxy_tensor]
weft.compat.stand_ins.fx: get_proxy_mode
!fx: make_fx
[torch._dynamo.eval_frame]
torch._dynamo: OptimizedModule
weft.compat.stand_ins.helpers: is_dynamo_supported
[torch._dynamo.utils]
weft.compat.stand_ins.c: is_compile_supported=_false
[torch._dynamo._trace_wrapped_higher_order_op]
weft.compat.stand_ins.c: TransformGetItemToIndex=_ExcludeDispatchKeyGuard
[torch._inductor]
weft.compat.stand_ins.c: cudagraph_mark_step_begin=_nothing
weft.compat.stand_ins.helpers: list_mode_options
[torch._inductor.runtime.cache_dir_utils]
!capture: cache_dir
[torch._subclasses.fake_tensor]
weft.compat.stand_ins.fx: is_fake
!capture: FakeTensor FakeTensorMode
[torch.utils._python_dispatch]
weft.compat.stand_ins.fx: is_traceable_wrapper_subclass
!subclasses: TorchDispatchMode
[torch.export._trace]
!export: _export
[torch.export.decomp_utils]
!export: CustomDecompTable
[torch.hub]
weft.hub: HASH_REGEX=_HASH
weft.compat.stand_ins.progress: tqdm
weft.compat.stand_ins.helpers: _get_torch_home
[torch.jit]
weft.compat.stand_ins.helpers: Attribute _overload _overload_method _script_if_tracing
!script: CompilationUnit
[torch.jit.annotations]
weft.compat.stand_ins.helpers: BroadcastingList1=_BROADCASTING BroadcastingList2=_BROADCASTING
    BroadcastingList3=_BROADCASTING
typing: Any Dict List Optional Tuple Union
[torch.jit._recursive]
!script: ScriptMethodStub concrete_type_store wrap_cpp_module
[torch._custom_ops]
torch.library: impl_abstract
!capture: get_ctx
[torch.library]
weft.library: fallthrough_kernel=_refuse_triton
[torch.nn.functional]
weft.compat.stand_ins.helpers: grouped_mm
!quantization: ScalingType=TensorWise,RowWise,BlockWise1x16,BlockWise1x32,BlockWise1x128
    SwizzleType=NO_SWIZZLE,SWIZZLE_32_4_4 scaled_mm scaled_grouped_mm
[torch.nn.init]
weft.compat.stand_ins.helpers: _no_grad_fill_ _no_grad_normal_ _no_grad_trunc_normal_
    _no_grad_uniform_ _no_grad_zero_
[torch.nn.modules.transformer]
weft.compat.stand_ins.helpers: _get_activation_fn _get_clones _get_seq_len
    _generate_square_subsequent_mask
[torch.nn.modules.module]
weft.compat.stand_ins.helpers: _EXTRA_STATE_KEY_SUFFIX
[torch.nn.modules.utils]
weft.nn._arguments: _single=single _pair=pair _triple=triple _quadruple=quadruple
weft.compat.stand_ins.helpers: _ntuple _list_with_default _reverse_repeat_tuple
weft.nn._state: consume_prefix_in_state_dict_if_present
[torch.nn.modules._functions]
[torch.nn.parallel]
weft.compat.stand_ins.parallel: gather parallel_apply replicate scatter
[torch.nn.parallel.data_parallel]
weft.nn.parallel: DataParallel data_parallel
[torch.nn.parallel.distributed]
weft.nn.parallel: DistributedDataParallel
[torch.nn.parallel.scatter_gather]
weft.compat.stand_ins.parallel: gather is_namedtuple scatter scatter_kwargs
[torch.nn.parallel.replicate]
weft.compat.stand_ins.parallel: replicate
[torch.nn.parallel.parallel_apply]
weft.compat.stand_ins.parallel: get_a_var parallel_apply
[torch.nn.utils._expanded_weights.expanded_weights_impl]
weft.nn.utils._per_sample_grad: ExpandedWeight
[torch.nn.utils._expanded_weights]
torch.nn.utils._expanded_weights.expanded_weights_impl: ExpandedWeight
[torch.onnx]
!onnx: OperatorExportTypes=ONNX,ONNX_ATEN,ONNX_ATEN_FALLBACK,ONNX_FALLTHROUGH TensorProtoDataType
    TrainingMode=EVAL,PRESERVE,TRAINING select_model_mode_for_export
weft.compat.stand_ins.c: is_in_onnx_export=_false register_custom_op_symbolic=_nothing
    unregister_custom_op_symbolic=_nothing
[torch.onnx.operators]
weft.compat.stand_ins.helpers: shape_as_tensor=_shape_as_tensor
[torch.onnx.utils]
!onnx: export
[torch.onnx.symbolic_helper]
weft.compat.stand_ins.helpers: parse_args=_keep
!onnx: cast_pytorch_to_onnx _get_tensor_sizes
[torch.onnx.symbolic_opset9]
!onnx: masked_fill softmax
[torch.onnx.symbolic_opset11]
!onnx: select squeeze unsqueeze
[torch.onnx.symbolic_opset12]
!onnx: dropout
[torch.onnx._internal.exporter]
!onnx: ONNXProgram
[torch.optim.optimizer]
weft.compat.stand_ins.helpers: _default_to_fused_or_foreach _disable_dynamo_if_unsupported
    _get_capturable_supported_devices _get_scalar_dtype _get_value _use_grad_for_differentiable
    _view_as_real
torch.optim.optimizer: _params_t=ParamsT
[torch.profiler.profiler]
torch.profiler: _KinetoProfile=profile
weft.compat.stand_ins.helpers: _default_schedule_fn
[torch.signal.windows.windows]
torch.signal.windows: bartlett blackman cosine exponential gaussian general_cosine general_hamming
    hamming hann kaiser nuttall
[torch.serialization]
weft.compat.stand_ins.helpers: MAP_LOCATION
weft.compat.stand_ins.pickles: _get_layout
[torch.storage]
weft.compat.stand_ins.pickles: _load_from_bytes
[torch.sparse]
!sparse: spdiags sampled_addmm
[torch.utils._foreach_utils]
weft.compat.stand_ins.helpers: _group_tensors_by_device_and_dtype
[torch.utils._sympy.numbers]
!capture: IntInfinity
[torch.utils._sympy.value_ranges]
!capture: ValueRanges
[torch.utils.checkpoint]
weft.compat.stand_ins.helpers: get_device_states set_device_states
[torch.utils.data]
torch.utils.data.dataloader: _DatasetKind
weft.compat.stand_ins.datapipes: DFIterDataPipe IterDataPipe MapDataPipe functional_datapipe
    argument_validation guaranteed_datapipes_determinism non_deterministic runtime_validation
[torch.utils.data.dataloader]
!datapipes: _sharding_worker_init_fn
weft.compat.stand_ins.helpers: _worker_init_fn_t=Collate
[torch.utils.data._utils.fetch]
weft.compat.stand_ins.workers: _BaseDatasetFetcher _IterableDatasetFetcher _MapDatasetFetcher
[torch.utils.data._utils]
weft.compat.stand_ins.workers: HAS_NUMPY MP_STATUS_CHECK_INTERVAL python_exit_status
[torch.utils.data._utils.worker]
weft.compat.stand_ins.workers: ManagerWatchdog _IterableDatasetStopIteration _ResumeIteration
    _generate_state
[torch.utils.data._utils.pin_memory]
weft.compat.stand_ins.workers: pin_memory
!cuda: _pin_memory_loop
[torch.utils.data._utils.signal_handling]
weft.compat.stand_ins.c: _set_SIGCHLD_handler=_nothing _set_worker_pids=_nothing
    _remove_worker_pids=_nothing _set_worker_signal_handlers=_nothing
    _error_if_any_worker_fails=_nothing
[torch.utils.data.dataloader]
weft.compat.stand_ins.helpers: _collate_fn_t=Collate
[torch.utils.data._utils.collate]
weft.compat.stand_ins.helpers: np_str_obj_array_pattern
[torch.utils.data.datapipes]
[torch.utils.data.datapipes.datapipe]
weft.compat.stand_ins.datapipes: DFIterDataPipe IterDataPipe MapDataPipe
!datapipes: _IterDataPipeSerializationWrapper _MapDataPipeSerializationWrapper
[torch.utils.data.datapipes._decorator]
weft.compat.stand_ins.datapipes: functional_datapipe non_deterministic
[torch.utils.data.datapipes.iter]
weft.compat.stand_ins.datapipes: Batcher Filter IterableWrapper Mapper
[torch.utils.data.datapipes.iter.combinatorics]
!datapipes: ShufflerIterDataPipe SamplerIterDataPipe
[torch.utils.data.graph_settings]
!datapipes: apply_random_seed apply_sharding apply_shuffle_seed apply_shuffle_settings
    get_all_graph_pipes
[torch.utils.data.graph]
!datapipes: DataPipe DataPipeGraph traverse traverse_dps
[torch.utils.flop_counter]
!flops: FlopCounterMode register_flop_formula
[torch.utils.model_zoo]
torch.hub: load_url=load_state_dict_from_url
weft.compat.stand_ins.progress: tqdm
"""
