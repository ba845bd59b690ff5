"""The page of a preset, and its tables in a terminal."""

from dataclasses import replace

import pytest

from coteach.cli.reproduce import comparison_tables
from coteach.paper import compare, page
from coteach.paper.measured import preset_records
from coteach.paper.presets import cells, preset_names
from coteach.terminal import console
from measured_cases import cell_named, pretend, pretend_all


def page_of(name, out):
    return "\n".join(page.page_lines(name, None, preset_records(name, None, out), [])).splitlines()


def test_the_page_has_our_numbers_the_known_ones_and_every_seed_where_one_is_far_off(tmp_path):
    pretend(cell_named("mnist", "coteaching_plus-authors-pair-0.45"), tmp_path, 80.0, 81.0, 10.0)
    pretend(cell_named("mnist", "coteaching_plus-authors-symmetric-0.5"), tmp_path, 95.0, 96.0, 97.0)
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0)
    page = page_of("mnist", tmp_path)
    assert "| Co-teaching+, authors | 57.00 ± 40.71 (3) | 96.00 ± 1.00 (3) |" in page
    assert "| Standard |  | 52.00 (1) |" in page
    assert [line for line in page if ": 80.00" in line] == [
        "| Co-teaching+, authors | pair 45 % | 1: 80.00, 2: 81.00, 3: 10.00 (guesses) |"
    ]
    assert any("| 96.00 ± 1.00 | 3 | 95.80 | +0.20 | yes (± 0.60) | jocor |" in line for line in page)
    assert any(line.startswith("- jocor: Wei et al.") for line in page)
    assert "- 3.5 minutes of Abacus, torch 2.99: 7 runs" in page


@pytest.mark.slow
def test_seeds_are_listed_where_one_is_far_off_or_learnt_nothing(tmp_path):
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0, 54.9)
    assert not any("each seed" in line for line in page_of("mnist", tmp_path))
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0, 54.9, 58.0)
    assert any("| 1: 52.00, 2: 54.90, 3: 58.00 |" in line for line in page_of("mnist", tmp_path))
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 14.9, 14.8)
    assert any("1: 14.90 (guesses), 2: 14.80 (guesses)" in line for line in page_of("mnist", tmp_path))


def test_a_figure_of_another_curve_has_a_table_of_it(tmp_path):
    cell = cells("divergence")[0]
    pretend(cell, tmp_path, 80.0, 80.0)
    page = page_of("divergence", tmp_path)
    assert "## Total variation, mean over the last ten epochs" in page
    assert f"| {cell.row} | 0.6000 ± 0.0000 (2) |" in page


def test_what_the_data_lack_is_said(tmp_path):
    pretend(cells("news")[0], tmp_path, 30.0, data={"note": "vectors of spaCy"})
    assert "Data: vectors of spaCy." in page_of("news", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("then", [False, True])
def test_the_command_is_read_off_the_cells(name, then, tmp_path):
    pretend_all(name, tmp_path, then)
    records = preset_records(name, None, tmp_path)
    first = {cell.name: cell.seeds for cell in cells(name)}
    more = then and first != {cell.name: cell.seeds for cell in cells(name, then=True)}
    assert page.command_for(name, None, records) == f"coteach reproduce {name}" + (" --all" if more else "")


def test_outdated_cells_and_those_of_other_epochs_are_not_on_the_page(tmp_path):
    cell = cell_named("mnist", "standard-authors-symmetric-0.5")
    pretend(replace(cell, experiment=replace(cell.experiment, epochs=5)), tmp_path, 1.0)
    pretend(replace(cell, experiment=replace(cell.experiment, lr=0.1)), tmp_path, 1.0)
    assert preset_records("mnist", None, tmp_path) == []
    assert len(preset_records("mnist", 5, tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "ablation", "openset"])
def test_the_terminals_tables_fit_into_100_columns_and_show_every_cell(name, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 100)
    pretend_all(name, tmp_path)
    records = preset_records(name, None, tmp_path)
    with console.capture() as shown:
        for table in comparison_tables(compare.compared(records)):
            console.print(table)
    text = shown.get()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for record in records:
        assert f"{record['summary']['mean']:.2f}" in text
