"""Every rule against the oracle, sample by sample; Table 1 by behaviour; runs apart from each other."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

import oracle
from coteach import rules
from coteach.fidelity import AUTHORS
from coteach.losses import cross_entropy, joint, softmax_twice
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.rules import Batch, Rule
from coteach.schedules import keep_rate

PLANS = [
    Plan(warmup=3),
    Plan(warmup=3, parallel_warmup=True),
    Plan(warmup=3, fidelity=AUTHORS),
]


def every_rule() -> dict[str, Rule]:
    """The rules of the module by name, and whatever else a method of the registry uses.

    But for those that look at more than a mini-batch.
    """
    found = {name: rule for name, rule in vars(rules).items() if isinstance(rule, Rule)}
    found.pop("dividemix")
    for method in METHODS.values():
        for plan in PLANS:
            for phase in method.phases(plan):
                if phase.rule not in (*found.values(), rules.dividemix):
                    found[f"{method.name}/{len(found)}"] = phase.rule
    return found


RULES = every_rule()
KEEPS = [Fraction(0), Fraction(1, 1000), *(Fraction(k, 20) for k in range(1, 20)), Fraction(1)]
LOSSES = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, math.inf, math.nan]


@st.composite
def batches(draw, networks: int = 2) -> tuple[Batch, list[Fraction]]:
    """A mini-batch with many ties: every sample has one class that stands out from equal others, or none."""
    n_runs, n_samples, n_classes = (draw(st.integers(1, top)) for top in (3, 9, 3))
    shape = (networks, n_runs, n_samples)
    peak = draw(arrays(np.int64, shape, elements=st.integers(0, n_classes - 1)))
    height = draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 2.0, 3.0])))
    loss = draw(arrays(np.float64, shape, elements=st.sampled_from(LOSSES)))
    keep = draw(st.lists(st.sampled_from(KEEPS), min_size=n_runs, max_size=n_runs))
    logits = torch.zeros(*shape, n_classes, dtype=torch.float64)
    logits.scatter_(-1, torch.from_numpy(peak)[..., None], torch.from_numpy(height)[..., None])
    clean = torch.from_numpy(draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.49, 0.5, 1.0]))))
    batch = Batch(logits, torch.from_numpy(loss), as_keep(keep), round_up=draw(st.booleans()), clean_NRB=clean)
    return batch, keep


def as_keep(keep: list[Fraction]) -> Tensor:
    return torch.tensor([[float(k)] for k in keep], dtype=torch.float64)


def opinions(batch: Batch, run: int, keep: Fraction) -> oracle.Opinions:
    return oracle.Opinions(
        logits=batch.logits_NRBC[:, run].tolist(),
        losses=batch.loss_NRB[:, run].tolist(),
        keep=keep if batch.round_up else float(keep),
        round_up=batch.round_up,
        clean=None if batch.clean_NRB is None else batch.clean_NRB[:, run].tolist(),
    )


def picks(picked_NRB: Tensor, run: int) -> list[list[int]]:
    return [mask.nonzero().flatten().tolist() for mask in picked_NRB[:, run]]


def compare(name: str, batch: Batch, keep: list[Fraction]) -> None:
    picked_NRB = RULES[name](batch)
    assert picked_NRB.dtype == torch.bool
    assert picked_NRB.shape == batch.loss_NRB.shape
    for run, share in enumerate(keep):
        assert picks(picked_NRB, run) == oracle.RULES[name](opinions(batch, run, share)), (name, run)


# ---- the oracle -----------------------------------------------------------------------------------------------


def test_the_oracle_reads_every_rule_of_the_paper():
    assert set(oracle.TABLE_1) | {"standard", "jocor"} == set(oracle.RULES)
    assert set(oracle.RULES) <= set(RULES)


@pytest.mark.parametrize("name", oracle.RULES)
@given(drawn=batches())
def test_rule_is_the_papers(name, drawn):
    compare(name, *drawn)


@pytest.mark.parametrize("name", ["standard", "mentornet"])
@given(drawn=batches(networks=1))
def test_rule_of_one_network_is_the_papers(name, drawn):
    compare(name, *drawn)


@pytest.mark.parametrize("agree", ["everywhere", "nowhere", "sometimes"])
@pytest.mark.parametrize("n_samples", [1, 2, 7])
@pytest.mark.parametrize("name", oracle.RULES)
def test_rule_at_the_edges(name, n_samples, agree):
    first = torch.arange(n_samples) % 2
    second = {
        "everywhere": first,
        "nowhere": 1 - first,
        "sometimes": torch.zeros(n_samples, dtype=torch.long),
    }
    logits = torch.nn.functional.one_hot(torch.stack([first, second[agree]])[:, None], 3).double()
    tied = torch.ones(2, 1, n_samples, dtype=torch.float64)
    undefined = tied.clone()
    undefined[0, 0, 0] = math.nan
    for loss in (tied, undefined, torch.full_like(tied, math.inf), torch.full_like(tied, math.nan)):
        for keep in (Fraction(0), Fraction(1, 3), Fraction(1)):
            compare(name, Batch(logits, loss, as_keep([keep]), round_up=True), [keep])
            compare(name, Batch(logits, loss, as_keep([keep]), round_up=False), [keep])


@pytest.mark.parametrize("name", oracle.RULES)
def test_ties_go_to_the_earlier_sample_in_a_large_batch(name):
    """An unstable sort keeps the order of few equal numbers and loses that of many."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.nn.functional.one_hot(torch.randint(0, 3, (2, 1, 200), generator=generator), 3).double()
    loss = torch.randint(0, 3, (2, 1, 200), generator=generator).double()
    for keep in (Fraction(1, 3), Fraction(2, 3)):
        compare(name, Batch(logits, loss, as_keep([keep])), [keep])


