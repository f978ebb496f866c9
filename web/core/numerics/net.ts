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
        for (let example = 0; example < count; example++) {
          const factor = slope[example * outputs + out]! * weights[example]!;
          if (!factor) continue;
          constant += factor;
          const begin = example * inputs;
          for (let at = 0; at < inputs; at++) sums[at]! += factor * x[begin + at]!;
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
    for (let out = 0; out < outputs; out++) {
      const row = weights + out * inputs;
      let [a, b, c, d] = [0, 0, 0, 0];
      let at = 0;
      for (; at + 3 < inputs; at += 4) {
        a += parameters[row + at]! * x[from + at]!;
        b += parameters[row + at + 1]! * x[from + at + 1]!;
        c += parameters[row + at + 2]! * x[from + at + 2]!;
        d += parameters[row + at + 3]! * x[from + at + 3]!;
      }
      for (; at < inputs; at++) a += parameters[row + at]! * x[from + at]!;
      y[example * outputs + out] = a + b + c + d + (bias ? parameters[biases + out]! : 0);
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
