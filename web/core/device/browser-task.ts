/**
 * A task as a browser runs it: what the operator signed for browsers, checked against the terms that were signed too.
 *
 * The plan's bound and noise are the operator's word; what they cost is not. It is added up here from the integers' own
 * limit and the noise's own scale, and a plan that does not keep the ε of the terms is refused.
 */

import { Event, covers, type Filter, type FilterKind } from "../ledger/event.js";
import { termsOfNothing, type Terms } from "../ledger/entries.js";
import { fraction } from "../ledger/exact.js";
import type { Job } from "../numerics/contribution.js";
import type { Grid } from "../numerics/grid.js";
import { makeLoss, type LossName } from "../numerics/losses.js";
import { Net, type Activation } from "../numerics/net.js";
import type { RateSettings } from "../numerics/rates.js";
import type { Target } from "../numerics/targets.js";
import { compose, type RowFunction } from "../numerics/transforms.js";
import { LONGEST, steepness, type Stability } from "../numerics/walks.js";
import { Refusal, require } from "../refusal.js";
import { Layout } from "../wire/layout.js";
import type { TaskDocument } from "../wire/signed-task.js";
import { ownCounts, ownNoise, type Counts } from "./own-noise.js";

export interface Schedule {
  readonly whole: boolean;
  readonly batch: number;
  readonly epochs: number;
  readonly multiple: number;
  readonly "most-rows": number | null;
  readonly "max-staleness": number;
  readonly "max-releases": number | null;
  readonly "max-versions": number | null;
}

/** What the operator signed for browsers. */
interface Plan {
  readonly refused?: string;
  readonly schedule: Schedule;
  readonly work: { kind: "gradient"; "held-out": number } | { kind: "steps"; rows: number; rate: RateSettings };
  readonly "weighs-rows": boolean;
  readonly alone: boolean;
  readonly messages: { readonly "check-out": string; readonly "check-in": string };
  readonly counts?: Counts;
  readonly grid?: Grid;
  readonly noise?: { readonly law: "discrete-laplace" | "rounded-gaussian"; readonly scale: number };
  readonly terms?: { readonly filter: FilterKind; readonly uses: number; readonly rows: number | null };
  readonly stable?: Stability;
}

/** The parts of a task file that a browser reads; names are those of the file. */
interface Definition {
  readonly objective: string;
  readonly data: {
    readonly features: number;
    readonly columns?: readonly string[];
    readonly "label-column"?: string;
    readonly labels?: readonly string[];
    readonly target?: { name: string; low: number; high: number; unit: string; bins: number; outside?: string };
    readonly transform: readonly Record<string, unknown>[];
    readonly id?: string | null;
  };
  readonly model: {
    readonly kind: string;
    readonly regularisation: number;
    readonly bias?: boolean;
    readonly layers?: readonly number[];
    readonly activation?: Activation;
    readonly top?: LossName;
    readonly loss?: "squared" | "huber";
    readonly delta?: number;
  };
  readonly privacy: {
    readonly mode: string;
    readonly unit: "sample" | "device";
    readonly adjacency?: string;
    readonly epsilon: number | null;
    readonly delta: number;
    readonly units?: number | null;
    readonly "owner-range"?: readonly [number, number] | null;
    readonly "statistics-epsilon"?: number;
    readonly "max-uses": number | null;
  };
  readonly stop: { readonly "max-releases": number | null };
}

export interface BrowserTask {
  readonly name: string;
  readonly definition: Definition;
  readonly schedule: Schedule;
  readonly job: Job;
  readonly terms: Terms;
  readonly checkOut: Layout;
  readonly checkIn: Layout;
  readonly transform: RowFunction;
}

/** Terms beyond these promise nothing anyone could rely on (`crowdml.privacy.calibration.term_checks`). */
const LARGEST_EPSILON = 1000;
const LARGEST_DELTA = 1e-4;
/** The norm in which each law protects. */
const ORDERS: Record<string, number> = { "discrete-laplace": 1, "rounded-gaussian": 2 };
/** Features, outputs, and rows per step, up to which steps are proven to be stable. */
const MOST_NUMBERS = 2 ** 20;
const LOSSES: Record<string, LossName> = { softmax: "softmax", logistic: "logistic", svm: "hinge", huber: "huber" };

