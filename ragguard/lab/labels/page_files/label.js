"use strict";
const at = (id) => document.getElementById(id);
const { items, asked } = JSON.parse(at("items").textContent);
const place = "ragguard labels " + items.map((item) => item.digest).join("");
// What was labelled stays in this browser until it is saved, also when the page is closed.
const kept = JSON.parse(localStorage.getItem(place) || '{"by": "", "labels": {}}');
let number = 0;

const labelled = () => Object.values(kept.labels).filter((given) => given.label !== null).length;
const graded = () => items[number]?.kind === "grade";

function show() {
  const item = items[number], done = labelled();
  at("grades").hidden = !graded();
  at("yes-no").hidden = graded();
  at("query").textContent = item ? item.query : "All are shown.";
  at("text").textContent = item ? item.text : "";
  at("ask").textContent = item ? asked[item.kind] : "Save (w), or go back (b).";
  at("count").textContent = `${Math.min(number + 1, items.length)} of ${items.length}, ${done} labelled`;
}

function next() {
  while (number < items.length && kept.labels[number] && kept.labels[number].label !== null) number += 1;
  show();
}

function save() {
  const lines = Object.entries(kept.labels).map(([index, given]) =>
    JSON.stringify({ ...items[index], ...given, by: kept.by.trim() }) + "\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = "labels.jsonl";
  link.click();
}

function press(key) {
  const keys = (graded() ? "12345" : "yn") + "s";
  if ((keys + "w").includes(key) && !kept.by.trim()) { at("by").focus(); return; }
  if (keys.includes(key) && number < items.length) {
    const label = key === "s" ? null : graded() ? Number(key) : key === "y" ? 1 : 0;
    kept.labels[number] = { label, skipped: key === "s", at: new Date().toISOString().slice(0, 19) + "+00:00" };
    number += 1;
  }
  else if (key === "b" && number > 0) number -= 1;
  else if (key === "w") save();
  localStorage.setItem(place, JSON.stringify(kept));
  show();
}

at("by").value = kept.by;
at("by").addEventListener("input", () => { kept.by = at("by").value; });
document.addEventListener("click", (event) => event.target.dataset.key && press(event.target.dataset.key));
document.addEventListener("keydown", (event) => {
  if (event.target === at("by")) { if (event.key === "Enter") at("by").blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || !"ynsbw12345".includes(event.key)) return;
  event.preventDefault();
  press(event.key);
});
next();
