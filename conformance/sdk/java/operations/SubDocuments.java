import static com.couchbase.client.java.kv.LookupInOptions.lookupInOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.InvalidArgumentException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathInvalidException;
import com.couchbase.client.core.error.subdoc.PathMismatchException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInMacro;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInMacro;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.StoreSemantics;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Parts of documents and their extended attributes. */
final class SubDocuments {
  private SubDocuments() {}

  private static String shell(Environment env) {
    return env.document(
            JsonObject.create()
                .put("name", "pearl")
                .put("n", 1)
                .put("list", JsonArray.from(1, 2, 3))
                .put("in", JsonObject.create().put("deep", true)))
        .key();
  }

  static void lookupsReadPartsAndTellWhatIsMissing(Environment env) throws Exception {
    String key = shell(env);
    LookupInResult found =
        env.collection.lookupIn(
            key,
            List.of(
                LookupInSpec.get("name"),
                LookupInSpec.exists("in.deep"),
                LookupInSpec.exists("in.none"),
                LookupInSpec.count("list"),
                LookupInSpec.get("list[-1]"),
                LookupInSpec.get("none"),
                LookupInSpec.get("name.x"),
                LookupInSpec.get("")));
    Environment.same(found.contentAs(0, String.class), "pearl");
    Environment.holds(found.exists(1) && !found.exists(2), "which paths exist");
    Environment.same(found.contentAs(3, Integer.class), 3);
    Environment.same(found.contentAs(4, Integer.class), 3);
    Environment.refused(() -> found.contentAs(5, String.class), PathNotFoundException.class);
    Environment.refused(() -> found.contentAs(6, String.class), PathMismatchException.class);
    Environment.same(found.contentAsObject(7).getInt("n"), 1);
    LookupInResult wrong = env.collection.lookupIn(key, List.of(LookupInSpec.get("list[")));
    Environment.refused(() -> wrong.contentAs(0, String.class), PathInvalidException.class);
    Environment.refused(
        () -> env.collection.lookupIn(env.key(), List.of(LookupInSpec.get("a"))), DocumentNotFoundException.class);
  }

  static void mutationsOfEveryKindChangeParts(Environment env) throws Exception {
    String key = shell(env);
    MutateInResult done =
        env.collection.mutateIn(
            key,
            List.of(
                MutateInSpec.upsert("name", "shell"),
                MutateInSpec.insert("new.made", 1).createPath(),
                MutateInSpec.replace("in.deep", false),
                MutateInSpec.arrayAppend("list", List.of(4, 5)),
                MutateInSpec.arrayPrepend("list", List.of(0)),
                MutateInSpec.arrayInsert("list[1]", List.of(9)),
                MutateInSpec.arrayAddUnique("list", 77),
                MutateInSpec.increment("n", 10),
                MutateInSpec.decrement("n", 1)));
    Environment.same(done.contentAs(7, Long.class), 11L);
    Environment.same(done.contentAs(8, Long.class), 10L);
    JsonObject found = env.collection.get(key).contentAsObject();
    Environment.same(found.getArray("list"), JsonArray.from(0, 9, 1, 2, 3, 4, 5, 77));
    Environment.same(found.getObject("new"), Environment.object("made", 1));
    env.collection.mutateIn(key, List.of(MutateInSpec.remove("new.made"), MutateInSpec.remove("list[0]")));
    Environment.refused(
        () -> env.collection.mutateIn(key, List.of(MutateInSpec.insert("name", 1))), PathExistsException.class);
    Environment.refused(
        () -> env.collection.mutateIn(key, List.of(MutateInSpec.replace("none", 1))), PathNotFoundException.class);
    Environment.refused(
        () -> env.collection.mutateIn(key, List.of(MutateInSpec.arrayAddUnique("list", 77))), PathExistsException.class);
    Environment.refused(
        () -> env.collection.mutateIn(key, List.of(MutateInSpec.increment("name", 1))), PathMismatchException.class);
  }

  static void aMutationThatFailsChangesNothing(Environment env) throws Exception {
    String key = shell(env);
    Environment.refused(
        () -> env.collection.mutateIn(key, List.of(MutateInSpec.upsert("n", 5), MutateInSpec.replace("none", 1))),
        PathNotFoundException.class);
    Environment.same(env.collection.get(key).contentAsObject().getInt("n"), 1);
    List<MutateInSpec> many = new ArrayList<>();
    for (int i = 0; i < 17; i++) {
      many.add(MutateInSpec.upsert("f" + i, i));
    }
    Environment.refused(() -> env.collection.mutateIn(key, many), InvalidArgumentException.class);
  }

