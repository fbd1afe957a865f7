// Queries of programs, the same in all plugins. This text precedes the rest of a prelude, which defines `stringify`
// and `isArray`.

/** The rows of a query, which are requested on demand. `queried` runs a request and throws refusals in the form of its prelude. */
function rowsOf(host, queried) {
    return class Rows {
        #query;
        #rows = [];
        #at = 0;

        /** Requests the first rows immediately: a statement without rows then ends even if it is never read. */
        constructor(query) {
            this.#query = query;
            this.#take();
        }

        #take() {
            this.#at = 0;
            this.#rows = queried(() => host("query.next", this.#query));
            if (this.#rows.length === 0) this.#query = null;
        }

        next() {
            if (this.#at === this.#rows.length && this.#query !== null) this.#take();
            return this.#at < this.#rows.length
                ? { value: this.#rows[this.#at++], done: false }
                : { value: undefined, done: true };
        }

        close() {
            if (this.#query !== null) host("query.close", this.#query);
            this.#query = null;
            this.#rows = [];
            this.#at = 0;
        }

        /** Ends the query when a loop is left early. */
        return(value) {
            this.close();
            return { value, done: true };
        }

        [Symbol.iterator]() { return this; }
    };
}

/** Returns the parameters of a statement in the host's form; names may begin with `$`. */
function parametersOf(parameters) {
    if (parameters === undefined || parameters === null) return "";
    if (typeof parameters !== "object") throw new TypeError("the parameters of a query are an object or an array");
    if (isArray(parameters)) return stringify(parameters);
    const named = Object.entries(parameters).map(([name, value]) => [name.replace(/^\$/, ""), value]);
    return stringify(Object.fromEntries(named));
}
