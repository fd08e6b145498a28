"""Online softmax: weights of a block of keys, with the rows' maxima and sums kept from block to block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Annotated

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Whole
from tilekit.assembly.types import F32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.score_layout import QUADS, ScoreLayout

ROWS = QUADS.rows
"""Rows of which a thread holds scores, where they are a warpgroup's accumulators."""

_CHAINS = 2
"""Independent partial results of a row, so that an operation need not wait for the one before it."""


@component
class OnlineSoftmax:
    """Weights 2^(c s - c max), where c takes a score s to an exponent of 2.

    Parameters
    ----------
    w
        The writer.
    factor
        c of the launch, an f32 of the kernel's parameters.
    slack
        By how many powers of 2 a row's weights may exceed 1 before its maximum is taken anew and earlier sums are
        rescaled: where no row of a warp does, none is. What is divided in the end is the same (FlashAttention-4 calls
        this conditional rescaling).
    layout
        Which rows and columns the scores of a thread are.
    polynomial
        Of how many weights one is computed by multiplications instead of MUFU, which has fewer results a cycle than
        scores come; 0 for none.
    early
        How many weights of a thread's first row `weigh` has before it awaits earlier sums, 0 for all: the more, the
        longer the product that these come from has time, and the more registers it takes.
    """

    def __init__(
        self,
        w: Writer,
        factor: Value,
        *,
        slack: float = 0.0,
        layout: ScoreLayout = QUADS,
        polynomial: Annotated[int, Whole(0)] = 0,
        early: Annotated[int, Whole(0)] = 0,
    ) -> None:
        self.factor = factor
        self.slack = slack
        self.layout = layout
        self.polynomial = polynomial
        self.early = early

    def bind(self, w: Writer) -> BoundSoftmax:
        """Declare the registers of a thread's rows; once a role."""
        return BoundSoftmax(w, self)


