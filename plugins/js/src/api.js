// What user code finds in its global scope: objects over the one function that the host gives.

const host = globalThis.host;
delete globalThis.host;
delete globalThis.emit;

/** Puts an object into the global scope; user code cannot break what is in it. */
function offer(name, value) {
    Object.defineProperty(globalThis, name, { value: Object.freeze(value), enumerable: true });
}

const isBytes = (value) => value instanceof Uint8Array;

/** A value as it is kept: bytes as they are, everything else as JSON. */
function kept(value) {
    if (isBytes(value)) return value;
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("JSON cannot say this value");
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
        // The next key in order, or the end of what is left.
        if (reverse) to = last;
        else from = last + "\0";
    }
}

offer("state", {
    /** The value at `key`, undefined when there is none. */
    get: (key) => host("state.get", key),
    /** Stores JSON, or a Uint8Array. */
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
    /** `{value, cas, flags, expiry}`, undefined when there is no such document. */
    get: (key, { keyspace = "" } = {}) => document(host("kv.get", keyspace, key)),
    insert: (key, value, { keyspace = "", expiry = 0, flags = 0 } = {}) =>
        host("kv.insert", keyspace, key, kept(value), flags, expiry),
    upsert: (key, value, { keyspace = "", expiry = 0, flags = 0 } = {}) =>
        host("kv.upsert", keyspace, key, kept(value), flags, expiry),
    replace: (key, value, { keyspace = "", expiry = 0, flags = 0, cas } = {}) =>
        host("kv.replace", keyspace, key, kept(value), flags, expiry, cas),
    remove: (key, { keyspace = "", cas } = {}) => host("kv.remove", keyspace, key, cas),
    /** The value of the counter after `delta` was added. */
    counter: (key, delta = 1, { keyspace = "", initial = 0, expiry = 0 } = {}) =>
        host("kv.counter", keyspace, key, delta, initial, expiry)[0],
    touch: (key, expiry, { keyspace = "" } = {}) => host("kv.touch", keyspace, key, expiry),
    /** `[{operation, path, xattr}]` gives `{cas, results: [{found, value}]}`. */
    lookupIn(key, operations, { keyspace = "" } = {}) {
        const [cas, results] = host("kv.lookupIn", keyspace, key, JSON.stringify(operations));
        return { cas, results: results.map(([found, value]) => found ? { found, value } : { found, reason: value }) };
    },
    /** `[{operation, path, value, xattr, createPath}]`, all or none; gives `{cas, counters: [[position, sum]]}`. */
    mutateIn(key, operations, { keyspace = "", mode = "replace", expiry, flags, cas } = {}) {
        const [version, counters] =
            host("kv.mutateIn", keyspace, key, JSON.stringify(operations), mode, cas, expiry, flags);
        return { cas: version, counters };
    },
});

offer("timer", {
    /** Calls onTimer at `at`, a Date or milliseconds since the Unix epoch. */
    set: (name, at, payload = null) => { host("timer.set", name, Number(at), kept(payload)); },
    /** Gives whether there was one. */
    cancel: (name) => host("timer.cancel", name),
});

offer("http", {
    /** `{status, headers, text(), json(), bytes}`. */
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

/** What is left of the body of an answer. */
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
