//! The scalability patterns of a dissertation, with the numbers that it has, over real nodes: counters, lookups, comments and feeds.
//!
//! `docs/reference/papers.md` says which claim each test stands for. Source: C. H. Costa, "Scalability Patterns for Distributed NoSQL
//! Databases", 2017.

mod bench;
mod clusters;
mod examples;
mod routing;

use crate::process::{BUCKET, PASSWORD, Server, USER};
use nacre_client::{
    BASIC_FEATURES, Bucket, Connection, Document, Key, Login, Lookup, PathMutation, PathOperation,
    Request, StoreOptions,
};
use nacre_protocol::{Opcode, Status};
use std::collections::BTreeSet;

/// Clients at once, and what each of them adds, as in the dissertation: 3,000 comments by 100 clients.
const CLIENTS: usize = 100;
const COMMENTS_EACH: usize = 30;
const COMMENTS: usize = CLIENTS * COMMENTS_EACH;
/// Flags of a text, as SDKs send them.
const TEXT_FLAGS: u32 = 0x0400_0000;
const MIB: usize = 1 << 20;

fn bucket_at(address: String, bucket: &str) -> Bucket {
    let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: bucket.into() };
    Bucket::connect(&[address], None, login).unwrap()
}

fn bucket(server: &Server) -> Bucket {
    bucket_at(server.kv_address(), BUCKET)
}

fn key(name: &str) -> Key<'_> {
    Key::of_default(name.as_bytes())
}

fn json() -> StoreOptions {
    StoreOptions::default()
}

