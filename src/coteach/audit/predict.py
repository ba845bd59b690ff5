"""New data through a saved classifier: of `coteach audit`, or of `RobustClassifier.save`. M samples, C classes."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coteach.audit.arrays import load_arrays
from coteach.audit.encoding import ENCODING_FILE, features, read_encoding
from coteach.audit.images import files_below
from coteach.audit.learners import module_named
from coteach.audit.samples import Skipped
from coteach.audit.tables import TableEncoder
from coteach.classifier import RobustClassifier
from coteach.classifier.files import USUAL_NAME
from coteach.selective.files import SavedModel, is_selective, load_selective

READ_TOGETHER = 256  # images


Model = RobustClassifier | SavedModel


def load_model(model: Path, module: str | None, device: str) -> tuple[Model, Path | None]:
    """The classifier, and the folder that tells how its data became numbers, if there is one."""
    path = model / USUAL_NAME if model.is_dir() else model
    if model.is_dir() and not path.is_file():
        raise ValueError(f"{model} holds no {USUAL_NAME}: give a model file, or the folder of an audit.")
    beside = path.parent / ENCODING_FILE
    folder = path.parent if model.is_dir() or beside.is_symlink() or beside.exists() else None
    if is_selective(path):
        return load_selective(path), folder
    classifier = RobustClassifier.load(path, module=module_named(module))
    classifier.set_params(device=device)
    return classifier, folder


def header(classifier: Model) -> list[str]:
    return ["file", "row", "predicted", "probability", *(f"p_{c}" for c in classifier.classes_)]


def predicted_rows(classifier: Model, places: Sequence[list], x: np.ndarray) -> Iterator[list[Any]]:
    """Where a sample lies, the likeliest class and its probability, then that of every class."""
    for place, p_C in zip(places, classifier.predict_proba(x), strict=True):
        best = int(p_C.argmax())
        yield [*place, classifier.classes_[best], *(f"{p:.6f}" for p in (p_C[best], *p_C))]


def read_new(folder: Path | None, files: Sequence[Path]) -> Iterator[tuple[list[list], np.ndarray]]:
    """[file, row] of each sample, and all of them as the networks take them; images come some at a time."""
    encoding = {"kind": "arrays"} if folder is None else read_encoding(folder)
    if not isinstance(encoding, TableEncoder) and encoding["kind"] == "images":
        paths = [path for file in files for path in images_in(file)]
        for begin in range(0, len(paths), READ_TOGETHER):
            some = paths[begin : begin + READ_TOGETHER]
            yield [[str(path), ""] for path in some], features(folder or "", some)
        return
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a file: give tables or npz files, as the model was trained on.")
        x = load_arrays(file, ("x",))["x"] if folder is None else features(folder, file)
        yield [[str(file), row] for row in range(1, len(x) + 1)], x


def images_in(path: Path) -> list[Path]:
    """The file itself, or all files below a folder that are not hidden."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is no file or folder: give images, or folders of them.")
    skipped: list[Skipped] = []
    found = sorted(files_below(path, path, skipped))
    for one in skipped:
        warnings.warn(f"{path / one.where} was left out: {one.why}", stacklevel=2)
    return found
