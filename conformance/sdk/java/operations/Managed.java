import static com.couchbase.client.java.manager.user.UpsertUserOptions.upsertUserOptions;

import com.couchbase.client.core.diagnostics.EndpointPingReport;
import com.couchbase.client.core.diagnostics.PingResult;
import com.couchbase.client.core.diagnostics.PingState;
import com.couchbase.client.core.error.BucketExistsException;
import com.couchbase.client.core.error.BucketNotFlushableException;
import com.couchbase.client.core.error.BucketNotFoundException;
import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.GroupNotFoundException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.core.error.ScopeNotFoundException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.core.error.UserNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.http.HttpPath;
import com.couchbase.client.java.http.HttpResponse;
import com.couchbase.client.java.http.HttpTarget;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.manager.bucket.BucketSettings;
import com.couchbase.client.java.manager.bucket.BucketType;
import com.couchbase.client.java.manager.bucket.ConflictResolutionType;
import com.couchbase.client.java.manager.bucket.EvictionPolicyType;
import com.couchbase.client.java.manager.bucket.StorageBackend;
import com.couchbase.client.java.manager.collection.CollectionSpec;
import com.couchbase.client.java.manager.collection.CreateCollectionSettings;
import com.couchbase.client.java.manager.collection.ScopeSpec;
import com.couchbase.client.java.manager.collection.UpdateCollectionSettings;
import com.couchbase.client.java.manager.user.AuthDomain;
import com.couchbase.client.java.manager.user.Group;
import com.couchbase.client.java.manager.user.Role;
import com.couchbase.client.java.manager.user.User;
import com.couchbase.client.java.manager.user.UserAndMetadata;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;

/** Buckets, scopes, collections, users, groups, diagnosis, and plain HTTP through the client. */
final class Managed {
  private static final Duration PATIENCE = Duration.ofSeconds(20);

  private Managed() {}

  private static Bucket bucket(Environment env, BucketSettings settings) {
    env.cluster.buckets().createBucket(settings);
    env.later(() -> env.cluster.buckets().dropBucket(settings.name()));
    Bucket bucket = env.cluster.bucket(settings.name());
    bucket.waitUntilReady(PATIENCE);
    return bucket;
  }

  static void bucketsAreMadeChangedFlushedAndDropped(Environment env) throws Exception {
    var buckets = env.cluster.buckets();
    String name = env.name("bucket");
    Bucket bucket =
        bucket(
            env,
            BucketSettings.create(name)
                .ramQuotaMB(128)
                .numReplicas(0)
                .flushEnabled(true)
                .maxExpiry(Duration.ofHours(1))
                .evictionPolicy(EvictionPolicyType.FULL)
                .minimumDurabilityLevel(DurabilityLevel.MAJORITY)
                .storageBackend(StorageBackend.COUCHSTORE)
                .conflictResolutionType(ConflictResolutionType.TIMESTAMP));
    BucketSettings found = buckets.getBucket(name);
    Environment.same(found.ramQuotaMB(), 128L);
    Environment.same(found.numReplicas(), 0);
    Environment.same(found.flushEnabled(), true);
    Environment.same(found.maxExpiry(), Duration.ofHours(1));
    Environment.same(found.evictionPolicy(), EvictionPolicyType.FULL);
    Environment.same(found.minimumDurabilityLevel(), DurabilityLevel.MAJORITY);
    Environment.same(found.storageBackend(), StorageBackend.COUCHSTORE);
    Environment.same(found.bucketType(), BucketType.COUCHBASE);
    Environment.refused(() -> buckets.createBucket(BucketSettings.create(name)), BucketExistsException.class);
    bucket.defaultCollection().upsert("k", 1);
    buckets.flushBucket(name);
    Environment.eventually(() -> !bucket.defaultCollection().exists("k").exists());
    buckets.updateBucket(found.flushEnabled(false).ramQuotaMB(130));
    Environment.eventually(() -> buckets.getBucket(name).ramQuotaMB() == 130);
    Environment.refused(() -> buckets.flushBucket(name), BucketNotFlushableException.class);
    Environment.holds(buckets.getAllBuckets().containsKey(name), "listed");
    buckets.dropBucket(name);
    Environment.eventually(() -> !buckets.getAllBuckets().containsKey(name));
    Environment.refused(() -> buckets.getBucket(name), BucketNotFoundException.class);
    Environment.refused(() -> buckets.dropBucket(name), BucketNotFoundException.class);
  }

