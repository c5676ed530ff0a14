"""Hand-made ledgers and machines for the tests of pricing."""

from __future__ import annotations

from dataclasses import replace

from xla_cost.groups import DeviceGroups
from xla_cost.machine import Machine, Tier
from xla_cost.program import Body, Collective, Loop, Matmul, Node, Op, Program


def machine(pod: int = 4, scale_up: float = 100.0, scale_out: float = 10.0, **changes) -> Machine:
    """1000 FLOP/s in fp8 and bf16, 10 B/s of memory, pods of `pod` out of 64 devices."""
    tiers = (
        Tier("scale-up", pod, "switch", scale_up, 0.0, 1e-3),
        Tier("scale-out", 64, "switch", scale_out, 0.0, 1e-2),
    )
    made = Machine(
        name="toy",
        title="Toy",
        peak_flops={"fp8": 1000.0, "bf16": 1000.0},
        memory_capacity_bytes=1000.0,
        memory_bytes_per_s=10.0,
        tiers=tiers,
        static_w=5.0,
        max_w=15.0,
    )
    return replace(made, **changes)


def dot(name: str, deps: tuple[int, ...], seconds: float, scope: str = "layer/ffn") -> Op:
    """A matmul of `seconds` at 1000 FLOP/s, without bytes: 2 * m FLOPs with m = 500 a second."""
    matmul = Matmul(1, round(seconds * 500), 1, 1, "fp8")
    return Op(name, "dot", "matmul", deps, scope=scope, matmuls=(matmul,))


def vector(
    name: str, opcode: str, deps: tuple[int, ...], read: int, written: int, kind: str = "vector"
) -> Op:
    """An element-wise or rearranging op."""
    return Op(
        name, opcode, kind, deps, bytes_read=read, bytes_written=written, result_bytes=written
    )


def free(opcode: str, deps: tuple[int, ...] = ()) -> Op:
    """A parameter, tuple or get-tuple-element."""
    return Op(opcode, opcode, "free", deps)


def permute(name: str, deps: tuple[int, ...], size: int, scope: str = "layer/comm") -> Op:
    """A collective-permute of `size` bytes from each device to its neighbour in the pod."""
    pairs = DeviceGroups(((0, 1), (1, 0), (2, 3), (3, 2)), is_pairs=True)
    moved = Collective("collective-permute", pairs, size, size, "bf16")
    return Op(name, "collective-permute", "collective", deps, scope=scope, collective=moved)


def gather(name: str, deps: tuple[int, ...], size: int, devices: int, scope: str = "c") -> Op:
    """An all-gather of `size` bytes from each of the first `devices`."""
    groups = DeviceGroups.everyone(devices)
    moved = Collective("all-gather", groups, size, size * devices, "bf16")
    return Op(name, "all-gather", "collective", deps, scope=scope, collective=moved)


def program(*nodes: Node, devices: int = 4, **fields) -> Program:
    """An entry of these nodes."""
    return Program("toy", devices, Body(nodes, peak_live_bytes=100), 200, 50, **fields)


def loop(body: Body, trips: int | None, deps: tuple[int, ...] = ()) -> Loop:
    """A while over `body`."""
    return Loop("while", trips, body, deps, scope="layer")
