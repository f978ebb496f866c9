/**
 * Words of entropy, and uniform integers made from them.
 *
 * The protocol is that of `crowdml.privacy.noise.samplers`: a word is 8 bytes, read as a little-endian unsigned
 * integer; words are taken one after the other and never reused; a sampler draws for many lanes at once, and in each
 * round the lanes that still need a number are served in lane order.
 */

/** A source of 64-bit words, each as two numbers: the lower 32 bits, then the upper ones. */
export interface Words {
  take(count: number): Uint32Array;
}

/** Most bytes that a browser gives at once. */
const AT_ONCE = 16384;

/** Words from the operating system's entropy: the only source for noise that protects anyone. */
export const systemWords: Words = {
  take(count) {
    const words = new Uint32Array(2 * count);
    for (let at = 0; at < words.length; at += AT_ONCE) crypto.getRandomValues(words.subarray(at, at + AT_ONCE));
    return words;
  },
};

/** Words given in advance, for tests and vectors. */
export class GivenWords implements Words {
  taken = 0;
  private readonly words: Uint32Array;

  constructor(words: readonly (bigint | string)[]) {
    this.words = new Uint32Array(2 * words.length);
    words.forEach((word, at) => {
      this.words[2 * at] = Number(BigInt(word) & 0xffffffffn);
      this.words[2 * at + 1] = Number(BigInt(word) >> 32n);
    });
  }

  take(count: number): Uint32Array {
    const found = this.words.subarray(2 * this.taken, 2 * (this.taken + count));
    if (found.length < 2 * count) throw new RangeError("more words are needed than were given");
    this.taken += count;
    return found;
  }
}

/** Uniform integers are drawn below this: products of a remainder with 2¹⁶ are then exact. */
const LARGEST = 2 ** 37;

/** Draw integers that are uniform on 0, …, limit - 1; refused lanes draw again together, in lane order. */
export function below(words: Words, limit: number, lanes: number): Float64Array {
  if (!(limit >= 1 && limit < LARGEST)) throw new RangeError(`no integers are drawn below ${limit}`);
  const drawn = new Float64Array(lanes);
  const refused = (remainder(0xffffffff, 0xffffffff, limit) + 1) % limit; // 2⁶⁴ mod limit: the last so many words
  let waiting: number[] | null = null;
  for (let count = lanes; count;) {
    const taken = words.take(count);
    const again: number[] = [];
    for (let at = 0; at < count; at++) {
      const low = taken[2 * at]!;
      const high = taken[2 * at + 1]!;
      const lane: number = waiting ? waiting[at]! : at;
      const fromEnd = (2 ** 32 - 1 - high) * 2 ** 32 + (2 ** 32 - low);
      if (fromEnd <= refused) again.push(lane);
      else drawn[lane] = remainder(low, high, limit);
    }
    waiting = again;
    count = again.length;
  }
  return drawn;
}

/** Return (high · 2³² + low) mod limit, in steps of 16 bits. */
function remainder(low: number, high: number, limit: number): number {
  let rest = high % limit;
  rest = (rest * 65536 + (low >>> 16)) % limit;
  return (rest * 65536 + (low & 65535)) % limit;
}

/** Uniform on (0, 1), from the upper 24 bits of a word each: for rounding and choices, not for noise. */
export function uniform(words: Words, count: number): Float32Array {
  const taken = words.take(count);
  const made = new Float32Array(count);
  for (let at = 0; at < count; at++) made[at] = ((taken[2 * at + 1]! >>> 8) + 0.5) * 2 ** -24;
  return made;
}
