"""The open world on the benchmarks: coverage of facts and of triples that are no facts, nobody saying which is which.

For each data set the evidence method is learned from the training facts, calibrated on the calibration facts and on
corruptions of them of every kind, and asked about the test facts, about corruptions of these drawn in the same ways,
and about others that nothing was calibrated with, without those that are facts of some part: the data set's own
negatives, test facts with both ends replaced, with a relation drawn uniformly, and with an end replaced by an entity
that some training fact joins to the other (such corruptions are learned from, though).

Writes results/open-world.json and .md. Exits with status 1 unless, at 90 %, facts and corruptions are covered at
0.89 or more, the data set's own negatives at 0.85 or more, and hulls of facts are no wider than 0.56 (CN15k), 0.10
(NL27k) and 0.03 (PPI5k). These widths are for one threshold over all facts (`--per none`); with groups, the default of
`fit`, hulls are wider and cover more. Data sets that are not there are left out.

    UNKGCP_DATA=... make bench-open-world
    UNKGCP_DATA=... python benchmarks/open_world.py --full --device cuda     # with cross-fitted backbone scores
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

import common
from unkgcp.errors import InputError
from unkgcp.graph import Graph, load_dataset
from unkgcp.graph.negatives import JOINED, KINDS, corrupt
from unkgcp.run import fit

WIDEST = {"cn15k": 0.56, "nl27k": 0.10, "ppi5k": 0.03}
LEVEL, DRAWN, GIVEN = 0.9, 0.89, 0.85


def measure(name: str, seed: int, full: bool, per: str, device: str) -> dict[str, Any]:
    dataset = load_dataset(name)
    splits = dataset.splits
    start = time.monotonic()
    predictor = fit(
        dataset,
        method="evidence",
        model="ukge" if full else "none",
        population="open",
        per=per,
        seed=seed,
        device=device,
    )
    seconds = time.monotonic() - start
    asked = {"facts": splits.test}
    asked |= {kind: corrupt(splits.test, splits.train, seed=1000 + seed, kind=kind) for kind in KINDS}
    known = np.concatenate([part.keys for part in (splits.train, splits.calibration, splits.test)])
    apart = elsewhere(splits.test, splits.train, seed)
    if dataset.negatives is not None:
        apart = {"own negatives": dataset.negatives, **apart}
    asked |= {kind: triples[~np.isin(triples.keys, known)] for kind, triples in apart.items()}
    asked = {kind: triples for kind, triples in asked.items() if len(triples)}
    rows = {}
    for kind, triples in asked.items():
        answer = predictor.interval(triples, LEVEL)
        truth = triples.confidence
        assert answer.no_fact is not None
        rows[kind] = {
            "n": len(truth),
            "coverage": float(((answer.lower <= truth) & (truth <= answer.upper)).mean()),
            "hull": float(answer.width.mean()),
            "possibly no fact": float(answer.no_fact.mean()),
        }
    return {"data": name, "seed": seed, "seconds": round(seconds, 1), "asked": rows}


def elsewhere(facts: Graph, train: Graph, seed: int) -> dict[str, Graph]:
    """Corruptions of kinds that nothing is calibrated with; some are facts of other parts."""
    rng, n = np.random.default_rng((seed, 7)), len(facts)
    ends = rng.integers(facts.n_entities, size=(2, n), dtype=np.int32)
    relations = np.unique(train.relation)
    zero = np.zeros(n)
    return {
        "both ends": replace(facts, head=ends[0], tail=ends[1], confidence=zero),
        "any relation": replace(
            facts, relation=relations[rng.integers(len(relations), size=n)], confidence=zero
        ),
        JOINED: corrupt(facts, train, seed=1000 + seed, kind=JOINED),
    }


def figures(found: list[dict[str, Any]]) -> list[common.Figure]:
    """Means over the seeds of a data set."""
    out = []
    for name in dict.fromkeys(each["data"] for each in found):
        runs = [each["asked"] for each in found if each["data"] == name]
        for kind in runs[0]:
            coverage = float(np.mean([run[kind]["coverage"] for run in runs]))
            if kind in ("both ends", "any relation", JOINED):
                continue  # nothing is promised of these
            least = GIVEN if kind == "own negatives" else DRAWN
            out.append(
                common.Figure(f"open world, {name}: coverage of {kind}", coverage, least, at_least=True)
            )
        width = float(np.mean([run["facts"]["hull"] for run in runs]))
        out.append(common.Figure(f"open world, {name}: hull of facts", width, WIDEST[name]))
    return out


def text(record: dict[str, Any]) -> str:
    rows = [
        {"data": each["data"], "seed": each["seed"], "queries": kind, **row}
        for each in record["found"]
        for kind, row in each["asked"].items()
    ]
    about = (
        f"Evidence {'with' if record['full'] else 'without'} backbone scores, {record['cores']} cores, "
        f"{record['processor']}, Python {record['python']}; `make bench-open-world`"
    )
    title = "# Facts and non-facts at 90 %, the class of a query unknown"
    return "\n".join([title, "", about, "", *common.markdown(rows), ""])


def main() -> int:
    options = common.parser(__doc__)
    options.add_argument("--data", default=",".join(WIDEST))
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--per", default="none", help="groups in each of which facts are covered, as in fit")
    options.add_argument("--full", action="store_true", help="with cross-fitted backbone scores")
    options.add_argument("--device", default="auto")
    given = options.parse_args()
    found = []
    for name in given.data.split(","):
        for seed in range(given.seeds):
            try:
                found.append(measure(name, seed, given.full, given.per, given.device))
            except InputError as error:
                print(f"left out: {error}", flush=True)
                break
            print(json.dumps(found[-1]), flush=True)
    if not found:
        return 0
    record = {
        "full": given.full,
        "per": given.per,
        **common.machine(),
        "found": found,
    }
    common.write("open-world", record, text(record))
    return common.judge("open-world", figures(found))


if __name__ == "__main__":
    sys.exit(main())
