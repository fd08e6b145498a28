"""Whether an allocation keeps every value until it is read: forward over the control flow, without live ranges.

It follows two things for each word of each register: whether a lane may have been given a value, and whether that value
may since have been overwritten by another register in the same place. A read of a word that may have been overwritten
is a defect. Lanes are of several kinds: active ones; those that were masked off since EXEC was saved in a pair of
scalars, a kind for each pair; and masked ones, whichever they are.
"""

from __future__ import annotations

from tilekit.assembly.gcn.allocation import Allocation
from tilekit.assembly.gcn.code import Code, Instruction, Part, Virtual
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.liveness import saved_masks, saves_exec
from tilekit.assembly.gcn.register_file import ADDRESSABLE, alignment_of

__all__ = ["verify"]

_ACTIVE, _MASKED = "active", "masked"
_Kind = Virtual | str
_State = dict[_Kind, tuple[int, int]]
"""Words made and words lost, by kind of lanes; of pairs those that EXEC has been saved in."""


def verify(code: Code, allocation: Allocation) -> list[str]:
    """Return what is wrong, in words; empty where nothing is."""
    return [*_misplaced(code, allocation), *_Simulation(code, allocation).problems()]


def _misplaced(code: Code, allocation: Allocation) -> list[str]:
    found = []
    for register, place in allocation.places.items():
        used = {"vector": allocation.vgprs, "scalar": allocation.sgprs, "accumulator": allocation.agprs}[register.file]
        if place < 0 or place + register.words > min(used, ADDRESSABLE[register.file]):
            found.append(f"{register.name} at {place} is outside the {used} registers of its file")
        if place % register.alignment:
            found.append(f"{register.name} at {place} is not at a multiple of {register.alignment}")
        if register.fixed is not None and place != register.fixed:
            found.append(f"{register.name} is at {place} and must be at {register.fixed}")
    for item in code.items:
        if isinstance(item, Instruction):
            for part in item.operands:
                first = allocation.places[part.register] + part.first
                if first % alignment_of(part.register.file, part.words):
                    found.append(
                        f"{item.text}: {allocation.spell(part)} begins at an index that no instruction can name"
                    )
    return found


class _Simulation:
    def __init__(self, code: Code, allocation: Allocation) -> None:
        self.code = code
        self.places = allocation.places
        self.blocks = blocks_of(code)
        self.masks = saved_masks(code)
        self.numbers: dict[tuple[Virtual, int], int] = {}
        self.names: list[str] = []
        sharing: dict[tuple[str, int], int] = {}
        for register, place in self.places.items():
            for word in range(register.words):
                self.numbers[register, word] = len(self.names)
                at = register.file, place + word
                sharing[at] = sharing.get(at, 0) | 1 << len(self.names)
                self.names.append(f"word {word} of {register.name}")
        self.rivals: dict[tuple[Virtual, int], int] = {
            (register, word): sharing[register.file, self.places[register] + word] & ~(1 << number)
            for (register, word), number in self.numbers.items()
        }
        self.found: dict[str, None] = {}

    def problems(self) -> list[str]:
        if not self.blocks:
            return []
        begin = 0
        for (register, _), number in self.numbers.items():
            if register.fixed is not None:
                begin |= 1 << number
        entering: list[_State | None] = [None] * len(self.blocks)
        entering[0] = {_ACTIVE: (begin, 0), _MASKED: (begin, 0)}
        work = [0]
        while work:
            number = work.pop()
            state = entering[number]
            assert state is not None
            block = self.blocks[number]
            for item in self.code.items[block.start : block.end]:
                if isinstance(item, Instruction):
                    state = self._after(item, state)
            for successor in block.successors:
                known = entering[successor]
                merged = state if known is None else _merged(known, state)
                if merged != known:
                    entering[successor] = merged
                    work.append(successor)
        return list(self.found)

    def _of(self, parts: tuple[Part, ...]) -> int:
        found = 0
        for part in parts:
            for word in range(part.first, part.first + part.words):
                found |= 1 << self.numbers[part.register, word]
        return found

    def _after(self, item: Instruction, state: _State) -> _State:
        state = dict(state)
        read = self._of(item.reads)
        gone = read & state[_ACTIVE][1]
        if not item.partial:
            gone |= read & state[_MASKED][1]
        if gone:
            self._say(item, gone, "has been overwritten by another value before it is read")
        for part in item.writes:
            everywhere = not item.partial or part.register.file == "scalar"
            for word in range(part.first, part.first + part.words):
                rivals, own = self.rivals[part.register, word], 1 << self.numbers[part.register, word]
                if part.words > 1 and rivals & read:
                    self._say(item, rivals & read, "is read in the place of a result of several words")
                for kind in list(state) if everywhere else (_ACTIVE,):
                    made, lost = state[kind]
                    state[kind] = made | own, (lost | rivals & made) & ~own
        if "exec" in item.clobbers:
            self._change(item, state)
        saved = saves_exec(item)
        if saved in self.masks and "exec" not in item.clobbers:
            state[saved] = (0, 0)
        return state

    def _change(self, item: Instruction, state: _State) -> None:
        """Let lanes pass from one kind to another."""
        active = state[_ACTIVE]
        if item.lanes == "more":
            pair = next((part.register for part in item.reads if part.register in self.masks), None)
            if pair is None:
                state[_ACTIVE] = _both(active, state[_MASKED])
            else:
                state[_ACTIVE] = _both(active, state.get(pair, (0, 0)))
                state[pair] = (0, 0)
            return
        saved = saves_exec(item)
        for kind in state:
            state[kind] = _both(state[kind], active)
        if item.lanes == "any":
            state.update(dict.fromkeys(state, state[_MASKED]))
        elif saved in self.masks:
            state[saved] = active

    def _say(self, item: Instruction, words: int, what: str) -> None:
        name = self.names[(words & -words).bit_length() - 1]
        self.found[f"{item.text}: {name} {what}"] = None


def _both(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] | b[0], a[1] | b[1]


def _merged(a: _State, b: _State) -> _State:
    return {kind: _both(a.get(kind, (0, 0)), b.get(kind, (0, 0))) for kind in {**a, **b}}
