"""`coteach predict`: new data through a classifier that `coteach audit` or `RobustClassifier.save` wrote."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console

from coteach.files import as_csv, write_atomically
from coteach.names import Flag
from coteach.terminal import console, progress_bars
from coteach.turns import modules_from_here

PREDICT_EXAMPLES = """
examples:
  # images, one by one or in folders, through the model of an audit
  coteach predict runs/audit photos/new > labels.csv
  # a table with the same columns, or arrays x in an npz file
  coteach predict runs/audit people-2026.csv --out labels.csv
  # a classifier that was saved from Python, on arrays
  coteach predict model.safetensors embeddings.npz

Writes a CSV: file, row, the predicted class, and the probability of each class.
"""


@dataclass(frozen=True)
class Predict:
    """Label new data with the model of an audit, or one saved from Python."""

    model: Annotated[Path, Flag("MODEL", "none", placed=True)]
    """Folder that `coteach audit` wrote, or file that `RobustClassifier.save` wrote."""
    files: Annotated[tuple[Path, ...], Flag("FILES", "none", placed=True)] = ()
    """New data of the same kind: images or folders of images, tables, or npz files with an array x."""
    out: Annotated[Path | None, Flag("CSV", "the terminal")] = None
    """File to write; must be new."""
    network: Annotated[str | None, Flag("NAME", "none")] = None
    """package.module:factory of the network, if the model was trained with your own."""
    device: Annotated[str, Flag("NAME", "auto, a GPU if there is one")] = "auto"
    """Where to predict: auto, cpu, cuda or cuda:1."""

    def check(self) -> None:
        """Raise a ValueError for whatever can be seen to be wrong without reading a model."""
        if not self.model.exists():
            raise ValueError(f"{self.model} does not exist: give the folder of an audit, or a model file.")
        if not self.files:
            raise ValueError("no new data are given: name files after the model.")
        for path in self.files:
            if not path.exists():
                raise ValueError(f"{path} does not exist: give new data, of the kind that was learnt.")
        if self.out is not None and self.out.exists():
            raise ValueError(f"{self.out} is there already: give --out another name.")


def predict_command(predict: Predict) -> None:
    predict.check()
    with modules_from_here() if ":" in (predict.network or "") else nullcontext():
        label_new_data(predict)


def label_new_data(predict: Predict) -> None:
    from coteach.audit.predict import header, load_model, predicted_rows, read_new
    from coteach.engine.setup import chosen_device

    chosen_device(predict.device)
    classifier, folder = load_model(predict.model, predict.network, predict.device)
    rows = [header(classifier)]
    with progress_bars(Console(stderr=True)) as bars:  # so that a CSV can be piped on
        for places, x in read_new(folder, predict.files):
            rows += predicted_rows(classifier, places, x)
            if not bars.task_ids:
                bars.add_task("predicting", total=None, note="")
            bars.update(bars.task_ids[0], completed=len(rows) - 1)
        for task in bars.task_ids:
            bars.update(task, total=len(rows) - 1)
    if predict.out is None:
        sys.stdout.write(in_encoding_of_output(as_csv(rows)))
        return
    try:
        write_atomically(predict.out, as_csv(rows))
    except OSError as error:
        raise ValueError(f"{predict.out} cannot be written ({error.strerror}): give another --out.") from error
    console.print(f"{len(rows) - 1:,} samples, written to {predict.out}", markup=False, soft_wrap=True)


def in_encoding_of_output(text: str) -> str:
    """Numbers in place of characters, as messages have them, would be other labels."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        letter = text[error.start].encode("ascii", "backslashreplace").decode()
        raise ValueError(f"the output takes {encoding}, which lacks {letter}: give --out a name.") from error
    return text
