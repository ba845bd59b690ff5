"""The review page beyond single decisions: running precision, grid, overview, notes, two reviewers."""

import csv

import numpy as np
import pytest

from coteach.cli import main
from coteach.labels.checked import Checked, checked_interval
from page_cases import HOSTILE
from review_audits import made_up, with_pictures, with_rows
from review_pages import CLASSES, SUSPECTS, N, review_of_check
from test_review import facts_of

# ---- how far it has got ----------------------------------------------------------------------------------------


def test_running_precision_counts_what_was_wrong_and_what_lately(review):
    page = review()
    page.press("a a d a k")
    assert page.text("running").startswith("4 of 5 decided were wrong. After 20 decisions there is an estimate.")
    page.press("k k k k k k k k k k s k k k k k k k")  # "not sure" is no decision
    assert page.text("progress-text") == "22 of 30 decided, 1 not sure"
    assert page.text("running").startswith("4 of 22 decided were wrong; of the last 20, 2.")
    page.press("u u u")
    assert page.text("running").startswith("4 of 19 decided were wrong.")


def test_fingers_are_told_of_no_keys(review):
    page = review(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.text("running") == "Keep the given label, or accept the suggestion."
    page.tab.click("#view-grid")
    assert page.text("chosen") == "Tap to choose"


def test_it_says_when_to_go_on_and_when_to_stop(review):
    page = review(made_up(CLASSES, 600, 200))
    for _ in range(30):
        page.press("a")
    assert "It pays to go on: about " in page.text("running")
    for _ in range(60):
        page.press("k")
    assert "You may stop here: about " in page.text("running")
    assert "of all labels are wrong, not counting those outside this list." in page.text("running")


ESTIMATE = """([wrong, seen]) => {
    const of = wrong.map((is, s) => (s < seen ? (is ? DROP : KEEP) : undefined));
    return estimateOfSuspects(new FallingChances(wrong.length), of, wrong.length);
}"""


def test_the_estimate_holds_the_truth_and_ends_at_what_was_found(review):
    page = review()
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp((np.arange(400) - 160) / 80))
    held, widths = 0, []
    for _ in range(20):
        wrong = (rng.random(400) < chance).astype(int).tolist()
        seen = [page.tab.evaluate(ESTIMATE, [wrong, n]) for n in (20, 120, 240)]
        held += sum(one["low"] <= sum(wrong) <= one["high"] for one in seen)
        widths.append([one["high"] - one["low"] for one in seen])
        assert [one["open"] for one in seen] == [380, 280, 160]
    assert held >= 0.9 * 60
    assert (np.diff(np.mean(widths, axis=0)) < -30).all()
    every = page.tab.evaluate(ESTIMATE, [wrong, 400])
    assert (every["wrong"], every["low"], every["high"], every["open"]) == (sum(wrong),) * 3 + (0,)


def test_a_sample_to_check_gives_the_share_that_the_command_gives(review, tmp_path):
    page = review_of_check(review, tmp_path / "audit" / "review.html")
    page.press("d d d d d d k d d k  d k k d k k d k k k")
    assert "Probably" not in page.text("running")  # of the third part nothing is known
    page.press("k k k d k k k k k k")
    found = Checked(np.array([15, 15, 60]), np.full(3, 10), np.array([8, 3, 1]))
    ours = page.tab.evaluate("""() => {
        const audit = JSON.parse(document.getElementById('audit').textContent);
        return estimateOfSample(audit, new Decisions(audit, localStorage).of);
    }""")
    assert ours["share"] == pytest.approx(found.share)
    assert (ours["low"], ours["high"]) == pytest.approx(checked_interval(found), abs=0.04)
    low, high = f"{100 * ours['low']:.0f}", f"{100 * ours['high']:.0f}"
    page.press("u u u u u u u u u")  # of the third part one is left, which says little
    assert page.text("running").endswith("too few to tell how many of all labels are wrong.")
    page.press("k k d k k k k k k")
    assert f"Probably {low} to {high} % of all labels are wrong." in page.text("running")


