/**
 * What a plugin in JavaScript finds in its global scope, and the handlers that it may export.
 *
 * An editor reads this beside `jsconfig.json`; nothing of it runs. A handler names its type:
 *
 *     /** @type {nacre.OnUpdate} *\/
 *     export function onUpdate(doc, { id }) { state.put(id, doc.title); }
 *
 * All but `config`, `log` and `Response` works while a handler runs, and not before. What fails throws a `nacre.Failure`.
 */
declare namespace nacre {
    /** What can be kept: JSON, or bytes. */
    type Value = any;
    /** A text, bytes, or pieces of both that are sent one by one. */
    type Body = string | Uint8Array | Iterable<string | Uint8Array>;

    /** What is known of a change beside the document. */
    interface Meta {
        /** The key of the document. */
        id: string;
        /** Its version: a string, as it does not fit a number. In nanoseconds since the Unix epoch. */
        cas: string;
        /** Position in the history of its vBucket. */
        seqno: number;
        vbucket: number;
        /** How often the document was changed. */
        rev: number;
        /** Unix second of expiry, 0 for never; of deletion when it is gone. */
        expiry: number;
        /** What clients say about the format of the document. */
        flags: number;
        /** The number of the collection. */
        collection: number;
        kind: "update" | "delete" | "expire";
        /** Extended attributes by name, where there are any. */
        xattrs?: { [name: string]: any };
        /**
         * The document that this version took the place of, as handlers get documents; in a batch base64 for what is not JSON. Only
         * with `[events] old = true`, and where the bucket has kept it.
         */
        old?: any;
    }

    /** One change of a batch. */
    interface Event {
        meta: Meta;
        /** `null` for what is gone, base64 for what is not JSON. */
        doc: any;
    }

    /** A timer that is due. */
    interface Timer {
        name: string;
        /** When it was to fire, in milliseconds since the Unix epoch. */
        due: number;
        /** What was given when it was set; base64 for bytes. */
        payload: any;
    }

    /** A request to `/_plugin/{deployment}/…`. */
    interface Request {
        /** `GET`, `POST`, …. */
        method: string;
        /** The path below the deployment, decoded; begins with `/`. */
        path: string;
        /** The query string as it came, without `?`. */
        query: string;
        /** The query string in parts, decoded; of two of a name the last. */
        parameters: Record<string, string>;
        /** Names are in lower case. */
        headers: Record<string, string>;
        /** The body. */
        bytes: Uint8Array;
        text(): string;
        /** @throws SyntaxError when the body is not JSON. */
        json(): any;
    }

    /** A document was created or changed; one that is not JSON is a `Uint8Array`. */
    type OnUpdate = (doc: any, meta: Meta) => void | Promise<void>;
    /** A document was deleted or has expired. */
    type OnDelete = (meta: Meta) => void | Promise<void>;
    /** In place of both: a batch as a whole. When it throws, all that it wrote is dropped. */
    type OnBatch = (events: Event[]) => void | Promise<void>;
    /** A timer is due; it is gone, and may be set again. */
    type OnTimer = (timer: Timer) => void | Promise<void>;
    /** History was cut back: removes what came after `seqno`; gives the seqno that the state stands at. */
    type OnRollback = (vbucket: number, seqno: number) => number | Promise<number>;
    /** Answers: a `Response`, or what is to be sent as JSON, or undefined for 404. The state can only be read. */
    type Handle = (request: Request) => unknown;
    /** Puts the answers of several nodes together, as `Handle` would have answered with all documents. There is no state. */
    type Merge = (request: Request, parts: Part[]) => unknown;

    /** What `Handle` answered on one node. */
    interface Part {
        status: number;
        /** Names are in lower case. */
        headers: Record<string, string>;
        /** The body. */
        bytes: Uint8Array;
        text(): string;
        /** @throws SyntaxError when the body is not JSON. */
        json(): any;
    }

    /** What is thrown when something cannot be had. */
    interface Failure extends Error {
        code:
            // Of `kv`. Uncaught, `locked` and `temporary` have the call made again.
            | "not-found" | "exists" | "cas-mismatch" | "too-large" | "locked" | "temporary" | "denied" | "path"
            // Of `http`, which also has `denied` and `too-large`.
            | "timeout" | "failed"
            // An argument is wrong; the state was written by `handle`; no handler runs.
            | "invalid" | "read-only" | "outside";
    }

    interface Range {
        /** Keys that begin with this; in place of `start`, and of `end`. */
        prefix?: string;
        /** The first key. */
        start?: string;
        /** The key after the last; undefined for no end. */
        end?: string | undefined;
        limit?: number;
        /** Descending, from the end of the range. */
        reverse?: boolean;
    }

    interface Document {
        value: any;
        cas: string;
        flags: number;
        /** Unix second, 0 for never. */
        expiry: number;
    }

    interface Lookup {
        operation: "get" | "exists" | "count" | "document";
        path?: string;
        /** Whether the path begins with the name of an extended attribute. */
        xattr?: boolean;
    }

    interface Looked {
        cas: string;
        /** One for each operation. */
        results: { found: boolean; value?: any; reason?: string }[];
    }

