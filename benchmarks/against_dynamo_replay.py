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
from typing import Any

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
    batches, contexts = (1, 2048), (4096, 8192, 16384)
    steps = tuple(tuple(3.3e-3 + 2e-6 * b + 6.5e-10 * b * c for c in contexts) for b in batches)
    decode = LatencyCurves(decode=DecodeCurve(batches, contexts, steps), devices=24)
    return System(
        prefill=Pool("prefill", 6, prefill, token_budget=INPUT),
        decode=Pool("decode", 1, decode, max_batch=2048),
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
    """Our numbers for the trace."""
    load = replace(Load(), arrivals="trace", trace=read_trace(trace))
    began = time.perf_counter()
    asked = system()
    result = summarise(asked, simulate(asked, load))
    return {
        "seconds": time.perf_counter() - began,
        "ttft_mean_ms": result.ttft_s.mean * 1e3,
        "ttft_p99_ms": result.ttft_s.p99 * 1e3,
        "tpot_mean_ms": result.tpot_s.mean * 1e3,
        "e2e_mean_ms": result.e2e_s.mean * 1e3,
        "requests_per_s": result.requests_per_s,
    }


def theirs(python: str, trace: Path, curves: Path, report: Path) -> dict[str, Any]:
    """What the replay reports, and its wall time (start of the process included)."""
    engine = {
        "planner_profile_data": str(curves),
        "block_size": 512,
        "num_gpu_blocks": 1 << 22,
        "max_num_seqs": 2048,
        "enable_prefix_caching": False,
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
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, **json.loads(report.read_text(encoding="utf-8"))}


def main() -> None:
    """Run both and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dynamo-python", default="", help="python with ai-dynamo 1.4.2")
    parser.add_argument("--requests", type=int, default=6144)
    parser.add_argument("--rate", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace, curves = folder / "trace.jsonl", folder / "curves.npz"
        write_trace(trace, asked.requests, asked.rate)
        export_npz(system(), curves)
        print("xla-cost")
        for key, value in ours(trace).items():
            print(f"  {key:24}{value:14.3f}")
        if not asked.dynamo_python:
            print("dynamo.replay: left out, no --dynamo-python given")
            return
        print("dynamo.replay")
        found = theirs(asked.dynamo_python, trace, curves, folder / "report.json")
        for key, value in found.items():
            if isinstance(value, (int, float)):
                print(f"  {key:24}{value:14.3f}")


if __name__ == "__main__":
    main()
