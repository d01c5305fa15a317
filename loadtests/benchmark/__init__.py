"""The parts of bench.py: the work, the floors, the load, the accounts, the rows and the report."""
