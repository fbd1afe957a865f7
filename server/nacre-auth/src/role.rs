//! Roles: the rights of a user, and the part of the data that they cover.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Privilege {
    /// See the state and settings of the cluster.
    ReadCluster,
    /// Change the cluster: nodes, settings, plugins.
    AdministerCluster,
    /// Create, change and drop local users, and groups.
    AdministerUsers,
    /// Create, change and drop external users.
    AdministerExternalUsers,
    /// Grant and revoke the roles of administrators ([`RoleKind::is_privileged`]), and change users and groups that
    /// have them. Only full administrators have this right.
    AdministerAdministrators,
    /// Change, flush or drop a bucket.
    AdministerBucket,
    /// Create and drop scopes and collections.
    AdministerCollections,
    /// Read documents.
    ReadData,
    /// Write documents. Includes [`Privilege::InsertData`], [`Privilege::UpsertData`] and [`Privilege::DeleteData`].
    WriteData,
    /// Create documents that do not exist.
    InsertData,
    /// Change documents, and store them whether or not they exist. Includes [`Privilege::InsertData`].
    UpsertData,
    /// Delete documents.
    DeleteData,
    /// Read and write attributes whose names start with an underscore.
    SystemAttributes,
    /// Write documents with the metadata of another cluster.
    WriteWithMeta,
    /// Change references to other clusters and replications to them.
    AdministerReplications,
    /// Stream the history of a vBucket.
    StreamData,
    /// Read statistics of a bucket.
    ReadStats,
    /// Query views.
    ReadViews,
    /// Change design documents.
    AdministerViews,
    /// Read documents by SQL++.
    Query,
    /// Create documents by SQL++.
    QueryInsert,
    /// Change documents by SQL++.
    QueryUpdate,
    /// Delete documents by SQL++.
    QueryDelete,
    /// Create and drop indexes.
    AdministerIndexes,
    /// Query a search index.
    Search,
    /// Create and drop search indexes.
    AdministerSearch,
    /// Query collections of analytics.
    Analyze,
    /// Create and drop collections of analytics, and see and stop the requests of other users.
    AdministerAnalytics,
    /// See and stop the SQL++ requests of other users, and see and drop their prepared statements.
    ManageRequests,
    /// Let SQL++ reach other hosts.
    QueryExternal,
    /// Create and drop SQL++ functions of a scope.
    ManageQueryFunctions,
    /// Call SQL++ functions of a scope.
    ExecuteQueryFunctions,
    /// Create and drop global SQL++ functions.
    ManageGlobalQueryFunctions,
    /// Call global SQL++ functions.
    ExecuteGlobalQueryFunctions,
    /// Create and drop SQL++ functions in JavaScript of a scope, and their libraries.
    ManageExternalFunctions,
    /// Call SQL++ functions in JavaScript of a scope.
    ExecuteExternalFunctions,
    /// Create and drop global SQL++ functions in JavaScript, and their libraries.
    ManageGlobalExternalFunctions,
    /// Call global SQL++ functions in JavaScript.
    ExecuteGlobalExternalFunctions,
    /// Change the settings of eventing.
    AdministerEventing,
    /// Deploy and undeploy eventing functions.
    ManageFunctions,
    /// Make and restore backups.
    Backup,
    /// Upload, deploy and undeploy plugins.
    AdministerPlugins,
    /// Send requests to deployed plugins.
    InvokePlugins,
}

/// The level at which a role covers data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Cluster,
    Bucket,
    Scope,
    Collection,
}

macro_rules! roles {
    ($(#[doc = $doc:literal] $kind:ident $name:literal $title:literal $reach:ident [$($privilege:ident)*];)*) => {
        /// The kind of a role.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RoleKind { $(#[doc = $doc] $kind,)* }

        impl RoleKind {
            /// Every kind.
            pub const ALL: &[RoleKind] = &[$(RoleKind::$kind,)*];

            /// Returns the name in REST requests.
            pub fn name(self) -> &'static str {
                match self { $(RoleKind::$kind => $name,)* }
            }

            /// Returns the name for people.
            pub fn title(self) -> &'static str {
                match self { $(RoleKind::$kind => $title,)* }
            }

            /// Returns a sentence that describes its purpose.
            pub fn description(self) -> &'static str {
                match self { $(RoleKind::$kind => $doc.trim_ascii(),)* }
            }

            /// Returns true if the role is restricted to a part of the data.
            pub fn is_parameterised(self) -> bool {
                self.reach() != Reach::Cluster
            }

            /// Returns the number of names that the role takes: 0, or 1 for a bucket, 2 with a scope, 3 with a
            /// collection.
            pub fn level(self) -> usize {
                self.reach() as usize
            }

            fn reach(self) -> Reach {
                match self { $(RoleKind::$kind => Reach::$reach,)* }
            }

            /// Returns the rights within its reach. [`RoleKind::Admin`] permits everything, regardless of this list.
            fn privileges(self) -> &'static [Privilege] {
                match self { $(RoleKind::$kind => &[$(Privilege::$privilege,)*],)* }
            }
        }
    };
}

