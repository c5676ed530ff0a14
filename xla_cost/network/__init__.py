"""What a collective costs on the tiers of a machine."""
