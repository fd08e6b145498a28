"""Hopper's kernels that are launched under one schedule after the other, and their problems."""

from __future__ import annotations

from typing import Any

from tests.matmul.matmul_launch import LaunchCase, Problem, Run, computes
from tilekit import MatmulConfig
from tilekit.dtypes import BF16, F32

Pair = tuple[int, int]
Schedules = tuple[tuple[str, int], ...]

FEW: Schedules = (("adversarial", 0), ("adversarial", 1), ("adversarial", 2), ("random", 0), ("random", 1), ("fair", 0))
MANY: Schedules = (*(("adversarial", seed) for seed in range(6)), *(("random", seed) for seed in range(5)), ("fair", 0))
WHOLE = 132
"""Multiprocessors of an H200: every cluster runs at once."""


def consumers(rows: int, columns: int, cluster: Pair = (1, 1), **knobs: Any) -> MatmulConfig:
    """A config of one consumer warpgroup for up to 64 rows, two otherwise."""
    return MatmulConfig((rows, columns), cluster, **{"consumers": 1 if rows <= 64 else 2, **knobs})


def launched(config: MatmulConfig, m: int, n: int, k: int, *spec: str, **more: Any) -> LaunchCase:
    """A case of one problem; types, majors and what the epilogue adds as `computes` takes them."""
    batches = more.pop("batches", (None, None))
    return LaunchCase(config, computes(*spec, **more), batches=batches, extents=Problem(m, n, k))


BF16_TYPES = "bf16 bf16 bf16"

SHAPES = (
    launched(consumers(64, 64, stages=2), 130, 200, 300),
    launched(consumers(64, 64, stages=1, in_flight=0), 65, 64, 260),
    launched(consumers(128, 128, (2, 1), stages=2), 257, 136, 320),
    launched(consumers(128, 128, (1, 2), stages=3), 129, 264, 200, BF16_TYPES, "mn"),
    launched(consumers(64, 64, (2, 2)), 66, 132, 192, "bf16 bf16 f32", bias=F32),
    launched(consumers(64, 64, (4, 1)), 200, 72, 520, "e4m3 e5m2 bf16"),
    launched(consumers(192, 64, consumers=3), 195, 61, 130, store="direct", activation="relu"),
    launched(consumers(64, 64, (2, 1)), 65, 64, 128, batched=True, batches=(2, 1)),
    launched(consumers(128, 24, swap_ab=True, k_group=2), 33, 200, 330, "bf16 bf16 f32", bias=F32),
    launched(consumers(64, 16, (2, 1), swap_ab=True, split_k=2), 16, 144, 260, "bf16 bf16 e4m3"),
)
"""Shapes of the instruction, depths of the ring, clusters, types."""

PINGPONG = (
    launched(consumers(64, 64, schedule="pingpong", consumers=2, stages=3), 200, 136, 296, BF16_TYPES, "kn"),
    launched(
        consumers(64, 64, schedule="pingpong", consumers=2, stages=1, in_flight=0), 200, 136, 200, BF16_TYPES, "kn"
    ),
    launched(
        consumers(64, 64, (2, 1), schedule="pingpong", consumers=2, stages=2, swap_ab=True),
        72, 336, 264, BF16_TYPES, "kn",
    ),
    launched(
        consumers(64, 64, schedule="pingpong", consumers=3, split_k=2, stages=3),
        130, 136, 264, BF16_TYPES, "kn", store="direct",
    ),
)  # fmt: skip
"""Consumers with whole tiles each."""

SUMS_IN_A_CLUSTER = (
    launched(consumers(64, 64, cluster_k=2, stages=3), 70, 136, 328, BF16_TYPES, "kn"),
    launched(consumers(128, 64, cluster_k=4, stages=3, swap_ab=True), 70, 136, 328, BF16_TYPES, "kn"),
    launched(consumers(64, 64, cluster_k=8, stages=3), 70, 136, 328, BF16_TYPES, "kn", store="direct"),
)
"""CTAs of a cluster that share a sum."""

STREAMED = (
    launched(consumers(64, 64, stream_k=8, stages=3), 130, 136, 328, BF16_TYPES, "kn"),
    launched(consumers(128, 64, (2, 1), stream_k=8, stages=3, swap_ab=True), 130, 136, 328, BF16_TYPES, "kn"),
    launched(
        consumers(64, 64, stream_k=8, stages=3, schedule="pingpong", consumers=2), 130, 136, 328, BF16_TYPES, "kn"
    ),
    launched(consumers(64, 64, stream_k=8, stages=1, in_flight=0), 130, 136, 328, BF16_TYPES, "kn"),
)
"""The last tiles' k-blocks divided equally: more tiles than CTAs, and fewer."""

SHORT = (launched(consumers(16, 48, stages=3), 16, 200, 520),)
"""Fewer rows than an instruction has."""

OUTPUTS = (
    launched(consumers(64, 64, stages=2), 70, 72, 96, residual=BF16, scale="pointer"),
    launched(consumers(128, 48, (2, 1), output_buffers=1), 130, 104, 200, residual=BF16, bias=BF16, activation="gelu"),
    launched(consumers(64, 96, output_buffers=3), 130, 104, 200, residual=BF16, bias=BF16),
    launched(
        consumers(64, 64, schedule="pingpong", consumers=2, swap_ab=True, output_buffers=4),
        130,
        200,
        64,
        residual=BF16,
    ),
    launched(consumers(64, 96), 130, 200, 72, residual=BF16, bias=BF16),
    launched(
        consumers(128, 64, schedule="pingpong", consumers=2, swap_ab=True, output_buffers=3),
        330,
        200,
        64,
        residual=BF16,
    ),
)
"""What the epilogue adds."""

CASES: tuple[LaunchCase, ...] = (*SHAPES, *PINGPONG, *SUMS_IN_A_CLUSTER, *STREAMED, *SHORT, *OUTPUTS)
"""All of them."""


def runs() -> list[Run]:
    """Every launch; the device is so small that CTAs have several tiles, but for the first shapes'."""
    chosen: list[tuple[LaunchCase, Schedules, int]] = [
        *((case, (*FEW[:1], *FEW[2:]), WHOLE) for case in SHAPES),  # the second is that of their plans
        *((case, MANY, 2) for case in PINGPONG),
        *((case, MANY, case.config.cluster_k) for case in SUMS_IN_A_CLUSTER),
        *((case, (*MANY[:4], *FEW[3:]), room) for case, room in zip(STREAMED, (4, 6, 4, 16), strict=True)),
        *((case, (*MANY[6:10], MANY[0]), 4) for case in SHORT),
        *((case, MANY[:1], 2) for case in OUTPUTS),
    ]
    return [
        Run(case, case.problem, "integers", schedule, seed, multiprocessors // case.config.cluster_size)
        for case, schedules, multiprocessors in chosen
        for schedule, seed in schedules
    ]