def test_the_share_to_keep_is_exact_for_every_noise_rate_in_hundredths():
    """In float64 0.55 · 20 is a little above 11: rounded up carelessly, a twelfth sample would be kept."""
    cells = [(tau, epoch) for tau in range(100) for epoch in range(1, 12)]
    keep = torch.tensor([[keep_rate(epoch, tau / 100, 10)] for tau, epoch in cells], dtype=torch.float64)
    exact = [1 - min(Fraction(epoch, 10), Fraction(1)) * Fraction(tau, 100) for tau, epoch in cells]
    for n in (1, 2, 3, 7, 10, 16, 20, 50, 99, 100, 128, 500, 1000):
        found = rules.rounded(keep * torch.full((1, len(cells), 1), n), up=True).flatten().tolist()
        assert found == [math.ceil(share * n) for share in exact]


def test_rounding_down_is_the_authors_product_of_doubles():
    for tau in range(100):
        keep = 1 - tau / 100
        keep_R1 = torch.tensor([[keep]], dtype=torch.float64)
        for n in (1, 3, 10, 20, 100, 128):
            assert rules.rounded(keep_R1 * torch.tensor([[[n]]]), up=False).item() == int(keep * n)


# ---- what holds for any rule, also one added tomorrow ---------------------------------------------------------


@given(drawn=batches())
def test_a_mixture_tells_which_labels_are_likely_right(drawn):
    batch, keep = drawn
    for name in ("mentornet", "coteaching", "coteaching_plus"):
        by_oracle = oracle.BY_MIXTURE[oracle.RULES[name]]
        found = RULES[name].by_mixture()(batch)
        for run, share in enumerate(keep):
            assert picks(found, run) == by_oracle(opinions(batch, run, share)), name
    assert torch.equal(rules.dividemix(batch), RULES["coteaching"].by_mixture()(batch))
    joint_NRB = RULES["jocor"].by_mixture()(batch)
    assert torch.equal(joint_NRB[0], joint_NRB[1])
    assert torch.equal(joint_NRB[0], batch.clean_NRB.mean(0) >= 0.5)


def test_a_rule_that_looks_at_all_samples_has_no_weights_in_a_mini_batch():
    logits, labels = torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long)
    for rule in ("dividemix", rules.dividemix, rules.mentornet.by_mixture()):
        with pytest.raises(ValueError, match="losses of all samples: take"):
            rules.weights(rule, logits, labels, keep=0.5)


@given(drawn=batches(), data=st.data())
def test_runs_never_look_at_each_other(drawn, data):
    """Permuting, repeating or leaving out other runs changes nothing."""
    batch, keep = drawn
    runs = data.draw(st.lists(st.integers(0, len(keep) - 1), min_size=1, max_size=4))
    some = Batch(batch.logits_NRBC[:, runs], batch.loss_NRB[:, runs], batch.keep_R1[runs], batch.round_up)
    for name, rule in RULES.items():
        assert torch.equal(rule(some), rule(batch)[:, runs]), name
        assert torch.equal(rule.among(some), rule.among(batch)[:, runs]), name


@given(order=st.permutations(range(7)), seed=st.integers(0, 2**32), round_up=st.booleans())
def test_the_order_in_the_batch_does_not_matter_without_ties(order, seed, round_up):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 2, 7, 3, generator=generator, dtype=torch.float64)
    loss = torch.rand(2, 2, 7, generator=generator, dtype=torch.float64)
    batch = Batch(logits, loss, as_keep([Fraction(1, 2), Fraction(4, 5)]), round_up)
    turned = replace(batch, logits_NRBC=logits[:, :, order], loss_NRB=loss[:, :, order])
    for name, rule in RULES.items():
        assert torch.equal(rule(turned), rule(batch)[:, :, order]), name


