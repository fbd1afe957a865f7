// Feeds: documents contain who follows whom. An activity, `{author, at, …}`, is copied as a reference into the feed of
// each follower, so that a page of a feed takes one scan. Activities of authors with more followers than a limit are
// read on demand, because copying them would take longer than reading them.
//
// State, all in order of time:
//
//     feed/<follower>/<at>/<id>     a reference to an activity, with its author
//     own/<author>/<at>/<id>        the same for the author's own activities
//     copied/<id>                   the places of an activity's references, for their removal
//     famous/<author>               exists once an activity of the author was not copied

const {
    follows = "social.follows",
    followers_max = 1000,
} = config;
const PAGE_ENTRIES = 10, PAGE_ENTRIES_MAX = 100;

/** @type {nacre.OnUpdate} */
export function onUpdate(doc, { id, cas }) {
    const activity = activityOf(doc, cas);
    const copied = state.get("copied/" + id);
    if (copied !== undefined && copied.author === activity?.author && copied.at === activity?.at) return;
    remove(id, copied);
    if (activity !== undefined) copy(id, activity);
}

/** @type {nacre.OnDelete} */
export function onDelete({ id }) {
    remove(id, state.get("copied/" + id));
}

/** @type {nacre.Handle} */
export function handle({ path, parameters }) {
    const user = path.slice(1);
    if (!user) return undefined;
    const limit = Number(parameters.limit ?? PAGE_ENTRIES);
    if (!(limit >= 1 && limit <= PAGE_ENTRIES_MAX)) {
        return Response.json({ error: `limit is 1 to ${PAGE_ENTRIES_MAX}` }, { status: 400 });
    }
    const famous = names("following", user).filter((name) => state.get("famous/" + name));
    const sources = [place("feed", user), ...famous.map((name) => place("own", name))];
    // Keyed by their order, because an author above the limit has references in both places.
    const found = new Map(sources.flatMap((source) => newest(source, parameters.before, limit + 1)));
    const orders = [...found.keys()].sort().reverse();
    const entries = orders.slice(0, limit).map((order) => found.get(order));
    return orders.length > limit ? { entries, next: orders[limit - 1] } : { entries };
}

/** Returns the activity in a document; undefined if it is none. Without a time, it has the time of its write. */
function activityOf(doc, cas) {
    if (typeof doc?.author !== "string") return undefined;
    const at = Date.parse(doc.at);
    return { author: doc.author, at: at >= 0 ? at : Number(BigInt(cas) / 1000000n) };
}

/** Returns the names in the document `followers::<user>` or `following::<user>`. */
function names(list, user) {
    const found = kv.get(`${list}::${user}`, { keyspace: follows })?.value;
    return Array.isArray(found) ? found : [];
}

const place = (list, user) => `${list}/${encodeURIComponent(user)}/`;
/** Returns the sort key of an activity: by time, then by id. */
const order = (id, at) => `${String(at).padStart(16, "0")}/${id}`;

/** Writes the references of an activity. If it arrives again, it writes the same ones, and none twice. */
function copy(id, { author, at }) {
    const followers = names("followers", author);
    const isFamous = followers.length > followers_max;
    const readers = isFamous ? [] : followers;
    if (isFamous) state.put("famous/" + author, true);
    for (const source of [place("own", author), ...readers.map((name) => place("feed", name))]) {
        state.put(source + order(id, at), { author });
    }
    state.put("copied/" + id, { author, at, readers });
    metrics.add("copies", readers.length);
}

function remove(id, copied) {
    if (copied === undefined) return;
    const { author, at, readers } = copied;
    for (const source of [place("own", author), ...readers.map((name) => place("feed", name))]) {
        state.delete(source + order(id, at));
    }
    state.delete("copied/" + id);
}

/**
 * Returns the newest references of a source by their order, those before `before` if it is given.
 * @returns {[order: string, entry: {id: string, author: string, at: string}][]}
 */
function newest(source, before, limit) {
    const end = before === undefined ? undefined : source + before;
    const found = state.scan({ prefix: source, end, limit, reverse: true });
    return Array.from(found, ([key, { author }]) => {
        const order = key.slice(source.length);
        const slash = order.indexOf("/");
        const at = new Date(Number(order.slice(0, slash))).toISOString();
        return [order, { id: order.slice(slash + 1), author, at }];
    });
}
