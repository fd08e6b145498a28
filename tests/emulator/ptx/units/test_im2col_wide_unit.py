"""Wide im2col copies against the manual's rules, pixel by pixel, and in a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, ProtocolError, TensorMap
from tilekit.emulator.ptx.copies.im2col_wide import wide_copy
from tilekit.emulator.ptx.copies.tensor_copy import load_box
from tilekit.emulator.ptx.memory.swizzle import swizzled

CHANNELS = 32


def tensor_map(n: int, h: int, w: int, **options: Any) -> tuple[TensorMap, Any]:
    """A map of an NHWC tensor of 16-bit numbers that say where they lie."""
    values = np.arange(n * h * w * CHANNELS, dtype=np.uint16).reshape(n, h, w, CHANNELS)
    sizes = np.cumprod([2, CHANNELS, w, h]).tolist()
    options = {"lower": 0, "upper": 0, "channels_per_pixel": CHANNELS, "mode": "W", "swizzle": "64B", **options}
    return TensorMap.im2col_wide(0, "u16", (CHANNELS, w, h, n), sizes[1:], **options), values


def pixels_of(described: TensorMap, values: Any, coords: Any, halo: int, offset: int) -> list[Any]:
    """The pixels of a column by the manual's words, in the order in which they are loaded."""
    assert described.pixels is not None
    low = described.pixels.lower[0] + offset
    high = values.shape[2] - 1 + described.pixels.upper[0] + offset
    step = described.element_strides[1]
    _, w, h, n = coords
    w += offset

    def walk(count: int) -> list[tuple[int, int]]:
        found, at, image = [], w, n
        while len(found) < count:
            if at > high:
                at, image = low, image + 1
            found.append((at, image))
            at += step
        return found

    count = described.pixels.pixels_per_column
    if described.pixels.wide == "W":
        places = walk(count + halo)
    else:
        steps = walk(128 + halo)
        places = steps[:128] + [steps[32 * (group + 1) + extra] for extra in range(halo) for group in range(4)]
    inside = [
        0 <= at < values.shape[2] and 0 <= h < values.shape[1] and 0 <= image < len(values) for at, image in places
    ]
    zero = np.zeros(CHANNELS, np.uint16)
    return [values[image, h, at] if fits else zero for (at, image), fits in zip(places, inside, strict=True)]


def loaded(described: TensorMap, values: Any, coords: Any, halo: int, offset: int) -> Any:
    """What the emulator loads, with the swizzle undone."""
    plain, box = wide_copy(described, described.pixels.wide, coords, halo, offset)  # type: ignore[union-attr, arg-type]
    image = load_box(plain, box, values.reshape(-1).view(np.uint8), 0, 1024)
    linear = np.arange(image.size)
    return image[swizzled(1024 + linear, described.swizzle) - 1024].view(np.uint16).reshape(-1, CHANNELS)


@pytest.mark.parametrize("mode", ["W", "W128"])
@pytest.mark.parametrize(("halo", "offset"), [(0, 0), (2, 0), (1, 1), (0, 2), (31, 31)])
@pytest.mark.parametrize(("lower", "upper", "stride"), [(0, 0, 1), (-1, 0, 2), (-1, -1, 3), (1, -1, 1)])
def test_columns(mode: Any, halo: int, offset: int, lower: int, upper: int, stride: int) -> None:
    """Columns run along W and into the next images, with halo pixels where each mode has them."""
    described, values = tensor_map(
        60, 4, 7, lower=lower, upper=upper, mode=mode, pixels_per_column=40, element_strides=(1, stride, 1, 1)
    )
    for coords in ((0, lower + 1, 2, 3), (0, lower, 0, 57), (0, lower + 2, 5, 1), (0, 0, -1, 0)):
        got = loaded(described, values, coords, halo, offset)
        np.testing.assert_array_equal(got, pixels_of(described, values, coords, halo, offset))


def test_a_start_left_of_the_box() -> None:
    """The first pixel may lie left of the box, where nothing is."""
    described, values = tensor_map(4, 3, 9, lower=1, upper=-1, pixels_per_column=16)
    got = loaded(described, values, (0, -2, 1, 0), 0, 0)
    np.testing.assert_array_equal(got, pixels_of(described, values, (0, -2, 1, 0), 0, 0))
    assert not got[:2].any()
    assert (got[2] == values[0, 1, 0]).all()