/// Runs `work` for each of so many clients at once, each with its own connection. Returns the results in the order of clients.
fn by_clients<T: Send>(
    server: &Server,
    count: usize,
    work: impl Fn(usize, &mut Bucket) -> T + Sync,
) -> Vec<T> {
    let clients: Vec<Bucket> = (0..count).map(|_| bucket(server)).collect();
    std::thread::scope(|scope| {
        let work = &work;
        let begin =
            |(number, mut client): (usize, Bucket)| scope.spawn(move || work(number, &mut client));
        let clients: Vec<_> = clients.into_iter().enumerate().map(begin).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// Sends requests without waiting for answers, which are looked at behind each portion.
fn pipelined<'a>(
    server: &Server,
    requests: impl Iterator<Item = (Opcode, String, String, u32)> + 'a,
    mut answered: impl FnMut(u16),
) {
    let login = [USER, PASSWORD, BUCKET];
    let address = server.kv_address();
    let mut connection = Connection::connect(&address, None, login, BASIC_FEATURES).unwrap();
    let mut requests = requests.peekable();
    while requests.peek().is_some() {
        let mut sent = 0;
        for (opcode, name, value, flags) in requests.by_ref().take(256) {
            let vbid = connection.map().vbucket_of(name.as_bytes());
            let (key, extras) =
                ([&[0], name.as_bytes()].concat(), [flags, 0].map(u32::to_be_bytes));
            let extras = extras.concat();
            let (key, extras, value) = (&key[..], &extras[..], value.as_bytes());
            connection.send(Request {
                opcode: opcode as u8,
                vbid,
                key,
                extras,
                value,
                ..Request::default()
            });
            sent += 1;
        }
        connection.flush().unwrap();
        (0..sent).for_each(|_| answered(connection.receive(|frame| frame.vbid).unwrap()));
    }
}

/// A01.
#[test]
fn a_counter_gives_each_number_to_one_of_a_hundred_clients() {
    const STEPS: usize = 1000;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    assert_eq!(bucket(&server).counter(key("n"), 0, Some(0), None).unwrap(), 0);
    let numbers = by_clients(&server, CLIENTS, |_, client| {
        let count = |_| client.counter(key("n"), 1, None, None).unwrap();
        (0..STEPS).map(count).collect::<Vec<u64>>()
    });
    // Each client sees them grow.
    assert!(numbers.iter().all(|own| own.is_sorted_by(|a, b| a < b)));
    let all: BTreeSet<u64> = numbers.into_iter().flatten().collect();
    assert_eq!(all.len(), CLIENTS * STEPS);
    assert_eq!(all.last().unwrap() - all.first().unwrap(), 99_999);
}

/// A02 in the words of a client; `conformance/cases/kv/counters.json` has it in bytes.
#[test]
fn a_counter_is_created_stops_at_zero_and_is_a_number() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = bucket(&server);
    let missing = client.counter(key("n"), 1, None, None).unwrap_err();
    assert_eq!(missing.status(), Some(Status::KeyNotFound as u16));
    assert_eq!(client.counter(key("n"), 5, Some(0), None).unwrap(), 0, "nothing is added to it");
    assert_eq!(client.counter(key("n"), 5, Some(0), None).unwrap(), 5);
    assert_eq!(client.counter(key("n"), -7, None, None).unwrap(), 0);
    client.set(key("text"), b"\"5 apples\"", json()).unwrap();
    let refused = client.counter(key("text"), 1, None, None).unwrap_err();
    assert_eq!(refused.status(), Some(Status::DeltaBadValue as u16));
    assert_eq!(client.get(key("text")).unwrap().unwrap().value, b"\"5 apples\"");
}

/// A06.
#[test]
fn each_of_a_hundred_thousand_addresses_leads_to_its_user() {
    const USERS: usize = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let address = |n: usize| format!("email::{n}@example.com");
    let user = |n: usize| format!("user::{n:06}");
    let body = |n: usize| format!(r#"{{"doctype":"user","email":"{n}@example.com"}}"#);
    let writes = (0..USERS).flat_map(|n| {
        let lookup = (Opcode::Add, address(n), user(n), TEXT_FLAGS);
        [(Opcode::Set, user(n), body(n), 0x0200_0000), lookup]
    });
    pipelined(&server, writes, |status| assert_eq!(status, 0));
    let mut client = bucket(&server);
    for first in (0..USERS).step_by(1000) {
        let addresses: Vec<_> = (first..first + 1000).map(address).collect();
        let keys: Vec<_> = addresses.iter().map(|address| key(address)).collect();
        let lookups: Vec<Document> =
            client.get_many(&keys).unwrap().into_iter().map(Option::unwrap).collect();
        // A text, as the transcoder of SDKs for strings reads it.
        assert!(lookups.iter().all(|lookup| (lookup.flags, lookup.datatype) == (TEXT_FLAGS, 0)));
        let keys: Vec<_> = lookups.iter().map(|lookup| Key::of_default(&lookup.value)).collect();
        let users = client.get_many(&keys).unwrap();
        for (n, user) in (first..).zip(users) {
            assert_eq!(String::from_utf8(user.unwrap().value).unwrap(), body(n));
        }
    }
    let text = StoreOptions { flags: TEXT_FLAGS, ..json() };
    let taken = client.add(key(&address(7)), b"user::other", text).unwrap_err();
    assert_eq!(taken.status(), Some(Status::KeyExists as u16), "an address has one user");
}

/// A08.
#[test]
fn comments_of_a_hundred_clients_have_each_number_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    bucket(&server).counter(key("count"), 0, Some(0), None).unwrap();
    by_clients(&server, CLIENTS, |author, client| {
        for _ in 0..COMMENTS_EACH {
            let number = client.counter(key("count"), 1, None, None).unwrap();
            let comment = format!(r#"{{"author":{author}}}"#);
            // A number that was given twice would be refused here.
            client.add(key(&format!("comment::{number}")), comment.as_bytes(), json()).unwrap();
        }
    });
    let names: Vec<_> = (1..=COMMENTS + 1).map(|number| format!("comment::{number}")).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let found = bucket(&server).get_many(&keys).unwrap();
    assert!(found[..COMMENTS].iter().all(Option::is_some), "numbers have no gap");
    assert_eq!(found[COMMENTS], None);
}

/// A09, by keys alone; [`examples`] has the page that is filled up.
#[test]
fn a_page_names_the_missing_comment() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = bucket(&server);
    let names: Vec<_> = (1..=10).map(|number| format!("comment::{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        client.set(key(name), number.to_string().as_bytes(), json()).unwrap();
    }
    client.delete(key("comment::7"), json()).unwrap();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let page = client.get_many(&keys).unwrap();
    assert_eq!(page.iter().flatten().count(), 9);
    assert_eq!(page.iter().position(Option::is_none), Some(6));
    let values = page.iter().flatten().map(|found| String::from_utf8_lossy(&found.value));
    assert_eq!(values.collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5", "7", "8", "9"]);
}

/// A10, first half: each client reads the whole list, appends, and writes it if nobody else has.
#[test]
fn no_comment_is_lost_although_a_hundred_clients_write_one_list() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    bucket(&server).set(key("post"), b"[]", json()).unwrap();
    let conflicts = by_clients(&server, CLIENTS, |author, client| {
        let mut conflicts = 0;
        for number in 0..COMMENTS_EACH {
            loop {
                let post = client.get(key("post")).unwrap().unwrap();
                let comment = (author * COMMENTS_EACH + number).to_string();
                let (head, separator) = (post.value.strip_suffix(b"]").unwrap(), b",");
                let separator = if head == b"[" { &b""[..] } else { separator };
                let list = [head, separator, comment.as_bytes(), b"]"].concat();
                match client.replace(key("post"), &list, StoreOptions { cas: post.cas, ..json() }) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.status(), Some(Status::KeyExists as u16)),
                }
                conflicts += 1;
            }
        }
        conflicts
    });
    let post = bucket(&server).get(key("post")).unwrap().unwrap();
    let mut comments: Vec<usize> = serde_json::from_slice(&post.value).unwrap();
    comments.sort_unstable();
    assert_eq!(comments, (0..COMMENTS).collect::<Vec<_>>());
    eprintln!("{} writes met another version", conflicts.iter().sum::<u64>());
}

