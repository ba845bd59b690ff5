"""The vectorised trainer held against the plain loop."""

from collections.abc import Callable

from torch import nn

import plain
from coteach.methods import METHODS, Method
from coteach.plan import Plan
from plain_methods import Stage, stages
from tiny import Known, assert_same_rows, assert_same_weights, mlp, problem, run_fit


def assert_trains_like_the_plain_loop(
    name: str,
    plan: Plan,
    build: Callable[[], nn.Module] = mlp,
    p: Known | None = None,
    method: Method | None = None,
    of_stages: Callable[[str, Plan], list[Stage]] = stages,
) -> list[list[dict]]:
    p = p or problem()
    training, rows = run_fit(p, method or METHODS[name], plan, build)
    for run in range(len(p.seeds)):
        pair, plain_rows = plain.train(name, p, run, plan, build, of_stages)
        assert_same_rows(rows[run], plain_rows)
        for n, network in enumerate(plain.result(pair, plan)):
            assert_same_weights(training.stack.network(n, run), network.eval())
    return rows
