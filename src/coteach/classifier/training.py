"""One call of `fit`: from samples and labels to networks, and to what they think of the labels.

M samples, V of validation, C classes.
"""

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from coteach.classifier.modules import build_network, checked_network
from coteach.classifier.optimisers import check_takes
from coteach.classifier.options import plan_of, seed_of
from coteach.classifier.samples import bar
from coteach.classifier.watch import Enough, Watch, held_out, networks_of
from coteach.data.base import Samples
from coteach.engine import Engine
from coteach.engine.stream import Stream, closing_streams
from coteach.labels.estimate import NoiseEstimate, estimate_noise
from coteach.labels.folds import first_of, of_folds, part
from coteach.labels.ledger import Ledger, starved
from coteach.labels.validation import RATES, choose_rate, compare_with_clean, heeds_the_rate
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.choices import choose_engine, choose_threads
from coteach.runs.experiment import Experiment
from coteach.runs.setup import chosen_device, placed, refuse_batches_of_one, torch_set
from coteach.train import Epoch, Problem, Training, fit

# Without a test set these rows of an epoch say nothing.
UNKNOWN = (
    "seed", "test_accuracy", "ensemble_accuracy", "total_variation", "label_precision", "label_recall",
)  # fmt: skip
FOLDS = 5
MOST_NOISE = 0.95  # that a method is told: it must keep something
MOST_DOUBT = 0.5  # width of an interval that still says something
# Shares of wrong labels that are believed: of fewer labels of a class, on average, networks learn so little that
# their own mistakes are counted, too, and intervals do not hold.
LEAST_LABELS, MOST_OF_FEW, MOST_OF_MANY = 50, 0.1, 0.5


@dataclass(frozen=True)
class Validation:
    """Samples to judge by, with labels that may be noisy too."""

    x_V: Tensor | Samples
    y_V: np.ndarray
    clean: bool


@dataclass(frozen=True)
class Outcome:
    """What `fit` has learnt; labels as numbers of classes."""

    networks: list[nn.Module]
    history: list[dict]
    noise_rate: float
    estimate: NoiseEstimate | None
    quality_M: np.ndarray
    suggested_M: np.ndarray
    kept_share_C: np.ndarray
    best_epoch: int | None


@dataclass(frozen=True)
class Job:
    """A training with all its choices made; samples and labels are on the device."""

    params: dict[str, Any]
    plan: Plan
    build: Callable[[], nn.Module]
    engine: Engine
    seed: int
    n_classes: int
    x_M: Tensor | Stream
    y_M: Tensor
    validation: tuple[Tensor | Stream, Tensor] | None  # to watch
    clean: bool | None  # that validation set, if the user has given it

    @property
    def problem(self) -> Problem:
        return Problem.unchecked(self.x_M, first_of(self.x_M), self.y_M, self.n_classes, 0.0, self.seed)


def train(
    params: dict[str, Any],
    routed: Callable[[str], dict[str, Any]],
    x: Tensor | Samples,
    labels_M: np.ndarray,
    n_classes: int,
    validation: Validation | None,
    before: Sequence[nn.Module] | None,
    history: list[dict],
) -> Outcome:
    """Train networks from the start, or those there were `before`."""
    device, method = chosen_device(params["device"]), METHODS[params["method"]]
    module = params["module"], routed("module__"), tuple(x.shape[1:]), n_classes
    with global_state_kept(device), ExitStack() as stack:
        network = checked_network(*module)
        check_takes(params["optimizer"], routed("optimizer__"), params["lr"], network.parameters())
        seed = seed_of(params["random_state"]) + len(history)  # other batches when a training goes on
        held_M = np.zeros(len(labels_M), dtype=bool)
        if params["early_stopping"] and validation is None:
            held_M = held_out(labels_M, params["validation_fraction"], seed)
        plan = plan_of(params, routed("optimizer__"), int((~held_M).sum()))
        refuse_batches_of_one(network, plan)
        again = itertools.cycle(before) if before else None
        build = (lambda: build_network(*module)) if again is None else lambda: copy.deepcopy(next(again))
        engine = choose_engine(
            Experiment(method=params["method"]), plan, network, method.networks, len(labels_M), device
        )
        stack.enter_context(torch_set(choose_threads(network, method.networks, plan), False, device))
        stack.enter_context(engine.precision.set())

        x_M, y_M, watched = to_learn_and_to_watch(x, labels_M, held_M, validation, device)
        stack.enter_context(closing_streams(x_M, *(watched or ())[:1]))
        clean = None if validation is None else validation.clean
        job = Job(params, plan, build, engine, seed, n_classes, x_M, y_M, watched, clean)
        fresh = replace(job, build=lambda: build_network(*module))
        estimate = None if not isinstance(params["noise_rate"], str) else estimated(fresh)
        if estimate is not None:
            warn_of_doubt(estimate, n_classes)
        rate = float(params["noise_rate"]) if estimate is None else min(estimate.rate, MOST_NOISE)
        return trained(job, rate, estimate, history, held_M)


