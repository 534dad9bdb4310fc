// A browser refuses to start a worker from a page that was opened from a folder. The search needs
// one, so there a hidden frame takes its place: it loads the same script and passes messages on.
(() => {
  if (location.protocol !== "file:") return;

  const page = (url) => `<!doctype html><script>
    self.postMessage = (data) => parent.postMessage({ from: ${JSON.stringify(url)}, data }, "*");
    self.importScripts = (...urls) => urls.reduce((before, src) => before.then(() =>
      new Promise((done, failed) => {
        const script = document.createElement("script");
        Object.assign(script, { src: new URL(src, ${JSON.stringify(url)}), onload: done, onerror: failed });
        document.documentElement.append(script);
      })), Promise.resolve());
  <\/script><script src="${url}"><\/script>`;

  window.Worker = class extends EventTarget {
    constructor(source) {
      super();
      const url = String(new URL(source, document.baseURI));
      const frame = (this.frame = document.createElement("iframe"));
      frame.hidden = true;
      this.ready = new Promise((done) => (frame.onload = done));
      frame.srcdoc = page(url);
      addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow || !event.data || event.data.from !== url) return;
        const message = new MessageEvent("message", { data: event.data.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      document.body.append(frame);
    }
    postMessage(data) {
      // The frame's own postMessage leads here, so its listeners are called directly.
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
})();