/**
 * Build a task from what was signed, or say why a browser may not take part.
 *
 * @param own The owner's own ε, within the range that was signed; null: the task's.
 */
export function openTask(document: TaskDocument, own: number | null = null): BrowserTask {
  const definition = document.definition as unknown as Definition;
  const older = "a phone may not join because the task was made before browsers could take part";
  require(document.browser, older, "not-admitted");
  const plan = document.browser as unknown as Plan;
  require(!plan.refused, String(plan.refused), "not-admitted");
  const { data, model, privacy } = definition;
  require(!data.id, "a phone may not join because its rows are told apart by ids", "not-admitted");
  const isKnown = plan.work.kind === "gradient" || plan.work.kind === "steps";
  require(isKnown, "a phone may not join because a browser does not know the work", "not-admitted");
  const target = targetOf(definition);
  const checkOut = new Layout(plan.messages["check-out"]);
  const checkIn = new Layout(plan.messages["check-in"]);
  const net = netOf(definition, target, featuresOf(checkOut, model.kind));
  require(sizeOf(checkOut, "parameters") === net.size && sizeOf(checkIn, "update") === net.size, "no message fits");
  const job: Job = {
    net,
    regularisation: model.regularisation,
    kind: plan.work.kind,
    heldOut: plan.work.kind === "gradient" ? plan.work["held-out"] : 0,
    rows: plan.work.kind === "steps" ? plan.work.rows : plan.schedule.batch,
    rate: plan.work.kind === "steps" ? plan.work.rate : { kind: "constant", c: 1, counter: "versions" },
    target,
    weighsRows: plan["weighs-rows"],
    alone: plan.alone,
    sound: null,
    counts: plan.counts ?? null,
  };
  const transform = compose(data.transform, document.arrays, data.features, net.features);
  const made = { name: document.task, definition, schedule: plan.schedule, checkOut, checkIn, transform };
  require(own === null || privacy.mode === "sound", "there is no ε to choose", "terms");
  if (privacy.mode === "none") return { ...made, job, terms: termsOfNothing(definition.stop["max-releases"]) };
  require(privacy.mode === "sound", `a phone may not join because mode "${privacy.mode}" is unknown`, "not-admitted");
  return { ...made, ...soundly(job, plan, definition, own) };
}

/** Check bound and noise, and return the terms that follow from them. */
function soundly(job: Job, plan: Plan, definition: Definition, own: number | null): { job: Job; terms: Terms } {
  const { privacy, stop } = definition;
  const { grid, noise, terms: stated, stable = null } = plan;
  const broken = "the signed plan does not keep the signed terms: nothing is sent, ask the operator";
  require(grid && noise && stated && privacy.epsilon, broken, "terms");
  requireMeaning(privacy);
  const fits = grid.size === job.net.size && grid.order > 0 && grid.order === ORDERS[noise.law];
  require(fits && Number.isSafeInteger(grid.limit) && grid.limit > 0, broken, "terms");
  require(grid.radius > 0 && grid.levels >= 1 && noise.scale > 0, broken, "terms");
  // What is summed over rows is charged for each of them once.
  require(job.kind === "steps" || plan.schedule.epochs === 1, broken, "terms");
  require((grid.per === "example") === job.weighsRows, broken, "terms");
  require(!job.weighsRows || (job.kind === "gradient" && privacy.unit === "sample"), broken, "terms");
  const uses = privacy.unit === "sample" ? privacy["max-uses"] : stop["max-releases"];
  require(uses && uses === stated.uses, broken, "terms");
  const sound = { grid, law: noise.law, scale: noise.scale, stable };
  const full = { ...job, sound };
  if (stable) requireProof(full, stable, plan.schedule);
  const rows = privacy.unit === "device" ? (stated.rows ?? 1) : 1;
  const most = plan.schedule.whole ? plan.schedule["most-rows"] : plan.schedule.batch;
  require(!job.counts || privacy.unit === "sample" || rows >= (most ?? Infinity), broken, "terms");
  const moved = stable && sampleSensitivity(grid, stable);
  const counting = (scales: Counts | null, count: number): Event => (scales ? counts(scales, count) : new Event());
  const cost = (scale: number, scales: Counts | null): Event =>
    mechanism({ ...sound, scale }, privacy.unit === "sample" ? moved : null).plus(counting(scales, rows));
  const termsOf = (filter: Filter, { scale }: { scale: number }, scales: Counts | null): Terms => {
    const whole = privacy.unit === "sample" && grid.per === "release";
    const device = whole ? mechanism({ ...sound, scale }, null).plus(counting(scales, 1)) : null;
    return { unit: privacy.unit, filter, uses, event: cost(scale, scales), device };
  };
  const filter = { kind: stated.filter, epsilon: privacy.epsilon, delta: privacy.delta };
  require(filter.kind === "pure" || filter.delta > 0, broken, "terms");
  require(covers(filter, cost(noise.scale, job.counts).times(uses)), broken, "terms");
  if (own === null || own === privacy.epsilon) return { job: full, terms: termsOf(filter, sound, job.counts) };
  requireChoice(own, privacy["owner-range"]);
  const part = ((privacy["statistics-epsilon"] ?? 0) * own) / privacy.epsilon;
  const scales = job.counts && ownCounts(part, uses, rows);
  const kinds = kindsOf(noise.law, privacy.delta, scales);
  const chosen = ownNoise((scale) => cost(scale, scales), kinds, uses, own, privacy.delta);
  const quiet = { ...sound, scale: chosen.scale };
  return { job: { ...full, sound: quiet, counts: scales }, terms: termsOf(chosen.filter, chosen, scales) };
}

