"""`coteach data`: the data sets there are, which of them are here, and fetching the others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.markup import escape
from rich.table import Table

from coteach import data
from coteach.names import Flag
from coteach.terminal import console

DATA_EXAMPLES = """
examples:
  # what there is, what is here, and how much would be downloaded
  coteach data
  # fetch two of them
  coteach data mnist cifar10
  # from a folder with the published files in it
  coteach data mnist --data-dir data
"""


@dataclass(frozen=True)
class Data:
    """List the data sets, say which are there, and fetch the ones named."""

    names: Annotated[tuple[str, ...], Flag("[NAME ...]", "none", placed=True)] = ()
    """Data sets to fetch, as far as they are missing; without a name all are only listed."""
    data_dir: Annotated[Path | None, Flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the downloaded data files."""


def data_command(asked: Data) -> None:
    for name in asked.names:
        dataset = data.load(name, asked.data_dir)
        shape = "×".join(map(str, dataset.x_train.shape[1:]))
        console.print(
            f"{name}: {len(dataset.x_train):,} / {len(dataset.x_test):,} samples of {shape}, "
            f"{dataset.n_classes} classes {dataset.note}",
            soft_wrap=True,
        )
    if not asked.names:
        home = data.data_home(asked.data_dir)
        table = Table("data set", "what it is", "where", box=None, pad_edge=False)
        for status in data.status(asked.data_dir):
            where = (status.found or status.note).replace(f"{home}/", "")
            about = data.DATASETS[status.name]
            what = f"{about.what} ({about.licence})" if about.licence else about.what
            table.add_row(status.name, what, escape(where))
        console.print(f"data folder: {home}", soft_wrap=True, markup=False)
        console.print(table)
