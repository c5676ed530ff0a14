"""What each HLO opcode is, for costing: one table."""

from __future__ import annotations

from collections.abc import Mapping

#: No time and no memory: names for values that exist already.
FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all",
     "add-dependency", "domain", "opt-barrier", "optimization-barrier", "partition-id",
     "replica-id", "get-dimension-size", "set-dimension-size", "trace", "create-token"}
)  # fmt: skip
#: Free opcodes whose result is their first operand itself.
ALIASES = frozenset(
    {"bitcast", "add-dependency", "domain", "set-dimension-size", "opt-barrier",
     "optimization-barrier"}
)  # fmt: skip

#: One vector FLOP per result element (XLA counts the same; transcendentals count one, too).
ELEMENTWISE = frozenset(
    {"abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan2", "atan", "atanh", "cbrt",
     "ceil", "clamp", "compare", "complex", "cos", "cosine", "cosh", "count-leading-zeros",
     "divide", "erf", "exp", "exponential", "exponential-minus-one", "expm1", "floor", "imag",
     "is-finite", "log", "log-plus-one", "logistic", "maximum", "minimum", "multiply", "negate",
     "not", "or", "popcnt", "power", "real", "remainder", "round-nearest-afz",
     "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic",
     "shift-right-logical", "sign", "sin", "sine", "sinh", "sqrt", "stochastic-convert",
     "subtract", "tan", "tanh", "xor"}
)  # fmt: skip
#: Stream memory with no arithmetic worth counting.
STREAMING = frozenset({"broadcast", "convert", "iota", "reduce-precision", "bitcast-convert"})
#: Arithmetic whose count needs more than the result: see `vector.py`.
REDUCING = frozenset(
    {"reduce", "reduce-window", "select-and-scatter", "map", "sort", "topk", "fft", "rng",
     "rng-bit-generator", "rng-get-and-update-state", "batch-norm-training",
     "batch-norm-inference", "batch-norm-grad", "cholesky", "triangular-solve"}
)  # fmt: skip
#: Copies, layout changes and indexed accesses.
MOVES = frozenset(
    {"copy", "transpose", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad",
     "gather", "scatter", "reverse", "reshape", "dynamic-reshape", "dynamic-pad", "copy-start",
     "slice-start", "dynamic-slice-start", "infeed", "outfeed", "dynamic-update-slice-start"}
)  # fmt: skip
#: Opcodes whose cost follows from the types alone.
BY_TYPES = (ELEMENTWISE | STREAMING | MOVES) - {
    "scatter", "infeed", "outfeed", "copy-start", "slice-start", "dynamic-slice-start",
    "dynamic-update-slice-start",
}  # fmt: skip
#: Opcodes whose operand 0 is only touched where the result says.
SLICING = frozenset({"slice", "dynamic-slice", "gather"})

#: Collective opcodes, sync and start forms, to the kind in the ledger.
COLLECTIVES: Mapping[str, str] = {
    **{
        opcode + suffix: opcode
        for opcode in (
            "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
            "collective-permute", "collective-broadcast",
        )
        for suffix in ("", "-start")
    },
    "send": "send-recv",
}  # fmt: skip
#: Opcodes that run other computations whose cost is theirs.
CONTROL = frozenset({"while", "call", "conditional", "fusion", "async-start"})


def is_done(opcode: str) -> bool:
    """Whether it only waits for, or passes on, what an earlier instruction started."""
    return opcode[-5:] == "-done" or opcode[-7:] == "-update"


def async_inner(opcode: str) -> str:
    """The opcode that runs inside an async start (`fusion-start` -> `fusion`), else ""."""
    return opcode[:-6] if opcode[-6:] == "-start" else ""
