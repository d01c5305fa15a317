"""Memory that ran out, told from every other failure of a model."""

from __future__ import annotations

# As the CPU allocator and CUDA's say it; TorchScript's interpreter passes on the text alone, as a RuntimeError.
_SIGNS = ("not enough memory: you tried to allocate", "out of memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch found no memory."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def give_back(device: str) -> None:
    """Return what the device's allocator keeps for later: it may be in pieces too small for a large request."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
