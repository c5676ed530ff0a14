"""Whether the SPMD partitioner has still to run on a module."""

from __future__ import annotations

import re
from math import prod

from xla_cost.hlo.ir import Instruction, Module

#: Custom calls that ask the SPMD partitioner for something and are gone when it has run.
_REQUESTS = ('"Sharding"', '"SPMDFullToShardShape"', '"SPMDShardToFullShape"')
#: What Shardy reads: jax writes it, and the pass before the partitioner takes it all away, but
#: for names of computations.
_SHARDY = re.compile(r'[{,]\s*xla\.sdy\.\w+=|custom_call_target="xla\.sdy\.')
#: Carry a sharding after partitioning as well, and so does a root.
_KEEP = ("parameter", "tuple", "get-tuple-element")
_TILES = re.compile(r"sharding=\{\{?devices=\[([\d,]+)\]")
_AXES = re.compile(r"(?:sharding=\{\{?mesh\[|sdy\.mesh<\[)([^\]]*)\]")


def unpartitioned_devices(module: Module) -> int:
    """Devices that text before partitioning is for; 0 where it is past it, or for one device.

    The partitioner leaves shardings on parameters and results; before it they stand on other
    instructions, too, in custom calls, or as Shardy's attributes. Scheduled text is past it.
    Text of the older GSPMD with shardings on parameters alone looks the same before and after.
    """
    if module.is_scheduled:
        return 0
    header = " ".join(f"{key}={value}" for key, value in module.attributes.items())
    marked = _SHARDY.search(header) is not None
    devices = max(module.num_partitions, _named(header))
    for computation in module.computations.values():
        for instruction in computation.instructions:
            text = instruction.attribute_text
            if "shard" in text or "xla.sdy" in text or "Shard" in text:
                marked = marked or _is_mark(instruction)
                if devices == 1:
                    devices = _named(text)
                if marked and devices > 1:
                    return devices
    return devices if marked and devices > 1 else 0


def _is_mark(instruction: Instruction) -> bool:
    text = instruction.attribute_text
    if _SHARDY.search(text):
        return True
    if instruction.opcode == "custom-call":
        return any(target in text for target in _REQUESTS)
    if instruction.opcode in _KEEP or instruction.is_root:
        return False
    return _named(text) > 1


def _named(text: str) -> int:
    """Devices that the shardings in a text divide among; 1 where it names none."""
    if tiles := _TILES.search(text):
        return prod(int(size[:9]) for size in tiles[1].split(",") if size)
    if axes := _AXES.search(text):
        return prod(int(size[:9]) for size in re.findall(r"=(\d+)", axes[1]))
    return 1
