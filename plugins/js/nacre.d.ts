/**
 * The global scope of a JavaScript plugin, and the handlers that it can export.
 *
 * Editors read this file with `jsconfig.json`; it does not run. Name the type of a handler:
 *
 *     /** @type {nacre.OnUpdate} *\/
 *     export function onUpdate(doc, { id }) { state.put(id, doc.title); }
 *
 * Everything except `config`, `log` and `Response` works only while a handler runs. Failures throw a `nacre.Failure`.
 */
declare namespace nacre {
    /** A value that can be stored: JSON or bytes. */
    type Value = any;
    /** Text, bytes, or pieces of both that are sent one by one. */
    type Body = string | Uint8Array | Iterable<string | Uint8Array>;

    /** The metadata of a change. */
    interface Meta {
        /** The key of the document. */
        id: string;
        /** The CAS, in nanoseconds since the Unix epoch; a string because it does not fit into a number. */
        cas: string;
        /** The seqno in the history of its vBucket. */
        seqno: number;
        vbucket: number;
        /** The revision: the number of changes of the document. */
        rev: number;
        /** The expiry as Unix time in seconds, 0 for never; for a deletion, its time. */
        expiry: number;
        /** The flags by which clients describe the format of the document. */
        flags: number;
        /** The ID of the collection. */
        collection: number;
        kind: "update" | "delete" | "expire";
        /** Extended attributes by name, if there are any. */
        xattrs?: { [name: string]: any };
        /**
         * The version that this one replaced, in the form in which handlers get documents; in a batch, base64 if it is not JSON. Only
         * with `[events] old = true`, and only if the bucket has kept it.
         */
        old?: any;
    }

    /** A change in a batch. */
    interface Event {
        meta: Meta;
        /** `null` for a deletion, base64 if the document is not JSON. */
        doc: any;
    }

    /** A timer that is due. */
    interface Timer {
        name: string;
        /** The due time in milliseconds since the Unix epoch. */
        due: number;
        /** The payload with which it was set; base64 for bytes. */
        payload: any;
    }

    /** A request to `/_plugin/{deployment}/…`. */
    interface Request {
        /** `GET`, `POST`, …. */
        method: string;
        /** The path below the deployment, decoded; begins with `/`. */
        path: string;
        /** The raw query string without `?`. */
        query: string;
        /** The decoded parameters of the query string; if a name occurs twice, the last value. */
        parameters: Record<string, string>;
        /** Names are in lower case. */
        headers: Record<string, string>;
        /** The body. */
        bytes: Uint8Array;
        text(): string;
        /** @throws SyntaxError if the body is not JSON. */
        json(): any;
    }

    /** Called when a document was created or changed; a document that is not JSON is a `Uint8Array`. */
    type OnUpdate = (doc: any, meta: Meta) => void | Promise<void>;
    /** Called when a document was deleted or has expired. */
    type OnDelete = (meta: Meta) => void | Promise<void>;
    /** Called instead of both with a whole batch. If it throws, all its writes are dropped. */
    type OnBatch = (events: Event[]) => void | Promise<void>;
    /** Called when a timer is due; the timer has been removed and can be set again. */
    type OnTimer = (timer: Timer) => void | Promise<void>;
    /** Called when history was cut back. Must remove the changes after `seqno`, and return the seqno of the resulting state. */
    type OnRollback = (vbucket: number, seqno: number) => number | Promise<number>;
    /** Returns a `Response`, a value to send as JSON, or undefined for 404. The state is read-only. */
    type Handle = (request: Request) => unknown;
    /** Merges the responses of several nodes into the one that `Handle` would return for all documents. It has no state. */
    type Merge = (request: Request, parts: Part[]) => unknown;

    /** The response of `Handle` on one node. */
    interface Part {
        status: number;
        /** Names are in lower case. */
        headers: Record<string, string>;
        /** The body. */
        bytes: Uint8Array;
        text(): string;
        /** @throws SyntaxError if the body is not JSON. */
        json(): any;
    }

    /** The error that a failed operation throws. */
    interface Failure extends Error {
        code:
            // Of `kv`. If `locked` or `temporary` is not caught, the call is repeated.
            | "not-found" | "exists" | "cas-mismatch" | "too-large" | "locked" | "temporary" | "denied" | "path"
            // Of `http`, which also has `denied` and `too-large`.
            | "timeout" | "failed"
            // An invalid argument; a write to the state in `handle`; a use outside of a handler.
            | "invalid" | "read-only" | "outside";
    }

    interface Range {
        /** The prefix of the keys; replaces `start` and `end`. */
        prefix?: string;
        /** The first key. */
        start?: string;
        /** The key after the last; undefined for no bound. */
        end?: string | undefined;
        limit?: number;
        /** True for descending order, from the end of the range. */
        reverse?: boolean;
    }

    interface Document {
        value: any;
        cas: string;
        flags: number;
        /** Unix time in seconds; 0 for never. */
        expiry: number;
    }

    interface Lookup {
        operation: "get" | "exists" | "count" | "document";
        path?: string;
        /** True if the path begins with the name of an extended attribute. */
        xattr?: boolean;
    }

    interface Looked {
        cas: string;
        /** One result per operation. */
        results: { found: boolean; value?: any; reason?: string }[];
    }

