// Defines the global scope of a function's code.

const host = globalThis.host;
const writeLog = globalThis.log;
for (const name of ["host", "emit", "sum", "dateToArray", "decodeBase64"]) delete globalThis[name];
const { stringify, parse } = JSON;
const { isArray } = Array;
const [Map_, Date_, Bytes, Buffer, Proxy_, globalEval] = [Map, Date, Uint8Array, ArrayBuffer, Proxy, eval];

/** Flags of a document's format: JSON, or bytes. */
const FLAGS_JSON = 0x02000006;
const FLAGS_BYTES = 0x03000002;
/** Maximum length of a timer's name in bytes. */
const TIMER_NAME_BYTES_MAX = 1024;
/** Maximum number of redirections that a request follows. */
const REDIRECTIONS_MAX = 5;

function offer(name, value) {
    Object.defineProperty(globalThis, name, { value, enumerable: true, writable: true, configurable: true });
}

class EventingError extends Error {
    get name() { return "EventingError"; }
}
class KVError extends Error {
    constructor(message, code) {
        super(message);
        this.code = code;
    }
    get name() { return "KVError"; }
}
class CurlError extends Error {
    get name() { return "CurlError"; }
}
/** The error of a service that refuses a query. */
class RefusedQuery extends Error {
    constructor(message, code, cause) {
        super(message, { cause });
        this.code = code;
        this.errors = [{ code, message }];
    }
}
class N1QLError extends RefusedQuery {
    get name() { return "N1QLError"; }
}
for (const error of [EventingError, KVError, CurlError, N1QLError]) offer(error.name, error);

Math.random = function random() { return host("random"); };

// ---- Documents

/** The bindings of bucket aliases. */
const bindings = new WeakMap();
/** The configuration of the function; set once. */
let self = null;

const bytesOf = (value) => {
    if (value instanceof Bytes) return value;
    if (value instanceof Buffer) return new Bytes(value);
    if (Buffer.isView(value)) return new Bytes(value.buffer, value.byteOffset, value.byteLength);
    return null;
};

/** Encodes a body for storage: bytes unchanged, everything else as JSON. */
function stored(value) {
    const bytes = bytesOf(value);
    if (bytes !== null) return [bytes, FLAGS_BYTES];
    const text = stringify(value);
    if (text === undefined) throw new KVError("a document must be JSON or bytes", "value");
    return [text, FLAGS_JSON];
}

/** Texts that result from using a wrong value as a key by mistake. */
const MISTAKEN_KEYS = ["undefined", "null", "[object Object]"];
const FUNCTION_TEXT = /^(async\s+)?function\b|^(async\s*)?\([^)]*\)\s*=>|^class\b/;

/** Returns the key of a document that an alias writes. Refuses keys that only a mistake can produce. */
function keyOf(alias, key) {
    if (typeof key === "symbol") throw new KVError(`a symbol is no key of a document in ${alias}`, "key");
    if (MISTAKEN_KEYS.includes(key) || FUNCTION_TEXT.test(key)) {
        throw new KVError(`${stringify(key.slice(0, 40))} is no key of a document in ${alias}: name one by a string`, "key");
    }
    return key;
}

/** Decodes a body for the code. */
const shown = (value) => (value instanceof Bytes ? value.buffer : value);

const covers = (pattern, name) => pattern === "*" || pattern === name;

/** Returns the keyspace of a binding's document, and whether a write there would trigger the function. */
function place(binding, meta) {
    let { scope, collection } = binding;
    if (scope === "*" || collection === "*") {
        const named = meta?.keyspace;
        if (typeof named?.scope_name !== "string" || typeof named?.collection_name !== "string") {
            throw new TypeError(`${binding.alias} stands for several collections: name one in meta.keyspace`);
        }
        if (!covers(scope, named.scope_name) || !covers(collection, named.collection_name)) {
            throw new KVError(`${binding.alias} does not hold ${named.scope_name}.${named.collection_name}`, "not-held");
        }
        [scope, collection] = [named.scope_name, named.collection_name];
    }
    const path = `${scope}.${collection}`;
    const isOwn = binding.bucket === null;
    return {
        keyspace: isOwn ? path : `${binding.bucket}.${path}`,
        isSource: isOwn && covers(self.keyspace.scope, scope) && covers(self.keyspace.collection, collection),
    };
}

