"""A table: cells of a CSV or parquet file, columns and texts as numbers, rows as samples.

M rows, K numbers that a column becomes; of texts V words and pairs, K directions.
"""

import codecs
import csv
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from coteach.audit.samples import LabelledSamples, Skipped, TableRows, printable, readable, shown
from coteach.checks import one_line
from coteach.names import nearest
from coteach.turns import cells_up_to

if TYPE_CHECKING:
    from coteach.audit.arrays import Embeddings

UTF_8, WINDOWS = (codecs.lookup(name).name for name in ("utf-8-sig", "cp1252"))  # reading a table loads no code
DELIMITERS = (",", ";", "\t")
LONGEST_CELL = 2**27  # characters
CHARACTERS_AT_ONCE = 2**20  # characters

Cells = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Table:
    """Cells by column: text, Python's values, or an array (rows, numbers) for a column of vectors.

    `numbers` says which rows of the file these are, counted from 0 without the header; `lines` where they begin,
    as an editor counts. Numbers may have decimal commas where a comma parts no cells.
    """

    columns: dict[str, Cells] = field(repr=False)
    numbers: list[int] = field(repr=False)
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    lines: list[int] | None = field(default=None, repr=False)
    decimal_commas: bool = False

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str, path: Path) -> Cells:
        if name not in self.columns:
            known = printable(", ".join(self.columns)[:500])
            raise ValueError(f"{path} has no column {shown(name)}{nearest(name, self.columns)}: it has {known}.")
        return self.columns[name]

    def place(self, i: int) -> str:
        """Where a row is, in words; a parquet file has no lines."""
        return f"row {self.numbers[i]}, counted from 0" if self.lines is None else f"line {self.lines[i]}"

    def take(self, index: Sequence[int]) -> "Table":
        def of(cells: Cells) -> Cells:
            return cells[index] if isinstance(cells, np.ndarray) else [cells[i] for i in index]

        return replace(
            self,
            columns={name: of(cells) for name, cells in self.columns.items()},
            numbers=[self.numbers[i] for i in index],
            lines=None if self.lines is None else [self.lines[i] for i in index],
        )


def read_table(path: Path) -> Table:
    table = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    if not len(table):
        raise ValueError(f"{path} has no rows that can be read: give a table with a header and rows below it.")
    return table


def read_csv(path: Path) -> Table:
    """Cells as text; a row with too many or too few is skipped."""
    check_file(path)
    try:
        encoding = encoding_of(path)
        with cells_up_to(LONGEST_CELL), path.open(encoding=encoding, newline="") as file:
            table = parse_csv(file, path)
        note = f"{printable(path.name)} is not UTF-8: read as Windows-1252"
        return table if encoding == UTF_8 else replace(table, notes=(note,))
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read ({error}): save it as comma-separated text.") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): give another file.") from error


def check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give a table.")  # a pipe would be waited for without end


def encoding_of(path: Path) -> str:
    """One for the whole file: to leave out the rows with an umlaut alone would leave out some classes more."""
    for encoding in (UTF_8, WINDOWS):
        try:
            with path.open(encoding=encoding, newline="") as file:
                while text := file.read(CHARACTERS_AT_ONCE):
                    if encoding == WINDOWS and "\0" in text:
                        break
                else:
                    return encoding
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path} is no text in UTF-8 or Windows-1252: save it as CSV in UTF-8.")


def parse_csv(file: Any, path: Path) -> Table:
    first = file.readline()
    delimiter = max(DELIMITERS, key=first.count)
    file.seek(0)
    reader = csv.reader(file, delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    check_header(header, path)
    rows, numbers, lines, skipped, number = [], [], [], [], -1
    line = reader.line_num + 1
    for row in reader:
        begins, line = line, reader.line_num + 1
        if not row:
            continue
        number += 1
        if len(row) != len(header):
            skipped.append(Skipped(f"line {begins}", f"{len(row)} cells instead of {len(header)}"))
            continue
        rows.append(row)
        numbers.append(number)
        lines.append(begins)
    columns: dict[str, Cells] = {name: [row[c] for row in rows] for c, name in enumerate(header)}
    return Table(columns, numbers, tuple(skipped), lines=lines, decimal_commas=delimiter != ",")


def check_header(header: list[str], path: Path) -> None:
    if not header:
        raise ValueError(f"{path} is empty: give a table with a header and rows below it.")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise ValueError(f"{path} has two columns named {shown(name)}: give every column a name of its own.")
        seen.add(name)


def read_parquet(path: Path) -> Table:
    check_file(path)
    arrow, parquet = pyarrow()
    with naming_the_file(path, arrow):
        table = parquet.read_table(path)
        names = table.column_names
    check_header(names, path)
    with naming_the_file(path, arrow):
        columns = {name: cells_of(table.column(name), arrow) for name in names}
    return Table(columns, list(range(table.num_rows)))


@contextmanager
def naming_the_file(path: Path, arrow: ModuleType) -> Iterator[None]:
    """What pyarrow cannot read, texts that are no UTF-8 among it, in a sentence that names the file."""
    try:
        yield
    except (OSError, arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)[:200]}): write it again.") from error


