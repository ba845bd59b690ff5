"""One call of `fit`: from samples and labels to networks, and to what they think of the labels.

N networks, M samples, V of validation, C classes.
"""

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from coteach.classifier.inputs import bar
from coteach.classifier.modules import build_network, checked_network, chosen_module
from coteach.classifier.options import check_takes, plan_of, seed_of, with_defaults
from coteach.data.base import Samples
from coteach.engine import Engine
from coteach.engine.records import Ledgers, opinions, quality_of, suggestion_of
from coteach.engine.setup import chosen_device, placed, refuse_small_batches, set_up
from coteach.engine.stream import Stream, closing_streams, part
from coteach.engine.training import Epoch, Problem, Training
from coteach.isolation import generators_restored
from coteach.labels.estimate import SMALLEST, NoiseEstimate, compare_with_clean, estimate_noise
from coteach.labels.folds import (
    FOLDS,
    RATES,
    choose_rate,
    epochs_to_estimate,
    of_folds,
    only_labels,
    using_the_rate,
)
from coteach.labels.ledger import starved
from coteach.labels.planted import estimate_by_planting, plan_to_plant
from coteach.measure import measure, posteriors
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.train import fit

MOST_NOISE = 0.95  # given to a method: it must keep something
WIDEST_INTERVAL = 0.5  # width of an interval that still says something
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
class Fitted:
    """What `fit` has learnt; labels as numbers of classes."""

    networks: list[nn.Module]
    history: list[dict]
    noise_rate: float
    estimate: NoiseEstimate | None
    quality_M: np.ndarray
    suggested_M: np.ndarray
    kept_share_C: np.ndarray
    best_epoch: int | None
    network: str | None = None  # its name, if it is one of ours, …
    network_options: dict[str, Any] = field(default_factory=dict)  # … and what it was made with


@dataclass(frozen=True)
class FitJob:
    """A training with all its choices made; samples and labels are on the device."""

    params: dict[str, Any]
    plan: Plan
    build: Callable[[], nn.Module]
    engine: Engine
    seed: int
    n_classes: int
    x_M: Tensor | Stream
    y_M: Tensor
    validation: tuple[Tensor | Stream, Tensor] | None  # to judge by
    clean: bool | None  # that validation set, if the user has given it

    def problem(self, noise_rate: float) -> Problem:
        return Problem(self.x_M, self.y_M[None], self.n_classes, [noise_rate], [self.seed])


def fit_networks(
    params: dict[str, Any],
    routed: Callable[[str], dict[str, Any]],
    x: Tensor | Samples,
    labels_M: np.ndarray,
    n_classes: int,
    validation: Validation | None,
    before: Sequence[nn.Module] | None,
    history: list[dict],
) -> Fitted:
    """Train networks from the start, or those there were `before`."""
    device, method = chosen_device(params["device"]), METHODS[params["method"]]
    shape = tuple(x.shape[1:])
    params = with_defaults(params, routed("optimizer__"), shape)
    named, options = chosen_module(params, routed("module__"), shape, params["modern"], device)
    module = named, options, shape, n_classes
    with generators_restored(device), ExitStack() as stack:
        network = checked_network(*module)
        check_takes(params["optimizer"], routed("optimizer__"), params["lr"] or 0.1, network.parameters())
        seed = seed_of(params["random_state"]) + len(history)  # other batches when a training goes on
        held_M = np.zeros(len(labels_M), dtype=bool)
        if params["early_stopping"] and validation is None:
            held_M = held_out(labels_M, params["validation_fraction"], seed)
        plan = plan_of(params, routed("optimizer__"), int((~held_M).sum()), shape)
        refuse_small_batches(network, plan)
        again = itertools.cycle(before) if before else None
        build = (lambda: build_network(*module)) if again is None else lambda: copy.deepcopy(next(again))
        setup = set_up(network, 1, method, plan, len(labels_M), device)
        stack.enter_context(setup.active())
        x_M, y_M, validated = split_samples(x, labels_M, held_M, validation, device)
        stack.enter_context(closing_streams(x_M, *(validated or ())[:1]))
        clean = None if validation is None else validation.clean
        job = FitJob(params, plan, build, setup.engine, seed, n_classes, x_M, y_M, validated, clean)
        fresh = replace(job, build=lambda: build_network(*module))
        estimate = None if not isinstance(params["noise_rate"], str) else estimated(fresh)
        if estimate is not None:
            warn_if_uncertain(estimate, n_classes)
        rate = float(params["noise_rate"]) if estimate is None else min(estimate.rate, MOST_NOISE)
        fitted = train_networks(job, rate, estimate, history, held_M)
        return replace(fitted, network=named, network_options=options) if isinstance(named, str) else fitted


