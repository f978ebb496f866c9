// Keeps the page of a task up to date: numbers at once, by server-sent events; what the server draws, a little later.
const task = document.getElementById("task").dataset.task;
const PAUSE_MS = 3000;
const NUMBERS = ["version", "devices", "check_ins", "state"];
let told = null;

function put(name, text) {
  const found = document.getElementById(name);
  if (found && found.textContent !== text) found.textContent = text;
}

// What the page writes for a word or a number of the state.
const written = (value) => value.toLocaleString("en");

// Shows a state; says whether the page showed another one.
function show(state) {
  const changed = told !== null || NUMBERS.some((name) => document.getElementById(name).textContent !== written(state[name]));
  told = state;
  for (const name of NUMBERS) put(name, written(state[name]));
  return changed;
}

// Takes every part that may have changed from a fresh copy of this page; what is open or focused stays so.
async function refresh() {
  const answer = await fetch(`/tasks/${task}?live`, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  // The server may hand out a copy that is a moment old; then it is asked once more.
  if (NUMBERS.some((name) => told && fresh.getElementById(name).textContent !== written(told[name]))) soon();
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!other || part.outerHTML === other.outerHTML) continue;
    if (part.querySelector("[data-live]")) adopt(part, other);
    else if (!part.contains(document.activeElement) || part === document.activeElement) fill(part, other);
  }
}

function fill(part, other) {
  part.className = other.className;
  part.replaceChildren(...other.childNodes);
}

// A part that holds others is taken whole only where a new one has come into it.
function adopt(part, other) {
  if (part.querySelectorAll("[data-live]").length !== other.querySelectorAll("[data-live]").length) fill(part, other);
}

let due = false;
let last = 0;
function soon() {
  if (due) return;
  due = true;
  const wait = Math.max(300, last + PAUSE_MS - Date.now());
  setTimeout(async () => {
    due = false;
    last = Date.now();
    if (!document.hidden) await refresh().catch(() => soon());
  }, wait);
}

const events = new EventSource(`/v1/tasks/${task}/events`);
events.addEventListener("state", (event) => {
  const state = JSON.parse(event.data);
  if (show(state)) soon();
  if (state.state === "stopped") events.close();
});
// Groups move on without a new version.
if (document.getElementById("groups")) setInterval(soon, PAUSE_MS);
document.addEventListener("visibilitychange", () => { if (told) soon(); });
