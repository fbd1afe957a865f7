// Numbers, sizes and times for people.

const whole = new Intl.NumberFormat('en-GB');
const short = new Intl.NumberFormat('en-GB', { notation: 'compact', maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 1 });

/** A count: 1,234; from 100,000 on 1.2M. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  return Math.abs(value) >= 100_000 ? short.format(value).toUpperCase() : whole.format(Math.round(value));
}

/** A rate: below 10 with one digit behind the point. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  return Math.abs(value) < 10 ? precise.format(value) : count(value);
}

/** How often something happens. */
export const perSecond = (value: number | null | undefined): string => (rate(value) === '–' ? '–' : `${rate(value)}/s`);

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A size in bytes. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** A share, 0 to 100. */
export function percent(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? '–' : `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** A time of milliseconds. */
export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value < 1) return `${Math.round(value * 1000)} µs`;
  if (value < 1000) return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
  return duration(value / 1000);
}

/** A time of seconds: the two largest units. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '–';
  const parts: string[] = [];
  let left = Math.max(0, Math.round(seconds));
  for (const [name, size] of [['d', 86_400], ['h', 3600], ['min', 60], ['s', 1]] as const) {
    if (left >= size || (name === 's' && parts.length === 0)) {
      parts.push(`${Math.floor(left / size)} ${name}`);
      left %= size;
    }
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

/** A moment, in local time. */
export function moment(unixMs: number): string {
  return new Date(unixMs).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

export function clock(unixMs: number): string {
  return new Date(unixMs).toLocaleTimeString('en-GB');
}

/** Says how many of something there are. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
