"""The paper's experiments: cells that are trained, stored and measured; tables and checks made of them.

>>> from unkgcp.evaluation.reproduction.plan import Plan
>>> from unkgcp.evaluation.reproduction.runner import reproduce
>>> reproduce(Plan(data=("demo",), models=("ukge",), seeds=1, protocol="strict"), "out")     # doctest: +SKIP
"""
