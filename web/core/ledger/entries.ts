/**
 * Entries of a ledger: what an owner accepted, and the bytes that every runtime writes (`crowdml.privacy.ledger`).
 *
 * An entry is a flat JSON object of whole numbers and strings, written canonically; its hash is SHA-256 over the hash
 * before it (32 zero bytes at first) followed by its bytes.
 */

import { require } from "../refusal.js";
import { joined, sha256, utf8, type Bytes } from "../wire/bytes.js";
import { isObject, parseJson, type Json } from "../wire/json.js";
import { Event, type Filter, type FilterKind } from "./event.js";
import { decimalUp, exact } from "./exact.js";

export type Entry = Readonly<Record<string, number | string>>;

/** What an owner accepted. */
export interface Terms {
  readonly unit: "sample" | "device";
  readonly filter: Filter;
  /** Releases a sample may enter, or a device may make. */
  readonly uses: number;
  /** Cost of one release. */
  readonly event: Event;
  /** Cost of one release for the whole device, where it does not follow from the number of rows. */
  readonly device: Event | null;
}

const ANY_NUMBER = 2 ** 31 - 1;

/** Terms of a task that promises nothing: ε is infinite, and only the number of releases is kept. */
export function termsOfNothing(releases: number | null): Terms {
  const filter = { kind: "pure", epsilon: Infinity, delta: 0 } as const;
  return { unit: "device", filter, uses: releases ?? ANY_NUMBER, event: new Event(Infinity, Infinity), device: null };
}

/** Write the entry that accepts a task's terms; costs are rounded up. */
export function accepted(task: string, taskHash: string, terms: Terms): Entry {
  const { filter, event, device } = terms;
  const entry: Record<string, number | string> = {
    kind: "accept",
    task,
    "task-hash": taskHash,
    unit: terms.unit,
    filter: filter.kind,
    epsilon: exact(filter.epsilon),
    delta: exact(filter.delta),
    uses: terms.uses,
  };
  if (event.whole) entry["orders"] = "whole";
  if (event.mixed) {
    entry["apart"] = decimalUp(event.mixed[0]);
    entry["rest"] = decimalUp(event.mixed[1]);
  }
  for (const [prefix, each] of [["", event] as const, ["device-", device] as const]) {
    if (!each) continue;
    entry[`${prefix}rho`] = decimalUp(each.rho);
    if (each.gaussian && !(prefix && each.mixed)) entry[`${prefix}noise`] = "gaussian";
    if (Number.isFinite(each.pure)) entry[`${prefix}pure`] = decimalUp(each.pure);
  }
  return entry;
}

/** Read the terms back. */
export function termsOf(entry: Entry): Terms {
  const number = (name: string): number => Number(entry[name] ?? "Infinity");
  const event = (prefix: string, mixed: readonly [number, number] | null): Event =>
    new Event(
      number(`${prefix}pure`),
      number(`${prefix}rho`),
      mixed,
      entry[`${prefix}noise`] === "gaussian",
      entry["orders"] === "whole",
    );
  return {
    unit: entry["unit"] === "sample" ? "sample" : "device",
    filter: { kind: entry["filter"] as FilterKind, epsilon: number("epsilon"), delta: number("delta") },
    uses: number("uses"),
    event: event("", "apart" in entry ? [number("apart"), number("rest")] : null),
    device: "device-rho" in entry ? event("device-", null) : null,
  };
}

/** Write an entry as every runtime writes it. */
export function canonical(entry: Entry): string {
  const sorted = Object.keys(entry).sort();
  // Strings in ASCII: every other letter is escaped, as Python does.
  const quoted = (text: string): string =>
    JSON.stringify(text).replace(
      /[^\x20-\x7e]/g,
      (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
  const written = (value: number | string): string => (typeof value === "string" ? quoted(value) : String(value));
  return `{${sorted.map((name) => `${quoted(name)}:${written(entry[name]!)}`).join(",")}}`;
}

/** Return the hash of an entry. */
export async function nextHash(before: Uint8Array, raw: string): Promise<Bytes> {
  return sha256(joined(before, utf8(raw)));
}

/** What a value of an entry may be, by its letter. */
const KINDS: Record<string, RegExp> = {
  t: /^/, // any text
  d: /^(Infinity|(0|[1-9][0-9]*)(\.[0-9]+)?)$/,
  u: /^(sample|device)$/,
  f: /^(pure|rdp|mixed|gaussian)$/,
  w: /^whole$/,
  g: /^gaussian$/,
};
/** Names of each kind of entry besides `kind` and `task`, each with its letter: those it has, and those it may have. */
const FORMS: Record<string, readonly [string, string]> = {
  accept: [
    "task-hash:t unit:u filter:f epsilon:d delta:d uses:n rho:d",
    "pure:d apart:d rest:d orders:w noise:g device-rho:d device-pure:d device-noise:g",
  ],
  charge: ["key:t body:t samples:n named:t most:n version:n", "uses:n known:n numbering:t"],
  lost: ["most:n", ""],
  renew: ["task-hash:t", ""],
  close: ["", "public:n"],
};
const MOST_USES = 65536n;

/** Read an entry exactly as it was written, or refuse it. */
export function readEntry(raw: string): Entry {
  const content = parseJson(raw);
  require(isObject(content) && typeof content["kind"] === "string", "that is no entry of a ledger", "ledger-lost");
  const kind = content["kind"];
  const form = Object.hasOwn(FORMS, kind) ? FORMS[kind]! : null;
  require(form, `no entry is called ${kind}`, "ledger-lost");
  const letters = (names: string): [string, string][] =>
    names.split(" ").map((each) => each.split(":") as [string, string]);
  const required = letters(`kind:t task:t ${form[0]}`.trim());
  const known = new Map([...required, ...letters(form[1])]);
  const entry: Record<string, number | string> = {};
  for (const [name, value] of Object.entries(content)) {
    const most = kind === "charge" && name === "uses" ? MOST_USES : 1n << 53n;
    const isRight = known.get(name) === "n" ? isWhole(value, most) : isText(value, KINDS[known.get(name) ?? ""]);
    require(isRight, `${name} of an entry is not what it should be`, "ledger-lost");
    entry[name] = typeof value === "bigint" ? Number(value) : (value as string);
  }
  const isThere = (name: string): boolean => name in entry;
  const areWhole = required.every(([name]) => isThere(name)) && isThere("apart") === isThere("rest");
  const needsDelta = kind === "accept" && entry["filter"] !== "pure";
  const isMeant = isThere("known") === isThere("numbering") && !(needsDelta && Number(entry["delta"]) <= 0);
  const isExact = areWhole && isMeant && canonical(entry) === raw;
  require(isExact, "an entry is not written as every runtime writes it", "ledger-lost");
  return entry;
}

function isWhole(value: Json, most: bigint): boolean {
  return typeof value === "bigint" && value >= 0n && value < most;
}

function isText(value: Json, form: RegExp | undefined): boolean {
  return typeof value === "string" && form !== undefined && form.test(value);
}
