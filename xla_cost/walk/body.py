"""One computation as drafts of nodes: instructions costed, calls put in place, loops nested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xla_cost.hlo.ir import AnyShape, Computation, Instruction
from xla_cost.program import Branch, Loop, Op
from xla_cost.walk.costing import Cost, started_result
from xla_cost.walk.drafts import NOTHING, Draft, Drafts, Needs, Parameter, together
from xla_cost.walk.fusions import Fusion
from xla_cost.walk.graph import Graph
from xla_cost.walk.names import full_name
from xla_cost.walk.opcodes import COLLECTIVES, FREE, async_inner, is_done
from xla_cost.walk.scopes import NOWHERE, Scope, scope_of
from xla_cost.walk.templates import Template, parameter_number, result_parts, template_needs
from xla_cost.walk.values import Ref, Value, at_path, leaves

#: A call whose nodes would make a body longer than this, or than so many times the whole
#: module, stays a shared loop of one trip: calls that double at every level stay small.
INLINE_LIMIT = 5_000
INLINE_FACTOR = 4


@dataclass(slots=True)
class Env:
    """What a body needs from the walk of the module."""

    graph: Graph
    template: Callable[[str, str], Template | None]  # (computation, context)
    fusion: Callable[[str], Fusion | None]
    cost: Callable[[Graph, Instruction], Cost]
    collective: Callable[[Graph, Instruction], dict[str, Any]]
    trips: Callable[[Computation, Instruction], int | None]
    source: Callable[[Instruction], str]
    most_nodes: int


class BodyBuilder:
    """Builds the drafts of one computation; the bodies it runs are there already."""

    def __init__(self, computation: Computation, context: str, env: Env) -> None:
        self.computation = computation
        self.context = context
        self.env = env
        self.graph = env.graph
        self.drafts = Drafts()
        self._sends: dict[str, str] = {}  # channel -> name of the send

    def build(self) -> Drafts:
        """All drafts of the computation, in program order."""
        for at, instruction in enumerate(self.computation.instructions):
            self._instruction(at, instruction)
        return self.drafts

    def _instruction(self, at: int, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode in FREE or opcode == "recv" or self.graph.is_alias(instruction):
            self._free(at, instruction)
        elif is_done(opcode):
            self._done(at, instruction)
        elif opcode in COLLECTIVES and not _is_host(instruction):
            self._collective(at, instruction)
        else:
            self._computed(at, instruction)

    def _free(self, at: int, instruction: Instruction) -> None:
        opcode = instruction.opcode
        name = instruction.name
        shape = self.graph.shapes[name]
        parameters: tuple[Parameter, ...] = ()
        if opcode == "parameter":
            parameters = ((parameter_number(instruction), ()),)
            needs = NOTHING
        elif opcode == "get-tuple-element" or (
            opcode not in FREE and self.graph.is_alias(instruction)
        ):
            needs = self.needs_of(self.graph.values[name])
            parameters = needs.parameters
        else:
            needs = self._operand_needs(instruction)
            parameters = needs.parameters
        fields: dict[str, Any] = {
            "name": name,
            "opcode": opcode if opcode in FREE or opcode in ("reshape", "recv") else "bitcast",
            "kind": "free",
            "result_bytes": shape.bytes,
        }
        if opcode == "copy":  # a sharding constraint: its line says who wanted a collective
            source = self.env.source(instruction)
            if source:
                fields["source"] = source
        draft = Draft(Op, fields, needs, at, self.scope(instruction))
        index = self._append(draft)
        self.drafts.made[name] = Needs((index,), parameters)

    def _computed(self, at: int, instruction: Instruction) -> None:
        opcode = instruction.opcode
        inner = async_inner(opcode) or opcode
        if opcode == "while":
            self._while(at, instruction)
        elif opcode == "conditional":
            self._conditional(at, instruction)
        elif inner == "fusion" and instruction.called:
            self._fusion(at, instruction)
        elif inner in ("call", "async") and instruction.called:
            self._call(at, instruction)
        else:
            cost = self.env.cost(self.graph, instruction)
            self._op(at, instruction, cost, self._operand_needs(instruction))

    # what an instruction waits for

    def needs_of(self, value: Value) -> Needs:
        """What a value waits for."""
        if isinstance(value, Ref):
            return self._ref_needs(value)
        return together([self._ref_needs(ref) for ref in leaves(value)])

    def _ref_needs(self, ref: Ref) -> Needs:
        made = self.drafts.made.get(ref.producer)
        if made is None:
            return NOTHING
        if ref.path:
            if self.drafts.parts:
                for length in range(len(ref.path), 0, -1):
                    part = self.drafts.parts.get((ref.producer, ref.path[:length]))
                    if part is not None:
                        return part
            instruction = self.graph.instruction(ref.producer)
            # in damaged text two instructions of one name: `made` may be another's
            is_parameter = instruction is not None and instruction.opcode == "parameter"
            if is_parameter and made.parameters:
                return Needs(made.nodes, ((made.parameters[0][0], ref.path),))
        return made

    def _operand_needs(self, instruction: Instruction) -> Needs:
        """The nodes named as operands, in their order, and the parameters behind them."""
        made = self.drafts.made
        needs = [made[name] for name in instruction.operands if name in made]
        if "control-predecessors" in instruction.attribute_text:
            text = instruction.attributes.get("control-predecessors", "")
            names = [name.strip().lstrip("%") for name in text.strip("{} ").split(",")]
            needs.extend(made[name] for name in names if name in made)
        return needs[0] if len(needs) == 1 else together(needs)

    # nodes

    def scope(self, instruction: Instruction, context: str | None = None) -> Scope:
        """The scope of an instruction of this computation."""
        own = instruction.op_name
        if not own:
            return NOWHERE
        return scope_of(full_name(self.context if context is None else context, own))

    def _append(self, draft: Draft, *makes: str) -> int:
        index = len(self.drafts.nodes)
        self.drafts.nodes.append(draft)
        for name in makes:
            self.drafts.made[name] = Needs((index,), ())
        return index

    def _op(self, at: int, instruction: Instruction, cost: Cost, needs: Needs) -> int:
        scope = self.scope(instruction)
        fields: dict[str, Any] = {
            "name": instruction.name,
            "opcode": instruction.opcode,
            "kind": cost.kind,
            "bytes_read": sum(cost.reads),
            "bytes_written": cost.written,
            "source_bytes_read": self._source_bytes(instruction, cost.reads),
            "result_bytes": cost.result_bytes,
        }
        if cost.matmuls:
            fields["matmuls"] = cost.matmuls
            if cost.matmul_opcodes:
                fields["matmul_opcodes"] = cost.matmul_opcodes
        if cost.vector_flops:
            fields["vector_flops"] = cost.vector_flops
        if cost.row_bytes:
            fields["row_bytes"] = cost.row_bytes
        if scope.path:
            fields["scope"] = scope.path
        source = self.env.source(instruction)
        if source:
            fields["source"] = source
        if cost.note:
            fields["note"] = cost.note
        if cost.region:
            fields["region"] = cost.region
        if cost.work != 1.0:
            fields["work"] = cost.work
        return self._append(Draft(Op, fields, needs, at, scope), instruction.name)

    def _source_bytes(self, instruction: Instruction, reads: list[int]) -> int:
        """Bytes read, each operand at the width it was converted from."""
        if not self.graph.from_convert.intersection(instruction.operands):
            return sum(reads)
        total = 0
        for value, read in zip(self.graph.operand_values(instruction), reads, strict=False):
            if read and isinstance(value, Ref):
                source, own = self.graph.source_bits(value)
                total += read if source == own or not own else read * source // own
            else:
                total += read
        return total

    def _collective(self, at: int, instruction: Instruction) -> None:
        needs = self._operand_needs(instruction)
        fields = self._collective_fields(self.graph, instruction, instruction)
        scope = self.scope(instruction)
        fields["scope"] = scope.path
        self._append(Draft(Op, fields, needs, at, scope), instruction.name)
        if instruction.opcode == "send":
            self._sends[_channel(instruction)] = instruction.name

    def _collective_fields(
        self, graph: Graph, instruction: Instruction, placed: Instruction
    ) -> dict[str, Any]:
        fields = self.env.collective(graph, instruction)
        collective = fields["collective"]
        fields.update(
            name=instruction.name,
            opcode=instruction.opcode,
            kind="collective",
            bytes_read=collective.payload_bytes,
            bytes_written=collective.result_bytes,
            source_bytes_read=collective.payload_bytes,
            result_bytes=collective.result_bytes,
            source=self.env.source(instruction) or self.env.source(placed),
        )
        return fields

    def _done(self, at: int, instruction: Instruction) -> None:
        needs = [self._operand_needs(instruction)]
        if instruction.opcode == "recv-done":
            send = self._sends.get(_channel(instruction))
            if send is not None:
                needs.append(self.drafts.made[send])
        fields = {
            "name": instruction.name,
            "opcode": instruction.opcode,
            "kind": "wait",
            "result_bytes": self.graph.shapes[instruction.name].bytes,
        }
        scope = self.scope(instruction)
        if scope.path:
            fields["scope"] = scope.path
        self._append(Draft(Op, fields, together(needs), at, scope), instruction.name)

    def _while(self, at: int, instruction: Instruction) -> None:
        context = full_name(self.context, instruction.op_name) or self.context
        name = instruction.attributes.get("body", "").lstrip("%")
        template = self.env.template(name, context)
        if template is None:
            self._missing(at, instruction, f"body {name} of while is not in the text")
            return
        scope = self.scope(instruction)
        fields = {
            "name": instruction.name,
            "trips": self.env.trips(self.computation, instruction),
            "body": template.body,
            "scope": scope.path,
            "source": self.env.source(instruction),
        }
        needs = self._operand_needs(instruction)
        self._append(Draft(Loop, fields, needs, at, scope), instruction.name)

    def _conditional(self, at: int, instruction: Instruction) -> None:
        context = full_name(self.context, instruction.op_name) or self.context
        templates = [self.env.template(name, context) for name in instruction.called]
        bodies = tuple(template.body for template in templates if template is not None)
        if not bodies:
            self._missing(at, instruction, "no branch of conditional is in the text")
            return
        scope = self.scope(instruction)
        fields = {"name": instruction.name, "bodies": bodies, "scope": scope.path}
        needs = self._operand_needs(instruction)
        self._append(Draft(Branch, fields, needs, at, scope), instruction.name)

    def _missing(self, at: int, instruction: Instruction, why: str) -> None:
        shapes = self.graph.operand_shapes(instruction)
        result = self.graph.shapes[instruction.name]
        reads = [shape.bytes for shape in shapes]
        note = f"{why}: reads {sum(reads)} bytes, writes {result.bytes} bytes"
        cost = Cost("unpriced", reads, result.bytes, note=note, result_bytes=result.bytes)
        self._op(at, instruction, cost, self._operand_needs(instruction))

    def _fusion(self, at: int, instruction: Instruction) -> None:
        fusion = self.env.fusion(instruction.called[0])
        if fusion is None:
            self._missing(
                at, instruction, f"fused computation {instruction.called[0]} is not in the text"
            )
            return
        needs = self._operand_needs(instruction)
        scope = self.scope(instruction)
        inside: list[Needs] = [needs]
        for graph, collective in fusion.collectives:
            fields = self._collective_fields(graph, collective, instruction)
            own = self.scope(collective)
            fields["scope"] = own.path or scope.path
            fields["name"] = f"{instruction.name}/{collective.name}"
            inside.append(Needs((self._append(Draft(Op, fields, needs, at, own)),)))
        result = self.graph.shapes[instruction.name]
        if instruction.opcode != "fusion":
            result = started_result(result)
        self._op(at, instruction, _fusion_cost(fusion, instruction, result), together(inside))

    def _call(self, at: int, instruction: Instruction) -> None:
        context = full_name(self.context, instruction.op_name) or self.context
        template = self.env.template(instruction.called[0], context)
        if template is None:
            self._missing(
                at, instruction, f"computation {instruction.called[0]} is not in the text"
            )
            return
        needs = self._operand_needs(instruction)
        if len(self.drafts.nodes) + len(template.drafts.nodes) > self.env.most_nodes:
            scope = self.scope(instruction)
            fields = {
                "name": instruction.name,
                "trips": 1,
                "body": template.body,
                "scope": scope.path,
            }
            self._append(Draft(Loop, fields, needs, at, scope), instruction.name)
            return
        self._inline(at, instruction, template)

    def _inline(self, at: int, instruction: Instruction, template: Template) -> None:
        """Put the nodes of a called computation here; its parameters are our operands."""
        operands = self.graph.operand_values(instruction)
        place: list[int] = []
        cache: dict[Parameter, Needs] = {}

        def outside(parameter: Parameter) -> Needs:
            number, path = parameter
            if parameter not in cache:
                value = at_path(operands[number], path) if number < len(operands) else None
                cache[parameter] = NOTHING if value is None else self.needs_of(value)
            return cache[parameter]

        def moved(needs: Needs) -> Needs:
            inside = Needs(tuple(place[node] for node in needs.nodes if place[node] >= 0))
            if not needs.parameters:
                return inside
            return together([inside, *map(outside, needs.parameters)])

        own = self.scope(instruction)
        for draft in template.drafts.nodes:
            if draft.fields.get("opcode") == "parameter":
                place.append(-1)
                continue
            fields = draft.fields
            if own.path and not fields.get("scope"):
                fields = {**fields, "scope": own.path}
            # regions of the callee are whole already; the call may lie in one of ours
            scope = own if own.region else NOWHERE
            needs = moved(draft.needs)
            place.append(len(self.drafts.nodes))
            self.drafts.nodes.append(Draft(draft.make, fields, needs, at, scope))
        results: list[Needs] = []
        for path, ref in result_parts(template.graph):
            needs = moved(template_needs(template, ref))
            results.append(needs)
            if path:
                self.drafts.parts[instruction.name, path] = needs
        self.drafts.made[instruction.name] = together(results)


def _fusion_cost(fusion: Fusion, instruction: Instruction, result: AnyShape) -> Cost:
    note = "; ".join(dict.fromkeys(fusion.notes))
    kind: Any = "matmul" if fusion.matmuls else "move" if fusion.only_moves else "vector"
    if fusion.unpriced:
        kind, note = "unpriced", "inside a fusion: " + "; ".join(dict.fromkeys(fusion.unpriced))
    reads = list(fusion.reads) + [0] * (len(instruction.operands) - len(fusion.reads))
    return Cost(
        kind,
        reads,
        fusion.written,
        matmuls=fusion.matmuls,
        matmul_opcodes=fusion.matmul_opcodes,
        vector_flops=fusion.vector_flops,
        note=note,
        result_bytes=result.bytes,
    )


def _is_host(instruction: Instruction) -> bool:
    return instruction.opcode == "send" and "is_host_transfer=true" in instruction.attribute_text


def _channel(instruction: Instruction) -> str:
    return instruction.attributes.get("channel_id", "")
