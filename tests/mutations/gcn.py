"""Changes of AMDGCN text, one place at a time, and which of them break nothing whatever runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["ORDER", "Mutation", "covered", "mutations"]

ORDER = ("wait", "barrier", "nop")
"""Families that break order: the others break data, and most show in the result."""
_COUNTER = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_LDS = re.compile(r"\tds_(read|write)\w*_b(32|64|128) ")
_MATRIX = re.compile(r"\t(v_mfma_\S+) ([^,]+), ([^,]+), ([^,]+), (.*)")
_LEAVES = re.compile(r"\ts_or_b64 exec, exec, ")
_M0 = re.compile(r"\ts_(mov|add)_\w+ m0, ")
_WORD3 = re.compile(r"\ts_mov_b32 s\d+, 0x2[0-9a-f]{4}\b")
_REGISTERS = re.compile(r"\b([sva])(\d+)\b|\b([sva])\[(\d+):(\d+)\]")
_COUNTED = {"vmcnt": ("buffer_", "global_", "flat_", "scratch_"), "lgkmcnt": ("ds_", "s_load", "s_buffer")}
_FAR = 400
"""How many instructions ahead the argument looks."""


@dataclass(frozen=True)
class Mutation:
    """One change: its family, the line (from 0), what was done, and the line as it is then."""

    family: str
    line: int
    change: str
    text: str

    def apply(self, lines: Sequence[str]) -> str:
        """The mutated text."""
        return "\n".join([*lines[: self.line], self.text, *lines[self.line + 1 :]]) + "\n"


def mutations(text: str) -> Iterator[Mutation]:
    """Every mutation of a text, in its order."""
    for number, line in enumerate(text.splitlines()):
        for family, change, changed in _of(line.split(";")[0].rstrip()):
            yield Mutation(family, number, change, changed)


def _of(line: str) -> Iterator[tuple[str, str, str]]:
    if line.startswith("\ts_waitcnt"):
        yield "wait", "removed", ""
        for match in _COUNTER.finditer(line):
            yield "wait", f"{match[1]} one more", line[: match.start(2)] + str(int(match[2]) + 1) + line[match.end(2) :]
    elif line.startswith("\ts_barrier"):
        yield "barrier", "removed", ""
    elif line.startswith("\ts_nop"):
        yield "nop", "removed", ""
    elif _LDS.match(line):
        found = re.search(r"offset\d?:(\d+)", line)
        if found:
            more = (
                line[: found.start(1)]
                + str(int(found[1]) + (1 if "offset0" in found[0] else 16))
                + line[found.end(1) :]
            )
            yield "lds", "one place further", more
        elif "2" not in line.split()[0].split("_b")[0]:
            yield "lds", "one place further", f"{line} offset:16"
    elif match := _MATRIX.match(line):
        name, target, first, second, rest = match.groups()
        yield "matrix", "factors exchanged", f"\t{name} {target}, {second}, {first}, {rest}"
    elif _LEAVES.match(line):
        yield "exec", "left narrowed", ""
    elif _M0.match(line):
        yield "m0", "removed", ""
    elif _WORD3.match(line):
        yield "descriptor", "word 3 is zero", re.sub(r"0x2[0-9a-f]{4}", "0", line)


def covered(lines: Sequence[str], mutation: Mutation) -> str:
    """Why a removed wait or barrier, or a weaker wait, changes nothing, seen from the text alone; empty where it may.

    The argument is made without the emulator. Of a wait: on the way straight ahead, nothing touches a register that
    something before it loads, no barrier and no end comes, until another wait that is as strong. Of a barrier: no
    access to LDS lies between it and another barrier or the end. Of a nop: LLVM puts it behind every packed
    instruction, whose op_sel_hi it takes for the bit of a register that is written in part.
    """
    plain = [line.split(";")[0].strip() for line in lines]
    if mutation.family == "barrier":
        return _no_exchange(plain[mutation.line + 1 :]) or _since_barrier(
            lines[: mutation.line], plain[mutation.line + 1 :]
        )
    if mutation.family == "nop":
        before = next((line for line in reversed(plain[: mutation.line]) if line), "")
        packed = before.startswith("v_pk_") and plain[mutation.line] == "s_nop 0"
        return "LLVM takes op_sel_hi of a packed instruction for the bit of a partly written register" if packed else ""
    if mutation.family != "wait":
        return ""
    asked = dict(_COUNTER.findall(lines[mutation.line]))
    weaker = dict(_COUNTER.findall(mutation.text))
    for counter, count in asked.items():
        if weaker.get(counter) != count and not _again(plain, mutation.line, counter, int(count)):
            return ""
    return "another wait, as strong, comes before what it is for is touched"


def _no_exchange(ahead: Sequence[str]) -> str:
    for line in ahead:
        if line.startswith(("ds_", "global_load_lds", "s_cbranch", "s_branch")) or line.endswith("lds"):
            return ""
        if line.startswith("s_barrier"):
            return "another barrier follows, and no access to LDS lies between"
        if line.startswith("s_endpgm"):
            return "no access to LDS comes after it"
    return ""


def _since_barrier(before: Sequence[str], ahead: Sequence[str]) -> str:
    if not any(line.strip().startswith("ds_") for line in before):
        following = next((line for line in ahead if line.startswith(("ds_", "s_barrier", "s_cbranch"))), "")
        if following.startswith("s_barrier"):
            return "LDS has not been read before it, and another barrier comes before it is"
    for line in reversed(before):
        found = line.split(";")[0].strip()
        if found.startswith(("ds_", "global_load_lds")) or found.endswith("lds") or "Loop" in line:
            return ""
        if found.startswith("s_barrier"):
            return "another barrier came before, and no access to LDS since"
    return ""


def _again(plain: Sequence[str], place: int, counter: str, count: int) -> bool:
    """Whether a wait as strong comes before anything touches what was being loaded."""
    loaded = _loaded(plain[:place], counter)
    after = place + 1
    for _ in range(_FAR):
        line = plain[after] if after < len(plain) else "s_endpgm"
        found = dict(_COUNTER.findall(line)) if line.startswith("s_waitcnt") else {}
        if counter in found and int(found[counter]) <= count:
            return True
        if line.startswith("s_branch"):
            after = plain.index(f"{line.split()[1]}:") + 1
            continue
        if line.startswith(("s_barrier", "s_endpgm", "s_cbranch", "s_setpc")) or _registers(line) & loaded:
            return False
        # What the counter counts moves on by one with each further operation, so that a count means another one.
        if count and line.startswith(_COUNTED[counter]):
            return False
        after += 1
    return False


def _loaded(before: Sequence[str], counter: str) -> set[tuple[str, int]]:
    """Registers that instructions before load, up to where all had been waited for; stores count as none."""
    registers: set[tuple[str, int]] = set()
    for line in reversed(before):
        if line.startswith("s_waitcnt") and f"{counter}(0)" in line:
            break
        if line.endswith(":") and line.startswith(".LBB") and "Loop" in line:
            break
        if line.startswith(_COUNTED[counter]) and "store" not in line and "write" not in line:
            registers |= _registers(line.split(",")[0])
    return registers


def _registers(line: str) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for file, one, start, first, last in _REGISTERS.findall(line):
        if one:
            found.add((file, int(one)))
        else:
            found |= {(start, number) for number in range(int(first), int(last) + 1)}
    return found
