"""Nodes of a body while it is being put together: dependencies still open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xla_cost.program import Branch, Loop, Node, Op
from xla_cost.walk.scopes import NOWHERE, Scope

#: An element of a parameter: its number and the path inside it.
Parameter = tuple[int, tuple[int, ...]]
NodeType = type[Op] | type[Loop] | type[Branch]


@dataclass(slots=True)
class Needs:
    """What a value waits for: nodes of the same body, and parameters of the computation."""

    nodes: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()


NOTHING = Needs()


def together(needs: Iterable[Needs]) -> Needs:
    """The union, in the order given: the first operand's node comes first."""
    nodes: dict[int, None] = {}
    parameters: dict[Parameter, None] = {}
    for one in needs:
        for node in one.nodes:
            nodes[node] = None
        for parameter in one.parameters:
            parameters[parameter] = None
    if not nodes and not parameters:
        return NOTHING
    return Needs(tuple(nodes), tuple(parameters))


@dataclass(slots=True)
class Draft:
    """A node without its final dependencies. `origin` is the index of its instruction."""

    make: NodeType
    fields: dict[str, Any]
    needs: Needs
    origin: int
    scope: Scope = NOWHERE

    def finish(self) -> Node:
        """The node itself."""
        return self.make(deps=self.needs.nodes, **self.fields)

    @property
    def is_op(self) -> bool:
        """Whether it becomes an Op."""
        return self.make is Op


@dataclass(slots=True)
class Drafts:
    """The nodes of one computation in program order, and what its values wait for."""

    nodes: list[Draft] = field(default_factory=list)
    made: dict[str, Needs] = field(default_factory=dict)
    #: parts of an inlined call's result: (call, path) -> what it waits for
    parts: dict[tuple[str, tuple[int, ...]], Needs] = field(default_factory=dict)
