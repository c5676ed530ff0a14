"""HLO text: reader and intermediate representation. Needs neither jax nor numpy."""

from xla_cost.hlo.ir import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from xla_cost.hlo.parser import parse, read_file

__all__ = [
    "AnyShape",
    "Computation",
    "Instruction",
    "Module",
    "Shape",
    "TupleShape",
    "parse",
    "read_file",
]
