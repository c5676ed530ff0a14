"""A performance model for sharded programs whose front end is the real XLA compiler.

    lowered = xla_cost.lower(step, params, batch, mesh=mesh, in_shardings=(P(), P("data")))
    xla_cost.estimate(lowered, "b300", against="b300-photonic")

Everything here is imported when first used, so `import xla_cost` takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    from xla_cost.api import Lowered, compare, estimate, lower, trace
    from xla_cost.target import Target, load_target

__all__ = [
    "Lowered",
    "Target",
    "XlaCostError",
    "compare",
    "estimate",
    "load_target",
    "lower",
    "trace",
]

_PLACES = {
    **dict.fromkeys(("Lowered", "compare", "estimate", "lower", "trace"), "xla_cost.api"),
    **dict.fromkeys(("Target", "load_target"), "xla_cost.target"),
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
