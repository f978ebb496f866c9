/** The numerical core: everything that looks at rows and parameters, and draws noise. */

export { Batch } from "./batch.js";
export { contribute, type CheckIn, type Counts, type Job, type Remembered } from "./contribution.js";
export { discreteLaplace } from "./discrete-laplace.js";
export { makeLoss } from "./losses.js";
export { Net } from "./net.js";
export { roundedGaussian } from "./rounded-gaussian.js";
export { decode, encode } from "./targets.js";
export { compose, magnitudes } from "./transforms.js";
export { systemWords, type Words } from "./words.js";
