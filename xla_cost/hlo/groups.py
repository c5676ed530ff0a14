"""Which devices take part in a collective, from the three forms of its text.

Source of the meaning: XLA's `GetCollectiveOpGroupMode` and `GetParticipatingDevicesGroups`
(xla/service/collective_ops_utils.h) and the operation semantics of openxla.org.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.hlo.devices import inferred_device_count
from xla_cost.hlo.ir import Instruction, Module
from xla_cost.hlo.meshes import iota, mesh_groups, numbers, shown

#: What the ids in a collective's groups are.
#:
#: - `replica`: replicas; each group runs once per partition
#: - `partition`: partitions; each group runs once per replica
#: - `replica_and_partition`: replicas, all partitions of which take part
#: - `flattened`: devices, replica * num_partitions + partition
Mode = Literal["replica", "partition", "replica_and_partition", "flattened"]

#: Collectives that may carry `use_global_device_ids`.
_GLOBAL = frozenset(("all-reduce", "all-gather", "reduce-scatter"))
_PAIRS = frozenset(("collective-permute", "send", "recv"))
_SUFFIX = re.compile(r"-(?:start|done|update)\Z")
_IOTA = re.compile(r"\[([\d,\s]*+)\]\s*+<=\s*+\[([\d,\s]*+)\]\s*+(?:T\(([\d,\s]*+)\))?+")
_LIST = re.compile(r"\{\s*+(?:\{[\d,\s]*+\}\s*+,?+\s*+)*+\}")
_GROUP = re.compile(r"\{([\d,\s]*+)\}")


def collective_groups(instruction: Instruction, module: Module) -> DeviceGroups:
    """Groups of device ids that `instruction` communicates in, or its pairs.

    Understands `{{0,1},{2,3}}`, iota `[2,4]<=[4,2]T(1,0)` and mesh axes
    `mesh['a'=2,'b'=4] {'b'}`; absent or `{}` means everyone. For collective-permute, send
    and recv the result is (source, target) pairs. Of an async pair either half may be given,
    if it prints the attributes.

    Raises XlaCostError naming the instruction, the value found and the one expected.
    """
    opcode = _SUFFIX.sub("", instruction.opcode)
    attributes = instruction.attributes
    where = f"line {instruction.line}: {instruction.opcode} {instruction.name}"
    mode = group_mode(instruction)
    if opcode in _PAIRS:
        text = attributes.get("source_target_pairs")
        if text is None:
            front = instruction.frontend_attributes
            text = front.get("_xla_send_recv_source_target_pairs", "{}")
        pairs = _listed(text, where)
        _check_inside(pairs, module, where)
        return _pairs(pairs, mode, module, where)
    text = attributes.get("replica_groups", "")
    groups = _parsed(text, where)
    if not groups:
        return _everyone(mode, module, instruction)
    _check_disjoint(groups, where)
    _check_inside(groups, module, where)
    return DeviceGroups.of(_expanded(groups, mode, module))


def group_mode(instruction: Instruction) -> Mode:
    """What the ids in the groups of `instruction` are, as XLA decides it."""
    opcode = _SUFFIX.sub("", instruction.opcode)
    attributes = instruction.attributes
    has_channel = attributes.get("channel_id", "0") not in ("0", "")
    if opcode not in _GLOBAL:
        return "partition" if has_channel else "replica"
    if attributes.get("use_global_device_ids") == "true":
        return "flattened"
    return "replica_and_partition" if has_channel else "replica"


def states_group(instruction: Instruction, module: Module) -> bool:
    """Whether the text says how many devices take part.

    False where the groups mean everyone and the module says nothing of its devices: then
    `collective_groups` infers the number from types, other groups and shardings.
    """
    attributes = instruction.attributes
    if "source_target_pairs" in attributes:
        return True
    has_groups = attributes.get("replica_groups", "{}").replace(" ", "") not in ("{}", "{{}}")
    return has_groups or _states_devices(module)


def _states_devices(module: Module) -> bool:
    return "num_partitions" in module.attributes or "replica_count" in module.attributes


def _parsed(text: str, where: str) -> Sequence[Sequence[int]]:
    """Groups as written; empty for everyone."""
    text = text.strip()
    if not text:
        return ()
    if text.startswith("mesh"):
        return mesh_groups(text, where)
    if text.startswith("["):
        match = _IOTA.fullmatch(text)
        if match is None:
            raise XlaCostError(
                f"{where}: replica_groups={shown(text)} found, "
                "expected [groups,size]<=[dims]T(perm)"
            )
        dims = numbers(match[1])
        if len(dims) != 2:
            raise XlaCostError(
                f"{where}: replica_groups={shown(text)} has {len(dims)} dimensions, expected 2 "
                f"(groups and devices in each)"
            )
        ids = iota(dims, numbers(match[2]), match[3], f"{where}: replica_groups={shown(text)}")
        return [ids[row * dims[1] : (row + 1) * dims[1]] for row in range(dims[0])]
    return _listed(text, where)


def _listed(text: str, where: str) -> Sequence[Sequence[int]]:
    """Groups of `{{0,1},{2,3}}`, empty ones left out."""
    text = text.strip()
    if not _LIST.fullmatch(text):
        raise XlaCostError(f"{where}: groups {shown(text)} found, expected {{{{0,1}},{{2,3}}}}")
    groups = [numbers(inner) for inner in _GROUP.findall(text[1:-1])]
    return [group for group in groups if group]


def _check_disjoint(groups: Sequence[Sequence[int]], where: str) -> None:
    seen: set[int] = set()
    for group in groups:
        for member in group:
            if member in seen:
                raise XlaCostError(
                    f"{where}: id {member} found twice in its groups, expected disjoint groups"
                )
            seen.add(member)


def _check_inside(groups: Sequence[Sequence[int]], module: Module, where: str) -> None:
    """Refuse ids that the header leaves no room for, whatever they count.

    A header of one device counts as none: dumps leave it out, and hand-written modules with
    `num_partitions=1` run on as many replicas as their runner likes.
    """
    largest = max(map(max, groups), default=-1)
    if largest >= module.device_count > 1:
        raise XlaCostError(
            f"{where}: id {largest} found in its groups, expected ids below the "
            f"{module.device_count} devices of the header (replica_count={module.replica_count}, "
            f"num_partitions={module.num_partitions})"
        )


def _counts(module: Module) -> tuple[int, int]:
    """(replicas, partitions); a module that states neither has as many partitions as it uses."""
    if _states_devices(module):
        return module.replica_count, module.num_partitions
    return 1, inferred_device_count(module)


def _everyone(mode: Mode, module: Module, instruction: Instruction) -> DeviceGroups:
    replicas, partitions = _counts(module)
    if not _states_devices(module):
        return DeviceGroups.everyone(inferred_device_count(module, instruction))
    if mode == "replica":
        return DeviceGroups.of(_expanded([range(replicas)], mode, module))
    if mode == "partition":
        return DeviceGroups.of(_expanded([range(partitions)], mode, module))
    return DeviceGroups.everyone(replicas * partitions)


def _expanded(groups: Sequence[Sequence[int]], mode: Mode, module: Module) -> list[tuple[int, ...]]:
    """Groups of device ids, replica * num_partitions + partition, from the groups as written."""
    if mode == "flattened":
        return [tuple(group) for group in groups]
    replicas, partitions = _counts(module)
    if mode == "partition":
        return [
            tuple(replica * partitions + member for member in group)
            for replica in range(replicas)
            for group in groups
        ]
    if mode == "replica":
        # a module that states no counts is written for as many replicas as its groups name
        partitions = partitions if _states_devices(module) else 1
        return [
            tuple(member * partitions + partition for member in group)
            for partition in range(partitions)
            for group in groups
        ]
    if not _states_devices(module) and max(map(len, groups)) > 1:
        partitions = 1
    return [
        tuple(member * partitions + part for member in group for part in range(partitions))
        for group in groups
    ]


def _pairs(pairs: Sequence[Sequence[int]], mode: Mode, module: Module, where: str) -> DeviceGroups:
    """Pairs of device ids from the pairs as written."""
    for pair in pairs:
        if len(pair) != 2:
            raise XlaCostError(
                f"{where}: pair {{{','.join(map(str, pair))}}} found, expected {{source,target}}"
            )
    targets = [pair[1] for pair in pairs]
    if len(set(targets)) != len(targets):
        twice = next(target for target in targets if targets.count(target) > 1)
        raise XlaCostError(
            f"{where}: target {twice} found twice in its pairs, expected each target once"
        )
    if module.replica_count > 1 and module.num_partitions > 1:
        pairs = _expanded(pairs, mode, module)
    return DeviceGroups(tuple(tuple(pair) for pair in pairs), is_pairs=True)
