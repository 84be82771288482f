"""A trained model with a calibrated interval method: what users ask, save and load.

What it is: `Predictor` and `calibrate`. What it is not: a trainer, or an interval method; it joins one of
each with the labels of the vocabulary.

>>> predictor = calibrate(model, splits.calibration, method="unkgcp")                  # doctest: +SKIP
>>> predictor.interval([("h", "r", "t")], confidence=0.9).upper                        # doctest: +SKIP
>>> predictor.save("run"); Predictor.load("run")                                       # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.known import KnownFacts, restored
from unkgcp.graph.negatives import KINDS
from unkgcp.graph.queries import Queries, as_queries, labels_of, to_triples
from unkgcp.methods import IntervalPredictor, Intervals, Levels, create, predictor_class
from unkgcp.run.answers import answer
from unkgcp.run.folder import AT_ONCE, MODEL, RunParts, read_run, verify, write_run
from unkgcp.run.population import check_population, opened, parts_of, reopened
from unkgcp.run.stored import read_weights
from unkgcp.run.untrained import check_untrained

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel
    from unkgcp.training import Model


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A calibrated predictor.

    `negative` is the same method calibrated on corrupted facts. It serves only to repeat the paper's
    tables, which presume that a query is known to be no fact; predictions never use it. `quantiles` are the
    models that quantile regression needs; they stay with the predictor whatever its method is.
    """

    model: Model
    method: IntervalPredictor
    negative: IntervalPredictor | None = None
    quantiles: Mapping[float, Model] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = field(default=None, repr=False)
    """Where it was loaded from."""

    def interval(self, queries: Queries, confidence: Levels = 0.9) -> Intervals:
        """Score and interval of each query, in order.

        Queries are label triples, a table (Arrow, pandas, polars) with columns head, relation and tail, a graph, or
        ids. An unknown entity or relation gives the whole range [0, 1], no score, and says so in `status`.
        """
        queries = as_queries(queries)
        return replace(answer(self, queries, confidence), labels=labels_of(queries))

    def complete(
        self,
        head: str | None = None,
        relation: str = "",
        tail: str | None = None,
        *,
        k: int = 10,
        confidence: Levels = 0.9,
        rank_by: str = "score",
        exclude_known: bool = False,
    ) -> Intervals:
        """The best k entities for (head, relation, ?) or (?, relation, tail), each with its interval.

        See `unkgcp.run.completion.complete`.
        """
        from unkgcp.run.completion import complete

        return complete(
            self,
            relation=relation,
            head=head,
            tail=tail,
            k=k,
            confidence=confidence,
            rank_by=rank_by,
            exclude_known=exclude_known,
        )

    def plot(self, queries: Queries, confidence: Levels = (0.8, 0.9, 0.95), *, ax: Any = None) -> Any:
        """Draw the interval of each query at one level or several, nested, with the score as a dot.

        Returns matplotlib's axes; `ax` draws into those of a figure of your own.
        """
        from unkgcp.methods.intervals import draw

        return draw(self.interval(queries, confidence), ax)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the run folder, whole; an existing run is replaced, anything else is refused."""
        write_run(folder, self._parts())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Predictor:
        """Read a run folder, safe whoever wrote it; a damaged or foreign one is an `InputError`."""
        parts = read_run(folder)
        if parts.config.get("method") == "cv+" and "seed" in (parts.config.get("options") or ()):
            raise InputError(
                f"{folder} is a cv+ run of an older version, which may have ranked facts with models that had seen "
                "them; fit the run again"
            )
        try:
            return replace(_assemble(parts), folder=Path(folder))
        except (ImportError, SyntaxError):
            raise
        except Exception as error:  # whatever a stranger's settings make of the code that reads them
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise InputError(f"{folder} is damaged: its files do not fit together ({why})") from error

    def verify(self) -> None:
        """Read every byte of the run this was loaded from; an InputError names the file that is damaged.

        `load` does so for files up to 64 MiB; larger weights are mapped and checked here only.
        """
        if self.folder is not None:
            verify(self.folder)

    def in_memory(self) -> Predictor:
        """The same with weights read into memory, which is quicker to look up at random: for long work."""
        if self.folder is None:
            return self
        tables = _under("model", read_weights(self.folder / MODEL, mapped=False))
        model = replace(self.model, tables={name: tables[name] for name in self.model.tables})
        method = copy(self.method)
        method.model = model
        return replace(self, model=model, method=method)

    @property
    def unverified(self) -> bool:
        """Whether it was loaded from a run with weights too large to be hashed at once; see `verify`."""
        return self.folder is not None and (self.folder / MODEL).stat().st_size > AT_ONCE

    @property
    def guarantee(self) -> str:
        """What this run promises: what its method does, less what the way it was fitted takes away."""
        said, protocol = self.method.guarantee, self.provenance.get("protocol")
        if self.method.options().get("per"):
            said += ", within each relation or group of small ones"
        if protocol == "paper" and not said.startswith("none"):
            said = (
                "not strict, because the calibration facts also chose the model (the paper's protocol); "
                f"with a model chosen without them: {said}"
            )
        return said

    @property
    def facts(self) -> KnownFacts | None:
        """The training facts, if the model knows them."""
        return self.model.facts

    def _parts(self) -> RunParts:
        tensors = _prefixed("model", self.model.tensors())
        for tau, model in self.quantiles.items():
            tensors |= _prefixed(f"quantile/{tau!r}", model.tensors())
        for place, member in enumerate(getattr(self.method, "members", ())):
            tensors |= _prefixed(f"member/{place}", member.tensors())
        crossfit = getattr(self.method, "backbone", None)
        if crossfit is not None:
            tensors |= _prefixed("crossfit", crossfit.tensors())
        length = getattr(self.method, "length", None)
        if length is not None:
            tensors |= _prefixed("length", length.tensors())
        calibration = _prefixed("facts", self.method.arrays())
        calibration |= _prefixed("nonfacts", parts_of(self.method))
        if self.model.stopping is not None:
            calibration |= _prefixed("stopping", self.model.stopping.arrays())
        if self.negative is not None:
            calibration |= _prefixed("negatives", self.negative.arrays())
        config = {
            "method": self.method.name,
            "options": self.method.options(),
            "seed": self.model.seed,
            "training": self.model.config.to_dict(),
        }
        made = {
            "unkgcp": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": self.model.seed,
        }
        return RunParts(
            config,
            tensors,
            self.model.vocabulary,
            self.model.seen_entities,
            self.model.seen_relations,
            calibration,
            self.metrics,
            {**made, **self.provenance, **made},
            self.model.facts,
        )


def calibrate(
    model: Model,
    facts: Graph,
    method: str = "unkgcp",
    *,
    negatives: Graph | None = None,
    quantiles: Mapping[float, Model] | None = None,
    population: str = "asserted",
    kinds: Sequence[str] = KINDS,
    share: float | None = None,
    protocol: str = "strict",
    **options: Any,
) -> Predictor:
    """Calibrate an interval method on facts that the model was not trained on.

    Training facts among them, where the model knows its own, are told in a `TrainedFactsWarning`, and refused if they
    are many; so are facts that early stopping looked at, unless `protocol` is "paper": there it looked at the
    calibration facts, as the paper's experiments did, and the guarantee is not strict.
    `method` is `unkgcp`, `cp`, `fpi`, `qr`, `shortest` or `evidence`; `qr` needs `quantiles` (see
    `unkgcp.training.train_quantiles`). `evidence` learns from the model's training facts first, unless it is given
    `evidence=`, what `unkgcp.evidence.learn` made of them.
    Further options are those of the method. `negatives` adds the threshold with which the paper's tables of
    negatives are made. The guarantee of each method stands in `unkgcp.methods`.
    With `population="open"` queries may be no facts at all, and the promise holds for these too: see
    `unkgcp.run.population`. `kinds` are the kinds of non-facts it is to hold for, `share` that of facts among the
    queries if it is known.
    """
    check_population(population, kinds, share, method, options.get("per"))
    if predictor_class(method).needs_quantiles:
        if not quantiles:
            raise InputError(f"method {method!r} needs quantile models; train them with train_quantiles")
        options["quantiles"] = quantiles
    if predictor_class(method).needs_evidence and options.get("evidence") is None:
        options["evidence"] = _learn_evidence(model)
    if predictor_class(method).needs_members and "members" not in options:
        raise InputError(f"method {method!r} needs models of its own; fit them with --calibrate {method}")
    facts = _own(facts, model)
    if not predictor_class(method).needs_members:
        check_untrained(model, facts, protocol)
    predictor = Predictor(
        model,
        create(method, **options).calibrate(model, facts),
        None if negatives is None else create(method, **options).calibrate(model, _own(negatives, model)),
        quantiles or {},
    )
    return opened(predictor, facts, kinds=kinds, share=share) if population == "open" else predictor


def _learn_evidence(model: Model) -> EvidenceModel:
    from unkgcp.evidence import learn

    if model.facts is None:
        raise InputError(
            "the model does not know its training facts, from which the evidence method learns; train it again"
        )
    return learn(model.facts.graph(model.vocabulary), seed=model.seed)


def _own(facts: Graph, model: Model) -> Graph:
    """The facts in the model's ids; an unknown label becomes -1, which calibration leaves out."""
    if facts.vocabulary == model.vocabulary:
        return facts
    return Graph(*to_triples(facts, model.vocabulary), facts.confidence, model.vocabulary, facts.ends)


