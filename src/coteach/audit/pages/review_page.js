// The review page: the list, the suspect, the keys.
"use strict";

(() => {
  const audit = JSON.parse($("audit").textContent);
  const toCheck = audit.flag === "calibrate"; // a random sample of all qualities, not the worst labels
  const what = toCheck ? "sample" : "suspect";
  const decisions = new Decisions(audit, storageOrNull());
  const pictures = new Pictures(audit.pictures);
  const label = (c) => visible(audit.classes[c]);
  const ROW = 64; // pixels, as in the style
  const SPARE = 6; // rows drawn above and below what is seen
  const MOST_PRINTED = 1000;
  const VIEWS = ["one", "grid", "overview"];
  const VAGUE = 0.3; // of all labels: an interval as wide tells nobody anything

  let view = "one";
  let shown = []; // numbers of the suspects that the filter lets through
  let at = -1; // the suspect that is looked at
  let exported = null; // the step of the last export
  let noteTyped = false; // and not yet kept
  let chances = null; // how wrong labels may thin out along the list
  let estimated = {}; // after which step, and what

  /** What the grid and the overview need to know. */
  const page = {
    audit, decisions, label, toCheck, what,
    get shown() { return shown; },
    get at() { return at; },
    pictureOf: (s) => pictures.of(s),
    said: (s) => said(s), summary, goTo, announce, estimate: rateEstimate, aboutEstimate, showPair,
    look: () => showView("one"),
  };
  const grid = new Grid(page);

  function storageOrNull() {
    try {
      localStorage.setItem("coteach-review", "");
      localStorage.removeItem("coteach-review");
      return localStorage;
    } catch {
      return null;
    }
  }

  let read = null;

  /** Trusted samples: behind the script, read when first wanted. */
  function examples() {
    const element = $("examples-data");
    if (!read && element) read = JSON.parse(element.textContent);
    return read;
  }

  // ---- the list ----

  /** A decision in a word: its kind for the style, and what is written. */
  function worded(decision) {
    if (decision === undefined) return ["", ""];
    if (decision === KEEP) return ["keep", "✓ kept"];
    if (decision === DROP) return ["drop", "✕ dropped"];
    if (decision === UNSURE) return ["unsure", "? not sure"];
    return ["relabel", `→ ${label(decision)}`];
  }

  function said(s) {
    const [kind, words] = worded(decisions.of[s]);
    return [kind, decisions.others.has(s) ? `≠ ${words}` : words];
  }

  /** The beginning of a text or row in one line; nothing where there is none. */
  function summary(s, most) {
    const cells = () => audit.columns.map((column, k) => `${column} ${audit.cells[s][k]}`).join(" · ");
    const words = audit.text ? audit.text[s] : audit.cells ? cells() : "";
    return words && visible(words.slice(0, most).replace(/\s+/g, " "));
  }

  function rowOf(place) {
    const s = shown[place];
    const row = make("div", audit.pictures ? "row" : "row plain");
    row.id = `row-${s}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(s === at));
    row.setAttribute("aria-posinset", String(place + 1));
    row.setAttribute("aria-setsize", String(shown.length));
    row.dataset.suspect = s;
    if (audit.pictures) {
      const image = make("img");
      const uri = pictures.of(s);
      if (uri) showPicture(image, uri, "");
      row.append(image);
    }
    const middle = make("div");
    const name = make("div", "line small");
    name.append(own(visible(audit.id[s])));
    const words = audit.text ? summary(s, 120) : "";
    if (words) name.append(" · ", own(words));
    middle.append(pairLine("line pair", label(audit.given[s]), label(audit.suggested[s])), name);
    const [kind, verdict] = said(s);
    const side = make("div", "side");
    side.append(make("div", "small", qualityText(audit.quality[s])), make("div", `line verdict ${kind}`, verdict));
    row.append(middle, side);
    return row;
  }

  function drawRows() {
    const list = $("list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    const rows = [];
    for (let place = first; place < last; place += 1) rows.push(rowOf(place));
    $("space").style.height = `${shown.length * ROW}px`;
    $("rows").style.transform = `translateY(${first * ROW}px)`;
    $("rows").replaceChildren(...rows);
    if ($(`row-${at}`)) list.setAttribute("aria-activedescendant", `row-${at}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function bringIntoView() {
    if (view === "grid") {
      grid.bringIntoView();
      return;
    }
    const list = $("list");
    const top = placeOf(shown, at) * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  }

  // ---- the suspect ----

  function bar(kind, words, p) {
    const line = make("div", `bar ${kind}`);
    const track = make("div", "track");
    const fill = make("div", "fill");
    track.setAttribute("aria-hidden", "true");
    fill.style.width = `${100 * (p || 0)}%`;
    track.append(fill);
    line.append(make("span", "", words), track, make("span", "number", percent(p)));
    return line;
  }

  function drawOpinions() {
    const networks = audit.p_given.map((p_given, n) => {
      const box = make("div", "network");
      const name = audit.p_given.length > 1 ? `Network ${n + 1}` : audit.judge;
      box.append(make("h3", "", name), bar("given", "given", p_given[at]), bar("suggested", "suggested", audit.p_suggested[n][at]));
      return box;
    });
    $("networks").replaceChildren(...networks);
    $("reason").hidden = !audit.reason;
    if (audit.reason) $("reason").replaceChildren(own(visible(sentence(audit.reason[at]))));
    $("quality").textContent = qualityText(audit.quality[at]);
    const rank = audit.rank ? audit.rank[at] : at + 1;
    $("rank").textContent = `the ${rank === 1 ? "" : `${ordinal(rank)} `}lowest of ${amount(audit.samples)}`;
  }

  const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

  /** Buttons for the likeliest classes besides the given one; the first is the suggestion. */
  function drawLikely() {
    const classes = likelyClasses();
    $("likely").hidden = classes.length < 2;
    $("likely").replaceChildren(...classes.map((c, k) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-keyshortcuts", String(k + 1));
      button.setAttribute("aria-pressed", String(decisions.of[at] === c));
      button.append(make("kbd", "", String(k + 1)), " ", own(label(c)), " ", make("span", "muted", percent(audit.p_likely[at][k])));
      button.addEventListener("click", () => decide(c));
      return button;
    }));
  }

  const likelyClasses = () => (audit.likely ? audit.likely[at] : []);

  function drawSample() {
    const uri = pictures.of(at);
    $("picture").hidden = !uri;
    if (uri) showPicture($("picture").firstElementChild, uri, `Picture of ${visible(audit.id[at])}`, $("picture"));
    $("text").hidden = !audit.text;
    if (audit.text) $("text").replaceChildren(own(visible(audit.text[at], "\n\t")));
    drawExamples();
    drawCells();
  }

  /** Three trusted samples of the given class and three of the suggested one. */
  function drawExamples() {
    const all = examples();
    const found = all && { given: all.given[at], suggested: all.suggested[at] };
    $("examples").hidden = !found || !(found.given.length + found.suggested.length) || Boolean(audit.cells && !all.picture && !all.text);
    if ($("examples").hidden) return;
    for (const [kind, numbers] of Object.entries(found)) {
      const box = $(`examples-${kind}`);
      const name = label(audit[kind][at]);
      const title = make("p", "muted small");
      title.append(numbers.length ? "Trusted as " : "Nothing trusted as ", own(name));
      box.replaceChildren(title, ...numbers.map((e) => exampleOf(all, e, name)));
    }
  }

  function exampleOf(all, e, name) {
    const id = visible(all.id[e]);
    if (all.picture && all.picture[e]) {
      const image = make("img");
      image.title = id;
      showPicture(image, all.picture[e], `Trusted as ${name}: ${id}`);
      return image;
    }
    const words = make(all.text ? "blockquote" : "p", "small");
    words.title = id;
    words.append(own(all.text ? visible(all.text[e], "\n\t") : id));
    return words;
  }

  /** The row, and beside it those of trusted samples. */
  function drawCells() {
    $("cells").hidden = !audit.cells;
    if (!audit.cells) return;
    const all = examples();
    const beside = all && all.cells ? [["given", all.given[at]], ["suggested", all.suggested[at]]] : [];
    const numbers = beside.flatMap(([, some]) => some);
    const head = make("tr");
    head.append(make("td"), headOf("This one"));
    for (const [kind, some] of beside) {
      if (!some.length) continue;
      const group = headOf(`Trusted as ${label(audit[kind][at])}`, kind);
      group.colSpan = some.length;
      head.append(group);
    }
    $("cells").querySelector("thead").replaceChildren(...(numbers.length ? [head] : []));
    const lines = audit.columns.map((column, k) => {
      const line = make("tr");
      const name = make("th", "", visible(column));
      name.scope = "row";
      line.append(name, cellOf(audit.cells[at][k]), ...numbers.map((e) => cellOf(all.cells[e][k], "muted")));
      return line;
    });
    $("cells").querySelector("tbody").replaceChildren(...lines);
  }

  function headOf(text, kind = "") {
    const head = make("th", kind, text);
    head.scope = "col";
    return head;
  }

  function cellOf(text, kind = "") {
    const cell = make("td", kind);
    if (text === "") cell.append(make("span", "muted", "–"));
    else cell.append(own(visible(text, "\n\t")));
    return cell;
  }

  function drawSuspect() {
    const none = at < 0;
    $("suspect").hidden = none || view !== "one";
    $("nothing").hidden = !none;
    if (none) {
      $("nothing").textContent = audit.id.length ? `No ${what} passes the filter.` : "There are no suspects.";
      return;
    }
    if (view !== "one") return;
    const place = placeOf(shown, at);
    $("position").textContent = `${amount(place + 1)} of ${amount(shown.length)}`;
    $("previous").disabled = place === 0;
    $("next").disabled = place === shown.length - 1;
    $("name").replaceChildren(own(visible(audit.id[at])));
    $("given").replaceChildren(own(label(audit.given[at])));
    $("suggested").replaceChildren(own(label(audit.suggested[at])));
    drawOpinions();
    drawLikely();
    drawSample();
    drawVerdict();
  }

  function drawVerdict() {
    const [kind, words] = worded(decisions.of[at]);
    $("decision").className = `verdict ${kind}`;
    $("decision").textContent = kind === "unsure" ? "Not sure" : words ? `Decided: ${words}` : "";
    if (!noteTyped) $("note").value = decisions.notes.get(at) || "";
    const other = decisions.others.get(at);
    $("differs").hidden = !other;
    if (!other) return;
    const theirs = worded(other.decision);
    $("differs-text").replaceChildren(own(visible(other.from)), ` says ${theirs[1]}, you say ${words}. Decide again to settle it.`);
  }

  /** The four decisions and "not sure": about the suspect, or about all that are chosen in the grid. */
  function drawActions() {
    const chosen = view === "grid" ? grid.chosen.size : 0;
    const none = at < 0 || view === "overview";
    for (const name of ["keep", "accept", "choose", "drop", "unsure"]) {
      $(name).disabled = none;
      $(name).setAttribute("aria-pressed", "false");
    }
    if (none) return;
    const [given, suggested] = chosen ? [`${amount(chosen)} given`, `${amount(chosen)} suggested`] : [label(audit.given[at]), label(audit.suggested[at])];
    $("keep").querySelector("bdi").textContent = given;
    $("accept").querySelector("bdi").textContent = suggested;
    $("accept").disabled = !chosen && audit.given[at] === audit.suggested[at];
    if (chosen) return;
    const decision = decisions.of[at];
    const pressed = { keep: decision === KEEP, accept: decision === audit.suggested[at], drop: decision === DROP, unsure: decision === UNSURE };
    for (const [name, is] of Object.entries(pressed)) $(name).setAttribute("aria-pressed", String(is));
  }

  // ---- how far it has got ----

  function drawProgress() {
    const n = audit.id.length;
    const done = decisions.count + decisions.unsure;
    const unsure = decisions.unsure ? `, ${amount(decisions.unsure)} not sure` : "";
    const asExported = exported !== null && exported === decisions.log.at(-1);
    $("progress-text").textContent = `${amount(decisions.count)} of ${amount(n)} decided${unsure}`;
    $("progress").max = Math.max(1, n);
    $("progress").value = decisions.count;
    $("undo").disabled = !decisions.log.length;
    $("export").disabled = !done && !decisions.notes.size;
    $("finished").hidden = !n || done < n || asExported;
    $("finished").textContent = allDone();
    $("warning").hidden = decisions.kept;
    $("warning").textContent = decisions.kept
      ? ""
      : "This browser keeps nothing for this page: your decisions are lost when it is closed. Export them before.";
    $("running").textContent = runningText();
    document.querySelector('#filter-decision [value="differ"]').hidden = !decisions.others.size;
  }

  const allDone = () => (decisions.unsure ? `All looked at, ${amount(decisions.unsure)} not sure: export them now.` : "All decided: export them now.");

  function runningText() {
    const { decided, wrong, last, lastWrong } = runningPrecision(decisions);
    if (!decided) return touched ? "Keep the given label, or accept the suggestion." : "K keeps the given label, A accepts the suggestion, ? shows all keys.";
    const recent = decided > last ? `; of the last ${last}, ${lastWrong}` : "";
    const sofar = `${amount(wrong)} of ${amount(decided)} decided ${wrong === 1 ? "was" : "were"} wrong${recent}.`;
    return [sofar, hint(decided)].filter(Boolean).join(" ");
  }

  /** Whether it pays to go on, and how many labels are probably wrong. */
  function hint(decided) {
    const estimate = rateEstimate();
    if (!estimate) return audit.id.length > RECENT && decided < RECENT ? `After ${RECENT} decisions there is an estimate.` : "";
    const rate = `Probably ${between(estimate.low, estimate.high)} of all labels are wrong`;
    if (toCheck) return estimate.high - estimate.low > VAGUE ? "These are too few to tell how many of all labels are wrong." : `${rate}.`;
    if (!estimate.open) return "";
    const ahead = `about ${amount(Math.round(estimate.nextWrong))} of the next ${amount(estimate.next)} are wrong`;
    const stop = estimate.nextWrong < WORTH_A_LOOK * estimate.next;
    return `${stop ? "You may stop here" : "It pays to go on"}: ${ahead}. ${rate}, not counting those outside this list.`;
  }

  /** The share of all labels that is probably wrong; null before there is anything to tell it by. */
  function rateEstimate() {
    const step = decisions.log.at(-1);
    if (estimated.step !== step || !step) estimated = { step, value: newEstimate() };
    return estimated.value;
  }

  function newEstimate() {
    if (toCheck) {
      const found = estimateOfSample(audit, decisions.of);
      return found && { rate: found.share, low: found.low, high: found.high };
    }
    if (!decisions.count || decisions.count < Math.min(RECENT, audit.id.length)) return null;
    chances ||= new FallingChances(audit.id.length);
    const found = estimateOfSuspects(chances, decisions.of, audit.id.length);
    const share = (n) => n / audit.samples;
    return { ...found, rate: share(found.wrong), low: share(found.low), high: share(found.high) };
  }

  function aboutEstimate() {
    if (toCheck) return "From a random sample of all labels; coteach audit --calibrate tells more exactly, and where to stop.";
    const estimate = rateEstimate();
    const n = (share) => amount(Math.round(share * audit.samples));
    const range = estimate.open ? ` (${n(estimate.low)} to ${n(estimate.high)})` : "";
    return `About ${n(estimate.rate)} of the ${amount(audit.id.length)} suspects are wrong${range}. Wrong labels that the list misses come on top: coteach audit --check finds out how many.`;
  }

  function draw() {
    drawProgress();
    drawActions();
    drawSuspect();
    if (view === "one") drawRows();
    if (view === "grid") grid.draw();
    if (view === "overview") drawOverview(page);
  }

  /** Where keys mean decisions. */
  function focusView() {
    $({ one: "list", grid: "grid", overview: "overview" }[view]).focus({ preventScroll: true });
  }

  function showView(name) {
    saveNote();
    view = name;
    document.body.dataset.view = name;
    for (const one of VIEWS) $(`view-${one}`).setAttribute("aria-pressed", String(one === name));
    $("overview").hidden = name !== "overview";
    $("work").hidden = name === "overview";
    $("list").hidden = name !== "one";
    $("grid-part").hidden = name !== "grid";
    if (name !== "grid") grid.chosen.clear();
    draw(); // gives list and grid their height, without which they cannot scroll
    if (at >= 0 && name !== "overview") {
      bringIntoView();
      draw();
    }
    focusView();
  }

  // ---- moving and deciding ----

  function announce(text) {
    $("announce").textContent = text;
  }

  function goTo(s) {
    saveNote();
    $("end").hidden = true;
    at = s;
    if (at >= 0) bringIntoView();
    draw();
    if (at < 0) return;
    if ($("suspect").scrollTop) $("suspect").scrollTop = 0;
    const chosen = view === "grid" && grid.chosen.has(at) ? ", chosen" : "";
    announce(
      `${placeOf(shown, at) + 1} of ${shown.length}: ${visible(audit.id[at])}, given ${label(audit.given[at])}, ` +
        `suggested ${label(audit.suggested[at])}${chosen}. ${said(at)[1]}`,
    );
  }

  function move(by) {
    if (at < 0 || view === "overview") return;
    const place = placeOf(shown, at) + by;
    goTo(shown[Math.min(shown.length - 1, Math.max(0, place))]);
    if (by === 1 && place >= shown.length) showEnd("This is the last one shown.");
  }

  /** In the grid about all that are chosen, else about the one that is looked at. */
  function decide(decision) {
    if (at < 0 || view === "overview") return;
    if (view === "grid" && grid.chosen.size) decideTogether(() => decision);
    else decideOne(decision);
  }

  function decideOne(decision) {
    saveNote();
    const s = at;
    decisions.decide([s], () => decision);
    const wasLast = s === shown[shown.length - 1];
    if (filter().decision !== "any") refilter(s + 1);
    else if (wasLast) draw();
    else move(1);
    const words = worded(decisions.of[s])[1];
    if (!$("finished").hidden) {
      bringIntoView(); // the list has become shorter
      announce(`${words}. ${allDone()}`);
    } else if (wasLast || !shown.length) {
      showEnd("That was the last one shown.");
      announce(`${words}. ${$("end-text").textContent}`);
    }
  }

  /** One step for all that are chosen, so that one undo takes it back. */
  function decideTogether(decisionOf) {
    const suspects = [...grid.chosen].sort((a, b) => a - b);
    decisions.decide(suspects, decisionOf);
    grid.chosen.clear();
    refilter(at);
    announce(`${many(suspects.length, "decision")} in one step; undo takes all of them back.`);
  }

  function accept() {
    if (at < 0 || view === "overview") return;
    if (view === "grid" && grid.chosen.size) decideTogether((s) => audit.suggested[s]);
    else if (audit.given[at] === audit.suggested[at]) announce("The suggestion is the given label: keep it with K.");
    else decideOne(audit.suggested[at]);
  }

  /** The class of a number key. */
  function takeLikely(k) {
    if (at < 0 || view !== "one") return;
    const c = likelyClasses()[k];
    if (c !== undefined) decide(c);
  }

  function takeTheirs() {
    const other = at >= 0 && decisions.others.get(at);
    if (other) decideOne(other.decision);
  }

  function undo() {
    saveNote();
    const step = decisions.undo();
    if (!step) return;
    exported = null; // other decisions than those may follow
    const s = step[0][0];
    if (filter().decision !== "any") refilter(s);
    if (shown[placeOf(shown, s)] === s) goTo(s);
    else draw();
    announce(step.length > 1 ? `Undone: ${amount(step.length)} changes.` : `Undone: ${visible(audit.id[s])}.`);
  }

  function saveNote() {
    if (noteTyped) decisions.note(at, $("note").value);
    noteTyped = false;
  }

  // ---- filters ----

  function bound(id, otherwise) {
    const value = $(id).valueAsNumber;
    return Number.isNaN(value) ? otherwise : value;
  }

  function filter() {
    const chosen = (id) => ($(id).value === "any" ? null : $(id).value);
    const pair = chosen("filter-pair");
    return {
      label: chosen("filter-class") === null ? null : Number(chosen("filter-class")),
      pair: pair === null ? null : pair.split(",").map(Number),
      decision: $("filter-decision").value,
      from: bound("filter-from", -Infinity),
      to: bound("filter-to", Infinity),
    };
  }

  function isFiltered() {
    const { label: one, pair, decision, from, to } = filter();
    return one !== null || pair !== null || decision !== "any" || from > -Infinity || to < Infinity;
  }

  /** Shows what passes; the suspect `wanted`, or the next that passes, is looked at. */
  function refilter(wanted = Math.max(at, 0)) {
    const before = at;
    $("end").hidden = true;
    shown = matching(audit, decisions, filter());
    grid.keepShown();
    at = shown.length ? shown[Math.min(placeOf(shown, wanted), shown.length - 1)] : -1;
    if (at !== before) $("suspect").scrollTop = 0;
    const all = shown.length === audit.id.length;
    const order = toCheck ? "in random order" : "the worst first";
    $("shown").textContent = all ? `${many(shown.length, what)}, ${order}` : `${many(shown.length, what)} of ${amount(audit.id.length)}, ${order}`;
    $("filter-state").textContent = isFiltered() ? "is on" : "";
    draw(); // gives the list its height, without which it cannot scroll
    if (at >= 0) bringIntoView();
    draw();
  }

  /** Says that what is shown has come to its end, and offers what is left. */
  function showEnd(words) {
    const open = shown.filter((s) => decisions.of[s] === undefined).length;
    const elsewhere = audit.id.length - decisions.count - decisions.unsure - open;
    const left = open ? `${many(open, "of them is", "of them are")} not decided yet.` : "All of them are decided.";
    const others = isFiltered() && elsewhere ? ` Outside the filter ${many(elsewhere, "is", "are")} still open.` : "";
    $("end-text").textContent = `${words} ${left}${others}`;
    $("end-open").hidden = !open;
    $("end-clear").hidden = !(isFiltered() && elsewhere);
    $("end").hidden = false;
    draw();
    if (at >= 0) bringIntoView();
  }

  function goToOpen() {
    const s = shown.find((one) => decisions.of[one] === undefined);
    if (s !== undefined) goTo(s);
    focusView();
  }

  function clearFilter() {
    $("filter-form").reset();
    refilter();
  }

  function clearAndGoToOpen() {
    clearFilter();
    goToOpen();
  }

  /** From the overview to the suspects of a pair. */
  function showPair(given, suggested) {
    $("filter-form").reset();
    $("filter-pair").value = `${given},${suggested}`;
    showView(audit.pictures ? "grid" : "one");
    refilter(0);
  }

  function option(value, text) {
    const element = make("option", "", text);
    element.value = value;
    return element;
  }

  function fillFilters() {
    const counts = countsOf(audit);
    const classes = audit.classes.map((_, c) => c).filter((c) => counts[c]);
    $("filter-class").append(option("any", "any"), ...classes.map((c) => option(c, `${label(c)} (${amount(counts[c])})`)));
    const pairs = pairsOf(audit).map(([key, n]) => {
      const [given, suggested] = key.split(",").map(Number);
      return option(key, `${label(given)} → ${label(suggested)} (${amount(n)})`);
    });
    $("filter-pair").append(option("any", "any"), ...pairs);
    $("choose-label").append(...audit.classes.map((_, c) => option(c, label(c))));
  }

  // ---- export, import, print, dialogues ----

  function exportDecisions() {
    saveNote();
    if (!decisions.log.length) return;
    const file = fileName(decisions);
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([csvOf(audit, decisions)], { type: "text/csv" }));
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    exported = decisions.log.at(-1);
    const command = `coteach audit --${audit.flag} ${file} --out ${audit.folder}`;
    $("exported-text").textContent = `${file} with ${many(decisions.count, "decision")} is in your downloads. Move it to your working folder, then:`;
    $("command").textContent = command;
    $("copy").textContent = "Copy";
    $("exported").hidden = false;
    draw();
    if (at >= 0) bringIntoView(); // the list has become shorter
    announce(`${$("exported-text").textContent} ${command}`);
  }

  /** Decisions of another reviewer, or of one's own from another browser. */
  async function importDecisions(file) {
    saveNote();
    $("imported-show").hidden = true;
    try {
      if (file.size > LARGEST_FILE) throw new Error("It is too large");
      const { step, counts } = merged(decisionsIn(await file.text(), audit), decisions, file.name);
      decisions.take(step);
      $("imported-text").textContent = `${visible(file.name)}: ${importText(counts)}`;
      $("imported-show").hidden = !counts.differ;
    } catch (error) {
      $("imported-text").textContent = `${visible(file.name)} was not taken. ${error.message}: choose a file that this page exported.`;
    }
    $("imported").hidden = false;
    refilter();
    announce($("imported-text").textContent);
  }

  function importText({ taken, same, differ, notes }) {
    const both = same + differ;
    const parts = [taken ? `${many(taken, "decision")} taken over` : "no new decisions"];
    if (both) parts.push(`of ${amount(both)} that both of you decided ${amount(same)} agree (${Math.round((100 * same) / both)} %)`);
    if (notes) parts.push(many(notes, "note"));
    return `${parts.join("; ")}.${differ ? ` ${many(differ, "disagreement")}: yours stay until you decide again.` : ""}`;
  }

  function showDisagreements() {
    $("filter-form").reset();
    $("filter-decision").value = "differ";
    close("imported");
    if (view === "overview") showView("one");
    refilter(0);
    $("suspect").scrollTop = 0; // what the other says is at the top
  }

  async function copyCommand() {
    try {
      await navigator.clipboard.writeText($("command").textContent);
      $("copy").textContent = "Copied";
    } catch { // a page from a file may not be allowed to
      getSelection().selectAllChildren($("command"));
      $("copy").textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl C";
    }
    announce($("copy").textContent);
  }

  function close(name) {
    $(name).hidden = true;
    draw();
    focusView();
  }

  function fillPrint() {
    const printed = shown.slice(0, MOST_PRINTED);
    const more = shown.length > MOST_PRINTED ? `, the first ${amount(MOST_PRINTED)} of ${amount(shown.length)}` : "";
    $("print").caption.textContent = `${$("shown").textContent}${more}`;
    const lines = printed.map((s) => {
      const line = make("tr");
      const texts = [s + 1, visible(audit.id[s]), label(audit.given[s]), label(audit.suggested[s]), qualityText(audit.quality[s])];
      const note = visible(decisions.notes.get(s) || "", "\n\t");
      for (const text of [...texts, note, worded(decisions.of[s])[1]]) line.append(make("td", "", String(text)));
      return line;
    });
    $("print").tBodies[0].replaceChildren(...lines);
  }

  function openChoice() {
    if (at < 0 || view === "overview") return;
    const decision = decisions.of[at];
    $("choose-label").value = String(typeof decision === "number" ? decision : audit.suggested[at]);
    $("choose-dialog").showModal();
    $("choose-label").focus();
  }

  function takeChoice() {
    const chosen = $("choose-label").value;
    $("choose-dialog").close();
    if (chosen !== "") decide(Number(chosen));
  }

  // ---- events ----

  const once = {
    k: () => decide(KEEP), a: accept, c: openChoice, d: () => decide(DROP), s: () => decide(UNSURE), t: takeTheirs,
    w: () => { if (view === "one" && at >= 0) $("note").focus(); },
    u: undo, e: exportDecisions, i: () => $("import-file").click(), "?": () => $("help-dialog").showModal(),
    g: () => showView(view === "grid" ? "one" : "grid"), o: () => showView(view === "overview" ? "one" : "overview"),
    ...Object.fromEntries([1, 2, 3, 4, 5].map((k) => [String(k), () => takeLikely(k - 1)])),
  };
  const again = {
    n: () => move(1), p: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    PageDown: () => move(10), PageUp: () => move(-10), Home: () => move(-Infinity), End: () => move(Infinity),
  };
  const inGrid = {
    ArrowRight: (shift) => grid.move(1, shift), ArrowLeft: (shift) => grid.move(-1, shift),
    ArrowDown: (shift) => grid.move(grid.columns, shift), ArrowUp: (shift) => grid.move(-grid.columns, shift),
    PageDown: (shift) => grid.move(4 * grid.columns, shift), PageUp: (shift) => grid.move(-4 * grid.columns, shift),
    Home: (shift) => grid.move(-Infinity, shift), End: (shift) => grid.move(Infinity, shift),
    " ": () => grid.choose(at), Enter: () => showView("one"), Escape: () => grid.clear(),
  };

  function onControl(key, shift) {
    if (key === "z" && !shift) undo();
    else if (key === "a" && view === "grid") grid.chooseOpen();
    else return false;
    return true;
  }

  /** Whether the key means anything here. */
  function act(key, event) {
    const onButton = event.target.closest("button, summary");
    if (view === "grid" && inGrid[key] && !(onButton && (key === " " || key === "Enter"))) inGrid[key](event.shiftKey);
    else if (view === "overview" && again[key]) return false; // it scrolls
    else if (once[key]) {
      if (!event.repeat) once[key](); // a key held down decides once
    } else if (again[key]) again[key]();
    else return false;
    return true;
  }

  function onKey(event) {
    if (document.querySelector("dialog[open]")) return;
    // Not the dialogues' own: one that was just closed may have the focus for another moment.
    const within = event.target.closest("main input, main select, main summary, main textarea");
    const leaves = event.key === "Escape" || (event.key === "Enter" && event.target.id === "note" && !event.shiftKey);
    if (within && leaves) {
      focusView();
      event.preventDefault();
    }
    if (within || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const meant = event.ctrlKey || event.metaKey ? onControl(key, event.shiftKey) : act(key, event);
    if (meant) event.preventDefault();
  }

  function listenToButtons() {
    const clicks = {
      keep: once.k, accept: once.a, choose: once.c, drop: once.d, unsure: once.s, "take-theirs": takeTheirs,
      undo, import: once.i, export: exportDecisions, help: once["?"], previous: again.p, next: again.n, copy: copyCommand,
      "view-one": () => showView("one"), "view-grid": () => showView("grid"), "view-overview": () => showView("overview"),
      "end-open": goToOpen, "end-clear": clearAndGoToOpen, "imported-show": showDisagreements, "filter-clear": clearFilter,
      "choose-cancel": () => $("choose-dialog").close(),
      "exported-close": () => close("exported"), "imported-close": () => close("imported"),
    };
    for (const [id, click] of Object.entries(clicks)) $(id).addEventListener("click", click);
  }

  function listen() {
    listenToButtons();
    $("choose-dialog").firstElementChild.addEventListener("submit", (event) => {
      event.preventDefault();
      takeChoice();
    });
    $("choose-label").addEventListener("dblclick", takeChoice);
    $("choose-label").addEventListener("keydown", (event) => {
      if (event.key === "Enter") takeChoice();
      if (event.key === "Enter") event.preventDefault();
    });
    $("import-file").addEventListener("change", (event) => {
      const [file] = event.target.files;
      event.target.value = ""; // so that the same file can be chosen again
      if (file) importDecisions(file);
    });
    $("note").addEventListener("input", () => { noteTyped = true; });
    $("note").addEventListener("change", () => {
      saveNote();
      draw();
    });
    $("rows").addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) goTo(Number(row.dataset.suspect));
    });
    let waiting = false;
    $("list").addEventListener("scroll", () => {
      if (!waiting) requestAnimationFrame(() => { waiting = false; drawRows(); });
      waiting = true;
    });
    let byPointer = false; // after a choice with the mouse the keys shall work again
    document.addEventListener("pointerdown", () => { byPointer = true; }, true);
    document.addEventListener("keydown", () => { byPointer = false; }, true);
    document.addEventListener("keydown", onKey);
    $("filter-form").addEventListener("input", (event) => {
      refilter();
      if (byPointer && event.target.tagName === "SELECT") focusView();
    });
    $("filter-form").addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("storage", (event) => { // another tab with the same page has decided something
      if (event.key !== decisions.key) return;
      decisions.load();
      refilter();
    });
    window.addEventListener("pagehide", saveNote);
    window.addEventListener("beforeunload", (event) => {
      if (!decisions.kept && decisions.log.length && exported !== decisions.log.at(-1)) event.preventDefault();
    });
    window.addEventListener("beforeprint", fillPrint);
    window.addEventListener("resize", draw);
    document.addEventListener("DOMContentLoaded", draw); // the pictures are there now
  }

  const heading = `${toCheck ? "Labels to check" : "Suspect labels"} of ${visible(audit.source)}`;
  $("title").textContent = document.title = heading;
  $("title").title = audit.source;
  $("about").textContent = audit.about;
  if (audit.notes.length) {
    $("notes").hidden = false;
    $("notes").querySelector("summary").textContent = `${many(audit.notes.length, "note")} of the audit`;
    $("notes").querySelector("ul").replaceChildren(...audit.notes.map((note) => make("li", "", visible(note))));
  }
  if (window.matchMedia("(max-width: 760px)").matches) $("filters").open = false;
  document.body.dataset.view = view;
  fillFilters();
  listen();
  const open = audit.id.findIndex((_, s) => decisions.of[s] === undefined);
  refilter(Math.max(open, 0)); // an earlier visit goes on where it stopped
})();
