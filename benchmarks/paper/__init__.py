"""The paper's experiments again: data sets x models x seeds under one protocol, then its tables, claims and figures.

A *cell* is one seed of one model on one data set; the cells of a *block* differ in the seed alone. `cells` trains,
scores and measures what is missing, `blocks` reads what is there, `tables`, `claims` and `page` show it. `make paper`
runs all of it:

    make paper                                          the three benchmarks, four models, ten seeds, in paper-run/
    make paper DATA=demo MODELS=ukge SEEDS=1 OUT=try    one small cell, for a look
    make paper MODELS=mymodule:MyBackbone               a model from outside gets a row beside the printed ones
    python -m benchmarks.paper --tables-only -o docs/reproduction
"""
