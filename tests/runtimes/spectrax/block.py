"""The stage of the small model that is trained; spectrax finds classes by module and name."""

from __future__ import annotations

import jax.numpy as jnp
import spectrax as spx
from spectrax import nn

WIDTH = 8


class Block(spx.Module):
    """Two layers with a nonlinearity between them."""

    def __init__(self, hidden: int, rngs: object) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, hidden, rngs=rngs)
        self.second = nn.Linear(hidden, WIDTH, rngs=rngs)

    def forward(self, x: object) -> object:
        return self.second(jnp.tanh(self.first(x)))
