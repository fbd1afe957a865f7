// Queries as programs ask them: the same wherever they may. It stands before what else a program finds, which names
// `stringify` and `isArray`.

/** The rows of a query, which come as they are asked for. `queried` runs what asks, and throws what is refused in its own way. */
function rowsOf(host, queried) {
    return class Rows {
        #query;
        #rows = [];
        #at = 0;

        /** The first rows are taken at once: a statement that gives none is over, whether or not it is read. */
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

        /** A loop that is left early. */
        return(value) {
            this.close();
            return { value, done: true };
        }

        [Symbol.iterator]() { return this; }
    };
}

/** The parameters of a statement as the host takes them: named ones may have their `$`. */
function parametersOf(parameters) {
    if (parameters === undefined || parameters === null) return "";
    if (typeof parameters !== "object") throw new TypeError("the parameters of a query are an object or an array");
    if (isArray(parameters)) return stringify(parameters);
    const named = Object.entries(parameters).map(([name, value]) => [name.replace(/^\$/, ""), value]);
    return stringify(Object.fromEntries(named));
}
