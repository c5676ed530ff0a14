"""Numbers as people read them. The only place where SI units become friendly ones."""

from __future__ import annotations


def seconds_text(seconds: float) -> str:
    """`1.23 s`, `12.3 ms`, `4.56 us`: three significant digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{_three(seconds / size)} {unit}"
    return "0 s" if not seconds else f"{_three(seconds / 1e-9)} ns"


def bytes_text(count: float) -> str:
    """`1.23 GB`, `12.3 MB`: powers of 1000."""
    return _scaled(count, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def flops_text(count: float) -> str:
    """`1.23 TFLOP`."""
    return _scaled(count, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"))


def joules_text(joules: float) -> str:
    """`1.23 kJ`."""
    return _scaled(joules, ("J", "kJ", "MJ", "GJ"))


def bar(share: float, width: int) -> str:
    """A bar of at most `width` cells for a share of 0 to 1, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _scaled(count: float, units: tuple[str, ...]) -> str:
    size = 1.0
    for unit in units[:-1]:
        if abs(count) < 999.5 * size:
            return f"{_three(count / size)} {unit}"
        size *= 1000.0
    return f"{_three(count / size)} {units[-1]}"


def _three(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
