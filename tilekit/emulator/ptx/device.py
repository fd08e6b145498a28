"""The emulated device: memory, tensor maps, modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import ml_dtypes
import numpy as np

from tilekit.emulator.core import room
from tilekit.emulator.core.annotations import Accepts
from tilekit.emulator.core.checked import checked
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.buffer import Buffer
from tilekit.emulator.core.schedules import Check, Policy, Starts
from tilekit.emulator.ptx.chips import CHIPS, Chip
from tilekit.emulator.ptx.memory.swizzle import Swizzle
from tilekit.emulator.ptx.memory.tensor_map import TensorMap, WideMode
from tilekit.emulator.ptx.module import Module

_ELEMENT_TYPES: dict[Any, str] = {
    np.dtype(dtype): name
    for dtype, name in (
        (np.uint8, "u8"),
        (np.int8, "u8"),
        (np.uint16, "u16"),
        (np.int16, "u16"),
        (np.uint32, "u32"),
        (np.int32, "s32"),
        (np.uint64, "u64"),
        (np.int64, "s64"),
        (np.float16, "f16"),
        (np.float32, "f32"),
        (np.float64, "f64"),
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e4m3fn, "u8"),
        (ml_dtypes.float8_e5m2, "u8"),
    )
}


class EncodedTensorMap(bytes):
    """The 128 bytes of a tensor map, to pass as an argument; ``map`` holds its fields."""

    map: TensorMap

    def __new__(cls, tensor: TensorMap) -> Self:
        self = super().__new__(cls, tensor.encode())
        self.map = tensor
        return self


class Device(room.Device, chips=CHIPS):
    """An emulated GPU of NVIDIA.

    Parameters
    ----------
    target
        Chip, such as ``sm_90a``.
    seed
        Of every random choice of the schedule: the same seed runs the same way.
    schedule
        ``adversarial`` lands asynchronous work as late as the rules allow, ``random`` at random moments, ``fair`` at
        once.
    check
        ``full``: everything, races included. ``protocol``: rules of use. ``off``: only what would break the run.
    exact
        Round matrix products bit for bit as an H200 does, instruction by instruction: slow. Otherwise they are
        computed in float32, which is the same wherever partial sums are exact. On sm_100a those of tcgen05 without
        block scales, as published for a B200 (`tensor_core`).
    multiprocessors
        Multiprocessors that the device has, 1 to the chip's number (None). With few, a small grid does not fit at once:
        clusters wait for others to end, or to take over their work (``clusterlaunchcontrol``).
    starts
        Order in which clusters start, and are taken over: by number, ``ascending`` as the machine does it, or
        ``descending``, or ``random`` (by the seed). PTX promises none: where clusters wait for each other, try all.
    """

    chip: Chip

    @checked
    def __init__(
        self,
        target: str = "sm_90a",
        *,
        seed: int = 0,
        schedule: Policy = "adversarial",
        check: Check = "full",
        exact: bool = False,
        multiprocessors: int | None = None,
        starts: Starts = "ascending",
    ) -> None:
        self._set(target, seed, schedule, check, starts)
        if multiprocessors is not None:
            most = self.chip.sms
            if not 1 <= multiprocessors <= most:
                raise LaunchError.argument(
                    "multiprocessors", multiprocessors, f"1 to {most} on {target}", min(max(multiprocessors, 1), most)
                )
            self.chip = replace(self.chip, sms=multiprocessors)
        self.units = self.chip.sms
        if exact and self.chip.number not in (90, 100):
            where = f"False on {target}: the rounding known is that of sm_90a, and of tcgen05 on sm_100a"
            raise LaunchError.argument("exact", exact, where, False)
        self.exact = exact

    @checked
    def load(self, text: Annotated[str, Accepts("a string of PTX")]) -> Module:
        """Load PTX text.

        Raises
        ------
        PtxSyntaxError, UnsupportedInstruction
            Naming line and column.
        LaunchError
            If ``text`` is no string.
        """
        return Module(self, text)

    @checked
    def tensor_map_tiled(
        self,
        tensor: Buffer | int,
        box: Sequence[int],
        *,
        swizzle: Swizzle | None = None,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: str | None = None,
        element_strides: Sequence[int] | None = None,
        interleave: Literal["16B", "32B"] | None = None,
        oob_fill: Literal["nan"] | None = None,
        l2_promotion: Literal["64B", "128B", "256B"] | None = None,
    ) -> EncodedTensorMap:
        """Encode a tiled tensor map, with the driver API's arguments, innermost dimension first.

        Parameters
        ----------
        tensor
            A buffer, from whose array (C order) dims, strides and dtype follow, or an address.
        box
            Box extents in elements.
        strides
            Bytes between elements along dimensions 1 and up; one fewer than ``dims``.

        Raises
        ------
        ValueError
            Naming every rule that the arguments break.
        """
        address, dims, strides, dtype = _tensor(tensor, dims, strides, dtype)
        return EncodedTensorMap(
            TensorMap.tiled(
                address,
                dtype,
                dims,
                strides,
                box,
                element_strides=element_strides,
                interleave=interleave,
                swizzle=swizzle,
                oob_fill=oob_fill,
                l2_promotion=l2_promotion,
            )
        )

    @checked
    def tensor_map_im2col(
        self,
        tensor: Buffer | int,
        *,
        lower: Sequence[int],
        upper: Sequence[int],
        channels_per_pixel: int,
        pixels_per_column: int,
        swizzle: Swizzle | None = None,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: str | None = None,
        element_strides: Sequence[int] | None = None,
        interleave: Literal["16B", "32B"] | None = None,
        oob_fill: Literal["nan"] | None = None,
        l2_promotion: Literal["64B", "128B", "256B"] | None = None,
    ) -> EncodedTensorMap:
        """Encode an im2col tensor map; see `tensor_map_tiled` and ``cuTensorMapEncodeIm2col``.

        Raises
        ------
        ValueError
            Naming every rule that the arguments break.
        """
        address, dims, strides, dtype = _tensor(tensor, dims, strides, dtype)
        return EncodedTensorMap(
            TensorMap.im2col(
                address,
                dtype,
                dims,
                strides,
                lower=lower,
                upper=upper,
                channels_per_pixel=channels_per_pixel,
                pixels_per_column=pixels_per_column,
                element_strides=element_strides,
                interleave=interleave,
                swizzle=swizzle,
                oob_fill=oob_fill,
                l2_promotion=l2_promotion,
            )
        )

    @checked
    def tensor_map_im2col_wide(
        self,
        tensor: Buffer | int,
        *,
        lower: int,
        upper: int,
        channels_per_pixel: int,
        pixels_per_column: int = 128,
        mode: WideMode = "W",
        swizzle: Swizzle = "128B",
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: str | None = None,
        element_strides: Sequence[int] | None = None,
        oob_fill: Literal["nan"] | None = None,
        l2_promotion: Literal["64B", "128B", "256B"] | None = None,
    ) -> EncodedTensorMap:
        """Encode a map for wide im2col copies; see `tensor_map_tiled` and ``cuTensorMapEncodeIm2colWide``.

        Raises
        ------
        ValueError
            Naming every rule that the arguments break.
        """
        address, dims, strides, dtype = _tensor(tensor, dims, strides, dtype)
        return EncodedTensorMap(
            TensorMap.im2col_wide(
                address,
                dtype,
                dims,
                strides,
                lower=lower,
                upper=upper,
                channels_per_pixel=channels_per_pixel,
                pixels_per_column=pixels_per_column,
                mode=mode,
                swizzle=swizzle,
                element_strides=element_strides,
                oob_fill=oob_fill,
                l2_promotion=l2_promotion,
            )
        )


def _tensor(
    tensor: Buffer | int, dims: Sequence[int] | None, strides: Sequence[int] | None, dtype: str | None
) -> tuple[int, Sequence[int], Sequence[int], str]:
    """Address, dims, strides and type, the last three from the buffer's array where they are not given."""
    if isinstance(tensor, Buffer):
        dims = dims if dims is not None else tensor.shape[::-1]
        dtype = dtype or _ELEMENT_TYPES.get(tensor.dtype)
        if strides is None:
            sizes = np.cumprod([tensor.dtype.itemsize, *dims[:-1]]).tolist()
            strides = sizes[1:]
        address = tensor.address
    else:
        address = tensor
    if dims is None or strides is None or dtype is None:
        raise LaunchError("a tensor map on a plain address needs dims, strides and dtype")
    return address, dims, strides, dtype
