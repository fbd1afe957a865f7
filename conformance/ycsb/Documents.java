import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutateInOptions;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.UpsertOptions;
import com.couchbase.client.java.query.QueryOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * YCSB records as documents, with the official Java client; the threads of a run share one client, as in an application.
 *
 * <p>Properties: {@code nacre.connection}, {@code nacre.user}, {@code nacre.password}, {@code nacre.bucket}, and {@code
 * nacre.durability}, a level by the client's name.
 */
public class Documents extends DB {
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private static Cluster cluster;
  private static Collection collection;
  private static int users;

  private DurabilityLevel durability;
  private String scans;

  @Override
  public void init() throws DBException {
    Properties properties = getProperties();
    String bucket = properties.getProperty("nacre.bucket", "default");
    durability = DurabilityLevel.valueOf(properties.getProperty("nacre.durability", "NONE"));
    scans = "SELECT RAW u FROM `" + bucket + "` AS u WHERE META(u).id >= $1 ORDER BY META(u).id LIMIT $2";
    synchronized (Documents.class) {
      users++;
      if (cluster == null) {
        cluster =
            Cluster.connect(
                properties.getProperty("nacre.connection", "couchbase://127.0.0.1"),
                properties.getProperty("nacre.user", "Administrator"),
                properties.getProperty("nacre.password", "password"));
        cluster.bucket(bucket).waitUntilReady(PATIENCE);
        collection = cluster.bucket(bucket).defaultCollection();
      }
    }
  }

  @Override
  public void cleanup() {
    synchronized (Documents.class) {
      if (--users == 0) {
        cluster.disconnect();
        cluster = null;
      }
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      take(collection.get(key).contentAsObject(), fields, result);
      return Status.OK;
    } catch (DocumentNotFoundException missing) {
      return Status.NOT_FOUND;
    } catch (RuntimeException failure) {
      return failed("read", failure);
    }
  }

  @Override
  public Status scan(
      String table, String first, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    try {
      QueryOptions options =
          QueryOptions.queryOptions().adhoc(false).parameters(JsonArray.from(first, count));
      for (JsonObject record : cluster.query(scans, options).rowsAsObject()) {
        HashMap<String, ByteIterator> row = new HashMap<>();
        take(record, fields, row);
        result.add(row);
      }
      return Status.OK;
    } catch (RuntimeException failure) {
      return failed("scan", failure);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      List<MutateInSpec> specs = new ArrayList<>();
      values.forEach((field, value) -> specs.add(MutateInSpec.upsert(field, value.toString())));
      collection.mutateIn(key, specs, MutateInOptions.mutateInOptions().durability(durability));
      return Status.OK;
    } catch (DocumentNotFoundException missing) {
      return Status.NOT_FOUND;
    } catch (RuntimeException failure) {
      return failed("update", failure);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      JsonObject record = JsonObject.create();
      values.forEach((field, value) -> record.put(field, value.toString()));
      collection.upsert(key, record, UpsertOptions.upsertOptions().durability(durability));
      return Status.OK;
    } catch (RuntimeException failure) {
      return failed("insert", failure);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      collection.remove(key);
      return Status.OK;
    } catch (DocumentNotFoundException missing) {
      return Status.NOT_FOUND;
    } catch (RuntimeException failure) {
      return failed("delete", failure);
    }
  }

  /** Copies the wanted fields of a record, or all. */
  private static void take(JsonObject record, Set<String> fields, Map<String, ByteIterator> result) {
    for (String field : fields == null ? record.getNames() : fields) {
      result.put(field, new StringByteIterator(record.getString(field)));
    }
  }

  private static Status failed(String operation, RuntimeException failure) {
    System.err.println("cannot " + operation + ": " + failure);
    return Status.ERROR;
  }
}