def cells_of(column: Any, arrow: ModuleType) -> Cells:
    kinds = arrow.types
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_temporal(column.type):
        return column.cast(arrow.string()).to_pylist()
    if kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type):
        return vectors_of(column, arrow)
    return column.to_pylist()


def vectors_of(column: Any, arrow: ModuleType) -> Cells:
    """float64 array (rows, numbers), NaN where a row has none or another number of them; else the lists."""
    kind = column.type.value_type
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)):
        return column.to_pylist()
    lists = [cell.values for cell in column]
    return equal_lengths([None if one is None else one.to_numpy(zero_copy_only=False) for one in lists])


def equal_lengths(lists: Sequence[np.ndarray | None]) -> np.ndarray:
    """The usual length is the commonest; a row of another gets NaN throughout."""
    lengths = np.array([-1 if one is None else len(one) for one in lists])
    known = lengths[lengths > 0]
    usual = int(np.bincount(known).argmax()) if len(known) else 0
    x = np.full((len(lists), usual), np.nan)
    for row, one in zip(x, lists, strict=True):
        if one is not None and len(one) == usual:
            row[:] = one
    return x


def parsed_vectors(cells: Cells) -> np.ndarray | None:
    """Cells such as "[0.1, 0.2]" as `equal_lengths` has them; None if the column is not made of these."""
    present = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if not present or not all(cell.lstrip().startswith("[") for cell in present[:100]):
        return None
    lists = [as_vector(cell) for cell in cells]
    if 2 * sum(one is not None for one in lists) < len(present):
        return None
    return equal_lengths(lists)


