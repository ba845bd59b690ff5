"""The review page as a file: what it holds, what it cannot do, and what its colours are."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coteach.audit import images, review
from coteach.audit.samples import Skipped
from coteach.pages import page_file
from page_cases import HOSTILE, contrast, schemes
from review_audits import made_up, with_pictures, with_rows, write_audit


class Parts(HTMLParser):
    """The elements of a page, as a browser meets them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tags: list[tuple[str, dict]] = []
        self.inside: dict[str, str] = {}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = dict(attrs).get("id") or tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        if self.open:
            self.inside[self.open] = self.inside.get(self.open, "") + data


def parts_of(page: Path) -> Parts:
    return Parts(page.read_bytes().decode())


def facts_of(page: Path) -> dict:
    return json.loads(parts_of(page).inside["audit"])


# ---- nothing that users wrote becomes markup -------------------------------------------------------------------


def test_hostile_labels_ids_texts_and_columns_are_data_and_nothing_else(tmp_path):
    plain = parts_of(write_audit(with_rows(list("abcdefghij"), 30, 20, "text", "cell"), tmp_path / "plain"))
    for n, hostile in enumerate(HOSTILE):
        findings = with_rows(HOSTILE, 30, 20, hostile, hostile)
        findings.samples.ids[:] = [f"{hostile}{i}" for i in range(30)]
        page = write_audit(findings, tmp_path / str(n))
        parts, facts = parts_of(page), facts_of(page)
        assert parts.tags == plain.tags
        assert {name: parts.inside[name] for name in ("style", "script")} == {
            name: plain.inside[name] for name in ("style", "script")
        }
        assert facts["classes"] == sorted(HOSTILE)
        assert facts["id"] == [f"{hostile}{i}" for i in findings.suspects.index]
        assert facts["text"] == [f"{hostile} {i}" for i in findings.suspects.index]
        assert facts["columns"] == ["age", hostile[:40]]
        assert facts["cells"][3] == [str(findings.suspects.index[3]), hostile]


