// Keeps the page of a task up to date: numbers from server-sent events, the curve from /curve.
const task = document.getElementById("task").dataset.task;
const curve = document.getElementById("curve");
const SHAPE = { left: 64, right: 16, top: 16, bottom: 56, width: 640, height: 280 };
const STANDING = {
  open: () => "Open: devices join by an invite from the operator.",
  paused: () => "The operator has paused this task: devices wait, and nothing is taken until it goes on.",
  draft: () => "This task is a draft: devices can join, and wait until the operator opens it.",
  stopped: (reason) => `This task has ended${reason ? `: ${reason}` : ""}. It takes no more devices and no more check-ins.`,
};

// Noise may push an estimate out of [0, 1], where no error can be.
function clamp(number) {
  return Math.min(1, Math.max(0, number));
}

function put(name, text) {
  document.getElementById(name).textContent = text;
}

function windowWords(recent) {
  return (
    `${clamp(recent.estimate).toFixed(2)} (95 % band ${recent.low.toFixed(2)} to ${recent.high.toFixed(2)}; ` +
    `last ${recent.check_ins} check-ins, ${recent.rows} rows, version ${recent.from_version} to ${recent.to_version})`
  );
}

function show(state) {
  for (const name of ["version", "devices", "check_ins"]) put(name, state[name]);
  const recent = state.recent_error;
  put("recent_error", recent ? clamp(recent.estimate).toFixed(2) : "–");
  put("window", recent ? `Recent error: ${windowWords(recent)}` : "");
  const badge = document.getElementById("state");
  badge.textContent = state.state;
  badge.className = `state ${state.state}`;
  put("standing", STANDING[state.state](state.reason));
}

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Whole numbers from 0 up to `most`: at most five steps, of 1, 2 or 5 times a power of ten.
function wholeTicks(most) {
  let step = 1;
  for (let at = 1; most / step > 5; at += 1) step = [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3);
  const ticks = [];
  for (let at = 0; at <= most; at += step) ticks.push(at);
  return ticks;
}

function draw(points) {
  const measured = points.filter((point) => point.recent_error !== null);
  const byError = measured.length > 1;
  const shown = byError ? measured : points;
  if (shown.length < 2) return;
  const last = shown[shown.length - 1];
  const across = wholeTicks(last.version);
  const upwards = byError ? [0, 0.25, 0.5, 0.75, 1] : wholeTicks(last.check_ins);
  const width = SHAPE.width - SHAPE.left - SHAPE.right;
  const height = SHAPE.height - SHAPE.top - SHAPE.bottom;
  const x = (version) => SHAPE.left + (width * version) / Math.max(1, last.version);
  const y = (number) => SHAPE.top + height * (1 - number / (byError ? 1 : Math.max(1, last.check_ins)));
  curve.replaceChildren();
  for (const tick of upwards) {
    curve.append(element("line", { class: "axis", x1: SHAPE.left, x2: SHAPE.width - SHAPE.right, y1: y(tick), y2: y(tick) }));
    curve.append(element("text", { class: "tick y", x: SHAPE.left - 8, y: y(tick) + 5, "text-anchor": "end" }, tick));
  }
  for (const tick of across) {
    const anchor = tick === last.version ? "end" : "middle";
    curve.append(element("line", { class: "axis", x1: x(tick), x2: x(tick), y1: SHAPE.top + height, y2: SHAPE.top + height + 5 }));
    curve.append(element("text", { class: "tick x", x: x(tick), y: SHAPE.top + height + 22, "text-anchor": anchor }, tick));
  }
  curve.append(element("text", { class: "name", x: SHAPE.left + width / 2, y: SHAPE.height - 8, "text-anchor": "middle" }, "version"));
  const path = (values) => values.map(([version, value], index) => `${index ? "L" : "M"}${x(version).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  if (byError) {
    const upper = shown.map((point) => [point.version, point.recent_error.high]);
    const lower = shown.map((point) => [point.version, point.recent_error.low]).reverse();
    curve.append(element("path", { class: "band", d: `${path([...upper, ...lower])}Z` }));
  }
  const value = (point) => (byError ? clamp(point.recent_error.estimate) : point.check_ins);
  curve.append(element("path", { class: "line", d: path(shown.map((point) => [point.version, value(point)])) }));
  put(
    "curve-text",
    byError
      ? `Error of the recent check-ins by version, and its 95 % band (noise of the private counts, and sampling). Now ${windowWords(last.recent_error)}.`
      : `Check-ins by version: ${last.check_ins} at version ${last.version}. This task sends no counts, so its error is not known.`,
  );
  list(shown, byError);
}

function list(shown, byError) {
  const table = document.querySelector("#curve-table table");
  const row = (cells, kind) => {
    const made = document.createElement("tr");
    for (const cell of cells) made.append(Object.assign(document.createElement(kind), { textContent: cell }));
    return made;
  };
  const names = ["version", "check-ins", ...(byError ? ["recent error", "95 % band"] : [])];
  table.tHead.replaceChildren(row(names, "th"));
  const step = Math.max(1, Math.ceil(shown.length / 20));
  const some = shown.filter((_, at) => (shown.length - 1 - at) % step === 0);
  table.tBodies[0].replaceChildren(
    ...some.map((point) => {
      const recent = point.recent_error;
      const error = byError ? [clamp(recent.estimate).toFixed(2), `${recent.low.toFixed(2)} to ${recent.high.toFixed(2)}`] : [];
      return row([point.version, point.check_ins, ...error], "td");
    }),
  );
  document.getElementById("curve-table").hidden = false;
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
