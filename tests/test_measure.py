"""What is measured, against plain counting: sample by sample, network by network, run by run."""

import math
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

import oracle
from coteach import rules
from coteach.engine.batches import half_views, same_view
from coteach.engine.records import Choice, Records
from coteach.engine.stack import Stack
from coteach.measure import chunk_size, count, evaluate, loss_histograms
from coteach.names import EVENTS, LOSS_BINS, LOSS_EDGES
from coteach.rules import Batch
from coteach.runs.folder import last_ten

FEATURES, CLASSES = 4, 3

# ---- how many samples at a time -------------------------------------------------------------------------------


@pytest.mark.parametrize("batched, at_once", [(True, 18), (False, 8)])
def test_networks_that_a_gpu_evaluates_at_once_share_its_memory(batched, at_once, monkeypatch):
    card = SimpleNamespace(total_memory=512 * 18 * 8 * 3072 * 100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    there = SimpleNamespace(theta_NRP=SimpleNamespace(device=torch.device("cuda")), batched=batched)
    x_M = torch.empty(1, 3, 32, 32, dtype=torch.uint8)
    for shape, copies in (((1, 1), 1), ((2, 1), 2), ((2, 9), at_once)):
        there.shape = shape
        assert chunk_size(x_M, there) == 18 * 8 * 100 // copies


# ---- the test set ---------------------------------------------------------------------------------------------


class Reversing:
    """Stands for an augmentation: only its part for test samples may be called."""

    def test(self, x_B):
        return x_B.flip(-1)


def linear_stack(networks, seeds, single_minded=()):
    """Linear networks in float64; the single-minded ones (n, r) predict class 1 whatever they see."""
    stack = Stack(
        lambda: nn.Linear(FEATURES, CLASSES), seeds, networks, dtype=torch.float64, batched=len(seeds) > 1
    )
    with torch.no_grad():
        stack.theta_NRP *= 5  # opinions that differ
        for n, r in single_minded:
            stack.theta_NRP[n, r, -CLASSES + 1] += 1000
    return stack


def softmax(theta_P, x):
    """The probabilities of one linear network for one sample, in plain Python."""
    weight, bias = np.split(np.array(theta_P), [CLASSES * FEATURES])
    scores = [sum(w * v for w, v in zip(row, x, strict=True)) for row in weight.reshape(CLASSES, FEATURES)]
    scores = [score + b for score, b in zip(scores, bias, strict=True)]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def plain_evaluation(stack, samples, y, run):
    """`samples[n]`: what network n sees of each sample."""
    p = [[softmax(stack.theta_NRP[n, run].tolist(), x) for x in seen] for n, seen in enumerate(samples)]
    predictions = [[q.index(max(q)) for q in of_network] for of_network in p]
    ensemble = [np.mean([of_network[i] for of_network in p], axis=0).argmax() for i in range(len(y))]
    one_class = sum(len(set(of_network)) == 1 for of_network in predictions)
    variation = None
    if len(p) == 2:
        variation = sum(abs(a - b) / 2 for p1, p2 in zip(*p, strict=True) for a, b in zip(p1, p2, strict=True))
        variation = pytest.approx(variation / len(y), rel=1e-12)
    return {
        "test_accuracy": [sum(a == b for a, b in zip(row, y, strict=True)) / len(y) for row in predictions],
        "ensemble_accuracy": sum(a == b for a, b in zip(ensemble, y, strict=True)) / len(y),
        "total_variation": variation,
        "events": {"one_class": one_class} if one_class else {},
    }


@given(
    networks=st.integers(1, 2),
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True),
    n_samples=st.integers(1, 23),
    chunk=st.integers(1, 25),
    kind=st.sampled_from(["pixels", "features"]),
    augment=st.sampled_from([None, Reversing()]),
    data=st.data(),
)
def test_evaluation_is_plain_counting(networks, seeds, n_samples, chunk, kind, augment, data):
    everyone = [(n, r) for n in range(networks) for r in range(len(seeds))]
    stack = linear_stack(networks, seeds, data.draw(st.sets(st.sampled_from(everyone))))
    random = np.random.RandomState(n_samples)
    y = random.randint(0, CLASSES, n_samples)
    if kind == "pixels":
        stored = random.randint(0, 256, (n_samples, FEATURES)).astype(np.uint8)
        x = stored / 255
    else:
        stored = x = random.normal(size=(n_samples, FEATURES))
    if augment:
        x = x[:, ::-1]
    rows = evaluate(stack, torch.from_numpy(stored), torch.from_numpy(y), same_view, augment, chunk)
    assert rows == [plain_evaluation(stack, [x] * networks, y, run) for run in range(len(seeds))]


@pytest.mark.parametrize("chunk", [7, 1024])
def test_evaluation_through_half_views(chunk):
    stack = linear_stack(2, [1, 2])
    random = np.random.RandomState(0)
    x, y = random.normal(size=(40, FEATURES)), random.randint(0, CLASSES, 40)
    left, right = x * [1, 1, 0, 0], x * [0, 0, 1, 1]
    rows = evaluate(stack, torch.from_numpy(x), torch.from_numpy(y), half_views, chunk=chunk)
    assert rows == [plain_evaluation(stack, [left, right], y, run) for run in range(2)]


