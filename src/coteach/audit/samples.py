"""Samples with the labels they were given, whatever they were read from, and what could not be used of them.

M samples.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

FEWEST = 10  # samples to judge anything by
FEW = 5  # samples of a class, below which its judgements are worth little
CALLED = {"images": "images", "table": "rows", "arrays": "samples"}  # by kind
PLAIN_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*", re.ASCII)
SPLITS = {"train", "val", "valid", "validation", "test", "dev"}


@dataclass(frozen=True)
class Skipped:
    """What was left out: a path, a row or a sample, and why."""

    where: str
    why: str


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """What an audit is about.

    Attributes
    ----------
    x : array of shape (M, …)
        Features as `RobustClassifier.fit` takes them.
    y : array of shape (M,)
        Given labels.
    ids : list of str
        What a sample is called in every file that is written.
    kind : str
        images, table or arrays.
    source : Path
        The folder or file that they were read from.
    settings : dict
        What they were read with: the size of images, the columns of a table that play a part.
    notes : tuple of str
        What the reader decided for the user, a sentence each.
    places : sequence of length M, or None
        Where each was read, in words such as "line 7"; without them the ids say it.
    paths, texts, rows : sequences of length M, or None
        To show a sample to people: the image's file, its text, its cells by column.
    encoding : dict or encoder
        How x was made, to make it again of new data.
    """

    x: np.ndarray
    y: np.ndarray
    ids: list[str]
    kind: str
    source: Path
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    places: Sequence[str] | None = None
    paths: Sequence[Path] | None = None
    texts: Sequence[str] | None = None
    rows: "TableRows | None" = None
    encoding: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def by_trained_network(self) -> bool:
        """Whether x are features that an encoder made, or that the user brought along."""
        return self.settings.get("encoder", "none") != "none" or "embeddings" in self.settings

    @property
    def what(self) -> str:
        """What the samples are, in the plural."""
        return CALLED[self.kind]

    @property
    def counts(self) -> dict[str, int]:
        """Samples of each class, in the order of the sorted classes."""
        classes, counts = np.unique(self.y, return_counts=True)
        return {str(c): int(n) for c, n in zip(classes.tolist(), counts, strict=True)}

    def take(self, index: np.ndarray) -> "LabelledSamples":
        def of(values: Sequence | None) -> list | None:
            return None if values is None else [values[i] for i in index]

        rows = None if self.rows is None else replace(self.rows, index=[self.rows.index[i] for i in index])
        lists = {name: of(getattr(self, name)) for name in ("ids", "places", "paths", "texts")}
        return replace(self, x=self.x[index], y=self.y[index], rows=rows, **lists)


@dataclass(frozen=True)
class TableRows:
    """The cells of the rows that were kept; a row is put together when it is asked for."""

    columns: dict[str, Sequence[Any] | np.ndarray] = field(repr=False)
    index: list[int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: cells[self.index[i]] for name, cells in self.columns.items()}


def usable(samples: LabelledSamples) -> LabelledSamples:
    """The samples that can be judged, with a word on the others; raises a ValueError if they are too few."""
    read, lost = len(samples), len(samples.skipped)
    if lost > read:
        first = samples.skipped[0]
        raise ValueError(
            f"{lost} of {lost + read} {samples.what} cannot be used, the first being {first.where} ({first.why}): "
            "mend them first."
        )
    repeated = [name for name, n in Counter(samples.ids).items() if n > 1]
    if repeated:
        raise ValueError(f"the id {shown(repeated[0])} occurs more than once: give every sample an id of its own.")
    samples = without_lone_classes(samples)
    n, classes = len(samples), samples.counts
    if len(classes) < 2:
        raise ValueError(
            f"all {samples.what} are of one class, besides labels that occur once: give two classes or more."
        )
    if set(classes) <= SPLITS:
        raise ValueError(
            f"the classes are called {' and '.join(classes)}, which are parts of a data set: "
            "give the folder that holds the folders of the classes."
        )
    if n < FEWEST:
        raise ValueError(f"there are {n} {samples.what}: to find wrong labels takes at least {FEWEST}.")
    few = [name for name, n in classes.items() if n < FEW]
    note = (f"fewer than {FEW} samples, so that little can be said about: {quoted_list(few)}",) if few else ()
    return replace(
        samples, notes=(*samples.notes, *note, *notes_on_look_alikes(classes), *notes_on_formulas(samples))
    )


def without_lone_classes(samples: LabelledSamples) -> LabelledSamples:
    """A class of one sample cannot be learnt from others: its sample is left out."""
    _, class_of, counts = np.unique(samples.y, return_inverse=True, return_counts=True)
    lone = counts[class_of] == 1
    if lone.sum() * 2 > len(samples):
        raise ValueError(
            f"{lone.sum()} of {len(samples)} {samples.what} have a label that no other has: "
            "give labels that several share."
        )
    if not lone.any():
        return samples
    why = "the only sample of its class"
    places = samples.ids if samples.places is None else samples.places
    more = [Skipped(places[i], f"{why} {shown(str(samples.y[i]))}") for i in np.flatnonzero(lone).tolist()]
    return replace(samples.take(np.flatnonzero(~lone)), skipped=(*samples.skipped, *more))


def evenly_from_classes(y_M: np.ndarray, n: int) -> np.ndarray:
    """Numbers of about n samples, evenly from all classes, and at least one of each."""
    by_class = np.argsort(y_M, kind="stable")
    even = by_class[np.linspace(0, len(y_M) - 1, min(n, len(y_M))).astype(np.int64)]
    return np.union1d(even, np.unique(y_M, return_index=True)[1])


def notes_on_look_alikes(classes: Iterable[str]) -> list[str]:
    """A note for each two labels that are one to the eye; they stay two classes."""
    seen: dict[str | Decimal, str] = {}
    notes = []
    for name in classes:
        # no floats: codes of many digits would become equal
        eye = Decimal(name) if PLAIN_NUMBER.fullmatch(name) else " ".join(name.split()).casefold()
        same = seen.setdefault(eye, name)
        if same != name:
            notes.append(
                f"labels {shown(same)} and {shown(name)} differ only in case, spaces or zeros: are they one class?"
            )
    return notes


def notes_on_formulas(samples: LabelledSamples) -> tuple[str, ...]:
    """A note if a spreadsheet would take an id or a label for a formula."""
    risky = [
        name
        for name in {*samples.ids, *samples.counts}
        if name[:1] in "=+-@\t\r" and name and not looks_like_number(name)
    ]
    if not risky:
        return ()
    return (
        f"{len(risky)} id(s) or label(s) begin like a formula, such as {shown(min(risky))}: they are written as "
        "they are, so import the files into a spreadsheet as text",
    )


def looks_like_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def readable(text: str) -> str:
    """Text that can be written as UTF-8: what is none, as in some names of files, becomes \\udce9 and the like."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(text: str) -> str:
    """For a terminal: on one line, in quotes, shortened."""
    return f"'{printable(text if len(text) <= 80 else f'{text[:77]}…')}'"


def printable(text: str) -> str:
    """Without control characters and line ends, which are written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted_list(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(map(shown, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
