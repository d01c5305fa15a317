"""The learning rate at each step, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.config import TrainConfig
from training.schedule import Schedule


def made(**train: int | str) -> tuple[torch.optim.SGD, Schedule]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    return optimizer, Schedule([optimizer], TrainConfig(**train), steps_per_epoch=4)  # type: ignore[arg-type]  # by name


def rates(optimizer: torch.optim.SGD, schedule: Schedule, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_a_warm_up_rises_in_equal_steps_to_the_rate() -> None:
    assert rates(*made(warmup=4), 6) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_cosine_falls_from_the_rate_towards_zero_over_all_epochs() -> None:
    found = rates(*made(schedule="cosine", epochs=2), 9)
    assert found[0] == pytest.approx(0.4)
    assert found[4] == pytest.approx(0.2)
    assert found[8] == pytest.approx(0.0)
    assert found == sorted(found, reverse=True)


def test_a_plateau_cuts_the_rate_after_an_epoch_without_progress() -> None:
    optimizer, schedule = made(schedule="plateau")
    for better, wanted in ((True, 0.4), (False, 0.04), (True, 0.04), (False, 0.004)):
        schedule.epoch(better)
        assert rates(optimizer, schedule, 1) == pytest.approx([wanted])


def test_a_schedule_goes_on_from_its_state() -> None:
    optimizer, schedule = made(schedule="plateau", warmup=10)
    rates(optimizer, schedule, 3)
    schedule.epoch(False)
    other, resumed = made(schedule="plateau", warmup=10)
    resumed.load_state_dict(schedule.state_dict())
    assert rates(other, resumed, 9) == pytest.approx(rates(optimizer, schedule, 9))
