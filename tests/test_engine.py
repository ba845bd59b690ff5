"""The engine's parts by themselves: what is drawn, where it lies, in which precision, and what is left behind."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from coteach import draws
from coteach.augment import AUGMENTS, Augment
from coteach.engine.batches import Batches, evaluation_input, views_of
from coteach.engine.clock import Clock
from coteach.engine.precision import PaddedConv2d, Precision, pad_convolutions
from coteach.engine.stack import Stack, batches_well
from coteach.losses import LOSSES
from coteach.methods import METHODS
from coteach.networks.models import NewsNet
from coteach.plan import Plan
from tiny import PLAN, normed, problem, run_fit


def numbered() -> tuple[Batches, list[Tensor]]:
    """Batches whose augmentation gives back the random numbers it was handed."""
    seen: list[Tensor] = []

    def note(x: Tensor, u: Tensor) -> Tensor:
        seen.append(u.clone())
        return x

    x = torch.randint(0, 256, (12, 1, 4, 4)).byte()
    batches = Batches(x, torch.zeros(2, 12).long(), [3, 4], 4, 3, torch.float32, Augment(3, note, lambda x: x, 4))
    return batches, seen


def test_every_image_of_every_step_and_epoch_and_run_gets_numbers_of_its_own():
    batches, seen = numbered()
    expected = []
    for epoch in (1, 2):
        for step in batches.deal(epoch):
            batches.take(torch.tensor([step]))
            u = draws.uniform(draws.keys([3, 4], "augment", epoch, step), 4 * 3)
            expected.append(u.view(2, 4, 3))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(seen, expected, strict=True))
    numbers = torch.stack(seen).flatten()
    assert len(numbers.unique()) == len(numbers)


def views(plan: Plan, seeds: list[int], epoch: int, step: int) -> tuple[Tensor, Tensor]:
    """What the networks look at and what they learn from, in one step."""
    weak, strong = views_of(None, plan)
    x = torch.rand(24, 2, 6, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(len(seeds), 24).long()
    batches = Batches(x, labels, seeds, 8, 3, torch.float32, weak, strong=strong)
    batches.shuffle(epoch)
    x_RB, _ = batches.take(torch.tensor([step]))
    return x_RB, batches.strengthened(x_RB, torch.tensor([step]))


AUGMENTED = replace(PLAN, mirror=True, shift=2, cutout=3, weak_selection=True)


def test_the_strong_view_is_the_weak_one_but_for_a_square_of_its_mean():
    weak, strong = views(AUGMENTED, [1, 2], 1, 0)
    changed = (weak != strong).any(2, keepdim=True)
    assert changed.flatten(2).any(-1).all()
    mean = weak.mean((-2, -1), keepdim=True).expand_as(weak)
    torch.testing.assert_close(strong, torch.where(changed, mean, weak))
    rows, columns = changed.any(-1).sum(-1), changed.any(-2).sum(-1)
    assert rows.max() == columns.max() == 3
    assert torch.equal(changed.sum((-2, -1)), rows * columns)
    assert len(changed.flatten(0, 2).flatten(1).unique(dim=0)) > 8  # not the same square everywhere


def test_without_a_weak_view_the_cut_one_is_looked_at_and_learnt():
    looked_at, learnt = views(replace(AUGMENTED, weak_selection=False), [1, 2], 1, 0)
    assert learnt is looked_at
    uncut, _ = views(replace(AUGMENTED, cutout=0, weak_selection=False), [1, 2], 1, 0)
    assert not torch.equal(uncut, looked_at)


@pytest.mark.parametrize("weak_selection", [True, False])
def test_views_are_a_function_of_seed_epoch_and_step_alone(weak_selection):
    plan = replace(AUGMENTED, weak_selection=weak_selection)
    first = views(plan, [1, 2], 3, 1)
    for again in (views(plan, [1, 2], 3, 1), views(plan, [9, 1, 2, 5], 3, 1)):
        for mine, theirs in zip(first, again, strict=True):
            assert torch.equal(mine, theirs if len(theirs) == 2 else theirs[1:3])
    for other in (views(plan, [1, 2], 4, 1), views(plan, [1, 2], 3, 2), views(plan, [7, 8], 3, 1)):
        assert not any(torch.equal(mine, theirs) for mine, theirs in zip(first, other, strict=True))


def test_mixtures_are_drawn_from_beta_for_each_run_and_epoch():
    def dealt(seeds: list[int], epoch: int) -> tuple[Tensor, Tensor]:
        x, labels = torch.zeros(6000, 1), torch.zeros(len(seeds), 6000).long()
        batches = Batches(x, labels, seeds, 2000, 3, torch.float64, mixup=0.4)
        batches.shuffle(epoch)
        return batches.mixtures(torch.tensor([1]))

    share, which = dealt([1, 2], 1)
    # Beta(α, α): mean ½, variance 1 / (4 (2α + 1))
    for moment, expected in ((1, 0.5), (2, 0.25 / 1.8 + 0.25)):
        assert share.pow(moment).mean().item() == pytest.approx(expected, abs=0.02)
    assert 0 <= which.min() < which.max() < 1
    assert which.mean().item() == pytest.approx(0.5, abs=0.03)
    assert torch.equal(dealt([5, 1, 2], 1)[0][1:], share)
    for other in (dealt([1, 2], 2), dealt([3, 4], 1)):
        assert not torch.isin(other[0], share).any()


def test_what_is_tested_goes_through_the_augmentations_own_test():
    x = torch.randint(0, 256, (5, 3, 64, 64)).byte()
    augment = AUGMENTS["tiny_crops"]
    found = evaluation_input(x, torch.float32, augment, 2)
    assert found.shape == (2, 5, 3, 56, 56)
    assert torch.equal(found[1], augment.test(x))


def test_what_a_captured_step_looks_at_stays_where_it_is():
    clock = Clock(PLAN, [0.2], "cpu")
    batches, _ = numbered()

    def places() -> list[int]:
        looked_at = (clock.keep_R1, clock.lr, clock.beta1, clock.step_1, batches.order_SRB, batches.key_VSR1)
        return [t.data_ptr() for t in looked_at]

    before = places()
    for epoch in (1, 2, 5):
        clock.set_epoch(epoch)
        batches.shuffle(epoch)
    assert places() == before


def test_a_diary_holds_no_graph():
    training, _ = run_fit(problem(), METHODS["coteaching"], PLAN)
    assert not training.records.loss_SNRB.requires_grad


@pytest.mark.parametrize("precision", Precision)
def test_torchs_switches_in_the_block_and_after_it(precision):
    switches = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [switch.fp32_precision for switch in switches]
    inside = set()

    def broken_off() -> None:
        with precision.set():
            inside.update(switch.fp32_precision for switch in switches)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert inside == {"ieee" if precision is Precision.FLOAT32 else "tf32"}
    assert [switch.fp32_precision for switch in switches] == before


def test_only_bf16_rounds_a_forward_pass_on_a_cpu():
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    results = {}
    for precision in Precision:
        with precision.forward("cpu"):
            results[precision] = x @ w
    assert results[Precision.BF16].dtype == torch.bfloat16
    assert results[Precision.FLOAT32].dtype == results[Precision.TF32].dtype == torch.float32


def spoilt_standard(spoil):
    standard = METHODS["standard"]

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return spoil(LOSSES["cross_entropy"](logits, target))

    return replace(standard, phases=lambda plan: [replace(ph, loss=loss) for ph in standard.phases(plan)])


def test_an_infinite_loss_with_a_finite_gradient_is_sat_out():
    method = spoilt_standard(lambda losses: losses + torch.inf)
    training, rows = run_fit(problem(), method, PLAN)
    untrained, _ = run_fit(problem(), METHODS["standard"], replace(PLAN, lr=0.0))
    assert torch.equal(training.stack.theta_NRP, untrained.stack.theta_NRP)
    assert all(row["events"]["non_finite_loss"] == 3 for run in rows for row in run)


@pytest.mark.parametrize("batched", [True, False])
def test_batches_that_were_sat_out_are_in_no_statistics(batched):
    training, _ = run_fit(problem(), spoilt_standard(lambda losses: losses * torch.nan), PLAN, normed, batched)
    assert not training.stack.buffers["1.running_mean"].any()
    assert (training.stack.buffers["1.running_var"] == 1).all()


# ---- the stack ------------------------------------------------------------------------------------------------


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5 * 4, 2))


def test_a_network_handed_out_has_plain_convolutions():
    stack = Stack(conv, [1, 2], 2, batched=False)
    for module in stack.modules:
        pad_convolutions(module)  # as on a GPU in bf16
    assert type(stack.modules[0][0]) is PaddedConv2d
    assert type(stack.network(1, 1)[0]) is nn.Conv2d


def test_parameters_laid_out_with_gaps_come_back():
    stack = Stack(conv, [1, 2], 2, batched=False)
    stack.gap = torch.zeros(32)
    stack.lengths = [-(-shape.numel() // 32) * 32 for shape in stack.shapes.values()]  # as on a GPU
    tensors = [torch.randn(shape) for shape in stack.shapes.values()]
    flat = stack._flat(tensors)
    assert flat.numel() == sum(stack.lengths)
    for mine, theirs in zip(stack.split(flat).values(), tensors, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("batched", [True, False])
def test_logits_have_the_precision_of_the_weights(batched):
    stack = Stack(lambda: nn.Linear(3, 2), [1], 2, batched=batched, precision=Precision.BF16)
    x = torch.randn(2, 1, 4, 3)
    logits = stack(x)
    assert logits.dtype == torch.float32
    plain = torch.stack([stack.network(n, 0)(x[n, 0]) for n in range(2)])[:, None]
    torch.testing.assert_close(logits, plain, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("batched", [True, False])
def test_an_evaluation_that_breaks_off_goes_back_to_training(batched):
    stack = Stack(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), [1, 2], 2, batched=batched)
    with pytest.raises(KeyboardInterrupt), stack.evaluating():
        raise KeyboardInterrupt
    assert all(module.training for module in stack.modules)
    assert torch.is_grad_enabled()


def test_looped_networks_share_one_table_of_word_vectors():
    stack = Stack(lambda: NewsNet(torch.randn(9, 2), 3), [1, 2], 2, batched=False)
    assert len({module.vectors.data_ptr() for module in stack.modules}) == 1


class Scaled(nn.Module):
    """One factor without an axis, and one parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(8, 3), nn.Parameter(torch.tensor(2.0))
        self.idle = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.layer(x)


def test_odd_parameters_train_alike_batched_and_looped():
    trainings = [run_fit(problem(), METHODS["coteaching"], PLAN, Scaled, batched)[0] for batched in (True, False)]
    for n in range(2):
        mine, theirs = (training.stack.network(n, 1).state_dict() for training in trainings)
        for key in mine:
            torch.testing.assert_close(mine[key], theirs[key], rtol=1e-9, atol=1e-9)
        assert mine["factor"] != 2
        assert (mine["idle"] == 1).all()


def test_a_batch_norm_that_counts_its_batches_is_not_batched():
    assert batches_well(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    assert not batches_well(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None)))
