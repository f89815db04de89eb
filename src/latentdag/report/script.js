// The page reads without this script; it adds details on hover and focus, filters, sorting and downloads.
// Labels come from data and are never parsed as markup: text goes in through textContent only.
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const $ = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const { latents, edges } = report;
  const index = new Map(latents.map((z, i) => [z.latent, i]));
  const ends = edges.map((e) => [index.get(e.source), index.get(e.target)]);
  const nodes = all(".node"), lines = all(".edge"), drawing = $("drawing"), canvas = $("canvas"), details = $("details");
  const level = Math.round(100 * report.level);

  // ---- small helpers

  const make = (tag, text, cls) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (cls) made.className = cls;
    return made;
  };
  const number = (x, digits = 3) => {
    if (x === null || x === undefined) return "–";
    if (x === 0) return "0";
    const size = Math.abs(x), odd = size < 1e-3 || size >= 1e6;
    return (odd ? x.toExponential(1) : size >= 1000 ? x.toFixed(0) : x.toPrecision(digits)).replaceAll("-", "−");
  };
  const span = (low, high) => (low === null || low === undefined ? "no interval" : `${level} % interval ${number(low)} to ${number(high)}`);
  const chance = (p) => (p === 0 ? "< 1e−300" : `= ${number(p, 2)}`);
  const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const save = (name, type, text) => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // ---- details of a latent or an edge

  const linkTo = (label, act) => {
    const button = make("button", label);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  };
  const list = (title, items, root = details) => {
    if (!items.length) return;
    root.append(make("h4", title));
    const ul = make("ul");
    for (const item of items) {
      const li = make("li");
      li.append(...[].concat(item));
      ul.append(li);
    }
    root.append(ul);
  };
  const features = (z, n) => z.features.slice(0, n).map((f) => `${f.feature}  (${number(f.correlation, 2)})`);
  const edgeLine = (e, other) => [
    linkTo(edges[e][other], () => pick({ edge: e }, true)),
    ` ${number(edges[e].standardized_weight)}` + (edges[e].standardized_lower === null ? "" : ` (${number(edges[e].standardized_lower)} to ${number(edges[e].standardized_upper)})`),
  ];
  const touching = (i, end) => ends.flatMap((pair, e) => (pair[end] === i && !lines[e].classList.contains("hidden") ? [e] : []));

  function describeNode(i) {
    const z = latents[i];
    details.append(make("h3", z.latent), make("p", z.idle ? "idle: no change shows in its contexts" : z.equation, "equation"));
    for (const change of z.interventions) {
      const shift = Math.abs(change.shift) >= 0.005 ? ` and moves its mean by ${change.shift.toFixed(2).replace("-", "−")} s.d.` : "";
      const what = !z.causes.length && change.kind !== "do" ? "hits it" : { perfect: "cuts it from its causes", soft: "changes how its causes act", do: "sets it to a value" }[change.kind];
      details.append(make("p", `Context ${change.context} ${what}${shift}; its noise has s.d. ${number(change.noise_sd)} there, ${number(change.noise_sd_control)} in the control.`));
    }
    if (!z.interventions.length) details.append(make("p", "No context hits this latent."));
    list(`Causes, effect in s.d. (${level} % interval)`, touching(i, 1).map((e) => edgeLine(e, "source")));
    list(`Acts on (${level} % interval)`, touching(i, 0).map((e) => edgeLine(e, "target")));
    list("Strongest features (correlation)", features(z, 6));
    const explained = z.causes.length ? `; causes explain ${number(100 * z.explained, 2)}\u00a0% of its variance` : "";
    details.append(make("p", `${many(z.ancestors, "ancestor")}, ${many(z.descendants, "descendant")}${explained}.`, "held"));
  }

  function describeEdge(e) {
    const edge = edges[e], [from, to] = ends[e].map((i) => latents[i]);
    details.append(make("h3", `${edge.source} → ${edge.target}`), make("p", to.equation, "equation"));
    const facts = [
      `One s.d. more of ${edge.source} moves ${edge.target} by ${number(edge.standardized_weight)} s.d. (${span(edge.standardized_lower, edge.standardized_upper)}).`,
      `Weight ${number(edge.weight)} (${span(edge.lower, edge.upper)}).`,
    ];
    if (edge.q_value !== null) facts.push(`p ${chance(edge.p_value)}, q ${chance(edge.q_value)}.`);
    if (edge.bootstrap_frequency !== undefined && edge.bootstrap_frequency !== null) facts.push(`In ${number(100 * edge.bootstrap_frequency)} % of the bootstrap replicates.`);
    for (const fact of facts) details.append(make("p", fact));
    list("Ends", ends[e].map((i) => linkTo(latents[i].latent, () => pick({ node: i }, true))));
    list(`Strongest features of ${from.latent}`, features(from, 4));
    list(`Strongest features of ${to.latent}`, features(to, 4));
  }

  // ---- what is shown: held by a click or Enter, else under the pointer or focus

  let held = null;

  function reach(start, against) {
    const seen = new Set([start]), through = new Set(), queue = [start];
    while (queue.length) {
      const i = queue.pop();
      ends.forEach((pair, e) => {
        if (pair[against ? 1 : 0] !== i || lines[e].classList.contains("hidden")) return;
        through.add(e);
        const next = pair[against ? 0 : 1];
        if (!seen.has(next)) { seen.add(next); queue.push(next); }
      });
    }
    return [seen, through];
  }

  function show(what) {
    for (const part of [...nodes, ...lines]) part.classList.remove("active", "related");
    drawing.classList.toggle("selecting", what !== null);
    details.replaceChildren();
    if (what === null) { details.append(make("p", "Point at, tap or tab to a latent or an edge.", "quiet")); return; }
    if (what.node !== undefined) {
      const mode = $("highlight").value;
      for (const against of [true, false]) {
        if (mode !== "both" && (mode === "up") !== against) continue;
        const [seen, through] = reach(what.node, against);
        seen.forEach((i) => nodes[i].classList.add("related"));
        through.forEach((e) => lines[e].classList.add("related"));
      }
      nodes[what.node].classList.add("active");
      describeNode(what.node);
    } else {
      lines[what.edge].classList.add("active");
      ends[what.edge].forEach((i) => nodes[i].classList.add("related"));
      describeEdge(what.edge);
    }
    if (held) details.append(make("p", "Held. Escape, or a click beside it, lets go.", "held"));
  }

  const part = (what) => (what.node !== undefined ? nodes[what.node] : lines[what.edge]);
  function pick(what, hold) {
    if (hold) held = what;
    show(what);
    if (!hold) return;
    part(what).scrollIntoView({ block: "nearest", inline: "nearest" });
    if (window.innerWidth <= 900) canvas.scrollIntoView({ block: "start" }); // the panel stands below it
  }
  const rest = () => show(held);

  const wire = (element, what) => {
    element.addEventListener("pointerenter", () => { if (!held) show(what); });
    element.addEventListener("pointerleave", () => { if (!held) rest(); });
    element.addEventListener("focus", () => { if (element.matches(":focus-visible")) { held = null; show(what); } });
    element.addEventListener("click", (event) => {
      event.stopPropagation();
      if (held && part(held) === element) { held = null; show(what); } else pick(what, true);
    });
  };
  nodes.forEach((element, i) => wire(element, { node: i }));
  lines.forEach((element, e) => wire(element, { edge: e }));
  canvas.addEventListener("click", () => { held = null; show(null); });

  // ---- keyboard: one stop for the whole graph, arrows inside it

  const at = report.graph.nodes;
  const current = () => nodes.indexOf(document.activeElement);
  function focusNode(i) {
    nodes.forEach((element, j) => element.setAttribute("tabindex", j === i ? "0" : "-1"));
    nodes[i].focus({ preventScroll: true });
    nodes[i].scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function neighbour(i, key) {
    const sideways = key === "ArrowLeft" || key === "ArrowRight", sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
    let best = -1, least = Infinity;
    at.forEach((node, j) => {
      const dx = node.x - at[i].x, dy = node.y - at[i].y, along = sideways ? dx : dy, across = sideways ? dy : dx;
      if (j === i || along * sign <= 0.5 || (sideways && Math.abs(across) > 1)) return;
      const cost = sideways ? Math.abs(along) : 4 * Math.abs(along) + Math.abs(across);
      if (cost < least) { least = cost; best = j; }
    });
    return best;
  }
  let around = [], turn = 0;
  drawing.addEventListener("keydown", (event) => {
    const i = current(), e = lines.indexOf(document.activeElement);
    if (event.key === "Escape") { held = null; show(null); event.preventDefault(); return; }
    if (event.key === "Enter" || event.key === " ") {
      if (i >= 0) pick({ node: i }, true); else if (e >= 0) pick({ edge: e }, true);
      event.preventDefault();
    } else if (event.key.startsWith("Arrow")) {
      const from = i >= 0 ? i : e >= 0 ? ends[e][event.key === "ArrowUp" ? 0 : 1] : -1;
      const to = i >= 0 ? neighbour(i, event.key) : from;
      if (to >= 0) focusNode(to);
      event.preventDefault();
    } else if (event.key.toLowerCase() === "e" && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (i >= 0) { around = [...touching(i, 1), ...touching(i, 0)]; turn = 0; } else turn += 1;
      if (around.length) lines[around[turn % around.length]].focus();
      event.preventDefault();
    }
  });

  // ---- filters

  function filterEdges() {
    const least = Number($("threshold").value), most = $("q-filter").value;
    let shown = 0;
    edges.forEach((edge, e) => {
      const keep = Math.abs(edge.standardized_weight) >= least && (most === "" || (edge.q_value !== null && edge.q_value <= Number(most)));
      lines[e].classList.toggle("hidden", !keep);
      shown += keep;
    });
    $("threshold-value").textContent = least.toFixed(2);
    const why = least > 0 && least === report.graph.threshold && most === "" ? ": the strongest. Move the slider for more" : "";
    $("edge-count").textContent = `${shown} of ${edges.length} edges shown${why}`;
    if (held && held.edge !== undefined && lines[held.edge].classList.contains("hidden")) held = null;
    rest();
  }
  if (report.graph.threshold > 0) filterEdges();
  $("threshold").addEventListener("input", filterEdges);
  $("q-filter").addEventListener("change", filterEdges);
  $("highlight").addEventListener("change", rest);
  $("find").addEventListener("input", () => {
    const wanted = $("find").value.trim().toLowerCase();
    let i = latents.findIndex((z) => z.latent.toLowerCase() === wanted);
    if (i < 0 && wanted) i = latents.findIndex((z) => z.latent.toLowerCase().startsWith(wanted));
    if (i >= 0 && wanted) pick({ node: i }, true); else { held = null; show(null); }
  });
  for (const button of all(".goto")) button.addEventListener("click", () => {
    const i = Number(button.dataset.latent);
    $("graph").scrollIntoView();
    pick({ node: i }, true);
    focusNode(i);
  });
  if ($("card-filter")) $("card-filter").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    all(".card").forEach((card, i) => {
      const z = latents[i];
      card.hidden = wanted !== "" && ![z.latent, ...z.features.map((f) => f.feature)].some((text) => text.toLowerCase().includes(wanted));
    });
  });

  // ---- zoom by size, so that scrolling, touch and keyboard pan as everywhere else

  const natural = { width: report.graph.width, height: report.graph.height };
  let scale = 1;
  const fitted = () => Math.min((canvas.clientWidth - 4) / natural.width, 0.8 * window.innerHeight / natural.height, 1.25);
  function zoom(to) {
    const middle = { x: (canvas.scrollLeft + canvas.clientWidth / 2) / scale, y: (canvas.scrollTop + canvas.clientHeight / 2) / scale };
    scale = Math.min(Math.max(to, 0.15), 4);
    drawing.setAttribute("width", natural.width * scale);
    drawing.setAttribute("height", natural.height * scale);
    canvas.scrollLeft = middle.x * scale - canvas.clientWidth / 2;
    canvas.scrollTop = middle.y * scale - canvas.clientHeight / 2;
    $("larger").hidden = canvas.scrollWidth <= canvas.clientWidth + 2 && canvas.scrollHeight <= canvas.clientHeight + 2;
  }
  $("zoom-in").addEventListener("click", () => zoom(scale * 1.25));
  $("zoom-out").addEventListener("click", () => zoom(scale / 1.25));
  $("zoom-fit").addEventListener("click", () => zoom(fitted()));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, { passive: false });
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0 || event.target.closest(".node, .edge")) return;
    grip = { x: event.clientX + canvas.scrollLeft, y: event.clientY + canvas.scrollTop };
  });
  window.addEventListener("pointermove", (event) => {
    if (!grip) return;
    canvas.classList.add("dragging");
    canvas.scrollLeft = grip.x - event.clientX;
    canvas.scrollTop = grip.y - event.clientY;
  });
  window.addEventListener("pointerup", () => { grip = null; canvas.classList.remove("dragging"); });
  zoom(Math.max(fitted(), 0.77)); // labels of ten pixels can be read; larger graphs scroll
  canvas.scrollTop = 0;

  // ---- tables

  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = Array.isArray(value) ? value.join("; ") : String(value);
    return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (table) => [table.columns.map((c) => cell(c.key)), ...report[table.id].map((row) => table.columns.map((c) => cell(row[c.key])))]
    .map((row) => row.join(",")).join("\r\n") + "\r\n";
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true, sensitivity: "base" });
  };
  for (const table of report.tables) {
    const element = document.querySelector(`table[data-table="${table.id}"]`), body = element.tBodies[0];
    const records = report[table.id], rows = all("tr", body);
    for (const button of all(".sort", element)) button.addEventListener("click", () => {
      const th = button.closest("th"), key = button.dataset.key, up = th.getAttribute("aria-sort") !== "ascending";
      const value = (i) => (Array.isArray(records[i][key]) ? records[i][key].join(", ") : records[i][key]);
      const empty = (x) => x === null || x === undefined || x === "";
      const order = records.map((_, i) => i).sort((i, j) => {
        const a = value(i), b = value(j);
        if (empty(a) || empty(b)) return empty(a) - empty(b) || i - j; // what is not known comes last either way
        return (up ? 1 : -1) * compare(a, b) || i - j;
      });
      all("th", element).forEach((other) => other.setAttribute("aria-sort", other === th ? (up ? "ascending" : "descending") : "none"));
      body.append(...order.map((i) => rows[i]));
    });
    const filter = document.querySelector(`.filter[data-table="${table.id}"]`);
    if (filter) filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      rows.forEach((row) => { row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted); });
    });
    document.querySelector(`.download[data-table="${table.id}"]`).addEventListener("click", () => save(`latentdag-${table.id}.csv`, "text/csv;charset=utf-8", csv(table)));
  }
  $("download-json").addEventListener("click", () => save("latentdag-report.json", "application/json", JSON.stringify(report, null, 1)));
})();
