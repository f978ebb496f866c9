/** The link that invites a device, taken apart; its fragment holds the secret, and no server ever sees that. */

import { Refusal } from "../refusal.js";
import { utf8, type Bytes } from "./bytes.js";

export interface InviteLink {
  readonly server: string;
  readonly task: string;
  /** The secret, good for one device. */
  readonly code: string;
  /** Fingerprint of the operator's key. */
  readonly key: string;
  /** Hash of the signed task. */
  readonly taskHash: string;
}

const LINK =
  /^(https?:\/\/(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:\/[A-Za-z0-9._~-]+)*)\/join\/([A-Za-z0-9%._~-]+)\/?(?:#([\x21-\x7e]*))?$/;
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** Read a link, or say what is wrong with it; as `crowdml.wire.join_link` does. */
export function parseLink(url: string): InviteLink {
  const found = LINK.exec(url.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, ""));
  const port = Number(found?.[2] ?? 1);
  if (!found || port < 1 || port > 65535) throw new Refusal("bad-link", "this is not an invite: copy the whole link");
  const fields = new Map<string, string>();
  for (const part of (found[4] ?? "").split("&")) {
    const [, name, value] = /^([^=]*)=([A-Za-z0-9_-]+)$/.exec(part) ?? [];
    if (name !== undefined && value && !fields.has(name)) fields.set(name, value);
  }
  const missing = ["code", "key", "hash"].filter((name) => !fields.has(name));
  if (missing.length || !NAME.test(found[3]!)) {
    const lacking = missing.length ? `it lacks ${missing.join(", ")}` : `${found[3]!} is no name of a task`;
    throw new Refusal("bad-link", `the invite is not complete: ${lacking}; copy the whole link`);
  }
  const [code, key, taskHash] = [fields.get("code")!, fields.get("key")!, fields.get("hash")!];
  return { server: found[1]!, task: found[3]!, code, key, taskHash };
}

/** What a device signs to join. */
export function enrolment(task: string, code: string, taskHash: string): Bytes {
  return utf8(`crowdml enrol 1\0${[task, code, taskHash].join("\0")}`);
}
