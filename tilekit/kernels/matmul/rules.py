"""The rules engine: what a config breaks on a chip, and the nearest change that mends it.

Each family of configs has one table of rules (`hopper_rules.RULES`, `blackwell_rules.RULES`). The rules that every
family has stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import KernelConfig

CONFIGS = {"sm_90a": "MatmulConfig", "sm_100a": "BlackwellConfig"}
"""The class of configs that each chip takes."""

FRAGMENT_COLUMNS = 8
"""Columns of an accumulator fragment: what the steps of a matrix instruction's n are."""

BOX_BYTES = 16
"""Bytes of which a row of a copied box is a multiple (cuTensorMapEncodeTiled)."""

MAX_SPLIT = 64
"""Shares of a sum beyond which their adding costs more than their computing."""

MAX_PROFILE = 1 << 16
"""Tiles of a CTA whose times are noted at most: some megabytes a CTA."""


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes
    ----------
    rule
        Its name.
    field, text
        The config's field to change, and what is wrong.
    phase
        Which of the table's phases found it.
    """

    rule: str
    field: str
    text: str
    phase: int = 0


Rule = Callable[[Any, Target, MatmulSpec], Iterable[Violation]]
"""Yields what a config (of the rule's family) breaks on a chip for a spec."""


@dataclass(frozen=True)
class Choice:
    """The rule of a field that has a few legal values.

    Attributes
    ----------
    field, values
        The field, and all it may be.
    words
        What is legal, as the error says it.
    """

    field: str
    values: tuple[Any, ...]
    words: str

    def __call__(self, config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
        given = getattr(config, self.field)
        if given not in self.values:
            yield Violation(self.field, self.field, f"{self.field}={given!r}: {self.words}")


@dataclass(frozen=True)
class RuleBook:
    """A family's rules.

    Attributes
    ----------
    target
        The chip whose configs these are.
    phases
        The rules. A phase is checked once the one before it finds nothing, so its rules may rely on that one's.
    values
        Values to suggest of a field that is no `Choice`.
    fallbacks
        What else to change where no value of the field itself helps.
    least
        The change that asks for the least of everything, where none of one field helps.
    """

    target: str
    phases: tuple[tuple[Rule, ...], ...]
    values: Callable[[str, Any, Target, MatmulSpec], Sequence[Any]]
    fallbacks: tuple[str, ...]
    least: Callable[[Any], str]

    def problems(self, config: KernelConfig, chip: Target, spec: MatmulSpec) -> list[str]:
        """One sentence for each broken rule, ending in ``nearest: <field>=<value>``, the smallest change that mends it.

        On another chip than the family's: which config that one takes.
        """
        if chip.name != self.target:
            return [f"{CONFIGS[self.target]} is for {self.target}; for {chip.name} pass a {CONFIGS[chip.name]}"]
        found = self.violations(config, chip, spec)
        return [f"{v.text}; nearest: {self._nearest_change(v, found, config, chip, spec)}" for v in found]

    def violations(self, config: KernelConfig, chip: Target, spec: MatmulSpec) -> list[Violation]:
        """All broken rules of the first phase that has any."""
        for number, rules in enumerate(self.phases):
            found = [replace(v, phase=number) for rule in rules for v in rule(config, chip, spec)]
            if found:
                return found
        return []

    def _nearest_change(
        self, violation: Violation, found: list[Violation], config: KernelConfig, chip: Target, spec: MatmulSpec
    ) -> str:
        """The nearest value of the violation's field, or else of another one, that mends it.

        Best is a change after which only the other fields' violations are left; next one after which this phase or a
        later one finds that another field must change too; and where two rules ask for more than one field can give,
        one that mends this.
        """
        others = {v.field for v in found} - {violation.field}
        known = {v.rule for v in found} - {violation.rule}
        second = third = ""
        for field in dict.fromkeys((violation.field, *self.fallbacks)):
            for value in self._candidates(config, chip, spec, field):
                left = self.violations(config.changed(**{field: value}), chip, spec)
                if all(v.field in others for v in left):
                    return f"{field}={value!r}"
                if not second and all(v.field != violation.field and v.phase >= violation.phase for v in left):
                    second = f"{field}={value!r}"
                if not third and all(v.rule in known or v.phase > violation.phase for v in left):
                    third = f"{field}={value!r}"
        return second or third or self.least(config)

    def _candidates(self, config: KernelConfig, chip: Target, spec: MatmulSpec, field: str) -> list[Any]:
        """Values of a field, those nearest to the config's first, and of two as near the larger."""
        choices = {rule.field: rule.values for rules in self.phases for rule in rules if isinstance(rule, Choice)}
        values = choices[field] if field in choices else self.values(field, config, chip, spec)
        given = getattr(config, field)
        legal = [value for value in values if value is not None]
        return sorted(legal, key=lambda value: (_distance(value, given), -_size(value)))


def _distance(value: Any, given: Any) -> float:
    if isinstance(value, tuple):
        return float(sum(abs(v - g) for v, g in zip(value, given, strict=True)))
    if isinstance(value, str) and isinstance(given, str):
        return float(value[:1] != given[:1])
    return float(abs(value - given)) if isinstance(value, int) else 0.0


def _size(value: Any) -> int:
    return sum(value) if isinstance(value, tuple) else value if isinstance(value, int) else 0


# -- rules of every family ------------------------------------------------------------------------------------------


OUTPUT_BUFFERS = Choice("output_buffers", tuple(range(1, 9)), "1 to 8")
L2_PROMOTION = Choice("l2_promotion", (None, "256B", "128B", "64B"), "None, '64B', '128B' or '256B'")
K_GROUP = Choice("k_group", (1, 2, 4), "1, 2 or 4 slices of 128 bytes in a stage")
SWAP_AB = Choice("swap_ab", (False, True), "True or False")
RASTER_ORDER = Choice("raster_order", ("m", "n"), "'m' to walk tiles down M first, 'n' along N")
SPLIT_K = Choice("split_k", tuple(range(1, MAX_SPLIT + 1)), f"1 to {MAX_SPLIT}")


def cluster_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """A cluster has as many CTAs as the chip takes."""
    if min(config.cluster) < 1 or config.cluster_size > chip.max_cluster:
        yield Violation("cluster", "cluster", f"cluster={config.cluster}: 1 to {chip.max_cluster} CTAs in all")


def profile_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Times are noted of some tiles, or of none."""
    if not 0 <= config.profile_tiles <= MAX_PROFILE:
        text = f"profile_tiles={config.profile_tiles}: 0 to {MAX_PROFILE}"
        yield Violation("profile_tiles", "profile_tiles", text)


def grouped_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Groups of rows have a schedule of their own, made from their bounds, which shares no sums and claims nothing."""
    if spec.groups is not None and config.swap_ab:
        yield Violation("grouped operands", "swap_ab", "swap_ab=True: groups end between the rows of a tile")
    if spec.groups is not None and config.split_k in SPLIT_K.values[1:]:
        text = f"split_k={config.split_k}: of groups of rows, each sum has one CTA"
        yield Violation("grouped sums", "split_k", text)
    if spec.groups is not None and config.raster_order == "n":
        yield Violation("grouped order", "raster_order", "raster_order='n': groups of rows are walked down M")
    if spec.groups is not None and config.claims_tiles:
        yield Violation("grouped claims", "clc_stages", "claims of tiles: groups of rows have a static schedule")


def raster_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """At least one cluster row is walked at a time."""
    if config.raster_group is not None and config.raster_group < 1:
        yield Violation("raster_group", "raster_group", f"raster_group={config.raster_group}: at least 1, or None")


def slice_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """CTAs that share an operand fetch equal slices of it: of its rows, or MN-major of its chunks or of their rows."""
    (rows, columns), (cluster_m, cluster_n) = config.tile, config.cluster
    for tile, sharers in zip(config.operands(spec), config.sharers, strict=True):
        chunks = tile.image_rows // tile.chunk
        parts = (tile.image_rows,) if tile.major == "k" else (chunks, tile.slice_k)
        if all(count % sharers for count in parts):
            yield Violation(
                f"slices of {tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns} in a {cluster_m}x{cluster_n} cluster: {tile.name.upper()}'s "
                f"{tile.image_rows} rows are fetched in {sharers} equal slices",
            )


def shared_memory_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """The stages fit beside everything else in shared memory."""
    budget, least = config.stage_budget(chip, spec), config.least_stages
    if budget < least:
        inputs, output = least * config.stage_bytes(spec), config.output_bytes(spec)
        yield Violation(
            "shared memory",
            "tile",
            f"shared memory: {least} stage{'s' if least > 1 else ''} of {config.stage_bytes(spec)} B and {output} B of "
            f"output slabs are {config.shared_bytes(spec, least) - chip.shared_bytes} B over the {chip.shared_bytes} B "
            f"of a CTA; the {'input stages' if inputs > output else 'output slabs'} are the largest object",
        )
    elif config.stages is not None and not least <= config.stages <= budget:
        over = config.shared_bytes(spec, config.stages) - chip.shared_bytes
        why = (
            config.least_stages_reason
            if config.stages < least
            else f"{over} B over the {chip.shared_bytes} B of a CTA"
            if over > 0
            else "more hide no more latency"
        )
        yield Violation("stages", "stages", f"stages={config.stages}: {least} to {budget} fit ({why})")


def common_values(field: str, config: KernelConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    """Values to suggest of the fields that these rules are about."""
    if field == "cluster":
        return [(m, n) for m in range(1, chip.max_cluster + 1) for n in range(1, chip.max_cluster // m + 1)]
    if field == "stages":
        return range(1, config.stage_budget(chip, spec) + 1)
    return {"raster_group": [1], "profile_tiles": [0, MAX_PROFILE]}[field]


def stored_columns(config: KernelConfig, spec: MatmulSpec) -> int:
    """Columns that the epilogue stores at once: 8 of a fragment, but a row of a box has at least 16 bytes.

    Transposed, the columns are the box's rows.
    """
    boxed = spec.store == "tma" and not config.swap_ab
    return max(FRAGMENT_COLUMNS, BOX_BYTES // spec.out_dtype.bytes if boxed else 0)
