"""What ``printf`` in a kernel prints: C's format strings, and the bytes of the arguments as CUDA passes them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

__all__ = ["format_text"]

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_WIDE = ("ll", "l", "j", "z", "t")


def format_text(text: str, arguments: Callable[[int, int], bytes], string: Callable[[int], str]) -> tuple[str, int]:
    """Return the text that one thread prints, and how many arguments it took.

    Parameters
    ----------
    text
        The format, as in C. A conversion that CUDA does not know is printed as it stands.
    arguments
        Function from (offset, size) to the bytes there in the buffer of arguments; each argument lies at a multiple of
        its size: 4 bytes for int and char, 8 for long, double and pointers.
    string
        Function from the address of a string to the string.
    """
    at = taken = 0

    def take(size: int) -> bytes:
        nonlocal at, taken
        at = -(-at // size) * size
        found = arguments(at, size)
        at, taken = at + size, taken + 1
        return found

    def integer(size: int = 4) -> int:
        return int.from_bytes(take(size), "little", signed=True)

    def convert(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        if width == "*":
            number = integer()
            flags, width = (flags + "-", str(-number)) if number < 0 else (flags, str(number))
        digits = None if precision is None else max(integer(), 0) if precision == "*" else int(precision or 0)
        if kind == "n":
            take(8)
            return ""
        if kind == "s":
            shown = string(int.from_bytes(take(8), "little"))
            return _padded(shown if digits is None else shown[:digits], flags, width)
        if kind == "c":
            return _padded(chr(integer() & 0xFF), flags, width)
        if kind == "p":
            return _padded(f"{int.from_bytes(take(8), 'little'):#x}", flags, width)
        if kind in "diouxX":
            value = integer(8 if length in _WIDE else 4)
            narrow = {"h": 16, "hh": 8}.get(length or "")
            bits = narrow or (64 if length in _WIDE else 32)
            value &= (1 << bits) - 1
            if kind in "di" and value >> bits - 1:
                value -= 1 << bits
            return _integer(value, kind, flags, width, digits)
        return _floating(struct.unpack("<d", take(8))[0], kind, flags, width, digits)

    return _CONVERSION.sub(convert, text), taken


def _padded(text: str, flags: str, width: str | None) -> str:
    count = int(width or 0)
    return text.ljust(count) if "-" in flags else text.rjust(count)


def _signed(sign: str, body: str, flags: str, width: str | None, *, zeros: bool) -> str:
    """A number with its sign or prefix, zeros between them where asked for."""
    if zeros and "0" in flags and "-" not in flags:
        body = body.rjust(int(width or 0) - len(sign), "0")
    return _padded(sign + body, flags, width)


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _integer(value: int, kind: str, flags: str, width: str | None, digits: int | None) -> str:
    base = {"o": "o", "x": "x", "X": "X"}.get(kind, "d")
    body = format(abs(value), base)
    if digits is not None:
        body = "" if digits == 0 and value == 0 else body.rjust(digits, "0")
    sign = _sign(value < 0, flags) if kind in "di" else ""
    if "#" in flags and kind == "o" and not body.startswith("0"):
        body = "0" + body
    elif "#" in flags and value:
        sign = {"x": "0x", "X": "0X"}.get(kind, sign)
    return _signed(sign, body, flags, width, zeros=digits is None)


def _floating(value: float, kind: str, flags: str, width: str | None, digits: int | None) -> str:
    sign = _sign(math.copysign(1.0, value) < 0, flags)
    size = abs(value)
    if not math.isfinite(size):
        body = "nan" if math.isnan(size) else "inf"
        return _signed(sign, body.upper() if kind.isupper() else body, flags, width, zeros=False)
    if kind in "aA":
        body = _hexadecimal(size, digits, point="#" in flags)
        body = body.upper() if kind == "A" else body
        prefix, body = body[:2], body[2:]
        return _signed(sign + prefix, body, flags, width, zeros=True)
    body = ("%#" if "#" in flags else "%") + f".{6 if digits is None else digits}{kind}"
    return _signed(sign, body % size, flags, width, zeros=True)


def _hexadecimal(size: float, digits: int | None, *, point: bool) -> str:
    """``%a``: 0x1.8p+1, with a point even where nothing follows it when asked for."""
    mantissa, exponent = math.frexp(size)
    mantissa, exponent = (mantissa * 2, exponent - 1) if size else (0.0, 0)
    if exponent < -1022:
        mantissa, exponent = math.ldexp(mantissa, exponent + 1022), -1022
    places = 13 if digits is None else digits
    whole, rest = divmod(round(mantissa * 16**places), 16**places)
    shown = format(rest, f"0{places}x") if places else ""
    shown = shown.rstrip("0") if digits is None else shown
    return f"0x{whole}{'.' if shown or point else ''}{shown}p{exponent:+d}"
