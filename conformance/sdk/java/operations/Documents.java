import static com.couchbase.client.java.kv.DecrementOptions.decrementOptions;
import static com.couchbase.client.java.kv.GetAndLockOptions.getAndLockOptions;
import static com.couchbase.client.java.kv.GetAndTouchOptions.getAndTouchOptions;
import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.IncrementOptions.incrementOptions;
import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.ScanOptions.scanOptions;
import static com.couchbase.client.java.kv.UnlockOptions.unlockOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentLockedException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentNotLockedException;
import com.couchbase.client.core.error.DocumentUnretrievableException;
import com.couchbase.client.core.error.InvalidArgumentException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.codec.RawJsonTranscoder;
import com.couchbase.client.java.codec.RawStringTranscoder;
import com.couchbase.client.java.codec.SerializableTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.CounterResult;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.kv.PersistTo;
import com.couchbase.client.java.kv.ReplicateTo;
import com.couchbase.client.java.kv.ScanTerm;
import com.couchbase.client.java.kv.ScanType;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/** Whole documents: single operations, locks, expiries, counters, durability, replicas, scans, data structures. */
final class Documents {
  private static final int BULK = 2000;

  private Documents() {}

  static void insertsReadsReplacesAndRemoves(Environment env) throws Exception {
    Environment.Stored stored = env.document(Environment.object("n", 1));
    Environment.refused(() -> env.collection.insert(stored.key(), 2), DocumentExistsException.class);
    GetResult found = env.collection.get(stored.key());
    Environment.same(found.contentAsObject(), Environment.object("n", 1));
    Environment.same(found.cas(), stored.result().cas());
    Environment.holds(stored.result().mutationToken().isPresent(), "a write has a mutation token");
    MutationResult replaced =
        env.collection.replace(stored.key(), Environment.object("n", 2), replaceOptions().cas(found.cas()));
    Environment.refused(
        () -> env.collection.replace(stored.key(), 3, replaceOptions().cas(found.cas())), CasMismatchException.class);
    Environment.refused(
        () -> env.collection.remove(stored.key(), removeOptions().cas(found.cas())), CasMismatchException.class);
    env.collection.remove(stored.key(), removeOptions().cas(replaced.cas()));
    Environment.refused(() -> env.collection.get(stored.key()), DocumentNotFoundException.class);
    Environment.refused(() -> env.collection.replace(stored.key(), 1), DocumentNotFoundException.class);
    Environment.refused(() -> env.collection.remove(stored.key()), DocumentNotFoundException.class);
    Environment.same(env.collection.getOrNull(stored.key()), null);
    Environment.holds(!env.collection.exists(stored.key()).exists(), "a removed document does not exist");
  }

  static void contentsOfEveryTranscoderComeBack(Environment env) {
    String key = env.key();
    byte[] bytes = {0, (byte) 0xff, 7};
    env.collection.upsert(key, bytes, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    byte[] back =
        env.collection.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAs(byte[].class);
    Environment.holds(Arrays.equals(back, bytes), "bytes come back");
    env.collection.upsert(key, "grüße", upsertOptions().transcoder(RawStringTranscoder.INSTANCE));
    Environment.same(
        env.collection.get(key, getOptions().transcoder(RawStringTranscoder.INSTANCE)).contentAs(String.class), "grüße");
    env.collection.upsert(key, "{ \"a\" : [1] }", upsertOptions().transcoder(RawJsonTranscoder.INSTANCE));
    Environment.same(
        env.collection.get(key, getOptions().transcoder(RawJsonTranscoder.INSTANCE)).contentAs(String.class),
        "{ \"a\" : [1] }");
    env.collection.upsert(
        key, new ArrayList<>(List.of("x")), upsertOptions().transcoder(SerializableTranscoder.INSTANCE));
    Environment.same(
        env.collection.get(key, getOptions().transcoder(SerializableTranscoder.INSTANCE)).contentAs(List.class),
        List.of("x"));
    String large = "pearl ".repeat(100_000);
    env.collection.upsert(key, large);
    Environment.same(env.collection.get(key).contentAs(String.class), large);
  }

  static void keysAndValuesThatAreTooLongAreRefused(Environment env) throws Exception {
    Environment.refused(() -> env.collection.upsert("k".repeat(251), 1), InvalidArgumentException.class);
    Environment.refused(() -> env.collection.upsert("", 1), InvalidArgumentException.class);
    String key = "k".repeat(246);
    env.collection.upsert(key, 1);
    env.collection.remove(key);
    byte[] huge = new byte[21 << 20];
    Environment.refused(
        () -> env.collection.upsert(env.key(), huge, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE)),
        ValueTooLargeException.class);
  }

