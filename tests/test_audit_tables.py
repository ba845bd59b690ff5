"""Tables: cells of every kind, rows that cannot be used, and the same numbers again from a new table."""

import csv
import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from sklearn.feature_extraction.text import TfidfVectorizer

from coteach.audit.encoding import features, read_encoding, write_encoding
from coteach.audit.tables import (
    TFIDF_OPTIONS,
    Category,
    Numbers,
    TableEncoder,
    Texts,
    Vectors,
    cells_as_numbers,
    check_header,
    column_as_json,
    column_from_json,
    label_array,
    learn_column,
    read_csv,
    read_table,
    read_table_samples,
)
from coteach.cli import main


def write(path: Path, header: list[str], rows: list[list], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def learnt(cells: list) -> tuple:
    notes: list[str] = []
    return learn_column("c", cells, notes), " ".join(notes)


# ---- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_cells_are_text_whatever_parts_them(delimiter, tmp_path):
    rows = [["1", "a,b;c\td"], ["2", 'two\nlines and "quotes"'], ["", ""]]
    table = read_csv(write(tmp_path / "t.csv", ["n", "ü"], rows, delimiter))
    assert table.columns == {"n": ["1", "2", ""], "ü": [row[1] for row in rows]}
    assert table.numbers == [0, 1, 2]


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=8)


@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=6))
def test_whatever_is_written_is_read_back(tmp_path_factory, rows):
    path = write(tmp_path_factory.getbasetemp() / "any.csv", ["a", "b", "c"], rows)
    table = read_csv(path)
    assert [list(row) for row in zip(*table.columns.values(), strict=True)] == rows


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert list(read_csv(tmp_path / "t.csv").columns) == ["a", "b"]


def test_bad_rows_are_told_by_their_line_and_keep_their_number(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'a,b\n1,2\n\n1,2,3\n"x\ny",4\n"1\n2"\n5,6\n')
    table = read_csv(tmp_path / "t.csv")
    assert table.columns["a"] == ["1", "x\ny", "5"]
    assert table.numbers == [0, 2, 4]
    assert table.lines == [2, 5, 9]
    assert [(s.where, s.why) for s in table.skipped] == [
        ("line 4", "3 cells instead of 2"),
        ("line 7", "1 cells instead of 2"),
    ]


