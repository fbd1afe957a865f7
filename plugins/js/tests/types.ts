// Code that `nacre.d.ts` must accept or refuse; the compiler checks it, and it never runs.

export const onUpdate: nacre.OnUpdate = async (doc, { id, cas }) => {
    const meta: string = id + cas;
    state.put(meta, doc);
    // @ts-expect-error: a key is a string
    state.put(7, doc);
    const found = kv.get(id, { keyspace: "s.c" });
    // @ts-expect-error: there may be no such document
    found.value;
    kv.replace(id, new Uint8Array(), { cas: found?.cas, expiry: 10 });
    // @ts-expect-error: a version is given to `replace` and `remove` only
    kv.upsert(id, {}, { cas: "1" });
    const count: number = kv.counter(id) + kv.counter(id, -1, { initial: 3 });
    metrics.add("seen", count);
    timer.set(id, new Date(Date.now()), { count });
    // @ts-expect-error: the time of a timer is not text
    timer.set(id, "tomorrow");
    const { status }: { status: number } = http.fetch("https://a/", { method: "POST", body: { id } });
    log(status, config.limit);
    console.warn(id);
};

export const onBatch: nacre.OnBatch = (events) => {
    for (const { meta, doc } of events) if (meta.kind === "expire") state.put(meta.id, doc);
    // @ts-expect-error: there is no such kind
    events.filter(({ meta }) => meta.kind === "gone");
};

export const onDelete: nacre.OnDelete = ({ id }) => {
    try {
        kv.remove(id);
    } catch (error) {
        if ((error as nacre.Failure).code !== "not-found") throw error;
        // @ts-expect-error: there is no such code
        if ((error as nacre.Failure).code === "lost") throw error;
    }
};

export const onTimer: nacre.OnTimer = ({ name, due, payload }) => state.put(name, [due + 1, payload]);

export const onRollback: nacre.OnRollback = (vbucket, seqno) => Math.min(vbucket, seqno);
// @ts-expect-error: it returns the seqno of the state
export const onRollbackWithout: nacre.OnRollback = () => {};

export const handle: nacre.Handle = (request) => {
    if (request.parameters.limit === "0") return Response.json({ none: true }, { status: 404 });
    // @ts-expect-error: a status is a number
    new Response("", { status: "404" });
    for (const [key, value] of state.scan({ prefix: "a", limit: 3, reverse: true })) return { [key]: value };
    return new Response((function* () { yield "a"; yield request.bytes; })());
};

// @ts-expect-error: there is no network except `http`
fetch("https://a/");

export const parts = (): [string, boolean] => {
    const { results } = kv.lookupIn("a", [{ operation: "get", path: "b.c" }], { keyspace: "other.s.c" });
    const changes: nacre.Mutation[] = [{ operation: "upsert", path: "b", value: results[0]?.value, createPath: true }];
    // @ts-expect-error: there is no such operation
    kv.mutateIn("a", [{ operation: "append", path: "b" }]);
    return [kv.mutateIn("a", changes, { mode: "upsert", expiry: 60 }).cas, timer.cancel("a")];
};
