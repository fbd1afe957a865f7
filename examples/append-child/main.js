// Children of a parent under numbered keys: `post::1::1`, `post::1::2`, …, and a counter, `post::1::count`, which
// contains the number of children ever created. Appending takes two small writes, regardless of the number of children,
// and no writer waits for another one; a page takes several reads of known keys.
//
// A number without a child (it was deleted, or its writer failed between the two writes) is a gap, which a page skips.

const { keyspace = "blog.comments" } = config;
const PAGE_CHILDREN = 10, PAGE_CHILDREN_MAX = 100;
/** Maximum number of keys per request, so that a parent with nearly all children deleted does not take too long. */
const KEYS_MAX = 1000;

/** @type {nacre.Handle} */
export function handle(request) {
    const parent = request.path.slice(1);
    if (!parent) return undefined;
    switch (request.method) {
        case "POST": return append(parent, request);
        case "GET": return page(parent, request.parameters);
        default: return refused(405, "GET reads children, POST appends one");
    }
}

const key = (parent, number) => `${parent}::${number}`;
const counter = (parent) => `${parent}::count`;
const refused = (status, error) => Response.json({ error }, { status });

function append(parent, request) {
    let child;
    try {
        child = request.json();
    } catch {
        return refused(400, "the child is no JSON");
    }
    const number = kv.counter(counter(parent), 1, { keyspace, initial: 1 });
    kv.insert(key(parent, number), child, { keyspace });
    return Response.json({ key: key(parent, number), number }, { status: 201 });
}

/** Returns the children from `from`, upwards or downwards; `next` is the `from` of the next page, if there may be one. */
function page(parent, parameters) {
    const { from, size = PAGE_CHILDREN, order = "up" } = parameters;
    const last = Number(kv.get(counter(parent), { keyspace })?.value ?? 0);
    const step = order === "down" ? -1 : 1;
    const start = from === undefined ? (step > 0 ? 1 : last) : Number(from);
    if (!Number.isInteger(start)) return refused(400, "from is a number");
    if (!(size >= 1 && size <= PAGE_CHILDREN_MAX)) return refused(400, `size is 1 to ${PAGE_CHILDREN_MAX}`);
    const children = [];
    let number = step > 0 ? Math.max(start, 1) : Math.min(start, last);
    const end = number + step * KEYS_MAX;
    for (; number >= 1 && number <= last && number !== end && children.length < size; number += step) {
        const found = kv.get(key(parent, number), { keyspace });
        if (found !== undefined) children.push({ key: key(parent, number), number, child: found.value });
    }
    return number >= 1 && number <= last ? { count: last, children, next: number } : { count: last, children };
}
