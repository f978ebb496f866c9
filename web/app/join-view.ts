/** One screen, one decision: what an invite promises, what will happen, one button. */

import { join, type Device, type Offer, type Refusal } from "../core/index.js";
import type { Sensor } from "./collecting.js";
import { button, dots, folded, foldedLater, h, small } from "./dom.js";
import { part } from "./parts.js";
import { STANDINGS, sentence, type Standing } from "./words.js";

const NOUNS: Record<string, string> = { activity: "windows of motion", "draw-a-digit": "drawings" };

export function sensorOf(task: Device["task"]): Sensor | undefined {
  return (task.definition.data as { sensor?: Sensor }).sensor;
}

/** Show what an invite offers, and call back with the device inside of the tap that accepts it. */
export async function showInvite(
  root: HTMLElement,
  accepted: (joining: Promise<Device>, offer: Offer) => void,
): Promise<void> {
  let offer: Offer;
  try {
    offer = await join(location.href);
  } catch (error) {
    root.replaceChildren(refusal(error), ...commandsFor((error as { reason?: Standing }).reason));
    return;
  }
  root.replaceChildren(...decision(offer, (go) => accepted(go, offer)));
}

/** Where a browser cannot take the invite a computer can: put the commands for it in view; of a used one nobody can. */
export function commandsFor(reason: Standing | undefined): HTMLElement[] {
  const commands = document.getElementById("join-python");
  if (reason === "used") commands?.parentElement!.remove();
  if (!commands || (reason !== "not-admitted" && reason !== "unsupported")) return [];
  commands.querySelector(".on-phone")?.remove(); // it sends people to their phone
  return [h("section", { className: "card" }, h("h2", {}, "On a computer instead"), commands)];
}

/** Say why something is not possible. */
export function refusal(error: unknown): HTMLElement {
  const { reason = "malformed", message = String(error) } = error as { reason?: Standing; message?: string };
  const { tone, badge, meaning } = STANDINGS[reason] ?? STANDINGS.malformed;
  return h(
    "div",
    { className: `notice ${tone}`, role: "alert" },
    h("h2", {}, sentence(badge)),
    h("p", {}, sentence(message)),
    meaning && h("p", {}, meaning),
  );
}

function decision(offered: Offer, go: (joining: Promise<Device>) => void): HTMLElement[] {
  let offer = offered;
  const { promised } = offer;
  const said = h("div", { role: "status", id: "said" });
  const agrees = h("input", { type: "checkbox", id: "agrees" });
  const press = button(
    "Join",
    () => {
      press.disabled = true;
      press.textContent = "Joining…";
      // Not awaited: a permission must be asked for inside of the tap.
      const joining = offer.accept({ withoutGuarantee: agrees.checked });
      joining.catch((error: unknown) => {
        press.disabled = false;
        press.textContent = "Join";
        if ((error as Refusal).reason === "used") press.remove(); // there is nothing to try again
        said.replaceChildren(refusal(error));
      });
      go(joining);
    },
    "large",
  );
  if (!promised.guarantee) {
    press.disabled = true;
    agrees.addEventListener("change", () => (press.disabled = !agrees.checked));
  }
  const stated = h("div", {}, ...(promised.guarantee ? odds(offer) : nothing()));
  const detailed = h("div", {}, ...details(offer));
  const choose = (epsilon: number): void => {
    offer = offered.withEpsilon(epsilon);
    stated.replaceChildren(...odds(offer));
    detailed.replaceChildren(...details(offer));
  };
  const { range } = offer;
  return [
    h("section", { className: "card stated" }, stated, range && choice(range, promised.epsilon, choose)),
    h("ol", { className: "steps" }, ...happens(offer).map((step) => h("li", {}, step))),
    !promised.guarantee ? h("p", {}, h("label", {}, agrees, " I accept that nothing is promised.")) : h("span"),
    h(
      "div",
      { className: "decide" },
      press,
      small("You can pause or withdraw whenever you like. What was learnt stays in the model."),
    ),
    said,
    folded("In detail", detailed),
    foldedLater("Your limit over all tasks", async () => (await part("owner")).limitView()),
  ];
}

