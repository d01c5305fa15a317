"""The learning rate at each step, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.config import TrainConfig
from training.schedule import Schedule


def made(**train: str) -> tuple[torch.optim.SGD, Schedule]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    return optimizer, Schedule([optimizer], TrainConfig(**train))


def rates(optimizer: torch.optim.SGD, schedule: Schedule, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_a_plateau_cuts_the_rate_after_an_epoch_without_progress() -> None:
    optimizer, schedule = made(schedule="plateau")
    for better, wanted in ((True, 0.4), (False, 0.04), (True, 0.04), (False, 0.004)):
        schedule.epoch(better)
        assert rates(optimizer, schedule, 1) == pytest.approx([wanted])


def test_a_schedule_goes_on_from_its_state() -> None:
    optimizer, schedule = made(schedule="plateau")
    rates(optimizer, schedule, 3)
    schedule.epoch(False)
    other, resumed = made(schedule="plateau")
    resumed.load_state_dict(schedule.state_dict())
    assert rates(other, resumed, 9) == pytest.approx(rates(optimizer, schedule, 9))
