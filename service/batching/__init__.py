"""Dynamic batching: the queue in front of a model, what its calls cost, and how much work a worker has taken on.

Knows nothing of models, HTTP or metrics.
"""

from service.batching.batcher import Batcher
from service.batching.entries import Answer, BatchFailed, DeadlinePassed, Draining, QueueFull, whole_seconds
from service.batching.load import TOO_MUCH, Load

__all__ = [
    "TOO_MUCH",
    "Answer",
    "BatchFailed",
    "Batcher",
    "DeadlinePassed",
    "Draining",
    "Load",
    "QueueFull",
    "whole_seconds",
]