class BoundSoftmax:
    """`OnlineSoftmax` in a role.

    Attributes
    ----------
    maxima, sums
        Of a thread's rows; sums are those of its own columns until `finish`.
    """

    def __init__(self, w: Writer, owner: OnlineSoftmax) -> None:
        self._w = w
        self._factor = owner.factor
        self._slack = owner.slack
        self._layout = owner.layout
        self._polynomial, self._early = owner.polynomial, owner.early
        self._grown: list[Value] = []
        self._minus = self._factor * -1.0
        self.maxima = [w.variable(F32, -inf, "row_max") for _ in range(self._layout.rows)]
        self.sums = [w.variable(F32, 0.0, "row_sum") for _ in range(self._layout.rows)]

    def begin(self) -> None:
        """Begin with other rows."""
        for maximum, total in zip(self.maxima, self.sums, strict=True):
            maximum.assign(-inf)
            total.assign(0.0)

    def weigh_first(self, scores: Sequence[Value]) -> list[Value]:
        """The weights of rows' first block, in the order of its scores, a thread's in that of their registers."""
        made: dict[int, Value] = {}
        for row, maximum in enumerate(self.maxima):
            mine = {index: scores[index] for index in self._registers(row, scores)}
            maximum.assign(self._largest(list(mine.values())))
            negative = self._negated(maximum)
            weights = {index: self._power(self._scaled(score, negative)) for index, score in mine.items()}
            self.sums[row].assign(self._sum(list(weights.values())))
            made |= weights
        return [made[index] for index in range(len(scores))]

    def weigh(self, scores: Sequence[Value], sums: RegisterTile, *, await_sums: Callable[[Value], None]) -> list[Value]:
        """The weights of a further block, in the order of its scores.

        They are computed with the maxima of the blocks before, as soon as there are scores. These will do unless a
        thread's weights of a row add up to more than 2 to the slack: so no weight is larger. Only then, a row of a
        warp at a time, is the block's own maximum looked for, and the weights computed again.

        Parameters
        ----------
        scores
            A thread's, in the order of their registers.
        sums
            Weighted values of the blocks before, multiplied where a maximum is raised.
        await_sums
            Emits the wait for these: behind the `early` ones of the first row's weights, of which it is given the last.
        """
        w = self._w
        made: dict[int, Value] = {}
        for row, maximum in enumerate(self.maxima):
            places = self._registers(row, scores)
            mine = [scores[index] for index in places]
            weights = w.tile(F32, len(mine), "weight")
            early = 0 if row else min(self._early or len(mine), len(mine))
            negative = maximum * self._minus
            self._assign(weights[:early], mine[:early], negative)
            if row == 0:
                await_sums(weights[early - 1])
            self._assign(weights[early:], mine[early:], negative)
            total = w.variable(F32, self._sum(list(weights)), "total")
            # NaN, where a row has seen nothing before, is more too.
            with w.when(self._any(~(total <= 2.0**self._slack))):
                factor, negative = self._raise(row, mine)
                self.sums[row].assign(self.sums[row] * factor)
                for index in self._registers(row, list(sums)):
                    sums[index].assign(sums[index] * factor)
                self._assign(weights, mine, negative)
                total.assign(self._sum(list(weights)))
            self.sums[row].assign(self.sums[row] + total)
            made.update(zip(places, weights, strict=True))
        return [made[index] for index in range(len(scores))]

    def raise_maxima(self, scores: Sequence[Value], *, masked: bool) -> tuple[list[Value], list[Value]]:
        """Take a block's scores into the rows' maxima; return these as `weights` wants them, and earlier sums' factors.

        Each row asks its warp for itself whether its maximum is kept, so that the weights of one are computed while
        the maximum of the next is looked for.

        Parameters
        ----------
        scores
            A thread's, in the order of their registers.
        masked
            Whether all of a row's scores so far may be minus infinity: its weights are then 0.
        """
        w = self._w
        factors = []
        scaled = []
        self._grown = []
        for row, maximum in enumerate(self.maxima):
            mine = [scores[index] for index in self._registers(row, scores)]
            found = self._largest([maximum, *mine])
            if self._slack:
                found = self._kept(found, maximum)
            negative = self._negated(found) if masked else found * self._minus
            factor = self._power(self._scaled(maximum, negative))
            # Of a maximum that stays it is 2 to the power of a rounding: sums would leave what is not rescaled.
            factors.append(w.select(self._grown[row], factor, 1.0, F32) if self._slack else factor)
            maximum.assign(found)
            scaled.append(negative)
        return scaled, factors

    def weights(self, scores: Sequence[Value], scaled: Sequence[Value]) -> list[Value]:
        """The weights of a block, in the order of its scores; computed row by row."""
        made: dict[int, Value] = {}
        for row, negative in enumerate(scaled):
            for index in self._registers(row, scores):
                by_polynomial = self._polynomial and index % self._polynomial == self._polynomial - 1
                power = self._w.ptx.softmax.exp2_polynomial if by_polynomial else self._w.ptx.softmax.exp2
                made[index] = power(x=self._scaled(scores[index], negative))
        return [made[index] for index in range(len(scores))]

    def add(self, weights: Sequence[Value], factors: Sequence[Value]) -> None:
        """Add a block's weights to the rows' sums."""
        w = self._w
        for row, sums in enumerate(self.sums):
            mine = [weights[index] for index in self._registers(row, weights)]
            sums.assign(w.isa.elementwise.fma(a=sums, b=factors[row], c=self._sum(mine)))

    def finish(self) -> None:
        """Add up the rows' sums, which lanes may share."""
        for total in self.sums:
            total.assign(self._across(total, lambda a, b: a + b))

    def pin(self, w: Writer, weight: Value, address: Value, never: Value) -> None:
        """Keep what computes a weight ahead of what follows, whatever ptxas would move."""
        w.ptx.softmax.pin(address=address, low=weight, high=weight, never=never)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _raise(self, row: int, scores: Sequence[Value]) -> tuple[Value, Value]:
        """Take a row's scores into its maximum; return earlier sums' factor, and the maximum as weights want it."""
        maximum = self.maxima[row]
        found = self._largest([maximum, *scores])
        negative = self._negated(found)
        factor = self._power(self._scaled(maximum, negative))
        maximum.assign(found)
        return factor, negative

    def _largest(self, scores: Sequence[Value]) -> Value:
        """The largest score of a row, of which the thread has these."""
        return self._across(self._folded(scores, self._larger), self._larger)

    def _negated(self, maximum: Value) -> Value:
        """What is added to exponents; of a row that sees nothing, whose weights are 0, nothing."""
        return self._w.select(maximum == -inf, 0.0, maximum * self._minus, F32)

    def _assign(self, weights: Sequence[Value], scores: Sequence[Value], negative: Value) -> None:
        for weight, score in zip(weights, scores, strict=True):
            weight.assign(self._power(self._scaled(score, negative)))

    def _any(self, holds: Value) -> Value:
        """Whether it holds in any lane of the warp."""
        found: Value = self._w.ptx.softmax.any(value=holds)
        found.uniform = True
        self._w.broadcasts.add(found.text)
        return found

    def _registers(self, row: int, values: Sequence[Value]) -> list[int]:
        """Which of a block's values are of a row."""
        return [index for index in range(len(values)) if self._layout.row_of(index) == row]

    def _kept(self, found: Value, old: Value) -> Value:
        """A row's maximum as it was, unless one of the warp's has grown too much: then the one that was found."""
        w = self._w
        grown = self._any((found - old) * self._factor > self._slack)
        self._grown.append(grown)
        return w.select(grown, found, old, F32)

    def _larger(self, a: Value, b: Value) -> Value:
        result: Value = self._w.isa.elementwise.maximum(a=a, b=b)
        return result

    def _scaled(self, score: Value, negative: Value) -> Value:
        result: Value = self._w.isa.elementwise.fma(a=score, b=self._factor, c=negative)
        return result

    def _power(self, exponent: Value) -> Value:
        result: Value = self._w.ptx.softmax.exp2(x=exponent)
        return result

    def _sum(self, values: Sequence[Value]) -> Value:
        """Their sum, of two chains."""
        return self._folded(values, lambda a, b: a + b)

    def _folded(self, values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
        chains = list(values[:_CHAINS])
        for index, value in enumerate(values[_CHAINS:]):
            chains[index % _CHAINS] = join(chains[index % _CHAINS], value)
        while len(chains) > 1:
            chains = [join(chains[0], chains[1]), *chains[2:]]
        return chains[0]

    def _across(self, value: Value, join: Callable[[Value, Value], Value]) -> Value:
        for mask in self._layout.sharing:
            value = join(value, self._w.isa.warp.shuffle_xor_f32(value=value, mask=mask))
        return value


@component
class Softcap:
    """Scores within a bound: ``cap * tanh(scale * s / cap)``, of which the softmax's factor has the cap.

    Parameters
    ----------
    factor
        ``scale / cap`` of the launch, an f32 of the kernel's parameters.
    """

    def __init__(self, factor: Value) -> None:
        self.factor = factor

    def apply(self, w: Writer, scores: Sequence[Value]) -> list[Value]:
        """The scores in units of the cap."""
        return [w.isa.elementwise.tanh(x=score * self.factor) for score in scores]