  static void bucketsOfOtherKindsHoldDocuments(Environment env) {
    Bucket ephemeral =
        bucket(
            env,
            BucketSettings.create(env.name("bucket"))
                .ramQuotaMB(128)
                .numReplicas(0)
                .bucketType(BucketType.EPHEMERAL)
                .evictionPolicy(EvictionPolicyType.NOT_RECENTLY_USED));
    ephemeral.defaultCollection().upsert("k", 1);
    Environment.same(ephemeral.defaultCollection().get("k").contentAs(Integer.class), 1);
    String name = env.name("bucket");
    Bucket magma =
        bucket(
            env,
            BucketSettings.create(name)
                .ramQuotaMB(256)
                .numReplicas(0)
                .storageBackend(StorageBackend.MAGMA)
                .numVBuckets(128)
                .historyRetentionDuration(Duration.ofMinutes(10))
                .historyRetentionCollectionDefault(true));
    magma.defaultCollection().upsert("k", 1);
    BucketSettings found = env.cluster.buckets().getBucket(name);
    Environment.same(found.storageBackend(), StorageBackend.MAGMA);
    Environment.same(found.historyRetentionDuration(), Duration.ofMinutes(10));
    Environment.same(found.numVBuckets(), 128);
  }

  static void scopesAndCollectionsAreManaged(Environment env) throws Exception {
    var collections = env.bucket.collections();
    String scope = env.name("scope");
    collections.createScope(scope);
    env.later(() -> collections.dropScope(scope));
    Environment.refused(() -> collections.createScope(scope), ScopeExistsException.class);
    collections.createCollection(
        scope, "c", CreateCollectionSettings.createCollectionSettings().maxExpiry(Duration.ofHours(2)));
    Environment.refused(() -> collections.createCollection(scope, "c"), CollectionExistsException.class);
    Environment.refused(() -> collections.createCollection("none" + env.run, "c"), ScopeNotFoundException.class);
    Environment.same(collectionOf(env, scope).maxExpiry(), Duration.ofHours(2));
    collections.updateCollection(
        scope, "c", UpdateCollectionSettings.updateCollectionSettings().maxExpiry(CollectionSpec.NEVER_EXPIRE));
    Environment.same(collectionOf(env, scope).maxExpiry(), CollectionSpec.NEVER_EXPIRE);
    Environment.refused(
        () ->
            collections.updateCollection(
                scope, "none", UpdateCollectionSettings.updateCollectionSettings().maxExpiry(Duration.ofHours(1))),
        CollectionNotFoundException.class);
    collections.dropCollection(scope, "c");
    Environment.refused(() -> collections.dropCollection(scope, "c"), CollectionNotFoundException.class);
    collections.dropScope(scope);
    Environment.refused(() -> collections.dropScope(scope), ScopeNotFoundException.class);
  }

  private static CollectionSpec collectionOf(Environment env, String scope) {
    ScopeSpec found =
        env.bucket.collections().getAllScopes().stream()
            .filter(spec -> spec.name().equals(scope))
            .findFirst()
            .orElseThrow();
    return found.collections().stream().filter(spec -> spec.name().equals("c")).findFirst().orElseThrow();
  }

