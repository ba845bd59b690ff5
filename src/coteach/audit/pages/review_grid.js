// Many suspects beside each other, of which some are chosen and decided about together.
"use strict";

const CARDS = { pictures: [150, 196], texts: [280, 158], plain: [210, 92] }; // least width and height in pixels
const CARD_GAP = 8;
const SPARE_LINES = 2; // drawn above and below what is seen

/** Cards of the suspects that are shown; `page` tells which these are and what they look like. */
class Grid {
  constructor(page) {
    this.page = page;
    this.chosen = new Set();
    this.anchor = -1; // where a range of the Shift key begins
    this.drawn = new Map();
    const { audit } = page;
    [this.width, this.height] = CARDS[audit.pictures ? "pictures" : audit.text || audit.cells ? "texts" : "plain"];
    this.listen();
  }

  get columns() {
    return Math.max(1, Math.floor(($("grid").clientWidth - CARD_GAP) / (this.width + CARD_GAP)));
  }

  get line() {
    return this.height + CARD_GAP;
  }

  listen() {
    let waiting = false;
    $("grid").addEventListener("scroll", () => {
      if (!waiting) requestAnimationFrame(() => { waiting = false; this.draw(); });
      waiting = true;
    });
    $("cards").addEventListener("click", (event) => {
      const card = event.target.closest(".card");
      if (card) this.choose(Number(card.dataset.suspect), event.shiftKey);
    });
    $("cards").addEventListener("mousedown", (event) => {
      if (event.shiftKey) event.preventDefault(); // which would mark the text between
    });
    $("cards").addEventListener("dblclick", () => this.page.look());
    $("choose-open").addEventListener("click", () => this.chooseOpen());
    $("choose-none").addEventListener("click", () => this.clear());
    $("look").addEventListener("click", () => this.page.look());
  }

  /** Choose a card, or leave it out again; with Shift all from the last one on. */
  choose(s, range = false) {
    const { shown } = this.page;
    if (range && this.anchor >= 0) {
      const [from, to] = [placeOf(shown, this.anchor), placeOf(shown, s)].sort((a, b) => a - b);
      for (let place = from; place <= to && place < shown.length; place += 1) this.chosen.add(shown[place]);
    } else if (this.chosen.has(s)) {
      this.chosen.delete(s);
    } else {
      this.chosen.add(s);
    }
    if (!range) this.anchor = s;
    this.page.goTo(s);
  }

  /** All that are shown and not decided. */
  chooseOpen() {
    this.chosen = new Set(this.page.shown.filter((s) => this.page.decisions.of[s] === undefined));
    this.page.goTo(this.page.at);
    this.page.announce(`${amount(this.chosen.size)} chosen.`);
  }

  clear() {
    this.chosen.clear();
    this.anchor = -1;
    this.page.goTo(this.page.at);
  }

  /** Forget what a filter hides. */
  keepShown() {
    if (!this.chosen.size) return;
    const shown = new Set(this.page.shown);
    this.chosen = new Set([...this.chosen].filter((s) => shown.has(s)));
  }

  move(by, extend) {
    const { shown, at } = this.page;
    if (at < 0) return;
    if (extend && this.anchor < 0) this.anchor = at;
    const s = shown[Math.min(shown.length - 1, Math.max(0, placeOf(shown, at) + by))];
    if (extend) this.choose(s, true);
    else this.page.goTo(s);
  }

  bringIntoView() {
    const grid = $("grid");
    const top = Math.floor(placeOf(this.page.shown, this.page.at) / this.columns) * this.line;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + this.line > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + this.line + CARD_GAP - grid.clientHeight;
  }

  draw() {
    const { shown, at } = this.page;
    const grid = $("grid");
    const columns = this.columns;
    const lines = Math.ceil(shown.length / columns);
    const first = Math.max(0, Math.floor(grid.scrollTop / this.line) - SPARE_LINES);
    const last = Math.min(lines, Math.ceil((grid.scrollTop + grid.clientHeight) / this.line) + SPARE_LINES);
    const cards = new Map();
    for (let place = first * columns; place < Math.min(shown.length, last * columns); place += 1) {
      const state = this.stateOf(place);
      cards.set(state, this.drawn.get(state) || this.card(place)); // a picture that is there need not be decoded again
    }
    this.drawn = cards;
    $("cards-space").style.height = `${lines * this.line + CARD_GAP}px`;
    $("cards").style.transform = `translateY(${first * this.line}px)`;
    $("cards").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    $("cards").style.gridAutoRows = `${this.height}px`;
    $("cards").replaceChildren(...cards.values());
    if ($(`card-${at}`)) grid.setAttribute("aria-activedescendant", `card-${at}`);
    else grid.removeAttribute("aria-activedescendant");
    const chosen = this.chosen.size;
    $("chosen").textContent = chosen ? `${amount(chosen)} of ${amount(shown.length)} chosen` : touched ? "Tap to choose" : "Click to choose; Shift chooses a range";
    $("choose-none").disabled = !chosen;
  }

  /** All that a card shows, in words. */
  stateOf(place) {
    const { shown, at } = this.page;
    const s = shown[place];
    return [s, place, shown.length, s === at, this.chosen.has(s), ...this.page.said(s), this.page.pictureOf(s) !== null].join(" ");
  }

  card(place) {
    const { audit, label, shown, at } = this.page;
    const s = shown[place];
    const card = make("div", `card${s === at ? " current" : ""}`);
    card.id = `card-${s}`;
    card.setAttribute("role", "option");
    card.setAttribute("aria-selected", String(this.chosen.has(s)));
    card.setAttribute("aria-posinset", String(place + 1));
    card.setAttribute("aria-setsize", String(shown.length));
    card.dataset.suspect = s;
    if (audit.pictures) {
      const image = make("img");
      const uri = this.page.pictureOf(s);
      if (uri) showPicture(image, uri, "");
      card.append(image);
    }
    card.append(pairLine("line pair", label(audit.given[s]), label(audit.suggested[s])));
    const about = this.page.summary(s, 240);
    const small = make("div", about ? "words small" : "line small");
    small.append(own(about || visible(audit.id[s])));
    if (!audit.pictures) card.append(small);
    const [kind, words] = this.page.said(s);
    card.append(make("div", `line verdict ${kind}`, words));
    return card;
  }
}
