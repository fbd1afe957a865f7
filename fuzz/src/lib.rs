//! What decoders of foreign bytes, and the planner of queries, must withstand: a function for each, to be fed with anything.
//!
//! Each returns for whatever bytes, and panics when a law is broken. The tests feed them with the files of `corpus`
//! and with mutations of these that a seed decides; `cargo xtask fuzz` looks for inputs that take new paths through one
//! of them, for as long as it is told to.

mod plans;
mod queries;
mod tables;

use nacre_auth::sasl::{Mechanism, Session, Step};
use nacre_auth::{Role, User, Users};
use nacre_backup::{Error, decode_block, decode_manifest};
use nacre_plugin::{Event, Events, pack};
use nacre_protocol::{decode, parse, replication};
use nacre_sql::{Condition, index::Definition, key};
use nacre_value::json::is_json;
use nacre_value::path::Path;
use nacre_value::subdoc::{self, Lookup, Mutation};
use nacre_value::xattr::{self, Xattrs};
use std::sync::LazyLock;

pub use plans::plans;
pub use queries::queries;

/// What is under test.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder in `corpus`, and how often tests mutate each of the files there.
pub const TARGETS: [(&str, Target, u64); 12] = [
    ("frames", frames, 30_000),
    ("subdocuments", subdocuments, 30_000),
    ("attributes", attributes, 30_000),
    ("logins", logins, 30_000),
    ("statements", statements, 30_000),
    ("expressions", expressions, 30_000),
    ("entries", entries, 30_000),
    ("events", events, 30_000),
    ("queries", queries, 1_000),
    ("plans", plans, 1_000),
    ("blocks", blocks, 20_000),
    ("manifests", manifests, 5_000),
];

/// Reads `bytes` as a connection would: frames, framing extras and requests, or what another node tells, one behind the other.
///
/// Law: a frame is never longer than what there is.
pub fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = decode(rest) {
        assert!(length <= rest.len(), "a frame of {length} bytes in {}", rest.len());
        let _ = frame.frame_infos();
        let _ = replication::read(&frame);
        for collections in [false, true] {
            let _ = parse(&frame, collections);
        }
        rest = &rest[length..];
    }
}

