"""The precision of matrix products: float32, or a faster one whose error is measured against a version's exam."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

import torch

from service.scoring.device import BF16, TF32


def allow(precision: str, device: torch.device) -> None:
    """Prepare the process for `precision`; TF32 is a switch of the whole process, and does nothing on a CPU."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == TF32


def computing(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """What a call of the module is to stand in."""
    if precision != BF16:
        return torch.inference_mode()
    both = ExitStack()
    both.enter_context(torch.inference_mode())
    both.enter_context(torch.autocast(device.type, torch.bfloat16))
    return both
