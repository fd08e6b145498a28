"""A call of `tilekit.attention`, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import e as euler
from math import log2
from typing import Annotated, Any, ClassVar, TypedDict

from tilekit.annotations import Accepts, checked_values
from tilekit.arrays import (
    ArrayView,
    empty_like_library,
    require_output,
    require_result,
    require_same_place,
    view_of,
)
from tilekit.dtypes import BF16, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.cache import cache_views
from tilekit.kernels.attention.config import ROWS
from tilekit.kernels.attention.packed import heads_view, packed_views
from tilekit.kernels.attention.platforms import AnyAttentionConfig, platform
from tilekit.kernels.attention.repeated import one_head, repeated_axes
from tilekit.kernels.attention.spec import HEAD_DIMS, AttentionSpec, room_for
from tilekit.kernels.resolve import resolve_target
from tilekit.targets import Target
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Scratch
from tilekit.tiles.heads import HeadArray, HeadCall

LOG2_E = log2(euler)

_FARTHEST = (1 << 30) - 1
"""Bounds and positions are added in 32 bits."""

NUMBERS = 2.0**-126, 2.0**126
"""What f32 holds with all its bits, and still as a factor of a power of two."""


class ScoreKeywords(TypedDict, total=False):
    """What becomes of scores before the softmax, as a call says it."""

    causal: Annotated[bool, Accepts("True or False", "TK-ATT-003")]
    window: Annotated[
        tuple[int | None, int | None] | None,
        Accepts(
            "None, or (left, right): keys before and after the diagonal that are seen, each a whole number or None",
            "TK-ATT-003",
        ),
    ]
    scale: Annotated[float | None, Accepts("a positive number", "TK-ATT-003")]
    softcap: Annotated[float | None, Accepts("a positive number", "TK-ATT-003")]


@dataclass(frozen=True)
class AttentionArguments:
    """The arguments of a call, checked.

    Attributes
    ----------
    spec, target, device
        What computes them, for which chip, and ``"cuda"`` where arrays in host memory go to the GPU.
    views
        Of q, k, v, o, of lse where it is asked for, and of what says where keys or sequences are, where it is given.
        Packed sequences are one batch entry.
    result
        What the call returns.
    scale, softcap
        What scores are multiplied by, and their bound or None.
    left, right
        Bounds of keys from the diagonal on, or None.
    config
        The config to take, where the caller gave one.
    """

    spec: AttentionSpec
    target: Target
    device: str | None
    views: Mapping[str, ArrayView]
    result: Any
    scale: float
    softcap: float | None
    left: int | None
    right: int | None
    config: AnyAttentionConfig | None = None
    elsewhere: ClassVar[str] = ""

    @classmethod
    def parse(
        cls,
        q: Any,
        k: Any,
        v: Any,
        *,
        causal: bool = False,
        window: Any = None,
        scale: float | None = None,
        softcap: float | None = None,
        out: Any = None,
        lse: Any = None,
        lengths: Any = None,
        key_lengths: Any = None,
        block_table: Any = None,
        config: AnyAttentionConfig | None = None,
        target: str | None = None,
    ) -> AttentionArguments:
        """Read and check a call's arguments, as `tilekit.attention` takes them; outputs that are not given are made."""
        views, cache = _inputs(q, k, v, lengths, key_lengths, block_table)
        packed = lengths is not None
        batch, queries, heads, elements = views["q"].shape
        scale, cap, left, right = _scores(elements**-0.5, causal=causal, window=window, scale=scale, softcap=softcap)
        chip, device = resolve_target(views["q"], target)
        platform(chip)
        views |= cache
        inputs = list(views.items())
        shape = batch, queries, heads, views["v"].shape[3]
        made = empty_like_library(views["q"], shape[packed:], views["q"].dtype) if out is None else out
        views["o"] = _output(made, shape, views["q"].dtype, inputs, packed=packed)
        results = [made]
        if lse is not None and lse is not False:
            rows = (batch, heads, queries)[packed:]
            logs = empty_like_library(views["q"], rows, F32) if lse is True else lse
            views["lse"] = view_of(logs, "lse")
            require_output(views["lse"], rows, F32, [*inputs, ("out", views["o"])], "lse")
            if not _in_c_order(views["lse"]):
                raise ArgumentError(
                    f"lse has strides {tuple(views['lse'].strides)} (elements); legal: C order; nearest: a new array, "
                    "lse=True",
                    code="TK-ATT-002",
                )
            results.append(logs)
        require_same_place([("out" if name == "o" else name, view) for name, view in views.items()])
        spec = AttentionSpec(
            views["q"].dtype,
            room_for(elements),
            room_for(shape[3]),
            right=right is not None,
            left=left is not None,
            softcap=cap is not None,
            lse=len(results) > 1,
            group=0 if packed else _group(views),
            lengths="key_lengths" in cache,
            packed=packed,
            page=views["k"].shape[1] if "block_table" in cache else 0,
            repeated=repeated_axes(views, paged="block_table" in cache),
        )
        result = results[0] if len(results) == 1 else tuple(results)
        return cls(spec, chip, device, views, result, scale, cap, left, right, config)

    @property
    def sequences(self) -> int:
        """Batch entries, or sequences that are packed."""
        return self.views["query_starts"].shape[0] - 1 if self.spec.packed else self.views["q"].shape[0]

    @property
    def queries(self) -> int:
        """Of a head; of packed sequences their mean."""
        queries = self.views["q"].shape[1]
        return -(-queries // self.sequences) if self.spec.packed else queries

    @property
    def keys(self) -> int:
        """Of a head; of a cache as many as a batch entry has room for, of packed sequences their mean."""
        if self.spec.page:
            return self.spec.page * self.views["block_table"].shape[1]
        keys = self.views["k"].shape[1]
        return -(-keys // self.sequences) if self.spec.packed else keys

    @property
    def all_heads(self) -> int:
        """Heads of queries in the batch."""
        return self.sequences * self.views["q"].shape[2]

    @property
    def lse(self) -> ArrayView | None:
        """Where the logarithms go, if anywhere."""
        return self.views.get("lse")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return 0 in self.views["o"].shape

    def call(self, addresses: Mapping[str, int], resident: int, scratch: Scratch) -> HeadCall:
        """The launch as components see it."""
        factor = self.scale if self.softcap is None else self.softcap
        numbers = {"factor": factor * LOG2_E}
        if self.softcap is not None:
            numbers["squeeze"] = min(self.scale / self.softcap, NUMBERS[1])
        for name, bound in (("left", self.left), ("right", self.right)):
            if bound is not None:
                numbers[name] = bound
        if self.spec.page:
            table = self.views["block_table"]
            numbers |= {"table_pitch": table.strides[0] if table.shape[0] > 1 else 0, "table_columns": table.shape[1]}
        if self.spec.packed:
            numbers["sequences"] = self.sequences
        heads = {
            name: HeadArray("out" if name == "o" else name, view.dtype, _four(view.shape), _four(view.strides))
            for name, view in self.views.items()
            if name in ("q", "k", "v", "o")
        }
        return HeadCall(
            m=self.views["q"].shape[1],
            n=self.views["v"].shape[3],
            k=self.views["k"].shape[1] if self.spec.packed else self.keys,
            matrices={},
            addresses=addresses,
            numbers=numbers,
            resident=resident,
            scratch=scratch,
            heads=heads,
        )


def result_of(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    out: ArrayView | None = None,
    lengths: Any = None,
    key_lengths: ArrayView | None = None,
    block_table: ArrayView | None = None,
) -> tuple[int, ...]:
    """Return the shape of a call's output, as of its queries, after the checks that need no memory.

    Arrays may be layouts alone (`ArrayView`), whose extents may be symbols.
    """
    views, cache = _inputs(q, k, v, lengths, key_lengths, block_table, memory=False)
    packed = lengths is not None
    _scores(1.0, causal=causal, window=window, scale=scale, softcap=softcap)
    platform(resolve_target(views["q"], None, memory=False)[0])
    batch, queries, heads, _ = views["q"].shape
    shape = batch, queries, heads, views["v"].shape[3]
    views |= cache
    if out is not None:
        _output(out, shape, views["q"].dtype, (), packed=packed)
        require_same_place([*views.items(), ("out", out)])
    else:
        require_same_place(list(views.items()))
    return shape[packed:]


def _inputs(
    q: Any, k: Any, v: Any, lengths: Any, key_lengths: Any, block_table: Any, *, memory: bool = True
) -> tuple[dict[str, ArrayView], dict[str, ArrayView]]:
    """Queries, keys and values, each checked and all against each other; and what says where keys or sequences are."""
    packed = lengths is not None
    views = {name: _heads(array, name, packed=packed) for name, array in (("q", q), ("k", k), ("v", v))}
    _check_shapes(views, paged=block_table is not None, packed=packed)
    views = one_head(views)
    if not packed:
        return views, cache_views(key_lengths, block_table, views["q"].shape[0], views["k"], memory=memory)
    for name, given in (("key_lengths", key_lengths), ("block_table", block_table)):
        if given is not None:
            raise ArgumentError.of(
                name, "an array", legal="None with lengths, which say how many keys a sequence has", code="TK-ATT-008"
            )
    return views, packed_views(lengths, {name: views[name].shape[1] for name in "qk"}, memory=memory)


def _output(
    array: Any, shape: tuple[int, ...], dtype: DType, inputs: Iterable[tuple[str, ArrayView]], *, packed: bool
) -> ArrayView:
    """View the output, checked."""
    view = _heads(array, "out", packed=packed)
    given = view_of(array, "out") if packed else view
    if 0 in shape:
        require_result(given, shape[packed:], dtype, "out")
    else:
        require_output(given, shape[packed:], dtype, inputs)
    return view


def _four(numbers: Any) -> tuple[int, int, int, int]:
    first, second, third, fourth = numbers
    return int(first), int(second), int(third), int(fourth)


def _heads(array: Any, name: str, *, packed: bool) -> ArrayView:
    """View an array (batch, position, head, element) that the copy engine can move; one batch entry where `packed`."""
    view = view_of(array, name)
    if len(view.shape) != 4 - packed:
        wanted = "(position, head, element) with lengths" if packed else "(batch, position, head, element)"
        raise ArgumentError(
            f"{name} has shape {tuple(view.shape)}: attention takes {wanted}; nearest: reshape it to "
            f"{'three' if packed else 'four'} dimensions",
            code="TK-ATT-001",
        )
    if view.dtype not in (BF16, F16):
        legal = "bf16, f16"
        if view.dtype in (E4M3, E5M2, E4M3FNUZ, E5M2FNUZ):
            legal += " (attention of 8-bit floats is not built)"
        raise ArgumentError.of(f"{name}'s type", view.dtype.name, legal=legal, nearest="bf16", code="TK-ATT-001")
    elements, size = view.shape[-1], view.dtype.bytes
    most = HEAD_DIMS[-1]
    if not 8 <= elements <= most or elements % 8:
        nearest = min(most, max(8, -(-elements // 8) * 8))
        raise ArgumentError.of(
            f"{name}'s head dim", elements, legal=f"multiples of 8 up to {most}", nearest=nearest, code="TK-ATT-001"
        )
    if 0 in view.shape:
        return heads_view(view) if packed else view
    strides = [stride for stride, extent in zip(view.strides, view.shape, strict=True) if extent > 1]
    unit = TMA_ALIGNMENT // size
    stands = view.strides[-3] == 0 and view.shape[-3] > 1
    if view.strides[-1] != 1 or any(s < 0 or s % unit for s in strides[:-1]) or stands or view.address % TMA_ALIGNMENT:
        raise ArgumentError(
            f"{name} at address {view.address:#x} has strides {tuple(view.strides)} (elements); legal: the last is 1, "
            f"the others are positive multiples of {unit}, or 0 but for that of positions, and the address is one of "
            f"{TMA_ALIGNMENT} bytes; nearest: a copy in C order",
            code="TK-ATT-002",
        )
    return heads_view(view) if packed else view


def _check_shapes(views: Mapping[str, ArrayView], *, paged: bool, packed: bool) -> None:
    """Check queries, keys and values against each other."""
    q, k, v = views["q"], views["k"], views["v"]
    for name, view in (("k", k), ("v", v)):
        if view.dtype is not q.dtype:
            raise ArgumentError.of(
                f"{name}'s type", view.dtype.name, legal=f"that of q, {q.dtype.name}", nearest=q.dtype.name,
                code="TK-ATT-001",
            )  # fmt: skip
        if not paged and view.shape[0] != q.shape[0]:
            raise ArgumentError.of(
                f"{name}'s batch", view.shape[0], legal=f"that of q, {q.shape[0]}", nearest=q.shape[0],
                code="TK-ATT-001",
            )  # fmt: skip
    if v.shape[:3] != k.shape[:3]:
        raise ArgumentError.of(
            "v's shape", v.shape[packed:], legal=f"all of k's but the elements, {k.shape[packed:3]}",
            nearest=(*k.shape[packed:3], v.shape[3]), code="TK-ATT-001",
        )  # fmt: skip
    if k.shape[3] != q.shape[3]:
        raise ArgumentError.of(
            "k's head dim", k.shape[3], legal=f"that of q, {q.shape[3]}", nearest=q.shape[3], code="TK-ATT-001"
        )
    require_divisor(k.shape[2], q.shape[2], "k's heads", "q's")


def require_divisor(groups: int, heads: int, name: str, of: str) -> None:
    """Raise `ArgumentError` (``TK-ATT-001``) for heads of K and V, by their name, that do not divide those of Q."""
    if groups == 0 or heads % groups:
        nearest = max((n for n in range(1, max(1, heads) + 1) if heads % n == 0 and n <= max(1, groups)), default=1)
        raise ArgumentError.of(name, groups, legal=f"a divisor of {of} {heads}", nearest=nearest, code="TK-ATT-001")


def _group(views: Mapping[str, ArrayView]) -> int:
    """Heads that are rows of one tile, where all queries of a group of heads are no more rows than a tile has.

    Those of an array that repeats one head are no rows of a box.
    """
    queries, heads = views["q"].shape[1:3]
    group = int(heads // views["k"].shape[2])
    if ("q", "head") in repeated_axes(views, paged=False):
        return 0
    return group if group * queries <= ROWS and 0 not in views["o"].shape and 0 not in views["k"].shape else 0


def _scores(usual: float, **given: Any) -> tuple[float, float | None, int | None, int | None]:
    """Scale, cap, and the bounds to the left and to the right of the diagonal."""
    read: dict[str, Any] = checked_values(ScoreKeywords, given)
    for name in ("scale", "softcap"):
        least, most = NUMBERS
        if read[name] is not None and not least <= read[name] <= most:
            nearest = least if 0 < read[name] < least else most if read[name] > most else 1.0
            legal = f"a positive number, from {least:.3g} to {most:.3g}"
            raise ArgumentError.of(name, given[name], legal=legal, nearest=nearest, code="TK-ATT-003")
    scale = usual if read["scale"] is None else read["scale"]
    return scale, read["softcap"], *_window(read["causal"], read["window"])


def _window(causal: bool, window: tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    """Bounds to the left and to the right of the diagonal."""
    if window is None:
        return None, 0 if causal else None
    left, right = window
    if any(bound is not None and abs(bound) > _FARTHEST for bound in window):
        nearest = tuple(None if b is None else max(-_FARTHEST, min(_FARTHEST, b)) for b in window)
        legal = f"bounds up to {_FARTHEST}, or None"
        raise ArgumentError.of("window", window, legal=legal, nearest=nearest, code="TK-ATT-003")
    if causal:
        right = 0 if right is None else min(right, 0)
    if left is not None and right is not None and left + right < 0:
        raise ArgumentError.of(
            "window", window, legal="bounds with a key between them: left + right from 0 on", nearest=(-right, right),
            code="TK-ATT-003",
        )  # fmt: skip
    return None if left is None else -left, right


def _in_c_order(view: ArrayView) -> bool:
    if 0 in view.shape:
        return True
    step = 1
    for extent, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= max(1, extent)
    return True