/// Reads and edits a document at a path. The bytes are an operation, the path, NUL, a value, NUL, and the document.
///
/// Law: an edit of a document that is JSON, by a value that is JSON, leaves one that is.
pub fn subdocuments(bytes: &[u8]) {
    let Some((&operation, rest)) = bytes.split_first() else { return };
    let mut parts = rest.splitn(3, |byte| *byte == 0);
    let (Some(path), Some(value), Some(document)) = (parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    let Ok(path) = Path::parse(path) else { return };
    for lookup in [Lookup::Get, Lookup::Exists, Lookup::GetCount] {
        let _ = subdoc::lookup(document, lookup, &path);
    }
    let mutation = Mutation::ALL[usize::from(operation) % Mutation::ALL.len()];
    let edited = subdoc::mutate(document, mutation, &path, value, operation & 0x80 != 0);
    if let Ok(edited) = edited
        && is_json(document)
    {
        let text = String::from_utf8_lossy(&edited.document).into_owned();
        assert!(is_json(&edited.document), "{mutation:?} has made {text}");
    }
}

/// Reads a section of extended attributes, and a value that begins with one.
///
/// Law: what can be read is the same when it was written and read again.
pub fn attributes(bytes: &[u8]) {
    let _ = xattr::split(bytes);
    let Ok(read) = Xattrs::parse(bytes) else { return };
    let encoded = read.encode();
    let again = Xattrs::parse(&encoded).expect("what was written can be read");
    assert!(read.iter().eq(again.iter()), "attributes have changed");
}

/// Takes the bytes for the messages of a login, the second one behind NUL NUL.
///
/// Law: nobody gets in without the password, which is not among the bytes.
pub fn logins(bytes: &[u8]) {
    static USERS: LazyLock<Users> = LazyLock::new(|| {
        let mut users = Users::new([7; 32]);
        let password = "a password that no mutation hits upon";
        users.insert(User::new("ann", password, vec![Role::admin()], [1; 32]));
        users
    });
    let cut = bytes.windows(2).position(|pair| pair == [0, 0]).unwrap_or(bytes.len());
    let (first, second) = (&bytes[..cut], bytes.get(cut + 2..).unwrap_or_default());
    // PLAIN stretches each password, which takes milliseconds, for nothing but a split at two bytes.
    for mechanism in [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1] {
        match Session::start(mechanism, first, &USERS, &[3; 24]) {
            Step::Continue { session, .. } => {
                assert!(matches!(session.step(second), Step::Failed), "got in");
            }
            Step::Done { login, .. } => panic!("{} got in at once", login.user),
            Step::Hash(_) => panic!("SCRAM sends no password"),
            Step::Failed => {}
        }
    }
}

/// Parses a statement of SQL++, and what else is read as one: definitions of indexes and conditions of filters.
///
/// Law: none but that there is an answer.
pub fn statements(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = nacre_sql::parse_path(text);
    let _ = Definition::parse(text);
    let _ = Condition::parse(text);
    let _ = nacre_sql::parse(text);
    let _ = nacre_sql::inline::as_calls(text);
}

/// Parses an expression and prints it, as the definition of an index is kept.
///
/// Law: what was printed means the same.
pub fn expressions(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(expr) = nacre_sql::parse_expr(text) else { return };
    let printed = expr.to_string();
    let again = nacre_sql::parse_expr(&printed).map_err(|error| error.to_string());
    assert_eq!(again.as_ref(), Ok(&expr), "printed as {printed}");
}

/// Reads the values of an entry of an index, descending ones if the first byte is odd.
///
/// Law: a value that was read is the same when it was written and read again.
pub fn entries(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let descending = first % 2 == 1;
    while let Some(value) = key::decode(&mut rest, descending) {
        let mut encoded = Vec::new();
        key::encode(&value, descending, &mut encoded);
        let mut left = &encoded[..];
        assert_eq!(key::decode(&mut left, descending).as_ref(), Some(&value), "{encoded:?}");
        assert!(left.is_empty(), "{left:?} is left of {value:?}");
    }
}

/// Reads a batch of events as a plugin does.
///
/// Law: the same events come out of what they are packed into.
pub fn events(bytes: &[u8]) {
    let Ok(read) = Events::decode(bytes) else { return };
    // What every document has, and without which there is nothing for a previous version to lie behind.
    if read.iter().any(|event| event.key.is_empty()) {
        return;
    }
    let all: Vec<Event<'_>> = read.iter().collect();
    let packed = pack(&all, read.now_us());
    let again = Events::decode(&packed).expect("what was packed can be read");
    assert!(read.iter().eq(again.iter()), "events have changed");
}

/// Reads `bytes` as blocks of a backup, one behind the other.
///
/// Law: a block is never longer than what there is.
pub fn blocks(bytes: &[u8]) {
    let (mut rest, mut offset) = (bytes, 0);
    while let Ok((block, length)) = decode_block(rest, offset, None) {
        assert!(length <= rest.len(), "a block of {length} bytes in {}", rest.len());
        let _ = block.for_each(|_| Ok::<(), String>(()));
        (rest, offset) = (&rest[length..], offset + length as u64);
    }
}

/// Reads `bytes` as the manifest of a backup: with its header, and as the body of a header that is right.
pub fn manifests(bytes: &[u8]) {
    let read = |bytes: &[u8]| match decode_manifest("fuzz", bytes, None) {
        Ok(_) | Err(Error::Damaged { .. } | Error::Newer { .. }) => {}
        Err(error) => panic!("{error:?}"),
    };
    read(bytes);
    let body = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes, |at| &bytes[at + 1..]);
    let (length, hash) = (body.len(), blake3::hash(body));
    let header = format!("{{\"format\":1,\"bytes\":{length},\"blake3\":\"{hash}\"}}\n");
    read(&[header.as_bytes(), body].concat());
}
