//! Logins over the key-value protocol: hashing of passwords, the cost of failed logins, and the end of a
//! login.

use crate::world::{World, answers, nobody, request};
use nacre_auth::{Credentials, Domain, Edit, User, UserChange, UserEdit};
use nacre_bucket::kv::{Next, Peer, Session};
use nacre_node::Node;
use std::net::IpAddr;
use std::sync::Arc;

const NOTHING: [u16; 0] = [];
const SUCCESS: u16 = 0x00;
const AUTH_STALE: u16 = 0x1f;
const AUTH_ERROR: u16 = 0x20;
const TEMPORARY_FAILURE: u16 = 0x86;

/// A connection from an address.
struct Client {
    node: Arc<Node>,
    session: Session,
}

impl Client {
    fn new(node: &Arc<Node>, address: &str) -> Client {
        let address: IpAddr = address.parse().unwrap();
        let peer = Peer { confidential: true, address: Some(address), ..Peer::default() };
        let session = Session::new(Arc::clone(node) as _, peer, nobody());
        Client { node: Arc::clone(node), session }
    }

    /// Sends requests. Returns the statuses of the replies that are available at once.
    fn send(&mut self, requests: &[u8]) -> (Vec<u16>, Next) {
        let mut out = Vec::new();
        let (_, next) = self.session.receive(requests, &mut out, self.node.now());
        (answers(&out).iter().map(|answer| answer.status).collect(), next)
    }

    /// Returns the statuses of the replies that were waited for.
    fn resume(&mut self) -> (Vec<u16>, Next) {
        let mut out = Vec::new();
        let next = self.session.resume(&mut out, self.node.now());
        (answers(&out).iter().map(|answer| answer.status).collect(), next)
    }

    /// Logs in. Returns the status once the password is hashed, or `None` if the reply is delayed.
    fn log_in(&mut self, world: &World, password: &str) -> Option<u16> {
        assert_eq!(self.send(&plain(password)).0, NOTHING, "it is not hashed on this thread");
        world.run_tasks();
        self.resume().0.first().copied()
    }
}

/// Returns a PLAIN login of `admin`, whose password is `password`.
fn plain(password: &str) -> Vec<u8> {
    request(0x21, b"", b"PLAIN", format!("\0admin\0{password}").as_bytes())
}

fn config() -> Vec<u8> {
    request(0xb5, b"", b"", b"")
}

#[test]
fn a_password_is_hashed_on_another_thread_while_the_connection_waits() {
    let world = World::new();
    let node = world.node();
    world.hold_up("login");
    let mut client = Client::new(&node, "10.0.0.1");
    let (answered, next) = client.send(&[plain("password"), config()].concat());
    assert!(answered.is_empty() && matches!(next, Next::Wait), "{answered:?} {next:?}");
    world.run_tasks();
    assert!(!client.session.is_ready() && !client.session.is_logged_in());
    world.unblock();
    world.run_tasks();
    assert!(client.session.is_ready());
    assert_eq!(client.resume().0, [SUCCESS]);
    assert_eq!(client.send(&config()).0, [SUCCESS]);
    // A password that was verified before is accepted without hashing.
    assert_eq!(Client::new(&node, "10.0.0.2").send(&plain("password")).0, [SUCCESS]);
}

#[test]
fn a_connection_is_closed_after_a_few_failed_logins() {
    let world = World::new();
    let node = world.node();
    let mut client = Client::new(&node, "10.0.0.1");
    for _ in 0..4 {
        assert_eq!(client.log_in(&world, "wrong"), Some(AUTH_ERROR));
    }
    assert_eq!(client.send(&plain("wrong")).0, NOTHING);
    world.run_tasks();
    assert!(client.resume().0.is_empty(), "the fifth answer is held back");
    world.pass(100);
    world.run_tasks();
    let (answered, next) = client.resume();
    assert_eq!(answered, [AUTH_ERROR]);
    assert!(matches!(next, Next::Close(_)), "{next:?}");
    // A successful login in between resets the count.
    let mut patient = Client::new(&node, "10.0.0.2");
    for _ in 0..4 {
        patient.log_in(&world, "wrong");
    }
    assert_eq!(patient.log_in(&world, "password"), Some(SUCCESS));
    assert_eq!(patient.send(&plain("password")).0, [SUCCESS], "it is open");
}

#[test]
fn answers_to_failed_logins_are_held_back_for_their_address_alone() {
    let world = World::new();
    let node = world.node();
    for _ in 0..20 {
        Client::new(&node, "10.0.0.1").log_in(&world, "wrong");
    }
    let mut guesser = Client::new(&node, "10.0.0.1");
    assert_eq!(guesser.log_in(&world, "wrong"), None);
    assert_eq!(Client::new(&node, "10.0.0.2").log_in(&world, "wrong"), Some(AUTH_ERROR));
    let mut colleague = Client::new(&node, "10.0.0.1");
    assert_eq!(colleague.log_in(&world, "password"), Some(SUCCESS), "who knows it never waits");
    assert_eq!(node.logins().failed(), 22);
    world.pass(900);
    world.run_tasks();
    assert!(!guesser.session.is_ready());
    world.pass(100);
    world.run_tasks();
    assert_eq!(guesser.resume().0, [AUTH_ERROR]);
}

