//! Tests every opcode for every role on every part of the data against a table of rights.

use crate::world::{World, nobody, request};
use nacre_auth::{RoleKind, User};
use nacre_bucket::kv::{Peer, Session};
use nacre_cluster::{BucketChange, Change};
use nacre_node::Node;
use nacre_protocol::Opcode;
use nacre_query_service::Session as QuerySession;
use nacre_sandbox::{Action, Database, DatabaseKeyspace, DatabaseRights, Failure, Mutation};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The access of an opcode, repeated here so that a change must be intentional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// An opcode that needs no login.
    Greet,
    /// An opcode that every user may use.
    Ask,
    /// An opcode about the bucket that every user of the bucket may use.
    Open,
    Count,
    Read,
    /// Creates a document that does not exist.
    Insert,
    /// Changes a document, or stores one whether or not it exists.
    Upsert,
    Delete,
    /// Writes, and returns the previous value.
    Exchange,
    /// Applies versions of another cluster.
    Replicate,
    /// Reads the history.
    Stream,
}

fn does(opcode: Opcode) -> Does {
    use Opcode::*;
    match opcode {
        Hello | SaslListMechs | SaslAuth | SaslStep | GetErrorMap | Version | Noop | Quit
        | QuitQ => Does::Greet,
        SelectBucket | GetClusterConfig => Does::Ask,
        GetCollectionsManifest | GetCollectionId | GetScopeId => Does::Open,
        ObserveSeqno | SeqnoPersistence | GetAllVbSeqnos | GetFailoverLog => Does::Open,
        Stat => Does::Count,
        RangeScanContinue | RangeScanCancel => Does::Open,
        Get | GetQ | GetK | GetKQ | GetReplica | GetMeta | GetMetaQ => Does::Read,
        GetRandomKey | GetKeys | RangeScanCreate | Observe => Does::Read,
        SetWithMeta | SetWithMetaQ | AddWithMeta | AddWithMetaQ | DeleteWithMeta
        | DeleteWithMetaQ => Does::Replicate,
        SubdocGet | SubdocExists | SubdocGetCount | SubdocMultiLookup => Does::Read,
        Increment | IncrementQ | Decrement | DecrementQ | SubdocCounter => Does::Exchange,
        GetAndTouch | GetAndTouchQ | GetLocked => Does::Exchange,
        DcpOpen | DcpAddStream | DcpCloseStream | DcpStreamRequest | DcpGetFailoverLog
        | DcpNoop | DcpBufferAck | DcpSeqnoAcknowledged | DcpControl => Does::Stream,
        Add | AddQ => Does::Insert,
        Delete | DeleteQ => Does::Delete,
        _ => Does::Upsert,
    }
}

/// Roles that may read documents in their keyspaces; all others may not. The next constants list the roles for the
/// other kinds of access.
const READERS: &str = "admin replication_admin backup_admin bucket_full_access data_reader data_dcp_reader data_backup replication_target mobile_sync_gateway views_reader views_admin query_select data_sync";
const INSERTERS: &str = "admin backup_admin bucket_full_access data_writer data_backup mobile_sync_gateway query_update query_insert data_sync";
const UPSERTERS: &str = "admin backup_admin bucket_full_access data_writer data_backup mobile_sync_gateway query_update data_sync";
const DELETERS: &str = "admin backup_admin bucket_full_access data_writer data_backup mobile_sync_gateway query_delete data_sync";
const REPLICATORS: &str = "admin backup_admin data_backup replication_target data_sync";
const STREAMERS: &str = "admin replication_admin backup_admin bucket_full_access data_dcp_reader data_backup mobile_sync_gateway data_sync";
const COUNTERS: &str = "admin ro_admin cluster_admin replication_admin backup_admin external_stats_reader bucket_admin bucket_full_access data_dcp_reader data_backup data_monitoring replication_target mobile_sync_gateway views_admin";

