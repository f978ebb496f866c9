/** From strokes of a finger to 8 × 8 numbers from 0 to 16; the twin of data/sensing/drawn_digits.py.
 *
 * A row is worked out from the points alone, never from what a screen shows: every phone makes the same row of the same
 * strokes, and no browser's way of smoothing lines is in it.
 */

export type Stroke = [x: number, y: number][];

const SIDE = 8;
const FINE = 32;
const WIDEST = 24;
const INK = 310;
const THINNEST = 1.7;
const THICKEST = 4.5;

/** Return the row of 64 numbers of a drawing. */
export function digitRow(strokes: Stroke[]): Float32Array {
  const xs = strokes.flatMap((stroke) => stroke.map(([x]) => x));
  const ys = strokes.flatMap((stroke) => stroke.map(([, y]) => y));
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left, Math.max(...ys) - top];
  const pen = radius(strokes, Math.max(width, height));
  const box = FINE - 2 * pen;
  const tall = height > 0 ? box / height : 0;
  const wide = width > 0 ? Math.min(tall || box / Math.max(width, 1e-9), (WIDEST - 2 * pen) / width) : 0;
  const x0 = FINE / 2 - (width * wide) / 2;
  const y0 = FINE / 2 - (height * tall) / 2;
  const picture = new Uint8Array(FINE * FINE);
  for (const stroke of strokes) {
    const placed = stroke.map(([x, y]): [number, number] => [x0 + (x - left) * wide, y0 + (y - top) * tall]);
    for (let at = 0; at < Math.max(1, placed.length - 1) && placed.length; at++) {
      draw(picture, placed[at]!, placed[Math.min(at + 1, placed.length - 1)]!, pen);
    }
  }
  const row = new Float32Array(SIDE * SIDE);
  picture.forEach((black, at) => {
    row[SIDE * (at >> 7) + ((at % FINE) >> 2)]! += black;
  });
  return row;
}

/** Choose the pen that gives a digit, brought to its height, about the ink that all digits of the dataset have. */
function radius(strokes: Stroke[], longest: number): number {
  if (longest <= 0) return THICKEST;
  let length = 0;
  for (const stroke of strokes) {
    for (let at = 1; at < stroke.length; at++) {
      const [x, y] = [stroke[at]![0] - stroke[at - 1]![0], stroke[at]![1] - stroke[at - 1]![1]];
      length += Math.sqrt(x * x + y * y);
    }
  }
  const scaled = (length / longest) * (FINE - 4);
  return Math.min(THICKEST, Math.max(THINNEST, INK / (2 * Math.max(scaled, 1))));
}

/** Blacken every pixel whose centre is within the pen's radius of a segment. */
function draw(picture: Uint8Array, begin: [number, number], end: [number, number], pen: number): void {
  const [dx, dy] = [end[0] - begin[0], end[1] - begin[1]];
  const squared = dx * dx + dy * dy;
  for (let at = 0; at < picture.length; at++) {
    const px = (at % FINE) + 0.5 - begin[0];
    const py = Math.floor(at / FINE) + 0.5 - begin[1];
    const along = squared > 0 ? Math.min(1, Math.max(0, (px * dx + py * dy) / squared)) : 0;
    const across = px - along * dx;
    const down = py - along * dy;
    if (across * across + down * down <= pen * pen) picture[at] = 1;
  }
}
