"""The rows of a sweep as one tidy table and as a labelled cube."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_cost.jsonio import replace_file

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: columns that say which point a row is; the rest is what was found there
DIMENSIONS = ("model", "phase", "seq", "batch", "format", "devices", "machine", "policy")
MEASURES = ("latency_s", "compute_s", "comm_s", "exposed_comm_s", "energy_j")


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row per point, with throughput and, where a photonic twin was swept, the ratio.

    `tokens_per_s_per_device` is what one device processes; `ratio` on a copper row is its
    latency over that of the machine called `NAME-photonic` at the same point.
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    for column in (*MEASURES, "mesh", "plan", "why"):
        if column not in frame:
            frame[column] = None
    tokens = frame["batch"] * frame["seq"].where(frame["phase"] == "prefill", 1)
    latency = frame["latency_s"].astype("float64")
    frame["tokens_per_s_per_device"] = tokens / latency / frame["devices"]
    keys = [d for d in DIMENSIONS if d != "machine"]
    twins = frame[frame["machine"].str.endswith("-photonic")]
    twins = twins.assign(machine=twins["machine"].str.removesuffix("-photonic"))
    twins = twins[[*keys, "machine", "latency_s"]].rename(columns={"latency_s": "twin_latency_s"})
    frame = frame.merge(twins, how="left", on=[*keys, "machine"])
    frame["ratio"] = latency / frame.pop("twin_latency_s").astype("float64")
    return frame


def cube(frame: pd.DataFrame) -> xr.Dataset:
    """The numeric columns over the dimensions of the sweep; absent points are NaN."""
    numbers = [*MEASURES, "tokens_per_s_per_device", "ratio"]
    indexed = frame.set_index(list(DIMENSIONS))[numbers].astype("float64")
    dataset: xr.Dataset = indexed.to_xarray()
    return dataset


def write_tables(rows: Sequence[dict[str, Any]], out: Path) -> tuple[Path, ...]:
    """`table.parquet`, `table.csv` and `cube.nc` (netCDF 3) in `out`, each whole or not at all."""
    frame = table(rows)
    files = {
        "table.parquet": frame.to_parquet(),
        "table.csv": frame.to_csv(index=False).encode(),
        "cube.nc": bytes(cube(frame).to_netcdf(engine="scipy")),
    }
    for name, data in files.items():
        replace_file(out / name, data, sync=True)
    return tuple(out / name for name in files)
