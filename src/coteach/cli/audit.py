"""`coteach audit`: its flags; in the terminal what was read, how long it takes, what was found and where it is.

The audit itself is imported when the flags are right, so that `--help` and mistakes are answered at once.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coteach import names
from coteach.checks import LARGEST_SIDE, is_whole
from coteach.names import Flag
from coteach.runs.folder import claim_folder, locked, refuse_if_taken
from coteach.stages import listening
from coteach.terminal import console, open_page, progress_bars
from coteach.turns import modules_from_here

if TYPE_CHECKING:
    from coteach.audit.learners import Learner
    from coteach.audit.samples import LabelledSamples, Skipped

AUDIT_EXAMPLES = """
examples:
  # images in a folder for each class, such as photos/cat/1.jpg
  coteach audit --images photos --open
  # a table: the label in one column, numbers and words in the others
  coteach audit --table people.csv --label group --id name
  # texts in a column of a table
  coteach audit --table letters.csv --label topic --text body
  # arrays x and y: embeddings of large images or long texts
  coteach audit --npz embeddings.npz
  # once you have decided on runs/audit/review.html and exported that
  coteach audit --apply decisions.csv --out runs/audit
  # how many labels are wrong, from fifty that you look at yourself
  coteach audit --images photos --check 50
  coteach audit --calibrate decisions-50.csv --out runs/audit

