"use strict";
(() => {
  const GAP = 22; // pixels between panels, as in the charts' configuration
  const LEAST = 190; // a panel narrower than this takes a row of its own
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, tooltip: { theme: "page" },
    ast: true, // expressions are interpreted: the page allows no evaluation of strings
  };

  // Panels are as wide as their container allows; `beside` is what axes take next to each.
  function fitted(specification, width, beside) {
    const panels = specification.concat.length;
    const fits = Math.floor((width + GAP) / (LEAST + beside + GAP));
    const columns = Math.max(1, Math.min(panels, fits));
    const each = Math.floor((width - GAP * (columns - 1)) / columns - beside);
    const copy = structuredClone(specification);
    copy.columns = columns;
    for (const panel of copy.concat) panel.width = Math.max(80, Math.min(each, 420));
    return copy;
  }

  async function draw(host, chart) {
    const width = Math.floor(host.clientWidth);
    if (!width || host.dataset.width === String(width)) return;
    host.dataset.width = String(width);
    let beside = 62;
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const specification = fitted(chart.specification, width, beside);
      chart.view?.finalize();
      chart.view = await vegaEmbed(host.firstElementChild, specification, options);
      const surplus = Number(host.querySelector("svg").getAttribute("width")) - width;
      if (surplus <= 0) return;
      beside += Math.ceil(surplus / specification.columns) + 1;
    }
  }

  async function start() {
    for (const chart of charts) {
      const host = document.getElementById(`chart-${chart.id}`);
      await draw(host, chart);
      let timer = 0;
      new ResizeObserver(() => {
        clearTimeout(timer);
        timer = setTimeout(() => draw(host, chart), 150);
      }).observe(host);
    }
    document.documentElement.dataset.charts = "drawn";
  }

  function offer(button, name, type, content) {
    button?.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([content()], { type }));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  const text = (id) => document.getElementById(id).textContent;
  offer(document.getElementById("save-json"), "records.json", "application/json", () => text("records"));
  offer(document.getElementById("save-csv"), "records.csv", "text/csv", () => JSON.parse(text("records-csv")));
  start();
})();
