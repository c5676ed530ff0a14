"""Results as a web page, as a Perfetto trace, and in a few sentences."""
