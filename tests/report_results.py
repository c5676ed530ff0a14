"""Result files of every kind, small, made by the code that makes the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from price_programs import dot, gather, loop, machine, permute, program, vector

from xla_cost.jsonio import plain
from xla_cost.machine import Tier
from xla_cost.policy import STUDY
from xla_cost.price import compare, price
from xla_cost.price.as_json import estimate_json
from xla_cost.program import Body, Program
from xla_cost.provenance import provenance
from xla_cost.serving.result_io import to_json as serving_json
from xla_cost.serving.results import Distribution, ServeResult

#: what somebody who wants to run a script in the reader's browser would call an op
HOSTILE = "</script><img src=x onerror=\"window.hacked='yes'\"><!--<script>\u2028__proto__ {0} &lt;"


def toy_program(scope: str = "layer/ffn", name: str = "dot") -> Program:
    """Three trips of: a matmul of 2 s, a gather over 8 devices, a permute, an element-wise op."""
    body = Body(
        (
            dot(name, (), 2.0, scope=scope),
            gather("gather", (0,), 40, 8, scope="layer/comm"),
            permute("permute", (0,), 300, scope="layer/comm/shift"),
            replace(vector("add", "add", (1,), 200, 100), scope="layer/norm"),
        ),
        peak_live_bytes=100,
    )
    return program(loop(body, 3), dot("head", (0,), 1.0, scope="head"), devices=8)


def toy_machines() -> tuple[Any, Any]:
    """Pods of 4 and pods of 64, otherwise alike."""
    photonic = Tier("scale-up", 64, "switch", 200.0, 0.0, 1e-3)
    copper = machine()
    return copper, replace(copper, name="toy-photonic", tiers=(photonic, copper.tiers[1]))


def estimate_result(hostile: str = "") -> dict[str, Any]:
    """`estimate --json` on two machines; with `hostile` every free text is that."""
    rules = replace(STUDY, priced_kinds=STUDY.priced_kinds | {"vector"})
    made = toy_program(hostile or "layer/ffn", hostile or "dot")
    first, second = (price(made, one, rules) for one in toy_machines())
    header = {
        "model": hostile or "toy", "phase": "prefill", "seq": 16, "batch": 8, "format": "fp8",
        "plan": hostile or "study", "policy": "study",
        "mesh": {"axes": ["x", "y", "z"], "shape": [2, 4, 1], "devices": 8},
    }  # fmt: skip
    facts = {"facts": {"notes": [hostile or "a note"], "padding": {"head_share": 0.25}}}
    answer = estimate_json(
        header, [first, second], compare(first, second), provenance(["estimate", "toy"], facts)
    )
    if hostile:
        for result in answer["results"]:
            result["warnings"] = [hostile]
            result["machine"] = hostile
    return _stored(answer)


def search_result() -> dict[str, Any]:
    """`search --json` with two ranked meshes, one rejected, and the winner in full."""
    estimate = estimate_result()
    rows = [
        {"mesh": [2, 4, 1], "plan": "study", "placement": "xyz", "microbatches": 1,
         "latency_s": 1.0, "compute_s": 0.75, "comm_s": 0.5, "exposed_comm_s": 0.25, "fits": True},
        {"mesh": [1, 8, 1], "plan": "study", "placement": "xyz", "microbatches": 1,
         "latency_s": 1.5, "compute_s": 0.75, "comm_s": 0.9, "exposed_comm_s": 0.75, "fits": True},
    ]  # fmt: skip
    one = {
        "machine": "toy", "policy": "study", "candidates": 3, "evaluated": 2, "lowered": 2,
        "from_cache": 0, "elapsed_s": 3.0, "best": rows,
        "counts": {"ranked": 2, "rejected_before_lowering": 1, "pruned_by_bound": 0},
        "rejected": [{"mesh": [8, 1, 1], "plan": "study", "why": "3 experts over 8 devices"}],
        "why": [{"part": "comm", "winner_s": 0.25, "runner_up_s": 0.75}],
    }  # fmt: skip
    winner = {key: value for key, value in estimate.items() if key != "provenance"}
    return {**one, "input": {"model": "toy", "devices": 8}, "against": one, "winner": winner}


def sweep_result() -> dict[str, Any]:
    """`sweep --json`: 2 lengths x 2 sizes x copper and photons; latency and so ratio known."""
    rows = []
    for seq in (1024, 8192):
        for devices in (8, 16):
            for name, speed in (("toy", 1.0), ("toy-photonic", 2.0 if devices == 8 else 4.0)):
                seconds = seq / devices / speed
                rows.append({
                    "model": "toy", "phase": "prefill", "seq": seq, "batch": 4, "format": "fp8",
                    "devices": devices, "machine": name, "policy": "study", "mesh": "2x4x1",
                    "plan": "study", "latency_s": seconds, "compute_s": seconds / 4,
                    "comm_s": seconds, "exposed_comm_s": seconds * 0.75, "fits": True,
                })  # fmt: skip
    rows[0] = {key: rows[0][key] for key in list(rows[0])[:8]} | {"why": "nothing fits"}
    return {"rows": rows, "computed": 8, "reused": 0, "files": []}


def serve_result() -> dict[str, Any]:
    """`serve --json` with a series."""
    times = Distribution(0.2, 0.1, 0.4, 1.5, 4.0, 0.01)
    numbers = dict.fromkeys(ServeResult.__slots__, 0.5)
    fields: dict[str, Any] = {
        **numbers, "requests": 100, "bottleneck": "prefill", "devices": 8, "decode_batch_max": 7,
        "series": {"decode_batch": ((0.0, 1.0), (1.0, 5.0), (2.0, 3.0))},
    }  # fmt: skip
    for name in ("ttft_s", "tpot_s", "inter_token_s", "e2e_s", "wait_outside_s"):
        fields[name] = times
    made = serving_json(ServeResult(**fields))
    return _stored({"machine": "toy", **made, "against": [{"machine": "toy-photonic", **made}]})


def study_result() -> dict[str, Any]:
    """`study --json`, one entry of everything."""
    bar = {"step": "flash attention", "how": "alone", "ratio": 2.5}
    return {
        "kind": "study",
        "ratios": [
            {"model": "r1", "format": "fp4", "machine": "b300", "seq": 8192, "devices": devices,
             "batch": 4, "reading": "reading-1", "ratio": ratio, "deviation": 0.1}
            for devices, ratio in ((72, 2.0), (288, 3.0))
        ],
        "components": [{"point": "8K/72", "component": "compute", "ours_s": 1.0, "study_s": 2.0}],
        "sweeps": [],
        "waterfalls": [{"machine": "b300", "point": "8K/72", "bars": [bar]}],
        "sensitivity": [{"machine": "b300", "point": "8K/72", "samples": [
            {"parameter": "link latency", "value": value, "ratio": 2.0} for value in (1, 2)]}],
        "files": [],
    }  # fmt: skip


def demo_result() -> dict[str, Any]:
    """`demo --json` with two points."""
    estimate = estimate_result()
    request = {"model": "toy", "seq": 16, "batch": 8, "mesh": [2, 4, 1]}
    return {"points": [{**estimate, "request": request}] * 2, "provenance": provenance(["demo"])}


def inspect_result() -> dict[str, Any]:
    """`inspect --json` of one module."""
    module = {"file": "a.hlo", "flops": 12, "flops_by_format": {"bf16": 12}, "coverage": 1.0}
    return {"modules": [module], "failed": [{"file": "b.hlo", "error": "cut"}]}


RESULTS = {
    "estimate": estimate_result,
    "search": search_result,
    "sweep": sweep_result,
    "serve": serve_result,
    "study": study_result,
    "demo": demo_result,
    "inspect": inspect_result,
}


def _stored(value: Any) -> dict[str, Any]:
    """As it comes back from a file."""
    found: dict[str, Any] = json.loads(json.dumps(plain(value)))
    return found
