"""Synthetic users against a running service: what an experiment's verdict says where the truth is known."""
