"""What a user can teach the walker: rules for custom calls, by target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from xla_cost.hlo.ir import AnyShape, Instruction, Shape
from xla_cost.program import Matmul, OpKind
from xla_cost.walk.config import parse_config
from xla_cost.walk.values import first_array


@dataclass(frozen=True)
class CustomCall:
    """A custom call as a rule sees it.

    `operands` and `result` are types; `config` is its `backend_config` read as a mapping
    where that is possible, `instruction` the whole line for anything else.
    """

    target: str
    instruction: Instruction
    operands: tuple[AnyShape, ...]
    result: AnyShape

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """`backend_config` as a mapping; empty where it is absent or opaque."""
        return parse_config(self.instruction.backend_config)

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The first array of every operand."""
        return tuple(first_array(operand) for operand in self.operands)

    @property
    def results(self) -> tuple[Shape, ...]:
        """The arrays of the result, a trailing byte workspace left out."""
        arrays = self.result.arrays
        if len(arrays) > 1 and arrays[-1].dtype in ("u8", "s8") and len(arrays[-1].dims) == 1:
            return arrays[:-1]
        return arrays


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one custom call does.

    `bytes_read` and `bytes_written` default to all operands and results (without a trailing
    byte workspace). `kind` "free" means that the result is the first operand itself.
    `work` is the fraction of the matmuls that a kernel does (a causal mask).
    """

    kind: OpKind
    matmuls: tuple[Matmul, ...] = ()
    vector_flops: int = 0
    bytes_read: int | None = None
    bytes_written: int | None = None
    note: str = ""
    region: str = ""
    work: float = 1.0


#: Says what a custom call costs, or None where it cannot tell (then it is `unpriced`).
CustomCallRule = Callable[[CustomCall], CallCost | None]


@dataclass(frozen=True)
class Rules:
    """Rules by custom-call target; `prefixes` serve targets that begin so, longest first."""

    custom_calls: Mapping[str, CustomCallRule] = field(default_factory=dict)
    prefixes: Mapping[str, CustomCallRule] = field(default_factory=dict)

    def with_custom_call(self, target: str, rule: CustomCallRule) -> Rules:
        """These rules and one more. A target that ends in `*` stands for all that begin so."""
        if target.endswith("*"):
            return replace(self, prefixes={**self.prefixes, target[:-1]: rule})
        return replace(self, custom_calls={**self.custom_calls, target: rule})

    def rule_for(self, target: str) -> CustomCallRule | None:
        """The rule of a target: its own, else that of the longest matching prefix."""
        own = self.custom_calls.get(target)
        if own is not None:
            return own
        matching = [prefix for prefix in self.prefixes if target.startswith(prefix)]
        return self.prefixes[max(matching, key=len)] if matching else None

    def cost(self, call: CustomCall) -> CallCost | None:
        """What the rule of `call.target` says, None without a rule."""
        rule = self.rule_for(call.target)
        return None if rule is None else rule(call)


def target_of(instruction: Instruction) -> str:
    """`custom_call_target`, unquoted; "" where it is absent."""
    return instruction.attributes.get("custom_call_target", "").strip().strip('"')