def test_evaluation_leaves_no_trace():
    stack = Stack(lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.BatchNorm1d(CLASSES)), [1], 2)
    buffers = {name: buffer.clone() for name, buffer in stack.buffers.items()}
    evaluate(stack, torch.randn(9, FEATURES), torch.zeros(9, dtype=torch.int64), same_view, chunk=4)
    assert all(module.training for module in stack.modules)
    for name, buffer in stack.buffers.items():
        assert torch.equal(buffer, buffers[name])


# ---- the mini-batches -----------------------------------------------------------------------------------------


KEEPS = [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2), Fraction(1)]
LOSSES = [0.125, 0.25, 0.5, 2.0, math.inf, math.nan]


@dataclass(frozen=True)
class Step:
    """One mini-batch: what was seen, and what was learnt from, which need not follow any rule."""

    seen: Batch
    keep: list[Fraction]
    weight_NRB: torch.Tensor
    clean_RB: torch.Tensor
    sat_out_NR: torch.Tensor  # because of a gradient that is not finite, though the loss is

    @property
    def finite_NR(self) -> torch.Tensor:
        losses = torch.where(self.weight_NRB > 0, self.seen.loss_NRB, 0).sum(-1)
        return losses.isfinite() & ~self.sat_out_NR


@st.composite
def epochs(draw, networks=2):
    runs, samples, length = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    shape, round_up = (networks, runs, samples), draw(st.booleans())
    top = draw(st.integers(0, CLASSES - 1))  # 0: the networks agree throughout
    keep = draw(st.lists(st.sampled_from(KEEPS), min_size=runs, max_size=runs))
    keep_R1 = torch.tensor([[float(k)] for k in keep], dtype=torch.float64)
    steps = []
    for _ in range(length):
        peak = torch.from_numpy(draw(arrays(np.int64, shape, elements=st.integers(0, top))))
        loss = torch.from_numpy(draw(arrays(np.float64, shape, elements=st.sampled_from(LOSSES))))
        weight = torch.from_numpy(draw(arrays(np.float64, shape, elements=st.sampled_from([0, 0.25, 1]))))
        clean = torch.from_numpy(draw(arrays(bool, shape[1:])))
        logits = nn.functional.one_hot(peak, CLASSES).double()
        sat_out = torch.from_numpy(draw(arrays(bool, shape[:2])))
        steps.append(Step(Batch(logits, loss, keep_R1, round_up), keep, weight, clean, sat_out))
    return steps


def plain_count(rule, steps, run):
    """One run of an epoch, sample by sample."""
    n_networks, _, n_samples = steps[0].weight_NRB.shape
    learnt, learnt_clean, clean, losses, shares = 0, 0, 0, [], []
    events = dict.fromkeys(EVENTS, 0)
    for step in steps:
        opinions = oracle.Opinions(
            logits=step.seen.logits_NRBC[:, run].tolist(),
            losses=step.seen.loss_NRB[:, run].tolist(),
            keep=step.keep[run],
            round_up=step.seen.round_up,
        )
        is_clean = step.clean_RB[run].tolist()
        spoilt = False
        for n in range(n_networks):
            clean += sum(is_clean)
            picked = [i for i, weight in enumerate(step.weight_NRB[n, run].tolist()) if weight > 0]
            loss = sum(opinions.losses[n][i] for i in picked)
            if step.sat_out_NR[n, run] or not math.isfinite(loss):
                spoilt = True
                continue
            learnt += len(picked)
            learnt_clean += sum(is_clean[i] for i in picked)
            losses += [loss / len(picked)] if picked else []
        shares.append(len(oracle.disagreement(opinions)) / n_samples)
        events["non_finite_loss"] += spoilt
        events["no_disagreement"] += not oracle.candidates(rule, opinions)
        events["nothing_kept"] += oracle.nothing_kept(rule, opinions)
    events["consensus"] = int(n_networks > 1 and not any(shares))
    return {
        "train_loss": pytest.approx(sum(losses) / len(losses), rel=1e-12) if losses else None,
        "label_precision": learnt_clean / learnt if learnt else None,
        "label_recall": learnt_clean / clean if clean else None,
        "disagreement": pytest.approx(sum(shares) / len(steps)) if n_networks > 1 else None,
        "kept": learnt / (len(steps) * n_networks),
        "events": {name: times for name, times in events.items() if times},
    }


def counted(name, steps):
    rule, first = getattr(rules, name), steps[0]
    records = written(rule, steps)
    clean_SRB = torch.stack([step.clean_RB for step in steps])
    return count(records, rule, clean_SRB, first.seen.keep_R1, first.seen.round_up)


def written(rule, steps):
    first = steps[0]
    records = Records((len(steps), *first.weight_NRB.shape), torch.float64, "cpu")
    for i, step in enumerate(steps):
        seen, at = step.seen, torch.tensor([i])
        weight = step.weight_NRB
        chosen = Choice(
            seen.loss_NRB, seen.prediction_NRB, rule.among(seen), weight, weight > 0, seen.prediction_NRB
        )
        records.write(at, chosen, step.finite_NR)
        assert at.tolist() == [i + 1]
    return records


