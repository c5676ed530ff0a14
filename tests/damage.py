"""Ways to spoil input, systematically and at random, and what a reader may do with it."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from xla_cost.errors import XlaCostError

#: What stands in the place of any value.
WRONG = (
    -1, -0.5, 0, 10**30, float("nan"), float("inf"), 1e308, "", "text", "\x00\n", True, [], [[]],
    {}, {"x": 1},
)  # fmt: skip
Path = tuple[str | int, ...]


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """The place of every value inside nested dicts and lists, the outermost left out."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*here, key)
            yield from paths(value[key], (*here, key))


def changed(value: Any, path: Path, new: Any, *, drop: bool = False) -> Any:
    """A copy of `value` with `new` at `path`, or without what is there."""
    if not path:
        return new
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if drop and not rest:
        del copy[first]
    else:
        copy[first] = changed(value[first], tuple(rest), new, drop=drop)
    return copy


def spoiled(value: Any) -> Iterator[tuple[str, Any]]:
    """(what was done, result): every value missing, every value replaced by each of `WRONG`,
    and an unknown key in every table."""
    for path in paths(value):
        yield f"without {path}", changed(value, path, None, drop=True)
        for wrong in WRONG:
            yield f"{path} = {wrong!r}", changed(value, path, wrong)
    tables = [(), *(path for path in paths(value) if isinstance(at(value, path), dict))]
    for path in tables:
        yield f"unknown in {path}", changed(value, path, {**at(value, path), "bandwith_Gbps": 1})


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def mutated(text: bytes, dice: random.Random) -> bytes:
    """`text` with one to four bytes or stretches changed, cut out, doubled or cut off."""
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(text) + 1)
        end = min(len(text), start + dice.randint(0, 30))
        match dice.randrange(6):
            case 0:
                text = text[:start] + bytes([dice.randrange(256)]) + text[start + 1 :]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                text = text[:start] + text[start:end] * 3 + text[end:]
            case 3:
                text = text[:start] + dice.choice(TOKENS) + text[end:]
            case 4:
                text = text[:start] + dice.choice(TOKENS) + text[start:]
            case _:
                text = text[:start]
    return text


TOKENS = (
    b"{", b"}", b"[", b"]", b'"', b"'", b"=", b",", b"\n", b"nan", b"inf", b"-", b"1e999", b"true",
    b"null", b"\x00", b"\xff\xfe", b"9" * 400, b"9" * 5000, b"[" * 2000, b'{"a":' * 2000, b"#",
    b"\\u0000", b"\\ud800", b"1979-05-27", b"a.b.c = 1\n",
)  # fmt: skip


def toml(value: Any) -> str:
    """`value` as TOML, one line for every key of the outermost table."""
    return "".join(f"{_key(key)} = {_toml(inner)}\n" for key, inner in value.items())


def _key(key: str) -> str:
    return f'"{key}"'


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"'
    return repr(value)


def outcome(read: Callable[[], Any]) -> str:
    """ "read", or the one line in which it was refused; anything else is raised."""
    try:
        read()
    except XlaCostError as error:
        message = str(error)
        assert message.strip(), "an empty refusal"
        assert "\n" not in message, message
        return message
    return "read"
