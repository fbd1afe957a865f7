// What functions of queries find beside the language, and what of the engine's own they do not.
(function () {
    const host = globalThis.host;
    const { stringify } = JSON;
    const { isArray } = Array;

    Math.random = function random() { return host("random"); };

    /** Runs `work`; what the query service refuses is thrown as an Error whose message is JSON with its code. */
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

    /** The rows of a query, which come as they are asked for. */
    class Rows {
        #query;
        #rows = [];
        #at = 0;

        constructor(query) {
            this.#query = query;
        }

        next() {
            if (this.#at === this.#rows.length && this.#query !== null) {
                this.#at = 0;
                this.#rows = queried(() => host("next", this.#query));
                if (this.#rows.length === 0) this.#query = null;
            }
            return this.#at < this.#rows.length
                ? { value: this.#rows[this.#at++], done: false }
                : { value: undefined, done: true };
        }

        close() {
            if (this.#query !== null) host("close", this.#query);
            this.#query = null;
            this.#rows = [];
            this.#at = 0;
        }

        /** A loop that is left early. */
        return(value) {
            this.close();
            return { value, done: true };
        }

        [Symbol.iterator]() { return this; }
    }

    /** The parameters of a statement as the host takes them: named ones may have their `$`. */
    function parametersOf(parameters) {
        if (parameters === undefined || parameters === null) return "";
        if (typeof parameters !== "object") throw new TypeError("the parameters of N1QL are an object or an array");
        if (isArray(parameters)) return stringify(parameters);
        const named = Object.entries(parameters).map(([name, value]) => [name.replace(/^\$/, ""), value]);
        return stringify(Object.fromEntries(named));
    }

    globalThis.N1QL = function N1QL(statement, parameters) {
        if (typeof statement !== "string") throw new TypeError("N1QL needs a statement as a string");
        const given = parametersOf(parameters);
        return new Rows(queried(() => host("begin", statement, given)));
    };

    for (const name of ["host", "emit", "log", "sum", "dateToArray", "decodeBase64"]) {
        delete globalThis[name];
    }
})();
