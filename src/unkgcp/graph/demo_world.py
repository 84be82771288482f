"""The invented world behind the demo graph: who is there, and what makes a statement sure or unsure.

People live in cities, work for companies, have skills and like products. An entity has a position (who goes
with whom), a standing (statements about some are surer), a carelessness (statements about some scatter more)
and a habit (some are mostly described in stock values). The demo graph shows only facts and confidences; the oracle
also knows these hidden causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from unkgcp.graph.facts import Vocabulary

Floats = NDArray[np.float64]

KINDS = {"person": 1500, "company": 400, "city": 80, "skill": 120, "product": 300}
COMMUNITIES = 8
DIMENSION = 4
# an entity is described mostly by 0.7, mostly by 1.0, or mostly by measured confidences
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
    Relation("works_with", "person", "person", 4000, 0.6, 1.0, 0.6, 0.6, 0.030, 0.85, 0.50, True, "knows"),
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
        labels += draw(kind, count, generator)
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
    """A relation that echoes another one weighs the coordinates of positions much as that one does."""
    direction: Floats = generator.normal(size=(len(RELATIONS), DIMENSION)) / np.sqrt(DIMENSION)
    index = {row.name: position for position, row in enumerate(RELATIONS)}
    for position, row in enumerate(RELATIONS):
        if row.echoes:
            direction[position] = 0.8 * direction[index[row.echoes]] + 0.6 * direction[position]
    return direction


# Names for the inhabitants of the demo graph, put together from short lists; every name occurs once.

# kind -> (first parts, what joins them, second parts)
PARTS: dict[str, tuple[str, str, str]] = {
    "person": (
        "Ada Alma Amir Anton Aya Bela Bruno Carla Chen Clara Dario Davi Edda Elif Emil Enzo Esra "
        "Farah Felix Freya Gita Hana Hugo Ida Ines Ivan Jana Jonas Juna Kaito Karim Lara Lev Lina "
        "Luca Mara Marco Mei Mila Nadia Nils Noor Olga Omar Petra Rafa Ravi Rosa Samir Sofia Tara "
        "Theo Uma Vera Wim Xenia Yara Yuki Zane Zora",
        " ",
        "Abel Acker Alder Baker Bauer Beck Berg Brook Cole Costa Cruz Dahl Diaz Duran Falk Ferro "
        "Fields Frost Gold Grau Haas Hart Holm Holt Horn Ito Jansen Kaya Keller Klein Kovac Lang Lind "
        "Lopez Marsh Mori Moss Novak Okafor Olsen Pace Park Pohl Quist Ramos Reed Reyes Roth Sand "
        "Sato Silva Stone Tanaka Thorn Vogt Wells Winter Wolf Young Zeller",
    ),
    "company": (
        "Acorn Alpine Amber Anchor Apex Arrow Aster Atlas Beacon Birch Blue Bright Castle Cedar Clear "
        "Comet Copper Coral Crest Delta Echo Ember Falcon Fern Forge Granite Harbor Hazel Heron Iris "
        "Juniper Lark Lumen Maple Meridian Nova Oak Onyx Orbit Pine",
        " ",
        "Bank Books Builders Chemicals Clinics Devices Energy Farms Foods Freight Games Glass "
        "Insurance Labs Machines Media Motors Music Optics Paper Pharma Rail Robotics Security "
        "Software Steel Textiles Tools Travel Water",
    ),
    "city": (
        "Ash Bay Bel Black Bridge Clay East Elm Fair Fox Green High Iron King Lake Long Mill New "
        "North Old Red River Rose Salt Silver South Stone Summer West White Wind Wood",
        "",
        "bury field ford gate ham haven hill mouth port ton view wick",
    ),
    "skill": (
        "analysing building buying cleaning designing drawing inspecting measuring modelling planning "
        "pricing repairing selling teaching testing",
        " ",
        "bridges circuits contracts crops databases engines fabrics gardens lenses maps markets "
        "medicines networks pumps recipes roofs ships sounds",
    ),
    "product": (
        "basic classic compact cordless deluxe digital double electric family folding garden giant "
        "hybrid light mini modular noble outdoor portable quiet rapid ready smart solar sport travel "
        "ultra vintage wall winter",
        " ",
        "battery bicycle blanket camera chair clock drill fan grill heater helmet jacket kettle lamp "
        "mixer printer radio scale speaker tent",
    ),
}


def draw(kind: str, count: int, generator: np.random.Generator) -> list[str]:
    """`count` different names of one kind, in random order."""
    first, joint, second = PARTS[kind]
    every = [joint.join(pair) for pair in product(first.split(), second.split())]
    return [every[position] for position in generator.permutation(len(every))[:count]]


# Which triples of the demo world are facts: drawn by popularity and community, and along its two rules.

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]

COMPOSED = {"works_in": ("works_for", "has_office_in")}
AT_HOME = 0.95  # how often head and tail are of one community
ECHOED = 0.9  # how often a relation that echoes another one takes its pair from there
MUTUAL = 0.8  # how often both directions of a symmetric relation are stated
REPEATED = 0.015  # how many facts are stated a second time


def draw_pairs(world: World, generator: np.random.Generator) -> dict[str, Pairs]:
    """Distinct (head, tail) pairs of every relation."""
    drawn: dict[str, Pairs] = {}
    for row in RELATIONS:
        if row.name in COMPOSED:
            first, second = COMPOSED[row.name]
            head, _, tail = join(drawn[first], drawn[second])
            chosen = generator.permutation(_distinct(head, tail, len(world.community)))[: row.facts]
            drawn[row.name] = head[chosen], tail[chosen]
        else:
            drawn[row.name] = _draw(row, drawn.get(row.echoes), world, generator)
    return drawn


def arrange(pairs: dict[str, Pairs], generator: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Head, relation and tail ids of all facts in random order, some triples twice: each (n,)."""
    head = np.concatenate([heads for heads, _ in pairs.values()])
    tail = np.concatenate([tails for _, tails in pairs.values()])
    relation = np.repeat(np.arange(len(pairs)), [len(heads) for heads, _ in pairs.values()])
    again = generator.choice(len(head), size=int(REPEATED * len(head)), replace=False)
    order = generator.permutation(np.concatenate([np.arange(len(head)), again]))
    return head[order], relation[order], tail[order]