It first says what it read and, if that is more than half a minute, how long it
will take. It writes suspects.csv (labels to look at, worst first), cleaned.csv
(all others), quality.csv (all), review.html (a page to decide on the suspects),
and the trained model. Your own files stay as they are. Features are kept in a
hidden folder beside them.
"""

AUDIT_METHODS = {name: what for name, what in names.METHOD_MEANINGS.items() if name not in names.ONLY_IN_RUNS}
LOSS_DEFAULT = "cross_entropy; for tables and arrays then softmax_twice; of another method its own"
RECIPE_NUMBERS = (
    "shift", "cutout", "strong_view", "mixup", "label_smoothing", "lookahead", "one_cycle", "lr", "memory_weight",
    "class_balance",
)  # fmt: skip
RECIPE_ANSWERS = ("mirror", "weak_selection", "decoupled_decay")
OF_OPTIMIZER = ("momentum", "nesterov", "weight_decay")
TABLE_SUFFIXES = {".csv": "a CSV", ".tsv": "a TSV", ".parquet": "a parquet file"}
DEFAULT_FOLDER = Path("runs/audit")
OF_PIXELS = ("network", "recipe", "width", "mirror", "shift", "cutout", "strong_view")  # flags
OF_RECIPE = (*RECIPE_NUMBERS, *RECIPE_ANSWERS, "optimizer", *OF_OPTIMIZER)
OF_NETWORKS = tuple(dict.fromkeys(("method", "loss", "epochs", *OF_PIXELS, *OF_RECIPE)))
LEARNERS = {"linear": "linear models in rounds", "trees": "boosted trees in rounds"}
PIXEL_SIDE = 32  # side of images that are learnt as they are
MOST_LINES = 10
MOST_NAMES = 3  # of what was skipped for one reason
LONG_TRAINING = 3600.0  # seconds
LEFT_OUT = 30.0  # seconds of the whole, up to which nobody needs a forecast


@dataclass(frozen=True)
class Audit:
    """Find the wrong labels in your own images, texts, table or arrays."""

    images: Annotated[Path | None, Flag("DIR", "none")] = None
    """Your images: a folder that holds one folder for each class."""
    table: Annotated[Path | None, Flag("FILE", "none")] = None
    """Your table: .csv, .tsv or .parquet. It needs --label."""
    npz: Annotated[Path | None, Flag("FILE", "none")] = None
    """Your numbers, such as embeddings: a NumPy file with the arrays x and y, and maybe ids."""
    label: Annotated[str | None, Flag("COL", "none")] = None
    """Column of the table with the labels."""
    text: Annotated[str | None, Flag("COL", "none")] = None
    """Column of the table with texts."""
    id: Annotated[str | None, Flag("COL", "the row's number")] = None
    """Column of the table that names the rows in the files written."""
    ignore: Annotated[tuple[str, ...], Flag("COL [COL ...]", "none")] = ()
    """Columns of the table to leave out, such as one that was made from the label."""
    encoder: Annotated[str, Flag("NAME", "auto")] = "auto"
    """Makes numbers to learn from of images and texts: auto, none, efficientnet-lite0, wordllama, timm:NAME, …"""
    embeddings: Annotated[Path | None, Flag("FILE", "none")] = None
    """Your own numbers for each image or row, made by another program: .npy, or .npz with x and maybe ids."""
    size: Annotated[int | None, Flag("N", "32; the encoder's own if there is one")] = None
    """Width and height to which images are resized, in pixels."""
    learner: Annotated[Literal["auto", "network", "linear", "trees"], Flag("NAME", "auto")] = "auto"
    """What learns: linear, trees (for tables) or network. For an encoder's features auto is linear; else it
    compares them on held-out labels."""
    method: Annotated[str | None, Flag("NAME", "coteaching", "Method:" + names.help_list(AUDIT_METHODS))] = None
    loss: Annotated[str | None, Flag("NAME", LOSS_DEFAULT, "Loss:" + names.help_list(names.LOSS_MEANINGS))] = None
    network: Annotated[str | None, Flag("NAME", "one that fits the samples")] = None
    """Network: a name such as mlp3 or cnn7, or package.module:factory for your own."""
    recipe: Annotated[Literal["paper", "modern"] | None, Flag("NAME", "modern for images, else paper")] = None
    """Sets the defaults: modern has a modern network and optimiser, paper a small network and Adam."""
    width: Annotated[float | None, Flag("X", "1; 0.25 on a CPU")] = None
    """Width of the modern network: 2 has twice as many channels, 0.5 half as many."""
    mirror: Annotated[Literal["yes", "no"] | None, Flag("{yes,no}", "yes for coloured images if modern")] = None
    """Mirror half of the images; say no for signs, digits and letters."""
    shift: Annotated[int | None, Flag("N", "a sixteenth of the image if modern")] = None
    """Pixels by which images are shifted at most, each way."""
    cutout: Annotated[int | None, Flag("N", "a quarter of the image if modern")] = None
    """Side of the square that is blanked in each image, in pixels."""
    strong_view: Annotated[int | None, Flag("N", "0, none")] = None
    """Learn each image after N random changes of colour and shape; compare losses without them."""
    mixup: Annotated[float | None, Flag("X", "0, not at all")] = None
    """α: learn mixtures of two trusted samples, with shares drawn from Beta(α, α)."""
    label_smoothing: Annotated[float | None, Flag("X", "0")] = None
    """Share of a label that is spread over all classes when it is learnt."""
    memory_weight: Annotated[float | None, Flag("X", "0, none")] = None
    """How strongly networks are held to what they thought of a sample before; 3 for labels given by rules."""
    class_balance: Annotated[float | None, Flag("X", "0, none")] = None
    """Weight of a penalty on predicting some classes more often than others; 1 for labels given by rules."""
    weak_selection: Annotated[Literal["yes", "no"] | None, Flag("{yes,no}", "no")] = None
    """Compare losses on uncut images, and learn from cut ones."""
    lookahead: Annotated[int | None, Flag("N", "5 if modern, else never")] = None
    """Steps after which weights return to a moving average of themselves."""
    one_cycle: Annotated[float | None, Flag("X", "0.23 if modern, else 0")] = None
    """Share of all steps over which the learning rate rises, before it falls to zero."""
    lr: Annotated[float | None, Flag("X", "1.5 for batches of 1,024 if modern, else 0.001")] = None
    """Highest learning rate."""
    optimizer: Annotated[Literal["adam", "sgd"] | None, Flag("{adam,sgd}", "sgd if modern, else adam")] = None
    """Optimiser."""
    momentum: Annotated[float | None, Flag("X", "0.85 if modern, else 0.9")] = None
    """Momentum of sgd, from 0 to below 1."""
    nesterov: Annotated[Literal["yes", "no"] | None, Flag("{yes,no}", "yes if modern")] = None
    """Nesterov's form of that momentum."""
    weight_decay: Annotated[float | None, Flag("X", "0.009 if modern, else 0")] = None
    """Weight decay."""
    decoupled_decay: Annotated[Literal["yes", "no"] | None, Flag("{yes,no}", "yes if modern")] = None
    """Whether weights decay apart from their gradients, by the learning rate times --weight-decay."""
    epochs: Annotated[int | None, Flag("N", "40 if modern, else 20")] = None
    """Epochs: how often each sample is learnt."""
    noise_rate: Annotated[float | Literal["auto"], Flag("X", "auto")] = "auto"
    """Share of wrong labels, such as 0.1, if you know it; auto estimates it, half of the time or more."""
    keep_per_class: bool = False
    """Trust the same share of each class; for classes of very different sizes."""
    share: Annotated[float | None, Flag("X", "the noise rate")] = None
    """Share of all samples to list as suspects, from 0 to 1."""
    check: Annotated[int | None, Flag("N", "none")] = None
    """Also write check.html with N samples to look at. --calibrate then says how many labels are wrong."""
    device: Annotated[str, Flag("NAME", "auto, a GPU if there is one")] = "auto"
    """Where to train: auto, cpu, cuda or cuda:1."""
    seed: Annotated[int, Flag("N", "0")] = 0
    """The same seed gives the same files, on the same machine."""
    out: Annotated[Path | None, Flag("PATH", "runs/audit, numbered if taken")] = None
    """Folder to write to; must be new or empty. With --apply and --calibrate: the folder of the audit."""
    open: bool = False
    """Open the page in the browser. Without data it opens the page of an earlier audit, in --out."""
    apply: Annotated[Path | None, Flag("FILE", "none")] = None
    """Do not train: apply the decisions that the review page exported, and write corrected.csv."""
    calibrate: Annotated[Path | None, Flag("FILE", "none")] = None
    """Do not train: read the decisions that check.html exported, and say how many labels are wrong."""

    @property
    def source(self) -> Path:
        """The one folder or file that is given."""
        given = [path for path in (self.images, self.table, self.npz) if path is not None]
        if len(given) != 1:
            many = "more than one kind of data is" if given else "no data are"
            raise ValueError(f"{many} given: give one of --images, --table and --npz.")
        return Path(given[0])

    @property
    def only_opens(self) -> bool:
        """Whether a page is to be opened that an earlier audit wrote."""
        return self.open and all(
            getattr(self, f.name) == f.default for f in fields(self) if f.name not in ("open", "out")
        )

    @property
    def kind(self) -> str:
        return "images" if self.images is not None else "table" if self.table is not None else "arrays"

    @property
    def network_flags(self) -> list[str]:
        """Those given that are about networks alone."""
        return [name for name in OF_NETWORKS if getattr(self, name) is not None]

    def check_flags(self) -> None:
        """Raise a ValueError for whatever can be seen to be wrong without reading the data."""
        for name in ("apply", "calibrate"):
            if (path := getattr(self, name)) is not None:
                self._check_alone(name, path)
                return
        if self.only_opens:
            return
        self._check_source()
        if self.method is not None:
            names.check_name("method", self.method, AUDIT_METHODS)
        if self.loss is not None:
            names.check_name("loss", self.loss, names.LOSS_MEANINGS)
        if self.noise_rate != "auto" and not 0 <= self.noise_rate < 1:
            raise ValueError(f"--noise-rate is {self.noise_rate:g}: give auto, or a share below 1 such as 0.2.")
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"--share is {self.share:g}: give a share of the samples from 0 to 1.")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ValueError(f"--momentum is {self.momentum:g}: give a number from 0 to below 1.")
        for name, value, least in (
            ("epochs", self.epochs, 1),
            ("size", self.size, 4),
            ("seed", self.seed, 0),
            ("check", self.check, 10),
        ):
            if value is not None and not (is_whole(value) and value >= least):
                raise ValueError(f"--{name} is {value}: give a whole number of at least {least}.")
        if self.size is not None and self.size > LARGEST_SIDE:
            raise ValueError(f"--size is {self.size}: give at most {LARGEST_SIDE:,}.")
        if self.seed >= 2**32:
            raise ValueError(f"--seed is {self.seed}: give one below 2**32.")

        self._check_features()
        if self.learner in LEARNERS and self.network_flags:
            name = self.network_flags[0].replace("_", "-")
            raise ValueError(f"--{name} is about networks: leave it out, or give --learner network.")

    def _check_features(self) -> None:
        if self.embeddings is not None and self.kind == "arrays":
            raise ValueError("--npz has its features in x: give --embeddings with --images or --table.")
        if self.embeddings is not None and self.encoder != "auto":
            raise ValueError("--embeddings and --encoder both make the features: give one of them.")
        if self.embeddings is not None and not self.embeddings.exists():
            raise ValueError(f"{self.embeddings} does not exist: check the path.")
        if self.encoder not in ("auto", "none") and self.kind != "images" and self.text is None:
            raise ValueError(
                "--encoder makes features of images and texts: give --images, or --text with --table."
            )

    def _check_alone(self, flag: str, path: Path) -> None:
        for f in fields(self):
            if f.name not in (flag, "out") and getattr(self, f.name) != f.default:
                name = f.name.replace("_", "-")
                raise ValueError(f"--{flag} trains nothing and takes --out alone: leave --{name} out.")
        if not path.exists():
            raise ValueError(f"{path} does not exist: is it still in your downloads?")

    def _check_source(self) -> None:
        source = self.source
        if self.kind != "table" and (self.label or self.text or self.id or self.ignore):
            raise ValueError("--label, --text, --id and --ignore name columns of a table: give --table with them.")
        if self.kind == "table" and self.label is None:
            raise ValueError("a table needs --label, the name of the column with the labels.")
        if not source.exists():
            raise ValueError(f"{source} does not exist: check the path.")
        if not (source.is_dir() if self.kind == "images" else source.is_file()):
            flag = "--npz" if self.kind == "arrays" else f"--{self.kind}"
            if self.kind == "images":
                raise ValueError(f"{source} is a file: {flag} takes a folder that has a folder for each class.")
            raise ValueError(f"{source} is a folder: {flag} takes a file, and --images a folder of images.")
        if self.kind == "arrays" and source.suffix.lower() in TABLE_SUFFIXES:
            what = TABLE_SUFFIXES[source.suffix.lower()]
            raise ValueError(f"{source} is {what}: give it with --table, and --label.")
        if self.kind == "table" and source.suffix.lower() not in TABLE_SUFFIXES:
            raise ValueError(f"{source} is no {', '.join(TABLE_SUFFIXES)} file: save the table as one of these.")
        named = [name for name in (self.label, self.text, self.id, *self.ignore) if name is not None]
        for name in named:
            if named.count(name) > 1:
                raise ValueError(f"column {name} is named twice: give it one part to play.")


