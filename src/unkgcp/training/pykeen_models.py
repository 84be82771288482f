"""Models of PyKEEN: one that is trained already, with its scores mapped to confidences, or one trained on confidences.

What it is: `from_pykeen` takes any trained model of PyKEEN; `PykeenEngine` trains and `PykeenModel` scores what
`--model pykeen:RotatE` names. What it is not: an interval method. PyKEEN's scores are any numbers, the larger the
better; a monotone map (`score_map`) learned from training facts makes confidences of them. PyKEEN is the extra `pykeen`
and is loaded when it is needed.

>>> model = from_pykeen(pipeline(...), splits.train)                      # doctest: +SKIP
>>> unkgcp.calibrate(model, splits.calibration)                           # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary, in_vocabulary
from unkgcp.lazy import needed
from unkgcp.training import randomness
from unkgcp.training.batches import Engine, TrainingData
from unkgcp.training.config import PYKEEN, Member, TrainConfig
from unkgcp.training.given_model import AT_ONCE, GivenModel, external_model
from unkgcp.training.losses import Corruptions
from unkgcp.training.model import Model
from unkgcp.training.score_map import apply_map, learn_map

UNUSED = ("regularization", "momentum", "quantile")  # settings without effect on models of PyKEEN


def from_pykeen(result: Any, training: Graph, factory: Any = None, *, name: str | None = None) -> GivenModel:
    """A model that PyKEEN trained, for `unkgcp.calibrate`.

    result: the result of PyKEEN's `pipeline`, or a model together with the triples factory it was trained with.
    `training` are facts with confidences, none of them calibration facts; scores are mapped to [0, 1] by the
    monotone map that fits these confidences best. A run does not keep such a model: give it again to `Predictor.load`.
    """
    module = getattr(result, "model", result)
    factory = factory or getattr(result, "training", None)
    if not hasattr(module, "predict_hrt"):
        raise InputError(f"{type(result).__name__} is no model of PyKEEN, nor what its pipeline returns")
    if getattr(factory, "entity_to_id", None) is None:
        raise InputError(
            "the labels of the model are not known: give the triples factory it was trained with"
        )
    named = factory.entity_to_id, factory.relation_to_id
    vocabulary = Vocabulary.of(*(sorted(ids, key=ids.__getitem__) for ids in named))
    facts = training.over(vocabulary)
    rows = np.flatnonzero(in_vocabulary(facts))
    if 2 * len(rows) < len(training):
        raise InputError(
            f"only {len(rows):,} of {len(training):,} training facts have labels that the PyKEEN model knows: "
            "it was trained on other labels"
        )
    raw = raw_scores(module, facts.head[rows], facts.relation[rows], facts.tail[rows])
    if not np.isfinite(raw).all():
        raise InputError("the PyKEEN model gives training facts scores that are no numbers; train it again")
    points = learn_map(raw, training.confidence[rows])

    class Scored:
        def score(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float32]:
            return apply_map(points, raw_scores(module, head, relation, tail))

    return external_model(Scored(), vocabulary, training, name=name or f"PyKEEN's {type(module).__name__}")


def raw_scores(module: Any, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float64]:
    """The scores of a model of PyKEEN, not mapped to confidences: (n,)."""
    triples = torch.from_numpy(
        np.stack([np.asarray(one, np.int64) for one in (head, relation, tail)], axis=1)
    )
    out = np.empty(len(triples))
    with torch.inference_mode():
        for start in range(0, len(out), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            out[rows] = module.predict_hrt(triples[rows].to(module.device)).double().cpu().numpy()[:, 0]
    return out


@dataclass(frozen=True, eq=False)
class PykeenModel(Model):
    """A model of PyKEEN trained here on confidences; a monotone map makes confidences of its scores."""

    @cached_property
    def module(self) -> Any:
        """PyKEEN's own module with these tables as its parameters."""
        sizes = len(self.vocabulary.entities), len(self.vocabulary.relations)
        made = _module(self.config, *sizes, self.seed)
        state = made.state_dict()
        for name, value in _floats(state).items():
            state[name] = torch.from_numpy(np.array(self.tables[name])).reshape(value.shape)
        made.load_state_dict(state)
        return made.eval()

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        return self.mapped(raw_scores(self.module, head, relation, tail).astype(np.float32))

    @staticmethod
    def table_shapes(config: TrainConfig, entities: int, relations: int) -> dict[str, tuple[int, ...]]:
        """Found on torch's meta device, where a module takes no memory: a stranger's run could ask for any size."""
        state = _floats(_module(config, entities, relations, 0, "meta").state_dict())
        return {name: tuple(_table(value).shape) for name, value in state.items()}