def as_vector(cell: Any) -> np.ndarray | None:
    try:
        vector = np.array(json.loads(cell), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return vector if vector.ndim == 1 and len(vector) else None


def pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise ValueError("parquet files need pyarrow: pip install pyarrow.") from error


# ---- columns as numbers, by what is learnt of the audited table -------------------------------------------------

MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "<na>"}  # in features; not as a label
MOST_CATEGORIES = 50  # of a category that get a number of their own
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(,\d+)?([eE][-+]?\d+)?\s*", re.ASCII)  # or a whole number
NEARLY_ALL = 0.95  # of a column's cells, to say what kind it is
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([T ]\d{1,2}:\d{2}.*)?"
)


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are; a missing one is the median, and marked if the audited table had missing ones."""

    name: str
    median: float
    marked: bool
    kind: ClassVar[str] = "numbers"

    def apply(self, cells: Cells) -> np.ndarray:
        x_M, _ = cells_as_numbers(cells)
        gone = np.isnan(x_M)
        filled = np.where(gone, self.median, x_M)
        return np.stack([filled, gone], 1) if self.marked else filled[:, None]


@dataclass(frozen=True)
class Category:
    """A number for each of the commonest values, one for all others if there are any, one for a missing value."""

    name: str
    values: list[str]
    others: bool
    missing: bool
    kind: ClassVar[str] = "category"

    def apply(self, cells: Cells) -> np.ndarray:
        place = {value: k for k, value in enumerate(self.values)}
        x_MK = np.zeros((len(cells), len(place) + self.others + self.missing))
        for row, cell in zip(x_MK, cells, strict=True):
            if is_missing_cell(cell):
                row[-1:] = self.missing
            elif (k := place.get(str(cell))) is not None:
                row[k] = 1
            elif self.others:
                row[len(place)] = 1
        return x_MK


@dataclass(frozen=True)
class Vectors:
    """A column of vectors; a row without one has NaN."""

    name: str
    length: int
    kind: ClassVar[str] = "vectors"

    def apply(self, cells: Cells) -> np.ndarray:
        x_MK = cells if isinstance(cells, np.ndarray) else parsed_vectors(cells)
        if x_MK is None or x_MK.shape[1] != self.length:
            raise ValueError(f"column {shown(self.name)} does not hold vectors of {self.length} numbers.")
        return np.where(np.isfinite(x_MK).all(1, keepdims=True), x_MK, np.nan)


Column = Numbers | Category | Vectors
COLUMN_KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Numbers, Category, Vectors)}


def learn_column(name: str, cells: Cells, notes: list[str]) -> Column | None:
    """How a column becomes numbers; None, and a note, for one that is left out."""

    def leave_out(why: str) -> None:
        notes.append(f"column {shown(name)} is left out: {why}")

    vectors = cells if isinstance(cells, np.ndarray) else parsed_vectors(cells)
    if vectors is not None:
        return Vectors(name, vectors.shape[1]) if vectors.shape[1] else leave_out("its vectors are empty")
    present = [cell for cell in cells if not is_missing_cell(cell)]
    if not present:
        return leave_out("it is empty")
    if not all(isinstance(cell, (str, Real)) or type(cell).__name__ == "Decimal" for cell in present):
        return leave_out(f"cells of type {type(present[0]).__name__} cannot be used")
    dates = sum(isinstance(cell, str) and bool(DATE.fullmatch(cell.strip())) for cell in present)
    if dates >= NEARLY_ALL * len(present):
        return leave_out("dates cannot be used; make numbers of them, such as the year or the day of the week")
    x_M, odd = cells_as_numbers(cells)
    if odd <= (1 - NEARLY_ALL) * len(present):
        return learn_numbers(name, x_M, odd, notes)
    return learn_category(name, [str(cell) for cell in present], len(present) < len(cells), notes)


def learn_numbers(name: str, x_M: np.ndarray, odd: int, notes: list[str]) -> Numbers | None:
    known = x_M[~np.isnan(x_M)]
    if odd:
        notes.append(f"column {shown(name)}: {odd} cell(s) that are no finite numbers count as missing")
    if len(known) == len(x_M) and (np.diff(x_M) > 0).all() and (x_M == np.floor(x_M)).all():
        named = f"--id {shlex.quote(name)} would name them by it"
        notes.append(f"column {shown(name)} is left out: it numbers the rows; {named}")
        return None
    if len(known) == len(x_M) and known.min() == known.max():
        notes.append(f"column {shown(name)} is left out: it is the same in every row")
        return None
    return Numbers(name, float(np.median(known)), len(known) < len(x_M))


def learn_category(name: str, present: list[str], missing: bool, notes: list[str]) -> Category | None:
    counts = Counter(present)
    if len(counts) == 1 and not missing:
        notes.append(f"column {shown(name)} is left out: it is the same in every row")
        return None
    if len(counts) > MOST_CATEGORIES and 2 * len(counts) > len(present):
        notes.append(
            f"column {shown(name)} is left out: nearly every row has its own value; "
            f"is it a text (--text {shlex.quote(name)}) or a name of the row (--id {shlex.quote(name)})?"
        )
        return None
    if len(counts) > MOST_CATEGORIES:
        notes.append(
            f"column {shown(name)} has {len(counts)} values: all but the {MOST_CATEGORIES} commonest count as one"
        )
    common = sorted(counts, key=lambda value: (-counts[value], value))[:MOST_CATEGORIES]
    return Category(name, sorted(common), len(counts) > MOST_CATEGORIES, missing)


def cells_as_numbers(cells: Cells) -> tuple[np.ndarray, int]:
    """float64 (M,), NaN for what is missing or no finite number; and how many are there but no finite number."""
    x_M = np.full(len(cells), np.nan)
    odd = 0
    for i, cell in enumerate(cells):
        if is_missing_cell(cell):
            continue
        try:
            value = float(
                "_" if isinstance(cell, str) and "_" in cell else cell
            )  # Python reads 1_000, others do not
        except (ValueError, TypeError, OverflowError):
            odd += 1
            continue
        x_M[i] = value if np.isfinite(value) else np.nan
        odd += not np.isfinite(value)
    return x_M, odd


def has_decimal_commas(cells: Cells) -> bool:
    """Whether all that is there are numbers as 1,5, or whole ones, and not all of them whole."""
    if isinstance(cells, np.ndarray):
        return False
    present = [cell for cell in cells if not is_missing_cell(cell)]
    return any("," in str(cell) for cell in present) and all(
        isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) for cell in present
    )


def with_points(cells: Cells) -> list[Any]:
    return [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]


def is_missing_cell(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def column_as_json(column: Column) -> dict[str, Any]:
    return {"kind": column.kind, **asdict(column)}


def column_from_json(facts: dict[str, Any]) -> Column:
    return COLUMN_KINDS[facts["kind"]](**{name: value for name, value in facts.items() if name != "kind"})


# ---- texts as vectors of bounded length: TF-IDF of words and pairs of words, then its main directions (LSA) -----

MOST_WORDS = 30_000
MOST_DIRECTIONS = 128
TFIDF_OPTIONS: dict[str, Any] = {"strip_accents": "unicode", "sublinear_tf": True, "ngram_range": (1, 2)}


@dataclass(frozen=True, eq=False)
class Texts:
    """How a column of texts becomes numbers."""

    name: str
    words: list[str]
    idf_V: np.ndarray
    directions_KV: np.ndarray

    @classmethod
    def learn(cls, name: str, texts: Sequence[str], seed: int) -> "Texts":
        from sklearn.decomposition import TruncatedSVD  # heavy, and only texts need it
        from sklearn.feature_extraction.text import TfidfVectorizer

        for least in (2, 1):  # a word of one text says nothing about others, but there may be no others
            vectorizer = TfidfVectorizer(min_df=least, max_features=MOST_WORDS, **TFIDF_OPTIONS)
            try:
                tfidf_MV = vectorizer.fit_transform(texts)
            except ValueError:
                continue
            k = min(MOST_DIRECTIONS, min(tfidf_MV.shape) - 1)
            if k >= 1:
                with np.errstate(invalid="ignore"):  # the share that is explained, of texts that are all the same
                    svd = TruncatedSVD(k, random_state=seed).fit(tfidf_MV)
                directions_KV = svd.components_.astype(np.float32)
                words = vectorizer.get_feature_names_out().tolist()
                return cls(name, words, vectorizer.idf_.astype(np.float32), directions_KV)
        raise ValueError(f"column {shown(name)} has hardly any words: give the column with the texts as --text.")

    def apply(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (M, K) of length one, or zero for a text of unknown words."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(vocabulary={word: v for v, word in enumerate(self.words)}, **TFIDF_OPTIONS)
        vectorizer.idf_ = self.idf_V.astype(np.float64)
        tfidf_MV: Any = vectorizer.transform(texts)
        x_MK = tfidf_MV @ self.directions_KV.T.astype(np.float64)
        length_M1 = np.linalg.norm(x_MK, axis=1, keepdims=True)
        return x_MK / np.where(length_M1 > 0, length_M1, 1)


class TextColumn(Protocol):
    """What makes numbers (M, K) of a column of texts."""

    @property
    def name(self) -> str: ...

    def apply(self, texts: list[str]) -> np.ndarray: ...


TextLearner = Callable[[str, list[str]], TextColumn | None]


def learn_words(name: str, texts: list[str]) -> TextColumn | None:
    """Nothing but the words of the texts themselves."""
    return None


# ---- all columns together ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Columns side by side, the text last."""

    columns: list[Column]
    text: TextColumn | None

    @classmethod
    def learn(
        cls,
        table: Table,
        leave_out: Sequence[str],
        text: str | None,
        seed: int,
        learn_text: TextLearner = learn_words,
    ) -> tuple["TableEncoder", list[str]]:
        """The encoder, and a sentence for each thing it decided."""
        notes: list[str] = []
        names = [name for name in table.columns if name not in (*leave_out, text)]
        cells = {name: usable_cells(table, table.columns[name]) for name in names}
        commas = sum(cells[name] is not table.columns[name] for name in names)
        if commas:
            notes.append(f"decimal commas in {commas} column{'s' * (commas > 1)} are read as points")
        columns = [c for name in names if (c := learn_column(name, cells[name], notes)) is not None]
        if text is None:
            return cls(columns, None), notes
        texts = as_texts(table.columns[text])
        return cls(columns, learn_text(text, texts) or Texts.learn(text, texts, seed)), notes

    def apply(self, table: Table, path: Path) -> np.ndarray:
        """Numbers (M, K) as float32; NaN only in a row without its vector."""
        parts = [column.apply(usable_cells(table, table.column(column.name, path))) for column in self.columns]
        if self.text is not None:
            parts.append(self.text.apply(as_texts(table.column(self.text.name, path))))
        with np.errstate(over="ignore"):  # such a row is left out, and told
            return np.concatenate(parts, 1).astype(np.float32)


