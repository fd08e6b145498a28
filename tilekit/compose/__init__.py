"""The public way to compose a kernel: everything that docs/your-own-kernel.md speaks of, from one place.

A kernel is a function that declares components and traces them into a `Writer`; `kernel` makes of it something that is
called with arrays. Element types stand here under their own names (`BF16`); types of registers, of which kernel
parameters are, in `registers` (``registers.U32``).
"""

from tilekit.assembly import types as registers
from tilekit.assembly.values import Operand as ValueOrNumber
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.compose.attention import ComposedAttention, attention_kernel
from tilekit.compose.kernel import ComposedKernel, kernel
from tilekit.compose.portable import portable_matmul
from tilekit.compose.portable_choices import PortableChoice, portable_choices
from tilekit.drivers.attention import Attention
from tilekit.drivers.consumer_schedule import BoundConsumerSchedule, ConsumerSchedule, Cooperative, PingPong
from tilekit.drivers.interleaved import Interleaved
from tilekit.drivers.multistage import Multistage
from tilekit.drivers.ping_pong import PingPongWaves
from tilekit.drivers.profiler import TileProfiler, timed
from tilekit.drivers.roles import one_thread, trace_roles, working_threads
from tilekit.drivers.tensor_attention import TensorAttention
from tilekit.drivers.turns import NoTurns, Turns
from tilekit.drivers.warp_plan import RoleEntry, WarpPlan
from tilekit.drivers.warp_specialized import (
    BoundEpilogue,
    BoundLoader,
    BoundOp,
    BoundReduction,
    BoundSource,
    Epilogue,
    Reduction,
    StageLoader,
    TileOp,
    TileScheduler,
    TileSource,
    WarpSpecialized,
)
from tilekit.dtypes import BF16, E2M1X2, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32, S8, S32, UE8M0, DType
from tilekit.epilogue.column_totals import ColumnTotals
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.dsmem_reduction import DsmemReduction
from tilekit.epilogue.fixup import Fixup
from tilekit.epilogue.functions import Elementwise, ElementwiseSpec
from tilekit.epilogue.fusion import Entering, Fused, Fusion, Reducing, Spreading
from tilekit.epilogue.heads import HeadEpilogue, LogSums, PackedLogSums
from tilekit.epilogue.quantised import QuantisedEpilogue
from tilekit.epilogue.row_sums import RowSums
from tilekit.epilogue.shared_heads import SharedHeadEpilogue
from tilekit.epilogue.source_ring import SourceRing
from tilekit.epilogue.split_k_reduction import SplitKReduction
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.epilogue.tensor_heads import TensorHeadEpilogue, TensorSharedHeadEpilogue
from tilekit.epilogue.written import Written
from tilekit.epilogue.written_spec import Place
from tilekit.kernels.matmul.own import OwnComponents, OwnRole
from tilekit.kernels.matmul.own_payload import Blocks, OwnPayload
from tilekit.kernels.operands import Input, Output
from tilekit.targets import Target, chip, target
from tilekit.tile_io.ahead import Ahead
from tilekit.tile_io.buffer import BufferLoader
from tilekit.tile_io.buffer_scales import BufferScaleLoader
from tilekit.tile_io.buffer_to_lds import BufferToLdsLoader
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.cp_async import CpAsyncLoader
from tilekit.tile_io.heads import GroupLoader, HeadLoader, HeadStorer, KeyLoader
from tilekit.tile_io.packed_heads import PackedHeadStorer
from tilekit.tile_io.payload_loader import (
    AlongColumns,
    AlongRows,
    BoundOperandLoader,
    BoundTileLoader,
    OperandLoader,
    PayloadLoader,
    PrefetchedCopies,
    RowsTile,
    StandardLoader,
    TileCopies,
    TileLoader,
)
from tilekit.tile_io.registers import RegisterLoader
from tilekit.tile_io.staged_values import StagedValues, ValueLoader, ValueTile
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_io.transform import Transform, TransformLoader
from tilekit.tile_op.accumulators import (
    AccumulatorConsumer,
    AccumulatorLayout,
    AccumulatorProducer,
    Accumulators,
    AccumulatorTile,
    Warpgroup,
)
from tilekit.tile_op.attention_tcgen05 import TensorScores, TensorWeighted
from tilekit.tile_op.attention_tensors import AttentionTensors
from tilekit.tile_op.attention_wgmma import Scores, Weighted
from tilekit.tile_op.changed_scores import ChangedScores
from tilekit.tile_op.key_range import KeyRange
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_op.mma_sync import MmaSync
from tilekit.tile_op.online_softmax import OnlineSoftmax, Softcap
from tilekit.tile_op.register_accumulators import PromotedAccumulators, RegisterAccumulators, RegisterOp
from tilekit.tile_op.row_exchange import RowExchange
from tilekit.tile_op.scaled_accumulators import Factors
from tilekit.tile_op.scaled_mfma import ScaledMfma
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tile_pipeline.barrier_sync import BarrierSync
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.named_barrier_sync import NamedBarrierSync
from tilekit.tile_pipeline.payload import Payload, StageTile, StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.single_counter_sync import SingleCounterSync
from tilekit.tile_pipeline.split_counter_sync import SplitCounterSync
from tilekit.tile_pipeline.sync import ConsumerSync, ProducerSync, SyncStrategy
from tilekit.tile_pipeline.together_sync import TogetherSync
from tilekit.tile_schedule.clc import ClcScheduler
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tile_schedule.packed_heads import PackedHeadScheduler
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.start_order import StartOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tile_schedule.stream_k import StreamKScheduler
from tilekit.tiles.call import Call, Matrix, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.heads import HeadTile
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.scale_tile import ScaleTile
from tilekit.tiles.stage import AsyncReader, AsyncWriter, HeldStage, Stage
from tilekit.tiles.tile import Tile

