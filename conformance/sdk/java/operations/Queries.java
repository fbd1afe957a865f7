import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.manager.query.CreatePrimaryQueryIndexOptions.createPrimaryQueryIndexOptions;
import static com.couchbase.client.java.manager.query.CreateQueryIndexOptions.createQueryIndexOptions;
import static com.couchbase.client.java.query.QueryOptions.queryOptions;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DmlFailureException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.IndexExistsException;
import com.couchbase.client.core.error.IndexFailureException;
import com.couchbase.client.core.error.IndexNotFoundException;
import com.couchbase.client.core.error.ParsingFailureException;
import com.couchbase.client.core.error.PlanningFailureException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.manager.query.QueryIndex;
import com.couchbase.client.java.query.QueryMetaData;
import com.couchbase.client.java.query.QueryProfile;
import com.couchbase.client.java.query.QueryResult;
import com.couchbase.client.java.query.QueryScanConsistency;
import com.couchbase.client.java.query.QueryStatus;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** Statements, their options and errors, and query indexes. */
final class Queries {
  private static final int ROWS = 200;

  private Queries() {}

  private static String path(Collection collection) {
    return String.format("`%s`.`%s`.`%s`", collection.bucketName(), collection.scopeName(), collection.name());
  }

  /** Returns a collection with a primary index and documents {@code {"n": 0…}}. */
  private static Collection filled(Environment env) {
    Collection own = env.newCollection();
    own.queryIndexes().createPrimaryIndex(createPrimaryQueryIndexOptions().ignoreIfExists(true));
    for (int i = 0; i < ROWS; i++) {
      own.upsert("q" + i, Environment.object("n", i).put("even", i % 2 == 0));
    }
    return own;
  }

  static void statementsReturnRowsAndMetadata(Environment env) {
    QueryResult found =
        env.cluster.query(
            "SELECT $word AS word, 1 + 1 AS two",
            queryOptions()
                .parameters(Environment.object("word", "pearl"))
                .metrics(true)
                .profile(QueryProfile.TIMINGS)
                .clientContextId("mine")
                .readonly(true));
    Environment.same(found.rowsAsObject(), List.of(JsonObject.create().put("word", "pearl").put("two", 2)));
    QueryMetaData about = found.metaData();
    Environment.same(about.status(), QueryStatus.SUCCESS);
    Environment.same(about.clientContextId(), "mine");
    Environment.same(about.signature().orElseThrow().getString("two"), "number");
    Environment.same(about.metrics().orElseThrow().resultCount(), 1L);
    Environment.holds(!about.metrics().orElseThrow().elapsedTime().isZero(), "a time");
    Environment.holds(about.profile().orElseThrow().containsKey("executionTimings"), "a profile");
    Environment.same(
        env.cluster.query("SELECT RAW $1 || $2", queryOptions().parameters(JsonArray.from("a", "b"))).rowsAs(String.class),
        List.of("ab"));
  }

  static void queriesSeeTheWritesTheyAreConsistentWith(Environment env) {
    Collection own = filled(env);
    String count = "SELECT RAW COUNT(*) FROM " + path(own) + " WHERE n >= 0";
    Environment.same(
        env.cluster
            .query(count, queryOptions().scanConsistency(QueryScanConsistency.REQUEST_PLUS))
            .rowsAs(Integer.class),
        List.of(ROWS));
    MutationState state = MutationState.from(own.upsert("more", Environment.object("n", 1)).mutationToken().orElseThrow());
    Environment.same(
        env.cluster.query(count, queryOptions().consistentWith(state)).rowsAs(Integer.class), List.of(ROWS + 1));
  }

  static void scopesAreTheContextOfTheirStatements(Environment env) {
    Collection own = filled(env);
    List<Integer> found =
        env.scopeOf(own)
            .query(
                "SELECT RAW n FROM `" + own.name() + "` WHERE even ORDER BY n LIMIT 3",
                queryOptions().scanConsistency(QueryScanConsistency.REQUEST_PLUS))
            .rowsAs(Integer.class);
    Environment.same(found, List.of(0, 2, 4));
  }

  static void preparedStatementsAreKept(Environment env) {
    for (int i = 0; i < 3; i++) {
      QueryResult found =
          env.cluster.query(
              "SELECT RAW $1 * 2", queryOptions().adhoc(false).parameters(JsonArray.from(i)));
      Environment.same(found.rowsAs(Integer.class), List.of(i * 2));
    }
  }

  static void rowsArriveAsAStream(Environment env) {
    List<Long> rows = new ArrayList<>();
    QueryMetaData about =
        env.cluster.queryStreaming(
            "SELECT RAW v FROM ARRAY_RANGE(0, 5000) AS v", row -> rows.add(row.contentAs(Long.class)));
    Environment.same(rows.size(), 5000);
    Environment.same(about.status(), QueryStatus.SUCCESS);
    Long sum =
        env.cluster
            .reactive()
            .query("SELECT RAW v FROM ARRAY_RANGE(0, 5000) AS v")
            .flatMapMany(result -> result.rowsAs(Long.class))
            .reduce(0L, Long::sum)
            .block();
    Environment.same(sum, 5000L * 4999 / 2);
  }

