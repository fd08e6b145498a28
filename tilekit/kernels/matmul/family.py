"""The matmul among the families: it takes whatever a product of matrices may be, or says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tilekit.annotations import checked
from tilekit.kernels.family import Family, Selection, TunedConfigs
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.choices import MatmulChoices
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.picker import default_config, pick
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.resolve import gpu_name
from tilekit.targets import TARGETS, Target

picked = lru_cache(maxsize=1024)(pick)
"""What the picker chose for a layout: asking it again costs ten times the rest of binding."""


def select(
    arguments: MatmulArguments, tuned: TunedConfigs | None, kind: Callable[..., MatmulKernel] = MatmulKernel
) -> Selection:
    """The kernel with the config that the caller gave, tuning found or the model picks."""
    spec, target, config, problem = arguments.spec, arguments.target, arguments.config, arguments.problem
    shape: dict[str, Any] = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches}
    if config is None and tuned is not None and arguments.a.device != "cpu":
        config = tuned(spec, target, gpu_name(arguments.a.device), **shape, call=arguments)
    if config is None:
        config = picked(spec, target, **shape, read=problem.read, read_b=problem.read_b)
    return Selection(compiled(spec, config, target, kind), arguments)


@checked
def build(
    spec: MatmulSpec, config: AnyConfig | None, target: Target, kind: Callable[..., MatmulKernel] = MatmulKernel
) -> MatmulKernel:
    """The kernel for a spec; by default with the config that suits large outputs."""
    spec.check(target)
    return compiled(spec, default_config(spec, target) if config is None else config, target, kind)


COPY_ENGINE_CHIPS = tuple(c.name for c in TARGETS.values() if c.has("copy_engine") and c.matrix_waves > 1)
"""Targets of families whose loaders are the copy engine's, and whose instruction reads what that brings as it lies."""

MATMUL = Family(
    name="matmul",
    summary="D = activation(scale * (A @ B) + bias + beta * residual), batched, with scales of rows and columns",
    targets=tuple(TARGETS),
    arguments=MatmulArguments,
    spec=MatmulSpec,
    select=select,
    compile=build,
    choices=MatmulChoices(),
)
