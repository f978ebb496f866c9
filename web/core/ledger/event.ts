/** What a release costs, and the sum that decides whether another one may be sent (`crowdml.privacy.accounting`). */

import { fraction, roundUp, sumUp, timesUp, type Fraction } from "./exact.js";
import { gaussianEpsilon, renyiEpsilon } from "./privacy-loss.js";

export type FilterKind = "pure" | "rdp" | "mixed" | "gaussian";

export interface Filter {
  readonly kind: FilterKind;
  readonly epsilon: number;
  readonly delta: number;
}

export class Event {
  /**
   * @param pure Σε; infinite for Gaussian noise.
   * @param rho Σρ.
   * @param mixed Σε of the pure releases and Σρ of the others, where there are both.
   * @param gaussian Whether all that is not pure has Gaussian noise, whose sums are known exactly.
   * @param whole Whether ρ is proven at whole orders only.
   */
  constructor(
    readonly pure = 0,
    readonly rho = 0,
    readonly mixed: readonly [number, number] | null = null,
    readonly gaussian = false,
    readonly whole = false,
  ) {}

  static ofPure([above, under]: Fraction): Event {
    const pure = roundUp(above, under);
    const [a, u] = fraction(pure);
    return new Event(pure, roundUp(a * a, 2n * u * u));
  }

  /** The cost of rounded Gaussian noise: Δ²/(2σ²), from Δ² and σ. */
  static ofRoundedGaussian([a, b]: Fraction, [s, t]: Fraction): Event {
    return new Event(Infinity, roundUp(a * t * t, 2n * b * s * s), null, true);
  }

  /** Σε of the pure releases, and Σρ of the others. */
  get apart(): readonly [number, number] {
    return this.mixed ?? (this.pure === Infinity ? [0, this.rho] : [this.pure, 0]);
  }

  plus(other: Event): Event {
    const epsilon = sumUp(this.apart[0], other.apart[0]);
    const rho = sumUp(this.apart[1], other.apart[1]);
    const notPure = [this as Event, other].filter((event) => event.apart[1]);
    return new Event(
      sumUp(this.pure, other.pure),
      sumUp(this.rho, other.rho),
      epsilon && rho ? [epsilon, rho] : null,
      notPure.length > 0 && notPure.every((event) => event.gaussian),
      this.whole || other.whole,
    );
  }

  /** Repeat, each time with fresh noise. */
  times(releases: number): Event {
    if (!releases) return new Event();
    const mixed = this.mixed && ([timesUp(this.mixed[0], releases), timesUp(this.mixed[1], releases)] as const);
    return new Event(timesUp(this.pure, releases), timesUp(this.rho, releases), mixed, this.gaussian, this.whole);
  }

  /** Return ε as one filter sees it. */
  epsilon(kind: FilterKind, delta: number): number {
    if (kind === "pure") return this.pure;
    if (this.whole && kind !== "gaussian") return Infinity; // of sums under masks; no browser takes part in these
    const [epsilon, rho] = kind === "rdp" ? [0, this.rho] : this.apart;
    if (kind !== "gaussian") return sumUp(epsilon, renyiEpsilon(rho, delta));
    return rho && !this.gaussian ? Infinity : sumUp(epsilon, gaussianEpsilon(rho, delta));
  }

  /** Return the smallest ε that any of the sums proves at this δ. */
  promise(delta: number): number {
    const kinds = delta > 0 ? (["pure", "rdp", "mixed", "gaussian"] as const) : (["pure"] as const);
    return Math.min(...kinds.map((kind) => this.epsilon(kind, delta)));
  }
}

/** Tell whether releases of this total cost keep the promise. */
export function covers(filter: Filter, total: Event): boolean {
  return total.epsilon(filter.kind, filter.delta) <= filter.epsilon;
}
