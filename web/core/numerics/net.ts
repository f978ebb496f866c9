/**
 * Nets of dense layers with an activation between them: forward, and each example's gradient as factors.
 *
 * Parameters are one vector: for every layer its biases, where it has some, then its weights row by row, which is the
 * order on the wire. Examples are rows here; sums run over doubles and are stored in the vectors' own precision.
 */

import type { Loss, Vector } from "./losses.js";

export type Activation = "tanh" | "sigmoid" | "relu";

export interface Layer {
  readonly inputs: number;
  readonly outputs: number;
  readonly bias: boolean;
  /** Where its biases begin, in the vector of all parameters. */
  readonly biases: number;
  /** Where its weights begin. */
  readonly weights: number;
}

/** What forward and backward leave: of each layer its inputs and the slopes over its outputs, example by example. */
export interface Factors {
  readonly count: number;
  readonly inputs: readonly Vector[];
  readonly slopes: readonly Vector[];
  /** What each example was predicted to be. */
  readonly predicted: Float64Array;
}

export class Net {
  readonly layers: readonly Layer[];
  /** Number of all parameters. */
  readonly size: number;

  constructor(
    readonly features: number,
    hidden: readonly number[],
    readonly activation: Activation,
    readonly loss: Loss,
    bias: boolean,
  ) {
    let at = 0;
    let inputs = features;
    this.layers = [...hidden, loss.width].map((outputs) => {
      const biases = at;
      const weights = biases + (bias ? outputs : 0);
      at = weights + outputs * inputs;
      const layer = { inputs, outputs, bias, biases, weights };
      inputs = outputs;
      return layer;
    });
    this.size = at;
  }

  /** Run forward; `wide` says in which precision. Returns what enters each layer, and the outputs behind the last. */
  forward(parameters: Vector, rows: Vector, count: number): Vector[] {
    const made: Vector[] = [rows];
    for (const [number, layer] of this.layers.entries()) {
      const y = affine(layer, parameters, made[number]!, count);
      if (number < this.layers.length - 1) activate(this.activation, y);
      made.push(y);
    }
    return made;
  }

  /** Predict one row: a class number, or an encoded number. */
  predict(parameters: Vector, row: Vector): number {
    return this.loss.predict(this.forward(parameters, row, 1).at(-1)!, 0);
  }

  /** Outputs of one row, as they are before the loss. */
  outputs(parameters: Vector, row: Vector): Vector {
    return this.forward(parameters, row, 1).at(-1)!;
  }

  /** Run forward and backward; `shift` is added to the outputs where it is given. */
  factors(parameters: Vector, rows: Vector, targets: Vector | Int32Array, count: number, shift?: Vector): Factors {
    const made = this.forward(parameters, rows, count);
    const outputs = made.pop()!;
    const { width } = this.loss;
    const predicted = new Float64Array(count);
    if (shift) for (let at = 0; at < outputs.length; at++) outputs[at]! += shift[at]!;
    for (let example = 0; example < count; example++) {
      predicted[example] = this.loss.predict(outputs, example * width);
      this.loss.slope(outputs, example * width, targets[example]!);
    }
    const slopes: Vector[] = [outputs];
    for (let number = this.layers.length - 1; number > 0; number--) {
      const slope = pullBack(this.layers[number]!, parameters, slopes[0]!, count);
      deactivate(this.activation, made[number]!, slope);
      slopes.unshift(slope);
    }
    return { count, inputs: made, slopes, predicted };
  }

  /** Sum the examples' gradients, each times its weight. */
  total(found: Factors, weights: ArrayLike<number>, total: Vector): Vector {
    const { count } = found;
    for (const [number, { inputs, outputs, bias, biases, weights: first }] of this.layers.entries()) {
      const x = found.inputs[number]!;
      const slope = found.slopes[number]!;
      const sums = new Float64Array(inputs);
      for (let out = 0; out < outputs; out++) {
        sums.fill(0);
        let constant = 0;
        const factor = (example: number): number =>
          example < count ? slope[example * outputs + out]! * weights[example]! : 0;
        // Four examples at a time, so that sums are read and written a fourth as often.
        for (let example = 0; example < count; example += 4) {
          const [f, g, h, i] = [factor(example), factor(example + 1), factor(example + 2), factor(example + 3)];
          constant += f + g + h + i;
          if (!f && !g && !h && !i) continue;
          const from = example * inputs;
          const [to, by, on] = [1, 2, 3].map((more) => Math.min(example + more, count - 1) * inputs) as [
            number,
            number,
            number,
          ];
          for (let at = 0; at < inputs; at++) {
            sums[at]! += f * x[from + at]! + g * x[to + at]! + h * x[by + at]! + i * x[on + at]!;
          }
        }
        total.set(sums, first + out * inputs);
        if (bias) total[biases + out] = constant;
      }
    }
    return total;
  }

