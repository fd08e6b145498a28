"""The streaming driver: one operand passes through registers once, at the speed of memory.

Every warp does the same: it keeps a ring of register slots filled by its own loads, multiplies what has arrived, and
loads the slot again at once, across the ends of tiles. There are no roles, no barriers on the way, and no shared memory
but for the sums: the warps of a CTA, and the CTAs of a cluster, divide K and meet once a tile.

Launches overlap (programmatic dependent launch): the next kernel of the stream may start when every CTA of this one is
a few steps from its end. Until this one is complete, it brings its first weights into L2, or, where they are known to
be ready, into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilekit.assembly.fit import check_components
from tilekit.assembly.types import S32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer


@dataclass(frozen=True)
class Place:
    """Where a thread stands.

    Attributes
    ----------
    thread, warp
        Its index in the CTA, and its warp's.
    rank, unit
        Its CTA's rank in the cluster, and its warp's index among those that divide K.
    group, quad
        lane / 4 and lane % 4.
    k
        The first element of K that it reads of every tile.
    """

    thread: Value
    warp: Value
    rank: Value
    unit: Value
    group: Value
    quad: Value
    k: Value


@dataclass(frozen=True)
class Slots:
    """A warp's ring of register slots.

    Attributes
    ----------
    count
        Slots.
    stride
        Elements of K from one slot of a warp to the next: the k-blocks between them are the other warps'.
    """

    count: int
    stride: int

    @property
    def step(self) -> int:
        """Elements of K that the CTA reads while every slot is filled once."""
        return self.count * self.stride


class StreamedOperand(Protocol):
    """The large operand: what the driver asks of it."""

    def bind(self, w: Writer, place: Place) -> None:
        """Prepare a thread's registers."""

    def begin(self, w: Writer, tile: Value) -> None:
        """Point at the beginning of a tile."""

    def advance(self, w: Writer) -> None:
        """Go on by one step along K."""

    def load(self, w: Writer, slot: int, left: Value) -> None:
        """Start the loads of a slot, of which `left` elements of K exist (s32)."""

    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        """Bring the beginning of a tile into L2."""

    def sums(self, w: Writer) -> list[RegisterTile]:
        """Declare accumulators."""

    def clear(self, w: Writer, sums: list[RegisterTile]) -> None:
        """Zero them."""

    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        """Add a slot's products."""


class ResidentOperand(Protocol):
    """The small operand, read anew for every tile."""

    def bind(self, w: Writer, place: Place) -> None:
        """Prepare a thread's registers."""

    def begin(self, w: Writer) -> None:
        """Point at its beginning."""

    def advance(self, w: Writer) -> None:
        """Go on by one step along K."""

    def load(self, w: Writer, slot: int, left: Value) -> None:
        """Start the loads of a slot."""

    def slot(self, slot: int) -> list[RegisterTile]:
        """What a slot holds."""


_Fetched = TypeVar("_Fetched")


class Reduction(Protocol[_Fetched]):
    """Adds the warps' sums and stores the result."""

    def bind(self, w: Writer, place: Place) -> None:
        """Fetch what all tiles share."""

    def begin(self, w: Writer, tile: Value) -> _Fetched:
        """Fetch what this thread's outputs of a tile need."""

    def store(self, w: Writer, sums: list[RegisterTile], tile: Value, fetched: _Fetched) -> None:
        """Meet the other warps, add, and store."""


@dataclass(frozen=True)
class KRange:
    """How K is divided among the CTAs of a cluster: CTA r has the elements from ``r * share`` on, up to `share`.

    Attributes
    ----------
    k, share
        K, and a CTA's part of it (a multiple of a k-block), u32.
    steps
        Steps that walk over `share`, u32.
    """

    k: Value
    share: Value
    steps: Value


