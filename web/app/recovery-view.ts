/** A recovery code: the ledger, sealed, to go on in another browser; and the way back in. */

import type { Device } from "../core/index.js";
import { exportRecovery, importRecovery } from "../core/device/recovery.js";
import { button, h, small } from "./dom.js";
import { refusal } from "./join-view.js";

/** Offer to seal this device's ledger. */
export function recoveryView(device: Device): HTMLElement {
  const shown = h("div");
  const make = button("Make a recovery code", () => void seal(), "plain");
  async function seal(): Promise<void> {
    try {
      const { code, sealed } = await exportRecovery(device.account);
      const file = URL.createObjectURL(new Blob([sealed], { type: "text/plain" }));
      shown.replaceChildren(
        h("p", { className: "code" }, h("code", { id: "code" }, code)),
        h(
          "p",
          {},
          h(
            "a",
            { className: "button plain", href: file, download: `${device.account}.recovery.txt` },
            "Save the file",
          ),
        ),
        small(
          "Write the code down and keep the file apart from it: both together are this device. Using them in another browser retires this one. The next contribution makes them out of date: make new ones then.",
        ),
      );
    } catch (error) {
      shown.replaceChildren(refusal(error));
    }
  }
  return h(
    "div",
    {},
    small(
      "A browser may erase what it keeps, and a lost ledger ends this device. With a code and a file another browser can go on.",
    ),
    make,
    shown,
  );
}

/** Offer to go on as the device of a recovery code. */
export function recoverView(opened: (device: Device) => Promise<void>): HTMLElement {
  const file = h("input", { type: "file", id: "sealed", accept: ".txt,text/plain" });
  const code = h("input", { id: "recovery", autocomplete: "off", spellcheck: false });
  const said = h("div");
  const go = button("Go on with this device", () => void open());
  async function open(): Promise<void> {
    try {
      await opened(await importRecovery((await file.files?.[0]?.text()) ?? "", code.value));
    } catch (error) {
      said.replaceChildren(refusal(error));
    }
  }
  return h(
    "div",
    {},
    h("div", { className: "field" }, h("label", { htmlFor: "sealed" }, "The file"), file),
    h("div", { className: "field" }, h("label", { htmlFor: "recovery" }, "The code"), code),
    go,
    said,
  );
}