roles! {
    /// Has every right.
    Admin "admin" "Full Admin" Cluster [];
    /// Reads everything except documents, changes nothing.
    ReadOnlyAdmin "ro_admin" "Read-Only Admin" Cluster [ReadCluster ReadStats];
    /// Changes everything except users.
    ClusterAdmin "cluster_admin" "Cluster Admin" Cluster [ReadCluster AdministerCluster AdministerBucket AdministerCollections AdministerReplications ReadStats AdministerPlugins InvokePlugins AdministerAnalytics];
    /// Changes users only, but neither grants roles of administrators nor changes users who have them.
    SecurityAdmin "security_admin" "Security Admin" Cluster [ReadCluster AdministerUsers AdministerExternalUsers];
    /// Changes users of domain local only, but neither grants roles of administrators nor changes users who have them.
    SecurityAdminLocal "security_admin_local" "Local User Security Admin" Cluster [ReadCluster AdministerUsers];
    /// Changes users of domain external only, but neither grants roles of administrators nor changes users who have them.
    SecurityAdminExternal "security_admin_external" "External User Security Admin" Cluster [ReadCluster AdministerExternalUsers];
    /// Sees the cluster and moves data between clusters.
    ReplicationAdmin "replication_admin" "XDCR Admin" Cluster [ReadCluster AdministerReplications ReadData StreamData ReadStats];
    /// Administers eventing functions.
    EventingAdmin "eventing_admin" "Eventing Full Admin" Cluster [ReadCluster AdministerEventing ManageFunctions];
    /// Makes backups and restores them.
    BackupAdmin "backup_admin" "Backup Full Admin" Cluster [ReadCluster Backup ReadData WriteData SystemAttributes WriteWithMeta StreamData ReadStats ReadViews AdministerViews];
    /// Reads statistics for a monitoring system.
    ExternalStatsReader "external_stats_reader" "External Stats Reader" Cluster [ReadStats];
    /// Reads the system catalog of SQL++.
    QuerySystemCatalog "query_system_catalog" "Query System Catalog" Cluster [ReadCluster ManageRequests];
    /// Lets SQL++ send requests to other hosts.
    QueryExternalAccess "query_external_access" "Query CURL Access" Cluster [QueryExternal];
    /// Manages functions of SQL++ that belong to no scope.
    QueryManageGlobalFunctions "query_manage_global_functions" "Manage Global Functions" Cluster [ManageGlobalQueryFunctions ExecuteGlobalQueryFunctions];
    /// Calls functions of SQL++ that belong to no scope.
    QueryExecuteGlobalFunctions "query_execute_global_functions" "Execute Global Functions" Cluster [ExecuteGlobalQueryFunctions];
    /// Manages functions of SQL++ in JavaScript that belong to no scope, and their libraries.
    QueryManageGlobalExternalFunctions "query_manage_global_external_functions" "Manage Global External Functions" Cluster [ManageGlobalExternalFunctions ExecuteGlobalExternalFunctions];
    /// Calls functions of SQL++ in JavaScript that belong to no scope.
    QueryExecuteGlobalExternalFunctions "query_execute_global_external_functions" "Execute Global External Functions" Cluster [ExecuteGlobalExternalFunctions];
    /// Administers a bucket, without its documents.
    BucketAdmin "bucket_admin" "Bucket Admin" Bucket [ReadCluster AdministerBucket AdministerCollections ReadStats AdministerViews ReadViews];
    /// Has every right on the documents of a bucket.
    BucketFullAccess "bucket_full_access" "Application Access" Bucket [ReadCluster ReadData WriteData SystemAttributes StreamData ReadStats ReadViews AdministerViews Query QueryInsert QueryUpdate QueryDelete AdministerIndexes InvokePlugins];
    /// Administers the collections of a scope.
    ScopeAdmin "scope_admin" "Manage Scopes" Scope [ReadCluster AdministerCollections];
    /// Reads documents.
    DataReader "data_reader" "Data Reader" Collection [ReadData];
    /// Writes documents.
    DataWriter "data_writer" "Data Writer" Collection [WriteData];
    /// Streams the history over DCP.
    DataDcpReader "data_dcp_reader" "Data DCP Reader" Collection [ReadData SystemAttributes StreamData ReadStats];
    /// Syncs a device: reads, streams and writes versions.
    DataSync "data_sync" "Data Sync" Collection [ReadData WriteData SystemAttributes WriteWithMeta StreamData];
    /// Reads and writes all data of a bucket for a backup.
    DataBackup "data_backup" "Data Backup & Restore" Bucket [ReadData WriteData SystemAttributes WriteWithMeta StreamData ReadStats ReadViews AdministerViews];
    /// Reads statistics.
    DataMonitoring "data_monitoring" "Data Monitor" Collection [ReadStats];
    /// Receives documents of another cluster.
    ReplicationTarget "replication_target" "XDCR Inbound" Bucket [ReadData SystemAttributes WriteWithMeta ReadStats];
    /// Has the rights that a sync gateway needs.
    MobileSyncGateway "mobile_sync_gateway" "Sync Gateway" Bucket [ReadCluster ReadData WriteData SystemAttributes StreamData ReadStats ReadViews AdministerViews];
    /// Queries views.
    ViewsReader "views_reader" "Views Reader" Bucket [ReadData ReadViews];
    /// Uploads and deploys plugins.
    PluginAdmin "plugin_admin" "Plugin Admin" Cluster [ReadCluster AdministerPlugins InvokePlugins];
    /// Sends requests to deployed plugins.
    PluginInvoke "plugin_invoke" "Plugin Invocation" Bucket [InvokePlugins];
    /// Changes and queries views.
    ViewsAdmin "views_admin" "Views Admin" Bucket [ReadCluster ReadData ReadStats ReadViews AdministerViews];
    /// Reads documents with SQL++.
    QuerySelect "query_select" "Query Select" Collection [ReadData Query];
    /// Updates documents with SQL++.
    QueryUpdate "query_update" "Query Update" Collection [UpsertData QueryUpdate];
    /// Inserts documents with SQL++.
    QueryInsert "query_insert" "Query Insert" Collection [InsertData QueryInsert];
    /// Deletes documents with SQL++.
    QueryDelete "query_delete" "Query Delete" Collection [DeleteData QueryDelete];
    /// Lets SQL++ read collections without an index. Grants no right, because none is needed.
    QueryUseSequentialScans "query_use_sequential_scans" "Query Use Sequential Scans" Collection [];
    /// Uses sequences of SQL++. Grants no right by itself.
    QueryUseSequences "query_use_sequences" "Query Use Sequences" Scope [];
    /// Manages sequences of SQL++. Grants no right by itself.
    QueryManageSequences "query_manage_sequences" "Query Manage Sequences" Scope [];
    /// Queries all collections of analytics.
    AnalyticsReader "analytics_reader" "Analytics Reader" Cluster [Analyze];
    /// Administers analytics, and queries all of its collections.
    AnalyticsAdmin "analytics_admin" "Analytics Admin" Cluster [Analyze AdministerAnalytics];
    /// Administers and queries the collections of analytics that follow a bucket.
    AnalyticsManager "analytics_manager" "Analytics Manager" Bucket [Analyze AdministerAnalytics];
    /// Queries the collections of analytics that follow a collection.
    AnalyticsSelect "analytics_select" "Analytics Select" Collection [Analyze];
    /// Configures a sync gateway, which checks for the role itself.
    SyncGatewayConfigurator "sync_gateway_configurator" "Sync Gateway Architect" Bucket [];
    /// Reads and writes through a sync gateway, which checks for the role itself.
    SyncGatewayApp "sync_gateway_app" "Sync Gateway Application" Bucket [];
    /// Manages replications of a sync gateway, which checks for the role itself.
    SyncGatewayReplicator "sync_gateway_replicator" "Sync Gateway Replicator" Bucket [];
    /// Runs a sync gateway, which checks for the role itself.
    SyncGatewayDevOps "sync_gateway_dev_ops" "Sync Gateway Dev Ops" Cluster [];
    /// Manages indexes.
    QueryManageIndex "query_manage_index" "Query Manage Index" Collection [AdministerIndexes];
    /// Manages functions of SQL++ of a scope.
    QueryManageFunctions "query_manage_functions" "Manage Scope Functions" Scope [ManageQueryFunctions ExecuteQueryFunctions];
    /// Calls functions of SQL++ of a scope.
    QueryExecuteFunctions "query_execute_functions" "Execute Scope Functions" Scope [ExecuteQueryFunctions];
    /// Manages functions of SQL++ in JavaScript of a scope, and their libraries.
    QueryManageExternalFunctions "query_manage_external_functions" "Manage Scope External Functions" Scope [ManageExternalFunctions ExecuteExternalFunctions];
    /// Calls functions of SQL++ in JavaScript of a scope.
    QueryExecuteExternalFunctions "query_execute_external_functions" "Execute Scope External Functions" Scope [ExecuteExternalFunctions];
    /// Manages eventing functions of a scope.
    EventingManageFunctions "eventing_manage_functions" "Manage Eventing Scope Functions" Scope [ManageFunctions];
    /// Queries search indexes.
    FtsSearcher "fts_searcher" "Search Reader" Collection [Search];
    /// Manages search indexes of a bucket.
    FtsAdmin "fts_admin" "Search Admin" Bucket [Search AdministerSearch];
}