@dataclass(frozen=True)
class Streaming(Generic[_Fetched]):
    """A kernel's components, ready to trace.

    Attributes
    ----------
    role
        All warps of the CTA.
    cluster
        CTAs that divide K.
    weights, tokens, reduction
        The components.
    slots
        The ring of register slots.
    k_block, lane_k
        Elements of K of a k-block, and consecutive ones of a lane.
    k
        How K is divided.
    tiles
        Tiles of the problem, u32.
    prefetch
        Steps to bring into L2 before the kernel ahead is complete.
    weights_ready
        Whether the weights may be read before that.
    overlap
        Steps before its end at which a CTA says that the next kernel of the stream may start.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for.
    """

    role: Role
    cluster: int
    weights: StreamedOperand
    tokens: ResidentOperand
    reduction: Reduction[_Fetched]
    slots: Slots
    k_block: int
    lane_k: int
    k: KRange
    tiles: Value
    prefetch: int
    weights_ready: bool
    overlap: int

    def __post_init__(self) -> None:
        check_components(self)

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        if self.cluster > 1:
            w.cluster_arrive()
        warp = w.warp()
        with w.role(self.role, warp):
            self._stream(w, warp)

    def _stream(self, w: Writer, warp: Value) -> None:
        clusters = self.cluster > 1
        first = w.cta() // self.cluster
        count = w.cta_count() // self.cluster
        place, start, end = self._place(w, warp)
        elements = (end - place.k).retyped(S32)  # of this lane, from its first on; negative where it has none
        self.weights.bind(w, place)
        self.tokens.bind(w, place)
        self.weights.begin(w, first)
        self.tokens.begin(w)
        left = w.variable(S32, elements, "left")
        slots = range(self.slots.count)
        if self.prefetch:
            self.weights.prefetch(w, first, self.prefetch, start, end, w.lanes * len(self.role.warps))
        if self.weights_ready:
            for slot in slots:
                self.weights.load(w, slot, left)
        w.wait_for_prerequisites()
        for slot in slots:
            if not self.weights_ready:
                self.weights.load(w, slot, left)
            self.tokens.load(w, slot, left)
        self.reduction.bind(w, place)
        sums = self.weights.sums(w)
        if clusters:
            w.cluster_wait()  # every CTA of the cluster has started: its shared memory can be written
        last = self.k.steps - 1
        late = w.select(self.k.steps > self.overlap, self.k.steps - self.overlap, 0)
        for tile in w.range(self.tiles, start=first, step=count, name="tile"):
            following = tile + count
            ends = following >= self.tiles
            fetched = self.reduction.begin(w, tile)
            self.weights.clear(w, sums)
            for step in w.range(self.k.steps, name="step"):
                with w.when((step == late) & ends):
                    # Not earlier: what the next kernel brings into L2 would not outlast what this one streams through.
                    w.launch_dependents()
                self.weights.advance(w)
                self.tokens.advance(w)
                left.assign(left - self.slots.step)
                with w.when(step == last):
                    self.weights.begin(w, following)
                    self.tokens.begin(w)
                    left.assign(w.select(following < self.tiles, elements, 0, S32))
                for slot in slots:
                    self.weights.multiply(w, slot, self.tokens.slot(slot), sums)
                    self.weights.load(w, slot, left)
                    self.tokens.load(w, slot, left)
            self.reduction.store(w, sums, tile, fetched)

    def _place(self, w: Writer, warp: Value) -> tuple[Place, Value, Value]:
        """Read where this thread stands, and which part of K its CTA walks over."""
        thread, lane = w.thread(), w.lane()
        rank = w.cluster_rank() if self.cluster > 1 else w.constant(U32, 0)
        start = rank * self.k.share
        end = w.minimum(start + self.k.share, self.k.k)
        quad = lane & 3
        place = Place(
            thread=thread,
            warp=warp,
            rank=rank,
            unit=rank * len(self.role.warps) + warp,
            group=lane >> 2,
            quad=quad,
            k=start + warp * self.k_block + quad * self.lane_k,
        )
        return place, start, end