def audit_command(audit: Audit) -> None:
    """What may go wrong does so before the long training: the reading, the settings, a folder to write to."""
    audit.check_flags()  # before torch is loaded
    if audit.apply is not None:
        apply_decisions_command(audit.apply, audit.out or DEFAULT_FOLDER)
        return
    if audit.calibrate is not None:
        calibrate_command(audit.calibrate, audit.out or DEFAULT_FOLDER)
        return
    if audit.only_opens:
        open_earlier_page(audit.out or DEFAULT_FOLDER)
        return
    began = time.perf_counter()
    with claimed_folder(audit.out) as folder, ExitStack() as stack:
        from coteach.audit.forecast import forecast
        from coteach.audit.judge import judge
        from coteach.audit.learners import new_classifier, notes_beforehand, selective_classifier
        from coteach.audit.samples import usable
        from coteach.audit.write import write_findings
        from coteach.encoders.named import is_code
        from coteach.engine.setup import chosen_device

        if any(":" in name and is_code(name) for name in (audit.network or "", audit.encoder)):
            stack.enter_context(modules_from_here())  # to the end: such code may import more when it is called
        classifier: Learner = new_classifier(
            audit.network,
            audit.device,
            method=audit.method,
            loss=audit.loss,
            epochs=audit.epochs,
            noise_rate=audit.noise_rate,
            keep_per_class=audit.keep_per_class,
            random_state=audit.seed,
            recipe=audit.recipe,
            module__width=audit.width,
            optimizer=audit.optimizer,
            optimizer__momentum=audit.momentum,
            optimizer__nesterov=as_bool(audit.nesterov),
            optimizer__weight_decay=audit.weight_decay,
            **{name: getattr(audit, name) for name in RECIPE_NUMBERS},
            **{name: as_bool(getattr(audit, name)) for name in RECIPE_ANSWERS},
        )
        print_line(f"reading {audit.source}")
        samples = usable(read_samples(audit))
        print_samples(samples)
        read = time.perf_counter()
        learner = learner_of(audit, classifier, samples)
        if learner != "network":
            classifier = selective_classifier(
                learner,
                noise_rate=audit.noise_rate,
                keep_per_class=audit.keep_per_class,
                random_state=audit.seed,
            )
        called = LEARNERS.get(learner, audit.method or "coteaching")
        for note in notes_beforehand(classifier, samples):
            print_line(f"note: {note}")
        compared = time.perf_counter()
        print_line("timing an epoch" if learner == "network" else "timing a part of the rounds")
        seconds = forecast(classifier, samples)
        timed = time.perf_counter()
        where = {"cpu": "the CPU"}.get(device := chosen_device(audit.device), device)
        whole = timed - began + seconds
        told = whole > LEFT_OUT
        about = f": about {duration_text(whole)} in all, with reading and timing" if told else ""
        print_line(f"training {called} on {where}{about}")
        if device == "cpu" and audit.kind == "images" and seconds > LONG_TRAINING:
            print_line(
                "note: that is long for a CPU: a smaller --size, an --encoder or --embeddings take much less"
            )
        with expected_progress("training", seconds if told else None) as say, listening(say):
            findings = judge(classifier, samples, audit.share)
        spent = {
            "reading": read - began,
            "comparing": compared - read,
            "forecast": timed - compared,
            "training": findings.seconds,
            "expected": whole,
        }
        summary = write_findings(findings, folder, spent, audit.network, audit.check or 0)
        print_findings(summary, findings.notes[len(samples.notes) :])
        print_line(f"written to {folder}: {', '.join(files_in(folder))}")
        if summary["suspects"]:
            print_line(f"look at the suspects: open {folder / 'review.html'} in a browser")
        if audit.check:
            print_line(f"to know how many labels are wrong: decide on {folder / 'check.html'}, in a browser")
        if audit.open:
            open_page(folder / ("check.html" if audit.check else "review.html"))