def _module(config: TrainConfig, entities: int, relations: int, seed: int, device: str = "cpu") -> Any:
    """PyKEEN's module before training; on the device `meta` it has shapes but no numbers."""
    model_resolver = needed("pykeen.models").model_resolver
    from pykeen.triples import CoreTriplesFactory
    from pykeen.utils import NoRandomSeedNecessary

    name = config.model.removeprefix(PYKEEN)
    try:
        model_resolver.lookup(name)
    except KeyError:
        names = ", ".join(sorted(one.__name__ for one in model_resolver))
        raise InputError(f"PyKEEN has no model {name!r}; it has {names}") from None
    nothing = torch.zeros((1, 3), dtype=torch.long)
    factory = CoreTriplesFactory.create(nothing, num_entities=entities, num_relations=relations)
    # a seed given to PyKEEN would seed every generator of the process
    settings = {"embedding_dim": config.dimension, "random_seed": NoRandomSeedNecessary}
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        try:
            return model_resolver.make(name, settings, triples_factory=factory)
        except (TypeError, ValueError, AttributeError) as error:
            why = " ".join(str(error).split())[:150]
            raise InputError(
                f"PyKEEN's {name} cannot be made with a dimension of {config.dimension} ({why})"
            ) from None


def _floats(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters and buffers of real numbers; others, such as counters of batches, do not change scores."""
    return {name: value for name, value in state.items() if value.is_floating_point()}


def _table(value: Tensor) -> Tensor:
    """As a table (rows, width)."""
    return value.reshape(len(value) if value.ndim else 1, -1)


class PykeenEngine(Engine):
    """Trains a model of PyKEEN on confidences, by the squared error on facts, and on corrupted ones, which have none.

    During training sigmoid(slope s + offset) of a score s is the confidence. The regularizer is that of PyKEEN. Numbers
    that are no parameters and no floats, such as counters of batches, are not among the tables.
    """

    def __init__(self, data: TrainingData, config: TrainConfig, member: Member) -> None:
        for field in UNUSED:
            if getattr(config, field) != getattr(TrainConfig(), field):
                raise InputError(f"{field} is not for models of PyKEEN; leave it out")
        device = data.fact_keys.device
        self.data, self.config, self.seed = data, config, member.seed
        self.module = _module(config, data.n_entities, data.n_relations, member.seed).to(device)
        self.scale = torch.zeros(2, device=device, requires_grad=True)  # logarithm of the slope, offset
        self.adam = torch.optim.Adam([*self.module.parameters(), self.scale], lr=config.learning_rate)
        self.corruptions = Corruptions(data, [member], config.drawn_negatives, config.filter_negatives)
        self.first_bad = torch.full((), -1, dtype=torch.int64)
        self.tables = self.state()

    def run_epoch(self, epoch: int) -> Tensor:
        facts, n, losses = self.data.facts, len(self.data.facts), []
        order = randomness.permutations([self.seed], epoch, n, facts.head.device)[0]
        self.module.train()
        for position in torch.split(torch.arange(n, device=order.device), self.config.batch_size):
            rows = order[position]
            ids, truth = (facts.head[rows], facts.relation[rows], facts.tail[rows]), facts.target[rows]
            self.adam.zero_grad()
            loss = (self._confidences(torch.stack(ids, 1)) - truth).square().mean()
            wrong = self._corrupted(ids, epoch * n + position)
            if len(wrong):
                loss = loss + self.config.negative_weight * self._confidences(wrong).square().mean()
            torch.autograd.backward(loss + self.module.collect_regularization_term())
            self.adam.step()
            self.module.post_parameter_update()
            losses.append(loss.detach())
        self.module.eval()
        self.tables, loss = self.state(), torch.stack(losses)
        if not torch.isfinite(loss).all() and self.first_bad < 0:
            self.first_bad.fill_(epoch * len(loss) + int((~torch.isfinite(loss)).nonzero()[0]))
        return loss.mean()[None]

    def scores(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self._confidences(torch.stack([head, relation, tail], 1))[None]

    def state(self) -> dict[str, Tensor]:
        return {name: _table(value)[None] for name, value in _floats(self.module.state_dict()).items()}

    def _confidences(self, triples: Tensor) -> Tensor:
        slope, offset = self.scale[0].exp(), self.scale[1]
        return torch.sigmoid(slope * self.module.score_hrt(triples)[:, 0] + offset)

    def _corrupted(self, ids: tuple[Tensor, Tensor, Tensor], position: Tensor) -> Tensor:
        """The usable corruptions of facts (b,), at most 2 negatives for each: (n, 3)."""
        head, relation, tail = (column[None] for column in ids)
        drawn, usable = (each[0] for each in self.corruptions(head, relation, tail, position))
        wrong = torch.stack(ids, 1)[:, None].repeat(1, drawn.shape[1], 1)
        count = self.corruptions.count
        wrong[:, :count, 0], wrong[:, count:, 2] = drawn[:, :count], drawn[:, count:]
        return wrong[usable]
