"""The study's communication times, from its mesh and the shapes of R1, as plain arithmetic.

Per layer (61 of them) one all-gather and one reduce-scatter of the residual stream over y, and
a dispatch and a combine of 8 copies of each token, all bf16, D = 8064. See docs/network.md for
what is inferred about crossing a pod, and from where.
"""

from __future__ import annotations

import pytest
from network_machines import collective, rows

from xla_cost.machine import Machine, hybrid, load
from xla_cost.network import POLICIES, STUDY, NetworkPolicy, collective_time

LAYERS, D, WIDTH, COPIES = 61, 8064, 2, 8


def communication_s(
    machine: Machine, x: int, y: int, tokens: int, policy: NetworkPolicy = STUDY
) -> float:
    stream = tokens // x * D * WIDTH
    copies = COPIES * tokens * D * WIDTH // (x * y)
    groups = rows(x, y)
    layer = (
        collective("all-gather", groups, stream // y),
        collective("reduce-scatter", groups, stream),
        collective("all-to-all", groups, copies),
        collective("all-to-all", groups, copies),
    )
    return LAYERS * sum(collective_time(c, machine, policy).seconds for c in layer)


def test_one_pod_8k() -> None:
    """Study: 40.6 s electrical, 10.2 s optical."""
    tokens = 2048 * 8192
    stream = 2 * 71 / 72 * tokens * 8064 * 2 / 900e9
    routed = 2 * 71 / 72 * 8 * tokens / 72 * 8064 * 2 / 900e9
    expected = 61 * (stream + routed)
    assert expected == pytest.approx(40.19, abs=0.01)
    assert communication_s(load("b300"), 1, 72, tokens) == pytest.approx(expected)
    assert communication_s(load("b300-photonic"), 1, 72, tokens) == pytest.approx(expected / 4)


def test_one_pod_128k() -> None:
    """Study: 20.3 s."""
    assert communication_s(load("b300"), 1, 72, 64 * 131072) == pytest.approx(20.09, abs=0.01)


def test_two_pods_128k_reading_one() -> None:
    """Study: 35.5 s electrical at 2x144x1, 2.3 s optical."""
    tokens = 64 * 131072
    vector = tokens / 2 * 8064 * 2
    stream = 2 * 71 / 72 * vector / 900e9 + (2 - 1) / 2 * vector / 100e9
    copies = 8 * tokens / 288 * 8064 * 2
    routed = 2 * (71 / 144 * copies / 900e9 + 72 / 144 * copies / 100e9)
    expected = 61 * (stream + routed)
    assert expected == pytest.approx(32.22, abs=0.01)
    assert communication_s(load("b300"), 2, 144, tokens) == pytest.approx(expected)
    assert communication_s(load("b300-photonic"), 2, 144, tokens) == pytest.approx(2.40, abs=0.01)


def test_four_pods_1m_reading_one() -> None:
    """Study: 39.2 s electrical at 4x288x1, 1.6 s optical."""
    tokens = 8 * 2**20
    vector = tokens / 4 * 8064 * 2
    stream = 2 * 71 / 72 * vector / 900e9 + (4 - 1) / 2 * vector / 100e9
    copies = 8 * tokens / 1152 * 8064 * 2
    routed = 2 * (71 / 288 * copies / 900e9 + 216 / 288 * copies / 100e9)
    expected = 61 * (stream + routed)
    assert expected == pytest.approx(36.36, abs=0.01)
    assert communication_s(load("b300"), 4, 288, tokens) == pytest.approx(expected)
    assert communication_s(load("b300-photonic"), 4, 288, tokens) == pytest.approx(1.17, abs=0.01)


def test_reading_two_gathers_the_stream_over_racks() -> None:
    """4x72x1: y inside the pod, the whole hidden state at one byte gathered over x: 36.0 s."""
    from network_machines import columns

    tokens = 64 * 131072
    gather = collective("all-gather", columns(4, 72), tokens * 8064 // 4)
    policy = POLICIES["study/reading-2"]
    across = 61 * collective_time(gather, load("b300"), policy).seconds
    assert across == pytest.approx(61 * 3 / 4 * tokens * 8064 / 100e9)
    inside = communication_s(load("b300"), 4, 72, tokens, policy)
    assert across + inside == pytest.approx(35.97, abs=0.01)


def test_sharding_first_removes_most_of_the_cliff() -> None:
    tokens = 64 * 131072
    sharded = communication_s(load("b300"), 2, 144, tokens, POLICIES["study/hierarchical"])
    vector = tokens / 2 * 8064 * 2
    stream = 2 * 71 / 72 * vector / 900e9 + 2 * (1 / 2) * vector / 72 / 100e9
    copies = 8 * tokens / 288 * 8064 * 2
    routed = 2 * (71 / 144 * copies / 900e9 + 72 / 144 * copies / 100e9)
    assert sharded == pytest.approx(61 * (stream + routed))
    assert sharded < 0.4 * communication_s(load("b300"), 2, 144, tokens)


def test_ratio_splits_into_bandwidth_and_radix() -> None:
    """At 2x144x1 the radix buys most: both factors multiply to the whole."""
    copper, optical = load("b300"), load("b300-photonic")
    tokens = 64 * 131072
    times = [
        communication_s(machine, 2, 144, tokens)
        for machine in (copper, hybrid(optical, copper, pod=1152), optical)
    ]
    radix, bandwidth = times[0] / times[1], times[1] / times[2]
    assert bandwidth == pytest.approx(4.0)
    assert radix * bandwidth == pytest.approx(times[0] / times[2])
    assert radix == pytest.approx(32.22 / (4 * 2.403), rel=1e-3)