def learner_of(audit: Audit, network: Any, samples: "LabelledSamples") -> str:
    """The one that is asked for, or that predicts held-out labels as well as any."""
    from coteach.audit.choice import candidates_for, choose_learner
    from coteach.audit.learners import check_learner

    if audit.learner != "auto":
        check_learner(audit.learner, samples)
        return audit.learner
    candidates = candidates_for(samples, audit.network_flags)
    if len(candidates) == 1:
        if candidates == ["linear"]:
            print_line("note: linear models learn these features, in seconds; --learner network is slower")
        return candidates[0]
    with expected_progress("comparing learners", None) as say, listening(say):
        choice = choose_learner(candidates, network, samples)
    print_line(f"note: {choice.why}")
    return choice.learner


def open_earlier_page(folder: Path) -> None:
    page = folder / "review.html"
    if not page.is_file():
        raise ValueError(f"{folder} holds no review.html: give data to audit, or the folder of an audit as --out.")
    print_line(f"opening {page}")
    open_page(page)


def as_bool(answer: str | None) -> bool | None:
    return None if answer is None else answer == "yes"


def apply_decisions_command(decisions: Path, folder: Path) -> None:
    from coteach.audit.decisions import CORRECTED, apply_decisions

    done = apply_decisions(decisions, folder)
    print_line(
        f"{done['keep']:,} kept, {done['relabel']:,} relabelled, {done['drop']:,} dropped, "
        f"{done['undecided']:,} not decided and left out"
        + f" ({done['unsure']:,} not sure)"
        * (done["unsure"] > 0)
    )
    print_line(f"written to {folder / CORRECTED}: {done['rows']:,} labels")
    print_line("next: put them into your own files, by their ids; docs/own-data.md has the lines that do it")


