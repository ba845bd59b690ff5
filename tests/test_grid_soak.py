"""Many processes and machines, some of which are killed half-way: nothing is lost, and nothing is run twice."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from coteach.paper import reproduce
from grid_cases import cell, contents, epochs_logged, two_stacks
from run_cases import silent

EPOCHS = 60
METHODS = ("coteaching", "coteaching_plus", "mentornet", "jocor", "decoupling", "standard")


def processes_that_mention(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and int(folder.name) != os.getpid():
            found.append(command)
    return found


@pytest.fixture
def cluster(monkeypatch):
    """A head with one CPU and a node with another; all that they leave behind goes."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray")  # short, for the names of sockets in it
    (Path(folder) / "ray").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", folder)
    usual = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    there = Cluster(initialize_head=True, head_node_args=usual)
    there.second = there.add_node(**usual)
    yield there
    ray.shutdown()
    there.shutdown()
    left = processes_that_mention(folder)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.mark.soak
def test_a_node_that_is_killed_half_way_costs_no_more_than_the_last_epochs_of_its_stack(cluster, tmp_path):
    wanted = [cell(method=method, epochs=EPOCHS, seeds=(1, 2), batch_size=64) for method in METHODS]
    reproduce.measure_cells(wanted, tmp_path / "whole", commit="c", say=silent)
    trained: Counter = Counter()
    latest: dict[str, int] = {}
    killed_at = []

    def half_way(p):
        if not p.rows:
            return
        trained[p.label, p.rows[0]["epoch"]] += 1
        latest[p.label] = p.rows[0]["epoch"]
        at_work = [epoch for epoch in latest.values() if epoch < EPOCHS]
        both_inside = len(at_work) == 2 and all(10 < epoch < EPOCHS - 15 for epoch in at_work)
        if p.done >= p.total // 3 and both_inside and not killed_at:
            killed_at.append(p.done)
            cluster.remove_node(cluster.second, allow_graceful=False)

    said = []
    out = tmp_path / "out"
    reproduce.measure_cells(wanted, out, commit="c", ray=cluster.address, say=said.append, on_progress=half_way)
    assert killed_at
    assert contents(out) == contents(tmp_path / "whole")
    assert [path.name for path in out.iterdir()] == ["tiny"]
    again = {label for (label, _), times in trained.items() if times > 1}
    print(f"killed after {killed_at[0]} epochs of runs; trained again: {sum(n - 1 for n in trained.values())} of")
    print(f"{len(METHODS) * EPOCHS} epochs of stacks; {[line for line in said if 'going on' in line]}")
    assert len(again) <= 1  # the stack that was on the node, from its last checkpoint on
    assert sum(line.startswith("going on after epoch") for line in said) == 1
    assert {epoch for label, epoch in trained if trained[label, epoch] > 1} <= set(range(2, EPOCHS + 1))
    assert all(times <= 2 for times in trained.values())


@pytest.mark.soak
def test_when_the_parent_is_killed_its_processes_end_and_the_next_goes_on(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    code = (
        "from pathlib import Path\nfrom coteach.runs import checkpoint\nfrom grid_cases import measure_and_log\n"
    )
    code += "checkpoint.COST = 1e9  # in the processes, too, which import this: every epoch is kept\n"
    code += f"if __name__ == '__main__': measure_and_log(Path({str(out)!r}), processes=2, epochs=300)"
    here = Path(__file__).parent
    program = tmp_path / "program.py"
    program.write_text(code)
    path = os.pathsep.join((str(here), str(here.parent / "src")))
    for rounds in range(3):
        logged = len(epochs_logged(out)) if rounds else 0
        parent = subprocess.Popen([sys.executable, program], env=os.environ | {"PYTHONPATH": path})
        until = time.monotonic() + 120
        while not (out / "epochs").exists() or len(epochs_logged(out)) < logged + 40:
            assert time.monotonic() < until
            assert parent.poll() is None
            time.sleep(0.05)
        parent.kill()
        parent.wait()
    subprocess.run([sys.executable, program], env=os.environ | {"PYTHONPATH": path}, check=True)
    epochs = epochs_logged(out)
    assert len(epochs) == len(set(epochs)), "run twice"
    assert len(epochs) >= 2 * 300 - 2 * 3  # an epoch that a process ended after its parent was reported to nobody
    reproduce.measure_cells(two_stacks(epochs=300), tmp_path / "whole", commit="c", say=silent)
    assert contents(out) == contents(tmp_path / "whole")
    assert sorted(p.name for p in out.iterdir()) == ["epochs", "tiny"]
