import static com.couchbase.client.java.search.SearchOptions.searchOptions;

import com.couchbase.client.core.error.IndexNotFoundException;
import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.Scope;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.manager.search.SearchIndex;
import com.couchbase.client.java.search.HighlightStyle;
import com.couchbase.client.java.search.SearchOptions;
import com.couchbase.client.java.search.SearchQuery;
import com.couchbase.client.java.search.SearchRequest;
import com.couchbase.client.java.search.facet.NumericRange;
import com.couchbase.client.java.search.facet.SearchFacet;
import com.couchbase.client.java.search.result.SearchResult;
import com.couchbase.client.java.search.result.SearchRow;
import com.couchbase.client.java.search.sort.SearchSort;
import com.couchbase.client.java.search.vector.VectorQuery;
import com.couchbase.client.java.search.vector.VectorSearch;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Search indexes and search queries, of a scope and of the cluster. */
final class Searches {
  private static final String[] TITLES = {
    "Black pearl of the deep", "White pearl", "Empty oyster", "Mother of pearl, an inner layer"
  };
  private static final double[][] SHADES = {{0, 0, 0}, {9, 9, 9}, {5, 5, 4}, {8, 9, 9}};

  private Searches() {}

  /** Documents with an index of their scope. */
  private record Shells(Scope scope, String index, MutationState state) {
    SearchResult ask(SearchQuery query, SearchOptions options) {
      return scope.search(index, SearchRequest.create(query), options.consistentWith(state));
    }

    List<String> found(SearchQuery query) {
      return ask(query, searchOptions().sort(SearchSort.byId())).rows().stream().map(SearchRow::id).toList();
    }
  }

  private static Map<String, Object> parameters(Collection collection) {
    Map<String, Object> shade =
        Map.of(
            "enabled",
            true,
            "fields",
            List.of(
                Map.of("name", "shade", "type", "vector", "dims", 3, "similarity", "l2_norm", "index", true)));
    Map<String, Object> type = Map.of("enabled", true, "dynamic", true, "properties", Map.of("shade", shade));
    return Map.of(
        "doc_config",
        Map.of("mode", "scope.collection.type_field", "type_field", "type"),
        "mapping",
        Map.of(
            "default_mapping",
            Map.of("enabled", false),
            "types",
            Map.of(collection.scopeName() + "." + collection.name(), type),
            "store_dynamic",
            true));
  }

  private static Shells shells(Environment env) {
    Collection own = env.newCollection();
    Scope scope = env.scopeOf(own);
    String index = env.name("search");
    scope
        .searchIndexes()
        .upsertIndex(new SearchIndex(index, env.bucket.name()).params(parameters(own)).sourceType("couchbase"));
    env.later(() -> scope.searchIndexes().dropIndex(index));
    List<MutationToken> written = new ArrayList<>();
    for (int i = 0; i < TITLES.length; i++) {
      JsonArray shade = JsonArray.create();
      for (double part : SHADES[i]) {
        shade.add(part);
      }
      JsonObject shell = JsonObject.create().put("title", TITLES[i]).put("size", i * 2 + 1).put("shade", shade);
      written.add(own.upsert("s" + i, shell).mutationToken().orElseThrow());
    }
    return new Shells(scope, index, MutationState.from(written.toArray(MutationToken[]::new)));
  }

  static void queriesOfManyKindsFindDocuments(Environment env) {
    Shells shells = shells(env);
    Environment.same(shells.found(SearchQuery.match("pearl").field("title")), List.of("s0", "s1", "s3"));
    Environment.same(shells.found(SearchQuery.term("oyster").field("title")), List.of("s2"));
    Environment.same(shells.found(SearchQuery.matchPhrase("mother of pearl").field("title")), List.of("s3"));
    Environment.same(shells.found(SearchQuery.prefix("pear").field("title")), List.of("s0", "s1", "s3"));
    Environment.same(shells.found(SearchQuery.wildcard("oy?t*").field("title")), List.of("s2"));
    Environment.same(shells.found(SearchQuery.regexp("whi.e").field("title")), List.of("s1"));
    Environment.same(shells.found(SearchQuery.queryString("+title:pearl -title:white")), List.of("s0", "s3"));
    Environment.same(shells.found(SearchQuery.numericRange().field("size").min(3).max(5, true)), List.of("s1", "s2"));
    Environment.same(shells.found(SearchQuery.docId("s0", "s2")), List.of("s0", "s2"));
    Environment.same(
        shells.found(
            SearchQuery.booleans()
                .must(SearchQuery.match("pearl").field("title"))
                .mustNot(SearchQuery.match("white").field("title"))),
        List.of("s0", "s3"));
    Environment.same(shells.found(SearchQuery.matchNone()), List.of());
  }