/** Refuse an ε that an owner cannot choose. */
function requireChoice(epsilon: number, range: readonly [number, number] | null | undefined): void {
  if (!range) throw new Refusal("terms", "the operator lets nobody choose an ε in this task");
  const [low, high] = range;
  require(epsilon >= low && epsilon <= high, `ε = ${epsilon} is not between ${low} and ${high}`, "terms");
}

/** Sums that may enforce noise of this law. */
function kindsOf(law: string, delta: number, scales: Counts | null): FilterKind[] {
  const isPure = law === "discrete-laplace";
  if (!(delta > 0)) return ["pure"];
  return isPure ? ["pure", "rdp"] : scales ? ["gaussian", "mixed", "rdp"] : ["gaussian", "rdp"];
}

/** Refuse terms that mean nothing, however well they are kept. */
function requireMeaning({ epsilon, delta, units, adjacency = "replace" }: Definition["privacy"]): void {
  const isMeant = epsilon! <= LARGEST_EPSILON && delta >= 0 && (units ? delta * units < 1 : delta <= LARGEST_DELTA);
  const [what, why] = [`ε = ${epsilon} with δ = ${delta}`, "promises nothing anyone could rely on: ask the operator"];
  require(isMeant && adjacency === "replace", `the signed terms, ${what} (${adjacency}), ${why}`, "terms");
}

/** Cost of one release of integers; `moved` is by how much one sample changes them, where less is proven. */
function mechanism(sound: NonNullable<Job["sound"]>, moved: number | null): Event {
  const { grid, scale, law } = sound;
  const [s, t] = fraction(scale);
  if (law === "discrete-laplace") return Event.ofPure([BigInt(2 * grid.limit) * t, s]);
  const [a, b] = moved === null ? [0n, 1n] : fraction(moved);
  return Event.ofRoundedGaussian(moved === null ? [4n * BigInt(grid.limit), 1n] : [a * a, b * b], [s, t]);
}

function counts(scales: Counts, rows: number): Event {
  const cost = (change: number, scale: number): Event => {
    const [s, t] = fraction(scale);
    require(s > 0n, "counts carry no noise", "terms");
    return Event.ofPure([BigInt(change) * t, s]);
  };
  return cost(rows, scales.errors).plus(cost(2 * rows, scales.spread));
}

/** Largest change of a message, in levels, when one sample is replaced (`crowdml.privacy.noise.grid`). */
function sampleSensitivity(grid: Grid, stable: Stability): number {
  const clipping = 2 * (grid.size + 8) * 2 ** -53 * grid.levels;
  const moved = (stable.moved + stable.rounding) / (grid.radius / grid.levels) + clipping + Math.sqrt(grid.size);
  return Math.min(Math.sqrt(4 * grid.limit) * (1 + 2 ** -52), moved * (1 + 1e-9));
}

