/** A refusal: why something is not done, as a word for programs and a sentence for people. */

export type Reason =
  | "bad-link" // the link is no invite, or lacks a part
  | "used" // a device has joined by this invite: it lets in no other
  | "bad-task" // the signed task is not the operator's, or cannot be read
  | "not-admitted" // a browser may not take part in this task
  | "terms" // the terms are not those accepted, or do not keep their promise
  | "cap" // the owner's limit over all tasks leaves no room
  | "exhausted" // all that was promised is spent
  | "few-rows" // too few rows for a batch
  | "bad-row" // a row is not what the task asks for
  | "ended" // the task has ended
  | "waiting" // there is nothing to do now: paused, not open yet, or not in this round
  | "revoked" // the server no longer knows this device
  | "offline" // nobody answers
  | "set-back" // the server shows less than it did before
  | "ledger-lost" // the ledger is shorter than the server's mirror, or damaged
  | "restored" // the operator restored the task from a backup, and the owner must confirm
  | "refused" // the server refused, for another reason
  | "malformed" // a message is not what it should be
  | "busy" // another tab of this browser is the device
  | "unsupported" // this browser lacks what a device needs
  | "bad-code"; // a recovery code does not open what it should

export class Refusal extends Error {
  override readonly name = "Refusal";

  /**
   * @param reason A word for programs.
   * @param sentence What was wrong, and what would be right.
   */
  constructor(
    readonly reason: Reason,
    sentence: string,
  ) {
    super(sentence);
  }
}

/** Refuse a message that is not what it should be. */
export function require(holds: unknown, sentence: string, reason: Reason = "malformed"): asserts holds {
  if (!holds) throw new Refusal(reason, sentence);
}
