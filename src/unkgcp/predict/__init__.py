"""Files of queries answered, on this machine (`stream`) or on a Ray cluster (`ray_engine`).

Every engine calls the same pure functions on batches of queries, so that the answers are the same, bit for bit.
`prediction_tables` is another door: intervals for a table of predictions, without a run (`unkgcp conformalize`).
"""