impl RoleKind {
    /// Returns true for the roles of administrators. Only a full administrator may grant them, or change users and
    /// groups that have them. Otherwise other user administrators could make themselves full administrators.
    ///
    /// Source: Couchbase protects every role that permits anything on the security of the cluster, including reading.
    #[must_use]
    pub fn is_privileged(self) -> bool {
        matches!(
            self,
            RoleKind::Admin
                | RoleKind::ReadOnlyAdmin
                | RoleKind::SecurityAdmin
                | RoleKind::SecurityAdminLocal
                | RoleKind::SecurityAdminExternal
        )
    }
}

impl Privilege {
    /// Returns the privileges that include this one.
    fn included_in(self) -> &'static [Privilege] {
        match self {
            Privilege::InsertData => &[Privilege::UpsertData, Privilege::WriteData],
            Privilege::UpsertData | Privilege::DeleteData => &[Privilege::WriteData],
            _ => &[],
        }
    }

    /// Returns the privilege to create and drop SQL++ functions: external (JavaScript) or not, of a scope or global.
    #[must_use]
    pub fn of_managing(is_external: bool, in_scope: bool) -> Privilege {
        match (is_external, in_scope) {
            (true, true) => Privilege::ManageExternalFunctions,
            (true, false) => Privilege::ManageGlobalExternalFunctions,
            (false, true) => Privilege::ManageQueryFunctions,
            (false, false) => Privilege::ManageGlobalQueryFunctions,
        }
    }

    /// Returns the privilege to call such functions.
    #[must_use]
    pub fn of_executing(is_external: bool, in_scope: bool) -> Privilege {
        match (is_external, in_scope) {
            (true, true) => Privilege::ExecuteExternalFunctions,
            (true, false) => Privilege::ExecuteGlobalExternalFunctions,
            (false, true) => Privilege::ExecuteQueryFunctions,
            (false, false) => Privilege::ExecuteGlobalQueryFunctions,
        }
    }
}

