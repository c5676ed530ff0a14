"""Every speed that was promised, measured in one run beside its aim or its peer: `make bench`.

    python benchmarks/run.py [--cold] [--no-search]

Seconds are processor seconds (user and system, all threads, children included), because these
hardly depend on what else the machine does; `aim / found` above 1 means that the aim is met.
The search uses the user's cache; with `--cold` it starts from an empty one, which takes a minute
or more. Single parts in more detail: the other files of this folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = HERE.parent / "tests" / "hlo_modules" / "oracle" / "collectives.hlo"
SEARCH = (
    "search r1 --devices 288 --machine b300 --seq 131072 --batch 64 --plan study --quiet --json -"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One speed: what was found, what it should be, and whether more or less is better."""

    what: str
    found: float
    aim: float
    unit: str
    more_is_better: bool = False
    is_peer: bool = False  # the aim is another program's speed in this run, not a promise

    @property
    def ratio(self) -> float:
        """Above 1 where the aim is met or the peer beaten."""
        return self.found / self.aim if self.more_is_better else self.aim / self.found


def main() -> int:
    """Measure and print; 1 where a promise does not hold."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--cold", action="store_true", help="search from an empty cache, too")
    arguments.add_argument("--no-search", action="store_true", help="leave the search out")
    options = arguments.parse_args()
    print(f"{'':34} {'found':>10} {'aim/peer':>10} {'':9} ratio")
    missed = 0
    parts = [reader, start_up, lowering_and_pricing, serving]
    if not options.no_search:
        parts.insert(3, lambda: searching(options.cold))
    for part in parts:
        for row in part():
            holds = "peer" if row.is_peer else "ok" if row.ratio >= 1 else "MISSED"
            missed += holds == "MISSED"
            print(f"{row.what:34} {row.found:10.4g} {row.aim:10.4g} {row.unit:9} "
                  f"{row.ratio:5.2f} {holds}", flush=True)  # fmt: skip
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 1 if missed else 0


def best_s(work: Callable[[], object], repeats: int = 5) -> float:
    """Least processor seconds of `repeats` runs in this process."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def child_s(*command: str, repeats: int = 5) -> float:
    """Least processor seconds of a command of its own, its modules compiled before."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(HERE.parent / "build" / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def reader() -> Iterator[Row]:
    """The HLO reader beside XLA's own parser on the same text, and its memory."""
    from hlo_reader import synthetic, touch, xla_parser

    from xla_cost.hlo import parse

    text = synthetic()
    size_mb = len(text.encode()) / 1e6
    speed = size_mb / best_s(lambda: touch(parse(text)))
    yield Row("HLO reader", speed, 6.0, "MB/s", more_is_better=True)
    xla = xla_parser()
    if xla is not None:
        theirs = size_mb / best_s(lambda: xla(text))
        yield Row("  beside XLA's parser", speed, theirs, "MB/s", True, True)
    tracemalloc.start()
    touch(parse(text))
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    yield Row("  memory over the file", peak_mb / size_mb, 20.0, "x")


def start_up() -> Iterator[Row]:
    """Commands that must answer at once, beside a Python that does nothing."""
    python = [sys.executable, "-m", "xla_cost"]
    child_s(*python, "inspect", str(MODULE), repeats=1)  # compiles
    nothing_s = child_s(sys.executable, "-c", "pass")
    help_s, inspect_s = child_s(*python, "--help"), child_s(*python, "inspect", str(MODULE))
    yield Row("xla-cost --help", help_s, 0.3, "s")
    yield Row("  beside an empty Python", help_s, nothing_s, "s", is_peer=True)
    yield Row("xla-cost inspect", inspect_s, 0.5, "s")
    yield Row("  beside an empty Python", inspect_s, nothing_s, "s", is_peer=True)


def lowering_and_pricing() -> Iterator[Row]:
    """One warm lowering of R1 on 288 devices, its walk, and its price on another machine."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before jax is imported
    from lowering import lower_once

    from xla_cost.hlo import parse
    from xla_cost.lowering import ensure_devices
    from xla_cost.machine import load
    from xla_cost.price import price
    from xla_cost.walk import walk

    ensure_devices()
    mesh = (2, 144, 1)
    lower_once(mesh)
    hlo = lower_once(mesh)[2]
    yield Row("one warm lowering of R1", min(lower_once(mesh)[1] for _ in range(4)), 0.5, "s")
    program = walk(parse(hlo.text)[0])
    b300, light = load("b300"), load("b300-photonic")
    price(program, b300, "calibrated")
    again_s = best_s(lambda: price(program, light, "calibrated").latency_s, 20)
    yield Row("re-pricing R1, calibrated", 1e3 * again_s, 2.0, "ms")
    price(program, b300, "study")
    again_s = best_s(lambda: price(program, light, "study").latency_s, 20)
    yield Row("re-pricing R1, study", 1e3 * again_s, 2.0, "ms")


def searching(cold: bool) -> Iterator[Row]:
    """R1 on 288 devices, one plan, all shapes; wall seconds that the search itself reports."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"XLA_COST_CACHE": folder} if cold else {}
        first, again = _search(cache), _search(cache)
    if first["lowered"]:
        yield Row(f"search, {first['lowered']} lowered", first["elapsed_s"], 60.0, "s (wall)")
    yield Row("search from the cache", again["elapsed_s"], 2.0, "s (wall)")


def _search(environment: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "xla_cost", *SEARCH.split()],
        check=True, capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def serving() -> Iterator[Row]:
    """The simulation of the study's scenario, latency curves given."""
    from serving_speed import system

    from xla_cost.serving.load import Lengths, Load
    from xla_cost.serving.simulate import simulate

    load = Load(
        arrivals="poisson", rate_per_s=250.0, in_flight=2048, requests=6144, warmup=0, seed=1,
        input_tokens=Lengths("fixed", 8192), output_tokens=Lengths("fixed", 1024),
    )  # fmt: skip
    simulate(system(), replace(load, requests=100))
    yield Row("serving, 6144 requests", best_s(lambda: simulate(system(), load), 3), 1.0, "s")
    many = replace(load, requests=100_000)
    yield Row("serving, 100,000 requests", best_s(lambda: simulate(system(), many), 1), 20.0, "s")


if __name__ == "__main__":
    sys.exit(main())
