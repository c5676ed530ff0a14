"""Values of scalar constants."""

from __future__ import annotations

import math
import re

from xla_cost.hlo.ir import Instruction
from xla_cost.hlo.lexing import strip_comments
from xla_cost.hlo.shapes import Shape

_INTEGER = re.compile(r"[+-]?\d{1,40}")
_FLOAT = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,6})?")
_HEX_FLOAT = re.compile(r"[+-]?0x[0-9a-fA-F]{0,32}\.?[0-9a-fA-F]{0,32}(?:p[+-]?\d{1,5})?")
_NAN = re.compile(r"[+-]?nan(?:\(0x[0-9a-fA-F]+\))?")


def constant_value(instruction: Instruction) -> int | float | bool | None:
    """Value of a constant of one element, whatever its rank; None where it is none.

    Integers for s* and u* types, bool for pred, float for the rest (an integer-typed
    constant is never given as a float). Complex and elided `{...}` constants give None.
    """
    if instruction.opcode != "constant":
        return None
    shape = instruction.shape
    if not isinstance(shape, Shape) or shape.elements != 1:
        return None
    text = strip_comments(instruction.operand_text).translate(_BRACES).strip()
    if shape.dtype == "pred":
        return {"true": True, "1": True, "false": False, "0": False}.get(text)
    if shape.dtype[0] in "su":
        return int(text) if _INTEGER.fullmatch(text) else None
    if shape.dtype[0] == "c":
        return None
    return _float(text)


_BRACES = str.maketrans("{}", "  ")


def _float(text: str) -> float | None:
    if _FLOAT.fullmatch(text):
        return float(text)
    if text in ("inf", "+inf", "-inf"):
        return -math.inf if text[0] == "-" else math.inf
    if _NAN.fullmatch(text):
        return math.nan
    if _HEX_FLOAT.fullmatch(text) and any(c in "0123456789abcdefABCDEF" for c in text[2:]):
        try:
            return float.fromhex(text)
        except (ValueError, OverflowError):
            return None
    return None
