/** Slices: work on the page's own thread lets the page draw and listen in between. */

const LONGEST_MS = 12;
let since = 0;

/** Let the page go on, if work has held it for a while. */
export async function breathe(): Promise<void> {
  if (performance.now() - since < LONGEST_MS) return;
  // A message is not held back in a tab that is hidden, as a timer would be.
  await new Promise<void>((go) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      go();
    };
    port2.postMessage(0);
  });
  since = performance.now();
}
