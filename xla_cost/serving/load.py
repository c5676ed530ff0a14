"""What users send: when requests arrive and how long they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from xla_cost.errors import XlaCostError
from xla_cost.serving.clock import UNITS_PER_TOKEN, to_ticks
from xla_cost.serving.request import Request
from xla_cost.serving.system import Mtp
from xla_cost.serving.trace import Trace

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator

#: Tokens that a prompt or an answer may have.
LONGEST = 10**9

#: Requests per second that a load may have: beyond, a clock of 2^60 ticks a second sees no gap.
RATES = (1e-9, 1e9)

#: Requests drawn at a time, so that memory stays flat however many are simulated.
_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts: "fixed" at mean, "uniform" on low..high, "lognormal" with mean and cv.

    A lognormal is rounded and clipped to low..high, which moves its mean a little.
    """

    kind: Literal["fixed", "uniform", "lognormal"] = "fixed"
    mean: float = 1.0
    cv: float = 1.0
    low: int = 1
    high: int = LONGEST

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= LONGEST:
            raise XlaCostError(
                f"lengths: low = {self.low}, high = {self.high}; "
                f"must be 1 <= low <= high <= {LONGEST}"
            )
        if self.kind != "uniform" and not 1 <= self.mean <= LONGEST:
            raise XlaCostError(f"lengths: mean = {self.mean}; must be in 1 .. {LONGEST}")

    def draw(self, rng: Generator, count: int) -> ndarray:
        """`count` lengths."""
        import numpy as np

        if self.kind == "fixed":
            return np.full(count, round(self.mean), dtype=np.int64)
        if self.kind == "uniform":
            return rng.integers(self.low, self.high + 1, count)
        sigma2 = np.log1p(self.cv**2)
        drawn = rng.lognormal(np.log(self.mean) - sigma2 / 2, np.sqrt(sigma2), count)
        return np.clip(np.rint(drawn), self.low, self.high).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals, lengths and how many requests are measured.

    `arrivals`: "poisson" or "uniform" gaps of mean 1 / rate_per_s, "gamma" gaps with coefficient
    of variation `cv` (above 1: bursts), "closed" (all at once, held back by `in_flight`), or a
    trace. At most `in_flight` requests are in the system; further ones wait outside, and their
    latency counts from when they are sent. The first `warmup` requests are not measured, the
    `requests` after them are, and the load goes on until the last of those is answered, so that
    no emptying system is measured; a trace ends where it ends.
    """

    arrivals: Literal["poisson", "gamma", "uniform", "closed", "trace"] = "poisson"
    rate_per_s: float = 1.0
    cv: float = 1.0
    in_flight: int | None = None
    input_tokens: Lengths = field(default_factory=Lengths)
    output_tokens: Lengths = field(default_factory=Lengths)
    prefix_hit_rate: float = 0.0
    requests: int = 1000
    warmup: int = 0
    seed: int = 0
    trace: Trace | None = None

    def __post_init__(self) -> None:
        low, high = RATES
        if not low <= self.rate_per_s <= high:
            raise XlaCostError(
                f"load.rate_per_s = {self.rate_per_s}; must be in {low:g} .. {high:g}"
            )
        if self.arrivals == "closed" and self.in_flight is None:
            raise XlaCostError(
                "load.in_flight: missing in a closed loop; expected a number of users"
            )
        if self.in_flight is not None and self.in_flight < 1:
            raise XlaCostError(f"load.in_flight = {self.in_flight}; must be at least 1")
        if not 0 <= self.prefix_hit_rate < 1:
            raise XlaCostError(
                f"load.prefix_hit_rate = {self.prefix_hit_rate}; must be in 0 .. below 1"
            )
        if self.requests < 1 or self.warmup < 0:
            raise XlaCostError(
                f"load: requests = {self.requests}, warmup = {self.warmup}; "
                "must be at least 1 and 0"
            )

    def generate(self, mtp: Mtp) -> Iterator[Request]:
        """Requests in order of arrival, without end unless from a trace."""
        if self.trace is not None:
            yield from _from_trace(self.trace, self.seed, mtp)
            return
        import numpy as np

        streams = np.random.SeedSequence(self.seed).spawn(4)
        arrivals, inputs, outputs, drafts = (np.random.default_rng(s) for s in streams)
        clock, index = 0.0, 0
        while True:
            times = clock + np.cumsum(self._gaps(arrivals))
            clock = float(times[-1])
            prompts = self.input_tokens.draw(inputs, _BLOCK).tolist()
            answers = self.output_tokens.draw(outputs, _BLOCK).tolist()
            for at, prompt, answer in zip(times.tolist(), prompts, answers, strict=True):
                cached = int(prompt * self.prefix_hit_rate)
                yield _request(index, at, prompt, answer, cached, mtp, drafts)
                index += 1

    def _gaps(self, rng: Generator) -> ndarray:
        import numpy as np

        if self.arrivals == "closed":
            return np.zeros(_BLOCK)
        mean = 1.0 / self.rate_per_s
        if self.arrivals == "uniform":
            return np.full(_BLOCK, mean)
        if self.arrivals == "gamma":
            shape = 1.0 / self.cv**2
            return rng.gamma(shape, mean / shape, _BLOCK)
        return rng.exponential(mean, _BLOCK)


def _from_trace(trace: Trace, seed: int, mtp: Mtp) -> Iterator[Request]:
    import numpy as np

    drafts = np.random.default_rng(seed)
    for index, row in enumerate(trace.rows):
        yield _request(
            index, row.arrival_s, row.input_tokens, row.output_tokens, row.cached, mtp, drafts
        )


def _request(
    index: int, at: float, prompt: int, answer: int, cached: int, mtp: Mtp, drafts: Generator
) -> Request:
    steps, growth = decode_steps(answer, mtp, drafts)
    request = Request(index, prompt, answer, steps, growth)
    request.arrival = to_ticks(at)
    request.cached = min(cached, prompt - 1)  # the last token is always computed
    return request


def decode_steps(answer: int, mtp: Mtp, rng: Generator) -> tuple[int, int]:
    """Iterations that give all but the first of `answer` tokens, and context growth in units.

    With multi-token prediction each iteration gives one token and those drafted ones that are
    accepted in a row; the growth is the request's own mean.
    """
    wanted = answer - 1
    if not mtp.depth or not mtp.acceptance or wanted < 1:
        return wanted, UNITS_PER_TOKEN
    import numpy as np

    if mtp.acceptance >= 1:
        steps = -(-wanted // (mtp.depth + 1))
    else:
        accepted = np.minimum(rng.geometric(1 - mtp.acceptance, wanted) - 1, mtp.depth)
        steps = int(np.searchsorted(np.cumsum(accepted + 1), wanted)) + 1
    return steps, round(UNITS_PER_TOKEN * wanted / steps)
