"use strict";
// Draws the report from the JSON blocks of this file. Whatever came from outside becomes a text node.
(() => {
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const index = data("index");
  const blocks = new Map();
  const PAGE = 50;
  const state = { shown: [], page: 0, open: -1, focus: 0, only: null };
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  // What is shown of a number: a sign where it can be either way, a dash where there is none.
  const number = (value, digits = 2) => value == null ? "–" : value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
  const signed = (value, digits = 2) => value == null ? "–" : (value > 0 ? "+" : "") + number(value, digits);
  const grouped = (value) => value.toLocaleString("en");
  const counted = (count, word) => grouped(count) + " " + word + (count === 1 ? "" : "s");
  const runsOf = (count) => counted(count, "run");
  const caption = (name) => (index.metrics[name] || { title: name, about: "" });

  function el(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") made.className = value;
      else if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
      else if (value !== false && value != null) made.setAttribute(key, value);
    }
    for (const child of children.flat(Infinity)) if (child != null) made.append(child);
    return made;
  }
  function draw(tag, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    for (const child of children) made.append(child);
    return made;
  }

  function detailOf(place) {
    const block = Math.floor(place / index.block);
    if (!blocks.has(block)) blocks.set(block, data("block-" + block));
    const held = blocks.get(block), at = place % index.block;
    if (!held.runs[at].scores) assemble(held.runs[at], held.said[at]);
    return { run: held.runs[at], texts: held.texts };
  }

  // Scores lie beside the runs, as rows of whole numbers; they are put in their places when a run is opened.
  function assemble(run, [ofPassages, ofSteps, ofRun]) {
    const score = ([, name, value, error, label, source, stage]) =>
      [name, value / index.scale, error == null ? null : error / index.scale, label, source === "answer", stage];
    run.scores = ofRun.map(score);
    const steps = new Map();
    for (const step of run.steps) {
      steps.set(step.place, step);
      step.scores = ofSteps.filter(([place]) => place === step.place).map(score);
      for (const passage of step.passages) passage.ratings = {};
    }
    for (const [place, rank, name, value, sub] of ofPassages) {
      const passage = steps.has(place) && steps.get(place).passages[rank - 1];
      if (passage && sub == null) passage[name] = value / index.scale;
      else if (passage) passage.ratings[sub] = value / index.scale;
    }
  }

  const mean = (values) => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  const known = (name, keep = () => true) =>
    index.runs.filter((run) => run[name] != null && keep(run)).map((run) => run[name]);

  const total = (name) => index.runs.reduce((sum, run) => sum + run[name], 0);

  // Shows the runs that a number of the head counts: their places, and in words what they have in common.
  function showOnly(places, words) {
    state.only = places ? new Set(places) : null;
    $("only").replaceChildren(...(places ? [words + " ", el("button", { type: "button", on: { click: () => showOnly(null) } }, "show all runs")] : []));
    $("only").hidden = !places;
    choose();
    if (places && state.shown.length) {
      open(state.shown[0].place);
      $("list").scrollIntoView();
      $("runs").focus({ preventScroll: true });
    }
  }
  const link = (places, words) => places.length
    ? el("button", { type: "button", class: "link", on: { click: () => showOnly(places, words) } }, runsOf(places.length)) : "–";

  // A cause counts as right, wrong or not judged; of a run that is not right, an abstention is no wrong answer.
  const sideOf = (cause) => cause === "right" || cause === "unsupported" ? "right" : cause === "unjudged" || cause === "open" ? "unjudged" : "wrong";
  const sideOfRun = (run) => sideOf(run.cause) === "wrong" && run.answer === "abstained" ? "abstained" : sideOf(run.cause);
  function outcomes() {
    const SIDES = [["right", "right", "good"], ["wrong", "wrong", "bad"], ["abstained", "abstained", "bad"], ["unjudged", "not judged", "soft"]];
    const all = index.runs.length;
    const row = (number, places, words, kind, share, said = words) => el("button", { type: "button", class: "outcome " + kind, disabled: places.length ? null : "", on: { click: () => showOnly(places, said) } },
      el("b", {}, grouped(number)), el("span", {}, words), el("span", { class: "soft" }, share));
    const placesOf = (keep) => index.runs.flatMap((run, place) => keep(run) ? [place] : []);
    const percent = (places) => all ? Math.round(100 * places.length / all) + "\u00a0%" : "";
    const found = Object.fromEntries(SIDES.map(([side]) => [side, placesOf((run) => sideOfRun(run) === side)]));
    $("outcomes").replaceChildren(el("div", { class: "sums" }, SIDES.filter(([side]) => side !== "abstained" || found.abstained.length).map(([side, words, kind]) => row(found[side].length, found[side], words, kind, percent(found[side])))));
    const why = index.head.causes.filter(([name]) => sideOf(name) === "wrong" || name === "unsupported" || name === "open");
    if (found.wrong.length + found.right.length + found.abstained.length)
      $("outcomes").append(...why.map(([name, words, number]) => row(number, placesOf((run) => run.cause === name), words, sideOf(name) === "wrong" ? "bad" : "soft", "")));
    else $("outcomes").append(el("p", { class: "soft" }, "No answer was judged: the runs have no references (give references=, or --references FILE), or no scorer that judges answers ran."));
    const { dropped, seen, needed } = index.head.guard;
    if (dropped) $("outcomes").append(row(dropped, needed, "of " + counted(seen, "passage") + " dropped by the guard; " + (needed.length ? "a reference stood in one of them in " + runsOf(needed.length) : "no reference stood in them"), needed.length ? "bad" : "soft", "", "the guard dropped a passage with a reference"));
  }

  function culprits() {
    const { hops, documents, worth } = index.head;
    const row = (cells) => el("tr", {}, cells.map((cell, place) => el(place ? "td" : "th", place ? {} : { scope: "row" }, cell)));
    const table = (caption, titles, rows) => rows.length ? el("div", { class: "scroll" }, el("table", { class: "culprits" }, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, rows))) : null;
    const some = (name) => hops.some((hop) => hop[name].length);
    const columns = [["runs", "in", (hop) => runsOf(hop.runs)], worth && ["paid", "paid in", (hop) => runsOf(hop.paid)],
      some("lost") && ["lost", "lowered the belief in", (hop) => link(hop.lost, "hop " + hop.hop + " lowered the belief")],
      some("misled") && ["misled", "brought the wrong answer in", (hop) => link(hop.misled, "hop " + hop.hop + " brought the wrong answer")],
      some("empty") && ["empty", "found nothing in", (hop) => link(hop.empty, "hop " + hop.hop + " found nothing")]].filter(Boolean);
    const strayed = documents.some((one) => one.astray.length);
    $("culprits").replaceChildren(...[
      table("By hop" + (worth ? "; paid: a clear gain (" + caption(worth).title + "), of the hop itself or of a hop to which it led, or the first passage with the reference; none if the belief does not tell" : ""),
        ["hop", ...columns.map(([, title]) => title)], columns.length > 1 ? hops.map((hop) => row([String(hop.hop), ...columns.map(([, , show]) => show(hop))])) : []),
      table("By document, those that state a wrong answer first", ["document", "states the wrong answer in", ...(strayed ? ["led astray in"] : []), "may mislead in (by utility)", "passages read"],
        documents.map((one) => row([[one.name, el("span", { class: "document" }, one.text)], link(one.wrong, one.name + " states the wrong answer"), ...(strayed ? [link(one.astray, one.name + " led astray")] : []), link(one.misleading, one.name + " may mislead"), grouped(one.read)]))),
    ].filter(Boolean));
    if (!$("culprits").children.length) $("culprits").append(el("p", { class: "soft" }, index.head.quiet));
  }

  function junk() {
    const { said, runs } = index.head.junk;
    $("junk").replaceChildren(el("p", {}, said, runs.length ? " " : "", runs.length ? link(runs, "runs to look at before junk is dropped") : ""));
  }

  // The metrics of all runs together, each with its range in words.
  function tiles() {
    const range = (name) => (caption(name).range || "");
    const facts = [
      ["Belief gained by retrieval (ΔSePer)", signed(mean(known("gain", FILTERS.gold))), range("delta_seper_total")],
      ["Support gained (belief in the own answer)", signed(mean(known("gain", FILTERS.support))), range("delta_seper_total")],
      ["List quality (UDCG of the context)", number(mean(known("udcg")), 3), range("udcg_context")],
      ["Sub-questions answered (coverage)", number(mean(known("coverage"))), range("coverage_total")],
      ["Retrievals", grouped(total("hops")), "in " + runsOf(index.runs.length)],
      ["Scores that failed", total("failures") ? grouped(total("failures")) : "–", "see the runs with failures"],
      ["Tokens spent on scoring", grouped(total("tokens")), "read and written"],
    ];
    $("tiles").append(...facts.filter(([, value]) => value !== "–").map(([term, value, about]) =>
      el("div", {}, el("dt", {}, term), el("dd", {}, value), el("dd", { class: "soft range" }, about))));
  }

  // What the numbers of the page mean, in words: the metrics that a run of it may show.
  function glossary() {
    $("glossary").append(...Object.entries(index.metrics).filter(([, one]) => one.about).map(([name, one]) =>
      el("div", {}, el("dt", {}, one.title + " (" + name + ")"), el("dd", {}, one.about + " " + (one.range ? "Range: " + one.range + "." : "")))));
  }

  const last = (value, otherwise) => value == null ? otherwise : value;
  const ORDERS = {
    "person": (a, b) => index.head.urgency.indexOf(a.cause) - index.head.urgency.indexOf(b.cause),
    "harm": (a, b) => b.misleading - a.misleading || last(a.worst, 1) - last(b.worst, 1),
    "gain-up": (a, b) => last(a.gain, 9) - last(b.gain, 9),
    "gain-down": (a, b) => last(b.gain, -9) - last(a.gain, -9),
    "new": (a, b) => b.started - a.started,
    "cost": (a, b) => b.tokens - a.tokens,
    "session": (a, b) => b.session.localeCompare(a.session) || a.started - b.started,
  };
  const FILTERS = {
    all: () => true,
    misled: (run) => run.misleading > 0,
    dropped: (run) => run.dropped > 0,
    wrong: (run) => sideOf(run.cause) === "wrong",
    up: (run) => run.thumb === "up",
    down: (run) => run.thumb === "down",
    failed: (run) => run.failures > 0 || run.status === "error",
    gold: (run) => run.source === "gold",
    support: (run) => run.source === "answer",
  };

  function choose() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const keep = FILTERS[$("filter").value];
    const order = ORDERS[$("sort").value];
    state.shown = index.runs.map((run, place) => ({ run, place })).filter(({ run, place }) => {
      if (!keep(run) || (state.only && !state.only.has(place))) return false;
      const text = (run.question + " " + run.name + " " + run.id + " " + run.session).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    state.shown.sort((a, b) => order(a.run, b.run) || a.place - b.place);
    state.page = 0;
    state.focus = 0;
    list();
  }

  const judged = (label) => label.startsWith("wrong") ? "bad" : label === "correct" ? "good" : "soft";

  function facts(run) {
    const parts = [[counted(run.hops, "hop")]];
    if (run.state) parts.unshift([run.state, run.status === "open" || run.status === "interrupted" ? "soft" : "bad"]);
    if (run.gain != null)
      parts.push(["ΔSePer " + signed(run.gain) + (run.source === "answer" ? " (support)" : ""), run.tone || "soft"]);
    if (run.misleading) parts.push([run.misleading + " misleading", "bad"]);
    if (run.dropped) parts.push([run.dropped + " dropped"]);
    if (run.answer) parts.push([run.answer, judged(run.answer)]);
    if (run.failures) parts.push([run.failures + " failed", "bad"]);
    if (run.thumb) parts.push(["thumb " + run.thumb, run.thumb === "up" ? "good" : "bad"]);
    if (run.provisional) parts.push(["scores so far"]);
    return parts.flatMap(([text, kind], place) => [place ? " · " : null, el("span", { class: kind || "" }, text)]);
  }

  function list() {
    const first = state.page * PAGE;
    const part = state.shown.slice(first, first + PAGE);
    $("runs").replaceChildren(...part.map(({ run, place }, row) => el("li", {
      role: "option", id: "option-" + row, "aria-selected": String(place === state.open),
      on: { click: () => { open(place); reveal(); } },
    }, el("span", { class: "asked" }, run.question || "(no question)"), el("span", { class: "facts" }, facts(run)))));
    $("runs").setAttribute("aria-activedescendant", part.length ? "option-" + state.focus : "");
    $("count").textContent = state.shown.length === index.runs.length
      ? runsOf(index.runs.length)
      : grouped(state.shown.length) + " of " + runsOf(index.runs.length);
    const pages = Math.ceil(state.shown.length / PAGE);
    const turn = (by) => () => { state.page += by; state.focus = 0; list(); };
    $("pages").replaceChildren(...(pages < 2 ? [] : [
      el("button", { type: "button", disabled: state.page === 0 ? "" : null, on: { click: turn(-1) } }, "Back"),
      "page " + (state.page + 1) + " of " + pages,
      el("button", { type: "button", disabled: state.page === pages - 1 ? "" : null, on: { click: turn(1) } }, "On"),
    ]));
  }

  function keys(event) {
    const rows = $("runs").children.length;
    const moves = { ArrowDown: state.focus + 1, ArrowUp: state.focus - 1, Home: 0, End: rows - 1 };
    if (event.key in moves && rows) {
      state.focus = Math.min(rows - 1, Math.max(0, moves[event.key]));
      event.preventDefault();
      open(state.shown[state.page * PAGE + state.focus].place);
      $("runs").children[state.focus].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && rows) {
      open(state.shown[state.page * PAGE + state.focus].place);
      $("run").focus();
    }
  }

  function toSearch(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    $("search").focus();
  }

  const find = (scores, name, stage = "passages") => {
    const found = scores.filter((score) => score[0] === name && score[5] === stage).reverse(); // the latest first
    return found.find((score) => !score[4]) || found[0] || null;
  };
  const withError = (score, show) => score == null ? null
    : show(score[1]) + (score[2] ? " ± " + number(score[2]) : "");
  // A number and its error stay in one line.
  const joined = (text) => text.replaceAll(" ± ", "\u00a0±\u00a0");

  // The names of a belief before retrieval, of its change by all hops, and of that by each hop: of one quantity, as the
  // bars are added up. Credit is of the likelihood or of the sampled belief: of the one to whose change it adds up.
  const BELIEFS = [["likelihood_closed_book", "delta_likelihood_total", "credit"], ["seper_closed_book", "delta_seper_total", "credit"],
    ["seper_closed_book", "delta_seper_total", "delta_seper"], ["likelihood_closed_book", "delta_likelihood_total", "delta_likelihood"]];
  function drawable(run, [before, all, name]) {
    const start = find(run.scores, before), total = find(run.scores, all);
    const deltas = run.steps.map((step) => find(step.scores, name));
    if (!start || deltas.every((delta) => !delta)) return null;
    const ends = [start[1]];
    for (const delta of deltas) ends.push(ends.at(-1) + (delta ? delta[1] : 0));
    const adds = name !== "credit" || (total && Math.abs(ends.at(-1) - start[1] - total[1]) < 0.01);
    return adds && ends.every((end) => end > -0.005 && end < 1.005) ? { start, deltas, name, likely: before.startsWith("likelihood") } : null;
  }

  // Belief before any retrieval, then the credit of each hop, else what it added when it came, with one standard error.
  function waterfall(run) {
    const belief = BELIEFS.map((names) => drawable(run, names)).find((one) => one);
    if (!belief) return null;
    const { start, deltas, name, likely } = belief, credited = name === "credit";
    const came = (step) => find(step.scores, likely ? "delta_likelihood" : "delta_seper");
    const bars = [{ name: "before", from: 0, to: start[1], kind: "calm", text: number(start[1]) }];
    let at = start[1];
    deltas.forEach((delta, hop) => {
      const by = delta ? delta[1] : 0;
      bars.push({ name: "hop " + (hop + 1), from: at, to: at + by, kind: run.steps[hop].tones[name] || "soft",
        text: delta ? signed(by) : "–", came: credited && came(run.steps[hop]), error: delta && delta[2] });
      at += by;
    });
    bars.push({ name: "after", from: 0, to: at, kind: "calm", text: number(at) });
    const room = Math.min(440, $("run").clientWidth || 440) - 34; // beside the facts, or the width of a phone
    const step = Math.max(74, Math.floor(room / bars.length)), wide = Math.round(step * 0.65);
    const height = 190, top = 18, floor = top + height;
    const y = (value) => floor - Math.max(0, Math.min(1, value)) * height;
    const picture = draw("svg", { viewBox: `0 0 ${bars.length * step + 34} ${floor + 24}`, width: bars.length * step + 34,
      role: "img", "aria-label": (likely ? "Likelihood of the right answer: " : "Belief in the right answer: ") + bars.map((bar) => bar.name + " " + bar.text).join(", ") });
    for (const tick of [0, 0.5, 1]) {
      picture.append(draw("line", { x1: 28, x2: bars.length * step + 30, y1: y(tick), y2: y(tick), stroke: "var(--line)" }));
      const label = draw("text", { x: 22, y: y(tick) + 4, "text-anchor": "end", class: "soft" });
      label.textContent = String(tick);
      picture.append(label);
    }
    bars.forEach((bar, place) => {
      const x = 36 + place * step, high = Math.max(bar.from, bar.to), low = Math.min(bar.from, bar.to);
      picture.append(draw("rect", { x, y: y(high), width: wide, height: Math.max(1.5, y(low) - y(high)), rx: 2, fill: `var(--${bar.kind})` }));
      if (bar.error) picture.append(draw("line", { x1: x + wide / 2, x2: x + wide / 2, y1: y(bar.to + bar.error), y2: y(bar.to - bar.error), stroke: "var(--ink)", "stroke-width": 1.5 }));
      const value = draw("text", { x: x + wide / 2, y: Math.max(12, y(high + (bar.error || 0)) - 5), "text-anchor": "middle" });
      value.textContent = bar.text;
      const name = draw("text", { x: x + wide / 2, y: floor + 16, "text-anchor": "middle", class: "soft" });
      name.textContent = bar.name + (bar.came ? " (" + signed(bar.came[1]) + ")" : "");
      picture.append(value, name);
    });
    const support = deltas.some((delta) => delta && delta[4]);
    return el("figure", { class: "scroll" }, picture, el("figcaption", {}, (support
      ? (likely ? "Likelihood of" : "Belief in") + " the run's own answer." + (likely ? "" : " Whiskers: ±1 standard error.")
      : likely ? "Likelihood of the reference." : "Share of the model's sampled answers that match the reference. Whiskers: ±1 standard error.")
      + (credited ? " Bars: the credit of each hop among all; in brackets: what it added when it came." : "")));
  }

  function bar(passage) {
    const utility = passage.utility;
    if (utility == null) return el("span", { class: "soft" }, "not judged");
    const fill = el("i", { class: (utility < 0 ? "down" : "up") + " " + passage.bar });
    fill.style.width = Math.min(50, Math.abs(utility) * 50) + "%";
    return el("span", {}, el("span", { class: "bar", role: "img", "aria-label": "utility " + signed(utility) }, fill), " " + signed(utility));
  }

  function passages(step, texts) {
    const shown = step.passages;
    const columns = [["p_relevant", number], ["p_abstain", number], ["query_gain", signed], ["brings_answer", number], ["grade", (g) => number(g, 0)], ["redundancy", number]]
      .filter(([name]) => shown.some((passage) => passage[name] != null)).map(([name, show]) => [name, caption(name).title.toLowerCase(), show]);
    const head = ["#", "passage", "utility", "verdict", ...columns.map(([, title]) => title)];
    return el("div", { class: "scroll" }, el("table", { class: "passages" },
      el("caption", {}, "Passages in the retriever's order"),
      el("thead", {}, el("tr", {}, head.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, shown.map((passage, row) => el("tr", { class: passage.kept ? "" : "dropped" },
        el("td", {}, String(row + 1)),
        el("td", { class: "text" }, passage.document ? el("span", { class: "document" }, passage.document) : null, texts[passage.text]),
        el("td", { class: "verdict" }, bar(passage)),
        el("td", {}, el("span", { class: passage.tone || "soft" }, passage.verdict)),
        columns.map(([name, title, show]) => el("td", { "data-label": title }, passage[name] == null ? "–" : show(passage[name]))))))));
  }

  function coverage(run) {
    const hops = run.steps.map((step, hop) => ({ hop: hop + 1, rated: step.passages
      .map((passage, row) => ({ row: row + 1, hop: hop + 1, kept: passage.kept, ratings: passage.ratings }))
      .filter((passage) => Object.keys(passage.ratings).length) })).filter((step) => step.rated.length);
    const rated = hops.flatMap((step) => step.rated);
    if (!rated.length) return null;
    const count = 1 + Math.max(...rated.flatMap((passage) => Object.keys(passage.ratings).map(Number)));
    const titles = Array.from({ length: count }, (_, place) => run.subs[place] || "sub-question " + (place + 1));
    const cell = (passage, title, place) => {
      const value = passage.ratings[place];
      if (value == null) return "–";
      const about = "hop " + passage.hop + ", passage " + passage.row + ": " + number(value, 0) + " of 5" + (passage.kept ? "" : ", dropped");
      return el("span", { class: "cell" + (value >= 3 ? " yes" : "") + (passage.kept ? "" : " gone"), role: "img", "aria-label": about }, number(value, 0));
    };
    return el("section", {}, el("h2", {}, "Which passage answers which sub-question"), el("div", { class: "scroll" }, el("table", { class: "matrix" },
      el("caption", {}, "Ratings 0 to 5; filled: it answers (3 or more); struck out: dropped before the model read it"),
      el("thead", {},
        el("tr", {}, el("th", { rowspan: 2, scope: "col" }, "sub-question"), hops.map((step) => el("th", { colspan: step.rated.length, scope: "colgroup" }, "hop " + step.hop))),
        el("tr", {}, rated.map((passage) => el("th", { scope: "col" }, "#" + passage.row)))),
      el("tbody", {}, titles.map((title, place) => el("tr", {}, el("th", { scope: "row" }, title),
        rated.map((passage) => el("td", {}, cell(passage, title, place)))))))));
  }

  // When each hop ran, and how much of it was the guard's.
  function timeline(run) {
    const hops = run.steps.filter((step) => step.took != null && step.at != null);
    if (!(run.took >= 0.05) || !hops.length) return null;
    return el("section", {}, el("h2", {}, "Where the time went"),
      el("table", { class: "times" }, el("caption", {}, "Of " + number(run.took, run.took < 10 ? 1 : 0) + " ms in all; darker: the guard. Scoring ran beside it and took none of this."),
        el("thead", { class: "unseen" }, el("tr", {}, ["hop", "when", "how long"].map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, hops.map((step) => {
          const track = el("span", { class: "track" }), whole = el("i", { class: "span" });
          whole.style.left = Math.min(100, step.at / run.took * 100) + "%";
          // A guard that judges a tool's result runs after the retrieval; one around a retriever, within it.
          const length = step.guard && step.guard.ms > step.took ? step.took + step.guard.ms : step.took;
          whole.style.width = Math.min(100, length / run.took * 100) + "%";
          if (step.guard) {
            const guard = el("i", { class: "guard" });
            guard.style.width = Math.min(100, step.guard.ms / Math.max(length, 0.001) * 100) + "%";
            whole.append(guard);
          }
          track.append(whole);
          return el("tr", {}, el("th", { scope: "row" }, "hop " + (run.steps.indexOf(step) + 1)), el("td", { class: "wide" }, track),
            el("td", {}, number(length, 1) + " ms" + (step.guard ? ", guard " + number(step.guard.ms, 1) : "")));
        }))));
  }

  const HOP = ["credit", "loss_without", "delta_seper", "delta_seper_alone", "seper", "udcg", "coverage", "delta_coverage", "contested", "delta_seper_selection",
    "delta_coverage_selection", "delta_udcg_selection", "ra_nwg", "selection_efficiency"];
  function numbers(step) {
    const lines = [];
    for (const name of HOP) {
      for (const stage of ["passages", "candidates"]) {
        const score = find(step.scores, name, stage);
        if (!score) continue;
        const about = caption(name), before = stage === "candidates" ? " before the guard" : "";
        lines.push(el("li", { class: name === "contested" && score[1] > 0 ? "warn" : "" }, about.title + before + " ",
          el("b", {}, withError(score, name.startsWith("delta") ? signed : (v) => number(v, name === "udcg" ? 3 : 2))),
          name === "contested" && score[3] ? " · " + score[3] : ""));
      }
    }
    return el("ul", { class: "numbers" }, lines);
  }

  function advised(advice) {
    const why = advice.reasons.length ? ": " + advice.reasons.join("; ") : "";
    return "advice " + advice.action + (advice.calibrated ? "" : " (uncalibrated)") + why + ", " + number(advice.elapsed_ms, 1) + " ms";
  }

  function guarded(step) {
    const gone = step.passages.filter((passage) => !passage.kept).length;
    const did = { pruned: "dropped " + gone, kept_all: "kept all" }[step.guard.status] || "kept all (" + step.guard.status + ": " + step.guard.reason + ")";
    return "guard " + did + " in " + number(step.guard.ms, 1) + " ms";
  }

  // What the application's own calls of models took, as its trace says.
  function calls(models) {
    return models.length ? el("ul", { class: "calls soft" }, models.map((call) => el("li", {}, ["asked " + call.model,
      call.tokens_read == null ? "" : grouped(call.tokens_read) + " tokens read",
      call.tokens_written == null ? "" : grouped(call.tokens_written) + " written",
      call.cost == null ? "" : "$" + call.cost.toPrecision(3), number(call.seconds, 2) + " s"].filter(Boolean).join(" · ")))) : null;
  }

  function conversation(line) {
    const runs = index.runs.map((run, place) => ({ run, place })).filter(({ run }) => line.session && run.session === line.session);
    if (runs.length < 2) return null;
    runs.sort((a, b) => a.run.started - b.run.started);
    return el("nav", { class: "conversation", "aria-label": "Conversation" }, el("h2", {}, "The conversation " + line.session), el("ol", {}, runs.map(({ run, place }) =>
      el("li", {}, run === line ? el("b", {}, run.question) : el("button", { type: "button", on: { click: () => open(place) } }, run.question), el("span", { class: "facts" }, facts(run))))));
  }

  function feedback(line, run) {
    if (!index.events) return run.note ? el("p", {}, "note: " + run.note) : null;
    const note = el("input", { value: run.note, "aria-label": "Note", placeholder: "a note on this run" }), said = el("span", { role: "status" });
    const send = async (thumb) => {
      const reply = await fetch("v1/feedback", { method: "POST", body: JSON.stringify({ run: line.id, thumb, note: note.value }) });
      said.textContent = reply.ok ? "kept" : "not kept: " + await reply.text();
    };
    return el("p", { class: "feedback" }, ["up", "down"].map((thumb) => el("button", { type: "button", "aria-pressed": String(line.thumb === thumb), on: { click: () => send(thumb) } }, "thumb " + thumb)), note, said);
  }

  function hop(step, place, texts, models) {
    const kept = step.passages.filter((passage) => passage.kept).length;
    const facts = [step.tool && "by " + step.tool, step.k && "K = " + step.k + (kept === step.k ? "" : ", " + kept + (kept < step.passages.length ? " kept" : " found")), step.took != null && number(step.took, 1) + " ms", step.status !== "ok" && step.status,
      step.guard && guarded(step), step.advice && advised(step.advice)].filter(Boolean).join(" · ");
    return el("section", { class: "hop", "aria-label": "Hop " + (place + 1) },
      el("header", {}, el("h3", {}, "Hop " + (place + 1)), el("span", { class: "query" }, "“" + step.query + "”"), el("span", { class: "soft" }, facts)),
      step.error ? el("p", { class: "bad" }, step.error) : null,
      step.notice ? el("p", { class: "soft" }, step.notice) : null,
      numbers(step),
      step.remarks.map((remark) => el("p", { class: "soft" }, remark)),
      step.passages.length ? passages(step, texts) : el("p", { class: "soft" }, "No passages came back."),
      calls(models));
  }

  function open(place) {
    state.open = place;
    const line = index.runs[place];
    const { run, texts } = detailOf(place);
    const pair = (score, show, note) => [
      el("dt", {}, caption(score[0]).title.replaceAll("-", "\u2011")), el("dd", {}, withError(score, show)),
      note ? el("dd", { class: "note" }, note) : null];
    const shown = run.scores.filter((score) => !["delta_seper_total", "seper_closed_book", "answer_correct"].includes(score[0]));
    const gain = find(run.scores, "delta_seper_total");
    const after = (call) => run.steps.findLastIndex((step) => step.began <= call.started_ns);
    const asked = run.references.length ? "expected: " + run.references.join(" · ") : "no reference was given";
    $("run").setAttribute("aria-label", "Run: " + line.question);
    $("run").replaceChildren(...[
      el("h2", { class: "question" }, line.question || "(no question)"),
      el("p", { class: "answer" }, el("b", {}, run.answer == null ? "(no answer)" : run.answer), " ",
        line.answer ? el("span", { class: "chip " + judged(line.answer) }, line.answer) : null, " ",
        line.status !== "ok" ? el("span", { class: line.status === "open" ? "chip soft" : "chip bad" }, line.status === "open" ? "running" : line.status) : null, " ", el("span", { class: "soft" }, asked)),
      run.explanation ? el("p", { class: "explanation" }, joined(run.explanation)) : null,
      run.remarks.map((remark) => el("p", { class: "warn" }, remark + ".")),
      [...run.scores, ...run.steps.flatMap((step) => step.scores)].some((score) => score[4])
        ? el("p", { class: "soft" }, "No reference was given: beliefs are in the run's own answer (support).") : null,
      el("div", { class: "sides" }, waterfall(run), el("dl", { class: "facts-list" },
        gain ? pair(gain, signed) : [],
        shown.map((score) => pair(score, (v) => number(v, score[0].startsWith("udcg") ? 3 : 2), score[3])))),
      feedback(line, run),
      calls(run.models.filter((call) => after(call) < 0)),
      ...run.steps.map((step, hopPlace) => hop(step, hopPlace, texts, run.models.filter((call) => after(call) === hopPlace))),
      conversation(line),
      coverage(run),
      timeline(run),
      run.failures.length ? el("section", { class: "failures" }, el("h2", {}, "What could not be scored"), el("ul", {},
        run.failures.map((failure) => el("li", {}, failure)))) : null,
      el("p", { class: "soft small" }, [
        line.started ? new Date(line.started).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "",
        "scored with " + counted(run.cost.prompt + run.cost.output, "token") + " in " + counted(run.cost.requests, "request") + ", " + number(run.cost.seconds) + " s",
        run.cost.engines.join(", "), line.name, "run " + line.id].filter(Boolean).join(" · ")),
    ].flat().filter(Boolean));
    for (const option of $("runs").children) option.setAttribute("aria-selected", "false");
    const row = state.shown.slice(state.page * PAGE, (state.page + 1) * PAGE).findIndex((item) => item.place === place);
    if (row >= 0) {
      state.focus = row;
      $("runs").children[row].setAttribute("aria-selected", "true");
    }
    $("runs").setAttribute("aria-activedescendant", row >= 0 ? "option-" + row : "");
    history.replaceState(null, "", "#" + encodeURIComponent(line.id));
  }

  // On a phone the run stands below the list, and a long one may have been scrolled through.
  function reveal() {
    const { top } = $("run").getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) $("run").scrollIntoView();
  }

  function histogram(title, values, low, high) {
    if (values.length < 2) return null;
    const bins = new Array(20).fill(0), width = 260, height = 90;
    for (const value of values) bins[Math.min(19, Math.max(0, Math.floor((value - low) / (high - low) * 20)))]++;
    const most = Math.max(...bins);
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height + 18}`, width, role: "img",
      "aria-label": title + ": mean " + number(mean(values)) + " over " + values.length + " runs" });
    bins.forEach((count, place) => picture.append(draw("rect", { x: place * 13 + 1, width: 11, rx: 1.5,
      y: height - count / most * height, height: count / most * height, fill: "var(--calm)" })));
    [[0, low, "start"], [width, high, "end"]].forEach(([x, value, anchor]) => {
      const label = draw("text", { x, y: height + 14, "text-anchor": anchor, class: "soft" });
      label.textContent = number(value, 1);
      picture.append(label);
    });
    return el("figure", {}, el("h3", {}, title), picture, el("figcaption", {}, "mean " + number(mean(values), 3) + ", " + runsOf(values.length)));
  }

  function trend(title, name, keep = () => true) {
    const runs = index.runs.filter((run) => run[name] != null && run.started && keep(run)).sort((a, b) => a.started - b.started);
    if (runs.length < 10) return null;
    const groups = 24, width = 260, height = 90, points = [];
    for (let group = 0; group < Math.min(groups, runs.length); group++) {
      const from = Math.floor(group * runs.length / Math.min(groups, runs.length));
      const to = Math.floor((group + 1) * runs.length / Math.min(groups, runs.length));
      points.push(mean(runs.slice(from, to).map((run) => run[name])));
    }
    const low = Math.min(...points), high = Math.max(...points), room = high - low || 1;
    const path = points.map((value, place) => (place ? "L" : "M") + (place / (points.length - 1 || 1) * width).toFixed(1) + " " + (height - (value - low) / room * (height - 8) - 4).toFixed(1)).join("");
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img",
      "aria-label": title + " over time, from " + number(points[0]) + " to " + number(points[points.length - 1]) });
    picture.append(draw("path", { d: path, fill: "none", stroke: "var(--calm)", "stroke-width": 2 }));
    return el("figure", {}, el("h3", {}, title + " over time"), picture,
      el("figcaption", {}, "means of consecutive runs, oldest first; between " + number(low) + " and " + number(high)));
  }

  // A picture of some rows, each with its label, a bar and its number in words.
  function bars(title, rows, about) {
    if (!rows.length) return null;
    const most = Math.max(...rows.map(([, value]) => value)) || 1;
    return el("figure", {}, el("h3", {}, title), el("table", { class: "bars" }, el("thead", { class: "unseen" }, el("tr", {}, ["of", "bar", "number"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map(([label, value, said]) => {
        const bar = el("i", {});
        bar.style.width = Math.max(1, value / most * 100) + "%";
        return el("tr", {}, el("th", { scope: "row" }, label), el("td", {}, bar), el("td", {}, said));
      }))), el("figcaption", {}, about));
  }

  function pictures() {
    const { belief, by, groups, more, cost } = index.pictures;
    const hop = (number) => number ? "after hop " + number : "before";
    $("pictures").append(...[
      belief && bars("Belief by hop", belief.points.map(([at, value, error, runs]) => [hop(at), value, number(value) + (runs > 1 ? " ± " + number(error) : "") + ", " + runsOf(runs)]), belief.title + ", mean ± 1 standard error; 0 to 1."),
      bars("What decided the answers", index.head.causes.filter(([, , count]) => count).map(([, words, count]) => [words.split(":")[0], count, runsOf(count)]), "All runs, by cause."),
      groups.length ? bars("Side by side, by " + by, groups.map(([name, right, judged]) => [name, right / judged, grouped(right) + " of " + grouped(judged) + " right"]), "Share of the judged answers that are right." + (more ? " And " + grouped(more) + " more" + (by === "name of run" ? "; every run with its name: ragguard report DATA --csv FILE." : ".") : "")) : null,
      bars("Cost of scoring a run", cost.map(([hops, tokens, runs]) => [counted(hops, "hop"), tokens, grouped(Math.round(tokens)) + " tokens, " + runsOf(runs)]), "Tokens read and written, on average."),
    ].filter(Boolean));
  }

  // The run that the address names; an address that is no text names none.
  function asked() {
    try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
  }

  $("remarks").append(...index.remarks.map((remark) => el("li", {}, remark)));
  $("remarks").hidden = !index.remarks.length;
  outcomes();
  culprits();
  junk();
  tiles();
  glossary();
  pictures();
  $("selections").textContent = index.selections;
  $("charts").append(...[
    histogram("Belief gained by a run (ΔSePer)", known("gain", FILTERS.gold), -1, 1),
    histogram("Support gained by a run", known("gain", FILTERS.support), -1, 1),
    histogram("List quality of a run (UDCG)", known("udcg"), 0.25, 0.75),
    histogram("Least utility of a passage that a run read", known("worst"), -1, 1),
    histogram("Sub-questions answered (coverage)", known("coverage"), 0, 1),
    trend("ΔSePer", "gain", FILTERS.gold), trend("Support", "gain", FILTERS.support), trend("UDCG", "udcg"), trend("Coverage", "coverage"),
  ].filter(Boolean));
  $("charts-of-all").hidden = !$("charts").children.length;
  $("version").textContent = index.version;
  for (const id of ["search", "sort", "filter"]) $(id).addEventListener("input", choose);
  if (index.events) {  // served live: what was chosen stays when the page comes anew
    for (const id of ["search", "sort", "filter"]) {
      $(id).value = sessionStorage.getItem(id) ?? $(id).value;
      $(id).addEventListener("input", () => sessionStorage.setItem(id, $(id).value));
    }
    new EventSource(index.events).onmessage = () => location.reload();
  }
  $("runs").addEventListener("keydown", keys);
  document.addEventListener("keydown", toSearch);
  if (!index.runs.some((run) => run.misleading)) $("sort").querySelector("[value=harm]").remove();
  choose();
  const named = index.runs.findIndex((run) => run.id === asked());
  if (named >= 0) { open(named); reveal(); }
  else if (state.shown.length) open(state.shown[0].place);
  document.documentElement.dataset.ready = "yes";
})();
