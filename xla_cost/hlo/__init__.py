"""HLO text: reader and intermediate representation. Needs neither jax nor numpy."""