/// A10, second half: the server appends.
#[test]
fn elements_have_the_order_in_which_the_server_has_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    bucket(&server).set(key("post"), br#"{"comments":[]}"#, json()).unwrap();
    let pushed = by_clients(&server, CLIENTS, |author, client| {
        let push = |number: usize| {
            let comment = author * COMMENTS_EACH + number;
            let text = comment.to_string();
            let push = PathMutation {
                operation: PathOperation::ArrayAppend,
                path: "comments",
                value: text.as_bytes(),
                is_xattr: false,
                create_parents: false,
            };
            let mutation = client.mutate_in(key("post"), &[push], json()).unwrap();
            (mutation.token.unwrap().1, comment)
        };
        (0..COMMENTS_EACH).map(push).collect::<Vec<_>>()
    });
    let mut pushed: Vec<(u64, usize)> = pushed.concat();
    pushed.sort_unstable();
    let order: Vec<usize> = pushed.into_iter().map(|(_, comment)| comment).collect();
    let lookup = Lookup { path: "comments", is_xattr: false };
    let found = bucket(&server).lookup_in(key("post"), &[lookup]).unwrap().unwrap().remove(0);
    let comments: Vec<usize> = serde_json::from_slice(&found.unwrap()).unwrap();
    assert_eq!(comments.len(), COMMENTS);
    assert_eq!(comments, order);
}

/// A11.
#[test]
fn a_list_that_is_full_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = bucket(&server);
    client.set(key("post"), b"[]", json()).unwrap();
    let comment = format!("\"{}\"", "x".repeat(MIB));
    let push = |client: &mut Bucket| {
        let push = PathMutation {
            operation: PathOperation::ArrayAppend,
            path: "",
            value: comment.as_bytes(),
            is_xattr: false,
            create_parents: false,
        };
        client.mutate_in(key("post"), &[push], json())
    };
    let mut pushed = 0;
    let refused = loop {
        match push(&mut client) {
            Ok(_) => pushed += 1,
            Err(error) => break error,
        }
        assert!(pushed < 40, "a document has at most 20 MiB");
    };
    assert_eq!(pushed, 19, "of the 20 MiB, quotes and commas take some bytes");
    assert_eq!(refused.status(), Some(Status::TooBig as u16), "{refused}");
    let before = client.get(key("post")).unwrap().unwrap();
    assert_eq!(before.value.len(), pushed * (comment.len() + 1) + 1);
    let again = push(&mut client).unwrap_err();
    assert_eq!(again.status(), Some(Status::TooBig as u16));
    assert_eq!(client.get(key("post")).unwrap().unwrap(), before);
    let comments: Vec<String> = serde_json::from_slice(&before.value).unwrap();
    assert!(comments.iter().all(|comment| comment.len() == MIB));
}
