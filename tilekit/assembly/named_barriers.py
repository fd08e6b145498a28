"""Named barriers of the CTA and the meetings they serve. Components claim them; a barrier serves one meeting."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.provenance import Origin, origin
from tilekit.targets import Target


@dataclass(frozen=True)
class Claim:
    """One barrier's meeting: of whom, how many threads, and who claimed it first."""

    meeting: str
    threads: int
    origin: Origin


class NamedBarriers:
    """The barriers of a CTA; number 0 is that of all its threads.

    Parameters
    ----------
    target
        The chip, which has so many.
    threads
        Threads of the CTA.
    """

    def __init__(self, target: Target, threads: int) -> None:
        self._target = target
        self._claims = {0: Claim("the whole CTA", threads, origin())}

    def claim(self, first: int, count: int = 1, *, meeting: str, threads: int, shared: bool = True) -> None:
        """Claim `count` barriers from `first` on for a meeting of so many threads each.

        Components whose warps meet at the same barrier for the same purpose name the same `meeting`, and share it;
        where that cannot be, `shared` is false.

        Raises
        ------
        TraceError
            ``TK-BARRIER-001`` for a barrier that the chip lacks, or that another meeting has.
        """
        last, most = first + count - 1, self._target.named_barriers - 1
        if not 0 <= first <= last <= most:
            raise TraceError(
                f"{origin()} claims named barriers {first} to {last} for {meeting}, and {self._target.name} has 0 to "
                f"{most}; nearest: {max(0, min(first, most - count + 1))}",
                code="TK-BARRIER-001",
            )
        for number in range(first, last + 1):
            own = Claim(meeting, threads, origin())
            had = self._claims.setdefault(number, own)
            if (had.meeting, had.threads) != (meeting, threads) or not (shared or had is own):
                free = next((n for n in range(1, most + 1) if n not in self._claims), None)
                raise TraceError(
                    f"named barrier {number} is claimed by {had.origin} for {had.meeting} ({had.threads} threads) and "
                    f"by {origin()} for {meeting} ({threads} threads); "
                    f"{'none is free' if free is None else f'nearest free: {free}'}",
                    code="TK-BARRIER-001",
                )