@pytest.mark.parametrize(
    ("options", "halo", "offset", "message"),
    [
        ({"mode": "W128"}, 0, 0, r"mode = 'W': the tensor map is im2col of mode W128"),
        ({}, 512, 0, r"wHalo = 512: must lie in 0 to 511 in mode W"),
        ({}, 0, 32, r"wOffset = 32: must lie in 0 to 31 in mode W"),
    ],
)
def test_bad_instructions(options: dict[str, Any], halo: int, offset: int, message: str) -> None:
    """A mode or a number that does not fit the map is refused by name."""
    described, _ = tensor_map(2, 2, 4, **options)
    with pytest.raises(ValueError, match=message):
        wide_copy(described, "W", (0, 0, 0, 0), halo, offset)


def test_bad_maps() -> None:
    """The driver's rules for wide maps: a swizzle, and corners of 16 bits whatever the rank."""
    with pytest.raises(ValueError, match="swizzle = '32B': a wide map needs one of '64B', '128B', '128B_atom_32B'"):
        tensor_map(2, 2, 4, swizzle="32B", channels_per_pixel=8)
    described, _ = tensor_map(2, 2, 400, lower=-300, upper=20)
    assert TensorMap.decode(described.encode()) == described
    assert described.minimum_sm == 100
    with pytest.raises(ValueError, match=r"lower\[0\] = -40000: must lie in -32768 to 32767"):
        tensor_map(2, 2, 4, lower=-40000)


KERNEL = """.version 8.6
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{
  .shared .align 1024 .b8 tile[12288]; .shared .align 8 .b64 full;
  .reg .b32 %t, %s, %b, %v, %o, %n; .reg .b64 %m, %p, %w; .reg .pred %q, %r; .reg .b16 %h, %f;
  mov.u32 %t, %tid.x; mov.u32 %s, tile; mov.u32 %b, full; setp.eq.u32 %q, %t, 0; mov.b64 %m, map;
  mov.b16 %h, {halo}; mov.b16 %f, {offset}; mov.u32 %o, 3; mov.u32 %n, 1;
  @!%q bra wait;
  mbarrier.init.shared.b64 [%b], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%b], {bytes};
  cp.async.bulk.tensor.4d.shared::cta.global.{mode}.mbarrier::complete_tx::bytes [%s], [%m, {{0, -1, %n, %o}}], [%b],
    {{%h, %f}};
wait:
  bar.warp.sync -1;
again:
  mbarrier.try_wait.parity.shared.b64 %r, [%b], 0;
  @!%r bra again;
  ld.param.u64 %p, [out]; shl.b32 %v, %t, 2; mul.wide.u32 %w, %t, 4; add.u64 %p, %p, %w; add.u32 %s, %s, %v;
  mov.u32 %n, 0;
copy:
  ld.shared.u32 %v, [%s]; st.global.u32 [%p], %v; add.u32 %s, %s, 128; add.u64 %p, %p, 128; add.u32 %n, %n, 1;
  setp.lt.u32 %r, %n, {rows}; @%r bra copy;
  ret;
}}
"""


@pytest.mark.parametrize(("mode", "halo"), [("W", 2), ("W128", 1)])
def test_in_a_kernel(mode: Any, halo: int, assemble: Any) -> None:
    """The instruction loads the column, and its mbarrier counts the halo's bytes too."""
    described, values = tensor_map(60, 4, 7, lower=-1, upper=0, mode=mode, pixels_per_column=14)
    pixels = 128 + 4 * halo if mode == "W128" else 14 + halo
    spelling = {"W": "im2col::w", "W128": "im2col::w::128"}[mode]
    fields = {"mode": spelling, "halo": halo, "offset": 1, "bytes": pixels * 64, "rows": pixels // 2}
    assemble(KERNEL.format(target="sm_100a", **fields))
    device = Device("sm_100a")
    source = device.buffer(values, "x")
    encoded = device.tensor_map_im2col_wide(
        source, lower=-1, upper=0, channels_per_pixel=CHANNELS, pixels_per_column=14, mode=mode, swizzle="64B"
    )
    out = np.zeros((pixels // 2, 32), np.uint32)
    report = device.load(KERNEL.format(target="sm_100a", **fields))["k"].launch(1, 32, [encoded, out])
    assert report.clean, report
    image = out.reshape(-1).view(np.uint8)
    rows = image[swizzled(np.arange(image.size), "64B")].view(np.uint16).reshape(-1, CHANNELS)
    np.testing.assert_array_equal(rows, pixels_of(described, values, (0, -1, 1, 3), halo, 1))
    other = device.tensor_map_im2col_wide(
        source, lower=-1, upper=0, channels_per_pixel=CHANNELS, mode="W" if mode == "W128" else "W128", swizzle="64B"
    )
    with pytest.raises(ProtocolError, match="the tensor map is im2col of mode"):
        device.load(KERNEL.format(target="sm_100a", **fields))["k"].launch(1, 32, [other, out])
