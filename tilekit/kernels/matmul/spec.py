"""What a matmul kernel computes: types, majors, fused functions. Shapes are run-time values and not part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from tilekit.annotations import call_checked, check_fields
from tilekit.assembly.fragment_files import fragments_of
from tilekit.assembly.shared import SharedArray, SharedDeclaration
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.warp_specialized import Epilogue
from tilekit.dtypes import BF16, DTYPES, F32, S8, S32, DType
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.epilogue.fusion import Fusion
from tilekit.epilogue.shares import ShareKind
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul import legal
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.platforms import platform
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import NARROW_REGISTERS, CopyPlan
from tilekit.tile_io.cp_async import CpAsyncLoader
from tilekit.tile_io.payload_loader import OperandLoader, TileLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op import scaled_accumulators as scaled
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_pipeline.payload import Payload, StageTile
from tilekit.tiles.call import Load, Major
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile, SwizzleBytes
from tilekit.tiles.tile import Groups

Precision = Literal["tf32"]
Accumulation = Literal["fast", "promoted"]


@call_checked
@dataclass(frozen=True)
class MatmulSpec:
    """``D = activation(scale * scale_a * (A @ B) * scale_b + bias)`` with f32 accumulation.

    Types may be given as anything `tilekit.dtypes.as_dtype` takes.

    Attributes
    ----------
    a_dtype, b_dtype
        Operand types: both bf16, both f16, any two of e4m3 and e5m2, or of e4m3fnuz and e5m2fnuz, both s8, or both f32
        with ``precision="tf32"``.
    out_dtype
        bf16, f16, f32, e4m3 or e5m2; of s8 operands s32, bf16, f16 or f32. What is too large for
        an 8-bit float becomes its largest number.
    a_major, b_major
        ``"k"`` where K is the contiguous dimension, ``"mn"`` where M (of A) or N (of B) is. On sm_90a f32 and fp8
        operands must be ``"k"``.
    batched
        Whether operands have a leading batch dimension.
    functions
        Scales, bias, residual and activation; or a Python epilogue.
    store
        ``"tma"``, or ``"direct"`` for outputs whose address or pitch is not a multiple of 16 bytes.
    a_load, b_load
        ``"tma"``, or 8, 4, 2 or 1 for an operand whose address and pitches are multiples of only so many bytes (1:
        8-bit types).
    groups
        Where groups of A's rows are multiplied by matrices of their own: ``"ends"`` for groups behind each other,
        ``"counts"`` for groups that each begin a whole number of rows apart. B then has a leading dimension.
    precision
        ``"tf32"``: f32 operands are multiplied with the 10 bits of mantissa that a tensor core reads of them.
    accumulation
        How sums of 8-bit products are made on sm_90a. ``"fast"``: by the tensor core alone, which keeps 13 bits of a
        sum between its instructions. ``"promoted"``: it adds 128 products, and the sums of those are added in f32.

    components
        Components of the caller's in the place of the family's.

    Raises
    ------
    ArgumentError
        For a pair of types that no instruction takes, and for what no kernel does.
    """

    a_dtype: DType = BF16
    b_dtype: DType = BF16
    out_dtype: DType = BF16
    a_major: Major = "k"
    b_major: Major = "k"
    batched: bool = False
    functions: ElementwiseSpec | WrittenSpec = field(default_factory=ElementwiseSpec)
    store: str = "tma"
    groups: Groups | None = None
    precision: Precision | None = None
    a_load: Load = "tma"
    b_load: Load = "tma"
    accumulation: Accumulation = "fast"
    components: OwnComponents = field(default_factory=OwnComponents)
    own_loaders: ClassVar[bool] = False
    """Whether loaders are the family's own: they count in registers, and copy what TMA refuses on every chip."""
    tile_step: ClassVar[int] = 1
    """What rows and columns of a CTA's tile are multiples of."""

    k_major: ClassVar[bool] = False
    """Whether operands have K contiguous on every chip."""

    outputs: ClassVar[tuple[DType, ...]] = DTYPES
    """What it may be asked to write, unless operands are whole numbers."""

    stores_rows: ClassVar[bool] = False
    """Whether a thread stores whole rows of a tile, which it reads from tensor memory: no transposes, and no shares."""

    own_ranges: ClassVar[bool] = False
    """Whether tiles have sums of different lengths, each of one CTA."""

    def __post_init__(self) -> None:
        check_fields(self)
        legal.check(self)

    def check_types(self) -> None:
        """Raise `ArgumentError` (``TK-MM-001``) where tensor cores do not multiply A's type by B's."""
        legal.check_types(self.a_dtype, self.b_dtype, whole=True)

    @property
    def whole(self) -> bool:
        """Whether operands, and so sums, are whole numbers."""
        return self.a_dtype == S8

    @property
    def shares(self) -> ShareKind:
        """What the shares of a sum are, and what the sum of all of them is."""
        if not self.whole:
            return "f32"
        return "whole" if self.out_dtype == S32 else "rounded"

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for what the components of `target` do not compute, and majors that it cannot read."""
        legal.check_floats(target, self.a_dtype, self.b_dtype)
        self._check_further_outputs(target)
        components = platform(target).components
        legal.check_payload(self, target)
        if self.groups is not None and not components.COPIES_GROUPS and (self.store != "tma" or self.copies):
            raise ArgumentError(
                f"groups={self.groups!r} with a_load={self.a_load!r}, b_load={self.b_load!r} and store={self.store!r}: "
                f"on {target.name} a grouped matmul loads and stores by 'tma'",
                code="TK-MM-022",
            )
        components.check(self, target)
        for name, major, dtype in (("a", self.a_major, self.a_dtype), ("b", self.b_major, self.b_dtype)):
            if major == "k" or (dtype.bits in target.transposed_bits and not self.k_major):
                continue
            where = "rows of K" if name == "a" else "columns of K"
            raise ArgumentError(
                f"{name} is {dtype} and not contiguous along K: of {dtype.bits}-bit types {target.name} reads K-major "
                "operands only (PTX ISA, wgmma.mma_async: only 16-bit types may be transposed). Pass "
                f"{name} with contiguous {where}"
                + (", for example the .T of an (N, K) array." if name == "b" else "."),
                code="TK-MM-004",
            )

    def _check_further_outputs(self, target: Target) -> None:
        """Raise `ArgumentError` (``TK-EPI-004``) for 8-bit floats that the chip does not convert to."""
        if not isinstance(self.functions, WrittenSpec):
            return
        for index, dtype in enumerate(self.functions.outputs, 1):
            packs = fragments_of(target)["convert"].get(f"pack_{dtype.name}") if dtype.bits == 8 else None
            if dtype.bits == 8 and (packs is None or not packs.runs_on(target)):
                raise ArgumentError(
                    f"epilogue {self.functions.graph.name}: output{index} is {dtype}, and {target.name} has no "
                    "conversion to it; nearest: bf16",
                    code="TK-EPI-004",
                )

    def operands(self, *, swapped: bool) -> tuple[tuple[DType, Major], tuple[DType, Major]]:
        """Type and major of what the instruction takes as A and as B; swapped, A is what the caller calls b."""
        a, b = (self.a_dtype, self.a_major), (self.b_dtype, self.b_major)
        return (b, a) if swapped else (a, b)

    def swizzles(self, *, swapped: bool) -> tuple[SwizzleBytes, SwizzleBytes]:
        """Bytes over which the images of what the instruction takes as A and as B are swizzled, where K-major."""
        return SWIZZLE_BYTES, SWIZZLE_BYTES

    def copy_plan(self, tile: OperandTile, width: int, **how: Any) -> CopyPlan:
        """Which thread copies what of an operand that threads copy; `how`, as `CopyPlan` takes it."""
        return CopyPlan(tile, width, **how)

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of `operand`, ``"a"`` or ``"b"`` as the caller has them, that fills `tile`.

        Parameters
        ----------
        operand, w, tile
            What is loaded, by which kernel, to where.
        copies
            How threads copy it; None for what TMA loads.
        stages
            Of the ring.
        tma
            How TMA loads it, as `TmaLoader` takes that.
        """
        if copies is None:
            own = self.components.loader(operand, w, tile, batched=self.indexed, **tma)
            return TmaLoader(w, tile, batched=self.indexed, **tma) if own is None else own
        return CpAsyncLoader(w, copies, stages=stages, batched=self.indexed)

    def further_tiles(self, config: Any) -> Sequence[StageTile]:
        """What a stage holds beside A and B."""
        payload = self.components.payload
        return () if payload is None else payload.stage_tiles(*config.tile)

    def further_loaders(
        self, w: Writer, op: Any, payload: Payload, *, swapped: bool, role: Role
    ) -> Sequence[TileLoader]:
        """What loads the rest of a stage, in `role`, for an instruction that has A and B `swapped`."""
        own = self.components.payload
        return () if own is None else own.loaders(w, payload.tiles[2:])

    def tensor_op(self, a: OperandTile, b: OperandTile, *, group: int) -> Tcgen05:
        """The instruction of chips with tensor memory, which spans `group` CTAs."""
        return Tcgen05(a, b, group=group)

    def wave_op(self, a: OperandTile, b: OperandTile, *, waves: int, columns: int, pieces: int) -> Mfma:
        """The instruction of chips whose waves multiply, as `Mfma` takes these."""
        return Mfma(a, b, waves=waves, columns=columns, pieces=pieces)

    def operation(self, op: Any) -> Any:
        """The instruction `op` as the family issues it: in tensor memory k-blocks whose sums threads add are apart."""
        return scaled.BlockTcgen05(op) if self.own_sums and isinstance(op, Tcgen05) else op

    def sum_registers(self, accumulators: int, columns: int, *, swapped: bool) -> int:
        """Registers of a thread that holds so many accumulators of a tile: with promotion, those of a k-block too.

        With factors these are of 64 rows at once, and what the factors keep is beside them.
        """
        if not self.own_sums:
            return accumulators * (2 if self.promoted else 1)
        block, kept = columns // 2, self.factor_registers(columns, swapped=swapped)
        return accumulators + block * scaled.partial_tiles(accumulators, block, kept) + kept

    def factor_registers(self, columns: int, *, swapped: bool) -> int:
        """Registers of a thread that factors keep, where that is more than a few."""
        return self.components.payload.registers if self.components.payload else 0

    def factors(self, columns: int, *, swapped: bool) -> int:
        """Factors that a thread chooses or reads for the sums of a k-block, of a tile with so many columns."""
        return self.components.payload.registers if self.components.payload else 0

    def block_factors(self, w: Writer, op: Any, swapped: bool, tiles: dict[str, SharedArray]) -> scaled.Factors | None:
        """What sums of k-blocks are multiplied by before they are added in f32; None where there is nothing."""
        own, k = self.components.payload, self.block_bytes // self.a_dtype.bytes
        staged = {name: place for name, place in tiles.items() if name not in ("a", "b")}
        return None if own is None else own.made(w, op.layout, staged, k)

    @property
    def staged_factors(self) -> bool:
        """Whether factors of the caller's come into the stages."""
        return self.components.payload is not None and self.components.payload.tiles is not None

    def accumulators(
        self, kind: type[Any], w: Writer, op: Any, swapped: bool, tiles: dict[str, SharedArray]
    ) -> Callable[..., Any]:
        """What makes the accumulators of `op`, where the chip has its `kind` of them: that, or something like it.

        Parameters
        ----------
        kind, w, op, swapped
            What the chip would make, in which kernel, for which instruction, and whether that takes `b` as its A.
        tiles
            Where the tiles of a stage lie, by name.
        """
        factors = self.block_factors(w, op, swapped, tiles)
        if factors is None:
            return kind
        if kind is TensorAccumulators:
            return partial(scaled.ScaledTensorAccumulators, factors)
        return partial(scaled.ScaledAccumulators, factors, turned=swapped)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component, for `explain`: a line each."""
        groups = ("GroupedScheduler, from the groups' bounds, for the schedule of a raster",) if self.groups else ()
        sums = (
            ("accumulators that begin anew with each k-block and add its scaled sums in f32",) if self.own_sums else ()
        )
        return *groups, *self.components.words, *self.further_words, *sums

    @property
    def further_words(self) -> tuple[str, ...]:
        """What a stage of the family's holds beside A and B, for `explain`."""
        return ()

    @property
    def precise(self) -> bool:
        """Whether functions of elements are computed to more than 16 bits."""
        return self.out_dtype == F32

    def storing(
        self, w: Writer, layout: AccumulatorLayout, functions: Fusion, *, role: Role, buffers: int, **how: Any
    ) -> Epilogue:
        """What stores from registers, as `DirectEpilogue` takes these; `role` does, and `buffers` are a config's."""
        return self.components.storing(w, layout, functions, **how)

    def storing_memory(
        self, layout: AccumulatorLayout, *, warpgroups: int, buffers: int
    ) -> tuple[SharedDeclaration, ...]:
        """Shared memory of what `storing` makes."""
        return ()

    @property
    def indexed(self) -> bool:
        """Whether operands have a leading dimension: batches, or one matrix a group."""
        return self.batched or self.groups is not None

    @property
    def loads(self) -> tuple[Load, Load]:
        """How A and B are loaded."""
        return self.a_load, self.b_load

    @property
    def block_bytes(self) -> int:
        """Bytes of K in a stage, for each of a config's `k_group`."""
        return SWIZZLE_BYTES

    @property
    def finds(self) -> tuple[bool, bool]:
        """Whether the copy engine looks for the rows of A, and of B, one by one: they lie in no order."""
        return False, False

    @property
    def place_channels(self) -> int:
        """What copies of an operand divide whose rows are places and channels of images; 0 of others."""
        return 0

    @property
    def copies(self) -> bool:
        """Whether threads copy an operand."""
        return self.loads != ("tma", "tma")

    @property
    def copying_registers(self) -> int:
        """Registers of a thread that copies and multiplies, beside those that pieces of 16 bytes take."""
        return NARROW_REGISTERS if self.copies else 0

    @property
    def own_sums(self) -> bool:
        """Whether the sums of k-blocks are multiplied by factors of their own before they are added, on every chip."""
        return self.components.payload is not None

    @property
    def promoted(self) -> bool:
        """Whether sums of k-blocks, of 128 bytes of K, are added in f32."""
        return self.accumulation == "promoted" or self.own_sums

    @property
    def loads_residual(self) -> bool:
        """Whether a role loads a residual for the epilogue; direct stores read it element by element."""
        return self.functions.residual is not None and self.store == "tma" and self.components.epilogue is None

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``matmul_bf16_bf16_bf16_kmn_gelu``."""
        f = self.functions
        extras = [
            "promoted" if self.accumulation == "promoted" else "",
            "batched" if self.batched else "",
            f"grouped_{self.groups}" if self.groups else "",
            *f.words,
            "direct" if self.store == "direct" else "",
            *(f"own_{name}" for name in self.components.names),
            *(f"{name}{load}" for name, load in zip("ab", self.loads, strict=True) if load != "tma"),
        ]
        majors = f"{'k' if self.a_major == 'k' else 'm'}{'k' if self.b_major == 'k' else 'n'}"
        operands = [self.precision or dtype.name for dtype in (self.a_dtype, self.b_dtype)]
        return "_".join(["matmul", *operands, self.out_dtype.name, majors, *filter(None, extras)])
