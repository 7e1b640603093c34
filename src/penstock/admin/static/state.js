// What the parts of the page share: the last frame, the view that is open, and the lines it draws.
export const page = {
  frame: null, // what the node said last
  shown: null, // the view that is open: {name, update, series, points}
  span: "", // the time shown: "5m" or "1h"
  lines: {}, // the history of the open view, by series
  linesAt: -Infinity, // when it was read
  unseen: null, // a token that came when Tokens was left already
};
