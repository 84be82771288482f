"""From a trained model and facts it has not seen to a calibrated predictor.

The promise is for asserted facts, or for all triples, also those that are no facts. The interval methods themselves are
in `unkgcp.methods`. Facts that the model was trained on are looked for among the calibration facts, and counted.

>>> calibrate(model, facts, "unkgcp")                              # doctest: +SKIP
>>> calibrate(model, facts, "evidence", population="open")         # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError, TrainedFactsWarning
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained, in_vocabulary
from unkgcp.graph.kinds import count_kinds
from unkgcp.graph.known_facts import count_trained
from unkgcp.graph.negatives import ALL_KINDS, JOINED, KINDS, corrupt
from unkgcp.graph.symmetry import symmetric_as_in
from unkgcp.methods import check_promise, create, predictor_class
from unkgcp.methods.method import IntervalPredictor, status_codes
from unkgcp.methods.partitions import Partitioned
from unkgcp.progress import Progress, Silent
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import NONE as NO_MODEL
from unkgcp.training.config import TrainConfig
from unkgcp.training.model import Model

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel
    from unkgcp.evidence.nonfacts import FactLikeness
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training.given_model import OwnModel

# from the title and the length of a stage of the work to where its progress goes
Report = Callable[[str, float | None], AbstractContextManager[Progress]]


def calibrate(
    model: Model | OwnModel,
    facts: Graph,
    method: str = "unkgcp",
    *,
    vocabulary: Vocabulary | None = None,
    training: Graph | None = None,
    name: str | None = None,
    negatives: Graph | None = None,
    quantiles: Mapping[float, Model] | None = None,
    population: str = "asserted",
    kinds: Sequence[str] = KINDS,
    protocol: str = "strict",
    **options: Any,
) -> Predictor:
    """Calibrate an interval method on facts that the model was not trained on.

    `model` comes from `unkgcp.train`, or is one of your own: an object with `score(head, relation, tail)` over the
    ids of `vocabulary` (that of the facts if left out), or a function of labels; scores lie in [0, 1]. `training` are
    then the facts it learned from, which some methods need, and `name` is what messages call it: see
    `unkgcp.training.given_model`.
    Training facts among them, where the model knows its own, are told in a `TrainedFactsWarning`, and refused if they
    are many; so are facts that early stopping looked at, unless `protocol` is "paper": there it looked at the
    calibration facts, as the paper's experiments did, and the guarantee is not strict.
    `method` is `unkgcp`, `cp`, `fpi`, `qr`, `shortest` or `evidence`; `qr` needs `quantiles` (see
    `unkgcp.training.train_quantiles`). `evidence` learns from the model's training facts first, unless it is given
    `evidence=`, what `unkgcp.evidence.learn` made of them.
    Further options are those of the method; `per` names the groups in each of which the promise is to hold
    (`unkgcp.methods.partitions`). `negatives` adds the threshold with which the paper's tables of
    negatives are made. The guarantee of each method stands in `unkgcp.methods`.
    With `population="open"` queries may be no facts at all, and the promise holds for these too: see
    `unkgcp.methods.open_world`. `kinds` are the kinds of non-facts it is to hold for.
    """
    kind = predictor_class(method)
    check_promise(kind, options.get("per"), population, kinds)
    if not isinstance(model, Model):
        from unkgcp.training.given_model import external_model

        model = external_model(model, vocabulary or facts.vocabulary, training, name=name)
    elif any(argument is not None for argument in (vocabulary, training, name)):
        raise InputError(
            "vocabulary, training and name are for a model of your own; a trained one has its own"
        )
    facts = facts.over(model.vocabulary)
    model = model.tried(facts)
    if "members" not in kind.needs and model.facts is not None:
        looked_at = None if protocol == "paper" else model.stopping
        stopping = None if looked_at is None else looked_at.graph(model.vocabulary)
        check_apart(model.facts.graph(model.vocabulary), stopping, facts)
    return calibrated(
        kind,
        model,
        facts,
        negatives=negatives,
        quantiles=quantiles,
        population=population,
        kinds=kinds,
        **options,
    )


def calibrated(
    kind: type[IntervalPredictor],
    model: Model,
    facts: Graph,
    *,
    negatives: Graph | None,
    quantiles: Mapping[float, Model] | None,
    population: str,
    kinds: Sequence[str],
    **options: Any,
) -> Predictor:
    """`calibrate` after its checks; `kind` is the method's class."""
    facts = facts.over(model.vocabulary)
    if not kind.takes_groups:
        options.pop("per", None)  # it can only be `none` here, which every method takes
    if "quantiles" in kind.needs:
        if not quantiles:
            raise InputError(f"method {kind.name!r} needs quantile models; train them with train_quantiles")
        options["quantiles"] = quantiles
    if "evidence" in kind.needs and options.get("evidence") is None:
        options["evidence"] = learn_evidence(model, facts)
    if "members" in kind.needs and "members" not in options:
        raise InputError(f"method {kind.name!r} needs models of its own; fit them with --method {kind.name}")
    method = create(kind.name, **options).calibrate(model, facts)
    negative = None
    if negatives is not None:
        negative = create(kind.name, **options).calibrate(model, negatives.over(model.vocabulary))
    if population == "open":
        method = for_open_world(method, model, facts, kinds)
    return Predictor(model, method, negative, quantiles or {})


