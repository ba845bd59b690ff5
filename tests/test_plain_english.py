"""Plain English on the pages that people see first: short sentences, few numbers, no phrases of our own."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_WORDS, MOST_DECIMALS = 25, 2
PAGES = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"),
    *(
        f"docs/{name}.md"
        for name in (
            *("README", "start", "choosing", "idea", "own-data", "modern", "given-labels", "guesses", "glossary"),
            *("imbalance", "cleanlab", "distributed", "extending", "rounds", "own-loop", "architecture"),
            *("reliability", "command-line", "references"),
            *("results", "replication", "fidelity", "speed", "human", "report", "api"),
        )
    ),
    *sorted(
        page.relative_to(ROOT).as_posix()
        for part in ("methods", "api")
        for page in (ROOT / "docs" / part).glob("*.md")
    ),
]
OUT = re.compile(
    r"can be had|\bbut for\b|\b(?:is|are|was|were) told\b|we would take|nothing to rely on|worlds apart",
    re.IGNORECASE,
)
NO_PROSE = re.compile(r"^(?:\||#|!\[)")
SENTENCE_END = re.compile(r"(?<=[.!?])[)*\"”]*\s+(?=[A-Z0-9`*\[(“τλ])")


def sentences(markdown: str) -> list[str]:
    """What is neither code, table, heading nor picture; an item of a list begins a sentence, `code` is a word."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]+`", "`code`", text))
    lines = ["" if NO_PROSE.match(line) else line for line in text.splitlines()]
    text = re.sub(r"\n\s*(?:[-*]|\d+\.) ", "\n\n", "\n" + "\n".join(lines))
    return [found for part in re.split(r"\n\s*\n", text) for found in SENTENCE_END.split(" ".join(part.split()))]


def words(sentence: str) -> int:
    return len(re.findall(r"[^\s]*\w[^\s]*", sentence))


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short_and_hold_few_numbers(page):
    found = sentences((ROOT / page).read_text(encoding="utf-8"))
    assert [sentence for sentence in found if words(sentence) > MOST_WORDS] == []
    decimals = re.compile(r"\d+\.\d+(?!\.?\d)")
    assert [sentence for sentence in found if len(decimals.findall(sentence)) > MOST_DECIMALS] == []


@pytest.mark.parametrize("page", PAGES)
def test_phrases_of_our_own_are_out(page):
    assert OUT.findall((ROOT / page).read_text(encoding="utf-8")) == []


def test_no_phrase_of_our_own_is_in_the_source_and_no_docstring_begins_with_of():
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert OUT.findall(text) == [], path
        assert '"""Of ' not in text, path


def test_long_sentences_and_many_numbers_would_be_noticed():
    page = (
        "# A title\n\nOne `a b c` is. Two\nlines ([here](a b.md)) are!\n\n- A list.\n- Its end\n\n| 1.0 | 2.0 |\n"
    )
    assert [found for found in sentences(page) if found] == [
        *("One `code` is.", "Two lines ([here]) are!"),
        *("A list.", "Its end"),
    ]
    assert words("One `code` is – 4.5 %.") == 4