/** Let the owner choose an ε: less tells less, and helps the model less. */
function choice([low, high]: readonly [number, number], now: number, choose: (epsilon: number) => void): HTMLElement {
  const STEPS = 40;
  const at = (step: number): number => {
    const between = +(low * (high / low) ** (step / STEPS)).toPrecision(2);
    return step >= STEPS ? high : Math.min(high, Math.max(low, between));
  };
  const value = h("output", {}, `ε ${now}`);
  const start = Math.round((STEPS * Math.log(now / low)) / Math.log(high / low));
  const slider = h("input", { type: "range", id: "own", min: 0, max: STEPS, value: start });
  slider.addEventListener("input", () => (value.textContent = `ε ${at(Number(slider.value))}`));
  slider.addEventListener("change", () => choose(at(Number(slider.value))));
  return folded(
    "Choose your own ε",
    h(
      "div",
      { className: "field own" },
      h("label", { htmlFor: "own" }, "Less says less about you: more noise is added. "),
      slider,
      value,
    ),
  );
}

function odds({ promised, task }: Offer): HTMLElement[] {
  const most = promised.odds;
  // Of a promise for a whole device: that it takes part is no secret.
  const all = promised.unit === "device";
  const what = `which of two ${all ? "whole collections of " : ""}${NOUNS[sensorOf(task)?.kind ?? ""] ?? "rows"} is yours`;
  return [
    h("h2", {}, "What you are promised"),
    h(
      "div",
      { className: "side" },
      dots(most) as unknown as HTMLElement,
      h(
        "p",
        {},
        `Somebody who sees all you ever send and must guess ${what} is right at most `,
        h("strong", {}, `${most} times in 100`),
        ". A coin: 50 times. If you do not join, it stays 50.",
      ),
    ),
    ...(all ? [] : [small("About all of them together nothing is promised.")]),
  ];
}

function nothing(): HTMLElement[] {
  return [
    h("h2", {}, "No formal guarantee"),
    h("p", {}, "What leaves this device carries no noise. The server may learn something about your rows from it."),
  ];
}

function happens({ task, promised, leaving }: Offer): string[] {
  const sensor = sensorOf(task)?.kind;
  const bytes = leaving.reduce((sum, part) => sum + part.bytes, 0);
  const sends = `It sends ${(bytes / 1000).toFixed(1)} kB now and then: ${promised.guarantee ? "numbers with noise, each charged in a ledger first" : "numbers without noise"}.`;
  if (sensor === "activity")
    return [
      "You tell by a button what you are doing; your phone measures its motion while this page is open.",
      "It learns from that here. What was measured stays on the phone.",
      sends,
    ];
  if (sensor === "draw-a-digit")
    return ["You draw digits with a finger.", "Your phone learns from them here. They stay on the phone.", sends];
  return ["You open a file of rows in this browser.", "It learns from them here. They stay in this browser.", sends];
}

function details(offer: Offer): HTMLElement[] {
  const { promised, leaving, link, task } = offer;
  const rows = leaving.map(({ name, bytes, noisy }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", {}, `${bytes} bytes`),
      h("td", {}, noisy ? "with noise" : "as it is"),
    ),
  );
  return [
    promised.guarantee &&
      h(
        "p",
        {},
        `ε = ${promised.epsilon}, δ = ${promised.delta}, for each ${promised.unit}, over ${promised.uses} contributions it may enter.${task.job.counts ? " What is counted is paid from it too." : ""} Worked out here, from the task as its operator signed it.`,
      ),
    h("table", {}, h("caption", {}, "What leaves this device each time"), h("tbody", {}, ...rows)),
    small(`Signed task ${link.taskHash.slice(0, 16)}…, checked against your invite.`),
    small(
      "In a browser you trust the operator's page. A Python device is the strong form; crowdml portal verify compares this page with the published one.",
    ),
  ].filter((part) => part instanceof HTMLElement);
}
