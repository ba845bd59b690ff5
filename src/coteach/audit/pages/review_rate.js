// How many labels are wrong, from what is decided so far. Statistics alone: nothing here touches the page.
"use strict";

const RECENT = 20; // decisions that show where the list has got to, and suspects to look ahead
const WORTH_A_LOOK = 0.1; // chance of being wrong, as in `coteach audit --calibrate`
const BINS = 50; // of the list, in which chances are taken for equal
const INSIDE = 0.9; // of the probability is in an interval
const CAUTION = 2; // neighbours in the list are alike: so many decisions count as one
const FLOORS = [0.005, 0.03, 0.1, 0.25, 0.5];
const CEILINGS = [0.995, 0.97, 0.9, 0.75, 0.5, 0.25, 0.1];
const HEIGHTS = FLOORS.flatMap((floor) => CEILINGS.filter((ceiling) => ceiling >= floor).map((ceiling) => [floor, ceiling]));
const WIDTHS = [0.03, 0.1, 0.25, 0.5]; // of the fall, as a share of the list

/** "47 of 50 decided were wrong; of the last 20, 6", as numbers. */
function runningPrecision(decisions) {
  const wrong = decisions.of.reduce((n, decision) => n + isWrong(decision), 0);
  const latest = decisions.latest(RECENT);
  return { decided: decisions.count, wrong, last: latest.length, lastWrong: latest.filter((s) => isWrong(decisions.of[s])).length };
}

/**
 * How the chance of being wrong may fall along the list: from a ceiling to a floor, somewhere, fast or slowly.
 *
 * All are as probable beforehand. What is decided makes some of them likelier, and these tell of the rest of the list.
 */
class FallingChances {
  constructor(n) {
    this.bins = Math.min(n, BINS);
    this.n = n;
    const chances = [];
    for (const [floor, ceiling] of HEIGHTS)
      for (let middle = -0.25; middle < 1; middle += 0.1)
        for (const width of WIDTHS)
          for (let b = 0; b < this.bins; b += 1) {
            const place = (b + 0.5) / this.bins;
            chances.push(floor + (ceiling - floor) / (1 + Math.exp((place - middle) / width)));
          }
    this.chance = Float64Array.from(chances);
    this.ifWrong = this.chance.map(Math.log);
    this.ifRight = this.chance.map((p) => Math.log(1 - p));
  }

  binOf(suspect) {
    return Math.floor((suspect * this.bins) / this.n);
  }

  /** The probability of each way to fall, after what is decided. */
  weights(of) {
    const wrong = new Float64Array(this.bins);
    const right = new Float64Array(this.bins);
    of.forEach((decision, s) => {
      if (isDecided(decision)) (decision === KEEP ? right : wrong)[this.binOf(s)] += 1 / CAUTION;
    });
    const logs = new Float64Array(this.chance.length / this.bins);
    this.chance.forEach((_, k) => {
      const b = k % this.bins;
      logs[(k - b) / this.bins] += wrong[b] * this.ifWrong[k] + right[b] * this.ifRight[k];
    });
    const best = Math.max(...logs);
    const weights = logs.map((log) => Math.exp(log - best));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map((weight) => weight / sum);
  }

  /** Expected wrong labels among these suspects, with an interval. */
  wrongAmong(suspects, weights) {
    const counts = new Float64Array(this.bins);
    for (const s of suspects) counts[this.binOf(s)] += 1;
    const points = []; // [number wrong, probability]: of each way its mean, and what lies beside it by chance
    let mean = 0;
    weights.forEach((weight, way) => {
      if (weight < 1e-5) return;
      let expected = 0;
      let variance = 0;
      for (let b = 0; b < this.bins; b += 1) {
        const p = this.chance[way * this.bins + b];
        expected += counts[b] * p;
        variance += CAUTION * counts[b] * p * (1 - p);
      }
      mean += weight * expected;
      const aside = Math.sqrt(3 * variance);
      points.push([expected - aside, weight / 6], [expected, (2 * weight) / 3], [expected + aside, weight / 6]);
    });
    points.sort((a, b) => a[0] - b[0]);
    const quantile = (share) => {
      let sum = 0;
      const point = points.find(([, weight]) => (sum += weight) >= share);
      return Math.min(suspects.length, Math.max(0, Math.round((point || points[points.length - 1])[0])));
    };
    return { mean, low: quantile((1 - INSIDE) / 2), high: quantile((1 + INSIDE) / 2) };
  }
}

/** Of suspects in the order of their doubt: wrong ones in all with an interval, and of the next to look at. */
function estimateOfSuspects(chances, of, n) {
  const open = [];
  let found = 0;
  for (let s = 0; s < n; s += 1) {
    if (!isDecided(of[s])) open.push(s);
    else found += isWrong(of[s]);
  }
  if (!open.length) return { wrong: found, low: found, high: found, open: 0, next: 0, nextWrong: 0, openWrong: 0 };
  const weights = chances.weights(of);
  const all = chances.wrongAmong(open, weights);
  const next = open.slice(0, RECENT);
  return {
    wrong: found + all.mean, low: found + all.low, high: found + all.high,
    open: open.length, openWrong: all.mean, next: next.length, nextWrong: chances.wrongAmong(next, weights).mean,
  };
}

/** Of a random sample in parts: the share of wrong labels in all, with an interval; null while a part is untouched. */
function estimateOfSample(audit, of) {
  const parts = audit.part_samples.map((samples) => ({ samples, seen: 0, wrong: 0 }));
  audit.part.forEach((part, s) => {
    parts[part].seen += isDecided(of[s]);
    parts[part].wrong += isWrong(of[s]);
  });
  if (parts.some(({ seen }) => !seen)) return null;
  let share = 0;
  let variance = 0;
  for (const { samples, seen, wrong } of parts) {
    const weight = samples / audit.samples;
    const p = (wrong + 0.5) / (seen + 1); // never quite 0 or 1 by so few
    share += (weight * wrong) / seen;
    variance += (weight * weight * p * (1 - p) * (1 - seen / samples)) / Math.max(1, seen - 1);
  }
  return { share, ...wilson(share, variance) };
}

/** Wilson's interval of a share that is known as exactly as this variance says. */
function wilson(share, variance) {
  if (variance < 1e-12) return { low: share, high: share };
  const z2 = 1.645 ** 2;
  const p = Math.min(Math.max(share, 0.005), 0.995);
  const n = (p * (1 - p)) / variance;
  const middle = (share + z2 / (2 * n)) / (1 + z2 / n);
  const half = Math.sqrt((z2 * share * (1 - share)) / n + (z2 * z2) / (4 * n * n)) / (1 + z2 / n);
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}
