import static com.couchbase.client.java.view.ViewOptions.viewOptions;

import com.couchbase.client.core.error.DesignDocumentNotFoundException;
import com.couchbase.client.core.error.ViewNotFoundException;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.manager.view.DesignDocument;
import com.couchbase.client.java.view.DesignDocumentNamespace;
import com.couchbase.client.java.view.ViewOptions;
import com.couchbase.client.java.view.ViewOrdering;
import com.couchbase.client.java.view.ViewResult;
import com.couchbase.client.java.view.ViewRow;
import com.couchbase.client.java.view.ViewScanConsistency;
import java.util.Arrays;
import java.util.List;
import java.util.Set;

/** Design documents and view queries. */
final class Views {
  private static final DesignDocumentNamespace PRODUCTION = DesignDocumentNamespace.PRODUCTION;
  private static final DesignDocumentNamespace DEVELOPMENT = DesignDocumentNamespace.DEVELOPMENT;
  private static final Object[][] PEARLS = {
    {"black", 3}, {"black", 5}, {"gold", 4}, {"white", 1}, {"white", 2}, {"white", 9}
  };

  private Views() {}

  private static String map(String group) {
    return "function (doc, meta) { if (doc.group === '" + group + "') emit([doc.colour, doc.size], doc.size); }";
  }

  private static String design(Environment env, String group, DesignDocumentNamespace namespace) {
    String name = env.name("design");
    env.bucket
        .viewIndexes()
        .upsertDesignDocument(
            new DesignDocument(name).putView("sizes", map(group), "_sum").putView("plain", map(group)), namespace);
    env.later(() -> env.bucket.viewIndexes().dropDesignDocument(name, namespace));
    return name;
  }

  private static List<String> keys(Environment env, String group) {
    return Arrays.stream(PEARLS)
        .map(
            pearl ->
                env.document(
                        JsonObject.create().put("group", group).put("colour", pearl[0]).put("size", pearl[1]))
                    .key())
        .toList();
  }

  private static ViewOptions fresh() {
    return viewOptions().scanConsistency(ViewScanConsistency.REQUEST_PLUS);
  }

  private static List<Integer> values(ViewResult result) {
    return result.rows().stream().map(row -> row.valueAs(Integer.class).orElseThrow()).toList();
  }

  static void designDocumentsAreStoredPublishedAndDropped(Environment env) throws Exception {
    String group = env.name("group");
    String name = design(env, group, DEVELOPMENT);
    var designs = env.bucket.viewIndexes();
    Environment.refused(() -> designs.getDesignDocument(name, PRODUCTION), DesignDocumentNotFoundException.class);
    designs.publishDesignDocument(name);
    DesignDocument found = designs.getDesignDocument(name, PRODUCTION);
    Environment.same(found.views().keySet(), Set.of("sizes", "plain"));
    Environment.same(found.views().get("sizes").reduce().orElse(null), "_sum");
    Environment.same(found.views().get("sizes").map(), map(group));
    Environment.holds(
        designs.getAllDesignDocuments(PRODUCTION).stream().anyMatch(design -> design.name().equals(name)), "listed");
    designs.dropDesignDocument(name, PRODUCTION);
    Environment.refused(() -> designs.dropDesignDocument(name, PRODUCTION), DesignDocumentNotFoundException.class);
  }

  static void viewsReturnRowsInOrder(Environment env) throws Exception {
    String group = env.name("group");
    List<String> keys = keys(env, group);
    String design = design(env, group, PRODUCTION);
    ViewResult all = env.bucket.viewQuery(design, "plain", fresh());
    Environment.same(values(all), List.of(3, 5, 4, 1, 2, 9));
    Environment.same(all.metaData().totalRows(), 6L);
    ViewRow first = all.rows().get(0);
    Environment.same(first.id().orElse(null), keys.get(0));
    Environment.same(first.keyAs(JsonArray.class).orElse(null), JsonArray.from("black", 3));
    Environment.same(
        values(env.bucket.viewQuery(design, "plain", fresh().order(ViewOrdering.DESCENDING).skip(1).limit(2))),
        List.of(2, 1));
    Environment.same(
        values(
            env.bucket.viewQuery(
                design,
                "plain",
                fresh()
                    .startKey(JsonArray.from("gold"))
                    .endKey(JsonArray.from("white", 2))
                    .inclusiveEnd(false))),
        List.of(4, 1));
    Environment.same(
        values(env.bucket.viewQuery(design, "plain", fresh().key(JsonArray.from("gold", 4)))), List.of(4));
    Environment.same(
        values(
            env.bucket.viewQuery(
                design,
                "plain",
                fresh().keys(JsonArray.from(JsonArray.from("white", 9), JsonArray.from("black", 3))))),
        List.of(9, 3));
    Environment.same(
        values(env.bucket.viewQuery(design, "plain", fresh().raw("key", "[\"gold\",4]"))), List.of(4));
    Environment.refused(() -> env.bucket.viewQuery(design, "none"), ViewNotFoundException.class);
    Environment.refused(() -> env.bucket.viewQuery("none" + env.run, "none"), ViewNotFoundException.class);
  }

  static void viewsReduceByGroup(Environment env) {
    String group = env.name("group");
    keys(env, group);
    String design = design(env, group, PRODUCTION);
    Environment.same(values(env.bucket.viewQuery(design, "sizes", fresh())), List.of(24));
    List<ViewRow> groups = env.bucket.viewQuery(design, "sizes", fresh().groupLevel(1)).rows();
    Environment.same(
        groups.stream().map(row -> row.keyAs(JsonArray.class).orElseThrow().getString(0)).toList(),
        List.of("black", "gold", "white"));
    Environment.same(env.bucket.viewQuery(design, "sizes", fresh().group(true)).rows().size(), 6);
    Environment.same(env.bucket.viewQuery(design, "sizes", fresh().reduce(false)).rows().size(), 6);
  }
}