def split_samples(
    x: Tensor | Samples, labels_M: np.ndarray, held_M: np.ndarray, validation: Validation | None, device: str
) -> tuple[Tensor | Stream, Tensor, tuple[Tensor | Stream, Tensor] | None]:
    """Samples and labels on the device, to learn from; and those to judge by, if there are any."""
    (x_M,), y_M = placed([x], device), torch.from_numpy(labels_M).to(device)
    if validation is not None:
        (x_V,) = placed([validation.x_V], device)
        return x_M, y_M, (x_V, torch.from_numpy(validation.y_V).to(device))
    if not held_M.any():
        return x_M, y_M, None
    held, kept = (torch.from_numpy(mask.nonzero()[0]).to(device) for mask in (held_M, ~held_M))
    return part(x_M, kept), y_M[kept], (part(x_M, held), y_M[held])


def estimated(job: FitJob) -> NoiseEstimate:
    """By five trainings, each asked about the fifth it has not seen, and planted labels; or by trying rates."""
    what, verbose = "estimating the noise rate", job.params["verbose"]
    if job.clean is False and job.validation is not None:
        method, plan = using_the_rate(METHODS[job.params["method"]], job.plan)
        with bar(verbose, what, len(RATES) * method.n_epochs(plan), len(RATES)) as advance:
            return choose_rate(
                job.problem(0.0), method, plan, job.build, *job.validation, job.engine, advance=advance
            )
    x_V, y_V = job.validation if job.clean and job.validation is not None else (None, job.y_M)
    plan, folds = only_labels(job.plan), min(FOLDS, len(job.y_M))
    plan = replace(plan, epochs=epochs_to_estimate(plan, len(job.y_M)))
    with bar(verbose, what, folds * METHODS["standard"].n_epochs(plan), folds) as advance:
        p_MC, p_FVC = of_folds(
            job.x_M, job.y_M, job.n_classes, job.build, plan, x_V, folds, job.seed, job.engine, advance=advance
        )
    labels_M = job.y_M.cpu().numpy()
    if x_V is not None:
        return compare_with_clean(p_MC, labels_M, p_FVC, y_V.cpu().numpy())
    if not job.params["modern"]:
        return estimate_noise(p_MC, labels_M)
    plan = plan_to_plant(job.plan)
    with bar(verbose, "checking the noise rate", plan.epochs) as advance:
        return estimate_by_planting(job.problem(0.0), plan, job.build, p_MC, job.engine, advance)


def train_networks(
    job: FitJob, rate: float, estimate: NoiseEstimate | None, history: list[dict], held_M: np.ndarray
) -> Fitted:
    """The training itself; `history` grows."""
    params, plan, method = job.params, job.plan, METHODS[job.params["method"]]
    validator = None if job.validation is None else Validator(*job.validation)
    stops = bool(params["early_stopping"])
    waits = not plan.one_cycle  # the end of a cycle is its best part, and no epoch before tells
    after_ramp, training = None, None

    def after(epoch: Epoch) -> None:
        nonlocal after_ramp, training
        training = epoch.training
        (row,) = measure(epoch)
        advance(1, f"loss {row['train_loss'] or 0:.3f}")
        if epoch.preliminary:
            return
        number = len(history) + 1
        del row["seed"]
        history.append(row | {"epoch": number} | (validator.observe(epoch, number) if validator else {}))
        if epoch.number == plan.ramp < plan.epochs:
            after_ramp = ledger_of(training).counts()
        if stops and waits and validator and number - validator.best_epoch >= params["patience"]:
            raise StopTraining

    torch.manual_seed(job.seed)  # for dropout
    with (
        bar(params["verbose"], f"training {method.name}", method.n_epochs(plan)) as advance,
        suppress(StopTraining),
    ):
        fit(job.problem(rate), method, plan, job.build, engine=job.engine, ledger=True, on_epoch=after)
    assert training is not None
    ledger = ledger_of(training)
    quality_M, suggested_M = np.empty(len(held_M)), np.empty(len(held_M), dtype=np.int64)
    quality_M[~held_M], suggested_M[~held_M] = ledger.quality()[0], ledger.suggestion()[0]
    if held_M.any():
        assert validator is not None
        quality_M[held_M], suggested_M[held_M] = validator.quality(), validator.suggestion()
    stopped = validator if stops else None
    if history[-1]["events"].get("non_finite_loss"):
        warnings.warn("the loss was not finite to the end: lower lr.", ConvergenceWarning, stacklevel=5)
    return Fitted(
        networks=networks_of(training) if stopped is None else stopped.networks,
        history=history,
        noise_rate=rate,
        estimate=estimate,
        quality_M=quality_M,
        suggested_M=suggested_M,
        kept_share_C=ledger.kept_share(job.y_M[None], job.n_classes, after_ramp)[0],
        best_epoch=None if stopped is None else stopped.best_epoch,
    )


