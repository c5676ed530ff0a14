"""Splitting HLO text at brackets, commas and strings, in time linear in its length.

Every pattern here is possessive: no input makes it backtrack.
"""

from __future__ import annotations

import re
import sys

#: A string (closed or running to the end), a comment, a bracket, a comma or a newline.
TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?+'
    r"|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+"
    r"|//[^\n]*+"
    r"|[{}()\[\],\n]",
    re.DOTALL,
)
OPENING = frozenset("({[")
CLOSING = frozenset(")}]")

_COMMENT = re.compile(
    r'("(?:[^"\\]++|\\.)*+"?+)|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+|//[^\n]*+', re.DOTALL
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def closing(text: str, position: int, limit: int = sys.maxsize) -> int:
    """Position just after the bracket that closes the one at `position`; -1 if none does.

    Nothing from `limit` on is looked at.
    """
    depth = 0
    for match in TOKEN.finditer(text, position, limit):
        token = match[0]
        if token in OPENING:
            depth += 1
        elif token in CLOSING:
            depth -= 1
            if depth <= 0:
                return match.end()
    return -1


def strip_comments(text: str) -> str:
    """`text` without `/* .. */` and `// ..`; comment marks inside strings stay."""
    if "/*" not in text and "//" not in text:
        return text
    return _COMMENT.sub(lambda match: match[1] or "", text)


def split_top(text: str) -> list[str]:
    """Pieces between the commas outside brackets and strings, stripped, without comments.

    The empty text gives no piece.
    """
    text = strip_comments(text)
    pieces: list[str] = []
    depth = start = 0
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in OPENING:
            depth += 1
        elif token in CLOSING:
            depth -= 1
        elif token == "," and depth <= 0:
            pieces.append(text[start : match.start()].strip())
            start = match.end()
    pieces.append(text[start:].strip())
    return pieces if len(pieces) > 1 or pieces[0] else []


def inside(text: str) -> str:
    """`text` without the pair of brackets around it, if there is one; stripped."""
    text = text.strip()
    if len(text) >= 2 and text[0] in OPENING and text[-1] in CLOSING:
        return text[1:-1].strip()
    return text


def unquote(text: str) -> str:
    """The value of a quoted string, escapes resolved; other text as it is."""
    if not text.startswith('"'):
        return text
    body = text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
    return _ESCAPE.sub(_unescape, body) if "\\" in body else body


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code.isdecimal():
        return chr(int(code, 8)) if all(c in "01234567" for c in code) else code
    return _ESCAPED.get(code, code)
