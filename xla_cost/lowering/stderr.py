"""What XLA writes on standard error: caught at the file descriptor, because it comes from C++."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

#: How often the watcher looks for a message that XLA is about to abort after.
_POLL_S = 0.02


@dataclass
class CapturedStderr:
    """Lines written to file descriptor 2 while the capture was on; filled when it ends."""

    lines: list[str] = field(default_factory=list)


@contextmanager
def captured_stderr() -> Iterator[CapturedStderr]:
    """Catch everything written to file descriptor 2 inside the block, by any thread.

    Yields an object whose `lines` hold it afterwards; `reemit` gives back what is not for
    us. A fatal XLA message is passed on at once, as the process ends right after it.
    Where descriptor 2 is closed nothing is caught.
    """
    captured = CapturedStderr()
    with suppress(Exception):
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:
        yield captured
        return
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(sink.fileno(), saved, done), daemon=True)
        watcher.start()
        try:
            yield captured
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os.dup2(saved, 2)
            done.set()
            watcher.join()
            os.close(saved)
            size = os.fstat(sink.fileno()).st_size
            text = os.pread(sink.fileno(), size, 0).decode(errors="replace")
            captured.lines.extend(line for line in text.splitlines() if line.strip())


def reemit(lines: list[str]) -> None:
    """Write lines that nobody recognised to the real standard error."""
    if lines:
        with suppress(OSError):
            os.write(2, ("\n".join(lines) + "\n").encode())


def _watch(sink: int, real: int, done: threading.Event) -> None:
    """Pass a fatal message on as soon as it is there: `F1130 ..` is followed by abort()."""
    seen = 0
    while not done.wait(_POLL_S):
        size = os.fstat(sink).st_size
        if size > seen:
            chunk = os.pread(sink, size - seen, seen)
            seen = size
            if any(_is_fatal(line) for line in chunk.splitlines()):
                os.write(real, chunk)


def _is_fatal(line: bytes) -> bool:
    return line[:1] == b"F" and line[1:5].isdigit() and b"]" in line
