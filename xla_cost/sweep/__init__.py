"""Cross products of models, machines, workloads and devices, each point searched."""