def calibration_facts(
    predictor: Predictor, run: str, data: str | None, options: Mapping[str, Any]
) -> tuple[Graph, Dataset | None]:
    """Facts to calibrate a run on anew: all of the file `data`, those of the data set `data`, or the run's own.

    The data set that they belong to comes with them, unless they are one file. `options` are those of `load_dataset`.
    """
    from unkgcp.graph.datasets import load_dataset, names_one_file
    from unkgcp.run.provenance import SPLITTING, reload

    if data is not None and names_one_file(data):
        from unkgcp.graph.datasets import read

        reading = {name: value for name, value in options.items() if name not in (*SPLITTING, "data_dir")}
        facts = read(data, symmetric="none", **reading)
        return symmetric_as_in(facts, predictor.model.vocabulary), None
    if data is not None:
        dataset = load_dataset(data, seed=predictor.model.seed, **options)
    else:
        dataset = reload(predictor.provenance.get("data", {}), run, options.get("data_dir"))
        if predictor.provenance.get("updates"):  # they have held out further facts
            return predictor.method.held_out(), dataset
    return dataset.splits.calibration, dataset


def silent(title: str, total: float | None) -> AbstractContextManager[Progress]:
    """Report nothing."""
    return nullcontext(Silent())


def learn_evidence(
    model: Model,
    calibration: Graph,
    config: TrainConfig | None = None,
    device: str = "auto",
    report: Report = silent,
) -> EvidenceModel:
    """The evidence of the model's training facts, with the scores of backbones cross-fitted as `config` says.

    There are no backbones without it, or if its model is `none`. Of the calibration facts only the number of each kind
    is used.
    """
    if model.facts is None:
        raise InputError(
            "the model does not know its training facts, from which the evidence method learns; give those of a model "
            "of your own with training=, train another again"
        )
    train = model.facts.graph(model.vocabulary)
    options: dict[str, Any] = {
        "seed": model.seed,
        "kinds": count_kinds(train, calibration.over(model.vocabulary)),
    }
    if config is None or config.model == NO_MODEL:
        from unkgcp.evidence.evidence_model import WORK, learn

        with report("learning from the evidence", WORK) as progress:
            return learn(train, progress=progress, **options)
    from unkgcp.evidence.crossfit import FOLDS
    from unkgcp.evidence.evidence_model import learn_with_backbone

    with report("cross-fitting, learning from the evidence", 2 * FOLDS) as progress:
        return learn_with_backbone(train, config, device=device, progress=progress, **options)


def for_open_world(
    method: IntervalPredictor,
    model: Model,
    facts: Graph,
    kinds: Sequence[str],
    likeness: FactLikeness | None = None,
) -> IntervalPredictor:
    """The method for queries that may be no facts; `facts` are its calibration facts, in the model's ids.

    Non-facts for calibration are corruptions of these facts, of the kinds asked for and filtered with the training
    facts alone. Kinds that this graph has none of (`relation` where there is but one) are left out. With the evidence
    method, what tells facts from others is learned from the training facts, unless it comes as `likeness`.
    """
    from unkgcp.methods.open_world import open_world

    if model.facts is None:
        raise InputError(
            "the run does not hold its training facts, which non-facts are filtered with; fit it again"
        )
    train = model.facts.graph(model.vocabulary)
    usable = facts[in_vocabulary(facts)]
    drawn = {kind: corrupt(usable, train, seed=_seed(model.seed, kind), kind=kind) for kind in kinds}
    negatives = {
        kind: triples for kind, triples in drawn.items() if (status_codes(model, triples) == 0).any()
    }
    if drawn and not negatives:
        raise InputError(
            f"none of the {', '.join(drawn)} non-facts for calibration has its entities and its relation in the "
            "training facts: calibrate with more facts"
        )
    if likeness is None:
        likeness = _fact_likeness(method, model.seed, list(negatives))
    return open_world(method, negatives, likeness)


