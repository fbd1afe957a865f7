// What functions of queries find beside the language, and what of the engine's own they do not.
(function () {
    const ask = globalThis.host;
    Math.random = function random() { return ask("random"); };
    globalThis.N1QL = function N1QL() {
        throw new Error("N1QL() is not available in functions that queries call");
    };
    for (const name of ["host", "emit", "log", "sum", "dateToArray", "decodeBase64"]) {
        delete globalThis[name];
    }
})();
