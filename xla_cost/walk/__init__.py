"""From a Module to the hardware-free Program."""
