/** The inverse of the normal distribution's upper tail in floating point, off by a few parts in 10¹⁶. */

// AS 241 (Wichura 1988), algorithm PPND16: numerator and denominator of each region, the constant first.
const NEAR = [
  [
    3.387132872796366608, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
    67265.770927008700853, 33430.575583588128105, 2509.0809287301226727,
  ],
  [
    1.0, 42.313330701600911252, 687.1870074920579083, 5394.1960214247511077, 21213.794301586595867,
    39307.89580009271061, 28729.085735721942674, 5226.495278852854561,
  ],
] as const;
const FAR = [
  [
    1.42343711074968357734, 4.6303378461565452959, 5.7694972214606914055, 3.64784832476320460504,
    1.27045825245236838258, 0.24178072517745061177, 0.0227238449892691845833, 7.7454501427834140764e-4,
  ],
  [
    1.0, 2.05319162663775882187, 1.6763848301838038494, 0.68976733498510000455, 0.14810397642748007459,
    0.0151986665636164571966, 5.475938084995344946e-4, 1.05075007164441684324e-9,
  ],
] as const;
/** From this root of -ln p on nothing is sure: so far out lies one draw of 10¹⁰, and integers decide it. */
export const FARTHEST = 5;

/** Return |z| at p = (high · 2³² + low) / 2⁶⁴, for p in (0, ½], in floating point. */
export function inverse(high: number, low: number): number {
  const away = ((2 ** 31 - high) * 2 ** 32 - low) * 2 ** -64;
  if (away <= 0.425) return away * quotient(NEAR, 0.180625 - away * away);
  return beyond(Math.sqrt(-Math.log((high * 2 ** 32 + low) * 2 ** -64)));
}

/** Return |z| where √(-ln p) is the root: by the region's quotient up to 5, and beyond only roughly. */
export function beyond(root: number): number {
  return root > FARTHEST
    ? Math.SQRT2 * root - Math.log(4 * Math.PI) / (2 * Math.SQRT2 * root)
    : quotient(FAR, root - 1.6);
}

function quotient([above, under]: readonly [readonly number[], readonly number[]], at: number): number {
  return horner(above, at) / horner(under, at);
}

function horner(coefficients: readonly number[], at: number): number {
  return coefficients.reduceRight((sum, more) => sum * at + more, 0);
}
