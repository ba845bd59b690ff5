// Without this script every run is shown, and six epochs of its losses. With it: one run at a time, and any epoch.
"use strict";

const runs = [...document.querySelectorAll("article.run")];
const chooser = document.getElementById("chooser");

function show(id) {
  for (const run of runs) run.classList.toggle("away", id !== "all" && run.id !== id);
  chooser.value = id;
}

function follow() {
  const id = location.hash.slice(1);
  if (!runs.some((run) => run.id === id)) return;
  show(id);
  document.getElementById(id).scrollIntoView();
}

function slide(frames) {
  const slider = frames.querySelector("input");
  const all = [...frames.querySelectorAll(".frame")];
  function move() {
    all.forEach((frame, i) => frame.classList.toggle("now", i === slider.valueAsNumber));
    const words = `epoch ${all[slider.valueAsNumber].dataset.epoch}`;
    frames.querySelector("output").textContent = words;
    slider.setAttribute("aria-valuetext", words);
  }
  frames.classList.add("playing");
  frames.querySelector(".slider").hidden = all.length < 2;
  slider.addEventListener("input", move);
  move();
}

document.querySelectorAll(".frames").forEach(slide);
if (runs.length > 1) {
  document.getElementById("choose").hidden = false;
  chooser.addEventListener("change", () => show(chooser.value));
  addEventListener("hashchange", follow);
  show(runs[0].id);
  follow();
}
