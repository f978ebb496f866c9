/** The script of /join and /device: an invite becomes a device, and the device stays in view. */

import { Device, Refusal } from "../core/index.js";
import { DeviceView } from "./device-view.js";
import { button, folded, h } from "./dom.js";
import { refusal, showInvite } from "./join-view.js";
import { recoverView } from "./recovery-view.js";
import { STANDINGS } from "./words.js";

const root = document.getElementById("device-app")!;

/** Show one device. */
async function show(device: Device): Promise<DeviceView> {
  const view = new DeviceView(root, device);
  await view.open();
  return view;
}

/** Take the whole page for the one decision; what the server wrote about the task is folded away below. */
function takeOver(): void {
  const main = document.querySelector("main")!;
  const heading = main.querySelector("h1");
  const rest = folded("Everything about this task", h("div", {}, ...[...main.childNodes].filter((node) => node !== heading && node !== root)));
  rest.id = "about";
  main.replaceChildren(...(heading ? [heading] : []), root, rest);
}

async function joining(): Promise<void> {
  takeOver();
  await showInvite(root, (coming, offer) => {
    // The tap asks for the sensor now; the device follows when the server has answered.
    const motion = (globalThis.DeviceMotionEvent ?? {}) as { requestPermission?: () => Promise<string> };
    const isMotion = (offer.task.definition.data as { sensor?: { kind: string } }).sensor?.kind === "activity";
    const allowed = isMotion ? motion.requestPermission?.().catch(() => "denied") : undefined;
    void coming.then(async (device) => {
      await allowed;
      history.replaceState(null, "", "/device"); // the secret of the invite is used, and leaves the address
      document.getElementById("about")?.remove();
      document.querySelector("main > h1")?.remove();
      const view = await show(device);
      view.begin();
    }, () => undefined);
  });
}

async function returning(): Promise<void> {
  document.querySelectorAll("main > :not(#device-app)").forEach((part) => part.remove());
  const joined = (await Device.list()).filter(({ state }) => state !== "joining");
  const open = async (account: string): Promise<void> => {
    try {
      await show(await Device.open(account));
    } catch (error) {
      root.replaceChildren(h("h1", {}, "This device"), refusal(error), recoverView((device) => void show(device)));
    }
  };
  if (joined.length === 1) return open(joined[0]!.account);
  if (joined.length) {
    const choices = joined.map(({ account, state }) => button(state === "joined" ? account : `${account} (${state})`, () => void open(account), "plain large"));
    return root.replaceChildren(h("h1", {}, "This browser's tasks"), ...choices);
  }
  root.replaceChildren(
    h("h1", {}, "This browser is no device yet"),
    h("p", { className: "lead" }, "Scan the code of an invite, or open its link here."),
    h("div", { className: "notice", id: "notice" }, STANDINGS["none-here"].meaning),
    recoverView((device) => void show(device)),
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
    root.replaceChildren(refusal(new Refusal("unsupported", "this browser cannot be a device here: open the page by https in a current browser")));
    return;
  }
  void navigator.locks.request("crowdml-tab", { ifAvailable: true }, (lock) => {
    if (lock) return held(lock);
    root.replaceChildren(refusal(new Refusal("busy", "another tab of this browser is the device now")));
    void navigator.locks.request("crowdml-tab", held);
    return undefined;
  });
}

alone(root.dataset["kind"] === "join" ? joining : returning);
