"""The TOML loader: what it reads, and one clear sentence for everything it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from network_machines import collective

from xla_cost.errors import XlaCostError
from xla_cost.machine import Machine, load, names, with_tier
from xla_cost.network import CALIBRATED, collective_time

REQUIRED = [
    *("h100", "h200", "h800", "b200", "gb200", "b300", "gb300", "rubin", "r4"),
    *("tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x"),
    *("b200-photonic", "b300-photonic", "rubin-photonic", "r4-photonic"),
]

GOOD = """
title = "test machine"
[peak_TFLOPS]
bf16 = { value = 100, source = "s", doubt = "none" }
[memory]
capacity_GB = { value = 10, source = "s", doubt = "none" }
bandwidth_GBps = { value = 1000, source = "s", doubt = "none" }
[power]
static_W = { value = 100, source = "s", doubt = "none" }
max_W = { value = 300, source = "s", doubt = "none" }
[[tiers]]
name = "scale-up"
topology = "switch"
size = { value = 4, source = "s", doubt = "none" }
bandwidth_GBps = { value = 100, source = "s", doubt = "none" }
latency_us = { value = 1, source = "s", doubt = "none" }
energy_pJ_per_bit = { value = 5, source = "s", doubt = "none" }
[[tiers]]
name = "scale-out"
topology = "switch"
size = { value = 64, source = "s", doubt = "none" }
bandwidth_GBps = { value = 10, source = "s", doubt = "none" }
latency_us = { value = 3, source = "s", doubt = "none" }
energy_pJ_per_bit = { value = 20, source = "s", doubt = "none" }
"""
OUTER_LATENCY = 'latency_us = { value = 3, source = "s", doubt = "none" }'


def write(folder: Path, text: str, name: str = "m.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(XlaCostError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_required_machine_loads_under_its_name() -> None:
    assert set(REQUIRED) <= set(names())
    for name in names():
        assert load(name).name == name


def test_units_become_si(tmp_path: Path) -> None:
    machine = load(write(tmp_path, GOOD))
    inner, outer = machine.tiers
    assert machine.peak_flops == {"bf16": 100e12}
    assert machine.memory_capacity_bytes == 10e9
    assert machine.memory_bytes_per_s == 1000e9
    assert (machine.static_w, machine.max_w) == (100, 300)
    assert inner.bandwidth_bytes_per_s == 100e9
    assert inner.latency_s == 1e-6
    assert outer.energy_j_per_byte == pytest.approx(20e-12 * 8)
    assert machine.tier_sizes == (4, 64)
    # dynamic power at peak: (300 - 100) W / 100 TFLOP/s
    assert machine.compute_j_per_flop("bf16") == 200 / 100e12
    assert machine.compute_j_per_flop("fp8") == 0.0


def test_every_figure_carries_source_and_doubt() -> None:
    for name in names():
        machine = load(name)
        assert len(machine.figures) >= 14
        for figure in machine.figures:
            assert figure.source.strip(), figure.key
            assert figure.doubt.strip(), figure.key
    found = load("b300").figure("tiers[1].bandwidth_GBps")
    assert found is not None
    assert found.value == 100.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", "-3"),
         "m.toml: tiers[1].latency_us = -3; must be >= 0"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("latency_us", "latency_ms"),
         "m.toml: tiers[1].latency_ms is not a known key; expected latency_us"),
        (OUTER_LATENCY, "", "m.toml: tiers[1].latency_us is missing; expected a number"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", "nan"),
         "m.toml: tiers[1].latency_us = nan; must be finite and >= 0"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", "inf"),
         "m.toml: tiers[1].latency_us = inf; must be finite and >= 0"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", "true"),
         "m.toml: tiers[1].latency_us = true; must be a number >= 0"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", '"3"'),
         "m.toml: tiers[1].latency_us = '3'; must be a number >= 0"),
        (OUTER_LATENCY, "latency_us = 3",
         "m.toml: tiers[1].latency_us = 3; "
         "must be a table { value = .., source = .., doubt = .. }"),
        (OUTER_LATENCY, 'latency_us = { value = 3, source = "s" }',
         "m.toml: tiers[1].latency_us has no doubt; expected value, source and doubt"),
        (OUTER_LATENCY, 'latency_us = { value = 3, source = "", doubt = "none" }',
         "m.toml: tiers[1].latency_us.source = ''; must be text (a doubt may be \"none\")"),
        ("value = 64", "value = 4", "m.toml: tiers[1].size = 4; must be > 4, the size of tiers[0]"),
        ("value = 64", "value = 64.5", "m.toml: tiers[1].size = 64.5; must be a whole number >= 2"),
        ("value = 64", "value = 64.0",
         "m.toml: tiers[1].size = 64.0; must be a whole number >= 2"),
        ("size = { value = 4", "size = { value = 1", "m.toml: tiers[0].size = 1; must be >= 2"),
        ("bandwidth_GBps = { value = 10,", "bandwidth_GBps = { value = 1e-30,",
         "m.toml: tiers[1].bandwidth_GBps = 1e-30; must be >= 0.001 and <= 1e+09"),
        ("bandwidth_GBps = { value = 10,", "bandwidth_GBps = { value = 1e30,",
         "m.toml: tiers[1].bandwidth_GBps = 1e+30; must be >= 0.001 and <= 1e+09"),
        (OUTER_LATENCY, OUTER_LATENCY.replace("3", "1e30"),
         "m.toml: tiers[1].latency_us = 1e+30; must be >= 0 and <= 1e+06"),
        ("max_W = { value = 300", "max_W = { value = 30",
         "m.toml: power.max_W = 30; must be >= power.static_W"),
        ("bf16 = {", "bf17 = {", "m.toml: peak_TFLOPS.bf17 is not a known key; expected one of "
         "fp4, fp8, int4, int8, fp16, bf16, tf32, fp32, fp64"),
        ("bf16 = { value = 100", "bf16 = { value = 0",
         "m.toml: peak_TFLOPS.bf16 = 0; must be >= 0.001"),
        ('name = "scale-out"', 'name = "scale-up"',
         "m.toml: tiers[1].name = 'scale-up'; must be unique among the tiers"),
        ('title = "test machine"', "", "m.toml: title is missing; expected text"),
        ('title = "test machine"', 'title = "t"\nspeculative = 1',
         "m.toml: speculative = 1; must be true or false"),
        ('title = "test machine"', 'title = "t"\nextends = "nowhere"',
         "m.toml: extends: 'nowhere' is unknown; expected one of"),
        ('title = "test machine"', 'title = "t"\nextends = "m"',
         "m.toml: extends runs in a circle (m -> m); expected an end"),
        ('title = "test machine"', 'title = "t"\ninherits_efficiency_from = "rubin"',
         "m.toml: inherits_efficiency_from = 'rubin'; must be a measured machine "
         "(rubin inherits from b300)"),
        ('title = "test machine"', 'title = "t"\ninherits_efficiency_from = "foo"',
         "m.toml: inherits_efficiency_from: 'foo' is unknown; expected one of"),
        ('title = "test machine"', "title = ", "m.toml: not valid TOML ("),
    ],
)  # fmt: skip
def test_one_sentence_per_mistake(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    before, _, after = GOOD.rpartition(old)
    assert refused(tmp_path, before + new + after).startswith(message)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('topology = "ring"', "m.toml: tiers[2].topology = 'ring'; must be one of switch, rail, "
         "torus, hyperx"),
        ('topology = "torus"\ndims = { value = [10, 10], source = "s", doubt = "none" }',
         "m.toml: tiers[2].topology = 'torus'; must be switch or rail outside the innermost tier"),
        ('topology = "torus"',
         "m.toml: tiers[2].dims is missing; expected the lengths of the axes"),
        ('topology = "torus"\ndims = { value = [10, 11], source = "s", doubt = "none" }',
         "m.toml: tiers[2].dims = 10x11, that is 110; must multiply to tiers[2].size = 100"),
        ('topology = "switch"\nwrap = { value = [true], source = "s", doubt = "none" }',
         "m.toml: tiers[2].wrap = [True]; must be absent on a switch"),
        ('topology = "switch"\nwrap_multiple = { value = 4, source = "s", doubt = "none" }',
         "m.toml: tiers[2].wrap_multiple = 4; must be absent on a switch"),
        ('topology = "switch"\nwrap_multiple = { value = 0, source = "s", doubt = "none" }',
         "m.toml: tiers[2].wrap_multiple = 0; must be >= 1"),
        ('topology = "hyperx"\ndims = { value = [10, 10], source = "s", doubt = "none" }\n'
         'wrap = { value = [false, false], source = "s", doubt = "none" }',
         "m.toml: tiers[2].wrap = [False, False]; must be absent on a hyperx"),
        ('topology = "switch"\ndims = { value = [100], source = "s", doubt = "none" }',
         "m.toml: tiers[2].dims = [100]; must be absent on a switch"),
        ('topology = "switch"\nalgorithms = { value = ["star"], source = "s", doubt = "none" }',
         "m.toml: tiers[2].algorithms[0] = 'star'; must be one of ring, direct, "),
        ('topology = "switch"\nefficiency = { value = 1.1, source = "s", doubt = "none" }',
         "m.toml: tiers[2].efficiency = 1.1; must be > 0 and <= 1"),
        ('topology = "switch"\n[tiers.collectives.all-gathering]\n',
         "m.toml: tiers[2].collectives.all-gathering is not a known key; expected one of"),
        ('topology = "switch"\n[tiers.collectives.all-gather]\nfloor_us = 1\nefficiency = 0.5\n'
         'source = "s"', "m.toml: tiers[2].collectives.all-gather.half_MB is missing"),
        ('topology = "switch"\n[tiers.collectives.all-gather]\nfloor_us = 1\nefficiency = 0.5\n'
         "half_MB = 3",
         "m.toml: tiers[2].collectives.all-gather.floor_us.source = ''; must be text"),
    ],
)  # fmt: skip
def test_one_sentence_per_bad_tier(tmp_path: Path, lines: str, message: str) -> None:
    numbers = GOOD.rpartition('topology = "switch"')[2].replace("value = 64", "value = 100")
    tier = f'[[tiers]]\nname = "third"\n{numbers}{lines}\n'
    assert refused(tmp_path, GOOD + tier).startswith(message)


def test_extends_replaces_figures_and_whole_tiers(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.toml")
    tier = GOOD[GOOD.index("[[tiers]]") : GOOD.rindex("[[tiers]]")].replace("= 4,", "= 32,")
    text = (
        'extends = "base"\ntitle = "wide"\nspeculative = true\n[memory]\n'
        'capacity_GB = { value = 20, source = "t", doubt = "none" }\n' + tier
    )
    machine = load(write(tmp_path, text))
    assert machine.memory_capacity_bytes == 20e9
    assert machine.memory_bytes_per_s == 1000e9
    assert [t.size for t in machine.tiers] == [32]
    assert machine.marks == ("speculative: m",)
    figure = machine.figure("memory.bandwidth_GBps")
    assert figure is not None
    assert figure.file == "base.toml"


def test_cycles_of_three_files_are_named(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path, f'title = "t"\nextends = "{base}"\n', f"{name}.toml")
    with pytest.raises(XlaCostError, match=r"circle \(a -> b -> c -> a\)"):
        load(tmp_path / "a.toml")


def fits(half: float) -> str:
    return (
        "[tiers.collectives.all-gather]\nfloor_us = 10\nefficiency = 0.5\n"
        f'half_MB = {half}\nramp = 0.5\nsource = "t"\nrows = 7\nmedian_error = 0.08\n'
    )


def test_collective_fits_are_read_and_inherited_in_proportion_to_bandwidth(tmp_path: Path) -> None:
    measured = GOOD.replace('[[tiers]]\nname = "scale-out"', fits(2) + '[[tiers]]\nname = "so"')
    write(tmp_path, measured, "measured.toml")
    doubt = 'source = "s", doubt = "none" }\nlatency_us = { value = 1,'
    text = GOOD.replace('"test machine"', '"t"\ninherits_efficiency_from = "measured"')
    text = text.replace(f"value = 100, {doubt}", f"value = 400, {doubt}")
    own = load(tmp_path / "measured.toml").tiers[0].fit("all-gather")
    taken = load(write(tmp_path, text)).tiers[0].fit("all-gather")
    assert own is not None
    assert taken is not None
    assert (own.efficiency, own.half_bytes, own.ramp) == (0.5, 2e6, 0.5)
    assert own.floor_s == taken.floor_s == pytest.approx(10e-6)
    assert (own.record.rows, own.record.median_error, own.record.source) == (7, 0.08, "t")
    # the same microseconds at four times the bandwidth are four times the bytes
    assert taken.half_bytes == 8e6
    assert (own.inherited_from, taken.inherited_from) == ("", "measured")
    assert load(tmp_path / "m.toml").marks == ("inherited: efficiencies of measured",)


def test_a_tier_without_efficiency_says_that_its_full_rate_is_assumed(tmp_path: Path) -> None:
    said = "tier {}: no efficiency given, priced at its full rate"
    bare = load(write(tmp_path, GOOD))
    assert bare.assumed_rates == (said.format("scale-up"), said.format("scale-out"))
    assert [tier.efficiency for tier in bare.tiers] == [1.0, 1.0]
    half = 'efficiency = { value = 0.5, source = "s", doubt = "none" }'
    known = load(write(tmp_path, GOOD.rstrip() + f"\n{half}\n", "known.toml"))
    assert known.assumed_rates == (said.format("scale-up"),)
    # a machine that inherits takes the share at the same level, and what is set is given
    heir = GOOD.replace("title = ", 'inherits_efficiency_from = "known"\ntitle = ')
    taken = load(write(tmp_path, heir, "heir.toml"))
    assert taken.assumed_rates == known.assumed_rates
    assert [tier.efficiency for tier in taken.tiers] == [1.0, 0.5]
    assert with_tier(bare, 0, efficiency=0.7).assumed_rates == (said.format("scale-out"),)
    # 0.5 of the rate takes twice as long
    seconds = [
        collective_time(collective("all-gather", [[0, 4]], 10**9), one, CALIBRATED).seconds - 3e-6
        for one in (bare, known)
    ]
    assert seconds[1] == pytest.approx(2 * seconds[0])


def test_unknown_names_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(XlaCostError, match=r"machine: 'b400' is unknown; expected one of b200, "):
        load("b400")
    with pytest.raises(XlaCostError, match=r"none\.toml: cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(XlaCostError, match="cannot be read"):
        load(tmp_path)


def test_content_hash_follows_numbers_not_words(tmp_path: Path) -> None:
    def hashed(text: str) -> Machine:
        return load(write(tmp_path, text))

    first = hashed(GOOD)
    assert hashed(GOOD.replace('source = "s"', 'source = "elsewhere"')) == first
    assert hash(hashed(GOOD)) == hash(first)
    assert hashed(GOOD.replace("value = 64", "value = 65")) != first
    assert first != "m"


def test_describe_is_json_and_complete(tmp_path: Path) -> None:
    import json

    machine = load("b300-photonic")
    text = json.loads(json.dumps(machine.describe()))
    assert text["marks"] == list(machine.marks)
    assert text["tiers"][0]["bandwidth_bytes_per_s"] == 3600e9
    assert len(text["figures"]) == len(machine.figures)
