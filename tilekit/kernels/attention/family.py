"""Attention among the families: its calls are its own."""

from __future__ import annotations

from tilekit.annotations import checked
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.choices import AttentionChoices
from tilekit.kernels.attention.compiled import AttentionKernel, build, chosen
from tilekit.kernels.attention.config import LONG
from tilekit.kernels.attention.platforms import PLATFORMS, AnyAttentionConfig, chosen_config
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.kernels.family import Family, Selection, TunedConfigs
from tilekit.kernels.resolve import gpu_name
from tilekit.targets import Target


def select(arguments: AttentionArguments, tuned: TunedConfigs | None) -> Selection:
    """The kernel with the config that the caller gave, tuning found, or the best for it."""
    config, q, k = arguments.config, arguments.views["q"], arguments.views["k"]
    if config is None and tuned is not None and q.device != "cpu":
        batch, _, heads, _ = q.shape
        shape = {"m": arguments.queries, "n": heads, "k": arguments.keys, "batches": batch, "groups": k.shape[2]}
        config = tuned(arguments.spec, arguments.target, gpu_name(q.device), **shape, call=arguments)
    return Selection(chosen(arguments, config), arguments)


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
    choices=AttentionChoices(),
)
