"use strict";
// Sortable tables: a click on a heading sorts by its column, a second click reverses the order.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const first = body.rows[0] && body.rows[0].cells[column];
    const numeric = first && first.dataset.v !== undefined;
    if (numeric) head.classList.add("n");
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort === "descending" || (!head.ariaSort && !numeric);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const key = (row) => numeric ? Number(row.cells[column].dataset.v) : row.cells[column].textContent;
      const order = (a, b) => numeric ? key(a) - key(b) : key(a).localeCompare(key(b));
      body.append(...[...body.rows].sort((a, b) => down ? order(a, b) : order(b, a)));
    });
  });
}

// Charts over time: show the values of the second under the pointer.
const seconds = JSON.parse(document.getElementById("seconds").textContent);
const clock = (t) => `${Math.floor(t / 60)}:${String(t % 60).padStart(2, "0")}`;
const digits = (v) => v >= 100 ? Math.round(v).toLocaleString("en") : Number(v.toPrecision(3)).toString();
const time = (ms) => ms >= 1000 ? `${digits(ms / 1000)} s` : ms >= 1 ? `${digits(ms)} ms` : `${digits(ms * 1000)} µs`;
for (const svg of document.querySelectorAll("svg[data-show]")) {
  const shown = svg.dataset.show.split(",").filter(Boolean).map((part) => part.split(":"));
  const last = seconds.t[seconds.t.length - 1];
  if (!shown.length || !last) continue;
  const figure = svg.closest("figure");
  const whole = svg.viewBox.baseVal.width;
  const [left, right] = [Number(svg.dataset.left), Number(svg.dataset.right)];
  const cursor = document.createElementNS(svg.namespaceURI, "path");
  cursor.setAttribute("class", "cursor");
  const tip = document.createElement("div");
  tip.className = "tip";
  const leave = () => { cursor.remove(); tip.remove(); };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * whole;
    const at = (x - left) / (right - left) * last;
    const i = seconds.t.findIndex((t) => t >= at);
    if (at < 0 || i < 0) return leave();
    const middle = (seconds.t[i] + (i ? seconds.t[i - 1] : 0)) / 2;
    const place = left + middle / last * (right - left);
    cursor.setAttribute("d", `M${place} ${svg.dataset.top}V${svg.dataset.bottom}`);
    svg.append(cursor);
    const title = document.createElement("b");
    title.textContent = clock(seconds.t[i]);
    const rows = shown.filter(([name]) => seconds[name][i] !== null).map(([name, label]) => {
      const row = document.createElement("span");
      const value = document.createElement("i");
      value.textContent = /^(p\d|max)/.test(name) ? time(seconds[name][i]) : digits(seconds[name][i]);
      row.append(label, value);
      return row;
    });
    tip.replaceChildren(title, ...rows);
    figure.append(tip);
    const around = figure.getBoundingClientRect();
    const from = box.left - around.left + place / whole * box.width;
    const flip = from + tip.offsetWidth + 24 > figure.clientWidth;
    tip.style.left = `${flip ? from - tip.offsetWidth - 12 : from + 12}px`;
    tip.style.top = `${box.top - around.top + 8}px`;
  });
}