def _fact_likeness(method: IntervalPredictor, seed: int, kinds: Sequence[str]) -> FactLikeness | None:
    """Trees that tell facts from others, learned for the evidence method; None for methods without evidence."""
    model = method.evidence
    if model is None:
        return None
    from unkgcp.evidence.crossfit import fold_of_rows
    from unkgcp.evidence.nonfacts import learn_likeness

    fold = None if model.backbone is None else fold_of_rows(len(model.evidence.train), seed)
    # Near non-facts are the hardest to tell from facts. Trees do that better if they have also learned from still
    # nearer ones, whose head and tail are joined by another training fact, so these are added to the lesson.
    lesson = [*kinds, JOINED] if "near" in kinds and JOINED not in kinds else kinds
    return learn_likeness(model, seed=seed, fold=fold, kinds=lesson)


def _seed(seed: int, kind: str) -> int:
    """The seed of the corruptions of one kind."""
    return int(np.random.SeedSequence((seed, 1 + ALL_KINDS.index(kind))).generate_state(1)[0])


def method_options(method: str, data: str, protocol: str, per: str | None = None) -> dict[str, Any]:
    """The settings of a method: those of the paper's experiments on a data set, and those that were asked for."""
    options: dict[str, Any] = {}
    kind = predictor_class(method)
    if kind.takes_groups and per is not None:
        options["per"] = per
    if issubclass(kind, Partitioned) and protocol == "paper":
        options["by_kind"] = False
    # the paper's numbers on CN15k need the entropy at 0.5 M + 0.5, which its text does not say
    if (method, data, protocol) == ("unkgcp", "cn15k", "paper"):
        options["mapped_entropy"] = True
    return options


# Calibration facts that the model was trained on.
#
# A model's errors on its training facts are smaller than on others, so calibrating on these makes intervals too narrow.
# Facts that early stopping looked at chose the model, and count as training facts. Some calibration facts may always be
# among them: graphs repeat facts, and of two equal ones the first may train and the second calibrate. How many that
# explains is counted in `unkgcp.graph.known_facts`.

MAX_TRAINED = 0.1
"""If more than this share of the calibration facts, beyond those expected, are training facts, they are refused."""


@contextmanager
def only_repeats(explained: bool) -> Iterator[None]:
    """No `TrainedFactsWarning` in here if repeats explain the facts that training and calibration have in common.

    They explain them where this package cut one graph at random. Where a run is calibrated again on the facts it was
    fitted with, `fit` has given the warning already.
    """
    with warnings.catch_warnings():
        if explained:
            warnings.simplefilter("ignore", TrainedFactsWarning)
        yield


def without_held(predictor: Predictor, facts: Graph, others: Sequence[Graph]) -> NDArray[np.bool_]:
    """Which facts of a data set with these other parts did not come into the run by an update: (n,).

    An update may bring facts that were test facts of the run's data. Facts that were trained on or calibrated with can
    test nothing any more. Repeats within the data set itself stay, as they do for a run that was never updated.
    """
    if not predictor.provenance.get("updates"):
        return np.ones(len(facts), bool)
    method, training, vocabulary = predictor.method, predictor.model.facts, predictor.model.vocabulary
    kept = [method.ranked, method.waiting, None if training is None else training.graph(vocabulary)]
    held = np.sort(np.concatenate([part.keys for part in kept if part is not None]))
    translated = (graph.over(vocabulary) for graph in (facts, *others))
    inside, *own_keys = (np.where(in_vocabulary(graph), graph.keys, -1) for graph in translated)
    others_keys = np.sort(np.concatenate([np.zeros(0, np.int64), *own_keys]))
    return ~contained(inside, held[~contained(held, others_keys)])


def check_apart(training: Graph, stopping: Graph | None, facts: Graph) -> None:
    """Look for training facts, and facts that early stopping looks at, among facts to calibrate on.

    One more than explained is a `TrainedFactsWarning`, more than a tenth of all an InputError.
    """
    counted = training if stopping is None else concatenate([training, stopping])
    trained = count_trained(counted, facts)
    if not trained.excess:
        return
    also = "" if stopping is None else " or was chosen by them in early stopping"
    seen = f"the model was trained on {trained.shared:,} of these {len(facts):,} facts{also}"
    if trained.shared - trained.expected > MAX_TRAINED * len(facts):
        raise InputError(
            f"{seen}; its errors on them say nothing about others: calibrate on facts it has not seen"
        )
    sentence = (
        f"{seen}; repeats in the graph explain no more than {trained.explained:,}; its errors on them are too small, "
        "and so are the intervals: leave these facts out"
    )
    warnings.warn(sentence, TrainedFactsWarning, stacklevel=3)
