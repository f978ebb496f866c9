/** What an owner looks at now and then: the ledger, a recovery code, the limit over all tasks. */

export { exportRecovery, importRecovery } from "../core/device/recovery.js";
export { LedgerView } from "./ledger-view.js";
export { limitView } from "./limit-view.js";
export { recoverView, recoveryView } from "./recovery-view.js";
