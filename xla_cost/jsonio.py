"""JSON in and out: whole files or none, no NaN, errors that name the place."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from xla_cost.errors import XlaCostError


def plain(value: Any, place: str = "value") -> Any:
    """Return `value` as dicts, lists, strings, finite numbers, booleans and None only.

    Takes numpy scalars and arrays, tuples, sets (sorted), mappings, dataclasses, paths and
    enums. Raises `XlaCostError` naming the place of a NaN, an infinity or another type.
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Enum):
        return plain(value.value, place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise XlaCostError(f"{place}: is {float(value)}; must be a finite number")
        return float(value)
    if isinstance(value, Mapping):
        return {
            _key(key, place): plain(item, f"{place}.{key}" if place else str(key))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return plain(sorted(value), place)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return plain(fields, place)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), place)
    raise XlaCostError(f"{place}: a {type(value).__name__} cannot be written as JSON")


def _key(key: object, place: str) -> str:
    if isinstance(key, Enum):
        return _key(key.value, place)
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise XlaCostError(f"{place}: has the key {key!r}; must be a string")


def canonical_json(value: Any) -> str:
    """Return one spelling per value: sorted keys, no spaces, ASCII. For hashes and keys."""
    return json.dumps(plain(value, "key"), sort_keys=True, separators=(",", ":"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` to a file, atomically, or to standard output when `path` is "-".

    A reader sees the old file or the whole new one, also after a crash. Raises
    `XlaCostError` for a NaN or when the file cannot be written.
    """
    text = json.dumps(plain(value, ""), indent=2, ensure_ascii=False) + "\n"
    if os.fspath(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_text(path, text)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically (UTF-8). Raises `XlaCostError` when that fails."""
    try:
        replace_file(Path(path), text.encode(), sync=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise XlaCostError(f"{os.fspath(path)}: cannot be written ({reason})") from error


def make_folder(path: str | os.PathLike[str], place: str) -> None:
    """Make a folder for results, before they are computed, where it is not there yet.

    Raises `XlaCostError` when it cannot be made or nothing can be written into it; `place` is
    the option that named it.
    """
    reason = "no permission to write into it"
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError as error:
        writable, reason = False, error.strerror or type(error).__name__
    if not writable:
        raise XlaCostError(
            f"{place} {os.fspath(path)}: cannot be used ({reason}); expected a folder that can "
            "be written to"
        )


def check_file(path: str | os.PathLike[str] | None, place: str) -> None:
    """Refuse, before anything is computed, a file that could not be written afterwards.

    None, "" and "-" (standard output) pass. Raises `XlaCostError`; `place` is the option.
    """
    if not path or os.fspath(path) == "-":
        return
    target = Path(path)
    if target.is_dir():
        reason = "it is a folder"
    elif not target.absolute().parent.is_dir():
        reason = f"there is no folder {target.absolute().parent}"
    elif not os.access(target if target.exists() else target.absolute().parent, os.W_OK):
        reason = "no permission"
    else:
        return
    raise XlaCostError(
        f"{place} {os.fspath(path)}: cannot be written ({reason}); expected a file in a folder "
        "that can be written to"
    )


def replace_file(path: Path, data: bytes, *, sync: bool, scratch: Path | None = None) -> None:
    """Put `data` at `path` by writing a temporary file and renaming it.

    `scratch` is the folder of the temporary file (on the same file system), `sync` waits
    until it is on the disk. A pipe or device is written directly. Raises OSError.
    """
    path = Path(os.path.realpath(path))  # a link keeps pointing where it did
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            if path.is_dir():
                raise IsADirectoryError(None, "is a folder", str(path))
            path.write_bytes(data)
            return
    name = (scratch or path.parent) / f".{secrets.token_hex(12)}.tmp"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            with suppress(FileNotFoundError):  # else a new file: what the umask leaves
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            if sync:
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file, or standard input when `path` is "-".

    Raises `XlaCostError` when it is missing, unreadable, not UTF-8 or not JSON (NaN and
    Infinity are not), with line and column.
    """
    name = os.fspath(path)
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise XlaCostError(f"{name}: cannot be read ({reason})") from error

    def refuse(constant: str) -> NoReturn:
        raise XlaCostError(f"{name}: holds {constant}; JSON numbers must be finite")

    try:
        return json.loads(data.decode(), parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise XlaCostError(f"{name}: byte {error.start} is not UTF-8; must be JSON text") from error
    except json.JSONDecodeError as error:
        raise XlaCostError(
            f"{name}:{error.lineno}:{error.colno}: {error.msg[0].lower()}{error.msg[1:]}; "
            "must be JSON"
        ) from error
    except RecursionError as error:
        raise XlaCostError(f"{name}: is nested too deep to be read") from error
    except XlaCostError:
        raise
    except ValueError as error:  # a number of more digits than Python reads
        raise XlaCostError(f"{name}: {error}; numbers must be shorter") from error
