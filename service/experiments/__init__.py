"""Experiments: counts in, verdicts out, and what acts on them."""
