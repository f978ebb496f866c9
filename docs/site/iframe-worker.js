// A browser that reads pages from a folder starts no workers. Search wants one, so it gets a hidden frame in its place.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const answer = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(answer);
        if (this.onmessage) this.onmessage(answer);
      });
      const script = `<script src="${url}"><\/script>`;
      const inside = `<script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = loaded;
          document.body.appendChild(script);
        })), Promise.resolve());
      <\/script>`;
      const page = this.frame.contentWindow.document;
      page.open();
      page.write(`<html><body>${inside}${script}</body></html>`);
      page.close();
      this.ready = new Promise((loaded) => (this.frame.contentWindow.onload = loaded));
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
