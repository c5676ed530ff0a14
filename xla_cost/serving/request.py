"""One request on its way through the system."""

from __future__ import annotations

from typing import Any


class Request:
    """What is known of a request, and when things happened to it (ticks; -1: not yet).

    `prompt` are the tokens to prefill (after a preemption also those it had produced), `cached`
    how many of them a prefix cache holds, `steps` the decode iterations it still needs, `growth`
    the units its context grows by in each (1024 to the token; more with multi-token prediction),
    `measured` whether its latencies count.
    """

    __slots__ = (
        "arrival", "cached", "done", "finish", "first_token", "growth", "index", "input_tokens",
        "joined_context", "joined_index", "last_index", "last_token", "measured", "output_tokens",
        "preempted", "prefilled", "prompt", "sent", "steps",
    )  # fmt: skip

    def __init__(
        self, index: int, input_tokens: int, output_tokens: int, steps: int, growth: int
    ) -> None:
        self.index = index
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.prompt = input_tokens
        self.cached = 0
        self.prefilled = 0
        self.steps = steps
        self.growth = growth
        self.preempted = 0
        self.measured = True
        self.arrival = -1
        self.sent = -1
        self.first_token = -1
        self.last_token = -1
        self.finish = -1
        #: context units and iteration number of the batch when it joined; last iteration it needs
        self.joined_context = 0
        self.joined_index = 0
        self.last_index = 0
        #: the event its process waits for
        self.done: Any = None
