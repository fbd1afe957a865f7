// Defines the global scope of user code: objects around the host's single function.

const host = globalThis.host;
delete globalThis.host;
delete globalThis.emit;

/** Defines a frozen object in the global scope, so that user code cannot change it. */
function offer(name, value) {
    Object.defineProperty(globalThis, name, { value: Object.freeze(value), enumerable: true });
}

const isBytes = (value) => value instanceof Uint8Array;

/** Returns a value in stored form: bytes unchanged, everything else as JSON. */
function kept(value) {
    if (isBytes(value)) return value;
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("this value has no JSON representation");
    return text;
}

function* scan({ prefix, start = prefix ?? "", end, limit = Infinity, reverse = false } = {}) {
    let [from, to] = [start, end ?? ""];
    while (limit > 0) {
        const found = host("state.scan", from, to, Math.min(limit, 100), reverse, prefix ?? "");
        if (found.length === 0) return;
        for (const [key, value] of found) yield [key, value];
        limit -= found.length;
        const last = found.at(-1)[0];
        // Continue at the next key in order, or end before the last key.
        if (reverse) to = last;
        else from = last + "\0";
    }
}

offer("state", {
    /** Returns the value at `key`; undefined if it does not exist. */
    get: (key) => host("state.get", key),
    /** Stores a value: JSON or a Uint8Array. */
    put: (key, value) => { host("state.put", key, kept(value)); },
    delete: (key) => { host("state.delete", key); },
    /** Iterates over [key, value]: `{prefix, start, end, limit, reverse}`. */
    scan,
});

const document = (found) => {
    if (found === undefined) return undefined;
    const [cas, flags, expiry, value] = found;
    return { value, cas, flags, expiry };
};

offer("kv", {
    /** Returns `{value, cas, flags, expiry}`; undefined if the document does not exist. */
    get: (key, { keyspace = "" } = {}) => document(host("kv.get", keyspace, key)),
    insert: (key, value, { keyspace = "", expiry = 0, flags = 0 } = {}) =>
        host("kv.insert", keyspace, key, kept(value), flags, expiry),
    upsert: (key, value, { keyspace = "", expiry = 0, flags = 0 } = {}) =>
        host("kv.upsert", keyspace, key, kept(value), flags, expiry),
    replace: (key, value, { keyspace = "", expiry = 0, flags = 0, cas } = {}) =>
        host("kv.replace", keyspace, key, kept(value), flags, expiry, cas),
    remove: (key, { keyspace = "", cas } = {}) => host("kv.remove", keyspace, key, cas),
    /** Adds `delta` to a counter. Returns its new value. */
    counter: (key, delta = 1, { keyspace = "", initial = 0, expiry = 0 } = {}) =>
        host("kv.counter", keyspace, key, delta, initial, expiry)[0],
    touch: (key, expiry, { keyspace = "" } = {}) => host("kv.touch", keyspace, key, expiry),
    /** Takes `[{operation, path, xattr}]`. Returns `{cas, results: [{found, value}]}`. */
    lookupIn(key, operations, { keyspace = "" } = {}) {
        const [cas, results] = host("kv.lookupIn", keyspace, key, JSON.stringify(operations));
        return { cas, results: results.map(([found, value]) => found ? { found, value } : { found, reason: value }) };
    },
    /** Takes `[{operation, path, value, xattr, createPath}]`; applies all or none. Returns `{cas, counters: [[position, sum]]}`. */
    mutateIn(key, operations, { keyspace = "", mode = "replace", expiry, flags, cas } = {}) {
        const [version, counters] =
            host("kv.mutateIn", keyspace, key, JSON.stringify(operations), mode, cas, expiry, flags);
        return { cas: version, counters };
    },
});

offer("timer", {
    /** Calls onTimer at `at`, a Date or milliseconds since the Unix epoch. */
    set: (name, at, payload = null) => { host("timer.set", name, Number(at), kept(payload)); },
    /** Cancels a timer. Returns true if it existed. */
    cancel: (name) => host("timer.cancel", name),
});

offer("http", {
    /** Returns `{status, headers, text(), json(), bytes}`. */
    fetch(url, { method = "GET", headers = {}, body = "" } = {}) {
        const pairs = Object.entries(headers).flat().map(String);
        const [status, names, bytes, text] =
            host("http.send", method, url, isBytes(body) || typeof body === "string" ? body : kept(body), ...pairs);
        return { status, headers: JSON.parse(names), bytes, text: () => text, json: () => JSON.parse(text) };
    },
});

offer("metrics", {
    add: (name, delta = 1) => { host("metrics.add", name, delta); },
    set: (name, value) => { host("metrics.set", name, value); },
});

offer("console", { log, debug: log, info: log, warn: log, error: log });

class Response {
    constructor(body = "", { status = 200, headers = {} } = {}) {
        this.body = body;
        this.status = status;
        this.headers = headers;
    }
    static json(value, { status = 200, headers = {} } = {}) {
        return new Response(kept(value), { status, headers: { "content-type": "application/json", ...headers } });
    }
}
offer("Response", Response);

const isPiece = (body) => typeof body === "string" || isBytes(body);
const notFound = () => Response.json({ error: "not_found", reason: "missing" }, { status: 404 });

/** The rest of a response's body. */
let pieces = null;

const withBody = (body) => ({ bytes: body, text: () => host("text", body), json: () => JSON.parse(host("text", body)) });

/** A request as handlers see it. */
function asked(request, body) {
    const parameters = {};
    for (const part of request.query.split("&").filter(Boolean)) {
        const [name, value = ""] = part.split("=", 2).map((text) => decodeURIComponent(text.replaceAll("+", " ")));
        parameters[name] = value;
    }
    const { headers, ...rest } = request;
    return { ...rest, parameters, headers: Object.fromEntries(headers), ...withBody(body) };
}

export async function runHandle(handle, request, body) {
    respond(await handle(asked(request, body)));
}

export async function runMerge(merge, request, body, about, bodies) {
    let end = 0;
    const parts = about.map(({ status, headers, length }) => {
        const body = bodies.slice(end, (end += length));
        return { status, headers: Object.fromEntries(headers), ...withBody(body) };
    });
    respond(await merge(asked(request, body), parts));
}

function respond(answer) {
    pieces = null;
    if (answer === undefined) answer = notFound();
    if (!(answer instanceof Response)) answer = Response.json(answer);
    const whole = isPiece(answer.body);
    if (!whole) pieces = answer.body[Symbol.iterator]();
    const pairs = Object.entries(answer.headers).flat().map(String);
    host("respond", answer.status, whole ? answer.body : "", !whole, ...pairs);
}

export function runMore() {
    const { value = "", done } = pieces === null ? { done: true } : pieces.next();
    host("respond", 200, isPiece(value) ? value : kept(value), !done);
}

export function makeMeta(id, cas, seqno, vbucket, rev, expiry, flags, collection, kind, xattrs, old) {
    const meta = { id, cas, seqno, vbucket, rev, expiry, flags, collection, kind };
    if (xattrs !== undefined) meta.xattrs = xattrs;
    if (old !== undefined) meta.old = old;
    return meta;
}

export function setConfig(config) {
    offer("config", config);
}
