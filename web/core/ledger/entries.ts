/**
 * Entries of a ledger: what an owner accepted, and the bytes that every runtime writes (`crowdml.privacy.ledger`).
 *
 * An entry is a flat JSON object of whole numbers and strings, written canonically; its hash is SHA-256 over the hash
 * before it (32 zero bytes at first) followed by its bytes.
 */

import { Refusal, require } from "../refusal.js";
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

type Kind = "text" | "number" | "few" | "decimal" | readonly string[];
const DECIMALS = ["rho", "pure", "apart", "rest", "device-rho", "device-pure"];
const FORMS: Record<string, [required: Record<string, Kind>, optional: Record<string, Kind>]> = {
  accept: [
    {
      "task-hash": "text",
      unit: ["sample", "device"],
      filter: ["pure", "rdp", "mixed", "gaussian"],
      epsilon: "decimal",
      delta: "decimal",
      uses: "number",
      rho: "decimal",
    },
    {
      ...Object.fromEntries(DECIMALS.map((name) => [name, "decimal" as const])),
      orders: ["whole"],
      noise: ["gaussian"],
      "device-noise": ["gaussian"],
    },
  ],
  charge: [
    { key: "text", body: "text", samples: "number", named: "text", most: "number", version: "number" },
    { uses: "few", known: "number", numbering: "text" },
  ],
  lost: [{ most: "number" }, {}],
  renew: [{ "task-hash": "text" }, {}],
  close: [{}, { public: "number" }],
};

/** Read an entry exactly as it was written, or refuse it. */
export function readEntry(raw: string): Entry {
  const content = parseJson(raw);
  require(isObject(content) && typeof content["kind"] === "string", "that is no entry of a ledger", "ledger-lost");
  const form = Object.hasOwn(FORMS, content["kind"]) ? FORMS[content["kind"]]! : null;
  require(form, `no entry is called ${content["kind"]}`, "ledger-lost");
  const required: Record<string, Kind> = { kind: "text", task: "text", ...form[0] };
  const known: Record<string, Kind> = { ...required, ...form[1] };
  const entry: Record<string, number | string> = {};
  for (const [name, value] of Object.entries(content)) {
    const kind = Object.hasOwn(known, name) ? known[name]! : null;
    require(kind && isOf(kind, value), `${name} of an entry is not what it should be`, "ledger-lost");
    entry[name] = typeof value === "bigint" ? Number(value) : (value as string);
  }
  for (const name of Object.keys(required)) require(name in entry, `an entry lacks ${name}`, "ledger-lost");
  require("apart" in entry === "rest" in entry, "apart and rest belong together", "ledger-lost");
  require("known" in entry === "numbering" in entry, "known and numbering belong together", "ledger-lost");
  const needsDelta = entry["kind"] === "accept" && entry["filter"] !== "pure";
  if (needsDelta && Number(entry["delta"]) <= 0) throw new Refusal("ledger-lost", "Σρ says something at δ > 0 only");
  require(canonical(entry) === raw, "an entry is not written as every runtime writes it", "ledger-lost");
  return entry;
}

function isOf(kind: Kind, value: Json): boolean {
  if (kind === "number") return typeof value === "bigint" && value >= 0n && value < 1n << 53n;
  if (kind === "few") return typeof value === "bigint" && value >= 0n && value < 65536n;
  if (typeof value !== "string") return false;
  if (kind === "text") return true;
  return kind === "decimal" ? /^(Infinity|(0|[1-9][0-9]*)(\.[0-9]+)?)$/.test(value) : kind.includes(value);
}
