// One stream for all tabs of a browser: browsers open six connections to a node and no more.

/** A port with the methods that this worker uses. */
interface Port {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => void) | null;
}

const ports = new Map<Port, boolean>();
let source: EventSource | null = null;
let snapshot = '';
let again: ReturnType<typeof setTimeout> | undefined;
let pause = 1000;

function tell(message: { kind: string; data: string }): void {
  for (const [port, isVisible] of ports) if (isVisible) port.postMessage(message);
}

function open(address: string): void {
  if (source || again !== undefined) return;
  source = new EventSource(address, { withCredentials: true });
  source.onopen = () => {
    pause = 1000;
    tell({ kind: 'open', data: '' });
  };
  for (const kind of ['snapshot', 'delta', 'revision']) {
    source.addEventListener(kind, (event) => {
      const { data } = event as MessageEvent<string>;
      if (kind === 'snapshot') snapshot = data;
      tell({ kind, data });
    });
  }
  source.onerror = () => {
    tell({ kind: 'error', data: '' });
    if (source?.readyState !== EventSource.CLOSED) return;
    close();
    again = setTimeout(() => {
      again = undefined;
      if ([...ports.values()].some(Boolean)) open(address);
    }, pause * (0.75 + Math.random() / 2));
    pause = Math.min(30_000, pause * 2);
  };
}

function close(): void {
  source?.close();
  source = null;
}

function connect(port: Port): void {
  port.onmessage = (event: MessageEvent<{ kind: string; address?: string }>) => {
    const { kind, address } = event.data;
    ports.set(port, kind === 'watch');
    if (kind === 'leave') ports.delete(port);
    if (kind === 'watch' && address) {
      if (source && snapshot) port.postMessage({ kind: 'snapshot', data: snapshot });
      open(address);
    }
    if (![...ports.values()].some(Boolean)) close();
  };
}

addEventListener('connect', (event) => connect((event as MessageEvent).ports[0]));