/** The operations that mark a write to the source. */
const marks = () => [
    { operation: "upsert", path: "_eventing.fiid", value: self.id, xattr: true, createPath: true },
    {
        operation: "upsert", path: "_eventing.cas", value: "${Mutation.CAS}",
        xattr: true, createPath: true, expandMacros: true,
    },
];

function writable(binding) {
    if (!binding.writes) throw new KVError(`${binding.alias} is read-only`, "read-only");
}

/** Documents that were read with `{cache: true}` in this call, by keyspace and key. */
const cached = new Map_();

const nameOf = (keyspace, id) => `${keyspace}\0${id}`;

function read(keyspace, id, cache) {
    if (cache !== true) return host("kv.get", keyspace, id);
    const name = nameOf(keyspace, id);
    if (!cached.has(name)) cached.set(name, host("kv.get", keyspace, id));
    return cached.get(name);
}

/** Stores a document. Returns its CAS. */
function store(binding, meta, doc, mode, { cas, expiry = 0, selfRecursion = false } = {}) {
    writable(binding);
    const { keyspace, isSource } = place(binding, meta);
    const [body, flags] = stored(doc);
    cached.delete(nameOf(keyspace, meta.id));
    if (!isSource || selfRecursion) return host(`kv.${mode}`, keyspace, meta.id, body, flags, expiry, cas);
    const operations = stringify([...marks(), { operation: "setDocument" }]);
    return host("kv.mutateIn", keyspace, meta.id, operations, mode, cas, expiry, flags, body)[0];
}

/** Removes a document. Returns the CAS of its tombstone. */
function remove(binding, meta, cas) {
    writable(binding);
    const { keyspace, isSource } = place(binding, meta);
    cached.delete(nameOf(keyspace, meta.id));
    if (!isSource) return host("kv.remove", keyspace, meta.id, cas);
    const operations = stringify([...marks(), { operation: "removeDocument" }]);
    return host("kv.mutateIn", keyspace, meta.id, operations, "replace", cas)[0];
}

/** Runs `work`, and throws an error of the host as a KVError. */
function thrown(work) {
    try {
        return work();
    } catch (error) {
        if (typeof error?.code !== "string") throw error;
        host("count", "bucket_op_exception_count");
        throw new KVError(error.message, error.code);
    }
}

function bucket(binding) {
    const proxy = new Proxy_({}, {
        get(target, key) {
            if (typeof key !== "string") return undefined;
            return thrown(() => {
                const found = host("kv.get", place(binding).keyspace, key);
                if (found === undefined && self.missingThrows) throw new KVError("the document does not exist", "not-found");
                return found === undefined ? undefined : shown(found[3]);
            });
        },
        set(target, key, doc) {
            thrown(() => store(binding, { id: keyOf(binding.alias, key) }, doc, "upsert"));
            return true;
        },
        deleteProperty(target, key) {
            thrown(() => {
                try {
                    remove(binding, { id: keyOf(binding.alias, key) });
                } catch (error) {
                    if (error.code !== "not-found") throw error;
                }
            });
            return true;
        },
        has: (target, key) =>
            typeof key === "string" && thrown(() => host("kv.get", place(binding).keyspace, key)) !== undefined,
        defineProperty() { throw new TypeError(`${binding.alias} holds documents, not properties`); },
        ownKeys: () => [],
        getPrototypeOf: () => null,
    });
    bindings.set(proxy, binding);
    return proxy;
}

// ---- couchbase.…

const REASONS = {
    "not-found": { code: 272, name: "LCB_KEY_ENOENT", desc: "The document key does not exist on the server", key_not_found: true },
    "exists": { code: 272, name: "LCB_KEY_EEXISTS", desc: "The document key already exists in the server", key_already_exists: true },
    "cas-mismatch": {
        code: 272, name: "LCB_KEY_EEXISTS", desc: "The document key exists with a CAS value different than specified", cas_mismatch: true,
    },
    "too-large": { code: 259, name: "LCB_E2BIG", desc: "The document is too large" },
    "locked": { code: 265, name: "LCB_ETMPFAIL", desc: "The document is locked" },
    "path": { code: 308, name: "LCB_SUBDOC_MULTI_FAILURE" },
};

