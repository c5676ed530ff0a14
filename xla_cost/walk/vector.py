"""Vector FLOPs: arithmetic that a matrix unit does not do.

One per result element for arithmetic, comparison and selection (a transcendental counts
one, too, as in XLA's HloCostAnalysis); none for copies and conversions. A reduction does
one application of its computation per input element that disappears.
"""

from __future__ import annotations

import re
from math import ceil, log2, prod

from xla_cost.hlo.ir import AnyShape, Instruction, Module, Shape
from xla_cost.walk.graph import attribute_ints
from xla_cost.walk.opcodes import ELEMENTWISE
from xla_cost.walk.values import first_array

_TO_APPLY = re.compile(r"\bto_apply=%?([\w.\-]+)")


class VectorCost:
    """Counts for the opcodes of `opcodes.REDUCING` and `opcodes.ELEMENTWISE` in one module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._applied: dict[str, int] = {}

    def flops(
        self, instruction: Instruction, opcode: str, operands: list[AnyShape], result: AnyShape
    ) -> int:
        """Vector FLOPs of one execution."""
        out = first_array(result).elements
        if opcode in ELEMENTWISE:
            return out
        if opcode == "reduce":
            data = operands[: max(1, len(operands) // 2)]
            return self.per_application(instruction) * max(0, first_array(data[0]).elements - out)
        if opcode in ("reduce-window", "select-and-scatter"):
            size = instruction.attributes.get("window", "")
            at = size.find("size=")
            taps = (
                prod(int(n) for n in size[at + 5 :].split()[0].strip("{}").split("x"))
                if at >= 0
                else 1
            )
            return self.per_application(instruction) * out * max(1, taps - 1)
        if opcode == "map":
            return self.per_application(instruction) * out
        if opcode in ("scatter", "all-reduce", "reduce-scatter"):
            updates = operands[-1] if operands else result
            return self.per_application(instruction, none=0) * first_array(updates).elements
        if opcode in ("sort", "topk"):
            sorted_array = first_array(operands[0]) if operands else first_array(result)
            return sorted_array.elements * _levels(instruction, opcode, sorted_array)
        return _special(instruction, opcode, operands, out)

    def per_application(self, instruction: Instruction, none: int = 1) -> int:
        """Arithmetic instructions in the computation it applies to every element."""
        match = _TO_APPLY.search(instruction.attribute_text)
        name = match[1] if match else instruction.called[-1] if instruction.called else ""
        if not name:
            return none
        if name not in self._applied:
            computation = self._module.computations.get(name)
            inside = computation.instructions if computation else ()
            self._applied[name] = sum(1 for i in inside if i.opcode in ELEMENTWISE)
        return self._applied[name]


def row_bytes(instruction: Instruction, operands: list[AnyShape]) -> int:
    """Bytes of all arrays that a reduce makes one element of, if they lie side by side; else 0.

    They do where the reduced dimensions are the last, in the order a program is written in:
    what XLA's GPU backend calls a row reduction.
    """
    data = [first_array(shape) for shape in operands[: max(1, len(operands) // 2)]]
    dims = sorted(attribute_ints(instruction.attributes, "dimensions"))
    rank = len(data[0].dims) if data else 0
    if not dims or dims != list(range(rank - len(dims), rank)):
        return 0
    length = prod(data[0].dims[dim] for dim in dims)
    return sum(-(-array.bytes * length // max(1, array.elements)) for array in data)


def _levels(instruction: Instruction, opcode: str, data: Shape) -> int:
    """Comparisons per element: log2 of the sorted length (of k for a top-k selection)."""
    if opcode == "topk":
        k = attribute_ints(instruction.attributes, "k")
        return max(1, ceil(log2(max(2, k[0] if k else 2))))
    dims = attribute_ints(instruction.attributes, "dimensions")
    axis = dims[0] if dims else len(data.dims) - 1
    length = data.dims[axis] if 0 <= axis < len(data.dims) else 1
    return max(1, ceil(log2(max(2, length))))


def _special(instruction: Instruction, opcode: str, operands: list[AnyShape], out: int) -> int:
    """Library-like opcodes: an FFT, a factorisation, a batch norm, random numbers."""
    data = first_array(operands[0]) if operands else Shape("opaque")
    if opcode == "fft":  # 5 N log2 N real operations, Cooley-Tukey
        length = prod(attribute_ints(instruction.attributes, "fft_length")) or 1
        return 5 * max(out, data.elements) * ceil(log2(max(2, length)))
    if opcode == "cholesky":  # n^3 / 3 multiply-adds and a batch of them
        size = data.dims[-1] if data.dims else 1
        return data.elements * size // 3
    if opcode == "triangular-solve":  # n^2 per right side, 2 per multiply-add, half of it zero
        size = data.dims[-1] if data.dims else 1
        return out * size
    if opcode.startswith("batch-norm"):
        return 5 * data.elements
    if opcode.startswith("rng"):
        return out
    return 0
