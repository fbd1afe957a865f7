//! SCRAM replies for names that do not exist.

use nacre_auth::sasl::{Mechanism, Session, Step};
use nacre_auth::{ITERATIONS, SALT_BYTES, User, Users};

/// Returns the salt and the rounds that a client receives for a name.
fn challenge(users: &Users, mechanism: Mechanism, name: &str) -> (String, u32) {
    let first = format!("n,,n={name},r=abc");
    let Step::Continue { reply, .. } = Session::start(mechanism, first.as_bytes(), users, &[9; 16])
    else {
        panic!("{name} is challenged");
    };
    let reply = String::from_utf8(reply).unwrap();
    let mut fields = reply.split(',').skip(1).map(|field| field[2..].to_owned());
    (fields.next().unwrap(), fields.next().unwrap().parse().unwrap())
}

/// Creates the users of one process of a node in a cluster.
fn process(secret: u8, cluster: &str) -> Users {
    let mut users = Users::new([secret; 32]);
    users.set_internal(cluster, [secret; SALT_BYTES]);
    users.insert(User::new("ann", "secret", Vec::new(), [1; SALT_BYTES]));
    users
}

const MECHANISMS: [Mechanism; 3] =
    [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1];

#[test]
fn every_node_and_every_start_answers_alike_for_a_name_that_does_not_exist() {
    let (node, restarted) =
        (process(1, "secret of the cluster"), process(2, "secret of the cluster"));
    let elsewhere = process(1, "secret of another");
    for mechanism in MECHANISMS {
        for name in ["ann", "bob", "@nobody"] {
            let answer = challenge(&node, mechanism, name);
            assert_eq!(answer, challenge(&restarted, mechanism, name), "{name}");
            assert_eq!(answer.1, ITERATIONS, "{name}");
            let is_known = name == "ann";
            assert_eq!(answer == challenge(&elsewhere, mechanism, name), is_known, "{name}");
        }
    }
}

/// Returns a user whose password was set by an earlier release.
fn old_user(name: &str) -> User {
    let record = include_str!("../../src/user.v1.json").replace("\"ann\"", &format!("{name:?}"));
    serde_json::from_str(&record).unwrap()
}

#[test]
fn iteration_counts_of_earlier_releases_do_not_reveal_names() {
    let mut users = process(1, "secret of the cluster");
    let unknown: Vec<String> = (0..400).map(|number| format!("stranger-{number}")).collect();
    let few_rounds = |users: &Users| {
        let rounds = |name: &String| challenge(users, Mechanism::ScramSha256, name).1;
        unknown.iter().filter(|name| rounds(name) == 4096).count()
    };
    assert_eq!(few_rounds(&users), 0);
    for number in 0..9 {
        users.insert(old_user(&format!("old-{number}")));
    }
    assert_eq!(challenge(&users, Mechanism::ScramSha256, "old-3").1, 4096);
    let with_few = few_rounds(&users);
    assert!((320..400).contains(&with_few), "nine of ten users have few rounds: {with_few}");
    for number in 0..9 {
        users.insert(User::new(&format!("old-{number}"), "new", Vec::new(), [3; SALT_BYTES]));
    }
    assert_eq!(few_rounds(&users), 0, "nobody is left");
}

#[test]
fn a_password_of_an_earlier_release_is_still_valid() {
    let mut users = process(1, "secret of the cluster");
    users.insert(old_user("old"));
    assert!(users.verify("old", "secret").is_some() && users.verify("old", "Secret").is_none());
}
