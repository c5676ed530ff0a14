"""How often a while runs: from the compiler's own count, else from its counter.

The condition compares a counter with a bound, the body adds a step, the operand holds the
start: trips = ceil((bound - start) / step). Where the bound is another element that the
loop carries unchanged, its value before the loop counts. Anything that depends on data is
unknown (None).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xla_cost.hlo.ir import BITS, Computation, Instruction, Module, Shape
from xla_cost.walk.scalars import FLIPPED, Affine, Comparison, Environment, Evaluator, Scalar, holds
from xla_cost.walk.values import shape_at

_KNOWN = re.compile(r'\\?"known_trip_count\\?"\s*:\s*\{\s*\\?"n\\?"\s*:\s*\\?"?(\d{1,18})')
#: A counter whose step is no constant is followed this many iterations.
_SIMULATED = 4096
#: Constants are followed out of this many nested computations.
_CALLERS = 32


#: The counter itself, as a function of the counter.
_COUNTER = Affine(0, 1)


class TripCounts:
    """Trip counts of the whiles of one module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._evaluator = Evaluator(module)
        self._callers: Mapping[str, list[tuple[Computation, Instruction]]] | None = None
        self._depth = 0

    def of(self, computation: Computation, loop: Instruction) -> int | None:
        """Trips of the while `loop` in `computation`; None where it depends on data."""
        match = _KNOWN.search(loop.attribute_text)
        if match:
            return int(match[1])
        body = self._module.computations.get(loop.attributes.get("body", "").lstrip("%"))
        condition = self._module.computations.get(loop.attributes.get("condition", "").lstrip("%"))
        if body is None or condition is None or not body.instructions or not condition.instructions:
            return None
        return _Loop(self, computation, loop, body, condition).trips()

    def before(self, computation: Computation, name: str, path: tuple[int, ...]) -> Scalar:
        """The value of an instruction where it is a constant, also one that a caller passes."""
        return self._evaluator.value(computation, name, self._outside(computation), path)

    def inside(
        self, computation: Computation, environment: Environment, path: tuple[int, ...] = ()
    ) -> Scalar:
        """The root of a computation whose parameters are given."""
        return self._evaluator.value(computation, computation.root.name, environment, path)

    def _outside(self, computation: Computation) -> Environment:
        def environment(parameter: int, path: tuple[int, ...]) -> Scalar:
            if self._depth >= _CALLERS:
                return None
            self._depth += 1
            try:
                return self._from_callers(computation, parameter, path)
            finally:
                self._depth -= 1

        return environment

    def _from_callers(
        self, computation: Computation, parameter: int, path: tuple[int, ...]
    ) -> Scalar:
        """What every caller passes, if they all pass the same constant."""
        found: set[Scalar] = set()
        for caller, instruction in self._call_sites().get(computation.name, []):
            opcode = instruction.opcode
            operand = parameter
            if opcode == "conditional":
                called = list(instruction.called)
                operand = 1 + called.index(computation.name)
            elif opcode == "while" and not self._unchanged(instruction, path):
                return None
            if operand >= len(instruction.operands):
                return None
            found.add(self.before(caller, instruction.operands[operand], path))
            if len(found) != 1:
                return None
        return found.pop() if found else None

    def _unchanged(self, loop: Instruction, path: tuple[int, ...]) -> bool:
        """Whether the body of a while passes the element at `path` on as it is."""
        body = self._module.computations.get(loop.attributes.get("body", "").lstrip("%"))
        if body is None:
            return False
        marker = Affine(0, 1)

        def environment(_: int, at: tuple[int, ...]) -> Scalar:
            return marker if at == path else None

        return self.inside(body, environment, path) == marker

    def _call_sites(self) -> Mapping[str, list[tuple[Computation, Instruction]]]:
        if self._callers is None:
            sites: dict[str, list[tuple[Computation, Instruction]]] = {}
            for computation in self._module.computations.values():
                for instruction in computation.instructions:
                    if instruction.opcode in ("while", "call", "conditional", "async-start"):
                        for name in instruction.called:
                            sites.setdefault(name, []).append((computation, instruction))
            self._callers = sites
        return self._callers


