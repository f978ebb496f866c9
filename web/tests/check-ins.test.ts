/** From a signed task to the bytes of a check-in: every stage as the Python reference has it. */

import { describe, expect, it } from "vitest";

import { openTask } from "../core/device/browser-task.js";
import { readCheckOut } from "../core/device/server.js";
import { accepted, canonical } from "../core/ledger/entries.js";
import { Batch } from "../core/numerics/batch.js";
import { contribute } from "../core/numerics/contribution.js";
import { encode } from "../core/numerics/targets.js";
import { GivenWords } from "../core/numerics/words.js";
import { checkInBody } from "../core/device/check-in-body.js";
import { fingerprint, hashOf, openSigned } from "../core/wire/signed-task.js";
import { apart, fromBase64, vectors, type CheckInCase } from "./vectors.js";

const CASES = vectors<CheckInCase[]>("browser_check_ins");

describe.each(CASES)("$name", (given) => {
  const opened = async () => openTask(await openSigned(given.signed, given.operator));

  it("is signed by its operator, and named by its hash", async () => {
    expect(await hashOf(given.signed)).toBe(given.hash);
    expect(await fingerprint(fromBase64(given.signed.key.replaceAll("-", "+").replaceAll("_", "/")))).toBe(
      given.operator,
    );
    await expect(openSigned(given.signed, "another")).rejects.toThrow("another key");
    const changed = { ...given.signed, text: given.signed.text.replace('"incarnation":1', '"incarnation":2') };
    await expect(openSigned(changed, given.operator)).rejects.toThrow("signature");
  });

  it("is accepted with the same entry, and costs the same", async () => {
    const task = await opened();
    expect(canonical(accepted(given.name, given.hash, task.terms))).toBe(given.entry);
    if (given.epsilon !== null) {
      const spent = task.terms.event.promise(task.terms.filter.delta);
      expect(Math.abs(spent / given.epsilon - 1)).toBeLessThan(1e-9);
    }
  });

  it("transforms rows and encodes targets alike", async () => {
    const task = await opened();
    given.rows.forEach((row, at) => {
      expect(apart(task.transform(Float32Array.from(row)), given.seen[at]!)).toBeLessThan(1e-6);
      expect(encode(task.job.target, given.labels[at]!)).toBeCloseTo(given.targets[at]!, 6);
    });
  });

  it("makes the same check-in", async () => {
    const task = await opened();
    const headers = new Headers({ "crowdml-version": String(given.version) });
    const found = readCheckOut(task.checkOut, fromBase64(given["check-out"]), headers);
    expect(found.version).toBe(given.version);
    const table = given.seen.map((row, at) => ({ x: Float32Array.from(row), y: given.targets[at]! }));
    const batch = Batch.of(table, given.order, given.width);
    const words = new GivenWords(given.words);
    const begun = { contacts: 0, steps: 0 };
    const [made, after] = await contribute(task.job, found.parameters, found.count, begun, batch, words);
    expect(words.taken).toBe(given.words.length);
    expect(after).toMatchObject(given.after);
    const body = checkInBody(task.checkIn, given.version, made);
    const expected = fromBase64(given["check-in"]);
    if (task.job.sound) expect(Buffer.from(body).equals(expected)).toBe(true);
    else expect(apart(made.update, given.update)).toBeLessThan(1e-6);
    expect(body.length).toBe(expected.length);
    expect(task.checkIn.decode(expected).get("version")).toBe(given.version);
  });
});
