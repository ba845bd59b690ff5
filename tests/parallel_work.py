"""Pieces of work for processes of their own; light, since every process imports it anew."""

import os
import signal
import time
from pathlib import Path

LONG = 30.0  # seconds that nobody should have to wait


class Unsendable(Exception):
    """It holds what cannot be sent to another process."""

    def __init__(self, message):
        super().__init__(message, lambda: None)


class Unreceivable(Exception):
    """It can be sent, but not put together again."""

    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


def count_up(item, send):
    name, n_messages = item
    for number in range(n_messages):
        send((name, os.getpid(), number))


def send_at_the_very_end(item, send):
    name, n_bytes = item
    send((name, bytes(n_bytes)))


def nothing(item, send):
    pass


def raise_it(error, send):
    send("about to fail")
    raise error


def raise_unsendable(message, send):
    raise Unsendable(message)


def raise_unreceivable(message, send):
    raise Unreceivable("too odd", message)


def die(code, send):
    os._exit(code)


def press_ctrl_c(item, send):
    signal.raise_signal(signal.SIGINT)
    send("still here")


def act(item, send):
    """Roles of a play: who goes on for long, who fails and who is done while the others are at it."""
    role, folder = item
    note(Path(folder, role), os.getpid())
    match role:
        case "sleeper":
            time.sleep(LONG)
            note(Path(folder, "slept"), 0)
        case "talker":  # fills its pipe when nobody listens
            while True:
                send(bytes(100_000))
        case "failure":
            wait_for(Path(folder, "sleeper"))
            raise ArithmeticError("one of two")
        case "quick":
            wait_for(Path(folder, "talker"))


def note(path, number):
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(str(number))
    unfinished.replace(path)


def wait_for(path):
    end = time.monotonic() + LONG
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def die_once(item, send):
    """The first time it is begun, the process that does it is lost."""
    name, mark = item
    send(f"{name}, to begin with")
    if name == "dies" and not Path(mark).exists():
        Path(mark).touch()
        time.sleep(1)  # so that what was sent has left
        os._exit(1)
    if name == "dies":
        send(f"{name}, but lives")


def keep_number(number):
    os.environ["NUMBER_OF_THE_PROCESS"] = str(number)


def tell_number(item, send):
    send(os.environ["NUMBER_OF_THE_PROCESS"])
