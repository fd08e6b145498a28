"""Attention among the families: its calls are its own."""

from __future__ import annotations

from tilekit.annotations import checked
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import AttentionKernel, build, chosen
from tilekit.kernels.attention.config import LONG
from tilekit.kernels.attention.platforms import PLATFORMS, AnyAttentionConfig, chosen_config
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.kernels.family import Family, Selection, TunedConfigs
from tilekit.targets import Target


def select(arguments: AttentionArguments, tuned: TunedConfigs | None) -> Selection:
    """The kernel with the config that the caller gave, or the best for it."""
    return Selection(chosen(arguments, arguments.config), arguments)


@checked
def compiled(spec: AttentionSpec, config: AnyAttentionConfig | None, target: Target) -> AttentionKernel:
    """The kernel for a spec; by default with the config that suits many queries."""
    return build(spec, chosen_config(spec, target, LONG, config), target)


ATTENTION = Family(
    name="attention",
    summary="O = softmax(scale * Q Kᵀ) V of heads and groups of heads, with masks and soft caps",
    targets=tuple(PLATFORMS),
    arguments=AttentionArguments,
    spec=AttentionSpec,
    select=select,
    compile=compiled,
)
