"""Steps of Adam that a row has missed, made at once: the numbers that CPU and GPU need for it.

A row that a batch does not read has no gradient. After i steps without a gradient m is 0.9^i m, and sqrt(v) is
0.999^(i/2) s; so step j, with its learning rate lr and epsilon eps, moves a parameter by lr C^i m / (s + eps / R^i),
where R = 0.999^(1/2) and C = 0.9 / R. Their sum is m / (s + e) times the sum of all lr C^i, with e the mean of the
eps / R^i, weighted by lr C^i. That is exact where eps does not matter. Where it does, s is as small as eps, 1e-8, and
the gradients are next to nothing; the sum is then off by some hundredths of a step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epoch_rates(learning_rate: float, before: int, steps: int) -> NDArray[np.float64]:
    """What the steps of an epoch that follows on `before` others need: (8, steps + 1).

    lr and eps of each step, with the corrections of the early steps in them; the sums of lr C^i and of
    lr eps (C / R)^i over this step and all later ones; and the powers of C, of C / R, of 0.9 and of 0.999.
    """
    bases = np.array([0.9 / 0.999**0.5, 0.9 / 0.999, 0.9, 0.999])
    rates = np.zeros((8, steps + 1))
    count = before + np.arange(1, steps + 1)
    correction = np.sqrt(1.0 - 0.999**count)
    rates[:2, :-1] = learning_rate * correction / (1.0 - 0.9**count), 1e-8 * correction
    for step in range(steps - 1, -1, -1):
        lr, eps = rates[:2, step]
        rates[2:4, step] = (rates[2:4, step + 1] + (lr, lr * eps)) * bases[:2]
    rates[4:] = bases[:, None] ** np.arange(steps + 1)
    return rates