  static void statementsChangeDocuments(Environment env) throws Exception {
    Collection own = filled(env);
    QueryResult changed =
        env.cluster.query(
            "UPDATE " + path(own) + " SET big = TRUE WHERE n < 10",
            queryOptions().metrics(true).scanConsistency(QueryScanConsistency.REQUEST_PLUS));
    Environment.same(changed.metaData().metrics().orElseThrow().mutationCount(), 10L);
    Environment.same(own.get("q3").contentAsObject().getBoolean("big"), true);
    Environment.refused(
        () -> env.cluster.query("INSERT INTO " + path(own) + " VALUES (\"q1\", {})"),
        DocumentExistsException.class,
        DmlFailureException.class);
    env.cluster.query("INSERT INTO " + path(own) + " VALUES (\"t\", {})", queryOptions().asTransaction());
    Environment.holds(own.exists("t").exists(), "a transaction of one statement");
  }

  static void errorsAreRecognised(Environment env) throws Exception {
    Environment.refused(() -> env.cluster.query("SELEC 1"), ParsingFailureException.class);
    Environment.refused(() -> env.cluster.query("SELECT * FROM nowhere" + env.run), IndexFailureException.class);
    Environment.refused(
        () -> env.cluster.query("SELECT 1", queryOptions().raw("unknown_option", 1)), CouchbaseException.class);
    Environment.refused(() -> env.cluster.query("SELECT COUNT(*), n FROM [{\"n\":1}] AS t GROUP BY x"), PlanningFailureException.class);
    Environment.refused(
        () ->
            env.cluster.query(
                "SELECT COUNT(*) FROM ARRAY_RANGE(0,3000) a, ARRAY_RANGE(0,3000) b, ARRAY_RANGE(0,3000) c",
                queryOptions().timeout(Duration.ofSeconds(1))),
        TimeoutException.class);
    Environment.refused(
        () -> env.cluster.query("SELECT * FROM `" + env.bucket.name() + "`.nowhere.nothing"),
        CouchbaseException.class);
  }

  static void indexesAreMadeListedWatchedAndDropped(Environment env) throws Exception {
    Collection own = env.newCollection();
    var indexes = own.queryIndexes();
    indexes.createPrimaryIndex();
    Environment.refused(() -> indexes.createPrimaryIndex(), IndexExistsException.class);
    indexes.createIndex("by_n", Set.of("n"), createQueryIndexOptions().deferred(true));
    indexes.createIndex("by_even", Set.of("even"));
    Environment.refused(() -> indexes.createIndex("by_even", Set.of("even")), IndexExistsException.class);
    indexes.createIndex("by_even", Set.of("even"), createQueryIndexOptions().ignoreIfExists(true));
    QueryIndex deferred = named(indexes.getAllIndexes(), "by_n");
    Environment.same(deferred.state(), "deferred");
    Environment.same(deferred.indexKey(), JsonArray.from("`n`"));
    Environment.same(deferred.scopeName().orElse(null), own.scopeName());
    Environment.same(deferred.collectionName().orElse(null), own.name());
    indexes.buildDeferredIndexes();
    indexes.watchIndexes(Set.of("by_n", "by_even"), Duration.ofSeconds(30));
    Environment.same(named(indexes.getAllIndexes(), "by_n").state(), "online");
    indexes.dropIndex("by_n");
    Environment.refused(() -> indexes.dropIndex("by_n"), IndexNotFoundException.class);
    indexes.dropIndex("by_even");
    indexes.dropPrimaryIndex();
    Environment.same(indexes.getAllIndexes().size(), 0);
    Environment.refused(() -> indexes.dropPrimaryIndex(), IndexNotFoundException.class);
    // Through the cluster's manager, which is older than collections.
    String name = env.name("index");
    env.cluster.queryIndexes().createIndex(env.bucket.name(), name, Set.of("n"));
    env.later(() -> env.cluster.queryIndexes().dropIndex(env.bucket.name(), name));
    Environment.holds(
        named(env.cluster.queryIndexes().getAllIndexes(env.bucket.name()), name) != null, "an index of the bucket");
  }

  private static QueryIndex named(List<QueryIndex> indexes, String name) {
    return indexes.stream().filter(index -> index.name().equals(name)).findFirst().orElse(null);
  }

  static void aChangeThatMeetsAnotherIsTold(Environment env) throws Exception {
    Collection own = env.newCollection();
    own.upsert("k", 1);
    long old = own.get("k").cas();
    env.cluster.query("UPDATE " + path(own) + " USE KEYS \"k\" SET a = 1");
    env.cluster.query("UPSERT INTO " + path(own) + " VALUES (\"k\", {\"a\": 2})");
    Environment.refused(
        () -> own.replace("k", 2, replaceOptions().cas(old)),
        CasMismatchException.class);
  }
}
