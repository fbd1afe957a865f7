// Counts documents by their member "type".
//
// State: `doc/<id>` is the type that a document was counted under, `type/<type>` is how many there are.

/** @type {nacre.OnUpdate} */
export function onUpdate(doc, { id }) {
    count(id, String(doc?.type ?? "none"));
}

/** @type {nacre.OnDelete} */
export function onDelete({ id }) {
    count(id, undefined);
}

/** @type {nacre.Handle} */
export function handle(request) {
    const counts = {};
    for (const [key, number] of state.scan({ prefix: "type/" })) counts[key.slice(5)] = number;
    return counts;
}

// Counts a document under its new type, and no longer under its old one.
function count(id, type) {
    const old = state.get("doc/" + id);
    if (old !== undefined) add(old, -1);
    if (type === undefined) {
        state.delete("doc/" + id);
    } else {
        state.put("doc/" + id, type);
        add(type, 1);
    }
}

function add(type, delta) {
    const number = (state.get("type/" + type) ?? 0) + delta;
    if (number === 0) state.delete("type/" + type);
    else state.put("type/" + type, number);
}
