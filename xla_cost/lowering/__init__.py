"""From a jitted function to partitioned HLO text. Imports jax."""

from xla_cost.lowering.compiler_warnings import CompilerWarning
from xla_cost.lowering.devices import ensure_devices
from xla_cost.lowering.partition import PartitionedHlo, partition

__all__ = ["CompilerWarning", "PartitionedHlo", "ensure_devices", "partition"]
