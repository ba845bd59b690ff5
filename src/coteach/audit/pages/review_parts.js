// What the views of the page are made of. Everything shown goes in as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const touched = matchMedia("(hover: none)").matches; // by a finger: there are no keys to speak of
const amount = (n) => n.toLocaleString("en-GB");
const percent = (p) => (p === null ? "–" : `${p < 0.01 ? "< 1" : Math.round(100 * p)} %`);
const shareOf = (p) => `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`;
const many = (n, one, more = `${one}s`) => `${amount(n)} ${n === 1 ? one : more}`;

function make(tag, classes = "", text = "") {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text) element.textContent = text;
  return element;
}

/** What a user wrote, which may run from right to left. */
const own = (text) => make("bdi", "", text);

/** A digit or two that count, since many suspects are far below 0.01. */
function qualityText(quality) {
  if (quality >= 0.0995) return quality.toFixed(2);
  if (quality >= 0.00095) return quality.toPrecision(2);
  if (quality >= 0.00001) return quality.toFixed(5).replace(/0+$/, "");
  return "< 0.00001";
}

function ordinal(n) {
  const ending = n % 100 >= 11 && n % 100 <= 13 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[n % 10] || "th";
  return `${amount(n)}${ending}`;
}

function showPicture(image, uri, alt, frame = null) {
  image.alt = alt;
  image.onload = () => {
    const side = Math.max(image.naturalWidth, image.naturalHeight);
    image.classList.toggle("pixels", side <= 16);
    // Small ones enlarged more are only a blur; large ones are shown pixel for pixel where there is room.
    if (frame) frame.style.maxWidth = `${Math.max(192, Math.min(8 * side, 352), side)}px`;
  };
  image.src = uri;
}

/** Pictures lie in blocks behind the script, each read when one of it is first wanted. */
class Pictures {
  constructor(perBlock) {
    this.perBlock = perBlock;
    this.blocks = new Map();
  }

  of(s) {
    if (!this.perBlock) return null;
    const number = Math.floor(s / this.perBlock);
    const element = $(`pictures-${number}`);
    if (!this.blocks.has(number) && element) this.blocks.set(number, JSON.parse(element.textContent));
    const block = this.blocks.get(number);
    return block ? block[s % this.perBlock] : null;
  }
}

/** Given and suggested label in one line. */
function pairLine(classes, given, suggested) {
  const line = make("div", classes);
  line.append(own(given), " → ", own(suggested));
  return line;
}
