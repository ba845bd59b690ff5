"""Samples whose features a frozen network made, or the user: the picture or the text stays with them.

M samples, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coteach.audit.arrays import Embeddings
from coteach.audit.features import (
    LOOKED_SIDE,
    Progress,
    encoded,
    no_progress,
    of_files,
    of_texts,
    some_of,
)
from coteach.audit.images import image_files, read_image
from coteach.audit.samples import LabelledSamples, Skipped, readable
from coteach.encoders.named import ChosenEncoder, Encoder, chosen_for_images, chosen_for_texts, text_encoder


def chosen_image_encoder(folder: Path, given: str) -> ChosenEncoder:
    """What the user says, or for auto what a few of the images say."""
    if given != "auto":
        return ChosenEncoder(given, "as you said")
    seen = []
    for _, path in some_of(image_files(folder)[0]):
        try:
            seen.append(read_image(path, LOOKED_SIDE))
        except ValueError:
            continue
    return chosen_for_images(seen) if seen else ChosenEncoder("none", "no image can be read")


def note_on_encoder(choice: ChosenEncoder, otherwise: str) -> str:
    if choice.name == "none":
        return f"{otherwise}: {choice.why}"
    return f"features by {choice.name}: {choice.why}; --encoder none learns without it"


def cache_beside(source: Path) -> Path:
    """A hidden folder beside the data."""
    whole = source.absolute()
    return whole.with_name(f".{whole.name}.features")


def read_encoded_images(folder: Path, encoder: Encoder, progress: Progress = no_progress) -> LabelledSamples:
    """As `read_images`, with features of shape (M, F) instead of pixels."""
    found, skipped = image_files(folder)
    unusable: dict[int, str] = {}
    paths = [path for _, path in found]
    x = encoded(
        paths, encoder, of_files(encoder), cache=cache_beside(folder), progress=progress, unusable=unusable
    )
    encoding = {"kind": "images", "encoder": encoder.name, "size": encoder.size}
    samples = images_with(x, folder, found, skipped, unusable, encoding)
    return replace(samples, settings={"encoder": encoder.name, "size": encoder.size})


def read_images_with(folder: Path, embeddings: Embeddings) -> LabelledSamples:
    """Images by their files; what is learnt are the user's embeddings of them."""
    found, skipped = image_files(folder)
    ids = [readable(path.relative_to(folder).as_posix()) for _, path in found]
    x = embeddings.rows_of(ids, list(range(len(ids))), len(ids), "files")
    unusable = dict.fromkeys(np.flatnonzero(~np.isfinite(x).all(1)).tolist(), f"no row in {embeddings.path.name}")
    whole = x[[i for i in range(len(ids)) if i not in unusable]]
    samples = images_with(whole, folder, found, skipped, unusable, {"kind": "arrays"})
    return replace(samples, settings={"embeddings": str(embeddings.path)})


def images_with(
    x: np.ndarray,
    folder: Path,
    found: list[tuple[str, Path]],
    skipped: list[Skipped],
    unusable: dict[int, str],
    encoding: dict[str, Any],
) -> LabelledSamples:
    def ident(path: Path) -> str:
        return readable(path.relative_to(folder).as_posix())

    kept = [pair for i, pair in enumerate(found) if i not in unusable]
    more = [Skipped(ident(found[i][1]), why) for i, why in unusable.items()]
    return LabelledSamples(
        x=x,
        y=np.array([readable(label) for label, _ in kept]),
        ids=[ident(path) for _, path in kept],
        kind="images",
        source=folder,
        skipped=tuple(sorted((*skipped, *more), key=lambda s: s.where)),
        paths=[path for _, path in kept],
        encoding=encoding,
    )


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """How a column of texts becomes numbers, by an encoder or, as a file has it, its name."""

    name: str
    encoder: Encoder | str
    cache: Path | None = None
    progress: Progress = no_progress

    @property
    def called(self) -> str:
        return self.encoder if isinstance(self.encoder, str) else self.encoder.name

    def apply(self, texts: list[str]) -> np.ndarray:
        """Features (M, F)."""
        encoder = text_encoder(self.encoder) if isinstance(self.encoder, str) else self.encoder
        return encoded(texts, encoder, of_texts(), cache=self.cache, progress=self.progress)


def chosen_text_encoder(texts: list[str], given: str) -> ChosenEncoder:
    return chosen_for_texts(some_of(texts)) if given == "auto" else ChosenEncoder(given, "as you said")


def column_of_texts(
    source: Path, given: str, device: str, notes: list[str], progress: Progress
) -> Callable[[str, list[str]], EncodedTexts | None]:
    """For a table's encoder: what a column of texts becomes, or None for its own words."""

    def learn(name: str, texts: list[str]) -> EncodedTexts | None:
        choice = chosen_text_encoder(texts, given)
        if given != "none":
            notes.append(note_on_encoder(choice, "texts by their own words"))
        if choice.name == "none":
            return None
        return EncodedTexts(name, text_encoder(choice.name, device), cache_beside(source), progress)

    return learn
