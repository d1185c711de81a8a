"use strict";
(() => {
  const root = document.documentElement;
  const text = (id) => document.getElementById(id)?.textContent;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const pause = () => new Promise((done) => setTimeout(done));

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // What is said to readers of the page aloud.
  const said = document.body.appendChild(make("p", { class: "unseen", role: "status" }));

  function save(name, type, content) {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    said.textContent = `Saved ${name}`;
  }

  // Charts: each panel is a drawing of its own, drawn when it comes into view, the others when there is time.
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { theme: "page", disableDefaultStyle: true },
    ast: true, // expressions are interpreted: the page allows no evaluation of strings
  };
  const PAUSE_MS = 100; // of drawing between looks at what the reader does: each look lays the page out anew
  const TOP = 13; // pixels from a panel's title to its plot
  const panels = new Map();

  function namesOf(value, found = new Set()) {
    if (value && typeof value === "object") {
      if (value.data?.name) found.add(value.data.name);
      Object.values(value).forEach((inner) => namesOf(inner, found));
    }
    return found;
  }

  function place(chart) {
    const inner = chart.host.firstElementChild;
    const { concat, data, datasets, config, $schema } = chart.specification;
    inner.style.setProperty("--least", `${concat[0].width}px`);
    for (const { title, ...panel } of concat) {
      const own = { $schema, data, ...panel, config }; // `data` where there is but one panel
      own.datasets = Object.fromEntries([...namesOf(own)].map((name) => [name, datasets[name]]));
      if (own.height.step) own.height = own.height.step * rowsOf(own);
      const plot = make("div", { class: "plot" });
      plot.style.minHeight = `${own.height + 55}px`; // with its axis
      inner.append(make("div", { class: "panel" }, make("p", { dir: "auto", title }, title), plot));
      panels.set(plot, { chart, plot, specification: own });
    }
  }

  // How many rows a panel has along y: as many as there are names there.
  function rowsOf({ encoding, layer, datasets }) {
    const { field } = encoding?.y ?? layer.find((one) => one.encoding?.y?.field).encoding.y;
    return new Set(Object.values(datasets).flat().map((row) => row[field])).size;
  }

  function draw(panel, width = widthOf(panel)) {
    if (width && panel.width !== width) {
      panel.width = width;
      const specification = { ...panel.specification, width, autosize: { type: "fit-x", contains: "padding" } };
      panel.drawn = Promise.resolve(panel.drawn).then(async (before) => {
        before?.finalize();
        const view = await vegaEmbed(panel.plot, specification, options);
        panel.plot.style.minHeight = "";
        // Plots of one row begin at the same height, whether or not a label stands out above.
        panel.plot.style.paddingTop = `${Math.max(0, TOP - view.view.origin()[1])}px`;
        hide(panel.chart, panel.plot);
        return view;
      });
    }
    return panel.drawn;
  }

  const widthOf = (panel) => Math.floor(panel.plot.clientWidth);

  async function drawAll() {
    const widths = [...panels.values()].map(widthOf); // at once, before anything is drawn
    let since = 0;
    for (const [i, panel] of [...panels.values()].entries()) {
      if (performance.now() - since > PAUSE_MS) {
        await pause();
        since = performance.now();
      }
      await draw(panel, widths[i]);
    }
    charts.forEach(count);
    root.dataset.charts = "drawn";
    performance.mark("charts"); // read by the project's benchmark of this page, as the one below
  }

  // Series: their marks are hidden where they stand, so that the axes stay.
  function hide(chart, within = chart.host) {
    const off = all(".keys [aria-pressed=false]", chart.figure).map((one) => one.dataset);
    if (!off.length && within !== chart.host) return; // drawn just now, with all its series
    for (const node of all("svg *", within)) {
      const row = node.__data__?.datum; // Vega keeps the mark at its element
      if (row) node.style.visibility = off.some(({ field, name }) => row[field] === name) ? "hidden" : "";
    }
  }

  function keys(chart) {
    for (const button of all(".keys button", chart.figure)) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
        hide(chart);
        count(chart);
      });
    }
  }

  // Values: a slider steps through what hovering tells, panel by panel from left to right.
  const PLAIN = new Set(["model", "precision", "value"]); // these need no name
  const words = (told) =>
    Object.entries(told).map(([name, value]) => (PLAIN.has(name) ? value : `${name} ${value}`)).join(", ");

  function count(chart) {
    const found = new Map();
    all(".plot", chart.host).forEach((plot, number) => {
      for (const node of all("svg *", plot)) {
        const told = node.__data__?.tooltip;
        if (!told || node.style.visibility === "hidden") continue;
        found.set(`${number} ${words(told)}`, { node, told, number, x: node.getBoundingClientRect().x });
      }
    });
    chart.values = [...found.values()].sort((a, b) => a.number - b.number || a.x - b.x);
    if (!chart.slider) return;
    chart.slider.max = Math.max(chart.values.length - 1, 0);
    chart.slider.disabled = !chart.values.length;
    chart.marked?.classList.remove("told");
    chart.slider.nextElementSibling.textContent = "";
    chart.slider.setAttribute("aria-valuetext", `${chart.values.length} values`);
  }

  function values(chart) {
    chart.slider = chart.figure.querySelector(".values input");
    chart.slider?.addEventListener("input", () => {
      const { node, told } = chart.values[chart.slider.value];
      chart.marked?.classList.remove("told");
      chart.marked = node;
      node.classList.add("told");
      chart.slider.nextElementSibling.textContent = words(told);
      chart.slider.setAttribute("aria-valuetext", words(told));
    });
  }

  // Tables: each column sorts them, up, down, and back to the order in which they were made.
  const TURN = { none: "ascending", ascending: "descending", descending: "none" };
  const collator = new Intl.Collator("en", { numeric: true });
  const number = (cell) => Number(cell.dataset.raw?.split(" ", 1)[0]); // of an interval the low end
  const absent = (cell) => cell.dataset.raw === undefined;

  function order(rows, column, direction) {
    if (direction === "none") return rows;
    const cells = rows.map((row) => row.cells[column]);
    const numbers = cells.some((cell) => cell.matches(".right") && !Number.isNaN(number(cell)));
    const last = numbers ? (cell) => Number.isNaN(number(cell)) : absent; // either way
    const sign = direction === "ascending" ? 1 : -1;
    return [...rows].sort((a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      if (last(x) || last(y)) return last(x) - last(y);
      return sign * (numbers ? number(x) - number(y) : collator.compare(x.textContent, y.textContent));
    });
  }

  function sortable(table, heads) {
    const body = table.tBodies[0];
    const made = [...body.rows];
    for (const [column, head] of heads.entries()) {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const direction = TURN[head.getAttribute("aria-sort")];
        heads.forEach((one) => one.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", direction);
        table.classList.toggle("sorted", direction !== "none");
        body.append(...order(made, column, direction));
        const sorted = `Sorted by ${head.dataset.name}, ${direction}`;
        said.textContent = direction === "none" ? "In its first order" : sorted;
      });
    }
  }

  // A table as CSV: as shown, and beside it the raw values where these say more.
  function csv(table, heads) {
    const rows = [...table.tBodies[0].rows];
    const columns = heads.flatMap((head, place) => {
      const cells = rows.map((row) => row.cells[place]);
      const raws = cells.map((cell) => cell.dataset.raw ?? "");
      const { name } = head.dataset;
      const shown = [name, ...cells.map((cell) => cell.textContent)];
      if (cells.every((cell, i) => raws[i] === "" || raws[i] === cell.textContent)) return [shown];
      if (!raws.every((raw) => raw === "" || isRange(raw))) return [shown, [`${name}, raw`, ...raws]];
      const end = (title, i) => [`${name}, raw ${title}`, ...raws.map((raw) => raw.split(" ")[i] ?? "")];
      return [shown, end("low", 0), end("high", 1)];
    });
    const lines = [0, ...rows.keys()].map((_, line) => columns.map((one) => field(one[line])).join(","));
    return `${lines.join("\n")}\n`;
  }

  function isRange(raw) {
    const ends = raw.split(" ");
    return ends.length === 2 && !ends.some((one) => Number.isNaN(Number(one)));
  }

  function field(value) {
    const safe = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value; // no formula
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function equip(table) {
    const heads = [...table.tHead.rows[0].cells];
    for (const head of heads) {
      const unit = head.querySelector("small")?.textContent;
      head.dataset.name = head.firstChild.textContent + (unit ? ` (${unit})` : "");
    }
    const tools = table.closest(".sheet")?.querySelector(".tools");
    const title = table.caption.textContent;
    const button = make("button", { type: "button" }, "Save as CSV", make("span", { class: "unseen" }, `: ${title}`));
    const name = `${table.closest("[id]").id.replace(/^table-/, "")}.csv`;
    button.addEventListener("click", () => save(name, "text/csv", csv(table, heads)));
    tools?.prepend(button);
    if (table.tBodies[0].rows.length > 1) sortable(table, heads);
  }

  // The page.
  function offer(id, name, type, content) {
    document.getElementById(id)?.addEventListener("click", () => save(name, type, content()));
  }
  offer("save-json", "records.json", "application/json", () => text("records"));
  offer("save-csv", "records.csv", "text/csv", () => JSON.parse(text("records-csv")));

  const look = document.getElementById("look");
  look?.addEventListener("change", () => { root.dataset.look = look.value; });

  function reveal() {
    const closed = document.querySelector(":target")?.closest("details");
    if (closed) closed.open = true;
  }
  addEventListener("hashchange", reveal);
  reveal();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

  all("table").forEach(equip);
  const charts = JSON.parse(text("charts") ?? "[]");
  for (const chart of charts) {
    chart.host = document.getElementById(`chart-${chart.id}`);
    chart.figure = chart.host.closest("figure") ?? chart.host;
    place(chart);
    keys(chart);
    values(chart);
  }
  const seen = new IntersectionObserver((entries) => {
    const inView = entries.filter((one) => one.isIntersecting).map((one) => draw(panels.get(one.target)));
    if (inView.length) Promise.all(inView).then(() => performance.mark("charts in view"));
  }, { rootMargin: "400px" });
  for (const plot of panels.keys()) seen.observe(plot);
  let timer = 0;
  let before = innerWidth;
  new ResizeObserver(() => {
    if (before === innerWidth) return;
    before = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 150);
  }).observe(document.body);
  drawAll();
})();
