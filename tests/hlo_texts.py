"""Modules of our own that between them hold every construct the reader knows."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "hlo_modules"


def _texts(kind: str) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((_FOLDER / kind).glob("*.hlo"))}


#: Texts that XLA's own parser takes too.
ORACLE = _texts("oracle")
#: Texts that only a lenient reader takes.
LENIENT = _texts("lenient")
ALL = {**ORACLE, **LENIENT}
