"""The Python front door: `lower` a jitted function, `estimate` it on a machine, `compare`.

lowered = lower(fn, x, w, mesh=mesh, in_shardings=(P("data"), P(None, "model")))
lowered.program             # the ledger: FLOPs, bytes, collectives
lowered.warnings            # what XLA complained about, with your line
estimate(lowered, "b300", against="b300-photonic").ratio
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from xla_cost.errors import XlaCostError
from xla_cost.machine import Machine
from xla_cost.policy import Policy
from xla_cost.price import Comparison, Estimate, price
from xla_cost.price import compare as compare_estimates
from xla_cost.program import Program
from xla_cost.target import Target, load_target
from xla_cost.units import bytes_text, seconds_text
from xla_cost.waste import ScopeWaste, waste_by_scope

if TYPE_CHECKING:
    import pandas as pd
    from jax.sharding import AbstractMesh, Mesh

    from xla_cost.findings import Finding
    from xla_cost.lowering import CompilerWarning, PartitionedHlo


@dataclass(frozen=True, repr=False)
class Lowered:
    """A program as XLA partitioned it, and what can be read from it, each read once.

    Made by `lower`. Prices on any number of machines without another compile.
    """

    partitioned: PartitionedHlo

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.partitioned.name

    @property
    def hlo(self) -> str:
        """HLO text of the program one device runs."""
        return self.partitioned.text

    @property
    def stablehlo(self) -> str | None:
        """StableHLO text of the program before partitioning."""
        return self.partitioned.stablehlo

    @property
    def devices(self) -> int:
        """Number of devices it runs on."""
        return self.partitioned.devices

    @property
    def warnings(self) -> tuple[CompilerWarning, ...]:
        """What XLA complained about while partitioning, with op, source line and cure."""
        return self.partitioned.warnings

    @property
    def compiler_estimate_s(self) -> float | None:
        """Seconds of one execution by the compiler's own model; None where it has none."""
        return self.partitioned.compiler_estimate_s

    @cached_property
    def program(self) -> Program:
        """The hardware-free ledger of one device: ops, loops, collectives."""
        from xla_cost.programs import program_of_text

        told = tuple(str(warning) for warning in self.warnings)
        program = program_of_text(self.hlo, self.name, told)
        return replace(program, provenance=self.partitioned.provenance)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The warnings and large replicated arguments, with source line, bytes and cure.

        `xla_cost.findings.costed(lowered.findings, estimate)` adds the seconds.
        """
        from xla_cost.findings import findings, replicated_arguments

        return (*findings(self.program, self.warnings), *replicated_arguments(self.hlo))

    @cached_property
    def needed_flops(self) -> Mapping[str, int]:
        """Scope -> matrix FLOPs of the program before partitioning, on all devices together."""
        from xla_cost.lowering.global_view import global_flops

        return global_flops(self.partitioned)

    def waste(
        self, needed: Mapping[str, float] | None = None, *, depth: int | None = None
    ) -> tuple[ScopeWaste, ...]:
        """FLOPs done on all devices against FLOPs needed, by scope, the largest waste first.

        `needed` is a closed form where one is known, else `needed_flops`.
        """
        return waste_by_scope(self.program, needed or self.needed_flops, depth=depth)

    def to_pandas(self) -> pd.DataFrame:
        """One row per op that computes or moves: scope, source line, executions, FLOPs, bytes.

        FLOPs and bytes are of one execution on one device; `group_size` is 0 for no collective.
        """
        import pandas as pd

        rows = [
            {
                "name": op.name, "kind": op.kind, "opcode": op.opcode, "scope": op.scope,
                "source": op.source, "executions": times, "flops": op.flops,
                "bytes_read": op.bytes_read, "bytes_written": op.bytes_written,
                "collective": op.collective.kind if op.collective else "",
                "group_size": op.collective.groups.size if op.collective else 0,
                "payload_bytes": op.collective.payload_bytes if op.collective else 0,
            }
            for op, times in self.program.walk()
            if op.kind not in ("free", "wait")
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        program = self.program
        flops = sum(op.flops * times for op, times in program.walk())
        counts: dict[str, float] = {}
        for op, times in program.walk():
            if op.collective is not None:
                counts[op.collective.kind] = counts.get(op.collective.kind, 0) + times
        moved = ", ".join(f"{times:g} {kind}" for kind, times in sorted(counts.items()))
        mesh = ", ".join(f"{axis} {size}" for axis, size in self.partitioned.mesh)
        lines = [
            f"Lowered {self.name} for {self.devices} devices{f' ({mesh})' if mesh else ''}, "
            f"target {self.partitioned.target}",
            f"  matrix FLOPs  {flops:.4g} per device",
            f"  arguments     {bytes_text(program.parameter_bytes)} per device",
            f"  collectives   {moved or 'none'}",
        ]
        if self.compiler_estimate_s is not None:
            lines.append(f"  compiler says {seconds_text(self.compiler_estimate_s)}")
        return "\n".join([*lines, *(f"  warning       {warning}" for warning in self.warnings)])


def lower(
    fn: Callable[..., Any],
    *args: Any,
    mesh: Mesh | AbstractMesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    target: str = "cpu",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
) -> Lowered:
    """Partition `fn(*args, **kwargs)` with XLA for the devices of its mesh; nothing runs.

    `fn` is a plain function, `jax.jit`, `nnx.jit`, or an nnx module. `args` are
    `jax.ShapeDtypeStruct`s or arrays or trees of them, with shardings of their own or from
    `in_shardings`: `PartitionSpec`s over `mesh`, one per argument or a prefix tree;
    `out_shardings` takes the same for the result. The mesh may be an `AbstractMesh`: no device
    is needed. `target` "gpu:h100", "gpu:b200" and "tpu:v5e-16" run the real compilers
    (optional extras).

    Raises `XlaCostError` with one sentence, and the original error as its cause.
    """
    from xla_cost.lowering import partition

    return Lowered(
        partition(
            fn,
            args,
            mesh=mesh,
            target=target,
            kwargs=kwargs,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
        )
    )


def trace(fn: Callable[..., Any], *args: Any, **options: Any) -> Program:
    """Return the ledger of `fn(*args)`: `lower` with the same options, then walked."""
    return lower(fn, *args, **options).program


@overload
def estimate(
    what: Lowered | Program | Target | str | Callable[..., Any],
    machine: str | Machine = ...,
    policy: str | Policy = ...,
    against: None = None,
    *,
    args: Sequence[Any] | None = None,
    **options: Any,
) -> Estimate: ...


@overload
def estimate(
    what: Lowered | Program | Target | str | Callable[..., Any],
    machine: str | Machine = ...,
    policy: str | Policy = ...,
    *,
    against: str | Machine,
    args: Sequence[Any] | None = None,
    **options: Any,
) -> Comparison: ...


def estimate(
    what: Lowered | Program | Target | str | Callable[..., Any],
    machine: str | Machine = "b300",
    policy: str | Policy = "calibrated",
    against: str | Machine | None = None,
    *,
    args: Sequence[Any] | None = None,
    **options: Any,
) -> Estimate | Comparison:
    """Price one execution of a program on a machine: latency, communication, memory, energy.

    `what` is a `Lowered`, a ledger (`Program`), a target (also as "module:function"), or a
    function, then with `args` and the options of `lower`. Machines and policies go by name,
    path or object. With `against` both machines are priced and compared.

    Raises `XlaCostError` for an unknown name or a program that cannot be lowered.
    """
    program = _program_of(what, args, options)
    first = price(program, _machine(machine), policy)
    if against is None:
        return first
    return compare_estimates(first, price(program, _machine(against), policy))


def compare(
    first: Estimate | Lowered | Program | str | Callable[..., Any],
    second: Estimate | Lowered | Program | str | Callable[..., Any],
    machine: str | Machine = "b300",
    policy: str | Policy = "calibrated",
) -> Comparison:
    """Compare two estimates, or two programs priced on one `machine` under one `policy`."""
    return compare_estimates(
        *(
            side if isinstance(side, Estimate) else estimate(side, machine, policy)
            for side in (first, second)
        )
    )


def _machine(choice: str | Machine) -> Machine:
    from xla_cost.machine import load

    return load(choice) if isinstance(choice, str) else choice


def _program_of(what: Any, args: Sequence[Any] | None, options: Mapping[str, Any]) -> Program:
    if isinstance(what, str):
        what = load_target(what)
    if isinstance(what, Target):
        what = lower_target(what)
    if isinstance(what, Lowered | Program):
        if args is not None or options:
            raise XlaCostError(
                f"estimate: a {type(what).__name__} is lowered already; "
                f"{', '.join(['args'] * (args is not None) + sorted(options))} must not be given"
            )
        return what.program if isinstance(what, Lowered) else what
    if not callable(what):
        raise XlaCostError(
            f"estimate: found a {type(what).__name__}; expected a Lowered, a Program, "
            "a function or 'module:function'"
        )
    if args is None:
        raise XlaCostError(
            f"estimate: {getattr(what, '__name__', type(what).__name__)} is a function; "
            "give its abstract arguments as args=(..)"
        )
    return lower(what, *args, **options).program


def lower_target(target: Target, compiler: str = "cpu") -> Lowered:
    """Partition what a `module:function` returned; `compiler` as `target` of `lower`."""
    return lower(target.fn, *target.args, mesh=target.mesh, target=compiler, **target.options)
