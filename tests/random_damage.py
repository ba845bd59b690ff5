"""Random damage for a given number of minutes: right result, or one sentence and nothing changed.

    python tests/random_damage.py --minutes 10 --seed 1

Runs, audits, reports and models are killed, cut short by a disk that is full, started twice in one folder, or find
their files changed, exchanged, lost, or replaced by links, folders and pipes. Every finding is printed with the
number that brings it back: `--only NUMBER`. Children are forked from a parent that loaded torch but never used it.
"""

import argparse
import json
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from coteach import Ledger, RobustClassifier, SelectiveTrainingClassifier
from coteach.audit import judge, review, tables, write  # noqa: F401 - loaded once for all children
from coteach.audit.check import CHECK_COLUMNS, QUALITY, check_fingerprint
from coteach.audit.decisions import CHECK, DECISION_COLUMNS, audit_fingerprint, read_cells
from coteach.audit.encoding import features
from coteach.audit.features import encoded, of_arrays
from coteach.cli import main
from coteach.encoders.named import Encoder
from coteach.files import as_csv
from coteach.report import page, read  # noqa: F401 - the same
from coteach.runs import checkpoint, run  # noqa: F401 - the same
from coteach.selective.files import load_selective, save_selective
from killed import die_at

RUN = shlex.split(
    "run --method coteaching --noise pair --rate 0.45 --epochs 3 --warmup 1 --batch-size 256 --group 1 "
    "--seeds 1 2 --device cpu --out run"
)
AUDIT = shlex.split(
    "audit --table table.csv --label label --noise-rate 0.2 --share 0.2 --epochs 2 --check 12 --device cpu "
    "--out audit"
)
APPLY = shlex.split("audit --apply decisions.csv --out audit")
CALIBRATE = shlex.split("audit --calibrate checked.csv --out audit")
RANKED = ("id", "given", "suggested", "quality")
REPORT = shlex.split("report run --out page.html")
ENCODINGS = ("utf-8", "cp1252", "ascii", "utf-16")
KILLED = -signal.SIGKILL
WHOLE_BY_THEMSELVES = ("model.safetensors", "encoding.json")  # another one is as good a model


class Finding(Exception):
    """Something that must not happen."""


# ---- processes ------------------------------------------------------------------------------------------------


