"""What `coteach audit` is asked for: its flags, and the defaults of Python callers. No torch here."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from coteach import names
from coteach.flags import flag
from coteach.runs.experiment import is_whole

METHODS = {name: what for name, what in names.METHODS.items() if name not in names.ELSEWHERE}
LOSS_DEFAULT = "cross_entropy, then softmax_twice; of another method its own"
TABLES = {".csv": "a CSV", ".tsv": "a TSV", ".parquet": "a parquet file"}


@dataclass(frozen=True)
class Audit:
    """Find the labels of your own images, table or arrays that are probably wrong."""

    images: Annotated[Path | None, flag("DIR", "none; give this, --table or --npz")] = None
    """Your data, if they are images: a folder with one folder of them for each class."""
    table: Annotated[Path | None, flag("FILE", "none")] = None
    """Your data, if they are a table: .csv, .tsv or .parquet; needs --label."""
    npz: Annotated[Path | None, flag("FILE", "none")] = None
    """Your data, if they are numbers, such as embeddings: a NumPy file with the arrays x and y, and maybe ids."""
    label: Annotated[str | None, flag("COL", "none")] = None
    """Column of the table with the labels."""
    text: Annotated[str | None, flag("COL", "none")] = None
    """Column of the table with texts."""
    id: Annotated[str | None, flag("COL", "the row's number")] = None
    """Column of the table that names the rows in all files written."""
    ignore: Annotated[tuple[str, ...], flag("COL [COL ...]", "none")] = ()
    """Columns of the table to leave out, such as one that was made from the label."""
    size: Annotated[int, flag("N", "32")] = 32
    """Width and height to which images are brought, in pixels."""
    method: Annotated[str | None, flag("NAME", "coteaching", "Rule:" + names.listed(METHODS))] = None
    loss: Annotated[str | None, flag("NAME", LOSS_DEFAULT, "Loss:" + names.listed(names.LOSSES))] = None
    module: Annotated[str | None, flag("NAME", "one that fits the samples")] = None
    """Network: a name such as mlp3 or cnn7, or package.module:factory for one of your own."""
    epochs: Annotated[int | None, flag("N", "20")] = None
    """Epochs: how often every sample is learnt from."""
    noise_rate: Annotated[float | Literal["auto"], flag("X", "auto")] = "auto"
    """Share of wrong labels if you know it, such as 0.1; auto estimates it, which takes two thirds of the time."""
    keep_per_class: bool = False
    """Trust the same share of each class: for classes of very different sizes."""
    share: Annotated[float | None, flag("X", "the noise rate")] = None
    """Share of the samples to list as suspects, from 0 to 1."""
    device: Annotated[str, flag("NAME", "auto, a GPU if there is one")] = "auto"
    """auto, cpu, cuda or cuda:1."""
    seed: Annotated[int, flag("N", "0")] = 0
    """The same seed gives the same files, on the same machine."""
    out: Annotated[Path | None, flag("PATH", "runs/audit, numbered if taken")] = None
    """Folder to write; must be new or empty. With --apply the folder of the audit."""
    apply: Annotated[Path | None, flag("FILE", "none")] = None
    """Train nothing: take the decisions that the review page exported, and write corrected.csv beside it."""

    @property
    def source(self) -> Path:
        """The one folder or file that is given."""
        given = [path for path in (self.images, self.table, self.npz) if path is not None]
        if len(given) != 1:
            raise ValueError(f"{len(given) or 'no'} data are given: give one of --images, --table and --npz.")
        return Path(given[0])

    @property
    def kind(self) -> str:
        return "images" if self.images is not None else "table" if self.table is not None else "arrays"

    def check(self) -> None:
        """Raise a ValueError for whatever can be seen to be wrong without reading the data."""
        if self.apply is not None:
            self._check_alone()
            return
        self._check_source()
        if self.method is not None:
            names.check_name("method", self.method, METHODS)
        if self.loss is not None:
            names.check_name("loss", self.loss, names.LOSSES)
        if self.noise_rate != "auto" and not 0 <= self.noise_rate < 1:
            raise ValueError(f"--noise-rate is {self.noise_rate:g}: give auto, or a share below 1 such as 0.2.")
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"--share is {self.share:g}: give a share of the samples from 0 to 1.")
        for name, value, least in (("epochs", self.epochs, 1), ("size", self.size, 4), ("seed", self.seed, 0)):
            if value is not None and not (is_whole(value) and value >= least):
                raise ValueError(f"--{name} is {value}: give a whole number of at least {least}.")
        if self.seed >= 2**32:
            raise ValueError(f"--seed is {self.seed}: give one below 2**32.")

    def _check_alone(self) -> None:
        for f in fields(self):
            if f.name not in ("apply", "out") and getattr(self, f.name) != f.default:
                name = f.name.replace("_", "-")
                raise ValueError(f"--apply trains nothing and takes --out alone: leave --{name} out.")
        if self.apply is not None and not self.apply.exists():
            raise ValueError(f"there is no {self.apply}: is it still in your downloads?")

    def _check_source(self) -> None:
        source = self.source
        if self.kind != "table" and (self.label or self.text or self.id or self.ignore):
            raise ValueError("--label, --text, --id and --ignore name columns of a table: give --table with them.")
        if self.kind == "table" and self.label is None:
            raise ValueError("a table needs --label, the name of the column with the labels.")
        if not source.exists():
            raise ValueError(f"there is no {source}: check the path.")
        if not (source.is_dir() if self.kind == "images" else source.is_file()):
            wanted = "a folder with a folder for each class" if self.kind == "images" else "a file"
            raise ValueError(
                f"{source} is not what --{'npz' if self.kind == 'arrays' else self.kind} takes: give {wanted}."
            )
        if self.kind == "arrays" and source.suffix.lower() in TABLES:
            raise ValueError(f"{source} is {TABLES[source.suffix.lower()]}: give it with --table, and --label.")
        if self.kind == "table" and source.suffix.lower() not in TABLES:
            raise ValueError(f"{source} is no {', '.join(TABLES)} file: save the table as one of these.")
        named = [name for name in (self.label, self.text, self.id, *self.ignore) if name is not None]
        for name in named:
            if named.count(name) > 1:
                raise ValueError(f"column {name} is named twice: give it one part to play.")
