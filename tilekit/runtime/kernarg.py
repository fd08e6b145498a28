"""Packing a kernel's arguments as its code object's metadata places them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilekit.emulator.gcn.abi import hidden_argument, is_hidden, unlisted_fit
from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime.parameters import Layout, PackedParameters, Parameter, Pointer, TensorMap, pack
from tilekit.runtime.prepared import LaunchConfig

__all__ = ["KernargLayout", "no_tensor_map", "shape_problems"]


_LARGEST = 1 << 20
"""Bytes of a kernarg segment; compilers make them of some thousand at most."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where one argument lies; `name` is empty where the compiler gave none."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class KernargLayout:
    """The kernarg segment of a kernel.

    Attributes
    ----------
    kernel : str
        The kernel's name, for errors.
    size : int
        Bytes of the segment, those included that the runtime fills by itself (``hidden_*``).
    slots : tuple or None
        The arguments that a launch passes; None where the metadata lists none and they follow each other.
    hidden : tuple
        Those that it fills in.
    """

    kernel: str
    size: int
    slots: tuple[_Slot, ...] | None
    hidden: tuple[_Slot, ...] = ()

    @classmethod
    def of(cls, kernel: str, metadata: Mapping[str, Any]) -> KernargLayout:
        """Read a kernel's entry of the metadata note.

        Raises
        ------
        AssemblerError
            ``TK-ASM-010`` when the entry is not what such entries are.
        """
        listed = metadata.get(".args")
        try:
            size = int(metadata.get(".kernarg_segment_size", 0))
            if not 0 <= size <= _LARGEST:
                raise ValueError(f"a segment of {size} bytes, and there is none above {_LARGEST}")
            if listed is None:
                return cls(kernel, size, None)
            slots = [
                _Slot(str(entry.get(".name", "")), int(entry[".offset"]), int(entry[".size"]), kind)
                for entry, kind in ((entry, str(entry.get(".value_kind", ""))) for entry in listed)
            ]
            for slot in slots:
                if slot.offset < 0 or slot.size < 0 or slot.offset + slot.size > size:
                    raise ValueError(f"{slot.size} bytes at offset {slot.offset} of a segment of {size}")
            hidden = tuple(slot for slot in slots if is_hidden(slot.kind))
            return cls(kernel, size, tuple(slot for slot in slots if slot not in hidden), hidden)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise AssemblerError(
                f"the metadata of {kernel} does not list its arguments as it should: {type(error).__name__}: {error}",
                code="TK-ASM-010",
            ) from error

    def of_launch(self, config: LaunchConfig) -> Layout:
        """Return `pack` for launches of one shape."""
        return lambda parameters, encode: self.pack(parameters, encode, config)

    def pack(
        self, parameters: Sequence[Parameter], encode: Callable[[TensorMap], bytes], config: LaunchConfig
    ) -> PackedParameters:
        """Lay parameters out for a launch of this kernel, and fill in what it calls hidden.

        A HIP runtime fills hidden arguments in as well, and better: it has buffers for ``printf`` and a heap.

        Raises
        ------
        ArgumentError
            ``TK-PAR-004`` for another number of parameters than the kernel takes, one of another size or kind, or more
            or fewer bytes than its segment has; ``TK-PAR-001`` for a value that is no parameter.
        """
        natural = pack(parameters, encode)
        if self.slots is None:
            if not unlisted_fit(len(natural.data), self.size):
                given = f"{len(natural.data)} bytes"
                legal = f"{self.size} bytes, the kernarg segment of {self.kernel}, less its padding"
                raise ArgumentError.of("parameters", given, legal=legal, code="TK-PAR-004")
            return PackedParameters(natural.data + bytes(self.size - len(natural.data)), natural.offsets)
        if len(parameters) != len(self.slots):
            legal = f"{len(self.slots)}, as {self.kernel} takes: {self._listed()}"
            raise ArgumentError.of("number of parameters", len(parameters), legal=legal, code="TK-PAR-004")
        data = bytearray(self.size)
        for index, (parameter, slot) in enumerate(zip(parameters, self.slots, strict=True)):
            content = pack([parameter], encode).data
            pointless = slot.kind == "global_buffer" and not isinstance(parameter, Pointer)
            if len(content) != slot.size or pointless:
                place = f"{slot.size} bytes at offset {slot.offset} of {self.size}"
                what = "a Pointer, " if slot.kind == "global_buffer" else ""
                legal = f"{what}{place}, as {self.kernel} takes: {self._listed()}"
                given = f"{type(parameter).__name__} of {len(content)} bytes"
                raise ArgumentError.of(f"parameters[{index}]", given, legal=legal, code="TK-PAR-004")
            data[slot.offset : slot.offset + slot.size] = content
        for slot in self.hidden:
            value = hidden_argument(slot.kind, config.grid, config.block, config.shared_bytes)
            data[slot.offset : slot.offset + slot.size] = (value % (1 << 8 * slot.size)).to_bytes(slot.size, "little")
        return PackedParameters(bytes(data), tuple(slot.offset for slot in self.slots))

    def _listed(self) -> str:
        slots = self.slots or ()
        return ", ".join(f"{slot.name or index} ({slot.size} B)" for index, slot in enumerate(slots)) or "nothing"


def shape_problems(config: LaunchConfig, chip: str) -> list[str]:
    """Return what of a launch's shape no AMD chip has."""
    found = []
    if prod(config.cluster) > 1:
        found.append(f"cluster = {config.cluster}: {chip} has no clusters; legal (1, 1, 1)")
    if config.pdl:
        found.append(f"pdl = True: {chip} has no programmatic dependent launch; legal False")
    return found


def no_tensor_map(tensor_map: TensorMap) -> bytes:
    """Refuse a tensor map: AMD's copy engines take none."""
    raise ArgumentError.of(
        "parameter",
        tensor_map,
        legal="a number, a Pointer or a BufferDescriptor: AMD GPUs have no tensor maps",
        code="TK-PAR-001",
    )