  static void expiriesAreReadKeptAndReset(Environment env) {
    String key = env.key();
    Instant end = Instant.now().plusSeconds(3600).truncatedTo(ChronoUnit.SECONDS);
    env.collection.upsert(key, 1, upsertOptions().expiry(end));
    Environment.same(expiry(env, key), end);
    env.collection.upsert(key, 2, upsertOptions().preserveExpiry(true));
    Environment.same(expiry(env, key), end);
    env.collection.replace(key, 3, replaceOptions().preserveExpiry(true));
    Environment.same(expiry(env, key), end);
    env.collection.upsert(key, 4);
    Environment.same(expiry(env, key), null);
    env.collection.touch(key, Duration.ofDays(60));
    long days = Duration.between(Instant.now(), expiry(env, key)).toDays();
    Environment.holds(days == 59 || days == 60, "an expiry after more than 30 days: " + days);
    Environment.same(env.collection.getAndTouch(key, Duration.ZERO, getAndTouchOptions()).contentAs(Integer.class), 4);
    Environment.same(expiry(env, key), null);
    env.collection.touch(key, Duration.ofSeconds(1));
    Environment.eventually(() -> !env.collection.exists(key).exists());
  }

  private static Instant expiry(Environment env, String key) {
    return env.collection.get(key, getOptions().withExpiry(true)).expiryTime().orElse(null);
  }

  static void locksKeepOthersOut(Environment env) throws Exception {
    Environment.Stored stored = env.document(1);
    GetResult locked = env.collection.getAndLock(stored.key(), Duration.ofSeconds(15));
    Environment.refused(
        () ->
            env.collection.getAndLock(
                stored.key(),
                Duration.ofSeconds(15),
                getAndLockOptions().timeout(Duration.ofMillis(300))),
        DocumentLockedException.class,
        TimeoutException.class);
    Environment.refused(
        () -> env.collection.upsert(stored.key(), 2, upsertOptions().timeout(Duration.ofMillis(300))),
        DocumentLockedException.class,
        TimeoutException.class);
    Environment.refused(
        () ->
            env.collection.unlock(
                stored.key(),
                locked.cas() + 1,
                unlockOptions().timeout(Duration.ofMillis(300))),
        CasMismatchException.class,
        TimeoutException.class);
    env.collection.unlock(stored.key(), locked.cas());
    Environment.refused(() -> env.collection.unlock(stored.key(), locked.cas()), DocumentNotLockedException.class);
    env.collection.upsert(stored.key(), 2);
    GetResult again = env.collection.getAndLock(stored.key(), Duration.ofSeconds(15));
    env.collection.replace(stored.key(), 3, replaceOptions().cas(again.cas()));
    env.collection.upsert(stored.key(), 4);
  }

