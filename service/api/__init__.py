"""HTTP: parse, ask, shape the answer; nothing else."""