def begin(work: Callable[[], int], folder: Path, encoding: str = "utf-8", limit: int | None = None) -> int:
    """The number of a forked process that does some work in a folder; its files end at `limit` bytes."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.chdir(folder.parent)
        for name, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(f"{folder.name}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            setattr(sys, name, open(number, "w", encoding=encoding, closefd=False))  # noqa: SIM115
        os.chdir(folder)
        checkpoint.COST = 1e9
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        status = work()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        traceback.print_exc()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def command(words: list[str]) -> Callable[[], int]:
    def work() -> int:
        main(words)
        return 0

    return work


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def call(words: list[str], folder: Path, **options) -> int:
    return ended(begin(command(words), folder, **options))


def one_sentence(folder: Path, encoding: str) -> None:
    """What was said on standard error: a line, after warnings if there were any."""
    text = (folder.parent / f"{folder.name}.stderr").read_bytes().decode(encoding)
    lines = [line for line in text.splitlines() if not line.startswith("note: ")]
    if len(lines) != 1 or not lines[0].startswith("coteach: "):
        raise Finding(f"not one sentence: {text[-600:]!r}")


def everything(folder: Path) -> dict[str, bytes | str]:
    def content(path: Path) -> bytes | str:
        if path.is_symlink():
            return f"link to {os.readlink(path)}"
        return path.read_bytes() if path.is_file() else "folder" if path.is_dir() else "pipe"

    found = [path for path in sorted(folder.rglob("*")) if path.name != ".lock"]  # of a process that was killed
    return {path.relative_to(folder).as_posix(): content(path) for path in found}


def without_seconds(found: dict[str, bytes | str]) -> dict[str, bytes | str]:
    """What must be the same in two folders."""
    same = dict(found)
    for name, content in found.items():
        if name.endswith("summary.json") and isinstance(content, bytes):
            same[name] = json.dumps(json.loads(content) | {"seconds": 0})
    return same


def same_as(reference: Path, found: Path, of: str) -> None:
    there, here = without_seconds(everything(reference / of)), without_seconds(everything(found / of))
    if there != here:
        names = [name for name in there | here if there.get(name) != here.get(name)]
        raise Finding(f"another result: {', '.join(names)}")


# ---- damage ---------------------------------------------------------------------------------------------------


def damage(folder: Path, other: Path, outside: Path, chance: random.Random) -> str:
    """Do something to one file below a folder, and say what."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    name, content = path.relative_to(folder).as_posix(), path.read_bytes()
    kind = chance.choice([kind for kind in DAMAGES if kind != "exchanged" or name not in WHOLE_BY_THEMSELVES])
    at = chance.randrange(len(content) + 1)
    if kind in ("bits", "zeros", "cut", "more", "empty"):
        path.write_bytes(DAMAGES[kind](content, at, chance))
    elif kind == "exchanged":
        twin = other / path.relative_to(folder)
        choices = [twin] if twin.is_file() else [p for p in sorted(other.rglob("*")) if p.is_file()]
        path.write_bytes(chance.choice(choices).read_bytes())
    elif kind == "hard link":
        os.link(path, outside / "twin")
    else:
        path.unlink()
        if kind == "link":
            (outside / "file").write_bytes(content)
            path.symlink_to(outside / "file")
        elif kind == "dangling link":
            path.symlink_to(outside / "nowhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
    return f"{kind} of {name}"


def changed_bits(content: bytes, at: int, chance: random.Random) -> bytes:
    changed = bytearray(content or b"\0")
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


DAMAGES = {
    "bits": changed_bits,
    "zeros": lambda content, at, chance: content[:at] + bytes(min(4096, len(content) - at)) + content[at + 4096 :],
    "cut": lambda content, at, chance: content[:at],
    "more": lambda content, at, chance: content[:at] + chance.randbytes(9) + content[at:],
    "empty": lambda content, at, chance: b"",
    "exchanged": None,
    "lost": None,
    "link": None,
    "dangling link": None,
    "hard link": None,
    "folder": None,
    "pipe": None,
}


# ---- what is done to what -------------------------------------------------------------------------------------


class Soak:
    """Folders to compare with, made once, and the trials."""

    def __init__(self, base: Path):
        self.base, self.whole, self.other = base, base / "whole", base / "other"
        self.stopped = []
        for folder in (self.whole, self.other):
            folder.mkdir()
            write_table(folder / "table.csv", seed=len(folder.name))
        wanted = [word if word != "0.45" else "0.3" for word in RUN]
        assert call(RUN, self.whole) == 0
        began = time.monotonic()
        assert call(wanted, self.other) == 0
        self.seconds = time.monotonic() - began
        assert call(AUDIT, self.whole) == call(AUDIT, self.other) == 0
        for folder in (self.whole, self.other):
            write_decisions(folder)
        assert call(APPLY, self.whole) == call(CALIBRATE, self.whole) == call(REPORT, self.whole) == 0
        for n in (3, 7, 12, 16, 22, 28):
            self.stopped.append(base / f"stopped-{n}")
            self.stopped[-1].mkdir()
            assert ended(begin(lambda n=n: die_at("step", n) or command(RUN)(), self.stopped[-1])) == KILLED
        x = np.random.default_rng(0).normal(size=(40, 4))

        def fit() -> int:
            y, models = np.arange(40) % 2, self.whole / "models"
            models.mkdir()
            RobustClassifier(noise_rate=0.1, epochs=1, random_state=0).fit(x, y).save(models / "network")
            save_selective(SelectiveTrainingClassifier(noise_rate=0.1, rounds=1).fit(x, y), models / "linear")
            ledger = Ledger(40)
            ledger.note(np.arange(40), x, y)
            ledger.save(models / "ledger")
            np.save(self.whole / "x.npy", x)
            np.save(self.whole / "features.npy", kept_features(self.whole / "kept"))
            return 0

        assert ended(begin(fit, self.whole)) == 0

    def trial(self, number: int, kind: str | None = None) -> tuple[str, str]:
        """What was done, and what came of it."""
        chance = random.Random(number)
        trials = (self.damaged_run, self.killed_run, self.full_disk, self.twins, self.killed_audit)
        trials += (self.damaged_audit, self.damaged_report, self.damaged_model, self.damaged_run)
        trials += (self.damaged_audit, self.features_kept)
        act = chance.choice(trials)
        act = act if kind is None else getattr(self, kind)
        folder, outside = self.base / "trial" / "here", self.base / "trial" / "outside"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        outside.mkdir()
        try:
            return act.__name__, act(folder, outside, chance)
        except Finding as finding:
            raise Finding(f"{act.__name__}: {finding}") from finding

    def refused_or_right(
        self, words: list[str], folder: Path, outside: Path, chance: random.Random, right: Callable[[], None]
    ) -> str:
        encoding = chance.choice(ENCODINGS)
        before, far = everything(folder), everything(outside)
        status = call(words, folder, encoding=encoding)
        if everything(outside) != far:
            raise Finding("another folder was changed")
        if status == 0:
            right()
            return "right"
        if status != 2:
            text = (folder.parent / f"{folder.name}.stderr").read_bytes().decode(encoding)
            raise Finding(f"status {status}: {text[-800:]}")
        one_sentence(folder, encoding)
        if everything(folder) != before:
            raise Finding("refused, but something was changed")
        return "refused"

    def damaged_run(self, folder: Path, outside: Path, chance: random.Random) -> str:
        shutil.copytree(chance.choice(self.stopped) / "run", folder / "run")
        done = damage(folder / "run", self.other / "run", outside, chance)
        try:
            words = ["run", "--resume", "run"]
            return self.refused_or_right(
                words, folder, outside, chance, lambda: same_as(self.whole, folder, "run")
            )
        except Finding as finding:
            raise Finding(f"{done}: {finding}") from finding

    def killed_run(self, folder: Path, outside: Path, chance: random.Random) -> str:
        words = RUN
        if chance.random() < 0.7:
            shutil.copytree(chance.choice(self.stopped) / "run", folder / "run")
            words = ["run", "--resume", "run"]
        for _ in range(chance.randint(1, 3)):
            words = self.kill(words, folder, chance)
        if (folder / "run" / "summary.json").exists():
            same_as(self.whole, folder, "run/summary.json".rpartition("/")[0])
            return "finished before"
        if call(words, folder) != 0:
            raise Finding("it does not go on: " + (folder.parent / "here.stderr").read_text()[-600:])
        same_as(self.whole, folder, "run")
        return "right"

    def kill(self, words: list[str], folder: Path, chance: random.Random) -> list[str]:
        """Begin and kill; returns how to go on."""
        if not (folder / "run" / "summary.json").exists():
            pid = begin(command(words), folder)
            time.sleep(chance.uniform(0, self.seconds))
            os.kill(pid, signal.SIGKILL)
            ended(pid)
        return ["run", "--resume", "run"] if (folder / "run" / "config.toml").exists() else RUN

    def full_disk(self, folder: Path, outside: Path, chance: random.Random) -> str:
        words = RUN
        if chance.random() < 0.5:
            shutil.copytree(chance.choice(self.stopped) / "run", folder / "run")
            words = ["run", "--resume", "run"]
        status = call(words, folder, limit=int(10 ** chance.uniform(2, 6.3)))
        if status == 2:
            one_sentence(folder, "utf-8")
        elif status != 0:
            raise Finding(f"status {status}: " + (folder.parent / "here.stderr").read_text()[-800:])
        if status == 0:
            same_as(self.whole, folder, "run")
            return "enough room"
        words = ["run", "--resume", "run"] if (folder / "run" / "config.toml").exists() else RUN
        if call(words, folder) != 0:
            raise Finding("it does not go on: " + (folder.parent / "here.stderr").read_text()[-600:])
        same_as(self.whole, folder, "run")
        return "right"

    def twins(self, folder: Path, outside: Path, chance: random.Random) -> str:
        shutil.copy(self.whole / "table.csv", folder)
        words, of = chance.choice(((RUN, "run"), (AUDIT, "audit")))
        both = [begin(command(words), folder), begin(command(words), folder)]
        statuses = sorted(map(ended, both))
        if statuses != [0, 2]:
            raise Finding(f"twins ended with {statuses}")
        (same_as if of == "run" else same_audit)(self.whole, folder, of)
        return "one of them"

    def killed_audit(self, folder: Path, outside: Path, chance: random.Random) -> str:
        shutil.copy(self.whole / "table.csv", folder)
        pid = begin(command(AUDIT), folder)
        time.sleep(chance.uniform(0, 1.3 * self.seconds))
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        found = {name: c for name, c in everything(folder).items() if not Path(name).name.startswith(".")}
        expected = everything(self.whole)
        for name, content in found.items():  # a file is whole, or not there
            if name.startswith("audit/") and name != "audit/summary.json" and content != expected[name]:
                raise Finding(f"{name} is half-written")
        if "audit/summary.json" in found:
            same_audit(self.whole, folder, "audit")
            return "finished before"
        shutil.copy(self.whole / "decisions.csv", folder)
        answer = self.refused_or_right(APPLY, folder, outside, chance, lambda: same_corrected(self.whole, folder))
        shutil.rmtree(folder / "audit", ignore_errors=True)
        if call(AUDIT, folder) != 0:
            raise Finding("it cannot be begun anew")
        same_audit(self.whole, folder, "audit")
        return f"right anew, decisions {answer}"

    def damaged_audit(self, folder: Path, outside: Path, chance: random.Random) -> str:
        shutil.copytree(
            self.whole / "audit", folder / "audit", ignore=shutil.ignore_patterns("corrected.csv", "calibrat*")
        )
        shutil.copy(self.whole / "decisions.csv", folder)
        shutil.copy(self.whole / "checked.csv", folder)
        shutil.copy(self.whole / "table.csv", folder)
        done = damage(folder / "audit", self.other / "audit", outside, chance)
        try:
            words, right = chance.choice(((APPLY, same_corrected), (CALIBRATE, same_calibration)))
            answer = self.refused_or_right(words, folder, outside, chance, lambda: right(self.whole, folder))
            return f"{words[1][2:]} {answer}, predictions {self.predicted_or_refused(folder)}"
        except Finding as finding:
            raise Finding(f"{done}: {finding}") from finding

    def predicted_or_refused(self, folder: Path) -> str:
        """The model of a damaged audit gives what it gave, or a ValueError."""

        def predict(audit: Path) -> np.ndarray:
            x = features(audit, self.whole / "table.csv")
            return RobustClassifier.load(audit / "model.safetensors").predict_proba(x)

        def compare() -> int:
            try:
                found = predict(folder / "audit")
            except ValueError:
                return 2
            return 0 if np.array_equal(found, predict(self.whole / "audit")) else 3

        status = ended(begin(compare, folder))
        if status not in (0, 2):
            raise Finding(f"predictions: status {status} " + (folder.parent / "here.stderr").read_text()[-600:])
        return "right" if status == 0 else "refused"

    def damaged_report(self, folder: Path, outside: Path, chance: random.Random) -> str:
        shutil.copytree(self.whole / "run", folder / "run")
        done = damage(folder / "run", self.other / "run", outside, chance)

        def right() -> None:
            if (folder / "page.html").read_bytes() != (self.whole / "page.html").read_bytes():
                raise Finding("another page")

        try:
            return self.refused_or_right(REPORT, folder, outside, chance, right)
        except Finding as finding:
            raise Finding(f"{done}: {finding}") from finding

    def damaged_model(self, folder: Path, outside: Path, chance: random.Random) -> str:
        name = chance.choice(sorted(READERS))
        (folder / "models").mkdir()
        shutil.copy(self.whole / "models" / name, folder / "models")
        done = damage(folder / "models", self.other / "audit", outside, chance)
        x = np.load(self.whole / "x.npy")

        def compare() -> int:
            try:
                found = READERS[name](folder / "models" / name, x)
            except ValueError:
                return 2
            return 0 if np.array_equal(found, READERS[name](self.whole / "models" / name, x)) else 3

        status = ended(begin(compare, folder))
        if status not in (0, 2):
            raise Finding(f"{done}: status {status} " + (folder.parent / "here.stderr").read_text()[-600:])
        return "right" if status == 0 else "refused"

    def features_kept(self, folder: Path, outside: Path, chance: random.Random) -> str:
        """They are right whatever happens to those that were kept, or to the process that keeps them."""

        def compare() -> int:
            found = kept_features(folder / "kept")
            return 0 if np.array_equal(found, np.load(self.whole / "features.npy")) else 3

        done, limit, killed = "", None, 0
        what = chance.choice(("damage", "kill", "full disk", "twins"))
        if what == "damage":
            shutil.copytree(self.whole / "kept", folder / "kept")
            done = damage(folder / "kept", self.whole / "models", outside, chance)
        if what == "full disk":
            limit = chance.randrange(30_000)
        far = everything(outside)
        pids = [begin(compare, folder, limit=limit) for _ in range(2 if what == "twins" else 1)]
        if what == "kill":
            time.sleep(chance.uniform(0, 0.2))
            os.kill(pids[0], signal.SIGKILL)
            killed = KILLED
        statuses = {ended(pid) for pid in pids}
        statuses.add(ended(begin(compare, folder)))  # and once more, with what was kept
        if not statuses <= {0, killed}:
            said = (folder.parent / "here.stderr").read_text()[-600:]
            raise Finding(f"{what} {done}: statuses {statuses} {said}")
        if everything(outside) != far:
            raise Finding(f"{what} {done}: another folder was changed")
        return f"right, {what}"


READERS = {
    "network": lambda path, x: RobustClassifier.load(path).predict_proba(x),
    "linear": lambda path, x: load_selective(path).predict_proba(x),
    "ledger": lambda path, x: Ledger.load(path).quality(),
}


def kept_features(folder: Path) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (200, 3, 8, 8), dtype=np.uint8)
    encoder = Encoder("sums", lambda x: x.reshape(len(x), -1)[:, :20] / np.float32(3), 8, identity="the same")
    return encoded(images, encoder, of_arrays(encoder), batch_size=8, cache=folder)