/** Returns the binding and the key of an accessor. */
function target(proxy, meta, what) {
    const binding = typeof proxy === "object" && proxy !== null ? bindings.get(proxy) : undefined;
    if (binding === undefined) throw new TypeError(`${what} needs the alias of a bucket first`);
    if (typeof meta?.id !== "string" || meta.id === "") throw new TypeError(`${what} needs the key of a document as meta.id`);
    if (meta.cas !== undefined && typeof meta.cas !== "string") throw new TypeError(`${what} needs meta.cas as a string`);
    return binding;
}

/** Returns the expiry of a document in Unix seconds, 0 for never. */
function expiryOf(meta, what) {
    const date = meta.expiry_date;
    if (date === undefined || date === null) return 0;
    const ms = date instanceof Date_ ? date.getTime() : NaN;
    if (Number.isNaN(ms)) throw new TypeError(`${what} needs meta.expiry_date as a Date`);
    // A time long past expires immediately; the server would treat a small number as seconds from now.
    return Math.min(Math.max(Math.ceil(ms / 1000), 30 * 86400 + 1), 0xffffffff);
}

/** Errors that accessors throw: calls while no handler runs, and values that no document can have. */
const THROWN = ["outside", "value"];

/** Returns the result of `work`, or the error of the host. Throws if the host has no such keyspace, as Couchbase does. */
function result(work) {
    try {
        return { ...work(), success: true };
    } catch (error) {
        if (error?.code === "denied") {
            host("count", "bucket_op_exception_count");
            throw new KVError(error.message, error.code);
        }
        if (typeof error?.code !== "string" || THROWN.includes(error.code)) throw error;
        const reason = REASONS[error.code] ?? { code: 1, name: "LCB_ERR_GENERIC" };
        return { error: { desc: error.message, ...reason }, success: false };
    }
}

const withExpiry = (meta, expiry) => (expiry === 0 ? meta : { ...meta, expiry_date: new Date_(expiry * 1000) });

function get(proxy, meta, options = {}) {
    const binding = target(proxy, meta, "couchbase.get");
    return result(() => {
        const { keyspace } = place(binding, meta);
        const found = read(keyspace, meta.id, options?.cache);
        if (found === undefined) throw new KVError("", "not-found");
        const [cas, , expiry, value] = found;
        const data_type = value instanceof Bytes ? "binary" : "json";
        return { doc: shown(value), meta: withExpiry({ id: meta.id, cas, data_type, datatype: data_type }, expiry) };
    });
}

const writer = (what, mode) => (proxy, meta, doc, options = {}) => {
    const binding = target(proxy, meta, what);
    const expiry = expiryOf(meta, what);
    const selfRecursion = options?.self_recursion === true;
    return result(() => {
        const cas = store(binding, meta, doc, mode, { cas: meta.cas, expiry, selfRecursion });
        return { meta: withExpiry({ id: meta.id, cas }, expiry) };
    });
};

function couchbaseDelete(proxy, meta) {
    const binding = target(proxy, meta, "couchbase.delete");
    return result(() => ({ meta: { id: meta.id, cas: remove(binding, meta, meta.cas) } }));
}

/** Changes parts of a document. Returns its CAS and the values of counters. */
function change(binding, meta, operations, mode, { cas, expiry, selfRecursion = false } = {}) {
    writable(binding);
    const { keyspace, isSource } = place(binding, meta);
    const added = isSource && !selfRecursion ? marks() : [];
    cached.delete(nameOf(keyspace, meta.id));
    const [version, counters] =
        host("kv.mutateIn", keyspace, meta.id, stringify([...added, ...operations]), mode, cas, expiry);
    return { cas: version, counters: counters.map(([index, value]) => [index - added.length, value]) };
}

const counter = (what, by) => (proxy, meta, options = {}) => {
    const binding = target(proxy, meta, what);
    const operation = { operation: "counter", path: "count", value: by, createPath: true };
    return result(() => {
        const selfRecursion = options?.self_recursion === true;
        const { cas, counters } = change(binding, meta, [operation], "upsert", { selfRecursion });
        return { doc: { count: counters[0][1] }, meta: { id: meta.id, cas } };
    });
};

