// Replaces the live part of the page as the server sends it, or asks for it where streams do not get through. The page works
// without this file.
"use strict";
(() => {
  const live = document.getElementById("live");
  const status = document.getElementById("updates");
  if (!live || !window.EventSource) return;
  let timer = null;

  const isBusy = () => {
    // Nobody should lose the place where the keyboard is, or a selection.
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
    return live.contains(document.activeElement) || selects || document.hidden;
  };
  const show = (html) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    live.replaceChildren(...page.body.childNodes);
  };
  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };

  const ask = async () => {
    try {
      const response = await fetch(location.href, { headers: { accept: "text/x-live" }, cache: "no-store" });
      if (response.ok && !isBusy()) show(await response.text());
      say(response.ok ? "updated every 5 seconds" : "not updated");
    } catch (error) {
      say("not updated: the service does not respond");
    }
  };
  const fall = () => { if (timer === null) { timer = setInterval(ask, 5000); ask(); } };

  const events = new EventSource(location.href);
  let opened = false;
  events.addEventListener("live", (event) => { opened = true; say("live"); if (!isBusy()) show(JSON.parse(event.data)); });
  // What the page was about is gone.
  events.addEventListener("end", (event) => { events.close(); say("ended"); show(JSON.parse(event.data)); });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED || !opened) { events.close(); fall(); } else say("connecting again");
  });
  addEventListener("pagehide", () => events.close());

  // What cannot be undone is asked for once more.
  document.addEventListener("submit", (event) => {
    const ask = event.submitter && event.submitter.dataset.ask;
    if (ask && !confirm(ask)) event.preventDefault();
  });
})();
