"""A compiled attention kernel: an object that shows its text and budgets, and binds to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from string import ascii_uppercase
from typing import Any, ClassVar

from tilekit.assembly.writer import Parameter
from tilekit.kernels.assembled import AssembledKernel
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.platforms import AnyAttentionConfig, chosen_config, platform
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.kernels.launch import Launch
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, DevicePlan, EmulatedPlan, Plan, StagedPlan
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule, Scratch

_COLUMNS_DRAWN = 8
"""Columns of tensor memory that a character of its picture stands for."""


class AttentionKernel(AssembledKernel):
    """A kernel for one spec, config and target.

    Attributes
    ----------
    spec, config, target
        What it computes, how, and for which chip.
    text
        What was traced.
    """

    OPTIONS: ClassVar[str | None] = "TK-ATT-001"

    def __init__(self, spec: AttentionSpec, config: AnyAttentionConfig, target: Target) -> None:
        self.spec, self.config, self.target = spec, config, target
        self.text = platform(target).trace(spec, config, target)

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return self.text.name

    @property
    def assembly(self) -> str:
        """The module's text, each line with its role and origin."""
        return self.text.assembly

    def described(self) -> str:
        """Roles, shared memory and what is computed, in words."""
        lines = [repr(self), f"tiles of {self.config.queries} queries, blocks of {self.config.keys} keys", ""]
        for role in self.text.roles:
            lines.append(
                f"role {role.name}: warps {role.warps.start}-{role.warps.stop - 1}, registers {role.registers}"
            )
        if self.text.tensor:
            lines += ["", *self._columns()]
        lines.append("")
        for array in self.text.shared:
            lines.append(f"{array.offset:>8}  {array.count} x {array.stride} B  {array.name}")
        return "\n".join([*lines, f"{self.text.shared_bytes:>8}  bytes of {self.target.shared_bytes}"])

    def _columns(self) -> list[str]:
        """Tensor memory as a bar, a letter for so many columns of a region, and what the letters stand for."""
        regions, capacity = self.text.tensor, self.target.tensor_columns
        bar = ["."] * (capacity // _COLUMNS_DRAWN)
        for letter, region in zip(ascii_uppercase, regions, strict=False):
            for place in range(region.first // _COLUMNS_DRAWN, -(-region.end // _COLUMNS_DRAWN)):
                bar[place] = letter
        used = max(region.end for region in regions)
        lines = [f"tensor memory  |{''.join(bar)}|  {used} of {capacity} columns"]
        return lines + [
            f"{region.first:>8}  {region.columns} columns  {letter}: {region.name}"
            for letter, region in zip(ascii_uppercase, regions, strict=False)
        ]

    def shown(self) -> Shown:
        """What of the kernel is drawn."""
        return Shown(
            name=self.name,
            target=self.target,
            threads=self.threads,
            cluster=self.cluster,
            roles=self.text.roles,
            launch_registers=None,
            shared=self.text.shared,
            shared_bytes=self.text.shared_bytes,
        )

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return self.text.parameters

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""
        return self.text.schedule

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.text.threads

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.text.cluster

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes."""
        return self.text.shared_bytes

    @property
    def waits_for_prerequisites(self) -> bool:
        """Whether the kernel itself waits for those ahead of it."""
        return True

    @property
    def description(self) -> str:
        """The config, for errors of launches."""
        return str(self.config)

    def shared_scratch(self, name: str) -> str | None:
        """Parts and counters are shared by all kernels of a stream: each leaves the counters as it finds them."""
        return name

    def plan(self, arguments: AttentionArguments, **emulator: Any) -> Plan:
        """Prepare the launch for arguments that this kernel was built for."""
        spec = arguments.spec

        def work(launch: Launch) -> Work:
            blocks = -(-arguments.keys // self.config.keys)
            flops = 2.0 * arguments.queries * arguments.keys * (spec.head_dim + spec.value_dim) * arguments.all_heads
            return Work(flops=flops, tiles=launch.tiles * blocks * 2)

        def launch(addresses: Any, resident: int, scratch: Scratch) -> Launch:
            return self.launch(arguments.call(addresses, resident, scratch))

        outputs = ("o", "lse") if arguments.lse is not None else ("o",)
        bound = BoundArrays(arguments.views, outputs, arguments.result, launch, work)
        if arguments.empty:
            return Plan(bound)
        if bound.out.device != "cpu":
            return DevicePlan(self, bound)
        if arguments.device is not None:
            self.require_chip(0)
            return StagedPlan(self, bound)
        return EmulatedPlan(self, bound, emulator)


def chosen(arguments: AttentionArguments, config: AnyAttentionConfig | None) -> AttentionKernel:
    """The kernel for a call: with the config given, or the best for it."""
    spec, target = arguments.spec, arguments.target
    return build(spec, chosen_config(spec, target, arguments.queries, config), target)


@cache
def build(spec: AttentionSpec, config: AnyAttentionConfig, target: Target) -> AttentionKernel:
    """The kernel for a spec, a config and a target; made once."""
    return AttentionKernel(spec, config, target)
