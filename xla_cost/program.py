"""The hardware-free ledger: what a partitioned program computes and moves, on one device.

A tree of ops, loops and branches. Nothing in it knows a machine, so one Program prices on
any number of them. FLOPs are 2 per multiply-add; bytes are per device and per execution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from xla_cost.groups import DeviceGroups

#: Number formats that a matrix unit has a rate for; every HLO element type maps to one.
FORMATS = ("fp4", "fp8", "int4", "int8", "fp16", "bf16", "tf32", "fp32", "fp64")

OpKind = Literal[
    "matmul",  # dot, convolution, ragged-dot, scaled-dot, known library matmuls
    "kernel",  # a marked region or a known fused kernel (attention): one launch
    "collective",
    "vector",  # element-wise, reductions, anything that streams memory
    "move",  # copies, slices, gathers, transposes
    "free",  # tuple, get-tuple-element, bitcast, parameter, constant: no time
    "wait",  # the -done of an async pair: takes no time, but depends on its start
    "unpriced",  # not understood: `note` says why and what it may cost
]

CollectiveKind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast", "send-recv",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matmul:
    """`batch` products of [m, k] by [k, n]; for a grouped GEMM one product per expert.

    `format` is the one the matrix unit multiplies in: the wider of the two operands'.
    `grouped` marks expert GEMMs, whose m is rows per expert and batch the experts. `padded`
    are multiply-adds of one product that its whole sizes hold and nobody needs: a convolution
    has as k the taps inside the input that an output has on average, rounded up.
    """

    batch: int
    m: int
    n: int
    k: int
    format: str
    grouped: bool = False
    padded: int = 0

    @property
    def flops(self) -> int:
        """2 per multiply-add, without the padded ones."""
        return 2 * self.batch * (self.m * self.n * self.k - self.padded)


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective as it stands in the program.

    `payload_bytes` is the operand bytes of one execution on one device (index and size
    operands left out), `result_bytes` the result's. `rewritten_from` is set when the text
    says one thing and compilers do another: an all-reduce whose users only slice their own
    part is priced as the reduce-scatter that GPU and TPU make of it.
    """

    kind: CollectiveKind
    groups: DeviceGroups
    payload_bytes: int
    result_bytes: int
    format: str
    rewritten_from: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """One priced step of a body. `deps` are indices into the same body's `nodes`."""

    name: str
    opcode: str
    kind: OpKind
    deps: tuple[int, ...]
    scope: str = ""  # op_name path without jit(..) and the trailing primitive
    source: str = ""  # file:line of the user's code
    matmuls: tuple[Matmul, ...] = ()
    #: HLO opcode of each matmul, where the op's own does not say (fusions, kernel regions)
    matmul_opcodes: tuple[str, ...] = ()
    vector_flops: int = 0
    bytes_read: int = 0  # operands at the op's border
    bytes_written: int = 0
    #: like bytes_read, but operands made by a convert count at the width they were
    #: converted from: what a fused quantise/dequantise reads
    source_bytes_read: int = 0
    collective: Collective | None = None
    #: fraction of the region's FLOPs that a kernel does on the busiest device (causal skip)
    work: float = 1.0
    #: kernel name of a marked region: "flash_attention", "grouped_gemm", ..
    region: str = ""
    #: of a region of experts: tokens that all of them together get, each to `top_k` of
    #: `routed_experts`, here and on other devices; 0 where the mark does not say
    routed_tokens: int = 0
    routed_experts: int = 0
    top_k: int = 0
    note: str = ""
    result_bytes: int = 0
    #: of a reduce along the fastest dimensions: bytes that make one element of its result
    row_bytes: int = 0

    @property
    def flops(self) -> int:
        """Matrix FLOPs, before `work` is applied."""
        return sum(matmul.flops for matmul in self.matmuls)


