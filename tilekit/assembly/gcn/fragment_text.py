"""Text of a fragment, checked where it is read: its registers are operands, and its lines are LLVM's.

What an instruction is, and which registers and counters it touches, is asked when it is placed, of the chip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tilekit.assembly.dialect import TextFault
from tilekit.assembly.gcn.notation import HOLE
from tilekit.assembly.types import RegisterType

_COMMENT = re.compile(r"//.*|/\*.*?\*/|;.*")
_OWN = re.compile(r"\b(?:[vsa]|acc|ttmp)(?:\d+\b|\[\s*\d+)")
"""A register by its number."""

_TOGETHER = re.compile(r"(\$\{[^}]*\}|(?<![\w.:])-?\d[\w.]*)\s+(?=\$\{|-?\d)")
"""Two operands with nothing between them."""

_LEAVES = re.compile(r"^\s*(s_endpgm\w*|s_setpc_b64|s_swappc_b64)\b")
_EXEC = re.compile(r"^\s*(?:s_\w+\s+exec\b|s_\w+_saveexec_b64\b|v_cmpx_)")
"""A line that writes EXEC."""


def check_text(
    lines: Sequence[str],
    operands: Mapping[str, tuple[RegisterType, int | None]],
    words: Mapping[str, str],
    version: tuple[int, int],
    *,
    kept: Collection[str],
    kind: str,
) -> None:
    """Check what shows without the chip.

    Raises
    ------
    TextFault
        For registers that are no operands, operands without a comma, an end of the wave, and EXEC not given back.
    """
    exec_line = 0
    for number, whole in enumerate(lines, 1):
        line = _COMMENT.sub("", whole)
        own = _OWN.search(HOLE.sub("", line))
        if own is not None:
            name = own[0] + ("]" if "[" in own[0] else "")
            raise TextFault(
                f"{name} is a register that the kernel may hold something in; nearest: a line `//! temp`, which gives "
                "the fragment one of its own",
                number,
            )
        together = _TOGETHER.search(line.strip().partition(" ")[2])  # the mnemonic may have words of its own
        if together is not None:
            raise TextFault(f"expected ',' behind {together[1]}", number)
        leaves = _LEAVES.match(line)
        if leaves is not None:
            raise TextFault(f"{leaves[1]} ends the wave, which the kernel goes on with", number)
        if _EXEC.match(line):
            exec_line = number
    if exec_line and not HOLE.search(_COMMENT.sub("", lines[exec_line - 1]).partition("exec")[2]):
        raise TextFault(
            "EXEC is not given back: the kernel goes on with the lanes that this leaves; nearest: s_mov_b64 exec, "
            "${lanes}, of a temp that an s_and_saveexec_b64 before it has written",
            exec_line,
        )
