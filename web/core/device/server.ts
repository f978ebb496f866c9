/** The calls a device makes, as the protocol names them; answers are checked before anybody believes them. */

import { Refusal, require, type Reason } from "../refusal.js";
import { sha256, toBase64, toHex, utf8, type Bytes } from "../wire/bytes.js";
import { ed25519, readEnvelope, type SignedTask } from "../wire/signed-task.js";
import { enrolment, type InviteLink } from "../wire/join-link.js";
import type { Layout } from "../wire/layout.js";

const PROTOCOL = "2";
/** How long an exchange may take. */
const PATIENCE_MS = 60_000;
const SMALL_ANSWER = 1 << 20;
const LARGEST_TASK = (128 << 20) + SMALL_ANSWER;
/** Statuses by which a server says that it is busy: ask again later, with the same bytes. */
const BUSY = [408, 425, 429, 500, 502, 503, 504];
/** Statuses by which a server refuses a check-in for good: it is spent, and never sent again. */
const REFUSED = [409, 410, 413, 415, 422];
const WAITING: Record<string, string> = {
  paused: "the operator has paused the task: this device waits, and sends nothing",
  draft: "the task is not open yet: this device waits, and sends nothing",
  round: "this device is not in the present round: it waits for the next",
};

export interface Described {
  readonly signed: SignedTask;
  readonly state: string;
  readonly reason: string;
}

export interface CheckedOut {
  readonly version: number;
  readonly taskHash: string;
  readonly parameters: Float32Array;
  readonly count: number | null;
}

export interface Waiting {
  readonly retryAfterS: number;
  readonly why: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
  readonly json: Record<string, unknown>;
  readonly code: string;
}

export class Server {
  private readonly address: string;
  private readonly task: string;
  token: string;

  /** Ask a server about a task: by an invite, or as a member that has a token. */
  constructor({ server, task, token = "" }: { server: string; task: string; token?: string }) {
    this.address = server;
    this.task = task;
    this.token = token;
  }

  /** Ask for the task as the server describes it; nothing of it is checked yet. */
  async described(): Promise<Described> {
    const { json } = await this.asked("GET", this.path(""), {}, [200], LARGEST_TASK);
    const { state, reason, signed_task: signed } = json;
    return { signed: readEnvelope(signed), state: readable(state), reason: readable(reason) };
  }

  /** Ask whether a device has joined by an invite. The server is told the hash of its code, which lets nobody in. */
  async isUsed(code: string): Promise<boolean> {
    const hash = toHex(await sha256(utf8(`crowdml invite\0${code}`)));
    const { json } = await this.asked("GET", this.path(`/invites/${hash}`), {}, [200]);
    return !!json["used"];
  }

  /** Use an invite. Asked again with the same key it answers again, with a new token. */
  async enrol(link: InviteLink, secret: Bytes, publicKey: Bytes): Promise<{ device: string; token: string }> {
    const key = await ed25519(() => crypto.subtle.importKey("pkcs8", secret, "Ed25519", false, ["sign"]));
    const message = enrolment(link.task, link.code, link.taskHash);
    const signature = new Uint8Array(await crypto.subtle.sign("Ed25519", key, message));
    const content = {
      invite: link.code,
      key: toBase64(publicKey),
      task_hash: link.taskHash,
      signature: toBase64(signature),
    };
    const options = { body: JSON.stringify(content), headers: { "content-type": "application/json" } };
    const { json } = await this.asked("POST", this.path("/devices"), options, [200, 201]);
    require(json["task_hash"] === link.taskHash, "the server enrolled this device for another signed task", "terms");
    const { device, token } = json;
    const arePlain = [device, token].every((each) => typeof each === "string" && /^[\w.~+/=-]{1,512}$/.test(each));
    require(arePlain, "the server gave a name or a token that is none");
    return { device: device as string, token: token as string };
  }

  /** Ask for the parameters, or learn that there are none for this device now. */
  async checkOut(layout: Layout): Promise<CheckedOut | Waiting> {
    const limit = Math.max(layout.size, SMALL_ANSWER);
    const answer = await this.asked("GET", this.path("/check-out"), {}, [200, 204], limit);
    if (answer.status === 204) {
      const why = WAITING[answer.headers.get("crowdml-waiting") ?? ""] ?? "the server has no work for this device now";
      return { retryAfterS: Math.min(3600, Number(answer.headers.get("retry-after")) || 1), why };
    }
    return readCheckOut(layout, answer.body, answer.headers);
  }

  /** Hand over a check-in; a receipt, or a refusal for good. Anything else is thrown, and it must be sent again. */
  async checkIn(key: string, body: Bytes): Promise<Answer> {
    const headers = { "content-type": "application/octet-stream", "idempotency-key": key };
    return this.asked("POST", this.path("/check-ins"), { body, headers }, [200, ...REFUSED]);
  }

