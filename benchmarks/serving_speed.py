"""Speed and memory of the serving simulation, curves given: `python benchmarks/serving_speed.py`.

The study's shape (six prefill workers, one decode worker, 8192 tokens in, 1024 out, 250
requests/s) with coefficients near those lowered for it. Prints seconds, events and the peak
memory that the run added; the last line doubles the output length, which must change neither.
"""

from __future__ import annotations

import resource
import time

import numpy as np  # noqa: F401  (imported before the clock starts, as are the curves)

from xla_cost.serving.curves import LatencyCurves, affine_decode, affine_prefill
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.simulate import simulate
from xla_cost.serving.system import Pool, System


def system() -> System:
    """Six prefill workers of 8 and a decode worker of 24."""
    prefill = LatencyCurves(prefill=affine_prefill(3e-3, 9.3e-6), devices=8)
    decode = LatencyCurves(decode=affine_decode(3.3e-3, 2e-6, 6.5e-10), devices=24)
    return System(
        prefill=Pool("prefill", 6, prefill, token_budget=4 * 8192),
        decode=Pool("decode", 1, decode),
        first_token="decode",
    )


def measure(requests: int, in_flight: int, output: int) -> None:
    """Run once and print a line."""
    load = Load(
        rate_per_s=250.0,
        in_flight=in_flight,
        input_tokens=Lengths(mean=8192),
        output_tokens=Lengths(mean=output),
        requests=requests,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    run = simulate(system(), load)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{requests:8d} requests, {in_flight} in flight, {output} tokens out: {wall:6.2f} s wall, "
        f"{cpu:6.2f} s CPU, {run.sent} simulated, {run.events} events, "
        f"{run.end['decoded_units'] // 1024} tokens, {grown:.0f} MiB more"
    )


if __name__ == "__main__":
    measure(600, 256, 64)  # warm
    measure(6144, 2048, 1024)
    measure(6144, 6144, 1024)
    measure(100_000, 2048, 1024)
    measure(100_000, 2048, 2048)