def calibrate_command(decisions: Path, folder: Path) -> None:
    from coteach.audit.check import CALIBRATED_CLEANED, CALIBRATED_SUSPECTS, CALIBRATION, calibrate_audit

    found = calibrate_audit(decisions, folder)
    low, high = (100 * bound for bound in found.interval)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("wrong labels", f"{100 * found.rate:.1f} %, between {low:.1f} and {high:.1f} %")
    for part in found.first:
        low, high = (100 * bound for bound in part["interval"])
        share = f"{100 * part['wrong']:.0f} % wrong, between {low:.0f} and {high:.0f} %"
        table.add_row(f"the first {part['samples']:,} by quality", share)
    console.print(table)
    left = f", {found.open:,} left open" if found.open else ""
    print_line(
        f"from {found.decided:,} decisions{left}; each interval holds the truth in nine of ten such reviews"
    )
    if found.stop == found.samples:
        print_line(f"look at all {found.stop:,}: nowhere is less than one label in ten wrong")
    elif found.stop:
        print_line(
            f"look at the first {found.stop:,}: they hold about {found.wrong_before_stop:,.0f} of "
            f"{found.wrong:,.0f} wrong labels. Then stop: of the others less than one in ten is wrong"
        )
    else:
        print_line("nowhere in the list is one label in ten wrong: there is nothing more to look at")
    if found.cut:
        print_line(f"the first {found.cut:,} are more often wrong than right: {CALIBRATED_SUSPECTS} lists them")
    else:
        print_line(f"nowhere are labels more often wrong than right: {CALIBRATED_SUSPECTS} lists none")
    print_line(f"written to {folder}: {CALIBRATION}, {CALIBRATED_SUSPECTS}, {CALIBRATED_CLEANED}")


