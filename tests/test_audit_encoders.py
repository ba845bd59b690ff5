"""Features in `coteach audit`: by an encoder or the user's own, with the picture or the text beside them."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coteach.audit.arrays import read_embeddings
from coteach.audit.encoded import cache_beside
from coteach.audit.encoding import features
from coteach.cli import main

QUICK = "--noise-rate 0.1 --epochs 5 --device cpu --out out".split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def photos(here):
    """Red and blue pictures, ten each, and a file that is none."""
    rng = np.random.default_rng(0)
    for name, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (here / "photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.clip(rng.normal(colour, 20, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{i:02}.png")
    (here / "photos" / "red" / "notes.png").write_text("no image")
    return here / "photos"


@pytest.fixture
def letters(here):
    rows = [
        (f"n{i}", "sport" if i % 2 else "money", f"{'ball goal' if i % 2 else 'bank coin'} {i}") for i in range(24)
    ]
    with open("letters.csv", "w", newline="") as file:
        csv.writer(file).writerows([("name", "topic", "body"), *rows])
    return Path("letters.csv")


def summary() -> dict:
    return json.loads(Path("out/summary.json").read_text())


def refusal(words: str, capsys) -> str:
    with pytest.raises(SystemExit) as left:
        main(["audit", *words.split()])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not Path("out").exists()
    return said


def page() -> str:
    return Path("out/review.html").read_text()


def run_lines_of_the_model() -> dict:
    names: dict = {}
    (lines,) = re.findall(r"```python\n(.*?)```", Path("out/model.md").read_text(), re.DOTALL)
    exec(lines, names)
    return names


COLOURS = """
def colours(images):
    return images.reshape(len(images), 3, -1).mean(2) / 255
def lengths(texts):
    return [[text.count("ball"), text.count("bank"), len(text)] for text in texts]
