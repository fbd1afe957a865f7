// Where the console is: in the hash, so that a link shows the same screen below any prefix.

class Route {
  path = $state<string[]>([]);
  query = $state.raw(new URLSearchParams());

  constructor() {
    this.read();
    addEventListener('hashchange', () => this.read());
  }

  private read(): void {
    const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
    this.path = path.split('/').filter(Boolean).map(decode);
    this.query = new URLSearchParams(query);
  }

  /** Name of the screen. */
  get screen(): string {
    return this.path[0] ?? 'dashboard';
  }

  /** Changes parameters of the screen without another entry in the history of the browser. */
  set(parameters: Record<string, string | null>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(parameters)) {
      if (value === null || value === '') query.delete(name);
      else query.set(name, value);
    }
    this.query = query;
    history.replaceState(null, '', link(this.path, query));
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a screen. */
export function link(path: string[], query: Record<string, string> | URLSearchParams = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export function go(path: string[], query: Record<string, string> = {}): void {
  location.hash = link(path, query);
}

export const route = new Route();
