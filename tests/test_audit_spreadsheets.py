"""Tables as spreadsheets save them: semicolons, decimal commas, Windows' letters; and where a row is."""

import shlex

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from coteach.audit.encoding import features, write_encoding
from coteach.audit.samples import usable
from coteach.audit.tables import learn_column, read_csv, read_table_samples, usable_cells

TOWNS = ["Köln", "Bonn", "Zürich", "Ulm"]


def saved(path, separator: str, comma: str, encoding: str = "utf-8", n: int = 80) -> None:
    lines = [separator.join(["town", "height", "weight", "count", "class"])]
    for i in range(n):
        height = f"{-1.5 + i * 0.37:.3f}".replace(".", comma)
        weight = "" if i % 7 == 0 else f"{i % 13}e-05" if i % 5 == 0 else f"{i / 3:.2E}".replace(".", comma)
        lines.append(separator.join([TOWNS[i % 4], height, weight, str(i * 3 % 11), "xy"[i % 2]]))
    path.write_bytes("\r\n".join(lines).encode(encoding))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_spreadsheets_table_has_the_same_numbers(separator, tmp_path):
    saved(tmp_path / "point.csv", ",", ".")
    saved(tmp_path / "comma.csv", separator, ",", "cp1252")
    point, comma = (read_table_samples(tmp_path / f"{name}.csv", "class") for name in ("point", "comma"))
    np.testing.assert_array_equal(comma.x, point.x)
    assert (point.notes, point.skipped, comma.skipped) == ((), (), ())
    assert comma.notes == (
        "comma.csv is not UTF-8: read as Windows-1252",
        "decimal commas in 2 columns are read as points",
    )
    assert comma.rows is not None
    assert (comma.rows[2]["town"], comma.rows[2]["height"]) == ("Zürich", "-0,760")  # as the user wrote them
    write_encoding(tmp_path, point.encoding)
    np.testing.assert_array_equal(features(tmp_path, tmp_path / "comma.csv"), point.x)


@given(st.lists(st.one_of(st.sampled_from(["", "NA", "7", "-3"]), st.floats(-1e6, 1e6)), min_size=3, max_size=30))
def test_any_column_of_decimal_commas_is_read(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "commas.csv"
    cells = [value if isinstance(value, str) else f"{value:.3f}" for value in values]
    with_comma = [cell.replace(".", ",") for cell in cells]
    path.write_text("a;class\n" + "".join(f"{cell};x\n" for cell in with_comma))
    table = read_csv(path)
    assert table.columns["a"] == with_comma
    assert list(usable_cells(table, table.columns["a"])) == cells


@pytest.mark.parametrize("odd", ["1,2,3", "1.5", "a,b", "1,", ",5", "12:30"])
def test_a_column_with_anything_else_is_left_as_it_is(odd, tmp_path):
    (tmp_path / "t.csv").write_text(
        "a;b;class\n" + "".join(f"{odd if i == 9 else '1,5'};{i % 7};x\n" for i in range(40))
    )
    samples = read_table_samples(tmp_path / "t.csv", "class")
    assert not any("decimal" in note for note in samples.notes)


def test_labels_and_ids_keep_their_commas(tmp_path):
    lines = [f"{i},5;{i % 3},5;{i % 5},25\n" for i in range(40)]
    (tmp_path / "t.csv").write_text("name;class;a\n" + "".join(lines))
    samples = read_table_samples(tmp_path / "t.csv", "class", ident="name")
    assert list(samples.counts) == ["0,5", "1,5", "2,5"]
    assert samples.ids[:2] == ["0,5", "1,5"]
    assert samples.notes == ("decimal commas in 1 column are read as points",)


def test_commas_between_cells_are_no_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a,class\n" + "".join(f'"{i % 7},5",x\n' for i in range(40)))
    assert not any("decimal" in note for note in read_table_samples(tmp_path / "t.csv", "class").notes)


def test_what_is_no_text_is_refused(tmp_path):
    for content in (b"a,b\n\xff\x81,2\n", b"a,b\n\xff\0,2\n", "a;b\n1;2\n".encode("utf-16")):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(ValueError, match=r"t\.csv is no text in UTF-8 or Windows-1252"):
            read_csv(tmp_path / "t.csv")


def test_flags_in_a_note_can_be_copied_into_a_shell():
    notes: list[str] = []
    learn_column("mean radius; rm", [f"sentence {i}" for i in range(80)], notes)
    learn_column("row no", list(range(80)), notes)
    for flag, name, note in (("--text", "mean radius; rm", notes[0]), ("--id", "row no", notes[1])):
        assert f"{flag} {shlex.quote(name)}" in note


def test_every_row_left_out_is_told_by_its_line(tmp_path):
    """Also the only one of its class, which is noticed later; blank lines and line ends in cells count."""
    lines = [f"{i % 7},{'xy'[i % 2]},n{i}\n" for i in range(20)]
    lines[4] = "1,,n4\n"
    lines[6] = "1,x\n"
    lines[9] = "1,alone,n9\n"
    (tmp_path / "t.csv").write_text('"a\na",class,name\n\n' + "".join(lines))
    without = usable(read_table_samples(tmp_path / "t.csv", "class"))
    named = usable(read_table_samples(tmp_path / "t.csv", "class", ident="name"))
    assert [s.where for s in without.skipped] == ["line 10", "line 8", "line 13"]
    assert [s.where for s in named.skipped] == ["line 10", "line 8, id n4", "line 13, id n9"]


def test_a_parquet_file_has_rows(tmp_path):
    labels = [None if i == 3 else "xy"[i % 2] for i in range(20)]
    parquet.write_table(arrow.table({"a": [i % 7 for i in range(20)], "class": labels}), tmp_path / "t.parquet")
    (skipped,) = read_table_samples(tmp_path / "t.parquet", "class").skipped
    assert skipped.where == "row 3, counted from 0"


def test_a_parquet_text_that_is_no_utf8_is_told_with_its_file(tmp_path):
    spoilt = arrow.array([b"fine", b"\xc3("]).view(arrow.string())
    parquet.write_table(arrow.table({"class": spoilt}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read \(UnicodeDecodeError"):
        read_table_samples(tmp_path / "t.parquet", "class")