  static void usersAndGroupsAreManaged(Environment env) throws Exception {
    var users = env.cluster.users();
    String group = env.name("group");
    users.upsertGroup(new Group(group).description("readers").roles(new Role("data_reader", env.bucket.name())));
    env.later(() -> users.dropGroup(group));
    Environment.same(users.getGroup(group).description(), "readers");
    Environment.holds(users.getGroup(group).roles().contains(new Role("data_reader", env.bucket.name())), "its role");
    String name = env.name("user");
    User user =
        new User(name)
            .password("secret1")
            .displayName("Someone")
            .groups(group)
            .roles(new Role("data_writer", env.bucket.name(), "_default", "_default"), new Role("query_select", "*"));
    users.upsertUser(user);
    env.later(() -> users.dropUser(name));
    UserAndMetadata found = users.getUser(AuthDomain.LOCAL, name);
    Environment.same(found.user().displayName(), "Someone");
    Environment.same(found.user().groups(), Set.of(group));
    Environment.same(found.innateRoles(), user.roles());
    Environment.same(found.effectiveRoles().size(), 3);
    Environment.holds(found.passwordChanged().isPresent(), "a time of the password");
    Environment.holds(users.getAllUsers().stream().anyMatch(one -> one.user().username().equals(name)), "listed");
    Environment.holds(users.getRoles().stream().anyMatch(role -> role.role().name().equals("admin")), "roles");
    users.dropUser(name);
    Environment.refused(() -> users.dropUser(name), UserNotFoundException.class);
    Environment.refused(() -> users.getUser(AuthDomain.LOCAL, name), UserNotFoundException.class);
    users.dropGroup(group);
    Environment.refused(() -> users.dropGroup(group), GroupNotFoundException.class);
    Environment.refused(() -> users.getGroup(group), GroupNotFoundException.class);
  }

  static void usersDoWhatTheirRolesAllow(Environment env) throws Exception {
    var users = env.cluster.users();
    String name = env.name("user");
    users.upsertUser(
        new User(name).password("secret1").roles(new Role("data_reader", env.bucket.name())), upsertUserOptions());
    env.later(() -> users.dropUser(name));
    String key = env.document(1).key();
    try (Cluster theirs = env.logIn.apply(name, "secret1")) {
      var collection = theirs.bucket(env.bucket.name()).defaultCollection();
      theirs.bucket(env.bucket.name()).waitUntilReady(PATIENCE);
      Environment.same(collection.get(key).contentAs(Integer.class), 1);
      Environment.refused(() -> collection.upsert(key, 2), CouchbaseException.class);
      Environment.refused(() -> theirs.buckets().dropBucket(env.bucket.name()), CouchbaseException.class);
      theirs.users().changePassword("secret2");
    }
    try (Cluster stale = env.logIn.apply(name, "secret1")) {
      Environment.refused(
          () -> stale.bucket(env.bucket.name()).waitUntilReady(Duration.ofSeconds(2)),
          UnambiguousTimeoutException.class);
    }
    try (Cluster changed = env.logIn.apply(name, "secret2")) {
      changed.bucket(env.bucket.name()).waitUntilReady(PATIENCE);
      Environment.same(
          changed.bucket(env.bucket.name()).defaultCollection().get(key).contentAs(Integer.class), 1);
    }
  }

  static void everyServiceAnswersAPing(Environment env) {
    PingResult found = env.bucket.ping();
    for (ServiceType service :
        Set.of(ServiceType.KV, ServiceType.QUERY, ServiceType.VIEWS, ServiceType.SEARCH)) {
      Environment.holds(found.endpoints().containsKey(service), "the service " + service);
      for (EndpointPingReport report : found.endpoints().get(service)) {
        Environment.same(report.state(), PingState.OK);
      }
    }
    Environment.holds(
        JsonObject.fromJson(env.cluster.diagnostics().exportToJson()).getObject("services").containsKey("kv"),
        "a connection for keys");
  }

  static void plainRequestsReachTheServices(Environment env) {
    HttpResponse pools = env.cluster.httpClient().get(HttpTarget.manager(), HttpPath.of("/pools/default"));
    Environment.holds(pools.success(), "the answer of management");
    String text = new String(pools.content(), StandardCharsets.UTF_8);
    Environment.holds(JsonObject.fromJson(text).containsKey("nodes"), "the nodes");
    Environment.same(
        env.cluster.httpClient().get(HttpTarget.query(), HttpPath.of("/admin/ping")).statusCode(), 200);
  }
}
