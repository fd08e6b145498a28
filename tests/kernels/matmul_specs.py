"""The matmul specs and configs that the kernel tests go through."""

from __future__ import annotations

from collections import Counter

from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

FUNCTIONS = (
    ElementwiseSpec(),
    ElementwiseSpec(scale="value"),
    ElementwiseSpec(bias=F32, activation="relu"),
    ElementwiseSpec(scale="pointer", bias=BF16, activation="gelu"),
    ElementwiseSpec(scale="value", bias=F16, activation="silu"),
    ElementwiseSpec(activation="gelu"),
)

CHOSEN_BY_HAND = (
    MatmulConfig(tile=(128, 128), cluster=(2, 2), stages=3, raster_group=4),
    MatmulConfig(tile=(128, 128), cluster=(4, 1), in_flight=0, output_buffers=3),
    MatmulConfig(tile=(384, 64), cluster=(1, 1), consumers=3, output_buffers=1),
)
"""Configs that the picker never takes."""


def all_specs() -> list[MatmulSpec]:
    """Types x majors x functions x stores; batching and the output's type go round and so meet every other axis."""
    found = []
    for a, b in ((BF16, BF16), (F16, F16), (E4M3, E4M3), (E5M2, E4M3)):
        for majors in (("k", "k"), ("k", "mn"), ("mn", "k"), ("mn", "mn")):
            if a.bits == 8 and majors != ("k", "k"):
                continue
            for functions in FUNCTIONS:
                for store in ("tma", "direct"):
                    turn = len(found)
                    out = (BF16, F32, F16)[turn % 3]
                    found.append(MatmulSpec(a, b, out, *majors, turn // 2 % 2 == 1, functions, store))
    return found


def legal_configs(spec: MatmulSpec) -> list[MatmulConfig]:
    """Every config that the picker may choose for `spec`, and those chosen by hand that it allows."""
    by_hand = [config for config in CHOSEN_BY_HAND if not config.problems(SM_90A, spec)]
    return [*candidates(spec, SM_90A), *by_hand]


def sampled_kernels() -> list[tuple[MatmulSpec, MatmulConfig]]:
    """One config for each spec, always one that came up least, so that all come up."""
    found = []
    used: Counter[MatmulConfig] = Counter()
    for turn, spec in enumerate(all_specs()):
        configs = legal_configs(spec)
        rotated = configs[turn % len(configs) :] + configs[: turn % len(configs)]
        config = min(rotated, key=lambda c: used[c])
        used[config] += 1
        found.append((spec, config))
    return found