def join(first: Pairs, second: Pairs) -> tuple[Ints, Ints, Ints]:
    """All (a, b, c) with (a, b) in the first and (b, c) in the second: each (n,)."""
    order = np.argsort(second[0], kind="stable")
    middle, end = second[0][order], second[1][order]
    start = np.searchsorted(middle, first[1], side="left")
    count = np.searchsorted(middle, first[1], side="right") - start
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first[0], count), np.repeat(first[1], count), end[np.repeat(start, count) + within]


def _draw(row: Relation, echoed: Pairs | None, world: World, generator: np.random.Generator) -> Pairs:
    """Distinct pairs of one relation, popular entities more often, both directions of a symmetric one."""
    wanted = round(row.facts / (1 + MUTUAL)) if row.symmetric else row.facts
    head = tail = np.empty(0, dtype=np.int64)
    if echoed is not None:
        chosen = generator.permutation(len(echoed[0]))[: round(ECHOED * wanted)]
        head, tail = echoed[0][chosen], echoed[1][chosen]
    while len(head) < wanted:
        new_head, new_tail = _candidates(row, world, 2 * wanted, generator)
        head, tail = np.concatenate([head, new_head]), np.concatenate([tail, new_tail])
        # a symmetric pair counts once, whichever way round it was drawn
        low, high = (np.minimum(head, tail), np.maximum(head, tail)) if row.symmetric else (head, tail)
        kept = _distinct(low, high, len(world.community))
        head, tail = head[kept], tail[kept]
    head, tail = head[:wanted], tail[:wanted]
    back = row.facts - wanted
    return np.concatenate([head, tail[:back]]), np.concatenate([tail, head[:back]])


def _candidates(row: Relation, world: World, count: int, generator: np.random.Generator) -> Pairs:
    heads, tails = world.members(row.domain), world.members(row.range)
    head = heads.start + generator.choice(KINDS[row.domain], size=count, p=world.popularity[heads])
    # tails sorted by community: a community is then an interval of the cumulated popularity
    order = np.argsort(world.community[tails], kind="stable")
    total = np.concatenate([[0.0], np.cumsum(world.popularity[tails][order])])
    border = total[np.searchsorted(world.community[tails][order], np.arange(COMMUNITIES + 1))]
    home = world.community[head]
    stays = generator.random(count) < AT_HOME
    low = np.where(stays, border[home], 0.0)
    high = np.where(stays, border[home + 1], total[-1])
    aim = low + generator.random(count) * (high - low)
    positions = np.minimum(np.searchsorted(total, aim, side="right") - 1, len(order) - 1)
    tail = tails.start + order[positions]
    different = head != tail
    return head[different], tail[different]


def _distinct(head: Ints, tail: Ints, n_entities: int) -> Ints:
    """Positions of the first occurrence of every pair, in order."""
    return np.sort(np.unique(head * n_entities + tail, return_index=True)[1])