/// Returns a well-formed request of this opcode for the document `k` of the collection `s.c`, which has the ID
/// `cid`.
fn well_formed(opcode: Opcode, cid: u8) -> Vec<u8> {
    use Opcode::*;
    let key = [cid, b'k'];
    let (extras, key, value): (&[u8], &[u8], &[u8]) = match opcode.loud().0 {
        Set | Add | Replace => (&[0; 8], &key, b"1"),
        Append | Prepend => (b"", &key, b"1"),
        Increment | Decrement => (&[0; 20], &key, b""),
        Touch | GetAndTouch | GetLocked => (&[0; 4], &key, b""),
        SubdocGet | SubdocExists | SubdocGetCount | SubdocDelete => (&[0, 1, 0], &key, b"a"),
        SubdocDictAdd | SubdocDictUpsert | SubdocReplace | SubdocArrayPushLast
        | SubdocArrayPushFirst | SubdocArrayInsert | SubdocArrayAddUnique | SubdocCounter => {
            (&[0, 1, 0], &key, b"a1")
        }
        SubdocMultiLookup => (b"", &key, b"\xc5\0\0\x01a"),
        SubdocMultiMutation => (b"", &key, b"\xc8\0\0\x01\0\0\0\x01a1"),
        Hello => (b"", b"", &[0, 0x12]),
        SelectBucket => (b"", b"b", b""),
        GetErrorMap => (b"", b"", &[0, 2]),
        GetCollectionId => (b"", b"", b"s.c"),
        GetScopeId => (b"", b"", b"s"),
        ObserveSeqno => (b"", b"", &[0; 8]),
        SeqnoPersistence => (&[0; 8], b"", b""),
        Observe => return request(0x92, b"", b"", &[0, 0, 0, 2, cid, b'k']),
        GetRandomKey => return request(0xb6, &[0, 0, 0, cid], b"", b""),
        SetWithMeta | AddWithMeta => (&[1; 24], &key, b"1"),
        DeleteWithMeta => (&[1; 24], &key, b""),
        GetKeys => (&[0, 0, 0, 9], &key, b""),
        RangeScanCreate => {
            let options =
                format!(r#"{{"collection":"{cid:x}","range":{{"start":"YQ==","end":"eg=="}}}}"#);
            return request(0xda, b"", b"", options.as_bytes());
        }
        RangeScanContinue => (&[0; 28], b"", b""),
        RangeScanCancel => (&[0; 16], b"", b""),
        DcpOpen => (&[0, 0, 0, 0, 0, 0, 0, 1], b"consumer", b""),
        DcpStreamRequest => (&[0; 48], b"", b""),
        DcpBufferAck => (&[0; 4], b"", b""),
        DcpSeqnoAcknowledged => (&[0; 8], b"", b""),
        opcode if opcode.addresses_document() => (b"", &key, b""),
        _ => (b"", b"", b""),
    };
    request(opcode as u8, extras, key, value)
}

/// Makes `someone` a user with this role.
fn appoint(node: &Arc<Node>, role: &str) {
    // Deriving the stored form of a password takes milliseconds, and the table has many roles.
    static TEMPLATE: LazyLock<User> =
        LazyLock::new(|| User::new("someone", "password", Vec::new(), [0; 32]));
    let mut user = TEMPLATE.clone();
    user.roles = vec![role.parse().unwrap()];
    node.put_user(user).unwrap();
}

/// Opens a connection of `someone`, and selects the bucket. Returns true if that was allowed.
fn session(node: &Arc<Node>) -> (Session, bool) {
    let peer = Peer { confidential: true, user: Some("someone".into()), ..Peer::default() };
    let mut session = Session::new(Arc::clone(node) as _, peer, nobody());
    let mut out = Vec::new();
    let hello = request(0x1f, b"", b"", &[0, 0x12, 0, 0x07]);
    session.receive(&hello, &mut out, node.now());
    out.clear();
    session.receive(&request(0x89, b"", b"b", b""), &mut out, node.now());
    (session, out[6..8] == [0, 0])
}

fn is_refused(session: &mut Session, bytes: &[u8], node: &Node) -> bool {
    let mut out = Vec::new();
    session.receive(bytes, &mut out, node.now());
    // No access, or no selected bucket because there was no access to it.
    matches!(out.get(6..8), Some([0, 0x24] | [0, 0x08]))
}

#[test]
fn every_opcode_is_allowed_only_to_the_roles_of_the_table() {
    let world = World::new();
    let node = world.node();
    for (scope, collection) in [("s", "c"), ("s", "d"), ("t", "c")] {
        let _ = node.change(&Change::Buckets(BucketChange::CreateScope {
            bucket: "b".into(),
            scope: scope.into(),
        }));
        node.change(&Change::Buckets(BucketChange::CreateCollection {
            bucket: "b".into(),
            scope: scope.into(),
            collection: collection.into(),
            max_ttl: 0,
            history: None,
        }))
        .unwrap();
    }
    let cid = node.bucket("b").unwrap().manifest().collection("s", "c").unwrap().id as u8;
    // Keyspaces of a role, and whether each covers the bucket and the collection `s.c`.
    let places = [
        ("*", true, true),
        ("b", true, true),
        ("other", false, false),
        ("b:s", false, true),
        ("b:t", false, false),
        ("b:s:c", false, true),
        ("b:s:d", false, false),
        ("b:t:c", false, false),
    ];
    let mut cells = 0;
    for kind in RoleKind::ALL {
        let is_in = |list: &str| list.split(' ').any(|name| name == kind.name());
        let texts: Vec<(String, bool, bool, bool)> = if kind.is_parameterised() {
            let text = |place: &str| format!("{}[{place}]", kind.name());
            places
                .iter()
                .map(|(at, bucket, here)| (text(at), *at != "other", *bucket, *here))
                .collect()
        } else {
            vec![(kind.name().to_owned(), true, true, true)]
        };
        for (role, opens, covers_bucket, covers_here) in texts {
            // Some roles cannot be restricted to a scope or a collection.
            if role.parse::<nacre_auth::Role>().is_err() {
                continue;
            }
            appoint(&node, &role);
            for &opcode in Opcode::ALL {
                if opcode == Opcode::SubdocReplaceBodyWithXattr {
                    continue;
                }
                let (mut session, opened) = session(&node);
                assert_eq!(opened, opens, "{role} opens the bucket");
                let has = |list: &str| is_in(list) && covers_here;
                let allowed = match does(opcode) {
                    Does::Greet | Does::Ask if opcode != Opcode::SelectBucket => true,
                    Does::Greet | Does::Ask | Does::Open => opens,
                    Does::Count => is_in(COUNTERS) && covers_bucket,
                    Does::Read => has(READERS),
                    Does::Insert => has(INSERTERS),
                    Does::Upsert => has(UPSERTERS),
                    Does::Delete => has(DELETERS),
                    Does::Exchange => has(READERS) && has(UPSERTERS),
                    Does::Replicate => has(REPLICATORS),
                    // Each stream checks the part of the bucket that it requests.
                    Does::Stream => is_in(STREAMERS) && opens,
                };
                let refused = is_refused(&mut session, &well_formed(opcode, cid), &node);
                assert_eq!(!refused, allowed, "{opcode:?} for {role}");
                cells += 1;
            }
        }
    }
    assert!(cells > 2500, "{cells} cells");
}

#[test]
fn nothing_but_a_greeting_is_allowed_before_a_login() {
    let world = World::new();
    let node = world.node();
    for &opcode in Opcode::ALL {
        if opcode == Opcode::SubdocReplaceBodyWithXattr {
            continue;
        }
        let peer = Peer { confidential: true, ..Peer::default() };
        let mut session = Session::new(Arc::clone(&node) as _, peer, nobody());
        let refused = is_refused(&mut session, &well_formed(opcode, 0), &node);
        assert_eq!(!refused, does(opcode) == Does::Greet, "{opcode:?}");
    }
}

/// A sub-document request can remove the whole document, which needs more than the right to change it.
#[test]
fn the_removal_of_a_document_by_its_parts_needs_the_right_to_delete() {
    let world = World::new();
    let node = world.node();
    let is_refused_to = |roles: &[&str]| {
        appoint(&node, roles[0]);
        let mut user = node.users().get("someone").unwrap().clone();
        user.roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        node.put_user(user).unwrap();
        let (mut session, _) = session(&node);
        let remove = [Opcode::Delete as u8, 0, 0, 0, 0, 0, 0, 0];
        is_refused(&mut session, &request(0xd1, b"", &[0, b'k'], &remove), &node)
    };
    assert!(is_refused_to(&["query_update[b]"]));
    assert!(is_refused_to(&["query_delete[b]"]));
    assert!(!is_refused_to(&["query_update[b]", "query_delete[b]"]));
    assert!(!is_refused_to(&["data_writer[b]"]));
}

/// The node checks statements itself, whatever rights the query component has asked for.
#[test]
fn a_statement_without_the_right_to_select_reads_only_what_it_changes() {
    const LEFT: Duration = Duration::from_secs(10);
    let world = World::new();
    let node = world.node();
    let collection = |bucket: &str| DatabaseKeyspace {
        bucket: bucket.into(),
        scope: "_default".into(),
        collection: "_default".into(),
    };
    let here = collection("b");
    let is_refused = |failure: Option<Failure>| {
        let code = failure.map(|failure| failure.code);
        assert!(matches!(code, None | Some(13014)), "{code:?}");
        code.is_some()
    };
    let kinds = ["select", "insert", "update", "delete"];
    let rights = |kind: &str| DatabaseRights {
        select: kind == "select",
        insert: kind == "insert",
        update: kind == "update",
        delete: kind == "delete",
    };
    for own in kinds {
        appoint(&node, &format!("query_{own}[b]"));
        let session = || QuerySession::new(&node, "someone", Arc::new(|| false));
        let reads = |session: &QuerySession| {
            !is_refused(session.fetch(&here, &["k".into()], LEFT).err())
                && !is_refused(session.count(&here).err())
        };
        assert_eq!(reads(&session()), own == "select", "query_{own} reads");
        for kind in kinds {
            let session = session();
            assert_eq!(is_refused(session.authorize(&here, rights(kind)).err()), kind != own);
            assert_eq!(reads(&session), kind == own || own == "select", "{kind} for query_{own}");
        }
        for (action, allowed) in [
            (Action::Insert, own == "insert"),
            (Action::Upsert, false),
            (Action::Replace, own == "update"),
            (Action::Remove, own == "delete"),
        ] {
            let body = b"1".to_vec();
            let mutation = Mutation { action, id: "k".into(), body, cas: 0, expiry: None };
            let written = session().mutate(&here, vec![mutation], LEFT);
            assert_eq!(!is_refused(written.err()), allowed, "{action:?} for query_{own}");
        }
    }
    appoint(&node, "query_update[b]");
    let session = QuerySession::new(&node, "someone", Arc::new(|| false));
    session.authorize(&here, rights("update")).unwrap();
    let elsewhere = session.fetch(&collection("other"), &["k".into()], LEFT).unwrap_err();
    assert_eq!(elsewhere.code, 13014, "only what it changes");
    let none = session.authorize(&here, rights("select")).unwrap_err();
    assert_eq!(
        none.message,
        "User does not have credentials to run SELECT queries on b._default._default. Add role query_select on b._default._default to allow the statement to run."
    );
}

#[test]
fn attributes_of_the_system_need_a_right_of_their_own() {
    let world = World::new();
    let node = world.node();
    let write = |role: &str, path: &str| {
        appoint(&node, role);
        let (mut session, _) = session(&node);
        let mut value = vec![0xc8, 0x04];
        value.extend((path.len() as u16).to_be_bytes());
        value.extend([0, 0, 0, 1]);
        value.extend(path.as_bytes());
        value.push(b'1');
        is_refused(&mut session, &request(0xd1, &[0x01], &[0, b'k'], &value), &node)
    };
    assert!(!write("data_writer[b]", "own"));
    assert!(write("data_writer[b]", "_sync.rev"));
    assert!(!write("mobile_sync_gateway[b]", "_sync.rev"));
    // Without the right, not even the names of the attributes are shown.
    assert!(!write("mobile_sync_gateway[b]", "_rev"));
    let names = |role: &str| {
        appoint(&node, role);
        let (mut session, _) = session(&node);
        let mut out = Vec::new();
        let get = request(0xc5, &[0, 5, 0x04], &[0, b'k'], b"$XTOC");
        session.receive(&get, &mut out, node.now());
        assert_eq!(out[6..8], [0, 0], "{role}");
        String::from_utf8(out[24..].to_vec()).unwrap()
    };
    assert_eq!(names("data_reader[b]"), r#"["own"]"#);
    let all = names("mobile_sync_gateway[b]");
    assert!(all.contains("_rev") && all.contains("own"), "{all}");
}

#[test]
fn a_revoked_right_is_gone_with_the_next_request() {
    let world = World::new();
    let node = world.node();
    appoint(&node, "data_reader[b]");
    let (mut session, _) = session(&node);
    let get = request(0x00, b"", &[0, b'k'], b"");
    assert!(!is_refused(&mut session, &get, &node));
    appoint(&node, "data_writer[b]");
    assert!(is_refused(&mut session, &get, &node));
    appoint(&node, "data_reader[b]");
    assert!(!is_refused(&mut session, &get, &node));
    node.remove_user("someone").unwrap();
    let mut out = Vec::new();
    session.receive(&request(0xb5, b"", b"", b""), &mut out, node.now());
    assert_eq!(out[6..8], [0, 0x1f], "even the cluster map is for users only");
}

#[test]
fn the_names_in_the_table_are_roles() {
    let known: BTreeSet<&str> = RoleKind::ALL.iter().map(|kind| kind.name()).collect();
    let lists = [READERS, INSERTERS, UPSERTERS, DELETERS, REPLICATORS, STREAMERS, COUNTERS];
    for name in lists.iter().flat_map(|list| list.split(' ')) {
        assert!(known.contains(name), "{name}");
    }
}
