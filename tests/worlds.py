"""Small, seeded vocabularies, graphs and models that tests of several files use.

Everything is a plain function of its arguments. Fixtures of the session in a `conftest.py` use these functions for what
takes long to make (a fitted run, a model of quantiles). A test about a certain distribution of confidences draws them
itself and takes the vocabulary from here.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from unkgcp.backbones import get
from unkgcp.graph import Graph, Vocabulary
from unkgcp.training import Model, TrainConfig

Fact = tuple[str, str, str, float]
"""Head, relation and tail by their labels, and the confidence."""
Row = Sequence[float]
"""Head, relation and tail by their ids, and the confidence."""

# vocabularies


def vocabulary(entities: int, relations: int = 1) -> Vocabulary:
    """Entities e0, e1, ... and relations r0, r1, ..."""
    return Vocabulary.of([f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)])


# graphs written down


def graph_of_ids(rows: Iterable[Row], words: Vocabulary) -> Graph:
    """The graph of rows (head, relation, tail, confidence) with ids of the vocabulary; there may be none."""
    columns = list(zip(*rows, strict=True)) or [()] * 4
    head, relation, tail = (np.array(column, np.int32) for column in columns[:3])
    return Graph(head, relation, tail, np.array(columns[3], np.float64), words)


def graph_of(facts: Sequence[Fact], words: Vocabulary | None = None) -> Graph:
    """The graph of these facts; ids follow the first appearance of a label, as those of a reader do."""
    if words is None:
        entities = dict.fromkeys(label for head, _, tail, _ in facts for label in (head, tail))
        words = Vocabulary.of(list(entities), list(dict.fromkeys(fact[1] for fact in facts)))
    return Graph(
        words.entity_ids([fact[0] for fact in facts]),
        words.relation_ids([fact[1] for fact in facts]),
        words.entity_ids([fact[2] for fact in facts]),
        np.round(np.array([fact[3] for fact in facts], np.float64), 9),
        words,
    )


def facts_of(graph: Graph) -> list[Fact]:
    """The facts of a graph by their labels, in order."""
    return list(zip(*graph.table().to_pydict().values(), strict=True))


def same_graph(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same ids, the same bits of confidences and the same labels."""
    columns = ("head", "relation", "tail")
    ids = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    bits = one.confidence.tobytes() == other.confidence.tobytes()
    return ids and bits and one.vocabulary == other.vocabulary


# graphs drawn


