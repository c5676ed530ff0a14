"""A computation ready to be put into a body, and its result seen from outside."""

from __future__ import annotations

from dataclasses import dataclass

from xla_cost.hlo.ir import Computation, Instruction
from xla_cost.program import Body
from xla_cost.walk.drafts import NOTHING, Drafts, Needs
from xla_cost.walk.graph import Graph
from xla_cost.walk.values import Ref, Value, element


@dataclass(slots=True)
class Template:
    """A computation under one context, ready to be put into a body or to be one."""

    computation: Computation
    graph: Graph
    drafts: Drafts
    peak_live_bytes: int
    body: Body


def template_needs(template: Template, ref: Ref) -> Needs:
    """What a value of the template waits for, in the template's own numbers."""
    made = template.drafts.made.get(ref.producer, NOTHING)
    instruction = template.graph.instruction(ref.producer)
    if instruction is not None and instruction.opcode == "parameter":
        return Needs(made.nodes, tuple((number, ref.path) for number, _ in made.parameters))
    for length in range(len(ref.path), 0, -1):
        part = template.drafts.parts.get((ref.producer, ref.path[:length]))
        if part is not None:
            return part
    return made


def parameter_number(instruction: Instruction) -> int:
    """The number of a parameter."""
    text = instruction.operand_text.strip()
    return int(text) if text.isdecimal() else 0


def result_parts(graph: Graph) -> list[tuple[tuple[int, ...], Ref]]:
    """(path in the result, reference) of every part of a computation's root."""
    found: list[tuple[tuple[int, ...], Ref]] = []
    stack: list[tuple[tuple[int, ...], Value]] = [((), graph.root)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Ref):
            found.append((path, value))
        else:
            stack.extend(((*path, i), value[i]) for i in reversed(range(len(value))))
    return found


def forwarded(graph: Graph, call: str, operands: list[Value]) -> Value:
    """The result of a call seen from outside: operands where it only passes them on."""

    def outside(path: tuple[int, ...], value: Value) -> Value:
        if not isinstance(value, Ref):
            if len(path) > 64:
                return Ref(call, path)
            return [outside((*path, i), part) for i, part in enumerate(value)]
        instruction = graph.instruction(value.producer)
        if instruction is not None and instruction.opcode == "parameter":
            number = parameter_number(instruction)
            if number < len(operands):
                found = operands[number]
                for index in value.path:
                    found = element(found, index)
                return found
        return Ref(call, path)

    return outside((), graph.root)