    interface Mutation {
        operation:
            | "insert" | "upsert" | "replace" | "remove" | "counter" | "setDocument" | "removeDocument"
            | "arrayAppend" | "arrayPrepend" | "arrayInsert" | "arrayAddUnique";
        path?: string;
        value?: any;
        /** True for an extended attribute. Such operations must come first. */
        xattr?: boolean;
        /** True to create missing parents. */
        createPath?: boolean;
        /** True if the value is a macro such as `"${Mutation.CAS}"`. */
        expandMacros?: boolean;
    }

    interface Mutating extends In, Versioned {
        /** The default is `replace`. */
        mode?: "insert" | "upsert" | "replace";
        expiry?: number;
        flags?: number;
    }

    interface Mutated {
        cas: string;
        /** The position and new value of each counter. */
        counters: [number, number][];
    }

    interface In {
        /** `scope.collection`, or `bucket.scope.collection`; the default is the keyspace of the deployment. */
        keyspace?: string;
    }

    interface Storing extends In {
        /** Up to 30 days in seconds from now, or Unix time in seconds; 0 for never. */
        expiry?: number;
        flags?: number;
    }

    interface Versioned {
        /** The CAS that the document must have; any if it is omitted. */
        cas?: string | undefined;
    }

    interface Counting extends In {
        /** The value of a new counter; the default is 0. */
        initial?: number;
        /** The expiry of a new counter, as for a document. */
        expiry?: number;
    }

    /** The response to a request of the plugin, whatever its status. */
    interface Fetched {
        status: number;
        /** Names are in lower case. */
        headers: Record<string, string>;
        bytes: Uint8Array;
        text(): string;
        json(): any;
    }
}

/** The configuration of the deployment. */
declare const config: any;

/** The plugin's own key space, ordered by the UTF-8 bytes of keys. It is committed together with the plugin's position in the history. */
declare const state: {
    /** Returns the value at a key of 1 to 65,536 bytes; undefined if it does not exist. */
    get(key: string): any;
    put(key: string, value: nacre.Value): void;
    delete(key: string): void;
    scan(range?: nacre.Range): IterableIterator<[key: string, value: any]>;
};

/** Documents of the bucket that the deployment is granted. Writes take effect immediately. */
declare const kv: {
    /** Returns a document; undefined if it does not exist. */
    get(key: string, options?: nacre.In): nacre.Document | undefined;
    /** Stores a document that must not exist (`exists`). Returns the CAS, as the other functions do. */
    insert(key: string, value: nacre.Value, options?: nacre.Storing): string;
    upsert(key: string, value: nacre.Value, options?: nacre.Storing): string;
    /** Stores a document that must exist (`not-found`). */
    replace(key: string, value: nacre.Value, options?: nacre.Storing & nacre.Versioned): string;
    /** Deletes a document. Returns the CAS of the tombstone. */
    remove(key: string, options?: nacre.In & nacre.Versioned): string;
    /** Adds `delta`, by default 1, to a counter, which never falls below 0. Returns its value. */
    counter(key: string, delta?: number, options?: nacre.Counting): number;
    /** Sets the expiry of a document. Returns its new CAS. */
    touch(key: string, expiry: number, options?: nacre.In): string;
    /** Reads parts of a document; at most 16. */
    lookupIn(key: string, operations: nacre.Lookup[], options?: nacre.In): nacre.Looked;
    /** Changes parts of a document, at most 16: either all or none (`path`). */
    mutateIn(key: string, operations: nacre.Mutation[], options?: nacre.Mutating): nacre.Mutated;
};

/** Schedules calls of `onTimer`. Timers are part of the state. */
declare const timer: {
    /** Sets a timer that fires at `at`, a Date or milliseconds since the Unix epoch; replaces a timer with the same name. */
    set(name: string, at: Date | number, payload?: nacre.Value): void;
    /** Cancels a timer. Returns true if it existed. */
    cancel(name: string): boolean;
};

/** Requests to the hosts that the deployment lists. */
declare const http: {
    /** Sends a request and waits for the response, without `await`. A body other than text or bytes is sent as JSON. */
    fetch(
        url: string,
        options?: { method?: string; headers?: Record<string, string>; body?: nacre.Value },
    ): nacre.Fetched;
};

/** Metrics for the operator; names have 1 to 64 of the characters `a-z`, `0-9` and `_`. */
declare const metrics: {
    /** Adds `delta`, by default 1. */
    add(name: string, delta?: number): void;
    set(name: string, value: number): void;
};

/** Writes a line to the log for the operator. */
declare function log(...values: unknown[]): void;

/** The same, under the usual names. */
declare const console: {
    log(...values: unknown[]): void;
    debug(...values: unknown[]): void;
    info(...values: unknown[]): void;
    warn(...values: unknown[]): void;
    error(...values: unknown[]): void;
};

/** A response to a request; the default `status` is 200. */
declare class Response {
    constructor(body?: nacre.Body, options?: { status?: number; headers?: Record<string, string> });
    static json(value: any, options?: { status?: number; headers?: Record<string, string> }): Response;
    body: nacre.Body;
    status: number;
    headers: Record<string, string>;
}