  static void countersAndBytesGrow(Environment env) throws Exception {
    String key = env.key();
    CounterResult first =
        env.collection.binary().increment(key, incrementOptions().initial(10).delta(5));
    Environment.same(first.content(), 10L);
    Environment.same(env.collection.binary().increment(key, incrementOptions().delta(5)).content(), 15L);
    Environment.same(env.collection.binary().decrement(key, decrementOptions().delta(100)).content(), 0L);
    String word = env.key();
    Environment.refused(
        () -> env.collection.binary().append(word, new byte[] {1}),
        DocumentNotFoundException.class,
        CouchbaseException.class);
    env.collection.upsert(word, "b".getBytes(), upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    env.collection.binary().append(word, "c".getBytes());
    env.collection.binary().prepend(word, "a".getBytes());
    byte[] found =
        env.collection.get(word, getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAs(byte[].class);
    Environment.same(new String(found, StandardCharsets.UTF_8), "abc");
    Environment.refused(() -> env.collection.binary().increment(word), CouchbaseException.class);
  }

  static void projectionsReadParts(Environment env) {
    JsonObject body =
        JsonObject.create()
            .put("name", "pearl")
            .put("place", JsonObject.create().put("city", "Lyon").put("zip", 69))
            .put("tags", JsonArray.from("a", "b"));
    for (int i = 0; i < 20; i++) {
      body.put("f" + i, i);
    }
    String key = env.document(body).key();
    JsonObject found =
        env.collection.get(key, getOptions().project("name", "place.city", "tags[1]", "none")).contentAsObject();
    Environment.same(found.getString("name"), "pearl");
    Environment.same(found.getObject("place"), Environment.object("city", "Lyon"));
    Environment.holds(!found.containsKey("f1"), "only the paths that were named");
    // The maximum number of paths in one lookup.
    List<String> many = IntStream.range(0, 16).mapToObj(i -> "f" + i).toList();
    Environment.same(env.collection.get(key, getOptions().project(many)).contentAsObject().size(), 16);
    Environment.holds(
        env.collection.get(key, getOptions().project("name").withExpiry(true)).expiryTime().isEmpty(), "no expiry");
  }

  static void durableWritesAreAcknowledged(Environment env) throws Exception {
    for (DurabilityLevel level : DurabilityLevel.values()) {
      String key = env.key();
      env.collection.insert(key, 1, insertOptions().durability(level));
      env.collection.upsert(key, 2, upsertOptions().durability(level));
      env.collection.replace(key, 3, replaceOptions().durability(level));
      env.collection.binary().increment(env.key(), incrementOptions().initial(0).durability(level));
      env.collection.remove(key, removeOptions().durability(level));
      Environment.holds(!env.collection.exists(key).exists(), "removed at " + level);
    }
    // Observed by the client, as before durable writes existed.
    String key = env.key();
    env.collection.upsert(key, 1, upsertOptions().durability(PersistTo.ACTIVE, ReplicateTo.NONE));
    env.collection.remove(key, removeOptions().durability(PersistTo.ACTIVE, ReplicateTo.NONE));
  }

  static void replicasAnswer(Environment env) throws Exception {
    Environment.Stored stored = env.document(Environment.object("n", 1));
    Environment.same(env.collection.getAnyReplica(stored.key()).contentAsObject(), Environment.object("n", 1));
    long active = env.collection.getAllReplicas(stored.key()).filter(found -> !found.isReplica()).count();
    Environment.same(active, 1L);
    Environment.refused(() -> env.collection.getAnyReplica(env.key()), DocumentUnretrievableException.class);
  }

  static void scansSeeWhatWasWritten(Environment env) {
    Collection own = env.newCollection();
    List<MutationResult> written =
        Flux.range(0, 300)
            .flatMap(i -> own.reactive().upsert(String.format("k%03d", i), Environment.object("n", i)))
            .collectList()
            .block();
    MutationState state =
        MutationState.from(
            written.stream().map(result -> result.mutationToken().orElseThrow()).toArray(MutationToken[]::new));
    Set<String> range =
        own.scan(
                ScanType.rangeScan(ScanTerm.inclusive("k010"), ScanTerm.exclusive("k020")),
                scanOptions().consistentWith(state))
            .map(item -> item.id() + item.contentAsObject().getInt("n"))
            .collect(Collectors.toCollection(TreeSet::new));
    Environment.same(range.size(), 10);
    Environment.holds(range.contains("k01010") && !range.contains("k02020"), "the bounds of the scan");
    Environment.same(own.scan(ScanType.prefixScan("k1"), scanOptions().idsOnly(true).batchItemLimit(7)).count(), 100L);
    Environment.same(own.scan(ScanType.rangeScan(null, null), scanOptions().batchByteLimit(0)).count(), 300L);
    Environment.same(own.scan(ScanType.samplingScan(50, 42)).count(), 50L);
  }

  static void thousandsOfDocumentsAreWrittenAtOnce(Environment env) {
    Collection own = env.newCollection();
    Long written =
        Flux.range(0, BULK)
            .flatMap(i -> own.reactive().insert("bulk" + i, Environment.object("n", i)), 256)
            .count()
            .block();
    Environment.same(written, (long) BULK);
    Integer sum =
        Flux.range(0, BULK)
            .flatMap(i -> own.reactive().get("bulk" + i), 256)
            .map(found -> found.contentAsObject().getInt("n"))
            .reduce(0, Integer::sum)
            .block();
    Environment.same(sum, BULK * (BULK - 1) / 2);
  }

  static void dataStructuresAreDocuments(Environment env) {
    List<String> list = env.collection.list(env.key(), String.class);
    list.addAll(List.of("a", "c"));
    list.add(1, "b");
    list.remove(0);
    Environment.same(List.copyOf(list), List.of("b", "c"));
    Map<String, Integer> map = env.collection.map(env.key(), Integer.class);
    map.put("one", 1);
    map.put("two", 2);
    map.remove("one");
    Environment.same(Map.copyOf(map), Map.of("two", 2));
    Set<String> set = env.collection.set(env.key(), String.class);
    Environment.holds(set.add("x") && !set.add("x"), "a set takes a value once");
    Queue<String> queue = env.collection.queue(env.key(), String.class);
    queue.add("first");
    queue.add("second");
    Environment.same(queue.poll(), "first");
    Environment.same(queue.size(), 1);
  }

  static void aMissingCollectionEndsInATimeout(Environment env) throws Exception {
    Collection missing = env.bucket.collection("none" + env.run);
    Environment.refused(
        () -> missing.get("k", getOptions().timeout(Duration.ofMillis(500))),
        UnambiguousTimeoutException.class,
        CouchbaseException.class);
  }
}
