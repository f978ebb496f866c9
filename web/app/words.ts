/** What an owner is told: how the device stands, and what can be done about it. */

import type { Reason } from "../core/index.js";

export type Standing = Reason | "ready" | "paused" | "withdrawn" | Local;
/** What the page itself finds out, beside what the engine does. */
export type Local = "collecting" | "no-sensor" | "no-permission" | "hidden" | "none-here";

interface Words {
  /** The badge beside the name of the task. */
  readonly badge: string;
  /** Colour of badge and notice: good, warn, bad or none. */
  readonly tone: "good" | "warn" | "bad" | "";
  /** What it means for the owner; what the engine says stands before it. */
  readonly meaning: string;
}

const SAFE = "Nothing is lost, and nothing is spent twice.";

export const STANDINGS: Record<Standing, Words> = {
  collecting: { badge: "collecting", tone: "good", meaning: "" },
  ready: { badge: "ready", tone: "good", meaning: "" },
  "few-rows": { badge: "ready", tone: "good", meaning: "" },
  paused: { badge: "paused by you", tone: "warn", meaning: "Nothing is sent until you resume." },
  withdrawn: {
    badge: "withdrawn",
    tone: "",
    meaning: "You have left this task. The server has erased this device, and your samples are erased here.",
  },
  hidden: { badge: "in the background", tone: "warn", meaning: "Nothing is measured while this page is hidden." },
  "no-sensor": {
    badge: "no sensor",
    tone: "bad",
    meaning: "This device reports no motion. Open your invite on a phone, or use the model here.",
  },
  "no-permission": {
    badge: "not allowed",
    tone: "bad",
    meaning:
      "The browser may not read the motion sensor, so nothing is measured. Allow motion for this site in the browser's settings, then try again.",
  },
  offline: { badge: "offline", tone: "warn", meaning: SAFE },
  waiting: { badge: "waiting", tone: "warn", meaning: "It goes on by itself; you can collect meanwhile." },
  ended: { badge: "ended", tone: "", meaning: "Nothing leaves this device any more. The model stays usable here." },
  exhausted: {
    badge: "spent",
    tone: "",
    meaning: "What was promised for these samples is used up, so they are not sent again.",
  },
  cap: {
    badge: "over your limit",
    tone: "bad",
    meaning: "Nothing was accepted. Raise your limit over all tasks, or withdraw from another task first.",
  },
  revoked: { badge: "revoked", tone: "bad", meaning: "It can send nothing. To take part again, ask for a new invite." },
  restored: {
    badge: "restored",
    tone: "warn",
    meaning: "Terms and ledger stay as they are: what was spent stays spent. Go on only if the operator told you so.",
  },
  "set-back": {
    badge: "stopped",
    tone: "bad",
    meaning: "Nothing is sent. Ask the operator whether a backup was restored.",
  },
  "ledger-lost": {
    badge: "ledger lost",
    tone: "bad",
    meaning: "A lost ledger must not become a second budget, so this browser sends nothing.",
  },
  "none-here": {
    badge: "",
    tone: "",
    meaning:
      "If you had joined, the browser has erased its storage since, as some do after days without a visit. An invite works once, so nothing can be spent twice.",
  },
  busy: { badge: "in another tab", tone: "warn", meaning: "Close the other tab, and this one takes over." },
  unsupported: {
    badge: "not possible here",
    tone: "bad",
    meaning: "A private window, or a page without https, keeps no ledger.",
  },
  "not-admitted": {
    badge: "not for browsers",
    tone: "bad",
    meaning: "A Python device can join: the commands are below.",
  },
  terms: { badge: "stopped", tone: "bad", meaning: "" },
  "bad-link": { badge: "no invite", tone: "bad", meaning: "Scan the code again, or open the whole link." },
  used: { badge: "used up", tone: "bad", meaning: "Ask for a new invite, or use a recovery code." },
  "bad-task": { badge: "not trusted", tone: "bad", meaning: "Nothing was sent." },
  "bad-row": { badge: "not a row", tone: "bad", meaning: "" },
  "bad-code": { badge: "wrong code", tone: "bad", meaning: "" },
  refused: { badge: "refused", tone: "bad", meaning: SAFE },
  malformed: { badge: "stopped", tone: "bad", meaning: SAFE },
};

/** Write a sentence as people do. */
export function sentence(text: string): string {
  return text && text[0]!.toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}