@given(drawn=batches())
def test_a_rule_is_pure(drawn):
    batch, _ = drawn
    before = batch.logits_NRBC.clone(), batch.loss_NRB.clone(), batch.keep_R1.clone()
    for name, rule in RULES.items():
        assert torch.equal(rule(batch), rule(batch)), name
    after = batch.logits_NRBC, batch.loss_NRB, batch.keep_R1
    assert all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in zip(before, after, strict=True))


@given(drawn=batches())
def test_a_rule_chooses_among_its_candidates(drawn):
    """What shares come to nothing, and batches without a candidate, are counted from these (test_measure.py)."""
    batch, keep = drawn
    for name in oracle.RULES:
        for run, share in enumerate(keep):
            candidates = oracle.candidates(oracle.RULES[name], opinions(batch, run, share))
            for among_B in RULES[name].among(batch)[:, run]:
                assert among_B.nonzero().flatten().tolist() == sorted(candidates), name


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule != rule.of_each_class()])
@given(drawn=batches(), data=st.data())
def test_a_share_of_each_class_is_the_rule_on_each_class_alone(name, drawn, data):
    """Among the candidates of one given class each, and what is picked of all classes together."""
    batch, keep = drawn
    n_runs, n_samples, n_classes = batch.logits_NRBC.shape[1:]
    labels = data.draw(arrays(np.int64, (n_runs, n_samples), elements=st.integers(0, n_classes - 1)))
    batch = replace(batch, label_RB=torch.from_numpy(labels))
    found = RULES[name].of_each_class()(batch)
    for run, share in enumerate(keep):
        expected: list[set[int]] = [set(), set()]
        for label in range(n_classes):
            of_class = np.flatnonzero(labels[run] == label)
            if len(of_class):
                alone = Batch(
                    batch.logits_NRBC[:, run : run + 1, of_class],
                    batch.loss_NRB[:, run : run + 1, of_class],
                    batch.keep_R1[run : run + 1],
                    batch.round_up,
                )
                for network, picked in enumerate(oracle.RULES[name](opinions(alone, 0, share))):
                    expected[network] |= {int(of_class[i]) for i in picked}
        assert picks(found, run) == [sorted(network) for network in expected]


# ---- Table 1 of the paper, probed by behaviour ----------------------------------------------------------------


def probe(loss_N: list[list[float]], prediction_N: list[list[int]], sureness_N: list[list[float]]) -> Batch:
    """One run, two networks; half of the samples are to be kept."""
    logits = (
        torch.nn.functional.one_hot(torch.tensor(prediction_N), 2).double() * torch.tensor(sureness_N)[..., None]
    )
    keep = torch.full((1, 1), 0.5, dtype=torch.float64)
    return Batch(logits[:, None], torch.tensor(loss_N)[:, None].double(), keep)


RISING, FALLING = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
ZEROS, ONES = [0, 0, 0, 0], [1, 1, 1, 1]


def main_rule(name: str) -> Rule:
    return METHODS[name].phases(Plan(warmup=3))[-1].rule


@pytest.mark.parametrize("name", oracle.TABLE_1)
def test_small_loss_column(name):
    rule = main_rule(name)
    one = rule(probe([RISING, RISING], [ZEROS, ONES], [RISING, RISING]))
    other = rule(probe([FALLING, FALLING], [ZEROS, ONES], [RISING, RISING]))
    assert (not torch.equal(one, other)) == oracle.TABLE_1[name][0]
    if oracle.TABLE_1[name][0]:
        assert one.all(0).flatten().tolist() == [True, True, False, False]
        assert other.all(0).flatten().tolist() == [False, False, True, True]


@pytest.mark.parametrize("name", oracle.TABLE_1)
def test_double_classifiers_column(name):
    assert (METHODS[name].networks == 2) == oracle.TABLE_1[name][1]


@pytest.mark.parametrize("name", oracle.TABLE_1)
def test_cross_update_column(name):
    """Only the first network changes its mind: with a cross update only the second learns something else."""
    rule = main_rule(name)
    before = rule(probe([RISING, RISING], [ZEROS, ONES], [RISING, RISING]))
    after = rule(probe([FALLING, RISING], [ZEROS, ONES], [FALLING, RISING]))
    changed = (before != after).any(-1).flatten().tolist()
    cross = oracle.TABLE_1[name][2]
    chooses = name != "decoupling"  # it takes all disagreement, whatever the networks think of it
    assert changed == [chooses and not cross, cross]


