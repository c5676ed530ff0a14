"""Trip counts of `stablehlo.while`, read from its condition, its body and its start value."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir


def trip_count(loop: Any) -> int | None:
    """Return how often a loop's body runs, or None when that depends on data.

    Understands a counter that starts at a constant, moves by a constant and is compared
    with a constant: what `scan`, `fori_loop` and `map` become.
    """
    condition = loop.operation.regions[0].blocks[0]
    body = loop.operation.regions[1].blocks[0]
    compare = _producer(condition.operations[len(condition.operations) - 1].operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    direction = _direction(compare)
    left, right = compare.operands[0], compare.operands[1]
    if _argument(right) is not None and _constant(left) is not None:
        left, right = right, left
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    counter = _argument(left)
    if counter is None:
        return None
    bound = _constant(right)
    if bound is None:
        bound = _invariant(_argument(right), loop, body)
    start = _constant(loop.operands[counter])
    step = _step(body, counter)
    if bound is None or start is None or step is None:
        return None
    return _trips(start, step, bound, direction)


def _trips(start: int, step: int, bound: int, direction: str) -> int | None:
    if direction == "NE":
        distance = bound - start
        exact = step != 0 and distance % step == 0 and distance // step >= 0
        return distance // step if exact else None
    if direction in ("LE", "GE"):
        bound += 1 if direction == "LE" else -1
        direction = "LT" if direction == "LE" else "GT"
    if direction == "GT":
        start, step, bound = -start, -step, -bound
    elif direction != "LT":
        return None
    if start >= bound:
        return 0
    return None if step <= 0 else -(-(bound - start) // step)


def _step(body: Any, counter: int) -> int | None:
    """What the body adds to the counter."""
    result = body.operations[len(body.operations) - 1].operands[counter]
    update = _producer(result)
    if update is None or update.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = update.operands[0], update.operands[1]
    if update.name == "stablehlo.add" and _argument(right) == counter:
        left, right = right, left
    amount = _constant(right)
    if _argument(left) != counter or amount is None:
        return None
    return amount if update.name == "stablehlo.add" else -amount


def _invariant(argument: int | None, loop: Any, body: Any) -> int | None:
    """The start value of a loop-carried value that the body hands on unchanged."""
    if argument is None:
        return None
    handed_on = body.operations[len(body.operations) - 1].operands[argument]
    return _constant(loop.operands[argument]) if _argument(handed_on) == argument else None


def _direction(compare: Any) -> str:
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def _producer(value: Any) -> Any:
    """The operation that makes a value, past conversions; None for block arguments."""
    while not isinstance(value, ir.BlockArgument):
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if isinstance(op, ir.Block):
            return None
        if op.name != "stablehlo.convert":
            return op
        value = op.operands[0]
    return None


def _argument(value: Any) -> int | None:
    """The number of the block argument that a value is, past conversions."""
    while not isinstance(value, ir.BlockArgument):
        if isinstance(value.owner, ir.Block):
            return int(ir.BlockArgument(value).arg_number)
        op = value.owner.operation
        if op.name != "stablehlo.convert":
            return None
        value = op.operands[0]
    return int(value.arg_number)


def _constant(value: Any) -> int | None:
    op = _producer(value)
    if op is None or op.name != "stablehlo.constant":
        return None
    attribute = ir.DenseElementsAttr(op.attributes["value"])
    if not attribute.is_splat:
        return None
    try:
        return int(ir.IntegerAttr(attribute.get_splat_value()).value)
    except ValueError:
        return None
