"""Add a method in twenty lines: register it, train it beside the others, and run the existing tests on it.

For researchers. Half a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/new_rule.py

Prints the test accuracy of Co-teaching and of the new method on the digits, half of their labels wrong. (The new
one is no better. Most ideas are not, which is why trying one should take no more than twenty lines.)

The tests go through `coteach.METHODS`. If this file is imported before they are collected, they include its
method: they check the trainer, the ledger and the run folder with it, step by step against plain loops.

    PYTHONPATH=examples python -m pytest -p new_rule tests -k "coteaching_hard or test_rules"
"""

import tempfile
from pathlib import Path

from torch import Tensor

import coteach
from coteach import rules
from coteach.methods import chosen_loss
from coteach.rules import Batch, Rule, everything, how_many, lowest, small_loss

# ---- the method: among small losses, the very smallest teach nothing any more ---------------------------------


def small_but_not_easy(b: Batch, among_NRB: Tensor) -> Tensor:
    """The samples that Co-teaching would pick, without the easiest tenth of them (True where picked, NRB)."""
    n_easy_NR1 = how_many(b, among_NRB) // 10
    return small_loss(b, among_NRB) & ~lowest(b.loss_NRB, among_NRB, n_easy_NR1)


RULE = Rule(everything, small_but_not_easy, cross=True)  # each network learns what its peer picked


def phases(plan: coteach.Plan) -> list[coteach.Phase]:
    """Co-teaching for the warm-up, then the new rule, with the loss that the user asks for."""
    loss = chosen_loss(plan)
    return [
        coteach.Phase(plan.warmup_epochs, rules.coteaching, loss),
        coteach.Phase(plan.later_epochs, RULE, loss),
    ]


coteach.register_method(coteach.Method("coteaching_hard", 2, phases), "Co-teaching without the easiest tenth")

# ---- its name is now as good as any -----------------------------------------------------------------------------


def main(epochs: int = 50, seeds: tuple[int, ...] = (1, 2, 3), dataset: coteach.Dataset | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for method in ("coteaching", "coteaching_hard"):
            experiment = coteach.Experiment(
                method=method, noise="symmetric", rate=0.5, epochs=epochs, seeds=seeds, out=Path(folder) / method
            )
            summary = coteach.run(experiment, dataset).summary
            print(
                f"{method}: {summary['mean']:.1f} % ± {summary['std'] or 0:.1f} over {len(seeds)} seeds, ", end=""
            )
            print(f"{summary['label_precision']:.1f} % of the labels it learnt from were right")


if __name__ == "__main__":
    main()
