"""Fixtures that more than one room uses; what one room needs stays in that room."""
