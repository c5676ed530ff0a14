"""Fitting kernel and collective efficiencies to measurements (the `calibrate` extra)."""

from xla_cost.calibrate.machine_fit import Calibration, calibrate
from xla_cost.calibrate.package import FOLDERS, PACKAGE, is_installed
from xla_cost.calibrate.writing import rewrite, write

__all__ = ["FOLDERS", "PACKAGE", "Calibration", "calibrate", "is_installed", "rewrite", "write"]
