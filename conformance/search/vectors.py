"""Vectors of texts and their measurement, for ``cargo xtask bench vectors``.

    python3 vectors.py make DOCUMENTS FOLDER
    python3 vectors.py peers FOLDER

``make`` splits texts into passages of forty words, computes a vector of each with the model in the package ``wordllama`` (256
numbers, cosine), and writes ``vectors.f32``, ``queries.f32`` and ``exact.json``: the ten nearest vectors of each query, among all
vectors and among those whose number modulo 1,000 is below a filter. ``peers`` indexes them with faiss, hnswlib and usearch in
this process, with one thread, and prints a line of JSON for each.
"""

import json
import sys
import time
from pathlib import Path

import numpy

PASSAGE_WORDS = 40
VECTORS = 52_000
QUERIES = 200
NEAREST = 10
DIMS = 256
# Number of vectors in 1,000 that match a filter.
FILTERS = (1, 10, 100, 500, 1000)


def passages(documents):
    """Yields texts of forty words."""
    with open(documents, encoding="utf-8") as lines:
        for line in lines:
            words = json.loads(line)["body"].split()
            for at in range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS):
                yield " ".join(words[at : at + PASSAGE_WORDS])


def nearest(vectors, queries, kept):
    """Returns the numbers of the nearest vectors of each query among those that match a filter."""
    numbers = numpy.arange(len(vectors))
    numbers = numbers[numbers % 1000 < kept]
    scores = queries @ vectors[numbers].T
    best = numpy.argsort(-scores, axis=1)[:, :NEAREST]
    return numbers[best].tolist()


def make(documents, folder):
    """Writes vectors, queries and the exact results."""
    import wordllama

    # Without a cache folder, the package looks for its tokenizer in a folder with another name.
    own = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(dim=DIMS, cache_dir=own, disable_download=True)
    texts = list(passages(documents))
    order = numpy.random.default_rng(56).permutation(len(texts))[: VECTORS + QUERIES]
    texts = [texts[at] for at in order]
    vectors = numpy.concatenate([model.embed(texts[at : at + 500], norm=True) for at in range(0, len(texts), 500)])
    vectors = numpy.ascontiguousarray(vectors, dtype="<f4")
    queries, vectors = vectors[:QUERIES], vectors[QUERIES:]
    exact = {str(kept): nearest(vectors, queries, kept) for kept in FILTERS}
    folder.mkdir(parents=True, exist_ok=True)
    vectors.tofile(folder / "vectors.f32")
    queries.tofile(folder / "queries.f32")
    (folder / "exact.json").write_text(json.dumps(exact))


def recall(found, exact):
    """Returns the recall: the share of the nearest vectors that was found."""
    hits = sum(len(set(map(int, one)) & set(wanted)) for one, wanted in zip(found, exact))
    return hits / sum(len(wanted) for wanted in exact)


def measured(name, build, ask, queries, exact, filters=(1000,)):
    """Builds an index, queries it, and prints the cost."""
    begun = time.process_time()
    index = build()
    figures = {"name": name, "build_cpu_s": time.process_time() - begun}
    for kept in filters:
        found, begun = [], time.process_time()
        for query in queries:
            found.append(ask(index, query, kept))
        took = (time.process_time() - begun) / len(queries)
        figures[str(kept)] = {"recall": recall(found, exact[str(kept)]), "cpu_us": took * 1e6}
    print(json.dumps(figures), flush=True)


def with_faiss(vectors, queries, exact):
    """Inverted lists with codes of a byte, and a graph; filtered by faiss."""
    import faiss

    faiss.omp_set_num_threads(1)
    lists = int(4 * len(vectors) ** 0.5)
    numbers = numpy.arange(len(vectors))

    def filtered(parameters, kept):
        if kept < 1000:
            parameters.sel = faiss.IDSelectorBatch(numbers[numbers % 1000 < kept])
        return parameters

    def inverted():
        quantizer = faiss.IndexFlatIP(DIMS)
        index = faiss.IndexIVFScalarQuantizer(
            quantizer, DIMS, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        index.train(vectors)
        index.add(vectors)
        return index

    def ask_inverted(index, query, kept):
        parameters = filtered(faiss.SearchParametersIVF(nprobe=lists // 10), kept)
        # Four times as many are compared by their four-byte numbers.
        _, found = index.search(query[None], 4 * NEAREST, params=parameters)
        found = found[0][found[0] >= 0]
        return found[numpy.argsort(-(vectors[found] @ query))[:NEAREST]]

    def graph():
        index = faiss.IndexHNSWFlat(DIMS, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200
        index.add(vectors)
        return index

    def ask_graph(index, query, kept):
        parameters = filtered(faiss.SearchParametersHNSW(efSearch=64), kept)
        return index.search(query[None], NEAREST, params=parameters)[1][0]

    name = f"faiss {faiss.__version__}"
    measured(f"{name}, IVF{lists}-SQ8, 10 % of the lists", inverted, ask_inverted, queries, exact, FILTERS)
    measured(f"{name}, HNSW32, efConstruction 200, ef 64", graph, ask_graph, queries, exact, FILTERS)


def with_hnswlib(vectors, queries, exact):
    """A graph index."""
    import hnswlib

    def build():
        index = hnswlib.Index(space="ip", dim=DIMS)
        index.init_index(max_elements=len(vectors), ef_construction=200, M=16)
        index.set_num_threads(1)
        index.add_items(vectors)
        index.set_ef(64)
        return index

    measured(
        "hnswlib 0.8.0, M 16, ef_construction 200, ef 64",
        build,
        lambda index, query, _: index.knn_query(query, k=NEAREST)[0][0],
        queries,
        exact,
    )


def with_usearch(vectors, queries, exact):
    """A graph index."""
    import usearch
    from usearch.index import Index

    def build():
        index = Index(ndim=DIMS, metric="ip", dtype="f32")
        index.add(numpy.arange(len(vectors)), vectors, threads=1)
        return index

    measured(
        f"usearch {usearch.__version__}, as it comes",
        build,
        lambda index, query, _: index.search(query, NEAREST, threads=1).keys,
        queries,
        exact,
    )


def peers(folder):
    """Measures the libraries."""
    vectors, queries = (
        numpy.fromfile(folder / f"{name}.f32", dtype="<f4").reshape(-1, DIMS) for name in ("vectors", "queries")
    )
    exact = json.loads((folder / "exact.json").read_text())
    for library in (with_faiss, with_hnswlib, with_usearch):
        library(vectors, queries, exact)


if sys.argv[1] == "make":
    make(sys.argv[2], Path(sys.argv[3]))
else:
    peers(Path(sys.argv[2]))