function touch(proxy, meta, options = {}) {
    const binding = target(proxy, meta, "couchbase.touch");
    const expiry = expiryOf(meta, "couchbase.touch");
    return result(() => {
        writable(binding);
        const { keyspace, isSource } = place(binding, meta);
        const cas = isSource && options?.self_recursion !== true
            ? change(binding, meta, [], "replace", { expiry }).cas
            : host("kv.touch", keyspace, meta.id, expiry);
        return { meta: withExpiry({ id: meta.id, cas }, expiry) };
    });
}

/** Converts a spec into an operation: `MutateInSpec.upsert(path, value, {create_path, xattrs})`. */
const spec = (operation, takesValue) => (path, ...rest) => {
    if (typeof path !== "string") throw new TypeError("a path is a string");
    const [value, options] = takesValue ? rest : [undefined, rest[0]];
    if (takesValue && stringify(value) === undefined) throw new TypeError("a value must be JSON");
    return {
        operation,
        path,
        ...(takesValue ? { value } : {}),
        xattr: options?.xattrs === true,
        createPath: options?.create_path === true,
    };
};

const MutateInSpec = Object.freeze({
    insert: spec("insert", true),
    upsert: spec("upsert", true),
    replace: spec("replace", true),
    remove: spec("remove", false),
    arrayAppend: spec("arrayAppend", true),
    arrayPrepend: spec("arrayPrepend", true),
    arrayInsert: spec("arrayInsert", true),
    arrayAddUnique: spec("arrayAddUnique", true),
});
const LookupInSpec = Object.freeze({ get: spec("get", false), exists: spec("exists", false), count: spec("count", false) });

function specs(list, what) {
    if (!isArray(list) || list.length === 0) throw new TypeError(`${what} needs an array of operations`);
    return list;
}

/** Sorts operations on attributes before the others, as the server requires. */
const attributesFirst = (operations) =>
    [...operations.filter(({ xattr }) => xattr), ...operations.filter(({ xattr }) => !xattr)];

function mutateIn(proxy, meta, list, options = {}) {
    const binding = target(proxy, meta, "couchbase.mutateIn");
    const operations = attributesFirst(specs(list, "couchbase.mutateIn"));
    const expiry = meta.expiry_date == null ? undefined : expiryOf(meta, "couchbase.mutateIn");
    const selfRecursion = options?.self_recursion === true;
    return result(() => {
        const { cas } = change(binding, meta, operations, "replace", { cas: meta.cas, expiry, selfRecursion });
        return { meta: { id: meta.id, cas } };
    });
}

function lookupIn(proxy, meta, list) {
    const binding = target(proxy, meta, "couchbase.lookupIn");
    const operations = specs(list, "couchbase.lookupIn").map(({ operation, path, xattr }) => ({ operation, path, xattr }));
    return result(() => {
        const { keyspace } = place(binding, meta);
        const asked = attributesFirst(operations);
        const [cas, found] = host("kv.lookupIn", keyspace, meta.id, stringify(asked));
        const doc = operations.map((operation) => {
            const [success, value] = found[asked.indexOf(operation)];
            return success ? { value, success } : { error: value, success };
        });
        return { doc, meta: { id: meta.id, cas } };
    });
}

/** Returns the input of a checksum: JSON, or the word `undefined` if there is none. */
const checked = (value) => stringify(value) ?? "undefined";
const checksum = (value) => host("crc64", bytesOf(value) ?? (typeof value === "string" ? value : checked(value)));

const encode = (Kind) => (numbers) => {
    if (!isArray(numbers)) throw new TypeError("expected an array of numbers");
    return host("base64.encode", new Bytes(Kind.from(numbers).buffer));
};
const decode = (Kind) => (text) => {
    const bytes = host("base64.decode", String(text));
    if (bytes.byteLength % Kind.BYTES_PER_ELEMENT !== 0) throw new TypeError("these are no numbers of that size");
    return Array.from(new Kind(bytes.buffer));
};

