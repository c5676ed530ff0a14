"""`xla-cost estimate`, end to end, on the smoke-test model and on the main job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xla_cost.cli import app as cli

R1 = ("r1", "--against", "b300-photonic", "--policy", "study")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_COST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def run(capfd, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["estimate", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def answer(capfd, *arguments: str) -> dict:
    code, out, err = run(capfd, *arguments, "--json", "-")
    assert code == 0, err
    return json.loads(out)


TINY = ("tiny", "--mesh", "2x4x1", "--machine", "b300", "--seq", "16", "--batch", "8")


def test_tiny_on_eight_devices(capfd):
    """The 8-device check: what the interface promises, with the collectives of the plan."""
    found = answer(capfd, *TINY)
    assert found["mesh"] == {"axes": ["x", "y", "z"], "shape": [2, 4, 1], "devices": 8}
    assert {key: found[key] for key in ("model", "phase", "seq", "batch", "format", "plan",
            "policy")} == {"model": "tiny", "phase": "prefill", "seq": 16, "batch": 8,
                           "format": "fp4", "plan": "study", "policy": "calibrated"}  # fmt: skip
    assert found["program"]["coverage"] == 1.0
    assert found["program"]["unpriced"] == []
    layers = sum(loop["trips"] for loop in found["program"]["loops"])
    moved = {(c["kind"], c["scope"].split("/", 1)[-1]): 0 for c in found["program"]["collectives"]}
    for row in found["program"]["collectives"]:
        moved[row["kind"], row["scope"].split("/", 1)[-1]] += row["executions"]
    assert moved["all-gather", "attention/gather"] == layers
    assert moved["reduce-scatter", "attention/scatter"] == layers
    assert moved["all-to-all", "moe/dispatch"] == moved["all-to-all", "moe/combine"]
    (result,) = found["results"]
    assert result["latency_s"] >= result["compute_s"] > 0.0
    assert result["exposed_comm_s"] == pytest.approx(result["latency_s"] - result["compute_s"])
    assert result["memory"]["fits"] is True
    assert found["ratio"] == 1.0
    exposed = sum(row["exposed_comm_s"] for row in result["by_scope"])
    assert exposed == pytest.approx(result["exposed_comm_s"], abs=1e-12)
    assert sum(row["compute_s"] for row in result["by_scope"]) == pytest.approx(result["compute_s"])
    assert found["provenance"]["versions"]["jax"]
    assert len(found["program"]["provenance"]["hlo_sha256"]) == 64
    assert len(result["machine_hash"]) == 64


def test_second_run_comes_from_the_cache_with_the_same_numbers(capfd):
    first, second = answer(capfd, *TINY), answer(capfd, *TINY)
    assert second["provenance"]["facts"]["from_cache"] is True
    assert second["results"] == first["results"]


def test_terminal_output_fits_80_columns_without_colour(capfd):
    code, out, _ = run(capfd, *TINY, "--against", "b300-photonic")
    assert code == 0
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    for words in ("latency", "Cost by part on b300", "Dearest collectives", "bandwidth", "radix"):
        assert words in out


def test_quiet_prints_nothing_and_still_writes(capfd, tmp_path):
    target = tmp_path / "result.json"
    code, out, _ = run(capfd, *TINY, "--quiet", "--json", str(target))
    assert (code, out) == (0, "")
    assert json.loads(target.read_text())["model"] == "tiny"


def test_imbalance_is_part_of_the_policy_and_never_faster(capfd):
    even = answer(capfd, *TINY, "--policy", "study")
    loaded = answer(capfd, *TINY, "--policy", "study", "--imbalance", "2")
    assert loaded["policy"] == "study(expert_imbalance=2.0)"
    assert loaded["results"][0]["latency_s"] > even["results"][0]["latency_s"]


def test_two_micro_batches_hide_communication(capfd):
    one = answer(capfd, *TINY, "--policy", "study")
    two = answer(capfd, *TINY, "--policy", "study", "--microbatches", "2")
    shown = [
        found["results"][0]["exposed_comm_s"] / found["results"][0]["comm_s"]
        for found in (one, two)
    ]
    assert shown[1] < shown[0]


def test_hlo_file_is_priced(capfd, tmp_path):
    text = """HloModule m, num_partitions=4

