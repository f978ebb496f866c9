/** Rates that depend on their counter alone (`crowdml.algorithms.rates`): c, c/t, c/√t, and those that fall by a factor. */

export interface RateSettings {
  readonly kind: string;
  readonly c: number;
  readonly counter: "versions" | "check-ins" | "device-contacts" | "local-steps";
  readonly every?: number;
  readonly factor?: number;
}

/** Return the rate at a count, which begins with 1. */
export function rateAt(rate: RateSettings, count: number): number {
  const factor = Math.fround(rate.factor ?? 1);
  switch (rate.kind) {
    case "constant":
      return rate.c;
    case "inverse":
      return rate.c / Math.fround(count);
    case "inverse-sqrt":
      return rate.c / Math.fround(Math.sqrt(Math.fround(count)));
    case "step":
      return rate.c * Math.fround(factor ** Math.floor((count - 1) / (rate.every ?? 1)));
    case "exponential":
      return rate.c * Math.fround(factor ** (count - 1));
    default:
      throw new RangeError(`no rate is called ${rate.kind}`);
  }
}