/** Refuse a proof of stability that says less than `crowdml.algorithms.stability` derives from model, rate and rows. */
function requireProof(job: Job, stable: Stability, schedule: Schedule): void {
  const { net, rate, regularisation } = job;
  const { steepest, curvature, width } = net.loss;
  const proven = net.layers.length === 1 && steepest !== null && curvature !== null && job.kind === "steps";
  const why = "the signed plan claims steps to be more stable than is proven: nothing is sent, ask the operator";
  require(proven && stable.part === job.rows && rate.c <= (2 / steepness(job, stable.row)) * (1 + 1e-9), why, "terms");
  const long = net.layers[0]!.bias ? Math.hypot(stable.row, 1) : stable.row;
  const bound = steepest * long;
  const moved = (schedule.epochs * 2 * bound * rate.c) / stable.part;
  const parameters = LONGEST + 1.25 * stable.steps * rate.c * bound;
  const most = 1.25 * stable.steps * rate.c * (bound + regularisation * parameters);
  const walked = Math.min(most, parameters + LONGEST);
  const shift = 1.03 * long * ((net.features + 1) * walked + (2 * Math.sqrt(width) + 1) * (LONGEST + walked));
  const gradient =
    long * (curvature * shift + width + 20) + (stable.part + 4) * bound + 4 * regularisation * parameters;
  const rounding = 2 * stable.steps * 1.05 * 2 ** -53 * (rate.c * gradient + walked);
  const near = 1 - 1e-12;
  const { factor = 1, every = 1 } = rate;
  require(steepest > 0 && regularisation >= 0 && factor > 0 && factor <= 1 && every > 0, why, "terms");
  const counted = [stable.part, stable.steps, schedule.epochs, net.features, width];
  require(counted.every(Number.isSafeInteger) && stable.part * stable.steps >= schedule.epochs, why, "terms");
  require(Math.max(net.features, width, stable.part) <= MOST_NUMBERS, why, "terms");
  const grid = job.sound!.grid;
  const fine = Math.sqrt(grid.limit) >= (grid.levels + Math.ceil(Math.sqrt(grid.size)) + 1) * near;
  require(stable.moved >= moved * near && stable.rounding >= rounding * near && fine, why, "terms");
  require(rounding <= 0.1 * moved &&
    [rate.c, stable.row, regularisation || 1].every((size) => size >= 1e-90 && size <= 1e90), why, "terms");
}

function targetOf({ data }: Definition): Target {
  const { labels = [], target } = data;
  if (labels.length) return { labels, low: 0, high: 1, bins: labels.length, refusesOutside: false };
  require(target, "the task says neither labels nor a target");
  const { low, high, bins, outside } = target;
  return { labels: [], low, high, bins, refusesOutside: outside === "refuse" };
}

function netOf({ model }: Definition, target: Target, features: number): Net {
  const classes = target.labels.length;
  const name = model.kind === "mlp" ? model.top : model.kind === "linear" ? model.loss : LOSSES[model.kind];
  require(name, `a phone may not join because a browser does not know the model "${model.kind}"`, "not-admitted");
  const loss = makeLoss(name, classes, model.delta ?? 1);
  if (model.kind === "mlp") return new Net(features, model.layers ?? [], model.activation ?? "relu", loss, true);
  return new Net(features, [], "relu", loss, model.bias ?? false);
}

/** Numbers in a row as the first layer sees it: the width of its weights. */
function featuresOf(layout: Layout, kind: string): number {
  const first = layout.fields.find(({ path }) => path === "content/parameters/0/w");
  require(first?.shape.length === 2, `the parameters of a ${kind} begin with weights`);
  return first.shape[1]!;
}

/** Count the numbers below a path. */
function sizeOf(layout: Layout, part: string): number {
  const fields = layout.fields.filter(({ path }) => path.startsWith(`content/${part}/`));
  return fields.reduce((sum, { count }) => sum + count, 0);
}