/// A part of the data, as narrow as its last name. `None` covers everything at that level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyspace<'a> {
    /// The bucket; `None` if a request concerns no bucket or all buckets.
    pub bucket: Option<&'a str>,
    /// The scope.
    pub scope: Option<&'a str>,
    /// The collection.
    pub collection: Option<&'a str>,
}

impl<'a> Keyspace<'a> {
    /// Returns the keyspace of a scope, given as bucket and scope; without one, of everything.
    #[must_use]
    pub fn of_scope(scope: Option<&'a (String, String)>) -> Keyspace<'a> {
        Keyspace {
            bucket: scope.map(|(bucket, _)| bucket.as_str()),
            scope: scope.map(|(_, scope)| scope.as_str()),
            collection: None,
        }
    }
}

/// A kind of role and the part of the data that it covers.
///
/// Text form: `admin`, `bucket_admin[travel]`, `data_reader[travel:inventory:airline]`, `views_admin[*]`. The
/// serialised form, which nodes store, is the same text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Role {
    /// The kind.
    pub kind: RoleKind,
    /// Bucket, scope and collection, from the left. Omitted names mean all, and the list never ends with `*` unless it
    /// is the bucket.
    names: Vec<String>,
}

/// The reason why a text is not a role. The client must fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoleError {
    /// No role has this name.
    #[error("unknown role {0:?}")]
    Unknown(String),
    /// The parameters in brackets are invalid for the role.
    #[error("role {name:?} takes {expected} in brackets")]
    Parameters {
        /// The role's name.
        name: &'static str,
        /// Description of valid values.
        expected: &'static str,
    },
}