@pytest.mark.parametrize("name", oracle.RULES)
@given(steps=epochs())
def test_an_epoch_is_plain_counting(name, steps):
    rows = counted(name, steps)
    assert rows == [plain_count(oracle.RULES[name], steps, run) for run in range(len(steps[0].keep))]


@pytest.mark.parametrize("name", ["standard", "mentornet"])
@given(steps=epochs(networks=1))
def test_an_epoch_of_one_network_is_plain_counting(name, steps):
    rows = counted(name, steps)
    assert rows == [plain_count(oracle.RULES[name], steps, run) for run in range(len(steps[0].keep))]
    assert all(row["disagreement"] is None for row in rows)


@given(steps=epochs())
def test_the_histograms_of_losses_are_plain_counting(steps):
    found = loss_histograms(written(rules.standard, steps), torch.stack([step.clean_RB for step in steps]))
    for run, histograms in enumerate(found):
        expected = {"right": [0] * LOSS_BINS, "wrong": [0] * LOSS_BINS}
        for step in steps:
            for losses in step.seen.loss_NRB[:, run].tolist():
                for loss, clean in zip(losses, step.clean_RB[run].tolist(), strict=True):
                    if math.isfinite(loss):
                        above = sum(loss >= edge for edge in LOSS_EDGES)
                        expected["right" if clean else "wrong"][min(max(above - 1, 0), LOSS_BINS - 1)] += 1
        assert histograms == expected


def test_the_bins_are_those_that_every_file_of_losses_has():
    assert LOSS_BINS == 44
    assert LOSS_EDGES[0] == pytest.approx(1e-4)
    assert LOSS_EDGES[32] == 1
    assert LOSS_EDGES[-1] == pytest.approx(10**1.5)


def one_step(peaks, loss, keep, weight, clean):
    """A mini-batch of one run; a row for each network."""
    seen = Batch(
        nn.functional.one_hot(torch.tensor(peaks), CLASSES).double()[:, None],
        torch.tensor(loss, dtype=torch.float64)[:, None],
        torch.tensor([[keep]], dtype=torch.float64),
        round_up=False,
    )
    weight_NRB = torch.tensor(weight, dtype=torch.float64)[:, None]
    return Step(seen, [keep], weight_NRB, torch.tensor([clean]), torch.zeros(len(weight), 1, dtype=torch.bool))


def test_an_epoch_counted_by_hand():
    steps = [
        one_step([[0, 1, 2], [0, 2, 1]], [[1, 2, 9], [3, 9, 9]], 0.4, [[1, 1, 0], [1, 0, 0]], [True, False, True]),
        one_step([[0, 1, 2], [0, 1, 2]], [[4, 4, 4], [9, 9, 9]], 0.4, [[0, 0, 0], [0, 0, 0]], [True, True, True]),
        one_step([[0, 0, 0], [1, 0, 0]], [[math.inf, 1, 1], [5, 1, 1]], 0.4, [[1, 0, 0], [1, 0, 0]], [False] * 3),
    ]
    assert counted("coteaching_plus", steps) == [
        {
            "train_loss": pytest.approx((1.5 + 3 + 5) / 3),
            "label_precision": 2 / 4,
            "label_recall": 2 / 10,
            "disagreement": pytest.approx((2 / 3 + 0 + 1 / 3) / 3),
            "kept": 4 / 6,
            "events": {"no_disagreement": 1, "nothing_kept": 2, "non_finite_loss": 1},
        }
    ]


def test_an_epoch_without_anything_to_say():
    step = one_step([[0, 1], [0, 1]], [[1, 2], [3, 4]], 1.0, [[0, 0], [0, 0]], [False, False])
    (row,) = counted("decoupling", [step, step])
    assert [row[name] for name in ("train_loss", "label_precision", "label_recall")] == [None] * 3
    assert (row["kept"], row["disagreement"]) == (0, 0)
    assert row["events"] == {"no_disagreement": 2, "consensus": 1}


# ---- the tables -----------------------------------------------------------------------------------------------


@given(st.integers(1, 2), st.data())
def test_last_ten_is_the_mean_and_the_best_of_the_last_epochs(networks, data):
    accuracies = data.draw(
        st.lists(st.lists(st.floats(0, 1), min_size=networks, max_size=networks), min_size=1, max_size=25)
    )
    means = [sum(accuracy) / networks for accuracy in accuracies][-10:]
    mean, best = last_ten([{"test_accuracy": accuracy} for accuracy in accuracies])
    assert mean == pytest.approx(sum(means) / len(means))
    assert best == max(means)


def test_last_ten_forgets_the_eleventh():
    rows = [{"test_accuracy": [1.0, 1.0]}] + [{"test_accuracy": [0.5, 0.7 + epoch / 100]} for epoch in range(10)]
    mean, best = last_ten(rows)
    assert mean == pytest.approx(0.6225)
    assert best == pytest.approx(0.645)
