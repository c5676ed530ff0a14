"""How many devices a module runs on, where its header does not say."""

from __future__ import annotations

import re
from functools import lru_cache

from xla_cost.hlo.ir import Instruction, Module
from xla_cost.hlo.meshes import MAX_DEVICES

_TILES = re.compile(r"devices=\[(\d{1,9}(?:,\d{1,9})*+)\]")
_IOTA = re.compile(r"replica_groups=\[\d{1,9},\d{1,9}\]<=\[(\d{1,9}(?:,\d{1,9})*+)\]")
_LIST = re.compile(r"(?:replica_groups|source_target_pairs)=(\{\s*+\{[\d,{}\s]*+)")
_MESH = re.compile(r"replica_groups=mesh\[([^\[\]]*+)\]")
_NUMBER = re.compile(r"\d{1,9}")


def inferred_device_count(module: Module, instruction: Instruction | None = None) -> int:
    """Devices of a module, as far as the text shows them; at least 1.

    What the header states counts. Else how much larger `instruction`, an all-gather, makes
    its operand (or a reduce-scatter smaller), else the most devices that any sharding,
    replica group or source-target pair in the module names.
    """
    if "num_partitions" in module.attributes or "replica_count" in module.attributes:
        return module.device_count
    count = _ratio(module, instruction) if instruction is not None else 1
    return min(count if count > 1 else _named(module), MAX_DEVICES)


@lru_cache(maxsize=64)
def _of_text(text: str) -> int:
    return max((int(number) + 1 for number in _NUMBER.findall(text)), default=1)


def _named(module: Module) -> int:
    """The most devices that any sharding, group or pair in `module` names."""
    cached = module.__dict__.get("_named_devices")
    if isinstance(cached, int):
        return cached
    most = 1
    for computation in module.computations.values():
        for instruction in computation.instructions:
            text = instruction.attribute_text
            if "devices=[" in text:
                for match in _TILES.finditer(text):
                    most = max(most, _product(match[1]))
            if "replica_groups=" in text or "source_target_pairs=" in text:
                most = max(most, _in_groups(text))
    module.__dict__["_named_devices"] = most
    return most


def _in_groups(text: str) -> int:
    listed = _LIST.search(text)
    if listed is not None:
        return _of_text(listed[1])
    tiled = _IOTA.search(text) or _MESH.search(text)
    if tiled is None:
        return 1
    sizes = tiled[1] if "=" not in tiled[1] else ",".join(re.findall(r"=(\d{1,9})", tiled[1]))
    return _product(sizes)


def _product(sizes: str) -> int:
    product = 1
    for size in sizes.split(","):
        product *= int(size) if size else 1
    return product


def _ratio(module: Module, instruction: Instruction) -> int:
    """Result over operand bytes of an all-gather, operand over result of a reduce-scatter."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in ("all-gather", "reduce-scatter") or not instruction.operands:
        return 1
    operand = instruction.operand_shapes[0]
    if operand is None:
        found = _definition(module, instruction)
        operand = None if found is None else found.shape
    result = instruction.shape.arrays
    if operand is None or not operand.bytes or not result or not result[-1].bytes:
        return 1
    small, large = operand.arrays[0].bytes, result[-1].bytes
    if opcode == "reduce-scatter":
        small, large = large, small
    return large // small if small and large % small == 0 else 1


def _definition(module: Module, user: Instruction) -> Instruction | None:
    """The first operand of `user`, looked up where `user` stands."""
    homes = module.__dict__.get("_homes")
    if homes is None:
        homes = module.__dict__["_homes"] = {
            id(instruction): computation
            for computation in module.computations.values()
            for instruction in computation.instructions
        }
    home = homes.get(id(user))
    found: Instruction | None = home.by_name.get(user.operands[0]) if home else None
    return found
