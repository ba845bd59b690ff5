"""The review page in a real browser: clicks, keys, filters, export, reload, and what it must never do."""

import csv
import json

import pytest

from coteach.cli import main
from page_cases import HOSTILE
from review_audits import made_up, with_pictures, with_rows
from review_pages import CLASSES, SUSPECTS, N, review_of_check

# ---- deciding --------------------------------------------------------------------------------------------------


def test_keys_decide_move_and_undo(review):
    page = review()
    given, suggested = page.text("given"), page.text("suggested")
    assert page.text("position") == "1 of 30"
    page.press("k a d")
    assert page.text("progress-text") == "3 of 30 decided"
    assert page.text("position") == "4 of 30"
    assert page.verdicts[0] == "✓ kept"
    assert page.verdicts[1].startswith("→ ")
    assert page.verdicts[2:4] == ["✕ dropped", ""]
    page.press("p ArrowUp")
    assert page.text("position") == "2 of 30"
    assert page.text("decision") == f"Decided: {page.verdicts[1]}"
    page.press("Home")
    assert (page.text("given"), page.text("suggested")) == (given, suggested)
    page.press("a u u")  # two steps back: the first suspect as it was, then the third
    assert page.text("position") == "3 of 30"
    assert page.verdicts[0] == "✓ kept"
    assert page.text("progress-text") == "2 of 30 decided"
    page.press("Control+z u u")  # one more than there is
    assert page.text("progress-text") == "0 of 30 decided"
    assert page.tab.locator("#undo").is_disabled()
    page.press("End n n")
    assert page.text("position") == "30 of 30"
    page.press("k")
    assert page.text("position") == "30 of 30"
    assert "last one" in page.text("announce")


def test_buttons_and_rows_do_the_same(review):
    page = review()
    page.tab.click("#keep")
    page.tab.click("#accept")
    page.tab.click("#drop")
    page.tab.click("#next")
    page.tab.click("#previous")
    assert page.text("position") == "4 of 30"
    page.tab.click(".row >> nth=0")
    assert page.text("decision") == "Decided: ✓ kept"
    assert page.tab.get_attribute("#keep", "aria-pressed") == "true"
    page.tab.click("#undo")
    assert page.text("progress-text") == "2 of 30 decided"
    assert page.text("position") == "3 of 30"


def test_another_label_is_chosen_by_its_first_letters(review):
    page = review()
    page.press("c")
    assert page.tab.locator("#choose-dialog").is_visible()
    page.press("e m u Enter")
    assert page.verdicts[0] == ("✓ kept" if page.tab.inner_text(".row .pair").startswith("emu") else "→ emu")
    page.press("c Escape")
    key = "new KeyboardEvent('keydown', {key: 'k', bubbles: true})"
    # A key so quick that what was closed still has the focus.
    page.tab.evaluate(f"document.getElementById('choose-label').dispatchEvent({key})")
    assert page.text("progress-text") == "2 of 30 decided"
    page.tab.click("#choose")
    page.tab.select_option("#choose-label", label="cow")
    page.tab.click("text=Use this label")
    assert page.text("progress-text") == "3 of 30 decided"


def test_the_given_label_chosen_again_is_kept(review):
    page = review()
    given = page.text("given")
    page.press("c")
    page.tab.select_option("#choose-label", label=given)
    page.press("Enter")
    assert page.verdicts[0] == "✓ kept"


def test_a_key_held_down_decides_once(review):
    page = review()
    for _ in range(4):
        page.tab.keyboard.down("d")
    page.tab.keyboard.up("d")
    assert page.text("progress-text") == "1 of 30 decided"


def test_question_mark_shows_the_keys_and_letters_do_nothing_behind_it(review):
    page = review()
    page.press("?")
    assert "keep the given label" in page.text("help-dialog")
    page.press("k a d Escape")
    assert not page.tab.locator("#help-dialog").is_visible()
    assert page.text("progress-text") == "0 of 30 decided"