@pytest.mark.parametrize("name", oracle.TABLE_1)
def test_divergence_column(name):
    """Networks are kept apart by learning nothing where they agree, or by seeing different halves."""
    learnt = main_rule(name)(probe([RISING, FALLING], [ZEROS, ZEROS], [RISING, FALLING])).any().item()
    kept_apart = not learnt or METHODS[name].views
    assert kept_apart == oracle.TABLE_1[name][3]


@given(drawn=batches(), data=st.data())
def test_a_networks_losses_matter_to_whom_it_hands_its_picks(drawn, data):
    batch, _ = drawn
    loss = batch.loss_NRB.clone()
    shape = tuple(loss[0].shape)
    loss[0] = torch.from_numpy(data.draw(arrays(np.float64, shape, elements=st.sampled_from(LOSSES))))
    other = replace(batch, loss_NRB=loss)
    for name, rule in RULES.items():
        if rule.pick is not rules.small_joint_loss:
            untouched = 0 if rule.cross else 1
            assert torch.equal(rule(other)[untouched], rule(batch)[untouched]), name


# ---- in a loop of your own ------------------------------------------------------------------------------------


@given(drawn=batches(), data=st.data(), name=st.sampled_from(sorted(oracle.RULES)))
def test_weights_are_the_mean_over_what_the_oracle_picks(drawn, data, name):
    """One run at a time, by the losses of its given labels."""
    batch, (keep, *_) = drawn
    n_samples, n_classes = batch.logits_NRBC.shape[2:]
    labels = torch.from_numpy(data.draw(arrays(np.int64, n_samples, elements=st.integers(0, n_classes - 1))))
    logits_NBC = batch.logits_NRBC[:, 0]
    losses = -logits_NBC.log_softmax(-1)[:, torch.arange(n_samples), labels]
    expected = oracle.RULES[name](oracle.Opinions(logits_NBC.tolist(), losses.tolist(), keep))
    for logits in (logits_NBC, list(logits_NBC)):
        found = rules.weights(name, logits, labels, float(keep))
        for weight_B, picked in zip(found.tolist(), expected, strict=True):
            assert weight_B == [1 / len(picked) if i in picked else 0.0 for i in range(n_samples)]


@settings(max_examples=10)  # of random numbers one is as good as another
@given(seed=st.integers(0, 2**32), keep=st.sampled_from([0.3, 0.5, 0.8]))
def test_weights_are_the_rules_own(seed, keep):
    """With any loss, and a share of each class, as training does it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (12,), generator=generator)
    for name, rule in RULES.items():
        for loss in (cross_entropy, joint(softmax_twice, 0.9)):
            for per_class in (False, True):
                seen = Batch(logits[:, None], loss(logits[:, None], labels.expand(2, 1, 12)),
                             torch.full((1, 1), keep, dtype=torch.float64), label_RB=labels[None])  # fmt: skip
                picked = (rule.of_each_class() if per_class else rule)(seen)[:, 0]
                for asked in (name, rule):
                    found = rules.weights(asked, logits, labels, keep, loss, per_class)
                    assert torch.equal(found > 0, picked), name
                    torch.testing.assert_close(found.sum(-1), picked.any(-1).double())


def test_weights_leave_gradients_alone_and_keep_the_dtype():
    def loss(logits, target):
        assert not logits.requires_grad  # or a graph would be built for nothing
        return cross_entropy(logits, target)

    logits = [torch.randn(6, 3, requires_grad=True) for _ in range(2)]
    weight = rules.weights("coteaching", logits, torch.tensor([0, 1, 2, 0, 1, 2]), 0.5, loss)
    assert weight.dtype == torch.float32
    assert not weight.requires_grad
    assert (weight > 0).sum(-1).tolist() == [3, 3]


def test_weights_of_one_network():
    logits = torch.tensor([[[3.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 1.0]]])
    assert rules.weights("mentornet", logits, torch.tensor([0, 0, 0, 0]), 0.5).tolist() == [[0.5, 0, 0.5, 0]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("coteachin", torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long), 0.5), "did you mean 'coteaching'"),
        (("lowest", torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long), 0.5), "there is no rule 'lowest'"),
        (("coteaching", torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), 0.5), r"give \(N, B, C\)"),
        (("coteaching", torch.zeros(2, 4, 3), torch.zeros(5, dtype=torch.long), 0.5), r"give \(N, B, C\)"),
        (("coteaching", torch.zeros(1, 4, 3), torch.zeros(4, dtype=torch.long), 0.5), "logits of both"),
        (("decoupling", torch.zeros(1, 4, 3), torch.zeros(4, dtype=torch.long), 0.5), "logits of both"),
        (("coteaching", torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long), 80), "such as 0.8"),
        (("coteaching", torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long), math.nan), "such as 0.8"),
    ],
)
def test_weights_say_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        rules.weights(*arguments)
