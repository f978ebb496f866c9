/**
 * The browser device of crowdml: joins a task by a link, learns from rows that stay here, and sends only what its
 * ledger has been charged for.
 *
 *     const offer = await join(location.href);        // checks the invite; nothing is sent but which task it is
 *     offer.promised, offer.leaving, offer.task       // for the owner to read: worked out here, from the signed task
 *     const device = await offer.accept();            // the ledger takes the terms, then the invite is used
 *     device.subscribe((state) => show(state));       // rows, releases, spent and left, how it stands in a sentence
 *     await device.addRow([0.1, 0.4, …], "walking");  // kept in this browser; equal rows are one sample
 *     const outcome = await device.contribute();      // check-out → work → noise → charge → send
 *     await device.predict([0.1, 0.4, …]);            // with the newest parameters, without a network too
 *
 * | call | does |
 * |---|---|
 * | `join(link)` | `Offer`: what is promised and what leaves the device |
 * | `offer.range`, `offer.withEpsilon(ε)` | an ε of the owner's own, where the task lets owners choose |
 * | `Ledger.limit({ epsilon, delta })` | the owner's limit over all tasks, for those joined later |
 * | `offer.accept({ withoutGuarantee })` | `Device`; where nothing is promised the owner must accept that too |
 * | `Device.list()`, `Device.open(account)` | the devices of this browser, after a reload |
 * | `device.addRow(features, label)` | keeps a row; `device.eraseRows()` forgets all |
 * | `device.areDoubtful(rows)` | whether a table may hold used samples, written differently: ask the owner first |
 * | `device.contribute()` | one release: `applied`, `queued`, `refused`, `kept` (offline: sent later) or `waiting` |
 * | `device.resend()` | sends what is kept; identical bytes, no new charge |
 * | `device.predict(row)`, `device.refreshModel()` | uses the model; asks for the newest one |
 * | `device.state()`, `device.subscribe(listener)` | `DeviceState` |
 * | `device.pause()`, `resume()`, `withdraw()` | the owner's decisions; withdrawing erases rows here and the device there |
 * | `device.confirmRestore()` | goes on after the operator restored the task from a backup |
 * | `exportRecovery(account)`, `importRecovery(sealed, code)` | moves the ledger to another browser, which retires this one |
 *
 * Whatever is not done is a `Refusal` with a `reason` for programs and a `message` for people. Only one tab of a browser
 * works at a time; another one is refused as `busy`.
 */

export { Device, type Prediction } from "./device/device.js";
export { Ledger } from "./device/ledger.js";
export { join, Offer, type Leaving, type Promised } from "./device/joining.js";
export type { Outcome } from "./device/sending.js";
export type { DeviceState } from "./device/state.js";
export { Store } from "./device/store.js";
export { magnitudes } from "./numerics/transforms.js";
export { Refusal, type Reason } from "./refusal.js";
