// The overview: how many labels are wrong, and which classes are taken for which.
"use strict";

const MOST_MAPPED = 20; // classes on the map
const SHADES = 5;

/** A line with a band for the interval, and a mark for the estimate. */
function rateRow(name, words, { rate, low, high }, most) {
  const row = make("div", "rate");
  const track = make("div", "rate-track");
  track.setAttribute("aria-hidden", "true");
  const band = make("div", "rate-band");
  band.style.left = `${(100 * low) / most}%`;
  band.style.width = `${(100 * (high - low)) / most}%`;
  const mark = make("div", "rate-mark");
  mark.style.left = `${(100 * rate) / most}%`;
  track.append(band, mark);
  row.append(make("dt", "", name), make("dd", "", words), track);
  return row;
}

/** With as many digits as the larger one needs. */
function between(low, high) {
  const digits = high < 0.0995 ? 1 : 0;
  return `${(100 * low).toFixed(digits)} to ${(100 * high).toFixed(digits)} %`;
}

function drawRates(page) {
  const { audit } = page;
  const { rate, interval } = audit.noise;
  const [low, high] = interval || [rate, rate];
  const rows = [{ name: interval ? "The audit's estimate, from the data" : "As given to the audit", rate, low, high }];
  const ours = page.estimate();
  if (ours) rows.push({ name: page.toCheck ? "From your decisions" : "From your decisions: wrong ones among the suspects", ...ours });
  const most = Math.min(1, Math.max(0.05, 1.25 * Math.max(...rows.map((row) => row.high))));
  $("rates").replaceChildren(...rows.map((row) => {
    const spread = row.high > row.low ? ` (${between(row.low, row.high)})` : "";
    return rateRow(row.name, `${shareOf(row.rate)} of ${amount(audit.samples)} labels${spread}`, row, most);
  }));
  $("rates-note").textContent = ours ? page.aboutEstimate() : `After ${RECENT} decisions an estimate from them stands here.`;
}

function drawCounts(page) {
  const { decisions, audit } = page;
  const counts = { kept: 0, relabelled: 0, dropped: 0 };
  for (const decision of Object.values(decisions.of)) {
    if (decision === KEEP) counts.kept += 1;
    else if (decision === DROP) counts.dropped += 1;
    else if (isDecided(decision)) counts.relabelled += 1;
  }
  const open = audit.id.length - decisions.count - decisions.unsure;
  const all = { ...counts, "not sure": decisions.unsure, "not decided": open };
  $("counts").replaceChildren(...Object.entries(all).map(([name, n]) => {
    const one = make("div");
    one.append(make("dt", "", name), make("dd", "", amount(n)));
    return one;
  }));
}

/** The classes of most suspects, in their own order, and the suspects of each pair. */
function mapOf(audit, decisions) {
  const totals = new Map();
  const cells = new Map();
  audit.given.forEach((given, s) => {
    const suggested = audit.suggested[s];
    for (const c of [given, suggested]) totals.set(c, (totals.get(c) || 0) + 1);
    const key = `${given},${suggested}`;
    const cell = cells.get(key) || { n: 0, decided: 0, wrong: 0 };
    cell.n += 1;
    cell.decided += isDecided(decisions.of[s]);
    cell.wrong += isWrong(decisions.of[s]);
    cells.set(key, cell);
  });
  const classes = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, MOST_MAPPED).sort((a, b) => a - b);
  return { classes, cells, left: totals.size - classes.length };
}

function mapCell(page, given, suggested, cell, most) {
  const td = make("td");
  if (!cell) return td;
  const button = make("button", `heat-${Math.max(1, Math.ceil((SHADES * cell.n) / most))}`, amount(cell.n));
  button.type = "button";
  const seen = cell.decided ? `, ${amount(cell.decided)} decided, ${amount(cell.wrong)} of them wrong` : "";
  const words = `${page.label(given)} → ${page.label(suggested)}: ${many(cell.n, page.what)}${seen}`;
  button.setAttribute("aria-label", words);
  button.title = words;
  button.addEventListener("click", () => page.showPair(given, suggested));
  td.append(button);
  return td;
}

function drawMap(page) {
  const { classes, cells, left } = mapOf(page.audit, page.decisions);
  const most = Math.max(1, ...[...cells.values()].map(({ n }) => n));
  const heads = classes.map((c) => {
    const head = make("th");
    head.scope = "col";
    head.append(make("span", "turned", page.label(c)));
    head.title = page.label(c);
    return head;
  });
  const lines = classes.map((given) => {
    const line = make("tr");
    const head = make("th");
    head.scope = "row";
    head.append(own(page.label(given)));
    line.append(head, ...classes.map((suggested) => mapCell(page, given, suggested, cells.get(`${given},${suggested}`), most)));
    return line;
  });
  const top = make("tr");
  top.append(make("td"), ...heads);
  $("map").tHead.replaceChildren(top);
  $("map").tBodies[0].replaceChildren(...lines);
  $("map-note").textContent = left ? `${many(left, "more class", "more classes")} with few ${page.what}s: the filter has them.` : "";
}

function drawOverview(page) {
  drawRates(page);
  drawCounts(page);
  drawMap(page);
}
