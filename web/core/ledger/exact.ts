/** Exact arithmetic on floating-point numbers, rounded up: what a release costs must never be understated. */

/** A number as a quotient of whole numbers. */
export type Fraction = readonly [above: bigint, under: bigint];

/** Write a finite number that is not negative as a fraction, exactly. */
export function fraction(value: number): Fraction {
  let [mantissa, exponent] = [value, 0];
  while (mantissa % 1) [mantissa, exponent] = [mantissa * 2, exponent + 1];
  return [BigInt(mantissa), 1n << BigInt(exponent)];
}

/** Return the least floating-point number that is not below above/under, which is not negative. */
export function roundUp(above: bigint, under: bigint): number {
  if (!above) return 0;
  let exponent = bits(above) - bits(under) - 53;
  const scaled = (): bigint => {
    const [a, u] = exponent < 0 ? [above << BigInt(-exponent), under] : [above, under << BigInt(exponent)];
    return (a + u - 1n) / u;
  };
  while (scaled() > 1n << 53n) exponent++;
  if (exponent < -1074) exponent = -1074;
  // In two factors: 2^exponent by itself may be too small for a float.
  const half = Math.trunc(exponent / 2);
  return Number(scaled()) * 2 ** half * 2 ** (exponent - half);
}

/** Add, rounded up. */
export function sumUp(one: number, other: number): number {
  if (!Number.isFinite(one + other)) return Infinity;
  const [[a, b], [c, d]] = [fraction(one), fraction(other)];
  return roundUp(a * d + c * b, b * d);
}

/** Multiply by a whole number, rounded up. */
export function timesUp(value: number, times: number): number {
  if (!Number.isFinite(value)) return Infinity;
  const [above, under] = fraction(value);
  return roundUp(above * BigInt(times), under);
}

/** Write a cost as a decimal string of twelve digits, rounded up. */
export function decimalUp(value: number): string {
  if (!value || !Number.isFinite(value)) return String(value);
  const [above, under] = fraction(value);
  let places = 11 - Math.floor(Math.log10(value));
  const times = (): Fraction =>
    places < 0 ? [above, under * 10n ** BigInt(-places)] : [above * 10n ** BigInt(places), under];
  const digits = ([a, u]: Fraction): bigint => a / u;
  while (digits(times()) >= 10n ** 12n) places--;
  while (digits(times()) < 10n ** 11n) places++;
  const [a, u] = times();
  return written(((a + u - 1n) / u).toString(), places);
}

/** Write a limit as the shortest decimal that reads back as the same number. */
export function exact(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const [, whole, part, exponent] = /^(\d+)(?:\.(\d+))?(?:e([-+]\d+))?$/.exec(String(value))!;
  return written(whole! + (part ?? ""), (part ?? "").length - Number(exponent ?? 0));
}

/** Write digits with so many of them behind the point, and no zeros that say nothing. */
function written(digits: string, places: number): string {
  if (places <= 0) return digits.replace(/^0+(?=.)/, "") + "0".repeat(Number(digits) ? -places : 0);
  const padded = digits.padStart(places + 1, "0");
  const [whole, part] = [padded.slice(0, -places), padded.slice(-places).replace(/0+$/, "")];
  return whole.replace(/^0+(?=.)/, "") + (part ? `.${part}` : "");
}

function bits(value: bigint): number {
  return value.toString(2).length;
}
