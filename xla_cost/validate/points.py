"""One comparison of a prediction with a measurement, and the bars they are held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

#: group -> largest median error that counts as a pass; groups without one are only shown
BARS: Mapping[str, float] = {
    "multi-rack all-reduce": 0.15,
    "nccl above 16 MiB": 0.15,
    "deepep": 0.15,
    "nvlink all-to-all": 0.15,
    "prefill throughput": 0.15,
    "decode tpot": 0.20,
}


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured and what we predict, in `unit`.

    `source` is who measured. `cause` says why a prediction misses its bar, where that is
    known; it changes nothing.
    """

    group: str
    name: str
    machine: str
    unit: str
    measured: float
    predicted: float
    source: str
    cause: str = ""

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0

    @property
    def misses(self) -> bool:
        """Whether it is further off than the bar of its group."""
        return abs(self.error) > BARS.get(self.group, float("inf"))


@dataclass(frozen=True, slots=True)
class Summary:
    """A group: how many points, their median and largest |error|, and its bar if any."""

    group: str
    points: int
    median_error: float
    max_error: float
    bar: float | None
    missed: int

    @property
    def passes(self) -> bool | None:
        """Whether the median error is within the bar; None without one."""
        return None if self.bar is None else self.median_error <= self.bar


def summaries(points: Sequence[Point]) -> list[Summary]:
    """One per group, in the order in which groups first appear."""
    found = []
    for group in dict.fromkeys(point.group for point in points):
        errors = [abs(point.error) for point in points if point.group == group]
        missed = sum(point.misses for point in points if point.group == group)
        found.append(
            Summary(group, len(errors), median(errors), max(errors), BARS.get(group), missed)
        )
    return found


def describe(points: Sequence[Point], skipped: Sequence[str]) -> dict[str, Any]:
    """JSON-ready: groups with their errors, every point, and what was left out and why."""
    groups = [
        {
            "group": one.group, "points": one.points, "median_error": one.median_error,
            "max_error": one.max_error, "bar": one.bar, "passes": one.passes,
            "missed": one.missed,
        }
        for one in summaries(points)
    ]  # fmt: skip
    rows = [
        {
            "group": point.group, "name": point.name, "machine": point.machine,
            "unit": point.unit, "measured": point.measured, "predicted": point.predicted,
            "error": point.error, "misses": point.misses, "source": point.source,
            "cause": point.cause,
        }
        for point in points
    ]  # fmt: skip
    return {"groups": groups, "points": rows, "skipped": list(skipped)}
