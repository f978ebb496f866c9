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
const FARTHEST = [
  [
    6.6579046435011037772, 5.4637849111641143699, 1.7848265399172913358, 0.29656057182850489123,
    0.026532189526576123093, 0.0012426609473880784386, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
  ],
  [
    1.0, 0.59983220655588793769, 0.13692988092273580531, 0.0148753612908506148525, 7.868691311456132591e-4,
    1.8463183175100546818e-5, 1.4215117583164458887e-7, 2.04426310338993978564e-15,
  ],
] as const;

/** Return |z| at p = (high · 2³² + low) / 2⁶⁴, for p in (0, ½], in floating point. */
export function inverse(high: number, low: number): number {
  const away = ((2 ** 31 - high) * 2 ** 32 - low) * 2 ** -64;
  if (away <= 0.425) return away * quotient(NEAR, 0.180625 - away * away);
  return beyond(Math.sqrt(-Math.log((high * 2 ** 32 + low) * 2 ** -64)));
}

/** Return |z| where √(-ln p) is the root, beyond the nearest region. */
export function beyond(root: number): number {
  return root > 5 ? quotient(FARTHEST, root - 5) : quotient(FAR, root - 1.6);
}

function quotient([above, under]: readonly [readonly number[], readonly number[]], at: number): number {
  return horner(above, at) / horner(under, at);
}

function horner(coefficients: readonly number[], at: number): number {
  return coefficients.reduceRight((sum, more) => sum * at + more, 0);
}
