"""Speed and memory of the HLO reader, beside XLA's own parser in the same run.

    python benchmarks/hlo_reader.py [FILE] [--repeats N]

Without FILE a synthetic whole-model module of about 4 MB is generated. Times are processor
times of this process, the best of N; a walk touches opcode, name, type and operands of every
instruction, as the cost walker does first. Memory is the peak that Python allocated.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from xla_cost.hlo import Module, parse

LAYERS = 420


def synthetic(layers: int = LAYERS) -> str:
    """A module of `layers` transformer-like layers, about 10 kB each, as after partitioning."""
    out = [
        "HloModule synthetic, entry_computation_layout={(bf16[8,4096]{1,0})->bf16[8,4096]{1,0}}, "
        "num_partitions=64\n"
    ]
    out.extend(map(_reducer, range(layers)))
    out.append("ENTRY %main (x.0: bf16[8,4096]) -> bf16[8,4096] {\n")
    out.append("  %one = bf16[] constant(1)\n")
    out.append("  %x.0 = bf16[8,4096]{1,0} parameter(0), sharding={devices=[1,64]<=[64]}\n")
    out.extend(map(_layer, range(layers)))
    out.append(f"  ROOT %out = bf16[8,4096]{{1,0}} copy(%x.{layers})\n}}\n")
    return "".join(out)


def _reducer(layer: int) -> str:
    return (
        f"%add.{layer} (a.{layer}: bf16[], b.{layer}: bf16[]) -> bf16[] {{\n"
        f"  %a.{layer} = bf16[] parameter(0)\n"
        f"  %b.{layer} = bf16[] parameter(1)\n"
        f"  ROOT %s.{layer} = bf16[] add(%a.{layer}, %b.{layer})\n}}\n\n"
    )


def _layer(layer: int) -> str:
    groups = "[8,8]<=[8,8]T(1,0)"
    lines = []
    previous = f"x.{layer}"
    for step in range(8):
        name = f"{layer}.{step}"
        meta = (
            f'metadata={{op_name="jit(step)/jit(main)/layer/mlp_{step}/dot_general" '
            f'source_file="model/layers.py" source_line={100 + step}}}'
        )
        lines += [
            f"  %w.{name} = bf16[64,4096]{{1,0}} broadcast(%one), dimensions={{}}",
            f"  %ag.{name} = bf16[4096,4096]{{1,0}} all-gather(%w.{name}), "
            f"channel_id={layer * 16 + step + 1}, replica_groups=[1,64]<=[64], dimensions={{0}}, "
            f"use_global_device_ids=true, {meta}",
            f"  %dot.{name} = bf16[8,4096]{{1,0}} dot(%{previous}, %ag.{name}), "
            f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {meta}",
            f"  %ar.{name} = bf16[8,4096]{{1,0}} all-reduce(%dot.{name}), "
            f"channel_id={layer * 16 + step + 9}, replica_groups={groups}, "
            f"use_global_device_ids=true, to_apply=%add.{layer}, {meta}",
            f"  %t.{name} = (bf16[8,4096]{{1,0}}, bf16[8,4096]{{1,0}}) "
            f"tuple(%ar.{name}, %dot.{name})",
            f"  %g.{name} = bf16[8,4096]{{1,0}} get-tuple-element(%t.{name}), index=0, {meta}",
            f"  %sum.{name} = bf16[8,4096]{{1,0}} add(%g.{name}, %dot.{name}), {meta}",
        ]
        previous = f"sum.{name}"
    lines.append(f"  %x.{layer + 1} = bf16[8,4096]{{1,0}} copy(%{previous})")
    return "\n".join(lines) + "\n"


def touch(modules: tuple[Module, ...]) -> int:
    """Look at what a walker looks at first; gives the number of instructions."""
    count = 0
    for module in modules:
        for computation in module.computations.values():
            for instruction in computation.instructions:
                _ = instruction.opcode, instruction.name, instruction.shape, instruction.operands
                count += 1
    return count


def best_s(work: Callable[[], object], repeats: int) -> float:
    """Least processor time of `repeats` runs, in seconds."""
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def xla_parser() -> Callable[[str], object] | None:
    """XLA's own text parser, or None where this jaxlib has none."""
    try:
        from jaxlib import _hlo  # type: ignore[attr-defined]

        return _hlo.hlo_module_from_text  # type: ignore[no-any-return]
    except (ImportError, AttributeError):
        return None


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", nargs="?", type=Path)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    text = options.file.read_text() if options.file else synthetic()
    size_mb = len(text.encode()) / 1e6
    parse_s = best_s(lambda: parse(text), options.repeats)
    whole_s = best_s(lambda: touch(parse(text)), options.repeats)
    tracemalloc.start()
    modules = parse(text)
    count = touch(modules)
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    unread = sum(len(module.unparsed) for module in modules)
    print(f"{options.file or 'synthetic'}: {size_mb:.2f} MB, {count} instructions, {unread} unread")
    print(f"ours, parse           {size_mb / parse_s:6.2f} MB/s  {parse_s:.3f} s")
    print(f"ours, parse and touch {size_mb / whole_s:6.2f} MB/s  {whole_s:.3f} s")
    print(f"ours, peak memory     {peak_mb:6.1f} MB, {peak_mb / size_mb:.1f} x the file")
    xla = xla_parser()
    if xla is None:
        print("XLA's parser          not in this jaxlib")
        return
    xla_s = best_s(lambda: xla(text), options.repeats)
    print(f"XLA's parser          {size_mb / xla_s:6.2f} MB/s  {xla_s:.3f} s")
    print(f"ours over XLA's       {xla_s / whole_s:6.2f} x (parse and touch)")


if __name__ == "__main__":
    main()
