/** The owner's limit over all tasks of this browser: ε and δ add up, and a task that would pass it is refused. */

import { Ledger, Refusal, Store } from "../core/index.js";
import { button, h, small } from "./dom.js";
import { refusal } from "./join-view.js";

/** Show the limit and what counts against it, and let the owner change it. */
export async function limitView(): Promise<HTMLElement> {
  const ledger = new Ledger(new Store());
  const said = h("div", { role: "status" });
  const number = (id: string): HTMLInputElement => h("input", { id, inputMode: "decimal", autocomplete: "off" });
  const [epsilon, delta] = [number("limit-epsilon"), number("limit-delta")];
  const figure = (value: number): string => String(+value.toPrecision(4));
  async function show(words = ""): Promise<void> {
    await ledger.refresh();
    const [cap, now] = [await ledger.cap(), ledger.reserved()];
    epsilon.value = cap.epsilon === Infinity ? "" : String(cap.epsilon);
    delta.value = cap.delta === 1 ? "" : String(cap.delta);
    said.replaceChildren(
      small(`${words}Your tasks count for ε ${figure(now.epsilon)} and δ ${figure(now.delta)} now.`),
    );
  }
  async function keep(): Promise<void> {
    try {
      const read = ({ value }: HTMLInputElement, none: number): number => (value.trim() ? Number(value) : none);
      await ledger.limit({ epsilon: read(epsilon, Infinity), delta: read(delta, 1) });
      await show("Kept. ");
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      said.replaceChildren(refusal(error));
    }
  }
  await show(); // before there is something to write into
  return h(
    "div",
    {},
    small(
      "What tasks promise adds up. A task that would take this browser beyond your limit cannot be joined; empty means no limit.",
    ),
    h("div", { className: "field" }, h("label", { htmlFor: epsilon.id }, "ε at most"), epsilon),
    h("div", { className: "field" }, h("label", { htmlFor: delta.id }, "δ at most"), delta),
    button("Keep this limit", () => void keep(), "plain"),
    said,
  );
}
