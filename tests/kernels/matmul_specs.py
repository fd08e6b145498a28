"""The matmul specs and configs that the kernel tests go through."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec, Precision
from tilekit.targets import SM_90A, SM_100A, Target
from tilekit.tiles.call import Load, Major

FUNCTIONS = (
    ElementwiseSpec(),
    ElementwiseSpec(scale="value"),
    ElementwiseSpec(bias=F32, activation="relu"),
    ElementwiseSpec(scale="pointer", bias=BF16, activation="gelu"),
    ElementwiseSpec(scale="value", bias=F16, activation="silu", scale_a=True, scale_b=True),
    ElementwiseSpec(activation="gelu", scale_a=True),
    ElementwiseSpec(scale="value", residual=F32, activation="relu"),
)
"""A residual is of the output's type, whatever stands here."""

LOADS: tuple[tuple[Load, Load], ...] = (
    (2, 2), (2, 2), (2, 2), (1, 1), (1, "tma"), ("tma", 2), (8, 8), (4, 8), (4, 4), (2, 4), (8, "tma"),
)  # fmt: skip

CHIPS = (SM_90A, SM_100A)

CHOSEN_BY_HAND: dict[Target, tuple[KernelConfig, ...]] = {
    SM_90A: (
        MatmulConfig(tile=(128, 128), cluster=(2, 2), stages=3, raster_group=4),
        MatmulConfig(tile=(128, 128), cluster=(4, 1), in_flight=0, output_buffers=3),
        MatmulConfig(tile=(384, 64), cluster=(1, 1), consumers=3, output_buffers=1),
        MatmulConfig(tile=(128, 128), cluster=(1, 1), split_k=4, raster_order="n"),
        MatmulConfig(tile=(256, 192), cluster=(1, 1), in_flight=0, swap_ab=True),
        MatmulConfig(tile=(384, 8), cluster=(2, 1), consumers=3, k_group=2, swap_ab=True),
        MatmulConfig(tile=(128, 72), cluster=(1, 2), k_group=4, swap_ab=True, prefetch=2),
        MatmulConfig(tile=(128, 200), cluster=(1, 1)),
        MatmulConfig(tile=(64, 8), cluster=(1, 1), consumers=1),
        MatmulConfig(tile=(320, 56), cluster=(1, 1), consumers=1),
        MatmulConfig(tile=(64, 256), schedule="pingpong"),
        MatmulConfig(tile=(128, 192), cluster=(2, 1), schedule="pingpong"),
        MatmulConfig(tile=(128, 112), cluster=(1, 2), schedule="pingpong", split_k=2),
        MatmulConfig(tile=(64, 128), cluster=(1, 1), consumers=3, schedule="pingpong"),
        MatmulConfig(tile=(128, 136), cluster=(1, 1), schedule="pingpong", swap_ab=True, in_flight=0),
        MatmulConfig(stream_k=1),
        MatmulConfig(tile=(64, 256), schedule="pingpong", stream_k=1),
        MatmulConfig(tile=(256, 112), cluster=(1, 1), swap_ab=True, stream_k=2),
        MatmulConfig(tile=(256, 200), cluster=(1, 2), in_flight=0, stream_k=2),
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, k_group=2, swap_ab=True, stream_k=8),
    ),
    SM_100A: (
        BlackwellConfig(tile=(128, 64), cluster=(2, 2), cta_group=1, accumulator_stages=4, clc_stages=4, stages=3),
        BlackwellConfig(tile=(128, 176), output_buffers=1, clc_stages=3, raster_order="n", raster_group=2),
        BlackwellConfig(tile=(64, 96), cluster=(4, 1), accumulator_stages=3, clc_stages=0, output_buffers=4),
        BlackwellConfig(tile=(64, 48), cluster=(1, 1), cta_group=1, k_group=2, clc_stages=2, split_k=3),
        BlackwellConfig(tile=(128, 16), cluster=(1, 1), cta_group=1, k_group=4, swap_ab=True),
        BlackwellConfig(tile=(64, 160), cluster=(2, 1), swap_ab=True),
        BlackwellConfig(tile=(128, 128), load_order=True),
        BlackwellConfig(tile=(128, 256), cluster=(2, 2), swap_ab=True),
    ),
}
"""Configs that the picker never takes."""


