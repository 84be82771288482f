"""Figures: one design, drawn from plain arrays, as SVG and PNG or inside a page.

matplotlib is loaded when something is drawn, not before; without it drawing is an `InputError` that names the
extra to install.
"""
