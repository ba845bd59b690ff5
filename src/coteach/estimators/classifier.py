"""A scikit-learn classifier that survives wrong labels: a thin shell around `train.fit`, which writes no files.

M samples, C classes.
"""

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import (
    Tags,  # pyrefly: ignore[missing-module-attribute]
    check_random_state,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)
from torch import Tensor, nn

from coteach import networks
from coteach.data.features import check_finite
from coteach.engine import Engine
from coteach.engine.batches import half_views, same_view
from coteach.engine.stream import Stream
from coteach.estimators.files import read_file, take_weights, weights_of, write_file
from coteach.estimators.modules import accepted_facts, default_network, reinitialised
from coteach.estimators.samples import channels_first, dense, on_host
from coteach.fidelity import parse
from coteach.labels.estimate import estimate_noise, out_of_sample
from coteach.labels.ledger import Suspects, suspects
from coteach.methods import METHODS, Method
from coteach.names import LOSSES, check_name
from coteach.plan import Plan
from coteach.runs.choices import choose_engine, choose_threads
from coteach.runs.experiment import Experiment, is_whole, pythons_own
from coteach.runs.setup import chosen_device, placed, refuse_batches_of_one, torch_set
from coteach.train import Epoch, Problem, fit

ROUTED = ("module__", "optimizer__")
OPTIMIZER_OPTIONS = {"adam": ("weight_decay",), "sgd": ("weight_decay", "momentum")}
# These two need what `fit` is not told: the true flip matrix, and rounds over images of no class.
ELSEWHERE = ("f_correction_known", "iterative")
# Without a test set these rows of an epoch say nothing.
UNKNOWN = (
    "seed", "test_accuracy", "ensemble_accuracy", "total_variation", "label_precision", "label_recall",
)  # fmt: skip
FOLDS = 5
MOST_NOISE = 0.95  # that a method is told: it must keep something
STEPS_OF_AN_EPOCH = 16  # at least, for few samples
SMALLEST_BATCH = 8
SAVED = ("n_features_in_", "sample_shape_", "noise_rate_", "method_", "history_")  # as JSON
AT_ONCE = 2**22  # numbers of the samples that are predicted together


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """Train one or two networks on labels of which some are wrong.

    Parameters
    ----------
    method : str
        A name in `coteach.METHODS`.
    loss : str, optional
        A name in `coteach.LOSSES`; by default the method's own.
    module : None, str, class, factory or torch.nn.Module
        None: an MLP for tables and small images, a CNN for images of 32×32, a ResNet from 64×64 on. A name in
        `coteach.networks.NETWORKS`. A class or factory is called with those of `n_features`, `n_inputs`,
        `n_classes`, `n_outputs`, `shape` and `channels` that it has arguments for. Of an instance every network
        is a copy with new initial weights, apart from frozen layers. Its input are float32 samples as `inputs`
        returns them, its output logits.
    noise_rate : float or "auto"
        The share of wrong labels, as the method is to believe it. "auto" estimates it first, which takes about
        twice as long as the training itself.
    epochs : int
    batch_size : int, optional
        By default 128, and less where there are so few samples that an epoch would have under 16 steps.
    lr : float
        Learning rate; it falls linearly over the last three fifths of the epochs.
    optimizer : {"adam", "sgd"}
    warmup : int, optional
        Epochs before disagreement counts; by default a fifth of all, at least one. In Co-training the epochs on
        the given labels, by default three quarters.
    ramp : int, optional
        Epochs until the full share of labels is left out; by default 10, at most half of all.
    keep_per_class : bool
        Leave out the same share of each class, not of all samples together: for classes of very different sizes.
    standardize : bool
        Give each feature, or channel of images, mean 0 and variance 1; what is subtracted and divided by comes
        from the training set.
    device : str
        "auto", "cpu", "cuda" or "cuda:1".
    random_state : int, RandomState or None
        The same integer gives the same networks, on a CPU to the last bit.
    verbose : int
        Above 0: a progress bar.
    warm_start : bool
        Another `fit` goes on with the networks there are, for `epochs` more.
    **module__and_optimizer__
        `module__hidden=(64,)` goes to the module as `hidden`; `optimizer__weight_decay` and, for SGD,
        `optimizer__momentum` to the optimiser.

    Attributes
    ----------
    classes_ : array of shape (C,)
    networks_ : list of torch.nn.Module
        In evaluation mode, on the CPU; their input is `inputs(X)`. In Co-training each sees one half of it.
    history_ : list of dict
        What each epoch ended with: training loss, disagreement, share kept, what went wrong.
    noise_rate_ : float
        As the method was told.
    noise_estimate_ : NoiseEstimate
        With "auto": the rate with its interval, the rate of each class, and the transition matrix.
    label_quality_ : array of shape (M,)
        How far each training label can be trusted, from 0 (wrong, in the eyes of the networks) to 1.
    given_labels_, suggested_labels_ : arrays of shape (M,)
        The training labels, and for each the likeliest class that it is not.
    n_features_in_ : int
        The length of the second axis of X, as scikit-learn counts.
    sample_shape_ : tuple of int
        Shape of one sample as the networks take it.
    """

    def __init__(
        self,
        method: str = "coteaching",
        loss: str | None = None,
        module: Any = None,
        noise_rate: float | str = "auto",
        epochs: int = 20,
        batch_size: int | None = None,
        lr: float = 0.001,
        optimizer: str = "adam",
        warmup: int | None = None,
        ramp: int | None = None,
        keep_per_class: bool = False,
        standardize: bool = True,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        **module__and_optimizer__: Any,  # named so that scikit-learn, which tries every name, finds a fair one
    ):
        self.method = method
        self.loss = loss
        self.module = module
        self.noise_rate = noise_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.warmup = warmup
        self.ramp = ramp
        self.keep_per_class = keep_per_class
        self.standardize = standardize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        for name in module__and_optimizer__:
            if not name.startswith(ROUTED):
                raise TypeError(f"RobustClassifier has no parameter {name!r}; the module's begin with 'module__'.")
        self._options = module__and_optimizer__

    # ---- parameters -------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All arguments, those routed to the module and the optimiser included."""
        return super().get_params(deep) | self._options

    def set_params(self, **params: Any) -> Self:
        """Set arguments by name; `module__…` and `optimizer__…` need not have been given before."""
        options = {name: value for name, value in params.items() if name.startswith(ROUTED)}
        super().set_params(**{name: value for name, value in params.items() if name not in options})
        self._options = self._options | options
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags

    def _routed(self, prefix: str) -> dict[str, Any]:
        return {n.removeprefix(prefix): v for n, v in self._options.items() if n.startswith(prefix)}

    # ---- fit --------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like of shape (M, F), (M, H, W), (M, H, W, channels) or (M, channels, H, W)
            Table or images: NumPy, pandas, torch or nested lists, but not sparse. Later X have the same layout.
        y : array-like of shape (M,)
            Given labels: integers, strings or whatever else scikit-learn takes for classes.
        """
        self._check_arguments()
        before = self._fitted_shape() if self.warm_start else None
        x, y = validate_data(self, dense(X), on_host(y), allow_nd=True, dtype=[np.float64, np.float32, np.uint8])
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError("y has one class only: a classifier needs samples of at least two.")
        x = channels_first(x)
        if before not in (None, (x.shape[1:], classes.tolist())):
            raise ValueError("warm_start goes on with the same features and classes: set it to False for others.")
        self.classes_, self.sample_shape_ = classes, x.shape[1:]
        self._check_views()
        if before is None:
            self._learn_scale(x)
        self._train(self._scaled(x), torch.from_numpy(labels.astype(np.int64)), going_on=before is not None)
        return self

    def _train(self, x_M: Tensor, y_M: Tensor, going_on: bool) -> None:
        history = list(self.history_) if going_on else []
        device, method, plan = chosen_device(self.device), METHODS[self.method], self._plan(len(x_M))
        with global_state_kept(device):
            network = self._checked_network()
            refuse_batches_of_one(network, plan)
            given = itertools.cycle(self.networks_) if going_on else None
            build = self._build if given is None else lambda: copy.deepcopy(next(given))
            seed = self._seed() + len(history)  # another order of the samples when a training goes on
            engine = choose_engine(
                Experiment(method=self.method), plan, network, method.networks, len(x_M), device
            )
            samples, first = placed([x_M, x_M[:1]], device)  # measured on one sample: there is no test set
            threads = choose_threads(network, method.networks, plan)
            with torch_set(threads, False), engine.precision.set():
                self.noise_rate_ = self._told_noise_rate(samples, y_M.to(device), plan, engine, seed)
            problem = Problem.unchecked(samples, first, y_M.to(device), len(self.classes_), self.noise_rate_, seed)
            torch.manual_seed(seed)  # for dropout
            with torch_set(threads, False), engine.precision.set(), progress(self.verbose, method, plan) as tell:

                def after(epoch: Epoch) -> None:
                    if not epoch.preliminary:
                        history.append(history_row(epoch.rows[0], len(history) + 1))
                    tell(epoch)

                training = fit(problem, method, plan, build, engine=engine, ledger=True, on_epoch=after)
            self.networks_ = [training.stack.network(n, 0).cpu() for n in range(method.networks)]
        assert training.ledger is not None
        self.label_quality_ = training.ledger.quality()[0]
        self.given_labels_ = self.classes_[y_M.numpy()]
        self.suggested_labels_ = self.classes_[training.ledger.suggestion()[0]]
        self.history_, self.method_ = history, self.method
        if history[-1]["events"].get("non_finite_loss"):
            warnings.warn("the loss was not finite to the end: lower lr.", ConvergenceWarning, stacklevel=3)

    def _check_arguments(self) -> None:
        check_name("method", self.method, [name for name in METHODS if name not in ELSEWHERE])
        check_name("optimizer", self.optimizer, OPTIMIZER_OPTIONS)
        if self.loss is not None:
            check_name("loss", self.loss, LOSSES)
        for name in self._routed("optimizer__"):
            check_name(f"option of {self.optimizer}", name, OPTIMIZER_OPTIONS[self.optimizer])
        for name, least in {"epochs": 1, "batch_size": 1, "warmup": 0, "ramp": 1}.items():
            value = getattr(self, name)
            if not (value is None and name != "epochs") and not (is_whole(value) and value >= least):
                raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}.")
        told = isinstance(self.noise_rate, Real) and 0 <= float(self.noise_rate) < 1
        if not told and self.noise_rate != "auto":
            raise ValueError(f"noise_rate is {self.noise_rate!r}: give 'auto', or a share below 1 such as 0.2.")
        if not (isinstance(self.lr, Real) and 0 < float(self.lr) < math.inf):
            raise ValueError(f"lr is {self.lr!r}: give a learning rate above 0, such as 0.001.")
        for name, value in self._routed("optimizer__").items():
            if not (isinstance(value, Real) and 0 <= float(value) < math.inf):
                raise ValueError(f"optimizer__{name} is {value!r}: give a finite number of at least 0.")

    def _told_noise_rate(self, x_M: Tensor | Stream, y_M: Tensor, plan: Plan, engine: Engine, seed: int) -> float:
        """What the user says; else from five more trainings, each predicting the fifth it has not seen."""
        if not isinstance(self.noise_rate, str):
            return float(self.noise_rate)
        if isinstance(x_M, Stream):
            raise ValueError("X is too large for the device to estimate the noise rate on: give noise_rate.")
        plan, folds = replace(plan, loss=None), min(FOLDS, len(x_M))
        n_classes = len(self.classes_)
        p_MC = out_of_sample(x_M, y_M, n_classes, self._build, plan, folds=folds, seed=seed, engine=engine)
        self.noise_estimate_ = estimate_noise(p_MC, y_M.cpu().numpy())
        return min(self.noise_estimate_.rate, MOST_NOISE)

    def _check_views(self) -> None:
        if METHODS[self.method].views and self.sample_shape_[-1] < METHODS[self.method].networks:
            raise ValueError(
                f"{self.method} halves the last axis of a sample, which has only 1 feature(s): change method."
            )

    def _plan(self, samples: int) -> Plan:
        few = max(SMALLEST_BATCH, samples // STEPS_OF_AN_EPOCH)
        return Plan(
            epochs=self.epochs,
            batch_size=min(self.batch_size or min(128, few), samples),
            warmup=self._usual_warmup() if self.warmup is None else self.warmup,
            ramp=min(10, max(1, self.epochs // 2)) if self.ramp is None else self.ramp,
            optimizer=self.optimizer,
            lr=self.lr,
            keep_per_class=bool(self.keep_per_class),
            decay_start=max(1, 2 * self.epochs // 5),
            loss=self.loss,
            fidelity=parse("paper+lr_above_zero"),  # so that the last epoch is not in vain
            **self._routed("optimizer__"),
        )

    def _usual_warmup(self) -> int:
        """A fifth; three quarters in Co-training, which drifts from the labels once it learns from its own."""
        return max(1, 3 * self.epochs // 4 if METHODS[self.method].views else self.epochs // 5)

    def _seed(self) -> int:
        if self.random_state is None:  # not NumPy's global generator, which is not ours to change
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _fitted_shape(self) -> tuple | None:
        return (self.sample_shape_, self.classes_.tolist()) if hasattr(self, "networks_") else None

    # ---- samples as the networks take them --------------------------------------------------------------------

    def inputs(self, X: Any) -> Tensor:
        """X as the networks take it: standardised float32 of shape (M, F) or (M, channels, H, W)."""
        check_is_fitted(self, "networks_")
        x = validate_data(self, dense(X), reset=False, allow_nd=True, dtype=[np.float64, np.float32, np.uint8])
        if (x := channels_first(x)).shape[1:] != self.sample_shape_:
            raise ValueError(f"samples have shape {x.shape[1:]} but those of fit had {self.sample_shape_}.")
        return self._scaled(x)

    def _learn_scale(self, x: np.ndarray) -> None:
        """Mean and standard deviation of each feature or channel, which constants leave alone."""
        axes = (0, *range(2, x.ndim))
        self.mean_, self.scale_ = np.zeros(1), np.ones(1)
        if self.standardize:
            with np.errstate(over="ignore", invalid="ignore"):  # told below
                self.mean_ = x.mean(axes, dtype=np.float64, keepdims=True)[0]
                scale = x.std(axes, dtype=np.float64, keepdims=True)[0]
            if not np.isfinite(scale).all():
                raise ValueError(
                    "X has numbers whose squares are beyond float64: divide them by their scale first."
                )
            constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(self.mean_)
            self.scale_ = np.where(constant, 1, scale)

    def _scaled(self, x: np.ndarray) -> Tensor:
        with np.errstate(over="ignore"):  # told below
            x_M = torch.from_numpy(((x - self.mean_) / self.scale_).astype(np.float32, order="C"))
        check_finite(x_M, "")
        return x_M

    # ---- networks ---------------------------------------------------------------------------------------------

    def _build(self) -> nn.Module:
        """One network, with initial weights from torch's generator."""
        options, shape, n_classes = self._routed("module__"), self.sample_shape_, len(self.classes_)
        if isinstance(self.module, nn.Module):
            if options:
                raise ValueError("module is an instance, which takes no module__… any more: give its class.")
            return reinitialised(self.module)
        try:
            if self.module is None or isinstance(self.module, str):
                return networks.build(
                    self.module or default_network(shape), shape=shape, n_classes=n_classes, **options
                )
            return self.module(**(accepted_facts(self.module, shape, n_classes) | options))
        except TypeError as error:
            raise ValueError(f"the module cannot be built ({error}): mend module or module__….") from error

    def _checked_network(self) -> nn.Module:
        if not (self.module is None or isinstance(self.module, (str, nn.Module)) or callable(self.module)):
            raise ValueError(f"module is {self.module!r}: give a torch module, its class, a factory or None.")
        network = self._build()
        if not isinstance(network, nn.Module):
            raise ValueError(f"module makes {type(network).__name__}: it must make a torch.nn.Module.")
        with torch.no_grad():
            logits = network.eval()(torch.zeros(2, *self.sample_shape_))
        if tuple(logits.shape) != (2, len(self.classes_)):
            raise ValueError(
                f"module answers two samples with shape {tuple(logits.shape)}: "
                f"it must return logits of shape (2, {len(self.classes_)}), a column for each class."
            )
        return network

    # ---- predict ----------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """The networks' mean softmax, of shape (M, C) in the order of `classes_`."""
        x_M, device = self.inputs(X), chosen_device(self.device)
        view = half_views if METHODS[self.method_].views else same_view
        modules = [m if device == "cpu" else copy.deepcopy(m).to(device) for m in self.networks_]
        pieces = []
        with torch.no_grad():
            for x_B in x_M.split(max(1, AT_ONCE // math.prod(self.sample_shape_))):
                x_NB = view(x_B.to(device)[None], len(modules))[:, 0]
                p_NBC = torch.stack([m(x).double().softmax(-1) for m, x in zip(modules, x_NB, strict=True)])
                pieces.append(p_NBC.mean(0).float().cpu())
        return torch.cat(pieces).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The class with the highest mean probability, of shape (M,)."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    # ---- labels -----------------------------------------------------------------------------------------------

    def suspects(self, share: float | None = None) -> Suspects:
        """The training samples with the least trusted labels, the worst first.

        Parameters
        ----------
        share : float, optional
            Of all samples; by default the noise rate.
        """
        check_is_fitted(self, "label_quality_")
        share = self.noise_rate_ if share is None else share
        if not (isinstance(share, Real) and 0 <= float(share) <= 1):
            raise ValueError(f"share is {share!r}: give a share of the samples from 0 to 1.")
        return suspects(self.given_labels_, self.label_quality_, self.suggested_labels_, float(share))

    # ---- files ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: the weights, and all else as JSON in its header. Nothing is pickled.

        A module of your own is not in it, and neither is a RandomState: hand the module to `load` again.
        """
        check_is_fitted(self, "networks_")
        params = {name: pythons_own(value) for name, value in self.get_params(deep=False).items()}
        own_module = not (self.module is None or isinstance(self.module, str))
        if own_module:
            params["module"] = None
        if isinstance(self.random_state, np.random.RandomState):
            params["random_state"] = None
        facts = {
            "params": params,
            "own_module": own_module,
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "feature_names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            **{name: getattr(self, name) for name in SAVED},
        }
        scale = {"mean": torch.from_numpy(self.mean_.copy()), "scale": torch.from_numpy(self.scale_.copy())}
        write_file(path, facts, scale | weights_of(self.networks_))

    @classmethod
    def load(cls, path: str | Path, module: Any = None) -> Self:
        """Read what `save` wrote, on any device; `module` is needed if it was the user's own."""
        facts, tensors = read_file(path)
        if facts["own_module"] != (module is not None):
            said = "needs" if facts["own_module"] else "has no use for"
            raise ValueError(f"{path} {said} a module: give the one it was trained with, and only then.")
        new = cls(**facts["params"] | {"module": module or facts["params"]["module"]})
        new.classes_ = np.array(facts["classes"], dtype=np.dtype(facts["classes_dtype"]))
        new.mean_, new.scale_ = tensors.pop("mean").numpy(), tensors.pop("scale").numpy()
        for name in SAVED:
            setattr(new, name, facts[name])
        new.sample_shape_ = tuple(new.sample_shape_)
        if facts["feature_names"] is not None:
            names = np.array(facts["feature_names"], dtype=object)
            new.feature_names_in_ = names  # pyrefly: ignore[missing-attribute]
        with global_state_kept("cpu"):
            new.networks_ = [new._checked_network() for _ in range(METHODS[new.method_].networks)]
        take_weights(new.networks_, tensors, path)
        return new


def history_row(row: dict, epoch: int) -> dict:
    events = {name: n for name, n in row["events"].items() if name != "one_class"}
    return {name: value for name, value in row.items() if name not in UNKNOWN} | {"epoch": epoch, "events": events}


@contextmanager
def global_state_kept(device: str) -> Iterator[None]:
    """torch's generators are afterwards as they were."""
    if device != "cpu":
        torch.cuda.init()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def progress(verbose: int, method: Method, plan: Plan) -> Iterator[Callable[[Epoch], None]]:
    if not verbose:
        yield lambda epoch: None
        return
    from coteach.report.screen import progress_bars

    with progress_bars() as bars:
        task = bars.add_task(method.name, total=method.n_epochs(plan), note="")
        yield lambda epoch: bars.update(task, advance=1, note=f"loss {epoch.rows[0]['train_loss'] or 0:.3f}")
