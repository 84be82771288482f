"""Seconds that OpenUKGE takes for an epoch of a model, through its own data module and trainer.

Runs in the peers' environment: python openukge_epoch.py FOLDER MODEL [EPOCHS], where FOLDER holds the benchmark's files
and MODEL is ukge, passleaf or beurre. Prints one JSON object on its last line.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from openukge.data import ppi5k
from openukge.evaluation import conf_predict
from openukge.loss import BEUrRELoss, PASSLEAFLoss, UKGELoss
from openukge.models import PASSLEAF, UKGE, BEUrRE
from openukge.training import BEUrRETrainer, EarlyStop, OptimBuilder, PASSLEAFTrainer, UKGETrainer
from openukge.utils import seed_everything

DIMENSION, BATCH, NEGATIVES = 128, 256, 10
BOX_DIMENSION = 64
NORMS = {"delta": 1.0, "min": 1e-3, "rel_trans": 1e-3, "rel_scale": 1e-3}  # those of the published BEUrRE
EPOCHS = int(sys.argv[3]) if len(sys.argv) > 3 else 3


def prepare(source: Path, root: Path) -> None:
    """The files in the layout that its loader expects: tables of names, test extras in a folder below."""
    target = root / "ppi5k"
    extras = target / "extra" / "test"
    extras.mkdir(parents=True)
    for part in ("train", "val", "test"):
        shutil.copy(source / f"{part}.tsv", target)
    shutil.copy(source / "test_with_neg.tsv", extras / "test_with_neg_beurre.tsv")
    (extras / "ndcg_test_beurre.pickle").write_bytes(
        pickle.dumps({})
    )  # ranking queries: not part of training
    rows = [line.split("\t") for path in target.glob("*.tsv") for line in path.read_text().splitlines()]
    for table, columns in (("entity_id.csv", (0, 2)), ("relation_id.csv", (1,))):
        count = 1 + max(int(row[column]) for row in rows for column in columns)
        (target / table).write_text("\n".join(f"name{i},{i}" for i in range(count)))


def make_trainer(name: str, data: Any, save_path: str) -> Any:
    optimiser = OptimBuilder({"optimizer": {"type": "Adam", "lr": 0.001}})
    stop = EarlyStop(patience=2, monitor="mse", mode="min", monitor_mode="tail")
    sizes = {"num_ent": data.num_ent, "num_rel": data.num_rel}
    if name == "ukge":
        model = UKGE(data.num_ent, data.num_rel, emb_dim=DIMENSION)
        return UKGETrainer(data, model, UKGELoss(), optimiser, stop, save_path=save_path)
    if name == "beurre":
        boxes = BEUrRE(**sizes, emb_dim=BOX_DIMENSION, gumbel_beta=0.01)
        return BEUrRETrainer(data, boxes, BEUrRELoss(None, NORMS), optimiser, stop, save_path=save_path)
    pooled = PASSLEAF(**sizes, emb_dim=DIMENSION, reg_scale=0.0, score_function="DistMult")
    # every call of fit counts its epochs from 1: so the pool fills from the first on
    return PASSLEAFTrainer(
        data, pooled, PASSLEAFLoss(), optimiser, stop, save_path=save_path, t_new_semi=0, t_semi_train=1
    )


def main(source: Path, name: str) -> None:
    torch.set_num_threads(2)
    seed_everything(0)
    with tempfile.TemporaryDirectory() as root:
        prepare(source, Path(root))
        data = ppi5k.load_data(root, num_neg=NEGATIVES, batch_size=BATCH)
        trainer = make_trainer(name, data, str(Path(root) / "best.pt"))
        trainer.fit(epochs=1, eval_freq=1000)  # warm
        trainer.t_semi_train = (
            -39
        )  # PASSLEAF's pool has its largest share, 80 %, once there is something in it
        seconds, processor = [], []
        for _ in range(EPOCHS):
            start = time.perf_counter(), time.process_time()
            trainer.fit(epochs=1, eval_freq=1000)
            seconds.append(time.perf_counter() - start[0])
            processor.append(time.process_time() - start[1])
        with torch.no_grad():
            facts = data.val_dataloader()
            error, _ = conf_predict(facts["triples"], facts["probabilities"], trainer.model)
    print()
    print(
        json.dumps(
            {
                "name": "OpenUKGE",
                "version": version("openukge"),
                "torch": torch.__version__,
                "facts": len(data.train),
                "seconds": seconds,
                "processor_seconds": processor,
                "validation_mse": error.item(),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
