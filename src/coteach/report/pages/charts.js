// Without this script charts are pictures. With it they tell their values, and lines are brought out or hidden.

const SVG = "http://www.w3.org/2000/svg";
const MOST_VALUES = 9; // in a readout: those nearest to the pointer
const CLOSE = 14; // how near a click must be to a line, in units of the drawing

function made(tag, words = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  element.className = className;
  return element;
}

// ---- a group: which lines are brought out or hidden, in its charts, its table and its legend

class Lines {
  constructor(group) {
    this.group = group;
    this.picked = new Set();
    this.pointed = null;
    for (const item of group.querySelectorAll(".legend li")) this.addControls(item);
    group.addEventListener("pointerover", (event) => this.point(event.target.closest("[data-line]")));
    group.addEventListener("pointerleave", () => this.point(null));
    group.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.pickNone();
    });
  }

  addControls(item) {
    const number = item.dataset.line;
    const button = made("button");
    button.type = "button";
    button.append(...item.childNodes);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => this.pick(number));
    const box = made("input");
    box.type = "checkbox";
    box.checked = true;
    box.setAttribute("aria-label", `Show ${button.textContent.trim()}`);
    box.addEventListener("change", () => this.hide(number, !box.checked));
    item.append(box, button);
  }

  all(number) {
    return this.group.querySelectorAll(`[data-line="${number}"]`);
  }

  pick(number) {
    if (!this.picked.delete(number)) this.picked.add(number);
    this.show();
  }

  pickNone() {
    this.picked.clear();
    this.pointed = null;
    this.show();
  }

  point(element) {
    const number = element ? element.dataset.line : null;
    if (number === this.pointed) return;
    this.pointed = number;
    this.show();
  }

  hide(number, away) {
    for (const line of this.all(number)) if (line.matches(".line")) line.classList.toggle("away", away);
  }

  show() {
    const shown = new Set(this.picked);
    if (this.pointed !== null) shown.add(this.pointed);
    this.group.classList.toggle("picking", shown.size > 0);
    for (const element of this.group.querySelectorAll("[data-line]")) {
      element.classList.toggle("picked", shown.has(element.dataset.line));
      const button = element.querySelector("button[aria-pressed]");
      if (button) button.setAttribute("aria-pressed", String(this.picked.has(element.dataset.line)));
    }
  }
}

// ---- a chart: the values of an epoch, by pointer or arrow keys

class Chart {
  constructor(box, lines, names) {
    this.box = box;
    this.lines = lines;
    this.names = names;
    this.svg = box.querySelector("svg");
    const bounds = this.svg.dataset.bounds.split(" ").map(Number);
    [this.first, this.last, this.low, this.high, this.width, this.height] = bounds;
    this.curves = [...this.svg.querySelectorAll(".line")].map((element) => ({
      element,
      number: element.dataset.line,
      first: Number(element.dataset.first),
      values: element.dataset.values.split(","),
      spreads: element.dataset.spreads.split(","),
    }));
    this.rule = this.svg.appendChild(document.createElementNS(SVG, "path"));
    this.rule.setAttribute("class", "rule");
    this.readout = box.appendChild(made("div", "", "readout"));
    this.readout.setAttribute("aria-live", "polite");
    this.leave();
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${box.parentNode.querySelector("figcaption").textContent}: arrow keys tell values`);
    box.addEventListener("pointermove", (event) => this.follow(event));
    box.addEventListener("pointerdown", (event) => this.follow(event));
    box.addEventListener("pointerleave", () => this.leave());
    box.addEventListener("blur", () => this.leave());
    box.addEventListener("click", (event) => this.click(event));
    box.addEventListener("keydown", (event) => this.press(event));
  }

  place(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return at.x > this.width + 5 || at.x < -5 || at.y < -5 || at.y > this.height + 5 ? null : at;
  }

  follow(event) {
    const at = this.place(event);
    if (!at) return this.leave();
    const share = Math.min(1, Math.max(0, at.x / this.width));
    this.tell(Math.round(this.first + share * (this.last - this.first)), at.y);
  }

  press(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    const ends = { Home: this.first, End: this.last };
    if (event.key in ends) this.tell(ends[event.key]);
    else if (event.key in steps) {
      const next = this.epoch === null ? this.last : this.epoch + steps[event.key];
      this.tell(Math.min(this.last, Math.max(this.first, next)));
    } else return;
    event.preventDefault();
  }

  // The visible lines that have a value in an epoch, the highest first; those brought out alone, if there are any.
  at(epoch) {
    const { picked } = this.lines;
    return this.curves
      .filter((curve) => !curve.element.matches(".away") && (picked.size === 0 || picked.has(curve.number)))
      .map((curve) => ({ ...curve, value: curve.values[epoch - curve.first], spread: curve.spreads[epoch - curve.first] }))
      .filter((curve) => curve.value)
      .map((curve) => ({ ...curve, y: (this.height * (this.high - curve.value)) / (this.high - this.low) }))
      .sort((one, other) => one.y - other.y);
  }

  nearest(found, y) {
    const near = (curve) => Math.abs(curve.y - y);
    return [...found].sort((one, other) => near(one) - near(other));
  }

  tell(epoch, y) {
    this.epoch = epoch;
    const all = this.at(epoch);
    const order = y === undefined ? all : this.nearest(all, y);
    const some = new Set(order.slice(0, MOST_VALUES));
    const table = made("table");
    for (const curve of all.filter((one) => some.has(one))) {
      const row = table.insertRow();
      if (y !== undefined && curve === order[0]) row.className = "near";
      const name = row.appendChild(made("th"));
      name.scope = "row";
      name.append(this.names.get(curve.number).swatch.cloneNode(true), this.names.get(curve.number).name);
      row.appendChild(made("td", curve.value + (curve.spread ? ` ± ${curve.spread}` : "")));
    }
    this.readout.replaceChildren(made("p", `epoch ${epoch}`), table);
    const x = (this.width * (epoch - this.first)) / Math.max(1, this.last - this.first);
    this.rule.setAttribute("d", `M${x} 0V${this.height}`);
    this.rule.style.display = "";
    this.readout.hidden = false;
    this.put(x);
  }

  // Beside the epoch, on the side with more room.
  put(x) {
    const box = this.box.getBoundingClientRect();
    const at = new DOMPoint(x, 0).matrixTransform(this.svg.getScreenCTM()).x - box.left;
    const left = at + 12 + this.readout.offsetWidth <= box.width ? at + 12 : at - 12 - this.readout.offsetWidth;
    this.readout.style.left = `${Math.max(0, left)}px`;
  }

  click(event) {
    const at = this.place(event);
    const name = event.target.closest(".name");
    if (name) return this.lines.pick(name.closest(".line").dataset.line);
    if (!at) return;
    const [line] = this.nearest(this.at(this.epoch), at.y);
    if (line && Math.abs(line.y - at.y) < CLOSE) this.lines.pick(line.number);
    else this.lines.pickNone();
  }

  leave() {
    this.epoch = null;
    this.readout.hidden = true;
    this.rule.style.display = "none";
  }
}

for (const group of document.querySelectorAll(".group")) {
  const names = new Map(
    [...group.querySelectorAll(".legend li")].map((item) => [
      item.dataset.line,
      { swatch: item.querySelector("svg"), name: item.querySelector("span").textContent },
    ]),
  );
  const lines = new Lines(group);
  for (const box of group.querySelectorAll(".chart")) new Chart(box, lines, names);
}
for (const hint of document.querySelectorAll(".hint")) hint.hidden = false;
