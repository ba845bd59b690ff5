"""Ctrl-C and a kill while a network learns: after the step, not in the middle of it."""

import signal
import threading

import pytest

from coteach.engine import Engine
from coteach.measure import measure
from coteach.methods import METHODS
from coteach.signals import handled_between_steps, postponed_to_steps
from coteach.train import fit
from tiny import PLAN, mlp, problem


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """The usual ones before, and after as they were."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for signum, handler in before.items():
        signal.signal(signum, handler)


def asking(times: int, signum: int, done: list[str]):
    def step() -> None:
        for _ in range(times):
            signal.raise_signal(signum)
            done.append("asked")
        done.append("stepped")

    return step


def one_after_the_other(*steps) -> None:
    for step in steps:
        step()


def test_a_signal_is_heeded_after_the_step():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), postponed_to_steps() as guarded:
        one_after_the_other(guarded(asking(1, signal.SIGINT, done)), lambda: done.append("never"))
    assert done == ["asked", "stepped"]


def test_a_second_one_is_heeded_at_once():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), postponed_to_steps() as guarded:
        guarded(asking(2, signal.SIGINT, done))()
    assert done == ["asked"]


def test_what_a_handler_of_ones_own_does_is_done_then():
    done: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: done.append("mine"))
    with postponed_to_steps() as guarded:
        one_after_the_other(guarded(asking(1, signal.SIGTERM, done)), guarded(lambda: done.append("stepped")))
    assert done == ["asked", "stepped", "mine", "stepped"]


def test_one_that_comes_after_the_last_step_is_not_lost():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), postponed_to_steps():
        asking(1, signal.SIGINT, done)()
    assert done == ["asked", "stepped"]


def test_an_error_is_told_though_a_signal_waits():
    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), postponed_to_steps():
        one_after_the_other(asking(1, signal.SIGINT, []), failing)


def test_other_threads_have_no_signals_and_train_as_ever():
    rows: list[dict] = []
    work = threading.Thread(target=lambda: trained(rows))
    work.start()
    work.join()
    assert len(rows) == 3 * PLAN.epochs


def handlers_during(training) -> set:
    seen = set()
    training([], lambda epoch: seen.add(signal.getsignal(signal.SIGINT)))
    return seen


def test_a_library_call_leaves_the_hosts_handlers_alone():
    assert handlers_during(trained) == {signal.default_int_handler}


def test_a_command_postpones_signals_to_the_end_of_a_step():
    with handled_between_steps():
        (handler,) = handlers_during(trained)
    assert handler is not signal.default_int_handler
    assert handlers_during(trained) == {signal.default_int_handler}


def test_a_training_stops_in_the_epoch_it_is_asked_in():
    rows: list[dict] = []

    def asked(epoch) -> None:
        rows.extend(measure(epoch))
        if epoch.number == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trained(rows, asked)
    assert len(rows) == 3 * 2


def trained(rows: list[dict], on_epoch=None) -> None:
    fit(problem(), METHODS["coteaching"], PLAN, mlp, engine=Engine(),
        on_epoch=on_epoch or (lambda epoch: rows.extend(measure(epoch))))  # fmt: skip