  /** Write each example's gradient out, one behind the other; examples that are not marked stay zero. */
  rows(found: Factors, marks: ArrayLike<number>): Float32Array {
    const made = new Float32Array(found.count * this.size);
    for (const [number, { inputs, outputs, bias, biases, weights }] of this.layers.entries()) {
      const x = found.inputs[number]!;
      const slope = found.slopes[number]!;
      for (let example = 0; example < found.count; example++) {
        if (!marks[example]) continue;
        for (let out = 0; out < outputs; out++) {
          const factor = slope[example * outputs + out]!;
          const to = example * this.size + weights + out * inputs;
          const from = example * inputs;
          for (let at = 0; at < inputs; at++) made[to + at] = factor * x[from + at]!;
          if (bias) made[example * this.size + biases + out] = factor;
        }
      }
    }
    return made;
  }

  /** Add the gradient of ½ λ ‖w‖², which leaves biases out. */
  addRegulariser(parameters: Vector, strength: number, total: Vector): void {
    for (const { weights, inputs, outputs } of strength ? this.layers : []) {
      for (let at = weights; at < weights + inputs * outputs; at++) total[at]! += strength * parameters[at]!;
    }
  }
}

/** y = W x + b for each example. */
function affine(layer: Layer, parameters: Vector, x: Vector, count: number): Vector {
  const { inputs, outputs, bias, biases, weights } = layer;
  const y = like(x, count * outputs);
  for (let example = 0; example < count; example++) {
    const from = example * inputs;
    // Four outputs at a time, so that a row is read a fourth as often.
    for (let out = 0; out < outputs; out += 4) {
      const last = outputs - 1;
      const row = weights + out * inputs;
      const second = weights + Math.min(out + 1, last) * inputs;
      const third = weights + Math.min(out + 2, last) * inputs;
      const fourth = weights + Math.min(out + 3, last) * inputs;
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      for (let at = 0; at < inputs; at++) {
        const value = x[from + at]!;
        a += parameters[row + at]! * value;
        b += parameters[second + at]! * value;
        c += parameters[third + at]! * value;
        d += parameters[fourth + at]! * value;
      }
      const sums = [a, b, c, d];
      for (let more = 0; more < 4 && out + more < outputs; more++) {
        y[example * outputs + out + more] = sums[more]! + (bias ? parameters[biases + out + more]! : 0);
      }
    }
  }
  return y;
}

/** Slopes over what enters a layer, from those over its outputs. */
function pullBack(layer: Layer, parameters: Vector, slope: Vector, count: number): Vector {
  const { inputs, outputs, weights } = layer;
  const back = like(slope, count * inputs);
  const sums = new Float64Array(inputs);
  for (let example = 0; example < count; example++) {
    sums.fill(0);
    for (let out = 0; out < outputs; out++) {
      const factor = slope[example * outputs + out]!;
      if (!factor) continue;
      const row = weights + out * inputs;
      for (let at = 0; at < inputs; at++) sums[at]! += factor * parameters[row + at]!;
    }
    back.set(sums, example * inputs);
  }
  return back;
}

function activate(kind: Activation, y: Vector): void {
  for (let at = 0; at < y.length; at++) {
    const x = y[at]!;
    y[at] = kind === "relu" ? Math.max(x, 0) : kind === "tanh" ? Math.tanh(x) : 0.5 * (Math.tanh(0.5 * x) + 1);
  }
}

/** Multiply slopes by the activation's own, which follows from its output. */
function deactivate(kind: Activation, y: Vector, slope: Vector): void {
  for (let at = 0; at < y.length; at++) {
    const out = y[at]!;
    slope[at]! *= kind === "relu" ? (out > 0 ? 1 : 0) : kind === "tanh" ? 1 - out * out : out * (1 - out);
  }
}

function like(vector: Vector, length: number): Vector {
  return vector instanceof Float32Array ? new Float32Array(length) : new Float64Array(length);
}
