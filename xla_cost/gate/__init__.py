"""The CI gate: a small text file of what a program costs, and what changed against it."""
