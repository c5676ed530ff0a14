"""The JSON form of a Program: compact, versioned, exact.

    {"format": "xla_cost.program", "version": 1, "program": {..scalars..},
     "strings": [..], "groups": [{"pairs": false, "members": [[0, 1], ..]}, ..],
     "bodies": [{"nodes": [..], "peak_live_bytes": 0, "carried": [[1, 0], ..] | null}, ..]}

Bodies stand inner ones first, each once however many loops run it; the last is the entry.
Strings and device groups are numbered where they are first met. A node is a list:

    ["op", name, opcode, kind, deps, {further fields that are not at their default}]
    ["loop", name, trips | null, body, deps, scope, source]
    ["branch", name, [body, ..], deps, scope]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_args

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.program import (
    FORMATS,
    Body,
    Branch,
    Collective,
    CollectiveKind,
    Loop,
    Matmul,
    Node,
    Op,
    OpKind,
    Program,
)

FORMAT = "xla_cost.program"
VERSION = 1

_KINDS = frozenset(get_args(OpKind))
_COLLECTIVES = frozenset(get_args(CollectiveKind))
_MATMUL_FORMATS = frozenset(FORMATS)
#: Fields of an Op that are numbers or strings, with their defaults.
_PLAIN: Mapping[str, Any] = {
    f.name: f.default
    for f in fields(Op)
    if f.default is not MISSING and f.name not in ("matmuls", "matmul_opcodes", "collective")
}
_STRINGS = frozenset(name for name, default in _PLAIN.items() if isinstance(default, str))
_COUNTS = frozenset(name for name, default in _PLAIN.items() if type(default) is int)
_SCALARS = tuple(f for f in fields(Program) if f.name != "entry")
#: Nesting of tuples in a scalar of Program (provenance: pairs).
_PAIRS = frozenset({"provenance"})


def to_json(program: Program) -> dict[str, Any]:
    """The program as JSON values. `from_json` gives an equal program back."""
    return _Writer().document(program)


def from_json(data: Any) -> Program:
    """The program that `to_json` wrote.

    Raises XlaCostError naming the place, for another version or a malformed value.
    """
    return _Reader(data).program()


def _inner_first(entry: Body) -> Iterator[Body]:
    """Every body once, after the bodies inside it; no recursion."""
    done: set[int] = set()
    stack: list[tuple[Body, Iterator[Body]]] = [(entry, _inside(entry))]
    while stack:
        body, inside = stack[-1]
        following = next(inside, None)
        if following is None:
            stack.pop()
            if id(body) not in done:
                done.add(id(body))
                yield body
        elif id(following) not in done:
            stack.append((following, _inside(following)))


def _inside(body: Body) -> Iterator[Body]:
    for node in body.nodes:
        if isinstance(node, Loop):
            yield node.body
        elif isinstance(node, Branch):
            yield from node.bodies


@dataclass
class _Writer:
    strings: dict[str, int] = field(default_factory=dict)
    groups: dict[DeviceGroups, int] = field(default_factory=dict)
    bodies: dict[int, int] = field(default_factory=dict)

    def document(self, program: Program) -> dict[str, Any]:
        found = []
        for body in _inner_first(program.entry):
            found.append(self.body(body))
            self.bodies[id(body)] = len(self.bodies)
        scalars = {f.name: _listed(getattr(program, f.name)) for f in _SCALARS}
        return {
            "format": FORMAT,
            "version": VERSION,
            "program": scalars,
            "strings": list(self.strings),
            "groups": [
                {"pairs": g.is_pairs, "members": [list(m) for m in g.members]} for g in self.groups
            ],
            "bodies": found,
        }

    def text(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def body(self, body: Body) -> dict[str, Any]:
        carried = None if body.carried is None else [list(pair) for pair in body.carried]
        return {
            "nodes": [self.node(node) for node in body.nodes],
            "peak_live_bytes": body.peak_live_bytes,
            "carried": carried,
        }

    def node(self, node: Node) -> list[Any]:
        name, deps = self.text(node.name), list(node.deps)
        if isinstance(node, Loop):
            body = self.bodies[id(node.body)]
            return [
                "loop",
                name,
                node.trips,
                body,
                deps,
                self.text(node.scope),
                self.text(node.source),
            ]
        if isinstance(node, Branch):
            bodies = [self.bodies[id(body)] for body in node.bodies]
            return ["branch", name, bodies, deps, self.text(node.scope)]
        return ["op", name, self.text(node.opcode), node.kind, deps, self.op(node)]

    def op(self, op: Op) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, default in _PLAIN.items():
            value = getattr(op, key)
            if value != default:
                found[key] = self.text(value) if key in _STRINGS else value
        if op.matmuls:
            rows = [[m.batch, m.m, m.n, m.k, m.format, m.grouped, m.padded] for m in op.matmuls]
            found["matmuls"] = [row if row[-1] else row[:-1] for row in rows]
        if op.matmul_opcodes:
            found["matmul_opcodes"] = [self.text(opcode) for opcode in op.matmul_opcodes]
        if op.collective is not None:
            c = op.collective
            number = self.groups.setdefault(c.groups, len(self.groups))
            found["collective"] = [
                c.kind, number, c.payload_bytes, c.result_bytes, c.format, c.rewritten_from,
            ]  # fmt: skip
        return found


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


class _Reader:
    """Reads with a place for every error."""

    def __init__(self, data: Any) -> None:
        self.data = _mapping(data, "program")
        found = self.data.get("format")
        if found != FORMAT:
            raise XlaCostError(f"program: format is {found!r}; must be {FORMAT!r}")
        version = self.data.get("version")
        if version != VERSION or isinstance(version, bool):
            raise XlaCostError(
                f"program: version is {version!r}; this xla_cost reads version {VERSION}"
            )
        self.strings = [
            _is(item, str, f"strings[{i}]") for i, item in enumerate(self.rows("strings"))
        ]
        self.groups = [self.group(g, f"groups[{i}]") for i, g in enumerate(self.rows("groups"))]
        self.bodies: list[Body] = []

    def rows(self, key: str) -> list[Any]:
        return _is(self.data.get(key), list, key)  # type: ignore[no-any-return]

    def program(self) -> Program:
        for index, body in enumerate(self.rows("bodies")):
            self.bodies.append(self.body(body, f"bodies[{index}]"))
        if not self.bodies:
            raise XlaCostError("bodies: is empty; must end with the entry")
        given = _mapping(self.data.get("program"), "program")
        known = {f.name for f in _SCALARS}
        for key in given:
            if key not in known:
                raise XlaCostError(f"program.{key}: is unknown; expected one of {sorted(known)}")
        values = {
            f.name: _scalar(f.name, given[f.name], f.default) for f in _SCALARS if f.name in given
        }
        missing = [f.name for f in _SCALARS if f.default is MISSING and f.name not in given]
        if missing:
            raise XlaCostError(f"program.{missing[0]}: is missing; expected a value")
        return Program(entry=self.bodies[-1], **values)

    def group(self, data: Any, place: str) -> DeviceGroups:
        given = _mapping(data, place)
        members = _is(given.get("members"), list, f"{place}.members")
        found = tuple(
            tuple(
                _natural(d, f"{place}.members[{i}]") for d in _is(m, list, f"{place}.members[{i}]")
            )
            for i, m in enumerate(members)
        )
        return DeviceGroups(found, _is(given.get("pairs"), bool, f"{place}.pairs"))

    def body(self, data: Any, place: str) -> Body:
        given = _mapping(data, place)
        rows = _is(given.get("nodes"), list, f"{place}.nodes")
        nodes = tuple(
            self.node(row, index, f"{place}.nodes[{index}]") for index, row in enumerate(rows)
        )
        pairs = given.get("carried")
        carried = None
        if pairs is not None:
            at = f"{place}.carried"
            carried = tuple(
                (_below(p[0], len(nodes), at), _below(p[1], len(nodes), at))
                for p in (_row(pair, (2,), at) for pair in _is(pairs, list, at))
            )
        peak = _natural(given.get("peak_live_bytes"), f"{place}.peak_live_bytes")
        return Body(nodes, peak, carried)

    def text(self, number: Any, place: str) -> str:
        if type(number) is int and 0 <= number < len(self.strings):
            known: str = self.strings[number]
            return known
        found: str = self.strings[_below(number, len(self.strings), place)]
        return found

    def inner(self, number: Any, place: str) -> Body:
        return self.bodies[_below(number, len(self.bodies), place)]

    def node(self, data: Any, index: int, place: str) -> Node:
        row = _row(data, (5, 6, 7), place)

        def deps(value: Any) -> tuple[int, ...]:
            if type(value) is list and _all_below(value, index):
                return tuple(value)
            return tuple(
                _below(d, index, f"{place}.deps") for d in _is(value, list, f"{place}.deps")
            )

        if row[0] == "loop" and len(row) == 7:
            trips = None if row[2] is None else _natural(row[2], f"{place}.trips")
            return Loop(
                self.text(row[1], place), trips, self.inner(row[3], f"{place}.body"), deps(row[4]),
                self.text(row[5], place), self.text(row[6], place),
            )  # fmt: skip
        if row[0] == "branch" and len(row) == 5:
            at = f"{place}.bodies"
            bodies = tuple(self.inner(body, at) for body in _is(row[2], list, at))
            if not bodies:
                raise XlaCostError(f"{at}: is empty; must name a body")
            return Branch(self.text(row[1], place), bodies, deps(row[3]), self.text(row[4], place))
        if row[0] != "op" or len(row) != 6:
            raise XlaCostError(
                f"{place}: is a {row[0]!r} of {len(row)} parts; must be op, loop or branch"
            )
        if row[3] not in _KINDS:
            raise XlaCostError(f"{place}: kind is {row[3]!r}; must be one of {sorted(_KINDS)}")
        return Op(
            self.text(row[1], place), self.text(row[2], place), row[3], deps(row[4]),
            **self.op(_mapping(row[5], place), place),
        )  # fmt: skip

    def op(self, given: Mapping[str, Any], place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in given.items():
            if type(value) is int and value >= 0:  # nearly all: no name for an error is made
                if key in _COUNTS:
                    found[key] = value
                    continue
                if key in _STRINGS and value < len(self.strings):
                    found[key] = self.strings[value]
                    continue
            at = f"{place}.{key}"
            if key in _STRINGS:
                found[key] = self.text(value, at)
            elif key == "work":
                found[key] = _share(value, at)
            elif key in _PLAIN:
                found[key] = _natural(value, at)
            elif key == "matmuls":
                rows = _is(value, list, at)
                found[key] = tuple(_matmul(row, f"{at}[{i}]") for i, row in enumerate(rows))
            elif key == "matmul_opcodes":
                found[key] = tuple(self.text(item, at) for item in _is(value, list, at))
            elif key == "collective":
                found[key] = self.collective(_row(value, (6,), at), at)
            else:
                raise XlaCostError(f"{at}: is unknown; expected a field of an op")
        return found

    def collective(self, row: list[Any], place: str) -> Collective:
        if row[0] not in _COLLECTIVES:
            raise XlaCostError(
                f"{place}: kind is {row[0]!r}; must be one of {sorted(_COLLECTIVES)}"
            )
        return Collective(
            row[0],
            self.groups[_below(row[1], len(self.groups), place)],
            _natural(row[2], place),
            _natural(row[3], place),
            _is(row[4], str, place),
            _is(row[5], str, place),
        )


def _matmul(data: Any, place: str) -> Matmul:
    row = _row(data, (6, 7), place)
    if row[4] not in _MATMUL_FORMATS:
        raise XlaCostError(f"{place}: format is {row[4]!r}; must be one of {list(FORMATS)}")
    b, m, n, k = (_natural(value, place) for value in row[:4])
    padded = _natural(row[6], place) if len(row) == 7 else 0
    if padded > m * n * k:
        raise XlaCostError(f"{place}: padded is {padded}; must be at most m * n * k")
    return Matmul(b, m, n, k, row[4], _is(row[5], bool, place), padded)


def _scalar(name: str, value: Any, default: Any) -> Any:
    """A scalar of Program: tuples come back as tuples, numbers and strings are checked."""
    place = f"program.{name}"
    if isinstance(default, tuple):
        items = _is(value, list, place)
        if name in _PAIRS:
            return tuple(tuple(_is(t, str, place) for t in _row(i, (2,), place)) for i in items)
        return tuple(_is(item, str, place) for item in items)
    if name == "name":
        return _is(value, str, place)
    if value is None and default is None:
        return None
    if isinstance(default, float):
        return _share(value, place)
    return _natural(value, place)


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    return _is(value, dict, place)  # type: ignore[no-any-return]


def _is(value: Any, kind: type, place: str) -> Any:
    if not isinstance(value, kind):
        raise XlaCostError(f"{place}: is a {type(value).__name__}; must be a {kind.__name__}")
    return value


def _row(value: Any, lengths: tuple[int, ...], place: str) -> list[Any]:
    row: list[Any] = _is(value, list, place)
    if len(row) not in lengths:
        raise XlaCostError(
            f"{place}: has {len(row)} parts; must have {' or '.join(map(str, lengths))}"
        )
    return row


def _natural(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise XlaCostError(f"{place}: is {value!r}; must be a whole number >= 0")
    return value


def _all_below(values: list[Any], limit: int) -> bool:
    """Whether all are whole numbers >= 0 below `limit`; the loops run in C."""
    if not values:
        return True
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) < limit


def _below(value: Any, limit: int, place: str) -> int:
    number = _natural(value, place)
    if number >= limit:
        raise XlaCostError(f"{place}: is {number}; must be below {limit}")
    return number


def _share(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise XlaCostError(f"{place}: is {value!r}; must be between 0 and 1")
    return float(value)


#: Names for callers that import several `to_json`.
program_to_json: Callable[[Program], dict[str, Any]] = to_json
program_from_json: Callable[[Any], Program] = from_json
