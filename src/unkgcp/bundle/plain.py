"""Settings of a stranger: YAML that is a tree of plain values, and nothing that grows when it is read.

What it is: `yaml.safe_load` without anchors, of which a few can stand for billions of values, and without
repeated keys. What it is not: a schema.
"""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it refers to one value from several places")
        return super().compose_node(parent, index)


def load_yaml(text: bytes) -> dict[str, Any]:
    """The settings by name; a ValueError if it is anything else."""
    found = yaml.load(text.decode("utf-8"), _Loader)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError("it holds no settings")
    return found
