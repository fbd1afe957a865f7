// Queries that other services answer: analytics statements, and searches with their parts. It follows `api.js`.

class AnalyticsError extends RefusedQuery {
    get name() { return "AnalyticsError"; }
}
class SearchError extends RefusedQuery {
    get name() { return "SearchError"; }
}
for (const error of [AnalyticsError, SearchError]) offer(error.name, error);

/** Returns the options of a call, and refuses unknown ones. */
function optionsOf(options, known, what) {
    const given = options ?? {};
    const unknown = Object.keys(given).find((name) => !known.includes(name));
    if (unknown !== undefined) throw new TypeError(`${what} has no option ${unknown}`);
    if (!Object.hasOwn(CONSISTENCIES, given.consistency ?? "none")) {
        throw new TypeError(`the consistency of ${what} is "none" or "request"`);
    }
    return given;
}

/** Starts queries of a service, and returns their rows. */
function beginning(service, Refusal) {
    const refusing = queried(Refusal);
    const Rows = rowsOf(host, refusing);
    return (text, parameters, consistency) =>
        new Rows(refusing(() => host("query.beginAt", service, text, parameters, CONSISTENCIES[consistency ?? "none"])));
}

const analyze = beginning("analytics", AnalyticsError);
const search = beginning("search", SearchError);

function analyticsQuery(statement, parameters, options) {
    const what = "couchbase.analyticsQuery";
    if (typeof statement !== "string") throw new TypeError(`${what} needs a statement as a string`);
    const { consistency } = optionsOf(options, ["consistency"], what);
    return analyze(statement, parametersOf(parameters), consistency);
}

// ---- Parts of searches

/** Sets the member with that name. */
const member = (name) => (members, value) => { members[name] = value; };

/** Sets an end of a range, and whether the range includes it. */
const bound = (name) => (members, value, isInclusive) => {
    members[name] = value;
    if (isInclusive !== undefined) members[`inclusive_${name}`] = isInclusive;
};

/** Adds parts to a list. */
const more = (name) => (members, ...parts) => { members[name].push(...parts.flat()); };

/** Sets a clause of a boolean query: the list of parts with that name. */
const clause = (name, list) => (members, ...parts) => {
    const [first, ...rest] = parts.flat();
    const isList = rest.length === 0 && Object.hasOwn(first?.toJSON?.() ?? first ?? {}, list);
    members[name] = isList ? first : { [list]: [first, ...rest] };
};

/** Creates parts of a kind: `begin` returns their initial members, and `setters` change these. */
const kind = (begin, setters) => (...given) => {
    const members = begin(...given);
    const part = { toJSON: () => members };
    for (const [name, set] of Object.entries(setters)) {
        part[name] = (...values) => {
            set(members, ...values);
            return part;
        };
    }
    return Object.freeze(part);
};

const boosted = { boost: member("boost") };
const ofField = { ...boosted, field: member("field") };
const fuzzy = { ...ofField, fuzziness: member("fuzziness"), prefixLength: member("prefix_length") };
const range = { ...ofField, min: bound("min"), max: bound("max") };

const SearchQuery = Object.freeze({
    match: kind((text) => ({ match: text }), { ...fuzzy, analyzer: member("analyzer"), operator: member("operator") }),
    matchPhrase: kind((text) => ({ match_phrase: text }), { ...ofField, analyzer: member("analyzer") }),
    term: kind((term) => ({ term }), fuzzy),
    phrase: kind((...terms) => ({ terms: terms.flat() }), ofField),
    prefix: kind((prefix) => ({ prefix }), ofField),
    regexp: kind((regexp) => ({ regexp }), ofField),
    wildcard: kind((wildcard) => ({ wildcard }), ofField),
    queryString: kind((query) => ({ query }), boosted),
    booleanField: kind((value) => ({ bool: value }), ofField),
    docIds: kind((...ids) => ({ ids: ids.flat() }), boosted),
    numericRange: kind(() => ({}), range),
    termRange: kind(() => ({}), range),
    dateRange: kind(() => ({}), {
        ...ofField,
        start: bound("start"),
        end: bound("end"),
        dateTimeParser: member("datetime_parser"),
    }),
    conjuncts: kind((...parts) => ({ conjuncts: parts.flat() }), { ...boosted, and: more("conjuncts") }),
    disjuncts: kind((...parts) => ({ disjuncts: parts.flat() }), { ...boosted, or: more("disjuncts"), min: member("min") }),
    boolean: kind(() => ({}), {
        ...boosted,
        must: clause("must", "conjuncts"),
        should: clause("should", "disjuncts"),
        mustNot: clause("must_not", "disjuncts"),
    }),
    geoDistance: kind((lon, lat, distance) => ({ location: [lon, lat], distance: String(distance) }), ofField),
    geoBoundingBox: kind(
        (west, north, east, south) => ({ top_left: [west, north], bottom_right: [east, south] }),
        ofField,
    ),
    geoPolygon: kind((points) => ({ polygon_points: points }), ofField),
    matchAll: kind(() => ({ match_all: {} }), boosted),
    matchNone: kind(() => ({ match_none: {} }), {}),
    vectorQuery: kind(
        (field, vector) => ({ field, [typeof vector === "string" ? "vector_base64" : "vector"]: vector, k: 3 }),
        { ...boosted, numCandidates: member("k"), prefilter: member("filter") },
    ),
    vectorSearch: kind((...queries) => ({ knn: queries.flat() }), {}),
});

/** Members of a search request that a call may set, and options of calls only. */
const SEARCH_OPTIONS = [
    "size", "limit", "from", "offset", "fields", "highlight", "explain", "sort", "facets", "suggest", "includeLocations", "score",
    "params", "search_after", "search_before", "collections", "knn", "knn_operator", "ctl",
    "skip", "vectorSearch", "consistency",
];

function searchQuery(index, query, options) {
    const what = "couchbase.searchQuery";
    if (typeof index !== "string" || index === "") throw new TypeError(`${what} needs the name of an index`);
    if (typeof query !== "object" || query === null) throw new TypeError(`${what} needs a query as an object`);
    const { consistency, vectorSearch, skip, ...members } = optionsOf(options, SEARCH_OPTIONS, what);
    const vectors = vectorSearch?.toJSON?.() ?? vectorSearch ?? {};
    const from = skip === undefined ? {} : { from: skip };
    return search(index, stringify({ ...vectors, ...from, ...members, query }), consistency);
}

Object.assign(globalThis.couchbase, { analyticsQuery, searchQuery, SearchQuery });
