// Numbers, sizes and times as people read them.

export const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

const calendar = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

export const count = (n) => Math.round(n).toLocaleString("en");

export const short = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${(n / 1e3).toFixed(0)}k` : count(n));

export function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < 4; at += 1) n /= 1024;
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function lasting(s) {
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

export const perSecond = (n) => (!n ? "0/s" : n < 0.1 ? "<0.1/s" : `${n < 9.95 ? n.toFixed(1) : count(n)}/s`);

export const delay = (s) =>
  s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms` : `${s.toFixed(1)} s`;

export const percent = (n) => `${n < 9.95 ? n.toFixed(1) : Math.round(n)} %`;

export const moment = (ms) => (!ms ? "" : Date.now() - ms < 86400000 ? clock.format(ms) : calendar.format(ms));

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

const KINDS = {
  text: (v) => String(v),
  count,
  bytes: size,
  percent,
  rate: (n) => (n ? perSecond(n) : "–"),
  time: moment,
  delay,
  seconds: (s) => (s ? lasting(s) : "–"),
  bad: (n) => (n ? count(n) : "–"),
};

export function say(kind, value) {
  return value === null || value === undefined ? "–" : (KINDS[kind] || KINDS.text)(value);
}