def test_the_policy_lets_the_pages_own_script_and_style_run_and_nothing_else(tmp_path):
    parts = parts_of(write_audit(made_up(HOSTILE, 30, 10), tmp_path))
    (policy,) = (a["content"] for tag, a in parts.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "img-src", "style-src", "script-src", "base-uri", "form-action"}
    assert rules["img-src"] == "data:"
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(parts.inside[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_the_page_asks_nobody_and_builds_no_markup_from_text(tmp_path):
    page = write_audit(with_pictures(tmp_path / "pictures", ["a", "b"], 12, 6), tmp_path).read_text()
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", page)
    for tag, attributes in Parts(page).tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        assert all(
            value.startswith(("data:", "#")) for name, value in attributes.items() if name in ("src", "href")
        )
    script = "".join(page_file("audit", name) for name in review.SCRIPTS)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", script
    )


# ---- what is in it ---------------------------------------------------------------------------------------------


def test_the_facts_are_those_of_the_findings_worst_first(tmp_path):
    findings = made_up(["x", "y", "z"], 30, 10)
    facts = facts_of(write_audit(findings, tmp_path))
    suspects = findings.suspects
    for s in range(10):
        assert facts["id"][s] == findings.samples.ids[suspects.index[s]]
        assert facts["classes"][facts["given"][s]] == suspects.given[s]
        assert facts["classes"][facts["suggested"][s]] == suspects.suggested[s]
        for n in (0, 1):
            assert facts["p_given"][n][s] == pytest.approx(findings.given_NS[n, s], abs=1e-4)
            assert facts["p_suggested"][n][s] == pytest.approx(findings.suggested_NS[n, s], abs=1e-4)
    assert facts["quality"] == sorted(facts["quality"])
    assert facts["about"] == "10 suspects among 30 samples"
    assert facts["folder"] == str(tmp_path)
    assert facts["notes"] == ["a note"]
    assert facts["pictures"] == 0
    assert "text" not in facts
    assert "cells" not in facts


def test_what_was_skipped_is_among_the_notes(tmp_path):
    for n, said in ((1, "1 of the files was skipped"), (1200, "1,200 files were skipped")):
        lost = tuple(Skipped(f"{i}.txt", "not an image") for i in range(n))
        facts = facts_of(write_audit(made_up(["a", "b"], 30, 10, kind="images", skipped=lost), tmp_path / str(n)))
        assert facts["notes"][1].startswith(said)


def test_very_many_suspects_are_cut_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(review, "MOST_SUSPECTS", 7)
    facts = facts_of(write_audit(with_rows(["a", "b"], 40, 20, "text", "cell"), tmp_path))
    assert {len(facts[name]) for name in ("id", "given", "suggested", "quality", "text", "cells")} == {7}
    assert {len(p) for p in (*facts["p_given"], *facts["p_suggested"])} == {7}
    assert facts["about"] == "The worst 7 of 20 suspects among 40 rows; the others are in suspects.csv"


def test_long_texts_and_cells_are_cut_so_that_the_page_stays_small(tmp_path, monkeypatch):
    findings = with_rows(["a", "b"], 40, 20, "t" * 9000, "c" * 9000)
    facts = facts_of(write_audit(findings, tmp_path / "long"))
    assert facts["text"][0] == "t" * 4000 + "… (9,002 characters)"
    assert facts["cells"][0][1] == "c" * 300 + "… (9,000 characters)"
    monkeypatch.setattr(review, "MOST_TEXT_CHARACTERS", 20_000)
    facts = facts_of(write_audit(findings, tmp_path / "short"))
    assert sum(map(len, facts["text"])) < 21_000


def test_vectors_and_missing_cells_are_written_shortly():
    assert review.cell_text(np.arange(6) / 4) == "[0, 0.25, 0.5, 0.75, 1, 1.25]"
    assert review.cell_text(np.arange(900.0)) == "[0, 1, 2, 3, 4, 5, … 900 in all]"
    assert review.cell_text(None) == ""
    assert review.cell_text(0) == "0"


def test_networks_that_diverged_leave_a_page(tmp_path):
    findings = made_up(["a", "b"], 12, 4, networks=1)
    findings.given_NS[:] = np.nan
    facts = facts_of(write_audit(findings, tmp_path))
    assert facts["p_given"] == [[None] * 4]


def test_there_may_be_no_suspects(tmp_path):
    facts = facts_of(write_audit(made_up(["a", "b"], 12, 0), tmp_path))
    assert facts["id"] == []


# ---- pictures --------------------------------------------------------------------------------------------------


def pictures_of(page: Path) -> list[Image.Image | None]:
    parts = parts_of(page)
    blocks = [json.loads(text) for name, text in parts.inside.items() if name.startswith("pictures-")]
    return [uri and opened(uri) for block in blocks for uri in block]


def opened(uri: str) -> Image.Image:
    head, _, data = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("side, width", [(40, 40), pytest.param(1000, 640, marks=pytest.mark.slow)])
def test_each_suspect_has_its_own_small_picture(side, width, tmp_path, monkeypatch):
    monkeypatch.setattr(review, "PICTURES_PER_BLOCK", 4)  # so that there are several blocks
    findings = with_pictures(tmp_path / "pictures", ["a", "b"], 60, 12, side)
    page = write_audit(findings, tmp_path)
    assert facts_of(page)["pictures"] == 4
    pictures = pictures_of(page)
    assert len(pictures) == 12
    for picture, i in zip(pictures, findings.suspects.index, strict=True):
        assert picture is not None
        assert picture.size == (width, width // 2)
        assert abs(int(np.asarray(picture)[5, 5, 0]) - i) <= 3


def test_a_picture_that_is_gone_is_none_and_many_are_smaller(tmp_path, monkeypatch):
    findings = with_pictures(tmp_path / "pictures", ["a", "b"], 30, 10, 200)
    assert findings.samples.paths is not None
    Path(findings.samples.paths[findings.suspects.index[3]]).unlink()
    monkeypatch.setattr(images, "SIDES", ((5, 160), (9, 96)))
    pictures = pictures_of(write_audit(findings, tmp_path))
    assert [k for k, picture in enumerate(pictures) if picture is None] == [3]
    assert {picture.size for picture in pictures if picture is not None} == {(64, 32)}


@pytest.mark.parametrize("n, side", [(300, 640), (301, 320), (600, 320), (601, 160), (10_000, 96), (10_001, 64)])
def test_few_suspects_have_large_pictures(n, side, tmp_path, monkeypatch):
    sides = []
    monkeypatch.setattr(images, "thumbnail_of_file", lambda path, side: sides.append(side))
    findings = made_up(["a", "b"], 12, 4, paths=[Path("x")] * 12)
    images.thumbnails(findings.samples, np.zeros(n, dtype=np.int64))
    assert sides == [side] * n


def test_pictures_are_smaller_where_large_ones_have_no_room(tmp_path, monkeypatch):
    findings = with_pictures(tmp_path / "pictures", ["a", "b"], 12, 4, 1000)
    large = images.thumbnails(findings.samples, findings.suspects.index)
    assert large is not None
    monkeypatch.setattr(images, "MOST_PICTURE_CHARACTERS", sum(len(uri or "") for uri in large) - 1)
    smaller = images.thumbnails(findings.samples, findings.suspects.index)
    assert smaller is not None
    assert {opened(uri or "").size for uri in smaller} == {(320, 160)}


def test_pictures_end_where_there_is_no_more_room(tmp_path, monkeypatch):
    findings = with_pictures(tmp_path / "pictures", ["a", "b"], 30, 10)
    whole = images.thumbnails(findings.samples, findings.suspects.index)
    assert whole is not None
    monkeypatch.setattr(images, "MOST_PICTURE_CHARACTERS", sum(len(uri or "") for uri in whole[:4]))
    assert images.thumbnails(findings.samples, findings.suspects.index) == [*whole[:4], *[None] * 6]


@pytest.mark.parametrize("shape, mode", [((9, 7), "L"), ((1, 9, 7), "L"), ((3, 9, 7), "RGB")])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_that_are_images_are_shown(shape, mode, dtype):
    x = np.random.default_rng(0).integers(0, 256, (12, *shape)).astype(dtype)
    x[0].flat[:2] = (0, 255)
    findings = made_up(["a", "b"], 12, 4, x=x)
    uris = images.thumbnails(findings.samples, findings.suspects.index)
    assert uris is not None
    picture = opened(uris[1] or "")
    assert (picture.mode, picture.size) == (mode, (7, 9))
    expected = x[findings.suspects.index[1]].reshape(-1, 9, 7).mean()
    assert abs(np.asarray(picture).mean() - expected) < 12


def test_arrays_that_are_no_images_have_no_pictures():
    for shape in ((2,), (5, 9, 7)):
        findings = made_up(["a", "b"], 12, 4, x=np.zeros((12, *shape)))
        assert images.thumbnails(findings.samples, findings.suspects.index) is None


# ---- colours ---------------------------------------------------------------------------------------------------

TEXT = {
    "ground": "ink muted",
    "paper": "ink muted given suggested good bad accent",
    "chosen": "ink muted suggested good bad",
    "notice": "ink",
    "accent": "on-accent",
    **{f"heat-{n}": "ink" for n in (1, 2, 3, 4)},
    "heat-5": "on-accent",
}
SHAPES = {"track": "given suggested accent", "paper": "edge accent", "ground": "accent"}  # no text: 3 is enough


def test_the_formula_is_the_one_of_the_guidelines():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_shapes_stand_out_from_their_ground(scheme):
    colours = schemes("audit", "review")[scheme]
    for least, pairs in ((4.5, TEXT), (3, SHAPES)):
        for ground, names in pairs.items():
            for name in names.split():
                assert contrast(colours[name], colours[ground]) >= least, (scheme, name, ground)