#[test]
fn failed_proofs_are_held_back_like_failed_passwords() {
    let world = World::new();
    let node = world.node();
    let scram = || {
        let mut client = Client::new(&node, "10.0.0.1");
        let first = request(0x21, b"", b"SCRAM-SHA512", b"n,,n=admin,r=abc");
        assert_eq!(client.send(&first).0, [0x21]);
        client.send(&request(0x22, b"", b"SCRAM-SHA512", b"c=biws,r=x,p=AAAA")).0
    };
    for _ in 0..4 {
        assert_eq!(scram(), [AUTH_ERROR]);
    }
    assert_eq!(scram(), NOTHING);
    // The SCRAM exchange itself hashes no password, so it is never queued.
    world.hold_up("login");
    assert_eq!(scram(), NOTHING);
}

#[test]
fn a_full_queue_refuses_its_address_and_serves_others_in_turn() {
    let world = World::new();
    let node = world.node();
    world.hold_up("login");
    let from = |address: &str| {
        let mut client = Client::new(&node, address);
        let answered = client.send(&plain("wrong")).0;
        (client, answered)
    };
    let mut flood = Vec::new();
    while let (client, answered) = from("10.0.0.1")
        && answered.is_empty()
    {
        flood.push(client);
        assert!(flood.len() < 10_000, "the queue has an end");
    }
    assert_eq!(from("10.0.0.1").1, [TEMPORARY_FAILURE]);
    let (mut other, answered) = from("10.0.0.2");
    assert_eq!(answered, NOTHING);
    // The other address is served second, not last.
    world.unblock();
    world.step_once("login");
    world.step_once("login");
    assert!(other.session.is_ready() && flood.iter().filter(|c| c.session.is_ready()).count() <= 1);
    assert_eq!(other.resume().0, [AUTH_ERROR]);
    assert!(flood.len() >= 64, "{} passwords wait", flood.len());
    let everywhere = (0..2000u32).filter(|number| {
        let address = IpAddr::V4((0x0b00_0000 + number).into()).to_string();
        from(&address).1 == [TEMPORARY_FAILURE]
    });
    assert!(everywhere.count() > 1000, "the queue of all addresses has an end too");
}

fn change(node: &Arc<Node>, edit: UserEdit) {
    node.change_users(UserChange { by: None, edit: Edit::User(edit) }).unwrap();
}

fn admin() -> UserEdit {
    UserEdit { name: "admin".into(), ..UserEdit::default() }
}

/// Returns a node with an administrator in addition to `admin`.
fn node(world: &Arc<World>) -> Arc<Node> {
    let node = world.node();
    let roles = vec!["admin".parse().unwrap()];
    node.put_user(User::new("boss", "password", roles, node.new_salt())).unwrap();
    node
}

#[test]
fn a_new_password_ends_the_logins_with_the_old_one() {
    let world = World::new();
    let node = node(&world);
    let mut client = Client::new(&node, "10.0.0.1");
    assert_eq!(client.log_in(&world, "password"), Some(SUCCESS));
    assert_eq!(client.send(&request(0x89, b"", b"b", b"")).0, [SUCCESS]);
    let get = request(0x00, b"", b"k", b"");
    change(&node, UserEdit { display_name: Some("A".into()), ..admin() });
    assert_eq!(client.send(&get).0, [0x01], "another name for people changes nothing");
    let credentials = Some(Credentials::derive("new", node.new_salt()));
    change(&node, UserEdit { credentials, ..admin() });
    assert_eq!(client.send(&get).0, [AUTH_STALE]);
    assert_eq!(client.log_in(&world, "password"), Some(AUTH_ERROR));
    assert_eq!(client.log_in(&world, "new"), Some(SUCCESS));
}

#[test]
fn a_recreated_user_is_a_different_user() {
    let world = World::new();
    let node = node(&world);
    let mut client = Client::new(&node, "10.0.0.1");
    assert_eq!(client.log_in(&world, "password"), Some(SUCCESS));
    let roles = || Some(vec!["admin".parse().unwrap()]);
    let again = || {
        let edit = Edit::RemoveUser { domain: Domain::Local, name: "admin".into() };
        node.change_users(UserChange { by: None, edit }).unwrap();
        let credentials = Some(Credentials::derive("password", [9; 32]));
        change(&node, UserEdit { creates: true, credentials, roles: roles(), ..admin() });
    };
    again();
    assert_eq!(client.send(&config()).0, [AUTH_STALE]);
    // The same applies to a login without a password.
    let peer = Peer { user: Some("admin".into()), ..Peer::default() };
    client.session = Session::new(Arc::clone(&node) as _, peer, nobody());
    assert_eq!(client.send(&config()).0, [SUCCESS]);
    again();
    assert_eq!(client.send(&config()).0, [AUTH_STALE]);
}

#[test]
fn a_locked_user_is_logged_out_immediately_and_cannot_log_in_again() {
    let world = World::new();
    let node = node(&world);
    let mut client = Client::new(&node, "10.0.0.1");
    assert_eq!(client.log_in(&world, "password"), Some(SUCCESS));
    change(&node, UserEdit { locked: Some(true), ..admin() });
    assert_eq!(client.send(&config()).0, [AUTH_STALE]);
    assert_eq!(client.log_in(&world, "password"), Some(AUTH_ERROR));
    change(&node, UserEdit { locked: Some(false), ..admin() });
    // The login was verified before.
    assert_eq!(client.send(&plain("password")).0, [SUCCESS]);
}

#[test]
fn generations_continue_after_a_restart() {
    let world = World::new();
    let before = {
        let node = node(&world);
        let edit = Edit::RemoveUser { domain: Domain::Local, name: "boss".into() };
        let boss = node.users().get("boss").unwrap().clone();
        node.change_users(UserChange { by: None, edit }).unwrap();
        boss
    };
    world.crash();
    let node = node(&world);
    let boss = node.users().get("boss").unwrap().clone();
    assert!(boss.generation > before.password_generation, "none is assigned twice");
}