  static void storeSemanticsCreateDocuments(Environment env) throws Exception {
    String key = env.key();
    List<MutateInSpec> specs = List.of(MutateInSpec.upsert("a", 1));
    Environment.refused(() -> env.collection.mutateIn(key, specs), DocumentNotFoundException.class);
    env.collection.mutateIn(key, specs, mutateInOptions().storeSemantics(StoreSemantics.INSERT));
    Environment.refused(
        () -> env.collection.mutateIn(key, specs, mutateInOptions().storeSemantics(StoreSemantics.INSERT)),
        DocumentExistsException.class);
    env.collection.mutateIn(
        key,
        List.of(MutateInSpec.upsert("b", 2)),
        mutateInOptions().storeSemantics(StoreSemantics.UPSERT).durability(DurabilityLevel.MAJORITY));
    Environment.same(env.collection.get(key).contentAsObject(), JsonObject.create().put("a", 1).put("b", 2));
    long cas = env.collection.get(key).cas();
    env.collection.mutateIn(key, specs, mutateInOptions().cas(cas));
    Environment.refused(() -> env.collection.mutateIn(key, specs, mutateInOptions().cas(cas)), CasMismatchException.class);
    env.collection.mutateIn(key, List.of(MutateInSpec.replace("", Environment.object("whole", 1))));
    Environment.same(env.collection.get(key).contentAsObject(), Environment.object("whole", 1));
    env.collection.mutateIn(key, List.of(MutateInSpec.remove("")));
    Environment.holds(!env.collection.exists(key).exists(), "removed by the empty path");
  }

  static void attributesAndMacrosHoldMetadata(Environment env) {
    String key = shell(env);
    MutateInResult done =
        env.collection.mutateIn(
            key,
            List.of(
                MutateInSpec.upsert("mine.note", "hello").xattr().createPath(),
                MutateInSpec.upsert("mine.cas", MutateInMacro.CAS).xattr(),
                MutateInSpec.upsert("mine.seqno", MutateInMacro.SEQ_NO).xattr(),
                MutateInSpec.upsert("mine.crc", MutateInMacro.VALUE_CRC_32C).xattr(),
                MutateInSpec.upsert("n", 2)));
    LookupInResult found =
        env.collection.lookupIn(
            key,
            List.of(
                LookupInSpec.get("mine").xattr(),
                LookupInSpec.get(LookupInMacro.CAS).xattr(),
                LookupInSpec.get(LookupInMacro.EXPIRY_TIME).xattr(),
                LookupInSpec.get(LookupInMacro.IS_DELETED).xattr(),
                LookupInSpec.get(LookupInMacro.VALUE_SIZE_BYTES).xattr(),
                LookupInSpec.get(LookupInMacro.DOCUMENT).xattr()));
    JsonObject mine = found.contentAsObject(0);
    Environment.same(mine.getString("note"), "hello");
    long swapped = Long.reverseBytes(Long.parseUnsignedLong(mine.getString("cas").substring(2), 16));
    Environment.same(swapped, done.cas());
    Environment.same(mine.getString("seqno").length(), 18);
    Environment.same(mine.getString("crc").length(), 10);
    Environment.same(Long.parseUnsignedLong(found.contentAs(1, String.class).substring(2), 16), done.cas());
    Environment.same(found.contentAs(2, Long.class), 0L);
    Environment.same(found.contentAs(3, Boolean.class), false);
    Environment.holds(found.contentAs(4, Integer.class) > 10, "a size");
    Environment.same(found.contentAsObject(5).getBoolean("deleted"), false);
  }

  static void aChangeOfAPartEndsTheExpiryUnlessItIsPreserved(Environment env) {
    String key = env.key();
    env.collection.upsert(
        key, JsonObject.create(), UpsertOptions.upsertOptions().expiry(Duration.ofHours(1)));
    env.collection.mutateIn(key, List.of(MutateInSpec.upsert("a", 1)), mutateInOptions().preserveExpiry(true));
    Environment.holds(expiry(env, key) > 0, "the expiry is preserved");
    env.collection.mutateIn(key, List.of(MutateInSpec.upsert("a", 2)));
    Environment.same(expiry(env, key), 0L);
    env.collection.mutateIn(
        key, List.of(MutateInSpec.upsert("a", 3)), mutateInOptions().expiry(Duration.ofHours(2)));
    Environment.holds(expiry(env, key) > 0, "a new expiry");
  }

  private static long expiry(Environment env, String key) {
    return env.collection
        .lookupIn(key, List.of(LookupInSpec.get(LookupInMacro.EXPIRY_TIME).xattr()))
        .contentAs(0, Long.class);
  }

  static void tombstonesKeepSystemAttributes(Environment env) {
    String key = env.key();
    env.collection.mutateIn(
        key,
        List.of(MutateInSpec.upsert("_mine", 7).xattr(), MutateInSpec.upsert("a", 1)),
        mutateInOptions().storeSemantics(StoreSemantics.INSERT));
    env.collection.remove(key);
    LookupInResult found =
        env.collection.lookupIn(
            key, List.of(LookupInSpec.get("_mine").xattr()), lookupInOptions().accessDeleted(true));
    Environment.same(found.contentAs(0, Integer.class), 7);
    Environment.holds(found.isDeleted(), "the document is deleted");
  }

  static void replicasAnswerLookups(Environment env) {
    String key = shell(env);
    Environment.same(
        env.collection.lookupInAnyReplica(key, List.of(LookupInSpec.get("n"))).contentAs(0, Integer.class), 1);
    long active =
        env.collection
            .lookupInAllReplicas(key, List.of(LookupInSpec.get("n")))
            .filter(found -> !found.isReplica())
            .count();
    Environment.same(active, 1L);
  }
}
