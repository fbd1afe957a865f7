// What a screen has read: nothing yet, something, or why not.

import { untrack } from 'svelte';
import { ApiError, get, messageOf, textOf } from './api';
import { live } from './live.svelte';

/** Time after which a read is made again although it has not ended. */
const PATIENCE_MS = 30_000;

/** Reads something for as long as the screen is there: at once, when the agreed state changes, and each `every` seconds. */
export class Loaded<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<ApiError | null>(null);
  loading = $state(true);
  private turn = 0;
  /** When the read that is under way began; 0 without one. */
  private begun = 0;

  constructor(
    private readonly read: (signal: AbortSignal, background: boolean) => Promise<T>,
    /** `of` is what is read about: when it changes, the screen begins again. */
    options: { every?: number; onRevision?: boolean; of?: () => unknown } = {},
  ) {
    let about = options.of?.();
    $effect(() => {
      const stop = new AbortController();
      const next = options.of?.();
      void live.logins;
      if (next !== about) [about, this.value, this.error] = [next, null, null];
      // What is read depends on nothing: a screen asks again when it wants something else.
      untrack(() => void this.run(stop.signal, false));
      const timer = options.every
        ? setInterval(() => {
            // A node that takes longer than a period would never be heard: each answer would be overtaken by the next question.
            const isUnderWay = Date.now() - this.begun < PATIENCE_MS;
            if (!document.hidden && !live.paused && !isUnderWay) void this.run(stop.signal, true);
          }, options.every * 1000)
        : undefined;
      return () => {
        stop.abort();
        clearInterval(timer);
      };
    });
    if (options.onRevision) {
      let seen = live.revision;
      $effect(() => {
        if (live.revision !== seen) {
          seen = live.revision;
          untrack(() => void this.run(new AbortController().signal, true));
        }
      });
    }
  }

  /** Reads again. */
  again = (): Promise<void> => untrack(() => this.run(new AbortController().signal, false));

  private async run(signal: AbortSignal, background: boolean, patience = 60): Promise<void> {
    const turn = (this.turn += 1);
    this.begun = Date.now();
    if (!background && this.value === null) this.loading = true;
    try {
      const value = await this.read(signal, background);
      // An answer that was overtaken says what was.
      if (turn === this.turn && !signal.aborted) [this.value, this.error] = [value, null];
    } catch (error) {
      if (turn !== this.turn || signal.aborted) return;
      // What has just been created may not be served yet.
      if (error instanceof ApiError && error.status === 503 && this.value === null && patience > 0) {
        setTimeout(() => {
          if (turn === this.turn && !signal.aborted) void this.run(signal, background, patience - 1);
        }, 1000);
      }
      this.error = error instanceof ApiError ? error : new ApiError(0, messageOf(error));
    } finally {
      if (turn === this.turn) [this.loading, this.begun] = [false, 0];
    }
  }
}

/** Says what has happened, at the edge of the screen. */
class Notices {
  list = $state<{ id: number; kind: 'good' | 'bad'; text: string }[]>([]);
  private next = 0;
  say(text: string, kind: 'good' | 'bad' = 'good'): void {
    const id = (this.next += 1);
    this.list.push({ id, kind, text });
    setTimeout(() => this.drop(id), kind === 'good' ? 4000 : 12_000);
  }
  drop(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }
}
export const notices = new Notices();

/** Does something that may fail, and says how it went; true if it went well. */
export async function attempt(work: () => Promise<unknown>, done = ''): Promise<boolean> {
  try {
    await work();
    if (done) notices.say(done);
    return true;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') return false;
    notices.say(messageOf(error), 'bad');
    return false;
  }
}

/** Deletes what `path` names, says so, and then does what `after` says. */
export async function remove(path: string, name: string, after: () => unknown): Promise<void> {
  await textOf(path, { method: 'DELETE' });
  notices.say(`${name} was deleted`);
  await after();
}

/** A form that is sent: whether it is on its way, and what was wrong with it. */
export class Submission {
  busy = $state(false);
  /** Error that concerns no field of the form. */
  problem = $state('');
  fields = $state.raw<Record<string, string>>({});

  /** Does the work; true if it went well. */
  async run(work: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    [this.busy, this.problem, this.fields] = [true, '', {}];
    try {
      await work();
      return true;
    } catch (error) {
      [this.problem, this.fields] = [messageOf(error), error instanceof ApiError ? error.fields : {}];
      return false;
    } finally {
      this.busy = false;
    }
  }
}

/** Names of the buckets that the user may see. */
export const readBucketNames = (signal: AbortSignal): Promise<string[]> =>
  get<{ name: string }[]>('pools/default/buckets?skipMap=true', { signal, background: true }).then((buckets) => buckets.map(({ name }) => name));
