"""Raw feature values to click probabilities: the contract between training and serving.

Knows no HTTP, no asyncio, no metrics and no database; of `service/`, `training/` may import this package alone.
"""
