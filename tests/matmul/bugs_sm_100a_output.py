"""Bugs of the way out: subtiles and copies, the residual, sums that several CTAs share."""

from __future__ import annotations

from tests.matmul.broken_sm_100a import (
    Broken,
    Edits,
    behind,
    every,
    half,
    hoisted,
    one,
    operand,
    removed,
    spelled,
    waits_removed,
    without,
)
from tests.matmul.matmul_reports import at, phase, unwaited
from tests.mutations.mutation import instead
from tests.mutations.statements import Program

LOADS, STORES, EXPECTS = "cp.async.bulk.tensor", "cp.async.bulk.tensor", "mbarrier.arrive.expect_tx"


def _no_fence_before_store(program: Program) -> Edits:
    store = one(program, "epilogue", STORES)
    return without([s for s in every(program, "epilogue", "fence.proxy.async") if s.index < store.index][-1])


def _no_barrier_before_store(program: Program) -> Edits:
    store = one(program, "epilogue", STORES)
    return without([s for s in every(program, "epilogue", "bar.sync") if s.index < store.index][-1])


def _coordinates_swapped(program: Program) -> Edits:
    s = one(program, "epilogue_load", LOADS)
    tensor, coordinates = s.operands[1].strip("[]").split(",", 1)
    first, second = (c.strip() for c in coordinates.strip(" {}").split(","))
    return instead(s, s.with_operand(1, f"[{tensor}, {{{second}, {first}}}]"))


def _subtile_released_before_read(program: Program) -> Edits:
    wait = one(program, "epilogue", "mbarrier.try_wait", "residual.full")
    arrive = one(program, "epilogue", "mbarrier.arrive", "residual.empty")
    meet = [s for s in every(program, "epilogue", "bar.warp.sync") if s.index < arrive.index][-1]
    return hoisted(program, (meet, arrive), behind(program, wait, "ldmatrix"))


def _announced_always(program: Program) -> Edits:
    s = one(program, "load", "mbarrier.arrive", "load_order", number=1)
    return instead(s, s.written(guard=""))


def _turn_not_awaited(program: Program) -> Edits:
    compare = behind(program, one(program, "epilogue", "ld.acquire"), "setp.ne")
    return instead(compare, f"setp.ne.u32 {compare.operands[0]}, 0, 0;")


def _turn_of_one_thread(program: Program) -> Edits:
    return without(behind(program, one(program, "epilogue", "ld.acquire"), "bar.sync"))


def _passed_too_early(program: Program) -> Edits:
    passes = one(program, "epilogue", "st.release")
    return without([s for s in every(program, "epilogue", "bar.sync") if s.index < passes.index][-1])


BUGS_OUTPUT: tuple[Broken, ...] = (
    # The way out.
    Broken(
        "no fence before the copy out",
        "one CTA",
        _no_fence_before_store,
        "race",
        "race: output.subtile",
        "missing edge: no fence.proxy.async by role epilogue",
    ),
    Broken(
        "a subtile copied out before it is written",
        "one CTA",
        _no_barrier_before_store,
        "race",
        "race: output.subtile",
        "missing edge: nothing orders role epilogue .* after the write",
    ),
    Broken(
        "a subtile written while it is copied out",
        "one CTA",
        removed("epilogue", "cp.async.bulk.wait_group.read"),
        "race",
        "race: output.subtile",
        "missing edge: .* no cp.async.bulk.wait_group.read that covers it before role epilogue",
    ),
    Broken(
        "the end before the last copy out",
        "one CTA",
        removed("epilogue", "cp.async.bulk.wait_group", number=-1),
        "protocol",
        "a warp exits with 1 bulk store whose source may still be read",
        at("epilogue"),
    ),
    # The residual.
    Broken(
        "rows and columns of the residual swapped",
        "residual",
        _coordinates_swapped,
        "wrong result",
        "elements are wrong",
    ),
    Broken(
        "a subtile of the residual given back before it is read",
        "residual",
        _subtile_released_before_read,
        "race",
        r"race: residual\.subtile\[\d\]",
        r"residual\.empty\[\d\] phase \d by role epilogue_load",
    ),
    Broken(
        "a subtile of the residual not awaited",
        "residual",
        waits_removed("epilogue", "residual.full"),
        "race",
        r"race: residual\.subtile\[\d\]",
        unwaited("epilogue", "residual.full"),
    ),
    Broken(
        "a subtile of the residual filled again too early",
        "residual",
        waits_removed("epilogue_load", "residual.empty"),
        "barrier",
        phase("residual.full", "an arrival too many: all 1 of phase 0 are in"),
        at("epilogue_load"),
    ),
    Broken(
        "half a subtile of the residual expected",
        "residual",
        operand("epilogue_load", EXPECTS, 2, half),
        "barrier",
        phase("residual.full", "all arrivals of phase 0 are in, but 16384 bytes arrived and only 8192 were expected"),
        at("epilogue_load"),
    ),
    # The order of the first loads.
    Broken(
        "the first loads not announced",
        "load order",
        removed("load", "mbarrier.arrive", "load_order", number=1),
        "deadlock",
        r"role epilogue_load \(warp 7\) waits for load_order phase 0",
        "no thread has ever arrived",
    ),
    Broken(
        "every block announced",
        "load order",
        _announced_always,
        "barrier",
        r"load_order: phase 1 completes while role epilogue_load \(warp 7\) still waits for phase 0",
        at("load"),
    ),
    Broken(
        "the barrier of the first loads not initialised",
        "load order",
        removed("setup", "mbarrier.init", "load_order"),
        "barrier",
        r"no mbarrier has been initialised at \w+, load_order",
    ),
    # The shared sum.
    Broken(
        "a turn passed before all have added",
        "shared sum",
        _passed_too_early,
        "race",
        "race: workspace",
        "missing edge: .* has released nothing since that another cluster could acquire",
    ),
    Broken(
        "a turn not awaited",
        "shared sum",
        _turn_not_awaited,
        "race",
        "race: workspace",
        r"missing edge: nothing orders role epilogue \(warp \d\) of cluster \d after the (read|write)",
    ),
    Broken(
        "a turn awaited by one thread only",
        "shared sum",
        _turn_of_one_thread,
        "race",
        "race: workspace",
        r"missing edge: nothing orders role epilogue \(warp \d\) of cluster \d after the write",
    ),
    Broken(
        "a turn passed without release",
        "shared sum",
        spelled("epilogue", "st.release", "release", "relaxed"),
        "race",
        "race: workspace",
        "missing edge: .* (with .relaxed, which publishes nothing|has released nothing since that another)",
    ),
    Broken(
        "a turn awaited without acquire",
        "shared sum",
        spelled("epilogue", "ld.acquire", "acquire", "relaxed"),
        "race",
        "race: workspace",
        "missing edge: (no wait for the atomic variable|.* has released nothing since that another cluster)",
    ),
    Broken(
        "a turn never passed",
        "shared sum",
        removed("epilogue", "st.release", number=0),
        "livelock",
        "memory does not change: the launch never ends",
        r"role epilogue \(warp 0\) waits for a turn to run\n +at line \d+: ld.acquire",
    ),
    Broken(
        "the counter not set back",
        "shared sum",
        removed("epilogue", "st.release", number=-1),
        "wrong result",
        "the launch leaves a turn that the next one would wait for",
    ),
)
