"""Names for the inhabitants of the demo graph, put together from short lists; every name occurs once."""

from __future__ import annotations

from itertools import product

import numpy as np

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
