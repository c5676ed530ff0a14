"""The same load on `dynamo.replay` (ai-dynamo 1.4.2) and on this simulation, side by side.

    python benchmarks/against_dynamo_replay.py --dynamo-python /path/to/venv/bin/python

`ai-dynamo` is optional and lives in an environment of its own (`pip install ai-dynamo==1.4.2`);
without `--dynamo-python` only our side runs. Both read the same curves: ours, exported to the
NPZ that the mock engine interpolates. The replay takes the load as a Mooncake-style trace that
this script writes, so arrivals are equal to the millisecond.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from xla_cost.serving.clock import TICKS_PER_S
from xla_cost.serving.curves import DecodeCurve, LatencyCurves, affine_prefill
from xla_cost.serving.export import export_npz
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.results import summarise
from xla_cost.serving.simulate import simulate
from xla_cost.serving.system import Mtp, Pool, System
from xla_cost.serving.trace import read_trace

INPUT, OUTPUT = 8192, 1024


def system() -> System:
    """Six prefill workers and one decode worker, one prompt in a prefill batch."""
    prefill = LatencyCurves(prefill=affine_prefill(3e-3, 9.3e-6), devices=8)
    batches, contexts = (1, 8192), (4096, 8192, 16384)
    steps = tuple(tuple(3.3e-3 + 2e-6 * b + 6.5e-10 * b * c for c in contexts) for b in batches)
    decode = LatencyCurves(decode=DecodeCurve(batches, contexts, steps), devices=24)
    return System(
        prefill=Pool("prefill", 6, prefill, token_budget=INPUT),
        decode=Pool("decode", 1, decode, max_batch=8192),
    )


def write_trace(path: Path, requests: int, rate: float) -> None:
    """A Mooncake-style trace without shared prefixes."""
    load = Load(
        rate_per_s=rate,
        input_tokens=Lengths(mean=INPUT),
        output_tokens=Lengths(mean=OUTPUT),
        requests=requests,
        seed=5,
    )
    with path.open("w", encoding="utf-8") as file:
        for request in islice(load.generate(Mtp()), requests):
            blocks = INPUT // 512
            row = {
                "timestamp": round(request.arrival / TICKS_PER_S * 1000),
                "input_length": INPUT,
                "output_length": OUTPUT,
                "hash_ids": list(range(request.index * blocks, (request.index + 1) * blocks)),
            }
            file.write(json.dumps(row) + "\n")


def ours(trace: Path) -> dict[str, float]:
    """Our numbers for the trace; `seconds` is the simulation's wall time."""
    load = replace(Load(), arrivals="trace", trace=read_trace(trace))
    began = time.perf_counter()
    asked = system()
    result = summarise(asked, simulate(asked, load))
    return {
        "seconds": time.perf_counter() - began,
        "mean_ttft_ms": result.ttft_s.mean * 1e3,
        "p99_ttft_ms": result.ttft_s.p99 * 1e3,
        "mean_tpot_ms": result.tpot_s.mean * 1e3,
        "p99_tpot_ms": result.tpot_s.p99 * 1e3,
        "mean_e2e_latency_ms": result.e2e_s.mean * 1e3,
        "p99_e2e_latency_ms": result.e2e_s.p99 * 1e3,
        "request_throughput_rps": result.requests_per_s,
    }


def theirs(python: str, trace: Path, curves: Path, report: Path) -> dict[str, float]:
    """What the replay reports; `seconds` is its own wall time, without the start of Python.

    Raises SystemExit where it did not take our curves: it then goes on with a built-in
    polynomial and says so in its log only.
    """
    engine = {
        "planner_profile_data": str(curves),
        "block_size": 64,  # it counts whole blocks: at 512 a step reads 3 % more cache
        "num_gpu_blocks": 1 << 25,
        "max_num_seqs": 8192,
        "enable_prefix_caching": False,
        # with it a prompt that was cut at the budget hands over when nothing waits any more
        "enable_chunked_prefill": False,
    }
    prefill = json.dumps({**engine, "worker_type": "prefill", "max_num_batched_tokens": INPUT})
    decode = json.dumps({**engine, "worker_type": "decode", "max_num_batched_tokens": 1 << 20})
    command = [
        python, "-m", "dynamo.replay", str(trace), "--replay-mode", "offline",
        "--router-mode", "round_robin", "--trace-block-size", "512",
        "--prefill-engine-args", prefill, "--decode-engine-args", decode,
        "--num-prefill-workers", "6", "--num-decode-workers", "1",
        "--report-json", str(report),
    ]  # fmt: skip
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    if "Falling back" in run.stdout + run.stderr:
        raise SystemExit("dynamo.replay did not take the curves, see `Falling back` in its log")
    found = json.loads(report.read_text(encoding="utf-8"))
    return {"seconds": found["wall_time_ms"] / 1e3, **found}


def main() -> None:
    """Run both and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dynamo-python", default="", help="python with ai-dynamo 1.4.2")
    parser.add_argument("--requests", type=int, default=6144)
    parser.add_argument("--rate", type=float, nargs="+", default=[1.0, 60.0, 250.0])
    asked = parser.parse_args()
    if not asked.dynamo_python:
        print("dynamo.replay: left out, no --dynamo-python given")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / "trace.jsonl"
        curves = export_npz(system(), folder / "curves.npz")
        for rate in asked.rate:
            write_trace(trace, asked.requests, rate)
            mine, other = ours(trace), {}
            if asked.dynamo_python:
                other = theirs(asked.dynamo_python, trace, curves, folder / "report.json")
            print(f"\n{asked.requests} requests, {rate:g} a second")
            print(f"{'':24}{'xla-cost':>14}{'dynamo.replay':>16}{'difference':>12}")
            for key, value in mine.items():
                line = f"{key:24}{value:14.3f}"
                if key in other:
                    line += f"{other[key]:16.3f}{value / other[key] - 1:+12.2%}"
                print(line)


if __name__ == "__main__":
    main()
