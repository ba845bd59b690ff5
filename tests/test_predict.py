"""`coteach predict`: new data through what `coteach audit` or `RobustClassifier.save` wrote."""

import csv
import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from coteach import RobustClassifier, SelectiveTrainingClassifier
from coteach.audit.encoding import features
from coteach.audit.predict import images_in
from coteach.cli import main
from coteach.selective.files import load_selective, save_selective
from estimator_cases import quick, three_clouds
from permissions import needs_users, ordinary_user, public_folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def refused(capsys, *words) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["predict", *map(str, words)])
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def saved(tmp_path):
    x, y = three_clouds()
    model = quick().fit(x, np.array(["ash", "birch", "cedar"])[y])
    model.save(tmp_path / "model.safetensors")
    np.savez(tmp_path / "new.npz", x=x[:7])
    return model, x


def test_a_saved_classifier_labels_arrays(saved, tmp_path, capsys):
    model, x = saved
    main(["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.npz"), "--device", "cpu"])
    rows = rows_of(capsys.readouterr().out)
    assert [row["predicted"] for row in rows] == model.predict(x[:7]).tolist()
    assert [row["row"] for row in rows] == [str(i) for i in range(1, 8)]
    p = np.array([[float(row[f"p_{c}"]) for c in model.classes_] for row in rows])
    np.testing.assert_allclose(p, model.predict_proba(x[:7]), atol=1e-6)
    assert all(float(row["probability"]) == pytest.approx(max(some)) for row, some in zip(rows, p, strict=True))
    assert list(rows[0]) == ["file", "row", "predicted", "probability", "p_ash", "p_birch", "p_cedar"]


def test_a_linear_model_labels_arrays(saved, tmp_path, capsys):
    """What an audit of texts writes, whose features come from an encoder."""
    _, x = saved
    y = np.array(["ash", "birch", "cedar"])[three_clouds()[1]]
    model = SelectiveTrainingClassifier(noise_rate=0.1, random_state=0).fit(x, y)
    save_selective(model, tmp_path / "linear.safetensors")
    main(["predict", str(tmp_path / "linear.safetensors"), str(tmp_path / "new.npz")])
    rows = rows_of(capsys.readouterr().out)
    assert [row["predicted"] for row in rows] == model.predict(x[:7]).tolist()
    p = np.array([[float(row[f"p_{c}"]) for c in model.classes_] for row in rows])
    np.testing.assert_allclose(p, model.predict_proba(x[:7]), atol=1e-4)
    np.savez(tmp_path / "narrow.npz", x=np.eye(3))
    assert "give 5 features a sample" in refused(capsys, tmp_path / "linear.safetensors", tmp_path / "narrow.npz")


def test_a_file_is_written_once(saved, tmp_path, capsys):
    words = [tmp_path / "model.safetensors", tmp_path / "new.npz", "--out", tmp_path / "labels.csv"]
    main(["predict", *map(str, words)])
    assert "7 samples, written to" in capsys.readouterr().out
    assert len(rows_of((tmp_path / "labels.csv").read_text())) == 7
    assert "labels.csv is there already: give --out another name." in refused(capsys, *words)


def test_wrong_use_gets_one_sentence_and_code_2(saved, tmp_path, capsys):
    model, new = tmp_path / "model.safetensors", tmp_path / "new.npz"
    assert "nothing does not exist: give the folder of an audit, or a model file." in refused(
        capsys, "nothing", new
    )
    assert "no new data are given: name files after the model." in refused(capsys, model)
    (tmp_path / "empty").mkdir()
    assert "holds no model.safetensors: give a model file, or the folder of an audit" in refused(
        capsys, tmp_path / "empty", new
    )
    assert "no.npz does not exist: give new data" in refused(capsys, model, tmp_path / "no.npz")
    assert "is not a file: give tables or npz files" in refused(capsys, model, tmp_path / "empty")
    np.savez(tmp_path / "narrow.npz", x=np.eye(3))
    assert "3 features" in refused(capsys, model, tmp_path / "narrow.npz")
    assert "was not written by RobustClassifier.save" in refused(capsys, new, new)


