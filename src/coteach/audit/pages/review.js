// The review page: the list, the suspect, the keys. Everything shown goes in as text, never as markup.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const audit = JSON.parse($("audit").textContent);
  const toCheck = audit.flag === "calibrate"; // a random sample of all qualities, not the worst labels
  const decisions = new Decisions(audit, storageOrNull());
  const label = (c) => visible(audit.classes[c]);
  const ROW = 64; // pixels, as in the style
  const SPARE = 6; // rows drawn above and below what is seen
  const MOST_PRINTED = 1000;

  let shown = []; // numbers of the suspects that the filter lets through
  let at = -1; // the suspect that is looked at
  let exported = -1; // decisions in the last export

  function storageOrNull() {
    try {
      localStorage.setItem("coteach-review", "");
      localStorage.removeItem("coteach-review");
      return localStorage;
    } catch {
      return null;
    }
  }

  function make(tag, classes = "", text = "") {
    const element = document.createElement(tag);
    element.className = classes;
    element.textContent = text;
    return element;
  }

  const amount = (n) => n.toLocaleString("en-GB");
  const percent = (p) => (p === null ? "–" : `${p < 0.01 ? "< 1" : Math.round(100 * p)} %`);

  // ---- pictures: in blocks behind the script, read when one of a block is first wanted ----

  const blocks = new Map();

  function pictureOf(s) {
    if (!audit.pictures) return null;
    const number = Math.floor(s / audit.pictures);
    const element = $(`pictures-${number}`);
    if (!blocks.has(number) && element) blocks.set(number, JSON.parse(element.textContent));
    const block = blocks.get(number);
    return block ? block[s % audit.pictures] : null;
  }

  function show(image, uri, alt, frame = null) {
    image.alt = alt;
    image.onload = () => {
      const side = Math.max(image.naturalWidth, image.naturalHeight);
      image.classList.toggle("pixels", side <= 16);
      // Small ones enlarged more are only a blur; large ones are shown pixel for pixel where there is room.
      if (frame) frame.style.maxWidth = `${Math.max(192, Math.min(8 * side, 352), side)}px`;
    };
    image.src = uri;
  }

  // ---- the list ----

  function said(decision) {
    if (decision === undefined) return ["", ""];
    if (decision === KEEP) return ["keep", "✓ kept"];
    if (decision === DROP) return ["drop", "✕ dropped"];
    return ["relabel", `→ ${label(decision)}`];
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
      const uri = pictureOf(s);
      if (uri) show(image, uri, "");
      row.append(image);
    }
    const middle = make("div");
    const pair = make("div", "line pair");
    pair.append(make("bdi", "", label(audit.given[s])), " → ", make("bdi", "", label(audit.suggested[s])));
    const name = make("div", "line small");
    name.append(make("bdi", "", visible(audit.id[s])));
    if (audit.text) name.append(" · ", make("bdi", "", visible(audit.text[s].slice(0, 120).replace(/\s+/g, " "))));
    middle.append(pair, name);
    const [kind, words] = said(decisions.of[s]);
    const side = make("div", "side");
    side.append(make("div", "small", audit.quality[s].toFixed(3)), make("div", `line verdict ${kind}`, words));
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
    const reason = audit.reason ? [make("p", "muted", visible(audit.reason[at]))] : [];
    $("networks").replaceChildren(...networks, ...reason);
  }

  function drawSample() {
    const uri = pictureOf(at);
    $("picture").hidden = !uri;
    if (uri) show($("picture").firstElementChild, uri, `Picture of ${visible(audit.id[at])}`, $("picture"));
    $("text").hidden = !audit.text;
    if (audit.text) $("text").replaceChildren(make("bdi", "", visible(audit.text[at], "\n\t")));
    $("cells").hidden = !audit.cells;
    if (!audit.cells) return;
    const lines = audit.columns.map((column, k) => {
      const line = make("tr");
      const head = make("th", "", visible(column));
      head.scope = "row";
      const cell = make("td");
      if (audit.cells[at][k] === "") cell.append(make("span", "muted", "–"));
      else cell.append(make("bdi", "", visible(audit.cells[at][k], "\n\t")));
      line.append(head, cell);
      return line;
    });
    $("cells").querySelector("tbody").replaceChildren(...lines);
  }

  function drawSuspect() {
    const none = at < 0;
    $("suspect").hidden = none;
    $("nothing").hidden = !none;
    for (const name of ["keep", "accept", "choose", "drop"]) $(name).disabled = none;
    if (none) {
      $("nothing").textContent = audit.id.length ? "No suspect passes the filter." : "There are no suspects.";
      return;
    }
    const place = placeOf(shown, at);
    const same = audit.given[at] === audit.suggested[at];
    $("position").textContent = `${amount(place + 1)} of ${amount(shown.length)}`;
    $("previous").disabled = place === 0;
    $("next").disabled = place === shown.length - 1;
    $("name").replaceChildren(make("bdi", "", visible(audit.id[at])));
    $("given").replaceChildren(make("bdi", "", label(audit.given[at])));
    $("suggested").replaceChildren(make("bdi", "", label(audit.suggested[at])));
    $("quality").textContent = audit.quality[at].toFixed(3);
    $("keep").querySelector("bdi").textContent = label(audit.given[at]);
    $("accept").querySelector("bdi").textContent = label(audit.suggested[at]);
    $("accept").disabled = same;
    drawOpinions();
    drawSample();
    const decision = decisions.of[at];
    const [kind, words] = said(decision);
    $("decision").className = `verdict ${kind}`;
    $("decision").textContent = words ? `Decided: ${words}` : "";
    const pressed = { keep: decision === KEEP, accept: decision === audit.suggested[at], drop: decision === DROP };
    for (const [name, is] of Object.entries(pressed)) $(name).setAttribute("aria-pressed", String(is));
  }

  function drawProgress() {
    const n = audit.id.length;
    $("progress-text").textContent = `${amount(decisions.count)} of ${amount(n)} decided`;
    $("progress").max = Math.max(1, n);
    $("progress").value = decisions.count;
    $("undo").disabled = !decisions.log.length;
    $("export").disabled = !decisions.count;
    $("finished").hidden = !n || decisions.count < n || exported === decisions.log.length;
    $("warning").hidden = decisions.kept;
    $("warning").textContent = decisions.kept
      ? ""
      : "This browser keeps nothing for this page: your decisions are lost when it is closed. Export them before.";
  }

  function draw() {
    drawProgress();
    drawSuspect();
    drawRows();
  }

  // ---- moving and deciding ----

  function announce(text) {
    $("announce").textContent = text;
  }

  function goTo(s) {
    at = s;
    bringIntoView();
    draw();
    if ($("suspect").scrollTop) $("suspect").scrollTop = 0;
    announce(
      `${placeOf(shown, at) + 1} of ${shown.length}: ${visible(audit.id[at])}, given ${label(audit.given[at])}, ` +
        `suggested ${label(audit.suggested[at])}. ${said(decisions.of[at])[1]}`,
    );
  }

  function move(by) {
    if (at < 0) return;
    const place = placeOf(shown, at) + by;
    goTo(shown[Math.min(shown.length - 1, Math.max(0, place))]);
  }

  function decide(decision) {
    if (at < 0) return;
    const s = at;
    decisions.decide(s, decision);
    const wasLast = s === shown[shown.length - 1];
    if (filter().decision !== "any") refilter(s + 1);
    else if (wasLast) draw();
    else move(1);
    if (!$("finished").hidden) bringIntoView(); // the list has become shorter
    if (decisions.count === audit.id.length) announce(`${said(decisions.of[s])[1]}. All decided: export them now.`);
    else if (wasLast) announce(`${said(decisions.of[s])[1]}. That was the last one shown.`);
  }

  function accept() {
    if (at < 0) return;
    if (audit.given[at] === audit.suggested[at]) announce("The suggestion is the given label: keep it with K.");
    else decide(audit.suggested[at]);
  }

  function undo() {
    const s = decisions.undo();
    if (s < 0) return;
    exported = -1; // other decisions than those may follow
    if (filter().decision !== "any") refilter(s);
    if (shown[placeOf(shown, s)] === s) goTo(s);
    else draw();
    announce(`Undone: ${visible(audit.id[s])}.`);
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

  /** Shows what passes; the suspect `wanted`, or the next that passes, is looked at. */
  function refilter(wanted = Math.max(at, 0)) {
    shown = matching(audit, decisions, filter());
    at = shown.length ? shown[Math.min(placeOf(shown, wanted), shown.length - 1)] : -1;
    const all = shown.length === audit.id.length;
    const what = toCheck ? "sample" : "suspect";
    const order = toCheck ? "in random order" : "the worst first";
    const some = shown.length === 1 ? `1 ${what}` : `${amount(shown.length)} ${what}s`;
    $("shown").textContent = all ? `${some}, ${order}` : `${some} of ${amount(audit.id.length)}, ${order}`;
    $("filter-state").textContent = all ? "" : "is on";
    drawRows(); // gives the list its height, without which it cannot scroll
    if (at >= 0) bringIntoView();
    draw();
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

  // ---- export, print, dialogues ----

  function exportDecisions() {
    if (!decisions.count) return;
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([decisions.csv()], { type: "text/csv" }));
    link.download = decisions.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    exported = decisions.log.length;
    const n = decisions.count;
    const command = `coteach audit --${audit.flag} ${decisions.file} --out ${audit.folder}`;
    $("exported-text").textContent = `${decisions.file} with ${amount(n)} decision${n === 1 ? "" : "s"} is in your downloads. Move it to your working folder, then:`;
    $("command").textContent = command;
    $("copy").textContent = "Copy";
    $("exported").hidden = false;
    drawProgress();
    bringIntoView(); // the list has become shorter
    announce(`${$("exported-text").textContent} ${command}`);
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

  function fillPrint() {
    const printed = shown.slice(0, MOST_PRINTED);
    const more = shown.length > MOST_PRINTED ? `, the first ${amount(MOST_PRINTED)} of ${amount(shown.length)}` : "";
    $("print").caption.textContent = `${$("shown").textContent}${more}`;
    const lines = printed.map((s) => {
      const line = make("tr");
      const texts = [s + 1, visible(audit.id[s]), label(audit.given[s]), label(audit.suggested[s])];
      for (const text of [...texts, audit.quality[s].toFixed(3), said(decisions.of[s])[1]]) line.append(make("td", "", text));
      return line;
    });
    $("print").tBodies[0].replaceChildren(...lines);
  }

  function openChoice() {
    if (at < 0) return;
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

  const once = { k: () => decide(KEEP), a: accept, c: openChoice, d: () => decide(DROP), u: undo, e: exportDecisions, "?": () => $("help-dialog").showModal() };
  const again = {
    n: () => move(1), ArrowDown: () => move(1), p: () => move(-1), ArrowUp: () => move(-1),
    PageDown: () => move(10), PageUp: () => move(-10), Home: () => move(-Infinity), End: () => move(Infinity),
  };

  function onKey(event) {
    if (document.querySelector("dialog[open]")) return;
    // Not the dialogues' own: one that was just closed may have the focus for another moment.
    const within = event.target.closest("main input, main select, main summary");
    if (within && event.key === "Escape") $("list").focus();
    if (within || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey) {
      if (key !== "z" || event.shiftKey) return;
      undo();
    } else if (once[key]) {
      if (!event.repeat) once[key](); // a key held down decides once
    } else if (again[key]) {
      again[key]();
    } else {
      return;
    }
    event.preventDefault();
  }

  function listen() {
    const clicks = {
      keep: once.k, accept: once.a, choose: once.c, drop: once.d, undo, export: exportDecisions, help: once["?"],
      previous: again.p, next: again.n, copy: copyCommand, "choose-cancel": () => $("choose-dialog").close(),
    };
    for (const [id, act] of Object.entries(clicks)) $(id).addEventListener("click", act);
    $("exported-close").addEventListener("click", () => {
      $("exported").hidden = true;
      drawRows();
      $("list").focus();
    });
    $("choose-dialog").firstElementChild.addEventListener("submit", (event) => {
      event.preventDefault();
      takeChoice();
    });
    $("choose-label").addEventListener("dblclick", takeChoice);
    $("choose-label").addEventListener("keydown", (event) => {
      if (event.key === "Enter") takeChoice();
      if (event.key === "Enter") event.preventDefault();
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
      if (byPointer && event.target.tagName === "SELECT") $("list").focus();
    });
    $("filter-form").addEventListener("submit", (event) => event.preventDefault());
    $("filter-clear").addEventListener("click", () => {
      $("filter-form").reset();
      refilter();
    });
    window.addEventListener("storage", (event) => { // another tab with the same page has decided something
      if (event.key !== decisions.key) return;
      decisions.load();
      refilter();
    });
    window.addEventListener("beforeunload", (event) => {
      if (!decisions.kept && decisions.count && exported !== decisions.log.length) event.preventDefault();
    });
    window.addEventListener("beforeprint", fillPrint);
    window.addEventListener("resize", drawRows);
    document.addEventListener("DOMContentLoaded", draw); // the pictures are there now
  }

  const heading = `${toCheck ? "Labels to check" : "Suspect labels"} of ${visible(audit.source)}`;
  $("title").textContent = document.title = heading;
  $("title").title = audit.source;
  $("about").textContent = audit.about;
  if (audit.notes.length) {
    $("notes").hidden = false;
    $("notes").querySelector("summary").textContent = `${audit.notes.length} ${audit.notes.length === 1 ? "note" : "notes"} of the audit`;
    $("notes").querySelector("ul").replaceChildren(...audit.notes.map((note) => make("li", "", visible(note))));
  }
  if (window.matchMedia("(max-width: 760px)").matches) $("filters").open = false;
  fillFilters();
  listen();
  const open = audit.id.findIndex((_, s) => decisions.of[s] === undefined);
  refilter(Math.max(open, 0)); // an earlier visit goes on where it stopped
})();
