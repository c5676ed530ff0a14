"""How much memory and time a very large HLO file takes.

    python scripts/big_hlo.py [MEGABYTES] [FILE]

Writes a module of about that size (200 by default) as a compiler would print it, reads it and
walks it in a process of its own, and prints the largest resident size of that process against
the size of the file. Exits 1 when the reader takes more than `MOST` times the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

#: The bound that docs/reliability.md states: resident bytes over bytes of text, reading alone.
MOST = 20.0

READ = """
import resource, sys, time
from xla_cost.hlo import read_file
from xla_cost.walk import walk

def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

start = time.process_time()
modules = read_file(sys.argv[1])
count = sum(len(c.instructions) for m in modules for c in m.computations.values())
print(count, sum(len(m.unparsed) for m in modules), time.process_time() - start, resident())
if len(sys.argv) > 2:
    start = time.process_time()
    nodes = sum(len(walk(m).entry.nodes) for m in modules)
    print(nodes, time.process_time() - start, resident())
"""


def write(path: Path, megabytes: float) -> int:
    """Write a module of about `megabytes` (1e6 bytes) to `path`; gives its size in bytes."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
    from hlo_reader import synthetic

    layers = 40
    per_layer = len(synthetic(layers).encode()) / layers
    path.write_text(synthetic(max(1, round(megabytes * 1e6 / per_layer))), encoding="utf-8")
    return path.stat().st_size


def main() -> int:
    """Write, read, print; gives the exit code."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 200.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "big.hlo"
        size = write(path, megabytes)
        command = [sys.executable, "-c", READ, str(path), "walk"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    read, walked = (line.split() for line in done.stdout.splitlines())
    count, unread, read_s, resident = int(read[0]), int(read[1]), float(read[2]), int(read[3])
    print(f"file      {size / 1e6:.1f} MB, {count} instructions, {unread} lines not understood")
    print(f"read      {read_s:.1f} s, {resident / 1e6:.0f} MB resident, {resident / size:.1f} x")
    print(
        f"and walk  {float(walked[1]):.1f} s, {int(walked[2]) / 1e6:.0f} MB resident, "
        f"{int(walked[2]) / size:.1f} x, {walked[0]} nodes"
    )
    return 0 if resident <= MOST * size else 1


if __name__ == "__main__":
    sys.exit(main())