def to_learn_and_to_watch(
    x: Tensor | Samples, labels_M: np.ndarray, held_M: np.ndarray, validation: Validation | None, device: str
) -> tuple[Tensor | Stream, Tensor, tuple[Tensor | Stream, Tensor] | None]:
    """Samples and labels on the device, to learn from; and those to watch, if there are any."""
    (x_M,), y_M = placed([x], device), torch.from_numpy(labels_M).to(device)
    if validation is not None:
        (x_V,) = placed([validation.x_V], device)
        return x_M, y_M, (x_V, torch.from_numpy(validation.y_V).to(device))
    if not held_M.any():
        return x_M, y_M, None
    held, kept = (torch.from_numpy(mask.nonzero()[0]).to(device) for mask in (held_M, ~held_M))
    return part(x_M, kept), y_M[kept], (part(x_M, held), y_M[held])


def estimated(job: Job) -> NoiseEstimate:
    """From five more trainings, each asked about the fifth it has not seen; or by trying rates."""
    what, verbose = "estimating the noise rate", job.params["verbose"]
    if job.clean is False and job.validation is not None:
        method = heeds_the_rate(METHODS[job.params["method"]], job.plan)
        with bar(verbose, what, len(RATES) * method.n_epochs(job.plan)) as advance:
            return choose_rate(
                job.problem, method, job.plan, job.build, *job.validation, job.engine, advance=advance
            )
    x_V, y_V = job.validation if job.clean and job.validation is not None else (None, job.y_M)
    plan, folds = replace(job.plan, loss=None, warmup_loss=None), min(FOLDS, len(job.y_M))
    with bar(verbose, what, folds * METHODS["standard"].n_epochs(plan)) as advance:
        p_MC, p_FVC = of_folds(
            job.x_M, job.y_M, job.n_classes, job.build, plan, x_V, folds, job.seed, job.engine, advance=advance
        )
    labels_M = job.y_M.cpu().numpy()
    if x_V is None:
        return estimate_noise(p_MC, labels_M)
    return compare_with_clean(p_MC, labels_M, p_FVC, y_V.cpu().numpy())


def trained(
    job: Job, rate: float, estimate: NoiseEstimate | None, history: list[dict], held_M: np.ndarray
) -> Outcome:
    """The training itself; `history` grows."""
    params, plan, method = job.params, job.plan, METHODS[job.params["method"]]
    watch = None if job.validation is None else Watch(*job.validation)
    stops = bool(params["early_stopping"])
    after_ramp, training = None, None

    def after(epoch: Epoch) -> None:
        nonlocal after_ramp, training
        training = epoch.training
        advance(1, f"loss {epoch.rows[0]['train_loss'] or 0:.3f}")
        if epoch.preliminary:
            return
        number = len(history) + 1
        history.append(history_row(epoch.rows[0], number) | (watch.look(epoch, number) if watch else {}))
        if epoch.number == plan.ramp < plan.epochs:
            after_ramp = ledger_of(training).counts()
        if stops and watch and number - watch.best_epoch >= params["patience"]:
            raise Enough

    torch.manual_seed(job.seed)  # for dropout
    problem = replace(job.problem, noise_rates=[rate])
    with bar(params["verbose"], method.name, method.n_epochs(plan)) as advance, suppress(Enough):
        fit(problem, method, plan, job.build, engine=job.engine, ledger=True, on_epoch=after)
    assert training is not None
    ledger = ledger_of(training)
    quality_M, suggested_M = np.empty(len(held_M)), np.empty(len(held_M), dtype=np.int64)
    quality_M[~held_M], suggested_M[~held_M] = ledger.quality()[0], ledger.suggestion()[0]
    if held_M.any():
        assert watch is not None
        quality_M[held_M], suggested_M[held_M] = watch.quality(), watch.suggestion()
    stopped = watch if stops else None
    if history[-1]["events"].get("non_finite_loss"):
        warnings.warn("the loss was not finite to the end: lower lr.", ConvergenceWarning, stacklevel=4)
    return Outcome(
        networks=networks_of(training) if stopped is None else stopped.networks,
        history=history,
        noise_rate=rate,
        estimate=estimate,
        quality_M=quality_M,
        suggested_M=suggested_M,
        kept_share_C=ledger.kept_share(job.y_M[None], job.n_classes, after_ramp)[0],
        best_epoch=None if stopped is None else stopped.best_epoch,
    )


def warn_of_doubt(estimate: NoiseEstimate, n_classes: int) -> None:
    low, high = estimate.interval
    if high - low > MOST_DOUBT:
        doubt = f"the noise rate is hardly known, anything from {low:.0%} to {high:.0%} by its estimate"
    elif estimate.n < LEAST_LABELS * n_classes and estimate.rate > MOST_OF_FEW and not estimate.tried:
        doubt = f"a noise rate of {estimate.rate:.0%} is a guess, from {estimate.n} labels of {n_classes} classes"
    elif estimate.rate > MOST_OF_MANY:
        doubt = f"an estimated noise rate of {estimate.rate:.0%} may only mean that the classes were not learnt"
    else:
        return
    warnings.warn(f"{doubt}: look at a few dozen labels and give noise_rate.", stacklevel=4)


def warn_of_starved(kept_share_C: np.ndarray, counts_C: np.ndarray, classes_C: np.ndarray) -> None:
    few = classes_C[starved(kept_share_C, counts_C)].tolist()
    if few:
        warnings.warn(
            f"less than half the usual share is kept of the rare class {', '.join(map(repr, few))}: "
            "set keep_per_class=True.",
            stacklevel=3,
        )


def ledger_of(training: Training) -> Ledger:
    assert training.ledger is not None
    return training.ledger


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
