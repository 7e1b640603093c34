// The API pages: `try it` asks this node with the session of whoever reads.

const within = (form, selector) => form.querySelector(selector);

async function tried(form) {
  const said = new FormData(form);
  const path = form.dataset.path.replace(/\{([^}]+)\}/g, (_, name) => encodeURIComponent(said.get(`p:${name}`) || ""));
  const query = (said.get("query") || "").trim();
  const options = { method: form.dataset.method, cache: "no-store", headers: {} };
  const body = said.get("body");
  if (body) {
    options.body = body;
    options.headers["Content-Type"] = "application/json";
  }
  const began = performance.now();
  const answer = await fetch(path + (query ? `?${query}` : ""), options);
  const text = await answer.text();
  const took = Math.round(performance.now() - began);
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: shown as it is.
  }
  within(form, "[role=status]").textContent = `${answer.status} in ${took} ms`;
  within(form, "[role=status]").className = answer.ok ? "good" : "bad";
  const out = within(form, "pre");
  out.textContent = shown.slice(0, 100000) || "(no body)";
  out.hidden = false;
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  tried(form).catch((fault) => {
    within(form, "[role=status]").textContent = `The node does not answer: ${fault.message}`;
    within(form, "[role=status]").className = "bad";
  });
});

// A link to a shape or an operation opens what it leads to.
addEventListener("hashchange", () => document.getElementById(decodeURIComponent(location.hash.slice(1)))?.focus());
