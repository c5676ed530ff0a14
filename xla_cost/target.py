"""`module:function` on the command line: a function that says what to lower."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from xla_cost.errors import XlaCostError

#: Keys of the dictionary form; all but `fn` may be left out.
KEYS = (
    "fn", "args", "mesh", "kwargs", "in_shardings", "out_shardings",
    "static_argnums", "static_argnames", "donate_argnums",
)  # fmt: skip

_FORMS = "a tuple (callable, args, mesh) or a dict with fn, args, mesh, .."


@dataclass(frozen=True)
class Target:
    """What to lower: `fn(*args)` on `mesh`; `options` are keyword arguments of `lower`."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    mesh: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


def load_target(spec: str, *, devices: int | None = None) -> Target:
    """Import `package.module:function` or `path/to/file.py:function` and call the function.

    The current folder is importable. Virtual CPU devices exist before the module is
    imported, exactly `devices` of them where that is given and jax has not started. The
    function takes no arguments and returns (callable, abstract arguments, mesh), the mesh
    being optional, or a dictionary with the keys of `KEYS`.

    Raises `XlaCostError` naming what is wrong; an error inside the module is its cause.
    """
    place, colon, function = spec.rpartition(":")
    if not colon or not place or not function:
        raise XlaCostError(f"target {spec!r}: expected module:function or file.py:function")
    from xla_cost.lowering.devices import ensure_devices

    ensure_devices(devices, exact=devices is not None)
    # standard output is the answer's: what the user's code prints goes to standard error
    with _current_folder_importable(), redirect_stdout(sys.stderr):
        made = _call(spec, _attribute(spec, _module(spec, place), function))
    return _target(spec, made)


def _module(spec: str, place: str) -> ModuleType:
    if place.endswith(".py") or os.sep in place:
        return _module_of_file(spec, Path(place))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise XlaCostError(f"target {spec!r}: there is no module {error.name!r}") from error
        raise XlaCostError(f"target {spec!r}: {place} needs {error.name!r}, not there") from error
    except (Exception, SystemExit) as error:
        raise XlaCostError(f"target {spec!r}: importing {place}: {_told(error)}") from error


def _module_of_file(spec: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise XlaCostError(f"target {spec!r}: there is no file {path}")
    loader = importlib.util.spec_from_file_location(path.stem, path)
    if loader is None or loader.loader is None:
        raise XlaCostError(f"target {spec!r}: {path} is not Python; expected a .py file")
    module = importlib.util.module_from_spec(loader)
    sys.modules.setdefault(path.stem, module)
    with _importable(str(path.resolve().parent)):
        try:
            loader.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise XlaCostError(f"target {spec!r}: running {path}: {_told(error)}") from error
    return module


def _attribute(spec: str, module: ModuleType, function: str) -> Any:
    found: Any = module
    for part in function.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            public = sorted(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
            raise XlaCostError(
                f"target {spec!r}: {module.__name__} has no {function!r}; "
                f"it has {', '.join(public[:8]) or 'no functions'}"
            ) from error
    if not callable(found):
        raise XlaCostError(
            f"target {spec!r}: {function} is a {type(found).__name__}; expected a function"
        )
    return found


def _call(spec: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except XlaCostError:
        raise
    except (Exception, SystemExit) as error:  # an exit with 0 would pass for a check that holds
        raise XlaCostError(f"target {spec!r}: calling it: {_told(error)}") from error


def _target(spec: str, made: Any) -> Target:
    if isinstance(made, tuple | list) and len(made) in (2, 3):
        made = dict(zip(("fn", "args", "mesh"), made, strict=False))
    if not isinstance(made, Mapping):
        raise XlaCostError(f"target {spec!r}: returned {_shown(made)}; expected {_FORMS}")
    unknown = sorted(str(key) for key in made if key not in KEYS)
    if unknown:
        raise XlaCostError(
            f"target {spec!r}: returned the key {unknown[0]!r}; expected {', '.join(KEYS)}"
        )
    options = dict(made)
    fn, args, mesh = options.pop("fn", None), options.pop("args", ()), options.pop("mesh", None)
    if not callable(fn):
        raise XlaCostError(f"target {spec!r}: its fn is a {type(fn).__name__}; expected a callable")
    if "args" not in made:
        _check_no_args(spec, fn, options)
    if not isinstance(args, tuple | list):
        raise XlaCostError(
            f"target {spec!r}: its args are a {type(args).__name__}; "
            "expected a tuple of abstract arguments"
        )
    return Target(spec, fn, tuple(args), mesh, options)


def _check_no_args(spec: str, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse a dict without `args` whose function or shardings need some."""
    kwargs = options.get("kwargs") or {}
    if not isinstance(kwargs, Mapping):
        return  # refused where they are used
    need = "its in_shardings are for them" if options.get("in_shardings") is not None else ""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # a callable that does not say
        signature = inspect.Signature()
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        need = f"its fn: {error}"
    if need:
        raise XlaCostError(
            f"target {spec!r}: returned no args ({need}); expected args, a tuple of abstract "
            "arguments"
        )


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    with _importable(os.getcwd()):
        yield


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Put a folder first on the import path for the duration of the block."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
