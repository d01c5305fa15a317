"""Raw feature values to click probabilities: the contract between training and serving.

Knows no HTTP, no asyncio, no metrics and no database; `training/` may import this package and nothing else of `service/`.
"""
