"""The kernel that is taken for a workload: its config, whether its family takes it, and the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilekit.cli.families import product_family
from tilekit.cli.numbers import pair
from tilekit.cli.options import DEFAULT_TARGET
from tilekit.cli.words import in_shape
from tilekit.cli.workloads import described

if TYPE_CHECKING:
    from tilekit.cli.options import CallOptions
    from tilekit.cli.workloads import Described
    from tilekit.kernels.family import Family
    from tilekit.kernels.matmul.config import KernelConfig
    from tilekit.targets import Target


def asked(
    kernel: str, call: CallOptions, batch: int | None = None
) -> tuple[Family, Described, str, KernelConfig | None]:
    """Return what options ask for: a family, a workload that it takes, a target, and a config if they say any of it."""
    family = product_family(kernel)
    workload, target = described(family, call, batch), target_of(family, call)
    config = config_of(workload, call, target)
    require_taken(family, workload, target, config)
    return family, workload, target, config


def target_of(family: Family, call: CallOptions) -> str:
    """What a family's kernel is built for: what the call says, else the usual target, or the family's first."""
    if call.target is not None:
        return call.target
    return DEFAULT_TARGET if DEFAULT_TARGET in family.targets else family.targets[0]


def config_of(workload: Described, call: CallOptions, target: str) -> KernelConfig | None:
    """Return the best config for a shape that has what the options say, after checking it; None if they say nothing."""
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.kernels.matmul.picker import closest
    from tilekit.targets import target as chip_named

    if isinstance(workload, AttentionWorkload):
        return None  # no option says anything of its config

    chip = chip_named(target)
    spec = workload.spec_on(chip.name) if workload.row_groups else workload.spec
    given = {
        "tile": None if call.tile is None else pair(call.tile, "--tile"),
        "cluster": None if call.cluster is None else pair(call.cluster, "--cluster"),
        "cta_group": call.cta_group,
        "stages": call.stages,
        "schedule": call.schedule,
        "stream_k": call.stream_k,
        "driver": call.driver,
    }
    overrides: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not overrides:
        return None
    for field, value in overrides.items():
        _require_field(field, value, chip)
    if call.stream_k is not None:
        overrides["split_k"] = 1
    k = workload.k // spec.a_dtype.packed
    shape = {"m": workload.m, "n": workload.n, "k": k, "batches": workload.batch or 1, "groups": workload.row_groups}
    config = closest(spec, chip, overrides, **shape, read=workload.read)
    config.check(chip, spec)
    return config


def _require_field(field: str, value: object, chip: Target) -> None:
    """Check that the configs of a chip have a field that an option sets."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.matmul.platforms import having

    have = having(field)
    if chip.name not in have:
        legal = f"for {', '.join(have)} only: the configs of {chip.name} have no {field}"
        raise ArgumentError.of(f"--{field.replace('_', '-')}", value, legal=legal, code="TK-CLI-009")


def require_means(workload: Described, emulated: bool) -> None:
    """Refuse what this machine has no memory for, or the emulator would take too long for, before arrays are made."""
    import os

    from tilekit.bench.attention import AttentionWorkload
    from tilekit.errors import ArgumentError
    from tilekit.runtime.emulated import Work

    if emulated:
        Work(workload.flops, 0).refuse_if_too_long(workload.label)
    scores = workload.score_bytes if isinstance(workload, AttentionWorkload) else 0
    needed = _HOST_BYTES * (workload.bytes + scores)
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > held:
        raise ArgumentError(
            f"{workload.label}: operands, result and their check in float64 take "
            f"about {needed / 1e9:.3g} GB, and this machine has {held / 1e9:.3g} GB; make the problem smaller",
            code="TK-CLI-010",
        )


_HOST_BYTES: Final = 8
"""Bytes in float64 and beside it, by bytes of the operands and the result."""


def require_taken(
    family: Family,
    workload: Described,
    target: str,
    config: KernelConfig | None,
) -> None:
    """Refuse a workload that the family declines, for its reason; the most general one takes them all."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.dispatch import offer
    from tilekit.kernels.family import Declined
    from tilekit.kernels.matmul.arguments import MatmulArguments
    from tilekit.kernels.registry import families

    if [one for one in families().values() if one.arguments is family.arguments][-1] is family:
        return
    a, b, keywords = call_of(workload, target, config)
    answer = offer(family, MatmulArguments.parse(a, b, memory=False, **keywords))
    if isinstance(answer, Declined):
        legal = f"matmul for this product, which {family.name} declines: {answer.reason}"
        raise ArgumentError.of("KERNEL", family.name, legal=legal, nearest="matmul", code="TK-CLI-001")


def problem_of(family: Family, text: str, like: Any) -> Any:
    """Read a shape that the family takes, as workloads like this one have them."""
    from tilekit.errors import ArgumentError

    try:
        workload = like.parse(text, like)
    except ArgumentError as error:
        raise ArgumentError(in_shape(error.message, text), code=error.code) from None
    require_taken(family, workload, family.targets[0], None)
    return workload


def call_of(workload: Described, target: str, config: KernelConfig | None) -> tuple[Any, Any, dict[str, Any]]:
    """Return what a workload's function is called with: layouts, not arrays."""
    import numpy as np

    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.row_groups import RowGroups
    from tilekit.bench.workload import Operands

    if isinstance(workload, AttentionWorkload):
        q, k, options = workload.call(workload.layouts)
        return q, k, options | {"config": config, "target": target}
    if isinstance(workload, RowGroups):
        a, b, options = workload.call(workload.layouts)
        return a, b, options | {"out_dtype": workload.out_dtype, "config": config, "target": target}
    a, b, out = workload.views
    bias = np.zeros(out.shape[-1], np.float32) if workload.bias else None
    a, b, keywords = workload.call(Operands(a, b, bias, out if workload.residual else None))
    result = {"out": out} if (to := quantised_to(workload)) is None else {"out_dtype": to}
    return a, b, keywords | result | {"config": config, "target": target}


def quantised_to(workload: Described) -> str | None:
    """The format of a result that is quantised, whose call returns values and scales."""
    from tilekit.bench.scaled import ScaledWorkload

    return workload.out_scaled if isinstance(workload, ScaledWorkload) else None


def functions_of(workload: Described) -> tuple[Any, Any]:
    """Return what computes a workload, and what says with which kernel."""
    import tilekit
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.row_groups import RowGroups
    from tilekit.bench.scaled import ScaledWorkload
    from tilekit.bench.workload import MatmulWorkload

    if isinstance(workload, AttentionWorkload):
        return tilekit.attention, tilekit.attention_kernel_for
    if isinstance(workload, RowGroups):
        return tilekit.grouped_matmul, tilekit.grouped_kernel_for
    if isinstance(workload, BlockwiseWorkload | ScaledWorkload):
        return tilekit.scaled_matmul, tilekit.scaled_kernel_for
    if isinstance(workload, MatmulWorkload):
        return tilekit.matmul, tilekit.kernel_for
    return tilekit.conv2d, tilekit.conv2d_kernel_for


def kernel_of(workload: Described, target: str, config: KernelConfig | None) -> Any:
    """Return the kernel that is taken for a workload, with a config of one's own where there is one."""
    a, b, keywords = call_of(workload, target, config)
    return functions_of(workload)[1](a, b, **keywords)