def read_samples(audit: Audit) -> "LabelledSamples":
    """With a progress bar where there may be many."""
    if audit.kind == "arrays":
        from coteach.audit.arrays import read_arrays

        return read_arrays(audit.source)
    with progress_bars() as bars:

        def progress(done: int, total: int) -> None:
            if not bars.task_ids:
                bars.add_task("reading", note="")
            bars.update(bars.task_ids[0], completed=done, total=total)

        return read_table_rows(audit, progress) if audit.kind == "table" else read_image_folder(audit, progress)


def read_table_rows(audit: Audit, progress: Callable[[int, int], None]) -> "LabelledSamples":
    from coteach.audit.tables import learn_words, read_table_samples

    assert audit.label is not None
    notes: list[str] = []
    learn_text, embeddings = learn_words, None
    if audit.embeddings is not None:
        from coteach.audit.arrays import read_embeddings

        embeddings = read_embeddings(audit.embeddings)
    elif audit.text is not None and audit.encoder != "none":
        from coteach.audit.encoded import column_of_texts
        from coteach.engine.setup import chosen_device

        learn_text = column_of_texts(audit.source, audit.encoder, chosen_device(audit.device), notes, progress)
    samples = read_table_samples(
        audit.source, audit.label, audit.text, audit.id, audit.ignore, audit.seed, learn_text, embeddings
    )
    encoder = getattr(getattr(samples.encoding, "text", None), "called", "none")
    return replace(samples, notes=(*samples.notes, *notes), settings=samples.settings | {"encoder": encoder})


def read_image_folder(audit: Audit, progress: Callable[[int, int], None]) -> "LabelledSamples":
    from coteach.audit.images import read_images

    if audit.embeddings is not None:
        from coteach.audit.arrays import read_embeddings
        from coteach.audit.encoded import read_images_with

        return read_images_with(audit.source, read_embeddings(audit.embeddings))
    if audit.encoder == "none":
        return read_images(audit.source, audit.size or PIXEL_SIDE, progress)
    from coteach.audit.encoded import chosen_image_encoder, note_on_encoder, read_encoded_images
    from coteach.encoders.named import image_encoder
    from coteach.engine.setup import chosen_device

    given = [name for name in OF_PIXELS if getattr(audit, name) is not None]
    if given and audit.encoder == "auto":
        return read_images(audit.source, audit.size or PIXEL_SIDE, progress)  # which these flags are about
    choice = chosen_image_encoder(audit.source, audit.encoder)
    if choice.name == "none":
        samples = read_images(audit.source, audit.size or PIXEL_SIDE, progress)
    else:
        encoder = image_encoder(choice.name, audit.size, chosen_device(audit.device))
        samples = read_encoded_images(audit.source, encoder, progress)
    return replace(samples, notes=(*samples.notes, note_on_encoder(choice, "images by their pixels")))