@dataclass(frozen=True, slots=True)
class Loop:
    """A while: `trips` is None when it depends on data (then it is listed, and costed once)."""

    name: str
    trips: int | None
    body: Body
    deps: tuple[int, ...]
    scope: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional: one of `bodies` runs; costs take the dearest."""

    name: str
    bodies: tuple[Body, ...]
    deps: tuple[int, ...]
    scope: str = ""


Node = Op | Loop | Branch


@dataclass(frozen=True, slots=True)
class Body:
    """Nodes in program order. `peak_live_bytes` is the most that is alive at once inside.

    `carried` is for the body of a loop: pairs (producer, reader) of indices into `nodes`; the
    next iteration's `reader` (which takes an element of the body's parameter) gets what this
    iteration's `producer` made. A value passed through unchanged is a pair of the reader with
    itself. None where that is not known: then an iteration waits for all of the one before.
    """

    nodes: tuple[Node, ...]
    peak_live_bytes: int = 0
    carried: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A whole partitioned module as one device runs it, and how it was made.

    `weights_bytes` and `kv_cache_bytes` are given by whoever knows what the arguments and
    results mean (a model); None: all of `parameter_bytes` counts as weights, no cache.
    """

    name: str
    devices: int
    entry: Body
    parameter_bytes: int
    output_bytes: int
    warnings: tuple[str, ...] = ()  # the compiler's own, and the reader's
    provenance: tuple[tuple[str, str], ...] = ()  # jax version, mesh, HLO hash, ..
    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    #: shares of the instructions, and of the bytes moved, that were understood
    coverage: float = 1.0
    coverage_bytes: float = 1.0
    unparsed_lines: int = 0

    def walk(self) -> Iterator[tuple[Op, float]]:
        """Every op once, in program order, with its number of executions.

        Loops whose trip count is unknown count once. Of a branch the body with the most
        matrix FLOPs is taken.
        """
        return _walk(self.entry, 1.0)


def body_flops(body: Body) -> float:
    """Matrix FLOPs of one execution of `body`, loops times trips, the dearest branch."""
    return _flops(body, {})


def _walk(entry: Body, times: float) -> Iterator[tuple[Op, float]]:
    """Ops in program order, on an explicit stack: HLO nests arbitrarily deep.

    A body that several loops share comes once, with the executions of all of them, so that a
    program whose calls double twenty times stays as small as its text.
    """
    runs = _runs(entry)
    executions = {id(entry): times}
    for body in reversed(_inner_first(entry, runs)):
        for inner, trips in runs[id(body)]:
            before = executions.get(id(inner), 0.0)
            executions[id(inner)] = before + executions[id(body)] * trips
    seen = {id(entry)}
    stack = [(entry, iter(entry.nodes), iter(runs[id(entry)]))]
    while stack:
        here, nodes, inside = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
        elif isinstance(node, Op):
            yield node, executions[id(here)]
        else:
            inner, _ = next(inside)
            if id(inner) not in seen:
                seen.add(id(inner))
                stack.append((inner, iter(inner.nodes), iter(runs[id(inner)])))


def _runs(entry: Body) -> dict[int, list[tuple[Body, float]]]:
    """Per body (by identity), the body and trips of each of its loops and conditionals."""
    known: dict[int, float] = {}
    found: dict[int, list[tuple[Body, float]]] = {}
    stack = [entry]
    while stack:
        body = stack.pop()
        if id(body) in found:
            continue
        found[id(body)] = runs = []
        for node in body.nodes:
            if isinstance(node, Loop):
                runs.append((node.body, 1.0 if node.trips is None else float(node.trips)))
            elif isinstance(node, Branch):
                dearest = max(node.bodies, key=lambda inner: _flops(inner, known))
                runs.append((dearest, 1.0))
        stack.extend(inner for inner, _ in runs)
    return found


def _inner_first(entry: Body, runs: dict[int, list[tuple[Body, float]]]) -> list[Body]:
    """Every body that runs, after all that it runs."""
    order: list[Body] = []
    seen: set[int] = {id(entry)}
    stack = [(entry, iter(runs[id(entry)]))]
    while stack:
        body, inside = stack[-1]
        following = next(inside, None)
        if following is None:
            stack.pop()
            order.append(body)
        elif id(following[0]) not in seen:
            seen.add(id(following[0]))
            stack.append((following[0], iter(runs[id(following[0])])))
    return order


def _flops(body: Body, known: dict[int, float]) -> float:
    """Matrix FLOPs of a body; `known` remembers those of bodies by identity."""
    stack = [body]
    while stack:
        here = stack[-1]
        if id(here) in known:
            stack.pop()
            continue
        missing = [b for node in here.nodes for b in _inside(node) if id(b) not in known]
        if missing:
            stack.extend(missing)
            continue
        known[id(here)] = sum(_node_flops(node, known) for node in here.nodes)
        stack.pop()
    return known[id(body)]


def _node_flops(node: Node, known: dict[int, float]) -> float:
    if isinstance(node, Op):
        return node.flops
    if isinstance(node, Loop):
        return known[id(node.body)] * (1 if node.trips is None else node.trips)
    return max(known[id(body)] for body in node.bodies)


def _inside(node: Node) -> tuple[Body, ...]:
    if isinstance(node, Op):
        return ()
    return (node.body,) if isinstance(node, Loop) else node.bodies
