// Keeps the page of a task up to date: numbers from server-sent events, the curve from /curve.
const task = document.getElementById("task-script").dataset.task;
const curve = document.getElementById("curve");
const SHAPE = { left: 56, right: 12, top: 16, bottom: 36, width: 640, height: 240 };

function show(state) {
  for (const name of ["version", "devices", "check_ins"]) document.getElementById(name).textContent = state[name];
  const error = state.estimated_error;
  document.getElementById("estimated_error").textContent = error === null ? "–" : error.toFixed(3);
  const badge = document.getElementById("state");
  badge.textContent = state.state;
  badge.className = `state ${state.state}`;
  document.getElementById("reason").textContent = state.reason ?? "";
}

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(points) {
  const measured = points.filter((point) => point.estimated_error !== null);
  const byError = measured.length > 1;
  const shown = byError ? measured : points;
  const caption = document.getElementById("curve-text");
  if (shown.length < 2) return;
  const value = (point) => (byError ? Math.min(1, Math.max(0, point.estimated_error)) : point.version);
  const across = (point) => point.check_ins;
  const last = shown[shown.length - 1];
  const most = byError ? 1 : Math.max(1, value(last));
  const x = (point) => SHAPE.left + ((SHAPE.width - SHAPE.left - SHAPE.right) * across(point)) / Math.max(1, across(last));
  const y = (number) => SHAPE.top + (SHAPE.height - SHAPE.top - SHAPE.bottom) * (1 - number / most);
  curve.replaceChildren();
  for (const mark of [0, 0.5, 1]) {
    const level = y(mark * most);
    curve.append(element("line", { class: "axis", x1: SHAPE.left, x2: SHAPE.width - SHAPE.right, y1: level, y2: level }));
    curve.append(element("text", { x: SHAPE.left - 6, y: level + 4, "text-anchor": "end" }, byError ? mark : Math.round(mark * most)));
  }
  curve.append(element("text", { x: SHAPE.left, y: SHAPE.height - 10 }, "0"));
  curve.append(element("text", { x: SHAPE.width - SHAPE.right, y: SHAPE.height - 10, "text-anchor": "end" }, `${across(last)} check-ins`));
  const path = shown.map((point, index) => `${index ? "L" : "M"}${x(point).toFixed(1)} ${y(value(point)).toFixed(1)}`).join("");
  curve.append(element("path", { class: "line", d: path }));
  caption.textContent = byError
    ? `Error as estimated from private counts: ${value(last).toFixed(3)} after ${across(last)} check-ins.`
    : `Version ${last.version} after ${across(last)} check-ins; this task sends no counts, so its error is not known.`;
}

async function refresh() {
  const answer = await fetch(`/v1/tasks/${task}/curve`);
  if (answer.ok) draw((await answer.json()).curve);
}

let waiting = false;
const events = new EventSource(`/v1/tasks/${task}/events`);
events.addEventListener("state", (event) => {
  const state = JSON.parse(event.data);
  show(state);
  if (state.state === "stopped") events.close();
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; refresh(); }, 500);
});
refresh();
