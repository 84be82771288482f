"""Models of PyKEEN: one that is trained already, with its scores mapped to confidences, or one trained on confidences.

What it is: `from_pykeen` takes any trained model of PyKEEN; `train_pykeen` and `PykeenModel` are what
`--model pykeen:RotatE` trains and scores with. What it is not: an interval method. PyKEEN's scores are any numbers, the
larger the better; a rising function learned from training facts maps them to confidences and keeps their order. PyKEEN
is the extra `pykeen` and is loaded when it is needed.

>>> model = from_pykeen(pipeline(...), splits.train)                      # doctest: +SKIP
>>> unkgcp.calibrate(model, splits.calibration)                           # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError, missing
from unkgcp.graph.facts import Graph, Vocabulary, in_vocabulary
from unkgcp.graph.known_facts import KnownFacts, hold_out_known
from unkgcp.progress import Progress, Silent
from unkgcp.training.config import PYKEEN, TrainConfig
from unkgcp.training.given_model import AT_ONCE, GivenModel, given
from unkgcp.training.model import Model, seen

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BINS = 1000  # at most so many stretches of scores are averaged for the rising function
MAP = "map"  # the table with slope and offset of the map from scores to confidences
UNUSED = ("regularization", "momentum", "decay", "quantile")  # settings without effect on models of PyKEEN


def from_pykeen(found: Any, training: Graph, factory: Any = None, *, name: str | None = None) -> GivenModel:
    """A model that PyKEEN trained, for `unkgcp.calibrate`.

    found: the result of PyKEEN's `pipeline`, or a model together with the triples factory it was trained with.
    `training` are facts with confidences, none of them calibration facts; scores are mapped to [0, 1] by the rising
    function that fits these confidences best. A run does not keep such a model: give it again to `Predictor.load`.
    """
    module = getattr(found, "model", found)
    factory = factory or getattr(found, "training", None)
    if not hasattr(module, "predict_hrt"):
        raise InputError(f"{type(found).__name__} is no model of PyKEEN, nor what its pipeline returns")
    if getattr(factory, "entity_to_id", None) is None:
        raise InputError(
            "the labels of the model are not known: give the triples factory it was trained with"
        )
    vocabulary = Vocabulary.of(*(_in_order(ids) for ids in (factory.entity_to_id, factory.relation_to_id)))
    own = training.over(vocabulary)
    rows = np.flatnonzero(in_vocabulary(own))
    if 2 * len(rows) < len(training):
        raise InputError(
            f"only {len(rows):,} of {len(training):,} training facts have labels that the PyKEEN model knows: "
            "it was trained on other labels"
        )
    raw = raw_scores(module, own.head[rows], own.relation[rows], own.tail[rows])
    if not np.isfinite(raw).all():
        raise InputError("the PyKEEN model gives training facts scores that are no numbers; train it again")
    rising = Rising.of(raw, training.confidence[rows])

    class Scored:
        def score(self, head: Any, relation: Any, tail: Any) -> NDArray[np.float64]:
            return rising(raw_scores(module, head, relation, tail))

    return given(Scored(), vocabulary, training, name=name or f"PyKEEN's {type(module).__name__}")


def _in_order(ids: Mapping[str, int]) -> list[str]:
    return sorted(ids, key=ids.__getitem__)


def raw_scores(module: Any, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float64]:
    """The scores of a model of PyKEEN, not mapped to confidences: (n,)."""
    import torch

    triples = torch.from_numpy(
        np.stack([np.asarray(one, np.int64) for one in (head, relation, tail)], axis=1)
    )
    out = np.empty(len(triples))
    with torch.inference_mode():
        for start in range(0, len(out), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            out[rows] = module.predict_hrt(triples[rows].to(module.device)).double().cpu().numpy()[:, 0]
    return out


@dataclass(frozen=True)
class Rising:
    """A function that never falls: straight lines between points, flat beyond them."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @classmethod
    def of(cls, raw: NDArray[np.float64], confidence: NDArray[np.float64]) -> Rising:
        """Isotonic regression of the means of up to `BINS` stretches of scores with about equally many facts.

        Equal scores stay in one stretch. Stretches that are pooled become one point at their mean score, and the
        function rises from point to point, so that scores that differ get confidences that differ.
        """
        order = np.argsort(raw, kind="stable")
        wanted = np.linspace(0, len(raw), min(BINS, len(raw)) + 1)[1:-1].astype(np.intp)
        cuts = np.unique(np.searchsorted(raw[order], raw[order][wanted]))
        parts = np.split(order, cuts[cuts > 0])
        # a stretch whose mean is not above that of the one before is pooled with it: [score, confidence, facts]
        pooled: list[list[float]] = []
        for part in parts:
            pooled.append([float(raw[part].mean()), float(confidence[part].mean()), float(len(part))])
            while len(pooled) > 1 and pooled[-2][1] >= pooled[-1][1]:
                *before, weight = pooled.pop()
                last = pooled[-1]
                total = last[2] + weight
                last[:2] = [
                    (old * last[2] + new * weight) / total for old, new in zip(last[:2], before, strict=True)
                ]
                last[2] = total
        x, y, _ = np.array(pooled).T
        return cls(x, y)

    def __call__(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(np.interp(raw, self.x, self.y), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class PykeenModel(Model):
    """A model of PyKEEN trained here on confidences: sigmoid(slope * score + offset), the slope above 0."""

    @cached_property
    def module(self) -> Any:
        """PyKEEN's own module with these tables as its parameters; ValueError if they do not fit."""
        import torch

        sizes = len(self.vocabulary.entities), len(self.vocabulary.relations)
        made = _module(self.config, *sizes, self.seed)
        state = made.state_dict()
        for name, value in _floats(state).items():
            if name not in self.tables or self.tables[name].size != value.numel():
                raise ValueError(f"table {name!r} of {self.config.model} is missing or of another size")
            state[name] = torch.from_numpy(np.array(self.tables[name])).reshape(value.shape)
        made.load_state_dict(state)
        return made.eval()

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        slope, offset = self.tables[MAP].reshape(-1)
        raw = raw_scores(self.module, head, relation, tail)
        return (1.0 / (1.0 + np.exp(-np.clip(slope * raw + offset, -50, 50)))).astype(np.float32)

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Any],
        vocabulary: Vocabulary,
        config: TrainConfig,
        seed: int,
        seen_entities: NDArray[np.bool_],
        seen_relations: NDArray[np.bool_],
    ) -> PykeenModel:
        tables = {name: np.asarray(table) for name, table in tensors.items()}
        if tables.get(MAP, np.empty(0)).size != 2:
            raise ValueError(f"{config.model} has no table {MAP!r}")
        if config.dimension > max(table.size for table in tables.values()):
            raise ValueError(f"no table of {config.model} has {config.dimension:,} dimensions")
        model = cls(tables, vocabulary, config, seed, seen_entities, seen_relations)
        assert model.module is not None  # made now, so that tables that do not fit are refused here
        return model


