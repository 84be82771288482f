"""Prints the lowest versions that pyproject.toml allows, as pins for pip; `make test-lowest` installs them."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
groups = [project["dependencies"], *project["optional-dependencies"].values()]
pins = set()
for requirement in (requirement for group in groups for requirement in group):
    bound = re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\w.]+)(.*)", requirement)
    if bound:
        name, version, marker = bound.groups()
        pins.add(f"{name}=={version}{marker}")
print(*sorted(pins), sep="\n")
