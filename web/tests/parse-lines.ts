/**
 * Reads messages from standard input, one in a line (parser, space, base64), and says of each what became of it: a line
 * that begins with "+" and what was read, or "-" where it was refused. A test compares that with the Python reference.
 */

import { createInterface } from "node:readline";

import { readCheckOut } from "../core/device/server.js";
import { LedgerChain, packed } from "../core/ledger/chain.js";
import { Refusal } from "../core/refusal.js";
import { toHex } from "../core/wire/bytes.js";
import { parseLink } from "../core/wire/join-link.js";
import { Layout } from "../core/wire/layout.js";
import { openSigned, readDocument, readEnvelope } from "../core/wire/signed-task.js";

type Parser = (input: Uint8Array<ArrayBuffer>) => Promise<string> | string;

const latin = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
const [header = "", first = "", key = ""] = process.argv.slice(2).map((text) => Buffer.from(text, "base64").toString());
const layout = new Layout(header);
const samples = packed([0, 2, 5]);
const written = (value: number): string => (Number.isSafeInteger(value) ? String(value) : "large");

const PARSERS: Record<string, Parser> = {
  link(input) {
    const { server, task, code, key, taskHash } = parseLink(latin(input));
    return [server, task, code, key, taskHash].join(" ");
  },
  document(input) {
    const { text } = readEnvelope({ text: latin(input), signature: "", key: "" });
    const { incarnation, arrays, restored, browser, definition } = readDocument(text);
    const shapes = arrays.map((each) => Object.values(each).map(({ shape }) => shape.join("x")));
    const notice = restored ? written(restored.after + restored.version) : "none";
    return [
      written(incarnation),
      JSON.stringify(shapes),
      notice,
      browser !== null,
      Object.keys(definition).length,
    ].join(" ");
  },
  async envelope(input) {
    const content = JSON.parse(Buffer.from(input).toString()) as unknown;
    return (await openSigned(readEnvelope(content), key)).task;
  },
  "check-out"(input) {
    const version = layout.decode(input).get("version") as number;
    return written(readCheckOut(layout, input, new Headers({ "crowdml-version": String(version) })).version);
  },
  async entry(input) {
    const chain = new LedgerChain();
    await chain.replay(first);
    const raw = latin(input);
    await chain.replay(raw, raw.includes('"charge"') ? samples : undefined);
    return toHex(chain.head);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [parser = "", input = ""] = line.split(" ");
  let said: string;
  try {
    said = `+${await PARSERS[parser]!(Uint8Array.from(Buffer.from(input, "base64")))}`;
  } catch (error) {
    // A browser's own reader of JSON refuses some before anything of ours is asked.
    said = error instanceof Refusal || error instanceof SyntaxError ? "-" : `!${String(error)}`;
  }
  process.stdout.write(`${said}\n`);
}
