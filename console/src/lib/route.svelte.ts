// Where the console is: in the hash, so that a link shows the same screen below any prefix.

class Route {
  path = $state<string[]>([]);
  query = $state.raw(new URLSearchParams());
  /** Where somebody wants to go who would lose what they typed. */
  leaving = $state('');
  /** The screen on display; the address of the browser may be ahead of it. */
  private shown = '';
  private readonly edits = new Set<() => boolean>();

  constructor() {
    this.read();
    addEventListener('hashchange', () => {
      const to = location.hash;
      if (pathOf(to) !== pathOf(this.shown) && this.unsaved) {
        history.replaceState(null, '', this.shown || '#/');
        this.leaving = to;
      } else this.read();
    });
    addEventListener('beforeunload', (event) => {
      if (this.unsaved) event.preventDefault();
    });
  }

  /** True while something typed is not saved. */
  get unsaved(): boolean {
    return [...this.edits].some((isUnsaved) => isUnsaved());
  }

  /** Asks before what `isUnsaved` tells of is lost, for as long as the screen is there. */
  protect(isUnsaved: () => boolean): void {
    $effect(() => {
      this.edits.add(isUnsaved);
      return () => this.edits.delete(isUnsaved);
    });
  }

  /** Goes where {@link leaving} says, whatever is lost. */
  leave(): void {
    const to = this.leaving;
    this.edits.clear();
    this.leaving = '';
    location.hash = to;
  }

  private read(): void {
    this.shown = location.hash;
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
    this.shown = link(this.path, query);
    history.replaceState(null, '', this.shown);
  }
}

const pathOf = (hash: string): string => hash.split('?')[0] ?? '';

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
