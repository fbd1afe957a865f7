// JSON whose numbers do not fit into those of JavaScript.

/** A number as it was written. */
export class ExactNumber {
  constructor(readonly source: string) {}
  toString(): string {
    return this.source;
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

/** Parses JSON; a number that JavaScript would round stays as it was written, where the browser says how that was. */
export function parse(text: string): unknown {
  const reviver: Reviver = (_, value, context) => {
    const isRounded = typeof value === 'number' && context?.source !== undefined && Math.abs(value) > Number.MAX_SAFE_INTEGER && /^-?\d+$/.test(context.source);
    return isRounded ? new ExactNumber(context.source as string) : value;
  };
  return JSON.parse(text, reviver as Parameters<typeof JSON.parse>[1]);
}

/** Prints what {@link parse} has read. */
export function print(value: unknown, indent = 2, depth = 0): string {
  if (value instanceof ExactNumber) return value.source;
  const pad = ' '.repeat(indent * (depth + 1));
  const end = ' '.repeat(indent * depth);
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]';
    return `[\n${value.map((item) => pad + print(item, indent, depth + 1)).join(',\n')}\n${end}]`;
  }
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value);
    if (members.length === 0) return '{}';
    return `{\n${members.map(([name, item]) => `${pad}${JSON.stringify(name)}: ${print(item, indent, depth + 1)}`).join(',\n')}\n${end}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** Prints a value for a cell of a table: texts without quotes, the rest in one line. */
export function cell(value: unknown): string {
  if (value === undefined) return '';
  if (typeof value === 'string') return value;
  if (typeof value === 'object' && value !== null) return print(value, 0).replaceAll('\n', ' ');
  return String(value);
}

/** Lays JSON out over lines without reading its numbers: text in, text out; as it was when it is not JSON. */
export function pretty(text: string): string {
  try {
    return print(parse(text));
  } catch {
    return text;
  }
}
