"""Checkpoints: everything a run needs to go on exactly as if it had never stopped, in one file written
whole.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from unkgcp.errors import InputError, at
from unkgcp.files import atomic_path


def save(path: str | PathLike[str], tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and a JSON description atomically."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata={"about": json.dumps(about)})


def load(path: str | PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InputError(f"{at(path)} does not exist; start without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"{at(path)} is not a checkpoint of this program ({error}); start without --resume"
        ) from None