impl Role {
    /// Returns the administrator's role.
    pub fn admin() -> Role {
        Role { kind: RoleKind::Admin, names: Vec::new() }
    }

    /// Returns the bucket, scope and collection that the role names; `*` and missing names are `None`.
    pub fn keyspace(&self) -> Keyspace<'_> {
        let name =
            |level: usize| self.names.get(level).map(String::as_str).filter(|name| *name != "*");
        Keyspace { bucket: name(0), scope: name(1), collection: name(2) }
    }

    /// Returns true if the role permits `privilege` on all of `keyspace`.
    pub fn permits(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        if self.kind == RoleKind::Admin {
            return true;
        }
        let own = self.keyspace();
        let covers = |own: Option<&str>, asked: Option<&str>| own.is_none() || own == asked;
        let has = |privilege: &Privilege| self.kind.privileges().contains(privilege);
        (has(&privilege) || privilege.included_in().iter().any(has))
            // A user with any role on a bucket may see the cluster of the bucket.
            && (privilege == Privilege::ReadCluster
                || covers(own.bucket, keyspace.bucket)
                    && covers(own.scope, keyspace.scope)
                    && covers(own.collection, keyspace.collection))
    }
}

impl Keyspace<'_> {
    /// Returns true if the keyspace is `other` or a part of it.
    pub fn is_within(self, other: Keyspace<'_>) -> bool {
        let agrees = |own: Option<&str>, other: Option<&str>| other.is_none() || own == other;
        agrees(self.bucket, other.bucket)
            && agrees(self.scope, other.scope)
            && agrees(self.collection, other.collection)
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        let (name, inside) = match text.split_once('[') {
            Some((name, rest)) => (name, rest.strip_suffix(']')),
            None => (text, Some("")),
        };
        let kind = RoleKind::ALL.iter().copied().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| RoleError::Unknown(text.to_owned()))?;
        let (count_max, expected) = match kind.reach() {
            Reach::Cluster => (0, "nothing"),
            Reach::Bucket => (1, "a bucket or *"),
            Reach::Scope => (2, "bucket:scope or *"),
            Reach::Collection => (3, "bucket:scope:collection or *"),
        };
        let wrong = || RoleError::Parameters { name: kind.name(), expected };
        let inside = inside.ok_or_else(wrong)?;
        let mut names: Vec<String> = inside.split(':').map(str::to_owned).collect();
        if inside.is_empty() {
            names.clear();
        }
        if names.len() > count_max
            || names.is_empty() != (count_max == 0)
            || names.contains(&String::new())
        {
            return Err(wrong());
        }
        // A scope of all buckets is not allowed. A trailing `*` is equivalent to an omitted name.
        if names.first().is_some_and(|bucket| bucket == "*") && names.iter().any(|name| name != "*")
        {
            return Err(wrong());
        }
        while names.len() > 1 && names.last().is_some_and(|name| name == "*") {
            names.pop();
        }
        Ok(Role { kind, names })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if !self.names.is_empty() {
            write!(f, "[{}]", self.names.join(":"))?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Role {
    type Error = RoleError;

    fn try_from(text: String) -> Result<Role, RoleError> {
        text.parse()
    }
}

impl From<Role> for String {
    fn from(role: Role) -> String {
        role.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> Role {
        text.parse().unwrap()
    }

    fn place(text: &str) -> Keyspace<'_> {
        let mut names = text.split('.').filter(|name| !name.is_empty());
        Keyspace { bucket: names.next(), scope: names.next(), collection: names.next() }
    }

    #[test]
    fn roles_are_described_in_a_sentence() {
        assert_eq!(RoleKind::DataReader.description(), "Reads documents.");
        assert!(RoleKind::ALL.iter().all(|kind| kind.description().ends_with('.')));
    }

    #[test]
    fn roles_are_printed_as_they_are_read() {
        for text in [
            "admin",
            "ro_admin",
            "bucket_full_access[*]",
            "views_admin[travel]",
            "scope_admin[travel:inventory]",
            "data_reader[travel]",
            "data_reader[travel:inventory:airline]",
            "query_use_sequential_scans[travel:inventory:airline]",
            "query_manage_sequences[travel:inventory]",
            "security_admin_local",
            "analytics_select[travel]",
            "analytics_admin",
            "sync_gateway_app[travel]",
            "sync_gateway_dev_ops",
        ] {
            assert_eq!(role(text).to_string(), text);
        }
        assert_eq!(role("data_reader[travel:*:*]").to_string(), "data_reader[travel]");
        assert_eq!(role("data_reader[*:*]").to_string(), "data_reader[*]");
    }

    #[test]
    fn invalid_roles_are_refused_with_a_reason() {
        let error = |text: &str| text.parse::<Role>().unwrap_err().to_string();
        insta::assert_snapshot!(
            ["king", "", "[]", "admin[x]", "data_reader", "data_reader[]", "views_admin[a:b]", "data_reader[a", "data_reader[a::c]", "data_reader[*:s]"]
                .map(error).join("\n"),
            @r#"
        unknown role "king"
        unknown role ""
        unknown role "[]"
        role "admin" takes nothing in brackets
        role "data_reader" takes bucket:scope:collection or * in brackets
        role "data_reader" takes bucket:scope:collection or * in brackets
        role "views_admin" takes a bucket or * in brackets
        role "data_reader" takes bucket:scope:collection or * in brackets
        role "data_reader" takes bucket:scope:collection or * in brackets
        role "data_reader" takes bucket:scope:collection or * in brackets
        "#);
    }

    #[test]
    fn a_role_covers_the_keyspaces_within_its_names() {
        let table = [
            ("data_reader[b]", "b", true),
            ("data_reader[b]", "b.s.c", true),
            ("data_reader[b]", "other.s.c", false),
            ("data_reader[b:s]", "b.s.c", true),
            ("data_reader[b:s]", "b.other.c", false),
            ("data_reader[b:s]", "b", false),
            ("data_reader[b:s:c]", "b.s.c", true),
            ("data_reader[b:s:c]", "b.s.other", false),
            ("data_reader[*]", "b.s.c", true),
            ("data_writer[*]", "b.s.c", false),
            ("bucket_admin[b]", "b", false),
            ("bucket_full_access[b]", "b.s.c", true),
            ("admin", "b.s.c", true),
            ("ro_admin", "b.s.c", false),
        ];
        for (text, at, expected) in table {
            assert_eq!(
                role(text).permits(Privilege::ReadData, place(at)),
                expected,
                "{text} at {at}"
            );
        }
    }

    #[test]
    fn a_role_of_sqlpp_permits_one_kind_of_change() {
        const PRIVILEGES: [Privilege; 9] = [
            Privilege::ReadData,
            Privilege::InsertData,
            Privilege::UpsertData,
            Privilege::DeleteData,
            Privilege::WriteData,
            Privilege::Query,
            Privilege::QueryInsert,
            Privilege::QueryUpdate,
            Privilege::QueryDelete,
        ];
        let permitted = |name: &str| {
            let role = role(&format!("{name}[b:s:c]"));
            let permitted = PRIVILEGES.into_iter().filter(|one| role.permits(*one, place("b.s.c")));
            permitted.map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" ")
        };
        for (name, expected) in [
            ("query_select", "ReadData Query"),
            ("query_insert", "InsertData QueryInsert"),
            ("query_update", "InsertData UpsertData QueryUpdate"),
            ("query_delete", "DeleteData QueryDelete"),
            ("data_reader", "ReadData"),
            ("data_writer", "InsertData UpsertData DeleteData WriteData"),
        ] {
            assert_eq!(permitted(name), expected, "{name}");
        }
        let whole = role("bucket_full_access[b]");
        assert!(PRIVILEGES.into_iter().all(|one| whole.permits(one, place("b.s.c"))));
    }

    #[test]
    fn a_bucket_role_sees_the_cluster_but_no_other_bucket() {
        let role = role("bucket_admin[b]");
        assert!(role.permits(Privilege::ReadCluster, place("")));
        assert!(role.permits(Privilege::AdministerBucket, place("b")));
        assert!(!role.permits(Privilege::AdministerBucket, place("c")));
        assert!(!role.permits(Privilege::AdministerCluster, place("")));
    }
}
