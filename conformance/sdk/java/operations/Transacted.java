import static com.couchbase.client.java.transactions.config.TransactionOptions.transactionOptions;

import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.transactions.TransactionGetResult;
import com.couchbase.client.java.transactions.TransactionQueryOptions;
import com.couchbase.client.java.transactions.TransactionResult;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Mono;

/** ACID transactions, which the client implements, and transactions with statements. */
final class Transacted {
  private static final int CLERKS = 4;
  private static final int TRANSFERS = 10;

  private Transacted() {}

  private static int amount(Environment env, String key) {
    return env.collection.get(key).contentAsObject().getInt("amount");
  }

  private static String account(Environment env, int amount) {
    return env.document(Environment.object("amount", amount)).key();
  }

  private static int amountOf(TransactionGetResult found) {
    return found.contentAsObject().getInt("amount");
  }

  static void aTransactionChangesAllItsDocuments(Environment env) {
    String one = account(env, 10);
    String other = account(env, 0);
    String receipt = env.key();
    TransactionResult done =
        env.cluster
            .transactions()
            .run(
                context -> {
                  TransactionGetResult source = context.get(env.collection, one);
                  TransactionGetResult target = context.get(env.collection, other);
                  context.replace(source, Environment.object("amount", amountOf(source) - 3));
                  context.replace(target, Environment.object("amount", amountOf(target) + 3));
                  context.insert(env.collection, receipt, Environment.object("amount", 3));
                });
    Environment.holds(done.unstagingComplete(), "all is unstaged");
    Environment.same(List.of(amount(env, one), amount(env, other), amount(env, receipt)), List.of(7, 3, 3));
  }

  static void aTransactionThatFailsChangesNothing(Environment env) throws Exception {
    String one = account(env, 10);
    String gone = account(env, 5);
    String receipt = env.key();
    Environment.refused(
        () ->
            env.cluster
                .transactions()
                .run(
                    context -> {
                      context.replace(context.get(env.collection, one), Environment.object("amount", -1));
                      context.remove(context.get(env.collection, gone));
                      context.insert(env.collection, receipt, Environment.object("amount", 3));
                      throw new IllegalStateException("enough");
                    }),
        TransactionFailedException.class);
    Environment.same(List.of(amount(env, one), amount(env, gone)), List.of(10, 5));
    Environment.refused(() -> env.collection.get(receipt), DocumentNotFoundException.class);
  }

  static void documentsThatExistOrAreMissingAreTold(Environment env) throws Exception {
    String one = account(env, 1);
    Environment.refused(
        () -> env.cluster.transactions().run(context -> context.insert(env.collection, one, 1)),
        DocumentExistsException.class,
        TransactionFailedException.class);
    Environment.refused(
        () -> env.cluster.transactions().run(context -> context.get(env.collection, env.key())),
        DocumentNotFoundException.class,
        TransactionFailedException.class);
  }

  static void statementsAreInTheTransaction(Environment env) throws Exception {
    Collection own = env.newCollection();
    String path = String.format("`%s`.`%s`.`%s`", own.bucketName(), own.scopeName(), own.name());
    own.insert("a", Environment.object("amount", 10));
    env.cluster
        .transactions()
        .run(
            context -> {
              TransactionGetResult found = context.get(own, "a");
              context.replace(found, Environment.object("amount", 9));
              context.query(
                  "INSERT INTO " + path + " VALUES ($1, {\"amount\": 1})",
                  TransactionQueryOptions.queryOptions().parameters(JsonArray.from("b")));
              int seen =
                  context.query(env.scopeOf(own), "SELECT RAW amount FROM `" + own.name() + "` USE KEYS \"a\"")
                      .rowsAs(Integer.class)
                      .get(0);
              Environment.same(seen, 9);
              context.remove(context.get(own, "b"));
              context.insert(own, "c", Environment.object("amount", 1));
            });
    Environment.same(own.get("a").contentAsObject().getInt("amount"), 9);
    Environment.holds(!own.exists("b").exists() && own.exists("c").exists(), "the last state of each document");
    Environment.refused(
        () ->
            env.cluster
                .transactions()
                .run(
                    context -> {
                      context.query("UPDATE " + path + " USE KEYS \"a\" SET amount = 0");
                      context.query("INSERT INTO " + path + " VALUES (\"a\", {})");
                    }),
        TransactionFailedException.class);
    Environment.same(own.get("a").contentAsObject().getInt("amount"), 9);
  }

  static void transactionsThatConflictAreRepeated(Environment env) {
    String one = account(env, CLERKS * TRANSFERS);
    String other = account(env, 0);
    List<CompletableFuture<Void>> clerks = new ArrayList<>();
    for (int clerk = 0; clerk < CLERKS; clerk++) {
      clerks.add(
          CompletableFuture.runAsync(
              () -> {
                for (int i = 0; i < TRANSFERS; i++) {
                  env.cluster
                      .transactions()
                      .run(
                          context -> {
                            TransactionGetResult source = context.get(env.collection, one);
                            TransactionGetResult target = context.get(env.collection, other);
                            context.replace(source, Environment.object("amount", amountOf(source) - 1));
                            context.replace(target, Environment.object("amount", amountOf(target) + 1));
                          });
                }
              }));
    }
    clerks.forEach(CompletableFuture::join);
    Environment.same(List.of(amount(env, one), amount(env, other)), List.of(0, CLERKS * TRANSFERS));
  }

  static void durabilityMetadataAndReactiveCallsAreChosen(Environment env) {
    Collection own = env.newCollection();
    String one = account(env, 1);
    env.cluster
        .reactive()
        .transactions()
        .run(
            context ->
                context
                    .get(env.collection.reactive(), one)
                    .flatMap(found -> context.replace(found, Environment.object("amount", 2)))
                    .then(Mono.empty()),
            transactionOptions()
                .durabilityLevel(DurabilityLevel.PERSIST_TO_MAJORITY)
                .metadataCollection(own)
                .timeout(Duration.ofSeconds(20)))
        .block();
    Environment.same(amount(env, one), 2);
    long records = own.scan(ScanType.prefixScan("_txn")).count();
    Environment.holds(records > 0, "the records are in the collection that was named");
  }
}
