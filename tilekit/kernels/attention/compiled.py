"""A compiled attention kernel: an object that shows its text and budgets, and binds to arrays."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from string import ascii_uppercase
from typing import Any, ClassVar, cast

from tilekit.drivers.profiler import PROFILE
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.kernel import AttentionText, OwnAttention
from tilekit.kernels.attention.platforms import AnyAttentionConfig, chosen_config, platform
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.kernels.family_kernel import FamilyKernel
from tilekit.kernels.launch import Launch
from tilekit.kernels.plan import BoundArrays, EmulatorKeywords, Plan
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tiles.call import Scratch

_COLUMNS_DRAWN = 8
"""Columns of tensor memory that a character of its picture stands for."""


class AttentionKernel(FamilyKernel):
    """A kernel of attention for one spec, config and target; any batch, positions and heads."""

    OPTIONS: ClassVar[str | None] = "TK-ATT-001"
    MISFIT = "TK-ATT-011"
    spec: AttentionSpec
    config: AnyAttentionConfig
    text: AttentionText

    def __init__(
        self, spec: AttentionSpec, config: AnyAttentionConfig, target: Target, own: OwnAttention | None = None
    ) -> None:
        super().__init__(spec, config, target, platform(target).trace(spec, config, target, own))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A copy or a pickle is the kernel that a process has for spec, config and target."""
        return build, (self.spec, self.config, self.target)

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

    def shared_scratch(self, name: str) -> str | None:
        """Parts and counters are shared by all kernels of a stream: each leaves the counters as it finds them."""
        return None if name == PROFILE else name

    def bind(self, q: Any, k: Any, v: Any, *, device: str | None = None, **keywords: Any) -> Plan:
        """Check the arrays once and prepare the launch; calling the result launches it, and returns what it writes.

        Parameters
        ----------
        q, k, v, keywords
            Arrays, masks and numbers, as for `tilekit.attention`; outputs that are not given are made. Of the emulator
            ``seed``, ``schedule``, ``check``, ``exact``, ``multiprocessors`` and ``starts``, as
            `tilekit.emulator.Device` takes them.
        device
            ``"cuda"`` to run arrays in host memory on the GPU; by default they are emulated.

        Raises
        ------
        ArgumentError
            For arrays and options that no kernel takes, naming the argument; ``TK-ATT-011`` for those that this one
            was not built for.
        """
        self._require_device(device)
        options = EmulatorKeywords.__annotations__
        emulator = {name: value for name, value in keywords.items() if name in options}
        call = {name: value for name, value in keywords.items() if name not in options}
        if self.spec.lse and (call.get("lse") is None or call["lse"] is False):
            call["lse"] = True
        found = AttentionArguments.parse(q, k, v, config=self.config, target=self.target.name, **call)
        # Heads need not share a tile: a kernel that gives each its own takes few queries too.
        spec = found.spec if self.spec.group else replace(found.spec, group=0)
        built = ((name, getattr(spec, name), getattr(self.spec, name)) for name in (one.name for one in fields(spec)))
        self._require(built, "build a kernel for this call, or call tilekit.attention, which does")
        return self.plan(replace(found, spec=spec, device=device), **cast(EmulatorKeywords, emulator))

    def bound(self, arguments: AttentionArguments) -> BoundArrays:
        """Return the arrays of a call that this kernel was built for, and how a launch on them is made."""
        spec = arguments.spec

        def work(launch: Launch) -> Work:
            blocks = -(-arguments.keys // self.config.keys)
            flops = 2.0 * arguments.queries * arguments.keys * (spec.head_dim + spec.value_dim) * arguments.all_heads
            return Work(flops=flops, tiles=launch.tiles * blocks * 2)

        def launch(addresses: Any, resident: int, scratch: Scratch) -> Launch:
            return self.launch(arguments.call(addresses, resident, scratch))

        outputs = ("o", "lse") if arguments.lse is not None else ("o",)
        return BoundArrays(arguments.views, outputs, arguments.result, launch, work)


def chosen(arguments: AttentionArguments, config: AnyAttentionConfig | None) -> AttentionKernel:
    """The kernel for a call: with the config given, or the best for it."""
    spec, target = arguments.spec, arguments.target
    return build(spec, chosen_config(spec, target, arguments.queries, config), target)


@cache
def build(spec: AttentionSpec, config: AnyAttentionConfig, target: Target) -> AttentionKernel:
    """The kernel for a spec, a config and a target; made once."""
    return AttentionKernel(spec, config, target)