def random_ids(
    n: int, entities: int, relations: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Heads, relations and tails, all triples equally likely."""
    head, tail = rng.integers(0, entities, (2, n), dtype=np.int32)
    return head, rng.integers(0, relations, n, dtype=np.int32), tail


def random_graph(
    n: int, words: Vocabulary, seed: int = 0, entities: int | None = None, relations: int | None = None
) -> Graph:
    """Random triples and confidences; of the first `entities` and `relations` only, if given."""
    rng = np.random.default_rng(seed)
    sizes = (entities or len(words.entities), relations or len(words.relations))
    return Graph(*random_ids(n, *sizes, rng), np.round(rng.random(n), 9), words)


def learnable_graph(n: int = 600, entities: int = 40, relations: int = 3, seed: int = 0) -> Graph:
    """Confidences that a few epochs of a bilinear model can learn."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(entities, 3))
    weights = rng.normal(size=(relations, 3))
    head, relation, tail = random_ids(n, entities, relations, rng)
    score = (latent[head] * weights[relation] * latent[tail]).sum(1)
    return Graph(head, relation, tail, np.round(1 / (1 + np.exp(-score)), 9), vocabulary(entities, relations))


ATOMS = np.array([0.4375, 0.4374999999999998, 0.7, 1.0, 0.9999999999999998])
"""Confidences that real graphs repeat, two of them with a neighbour that differs in the last bits."""


def crowded_graph(n: int, seed: int, entities: int = 6, relations: int = 3) -> Graph:
    """So few entities that every statistic has something to count; most confidences are atoms."""
    rng = np.random.default_rng(seed)
    head, tail = rng.integers(0, entities, (2, n), dtype=np.int32)
    confidence = np.where(rng.random(n) < 0.7, rng.choice(ATOMS, n), rng.random(n).round(2))
    relation = rng.integers(0, relations, n, dtype=np.int32)
    return Graph(head, relation, tail, confidence, vocabulary(entities, relations))


def mirrored_graph(n: int, seed: int, entities: int = 60, relations: int = 4) -> Graph:
    """Confidences that other facts of the pair mostly repeat, the rest depends on the relation; rows exchangeable."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, entities, (max(1, n // 4), 2))
    own = np.where(
        rng.random(len(pairs)) < 0.6, rng.choice(ATOMS[[0, 2, 3]], len(pairs)), rng.random(len(pairs))
    )
    which = rng.integers(0, len(pairs), n)
    turned = rng.random(n) < 0.5
    head = np.where(turned, pairs[which, 1], pairs[which, 0]).astype(np.int32)
    tail = np.where(turned, pairs[which, 0], pairs[which, 1]).astype(np.int32)
    relation = rng.integers(0, relations, n).astype(np.int32)
    noise = np.clip(0.2 * relation + 0.3 * rng.random(n), 0, 1)
    confidence = np.where(rng.random(n) < 0.75, own[which], noise)
    return Graph(head, relation, tail, confidence, vocabulary(entities, relations))


# models


def random_model(
    words: Vocabulary,
    model: str = "ukge",
    dimension: int = 8,
    seed: int = 0,
    quantile: float | None = None,
    unseen: tuple[int, int] = (0, 0),
    spread: float = 1.0,
) -> Model:
    """A model with random parameters (standard deviation `spread`); its last `unseen` entities and relations count
    as never trained on.

    Runs, answers, monitors and services do the same with it as with a trained model, and it takes no time.
    """
    rng = np.random.default_rng(seed)
    entities, relations = len(words.entities), len(words.relations)
    rows = {"entity": entities, "relation": relations, "model": 1}
    tensors = {
        name: rng.normal(0, spread, (rows[table.kind], table.width)).astype(np.float32)
        for name, table in get(model).tables(dimension).items()
    }
    config = TrainConfig(model=model, dimension=dimension, quantile=quantile)
    seen_entities = np.arange(entities) < entities - unseen[0]
    seen_relations = np.arange(relations) < relations - unseen[1]
    return Model.from_tensors(tensors, words, config, seed, seen_entities, seen_relations)


def small_model() -> Model:
    """40 entities and 3 relations in 4 dimensions; the last entity and the last relation are unknown to it."""
    return random_model(vocabulary(40, 3), dimension=4, unseen=(1, 1))


def scored_facts(model: Model, n: int, rng: np.random.Generator, power: float = 1.0) -> Graph:
    """Facts about things the model has seen; confidences lie on 11 values (ties) and depend on the score.

    Another `power` makes another law of confidences, as if the world had changed.
    """
    head, relation, tail = random_ids(n, int(model.seen_entities.sum()), int(model.seen_relations.sum()), rng)
    score = model.score(head, relation, tail)
    noise = rng.random(n) ** power
    return Graph(head, relation, tail, np.round(0.5 * score + 0.5 * noise, 1).astype(float), model.vocabulary)


# facts in files

FACTS: list[Fact] = [
    ("a", "likes", "b", 0.5),
    ("b", "knows", "a", 0.25),
    ("a", "likes", "b", 1.0),
    ("c", "likes", "c", 0.0),
]
LINES = [f"{head}\t{relation}\t{tail}\t{confidence}" for head, relation, tail, confidence in FACTS]


def written(path: Path, content: str | bytes) -> Path:
    """Bytes as they are; text is packed where the name ends in .gz."""
    if isinstance(content, str):
        content = gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode()
    path.write_bytes(content)
    return path


@dataclass(frozen=True)
class ContinuousWorld:
    """Facts whose confidences have no value in common, and the law of each: logistic of a normal variable."""

    graph: Graph
    place: NDArray[np.float64]
    spread: NDArray[np.float64]
    """(n,) mean and standard deviation of the logit of each confidence."""

    @classmethod
    def of(cls, n: int, entities: int, relations: int, seed: int = 0) -> ContinuousWorld:
        """Places add up effects of head, tail and relation and a product; spreads differ by relation and head."""
        rng = np.random.default_rng(seed)
        head, relation, tail = random_ids(n, entities, relations, rng)
        (u, v), w = rng.normal(size=(2, entities, 2)), rng.normal(size=(relations, 2))
        (of_head, of_tail), base = rng.normal(0, 0.7, (2, entities)), rng.normal(0, 0.5, relations)
        place = (
            base[relation] + of_head[head] + of_tail[tail] + 0.6 * (u[head] * w[relation] * v[tail]).sum(1)
        )
        spread = 0.5 * np.exp(rng.normal(0, 0.4, relations)[relation] + rng.normal(0, 0.3, entities)[head])
        confidence = np.round(expit(place + spread * rng.normal(size=n)), 9)
        return cls(Graph(head, relation, tail, confidence, vocabulary(entities, relations)), place, spread)

    def __getitem__(self, rows: slice) -> ContinuousWorld:
        return ContinuousWorld(self.graph[rows], self.place[rows], self.spread[rows])

    def coverage(self, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> float:
        """How probable it was that the confidences lie in these intervals, on average."""
        low, high = (norm.cdf((logit(ends) - self.place) / self.spread) for ends in (lower, upper))
        return float((high - low).mean())

    def central(self, level: float) -> NDArray[np.float64]:
        """The best intervals there are, from quantile to quantile: (2, n)."""
        return np.asarray(expit(self.place + self.spread * norm.ppf([[(1 - level) / 2], [(1 + level) / 2]])))
