"""What a kernel function returns: whatever says how a launch covers the output."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Integral
from typing import Final, Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import require_call
from tilekit.assembly.legal import Whole, require_whole
from tilekit.tiles.call import Call, Schedule

MOST_CTAS: Final = (1 << 31) - 1
"""CTAs of a launch, along the only axis that the kernels here have (CUDA, maximum x-dimension of a grid)."""


class Schedules(Protocol):
    """What a kernel function returns, a scheduler."""

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output."""


def schedule_of(kernel: str, returned: Schedules) -> Callable[[Call], Schedule]:
    """The `schedule` of what a kernel function returned; the numbers that it says are checked at each launch.

    Raises
    ------
    TraceError
        ``TK-COMP-004`` where that is no scheduler, ``TK-FIT-001`` where its `schedule` does not take the call; at a
        launch ``TK-PART-001`` for a number of clusters, tiles or slots that cannot be.
    """
    if isinstance(returned, type) or not callable(getattr(returned, "schedule", None)):
        raise TraceError(
            f"{kernel} returned {returned!r}; a kernel function returns its scheduler (StaticScheduler, "
            "StreamKScheduler, ...), which says how many clusters a launch has",
            code="TK-COMP-004",
        )
    require_call(type(returned).__name__, "schedule", returned.schedule, "call")

    @wraps(returned.schedule)
    def schedule(call: Call) -> Schedule:
        covers = returned.schedule(call)
        if isinstance(covers, Schedule):  # what is none, the launch refuses
            most = MOST_CTAS // call.cluster_size
            for name, legal in (("clusters", Whole(1, most)), ("tiles", Whole(0)), ("slots", Whole(0))):
                number = getattr(covers, name)
                owner = f"{kernel}: {type(returned).__name__}.schedule returned Schedule"
                require_whole(owner, name, int(number) if isinstance(number, Integral) else number, legal)
        return covers

    return schedule