def warn_if_uncertain(estimate: NoiseEstimate, n_classes: int) -> None:
    low, high = estimate.interval
    if high - low > WIDEST_INTERVAL:
        warning = f"the noise rate is hardly known, anything from {low:.0%} to {high:.0%} by its estimate"
    elif estimate.n < LEAST_LABELS * n_classes and estimate.rate > MOST_OF_FEW and not estimate.tried:
        warning = (
            f"a noise rate of {estimate.rate:.0%} is a guess, from {estimate.n} labels of {n_classes} classes"
        )
    elif estimate.rate > MOST_OF_MANY:
        warning = f"an estimated noise rate of {estimate.rate:.0%} may only mean that the classes were not learnt"
    else:
        return
    warnings.warn(f"{warning}: look at a few dozen labels and give noise_rate.", stacklevel=5)


def warn_of_starved(kept_share_C: np.ndarray, counts_C: np.ndarray, classes_C: np.ndarray) -> None:
    few = classes_C[starved(kept_share_C, counts_C)].tolist()
    if few:
        warnings.warn(
            f"less than half the usual share is kept of the rare class {', '.join(map(repr, few))}: "
            "set keep_per_class=True.",
            stacklevel=4,
        )


def ledger_of(training: Training) -> Ledgers:
    assert training.ledger is not None
    return training.ledger


# ---- samples to judge by --------------------------------------------------------------------------------------


class StopTraining(Exception):
    """No better epoch for as long as patience lasts."""


class Validator:
    """What the networks think of samples they do not learn from, and in which epoch they were right most often.

    The labels may be as noisy as the others: wrong ones lower the accuracy of every epoch alike, so the best epoch
    stays the best. (Their loss would not do: it rises with every network that becomes sure of the truth.)

    Attributes
    ----------
    best_epoch : int
        The first with the highest accuracy of the ensemble; 0 before there is any.
    networks : list of torch.nn.Module
        Those of the best epoch.
    """

    def __init__(self, x_V: Tensor | Stream, y_V: Tensor):
        self.x_V, self.y_V = x_V, y_V
        self.best_accuracy, self.best_epoch, self.networks = -1.0, 0, list[nn.Module]()
        self.seen = 0
        self.margin_NV = self.given_NV = self.other_NV = torch.zeros(1, len(y_V))

    def observe(self, epoch: Epoch, number: int) -> dict[str, float | None]:
        """What an epoch ended with, in words of `history_`."""
        p_NVC = posteriors(epoch.training, self.x_V)[:, 0]
        self._note(p_NVC)
        p_VC = p_NVC.mean(0)
        accuracy = (p_VC.argmax(1) == self.y_V).double().mean().item()
        loss = -p_VC.gather(1, self.y_V[:, None]).clamp(min=SMALLEST).log().mean().item()
        if accuracy > self.best_accuracy:
            self.best_accuracy, self.best_epoch = accuracy, number
            self.networks = networks_of(epoch.training)
        return {"validation_accuracy": accuracy, "validation_loss": loss if math.isfinite(loss) else None}

    def _note(self, p_NVC: Tensor) -> None:
        """As the ledger notes its opinions of training samples, in another mode: these are never learnt."""
        given_NV, margin_NV, self.other_NV = opinions(p_NVC, self.y_V)
        if given_NV.isfinite().all():
            self.seen += 1
            self.given_NV = self.given_NV.to(given_NV) + given_NV
            self.margin_NV = self.margin_NV.to(given_NV) + margin_NV

    def quality(self) -> np.ndarray:
        """quality_V, as the ledger's: from the mean log odds over networks and epochs."""
        return quality_of(self.margin_NV.sum(0), self.seen * len(self.margin_NV))

    def suggestion(self) -> np.ndarray:
        """class_V: the likeliest but the given one."""
        return suggestion_of(self.given_NV, self.other_NV)


def networks_of(training: Training) -> list[nn.Module]:
    """Plain modules on the CPU."""
    return [training.stack.network(n, 0).cpu() for n in range(training.stack.shape[0])]


def held_out(labels_M: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Marks a share of the samples (M), of each given class alike; the last of a class is never taken."""
    held_M = np.zeros(len(labels_M), dtype=bool)
    random = np.random.default_rng(seed)
    for c in np.unique(labels_M):
        members = random.permutation(np.flatnonzero(labels_M == c))
        held_M[members[: min(round(share * len(members)), len(members) - 1)]] = True
    if not held_M.any():
        raise ValueError(
            f"validation_fraction is {share}, which is no sample of any class here: give a larger share, "
            "or validation_data."
        )
    return held_M