@pytest.mark.parametrize(
    "content, said",
    [(b"", "is empty"), (b"a,b\n", "no rows"), (b"a,a\n1,2\n", "two columns named 'a'"), (b"a,b\n1\n", "no rows")],
)
def test_files_without_a_table_are_refused(content, said, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_table(tmp_path / "t.csv")


def test_a_long_document_fits_into_a_cell(tmp_path):
    before = csv.field_size_limit()
    table = read_csv(write(tmp_path / "t.csv", ["a"], [["x" * 300_000]]))
    assert len(table.columns["a"][0]) == 300_000
    assert csv.field_size_limit() == before


def test_without_pyarrow_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        read_table(tmp_path / "t.parquet")


def test_parquet_has_cells_of_every_type(tmp_path):
    columns = {
        "number": arrow.array([1.5, None, 3.0]),
        "whole": arrow.array([1, None, 3]),
        "flag": arrow.array([True, False, None]),
        "word": arrow.array(["a", None, "b"]),
        "kind": arrow.array(["x", "y", "x"]).dictionary_encode(),
        "when": arrow.array([datetime(2024, 1, 1), None, datetime(2024, 2, 1)], arrow.timestamp("ns")),
        "vector": arrow.array([[1.0, 2.0], None, [3.0, 4.0]]),
        "fixed": arrow.array([[1, 2], [3, 4], [5, 6]], arrow.list_(arrow.int32(), 2)),
        "names": arrow.array([["a"], ["b"], None]),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet", row_group_size=2)
    table = read_table(tmp_path / "t.parquet")
    assert table.columns["number"] == [1.5, None, 3.0]
    assert table.columns["whole"] == [1, None, 3]
    assert table.columns["kind"] == ["x", "y", "x"]
    assert table.columns["when"][0].startswith("2024-01-01")
    np.testing.assert_array_equal(table.columns["vector"], [[1, 2], [np.nan, np.nan], [3, 4]])
    np.testing.assert_array_equal(table.columns["fixed"], [[1, 2], [3, 4], [5, 6]])
    kinds = {name: learnt(cells)[0] for name, cells in table.columns.items()}
    assert isinstance(kinds["vector"], Vectors)
    assert isinstance(kinds["flag"], Numbers)
    assert kinds["when"] is kinds["names"] is None


def test_a_damaged_parquet_file_is_refused(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(ValueError, match="cannot be read"):
        read_table(tmp_path / "t.parquet")


# ---- columns ------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.floats(-1e9, 1e9), st.sampled_from(["", "NA", None, float("nan")])), min_size=3))
def test_missing_numbers_are_the_median_and_marked(cells):
    x, odd = cells_as_numbers(cells)
    known = [cell for cell in cells if isinstance(cell, float) and cell == cell]
    assert odd == 0
    assert np.isnan(x).sum() == len(cells) - len(known)
    if known:
        filled = Numbers("c", float(np.median(known)), True).apply(cells)
        assert filled.shape == (len(cells), 2)
        assert np.isfinite(filled).all()
        assert filled[:, 1].sum() == len(cells) - len(known)
        assert (filled[filled[:, 1] == 1, 0] == np.median(known)).all()


def test_numbers_without_gaps_need_no_mark():
    column, _ = learnt(["3", " 1 ", "2e1", "-4"])
    assert column == Numbers("c", 2.0, False)
    assert column.apply(["5", "x"]).tolist() == [[5.0], [2.0]]  # later cells that are no numbers are missing


def test_a_few_cells_that_are_no_numbers_count_as_missing():
    cells = [str(i % 7) for i in range(97)] + ["oops", "inf", "1_000"]
    column, note = learnt(cells)
    assert isinstance(column, Numbers)
    assert column.marked
    assert "3 cell(s)" in note


def test_truth_values_are_numbers():
    column, _ = learnt([True, False, True])
    assert isinstance(column, Numbers)
    assert column.apply([True, False]).tolist() == [[1.0], [0.0]]


def test_categories_are_one_number_each_and_one_if_missing():
    column, _ = learnt(["b", "a", "", "b"])
    assert column == Category("c", ["a", "b"], False, True)
    assert column.apply(["a", "b", "NA", "new"]).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_a_value_that_was_never_missing_is_no_category_when_it_is():
    column, _ = learnt(["b", "a", "a"])
    assert column is not None
    assert column.apply(["", "b"]).tolist() == [[0, 0], [0, 1]]


def test_rare_values_of_a_category_count_as_one():
    cells = [f"v{i % 60:02}" for i in range(600)] + ["v59"] * 5
    column, note = learnt(cells)
    assert isinstance(column, Category)
    assert len(column.values) == 50
    assert "v59" in column.values
    assert "60 values" in note
    x = column.apply(cells)
    assert x.shape == (605, 51)
    assert (x.sum(1) == 1).all()
    assert x[:, -1].sum() == 100
    assert column.apply(["never seen"])[0].argmax() == 50


@pytest.mark.parametrize(
    "cells, said",
    [
        (["", "NA", None], "it is empty"),
        (["2024-01-05", "2023-12-31", ""], "dates"),
        (["31.12.2024", "1.1.2025"], "dates"),
        (["2024-01-05 10:00:00", "2023-12-31T11:00"], "dates"),
        ([f"sentence number {i}" for i in range(80)], "--text c"),
        (list(map(str, range(5, 50))), "numbers the rows"),
        (["7", "7", "7"], "same in every row"),
        (["x", "x", "x"], "same in every row"),
        ([b"x", b"y"], "type bytes"),
        ([{"a": 1}, {"a": 2}], "type dict"),
        (np.zeros((3, 0)), "empty"),
    ],
)
def test_columns_that_say_nothing_are_left_out_with_a_note(cells, said):
    column, note = learnt(cells)
    assert column is None
    assert said in note


def test_vectors_written_as_text_are_recognised():
    column, _ = learnt(["[1, 2]", "[3.5,4]", "", "[1]", "[broken"])
    assert column == Vectors("c", 2)
    x = column.apply(["[1, 2]", "", "[1, 2, 3]"])
    np.testing.assert_array_equal(x, [[1, 2], [np.nan, np.nan], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="vectors of 2 numbers"):
        column.apply(["[1, 2, 3]"])
    assert isinstance(learnt(["[draft] a", "[draft] b", "[draft] a"])[0], Category)


@pytest.mark.parametrize(
    "column", [Numbers("a", 1.5, True), Category("ü", ["x", "<y>"], True, False), Vectors("v", 3)]
)
def test_columns_are_the_same_after_json(column):
    assert column_from_json(json.loads(json.dumps(column_as_json(column)))) == column


# ---- texts --------------------------------------------------------------------------------------------------

TEXTS = ["the cat sat on the mat", "a dog and a cat", "stocks fell on monday", "markets and stocks rose"] * 5


def test_texts_on_one_theme_are_near_each_other():
    texts = Texts.learn("t", TEXTS, 0)
    x = texts.apply(["cat and dog", "dog sat", "stocks rose", "xyzzy", ""])
    assert x.shape[1] <= 128
    assert np.allclose(np.linalg.norm(x[:3], axis=1), 1)
    assert x[0] @ x[1] > x[0] @ x[2]
    assert (x[3:] == 0).all()
    assert (Texts.learn("t", TEXTS, 0).apply(TEXTS) == texts.apply(TEXTS)).all()


def test_what_is_kept_of_the_words_gives_scikit_learns_numbers():
    vectorizer = TfidfVectorizer(min_df=2, **TFIDF_OPTIONS)
    texts = Texts.learn("t", TEXTS[:7], 0)  # words of different frequency
    wanted = vectorizer.fit_transform(TEXTS[:7]).toarray() @ texts.directions_KV.T
    assert texts.words == vectorizer.get_feature_names_out().tolist()
    np.testing.assert_allclose(
        texts.apply(TEXTS[:7]), wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-6
    )


def test_texts_that_share_no_word_are_still_told_apart():
    assert Texts.learn("t", ["alpha", "beta", "gamma"], 0).apply(["alpha", "beta"]).any()


def test_texts_that_are_all_the_same_have_numbers():
    x = Texts.learn("note", ["the same text"] * 9, seed=0).apply(["the same text"])
    np.testing.assert_allclose(abs(x).max(), 1)


def test_a_column_without_words_is_refused():
    with pytest.raises(ValueError, match="hardly any words"):
        Texts.learn("t", ["", "!", "?"], 0)


# ---- rows ---------------------------------------------------------------------------------------------------


def people(n: int = 40) -> tuple[list[str], list[list]]:
    """A table with every kind of column; those under 30 are young."""
    header = ["name", "age", "town", "joined", "vector", "note", "group"]
    rows = []
    for i in range(n):
        young = i % 2
        age = "" if i % 9 == 0 else 20 + i % 5 if young else 60 + i % 5
        vector = json.dumps([float(young), i / n])
        note = "likes skating and games" if young else "likes gardens and tea"
        rows.append(
            [
                f"p{i}",
                age,
                ["Ulm", "Bonn", ""][i % 3],
                f"2024-01-{1 + i % 28:02}",
                vector,
                note,
                "old young".split()[young],
            ]
        )
    return header, rows


def test_a_row_is_a_sample_with_all_its_columns(tmp_path):
    path = write(tmp_path / "t.csv", *people())
    samples = read_table_samples(path, "group", text="note", ident="name")
    assert len(samples) == 40
    assert samples.ids[:2] == ["p0", "p1"]
    assert samples.counts == {"old": 20, "young": 20}
    assert np.isfinite(samples.x).all()
    assert samples.rows is not None
    assert samples.rows[3]["town"] == "Ulm"
    assert samples.texts is not None
    assert samples.texts[1] == "likes skating and games"
    assert [note.split("'")[1] for note in samples.notes] == ["joined"]
    encoder = samples.encoding
    assert [column.name for column in encoder.columns] == ["age", "town", "vector"]  # neither the id nor the label
    ignoring = read_table_samples(path, "group", text="note", ident="name", ignore=("vector", "joined"))
    assert [column.name for column in ignoring.encoding.columns] == ["age", "town"]
    assert ignoring.notes == ()


def test_rows_without_label_name_vector_or_text_are_skipped(tmp_path):
    header, rows = people()
    rows[3][6], rows[5][0], rows[7][4], rows[9][6] = "", "", "[1]", "NA"
    rows[11][6] = "NA"
    samples = read_table_samples(write(tmp_path / "t.csv", header, rows), "group", ident="name", ignore=("note",))
    assert [(s.where, s.why) for s in samples.skipped] == [
        ("line 5, id p3", "no label"),
        ("line 7", "no name in column 'name'"),
        ("line 9, id p7", "no vector of the usual length"),
    ]
    assert len(samples) == 37
    assert samples.counts["NA"] == 2  # a label may be called so
    assert samples.ids == [f"p{i}" for i in range(40) if i not in (3, 5, 7)]
    assert samples.rows is not None
    assert [samples.rows[i]["name"] for i in range(37)] == samples.ids
    assert [samples.rows[i]["group"] for i in range(37)] == samples.y.tolist()
    vectors = [json.loads(rows[int(name[1:])][4]) for name in samples.ids]
    np.testing.assert_allclose(samples.x[:, -2:], vectors, rtol=1e-6)  # the last column that counts
    only_text = [[row[5] if i else " ", row[6] or "old"] for i, row in enumerate(rows)]
    samples = read_table_samples(write(tmp_path / "u.csv", ["note", "group"], only_text), "group", text="note")
    assert [(s.where, s.why) for s in samples.skipped] == [("line 2", "no text")]
    assert samples.ids[0] == "1"


def test_a_number_beyond_float32_is_told(tmp_path):
    rows = [[f"{i}" if i else "1e300", "ab"[i % 2]] for i in range(20)]
    samples = read_table_samples(write(tmp_path / "t.csv", ["x", "label"], rows), "label")
    assert [(s.where, s.why) for s in samples.skipped] == [("line 2", "a number beyond float32")]


def test_columns_that_are_not_there_are_named(tmp_path):
    path = write(tmp_path / "t.csv", *people())
    for arguments in ({"label": "groop"}, {"text": "groop"}, {"ident": "groop"}, {"ignore": ("groop",)}):
        with pytest.raises(ValueError, match="no column 'groop' .*did you mean 'group'"):
            read_table_samples(path, **{"label": "group"} | arguments)


def test_a_table_without_labels_or_features_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", ["label", "same"], [["", "1"]] * 5)
    with pytest.raises(ValueError, match="check --label"):
        read_table_samples(path, "label")
    path = write(tmp_path / "t.csv", ["label", "same"], [["a", "1"]] * 5)
    with pytest.raises(ValueError, match="no column to learn from .*'same' is left out"):
        read_table_samples(path, "label")


@pytest.mark.parametrize(
    "labels, kind, texts",
    [
        (["0", "1", "-7"], "i", ["0", "1", "-7"]),
        (["007", "1"], "U", ["007", "1"]),
        (["+1", "-1"], "U", ["+1", "-1"]),
        (["1.0", "2"], "U", ["1.0", "2"]),
        ([" a", "a"], "U", [" a", "a"]),
        ([1, 0], "i", ["1", "0"]),
        ([True, False], "b", ["True", "False"]),
        ([True, 1], "U", ["True", "1"]),
        ([1.5, 2.5], "U", ["1.5", "2.5"]),
        (["٣", "1"], "U", ["٣", "1"]),
    ],
)
def test_labels_can_be_read_as_they_were_written(labels, kind, texts):
    array = label_array(labels)
    assert array.dtype.kind == kind
    assert [str(label) for label in array.tolist()] == texts


def test_the_encoder_is_the_same_after_writing_and_reading(tmp_path):
    path = write(tmp_path / "t.csv", *people())
    samples = read_table_samples(path, "group", text="note", ident="name")
    write_encoding(tmp_path, samples.encoding)
    assert isinstance(read_encoding(tmp_path), TableEncoder)
    assert (features(tmp_path, path) == samples.x).all()
    header, rows = people(7)
    new = write(tmp_path / "new.csv", header[:-1], [row[:-1] for row in rows])  # without labels
    assert features(tmp_path, new).shape == (7, samples.x.shape[1])
    with pytest.raises(ValueError, match="no column 'age'"):
        features(tmp_path, write(tmp_path / "other.csv", ["a"], [["1"]]))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_command_on_a_table_and_the_lines_that_load_its_model(suffix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    header, rows = people(80)
    rows[4][6] = "young"
    if suffix == "csv":
        write(Path("t.csv"), header, rows)
    else:
        columns: dict = dict(zip(header, zip(*rows, strict=True), strict=True))
        columns["age"] = [None if age == "" else age for age in columns["age"]]
        columns["vector"] = [json.loads(vector) for vector in columns["vector"]]
        parquet.write_table(arrow.table(columns), "t.parquet")
    words = f"audit --table t.{suffix} --label group --text note --id name --epochs 20 --share 0.0125 --out out"
    main([*words.split(), "--noise-rate", "0.0125"])
    said = capsys.readouterr().out
    assert "80 rows of 2 classes" in said
    assert "column 'joined' is left out" in said
    (suspect,) = csv.DictReader(Path("out/suspects.csv").read_text(encoding="utf-8").splitlines())
    assert (suspect["id"], suspect["given"], suspect["suggested"]) == ("p4", "young", "old")
    names: dict = {}
    (lines,) = re.findall(r"```python\n(.*?)```", Path("out/model.md").read_text(), re.DOTALL)
    exec(lines, names)
    assert [names["labels"][i] for i in (4, 5, 6)] == ["old", "young", "old"]
    settings = json.loads(Path("out/summary.json").read_text())["settings"]
    assert (settings["label"], settings["text"], settings["id"]) == ("group", "note", "name")


def test_a_header_of_very_many_columns_is_checked_in_one_go(tmp_path):
    """Comparing each with each would take hours."""
    names = [f"c{k}" for k in range(300_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join([*names, names[7]]) + "\n")
    with pytest.raises(ValueError, match="two columns named 'c7'"):
        read_table(path)
    check_header(names, path)


def test_a_table_that_is_a_pipe_is_not_waited_for(tmp_path):
    for name in ("pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="is not a file"):
            read_table(tmp_path / name)
