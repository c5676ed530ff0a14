"""What one instruction computes and moves, control flow and fusions apart."""

from __future__ import annotations

from dataclasses import dataclass

from xla_cost.hlo.dims import (
    batch_group_count,
    conv_labels,
    dot_dims,
    feature_group_count,
    integers,
    window,
)
from xla_cost.hlo.ir import AnyShape, Instruction, Module, TupleShape
from xla_cost.program import Matmul, OpKind
from xla_cost.walk.convolution import conv_matmul
from xla_cost.walk.matmul import dot_matmul, ragged_matmuls
from xla_cost.walk.opcodes import ELEMENTWISE, MOVES, REDUCING, SLICING, STREAMING, async_inner
from xla_cost.walk.rules import CustomCall, Rules, target_of
from xla_cost.walk.values import first_array
from xla_cost.walk.vector import VectorCost, row_bytes

_REMEMBERED = 100_000


@dataclass(slots=True)
class Cost:
    """One instruction's work. `reads[i]` is what it takes from operand i, in bytes."""

    kind: OpKind
    reads: list[int]
    written: int
    matmuls: tuple[Matmul, ...] = ()
    vector_flops: int = 0
    note: str = ""
    region: str = ""
    work: float = 1.0
    result_bytes: int = 0
    row_bytes: int = 0
    #: opcode of each matmul, where it is not the instruction's own
    matmul_opcodes: tuple[str, ...] = ()


class Costing:
    """Costs of single instructions of one module under one set of rules."""

    def __init__(self, module: Module, rules: Rules) -> None:
        self.rules = rules
        self.vector = VectorCost(module)
        self._sizes: dict[int, int] = {}
        self._kept: list[AnyShape] = []

    def is_free_call(self, instruction: Instruction) -> bool:
        """Whether a custom call only renames its operand (an annotation)."""
        rule = self.rules.rule_for(target_of(instruction))
        if rule is None or len(instruction.operands) != 1:
            return False
        call = CustomCall(target_of(instruction), instruction, (), instruction.shape)
        try:
            cost = rule(call)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return False
        return cost is not None and cost.kind == "free"

    def cost(
        self,
        instruction: Instruction,
        operands: list[AnyShape],
        result: AnyShape,
    ) -> Cost:
        """The cost of any instruction that runs no other computation.

        What is not understood comes back as `unpriced` with the bytes at its border.
        """
        opcode = async_inner(instruction.opcode) or instruction.opcode
        if opcode != instruction.opcode:
            result = started_result(result)
        sizes = self._sizes
        reads = [sizes.get(id(shape)) or self._size(shape) for shape in operands]
        cost = self._known(instruction, opcode, operands, result, reads)
        written = sizes.get(id(result)) or self._size(result)
        if cost is None:
            why = f"no rule for opcode {opcode}"
            if opcode in _PRODUCTS:
                why = f"operand types and dimension numbers of {opcode} give no product"
            note = f"{why}: reads {sum(reads)} bytes, writes {written} bytes"
            cost = Cost("unpriced", reads, result.bytes, note=note)
        cost.result_bytes = written
        return cost

    def _size(self, shape: AnyShape) -> int:
        """Bytes of a type, remembered by its identity: types of equal text are one value."""
        if len(self._kept) > _REMEMBERED:
            self._kept.clear()
            self._sizes.clear()
        self._kept.append(shape)  # an id stays this shape's while the shape lives
        size = self._sizes[id(shape)] = shape.bytes
        return size

    def _known(
        self,
        instruction: Instruction,
        opcode: str,
        operands: list[AnyShape],
        result: AnyShape,
        reads: list[int],
    ) -> Cost | None:
        if opcode in ELEMENTWISE or opcode in STREAMING or opcode in REDUCING:
            flops = self.vector.flops(instruction, opcode, operands, result)
            written = self._sizes.get(id(result)) or self._size(result)
            row = row_bytes(instruction, operands) if opcode == "reduce" else 0
            return Cost("vector", reads, written, vector_flops=flops, row_bytes=row)
        if opcode == "send":  # to the host: between devices it is a collective
            return Cost("move", reads, 0, note="host transfer")
        if opcode in MOVES:
            return self._move(instruction, opcode, operands, result, reads)
        if opcode == "custom-call":
            return self._custom_call(instruction, operands, result, reads)
        matmuls = _matmuls(instruction, opcode, operands, result)
        if matmuls is None:
            return None
        note = "upper bound: group sizes are data" if opcode == "ragged-dot" else ""
        return Cost("matmul", reads, result.bytes, matmuls=matmuls, note=note)

    def _move(
        self,
        instruction: Instruction,
        opcode: str,
        operands: list[AnyShape],
        result: AnyShape,
        reads: list[int],
    ) -> Cost:
        written = self._sizes.get(id(result)) or self._size(result)
        flops = 0
        note = ""
        if opcode in SLICING and reads:
            reads[0] = min(reads[0], written)
        elif opcode == "dynamic-update-slice" and len(operands) > 1:
            written = operands[1].bytes  # in place: only the slice is touched
            reads[0] = 0
        elif opcode == "scatter" and len(operands) >= 3:
            many = (len(operands) - 1) // 2
            flops = self.vector.flops(instruction, opcode, operands, result)
            written = 0
            for number in range(many):  # in place: the touched elements are read and written
                touched = operands[many + 1 + number].bytes
                reads[number] = min(reads[number], touched)
                written += touched
        elif opcode in ("infeed", "outfeed"):
            note = "host transfer"
        elif opcode == "copy" and _spaces(operands) != _spaces([result]):
            note = "host offload" if 5 in (_spaces(operands) | _spaces([result])) else ""
        return Cost("move", reads, written, vector_flops=flops, note=note)

    def _custom_call(
        self,
        instruction: Instruction,
        operands: list[AnyShape],
        result: AnyShape,
        reads: list[int],
    ) -> Cost:
        target = target_of(instruction)
        call = CustomCall(target, instruction, tuple(operands), result)
        try:
            found = self.rules.cost(call)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            found, why = None, f"the rule for custom call {target} failed on it ({error!r})"
        else:
            has_rule = self.rules.rule_for(target) is not None
            why = f"custom call {target} " + (
                "is not of a form its rule can read" if has_rule else "has no rule"
            )
        if found is None:
            written = sum(shape.bytes for shape in call.results)
            note = f"{why}: reads {sum(reads)} bytes, writes {written} bytes"
            return Cost("unpriced", reads, written, note=note)
        written = result.bytes if found.bytes_written is None else found.bytes_written
        if found.bytes_read is not None:
            reads = _scaled(reads, found.bytes_read)
        return Cost(
            found.kind,
            reads,
            written,
            matmuls=found.matmuls,
            vector_flops=found.vector_flops,
            note=found.note,
            region=found.region,
            work=found.work,
        )


