"""Scoring models: each is a formula over parameter tables, found by name. Importing this loads no torch.

`MODELS` has those of the package. A backbone of one's own is a class in one's own file: `register_backbone` makes it
known, and so does naming it `module:Class` where a model is trained.

>>> @unkgcp.register_backbone                                              # doctest: +SKIP
... class Mine(unkgcp.backbones.Backbone): ...
>>> unkgcp.train(facts, model="mine")                                      # doctest: +SKIP
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from unkgcp.errors import InputError, missing
from unkgcp.lazy import import_allowed, import_from_here, lazy

if TYPE_CHECKING:
    from unkgcp.backbones.backbone import (
        Backbone,
        ParameterTable,
        constant,
        normal,
        score_ids,
        score_triples,
        truncated_normal,
        uniform,
    )

__all__ = [
    "MODELS",
    "Backbone",
    "ParameterTable",
    "constant",
    "get",
    "import_backbone",
    "normal",
    "register_backbone",
    "registered_name",
    "score_ids",
    "score_triples",
    "truncated_normal",
    "uniform",
]

MODELS = {
    "ukge": "ukge_passleaf:UKGE",
    "ukge-rect": "ukge_passleaf:UKGERect",
    "passleaf": "ukge_passleaf:Passleaf",
    "beurre": "beurre:BEUrRE",
}
"""Name -> module of this room and class. The contract test in `tests/backbones` runs on every entry."""

__getattr__, __dir__ = lazy(
    __name__,
    {
        "backbones.backbone": (
            "Backbone",
            "ParameterTable",
            "constant",
            "normal",
            "score_ids",
            "score_triples",
            "truncated_normal",
            "uniform",
        )
    },
)

_registered: dict[str, type[Backbone]] = {}  # by `module:Class`
_names: dict[str, str] = {}  # the name of a registered backbone -> `module:Class`


def register_backbone(backbone: type[Backbone]) -> type[Backbone]:
    """Make a backbone of one's own known by its `name`, and by `module:Class`; it can stand above a class.

    >>> unkgcp.register_backbone(MyBackbone)                               # doctest: +SKIP

    A run keeps the tables and says `module:Class`, but not the formula: whoever loads the run registers it again.
    """
    from unkgcp.backbones.backbone import Backbone

    if not (isinstance(backbone, type) and issubclass(backbone, Backbone)):
        raise InputError(f"{backbone!r} is no subclass of unkgcp.backbones.Backbone")
    name, reference = getattr(backbone, "name", ""), f"{backbone.__module__}:{backbone.__qualname__}"
    if not name or not isinstance(name, str) or ":" in name or name in (*MODELS, "none", "given"):
        raise InputError(f"{reference} needs a `name` of its own, without a colon; {name!r} cannot be used")
    _registered[reference], _names[name] = backbone, reference
    get.cache_clear()
    return backbone


def registered_name(model: str) -> str:
    """`module:Class` for the name of a registered backbone; any other name as it is."""
    return _names.get(model, model)


@cache
def get(name: str) -> Backbone:
    """The backbone called `name`. It imports no module of the user's, except those that $UNKGCP_IMPORT names."""
    if name in MODELS:
        module, _, kind = MODELS[name].partition(":")
        backbone: Backbone = getattr(import_module(f"unkgcp.backbones.{module}"), kind)()
        return backbone
    module, _, kind = registered_name(name).partition(":")
    if kind:
        if f"{module}:{kind}" not in _registered:
            import_allowed(module, f"the backbone {kind}", f"unkgcp.register_backbone({kind})")
            import_backbone(f"{module}:{kind}")
        return _registered[f"{module}:{kind}"]()
    near = difflib.get_close_matches(name, [*MODELS, *_names], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join([*MODELS, *_names])}"
    raise InputError(f"there is no model {name!r}; {hint}")


def import_backbone(name: str) -> None:
    """Import and register `module:Class`; the module is looked for in the current folder too."""
    module, _, kind = name.partition(":")
    if name in _registered or not kind:
        return
    try:
        backbone = getattr(import_from_here(module), kind, None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise missing(error) from None
        raise InputError(f"there is no module {module!r} here or on PYTHONPATH for model {name!r}") from None
    if backbone is None:
        raise InputError(f"module {module!r} has no class {kind!r}")
    register_backbone(backbone)
