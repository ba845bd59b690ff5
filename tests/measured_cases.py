"""What the tests of measured cells share: cells by name, and files as if they had been measured."""

from coteach.paper import measured
from coteach.paper.presets import cells


def cell_named(preset, name):
    return next(cell for cell in cells(preset, then=True) if cell.name == name)


def pretend(cell, out, *means, n_epochs=3, data=None, **changes):
    """A file as if the cell had been measured with these means."""
    curves = {name: [0.5, None, 0.7][:n_epochs] for name in measured.CURVES}
    run = {"max": 99.0, "mean_per_network": [1.0], "ensemble": 3.0, "label_precision": None, "seconds": 30}
    run |= {"hardware": "Abacus", "commit": None, "versions": {"torch": "2.99"}, "curves": curves}
    runs = [run | {"seed": i, "mean": mean} | changes for i, mean in enumerate(means, start=1)]
    about = {"classes": 10, "note": ""} | (data or {})
    measured.write_json(measured.path_of(cell, out), measured.merged(cell, {"data": about, "runs": runs}, None))


def pretend_all(name, out, then=True):
    for i, cell in enumerate(cells(name, then=then)):
        pretend(cell, out, *(50 + i % 7 + seed for seed in cell.seeds))
