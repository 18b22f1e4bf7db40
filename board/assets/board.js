// Replaces the live part of the page as the server sends it, or asks for it where streams do not get through, and does what
// forms ask for without leaving the page. The page works without this file.
//
// The live part stays as it is while somebody would lose something by its replacement: a selection, the place of the keyboard,
// a tick, or the button that the pointer is over; and while the button that pauses it is pressed, because a screen reader that only
// reads moves none of these. What comes meanwhile is kept, and shown after that.
"use strict";
(() => {
  const bar = document.getElementById("bar");
  if (!bar || !window.EventSource) return;
  // An action may change the address, from which the links to the other pages would lead elsewhere.
  for (const at of document.querySelectorAll("header a")) at.href = at.href;
  // From here on the page keeps what is ticked.
  const address = new URL(location.href);
  address.searchParams.delete("ticked");
  history.replaceState(null, "", address);
  const [status, time, more, pause] = bar.children;
  const live = () => document.getElementById("live");
  // After this time without a word the server is taken to hang: it says something each 5 seconds.
  const SILENCE = 12000;
  // The last word of the server, and when what is shown was seen; what came since then, and how often.
  let [word, seen, kept, changes] = [Date.now(), Date.now(), null, 0];
  let [events, isLost, asks, over, swapped] = [null, false, false, false, 0];
  // The stream has brought something; an answer has come since it was opened; one is waited for.
  let [opened, answered, asking] = [false, false, false];

  // Somebody may set the clock back.
  const since = (at) => Math.abs(Date.now() - at);
  const clock = (at) => new Date(at).toISOString().slice(0, 19).replace("T", " ") + " UTC";
  const say = (text, isBad) => {
    const put = (at, text) => { if (at.textContent !== text) at.textContent = text; };
    put(status, text);
    put(time, clock(seen));
    put(more, `${changes} ${changes === 1 ? "change" : "changes"}: show`);
    more.hidden = !changes;
    bar.classList.toggle("bad", !!isBad);
  };
  const isBusy = () => {
    if (pause.ariaPressed === "true") return "paused, as of";
    const [part, selection] = [live(), document.getSelection()];
    const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const points = part.contains(document.activeElement) || part.querySelector("a:hover, form:hover, tr:hover button");
    if (selects || points || filled().length) return "paused while you select or point, as of";
    // A finger says nothing before it is there.
    const taps = matchMedia("(pointer: coarse)").matches && part.querySelector("tr button");
    return taps && "updated when you ask, as of";
  };
  // What somebody has ticked or typed, by what it is about, and the same of what comes in its place.
  const inputs = () => [...live().querySelectorAll("input[aria-label]")];
  const about = (input) => input.form?.elements.id?.value ?? input.value;
  const filled = () => inputs().filter((input) => input.checked || input.value !== input.defaultValue);
  const show = () => {
    if (kept === null || !live()) return;
    const was = new Map(filled().map((input) => [about(input), input]));
    live().replaceChildren(...new DOMParser().parseFromString(kept.html, "text/html").body.childNodes);
    for (const input of inputs()) {
      const { checked, value } = was.get(about(input)) ?? input;
      [input.checked, input.value] = [checked, value];
    }
    seen = kept.at;
    [kept, changes] = [null, 0];
  };
  // Says how old the page is, and shows what came, if nobody would lose something by that.
  const settle = () => {
    if (!live() || over || document.hidden) return;
    const busy = isBusy();
    if (!busy) show();
    if (isLost || since(word) > SILENCE) say("Not updated: the service does not respond. What is shown is old, as of", true);
    else if (busy) say(busy);
    else say(asks ? "updated every 5 seconds, as of" : "live, as of");
  };
  // `html` is null if nothing has changed.
  const came = (html) => {
    [word, isLost] = [Date.now(), false];
    if (html !== null) [kept, changes] = [{ html, at: word }, changes + 1];
    else if (kept === null) seen = word;
    settle();
  };

  const ask = async () => {
    // One request at a time, if they hang as well.
    if (asking) return;
    asking = true;
    const part = live();
    try {
      const wanted = { headers: { accept: "text/x-live" }, cache: "no-store", signal: AbortSignal.timeout(SILENCE) };
      const response = await fetch(location.href, wanted);
      const html = await response.text();
      // A page of somebody else, such as that of a login, is no word of the board.
      if (!response.headers.get("content-type")?.startsWith("text/x-live")) isLost = true;
      // An action may have replaced the page meanwhile.
      else {
        answered = true;
        if (part === live()) came(html);
      }
    } catch { isLost = true; }
    asking = false;
  };
  const close = () => { if (events) events.close(); events = null; };
  // A browser has six connections to a server, so a page that nobody sees gives its own back.
  const open = () => {
    close();
    if (document.hidden || over || asks || !live()) return;
    word = Date.now();
    [opened, answered] = [false, false];
    events = new EventSource(location.href);
    for (const what of ["live", "same", "beat"]) events.addEventListener(what, () => opened = true);
    events.addEventListener("live", (event) => came(JSON.parse(event.data)));
    events.addEventListener("same", () => came(null));
    events.addEventListener("beat", () => [word, isLost] = [Date.now(), false]);
    // What the page was about is gone.
    events.addEventListener("end", (event) => {
      came(JSON.parse(event.data));
      show();
      close();
      over = true;
      say("ended, as of", true);
    });
    events.addEventListener("error", () => {
      if (events && events.readyState === EventSource.CLOSED && !opened && !isLost) { close(); asks = true; ask(); } else isLost = true;
    });
  };
  setInterval(settle, 500);
  setInterval(() => {
    if (document.hidden || over || !live()) return;
    // A stream that hangs is opened again, which is no word of the server. It may be held up by what is between: that is asked as well.
    const hangs = since(word) > 2 * SILENCE;
    isLost ||= hangs;
    // What is between passes answers on, and keeps streams to itself.
    if (hangs && answered && !opened) { close(); asks = true; }
    if (asks || isLost) ask();
    if (!asks && (!events || events.readyState === EventSource.CLOSED || hangs)) open();
  }, 5000);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  document.addEventListener("visibilitychange", open);
  more.addEventListener("click", () => { document.activeElement.blur(); show(); settle(); });
  pause.addEventListener("click", () => { pause.ariaPressed = pause.ariaPressed !== "true"; settle(); });
  Object.assign(pause, { textContent: "Pause updates", hidden: false });
  addEventListener("popstate", () => (over || !location.hash) && location.reload());
  open();

  // The action that has not ended, and which ones came before its end.
  let [doing, late] = ["", ""];
  // Until the next page, also when the service is back.
  const tell = (text) => {
    const note = document.getElementById("perhaps") ?? document.createElement("p");
    Object.assign(note, { id: "perhaps", className: "note bad", role: "alert", textContent: text });
    document.querySelector("h1").after(note);
  };

  // An action does not lose the page if the server is gone, nor the place of the keyboard.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    // A field may be called as a property of the form is.
    const [method, action] = [form.getAttribute("method"), form.getAttribute("action")];
    if (method !== "post") return;
    event.preventDefault();
    const [at, by] = [document.activeElement, event.submitter];
    const what = by.ariaLabel || by.textContent;
    const fields = new URLSearchParams(new FormData(form, by));
    const wanted = `${action}?${fields}`;
    if (swapped === Infinity) {
      // Another click on the same button wants nothing else.
      if (wanted !== doing) tell(late += `${clock(Date.now())}: not done: ${what}. The action before it had not ended. `);
      return;
    }
    // The second half of a double click is no answer to what the first one has brought.
    if (since(swapped) < 500) return;
    [swapped, doing, late] = [Infinity, wanted, ""];
    const label = at.matches(":focus-visible") && (at.ariaLabel || at.textContent);
    try {
      const response = await fetch(action, { method: "POST", body: fields, signal: AbortSignal.timeout(SILENCE) });
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      const page = next.getElementById("main");
      if (!page) throw new Error(response.statusText);
      // They lead from the address of the response.
      for (const name of ["href", "action"]) {
        for (const at of page.querySelectorAll(`[${name}]`)) at.setAttribute(name, new URL(at.getAttribute(name), response.url));
      }
      page.querySelector("#bar")?.replaceWith(bar);
      document.getElementById("main").replaceWith(page);
      document.title = next.title;
      [kept, changes, word, seen, isLost, swapped] = [null, 0, Date.now(), Date.now(), false, Date.now()];
      // The way back from a question leads to the page that it was asked on.
      if (response.redirected) history.replaceState(null, "", response.url); else if (!over) history.pushState(null, "");
      const same = label && [...page.querySelectorAll("button")].find((at) => (at.ariaLabel || at.textContent) === label && !at.disabled);
      (same || page.querySelector("#question") || page.querySelector("h1")).focus();
      over = !response.redirected;
      if (late) tell(late);
      open();
    } catch {
      [swapped, isLost] = [0, true];
      tell(`${clock(Date.now())}: perhaps not done: ${what}. The service did not respond. ${late}`);
      settle();
    }
  });
})();
