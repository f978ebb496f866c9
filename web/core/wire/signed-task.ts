/** A signed task: everything a device must know about a task, signed by the operator and named by its hash. */

import type { Learnt } from "../numerics/transforms.js";
import { Refusal, require } from "../refusal.js";
import { fromBase64, joined, sha256, toBase32, toHex, utf8, type Bytes } from "./bytes.js";
import { isObject, parseJson, plain, type Json, type PlainObject } from "./json.js";

const FORMAT = 2;
const LARGEST = 64 << 20;
const MOST_AXES = 64;

/** The text of a signed task with its signature and the operator's public key, as it travels. */
export interface SignedTask {
  readonly text: string;
  readonly signature: string;
  readonly key: string;
}

export interface TaskDocument {
  readonly task: string;
  readonly incarnation: number;
  readonly definition: PlainObject;
  readonly arrays: readonly Learnt[];
  /** The notice of the last restore; null for a task that never was restored. */
  readonly restored: { readonly after: number; readonly version: number } | null;
  /** What browsers need of it; null in tasks from before they could join. */
  readonly browser: PlainObject | null;
}

/** Read an envelope; the signature is not checked yet. */
export function readEnvelope(envelope: unknown): SignedTask {
  const found = (typeof envelope === "object" && envelope ? envelope : {}) as Record<string, unknown>;
  const { text, signature, key } = found;
  const areTexts = typeof text === "string" && typeof signature === "string" && typeof key === "string";
  require(areTexts && !Array.isArray(envelope), "a signed task has three texts: text, signature, key");
  require(/^[\x00-\x7f]*$/.test(text), "the signed task is not written in ASCII");
  fromBase64(signature);
  fromBase64(key);
  return { text, signature, key };
}

/** Name of a signed task: SHA-256 of its text, in hexadecimal. */
export async function hashOf(signed: SignedTask): Promise<string> {
  return toHex(await sha256(utf8(signed.text)));
}

/** Name a public key: 160 bits of its SHA-256 in base32. */
export async function fingerprint(key: Bytes): Promise<string> {
  return toBase32((await sha256(joined(utf8("crowdml key\0"), key))).subarray(0, 20));
}

/** Check the signature, by the operator's key of that fingerprint, and read the text. */
export async function openSigned(signed: SignedTask, expectedKey?: string): Promise<TaskDocument> {
  const [key, signature] = [fromBase64(signed.key), fromBase64(signed.signature)];
  if (expectedKey !== undefined && (await fingerprint(key)) !== expectedKey) {
    throw new Refusal("bad-task", "the task is signed with another key than the operator's");
  }
  require(key.length === 32 && signature.length === 64, "an Ed25519 key has 32 bytes, a signature 64");
  const imported = await ed25519(() => crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]));
  const message = joined(utf8("crowdml task 2\0"), utf8(signed.text));
  const isGood = await crypto.subtle.verify("Ed25519", imported, signature, message);
  require(isGood, "the signature is not the operator's", "bad-task");
  return readDocument(signed.text);
}

/** Do something with Ed25519, or say that this browser is too old for it. */
export async function ed25519<Key>(make: () => Promise<Key>): Promise<Key> {
  try {
    return await make();
  } catch {
    throw new Refusal("unsupported", "this browser cannot check signatures (Ed25519): update it, or use another one");
  }
}

/** Read what a signed text says, or refuse it; as `crowdml.wire.signed_task` does. */
export function readDocument(text: string): TaskDocument {
  require(text.length <= LARGEST, `a signed task of ${text.length} bytes is larger than ${LARGEST}`);
  const content = parseJson(text);
  require(isObject(content), "the text says no task");
  const { format, task, incarnation, definition, arrays, restored, browser } = content;
  const isRead = (typeof format === "bigint" || typeof format === "number") && Number(format) === FORMAT;
  require(isRead, `the signed task has another format; this browser reads ${FORMAT}`);
  require(typeof task === "string" && typeof incarnation === "bigint", "the text says no task");
  require(isObject(definition) && Array.isArray(arrays), "the text says no task");
  let notice = null;
  if (restored !== undefined) {
    require(isObject(restored), "the text says no task");
    const { after, version } = restored;
    require(typeof after === "bigint" && typeof version === "bigint", "the text says no task");
    notice = { after: Number(after), version: Number(version) };
  }
  require(browser === undefined || isObject(browser), "the text says no task");
  return {
    task,
    incarnation: Number(incarnation),
    definition: plain(definition) as PlainObject,
    arrays: arrays.map(readArrays),
    restored: notice,
    browser: browser === undefined ? null : (plain(browser) as PlainObject),
  };
}

function readArrays(learnt: Json): Learnt {
  require(isObject(learnt), "these are no arrays of transforms");
  const made = Object.create(null) as Record<string, Learnt[string]>;
  for (const [name, value] of Object.entries(learnt)) made[name] = readArray(value);
  return made;
}

function readArray(value: Json): Learnt[string] {
  require(isObject(value) && Array.isArray(value["shape"]), "an array has a shape");
  const sizes = value["shape"];
  require(sizes.length <= MOST_AXES &&
    sizes.every((size) => typeof size === "bigint" && size >= 0n), "that is no shape");
  require(typeof value["values"] === "string", "an array has values");
  const bytes = fromBase64(value["values"]);
  const count = (sizes as bigint[]).reduce((product, size) => product * size, 1n);
  require(bytes.length % 4 === 0 && BigInt(bytes.length / 4) === count, "the values do not have that shape");
  require((sizes as bigint[]).every((size) => size < 1n << 63n), "that is no shape");
  const view = new DataView(bytes.buffer);
  const values = Float32Array.from({ length: bytes.length / 4 }, (_, at) => view.getFloat32(4 * at, true));
  require(values.every(Number.isFinite), "a number is not finite");
  return { shape: (sizes as bigint[]).map(Number), values };
}
