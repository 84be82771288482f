"""Random numbers as a pure function of (seed, purpose, position): no state to save, the same on every device.

Each number is a 64-bit mix of its counter, so a resumed run, a CPU kernel, a GPU and each of several processes draw
exactly the numbers that one undisturbed process would have drawn. Importing this loads no torch: the compiled loops
take their constants from here, and scoring with them must work without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

# the purposes of random numbers; each has a stream of its own
SHUFFLE, NEGATIVE, SOFTLOGIC, POOL_CHOICE, POOL_DRAW, COMPOSITION = range(0, 96, 16)
RETRIES = 3  # draws of a negative before one that is a known fact is given weight 0


def _signed(value: int) -> int:
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def mix(value: int) -> int:
    """The 64-bit mix of one Python integer (used for the few stream bases)."""
    value &= MASK
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)


def stream(seed: int, purpose: int) -> int:
    """The base of a stream, as a signed 64-bit integer."""
    return _signed(mix(mix(seed + 1) + (purpose + 1) * GOLDEN))


def _shift(value: Tensor, bits: int) -> Tensor:
    # the shift of a signed integer copies the sign bit down; a mask makes it the unsigned shift
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def draw(base: Tensor, counter: Tensor) -> Tensor:
    """64 random bits for each counter: broadcast of `base` and `counter`, int64."""
    value = base + counter * _signed(GOLDEN)
    value = (value ^ _shift(value, 30)) * _signed(FIRST)
    value = (value ^ _shift(value, 27)) * _signed(SECOND)
    return value ^ _shift(value, 31)


def below(bits: Tensor, limit: int | Tensor) -> Tensor:
    """Uniform integers below `limit` (at most 2^31) from random bits."""
    return (_shift(bits, 32) * limit) >> 32


def unit(bits: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float32 with 24 bits."""
    return _shift(bits, 40).float() * 2.0**-24


def permutations(seeds: list[int], epoch: int, n: int, device: torch.device) -> Tensor:
    """A permutation of range(n) for each seed: (members, n) int64."""
    import torch

    counter = torch.arange(n, device=device)
    bases = torch.tensor([stream(mix(seed) + epoch, SHUFFLE) for seed in seeds], device=device)
    return torch.stack([torch.argsort(draw(base, counter), stable=True) for base in bases])