def test_quality_and_its_place_are_told(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    findings.suspects.quality[:6] = [0, 0.0000123, 0.00042, 0.0312, 0.04, 0.1]
    page = review(findings)
    sides = page.tab.locator(".row .side > .small").all_inner_texts()[:6]
    assert sides == ["< 0.00001", "0.00001", "0.00042", "0.031", "0.040", "0.10"]
    assert page.text("rank") == "the lowest of 90"
    page.press("n")
    assert page.text("rank") == "the 2nd lowest of 90"
    assert page.text("reason") == f"Both networks say {findings.suspects.suggested[1]}."


# ---- deciding --------------------------------------------------------------------------------------------------


def test_number_keys_take_the_likeliest_classes(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    page = review(findings)
    assert findings.likely_SK is not None
    names = [sorted(CLASSES)[c] for c in findings.likely_SK[0]]
    assert names[0] == findings.suspects.suggested[0]
    assert findings.suspects.given[0] not in names
    assert [line.split()[1] for line in page.tab.locator("#likely button").all_inner_texts()] == names
    page.press("2")
    assert page.verdicts[0] == f"→ {names[1]}"
    page.press("5")  # there is none
    assert page.text("progress-text") == "1 of 30 decided"
    page.press("Home")
    page.tab.click("#likely button >> nth=2")
    assert page.verdicts[0] == f"→ {names[2]}"
    assert page.tab.locator("#likely [aria-pressed=true]").count() == 0  # which is of the next


def test_notes_and_not_sure_are_kept_exported_and_left_out_of_the_labels(review, tmp_path):
    findings = made_up(HOSTILE, N, SUSPECTS)
    page = review(findings)
    page.press("s w")
    page.tab.keyboard.type('ask "Ann", k a d')
    page.press("Enter k w")
    page.tab.keyboard.type("blurred")
    page.press("Escape")
    assert page.text("progress-text") == "1 of 30 decided, 1 not sure"
    page.tab.reload()
    page.choose("decision", "note")
    assert page.text("shown").startswith("2 suspects of 30")
    page.press("Escape Home")
    assert page.tab.input_value("#note") == 'ask "Ann", k a d'
    page.choose("decision", "unsure")
    assert page.text("shown").startswith("1 suspect of 30")
    path = tmp_path / "decisions.csv"
    assert page.exported_to(path) == "decisions-1.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    told = [(row["decision"], row["label"], row["note"]) for row in rows]
    assert told == [
        ("unsure", "", ""),
        ("keep", findings.suspects.given[1], 'ask "Ann", k a d'),
        ("", "", "blurred"),
    ]
    main(["audit", "--apply", str(path), "--out", str(tmp_path / "audit")])
    with (tmp_path / "audit" / "corrected.csv").open(encoding="utf-8", newline="") as file:
        corrected = {row["id"] for row in csv.DictReader(file)}
    known = [findings.samples.ids[i] in corrected for i in findings.suspects.index[:3]]
    assert known == [False, True, False]


def test_a_note_is_undone_like_a_decision(review):
    page = review()
    page.press("w")
    page.tab.keyboard.type("odd")
    page.press("Enter u")
    assert page.tab.input_value("#note") == ""
    assert page.tab.locator("#undo").is_disabled()


def test_the_end_of_a_filter_is_said_and_shows_what_is_left(review):
    page = review()
    page.tab.select_option("#filter-pair", index=1)
    n = int(page.text("shown").split()[0])
    page.tab.focus("#list")
    page.press("End k")
    assert page.text("end-text").startswith(f"That was the last one shown. {n - 1} ")
    page.tab.click("#end-open")
    assert page.text("position") == f"1 of {n}"
    assert not page.tab.locator("#end").is_visible()
    for _ in range(n - 1):
        page.press("k")
    page.press("n n")
    assert page.text("end-text").endswith(
        f"All of them are decided. Outside the filter {SUSPECTS - n} are still open."
    )
    page.tab.click("#end-clear")
    assert page.text("shown") == f"{SUSPECTS} suspects, the worst first"
    assert page.text("decision") == ""
    page.choose("decision", "open")
    page.tab.focus("#list")
    for _ in range(SUSPECTS - n - 1):
        page.press("k")
    page.press("s")
    assert page.text("nothing") == "No suspect passes the filter."
    assert page.text("finished") == "All looked at, 1 not sure: export them now."


# ---- trusted samples beside the suspect -----------------------------------------------------------------------


def test_three_trusted_pictures_of_each_class_are_beside_the_suspect(review, tmp_path):
    findings = with_pictures(tmp_path / "pictures", CLASSES, 240, 60)
    page = review(findings)
    label_of = dict(zip(findings.samples.ids, findings.samples.y.tolist(), strict=True))
    suspects = {findings.samples.ids[i] for i in findings.suspects.index}
    for _ in range(5):
        for kind in ("given", "suggested"):
            images = page.tab.locator(f"#examples-{kind} img")
            names = images.evaluate_all("images => images.map(image => image.title)")
            assert len(set(names)) == 3
            assert {label_of[name] for name in names} == {page.text(kind)}
            assert not set(names) & suspects
            assert images.first.get_attribute("alt") == f"Trusted as {page.text(kind)}: {names[0]}"
            reds = images.evaluate_all("""images => Promise.all(images.map(async image => {
                await image.decode();
                const canvas = document.createElement('canvas').getContext('2d');
                canvas.drawImage(image, 0, 0);
                return canvas.getImageData(5, 5, 1, 1).data[0];
            }))""")
            assert reds == pytest.approx([int(name.split(".")[0]) for name in names], abs=3)
        page.press("n")


def test_rows_and_texts_have_trusted_ones_beside_them(review):
    page = review(with_rows(CLASSES, N, SUSPECTS, "text", "cell"))
    assert page.tab.locator("#examples-given blockquote").count() == 3
    heads = page.tab.locator("#cells thead th").all_inner_texts()
    assert heads == ["This one", f"Trusted as {page.text('given')}", f"Trusted as {page.text('suggested')}"]
    assert page.tab.locator("#cells tbody tr").first.locator("td").count() == 7


# ---- the grid --------------------------------------------------------------------------------------------------


def test_cards_are_chosen_and_decided_in_one_step(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    page = review(findings)
    page.press("k g")
    cards = page.tab.locator(".card")
    cards.nth(1).click()
    cards.nth(4).click(modifiers=["Shift"])
    assert page.text("chosen") == "4 of 30 chosen"
    cards.nth(2).click()  # not this one
    assert page.tab.locator(".card[aria-selected=true]").count() == 3
    assert page.text("accept").split() == ["A", "Accept", "3", "suggested"]
    page.press("a")
    suggested = findings.suspects.suggested
    assert cards.locator(".verdict").all_inner_texts()[:5] == [
        "✓ kept",
        f"→ {suggested[1]}",
        "",
        f"→ {suggested[3]}",
        f"→ {suggested[4]}",
    ]
    assert page.text("progress-text") == "4 of 30 decided"
    page.press("Control+a d")
    assert page.text("progress-text") == "30 of 30 decided"
    page.press("u")
    assert page.text("progress-text") == "4 of 30 decided"
    page.tab.reload()
    page.press("u")
    assert page.text("progress-text") == "1 of 30 decided"


def test_the_grid_by_keys_alone(review):
    page = review()
    page.press("g Space ArrowRight Space Shift+ArrowRight Shift+ArrowDown")
    columns = page.tab.evaluate(
        "getComputedStyle(document.getElementById('cards')).gridTemplateColumns.split(' ').length"
    )
    assert columns > 2
    assert page.text("chosen") == f"{columns + 3} of 30 chosen"
    page.press("s")
    assert page.text("progress-text") == f"0 of 30 decided, {columns + 3} not sure"
    page.press("End d")  # nothing is chosen: about the one with the mark
    assert "✕ dropped" in page.tab.locator(".card").last.inner_text()
    page.press("Home Space Escape")
    assert page.tab.locator(".card[aria-selected=true]").count() == 0
    page.press("Enter")
    assert page.text("position") == "1 of 30"
    assert page.tab.evaluate("document.activeElement.id") == "list"


def test_a_class_is_chosen_for_many(review):
    page = review()
    page.press("g")
    page.tab.click("#choose-open")
    page.press("c e m u Enter")
    words = set(page.tab.locator(".card .verdict").all_inner_texts())
    assert words == {"→ emu", "✓ kept"}  # those that were emu
    page.press("u")
    assert page.text("progress-text") == "0 of 30 decided"


def test_what_a_filter_hides_is_not_decided_with_the_others(review):
    page = review()
    page.press("g Control+a")
    page.tab.select_option("#filter-pair", index=1)
    n = int(page.text("shown").split()[0])
    assert page.text("chosen") == f"{n} of {n} chosen"
    page.tab.focus("#grid")
    page.press("d")
    assert page.text("progress-text") == f"{n} of 30 decided"


def test_ten_thousand_cards_are_few_elements(review):
    page = review(made_up([f"class {c}" for c in range(40)], 30_000, 10_000))
    page.press("g End")
    assert page.tab.locator(".card").count() < 200
    current = page.tab.locator(".card.current")
    assert current.get_attribute("aria-posinset") == "10000"
    assert current.is_visible()
    page.press("Control+a k u k")
    assert page.text("progress-text") == "1 of 10,000 decided"


# ---- the overview ----------------------------------------------------------------------------------------------


def test_the_overview_has_rates_counts_and_a_map_that_filters(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    page = review(findings)
    page.press("k a d s o")
    assert page.text("rates").split("\n")[1] == "10 % of 90 labels (5 to 20 %)"
    assert page.text("counts").split() == "kept 1 relabelled 1 dropped 1 not sure 1 not decided 26".split()
    pairs = list(zip(findings.suspects.given.tolist(), findings.suspects.suggested.tolist(), strict=True))
    cells = page.tab.locator("#map button")
    assert sum(int(text) for text in cells.all_inner_texts()) == SUSPECTS
    assert cells.count() == len(set(pairs))
    words = cells.first.get_attribute("aria-label") or ""
    pair = tuple(words.split(":")[0].split(" → "))
    cells.first.click()
    assert page.text("shown").startswith(f"{pairs.count(pair)} suspects of 30")
    assert (page.text("given"), page.text("suggested")) == pair
    page.press("o")
    assert not page.tab.locator("#work").is_visible()
    page.press("k a")  # decides nothing that is not seen
    assert page.text("progress-text") == "3 of 30 decided, 1 not sure"


def test_the_overview_tells_what_decisions_say(review):
    page = review()
    for _ in range(SUSPECTS):
        page.press("a")
    page.press("o")
    assert "33 % of 90 labels" in page.text("rates").split("\n")[3]
    assert page.text("rates-note").startswith(
        "About 30 of the 30 suspects are wrong. Wrong labels that the list misses"
    )


def test_many_classes_make_a_map_of_the_commonest(review):
    page = review(made_up([f"class {c}" for c in range(40)], 900, 300))
    page.press("o")
    assert page.tab.locator("#map tbody tr").count() == 20
    assert page.text("map-note").startswith("20 more classes")


# ---- two reviewers ---------------------------------------------------------------------------------------------


def test_a_second_reviewer_is_merged_and_disagreements_are_shown(review, tmp_path):
    findings = made_up(HOSTILE, N, SUSPECTS)
    page = review(findings)
    page.press("k k a s w")
    page.tab.keyboard.type("theirs")
    page.press("Enter k k")  # the fifth and sixth
    theirs = tmp_path / "ann's.csv"
    page.exported_to(theirs)
    page.press("u u u u u u")
    assert page.text("progress-text") == "1 of 30 decided"  # the note was a step, too
    page.press("Home a k k")  # against their keep; the same; against what they accepted
    page.tab.set_input_files("#import-file", theirs)
    page.tab.locator("#imported").wait_for()
    assert page.text("imported-text").startswith(
        "ann's.csv: 2 decisions taken over; of 3 that both of you decided 1 agree (33 %); 1 note. 2 disagreements"
    )
    assert page.text("progress-text") == "5 of 30 decided, 1 not sure"
    page.tab.click("#imported-show")
    assert page.text("shown").startswith("2 suspects of 30")
    suggested = [page.tab.evaluate("text => visible(text)", str(name)) for name in findings.suspects.suggested[:3]]
    assert (
        page.text("differs-text") == f"ann's.csv says ✓ kept, you say → {suggested[0]}. Decide again to settle it."
    )
    page.press("t")  # theirs
    assert page.text("shown").startswith("1 suspect of 30")
    assert page.text("differs-text").startswith(f"ann's.csv says → {suggested[2]}, you say ✓ kept.")
    page.press("k")  # ours again
    assert page.text("nothing") == "No suspect passes the filter."
    page.press("u u u")  # to before the import, in one step
    assert page.text("progress-text") == "3 of 30 decided"


def test_a_spreadsheet_may_have_saved_the_file_to_import(review, tmp_path):
    page = review()
    facts = facts_of(tmp_path / "audit" / "review.html")
    lines = [["note", "audit", "label", "id", "decision", "given"]]
    given = facts["classes"][facts["given"][0]]
    lines.append(['a "b";\nc', facts["fingerprint"], "emu", facts["id"][0], "relabel", given])
    path = tmp_path / "saved.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(lines)
    page.tab.set_input_files("#import-file", path)
    page.tab.locator("#imported").wait_for()
    assert page.verdicts[0] == ("✓ kept" if given == "emu" else "→ emu")
    assert page.tab.input_value("#note") == 'a "b";\nc'


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda text: text.replace('"audit"', '"mark"'), "It has no column audit"),
        (
            lambda text: text.replace('"id 0"', '"<b>no such</b>"'),
            "an id that is not on this page: <b>no such</b>",
        ),
        (lambda text: text.replace('"keep"', '"explode"'), "an unknown decision or label"),
        (lambda text: text[:-20] + "0123456789abcdef" + text[-20:], "It belongs to another audit"),
        (lambda text: "", "It has no column id"),
        (lambda text: 'id,"a" b', "It is no CSV file"),
    ],
)
def test_what_is_no_file_of_this_audit_is_refused(change, said, review, tmp_path):
    page = review()
    page.press("k")
    path = tmp_path / "decisions.csv"
    page.exported_to(path)
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    page.press("u")
    page.tab.set_input_files("#import-file", path)
    page.tab.locator("#imported").wait_for()
    assert said in page.text("imported-text")
    assert page.text("progress-text") == "0 of 30 decided"


@pytest.mark.parametrize(
    "junk", ['[[[0,"keep"],[1,"note","x"]],[[2,"other","drop","a"]]]', '[[[0,"keep"],[99,"drop"]]]']
)
def test_steps_of_several_changes_are_kept_whole_or_passed_over(junk, review):
    page = review()
    page.press("k")
    page.tab.evaluate("junk => localStorage.setItem(Object.keys(localStorage)[0], junk)", junk)
    page.tab.reload()
    assert page.text("progress-text") == f"{int('99' not in junk)} of 30 decided"
    assert page.tab.locator("#undo").is_disabled() == ("99" in junk)


def test_the_log_forgets_what_was_changed_again(review):
    page = review()
    steps = page.tab.evaluate("""() => {
        const audit = JSON.parse(document.getElementById('audit').textContent);
        const decisions = new Decisions(audit, null);
        for (let k = 0; k < 60_000; k += 1) decisions.decide([k % 7], () => (k % 2 ? KEEP : DROP));
        decisions.note(3, 'note');
        return [decisions.log.length < 50_001, decisions.of.slice(0, 7), decisions.notes.get(3), decisions.count];
    }""")
    last = [max(k for k in range(59_990, 60_000) if k % 7 == s) for s in range(7)]
    assert steps == [True, ["keep" if k % 2 else "drop" for k in last], "note", 7]
