"""The shared state: the traffic document, its history, the workers that follow it, what experiments count.

All SQL of the service is here.
"""

from service.state.document import Document, Shadow
from service.state.plans import ArmSlot
from service.state.shadows import Pair
from service.state.store import StateError, StateStore, Transaction
from service.state.workers import VersionState, Worker

__all__ = ["ArmSlot", "Document", "Pair", "Shadow", "StateError", "StateStore", "Transaction", "VersionState", "Worker"]
