/** The ledger, entry by entry, as it stands in this browser. */

import type { Store } from "../core/index.js";
import { h, small } from "./dom.js";

const SHOWN = 50;

export class LedgerView {
  readonly view: HTMLElement;
  private readonly entries = h("ol", { className: "entries", reversed: true });
  private shown = -1;

  constructor(private readonly store: Store) {
    this.view = h(
      "div",
      {},
      small("Every release is charged here before it is sent. Each entry is chained to the one before by its hash."),
      this.entries,
    );
  }

  /** Show what is new; `releases` says whether there is something. */
  async refresh(releases: number, account: string): Promise<void> {
    if (releases === this.shown) return;
    this.shown = releases;
    const all = (await this.store.all("entries")).map(({ number, raw, hash }) => ({
      entry: JSON.parse(raw) as Record<string, string | number>,
      number,
      name: [...hash.subarray(0, 4)].map((byte) => byte.toString(16).padStart(2, "0")).join(""),
    }));
    if (this.shown !== releases) return; // there is more meanwhile, and it is being read
    const ours = all.filter(({ entry }) => entry["task"] === account).reverse();
    this.entries.start = (ours[0]?.number ?? 0) + 1;
    this.entries.replaceChildren(
      ...ours.slice(0, SHOWN).map(({ entry, name }) => h("li", {}, `${words(entry)} `, h("code", {}, name))),
    );
  }
}

function words(entry: Record<string, string | number>): string {
  const { kind, version, samples } = entry;
  if (kind === "accept")
    return `accepted: ε ${Number(entry["epsilon"])}, δ ${Number(entry["delta"])}, ${entry["uses"]} uses`;
  if (kind === "charge") return `charged: a release from version ${version}, ${samples} samples`;
  return String(kind);
}
