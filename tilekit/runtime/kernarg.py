"""Packing a kernel's arguments as its code object's metadata places them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime.parameters import PackedParameters, Parameter, TensorMap, pack

__all__ = ["KernargLayout", "no_tensor_map"]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where one argument lies; `name` is empty where the compiler gave none."""

    name: str
    offset: int
    size: int


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
    """

    kernel: str
    size: int
    slots: tuple[_Slot, ...] | None

    @classmethod
    def of(cls, kernel: str, metadata: Mapping[str, Any]) -> KernargLayout:
        """Read a kernel's entry of the metadata note.

        Raises
        ------
        AssemblerError
            ``TK-ASM-010`` when the entry is not what such entries are.
        """
        listed = metadata.get(".args")
        slots = None
        try:
            if listed is not None:
                slots = tuple(
                    _Slot(str(entry.get(".name", "")), int(entry[".offset"]), int(entry[".size"]))
                    for entry in listed
                    if not str(entry.get(".value_kind", "")).startswith("hidden_")
                )
            return cls(kernel, int(metadata.get(".kernarg_segment_size", 0)), slots)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AssemblerError(
                f"the metadata of {kernel} does not list its arguments as it should: {type(error).__name__}: {error}",
                code="TK-ASM-010",
            ) from error

    def pack(self, parameters: Sequence[Parameter], encode: Callable[[TensorMap], bytes]) -> PackedParameters:
        """Lay parameters out for this kernel.

        Raises
        ------
        ArgumentError
            ``TK-PAR-004`` for another number of parameters than the kernel takes, one of another size, or more bytes
            than its segment has; ``TK-PAR-001`` for a value that is no parameter.
        """
        natural = pack(parameters, encode)
        if self.slots is None:
            if len(natural.data) > self.size:
                given = f"{len(natural.data)} bytes"
                legal = f"at most {self.size} bytes, the kernarg segment of {self.kernel}"
                raise ArgumentError.of("parameters", given, legal=legal, code="TK-PAR-004")
            return PackedParameters(natural.data + bytes(self.size - len(natural.data)), natural.offsets)
        if len(parameters) != len(self.slots):
            legal = f"{len(self.slots)}, as {self.kernel} takes: {self._listed()}"
            raise ArgumentError.of("number of parameters", len(parameters), legal=legal, code="TK-PAR-004")
        data = bytearray(self.size)
        for index, (parameter, slot) in enumerate(zip(parameters, self.slots, strict=True)):
            content = pack([parameter], encode).data
            if len(content) != slot.size or slot.offset + slot.size > self.size:
                place = f"{slot.size} bytes at offset {slot.offset} of {self.size}"
                legal = f"{place}, as {self.kernel} takes: {self._listed()}"
                given = f"{type(parameter).__name__} of {len(content)} bytes"
                raise ArgumentError.of(f"parameters[{index}]", given, legal=legal, code="TK-PAR-004")
            data[slot.offset : slot.offset + slot.size] = content
        return PackedParameters(bytes(data), tuple(slot.offset for slot in self.slots))

    def _listed(self) -> str:
        slots = self.slots or ()
        return ", ".join(f"{slot.name or index} ({slot.size} B)" for index, slot in enumerate(slots)) or "nothing"


def no_tensor_map(tensor_map: TensorMap) -> bytes:
    """Refuse a tensor map: AMD's copy engines take none."""
    raise ArgumentError.of(
        "parameter", tensor_map, legal="a U32, S32, F32 or Pointer: AMD GPUs have no tensor maps", code="TK-PAR-001"
    )
