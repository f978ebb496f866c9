/**
 * Odds: how often in 100 the best guess is right after releases that each cost the same; a coin is right 50 times.
 *
 * The formula of `crowdml.privacy.odds`: (1 + TV)/2, where TV = Σ P(L) δ(-L) over the sums L of the pure losses, each +ε
 * with probability e^ε/(1 + e^ε) and otherwise -ε, and δ is that of all Gaussian releases together. It is valid because
 * a ledger fixes beforehand how many releases there are and what each costs.
 */

import type { Event } from "./event.js";
import { normalBelow } from "./privacy-loss.js";

/** Return the odds after so many releases of this cost, rounded up to a whole number. */
export function oddsAfter(event: Event, uses: number): number {
  if (!uses) return 50;
  if (event.rho === Infinity || (event.apart[1] && !event.gaussian)) return 100;
  const [epsilon, rho] = event.apart;
  const mu = Math.sqrt(2 * rho * uses);
  if (!epsilon) return rounded(deltaAt(mu, 0));
  const [plus, minus] = [-Math.log1p(Math.exp(-epsilon)), -Math.log1p(Math.exp(epsilon))];
  let [variation, ways] = [0, 0];
  for (let at = 0; at <= uses; at++) {
    variation += Math.exp(ways + (uses - at) * plus + at * minus) * deltaAt(mu, -epsilon * (uses - 2 * at));
    ways += Math.log(uses - at) - Math.log(at + 1);
  }
  return rounded(variation);
}

function rounded(variation: number): number {
  return Math.min(100, Math.ceil(50 + 50 * variation + 1e-7));
}

/** δ of Gaussian releases of strength μ at ε, which may be negative (Balle and Wang 2018, theorem 8). */
function deltaAt(mu: number, epsilon: number): number {
  if (!mu) return Math.max(0, 1 - Math.exp(epsilon));
  return normalBelow(mu / 2 - epsilon / mu) - Math.exp(epsilon) * normalBelow(-mu / 2 - epsilon / mu);
}
