"""C's format strings: against the C library's own, and where CUDA differs."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from tilekit.emulator.ptx.execution.printf import format_text

LIBC = ctypes.CDLL(None)
STRINGS = {4096: "text"}


def printed(form: str, *values: Any) -> tuple[str, int]:
    """Format values as CUDA passes them."""
    data = b""
    for value in values:
        piece = struct.pack("<d", value) if isinstance(value, float) else value
        data += b"\0" * (-len(data) % len(piece)) + piece
    return format_text(form, lambda offset, size: data[offset : offset + size], STRINGS.__getitem__)


def of_libc(form: str, *values: Any) -> str:
    """The same by snprintf."""
    buffer = ctypes.create_string_buffer(400)
    LIBC.snprintf(buffer, 400, form.encode(), *values)
    return buffer.value.decode()


@pytest.mark.parametrize("flags", ["", "-", "+", " ", "0", "#", "+0", "-#", "#0"])
@pytest.mark.parametrize("size", ["", "9", "12.3", ".0", ".5"])
def test_numbers(flags: str, size: str) -> None:
    """Every conversion of numbers with flags, width and precision prints what the C library prints."""
    for kind in "diouxX":
        if kind in "di" and "#" in flags:
            continue
        for value in (0, 7, -7, 2**31 - 1, -(2**31), 123456):
            form = f"<%{flags}{size}{kind}>"
            assert printed(form, struct.pack("<i", value)) == (of_libc(form, ctypes.c_int(value)), 1), (form, value)
    for kind in "eEfFgGaA":
        for real in (0.0, -0.0, 1.0, -2.5, 1e-7, 123456.789, 1e20, 5e-324, float("inf"), float("nan")):
            form = f"<%{flags}{size}{kind}>"
            assert printed(form, real)[0] == of_libc(form, ctypes.c_double(real)), (form, real)


def test_lengths() -> None:
    """Length modifiers choose 4 or 8 bytes, and cut off what is wider."""
    assert printed("%lld %hhd %hd %zu", *[struct.pack("<q", -5), struct.pack("<i", 0x1FF), struct.pack("<i", 0x18000),
                   struct.pack("<q", 9)]) == ("-5 -1 -32768 9", 4)  # fmt: skip


def test_strings_and_alignment() -> None:
    """Strings, characters, pointers and stars; each argument lies at a multiple of its size."""
    address = struct.pack("<q", 4096)
    assert printed("%c%s|%6s|%-6s|%.2s|%p", struct.pack("<i", 65), address, address, address, address, address) == (
        "Atext|  text|text  |te|0x1000",
        6,
    )
    assert printed("%*d|%-*d|%.*f", *(struct.pack("<i", v) for v in (5, 42, 5, 42)), struct.pack("<i", 2), 3.14159) == (
        "   42|42   |3.14",
        6,
    )


def test_what_is_no_conversion() -> None:
    """%% is a percent sign, and what CUDA does not know stands as it is."""
    assert printed("100%% %y %") == ("100% %y %", 0)
