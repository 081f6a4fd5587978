// Keeps the page up to date: the server answers 304 as long as nothing has changed.
"use strict";

const SECONDS = 5;
let tag = null;

async function renew() {
  if (document.hidden) return;
  const headers = tag ? { "If-None-Match": tag } : {};
  const state = document.querySelector("footer");
  try {
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.status !== 200) {
      if (answer.status !== 304) document.body.dataset.stale = answer.status;
      else delete document.body.dataset.stale;
      return;
    }
    const first = tag === null;
    tag = answer.headers.get("ETag");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    delete document.body.dataset.stale;
    const main = document.querySelector("main");
    if (first && main.innerHTML === fresh.querySelector("main").innerHTML) return;
    if (busy(main)) return void (tag = null);
    const kept = place(document.activeElement);
    main.replaceChildren(...fresh.querySelector("main").childNodes);
    state.replaceChildren(...fresh.querySelector("footer").childNodes);
    if (kept) document.querySelector(`main a[href="${CSS.escape(kept)}"]`)?.focus({ preventScroll: true });
  } catch {
    document.body.dataset.stale = "away";
  }
}

// While the reader types or selects text, the page is not replaced.
function busy(main) {
  const at = document.activeElement;
  const marked = getSelection();
  return (main.contains(at) && at.matches("input, select")) ||
    (!marked.isCollapsed && main.contains(marked.anchorNode));
}

function place(at) {
  return at?.closest("main") ? at.getAttribute("href") : null;
}

if (!document.body.dataset.still) setInterval(renew, SECONDS * 1000);
