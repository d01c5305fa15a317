"""The serving half of twinrank: loads versions, scores requests, splits traffic, measures."""
