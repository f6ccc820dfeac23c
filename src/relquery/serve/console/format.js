// Numbers as people read them.

/** 12,345; a dash for what is not known. */
export const count = (value) =>
  value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");

/** 79%; never 100% or 0% of what is not all or nothing. */
export function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  const shown = Math.round(share);
  if (shown === 100 && part < whole) return "> 99%";
  if (shown === 0 && part > 0) return "< 1%";
  return `${shown}%`;
}

/** 0.42 s, 12.3 s, 3 min 20 s. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 9.995) return `${value.toFixed(2)} s`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const [minutes, left] = [Math.floor(whole / 60), whole % 60];
  if (minutes < 60) return `${minutes} min ${left} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** "1 row", "2 rows". */
export const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** A cell of a result as text; null stays null. */
export function cell(value) {
  if (value === null || value === undefined) return null;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