__all__ = [
    "BF16",
    "E2M1X2",
    "E4M3",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "F16",
    "F32",
    "S8",
    "S32",
    "UE8M0",
    "AccumulatorConsumer",
    "AccumulatorLayout",
    "AccumulatorProducer",
    "AccumulatorTile",
    "Accumulators",
    "Ahead",
    "AlongColumns",
    "AlongRows",
    "AsyncReader",
    "AsyncWriter",
    "Attention",
    "AttentionTensors",
    "BarrierSync",
    "Blocks",
    "BoundConsumerSchedule",
    "BoundEpilogue",
    "BoundLoader",
    "BoundOp",
    "BoundOperandLoader",
    "BoundReduction",
    "BoundSource",
    "BoundTileLoader",
    "BufferLoader",
    "BufferScaleLoader",
    "BufferToLdsLoader",
    "Call",
    "ChangedScores",
    "ClcScheduler",
    "Cluster",
    "ColumnTotals",
    "ComposedAttention",
    "ComposedKernel",
    "ConsumerSchedule",
    "ConsumerSync",
    "Cooperative",
    "CopyPlan",
    "CpAsyncLoader",
    "DType",
    "DirectEpilogue",
    "DsmemReduction",
    "Elementwise",
    "ElementwiseSpec",
    "Entering",
    "Epilogue",
    "Factors",
    "Fixup",
    "Fused",
    "Fusion",
    "GroupLoader",
    "HeadEpilogue",
    "HeadLoader",
    "HeadScheduler",
    "HeadStorer",
    "HeadTile",
    "HeldStage",
    "Input",
    "Interleaved",
    "KeyLoader",
    "KeyRange",
    "LogSums",
    "Matrix",
    "MbarrierSync",
    "Mfma",
    "MmaSync",
    "Multistage",
    "NamedBarrierSync",
    "NoTurns",
    "OnlineSoftmax",
    "OperandLoader",
    "OperandTile",
    "Output",
    "OwnComponents",
    "OwnPayload",
    "OwnRole",
    "PackedHeadScheduler",
    "PackedHeadStorer",
    "PackedLogSums",
    "Payload",
    "PayloadLoader",
    "PingPong",
    "PingPongWaves",
    "Place",
    "PortableChoice",
    "PrefetchedCopies",
    "ProducerSync",
    "PromotedAccumulators",
    "QuantisedEpilogue",
    "RasterOrder",
    "Reducing",
    "Reduction",
    "RegisterAccumulators",
    "RegisterLoader",
    "RegisterOp",
    "RegisterTile",
    "Role",
    "RoleEntry",
    "RowExchange",
    "RowSums",
    "RowsTile",
    "ScaleTile",
    "ScaledMfma",
    "Schedule",
    "Scores",
    "SharedHeadEpilogue",
    "SingleCounterSync",
    "Softcap",
    "SourceRing",
    "SplitCounterSync",
    "SplitKReduction",
    "Spreading",
    "Stage",
    "StageLoader",
    "StageTile",
    "StagedEpilogue",
    "StagedValues",
    "StandardLoader",
    "StandardPayload",
    "StartOrder",
    "StaticScheduler",
    "StreamKScheduler",
    "SyncStrategy",
    "Target",
    "Tcgen05",
    "TensorAccumulators",
    "TensorAttention",
    "TensorHeadEpilogue",
    "TensorMemory",
    "TensorScores",
    "TensorSharedHeadEpilogue",
    "TensorWeighted",
    "Tile",
    "TileCopies",
    "TileLoader",
    "TileOp",
    "TilePipeline",
    "TileProfiler",
    "TileScheduler",
    "TileSource",
    "TmaLoader",
    "TogetherSync",
    "Transform",
    "TransformLoader",
    "Turns",
    "Value",
    "ValueLoader",
    "ValueOrNumber",
    "ValueTile",
    "WarpPlan",
    "WarpSpecialized",
    "Warpgroup",
    "Weighted",
    "Wgmma",
    "Writer",
    "Written",
    "attention_kernel",
    "chip",
    "kernel",
    "one_thread",
    "portable_choices",
    "portable_matmul",
    "registers",
    "target",
    "timed",
    "trace_roles",
    "working_threads",
]
