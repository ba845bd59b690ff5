// What the review page knows: the suspects, what is decided, which are shown. Nothing here touches the page.
"use strict";

const KEEP = "keep";
const DROP = "drop";
const UNSURE = "unsure"; // looked at, and left open; any other decision is the number of a class
const NOTE = "note"; // a change of the note, not of the decision
const OTHER = "other"; // what another reviewer decided, where that differs
const OLDEST = 50000; // changes that can be undone, so that the browser's storage cannot overflow
const LONGEST_NOTE = 1000;

const isDecided = (decision) => decision !== undefined && decision !== UNSURE;
const isWrong = (decision) => isDecided(decision) && decision !== KEEP;

/**
 * Decisions as a log: the state is its replay, and undo takes the last step away.
 *
 * A step is a list of changes: [suspect, decision], [suspect, NOTE, text] or [suspect, OTHER, decision, from whom].
 */
class Decisions {
  constructor(audit, storage) {
    this.audit = audit;
    this.storage = storage;
    this.key = `coteach-review:${audit.fingerprint}`;
    this.kept = storage !== null; // whether the browser keeps what is decided
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
    this.replay();
  }

  replay() {
    this.of = new Array(this.audit.id.length);
    this.notes = new Map();
    this.others = new Map(); // of suspects: what another reviewer decided, until it is settled
    this.count = 0; // decided
    this.unsure = 0;
    this.changes = 0;
    for (const step of this.log) this.follow(step);
  }

  follow(step) {
    this.changes += step.length;
    for (const [suspect, what, value, from] of step) {
      if (what === NOTE) {
        if (value) this.notes.set(suspect, value);
        else this.notes.delete(suspect);
      } else if (what === OTHER) {
        this.others.set(suspect, { decision: value, from });
      } else {
        this.count += isDecided(what) - isDecided(this.of[suspect]);
        this.unsure += (what === UNSURE) - (this.of[suspect] === UNSURE);
        this.of[suspect] = what;
        this.others.delete(suspect);
      }
    }
  }

  /** Steps of an earlier visit; whatever is no step of ours is left out. */
  readable(text) {
    let steps;
    try {
      steps = JSON.parse(text);
    } catch {
      steps = null;
    }
    if (!Array.isArray(steps)) return [];
    // Earlier pages had one change a step.
    const lists = steps.filter(Array.isArray).map((step) => (Array.isArray(step[0]) ? step : [step]));
    return lists.filter((step) => step.length && step.every((change) => this.isChange(change)));
  }

  isChange(change) {
    if (!Array.isArray(change)) return false;
    const [suspect, what, value, from] = change;
    if (!(Number.isInteger(suspect) && suspect >= 0 && suspect < this.audit.id.length)) return false;
    if (what === NOTE) return change.length === 3 && typeof value === "string";
    if (what === OTHER) return change.length === 4 && this.isDecision(value) && typeof from === "string";
    return change.length === 2 && this.isDecision(what);
  }

  isDecision(decision) {
    const isClass = Number.isInteger(decision) && decision >= 0 && decision < this.audit.classes.length;
    return isClass || decision === KEEP || decision === DROP || decision === UNSURE;
  }

  /** The given label chosen again is kept. */
  plain(suspect, decision) {
    return decision === this.audit.given[suspect] ? KEEP : decision;
  }

  /** Changes that are undone together. */
  take(step) {
    if (!step.length) return;
    this.log.push(step);
    this.follow(step);
    if (this.changes > OLDEST) this.condense();
    this.save();
  }

  decide(suspects, decisionOf) {
    this.take(suspects.map((s) => [s, this.plain(s, decisionOf(s))]));
  }

  note(suspect, text) {
    const short = text.trim().slice(0, LONGEST_NOTE);
    if (short !== (this.notes.get(suspect) || "")) this.take([[suspect, NOTE, short]]);
  }

  /** Take the last step back; returns it, or null if there is none. */
  undo() {
    const step = this.log.pop() || null;
    if (step) {
      this.replay();
      this.save();
    }
    return step;
  }

  /** Forget what was changed again later. */
  condense() {
    const last = new Map();
    this.log.flat().forEach((change) => {
      const key = `${change[0]} ${change[1] === NOTE ? NOTE : change[1] === OTHER ? OTHER : ""}`;
      last.delete(key); // so that the latest comes last
      last.set(key, change);
    });
    this.log = [...last.values()].map((change) => [change]);
    this.replay();
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

  /** The suspects that were decided last, the latest first. */
  latest(most) {
    const found = new Set();
    for (let place = this.log.length - 1; place >= 0 && found.size < most; place -= 1) {
      const step = this.log[place];
      for (let k = step.length - 1; k >= 0 && found.size < most; k -= 1) {
        const [suspect, what] = step[k];
        if (what !== NOTE && what !== OTHER && isDecided(this.of[suspect])) found.add(suspect);
      }
    }
    return [...found];
  }
}

const PASSES = { // which decisions a filter lets through
  any: () => true,
  open: (decisions, s) => decisions.of[s] === undefined,
  done: (decisions, s) => isDecided(decisions.of[s]),
  unsure: (decisions, s) => decisions.of[s] === UNSURE,
  note: (decisions, s) => decisions.notes.has(s),
  differ: (decisions, s) => decisions.others.has(s),
};

/** Numbers of the suspects that a filter lets through, the worst first. */
function matching(audit, decisions, { label, pair, decision, from, to }) {
  const found = [];
  const passes = PASSES[decision];
  for (let s = 0; s < audit.id.length; s += 1) {
    const given = audit.given[s];
    const suggested = audit.suggested[s];
    if (label !== null && given !== label && suggested !== label) continue;
    if (pair !== null && (given !== pair[0] || suggested !== pair[1])) continue;
    if (audit.quality[s] < from || audit.quality[s] > to) continue;
    if (passes(decisions, s)) found.push(s);
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
