"use strict";
{
  const figures = [...document.querySelectorAll("[data-chart]")];
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  const options = { actions: false, renderer: "svg", ast: true, defaultStyle: false, config };

  const load = (figure) => {
    figure.chart ??= JSON.parse(figure.querySelector("script").textContent);
    return figure.chart;
  };

  // The layer "reading" (what the pointer shows) is left out until a pointer comes near: it is slow to draw.
  const draw = async (figure, isRead) => {
    const { spec, fields, rows } = load(figure);
    const dataset = rows.map((row) => Object.fromEntries(fields.map((field, n) => [field.name, row[n]])));
    const layers = spec.layer && { layer: spec.layer.filter((layer) => isRead || layer.name !== "reading") };
    const plot = figure.querySelector(".plot");
    const { view } = await vegaEmbed(plot, { ...spec, ...layers, datasets: { rows: dataset } }, options);
    figure.view = view;
    figure.querySelector("svg").setAttribute("aria-hidden", "true"); // .plot speaks for it
    figure.dataset.drawn = isRead ? "read" : "yes";
  };

  const shown = (value, kind) => {
    if (value === null) return "";
    return kind === "moment" ? new Date(value).toISOString().replace(".000Z", "Z") : String(value);
  };

  const add = (parent, tag, words) => {
    const element = parent.appendChild(document.createElement(tag));
    if (words !== undefined) element.textContent = words;
    return element;
  };

  const fillTable = (details) => {
    const place = details.querySelector(".rows");
    if (place.firstChild) return;
    const { fields, rows } = load(details.closest("[data-chart]"));
    const table = add(place, "table");
    const head = add(add(table, "thead"), "tr");
    for (const field of fields) add(head, "th", field.heading).scope = "col";
    const body = add(table, "tbody");
    for (const row of rows) {
      const line = add(body, "tr");
      row.forEach((value, n) => {
        add(line, "td", shown(value, fields[n].kind)).className = fields[n].kind;
      });
    }
  };

  // A text that a spreadsheet would take for a formula is kept a text.
  const csvCell = (value, kind) => {
    const words = shown(value, kind);
    const safe = kind === "text" && /^[=+\-@\t\r]/.test(words) ? `'${words}` : words;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };

  const saveCsv = (figure) => {
    const { fields, rows } = load(figure);
    const lines = [fields.map((field) => csvCell(field.heading, "text"))];
    for (const row of rows) lines.push(row.map((value, n) => csvCell(value, fields[n].kind)));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.map((line) => line.join(",")).join("\r\n")], { type: "text/csv" }));
    link.download = `${figure.dataset.chart}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  for (const details of document.querySelectorAll("details.data")) {
    details.addEventListener("toggle", () => fillTable(details));
    details.querySelector("button").addEventListener("click", () => saveCsv(details.closest("[data-chart]")));
  }

  const drawAll = async () => {
    for (const figure of figures) {
      await draw(figure, false);
      if (figure.chart.spec.layer?.some((layer) => layer.name === "reading")) {
        figure.querySelector(".plot").addEventListener("pointerenter", () => draw(figure, true), { once: true });
      }
      await new Promise((resume) => setTimeout(resume));
    }
    document.documentElement.dataset.charts = "drawn";
  };
  drawAll();

  // Paper is narrower than most screens: charts take its width while they are printed, not a smaller type.
  const PAPER_PX = 700;
  const fit = (width) => figures.forEach((figure) => figure.view?.signal("width", width(figure)).run());
  addEventListener("beforeprint", () => fit(() => PAPER_PX));
  addEventListener("afterprint", () => fit((figure) => figure.querySelector(".plot").clientWidth));
}
