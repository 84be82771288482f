"""Where a file of queries is answered other than in a plain loop: on a Ray cluster (`--engine ray`).

The local engine is `unkgcp.predict.stream`. Every engine calls the same pure function on batches of the same
rows, so that the answers are the same, bit for bit.
"""

from __future__ import annotations
