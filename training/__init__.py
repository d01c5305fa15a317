"""Fits Wide & Deep click models and publishes them as versions that `service/` can load."""
