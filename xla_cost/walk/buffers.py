"""Whose memory an array is: its own, an earlier array's, or the caller's.

A dynamic-update-slice or scatter is written over its first operand, the state of a while stays
where it starts, and what a call or fusion only updates stays with its operand. Zeros that a loop
or an update starts from stand nowhere before: there the result is its own. An argument that is
updated is taken as donated (XLA's `input_output_alias`): its update needs no second copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.hlo.ir import Instruction
from xla_cost.walk.graph import Graph
from xla_cost.walk.opcodes import ELEMENTWISE, STREAMING
from xla_cost.walk.templates import parameter_number
from xla_cost.walk.values import Ref, Value, at_path

#: Opcodes whose result is their first operand's memory, updated.
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
#: Tuples are followed this deep.
DEEPEST = 64

#: Opcodes that make values out of nothing that stands in memory, and those that pass such on.
_FROM_NOTHING = frozenset({"constant", "iota", "partition-id", "replica-id"})
_PASSES_ON = ELEMENTWISE | STREAMING | {"reshape", "bitcast", "transpose", "slice", "dynamic-slice"}

Path = tuple[int, ...]
#: A part of an argument: the number of the parameter, and the path inside it.
Argument = tuple[int, Path]


class Buffers:
    """The allocation behind every array of a computation.

    `generated` names values made of constants and positions alone, which no one has to store;
    `shared` the instructions of whose result a part lies elsewhere. `updated` has, by the name of
    an instruction that runs another computation, what `updated_arguments` says of that.
    """

    def __init__(self, graph: Graph, updated: Mapping[str, Mapping[Path, Argument]]) -> None:
        self._graph = graph
        self._held = {i.name for i in graph.instructions if i.opcode in ("parameter", "constant")}
        self.generated = _generated(graph)
        self._home: dict[Ref, Ref | None] = {}
        self.shared: set[str] = set()
        for instruction in graph.instructions:
            for path, source in _sources(graph, instruction, updated.get(instruction.name, {})):
                home = self.of(source)
                if (home or source).producer not in self.generated:  # else nothing stood there
                    self._home[Ref(instruction.name, path)] = home
                    self.shared.add(instruction.name)

    def of(self, ref: Ref) -> Ref | None:
        """The allocation that holds a reference; None where a parameter or constant does."""
        while True:
            if ref.producer in self._held or ref.producer not in self._graph.index:
                return None
            depths = range(min(len(ref.path), DEEPEST), -1, -1)
            for length in depths if ref.producer in self.shared else ():
                found = self._home.get(Ref(ref.producer, ref.path[:length]), ref)
                if found is None:
                    return None
                if found != ref:
                    ref = Ref(found.producer, (*found.path, *ref.path[length:]))
                    break
            else:
                return ref


def _sources(
    graph: Graph, instruction: Instruction, updated: Mapping[Path, Argument]
) -> list[tuple[Path, Ref]]:
    """(part of the result, array whose memory it is) of what is not its own."""
    operands = graph.operand_values(instruction)
    found: list[tuple[Path, Value]] = []
    if instruction.opcode in _IN_PLACE and operands:
        found = [((), operands[0])]
    elif instruction.opcode == "while" and operands and not isinstance(operands[0], Ref):
        found = [((number,), part) for number, part in enumerate(operands[0])]
    elif instruction.opcode != "while":
        found = [
            (path, at_path(operands[number], inner))
            for path, (number, inner) in updated.items()
            if number < len(operands)
        ]
    return [(path, value) for path, value in found if isinstance(value, Ref)]


def updated_arguments(
    graph: Graph, updated: Mapping[str, Mapping[Path, Argument]]
) -> dict[Path, Argument]:
    """Parts of a computation's result that are an argument passed on or updated in place.

    The state of a while counts as such only where its body updates it in place, too: what a
    body makes anew is no update of what the loop started from.
    """
    found: dict[Path, Argument] = {}
    known: dict[Ref, Argument | None] = {}
    for path, value in _parts(graph.root):
        ref: Ref | None = value
        trail: list[Ref] = []
        argument: Argument | None = None
        while ref is not None:
            if ref in known:
                argument = known[ref]
                break
            trail.append(ref)
            instruction = graph.instruction(ref.producer)
            if instruction is None:
                break
            if instruction.opcode == "parameter":
                argument = (parameter_number(instruction), ref.path)
                break
            ref = _before(graph, instruction, ref, updated)
        known.update(dict.fromkeys(trail, argument))
        if argument is not None:
            found[path] = argument
    return found


def _parts(root: Value) -> list[tuple[Path, Ref]]:
    """(path, reference) of the parts of a result, down to some depth."""
    found: list[tuple[Path, Ref]] = []
    stack: list[tuple[Path, Value]] = [((), root)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Ref):
            found.append((path, value))
        elif len(path) < DEEPEST:
            stack.extend(((*path, i), value[i]) for i in range(len(value)))
    return found


def _before(
    graph: Graph,
    instruction: Instruction,
    ref: Ref,
    updated: Mapping[str, Mapping[Path, Argument]],
) -> Ref | None:
    """The operand that a result updates in place, None where it makes a new one."""
    operands = graph.operand_values(instruction)
    argument: Argument | None = None
    if instruction.opcode in _IN_PLACE and not ref.path:
        argument = (0, ())
    else:
        argument = updated.get(instruction.name, {}).get(ref.path)
        if instruction.opcode == "while" and argument != (0, ref.path):
            return None
    if argument is None or argument[0] >= len(operands):
        return None
    value = at_path(operands[argument[0]], argument[1])
    return value if isinstance(value, Ref) else None


def _generated(graph: Graph) -> frozenset[str]:
    """Values made of constants and positions alone, which no one has to store."""
    found: set[str] = set()
    for instruction in graph.instructions:
        opcode = instruction.opcode
        if opcode in _FROM_NOTHING or (
            opcode in _PASSES_ON and all(name in found for name in instruction.operands)
        ):
            found.add(instruction.name)
    return frozenset(found)