def _module(config: TrainConfig, entities: int, relations: int, seed: int) -> Any:
    """PyKEEN's module before training."""
    try:
        import torch
        from pykeen.models import model_resolver
        from pykeen.triples import CoreTriplesFactory
        from pykeen.utils import NoRandomSeedNecessary
    except ModuleNotFoundError as error:
        raise missing(error) from None
    name = config.model.removeprefix(PYKEEN)
    try:
        model_resolver.lookup(name)
    except KeyError:
        known = ", ".join(sorted(one.__name__ for one in model_resolver))
        raise InputError(f"PyKEEN has no model {name!r}; it has {known}") from None
    nothing = torch.zeros((1, 3), dtype=torch.long)
    factory = CoreTriplesFactory.create(nothing, num_entities=entities, num_relations=relations)
    # a seed given to PyKEEN would seed every generator of the process
    settings = {"embedding_dim": config.dimension, "random_seed": NoRandomSeedNecessary}
    with torch.random.fork_rng():
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


def train_pykeen(
    facts: Graph,
    config: TrainConfig,
    *,
    seed: int = 0,
    validation: Graph | None = None,
    device: torch.device,
    progress: Progress | None = None,
) -> PykeenModel:
    """Train a model of PyKEEN on confidences: the squared error on facts, and on corrupted ones, whose confidence is 0.

    Early stopping looks at the error on facts held out of training or on `validation`, as for other models. The
    regularizer is that of PyKEEN. The seed determines the result on one machine.
    """
    import torch

    for field in UNUSED:
        if getattr(config, field) != getattr(TrainConfig(), field):
            raise InputError(f"{field} is not for models of PyKEEN; leave it out")
    if len(facts) < 2:
        raise InputError(f"{len(facts)} training facts are too few to train on; give at least two")
    given_facts, stopping = facts, validation
    if validation is None:
        facts, validation = hold_out_known(facts, config.validation_fraction)
    module = _module(config, facts.n_entities, facts.n_relations, seed).to(device)
    chance, said = torch.Generator(device=device).manual_seed(seed), progress or Silent()
    (triples, truth), (asked, expected) = (_tensors(part, device) for part in (facts, validation))
    corruptions = Corruptions(triples, facts.n_entities, facts.n_relations, config)
    slope, offset = (torch.zeros(1, device=device, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.Adam([*module.parameters(), slope, offset], lr=config.learning_rate)

    def confidences(of: Tensor) -> Tensor:
        return torch.sigmoid(slope.exp() * module.score_hrt(of)[:, 0] + offset)

    best, since, kept, history, interrupted = np.inf, 0, {}, [], False
    try:
        for epoch in range(1, config.epochs + 1):
            module.train()
            order = torch.randperm(len(triples), generator=chance, device=device)
            for rows in torch.split(order, config.batch_size):
                optimizer.zero_grad()
                wrong = corruptions.of(triples[rows], chance)
                loss = (confidences(triples[rows]) - truth[rows]).square().mean()
                if len(wrong):
                    loss = loss + config.negative_weight * confidences(wrong).square().mean()
                (loss + module.collect_regularization_term()).backward()
                optimizer.step()
                module.post_parameter_update()
            if epoch % config.validate_every and epoch < config.epochs:
                said.update(epoch, "")
                continue
            module.eval()
            with torch.no_grad():
                error = float((confidences(asked) - expected).square().mean())
            history.append({"epoch": epoch, "validation": error})
            said.update(epoch, f"validation MSE {error:.5f}")
            if error < best:
                best, since = error, epoch
                kept = {name: value.detach().clone() for name, value in _floats(module.state_dict()).items()}
                kept[MAP] = torch.cat([slope.exp(), offset]).detach()
            elif epoch - since >= config.patience:
                break
    except KeyboardInterrupt:
        if not kept:
            raise
        interrupted = True
    if not kept:
        raise InputError(f"training {config.model} never gave a finite error; lower its learning rate")
    tables = {
        name: value.cpu().numpy().reshape(len(value) if value.ndim else 1, -1) for name, value in kept.items()
    }
    made = PykeenModel(tables, given_facts.vocabulary, config, seed, *seen(given_facts), history, interrupted)
    looked_at = None if stopping is None else KnownFacts.of(stopping)
    return replace(made, facts=KnownFacts.of(given_facts), stopping=looked_at)


def _tensors(facts: Graph, device: Any) -> tuple[Tensor, Tensor]:
    import torch

    ids = np.stack([facts.head, facts.relation, facts.tail], axis=1).astype(np.int64)
    return torch.from_numpy(ids).to(device), torch.from_numpy(facts.confidence.astype(np.float32)).to(device)


class Corruptions:
    """Training facts with another head or tail; with `filter_negatives` none of them is a training fact."""

    def __init__(self, triples: Tensor, entities: int, relations: int, config: TrainConfig) -> None:
        import torch

        self.entities, self.relations, self.count = entities, relations, config.negatives
        self.known = torch.unique(self._keys(triples)) if config.filter_negatives else None  # ascending

    def of(self, triples: Tensor, chance: Any) -> Tensor:
        """`negatives` of each kind for each of n triples, fewer where training facts were drawn: (2 negatives n, 3)."""
        import torch

        heads, tails = triples.repeat(self.count, 1), triples.repeat(self.count, 1)
        for part, column in ((heads, 0), (tails, 2)):
            size, device = (len(part),), part.device
            part[:, column] = torch.randint(self.entities, size, generator=chance, device=device)
        drawn = torch.cat([heads, tails])
        if self.known is None or not len(drawn):
            return drawn
        keys = self._keys(drawn)
        place = torch.searchsorted(self.known, keys).clamp_(max=len(self.known) - 1)
        return drawn[self.known[place] != keys]

    def _keys(self, triples: Tensor) -> Tensor:
        return (triples[:, 0] * self.relations + triples[:, 1]) * self.entities + triples[:, 2]
