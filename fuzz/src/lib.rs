//! What decoders of foreign bytes must withstand: a function a decoder, to be fed with anything.
//!
//! Each returns for whatever bytes, and panics when a law is broken. The tests feed them with the files of `corpus`
//! and with mutations of these that a seed decides; a fuzzer may call the same functions for as long as it likes.

use nacre_auth::sasl::{Mechanism, Session, Step};
use nacre_auth::{Role, User, Users};
use nacre_protocol::{decode, parse};
use nacre_value::json::is_json;
use nacre_value::path::Path;
use nacre_value::subdoc::{self, Lookup, Mutation};
use nacre_value::xattr::{self, Xattrs};
use std::sync::LazyLock;

/// A decoder under test.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder in `corpus`.
pub const TARGETS: [(&str, Target); 4] = [
    ("frames", frames),
    ("subdocuments", subdocuments),
    ("attributes", attributes),
    ("logins", logins),
];

/// Reads `bytes` as a connection would: frames, framing extras and requests, one behind the other.
///
/// Law: a frame is never longer than what there is.
pub fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = decode(rest) {
        assert!(length <= rest.len(), "a frame of {length} bytes in {}", rest.len());
        let _ = frame.frame_infos();
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
            Step::Done { user, .. } => panic!("{user} got in at once"),
            Step::Failed => {}
        }
    }
}
