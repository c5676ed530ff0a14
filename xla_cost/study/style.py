"""How the study's figures look: readable at column width, in grey and to the colour-blind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's palette ("Color Universal Design", 2008), which dichromats can tell apart.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
COPPER, PHOTONIC, COMPUTE = VERMILION, BLUE, GREEN
MARKERS = "osD^vPX*"
_DPI = 200
#: Inches: one column of a two-column paper, and the full width.
COLUMN_WIDTH, PAGE_WIDTH = 3.5, 7.16


@contextmanager
def figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Yields (figure, axes as a flat list). Draws off screen and closes the figure after."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    with plt.rc_context(
        {
            "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7,
            "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.spines.top": False,
            "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
            "grid.linewidth": 0.5, "lines.linewidth": 1.3, "lines.markersize": 4,
            "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "xla_cost",
            "figure.constrained_layout.use": True,
        }
    ):  # fmt: skip
        made, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
        try:
            yield made, [axis for row in grid for axis in row]
        finally:
            plt.close(made)


def save(made: Figure, folder: Path, name: str) -> list[Path]:
    """Write NAME.png (200 dpi) and NAME.svg, the same bytes for the same data."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    made.set_dpi(_DPI)
    # laid out once, at the size of the PNG: an engine that stays draws everything twice per file
    engine = made.get_layout_engine()
    if engine is not None:
        engine.execute(made)
    with plt.rc_context({"figure.constrained_layout.use": False}):
        made.set_layout_engine(None)
        made.savefig(paths[0], dpi=_DPI)
        made.savefig(paths[1], metadata={"Date": None})
    return paths