  static void rowsHaveFieldsFragmentsLocationsAndFacets(Environment env) {
    Shells shells = shells(env);
    SearchResult result =
        shells.ask(
            SearchQuery.match("oyster").field("title"),
            searchOptions()
                .fields("title", "size")
                .highlight(HighlightStyle.HTML, "title")
                .includeLocations(true)
                .explain(true));
    SearchRow row = result.rows().get(0);
    Environment.same(row.fieldsAs(JsonObject.class).getString("title"), "Empty oyster");
    Environment.same(row.fragments().get("title"), List.of("Empty <mark>oyster</mark>"));
    Environment.same(row.locations().orElseThrow().get("title", "oyster").size(), 1);
    Environment.holds(!row.explanation().isEmpty() && row.score() > 0, "an explained score");
    Environment.same(result.metaData().metrics().totalRows(), 1L);
    SearchResult counted =
        shells.ask(
            SearchQuery.matchAll(),
            searchOptions()
                .limit(1)
                .facets(
                    Map.of(
                        "words",
                        SearchFacet.term("title", 2),
                        "sizes",
                        SearchFacet.numericRange(
                            "size",
                            2,
                            List.of(NumericRange.create("small", null, 4.0), NumericRange.create("large", 4.0, null))))));
    Environment.same(counted.rows().size(), 1);
    Environment.same(counted.facets().keySet(), Set.of("words", "sizes"));
    Environment.same(counted.facets().get("sizes").total(), 4L);
  }

  static void vectorsHaveNearestNeighbours(Environment env) {
    Shells shells = shells(env);
    Environment.same(shells.found(SearchQuery.matchAll()).size(), TITLES.length);
    SearchResult result =
        shells.scope.search(
            shells.index,
            SearchRequest.create(
                VectorSearch.create(VectorQuery.create("shade", new float[] {9, 9, 9}).numCandidates(2))),
            searchOptions().limit(2));
    Environment.same(result.rows().stream().map(SearchRow::id).toList(), List.of("s1", "s3"));
  }

  static void indexesOfTheClusterAreManaged(Environment env) throws Exception {
    var indexes = env.cluster.searchIndexes();
    String name = env.name("search");
    indexes.upsertIndex(new SearchIndex(name, env.bucket.name()).sourceType("couchbase"));
    SearchIndex found = indexes.getIndex(name);
    Environment.same(found.sourceName(), env.bucket.name());
    indexes.upsertIndex(found);
    Environment.holds(!indexes.getIndex(name).uuid().equals(found.uuid()), "another version");
    indexes.pauseIngest(name);
    indexes.resumeIngest(name);
    indexes.disallowQuerying(name);
    indexes.allowQuerying(name);
    indexes.freezePlan(name);
    indexes.unfreezePlan(name);
    String key = env.document(Environment.object("word", env.run)).key();
    Environment.eventually(() -> indexes.getIndexedDocumentsCount(name) > 0);
    Environment.eventually(
        () ->
            env.cluster.searchQuery(name, SearchQuery.match(env.run).field("word")).rows().stream()
                .anyMatch(row -> row.id().equals(key)));
    Environment.same(indexes.analyzeDocument(name, Environment.object("word", "Red Pearls")).isEmpty(), false);
    Environment.holds(indexes.getAllIndexes().stream().anyMatch(index -> index.name().equals(name)), "listed");
    indexes.dropIndex(name);
    Environment.refused(() -> indexes.getIndex(name), IndexNotFoundException.class);
    Environment.refused(() -> indexes.dropIndex(name), IndexNotFoundException.class);
    Environment.refused(() -> env.cluster.searchQuery(name, SearchQuery.matchAll()), IndexNotFoundException.class);
  }
}