@contextmanager
def claimed_folder(wanted: Path | None) -> Iterator[Path]:
    """A folder to write to; what was made of it is taken away again if it stays empty."""
    there = [path for path in (wanted or DEFAULT_FOLDER).parents if path.exists()]
    was_there = wanted is not None and wanted.exists()
    folder = claim_folder(wanted, DEFAULT_FOLDER)
    try:
        with locked(folder):
            refuse_if_taken(folder)  # by another audit, which was there a moment ago
            yield folder
    except KeyboardInterrupt:
        files = ", ".join(files_in(folder))
        left = f"written to {folder}: {files}" if files else "nothing was written"
        print(f"coteach: stopped; {left}.", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        if not was_there:
            for path in (folder, *(path for path in folder.parents if path not in there)):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def print_samples(samples: "LabelledSamples") -> None:
    shape = "×".join(map(str, samples.x.shape[1:]))
    print_line(f"{len(samples):,} {samples.what} of {len(samples.counts)} classes, {shape} numbers each")
    for note in samples.notes:
        print_line(f"note: {note}")
    lines = skipped_lines(samples.skipped)
    for line in lines[:MOST_LINES]:
        print_line(f"skipped: {line}")
    if len(lines) > MOST_LINES:
        print_line(f"skipped: more for {len(lines) - MOST_LINES:,} other reasons, all named in summary.json")


def skipped_lines(skipped: "tuple[Skipped, ...]") -> list[str]:
    """One for each reason."""
    from coteach.audit.samples import printable

    by_reason: dict[str, list[str]] = {}
    for one in skipped:
        by_reason.setdefault(printable(one.why), []).append(printable(one.where))
    lines = []
    for why, places in by_reason.items():
        some, more = "; ".join(places[:MOST_NAMES]), len(places) - MOST_NAMES
        if len(places) == 1:
            lines.append(f"{some} ({why})")
        else:
            lines.append(f"{len(places):,} ({why}): {some}" + f"; {more:,} more, see summary.json" * (more > 0))
    return lines


def print_findings(summary: dict[str, Any], notes: tuple[str, ...]) -> None:
    from coteach.audit.samples import shown

    for note in notes:
        print_line(f"note: {note}")
    rate = f"{100 * summary['noise_rate']:.1f} %"
    if summary["noise_interval"] is not None:
        low, high = (100 * bound for bound in summary["noise_interval"])
        rate += f", between {low:.1f} and {high:.1f} %"
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("wrong labels, estimated" if summary["noise_rate_estimated"] else "wrong labels, as given", rate)
    table.add_row("suspects", f"{summary['suspects']:,} of {summary['samples']:,}")
    for words in odd_lines(summary["odd"]):
        table.add_row(*words)
    for pair in summary["pairs"][:5]:
        line = f"{shown(pair['given'])} → {shown(pair['suggested'])}"
        table.add_row("given → suggested", Text(f"{line}: {pair['suspects']:,}"))
    console.print(table)


def odd_lines(odd: dict[str, Any]) -> list[tuple[str, str]]:
    """What else there is to know, if there is any of it; quality.csv names the samples."""
    same, near, other = odd["same"], odd["nearly_the_same"] or 0, odd["of_them_with_another_label"]
    lines = []
    if same + near:
        lines.append(("duplicates", f"{same:,} the same, {near:,} nearly the same; {other:,} with another label"))
    if odd["of_no_class"]:
        lines.append(("far from all classes", f"{odd['of_no_class']:,}"))
    return lines


class ExpectedBar(ProgressColumn):
    """A bar that fills with time: the parts of a fit take unequal times."""

    def render(self, task: Task) -> ProgressBar:
        seconds = task.fields["seconds"]
        if seconds is None:
            return ProgressBar(total=1 if task.fields["done"] else None, completed=1, width=40)
        done = seconds if task.fields["done"] else min(task.elapsed or 0, seconds)
        return ProgressBar(total=seconds, completed=done, width=40)


class ElapsedColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        spent, seconds = duration_text(task.elapsed or 0), task.fields["seconds"]
        if task.fields["done"]:
            return Text(f"took {spent}")
        return Text(spent if seconds is None else f"{spent} of about {duration_text(seconds)}")


@contextmanager
def expected_progress(name: str, seconds: float | None) -> Iterator[Callable[[str], None]]:
    """A bar for so many seconds; without them it only shows that something goes on. It says what it hears."""
    with Progress(TextColumn("{task.description}"), ExpectedBar(), ElapsedColumn(), console=console) as progress:
        task = progress.add_task(name, total=None, seconds=seconds and max(seconds, 1e-3), done=False)
        yield lambda words: progress.update(task, description=words)
        progress.update(task, description=name, done=True)


def duration_text(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def print_line(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)
