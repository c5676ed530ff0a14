"""Scalar integer arithmetic over HLO, with at most one unknown: a * i + b.

Enough to follow a loop counter through the body and the condition of a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from xla_cost.hlo.constants import constant_value
from xla_cost.hlo.ir import Computation, Instruction, Module, Shape
from xla_cost.walk.graph import tuple_index

#: Opcodes through which a scalar passes unchanged.
_SAME = frozenset(
    {"convert", "copy", "bitcast", "reshape", "broadcast", "opt-barrier", "optimization-barrier",
     "add-dependency", "all-reduce", "copy-start", "copy-done", "domain", "bitcast-convert"}
)  # fmt: skip
_CALLS = frozenset({"call", "fusion", "async-start", "async-done"})
#: Expressions nested deeper, or with more instructions, than this are no loop counter.
_NESTING = 80
_BUDGET = 20_000

FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
NEGATED = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}


@dataclass(frozen=True, slots=True)
class Affine:
    """a * i + b, with i what a loop counter is at the start of an iteration."""

    b: int
    a: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison that depends on the counter: `left DIRECTION right`."""

    left: Affine
    direction: str
    right: Affine


#: What a scalar is: a number, a comparison still open, or unknown.
Scalar = Affine | Comparison | None
#: The value of parameter p of a computation at a path inside it.
Environment = Callable[[int, tuple[int, ...]], Scalar]


class Evaluator:
    """Evaluates scalars of one module; unknown (None) wherever the text does not tell."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._nesting = 0
        self._budget = _BUDGET

    def value(
        self,
        computation: Computation,
        name: str,
        environment: Environment,
        path: tuple[int, ...] = (),
    ) -> Scalar:
        """The scalar that instruction `name` makes, at `path` where it makes a tuple."""
        if self._nesting == 0:
            self._budget = _BUDGET
        if self._nesting >= _NESTING:
            return None
        self._nesting += 1
        try:
            return self._follow(computation, name, environment, path)
        finally:
            self._nesting -= 1

    def _follow(
        self,
        computation: Computation,
        name: str,
        environment: Environment,
        path: tuple[int, ...],
    ) -> Scalar:
        while self._budget > 0:
            self._budget -= 1
            instruction = computation.by_name.get(name)
            if instruction is None:
                return None
            opcode = instruction.opcode
            operands = instruction.operands
            if opcode == "parameter":
                text = instruction.operand_text.strip()
                return environment(int(text) if text.isdecimal() else 0, path)
            if opcode == "constant":
                return None if path else constant_of(instruction)
            if opcode == "get-tuple-element" and operands:
                path = (tuple_index(instruction), *path)
                name = operands[0]
            elif opcode == "tuple" and path:
                if path[0] >= len(operands):
                    return None
                name, path = operands[path[0]], path[1:]
            elif opcode in _SAME and len(operands) == 1:
                name = operands[0]
            elif opcode in _CALLS and operands:
                return self._called(computation, instruction, environment, path)
            else:
                return self._computed(computation, instruction, environment)
        return None

    def _called(
        self,
        computation: Computation,
        instruction: Instruction,
        environment: Environment,
        path: tuple[int, ...],
    ) -> Scalar:
        operands = instruction.operands
        if instruction.opcode == "async-done":
            return self.value(computation, operands[0], environment, path)
        called = (
            self._module.computations.get(instruction.called[0]) if instruction.called else None
        )
        if called is None or not called.instructions:
            return None

        def inner(parameter: int, at: tuple[int, ...]) -> Scalar:
            if parameter >= len(operands):
                return None
            return self.value(computation, operands[parameter], environment, at)

        return self.value(called, called.root.name, inner, path)

    def _computed(
        self, computation: Computation, instruction: Instruction, environment: Environment
    ) -> Scalar:
        shape = instruction.shape
        if not isinstance(shape, Shape) or shape.elements != 1:
            return None
        if len(instruction.operands) not in (1, 2, 3):
            return None
        known = [self.value(computation, operand, environment) for operand in instruction.operands]
        return combine(instruction, known)


def constant_of(instruction: Instruction) -> Affine | None:
    """The integer of a scalar constant, also of a whole float or a truth value; else None."""
    number = constant_value(instruction)
    if number is None or not isfinite(number) or number != int(number):
        return None
    return Affine(int(number))


def combine(instruction: Instruction, known: list[Scalar]) -> Scalar:
    """The result of one arithmetic instruction on scalars."""
    opcode = instruction.opcode
    if opcode in ("and", "or") and len(known) == 2:
        return _logical(opcode, known[0], known[1])
    if opcode == "not":
        only = known[0]
        if isinstance(only, Comparison):
            return Comparison(only.left, NEGATED[only.direction], only.right)
        if isinstance(only, Affine) and only.a == 0 and only.b in (0, 1):
            return Affine(1 - only.b)
        return None
    if opcode == "select" and len(known) == 3:
        chosen = known[0]
        if isinstance(chosen, Affine) and chosen.a == 0:
            return known[1] if chosen.b else known[2]
        return known[1] if known[1] == known[2] else None
    numbers = [value for value in known if isinstance(value, Affine)]
    if len(numbers) != len(known):
        return None
    if opcode == "negate":
        return Affine(-numbers[0].b, -numbers[0].a)
    if len(numbers) != 2:
        return None
    left, right = numbers
    if opcode == "compare":
        return _compare(instruction.attributes.get("direction", "").strip(), left, right)
    if opcode == "add":
        return Affine(left.b + right.b, left.a + right.a)
    if opcode == "subtract":
        return Affine(left.b - right.b, left.a - right.a)
    if opcode == "multiply" and 0 in (left.a, right.a):
        return Affine(left.b * right.b, left.a * right.b + right.a * left.b)
    return _whole(opcode, left.b, right.b) if left.a == right.a == 0 else None


def _compare(direction: str, left: Affine, right: Affine) -> Scalar:
    if direction not in FLIPPED:
        return None
    if left.a == right.a:
        return Affine(int(holds(direction, left.b, right.b)))
    return Comparison(left, direction, right)


def holds(direction: str, left: int, right: int) -> bool:
    """Whether `left DIRECTION right`."""
    return {
        "LT": left < right, "LE": left <= right, "GT": left > right, "GE": left >= right,
        "EQ": left == right, "NE": left != right,
    }[direction]  # fmt: skip


def _whole(opcode: str, left: int, right: int) -> Scalar:
    """Arithmetic on two known integers; division truncates toward zero as in HLO."""
    if opcode in ("maximum", "minimum"):
        return Affine(max(left, right) if opcode == "maximum" else min(left, right))
    if opcode in ("divide", "remainder") and right:
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return Affine(quotient if opcode == "divide" else left - quotient * right)
    if opcode == "shift-left" and 0 <= right < 64:
        return Affine(left << right)
    if opcode.startswith("shift-right") and 0 <= right < 64 and left >= 0:
        return Affine(left >> right)
    return None


def _logical(opcode: str, left: Scalar, right: Scalar) -> Scalar:
    """`and` with true and `or` with false pass the other side; else both must be known."""
    passing = 1 if opcode == "and" else 0
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Affine) and one.a == 0 and one.b in (0, 1):
            return other if one.b == passing else Affine(1 - passing)
    return left if left == right else None
