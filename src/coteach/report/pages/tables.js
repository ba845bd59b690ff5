// Without this script tables are in the order of the methods. With it a click on a heading sorts by that column.

// What a cell begins with, if that is a number: 73.10 of "73.10 ± 2.70".
function numberOf(cell) {
  return parseFloat(cell.textContent.replace("−", "-").replaceAll(",", ""));
}

function compare(one, other, column) {
  const [a, b] = [one.cells[column], other.cells[column]];
  const [x, y] = [numberOf(a), numberOf(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return a.textContent.localeCompare(b.textContent);
  return x - y;
}

// Numbers first fall, words first rise; what has no number stays below.
function sort(table, heading) {
  const column = heading.cellIndex;
  const usual = heading.matches(".number") ? "descending" : "ascending";
  const other = usual === "ascending" ? "descending" : "ascending";
  const way = heading.getAttribute("aria-sort") === usual ? other : usual;
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", way);
  const [body] = table.tBodies;
  const isEmpty = (row) => heading.matches(".number") && Number.isNaN(numberOf(row.cells[column]));
  const rows = [...body.rows].sort((one, two) => {
    if (isEmpty(one) !== isEmpty(two)) return isEmpty(one) ? 1 : -1;
    return way === "ascending" ? compare(one, two, column) : compare(two, one, column);
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  if (table.tBodies[0].rows.length < 2) continue;
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(table, heading));
  }
}
