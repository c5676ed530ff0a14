"""A content-addressed store of JSON values, shared between processes, that never gets in the way.

An entry is named by the SHA-256 of its canonical key and of everything that decides what the
value would be: the package version, the versions of jax and jaxlib, and the source of the
lowering, the reader, the walker and the models. So changed code never meets an old entry.
Entries are written to a temporary file and renamed, and carry a checksum: a reader sees a
whole value or none. A folder that cannot be written costs one logged warning and the saving.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from xla_cost.jsonio import canonical_json, plain, replace_file

#: Overrides the folder; "off" turns caching off.
ENVIRONMENT = "XLA_COST_CACHE"

#: Code whose change may change a cached value, relative to the package.
_SOURCES = ("lowering", "hlo", "walk", "models", "program.py", "program_io.py", "groups.py")

#: Code that prices a program; values priced from one are kept under `sources_version` of it.
PRICING_SOURCES = ("price", "network", "kernel_time", "machine", "policy.py")

#: Everything lives in one folder of this name inside the chosen one, which may hold other
#: things: nothing outside it is ever removed.
_STORE = "xla-cost-store"
_VERSION_PREFIX = "code-"

_STALE_TEMPORARY_S = 3600.0
_STALE_VERSION_S = 30 * 86400.0

_LOG = logging.getLogger("xla_cost.cache")
_warned: set[Path] = set()
_tidied: set[Path] = set()
_lock = threading.Lock()


class Cache:
    """JSON values by key. Safe to share between threads and processes.

    `folder` defaults to the environment variable XLA_COST_CACHE, else the user's cache
    folder; `version` to `code_version()`. A disabled cache stores nothing.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, version: str = "") -> None:
        chosen = os.environ.get(ENVIRONMENT, "") if folder is None else os.fspath(folder)
        self.enabled = chosen.lower() != "off"
        self.folder = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("xla-cost"))
        self._version = version

    @property
    def version(self) -> str:
        """Names the code that makes the values; part of every entry's place."""
        if not self._version:
            self._version = code_version()
        return self._version

    def path_of(self, key: Any) -> Path:
        """Return the file of `key`, whether it exists or not."""
        digest = hashlib.sha256(canonical_json(key).encode()).hexdigest()
        return self._entries() / digest[:2] / f"{digest}.json"

    def _entries(self) -> Path:
        name = hashlib.sha256(self.version.encode()).hexdigest()[:16]
        return self.folder / _STORE / f"{_VERSION_PREFIX}{name}"

    def get_json(self, key: Any, default: Any = None) -> Any:
        """Return the value stored under `key` (any JSON-like value), else `default`.

        An entry that is damaged counts as absent; the next `put_json` replaces it.
        """
        if not self.enabled:
            return default
        try:
            data = self.path_of(key).read_bytes()
        except FileNotFoundError:
            return default
        except OSError as error:
            self._warn("read", error)
            return default
        checksum, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            return default
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return default

    def put_json(self, key: Any, value: Any) -> None:
        """Store `value` under `key`. Never fails for want of space or permission."""
        if not self.enabled:
            return
        body = json.dumps(plain(value), separators=(",", ":")).encode()
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        path = self.path_of(key)
        try:
            self._tidy()
            path.parent.mkdir(parents=True, exist_ok=True)
            # no fsync: the checksum already tells a torn file, and it can be made again
            replace_file(path, data, sync=False, scratch=self._scratch())
        except OSError as error:
            self._warn("written", error)

    def get_or_make(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the stored value, else `make()` it and store it."""
        missing = object()
        found = self.get_json(key, missing)
        if found is not missing:
            return found
        value = plain(make())
        self.put_json(key, value)
        return value

    def clear(self) -> None:
        """Remove every entry of every version."""
        shutil.rmtree(self.folder / _STORE, ignore_errors=True)

    def _scratch(self) -> Path:
        scratch = self.folder / _STORE / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch

    def _tidy(self) -> None:
        """Once per process: drop temporary files of killed writers and long unused versions."""
        with _lock:
            if self.folder in _tidied:
                return
            _tidied.add(self.folder)
        mine = self._entries()
        mine.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            os.utime(mine)
        for path in _older_than(self._scratch(), _STALE_TEMPORARY_S):
            with suppress(OSError):
                path.unlink()
        for path in _older_than(self.folder / _STORE, _STALE_VERSION_S):
            if path.name.startswith(_VERSION_PREFIX) and path != mine:
                shutil.rmtree(path, ignore_errors=True)

    def _warn(self, action: str, error: OSError) -> None:
        with _lock:
            if self.folder in _warned:
                return
            _warned.add(self.folder)
        reason = error.strerror or type(error).__name__
        _LOG.warning(
            "cache: %s cannot be %s (%s); going on without it", self.folder, action, reason
        )


def _older_than(folder: Path, age_s: float) -> Iterator[Path]:
    limit = time.time() - age_s
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < limit:
                yield path


@cache
def code_version() -> str:
    """Return a short hash of the package version, jax's versions and the source that counts."""
    digest = hashlib.sha256()
    for name in ("xla-cost", "jax", "jaxlib", "flax"):
        digest.update(f"{name}={_installed(name)}\n".encode())
    digest.update(sources_version(_SOURCES).encode())
    return digest.hexdigest()[:16]


@cache
def sources_version(names: tuple[str, ...]) -> str:
    """Return a short hash of source files and folders, named relative to the package."""
    digest = hashlib.sha256()
    for path in _source_files(names):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _source_files(names: tuple[str, ...]) -> Iterator[Path]:
    package = Path(__file__).parent
    for name in names:
        place = package / name
        if place.suffix == ".py":
            if place.exists():
                yield place
            continue
        # `models` may live outside the package folder in an editable install
        spec = importlib.util.find_spec(f"xla_cost.{name}")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(folder).rglob("*.py"))
