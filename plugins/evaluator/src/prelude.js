// Defines the global scope of functions of queries, and hides functions of the engine.
const host = globalThis.host;
const { stringify } = JSON;
const { isArray } = Array;

Math.random = function random() { return host("random"); };

/** Runs `work`. A refusal of the query service is thrown as an Error whose message is JSON with its code. */
function queried(work) {
    try {
        return work();
    } catch (refused) {
        if (typeof refused?.code !== "string") throw refused;
        const error = new Error(stringify({ code: Number(refused.code), message: refused.message }));
        error.name = "N1QLError";
        throw error;
    }
}

const Rows = rowsOf(host, queried);

globalThis.N1QL = function N1QL(statement, parameters) {
    if (typeof statement !== "string") throw new TypeError("N1QL needs a statement as a string");
    const given = parametersOf(parameters);
    return new Rows(queried(() => host("query.begin", statement, given)));
};

for (const name of ["host", "emit", "log", "sum", "dateToArray", "decodeBase64"]) {
    delete globalThis[name];
}
