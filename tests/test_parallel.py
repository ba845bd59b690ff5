"""Work in processes of their own: nothing is done twice, no message is lost, and nobody is left behind."""

import multiprocessing
import os

import pytest

import parallel_work as work
from coteach.runs.parallel import in_processes


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(autouse=True)
def nobody_is_left_behind():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("n_items, workers", [(5, 2), (2, 3), (1, None)])
def test_each_item_is_done_once_and_its_messages_come_first_and_in_order(n_items, workers):
    items = [(f"item {i}", 10 * i + 1) for i in range(n_items)]
    heard: dict[str, list[int]] = {name: [] for name, _ in items}
    pids = set()

    def hear(message: tuple[str, int, int]) -> None:
        name, pid, number = message
        heard[name].append(number)
        pids.add(pid)

    done = []
    for name, n_messages in in_processes(work.count_up, items, hear, workers):
        assert heard[name] == list(range(n_messages))
        done.append((name, n_messages))
    assert sorted(done) == sorted(items)
    assert {name: len(numbers) for name, numbers in heard.items()} == dict(items)
    assert os.getpid() not in pids
    assert len(pids) <= min(n_items, workers or n_items)
    assert all(gone(pid) for pid in pids)


def test_what_is_sent_just_before_the_end_is_not_lost():
    items = [(i, 300_000) for i in range(6)]  # a pipe holds 64 kB
    heard: list[tuple[int, bytes]] = []
    for name, n_bytes in in_processes(work.send_at_the_very_end, items, heard.append, 2):
        assert (name, bytes(n_bytes)) in heard
    assert len(heard) == len(items)


def test_every_process_begins_with_its_number():
    heard: list[str] = []
    list(in_processes(work.tell_number, range(2), heard.append, 2, begin=work.keep_number))
    assert set(heard) <= {"0", "1"}
    assert len(heard) == 2
    list(in_processes(work.tell_number, range(3), heard.append, 1, begin=work.keep_number))
    assert heard[2:] == ["0", "0", "0"]


def test_an_item_is_asked_for_when_a_process_is_free():
    asked, done = [], []

    def items():
        for i in range(4):
            asked.append(i)
            yield i

    for item in in_processes(work.nothing, items(), pytest.fail, 1):
        done.append(item)
        assert len(asked) <= len(done) + 1
    assert done == asked == [0, 1, 2, 3]


def test_the_next_item_is_asked_for_when_the_one_before_it_was_seen():
    """As a call with so many minutes asks for the next cells by the pace of those it has seen."""
    seen: list[int] = []

    def items():
        for i in range(4):
            assert seen == list(range(i))
            yield i

    for item in in_processes(work.nothing, items(), pytest.fail, 1):
        assert item == len(seen)
        seen.append(item)
    assert len(seen) == 4


def test_no_items_and_no_messages():
    assert list(in_processes(work.nothing, [], pytest.fail)) == []
    assert list(in_processes(work.nothing, iter("ab"), pytest.fail, 1)) == ["a", "b"]


@pytest.mark.parametrize(
    "error", [ValueError("the rate is 2"), KeyError("x"), OSError(28, "No space left on device")]
)
def test_an_exception_reaches_the_parent_as_it_was(error):
    heard: list[str] = []
    with pytest.raises(type(error)) as raised:
        list(in_processes(work.raise_it, [error], heard.append, 1))
    assert type(raised.value) is type(error)
    assert raised.value.args == error.args
    assert heard == ["about to fail"]
    assert "in raise_it" in "".join(raised.value.__notes__), "where it happened is not told"


@pytest.mark.parametrize("raise_it", [work.raise_unsendable, work.raise_unreceivable])
def test_an_exception_that_cannot_travel_is_told_in_words(raise_it):
    with pytest.raises(RuntimeError, match=r"Un(send|receiv)able: .*to carry"):
        list(in_processes(raise_it, ["to carry"], pytest.fail, 1))


def test_a_process_that_dies_is_told():
    with pytest.raises(RuntimeError, match="at work on 3 died with exit code 3"):
        list(in_processes(work.die, [3], pytest.fail, 1))


def test_ctrl_c_is_left_to_the_parent():
    heard: list[str] = []
    assert list(in_processes(work.press_ctrl_c, [1], heard.append, 1)) == [1]
    assert heard == ["still here"]


def pids_of(folder, *roles: str) -> list[int]:
    """The processes that noted theirs; these, and no others, have begun."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(roles)
    return [int((folder / role).read_text()) for role in roles]


def test_an_exception_does_not_wait_for_the_others(tmp_path):
    items = [(role, str(tmp_path)) for role in ("sleeper", "failure", "never begun")]
    with pytest.raises(ArithmeticError, match="one of two"):
        list(in_processes(work.act, items, pytest.fail, 2))
    assert all(gone(pid) for pid in pids_of(tmp_path, "sleeper", "failure"))


def test_a_parent_that_has_heard_enough_ends_the_processes(tmp_path):
    def hear(message: bytes) -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        list(in_processes(work.act, [("talker", str(tmp_path))], hear, 1))
    assert all(gone(pid) for pid in pids_of(tmp_path, "talker"))


def test_a_parent_that_stops_listening_ends_the_processes(tmp_path):
    items = [(role, str(tmp_path)) for role in ("talker", "quick")]
    done = in_processes(work.act, items, lambda message: None, 2)
    assert next(done) == ("quick", str(tmp_path))
    done.close()
    assert all(gone(pid) for pid in pids_of(tmp_path, "talker", "quick"))
