"""The invented world behind the demo graph: who is there, and what makes a statement sure or unsure.

People live in cities, work for companies, have skills and like products. An entity has a position (who goes
with whom), a standing (statements about some are surer), a carelessness (statements about some scatter more)
and a habit (some are only ever described in stock values). These are the hidden causes: the demo graph shows
facts and confidences, the oracle knows all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.demo import names
from unkgcp.graph.vocabulary import Vocabulary

Floats = NDArray[np.float64]

KINDS = {"person": 1500, "company": 400, "city": 80, "skill": 120, "product": 300}
COMMUNITIES = 8
DIMENSION = 4
# what an entity is described in: mostly 0.7, mostly 1.0, or mostly what was measured
HABITS = np.array([[1.0, 0.0], [0.05, 1.0], [0.05, 0.02]])
HABIT_SHARES = (0.35, 0.15, 0.5)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation and the distribution of its confidences.

    `base`, `affinity`, `head` and `tail` make the place (on the logistic scale) of the continuous part: how
    sure such statements are at all, how much it matters that the two go together, and how much the standing
    of either matters. `spread` is the scale of the noise. `stated` and `recorded` say how often an entity of
    that habit gets the stock value 0.7 (stated, never checked) or 1.0 (on record); see `World.habits`. A relation
    that `echoes` another one mostly joins pairs that the other one joins, too.
    """

    name: str
    domain: str
    range: str
    facts: int
    base: float
    affinity: float
    head: float
    tail: float
    spread: float
    stated: float
    recorded: float
    symmetric: bool = False
    echoes: str = ""


# works_in has no effects of its own: it is works_for followed by has_office_in
RELATIONS = (
    Relation("works_for", "person", "company", 4200, 0.9, 1.2, 0.6, 0.6, 0.015, 0.85, 0.70),
    Relation(
        "recommends", "person", "company", 3000, 0.0, 1.2, 0.9, 0.6, 0.100, 0.80, 0.00, echoes="works_for"
    ),
    Relation("has_office_in", "company", "city", 2000, 1.3, 0.8, 0.4, 0.4, 0.010, 0.80, 0.95),
    Relation(
        "sells_in", "company", "city", 1800, 0.5, 0.8, 0.6, 0.6, 0.030, 0.85, 0.50, echoes="has_office_in"
    ),
    Relation("works_in", "person", "city", 4000, 0.0, 0.0, 0.0, 0.0, 0.015, 0.85, 0.50),
    Relation("lives_in", "person", "city", 3600, 1.5, 0.5, 0.6, 0.3, 0.006, 0.70, 0.95, echoes="works_in"),
    Relation("knows", "person", "person", 5400, 0.0, 1.2, 0.6, 0.6, 0.080, 0.60, 0.00, symmetric=True),
    Relation(
        "works_with",
        "person",
        "person",
        4000,
        0.6,
        1.0,
        0.6,
        0.6,
        0.030,
        0.85,
        0.50,
        symmetric=True,
        echoes="knows",
    ),
    Relation("has_skill", "person", "skill", 3400, 0.4, 0.8, 0.8, 0.4, 0.015, 0.97, 0.50),
    Relation("teaches", "person", "skill", 2600, -0.2, 1.0, 0.9, 0.5, 0.050, 0.90, 0.30, echoes="has_skill"),
    Relation("likes", "person", "product", 3000, -0.3, 1.0, 0.9, 0.9, 0.120, 0.85, 0.00),
    Relation("buys", "person", "product", 2600, 0.3, 1.2, 0.6, 0.6, 0.040, 0.85, 0.30, echoes="likes"),
)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Hidden causes of the demo graph. Arrays over entities have shape (entities,) unless noted."""

    vocabulary: Vocabulary
    first: dict[str, int]
    community: NDArray[np.int64]
    popularity: Floats
    position: Floats  # (entities, 4)
    standing: Floats
    carelessness: Floats
    habits: Floats  # (entities, 2): 0.7 by habit, 1.0 by habit; each near 0 or 1
    direction: Floats  # (relations, 4): how much each coordinate of the position counts

    def members(self, kind: str) -> slice:
        """The ids of all entities of one kind."""
        return slice(self.first[kind], self.first[kind] + KINDS[kind])


def build(generator: np.random.Generator) -> World:
    """A world with popular and rare entities in eight communities."""
    labels: list[str] = []
    first: dict[str, int] = {}
    popularity = []
    for kind, count in KINDS.items():
        first[kind] = len(labels)
        labels += names.draw(kind, count, generator)
        rank = generator.permutation(count) + 1
        popularity.append(rank**-0.75 / np.sum(rank**-0.75))
    n = len(labels)
    community = generator.integers(COMMUNITIES, size=n)
    centre = generator.normal(size=(COMMUNITIES, DIMENSION))
    position = 0.8 * centre[community] + 0.6 * generator.normal(size=(n, DIMENSION))
    return World(
        vocabulary=Vocabulary.of(labels, [relation.name for relation in RELATIONS]),
        first=first,
        community=community,
        popularity=np.concatenate(popularity),
        position=position,
        standing=generator.normal(size=n),
        carelessness=np.exp(0.6 * generator.normal(size=n)),
        habits=HABITS[generator.choice(3, size=n, p=HABIT_SHARES)],
        direction=_directions(generator),
    )


def _directions(generator: np.random.Generator) -> Floats:
    """A relation that echoes another one looks at entities much as that one does."""
    direction: Floats = generator.normal(size=(len(RELATIONS), DIMENSION)) / np.sqrt(DIMENSION)
    index = {row.name: position for position, row in enumerate(RELATIONS)}
    for position, row in enumerate(RELATIONS):
        if row.echoes:
            direction[position] = 0.8 * direction[index[row.echoes]] + 0.6 * direction[position]
    return direction