ENTRY main {
  a = bf16[128,64]{1,0} parameter(0)
  b = bf16[64,32]{1,0} parameter(1)
  d = bf16[128,32]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[128,32]{1,0} all-reduce(d), channel_id=1, replica_groups={{0,1,2,3}},
    use_global_device_ids=true, to_apply=add
}
"""
    path = tmp_path / "module.hlo"
    path.write_text(text.replace(",\n    ", ", "))
    found = answer(capfd, str(path), "--policy", "study")
    assert found["program"]["flops_by_format"] == {"bf16": 2 * 128 * 32 * 64}
    assert [c["kind"] for c in found["program"]["collectives"]] == ["all-reduce"]


def test_function_is_partitioned_and_priced(capfd, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import AxisType, Mesh, PartitionSpec as P\n"
        "import numpy as np\n"
        "def target():\n"
        "    mesh = Mesh(np.array(jax.devices()[:4]), ('d',), axis_types=(AxisType.Auto,))\n"
        "    return {'fn': lambda x, w: x @ w, 'mesh': mesh,\n"
        "            'args': (jax.ShapeDtypeStruct((64, 32), jnp.bfloat16),\n"
        "                     jax.ShapeDtypeStruct((32, 16), jnp.bfloat16)),\n"
        "            'in_shardings': (P(None, 'd'), P('d', None))}\n"
    )
    found = answer(capfd, f"{tmp_path / 'mine.py'}:target", "--policy", "study")
    assert found["mesh"]["devices"] == 4
    assert found["program"]["flops_by_format"] == {"bf16": 2 * 64 * 8 * 16}
    assert found["program"]["collectives"][0]["payload_bytes"] in (64 * 16 * 2, 64 * 16 * 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch", "--mesh", "1x1x1", "--seq", "1", "--batch", "1"), "nosuch"),
        (("r1", "--mesh", "2x144", "--seq", "8", "--batch", "8"), "mesh '2x144'"),
        (("r1", "--mesh", "2x0x1", "--seq", "8", "--batch", "8"), "mesh '2x0x1'"),
        (("r1", "--mesh", "axbxc", "--seq", "8", "--batch", "8"), "mesh 'axbxc'"),
        (("r1", "--seq", "8", "--batch", "8"), "--mesh is missing"),
        (("r1", "--mesh", "1x8x1", "--batch", "8"), "--seq is missing"),
        (("r1", "--mesh", "1x8x1", "--seq", "-5", "--batch", "8"), "--seq -5"),
        (("r1", "--mesh", "1x8x1", "--seq", "8", "--batch", "0"), "--batch is missing"),
        ((*TINY[:3], "--machine", "nosuch"), "'nosuch' is unknown"),
        ((*TINY, "--against", "nosuch"), "'nosuch' is unknown"),
        ((*TINY, "--policy", "nosuch"), "policy 'nosuch' is unknown"),
        ((*TINY, "--plan", "nosuch"), "plan 'nosuch'"),
        ((*TINY, "--format", "fp5"), "format 'fp5'"),
        ((*TINY, "--phase", "sideways"), "phase = 'sideways'"),
        ((*TINY, "--attention", "nosuch"), "attention = 'nosuch'"),
        ((*TINY, "--microbatches", "0"), "--microbatches 0"),
        ((*TINY, "--capacity-factor", "nan"), "capacity_factor = nan"),
        ((*TINY, "--imbalance", "0.5"), "--imbalance 0.5: expected a number of at least 1"),
        (
            (*TINY, "--imbalance", "1000"),
            "--imbalance 1000: expected at most 8, the number of ranks",
        ),
        ((*TINY, "--placement", "abc"), "axis_order"),
        (("r1", "--mesh", "1x7x1", "--seq", "8192", "--batch", "8"), "experts"),
        # 10^12 sequences of 16 tokens over 8 devices
        (
            (*TINY[:7], "--batch", "1000000000000"),
            "2000000000000 tokens per device (16000000000000 on all), expected fewer: tokens, "
            "cache slots and expert slots are numbered up to 2147483647",
        ),
        (
            (*TINY[:5], "--phase", "decode", "--seq", "4294967296", "--batch", "8"),
            "with caches of 4294967296 per device, expected fewer: tokens, cache slots",
        ),
        (("nosuch.hlo",), "nosuch.hlo: cannot be read"),
        (("nosuch_module:f",), "nosuch_module"),
    ],
)
def test_bad_input_is_one_clear_line(capfd, arguments, message):
    code, out, err = run(capfd, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("xla-cost: ")
    assert err.count("\n") == 1
    assert message in err


def test_strict_refuses_what_is_not_understood(capfd, tmp_path):
    path = tmp_path / "call.hlo"
    path.write_text(
        "HloModule m\n\nENTRY main {\n  a = f32[8]{0} parameter(0)\n"
        '  ROOT r = f32[8]{0} custom-call(a), custom_call_target="nobody_knows"\n}\n'
    )
    code, _, err = run(capfd, str(path), "--strict", "--quiet")
    assert code == 1  # a check that does not hold, as with `inspect --strict`
    assert err.startswith("xla-cost: --strict: 2 findings, expected none; first: ")
    assert "nobody_knows has no rule" in err
    assert err.count("\n") == 1
    assert cli.run(["inspect", str(path), "--strict"]) == 1


def test_main_job_at_the_studys_points(capfd):
    """Communication within 7 % of the study where one pod holds all devices; no constant fitted.

    8K x 2048 on 72: 40.6 s copper, 10.2 s photonic. 128K x 64 on 72: 20.3 s copper.
    """
    short = answer(capfd, *R1, "--mesh", "1x72x1", "--seq", "8192", "--batch", "2048")
    copper, photonic = short["results"]
    assert copper["comm_s"] == pytest.approx(40.6, rel=0.07)
    assert photonic["comm_s"] == pytest.approx(10.2, rel=0.07)
    assert copper["comm_s"] == pytest.approx(4.0 * photonic["comm_s"])
    assert short["ratio_split"]["radix"] == pytest.approx(1.0)
    long = answer(capfd, *R1, "--mesh", "1x72x1", "--seq", "131072", "--batch", "64")
    assert long["results"][0]["comm_s"] == pytest.approx(20.3, rel=0.07)


def test_main_job_across_pods(capfd):
    """2x144x1 spans two pods on copper and none on photons; the split explains the ratio."""
    found = answer(capfd, *R1, "--mesh", "2x144x1", "--seq", "131072", "--batch", "64")
    copper, photonic = found["results"]
    assert copper["comm_s_by_tier"]["scale-out"] > 0.0
    assert photonic["comm_s_by_tier"]["scale-out"] == 0.0
    assert found["ratio"] == pytest.approx(copper["latency_s"] / photonic["latency_s"])
    split = found["ratio_split"]
    assert split["bandwidth"] * split["radix"] == pytest.approx(found["ratio"])
    assert split["radix"] > 1.0
    assert {row["scope"] for row in copper["by_scope"]} >= {
        "attention", "dispatch", "experts", "combine",
    }  # fmt: skip


def test_lower_script_writes_the_hlo_and_its_breakdown(tmp_path, capfd):
    import importlib.util

    place = Path(__file__).parent.parent / "scripts" / "lower.py"
    spec = importlib.util.spec_from_file_location("lower_script", place)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    code = script.main([*TINY[:3], *TINY[5:], "--out", str(tmp_path / "out")])
    assert code == 0
    breakdown = json.loads((tmp_path / "out" / "breakdown.json").read_text())
    assert breakdown["devices"] == 8
    assert breakdown["flops_by_format"]["fp4"] == sum(
        flops for scope, flops in breakdown["flops_by_scope"].items()
        if "scores" not in scope and "router" not in scope and scope != "head"
    )  # fmt: skip
    assert (tmp_path / "out" / "tiny.hlo").read_text().startswith("HloModule")
    assert "all-to-all" in (tmp_path / "out" / "breakdown.txt").read_text()
    assert script.main(["r1", "--mesh", "nonsense", "--out", str(tmp_path)]) == 2
    assert "mesh 'nonsense'" in capfd.readouterr().err


@pytest.mark.parametrize("more", [
    ("--phase", "decode"),
    ("--plan", "dp-attention"),
    ("--plan", "study-balanced"),
    ("--placement", "yxz"),
    ("--format", "fp8+fp4"),
    ("--capacity-factor", "1.5"),
])  # fmt: skip
def test_every_choice_gives_an_estimate(capfd, more):
    found = answer(capfd, *TINY, *more)
    assert found["results"][0]["latency_s"] > 0.0
    assert found["program"]["coverage"] == 1.0


def test_demo_prints_ours_beside_the_study(capfd, tmp_path):
    target = tmp_path / "demo.json"
    assert cli.run(["demo", "--json", str(target)]) == 0
    out, _ = capfd.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "beside the study" in out
    assert "study-balanced" in out
    points = json.loads(target.read_text())["points"]
    assert [(p["policy"], p["request"]["seq"]) for p in points] == [
        ("study", 8192), ("study", 131072), ("calibrated", 8192), ("calibrated", 131072),
    ]  # fmt: skip
    short = points[0]["study"]
    assert short["copper_comm_s"]["study"] == 40.6
    assert abs(short["copper_comm_s"]["deviation"]) < 0.07
    assert abs(short["photonic_comm_s"]["deviation"]) < 0.07
    assert points[3]["request"]["attention"] == "flash"


def test_trace_is_written_in_both_formats(capfd, tmp_path):
    events, packets = tmp_path / "t.json", tmp_path / "t.perfetto-trace"
    for target in (events, packets):
        assert run(capfd, *TINY, "--quiet", "--trace", str(target))[0] == 0
    names = {event["name"] for event in json.loads(events.read_text())["traceEvents"]}
    assert any(name.startswith("dot_general") for name in names)
    assert packets.stat().st_size > 0