"""


def test_images_by_an_encoder_of_ones_own(photos, here, capsys):
    Path("mine.py").write_text(COLOURS)
    main(["audit", "--images", "photos", "--encoder", "mine:colours", "--size", "8", *QUICK])
    out = capsys.readouterr().out
    assert "20 images of 2 classes, 3 numbers each" in out
    assert "skipped: red/notes.png (not an image)" in out
    assert summary()["settings"]["encoder"] == "mine:colours"
    assert summary()["shape"] == [3]
    assert "data:image/jpeg" in page()
    names = run_lines_of_the_model()  # which import the function themselves
    assert list(names["labels"]) == ["blue", "blue"]
    with pytest.raises(ValueError, match="mine:colours, code of your own: give it as encoder"):
        features("out", photos / "red" / "03.png")  # nothing that a file names is run


def test_the_offline_encoder_is_chosen_told_and_kept(photos, capsys):
    main(["audit", "--images", "photos", "--size", "32", *QUICK])
    assert "note: features by efficientnet-lite0: the images are in colour" in capsys.readouterr().out
    assert summary()["shape"] == [1280]
    assert list(run_lines_of_the_model()["labels"]) == ["blue", "blue"]
    (kept,) = cache_beside(photos).iterdir()
    assert kept.name.startswith("efficientnet-lite0-32-")


@pytest.mark.parametrize("flags, why", [("--encoder none", None), ("--width 0.25", None), ("", "pip install")])
def test_without_an_encoder_the_pixels_are_learnt(flags, why, photos, capsys, monkeypatch):
    monkeypatch.setattr("coteach.encoders.named.find_spec", lambda package: None)
    main(["audit", "--images", "photos", "--size", "16", *flags.split(), *QUICK])
    out = capsys.readouterr().out
    assert summary()["shape"] == [3, 16, 16]
    assert ("images by their pixels: no encoder is installed: pip install 'coteach[images]'" in out) == bool(why)


def test_texts_by_an_encoder_and_the_text_on_the_page(letters, capsys):
    main(
        [
            "audit",
            "--table",
            "letters.csv",
            "--label",
            "topic",
            "--text",
            "body",
            "--id",
            "name",
            "--share",
            "0.2",
            *QUICK,
        ]
    )
    assert "note: features by wordllama: the texts are in Latin letters" in capsys.readouterr().out
    assert (summary()["shape"], summary()["settings"]["encoder"]) == ([256], "wordllama")
    assert "ball goal" in page() or "bank coin" in page()
    assert not Path("out/encoding.safetensors").exists()
    with open("out/suspects.csv", newline="") as file:
        (first, *_) = csv.DictReader(file)
    assert first["text"].rpartition(" ")[0] in ("ball goal", "bank coin")
    assert run_lines_of_the_model()["x"].shape == (24, 256)


def test_texts_by_a_function_of_ones_own(letters, capsys):
    Path("mine.py").write_text(COLOURS)
    main(
        [
            "audit",
            "--table",
            "letters.csv",
            "--label",
            "topic",
            "--text",
            "body",
            "--id",
            "name",
            "--encoder",
            "mine:lengths",
            *QUICK,
        ]
    )
    assert summary()["shape"] == [3]
    assert run_lines_of_the_model()["x"].shape == (24, 3)


def test_a_suspect_row_is_written_with_its_cells(here):
    rng = np.random.default_rng(0)
    with open("people.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("group", "age", "town"))
        writer.writerows(
            (f"g{i % 2}", f"{40 * (i % 2) + rng.normal():.2f}", "Ulm" if i % 3 else "Bonn, on, Rhine")
            for i in range(30)
        )
    main(["audit", "--table", "people.csv", "--label", "group", "--share", "0.2", *QUICK])
    with open("out/suspects.csv", newline="") as file, open("people.csv", newline="") as own:
        cells = list(csv.DictReader(own))
        for row in csv.DictReader(file):
            assert (row["row_age"], row["row_town"]) == tuple(cells[int(row["id"])][n] for n in ("age", "town"))


# ---- features that the user made --------------------------------------------------------------------------------


def vectors(n: int) -> np.ndarray:
    x = np.random.default_rng(1).normal(size=(n, 4))
    x[:, 0] += 6 * (np.arange(n) % 2)
    return x


def test_embeddings_of_images_by_id_keep_the_pictures(photos, capsys):
    ids = [f"{name}/{i:02}.png" for i in range(10) for name in ("red", "blue")]
    np.savez("mine.npz", x=vectors(20), ids=ids)
    main(["audit", "--images", "photos", "--embeddings", "mine.npz", *QUICK])
    assert "skipped: red/notes.png (no row in mine.npz)" in capsys.readouterr().out
    assert summary()["shape"] == [4]
    assert "data:image/jpeg" in page()
    assert run_lines_of_the_model()["x"].shape == (20, 4)


def test_embeddings_of_images_in_their_order(photos):
    (photos / "red" / "notes.png").unlink()
    x = vectors(20)[np.argsort(np.arange(20) % 2, kind="stable")]
    np.save("mine.npy", x)
    main(["audit", "--images", "photos", "--embeddings", "mine.npy", *QUICK])
    assert summary()["suspects"] == 2
    assert run_lines_of_the_model()["x"].shape == (20, 4)


@pytest.mark.parametrize("by_id", [True, False])
def test_embeddings_of_rows_keep_the_text(by_id, letters):
    lines = letters.read_text().splitlines()
    lines[3] = "n2,,a row without a label"
    letters.write_text("\n".join(lines) + "\n")
    order = np.random.default_rng(2).permutation(24) if by_id else np.arange(24)
    arrays = {"x": vectors(24)[order]} | ({"ids": [f"n{i}" for i in order]} if by_id else {})
    np.savez("mine.npz", **arrays)
    main(["audit", "--table", "letters.csv", "--label", "topic", "--text", "body", "--id", "name",
          "--embeddings", "mine.npz", "--share", "0.2", *QUICK])  # fmt: skip
    found = summary()
    assert (found["samples"], found["shape"]) == (23, [4])
    assert found["skipped"] == [{"where": "line 4, id n2", "why": "no label"}]
    assert "ball goal" in page() or "bank coin" in page()


@pytest.mark.parametrize(
    "words, arrays, said",
    [
        ("--images photos", {"x": np.zeros((7, 3))}, "has 7 rows, and the data 21 files"),
        (
            "--images photos",
            {"x": np.zeros((2, 3)), "ids": ["a", "b"]},
            "none of the ids of the data, such as 'blue/00",
        ),
        ("--images photos", {"x": np.zeros((2, 3)), "ids": ["a", "a"]}, "an id more than once"),
        ("--images photos", {"x": np.zeros((2, 3)), "ids": ["a"]}, "1 ids and 2 rows"),
        ("--images photos", {"x": np.full((21, 3), np.nan)}, "not finite"),
        ("--images photos", {"x": np.zeros((21, 3, 3))}, "give numbers (samples, features)"),
        ("--images photos", {"y": np.zeros((21, 3))}, "no array 'x'"),
        ("--images photos --encoder wordllama", {"x": np.zeros((21, 3))}, "give one of them"),
        ("--npz mine.npz", {"x": np.zeros((21, 3))}, "give --embeddings with --images or --table"),
    ],
)
def test_embeddings_that_do_not_fit_are_one_sentence(words, arrays, said, photos, capsys):
    np.savez("mine.npz", **arrays)
    assert said in refusal(f"{words} --embeddings mine.npz --out out", capsys)


@pytest.mark.parametrize(
    "words, said",
    [
        ("--images photos --encoder efficientnet", "--encoder is efficientnet: give auto, none"),
        ("--images photos --encoder st:some/model", "read texts"),
        ("--images photos --encoder gone.safetensors", "gone.safetensors cannot be read"),
        ("--images photos --encoder no_such:thing", "cannot be imported"),
        ("--images photos --embeddings gone.npy", "gone.npy does not exist"),
        ("--table letters.csv --label topic --encoder wordllama", "give --images, or --text with --table"),
    ],
)
def test_an_encoder_that_is_not_there_is_one_sentence(words, said, photos, letters, capsys):
    assert said in refusal(f"{words} --out out", capsys)


def test_a_file_that_is_no_array_is_not_unpickled(here):
    np.save("mine.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        read_embeddings(Path("mine.npy"))
