/**
 * Measures one gradient of a batch of 20 in the browser device's engine and in tfjs-wasm, side by side in one process.
 *
 * node bench.mjs CORE.js: the numerical core as `web/build.py` builds it. Prints one line of JSON.
 */

import { dirname } from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

import * as tf from "@tensorflow/tfjs";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";

const core = await import(pathToFileURL(process.argv[2]).href);
const require = createRequire(import.meta.url);
setWasmPaths(`${dirname(require.resolve("@tensorflow/tfjs-backend-wasm/package.json"))}/dist/`);
await tf.setBackend("wasm");
await tf.ready();

const [BATCH, CLASSES, ROUNDS, ROUND_MS] = [20, 10, 40, 25];
const random = (count) => Float32Array.from({ length: count }, () => Math.random() * 2 - 1);

/** CPU milliseconds of this process so far, all its threads together. */
function spent() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** CPU milliseconds of one call of each: the best of several rounds in turn, as others only ever make it slower. */
function measure(...calls) {
  for (const call of calls) for (let at = 0; at < 30; at++) call();
  const best = calls.map(() => Infinity);
  for (let round = 0; round < ROUNDS; round++) {
    calls.forEach((call, which) => {
      const begun = performance.now();
      const before = spent();
      let number = 0;
      do {
        call();
        number++;
      } while (performance.now() - begun < ROUND_MS);
      best[which] = Math.min(best[which], (spent() - before) / number);
    });
  }
  return best;
}

function compare(features, hidden) {
  const net = new core.Net(features, hidden, "relu", core.makeLoss("softmax", CLASSES), hidden.length > 0);
  const parameters = random(net.size).map((value) => value * 0.1);
  const rows = random(BATCH * features);
  const targets = Float32Array.from({ length: BATCH }, (_, at) => at % CLASSES);
  const total = new Float32Array(net.size);
  const weights = new Float64Array(BATCH).fill(1 / BATCH);
  const ours = () => net.total(net.factors(parameters, rows, targets, BATCH), weights, total);
  ours();

  const x = tf.tensor2d(rows, [BATCH, features]);
  const y = tf.cast(tf.oneHot(tf.tensor1d(Array.from(targets), "int32"), CLASSES), "float32");
  const variables = net.layers.flatMap(({ inputs, outputs, weights: w, biases: b, bias }) => {
    const matrix = tf.variable(tf.tensor2d(parameters.slice(w, w + inputs * outputs), [outputs, inputs]));
    return bias ? [matrix, tf.variable(tf.tensor1d(parameters.slice(b, b + outputs)))] : [matrix];
  });
  const step = hidden.length > 0 ? 2 : 1;
  const loss = () => {
    let h = x;
    for (let at = 0; at < variables.length; at += step) {
      h = tf.matMul(h, variables[at], false, true);
      if (step === 2) h = tf.add(h, variables[at + 1]);
      if (at < variables.length - step) h = tf.relu(h);
    }
    const shifted = tf.sub(h, tf.max(h, 1, true));
    const logarithms = tf.sub(shifted, tf.log(tf.sum(tf.exp(shifted), 1, true)));
    return tf.neg(tf.mean(tf.sum(tf.mul(y, logarithms), 1)));
  };
  const theirs = () =>
    tf.tidy(() => {
      const { grads } = tf.variableGrads(loss, variables);
      return Object.values(grads).map((gradient) => gradient.dataSync());
    });
  const found = theirs();
  const last = net.layers.at(-1);
  const apart = found.at(-step).reduce((most, value, at) => Math.max(most, Math.abs(value - total[last.weights + at])), 0);
  const [a, b] = measure(ours, theirs);
  return { features, hidden, ours_ms: a, tfjs_wasm_ms: b, times: b / a, apart };
}

const made = [compare(64, []), compare(784, []), compare(64, [75, 75]), compare(784, [75, 75])];
console.log(JSON.stringify(made));
