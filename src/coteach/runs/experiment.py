"""What is to be run, as one dataclass: the command line's flags, the Python call, and config.toml.

No torch here: a mistake in a flag is told before anything heavy is loaded.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from coteach import names
from coteach.checks import check_warmup_loss, is_whole, plain_number
from coteach.data import DATASETS
from coteach.fidelity import Fidelity, parse
from coteach.names import Flag
from coteach.networks import NETWORKS
from coteach.plan import Plan
from coteach.runs.recipes import Recipe, recipe

IN_RUN_FOLDER = Path("in the run folder")  # where TensorBoard's files go if no folder is named for them
OWN = "own"  # stands for a data set that is handed in, not loaded by its name


# Flags that go into the plan as they are.
GIVEN = (
    "batch_size", "warmup", "ramp", "keep_type", "keep_per_class", "optimizer", "lr", "loss", "estimate_epochs",
    "warmup_loss", "joint_weight", "steps_per_epoch", "decay_start",
)  # fmt: skip

Precisions = Literal["auto", "float32", "tf32", "bf16"]
Stacks = Literal["auto", "batched", "loop"]

METHOD_HELP = "Rule:" + names.help_list(names.METHOD_MEANINGS)
LOSS_HELP = "Loss:" + names.help_list(names.LOSS_MEANINGS)
NOISE_HELP = "Flips of training labels:" + names.help_list(names.NOISES)


@dataclass(frozen=True)
class Experiment:
    """One method on one noisy data set, with one or more seeds. What is left out follows the paper.

    Examples
    --------
    >>> experiment = coteach.Experiment(method="coteaching", noise="pair", rate=0.45, seeds=(1, 2), epochs=5)
    >>> experiment.dataset, experiment.noise_share, experiment.plan().epochs
    ('digits', 0.45, 5)
    """

    dataset: Annotated[str, Flag("NAME", "digits")] = "digits"
    """Data set: digits, mnist, fashion-mnist, cifar10, cifar100, news, tiny-imagenet or openset-…"""
    method: Annotated[str, Flag("NAME", "coteaching_plus", METHOD_HELP)] = "coteaching_plus"
    loss: Annotated[str | None, Flag("NAME", "the method's own", LOSS_HELP)] = None
    fidelity: str = "paper"
    """paper, authors, or one with switches turned: paper+softmax_twice, authors-beta1_drop."""
    noise: Annotated[str | None, Flag("NAME", "symmetric; none on your own data and openset-…", NOISE_HELP)] = None
    rate: Annotated[float | None, Flag("X", "0.2; 0.4 of the images for openset-…")] = None
    """Share of labels to flip, from 0 to below 1."""
    matrix: Annotated[Path | None, Flag("PATH", "none")] = None
    """Text file with a row-stochastic matrix Q, for noise matrix."""
    noise_seed: Annotated[int, Flag("N", "0")] = 0
    """Seed of the noise, apart from the networks'."""
    noise_stream: Annotated[names.Streams, Flag("{1.16,1.17}", "1.16")] = "1.16"
    """NumPy whose draws flip labels: 1.16 (as results/; 2.5 too) or 1.17 (to 2.4); pair noise differs."""
    tau: Annotated[float | None, Flag("X", "the true one")] = None
    """Noise rate that the method is told, from 0 to below 1."""
    seeds: Annotated[tuple[int, ...], Flag("N [N ...]", "1")] = (1,)
    """Seeds of the networks and of the batches, one run each."""
    epochs: Annotated[int | None, Flag("N", "200; 100 for openset-…, 50 for digits")] = None
    """Epochs: how often every sample is learnt from."""
    batch_size: Annotated[int | None, Flag("N", "128; 64 for digits")] = None
    """Samples of a mini-batch."""
    steps_per_epoch: Annotated[int | None, Flag("N", "as many as the samples fill")] = None
    """Mini-batches of an epoch at most."""
    warmup: Annotated[int | None, Flag("N", "the data set's in the paper's appendix")] = None
    """Epochs before disagreement counts, or the loss of any rule changes from --warmup-loss to --loss."""
    warmup_loss: Annotated[str | None, Flag("NAME", "that of the other epochs")] = None
    """Loss of the warm-up, if another: cross_entropy learns fast, a bounded --loss then stays robust."""
    ramp: Annotated[int | None, Flag("N", "10")] = None
    """E_k, the epochs over which λ falls to 1 - τ."""
    keep_type: Annotated[Literal[1, 2] | None, Flag("{1,2}", "1; 2 for openset-…")] = None
    """λ of type 1 (stays) or 2 (goes on falling)."""
    keep_per_class: bool = False
    """Keep that share of each given class, not of all samples together: for classes of very different sizes."""
    estimate_epochs: Annotated[int | None, Flag("N", "as many as the second has")] = None
    """Epochs of f_correction's first training, from which it estimates how labels flip."""
    joint_weight: Annotated[float | None, Flag("X", "0.9; 0.85 for cifar100")] = None
    """How much agreement counts in jocor's loss, from 0 to 1."""
    network: Annotated[str | None, Flag("NAME", "the paper's for the data set", ", ".join(NETWORKS) + ".")] = None
    optimizer: Annotated[Literal["adam", "sgd"] | None, Flag("{adam,sgd}", "adam; sgd for openset-…")] = None
    """Optimiser."""
    lr: Annotated[float | None, Flag("X", "0.001; 0.005 for digits, 0.01 for openset-…")] = None
    """Learning rate at the start."""
    decay_start: Annotated[int | None, Flag("N", "80; 20 for digits, in two steps for openset-…")] = None
    """Epoch from which the learning rate falls to zero, in a straight line."""
    device: Annotated[str, Flag("NAME", "auto, a GPU if there is one")] = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Annotated[Precisions, Flag("NAME", "tf32 for convolutions on a GPU, else float32")] = "auto"
    """Precision of the networks' products: float32, tf32 or bf16; weights stay in float32."""
    stack: Stacks = "auto"
    """All networks in one batched call, or one after the other; auto takes the faster."""
    compile: Annotated[Literal["auto", "yes", "no"], Flag("{yes,no}", "yes for a long training on a GPU")] = "auto"
    """Whether torch.compile fuses the kernels of a step, which takes half a minute."""
    group: Annotated[int | None, Flag("N", "as many as fit into memory")] = None
    """Runs that are trained at the same time."""
    ledger: bool = True
    """Keep what the networks thought of each training label, for `coteach report`: losses.jsonl and opinions/."""
    deterministic: bool = False
    """On a GPU: the same bytes every time, at some cost in speed."""
    data_dir: Annotated[Path | None, Flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the published data files."""
    out: Annotated[Path | None, Flag("PATH", "runs/DATASET-METHOD-NOISE-…")] = None
    """Run folder to write; must be new or empty."""
    resume: Annotated[Path | None, Flag("PATH", "none")] = None
    """Folder of a run that was stopped, to go on with; its settings are taken from there."""
    tensorboard: Annotated[Path | None, Flag("[PATH]", "none; without a path, in the run folder")] = None
    """Write the numbers of each epoch for TensorBoard, too."""

    def __post_init__(self) -> None:
        for name in ("out", "data_dir", "matrix", "resume", "tensorboard"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        if isinstance(self.seeds, (list, tuple)):
            object.__setattr__(self, "seeds", tuple(map(plain_number, self.seeds)))
        for f in fields(self):
            object.__setattr__(self, f.name, plain_number(getattr(self, f.name)))

    def check(self) -> None:
        """Raise a ValueError for whatever can be seen to be wrong without the data."""
        names.check_name("method", self.method, names.METHOD_MEANINGS)
        if self.network is not None and not isinstance(self.network, str):
            raise ValueError(
                f"network is {self.network!r}, but an experiment names it: "
                "make yours known with coteach.register_network(name, build), and give that name."
            )
        if self.dataset != OWN:
            names.check_name("data set", self.dataset, DATASETS)
        for what, name, all_names in (
            ("kind of noise", self.noise, names.NOISES),
            ("loss", self.loss, names.LOSS_MEANINGS),
            ("loss", self.warmup_loss, names.LOSS_MEANINGS),
            ("network", self.network, NETWORKS),
            ("optimizer", self.optimizer, ("adam", "sgd")),
            ("precision", self.precision, get_args(Precisions)),
            ("stack", self.stack, get_args(Stacks)),
            ("noise_stream", self.noise_stream, get_args(names.Streams)),
            ("answer to compile", self.compile, ("auto", "yes", "no")),
        ):
            if name is not None:
                names.check_name(what, name, all_names)
        parse(self.fidelity)
        self._check_numbers()
        self._check_noise()
        check_warmup_loss(self.method, self.loss, self.warmup_loss, self.plan().warmup)

    def _check_numbers(self) -> None:
        for name in ("rate", "tau"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and 0 <= float(value) < 1):
                raise ValueError(
                    f"{name} is {value}, but a share of labels lies from 0 to below 1: give 0.2 for 20 %."
                )
        weight = self.joint_weight
        if weight is not None and not (isinstance(weight, Real) and 0 <= float(weight) <= 1):
            raise ValueError(f"joint_weight is {weight}: give a share from 0 to 1, such as 0.9.")
        least = {"epochs": 1, "batch_size": 1, "ramp": 1, "estimate_epochs": 1, "group": 1, "steps_per_epoch": 1}
        least |= {"decay_start": 1, "warmup": 0, "noise_seed": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= lowest):
                raise ValueError(f"{name} is {value}: give a whole number of at least {lowest}.")
        if self.keep_type not in (None, 1, 2):
            raise ValueError(f"keep_type is {self.keep_type}: give 1 or 2.")
        if self.lr is not None and not (isinstance(self.lr, Real) and 0 < float(self.lr) < float("inf")):
            raise ValueError(f"lr is {self.lr}: give a learning rate above 0, such as 0.001.")
        if not (isinstance(self.seeds, tuple) and self.seeds and all(map(is_whole, self.seeds))):
            raise ValueError(f"seeds are {self.seeds!r}: give one or more whole numbers, such as --seeds 1 2 3.")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"the seeds {self.seeds} repeat, and equal seeds give equal runs: give each only once."
            )

    def _check_noise(self) -> None:
        if (self.noise == "matrix") != (self.matrix is not None):
            raise ValueError("noise matrix and a matrix file go together: give both, or neither.")
        if self.recipe.own_noise is not None and self.noise not in (None, "none"):
            raise ValueError(f"{self.dataset} comes with its own noise: leave --noise out; --rate sets its share.")
        if self.rate and self.recipe.own_noise is None and self.noise_kind in ("none", "matrix"):
            raise ValueError(f"noise {self.noise_kind} has no rate to set: leave --rate out.")

    @property
    def recipe(self) -> Recipe:
        """What the paper, or its authors, have for the data set."""
        return recipe(self.dataset, self.parsed_fidelity, self.method)

    @property
    def parsed_fidelity(self) -> Fidelity:
        """The sixteen switches, each on or off."""
        return parse(self.fidelity)

    @property
    def loss_words(self) -> str:
        """What is to be said of the loss, if anything: 'gce', or 'gce after cross_entropy', as the warm-up has."""
        return " ".join([self.loss or "", f"after {self.warmup_loss}" if self.warmup_loss else ""]).strip()

    @property
    def network_name(self) -> str:
        """The one that is asked for, else the data set's."""
        return self.network or self.recipe.network

    @property
    def noise_kind(self) -> str:
        """Open-sets come with their own noise, and a user's own data with whatever they have."""
        if self.recipe.own_noise is not None:
            return "none"
        return self.noise or ("none" if self.dataset == OWN else "symmetric")

    @property
    def noise_share(self) -> float | None:
        """The share of wrong samples that is asked for; a matrix says it by itself."""
        if self.recipe.own_noise is not None:
            return self.recipe.own_noise if self.rate is None else self.rate
        if self.noise_kind in ("none", "matrix"):
            return None
        return 0.2 if self.rate is None else self.rate

    @property
    def truth_is_known(self) -> bool:
        """Not of a user's own labels, which are taken as they are, unless noise is put on them here."""
        return self.dataset != OWN or self.noise_kind != "none"

    def plan(self) -> Plan:
        """What a training follows, with all that was left out filled in."""
        return self.plan_and_notes()[0]

    def plan_and_notes(self) -> tuple[Plan, list[str]]:
        """The plan, and a sentence for each default that had to shrink to fit the epochs."""
        recipe, fidelity = self.recipe, self.parsed_fidelity
        epochs = self.epochs or recipe.epochs - fidelity.epoch_short
        if self.ramp is not None and self.ramp > epochs:
            raise ValueError(
                f"ramp is {self.ramp} but there are only {epochs} epochs: give a ramp of at most {epochs}."
            )
        if self.estimate_epochs is not None and self.estimate_epochs > epochs:
            raise ValueError(
                f"estimate_epochs is {self.estimate_epochs} of only {epochs} epochs: give at most {epochs}."
            )
        if self.warmup and self.warmup >= epochs:
            raise ValueError(
                f"a warm-up of {self.warmup} leaves none of the {epochs} epochs: give at most {epochs - 1}."
            )
        usual = Plan(fidelity=fidelity, epochs=epochs, **recipe.plan)
        if fidelity.warmup_short:
            usual = replace(usual, warmup=max(usual.warmup - 1, 0))
        given: dict[str, Any] = {name: getattr(self, name) for name in GIVEN if getattr(self, name) is not None}
        if self.decay_start is not None:
            given["milestones"] = ()
        return shrunk(replace(usual, **given), epochs / recipe.epochs, given)


def shrunk(plan: Plan, share: float, given: Collection[str] = ()) -> tuple[Plan, list[str]]:
    """A plan whose landmarks lie inside its epochs: those that do not are moved in proportion, and named.

    A decay that the user begins after the last epoch never begins.
    """
    changes: dict[str, Any] = {}
    if plan.milestones and plan.milestones[-1] >= plan.epochs:
        changes["milestones"] = tuple(max(1, round(m * share)) for m in plan.milestones)
    if not plan.milestones and "decay_start" not in given and plan.decay_start >= plan.epochs:
        changes["decay_start"] = max(1, round(plan.decay_start * share))
    if plan.ramp > plan.epochs:
        changes["ramp"] = max(1, round(plan.ramp * share))
    if plan.warmup >= plan.epochs:
        changes["warmup"] = min(max(1, round(plan.warmup * share)), plan.epochs - 1)
    notes = [
        f"{name} shrinks from {getattr(plan, name)} to {value}, to fit {plan.epochs} epochs"
        for name, value in changes.items()
    ]
    return replace(plan, **changes), notes


def differing_fields(one: Experiment, other: Experiment) -> set[str]:
    return {f.name for f in fields(Experiment) if getattr(one, f.name) != getattr(other, f.name)}