  /** Ask what the server keeps of this device: how many releases it has received, used or refused. */
  async me(): Promise<{ received: number; taskHash: string; state: string }> {
    const { json } = await this.asked("GET", "/v1/devices/me", {}, [200]);
    return {
      received: whole(json["check_ins"], "check_ins") + whole(json["refused"] ?? 0, "refused"),
      taskHash: text(json, "task_hash"),
      state: text(json, "state"),
    };
  }

  /** Have this device's space and its token erased. */
  async withdraw(): Promise<void> {
    await this.asked("DELETE", "/v1/devices/me", {}, [204]);
  }

  private path(more: string): string {
    return `/v1/tasks/${this.task}${more}`;
  }

  private async asked(
    method: string,
    path: string,
    options: { body?: string | Bytes; headers?: Record<string, string> },
    expected: number[],
    limit = SMALL_ANSWER,
  ): Promise<Answer> {
    const answer = await this.ask(method, path, options, limit);
    if (expected.includes(answer.status)) return answer;
    if (BUSY.includes(answer.status)) throw new Refusal("offline", `the server is busy (${answer.status}): try later`);
    throw refusalOf(answer);
  }

  private async ask(
    method: string,
    path: string,
    options: { body?: string | Bytes; headers?: Record<string, string> },
    limit: number,
  ): Promise<Answer> {
    const headers: Record<string, string> = { "crowdml-protocol": PROTOCOL, ...options.headers };
    if (this.token) headers["authorization"] = `Bearer ${this.token}`;
    let response: Response;
    let body: Uint8Array;
    try {
      response = await fetch(this.address + path, {
        method,
        headers,
        ...(options.body === undefined ? {} : { body: options.body }),
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      body = new Uint8Array(await response.arrayBuffer());
    } catch {
      throw new Refusal("offline", "the server does not answer: what waits is kept, and sent when it does");
    }
    require(body.length <= limit, "the server's answer is too large");
    const spoken = response.headers.get("crowdml-protocol") ?? PROTOCOL;
    require(spoken === PROTOCOL, "the server speaks another protocol: reload the page");
    const json = jsonOf(response, body);
    const error = json["error"] as Record<string, unknown> | undefined;
    return { status: response.status, headers: response.headers, body, json, code: readable(error?.["code"]) };
  }
}

/** Read a check-out as it came; another version in its header than in its body is refused. */
export function readCheckOut(layout: Layout, body: Uint8Array, headers: Headers): CheckedOut {
  const message = layout.decode(body);
  const version = message.get("version") as number;
  require(headers.get("crowdml-version") === String(version), "the server names another version than the one it sent");
  const parts = layout.fields.filter(({ path }) => path.startsWith("content/parameters/"));
  const parameters = new Float32Array(parts.reduce((sum, { count }) => sum + count, 0));
  let at = 0;
  for (const { path, count } of parts) {
    parameters.set(message.get(path) as Float32Array, at);
    at += count;
  }
  const count = message.get("content/count") as Int32Array | undefined;
  return { version, taskHash: headers.get("crowdml-task-hash") ?? "", parameters, count: count?.[0] ?? null };
}

/** Turn a refusal of the server into one of ours. */
export function refusalOf(answer: Answer): Refusal {
  const error = (answer.json["error"] ?? {}) as Record<string, unknown>;
  const said = readable(error["message"]) || `the server answered with status ${answer.status}`;
  const reasons: Record<number, Reason> = { 401: "revoked", 403: "revoked", 410: "ended" };
  const isUsed = answer.code === "invite-used";
  const isSpent = answer.code === "releases-spent";
  const reason = isUsed ? "used" : isSpent ? "exhausted" : (reasons[answer.status] ?? "refused");
  const revoked = "the server no longer knows this device: it was revoked, or moved to another browser";
  const sentences: Partial<Record<Reason, string>> = { revoked, ended: `the task has ended: ${said}` };
  return new Refusal(reason, sentences[reason] ?? `the server refused: ${said}`);
}

function jsonOf(response: Response, body: Uint8Array): Record<string, unknown> {
  if (!body.length || !response.headers.get("content-type")?.includes("json")) return {};
  try {
    const content: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof content === "object" && content !== null ? (content as Record<string, unknown>) : {};
  } catch {
    throw new Refusal("malformed", "the server's answer is no JSON");
  }
}

export function text(json: Record<string, unknown>, name: string): string {
  const value = json[name];
  require(typeof value === "string", `the server's answer has no text "${name}"`);
  return value;
}

export function whole(value: unknown, name: string): number {
  require(Number.isSafeInteger(value) && (value as number) >= 0, `the server's answer has no whole number "${name}"`);
  return value as number;
}

/** Keep what a person can read of a stranger's text, and not too much of it. */
function readable(value: unknown): string {
  return typeof value === "string" ? value.slice(0, 300).replace(/[\p{C}]/gu, "") : "";
}
