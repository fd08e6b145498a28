"""What a chip brings to the matmul. It stands in a folder that has the chip's name; no other file tells chips apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.heuristics.picker import Array, Estimates
from tilekit.kernels.problem import MatmulProblem, read_problem
from tilekit.targets import TARGETS, Target

if TYPE_CHECKING:
    from tilekit.assembly.shared import SharedArray
    from tilekit.assembly.writer import Writer
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.config import KernelConfig
    from tilekit.kernels.matmul.estimates import Configs, Grids
    from tilekit.kernels.matmul.kernel import KernelText
    from tilekit.kernels.matmul.spec import MatmulSpec
    from tilekit.tile_io.payload_loader import OperandLoader
    from tilekit.tile_op.accumulators import Accumulators
    from tilekit.tile_pipeline.ring import TilePipeline
    from tilekit.tile_pipeline.sync import SyncStrategy
    from tilekit.tiles.call import Load, Matrix
    from tilekit.tiles.cluster import Cluster


class Components(Protocol):
    """Those components of a kernel that are the chip's own."""

    SCHEDULES_FIRST: bool
    """Whether the scheduler is declared before the output, whose parameters then follow its own."""

    COPIES_GROUPS: bool
    """Whether threads load and store groups of rows, so that rows and groups may begin anywhere."""

    def check(self, spec: MatmulSpec, target: Target) -> None:
        """Raise `ArgumentError` for a spec that no components of this chip compute."""

    def load(self, matrix: Matrix) -> Load:
        """How an operand can be loaded."""

    def loaders(
        self, w: Writer, spec: MatmulSpec, config: Any, plan: WarpPlan, cluster: Cluster, stages: int
    ) -> tuple[OperandLoader, OperandLoader]:
        """What fills the tiles of a stage: that of the instruction's A, and that of its B."""

    def sync(
        self, w: Writer, spec: MatmulSpec, config: Any, plan: WarpPlan, cluster: Cluster, stages: int
    ) -> SyncStrategy:
        """How the roles on both sides of the ring of operands wait for each other."""

    def accumulators(
        self,
        w: Writer,
        op: Any,
        spec: MatmulSpec,
        config: Any,
        plan: WarpPlan,
        cluster: Cluster,
        tiles: dict[str, SharedArray],
        inputs: TilePipeline | None,
    ) -> Accumulators:
        """Where the instruction `op` leaves its results; `tiles` is what it reads, `inputs` the ring of these."""


class Notes(Protocol):
    """What `explain` says of the chip's own components."""

    def accumulators(self, spec: MatmulSpec, config: Any) -> str:
        """Where accumulators are, behind the registers of all roles."""

    def tensor_memory(self, spec: MatmulSpec, config: Any, chip: Target) -> list[str]:
        """A map of tensor memory, where there is one."""

    def instructions(self, spec: MatmulSpec, config: Any) -> str:
        """The matrix instructions of a k-block, behind its bytes and FLOPs."""

    def rows(self, spec: MatmulSpec, config: Any) -> list[str]:
        """What is odd about a k-block's rows."""

    def sections(self, spec: MatmulSpec, config: Any, text: KernelText) -> list[str]:
        """What else there is to see of a traced kernel, behind everything."""


class Model(Protocol):
    """The chip's model of a matmul's time."""

    @property
    def DECISIVE(self) -> tuple[str, ...]:  # noqa: N802  a constant of the module
        """Fields that a candidate must have as they are asked for, where it cannot have all that are."""

    @property
    def TUNED(self) -> frozenset[str]:  # noqa: N802  a constant of the module
        """Fields of which candidates do not have all values that pay."""

    @property
    def FOR_GROUPS(self) -> KernelConfig | None:  # noqa: N802  a constant of the module
        """What groups of rows take, where the model has no figures for them."""

    def default(self, spec: MatmulSpec) -> KernelConfig:
        """What suits large outputs."""

    def plain(self, spec: MatmulSpec, overrides: Mapping[str, Any]) -> KernelConfig:
        """A config for overrides that no candidate has: what goes with the tile, no cluster beyond a pair."""

    def candidates(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Every legal candidate."""

    def tuning_candidates(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Legal configs that only tuning tries."""

    def variants(self, config: Any, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Legal variants of a config in what the model knows nothing of."""

    def collect(self, configs: Sequence[Any], spec: MatmulSpec) -> Configs:
        """What the estimates of these configs depend on."""

    def resident(self, configs: Any, sms: int) -> Array:
        """CTAs of each config that so many multiprocessors hold at once."""

    def estimates(self, configs: Any, spec: MatmulSpec, grids: Grids) -> Estimates:
        """Model the time of one launch of each."""


@dataclass(frozen=True)
class Platform:
    """A chip's own part of the matmul.

    Attributes
    ----------
    config
        Its kind of config, which has the rules.
    components, model, notes
        Its components, its model, and what `explain` says of them.
    """

    config: type[KernelConfig]
    components: Components
    model: Model
    notes: Notes


@cache
def platform(target: Target) -> Platform:
    """Return what `target` brings: ``PLATFORM`` of the folder that has its name.

    Raises
    ------
    ArgumentError
        ``TK-TARGET-001`` for a chip that has no matmul.
    """
    folder = f"{__package__}.{target.name}"
    if find_spec(folder) is None:
        have = ", ".join(sorted(name for name in TARGETS if find_spec(f"{__package__}.{name}")))
        raise ArgumentError.of("target", target.name, legal=f"chips that have a matmul: {have}", code="TK-TARGET-001")
    found: Platform = import_module(f"{folder}.platform").PLATFORM
    return found


def read_for(target: Target, a: ArrayView, b: ArrayView) -> MatmulProblem:
    """Check two operands against each other, as `read_problem` does, and say how `target` can load them."""
    return loaded_by(target, read_problem(a, b))


def loaded_by(target: Target, problem: MatmulProblem) -> MatmulProblem:
    """The same problem, its operands as `target` can load them."""
    load = platform(target).components.load
    return replace(problem, a=replace(problem.a, load=load(problem.a)), b=replace(problem.b, load=load(problem.b)))


def platforms() -> dict[Target, Platform]:
    """All of them."""
    return {chip: platform(chip) for name, chip in TARGETS.items() if find_spec(f"{__package__}.{name}")}


def having(field: str) -> list[str]:
    """The chips whose configs have a field."""
    return [chip.name for chip, its in platforms().items() if field in its.config.__dataclass_fields__]  # type: ignore[attr-defined]
