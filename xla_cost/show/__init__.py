"""Results as a person reads them in a terminal. Imports rich."""
