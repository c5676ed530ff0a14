"""How long a mesh search of R1 on 288 devices takes, cold and from the cache, part by part.

    .venv/bin/python benchmarks/search.py [PROCESSES]

One plan, all 126 shapes, 128K x 64 under the calibrated policy, in a cache of its own. The aims,
on two quiet cores: 60 s cold, 2 s from the cache (a fresh process, without jax and without dask),
2 ms to price a cached program on another machine. `every shape` searches with `top` so large that
no bound prunes anything, `top 10` as the command line does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

SHAPES = 126
COMMAND = (
    "-m", "xla_cost", "search", "r1", "--devices", "288", "--machine", "b300", "--seq", "131072",
    "--batch", "64", "--ignore-memory", "--json", os.devnull, "--quiet",
)  # fmt: skip


@contextmanager
def part(name: str) -> Iterator[None]:
    """Print how long the block took, and the CPU seconds of this process in it."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:<52} {wall:8.3f} s, {cpu:8.3f} s of CPU here")


def command(top: int, processes: int) -> None:
    """`xla-cost search` in a process of its own."""
    subprocess.run(
        [sys.executable, *COMMAND, "--top", str(top), "--processes", str(processes)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def main() -> None:
    """Print one line per part."""
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_COST_CACHE"] = folder
        with part(f"cold, every shape, {processes} processes"):
            command(SHAPES, processes)
        with part("from the cache, every shape"):
            command(SHAPES, processes)
        with part("from the cache, top 10"):
            command(10, processes)
        _inside()


def _inside() -> None:
    """The parts of a search from the cache, in this process."""
    with part("imports"):
        from xla_cost.machine import load
        from xla_cost.price import price
        from xla_cost.programs import Request
        from xla_cost.search.candidates import space
        from xla_cost.search.engine import search
        from xla_cost.search.model_problem import ModelProblem
    heavy = [name for name in ("jax", "distributed", "pandas", "matplotlib") if name in sys.modules]
    print(f"  heavy modules imported: {', '.join(heavy) or 'none'}")
    problem = ModelProblem(Request("r1", (288, 1, 1), 131072, 64))
    candidates = space(288, ("study",))
    copper, photonic = load("b300"), load("b300-photonic")
    with part("126 layouts and bounds"):
        for candidate in candidates:
            if problem.reject(candidate) is None:
                problem.bound_s(candidate, copper, _calibrated())
    with part("search, figures kept"):
        found = search(problem, candidates, copper, _calibrated(), top=SHAPES, need_fit=False)
    print(f"  {found.from_cache} from the cache, {found.lowered} lowered")
    with part("search on the twin, programs read and priced"):
        search(problem, candidates, photonic, _calibrated(), top=SHAPES, need_fit=False)
    faster = replace(copper, memory_bytes_per_s=2 * copper.memory_bytes_per_s)
    with part("search on a third machine, programs at hand"):
        search(problem, candidates, faster, _calibrated(), top=SHAPES, need_fit=False)
    program = found.ranking[0].estimate.program
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        price(program, photonic, _calibrated())
        seconds.append(time.perf_counter() - start)
    print(f"{'one cached program on another machine, fastest':<52} {1e3 * min(seconds):8.3f} ms")


def _calibrated() -> Any:
    from xla_cost.policy import CALIBRATED

    return CALIBRATED


if __name__ == "__main__":
    main()
