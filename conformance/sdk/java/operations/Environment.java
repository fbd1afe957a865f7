import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.Scope;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutationResult;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.function.BiFunction;

/** The bucket for the cases, and names that belong to one run. */
final class Environment {
  /** An action that may fail in any way. */
  interface Action {
    void run() throws Exception;
  }

  /** A document with the result of its insertion. */
  record Stored(String key, MutationResult result) {}

  private static final Duration PATIENCE = Duration.ofSeconds(20);

  final Cluster cluster;
  final Bucket bucket;
  final Collection collection;
  /** Part of each name of the run. */
  final String run = "java" + UUID.randomUUID().toString().substring(0, 8);
  /** Returns the cluster as seen by another user: takes a name and a password. */
  final BiFunction<String, String, Cluster> logIn;

  private final Deque<Action> undo = new ArrayDeque<>();
  private Scope scope;
  private int names;

  Environment(Cluster cluster, String bucket, BiFunction<String, String, Cluster> logIn) {
    this.cluster = cluster;
    this.bucket = cluster.bucket(bucket);
    this.collection = this.bucket.defaultCollection();
    this.logIn = logIn;
  }

  /** Returns an unused name, valid for documents, indexes, scopes and users. */
  String name(String of) {
    return run + "_" + of + "_" + ++names;
  }

  /** Returns the key of a document that does not exist and is removed at the end. */
  String key() {
    String key = name("doc");
    later(() -> collection.remove(key));
    return key;
  }

  Stored document(Object value) {
    String key = key();
    return new Stored(key, collection.insert(key, value));
  }

  /** Returns a new collection of the run's scope. */
  Collection newCollection() {
    if (scope == null) {
      String name = name("scope");
      bucket.collections().createScope(name);
      later(() -> bucket.collections().dropScope(name));
      scope = bucket.scope(name);
    }
    String name = name("collection");
    bucket.collections().createCollection(scope.name(), name);
    Collection made = scope.collection(name);
    eventually(() -> !made.exists("none").exists());
    return made;
  }

  Scope scopeOf(Collection collection) {
    return bucket.scope(collection.scopeName());
  }

  /** Runs {@code action} at the end of the run, in reverse order of these calls. */
  void later(Action action) {
    undo.push(action);
  }

  /** Undoes the run; an object that a case has already dropped is not an error. */
  void clean() throws Exception {
    for (Action action : undo) {
      try {
        action.run();
      } catch (CouchbaseException gone) {
        continue;
      }
    }
  }

  /** Requires that the action fails with one of {@code expected}. */
  @SafeVarargs
  @SuppressWarnings("varargs")
  static void refused(Action action, Class<? extends Exception>... expected) throws Exception {
    try {
      action.run();
    } catch (Exception error) {
      if (Arrays.stream(expected).anyMatch(type -> type.isInstance(error))) {
        return;
      }
      throw error;
    }
    throw new AssertionError("expected " + expected[0].getSimpleName());
  }

  /** Waits until the condition holds; an error of the client counts as false. */
  static void eventually(Callable<Boolean> condition) {
    long end = System.nanoTime() + PATIENCE.toNanos();
    while (true) {
      Object problem = "the condition stayed false";
      try {
        if (condition.call()) {
          return;
        }
      } catch (Exception error) {
        problem = error;
      }
      if (System.nanoTime() > end) {
        throw new AssertionError("not within " + PATIENCE + ": " + problem);
      }
      try {
        // The client does not report these conditions, so poll.
        Thread.sleep(20);
      } catch (InterruptedException stopped) {
        throw new AssertionError(stopped);
      }
    }
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) {
      throw new AssertionError("found " + found + ", expected " + expected);
    }
  }

  static void holds(boolean condition, String what) {
    if (!condition) {
      throw new AssertionError("does not hold: " + what);
    }
  }

  static JsonObject object(String name, Object value) {
    return JsonObject.create().put(name, value);
  }
}
