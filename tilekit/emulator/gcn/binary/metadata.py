"""The note in which a code object says what a launch needs: MessagePack in the image, YAML in assembly text."""

from __future__ import annotations

import re
from typing import Any, Final

import msgpack

from tilekit.emulator.gcn.binary.errors import CodeObjectFault

__all__ = ["read_metadata", "yaml_of"]

# What YAML would not take as text when it stands alone: empty, a number, a truth value, or text with marks in it.
_PLAIN: Final = re.compile(r"[A-Za-z_.$/][A-Za-z0-9_.$/@*<>+()-]*( [A-Za-z0-9_.$/@*<>+()-]+)*")
_WORDS: Final = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", ".inf", ".nan", "nan", "inf"}


def read_metadata(note: bytes) -> dict[str, Any]:
    """Return the map that a note's MessagePack holds.

    Raises
    ------
    CodeObjectFault
        When it is cut, or no map.
    """
    try:
        found = msgpack.unpackb(note, strict_map_key=False)
    except Exception as error:  # the library's errors have no base class, and a damaged note may meet any of them
        raise CodeObjectFault(f"the metadata note is no MessagePack: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise CodeObjectFault(f"the metadata note holds a {type(found).__name__}, not a map with names")
    return found


def yaml_of(metadata: dict[str, Any]) -> list[str]:
    """Return metadata as the lines that ``.amdgpu_metadata`` takes."""
    return _block(metadata, 0)


def _block(value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    lines = []
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                lines += [f"{indent}{_scalar(key)}:", *_block(item, depth + 1)]
            else:
                lines.append(f"{indent}{_scalar(key)}: {_scalar(item)}")
    else:
        for item in value:
            if isinstance(item, dict | list) and item:
                first, *rest = _block(item, depth + 1)
                lines += [f"{indent}- {first.lstrip()}", *rest]
            else:
                lines.append(f"{indent}- {_scalar(item)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return str(value)
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"