def usable_cells(table: Table, cells: Cells) -> Cells:
    return with_points(cells) if table.decimal_commas and has_decimal_commas(cells) else cells


def as_texts(cells: Cells) -> list[str]:
    return ["" if is_missing_cell(cell) else str(cell) for cell in cells]


# ---- rows as samples --------------------------------------------------------------------------------------------


def read_table_samples(
    path: Path,
    label: str,
    text: str | None = None,
    ident: str | None = None,
    ignore: tuple[str, ...] = (),
    seed: int = 0,
    learn_text: TextLearner = learn_words,
    embeddings: "Embeddings | None" = None,
) -> LabelledSamples:
    """Samples of a .csv, .tsv or .parquet file.

    A row without a label, without a name in the id column, or without its vector is skipped. Features are learnt
    from all rows that have a label, or are the embeddings if there are any.
    """
    table = read_table(path)
    for name in ignore:
        table.column(name, path)
    labels = table.column(label, path)
    names = None if ident is None else table.column(ident, path)
    texts = None if text is None else as_texts(table.column(text, path))
    without = {i: "no label" for i, cell in enumerate(labels) if no_label(cell)}
    if names is not None:
        without |= {i: f"no name in column {shown(ident or '')}" for i, cell in enumerate(names) if is_blank(cell)}
    table_kept = table.take([i for i in range(len(table)) if i not in without])
    if not len(table_kept):
        raise ValueError(f"no row of {path} has a label in column {shown(label)}: check --label.")
    encoder, notes, why = None, [], "no vector of the usual length"
    if embeddings is None:
        encoder, notes = TableEncoder.learn(table_kept, (label, ident or label, *ignore), text, seed, learn_text)
        if not encoder.columns and encoder.text is None:
            raise ValueError(
                f"{path} has no column to learn from besides the label: {'; '.join(notes) or 'add some'}."
            )
        x = encoder.apply(table_kept, path)
    else:
        called = table_kept.numbers if ident is None else table_kept.columns[ident]
        total = len(table) + len(table.skipped)
        x = embeddings.rows_of([readable(str(one)) for one in called], table_kept.numbers, total, "rows")
        why = f"no row in {embeddings.path.name}"
    sound = np.isfinite(x).all(1)
    position = {number: i for i, number in enumerate(table.numbers)}
    kept = [position[number] for number in table_kept.numbers]
    without |= {kept[i]: why for i in np.flatnonzero(~sound)}
    too_large = np.flatnonzero(np.isinf(x).any(1))  # a file of embeddings has none of these
    without |= {kept[i]: "a number beyond float32" for i in too_large}
    if texts is not None and encoder is not None and not encoder.columns:
        without |= {i: "no text" for i in kept if not texts[i].strip()}
    stays = [i for i in kept if i not in without]
    order = {i: k for k, i in enumerate(kept)}

    def place(i: int) -> str:
        name = None if names is None else names[i]
        return table.place(i) if is_blank(name) else f"{table.place(i)}, id {printable(str(name))}"

    skipped = [Skipped(place(i), why) for i, why in sorted(without.items())]
    return LabelledSamples(
        x=x[[order[i] for i in stays]],
        y=label_array([labels[i] for i in stays]),
        ids=[readable(str(table.numbers[i] if names is None else names[i])) for i in stays],
        kind="table",
        source=path,
        skipped=(*table.skipped, *skipped),
        notes=(*table.notes, *notes),
        places=[place(i) for i in stays],
        texts=None if texts is None else [texts[i] for i in stays],
        rows=TableRows(table.columns, stays),
        encoding={"kind": "arrays"} if encoder is None else encoder,
        settings={"label": label, "text": text, "id": ident, "ignore": list(ignore)}
        | ({} if embeddings is None else {"embeddings": str(embeddings.path)}),
    )


def no_label(cell: Any) -> bool:
    """Missing or blank; the words NA and none may well be classes."""
    return is_blank(cell) or isinstance(cell, np.ndarray)


def is_blank(cell: Any) -> bool:
    return (
        cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and cell != cell)
    )


def label_array(labels: list[Any]) -> np.ndarray:
    """Integers and truth values as they are, also integers written as text; everything else as text."""
    if (
        labels
        and all(type(label) in (bool, int) for label in labels)
        and len({type(label) for label in labels}) == 1
    ):
        return np.array(labels)
    texts = [readable(str(label)) for label in labels]
    if all(is_plain_integer(text) for text in texts):
        return np.array([int(text) for text in texts])
    return np.array(texts)


def is_plain_integer(text: str) -> bool:
    """Written as Python would, so that nothing is lost: not 007, not +1."""
    return len(text) < 18 and text.lstrip("-").isdecimal() and text.isascii() and str(int(text)) == text
