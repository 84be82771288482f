// Browsers start no worker for pages opened as files, and the search of this site runs in one. There a hidden frame
// takes its place: the script runs in the frame and talks to the page in the same words as a worker does.
(() => {
  if (location.protocol !== "file:") return;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open(); // or else Firefox puts another empty page in place of this one later
      inside.document.write("<body></body>");
      inside.document.close();
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = async (...urls) => {
        for (const each of urls) await load(inside.document, each);
      };
      this.ready = load(inside.document, url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(page, url) {
    return new Promise((done, failed) => {
      const script = page.createElement("script");
      script.onload = done;
      script.onerror = failed;
      script.src = url;
      page.body.append(script);
    });
  }
})();
