"""A data set described as text for a terminal: counts, a bar chart of the confidences, what to beware of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unkgcp.graph.describing import Description

SHOWN = 6  # atoms; --json has all
EIGHTHS = " ▏▎▍▌▋▊▉"


def text(description: Description, width: int = 80, plain: bool = False) -> str:
    """All of it; `plain` draws the bars with ASCII characters."""
    return "\n".join(
        [
            description.data,
            *_counts(description),
            "",
            *chart(description.confidence.histogram, width, plain),
            *_atoms(description),
            *_cautions(description),
        ]
    )


def chart(counts: Sequence[int], width: int = 80, plain: bool = False) -> list[str]:
    """One bar a bin of [0, 1], the longest as wide as there is room."""
    numbers = [f"{count:,}" for count in counts]
    room = max(width - 17 - max(map(len, numbers)), 10)
    step = 1 / len(counts)
    lines = []
    for index, count in enumerate(counts):
        closing = "]" if index == len(counts) - 1 else ")"
        label = f"[{index * step:.1f}, {(index + 1) * step:.1f}{closing}"
        bar = _bar(count / max(*counts, 1) * room, plain)
        lines.append(f"  {label}  {numbers[index]:>{max(map(len, numbers))}}  {bar}".rstrip())
    return lines


def _bar(length: float, plain: bool) -> str:
    if plain:
        return "#" * max(round(length), 1 if length else 0)
    # a bin that is not empty is never invisible
    eighths = max(round(length * 8), 1 if length else 0)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _counts(d: Description) -> Iterator[str]:
    held = f", validation {d.validation:,}" if d.validation else ""
    yield _line("facts", d.facts, f"train {d.train:,}{held}, calibration {d.calibration:,}, test {d.test:,}")
    yield _line("entities", d.entities, _unseen(d.entities_unseen_in_training))
    yield _line("relations", d.relations, _unseen(d.relations_unseen_in_training))
    if d.negatives:
        yield _line("negatives", d.negatives, "to test with, confidence 0")
    if d.softlogic:
        yield _line("soft logic", d.softlogic, "inferred facts to train with")
    c = d.confidence
    yield (
        f"  confidence  {c.minimum:.4g} to {c.maximum:.4g}, mean {c.mean:.4f}, "
        f"standard deviation {c.standard_deviation:.4f}"
    )


def _line(name: str, count: int, note: str) -> str:
    return f"  {name:<10}  {count:>11,}  {note}".rstrip()


def _unseen(count: int) -> str:
    return f"{count:,} without a training fact" if count else ""


def _atoms(d: Description) -> Iterator[str]:
    atoms = d.confidence.atoms
    if atoms:
        yield ""
        yield "  values that many facts share"
        yield from (f"  {atom.value:>11.6g}  {100 * atom.share:4.1f} %" for atom in atoms[:SHOWN])
    if len(atoms) > SHOWN:
        yield f"  and {len(atoms) - SHOWN} more with 1 % or more each"


def _cautions(d: Description) -> Iterator[str]:
    """Only what is there: a clean data set has none."""
    sentences = (
        (d.repeated_triples, "triples are listed more than once"),
        (d.repeated_triples_with_other_confidence, "of them with more than one confidence"),
        (d.self_loops, "facts are self-loops (head = tail)"),
        (d.calibration_rows_in_train, "calibration rows repeat a triple of the training part"),
        (d.test_rows_in_train, "test rows repeat a triple of the training part"),
        (d.test_rows_in_calibration, "test rows repeat a triple of the calibration part"),
        (d.test_rows_in_unseen_relations, "test rows have a relation without a training fact"),
        (d.negatives_that_are_facts, "negatives are facts of some part"),
        (
            d.softlogic_rows_held,
            "soft-logic rows name a calibration or test triple; --protocol paper leaves them out",
        ),
    )
    present = [f"  {count:>11,}  {sentence}" for count, sentence in sentences if count]
    if present:
        yield ""
        yield "  worth knowing"
        yield from present
