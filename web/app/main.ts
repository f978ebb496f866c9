/** The script of /join and /device: an invite becomes a device, and the device stays in view. */

import { Device, Refusal } from "../core/index.js";
import { askForMotion } from "./collecting.js";
import { DeviceView, collectorOf } from "./device-view.js";
import { button, folded, foldedLater, h } from "./dom.js";
import { commandsFor, refusal, sensorOf, showInvite } from "./join-view.js";
import { part } from "./parts.js";
import { STANDINGS } from "./words.js";

/** The engine, for whoever writes a device of their own, and for tests. */
export * from "../core/index.js";
export const exportRecovery = async (account: string) => (await part("owner")).exportRecovery(account);
export const importRecovery = async (sealed: string, code: string) =>
  (await part("owner")).importRecovery(sealed, code);

const root = document.getElementById("device-app") ?? h("div");

/** Show one device, and let it go on; `begin` is called as soon as it is in view, before its server has answered. */
async function show(device: Device, begin: (view: DeviceView) => void = () => undefined): Promise<void> {
  document.getElementById("about")?.remove();
  document.querySelectorAll("h1, #crowd, #waiting").forEach((each) => each.remove());
  document.querySelector("main")!.classList.remove("deciding");
  document.querySelector("nav [aria-current]")?.removeAttribute("aria-current");
  document.querySelector('nav [href="/device"]')?.setAttribute("aria-current", "page");
  const view = new DeviceView(root, device, await collectorOf(device));
  view.open();
  begin(view);
  await view.resume();
}

/** Take the page; what the server wrote for those without scripts is folded away below. */
function takeOver(summary: string): void {
  const main = document.querySelector("main")!;
  const stays = [...main.querySelectorAll("h1, #crowd, #waiting")];
  root.remove();
  const rest = folded(
    summary,
    h("div", {}, ...[...main.childNodes].filter((node) => !stays.includes(node as Element))),
  );
  rest.id = "about";
  main.className += " narrow deciding";
  main.replaceChildren(...stays, root, rest);
}

function recovering(): HTMLElement {
  return foldedLater("I have a recovery code", async () => (await part("owner")).recoverView((device) => show(device)));
}

async function joining(): Promise<void> {
  await showInvite(root, (coming, offer) => {
    // The tap asks for the sensor now; the device follows when the server has answered.
    const allowed = sensorOf(offer.task)?.kind === "activity" ? askForMotion() : undefined;
    void coming
      .then(
        (device) => {
          history.replaceState(null, "", "/device"); // the secret of the invite is used, and leaves the address
          return show(device, (view) => view.begin(allowed));
        },
        () => undefined, // said beside the button
      )
      .catch((error: unknown) => root.replaceChildren(refusal(error)));
  });
}

async function returning(): Promise<void> {
  const joined = (await Device.list()).filter(({ state }) => state !== "joining");
  const open = async (account: string): Promise<void> => {
    try {
      await show(await Device.open(account));
    } catch (error) {
      root.replaceChildren(refusal(error), recovering());
    }
  };
  if (joined.length === 1) return open(joined[0]!.account);
  if (joined.length) {
    const choices = joined.map(({ account, state }) =>
      button(state === "joined" ? account : `${account} (${state})`, () => void open(account), "plain large"),
    );
    return root.replaceChildren(h("p", { className: "lead" }, "This browser takes part in several tasks:"), ...choices);
  }
  root.replaceChildren(
    h("p", { className: "lead" }, "This browser is no device yet. Scan the code of an invite, or open its link here."),
    h("div", { className: "notice", id: "notice" }, STANDINGS["none-here"].meaning),
    recovering(),
  );
}

/** Be the one tab of this browser that is the device; wait for the other to be closed. */
function alone(work: () => Promise<void>): void {
  const held = (lock: Lock | null): Promise<void> | undefined => {
    if (!lock) return undefined;
    return work()
      .catch((error: unknown) => root.replaceChildren(refusal(error)))
      .then(() => new Promise<void>(() => undefined));
  };
  if (!navigator.locks || !globalThis.indexedDB) {
    root.replaceChildren(
      refusal(
        new Refusal("unsupported", "this browser cannot be a device here: open the page by https in a current browser"),
      ),
      ...commandsFor("unsupported"),
    );
    return;
  }
  void navigator.locks.request("crowdml-tab", { ifAvailable: true }, (lock) => {
    if (lock) return held(lock);
    root.replaceChildren(refusal(new Refusal("busy", "another tab of this browser is the device now")));
    void navigator.locks.request("crowdml-tab", held);
    return undefined;
  });
}

if (root.id) {
  const isInvite = root.dataset["kind"] === "join";
  takeOver(isInvite ? "Everything about this task" : "A device in Python instead");
  alone(isInvite ? joining : returning);
}
