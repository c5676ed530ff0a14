"""Arrivals and lengths: their statistics, their limits, their seeds."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from xla_cost.errors import XlaCostError
from xla_cost.serving.clock import TICKS_PER_S
from xla_cost.serving.load import Lengths, Load, decode_steps
from xla_cost.serving.system import Mtp


def gaps(load: Load, count: int) -> np.ndarray:
    times = [r.arrival / TICKS_PER_S for r in islice(load.generate(Mtp()), count)]
    return np.diff(np.array([0.0, *times]))


def test_poisson_gaps_have_mean_and_deviation_alike() -> None:
    found = gaps(Load(rate_per_s=50.0, seed=2), 40_000)
    assert found.mean() == pytest.approx(0.02, rel=0.02)
    assert found.std() == pytest.approx(0.02, rel=0.02)


def test_gamma_gaps_are_bursty() -> None:
    found = gaps(Load(arrivals="gamma", rate_per_s=50.0, cv=3.0, seed=2), 80_000)
    assert found.mean() == pytest.approx(0.02, rel=0.05)
    assert found.std() / found.mean() == pytest.approx(3.0, rel=0.05)


def test_uniform_and_closed_arrivals() -> None:
    assert gaps(Load(arrivals="uniform", rate_per_s=4.0), 5).tolist() == [0.25] * 5
    assert gaps(Load(arrivals="closed", in_flight=3), 5).tolist() == [0.0] * 5


def test_lengths() -> None:
    rng = np.random.default_rng(5)
    assert set(Lengths(mean=7.4).draw(rng, 10).tolist()) == {7}
    drawn = Lengths("uniform", low=3, high=5).draw(rng, 3000)
    assert set(drawn.tolist()) == {3, 4, 5}
    drawn = Lengths("lognormal", 500.0, 0.5).draw(rng, 50_000)
    assert drawn.mean() == pytest.approx(500.0, rel=0.01)
    assert drawn.std() == pytest.approx(250.0, rel=0.03)
    drawn = Lengths("lognormal", 500.0, 2.0, 100, 900).draw(rng, 1000)
    assert (drawn.min(), drawn.max()) == (100, 900)


def test_the_same_seed_draws_the_same_requests() -> None:
    def drawn(seed: int) -> list[tuple[int, int, int]]:
        load = Load(
            seed=seed,
            input_tokens=Lengths("lognormal", 100.0, 1.0),
            output_tokens=Lengths("uniform", low=1, high=9),
        )
        found = islice(load.generate(Mtp()), 5000)
        return [(r.arrival, r.input_tokens, r.output_tokens) for r in found]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_prefix_never_covers_the_last_token() -> None:
    load = Load(prefix_hit_rate=0.75, input_tokens=Lengths(mean=8))
    assert next(load.generate(Mtp())).cached == 6
    load = Load(prefix_hit_rate=0.75, input_tokens=Lengths(mean=1))
    assert next(load.generate(Mtp())).cached == 0


def test_decode_steps() -> None:
    rng = np.random.default_rng(0)
    assert decode_steps(10, Mtp(), rng) == (9, 1024)
    assert decode_steps(1, Mtp(2, 0.5), rng) == (0, 1024)
    # always accepted: 9 tokens in steps of three
    assert decode_steps(10, Mtp(2, 1.0), rng) == (3, 3 * 1024)
    steps = [decode_steps(1001, Mtp(1, 0.8), rng)[0] for _ in range(300)]
    assert np.mean(steps) == pytest.approx(1000 / 1.8, rel=0.005)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_per_s": 0.0}, r"load\.rate_per_s = 0\.0; must be in 1e-09 \.\. 1e\+09"),
        ({"arrivals": "closed"}, r"load\.in_flight: missing in a closed loop"),
        ({"in_flight": 0}, "in_flight = 0; must be at least 1"),
        ({"prefix_hit_rate": 1.0}, r"prefix_hit_rate = 1\.0; must be in 0 \.\. below 1"),
        ({"requests": 0}, "requests = 0"),
    ],
)
def test_bad_loads(fields: dict[str, object], message: str) -> None:
    with pytest.raises(XlaCostError, match=message):
        Load(**fields)  # type: ignore[arg-type]


def test_bad_lengths() -> None:
    with pytest.raises(XlaCostError, match="must be 1 <= low <= high"):
        Lengths("uniform", low=5, high=4)
    with pytest.raises(XlaCostError, match=r"mean = 0\.5; must be in 1 \.\. 1000000000"):
        Lengths(mean=0.5)
