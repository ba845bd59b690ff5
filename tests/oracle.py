"""The paper read sample by sample: plain lists and numbers, one run at a time, nothing vectorised.

Each reading answers, for every network, with the numbers of the samples it learns from, in ascending order.
Equations and steps are the paper's; what it leaves open is quoted from the fidelity rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class Opinions:
    """What two networks (or one) think of a mini-batch."""

    logits: list[list[list[float]]]  # of network n for sample i, a number for each class
    losses: list[list[float]]  # of network n for sample i
    keep: Fraction | float  # λ(e); a fraction is exact, a float is multiplied as the authors' code does
    round_up: bool = True  # |D'| ≥ λ|D|; the authors round down
    clean: list[list[float]] | None = None  # how likely network n finds the label of sample i right

    @property
    def networks(self) -> range:
        return range(len(self.logits))

    @property
    def samples(self) -> range:
        return range(len(self.logits[0]))

    def prediction(self, network: int, sample: int) -> int:
        scores = self.logits[network][sample]
        return scores.index(max(scores))


Picks = list[list[int]]


def share(o: Opinions, n_candidates: int) -> int:
    """Steps 5 and 6: the least number ≥ λ·n, or with the authors the greatest ≤ λ·n."""
    return math.ceil(o.keep * n_candidates) if o.round_up else math.floor(o.keep * n_candidates)


def how_many(o: Opinions, n_candidates: int) -> int:
    """The appendix: where there are not enough to choose from, all ("only disagreement-update")."""
    return share(o, n_candidates) or n_candidates


def smallest(scores: list[float], candidates: list[int], number: int) -> list[int]:
    """The candidates with the smallest scores; of equal ones the earlier sample, an undefined score last."""

    def place(sample: int) -> tuple[bool, float, int]:
        undefined = math.isnan(scores[sample])
        return undefined, 0.0 if undefined else scores[sample], sample

    return sorted(sorted(candidates, key=place)[:number])


def disagreement(o: Opinions) -> list[int]:
    """Step 4, equation 1."""
    return [i for i in o.samples if len({o.prediction(n, i) for n in o.networks}) > 1]


def small_losses(o: Opinions, candidates: list[int]) -> Picks:
    """Steps 5 and 6: each network on its own losses."""
    number = how_many(o, len(candidates))
    return [smallest(o.losses[n], candidates, number) for n in o.networks]


def exchanged(picks: Picks) -> Picks:
    """Steps 7 and 8: each network learns what its peer picked."""
    return [picks[1], picks[0]]


def standard(o: Opinions) -> Picks:
    return [list(o.samples) for _ in o.networks]


def decoupling(o: Opinions) -> Picks:
    return [disagreement(o) for _ in o.networks]


def mentornet(o: Opinions) -> Picks:
    return small_losses(o, list(o.samples))


def coteaching(o: Opinions) -> Picks:
    return exchanged(small_losses(o, list(o.samples)))


def coteaching_plus(o: Opinions) -> Picks:
    return exchanged(small_losses(o, disagreement(o)))


def coteaching_plus_own(o: Opinions) -> Picks:
    return small_losses(o, disagreement(o))


def jocor(o: Opinions) -> Picks:
    """Both networks learn from the smallest joint losses, the sum of the two networks' shares."""
    joint = [o.losses[0][i] + o.losses[1][i] for i in o.samples]
    picked = smallest(joint, list(o.samples), how_many(o, len(o.samples)))
    return [picked, picked]


def cotraining(o: Opinions) -> Picks:
    """Each network hands its peer, of every class it predicts, the share it is surest about."""
    return exchanged([surest_of_each_class(o, n) for n in o.networks])


def surest_of_each_class(o: Opinions, network: int) -> list[int]:
    doubt = [-log_softmax(scores, scores.index(max(scores))) for scores in o.logits[network]]
    picked: list[int] = []
    for predicted in range(len(o.logits[network][0])):
        of_class = [i for i in o.samples if o.prediction(network, i) == predicted]
        picked += smallest(doubt, of_class, how_many(o, len(of_class)))
    return sorted(picked)


def log_softmax(scores: list[float], at: int) -> float:
    top = max(scores)
    return scores[at] - top - math.log(sum(math.exp(score - top) for score in scores))


def dividemix(o: Opinions) -> Picks:
    """The peer's mixture tells which labels are likely right."""
    return exchanged([likely(o, n) for n in o.networks])


def likely(o: Opinions, network: int) -> list[int]:
    assert o.clean is not None
    return [i for i in o.samples if o.clean[network][i] >= 0.5]


def coteaching_plus_by_mixture(o: Opinions) -> Picks:
    return exchanged([[i for i in likely(o, n) if i in disagreement(o)] for n in o.networks])


def candidates(rule: Callable[[Opinions], Picks], o: Opinions) -> list[int]:
    """Step 4: among which samples a rule chooses."""
    apart = (decoupling, coteaching_plus, coteaching_plus_own, coteaching_plus_by_mixture)
    return disagreement(o) if rule in apart else list(o.samples)


def nothing_kept(rule: Callable[[Opinions], Picks], o: Opinions) -> bool:
    """Whether a rule that keeps a share of its candidates had to take them all, the share being none."""
    n_candidates = len(candidates(rule, o))
    return rule not in NO_SHARE and n_candidates > 0 and share(o, n_candidates) == 0


RULES: dict[str, Callable[[Opinions], Picks]] = {
    "standard": standard,
    "decoupling": decoupling,
    "mentornet": mentornet,
    "coteaching": coteaching,
    "coteaching_plus": coteaching_plus,
    "coteaching_plus_own": coteaching_plus_own,
    "cotraining": cotraining,
    "jocor": jocor,
}

# Of a mixture instead of a share, where a rule picks small losses.
BY_MIXTURE: dict[Callable[[Opinions], Picks], Callable[[Opinions], Picks]] = {
    mentornet: lambda o: [likely(o, n) for n in o.networks],
    coteaching: dividemix,
    coteaching_plus: coteaching_plus_by_mixture,
}
NO_SHARE = (standard, decoupling, *BY_MIXTURE.values())


# The paper's Table 1.           small loss, double classifiers, cross update, divergence
TABLE_1 = {
    "mentornet": (True, False, False, False),
    "cotraining": (False, True, True, True),
    "coteaching": (True, True, True, False),
    "decoupling": (False, True, False, True),
    "coteaching_plus": (True, True, True, True),
    "coteaching_plus_own": (True, True, False, True),  # not in the paper: without the exchange
}