    interface Mutation {
        operation:
            | "insert" | "upsert" | "replace" | "remove" | "counter" | "setDocument" | "removeDocument"
            | "arrayAppend" | "arrayPrepend" | "arrayInsert" | "arrayAddUnique";
        path?: string;
        value?: any;
        /** Operations on extended attributes come first. */
        xattr?: boolean;
        /** Makes missing parents. */
        createPath?: boolean;
        /** The value is a macro such as `"${Mutation.CAS}"`. */
        expandMacros?: boolean;
    }

    interface Mutating extends In, Versioned {
        /** `replace` when it is left out. */
        mode?: "insert" | "upsert" | "replace";
        expiry?: number;
        flags?: number;
    }

    interface Mutated {
        cas: string;
        /** The position of each counter, and what it has come to. */
        counters: [number, number][];
    }

    interface In {
        /** `scope.collection`, or `bucket.scope.collection`; that of the deployment when it is left out. */
        keyspace?: string;
    }

    interface Storing extends In {
        /** Seconds until it expires, up to 30 days, or a Unix second; 0 for never. */
        expiry?: number;
        flags?: number;
    }

    interface Versioned {
        /** Only this version; any when it is left out. */
        cas?: string | undefined;
    }

    interface Counting extends In {
        /** What a counter begins with where there is none; 0 when it is left out. */
        initial?: number;
        /** Of a counter that is made; as for a document. */
        expiry?: number;
    }

    /** The answer to a request that the plugin has sent, whatever its status. */
    interface Fetched {
        status: number;
        /** Names are in lower case. */
        headers: Record<string, string>;
        bytes: Uint8Array;
        text(): string;
        json(): any;
    }
}

/** What the deployment was configured with. */
declare const config: any;

/** The plugin's own key space, in order of the keys' UTF-8 bytes. It is committed with how far the plugin has read. */
declare const state: {
    /** The value at a key of 1 to 65,536 bytes; undefined when there is none. */
    get(key: string): any;
    put(key: string, value: nacre.Value): void;
    delete(key: string): void;
    scan(range?: nacre.Range): IterableIterator<[key: string, value: any]>;
};

/** Documents of the bucket, as far as the deployment is granted. What is written takes effect at once. */
declare const kv: {
    /** Undefined when there is no such document. */
    get(key: string, options?: nacre.In): nacre.Document | undefined;
    /** Stores where there is none (`exists`); gives the CAS, as do the others. */
    insert(key: string, value: nacre.Value, options?: nacre.Storing): string;
    upsert(key: string, value: nacre.Value, options?: nacre.Storing): string;
    /** Stores where there is one (`not-found`). */
    replace(key: string, value: nacre.Value, options?: nacre.Storing & nacre.Versioned): string;
    /** Gives the CAS of the tombstone. */
    remove(key: string, options?: nacre.In & nacre.Versioned): string;
    /** Adds to a counter, which stops at 0, and gives its value; `delta` is 1 when it is left out. */
    counter(key: string, delta?: number, options?: nacre.Counting): number;
    /** Sets when the document expires; gives its new CAS. */
    touch(key: string, expiry: number, options?: nacre.In): string;
    /** Reads parts of a document, 16 at most. */
    lookupIn(key: string, operations: nacre.Lookup[], options?: nacre.In): nacre.Looked;
    /** Changes parts of a document, 16 at most: all or none (`path`). */
    mutateIn(key: string, operations: nacre.Mutation[], options?: nacre.Mutating): nacre.Mutated;
};

/** Calls of `onTimer`. Timers belong to the state. */
declare const timer: {
    /** Fires at `at`, a Date or milliseconds since the Unix epoch, in place of a timer of the same name. */
    set(name: string, at: Date | number, payload?: nacre.Value): void;
    /** Gives whether there was one. */
    cancel(name: string): boolean;
};

/** Requests to the hosts that the deployment names. */
declare const http: {
    /** Sends a request and waits for its answer: it needs no `await`. A body that is neither text nor bytes is sent as JSON. */
    fetch(
        url: string,
        options?: { method?: string; headers?: Record<string, string>; body?: nacre.Value },
    ): nacre.Fetched;
};

/** Numbers for the operator; names have 1 to 64 of the characters `a-z`, `0-9` and `_`. */
declare const metrics: {
    /** Adds `delta`, 1 when it is left out. */
    add(name: string, delta?: number): void;
    set(name: string, value: number): void;
};

/** Adds a line for the operator. */
declare function log(...values: unknown[]): void;

/** The same under the usual names. */
declare const console: {
    log(...values: unknown[]): void;
    debug(...values: unknown[]): void;
    info(...values: unknown[]): void;
    warn(...values: unknown[]): void;
    error(...values: unknown[]): void;
};

/** The answer to a request; `status` is 200 when it is left out. */
declare class Response {
    constructor(body?: nacre.Body, options?: { status?: number; headers?: Record<string, string> });
    static json(value: any, options?: { status?: number; headers?: Record<string, string> }): Response;
    body: nacre.Body;
    status: number;
    headers: Record<string, string>;
}
