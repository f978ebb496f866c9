/** Ways to samples: each shows itself, hands rows over, and says what it cannot do. */

import type { Device, Prediction } from "../core/index.js";
import type { Local } from "./words.js";

/** How a task's rows are made on a phone, as it was signed. */
export interface Sensor {
  readonly kind: "activity" | "draw-a-digit";
  readonly keep?: "slots" | "label-change";
  readonly "slot-s"?: number;
}

/** What a way to samples may ask of the page around it. */
export interface Surroundings {
  readonly device: Device;
  /** Keep a sample. */
  keep(row: ArrayLike<number>, label: string | number): Promise<void>;
  /** Show how collecting stands; "ready" where nothing stands in its way. */
  stands(standing: Local | "ready"): void;
}

/** A way to samples. */
export interface Collector {
  readonly view: HTMLElement;
  /** Begin; called inside of a tap, as some browsers want it, or with what a tap has allowed. */
  begin(allowed?: Promise<string>): Promise<void>;
  /** Stop: nothing is measured any more. */
  end(): void;
  /** Whether samples come one by one, for as long as one likes. */
  readonly streams: boolean;
  /** What a sample is called. */
  readonly noun: string;
  /** Called with what is measured or drawn, also unfinished, to say what the model makes of it. */
  onrow: (row: Float32Array) => void;
}

export interface Guess {
  readonly label: string;
  readonly share: number | null;
}

/** Put a prediction into words and shares, the likeliest first. */
export function guesses(found: Prediction, labels: readonly string[]): Guess[] {
  const { outputs, value } = found;
  if (labels.length !== outputs.length) return [{ label: String(value), share: null }];
  const top = Math.max(...outputs);
  const powers = outputs.map((output) => Math.exp(output - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  const made = labels.map((label, at) => ({ label, share: powers[at]! / total }));
  return made.sort((one, other) => other.share - one.share);
}

/** Ask for the motion sensor where the browser wants to be asked; must be called inside of a tap. */
export async function askForMotion(): Promise<string> {
  const asks = globalThis.DeviceMotionEvent as unknown as { requestPermission?: () => Promise<string> } | undefined;
  if (asks?.requestPermission) return asks.requestPermission().catch(() => "denied");
  // Elsewhere a refusal shows in the permission alone; a browser that does not know the name says nothing.
  const named = { name: "accelerometer" as PermissionName };
  const found = await navigator.permissions?.query(named).catch(() => null);
  return found?.state === "denied" ? "denied" : "granted";
}
