"""Mixtures of kept samples: whose, in which shares, and that nothing of a dropped sample gets into them."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from coteach.engine import Engine
from coteach.learning import mixed, partners
from coteach.methods import METHODS
from coteach.rules import Rule, everything
from coteach.train import fit
from tiny import EVERYTHING, PLAN, C, Known, pictures

N, R, B = 2, 3, 7


@given(st.data())
def test_a_partner_is_a_kept_sample_each_as_likely(data):
    kept = data.draw(st.lists(st.booleans(), min_size=B, max_size=B))
    u = data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=B, max_size=B))
    found = partners(torch.tensor([[kept]]), torch.tensor([u], dtype=torch.float64))[0, 0].tolist()
    places = [i for i, is_kept in enumerate(kept) if is_kept]
    for number, place in zip(u, found, strict=True):
        assert place == (places[int(number * len(places))] if places else found[0])


def test_a_number_that_was_rounded_up_to_one_still_finds_a_partner():
    """In single precision, what is drawn below 1 may be 1."""
    kept = torch.tensor([[[True, False, True]]])
    assert partners(kept, torch.tensor([[1.0, 1.0, 1.0]])).flatten().tolist() == [2, 2, 2]


def test_mixtures_are_means_of_two_samples_of_the_same_network_and_run():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, R, B, 2, 4, 5, generator=generator, dtype=torch.float64)
    kept = torch.rand(N, R, B, generator=generator) < 0.5
    share, u = torch.rand(2, R, B, generator=generator, dtype=torch.float64)
    partner = partners(kept, u)
    found = mixed(x, partner, share)
    for n in range(N):
        for r in range(R):
            for b in range(B):
                own, other = x[n, r, b], x[n, r, partner[n, r, b]]
                torch.testing.assert_close(found[n, r, b], share[r, b] * own + (1 - share[r, b]) * other)


def test_nothing_of_a_dropped_sample_gets_into_what_is_kept():
    generator = torch.Generator().manual_seed(1)
    kept = torch.rand(N, R, B, generator=generator) < 0.6
    assert kept.any(-1).all()
    assert not kept.all()
    x = torch.randn(N, R, B, 4, generator=generator).masked_fill(~kept[..., None], torch.nan)
    share, u = torch.rand(2, R, B, generator=generator)
    found = mixed(x, partners(kept, u), share)
    assert found[kept].isfinite().all()


def image_tensor(p: Known) -> Tensor:
    assert isinstance(p.x_M, Tensor)
    return p.x_M


def network() -> nn.Module:
    """Without batch norm, where every sample has a say."""
    return nn.Sequential(nn.Flatten(), nn.Linear(60, 8), nn.Tanh(), nn.Linear(8, C))


def test_what_dropped_samples_look_like_changes_nothing():
    """A rule that drops by the given label; the images of that label are replaced."""

    def but_the_first_class(b, among):
        return among & (b.label_RB != 0)

    rule = Rule(everything, but_the_first_class, cross=False)
    standard = METHODS["standard"]
    method = replace(standard, phases=lambda plan: [replace(phase, rule=rule) for phase in standard.phases(plan)])
    p = pictures(runs=1)
    x_M, dropped = image_tensor(p), p.y_RM[0] == 0
    assert 0 < dropped.sum() < len(dropped)

    def end(x: Tensor) -> Tensor:
        return fit(replace(p, x_M=x), method, EVERYTHING, network, engine=Engine(torch.float64)).stack.theta_NRP

    garbage = torch.where(dropped[:, None, None, None], -100 * x_M, x_M)
    torch.testing.assert_close(end(garbage), end(x_M), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(end(torch.where(dropped[:, None, None, None], x_M, 1.1 * x_M)), end(x_M))


def test_jocors_networks_learn_the_same_mixtures():
    """Else the distance between their predictions would be one between images."""
    seen: list[list[Tensor]] = [[], []]
    names = iter([0, 1])

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.name = network(), next(names)

        def forward(self, x):
            if torch.is_grad_enabled():  # what is learnt, not what is looked at
                seen[self.name].append(x.detach().clone())
            return self.layers(x)

    plan = replace(PLAN, epochs=3, mixup=0.7)
    fit(pictures(runs=1), METHODS["jocor"], plan, Watching, engine=Engine(torch.float64, batched=False))
    assert len(seen[0]) == len(seen[1]) == 9
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))
    originals = {tuple(image.flatten().tolist()) for image in image_tensor(pictures(runs=1))}
    assert not any(tuple(image.flatten().tolist()) in originals for image in seen[0][0])
