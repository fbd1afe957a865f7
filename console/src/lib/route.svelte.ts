// Where the console is: in the hash, so that a link shows the same screen below any prefix.

class Route {
  path = $state<string[]>([]);
  query = $state.raw(new URLSearchParams());
  /** Runs once the user has agreed to discard unsaved input. */
  leaving = $state.raw<(() => void) | null>(null);
  /** The screen on display; the address of the browser may be ahead of it. */
  private shown = '';
  /** True while the user leaves and knows what is lost. */
  private isFree = false;
  private readonly edits = new Set<() => boolean>();

  constructor() {
    this.read();
    addEventListener('hashchange', () => {
      const to = location.hash;
      if (pathOf(to) !== pathOf(this.shown) && this.unsaved && !this.isFree) {
        history.replaceState(null, '', this.shown || '#/');
        this.leave(() => (location.hash = to));
      } else {
        this.isFree = false;
        this.read();
      }
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

  /** Does `then`, after a question when something typed would be lost. */
  leave(then: () => void): void {
    if (this.unsaved) this.leaving = then;
    else then();
  }

  /** Does what {@link leaving} asks about; the edits are lost. */
  discard(): void {
    const [then, before] = [this.leaving, location.hash];
    this.leaving = null;
    this.isFree = true;
    then?.();
    // A change of the address is reported later.
    if (location.hash === before) this.isFree = false;
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