@pytest.mark.slow
def test_the_folder_of_an_audit_labels_tables_and_images(tmp_path, capsys):
    x, y = load_digits(return_X_y=True)
    lines = [
        "a,b,c,kind",
        *(f"{r[10]},{r[20]},{r[30]},{'odd' if c % 2 else 'even'}" for r, c in zip(x, y, strict=True)),
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines[:200]))
    (tmp_path / "new.csv").write_text("\n".join([lines[0], *lines[300:310]]))
    quickly = ["--epochs", "1", "--noise-rate", "0.1", "--device", "cpu"]
    main(
        [
            "audit",
            "--table",
            str(tmp_path / "table.csv"),
            "--label",
            "kind",
            *quickly,
            "--out",
            str(tmp_path / "a"),
        ]
    )
    capsys.readouterr()
    main(["predict", str(tmp_path / "a"), str(tmp_path / "new.csv")])
    rows = rows_of(capsys.readouterr().out)
    model = RobustClassifier.load(tmp_path / "a/model.safetensors")
    expected = model.predict(features(tmp_path / "a", tmp_path / "new.csv"))
    assert [row["predicted"] for row in rows] == expected.tolist()
    for i, (digit, c) in enumerate(zip(x[:40], y, strict=False)):
        folder = tmp_path / "photos" / str(c % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digit.reshape(8, 8) * 15).astype(np.uint8)).save(folder / f"{i}.png")
    words = ["--images", str(tmp_path / "photos"), "--size", "8", *quickly, "--out", str(tmp_path / "b")]
    main(["audit", *words])
    capsys.readouterr()
    (tmp_path / "photos/0/.hidden").write_text("no image")
    main(["predict", str(tmp_path / "b"), str(tmp_path / "photos"), str(tmp_path / "photos/1/1.png")])
    rows = rows_of(capsys.readouterr().out)
    assert len(rows) == 41
    assert rows[-1]["file"].endswith("1.png")
    assert {row["predicted"] for row in rows} <= {"0", "1"}
    assert "nowhere does not exist: give new data" in refused(capsys, tmp_path / "b", "nowhere")


@pytest.fixture
def linear(tmp_path, capsys):
    """The folder of an audit with linear models."""
    x, y = three_clouds()
    np.savez(tmp_path / "d.npz", x=x, y=np.array(["ash", "birch", "cedar"])[y])
    words = ["--npz", tmp_path / "d.npz", "--learner", "linear", "--noise-rate", "0.1", "--out", tmp_path / "a"]
    main(["audit", *map(str, words)])
    capsys.readouterr()
    np.savez(tmp_path / "new.npz", x=x[:7])
    return tmp_path / "a", x


def test_the_linear_model_of_an_audit_labels_new_data(linear, tmp_path, capsys):
    folder, x = linear
    main(["predict", str(folder), str(tmp_path / "new.npz")])
    rows = rows_of(capsys.readouterr().out)
    assert [row["predicted"] for row in rows] == load_selective(folder / "model.safetensors").predict(
        x[:7]
    ).tolist()
    for new, said in (
        (x[:7, :1], "x has shape (7, 1): give 5 features"),
        (x[:7] * np.nan, "sample 0 has a feature"),
    ):
        np.savez(tmp_path / "new.npz", x=new)
        assert said in refused(capsys, folder, tmp_path / "new.npz")


def test_the_folder_of_an_audit_without_its_encoding_is_refused(linear, tmp_path, capsys):
    """What is in its place does not matter: the numbers of a table would be taken for those of the networks."""
    folder, _ = linear
    place = folder / "encoding.json"
    for make in (place.unlink, lambda: place.symlink_to("nowhere"), lambda: place.unlink() or place.mkdir()):
        make()
        assert "holds no encoding.json" in refused(capsys, folder, tmp_path / "new.npz")


def test_labels_are_not_printed_as_numbers_of_their_characters(tmp_path, monkeypatch, capsys):
    x, y = three_clouds(30)
    quick(epochs=1).fit(x, np.array(["→", "é", "c"])[y]).save(tmp_path / "m")
    np.savez(tmp_path / "new.npz", x=x[:7])
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "cp1252", write_through=True))
    line = refused(capsys, tmp_path / "m", tmp_path / "new.npz").splitlines()[-1]
    assert line == "coteach: the output takes cp1252, which lacks \\u2192: give --out a name."
    assert not written.getvalue()


def test_nothing_is_written_through_a_link(saved, tmp_path, capsys):
    (tmp_path / "link").symlink_to("outside")
    words = [tmp_path / "model.safetensors", tmp_path / "new.npz", "--out", tmp_path / "link"]
    assert "link is a link, where a file should be" in refused(capsys, *words)
    assert not (tmp_path / "outside").exists()


@needs_users
def test_a_folder_that_may_not_be_read_is_told():
    with public_folder() as folder:
        for name in ("open", "closed"):
            (folder / name).mkdir()
            (folder / name / "1.png").write_text("")
        (folder / "closed").chmod(0o000)
        with ordinary_user(), pytest.warns(UserWarning, match="closed was left out: .*Permission denied"):
            assert images_in(folder) == [folder / "open" / "1.png"]
