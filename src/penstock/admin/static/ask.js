// Asking the node, and saying what came of it.

import { $, put } from "./element.js";

export const enc = encodeURIComponent;

export class Refused extends Error {}

export async function ask(method, path, body) {
  const options = { method, cache: "no-store", headers: {} };
  if (body instanceof Blob) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(path, options);
  const text = await answer.text();
  let said = text;
  try {
    said = JSON.parse(text);
  } catch {
    /* no JSON: shown as it is */
  }
  if (answer.ok) return said;
  const told = [
    said.detail || said.title || `The node answered ${answer.status}.`,
    said.hint,
    said.corr_id && `(${said.corr_id})`,
  ];
  throw Object.assign(new Refused(told.filter(Boolean).join(" ")), { status: answer.status });
}

export const mailbox = (method, path, body) => ask(method, `/api/mailbox/v1/${path}`, body);

let toastEnds = 0;

export function toast(text, bad = false) {
  put($("toast"), text, bad ? "bad" : "");
  clearTimeout(toastEnds);
  toastEnds = setTimeout(() => put($("toast"), ""), bad ? 12000 : 6000);
}

export const sayFault = (fault) =>
  fault instanceof Refused ? fault.message : `The node does not answer: ${fault.message}`;

// Do something and say what came of it; a refusal is told, never swallowed.
export async function doing(act) {
  try {
    const said = await act();
    if (said) toast(said);
    return true;
  } catch (fault) {
    toast(sayFault(fault), true);
    return false;
  }
}
