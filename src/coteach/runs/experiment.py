"""What is to be run, as one dataclass: the command line's flags, the Python call, and config.toml.

No torch here: a mistake in a flag is found before anything heavy is loaded.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from coteach import modern, names
from coteach.checks import LARGEST_NUMBER, check_count, check_warmup_loss, is_whole, is_within, plain_number
from coteach.data import DATASETS
from coteach.fidelity import Fidelity, parse
from coteach.names import Flag
from coteach.networks import NETWORKS
from coteach.plan import WARMUP_EPOCHS, Plan, check_guesses, check_pairs
from coteach.runs.recipes import Recipe, recipe, settings_of
from coteach.schedules import usual_decay_start

IN_RUN_FOLDER = Path("in the run folder")  # where TensorBoard's files go if no folder is named for them
WIDEST = 1000  # times a network's usual width
OWN = "own"  # stands for a data set that is handed in, not loaded by its name


# Flags that go into the plan as they are.
GIVEN = (
    "batch_size", "warmup", "ramp", "keep_type", "keep_per_class", "optimizer", "lr", "loss", "estimate_epochs",
    "warmup_loss", "joint_weight", "steps_per_epoch", "decay_start", "momentum", "weight_decay", "one_cycle",
    "lookahead", "label_smoothing", "mixup", "shift", "cutout", "held_out", "strong_view", "guess_weight",
    "guess_ramp", "temperature", "memory_weight", "memory_decay", "class_balance", "confidence_penalty",
)  # fmt: skip
YES_OR_NO = (
    "nesterov",
    "decoupled_decay",
    "mirror",
    "weak_selection",
    "mixture",
)  # the same, except for the words

NOT_NEGATIVE = ("weight_decay", "mixup", "guess_weight", "memory_weight", "class_balance", "confidence_penalty")

Recipes = Literal["paper", "modern"]
Answer = Literal["yes", "no"]
Optimizers = Literal["adam", "sgd"]

Precisions = Literal["auto", "float32", "tf32", "bf16"]
Stacks = Literal["auto", "batched", "loop"]

METHOD_HELP = "Method:" + names.help_list(names.METHOD_MEANINGS)
LOSS_HELP = "Loss:" + names.help_list(names.LOSS_MEANINGS)
NOISE_HELP = "Flips of training labels:" + names.help_list(names.NOISES)
NETWORK_DEFAULT = "the paper's for the data set; fast_cnn if modern"
LEDGER_HELP = "Write no losses.jsonl and no opinions/, from which `coteach report` ranks the training labels."
LABELS_HELP = (
    "File of labels to learn from; those of the data set are then the truth. One for each training sample, "
    "in order: whole numbers from 0 or names of classes, as .npy, .txt (one a line) or .csv (one column, or one "
    "called label)."
)


@dataclass(frozen=True)
class Experiment:
    """One method on one noisy data set, with one or more seeds. The defaults follow the paper.

    Examples
    --------
    >>> experiment = coteach.Experiment(method="coteaching", noise="pair", rate=0.45, seeds=(1, 2), epochs=5)
    >>> experiment.dataset, experiment.noise_share, experiment.plan().epochs
    ('digits', 0.45, 5)
    """

    dataset: Annotated[str, Flag("NAME", "digits", f"Data set: {', '.join(DATASETS)}.")] = "digits"
    method: Annotated[str, Flag("NAME", "coteaching_plus", METHOD_HELP)] = "coteaching_plus"
    loss: Annotated[str | None, Flag("NAME", "the method's own", LOSS_HELP)] = None
    fidelity: Annotated[str, Flag("NAME", "paper")] = "paper"
    """Whose version of the method to follow: paper or authors. Switches turn parts of it: paper+softmax_twice."""
    recipe: Annotated[Recipes | None, Flag("{paper,modern}", "paper; modern for cifar10n-… and cifar100n")] = None
    """Sets the defaults: those of the paper's appendix, or for images a modern network and optimiser."""
    noise: Annotated[
        str | None, Flag("NAME", "symmetric; none if wrong labels come with the data", NOISE_HELP)
    ] = None
    rate: Annotated[float | None, Flag("X", "0.2; 0.4 of the images for openset-…")] = None
    """Share of labels to flip, from 0 to below 1."""
    matrix: Annotated[Path | None, Flag("PATH", "none")] = None
    """Text file with a transition matrix, whose rows add up to 1, for --noise matrix."""
    labels: Annotated[Path | None, Flag("FILE", "none", LABELS_HELP)] = None
    noise_seed: Annotated[int, Flag("N", "0")] = 0
    """Seed of the noise; --seeds does not change it."""
    noise_stream: Annotated[names.Streams, Flag("{1.16,1.17}", "1.16")] = "1.16"
    """NumPy whose random numbers flip labels: 1.16 (and 2.5) or 1.17 (to 2.4); they differ for pair noise."""
    tau: Annotated[float | None, Flag("X", "the true one")] = None
    """Noise rate that the method assumes, from 0 to below 1."""
    seeds: Annotated[tuple[int, ...], Flag("N [N ...]", "1")] = (1,)
    """Seeds of the random numbers in training, one run each."""
    epochs: Annotated[int | None, Flag("N", "200; 100 for openset-…, 50 for digits, 40 if modern")] = None
    """Epochs: how often each sample is learnt."""
    batch_size: Annotated[int | None, Flag("N", "128; 64 for digits; if modern 32 to 1,024")] = None
    """Samples in a mini-batch."""
    steps_per_epoch: Annotated[int | None, Flag("N", "as many as the samples fill")] = None
    """The most mini-batches in an epoch."""
    warmup: Annotated[int | None, Flag("N", "the data set's in the paper; 10 for dividemix; half if modern")] = (
        None
    )
    """Epochs before disagreement counts, and before the loss changes from --warmup-loss to --loss."""
    warmup_loss: Annotated[str | None, Flag("NAME", "that of the other epochs")] = None
    """Another loss for the warm-up: cross_entropy learns fast, a bounded --loss is robust afterwards."""
    ramp: Annotated[int | None, Flag("N", "10; three quarters of all if modern")] = None
    """E_k, the epochs over which λ falls to 1 - τ."""
    keep_type: Annotated[Literal[1, 2] | None, Flag("{1,2}", "1; 2 for openset-…")] = None
    """After the ramp λ stays (1), or falls further (2)."""
    keep_per_class: bool = False
    """Keep that share of each given class, not of all samples together: for classes of very different sizes."""
    estimate_epochs: Annotated[int | None, Flag("N", "as many as the second has")] = None
    """Epochs of f_correction's first training, from which it estimates how labels flip."""
    held_out: Annotated[float | None, Flag("X", "0, none; 0.1 for f_correction")] = None
    """Share of the samples that is not learnt; their given labels choose the epoch whose weights are kept."""
    joint_weight: Annotated[float | None, Flag("X", "0.9; 0.85 for cifar100")] = None
    """How much agreement counts in jocor's loss, from 0 to 1."""
    network: Annotated[str | None, Flag("NAME", NETWORK_DEFAULT, f"Network: {', '.join(NETWORKS)}.")] = None
    width: Annotated[float | None, Flag("X", "1; 0.25 on a CPU")] = None
    """Width of fast_cnn: 2 has twice as many channels, 0.5 half as many."""
    optimizer: Annotated[
        Literal["adam", "sgd"] | None, Flag("{adam,sgd}", "adam; sgd for openset-… or modern")
    ] = None
    """Optimiser."""
    lr: Annotated[float | None, Flag("X", "0.001; 0.005 for digits, 0.01 for openset-…; 1.5 if modern")] = None
    """Highest learning rate. The modern one is for batches of 1,024, and less for smaller ones."""
    decay_start: Annotated[int | None, Flag("N", "80; 20 for digits; openset-… and modern fall otherwise")] = None
    """Epoch from which the learning rate falls to zero, in a straight line."""
    one_cycle: Annotated[float | None, Flag("X", "0, not at all; 0.23 if modern")] = None
    """Share of all steps over which the learning rate rises to --lr; over the others it falls to zero."""
    momentum: Annotated[float | None, Flag("X", "0.9; 0.85 if modern")] = None
    """Momentum of sgd, from 0 to below 1."""
    nesterov: Annotated[Answer | None, Flag("{yes,no}", "no; yes if modern")] = None
    """Nesterov's form of that momentum."""
    weight_decay: Annotated[float | None, Flag("X", "0; 0.0001 for openset-…, 0.009 if modern")] = None
    """Weight decay."""
    decoupled_decay: Annotated[Answer | None, Flag("{yes,no}", "no; yes if modern")] = None
    """Whether weights decay apart from their gradients, by the learning rate times --weight-decay."""
    lookahead: Annotated[int | None, Flag("N", "0, never; 5 if modern")] = None
    """Steps after which weights return to a moving average of themselves, each time and after each epoch."""
    mirror: Annotated[Answer | None, Flag("{yes,no}", "no; yes for coloured images if modern")] = None
    """Mirror half of the images; fast_cnn is then tested on both. Not for digits and letters."""
    shift: Annotated[int | None, Flag("N", "0; a sixteenth of the image if modern")] = None
    """Pixels by which images are shifted at most, each way."""
    cutout: Annotated[int | None, Flag("N", "0; a quarter of the image if modern")] = None
    """Side of the square that is blanked in each image, in pixels."""
    weak_selection: Annotated[Answer | None, Flag("{yes,no}", "no")] = None
    """Compare losses on uncut images, and learn from cut ones; a third slower."""
    strong_view: Annotated[int | None, Flag("N", "0, none")] = None
    """Learn each image after N random changes of colour and shape; compare losses without them."""
    mixture: Annotated[Answer | None, Flag("{yes,no}", "no")] = None
    """After the warm-up, tell right labels by two Gaussians over all losses, not by the share λ of small ones."""
    guess_weight: Annotated[float | None, Flag("X", "0; 25 for dividemix")] = None
    """After the warm-up, weight of guessed classes for the samples that are not picked."""
    guess_ramp: Annotated[int | None, Flag("N", "0, at once; 16 for dividemix")] = None
    """Epochs over which that weight rises from zero."""
    temperature: Annotated[float | None, Flag("X", "0.5")] = None
    """Guesses are sharpened by the power 1/X; 1 leaves them as they are."""
    memory_weight: Annotated[float | None, Flag("X", "0, not at all")] = None
    """λ of ELR: how much a network is held to what it thought of a sample before."""
    memory_decay: Annotated[float | None, Flag("X", "0.7")] = None
    """β of ELR: how much of that memory remains after each epoch."""
    class_balance: Annotated[float | None, Flag("X", "0, not at all; 1 for dividemix")] = None
    """Weight of a penalty on predicting some classes more often than others; for classes of equal sizes."""
    confidence_penalty: Annotated[float | None, Flag("X", "0, not at all")] = None
    """Weight of negative entropy in dividemix's warm-up: 1 is for classes confused with certain others."""
    mixup: Annotated[float | None, Flag("X", "0, not at all; 4 for dividemix")] = None
    """α: learn mixtures of two kept samples, with shares drawn from Beta(α, α); a third slower."""
    label_smoothing: Annotated[float | None, Flag("X", "0")] = None
    """Share of a label that is spread over all classes when it is learnt."""
    device: Annotated[str, Flag("NAME", "auto, a GPU if there is one")] = "auto"
    """Where to train: auto, cpu, cuda or cuda:1."""
    precision: Annotated[
        Precisions, Flag("NAME", "on a GPU tf32 for convolutions; bf16 for fast_cnn where that is faster")
    ] = "auto"
    """Precision of the matrix products: float32, tf32 or bf16; weights stay in float32."""
    stack: Stacks = "auto"
    """batched trains all networks in one call, loop one after the other; auto takes the faster."""
    compile: Annotated[Literal["auto", "yes", "no"], Flag("{yes,no}", "yes for a long training on a GPU")] = "auto"
    """Whether torch.compile fuses the kernels of a step, which takes half a minute."""
    group: Annotated[int | None, Flag("N", "as many as fit into memory")] = None
    """How many runs are trained at the same time."""
    ledger: Annotated[bool, Flag("", "both are written", LEDGER_HELP)] = True
    """Keep what the networks thought of each training label, for `coteach report`: losses.jsonl and opinions/."""
    deterministic: bool = False
    """On a GPU: exactly the same results every time, at some cost in speed."""
    data_dir: Annotated[Path | None, Flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the downloaded data files."""
    out: Annotated[Path | None, Flag("PATH", "runs/DATASET-METHOD-NOISE-…")] = None
    """Run folder to write to; must be new or empty."""
    resume: Annotated[Path | None, Flag("PATH", "none")] = None
    """Continue the stopped run in this folder, with its settings."""
    tensorboard: Annotated[
        Path | None, Flag("[PATH]", "no; without a path, in the run folder", alone=str(IN_RUN_FOLDER))
    ] = None
    """Also write the numbers of each epoch for TensorBoard."""

    def __post_init__(self) -> None:
        for name in ("out", "data_dir", "matrix", "labels", "resume", "tensorboard"):
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
            ("optimizer", self.optimizer, get_args(Optimizers)),
            ("precision", self.precision, get_args(Precisions)),
            ("stack", self.stack, get_args(Stacks)),
            ("noise_stream", self.noise_stream, get_args(names.Streams)),
            ("answer to compile", self.compile, ("auto", "yes", "no")),
            ("recipe", self.recipe, get_args(Recipes)),
            *((f"answer to {name}", getattr(self, name), get_args(Answer)) for name in YES_OR_NO),
        ):
            if name is not None:
                names.check_name(what, name, all_names)
        parse(self.fidelity)
        self._check_numbers()
        self._check_pairs()
        self._check_noise()
        check_warmup_loss(self.method, self.loss, self.warmup_loss, self.plan().warmup)

    def _check_numbers(self) -> None:
        for name, called in (("rate", "rate"), ("tau", "tau (the noise rate)")):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and 0 <= float(value) < 1):
                raise ValueError(
                    f"{called} is {value}, but a share of labels lies from 0 to below 1: give 0.2 for 20 %."
                )
        weight = self.joint_weight
        if weight is not None and not (isinstance(weight, Real) and 0 <= float(weight) <= 1):
            raise ValueError(f"joint_weight is {weight}: give a share from 0 to 1, such as 0.9.")
        for name in ("momentum", "one_cycle", "label_smoothing", "held_out", "memory_decay"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and 0 <= float(value) < 1):
                raise ValueError(f"{name} is {value}: give a share from 0 to below 1.")
        for name in NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not is_within(value, LARGEST_NUMBER):
                raise ValueError(f"{name} is {value}: give a number from 0 to {LARGEST_NUMBER:g}.")
        if self.temperature is not None and not (
            is_within(self.temperature, LARGEST_NUMBER) and self.temperature > 0
        ):
            raise ValueError(f"temperature is {self.temperature}: give a number above 0, such as 0.5.")
        if self.width is not None and not (is_within(self.width, WIDEST) and self.width > 0):
            raise ValueError(f"width is {self.width}: give a number above 0, such as 0.5.")
        if self.width is not None and self.network_name != modern.MODERN_NETWORK:
            raise ValueError(f"{self.network_name} has one width only: leave --width out, or take fast_cnn.")
        least = {"epochs": 1, "batch_size": 1, "ramp": 1, "estimate_epochs": 1, "group": 1, "steps_per_epoch": 1}
        least |= {"decay_start": 1, "warmup": 0, "lookahead": 0, "shift": 0, "cutout": 0}
        least |= {"strong_view": 0, "guess_ramp": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, lowest)
        if not (is_whole(self.noise_seed) and 0 <= self.noise_seed < 2**32):
            raise ValueError(f"noise_seed is {self.noise_seed}: give a whole number from 0 to 2**32 - 1.")
        if self.keep_type not in (None, 1, 2):
            raise ValueError(f"keep_type is {self.keep_type}: give 1 or 2.")
        if self.lr is not None and not (is_within(self.lr, LARGEST_NUMBER) and self.lr > 0):
            raise ValueError(f"lr is {self.lr}: give a learning rate above 0, such as 0.001.")
        if not (isinstance(self.seeds, tuple) and self.seeds and all(map(is_whole, self.seeds))):
            raise ValueError(f"seeds are {self.seeds!r}: give one or more whole numbers, such as --seeds 1 2 3.")
        if max(map(abs, self.seeds)) >= 2**63:
            raise ValueError(f"seeds are {self.seeds!r}: give numbers below 2**63, such as --seeds 1 2 3.")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"the seeds {self.seeds} repeat, and equal seeds give equal runs: give each only once."
            )

    def _check_pairs(self) -> None:
        """Refuse what would do nothing without something else."""
        plan = self.plan()
        if (self.nesterov == "yes" or self.momentum is not None) and plan.optimizer != "sgd":
            name = "momentum" if self.nesterov != "yes" else "nesterov"
            raise ValueError(f"{name} belongs to sgd: leave it out, or give --optimizer sgd.")
        if self.held_out and self.method == "iterative":
            raise ValueError("iterative learns from all samples in rounds: leave --held-out out.")
        check_guesses(self.method, plan)
        check_pairs(plan, decoupled=self.decoupled_decay == "yes")
        if self.one_cycle and self.decay_start is not None:
            raise ValueError("one_cycle and decay_start both move the learning rate: give one of them.")

    def _check_noise(self) -> None:
        if (self.noise == "matrix") != (self.matrix is not None):
            raise ValueError("noise matrix and a matrix file go together: give both, or neither.")
        if self.usual.own_noise is not None and self.noise not in (None, "none"):
            raise ValueError(f"{self.dataset} comes with its own noise: leave --noise out; --rate sets its share.")
        if not isinstance(self.labels, Path | None):
            raise ValueError(
                "labels are not the name of a file: hand arrays in with Dataset.from_arrays(…, given=labels)."
            )
        if self.labels is not None and (self.usual.own_noise is not None or self.comes_labelled):
            raise ValueError(f"{self.dataset} comes with its own wrong labels: leave --labels out.")
        if (self.labels is not None or self.comes_labelled) and self.noise not in (None, "none"):
            whose = self.dataset if self.labels is None else self.labels
            raise ValueError(f"the labels of {whose} are learnt from as they are: leave --noise out.")
        if self.rate and self.usual.own_noise is None and self.noise_kind in ("none", "matrix"):
            raise ValueError(f"noise {self.noise_kind} has no rate to set: leave --rate out.")

    @property
    def usual(self) -> Recipe:
        """What the paper, or its authors, have for the data set."""
        return recipe(self.dataset, self.parsed_fidelity, self.method)

    @property
    def is_modern(self) -> bool:
        """Whether what is left out is as of today; the paper has no recipe for labels that people gave."""
        return self.comes_labelled if self.recipe is None else self.recipe == "modern"

    @property
    def parsed_fidelity(self) -> Fidelity:
        """The switches, each on or off."""
        return parse(self.fidelity)

    @property
    def loss_words(self) -> str:
        """What is to be said of the loss, if anything: 'gce', or 'gce after cross_entropy', as the warm-up has."""
        return " ".join([self.loss or "", f"after {self.warmup_loss}" if self.warmup_loss else ""]).strip()

    @property
    def augment(self) -> str | None:
        """Crops that belong to the data set's own recipe."""
        return None if self.is_modern else self.usual.augment

    @property
    def network_name(self) -> str:
        """The one that is asked for, else the data set's."""
        return self.network or (modern.MODERN_NETWORK if self.is_modern else self.usual.network)

    @property
    def comes_labelled(self) -> bool:
        """Whether people's labels come with the data set of this name."""
        return self.dataset in DATASETS and DATASETS[self.dataset].given

    @property
    def noise_kind(self) -> str:
        """What is put on the labels here: nothing where noise or labels come with the data, or in a file."""
        if self.usual.own_noise is not None or self.comes_labelled or self.labels is not None:
            return "none"
        return self.noise or ("none" if self.dataset == OWN else "symmetric")

    @property
    def noise_name(self) -> str:
        """What the wrong labels, or samples, are called in files of results."""
        if self.usual.own_noise is not None:
            return "openset"
        return "human" if self.comes_labelled else "given" if self.labels is not None else self.noise_kind

    @property
    def noise_share(self) -> float | None:
        """The share of wrong samples that is asked for; a matrix says it by itself."""
        if self.usual.own_noise is not None:
            return self.usual.own_noise if self.rate is None else self.rate
        if self.noise_kind in ("none", "matrix"):
            return None
        return 0.2 if self.rate is None else self.rate

    def plan(self) -> Plan:
        """What a training follows, with all that was left out filled in."""
        return self.plan_and_notes()[0]

    def plan_and_notes(self) -> tuple[Plan, list[str]]:
        """The plan, and a sentence on the defaults that had to shrink to fit the epochs, if any."""
        recipe, fidelity = self.usual, self.parsed_fidelity
        usual_epochs = modern.MODERN_EPOCHS if self.is_modern else recipe.epochs
        epochs = self.epochs or usual_epochs - fidelity.epoch_short
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
        of_method = settings_of(self.method, self.dataset)
        of_recipe = recipe.plan | of_method
        if self.is_modern:
            of_recipe = of_method | modern.modern_plan(epochs, self.batch_size or modern.LARGEST_BATCH)
            if self.method == "dividemix" or self.mixture == "yes":
                of_recipe |= {"warmup": modern.mixture_warmup(epochs)}
            if self.optimizer == "adam":
                of_recipe |= {"lr": 0.001, "nesterov": False}
            if self.one_cycle == 0:  # not otherwise: with the authors, Adam's momentum drops there, too
                of_recipe |= {"decay_start": usual_decay_start(epochs)}
        of_recipe |= {"held_out": names.HELD_OUT.get(self.method, 0.0)}
        usual = Plan(fidelity=fidelity, epochs=epochs, **of_recipe)
        if fidelity.warmup_short and "warmup" not in of_method:
            usual = replace(usual, warmup=max(usual.warmup - 1, 0))
        if self.mixture == "yes" and not usual.warmup:
            usual = replace(usual, warmup=min(WARMUP_EPOCHS, modern.mixture_warmup(epochs)))
        given: dict[str, Any] = {name: getattr(self, name) for name in GIVEN if getattr(self, name) is not None}
        given |= {name: getattr(self, name) == "yes" for name in YES_OR_NO if getattr(self, name) is not None}
        if self.decay_start is not None:
            given["milestones"] = ()
            given.setdefault("one_cycle", 0.0)
        return shrunk(replace(usual, **given), epochs / usual_epochs, given)


def shrunk(plan: Plan, share: float, given: Collection[str] = ()) -> tuple[Plan, list[str]]:
    """A plan whose landmarks lie inside its epochs: others are moved in proportion, and a note names them.

    A decay that the user begins after the last epoch never begins.
    """
    changes: dict[str, Any] = {}
    if plan.milestones and plan.milestones[-1] >= plan.epochs:
        changes["milestones"] = tuple(max(1, round(m * share)) for m in plan.milestones)
    by_epochs = not plan.milestones and not plan.one_cycle
    if by_epochs and "decay_start" not in given and plan.decay_start >= plan.epochs:
        changes["decay_start"] = max(1, round(plan.decay_start * share))
    if plan.ramp > plan.epochs:
        changes["ramp"] = max(1, round(plan.ramp * share))
    if plan.warmup >= plan.epochs:
        changes["warmup"] = min(max(1, round(plan.warmup * share)), plan.epochs - 1)
    changes = {name: value for name, value in changes.items() if value != getattr(plan, name)}
    all_of_them = f"{plan.epochs} epochs" if plan.epochs > 1 else "a single epoch"
    what = ", ".join(f"{name} from {getattr(plan, name)} to {value}" for name, value in changes.items())
    return replace(plan, **changes), [f"to fit {all_of_them}, these defaults shrink: {what}"] if changes else []


def differing_fields(one: Experiment, other: Experiment) -> set[str]:
    return {f.name for f in fields(Experiment) if getattr(one, f.name) != getattr(other, f.name)}
