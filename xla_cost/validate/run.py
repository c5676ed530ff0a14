"""Which comparisons run, and what has to be left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xla_cost.errors import XlaCostError
from xla_cost.validate.points import Point

#: what may be asked for; "decode" needs the `calibrate` extra
PARTS = ("network", "kernels", "prefill", "decode")
#: quoted measurements that went into a machine file, and so prove nothing
USED = (
    "DeepEP EP16 (43 GB/s dispatch and combine): the scale-out efficiency of the machine files "
    "was set from it",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The points of each part that ran, and what was left out and why."""

    parts: dict[str, tuple[Point, ...]]
    skipped: tuple[str, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """Points of all parts."""
        return tuple(point for part in self.parts.values() for point in part)


def validate(
    parts: Sequence[str] = PARTS, report: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Run the named parts. Raises XlaCostError for an unknown one.

    `network` and `kernels` take seconds; `prefill` and `decode` partition programs, which are
    cached. Without the extra `decode` is skipped with a word.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise XlaCostError(f"validate: part {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    found: dict[str, tuple[Point, ...]] = {}
    skipped = list(USED)
    for part in PARTS:
        if part not in parts:
            continue
        if part == "decode" and not _has_extra():
            skipped.append("decode: aiconfigurator-core is not installed (the `calibrate` extra)")
            continue
        report(part)
        found[part] = tuple(_points(part, report))
    return Outcome(found, tuple(skipped))


def _has_extra() -> bool:
    from xla_cost.calibrate import is_installed

    return is_installed()


def _points(part: str, report: Callable[[str], None]) -> Sequence[Point]:
    if part == "network":
        from xla_cost.validate.network_points import network_points

        return network_points()
    if part == "kernels":
        from xla_cost.validate.kernel_points import kernel_points

        return kernel_points()
    if part == "prefill":
        from xla_cost.validate.serving_points import prefill_points

        return prefill_points()
    from xla_cost.validate.silicon import decode_points

    return list(decode_points(report))
