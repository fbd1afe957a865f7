import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.EventingFunctionCompilationFailureException;
import com.couchbase.client.core.error.EventingFunctionDeployedException;
import com.couchbase.client.core.error.EventingFunctionIdenticalKeyspaceException;
import com.couchbase.client.core.error.EventingFunctionNotDeployedException;
import com.couchbase.client.core.error.EventingFunctionNotFoundException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.manager.eventing.EventingFunction;
import com.couchbase.client.java.manager.eventing.EventingFunctionBucketBinding;
import com.couchbase.client.java.manager.eventing.EventingFunctionConstantBinding;
import com.couchbase.client.java.manager.eventing.EventingFunctionKeyspace;
import com.couchbase.client.java.manager.eventing.EventingFunctionStatus;
import java.util.List;

/** Eventing functions: definition, states, and effects on documents. */
final class Functions {
  private static final String COPY = "function OnUpdate(doc, meta) { copies[meta.id] = {n: doc.n + BY}; }";

  private Functions() {}

  private static EventingFunction function(
      String name, String code, Collection source, Collection metadata, Collection copies) {
    return EventingFunction.builder(
            name, code, EventingFunctionKeyspace.create(source), EventingFunctionKeyspace.create(metadata))
        .bucketBindings(
            List.of(
                EventingFunctionBucketBinding.createReadWrite("copies", EventingFunctionKeyspace.create(copies))))
        .constantBindings(List.of(EventingFunctionConstantBinding.create("BY", "1")))
        .build();
  }

  private static void reaches(Environment env, String name, EventingFunctionStatus status) {
    Environment.eventually(
        () ->
            env.cluster.eventingFunctions().functionsStatus().functions().stream()
                .anyMatch(state -> state.name().equals(name) && state.status() == status));
  }

  static void functionsFollowDocuments(Environment env) throws Exception {
    var functions = env.cluster.eventingFunctions();
    Collection source = env.newCollection();
    Collection copies = env.newCollection();
    Collection metadata = env.newCollection();
    String name = env.name("function");
    functions.upsertFunction(function(name, COPY, source, metadata, copies));
    Environment.same(functions.getFunction(name).code(), COPY);
    Environment.same(functions.getFunction(name).bucketBindings().get(0).alias(), "copies");
    Environment.holds(functions.getAllFunctions().stream().anyMatch(one -> one.name().equals(name)), "listed");
    Environment.refused(() -> functions.undeployFunction(name), EventingFunctionNotDeployedException.class);
    functions.deployFunction(name);
    reaches(env, name, EventingFunctionStatus.DEPLOYED);
    source.upsert("a", Environment.object("n", 1));
    Environment.eventually(() -> copies.get("a").contentAsObject().getInt("n") == 2);
    Environment.refused(
        () -> functions.dropFunction(name),
        EventingFunctionDeployedException.class,
        EventingFunctionNotDeployedException.class);
    functions.pauseFunction(name);
    reaches(env, name, EventingFunctionStatus.PAUSED);
    source.upsert("b", Environment.object("n", 5));
    functions.resumeFunction(name);
    reaches(env, name, EventingFunctionStatus.DEPLOYED);
    Environment.eventually(() -> copies.get("b").contentAsObject().getInt("n") == 6);
    functions.undeployFunction(name);
    reaches(env, name, EventingFunctionStatus.UNDEPLOYED);
    functions.dropFunction(name);
    Environment.refused(() -> functions.getFunction(name), EventingFunctionNotFoundException.class);
    Environment.refused(() -> functions.deployFunction(name), EventingFunctionNotFoundException.class);
  }

  static void functionsThatCannotBeAreRefused(Environment env) throws Exception {
    Collection source = env.newCollection();
    Collection other = env.newCollection();
    Environment.refused(
        () ->
            env.cluster
                .eventingFunctions()
                .upsertFunction(function(env.name("function"), "function OnUpdate(", source, other, other)),
        EventingFunctionCompilationFailureException.class);
    Environment.refused(
        () ->
            env.cluster
                .eventingFunctions()
                .upsertFunction(function(env.name("function"), COPY, source, source, other)),
        EventingFunctionIdenticalKeyspaceException.class);
    Collection missing = env.scopeOf(source).collection("missing");
    Environment.refused(
        () ->
            env.cluster
                .eventingFunctions()
                .upsertFunction(function(env.name("function"), COPY, missing, other, other)),
        CouchbaseException.class);
  }

  static void functionsOfAScopeAreItsOwn(Environment env) throws Exception {
    Collection source = env.newCollection();
    Collection metadata = env.newCollection();
    var functions = env.scopeOf(source).eventingFunctions();
    String name = env.name("function");
    functions.upsertFunction(function(name, COPY, source, metadata, env.newCollection()));
    Environment.same(functions.getFunction(name).code(), COPY);
    Environment.refused(
        () -> env.cluster.eventingFunctions().getFunction(name), EventingFunctionNotFoundException.class);
    functions.dropFunction(name);
    Environment.refused(() -> functions.getFunction(name), EventingFunctionNotFoundException.class);
  }
}
