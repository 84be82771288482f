"""Figures: one design, drawn from plain arrays, as SVG and PNG or inside a page.

matplotlib is loaded when something is drawn, not before; without it drawing is an `InputError` that names the
extra to install.

>>> draw_reproduction("reproduction")     # doctest: +SKIP
"""

from __future__ import annotations

from unkgcp.evaluation.figures.paper_figures import draw_reproduction

__all__ = ["draw_reproduction"]
