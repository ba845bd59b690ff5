// What the review page knows: the suspects, what is decided, which are shown. Nothing here touches the page.
"use strict";

const KEEP = "keep";
const DROP = "drop"; // any other decision is the number of a class
const OLDEST = 50000; // steps that can be undone, so that the browser's storage cannot overflow

/** Decisions as a log: the state is its replay, and undo takes the last step away. */
class Decisions {
  constructor(audit, storage) {
    this.audit = audit;
    this.storage = storage;
    this.key = `coteach-review:${audit.fingerprint}`;
    this.kept = storage !== null; // whether the browser keeps what is decided
    this.log = [];
    this.load();
  }

  load() {
    let text = null;
    try {
      text = this.storage && this.storage.getItem(this.key);
    } catch {
      this.kept = false;
    }
    this.log = this.readable(text);
    this.of = new Array(this.audit.id.length);
    for (const [suspect, decision] of this.log) this.of[suspect] = decision;
    this.count = this.of.reduce((n) => n + 1, 0); // counts what is there: an array's holes are passed over
  }

  /** Steps of an earlier visit; whatever is no step of ours is left out. */
  readable(text) {
    let steps;
    try {
      steps = JSON.parse(text);
    } catch {
      steps = null;
    }
    return Array.isArray(steps) ? steps.filter((step) => this.isStep(step)) : [];
  }

  isStep(step) {
    if (!Array.isArray(step) || step.length !== 2) return false;
    const [suspect, decision] = step;
    const isClass = Number.isInteger(decision) && decision >= 0 && decision < this.audit.classes.length;
    const isSuspect = Number.isInteger(suspect) && suspect >= 0 && suspect < this.audit.id.length;
    return isSuspect && (isClass || decision === KEEP || decision === DROP);
  }

  decide(suspect, decision) {
    const same = decision === this.audit.given[suspect] ? KEEP : decision;
    if (this.of[suspect] === undefined) this.count += 1;
    this.of[suspect] = same;
    this.log.push([suspect, same]);
    if (this.log.length > OLDEST) this.log = this.condensed();
    this.save();
  }

  /** Take the last decision back; returns its suspect, or -1 if there is none. */
  undo() {
    if (!this.log.length) return -1;
    const [suspect] = this.log.pop();
    const before = this.log.findLast((step) => step[0] === suspect);
    if (before) {
      this.of[suspect] = before[1];
    } else {
      delete this.of[suspect];
      this.count -= 1;
    }
    this.save();
    return suspect;
  }

  /** The log with the last step of each suspect alone. */
  condensed() {
    const last = new Map();
    this.log.forEach((step, place) => last.set(step[0], place));
    return this.log.filter((step, place) => last.get(step[0]) === place);
  }

  save() {
    if (!this.storage) return;
    try {
      this.storage.setItem(this.key, JSON.stringify(this.log));
      this.kept = true;
    } catch {
      this.kept = false;
    }
  }

  /** Of the exported file: with the number of decisions, so that a later one is not taken for an earlier. */
  get file() {
    return `decisions-${this.count}.csv`;
  }

  /** As `coteach audit --apply` reads it. Every cell is quoted: labels may hold commas, quotes and line ends. */
  csv() {
    const { id, given, classes, fingerprint } = this.audit;
    const rows = [["id", "given", "decision", "label", "audit"]];
    this.of.forEach((decision, s) => {
      const word = typeof decision === "number" ? "relabel" : decision;
      const label = decision === DROP ? "" : classes[decision === KEEP ? given[s] : decision];
      rows.push([id[s], classes[given[s]], word, label, fingerprint]);
    });
    return rows.map((row) => row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(",") + "\n").join("");
  }
}

/** Numbers of the suspects that a filter lets through, the worst first. */
function matching(audit, decisions, { label, pair, decision, from, to }) {
  const found = [];
  for (let s = 0; s < audit.id.length; s += 1) {
    const given = audit.given[s];
    const suggested = audit.suggested[s];
    if (label !== null && given !== label && suggested !== label) continue;
    if (pair !== null && (given !== pair[0] || suggested !== pair[1])) continue;
    if (audit.quality[s] < from || audit.quality[s] > to) continue;
    if (decision === "open" && decisions.of[s] !== undefined) continue;
    if (decision === "done" && decisions.of[s] === undefined) continue;
    found.push(s);
  }
  return found;
}

/** Pairs of given and suggested class with their number of suspects, the commonest first. */
function pairsOf(audit) {
  const counts = new Map();
  audit.given.forEach((given, s) => {
    const key = `${given},${audit.suggested[s]}`;
    counts.set(key, (counts.get(key) || 0) + 1);
  });
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** How many suspects have each class as given or suggested. */
function countsOf(audit) {
  const counts = new Array(audit.classes.length).fill(0);
  audit.given.forEach((given, s) => {
    counts[given] += 1;
    if (audit.suggested[s] !== given) counts[audit.suggested[s]] += 1;
  });
  return counts;
}

/** The place in a sorted list of the first number that is not below `least`. */
function placeOf(sorted, least) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Text in which characters that cannot be seen, or that turn the line round, are written out. */
function visible(text, allowed = "") {
  const written = text.replace(INVISIBLE, (c) =>
    allowed.includes(c) ? c : `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
  return written.trim() === "" && !allowed ? "⟨blank⟩" : written;
}
