// Decisions as a CSV file: written for `coteach audit --apply`, read again from another reviewer.
"use strict";

const COLUMNS = ["id", "given", "decision", "label", "audit", "note"];
const LARGEST_FILE = 50e6; // bytes

/** Of the exported file: with the number of decisions, so that a later one is not taken for an earlier. */
const fileName = (decisions) => `decisions-${decisions.count}.csv`;

/** Every cell is quoted: labels and notes may hold commas, quotes and line ends. */
function csvOf(audit, decisions) {
  const rows = [COLUMNS];
  for (let s = 0; s < audit.id.length; s += 1) {
    const decision = decisions.of[s];
    const note = decisions.notes.get(s) || "";
    if (decision === undefined && !note) continue;
    const word = typeof decision === "number" ? "relabel" : decision || "";
    const chosen = typeof decision === "number" ? decision : decision === KEEP ? audit.given[s] : -1;
    rows.push([audit.id[s], audit.classes[audit.given[s]], word, chosen < 0 ? "" : audit.classes[chosen], audit.fingerprint, note]);
  }
  return rows.map((row) => row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(",") + "\n").join("");
}

/** Rows of cells, whatever of , ; and tab is between them. */
function readCsv(text) {
  const body = text.replace(/^\ufeff/, "");
  const head = body.split(/[\r\n]/, 1)[0];
  const between = [",", ";", "\t"].reduce((a, b) => (head.split(b).length > head.split(a).length ? b : a));
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|((?:[^${between}"\\r\\n][^${between}\\r\\n]*)?))(${between}|\\r\\n|\\r|\\n|$)`, "y");
  const rows = [];
  let row = [];
  while (cell.lastIndex < body.length) {
    const found = cell.exec(body);
    if (!found) throw new Error("It is no CSV file");
    row.push(found[1] === undefined ? found[2] : found[1].replaceAll('""', '"'));
    if (found[3] === between && cell.lastIndex < body.length) continue;
    rows.push(row);
    row = [];
  }
  return rows.filter((cells) => cells.length > 1);
}

/** What another page about the same audit decided: Maps of decisions and notes; an Error says what is wrong. */
function decisionsIn(text, audit) {
  const [head = [], ...rows] = readCsv(text);
  const place = Object.fromEntries(COLUMNS.map((name) => [name, head.indexOf(name)]));
  const missing = COLUMNS.find((name) => name !== "note" && place[name] < 0);
  if (missing) throw new Error(`It has no column ${missing}`);
  const suspectOf = new Map(audit.id.map((id, s) => [id, s]));
  const classOf = new Map(audit.classes.map((name, c) => [name, c]));
  const found = { decisions: new Map(), notes: new Map() };
  for (const cells of rows) {
    const row = Object.fromEntries(COLUMNS.map((name) => [name, cells[place[name]] || ""]));
    if (row.audit !== audit.fingerprint) throw new Error("It belongs to another audit");
    const s = suspectOf.get(row.id);
    if (s === undefined || row.given !== audit.classes[audit.given[s]]) throw new Error(`It has an id that is not on this page: ${visible(row.id)}`);
    const decision = row.decision === "relabel" ? classOf.get(row.label) : row.decision;
    const known = typeof decision === "number" || ["", KEEP, DROP, UNSURE].includes(decision);
    if (!known) throw new Error(`It has an unknown decision or label for ${visible(row.id)}`);
    if (decision !== "") found.decisions.set(s, decision === audit.given[s] ? KEEP : decision);
    if (row.note) found.notes.set(s, row.note.slice(0, LONGEST_NOTE));
  }
  return found;
}

/** One step that takes over what is new, and keeps both opinions where they differ. */
function merged(found, decisions, from) {
  const step = [];
  const counts = { taken: 0, same: 0, differ: 0, notes: 0 };
  for (const [s, theirs] of found.decisions) {
    const ours = decisions.of[s];
    if (ours === theirs) {
      counts.same += isDecided(theirs);
    } else if (!isDecided(ours)) {
      step.push([s, theirs]);
      counts.taken += isDecided(theirs);
    } else if (isDecided(theirs)) {
      step.push([s, OTHER, theirs, from]);
      counts.differ += 1;
    }
  }
  for (const [s, note] of found.notes) {
    const ours = decisions.notes.get(s) || "";
    if (ours.includes(note)) continue;
    step.push([s, NOTE, ours ? `${ours} / ${note}`.slice(0, LONGEST_NOTE) : note]);
    counts.notes += 1;
  }
  return { step, counts };
}