def write_table(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [(f"row {i}", i % 2 + chance.gauss(0, 0.3), chance.choice("uvw"), "ab"[i % 2]) for i in range(60)]
    path.write_text(as_csv([("id", "x", "kind", "label"), *rows]), encoding="utf-8")


def write_decisions(folder: Path) -> None:
    audit = folder / "audit"
    suspects = read_cells(audit / "suspects.csv", ("id", "given", "suggested"))
    check, quality = (
        read_cells(audit / name, columns) for name, columns in ((CHECK, CHECK_COLUMNS), (QUALITY, RANKED))
    )
    marks = audit_fingerprint(suspects, read_cells(audit / "cleaned.csv", ("id", "label")))
    for name, rows, mark in (
        ("decisions.csv", suspects, marks),
        ("checked.csv", check, check_fingerprint(check, quality)),
    ):
        words = [("keep", given) if n % 2 else ("drop", "") for n, (_, given, *_) in enumerate(rows)]
        decided = [(row[0], row[1], *word, mark) for row, word in zip(rows, words, strict=True)]
        (folder / name).write_text(as_csv([DECISION_COLUMNS, *decided]), encoding="utf-8")


def same_audit(reference: Path, found: Path, of: str) -> None:
    for path in (reference / of).iterdir():
        later = path.name in ("summary.json", "corrected.csv") or path.name.startswith("calibrat")
        if not later and not (found / of / path.name).is_file():
            raise Finding(f"{path.name} is missing")
        same = path.name in ("suspects.csv", "cleaned.csv", "model.safetensors", "encoding.json")
        if same and path.read_bytes() != (found / of / path.name).read_bytes():
            raise Finding(f"another {path.name}")


def same_corrected(reference: Path, found: Path) -> None:
    if (found / "audit" / "corrected.csv").read_bytes() != (reference / "audit" / "corrected.csv").read_bytes():
        raise Finding("another corrected.csv")


def same_calibration(reference: Path, found: Path) -> None:
    for path in (reference / "audit").glob("calibrat*"):
        if path.read_bytes() != (found / "audit" / path.name).read_bytes():
            raise Finding(f"another {path.name}")


def soak(minutes: float, seed: int, only: int | None = None, kind: str | None = None, most: int = 10**9) -> int:
    """The number of findings in at most so many minutes and trials, of all kinds or one."""
    torch.set_num_threads(1)
    results: Counter[str] = Counter()
    findings = 0
    with tempfile.TemporaryDirectory() as base:
        prepared = Soak(Path(base))
        end = time.monotonic() + 60 * minutes
        number = seed * 10**6 if only is None else only
        while time.monotonic() < end and results.total() + findings < most:
            try:
                name, answer = prepared.trial(number, kind)
                results[f"{name}: {answer}"] += 1
            except Finding as finding:
                findings += 1
                print(f"FINDING, trial {number}: {finding}", flush=True)
            number += 1
            if only is not None:
                break
    for what, count in sorted(results.items()):
        print(f"{count:6}  {what}")
    print(f"{sum(results.values()) + findings} trials, {findings} findings")
    return findings


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one trial by its number")
    parser.add_argument("--kind", help="of one kind, such as killed_audit")
    parser.add_argument("--most", type=int, default=10**9, help="trials at most")
    asked = parser.parse_args()
    sys.exit(min(soak(asked.minutes, asked.seed, asked.only, asked.kind, asked.most), 1))