def _assemble(parts: RunParts) -> Predictor:
    from unkgcp.training import Model, TrainConfig

    config = TrainConfig.from_dict(parts.config["training"])

    def model(prefix: str, quantile: float | None = None) -> Model:
        return Model.from_tensors(
            _under(prefix, parts.tensors),
            parts.vocabulary,
            replace(config, quantile=quantile),
            int(parts.config["seed"]),
            parts.seen_entities,
            parts.seen_relations,
        )

    taus = dict.fromkeys(name.split("/")[1] for name in parts.tensors if name.startswith("quantile/"))
    quantiles = {float(tau): model(f"quantile/{tau}", float(tau)) for tau in taus}
    options = dict(parts.config["options"])
    if predictor_class(parts.config["method"]).needs_quantiles:
        options["quantiles"] = quantiles
    if predictor_class(parts.config["method"]).needs_members:
        places = {int(name.split("/")[1]) for name in parts.tensors if name.startswith("member/")}
        options["members"] = [model(f"member/{place}") for place in sorted(places)]
    if predictor_class(parts.config["method"]).needs_length:
        options["length"] = model("length")
    point = replace(model("model"), facts=parts.facts, stopping=_stopping(parts))
    crossfit = _under("crossfit", parts.tensors)
    if crossfit:
        from unkgcp.evidence.crossfit import CrossFit

        options["backbone"] = CrossFit.from_tensors(crossfit, point)

    def method(prefix: str) -> IntervalPredictor:
        return create(parts.config["method"], **options).restore(point, _under(prefix, parts.calibration))

    negative = method("negatives") if _under("negatives", parts.calibration) else None
    asked = method("facts")
    if nonfacts := _under("nonfacts", parts.calibration):
        asked = reopened(asked, nonfacts)
    return Predictor(point, asked, negative, quantiles, parts.provenance, parts.metrics)


def _stopping(parts: RunParts) -> KnownFacts | None:
    """The facts that early stopping looked at, where these were no training facts."""
    arrays = _under("stopping", parts.calibration)
    if not arrays:
        return None
    columns = restored(arrays, len(parts.vocabulary.entities), len(parts.vocabulary.relations))
    return KnownFacts(lambda: columns)


def _prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}/"
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
