/**
 * Recovery: the ledger and the key of a device, encrypted, to go on in another browser.
 *
 * What is sealed holds no row: numbers and names of samples, entries, unsettled check-ins, and who the device is. Whoever
 * opens it enrols with the same key, gets a new token, and the browser before has none any more: there is one writer.
 */

import { LedgerChain } from "../ledger/chain.js";
import { Refusal, require } from "../refusal.js";
import { fromBase64, joined, sha256, toBase32, toBase64, utf8, type Bytes } from "../wire/bytes.js";
import { openSigned } from "../wire/signed-task.js";
import { Device } from "./device.js";
import { samplesOf } from "./samples.js";
import { Server } from "./server.js";
import { exclusively, Store, type Facts, type Member, type Sample, type StoredEntry, type Unsettled } from "./store.js";

interface Content {
  readonly format: 1;
  readonly member: Member;
  readonly facts: Facts;
  readonly entries: StoredEntry[];
  readonly samples: Sample[];
  readonly unsettled: Unsettled[];
}

export interface Recovery {
  /** What to write down: it opens what is sealed, and nothing else does. */
  readonly code: string;
  /** What to keep in a file: of no use without the code. */
  readonly sealed: string;
}

/** Seal what another browser needs to go on as this device. */
export async function exportRecovery(account: string, store = new Store()): Promise<Recovery> {
  const tables = ["members", "facts", "entries", "samples", "unsettled"] as const;
  const content = await store.run([...tables], "readonly", async (within) => ({
    format: 1,
    member: await within.get("members", account),
    facts: await within.get("facts", account),
    entries: await within.all("entries"),
    samples: await samplesOf(within, account),
    unsettled: (await within.all("unsettled")).filter((each) => each.account === account),
  }));
  require(content.member && content.facts, `this browser has not joined ${account}`, "ledger-lost");
  const others = new Set(content.entries.map(({ raw }) => (JSON.parse(raw) as { task: string }).task));
  require(others.size ===
    1, "the ledger of this browser holds several tasks: they cannot be moved apart", "unsupported");
  const secret = crypto.getRandomValues(new Uint8Array(20));
  const nonce = crypto.getRandomValues(new Uint8Array(12));
  const plain = utf8(JSON.stringify(content, replacer));
  const cipher = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, await keyOf(secret, "encrypt"), plain);
  const code = toBase32(secret).replace(/.{4}(?=.)/g, "$&-");
  return { code, sealed: toBase64(joined(nonce, new Uint8Array(cipher))) };
}

/** Go on as the device of a recovery code; the browser that it came from is no device any more. */
export async function importRecovery(sealed: string, code: string, store = new Store()): Promise<Device> {
  const content = await opened(sealed, code);
  const { member, facts, entries, samples, unsettled } = content;
  const document = await openSigned(member.signed, member.operator);
  const chain = new LedgerChain();
  for (const entry of entries) await chain.replay(entry.raw, entry.samples);
  require(chain.tasks.has(member.account) && document.task === member.task, "the code opens no device", "bad-code");
  return exclusively(store.name, async () => {
    const isEmpty = (await store.all("entries")).length === 0;
    require(isEmpty, "this browser has a ledger already: a recovery code needs one without", "bad-code");
    const { task, code: invite, taskHash } = member;
    const link = { server: member.server, task, code: invite, key: member.operator, taskHash };
    const server = new Server(link);
    const enrolled = await server.enrol(link, member.secret, member.publicKey); // a new token: the old one is void
    server.token = enrolled.token;
    const [{ received }, { releases }] = [await server.me(), chain.spending(member.account)];
    const older = `the server has ${received} check-ins of this device, this code knows of ${releases}`;
    const instead = "it is older than what was spent; make a new one in the browser that it came from";
    require(received <= releases, `${older}: ${instead}`, "ledger-lost");
    const tables = ["members", "facts", "entries", "samples", "unsettled"] as const;
    await store.run([...tables], "readwrite", async (within) => {
      within.put("members", { ...member, ...enrolled, state: "joined" });
      within.put("facts", { ...facts, parameters: null });
      for (const each of entries) within.add("entries", each);
      for (const each of samples) within.add("samples", each);
      for (const each of unsettled) within.add("unsettled", each);
    });
  }).then(() => Device.open(member.account, store));
}

async function opened(sealed: string, code: string): Promise<Content> {
  try {
    const bytes = fromBase64(sealed.trim());
    const secret = fromBase32(code);
    const key = await keyOf(secret, "decrypt");
    const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv: bytes.subarray(0, 12) }, key, bytes.subarray(12));
    const content = JSON.parse(new TextDecoder().decode(plain), reviver) as Content;
    require(content.format === 1, "it was written by another version");
    return content;
  } catch {
    throw new Refusal("bad-code", "this code does not open this file: compare both with what was written down");
  }
}

async function keyOf(secret: Bytes, use: "encrypt" | "decrypt"): Promise<CryptoKey> {
  const raw = await sha256(joined(utf8("crowdml recovery 1\0"), secret));
  return crypto.subtle.importKey("raw", raw, "AES-GCM", false, [use]);
}

function fromBase32(text: string): Bytes {
  const letters = text.toLowerCase().replace(/[^a-z2-7]/g, "");
  require(letters.length === 32, "a recovery code has 32 letters");
  const made = new Uint8Array(20);
  let [buffer, bits, at] = [0, 0, 0];
  for (const letter of letters) {
    buffer = ((buffer << 5) | "abcdefghijklmnopqrstuvwxyz234567".indexOf(letter)) & 0xfff;
    bits += 5;
    if (bits >= 8) made[at++] = (buffer >> (bits -= 8)) & 255;
  }
  return made;
}

/** Bytes and floats inside of JSON. */
function replacer(_: string, value: unknown): unknown {
  if (value instanceof Uint8Array) return { $bytes: toBase64(value) };
  return value instanceof Float32Array ? null : value;
}

function reviver(_: string, value: unknown): unknown {
  const bytes = (value as { $bytes?: unknown } | null)?.$bytes;
  return typeof bytes === "string" ? fromBase64(bytes) : value;
}
