"""What torchtitan's option parser fills: its sections of parallelism and training, without a model."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchtitan.config import ParallelismConfig, TrainingConfig


@dataclass(kw_only=True, slots=True)
class Config:
    parallelism: ParallelismConfig = field(default_factory=ParallelismConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    hf_assets_path: str = "."


def small() -> Config:
    return Config()
