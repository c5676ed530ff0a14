"""A serving system as frozen values: pools of workers, how caches travel, what is promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from xla_cost.errors import XlaCostError
from xla_cost.serving.curves import LatencyCurves

Role = Literal["prefill", "decode", "mixed"]


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal workers. Which fields matter depends on the role.

    `token_budget`: new tokens in one prefill batch (of a mixed worker: in one iteration, decode
    tokens included). `chunked`: a prompt may be cut to fill the budget; without it a longer
    prompt could never run and is refused. `max_batch`: requests a worker decodes at once.
    `kv_tokens`: cache a worker holds, None for no limit; when it is full, policy "queue" lets
    requests wait until all they will ever need is free, "preempt" lets them in and throws the last
    one out when contexts outgrow the memory (it is prefilled again, in front of all others).
    """

    role: Role
    workers: int
    curves: LatencyCurves
    token_budget: int = 16384
    max_prompts: int = 1 << 30
    chunked: bool = False
    max_batch: int = 1 << 30
    kv_tokens: int | None = None
    kv_policy: Literal["queue", "preempt"] = "queue"
    kv_watermark: float = 0.01
    first_number: int = 0

    def __post_init__(self) -> None:
        where = f"{self.role} pool"
        if self.workers < 1:
            raise XlaCostError(f"{where}: workers = {self.workers}; must be at least 1")
        if self.prefills and self.curves.prefill is None:
            raise XlaCostError(f"{where}: no prefill curve; expected one")
        if self.decodes and self.curves.decode is None:
            raise XlaCostError(f"{where}: no decode curve; expected one")
        for name in ("token_budget", "max_prompts", "max_batch"):
            if getattr(self, name) < 1:
                raise XlaCostError(f"{where}: {name} = {getattr(self, name)}; must be at least 1")
        if self.role == "mixed" and self.max_batch >= self.token_budget:
            raise XlaCostError(
                f"{where}: max_batch = {self.max_batch}; must be below token_budget = "
                f"{self.token_budget}, or a full batch would leave no token for prompts"
            )

    @property
    def prefills(self) -> bool:
        """Whether its workers take prompts."""
        return self.role != "decode"

    @property
    def decodes(self) -> bool:
        """Whether its workers decode."""
        return self.role != "prefill"

    @property
    def devices(self) -> int:
        """Devices in the pool."""
        return self.workers * self.curves.devices


def refuse_longer(role: Role, token_budget: int, tokens: int, whose: str) -> None:
    """Raise XlaCostError where a prompt that must not be cut could never be scheduled.

    `tokens`: new ones, those of a cached prefix left out.
    """
    if tokens > token_budget:
        raise XlaCostError(
            f"{role}.token_budget = {token_budget}: {whose} has {tokens} tokens to prefill in one "
            "batch; expected a budget as large, or chunked = true"
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a key/value cache gets from a prefill to a decode worker: over tier `tier`.

    One transfer at a time leaves a sender, at `sender_bytes_per_s`; a receiver takes in no more
    than `receiver_bytes_per_s`. `bytes_per_token` is the whole model's cache of one token.
    """

    bytes_per_token: float = 0.0
    sender_bytes_per_s: float = float("inf")
    receiver_bytes_per_s: float = float("inf")
    latency_s: float = 0.0
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Mtp:
    """Multi-token prediction: `depth` drafted tokens a step, each accepted with `acceptance`
    if those before it were. `draft_step_share`: what drafting one token adds to a step.

    The step verifies depth + 1 rows per request, each priced as a request of its own, which is
    right where attention is bound by arithmetic and too high where it is bound by memory. One
    extra block of 61 per drafted token is DeepSeek-V3's module (arXiv 2412.19437, section 2.2).
    """

    depth: int = 0
    acceptance: float = 0.0
    draft_step_share: float = 1 / 61


@dataclass(frozen=True, slots=True)
class Slo:
    """What is promised per request; None is no promise."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class System:
    """Either `prefill` and `decode` pools with a transfer between them, or a `mixed` pool.

    `claim`: "after-prefill" asks the decode worker for a place when the prompt is done (the
    cache waits on the prefill worker until there is one), "before-prefill" asks first, as
    Dynamo's decode-first flow does. `first_token`: when the user sees it, at the end of the
    "prefill", or when the "decode" worker takes the request into its batch.
    """

    prefill: Pool | None = None
    decode: Pool | None = None
    mixed: Pool | None = None
    transfer: Transfer = field(default_factory=Transfer)
    routing: Literal["round-robin", "least-loaded"] = "round-robin"
    claim: Literal["after-prefill", "before-prefill"] = "after-prefill"
    first_token: Literal["prefill", "decode"] = "prefill"
    mtp: Mtp = field(default_factory=Mtp)

    def __post_init__(self) -> None:
        split = self.prefill is not None and self.decode is not None
        if split == (self.mixed is not None) or (
            self.mixed is not None and (self.prefill is not None or self.decode is not None)
        ):
            raise XlaCostError(
                "system: pools "
                f"{[pool.role for pool in self.pools]}; must be prefill and decode, or mixed alone"
            )

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools there are."""
        return tuple(p for p in (self.prefill, self.decode, self.mixed) if p is not None)

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.devices for pool in self.pools)