offer("couchbase", {
    get,
    insert: writer("couchbase.insert", "insert"),
    upsert: writer("couchbase.upsert", "upsert"),
    replace: writer("couchbase.replace", "replace"),
    delete: couchbaseDelete,
    increment: counter("couchbase.increment", 1),
    decrement: counter("couchbase.decrement", -1),
    touch,
    mutateIn,
    lookupIn,
    MutateInSpec,
    LookupInSpec,
    crc_64_go_iso: checksum,
    base64Encode: (value) => host("base64.encode", bytesOf(value) ?? (typeof value === "string" ? value : stringify(value) ?? "")),
    base64Decode: (text) => host("text", host("base64.decode", String(text))),
    base64Float32EncodeArray: encode(Float32Array),
    base64Float64EncodeArray: encode(Float64Array),
    base64Float32DecodeArray: decode(Float32Array),
    base64Float64DecodeArray: decode(Float64Array),
    base64Float32ArrayEncode: encode(Float32Array),
    base64Float64ArrayEncode: encode(Float64Array),
    base64Float32ArrayDecode: decode(Float32Array),
    base64Float64ArrayDecode: decode(Float64Array),
});

offer("crc64", (value) => host("crc64", checked(value)));

// ---- Queries

/** Returns a function that runs `work` and throws refusals of the service as a `Refusal`, which `counter` counts. */
const queried = (Refusal, counter) => (work) => {
    try {
        return work();
    } catch (error) {
        if (typeof error?.code !== "string") throw error;
        if (counter !== undefined) host("count", counter);
        const [, code, message] = /^(\d+) ([^]*)$/.exec(error.message) ?? [null, 5000, error.message];
        throw new Refusal(message, Number(code), error);
    }
};

const askQuery = queried(N1QLError, "n1ql_op_exception_count");
const Rows = rowsOf(host, askQuery);

const CONSISTENCIES = { none: false, request: true };

const startQuery = function N1QL(statement, parameters, options) {
    if (typeof statement !== "string") throw new TypeError("N1QL needs a statement as a string");
    const consistency = options?.consistency ?? self.queryConsistency;
    if (!Object.hasOwn(CONSISTENCIES, consistency)) {
        throw new TypeError("the consistency of N1QL is \"none\" or \"request\"");
    }
    const given = parametersOf(parameters);
    return new Rows(askQuery(() => host("query.begin", statement, given, CONSISTENCIES[consistency])));
};
offer("N1QL", startQuery);

const OLD_QUERY_OPTIONS = ["namedParams", "posParams", "isPrepared", "consistency"];

/** A query as in Couchbase 6: the statement runs whenever its rows are read. `isPrepared` has no effect. */
class N1qlQuery {
    #statement;
    #parameters;
    #consistency;

    constructor(statement, options) {
        if (typeof statement !== "string") throw new TypeError("N1qlQuery needs a statement as a string");
        const { namedParams, posParams, consistency } = optionsOf(options, OLD_QUERY_OPTIONS, "N1qlQuery");
        const isNamed = Object.keys(namedParams ?? {}).length > 0;
        if (isNamed && posParams?.length > 0) {
            throw new TypeError("the parameters of N1qlQuery have names or positions, not both");
        }
        this.#statement = statement;
        this.#parameters = isNamed ? namedParams : posParams;
        this.#consistency = consistency;
    }

    /** Returns all rows. */
    execQuery() { return [...this]; }

