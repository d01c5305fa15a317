"""Halves and their join in C, for CPUs that have a kernel, where there was a compiler."""

from service.scoring.native.halves import AVX512, Arrays, NativeHalves, most_lanes
from service.scoring.native.plan import Plan, plan_of

__all__ = ["AVX512", "Arrays", "NativeHalves", "Plan", "most_lanes", "plan_of"]