class _Loop:
    """One while on its way to a trip count."""

    def __init__(
        self,
        counts: TripCounts,
        computation: Computation,
        loop: Instruction,
        body: Computation,
        condition: Computation,
    ) -> None:
        self.counts = counts
        self.computation = computation
        self.loop = loop
        self.body = body
        self.condition = condition
        self.start_of: dict[tuple[int, ...], Scalar] = {}

    def trips(self) -> int | None:
        """The count, None where it depends on data."""
        asked: list[tuple[int, ...]] = []

        def record(_: int, path: tuple[int, ...]) -> Scalar:
            asked.append(path)
            return None

        self.counts.inside(self.condition, record)
        paths = list(dict.fromkeys(asked))
        changing = [path for path in paths if not self._is_fixed(path)]
        if len(changing) > 1:
            return None
        counter = changing[0] if changing else None
        test = self.counts.inside(self.condition, self._environment(counter))
        if isinstance(test, Affine) and test.a == 0:
            # the counter does not matter: never, or for ever
            return 0 if test.b == 0 else None
        if counter is None or not isinstance(test, Comparison):
            return None
        start = self._start(counter)
        if not isinstance(start, Affine) or start.a:
            return None
        step = self.counts.inside(self.body, self._environment(counter), counter)
        if isinstance(step, Affine) and step.a == 1:
            return closed_form(test, start.b, self._signed(step.b, counter))
        return self._simulate(counter, start.b)

    def _is_fixed(self, path: tuple[int, ...]) -> bool:
        marker = Affine(0, 1)

        def environment(_: int, at: tuple[int, ...]) -> Scalar:
            return marker if at == path else None

        return self.counts.inside(self.body, environment, path) == marker

    def _environment(
        self, counter: tuple[int, ...] | None, value: Scalar = _COUNTER
    ) -> Environment:
        def environment(_: int, path: tuple[int, ...]) -> Scalar:
            if path == counter:
                return value
            return self._start(path) if self._is_fixed(path) else None

        return environment

    def _start(self, path: tuple[int, ...]) -> Scalar:
        if path not in self.start_of:
            operand = self.loop.operands[0] if self.loop.operands else ""
            self.start_of[path] = self.counts.before(self.computation, operand, path)
        return self.start_of[path]

    def _signed(self, step: int, counter: tuple[int, ...]) -> int:
        """An unsigned step close to the top of its type is a negative one that wraps."""
        parameters = self.body.parameters
        shape = shape_at(parameters[0].shape, counter) if parameters else None
        if isinstance(shape, Shape) and shape.dtype[:1] == "u":
            size = 1 << BITS.get(shape.dtype, 32)
            if step >= size // 2:
                return step - size
        return step

    def _simulate(self, counter: tuple[int, ...], start: int) -> int | None:
        """Follow a counter that is multiplied, shifted or the like, step by step."""
        value = Affine(start)
        for trip in range(_SIMULATED):
            environment = self._environment(counter, value)
            test = self.counts.inside(self.condition, environment)
            if not isinstance(test, Affine):
                return None
            if test.b == 0:
                return trip
            following = self.counts.inside(self.body, environment, counter)
            if not isinstance(following, Affine) or following == value:
                return None
            value = following
        return None


def closed_form(test: Comparison, start: int, step: int) -> int | None:
    """Trips of `i = start; while (test(i)) i += step`; None where it would not end.

    trips = ceil((bound - start) / step) for `<`, one more at equality for `<=`.
    """
    left, direction, right = test.left, test.direction, test.right
    slope = left.a - right.a  # slope * i + offset DIRECTION 0
    offset = left.b - right.b
    if slope < 0:
        slope, offset, direction = -slope, -offset, FLIPPED[direction]
    first, stride = slope * start + offset, slope * step
    if not holds(direction, first, 0):
        return 0
    if direction == "EQ":
        return 1 if stride else None
    if direction == "NE":
        return -first // stride if stride and first % stride == 0 and -first // stride > 0 else None
    if direction in ("GT", "GE"):
        first, stride = -first, -stride
    if stride <= 0:
        return None
    distance = -first if direction in ("LT", "GT") else -first + 1
    return -(-distance // stride)