def all_specs(chip: Target) -> list[MatmulSpec]:
    """Types x majors x functions x stores; batching and the output's type go round and so meet every other axis."""
    found = []
    for a, b in ((BF16, BF16), (F16, F16), (E4M3, E4M3), (E5M2, E4M3), (F32, F32)):
        for majors in (("k", "k"), ("k", "mn"), ("mn", "k"), ("mn", "mn")):
            if majors != ("k", "k") and a.bits not in chip.transposed_bits:
                continue
            for functions in FUNCTIONS:
                for store in ("tma", "direct"):
                    turn = len(found)
                    out = (BF16, F32, F16, E4M3, E5M2)[turn % 5]
                    if functions.residual is not None:
                        out = F32 if out.bits == 8 else out
                        functions = replace(functions, residual=out)
                    precision: Precision | None = "tf32" if a == F32 else None
                    batched = turn // 2 % 2 == 1
                    found.append(MatmulSpec(a, b, out, *majors, batched, functions, store, precision=precision))
    if chip.tensor_columns:
        return found
    promoted = [replace(spec, accumulation="promoted") for spec in found if spec.a_dtype.bits == 8][::3]
    return [*found, *promoted, *_copying_specs()]


def _copying_specs() -> list[MatmulSpec]:
    """Operands that TMA refuses, in every width, with TMA and without; the other axes go round."""
    found = []
    for turn, loads in enumerate(LOADS):
        a, out, functions = (E4M3 if 1 in loads else BF16), (BF16, F32, F16)[turn % 3], FUNCTIONS[turn % len(FUNCTIONS)]
        majors: tuple[Major, Major] = ("k", "k") if 1 in loads else (("k", "mn"), ("mn", "k"), ("mn", "mn"))[turn % 3]
        added = replace(functions, residual=out if functions.residual is not None else None)
        store = "direct" if functions.residual is not None or turn % 2 else "tma"
        a_load, b_load = loads
        found.append(MatmulSpec(a, a, out, *majors, turn % 2 == 1, added, store, a_load=a_load, b_load=b_load))
    return found


def legal_configs(spec: MatmulSpec, chip: Target) -> list[KernelConfig]:
    """Every config that the picker may choose for `spec`, and those chosen by hand that it allows."""
    by_hand = [config for config in CHOSEN_BY_HAND[chip] if config.legal(chip, spec)]
    return [*candidates(spec, chip), *by_hand]


SAMPLED = {SM_90A: (4, 1), SM_100A: (3, 3)}
"""Of so many specs one is assembled in every run, and with `breadth`: little can go wrong for tcgen05."""


def family(config: KernelConfig) -> tuple[object, ...]:
    """What decides over registers: everything but the cluster and the shares, which go round with the rest."""
    warps = getattr(config, "consumers", None) or getattr(config, "cta_group", None)
    return (
        config.tile,
        warps,
        config.k_group,
        config.swap_ab,
        config.cluster_k,
        config.stream_k,
        getattr(config, "schedule", None),
    )


def sampled_specs(chip: Target, *, breadth: bool) -> list[MatmulSpec]:
    """The specs of which kernels are assembled."""
    return all_specs(chip)[:: SAMPLED[chip][breadth]]


@cache
def sampled_configs(chip: Target, *, breadth: bool) -> dict[MatmulSpec, list[KernelConfig]]:
    """One config for each sampled spec, always of a family that came up least; then those families that did not.

    All legal configs are looked at, which takes half a minute, with `breadth` two: call it in a test, not where tests
    are collected.
    """
    legal = {spec: legal_configs(spec, chip) for spec in sampled_specs(chip, breadth=breadth)}
    found: dict[MatmulSpec, list[KernelConfig]] = {}
    used: Counter[tuple[object, ...]] = Counter()
    for turn, (spec, configs) in enumerate(legal.items()):
        rotated = configs[turn % len(configs) :] + configs[: turn % len(configs)]
        config = min(rotated, key=lambda c: used[family(c)])
        used[family(config)] += 1
        found[spec] = [config]
    left: dict[tuple[object, ...], dict[MatmulSpec, KernelConfig]] = {}
    for spec, configs in legal.items():
        for config in configs:
            if not used[family(config)]:
                left.setdefault(family(config), {})[spec] = config
    for takers in left.values():
        spec = min(takers, key=lambda s: len(found[s]))
        found[spec].append(takers[spec])
    return found