def test_a_suggestion_that_is_the_given_label_cannot_be_accepted(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    findings.suspects.suggested[:] = findings.suspects.given
    page = review(findings)
    page.press("a")
    assert page.text("progress-text") == "0 of 30 decided"
    assert page.tab.locator("#accept").is_disabled()
    assert "keep it with K" in page.text("announce")


def test_no_suspects_are_said_and_keys_do_no_harm(review):
    page = review(made_up(CLASSES, N, 0))
    page.press("k a c d n p u e Home")
    assert page.text("nothing") == "There are no suspects."


# ---- filters ---------------------------------------------------------------------------------------------------


def test_filters_show_what_they_say(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    given, suggested = findings.suspects.given.tolist(), findings.suspects.suggested.tolist()
    quality = findings.suspects.quality.tolist()
    page = review(findings)

    def count() -> int:
        return int(page.text("shown").split()[0])

    for c, name in enumerate(CLASSES):
        page.choose("class", str(c))
        assert count() == sum(name in pair for pair in zip(given, suggested, strict=True))
    page.choose("class", "any")
    for a, one in enumerate(CLASSES):
        for b, other in enumerate(CLASSES):
            wanted = list(zip(given, suggested, strict=True)).count((one, other))
            if wanted:
                page.choose("pair", f"{a},{b}")
                assert count() == wanted
                assert page.text("given") == one
                assert page.text("suggested") == other
                assert page.text("filter-state") == "is on"
    page.tab.click("#filter-clear")
    assert count() == SUSPECTS
    page.tab.fill("#filter-from", "0.2")
    page.tab.fill("#filter-to", "0.5")
    assert count() == sum(0.2 <= round(q, 4) <= 0.5 for q in quality)
    page.tab.fill("#filter-from", "0.9")
    assert page.text("nothing") == "No suspect passes the filter."
    assert page.tab.locator("#keep").is_disabled()


def test_what_is_decided_leaves_the_undecided_and_comes_back_when_undone(review):
    page = review()
    page.choose("decision", "open")
    first = page.text("name")
    page.tab.focus("#list")
    page.press("k")
    assert page.text("shown").startswith("29 suspects of 30")
    assert page.text("position") == "1 of 29"
    assert page.text("name") != first
    page.press("u")
    assert page.text("name") == first
    assert page.text("position") == "1 of 30"
    page.press("a a")
    page.choose("decision", "done")
    assert page.text("shown").startswith("2 suspects of 30")


def test_letters_typed_into_a_filter_are_no_decisions_and_escape_leaves_it(review):
    page = review()
    page.tab.focus("#filter-class")
    page.press("d k")
    page.tab.focus("#filter-from")
    page.press("a k")
    assert page.text("progress-text") == "0 of 30 decided"
    page.press("Escape")
    assert page.tab.evaluate("document.activeElement.id") == "list"
    page.press("k")
    assert page.text("progress-text") == "1 of 30 decided"


# ---- what is kept and exported ---------------------------------------------------------------------------------


def test_a_reload_keeps_the_decisions_and_what_can_be_undone(review):
    page = review()
    page.press("k a d k")
    page.tab.reload()
    assert page.text("progress-text") == "4 of 30 decided"
    assert page.text("position") == "5 of 30"  # where it stopped
    page.press("u u")
    assert page.text("progress-text") == "2 of 30 decided"


def test_another_audit_begins_at_nothing_and_another_tab_follows(review):
    one = review()
    two = review(context=one.tab.context)
    one.press("k k")
    two.tab.wait_for_function("document.getElementById('progress-text').textContent.startsWith('2 ')")
    other = review(made_up(CLASSES, N, SUSPECTS + 1), context=one.tab.context)
    assert other.text("progress-text") == "0 of 31 decided"
    other.url = one.url


@pytest.mark.parametrize("junk", ["{", "null", '{"a":1}', '[[99,"keep"],[0,"no"],[1,9],[-1,1],5,[2,"keep"],[3]]'])
def test_junk_in_the_browsers_storage_is_passed_over(junk, review):
    page = review()
    page.press("k")
    page.tab.evaluate("junk => localStorage.setItem(Object.keys(localStorage)[0], junk)", junk)
    page.tab.reload()
    assert page.text("progress-text") == f"{int('keep' in junk)} of 30 decided"


def test_without_storage_there_is_a_warning(review):
    page = review()
    assert not page.tab.locator("#warning").is_visible()
    page.tab.add_init_script("Object.defineProperty(window, 'localStorage', {get() {throw new Error('no')}})")
    page.tab.reload()
    page.press("k")
    assert page.text("progress-text") == "1 of 30 decided"
    assert "lost when it is closed" in page.text("warning")


def test_a_full_storage_is_told_too(review):
    page = review()
    page.tab.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    page.press("k")
    assert "lost when it is closed" in page.text("warning")


def test_the_export_is_applied_by_the_command(review, tmp_path):
    findings = made_up(HOSTILE, N, SUSPECTS)
    findings.samples.ids[:] = [f"{i} {HOSTILE[i % len(HOSTILE)]}" for i in range(N)]
    page = review(findings)
    page.press("k a d a k")
    page.press("c")
    page.tab.select_option("#choose-label", "7")
    page.press("Enter")
    rows = page.exported(tmp_path / "decisions.csv")
    assert page.text("command") == f"coteach audit --apply decisions-6.csv --out {tmp_path / 'audit'}"
    assert page.text("exported-text").startswith("decisions-6.csv with 6 decisions is in your downloads.")
    suspects = findings.suspects
    words = "keep relabel drop relabel keep relabel".split()
    chosen = sorted(HOSTILE)[7]
    labels = [suspects.given[0], suspects.suggested[1], "", suspects.suggested[3], suspects.given[4], chosen]
    assert [row["id"] for row in rows] == [findings.samples.ids[i] for i in suspects.index[:6]]
    assert [row["given"] for row in rows] == suspects.given[:6].tolist()
    assert [row["decision"] for row in rows] == words
    assert [row["label"] for row in rows] == labels
    main(["audit", "--apply", str(tmp_path / "decisions.csv"), "--out", str(tmp_path / "audit")])
    with (tmp_path / "audit" / "corrected.csv").open(encoding="utf-8", newline="") as file:
        corrected = {row["id"]: row["label"] for row in csv.DictReader(file)}
    trusted = {findings.samples.ids[i]: findings.samples.y[i] for i in range(N) if findings.trusted[i]}
    decided = {row["id"]: label for row, label in zip(rows, labels, strict=True) if label}
    assert corrected == trusted | decided


def test_the_last_decision_asks_for_the_export(review, tmp_path):
    page = review(made_up(CLASSES, 12, 3))
    finished = page.tab.locator("#finished")
    page.press("k d")
    assert not finished.is_visible()
    page.press("k")
    assert finished.inner_text() == "All decided: export them now."
    assert page.text("announce").endswith("All decided: export them now.")
    page.exported(tmp_path / "decisions.csv")
    assert not finished.is_visible()
    page.press("u")
    assert not finished.is_visible()
    page.press("d")
    assert finished.is_visible()  # what was exported is not this


def test_the_command_can_be_copied(review, tmp_path):
    page = review(permissions=["clipboard-read", "clipboard-write"])
    page.press("k")
    page.exported(tmp_path / "decisions.csv")
    page.tab.click("#copy")
    page.tab.wait_for_function("document.getElementById('copy').textContent === 'Copied'")
    assert page.tab.evaluate("navigator.clipboard.readText()") == page.text("command")
    page.press("k")
    page.exported(tmp_path / "decisions.csv")
    assert page.text("copy") == "Copy"


def test_a_browser_without_a_clipboard_copies_what_is_selected(review, tmp_path):
    page = review()
    page.tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.press("k")
    page.exported(tmp_path / "decisions.csv")
    page.tab.click("#copy")
    page.tab.wait_for_function("['Copied', 'Press Ctrl C'].includes(document.getElementById('copy').textContent)")
    assert page.tab.evaluate("getSelection().toString()").strip() == page.text("command")


def test_tiny_numbers_are_alike(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    findings.given_NS[:, 0], findings.suggested_NS[:, 0] = [0.0094, 0.00001], [1.0, 0.0]
    page = review(findings)
    assert page.tab.locator(".bar .number").all_inner_texts() == ["< 1 %", "100 %", "< 1 %", "< 1 %"]


# ---- what it must never do -------------------------------------------------------------------------------------


def test_hostile_labels_ids_texts_and_cells_are_shown_as_text(review):
    hostile = " ".join(HOSTILE)
    findings = with_rows(HOSTILE, 30, 20, hostile, hostile)
    findings.samples.ids[:] = [f"{hostile}{i}" for i in range(30)]
    page = review(findings)
    for _ in range(10):
        page.press("a")
    assert page.tab.locator("img, iframe, object, embed").count() == 1  # the empty frame of the picture
    assert page.tab.locator("script:not([type])").count() == 1

    def shown(text: str, line_ends: str = "⟨U+000A⟩") -> str:
        return text.replace("\u202e", "⟨U+202E⟩").replace("\r", "⟨U+000D⟩").replace("\n", line_ends)

    i = findings.suspects.index[10]
    assert page.tab.locator("#text").text_content() == shown(f"{hostile} {i}", "\n")
    assert page.tab.locator("#cells tbody tr").last.locator("td").first.text_content() == shown(hostile, "\n")
    beside = page.tab.locator("#examples blockquote").first.text_content() or ""
    assert beside.startswith(shown(hostile, "\n")[:100])
    assert page.tab.locator("#name").text_content() == shown(f"{hostile}{i}")
    assert page.tab.locator("#choose-label option").all_text_contents() == [shown(c) for c in sorted(HOSTILE)]
    assert page.tab.locator("#given").text_content() == shown(str(findings.suspects.given[10]))


def test_the_policy_stops_foreign_scripts_and_requests(review):
    page = review()
    page.tab.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.broken = 1';
        document.body.append(script);
        const image = document.createElement('img');
        image.setAttribute('onerror', 'window.broken = 2');
        image.src = 'http://127.0.0.1:9/x.png';
        document.body.append(image);
        return fetch('http://127.0.0.1:9/').catch(() => 0);
    }""")
    page.tab.wait_for_timeout(100)
    assert page.tab.evaluate("window.broken") is None
    assert all("Content Security Policy" in text for text in page.wrong)
    assert len(page.wrong) >= 3
    page.wrong.clear()
    page.asked[:] = [url for url in page.asked if "127.0.0.1" not in url]


def test_ten_thousand_suspects_are_few_elements(review):
    page = review(made_up([f"class {c}" for c in range(40)], 30_000, 10_000))
    assert page.text("progress-text") == "0 of 10,000 decided"
    page.press("End")
    assert page.text("position") == "10,000 of 10,000"
    assert page.tab.locator(".row").count() < 60
    selected = page.tab.locator(".row[aria-selected=true]")
    assert selected.get_attribute("aria-posinset") == "10000"
    assert selected.is_visible()
    page.choose("class", "3")
    assert page.tab.locator(".row").count() < 60
    page.tab.evaluate("document.getElementById('list').scrollTop = 5000")
    page.tab.wait_for_function("document.querySelector('.row').getAttribute('aria-posinset') > 60")


def test_pictures_are_the_suspects_own(review, tmp_path):
    findings = with_pictures(tmp_path / "pictures", CLASSES, 240, 60)
    page = review(findings)
    colour = """async () => {
        const image = document.querySelector('#picture img');
        await image.decode();
        const canvas = document.createElement('canvas').getContext('2d');
        canvas.drawImage(image, 0, 0);
        return [image.naturalWidth, image.alt, canvas.getImageData(5, 5, 1, 1).data[0]];
    }"""
    for s in range(12):
        width, alt, red = page.tab.evaluate(colour)
        assert (width, alt) == (40, f"Picture of {findings.samples.ids[findings.suspects.index[s]]}")
        assert abs(red - findings.suspects.index[s]) <= 3
        page.press("n")
    assert page.tab.locator(".row img").first.evaluate("image => image.naturalWidth") == 40


# ---- for everybody ---------------------------------------------------------------------------------------------

CONTRASTS = """() => {
    const channel = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const numbers = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!own || !element.checkVisibility() || element.closest('script, option')) continue;
        const two = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
        found.push([(Math.max(...two) + 0.05) / (Math.min(...two) + 0.05), element.outerHTML.slice(0, 80)]);
    }
    return found;
}"""


@pytest.mark.parametrize("keys", ["k a d p s e ?", "k a d s g Space ArrowRight Space", "k a d s o"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_that_is_written_can_be_read_in_both_schemes(scheme, keys, review):
    page = review(with_rows(CLASSES, N, SUSPECTS, "text", "cell"), color_scheme=scheme)
    page.press(keys)
    found = page.tab.evaluate(CONTRASTS)
    assert len(found) > 40
    assert not [(ratio, element) for ratio, element in found if ratio < 4.5]
    ground = page.tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(ground) < 200) == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_is_wider_than_the_screen(width, review):
    long = "x" * 300
    findings = with_rows([long + "a", long + "b", "c"], N, SUSPECTS, long, long)
    findings.samples.ids[:] = [f"{long}{i}" for i in range(N)]
    page = review(findings, viewport={"width": width, "height": 740}, has_touch=width < 500, is_mobile=width < 500)
    page.press("a k d")
    page.tab.click("#export")
    for view in ("overview", "grid", "one"):
        page.tab.click(f"#view-{view}")
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
    outside = """width => [...document.querySelectorAll(
        'button, select, input, textarea, h1, h2, dd, .track')].filter(e => {
        const box = e.getBoundingClientRect();
        return e.checkVisibility() && (box.right > width + 1 || box.left < -1);
    }).map(e => e.outerHTML.slice(0, 80))"""
    assert page.tab.evaluate(outside, width) == []
    for name in ("keep", "accept", "choose", "drop"):  # at the thumb, without scrolling
        box = page.tab.locator(f"#{name}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 740
        assert box["height"] >= 40


@pytest.mark.parametrize("keys, place", [("k n", "list"), ("k g Space", "grid"), ("k o", "view-overview")])
def test_the_keyboard_reaches_everything_and_the_focus_is_seen(keys, place, review):
    page = review(with_rows(CLASSES, N, SUSPECTS, "text", "cell"))
    page.press(keys)
    reached = set()
    for _ in range(40):
        page.press("Tab")
        name, outline = page.tab.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if name:
            assert outline not in ("none", "hidden"), name
            reached.add(name)
    wanted = page.tab.evaluate("""() => [...document.querySelectorAll('button, select, input, textarea')].filter(
        e => e.checkVisibility() && !e.disabled && !e.closest('#likely, #map')).map(e => e.id)""")
    assert set(wanted) | {place} <= reached


def test_screen_readers_are_told_what_is_what(review):
    page = review()
    names = page.tab.evaluate("""() => [...document.querySelectorAll('button, select, input, progress')].map(
        e => [e.id, e.getAttribute('aria-label') || [...e.labels].map(l => l.textContent).join('')
            || (e.tagName === 'BUTTON' ? e.textContent : '')])""")
    assert [name for name, said in names if not said.strip()] == []
    listbox = page.tab.get_by_role("listbox", name="30 suspects, the worst first")
    assert listbox.count() == 1
    page.press("n n")
    active = page.tab.locator("#list").get_attribute("aria-activedescendant")
    assert page.tab.locator(f"#{active}").get_attribute("aria-selected") == "true"
    assert page.tab.locator(f"#{active}").get_attribute("aria-posinset") == "3"
    assert "3 of 30: id" in page.text("announce")
    for name in ("progress-text", "announce"):
        assert page.tab.get_attribute(f"#{name}", "aria-live") == "polite"
    assert page.tab.get_attribute("#warning", "role") == "alert"


def test_nothing_moves_for_those_who_do_not_want_it(review):
    moves = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
    assert review(reduced_motion="no-preference").tab.evaluate(moves) != "0s"
    assert review(reduced_motion="reduce").tab.evaluate(moves) == "0s"


def test_print_is_a_table_of_what_is_shown(review):
    page = review()
    page.press("k d")
    page.tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.tab.emulate_media(media="print")
    assert not page.tab.locator("main").is_visible()
    lines = page.tab.locator("#print tbody tr").all_inner_texts()
    assert len(lines) == SUSPECTS
    assert lines[0].endswith("kept")
    assert lines[1].endswith("dropped")


def test_the_notes_of_the_audit_and_both_networks_are_there(review):
    findings = made_up(CLASSES, N, SUSPECTS)
    page = review(findings)
    assert "1 note" in page.text("notes")
    numbers = page.tab.locator(".bar .number").all_inner_texts()
    p = [
        findings.given_NS[0, 0],
        findings.suggested_NS[0, 0],
        findings.given_NS[1, 0],
        findings.suggested_NS[1, 0],
    ]
    assert numbers == [f"{100 * x:.0f} %" for x in p]
    widths = page.tab.evaluate("[...document.querySelectorAll('.fill')].map(e => parseFloat(e.style.width))")
    assert widths == pytest.approx([100 * x for x in p], abs=0.01)
    assert json.loads(page.tab.locator("#audit").text_content() or "")["fingerprint"]


def test_a_page_of_samples_to_check_does_not_call_them_suspects(review, tmp_path):
    page = review()
    assert page.text("shown") == f"{SUSPECTS} suspects, the worst first"
    path = tmp_path / "audit" / "review.html"
    page = review_of_check(review, path)
    assert page.text("title").startswith("Labels to check of ")
    assert page.text("shown") == f"{SUSPECTS} samples, in random order"