#: opcodes that are matrix products by their dimension numbers
_PRODUCTS = ("dot", "convolution", "ragged-dot", "scaled-dot")


def _spaces(shapes: list[AnyShape]) -> set[int]:
    return {array.memory_space for shape in shapes for array in shape.arrays}


def _scaled(reads: list[int], total: int) -> list[int]:
    """Split a known total over the operands in proportion to their size."""
    size = sum(reads)
    if not reads:
        return [total] if total else []
    if size == 0:
        return [total, *([0] * (len(reads) - 1))]
    parts = [total * read // size for read in reads]
    parts[0] += total - sum(parts)
    return parts


def started_result(result: AnyShape) -> AnyShape:
    """The result inside the type of an async start: `((operands), result, contexts..)`.

    An `all-reduce-start` prints the result alone; that is returned as it is.
    """
    if isinstance(result, TupleShape) and len(result.elements) >= 2:
        return result.elements[1]
    return result


def _matmuls(
    instruction: Instruction, opcode: str, operands: list[AnyShape], result: AnyShape
) -> tuple[Matmul, ...] | None:
    """Matrix products of a dot-like instruction.

    None for another opcode, missing types, and dimensions that the operands do not have.
    """
    if opcode not in _PRODUCTS or len(operands) < 2:
        return None
    lhs, rhs = first_array(operands[0]), first_array(operands[1])
    if "opaque" in (lhs.dtype, rhs.dtype):
        return None
    try:
        if opcode == "convolution":
            product = conv_matmul(
                lhs,
                rhs,
                first_array(result),
                window(instruction).dims,
                conv_labels(instruction),
                feature_groups=feature_group_count(instruction),
                batch_groups=batch_group_count(instruction),
            )
            return (product,)
        numbers = dot_dims(instruction)
        dims = {
            "lhs_batch": numbers.lhs_batch,
            "lhs_contracting": numbers.lhs_contracting,
            "rhs_batch": numbers.rhs_batch,
            "rhs_contracting": numbers.rhs_contracting,
        }
        if opcode == "ragged-dot":
            return ragged_matmuls(
                lhs,
                rhs,
                first_array(operands[2]),
                **dims,
                lhs_ragged=integers(instruction, "lhs_ragged_dims"),
                rhs_group=integers(instruction, "rhs_group_dims"),
            )
        if (
            opcode == "scaled-dot"
            and not _contracts(lhs.dims, rhs.dims, dims)
            and len(operands) > 2
        ):
            rhs = first_array(operands[2])  # older order: value, scale, value, scale
        has_algorithm = "algorithm=" in instruction.attribute_text
        algorithm = instruction.attributes.get("algorithm", "") if has_algorithm else ""
        return (dot_matmul(lhs, rhs, **dims, algorithm=algorithm),)
    except (IndexError, ValueError):
        return None


def _contracts(
    lhs: tuple[int, ...], rhs: tuple[int, ...], dims: dict[str, tuple[int, ...]]
) -> bool:
    left, right = dims["lhs_contracting"], dims["rhs_contracting"]
    return [lhs[d] for d in left] == [rhs[d] for d in right]