    [Symbol.iterator]() {
        return startQuery(this.#statement, this.#parameters, { consistency: this.#consistency });
    }
}
offer("N1qlQuery", N1qlQuery);

// ---- Everything else

offer("log", function log(...parts) {
    const text = (part) => {
        if (typeof part === "bigint") return String(part);
        return part instanceof Error ? stringify(String(part)) : stringify(part) ?? String(part);
    };
    writeLog(parts.map(text).join(" "));
});

/** Returns the top-level function with that name. */
let named = (name) => globalEval(name);
offer("setNamed", (find) => { named = find; });

const NAME = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u;

function callbackName(callback, what) {
    const name = typeof callback === "function" ? callback.name : "";
    let found;
    try {
        found = NAME.test(name) ? named(name) : undefined;
    } catch {
        // It is not declared at the top level.
    }
    if (found !== callback) throw new EventingError(`${what} needs a function that is declared at the top level`);
    return name;
}

offer("createTimer", function createTimer(callback, date, reference, context) {
    const name = callbackName(callback, "createTimer");
    const at = date instanceof Date_ || typeof date === "number" ? Number(date) : NaN;
    if (Number.isNaN(at)) throw new EventingError("createTimer needs a Date");
    const ref = reference === undefined || reference === null ? host("unique") : String(reference);
    const kept = context === undefined ? null : context;
    const text = stringify(kept);
    if (text === undefined) throw new EventingError("the context of a timer must be JSON");
    if (text.length > self.timerContextBytes) {
        throw new EventingError(`the context of a timer has ${text.length} bytes, more than ${self.timerContextBytes}`);
    }
    if (host("utf8", `${name}:${ref}`).byteLength > TIMER_NAME_BYTES_MAX) {
        throw new EventingError(`a timer is named by at most ${TIMER_NAME_BYTES_MAX} bytes of callback and reference`);
    }
    // A time before the epoch counts as the epoch.
    host("timer.set", `${name}:${ref}`, Math.min(Math.max(at, 0), 8.64e15), stringify([name, ref, kept]));
    host("count", "timer_create_counter");
    return ref;
});

offer("cancelTimer", function cancelTimer(callback, reference) {
    const name = callbackName(callback, "cancelTimer");
    const wasSet = host("timer.cancel", `${name}:${String(reference)}`);
    if (wasSet) host("count", "timer_cancel_counter");
    return wasSet;
});

const urls = new WeakMap();

/** Encodes the body of a request, and returns its media type. */
function sent(body, encoding) {
    if (body === undefined || body === null) return ["", null];
    const bytes = bytesOf(body);
    const kind = encoding ?? (bytes !== null ? "BINARY" : typeof body === "string" ? "TEXT" : "JSON");
    switch (String(kind).toUpperCase()) {
        case "JSON": return [stringify(body), "application/json"];
        case "TEXT": return [String(body), "text/plain"];
        case "FORM": return [form(body), "application/x-www-form-urlencoded"];
        case "BINARY":
            if (bytes === null) throw new CurlError("a binary body is an ArrayBuffer");
            return [bytes, "application/octet-stream"];
        default: throw new CurlError(`no such encoding: ${kind}`);
    }
}

/** Encodes a value in a form or in parameters: text unchanged, everything else as JSON. */
const field = (value) => encodeURIComponent(typeof value === "string" ? value : stringify(value) ?? String(value));
const form = (values) => {
    if (typeof values === "string") return values;
    return Object.entries(values).map(([name, value]) => `${encodeURIComponent(name)}=${field(value)}`).join("&");
};

const unform = (text) => {
    const plain = (part) => decodeURIComponent(part.replaceAll("+", " "));
    return Object.fromEntries(text.split("&").filter(Boolean).map((pair) => {
        const [name, value = ""] = pair.split("=", 2);
        return [plain(name), plain(value)];
    }));
};

/** Decodes the body of a response by its media type. */
function received(bytes, text, type) {
    const kind = type.split(";", 1)[0].trim().toLowerCase();
    if (bytes.byteLength === 0) return null;
    if (kind === "application/json") {
        // Status and headers are useful nevertheless.
        try { return parse(text); } catch { return text; }
    }
    if (kind === "application/x-www-form-urlencoded") return unform(text);
    if (kind.startsWith("text/")) return text;
    return bytes.buffer;
}

/** Returns the name of a header in its usual form: `Content-Type`. */
const written = (name) => name.replace(/(^|-)[a-z]/g, (part) => part.toUpperCase());

/** The headers of a response, with case-insensitive names. */
function headersOf(answered) {
    const named = Object.fromEntries(Object.entries(answered).map(([name, value]) => [written(name), value]));
    const own = (name) => (typeof name === "string" && !Object.hasOwn(named, name) ? written(name.toLowerCase()) : name);
    return new Proxy_(named, {
        get: (target, name) => target[own(name)],
        has: (target, name) => own(name) in target,
        getOwnPropertyDescriptor: (target, name) => Object.getOwnPropertyDescriptor(target, own(name)),
    });
}

/** Returns the URL of a request: `path` within the binding, even if it contains dot segments. */
function urlWithin(base, path) {
    const [, names, rest] = /^([^?#]*)([^]*)$/.exec(String(path));
    const kept = [];
    for (const name of names.split("/")) {
        const dots = name.replace(/%2e/gi, ".");
        if (dots === "..") kept.pop();
        else if (dots !== ".") kept.push(name);
    }
    const within = kept.join("/").replace(/^\/+/, "") + rest;
    return within === "" ? base : `${base.replace(/\/$/, "")}/${within}`;
}

/** Couchbase versions whose URL encoding a request may ask for. All of them get the encoding of the last one. */
const URL_ENCODE_VERSIONS = ["6.6.2", "7.1.0", "7.2.0"];

/** Options of curl. */
const CURL_OPTIONS = ["path", "params", "headers", "body", "encoding", "redirect", "timeout", "url_encode_version"];

function request(method, binding, options) {
    const unknown = Object.keys(options).find((name) => !CURL_OPTIONS.includes(name));
    if (unknown !== undefined) throw new CurlError(`curl has no option ${unknown}`);
    const { path = "", params, headers = {}, body, encoding, redirect = true, timeout, url_encode_version } = options;
    if (url_encode_version !== undefined && !URL_ENCODE_VERSIONS.includes(url_encode_version)) {
        throw new CurlError(`url_encode_version is one of ${URL_ENCODE_VERSIONS.join(", ")}`);
    }
    const [content, type] = sent(body, encoding);
    const all = new Map_(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]));
    if (type !== null && !all.has("content-type")) all.set("content-type", type);
    if (binding.authorization !== "") all.set("authorization", binding.authorization);
    if (timeout !== undefined) {
        if (!(timeout > 0)) throw new CurlError("the timeout of curl is a positive number of seconds");
        all.set("nacre-timeout-ms", String(Math.ceil(timeout * 1000)));
    }
    const base = urlWithin(binding.url, path);
    const query = params === undefined || params === null ? "" : form(params);
    let url = query === "" ? base : `${base}${base.includes("?") ? "&" : "?"}${query}`;
    let carried = content;
    const home = originOf(url);
    for (let left = REDIRECTIONS_MAX; ; left--) {
        const origin = originOf(url);
        const send = () => {
            const headers = new Map_(all);
            if (binding.cookies) addCookies(binding, url, headers);
            const [status, names, bytes, text, pairs] = host("http.send", method, url, carried, ...[...headers].flat());
            if (binding.cookies) keepCookies(binding, url, parse(pairs));
            return { status, answered: parse(names), pairs, bytes, text };
        };
        let found = send();
        // The digest is computed for one request to the server of the binding.
        if (found.status === 401 && binding.digest && origin === home) {
            const challenges = parse(found.pairs).filter(([name]) => name === "www-authenticate").map(([, value]) => value);
            const { user, password } = binding.digest;
            const proof = host("digest", stringify(challenges), method, url.slice(origin.length) || "/", user, password);
            if (proof !== undefined && proof !== null) {
                all.set("authorization", proof);
                found = send();
                all.delete("authorization");
            }
        }
        const { status, answered, bytes, text } = found;
        const location = answered.location;
        if (!redirect || location === undefined || status < 300 || status > 399) {
            return { status, headers: headersOf(answered), body: received(bytes, text, answered["content-type"] ?? "") };
        }
        if (left === 0) throw new CurlError("Unable to perform the request: Number of redirects hit maximum amount");
        url = /^[a-z]+:/i.test(location) ? location : `${origin}/${location.replace(/^\//, "")}`;
        // The server names the URL of the result, not a URL for the body (RFC 9110, 15.4).
        if (status === 303 ? method !== "HEAD" : status < 303 && method === "POST") {
            [method, carried] = ["GET", ""];
            all.delete("content-type");
        }
        // Credentials are only sent to their own server.
        if (originOf(url) !== origin) all.delete("authorization");
    }
}

/** Returns scheme, host and port of a URL. */
const originOf = (url) => /^[a-z]+:\/\/[^/?#]+/i.exec(url)[0].toLowerCase();

/** Maximum number of cookies of a binding, and maximum size of a cookie in bytes (RFC 6265, 6.1). */
const [COOKIES_MAX, COOKIE_BYTES_MAX] = [50, 4096];

/** Returns the path of a URL, without its query string. */
const pathOf = (url) => url.slice(originOf(url).length).split(/[?#]/, 1)[0] || "/";

const isBelow = (path, folder) => path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);

/** Stores the cookies of a response for the server that has sent it, whatever domain they name. */
function keepCookies(binding, url, pairs) {
    binding.jar ??= new Map_();
    const path = pathOf(url);
    for (const [header, value] of pairs) {
        if (header !== "set-cookie" || value.length > COOKIE_BYTES_MAX) continue;
        const [pair, ...rest] = value.split(";").map((part) => part.trim());
        const equals = pair.indexOf("=");
        if (equals < 1) continue;
        const cookie = {
            origin: originOf(url),
            name: pair.slice(0, equals).trim(),
            value: pair.slice(equals + 1).trim(),
            path: path.slice(0, path.lastIndexOf("/")) || "/",
            until: Infinity,
        };
        const attributes = new Map_(rest.map((part) => {
            const [name, ...text] = part.split("=");
            return [name.trim().toLowerCase(), text.join("=").trim()];
        }));
        if (attributes.get("path")?.startsWith("/")) cookie.path = attributes.get("path");
        const expires = attributes.has("expires") ? Date_.parse(attributes.get("expires")) : NaN;
        const age = attributes.has("max-age") ? Number(attributes.get("max-age")) : NaN;
        if (!Number.isNaN(expires)) cookie.until = expires;
        if (!Number.isNaN(age)) cookie.until = Date_.now() + age * 1000;
        const key = stringify([cookie.origin, cookie.path, cookie.name]);
        binding.jar.delete(key);
        if (cookie.until <= Date_.now()) continue;
        if (binding.jar.size >= COOKIES_MAX) binding.jar.delete(binding.jar.keys().next().value);
        binding.jar.set(key, cookie);
    }
}

/** Adds the server's cookies to a request. */
function addCookies(binding, url, headers) {
    const [origin, path] = [originOf(url), pathOf(url)];
    const fit = [...(binding.jar ?? new Map_()).values()].filter((cookie) => {
        return cookie.origin === origin && isBelow(path, cookie.path) && cookie.until > Date_.now();
    });
    const given = headers.get("cookie");
    const all = [...(given === undefined ? [] : [given]), ...fit.map(({ name, value }) => `${name}=${value}`)];
    if (all.length > 0) headers.set("cookie", all.join("; "));
}

const METHODS = ["GET", "POST", "PUT", "HEAD", "DELETE"];

offer("curl", function curl(method, alias, options = {}) {
    const binding = typeof alias === "object" && alias !== null ? urls.get(alias) : undefined;
    if (binding === undefined) throw new CurlError("curl needs the alias of a URL as its second argument");
    if (!METHODS.includes(method)) throw new CurlError(`curl needs one of ${METHODS.join(", ")} first`);
    try {
        const answer = request(method, binding, options ?? {});
        host("count", "curl_success_count");
        return answer;
    } catch (error) {
        host("count", "curl_failure_count");
        throw error instanceof CurlError ? error : new CurlError(error.message, { cause: error });
    }
});

// ---- For the plugin

export function setUp(config) {
    self = config;
    for (const binding of config.buckets) offer(binding.alias, bucket(binding));
    for (const binding of config.urls) {
        const alias = Object.freeze({ url: binding.url });
        urls.set(alias, binding);
        offer(binding.alias, alias);
    }
    for (const { alias, literal } of config.constants) {
        // Parsed on use, so that an error is reported where the constant is used.
        Object.defineProperty(globalThis, alias, {
            get: () => globalEval(`(${literal})`), enumerable: true, configurable: true,
        });
    }
}

/** Forgets documents that the previous call has read. */
const begin = () => cached.clear();

export function makeMeta(id, cas, seq, vb, expiration, flags, collection, kind, isJson, oldKind, old) {
    begin();
    const path = self.collections[collection];
    const dot = path.indexOf(".");
    return {
        id, cas, seq, vb, expiration, flags,
        ...(expiration === 0 ? {} : { expiry_date: new Date_(expiration * 1000) }),
        datatype: isJson ? "json" : "binary",
        keyspace: {
            bucket_name: self.keyspace.bucket,
            scope_name: path.slice(0, dot),
            collection_name: path.slice(dot + 1),
        },
        kind,
        ...(oldKind === "none" ? {} : { old: oldKind === "binary" ? old.buffer : old }),
    };
}

export const runBinary = (handler, bytes, meta, xattrs) => handler(bytes.buffer, meta, xattrs);

export function runTimer([name, reference, context]) {
    begin();
    let callback;
    try {
        callback = named(name);
    } catch {
        // It no longer exists.
    }
    if (typeof callback !== "function") throw new EventingError(`there is no function ${name} for the timer ${reference}`);
    return callback(context, reference);
}
