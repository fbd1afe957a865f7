// A lookup document for each value of a member: `mail::ann@example.com` is "user::1", so that a user is found by two
// reads, each of one document, on any node.
//
// State: `doc/<id>` is the value of a document, and whether the lookup belongs to it; `waiting/<value>/<id>` exists for a
// document whose value belongs to another one.
//
// A lookup and the state are not one commit: after a crash the lookup may exist without its state, or the state without
// its lookup. So each step checks what exists and can be repeated.

const {
    member = "email",
    prefix = "mail::",
    documents = "shop.users",
    lookup = "shop.lookup",
} = config;

/** @type {nacre.OnUpdate} */
export function onUpdate(doc, { id }) {
    const value = valueOf(doc);
    const known = state.get("doc/" + id);
    if (known?.value !== value) forget(id, known);
    if (value !== undefined) claim(value, id);
}

/** @type {nacre.OnDelete} */
export function onDelete({ id }) {
    forget(id, state.get("doc/" + id));
}

/** @type {nacre.Handle} */
export function handle({ path }) {
    if (path !== "/") {
        const id = ownerOf(normal(path.slice(1)));
        return id && { id };
    }
    const waiting = Array.from(state.scan({ prefix: "waiting/" }), ([, violation]) => violation);
    return waiting.map(({ value, id }) => ({ value, id, owner: ownerOf(value) }));
}

/** Returns the value by which a document is looked up; undefined if it has none. */
function valueOf(doc) {
    const value = doc?.[member];
    return typeof value === "string" && value.trim() ? normal(value) : undefined;
}

const ownerOf = (value) => kv.get(prefix + value, { keyspace: lookup })?.value;
const normal = (value) => value.trim().toLowerCase();
const waitingKey = (value, id) => `waiting/${encodeURIComponent(value)}/${id}`;

/** Assigns `value` to `id`, unless it belongs to another document. */
function claim(value, id) {
    const owner = settle(value, id);
    state.put("doc/" + id, { value, owner: owner === id });
    if (owner === id) {
        state.delete(waitingKey(value, id));
        return;
    }
    state.put(waitingKey(value, id), { value, id });
    metrics.add("violations");
    console.log(`${value} of ${id} belongs to ${owner}`);
}

/** Determines the owner of `value` after `id` has requested it. */
function settle(value, id) {
    const key = prefix + value;
    try {
        kv.insert(key, id, { keyspace: lookup });
        return id;
    } catch (error) {
        if (/** @type {nacre.Failure} */ (error).code !== "exists") throw error;
    }
    const found = kv.get(key, { keyspace: lookup });
    if (found === undefined) return settle(value, id);
    if (found.value === id || hasValue(found.value, value)) return found.value;
    // A remnant: its document was deleted while no plugin maintained lookups.
    kv.replace(key, id, { keyspace: lookup, cas: found.cas });
    return id;
}

/** Returns true if the document has the value: according to the feed or, if it has not arrived there, at present. */
function hasValue(id, value) {
    const known = state.get("doc/" + id);
    if (known !== undefined) return known.value === value && known.owner;
    return valueOf(kv.get(id, { keyspace: documents })?.value) === value;
}

/** Removes the lookup of a document, and assigns its value to a document that waits for it. */
function forget(id, known) {
    if (known === undefined) return;
    const { value, owner } = known;
    state.delete("doc/" + id);
    state.delete(waitingKey(value, id));
    if (!owner) return;
    const found = kv.get(prefix + value, { keyspace: lookup });
    if (found !== undefined && found.value === id) kv.remove(prefix + value, { keyspace: lookup, cas: found.cas });
    for (const [, next] of state.scan({ prefix: waitingKey(value, ""), limit: 1 })) claim(value, next.id);
}
