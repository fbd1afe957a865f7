//! Mistakes that people make at a command line: each message says what happened, to what, and what to type next.

use crate::process::{PASSWORD, Server, USER, failed_start, port_base};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command that fails, without the variables of the machine; gives its exit status and its message.
fn mistake(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.env_clear().current_dir(folder).env("HOME", folder);
    command.envs(variables.iter().copied()).args(arguments);
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "{arguments:?}: {message}");
    (status.code().unwrap(), message)
}

/// Checks that a message contains the parts: what happened, to what, and what to type next.
fn assert_says((status, message): &(i32, String), expected: i32, parts: [&str; 3]) {
    assert_eq!(*status, expected, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_wrong_context_names_the_command_that_adds_one() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let list = |context: &str| mistake(folder, &[], &["bucket", "list", "-c", context]);
    let unknown = list("@till");
    assert_says(&unknown, 1, ["there is no context", "till", "`nacre context add till -c HOST`"]);

    let file = folder.join(".config/nacre/contexts.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "[contexts.till]\nurl = \"db1\"\nuser_name = \"ann\"\n").unwrap();
    let typo = list("@till");
    assert_says(&typo, 1, ["unknown field `user_name`", "contexts.toml", "correct the line"]);
    assert!(typo.1.contains("line 3"), "{}", typo.1);

    let context =
        "current = \"shop\"\n[contexts.till]\nurl = \"db1\"\npassword_file = \"secret\"\n";
    std::fs::write(&file, context).unwrap();
    assert_says(&list("@till"), 1, ["which does not exist", "secret", "use -p"]);
    let current = mistake(folder, &[], &["bucket", "list"]);
    assert_says(&current, 1, ["there is no context", "shop, only till", "nacre context add shop"]);

    std::fs::create_dir(folder.join(".nacre")).unwrap();
    std::fs::write(folder.join(".nacre/dev.toml"), "url = \"http://db1:8091\"\n").unwrap();
    let foreign = mistake(folder, &[], &["bucket", "list"]);
    assert_says(&foreign, 1, ["names the other machine", "dev.toml", "name a node with -c"]);
}

#[test]
fn an_expired_token_names_the_command_that_makes_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let node = format!("http://127.0.0.1:{}", server.port_base);
    let create = ["token", "create", "short", "--expires", "1s", "-c", &node];
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.env_clear().current_dir(directory.path()).args(create);
    let made = command.env("NACRE_USER", USER).env("NACRE_PASSWORD", PASSWORD).output().unwrap();
    let token = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let list = ["bucket", "list", "-c", &node, "--token", token.trim()];
    server.wait_for("the end of the token", |_| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        let output = command.env_clear().current_dir(directory.path()).args(list).output();
        (!output.unwrap().status.success()).then_some(())
    });
    let expired = mistake(directory.path(), &[], &list);
    assert_says(&expired, 4, ["expired", &node, "nacre token create"]);
    server.stop();
}

#[test]
fn an_unreachable_node_is_named_with_a_way_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let list = |node: &str| {
        mistake(directory.path(), &[("NACRE_PASSWORD", "x")], &["bucket", "list", "-c", node])
    };
    let closed = list("127.0.0.1:1");
    assert_says(&closed, 3, ["Connection refused", "http://127.0.0.1:1", "-c names another node"]);
    let encrypted = list("https://127.0.0.1:1");
    assert_says(&encrypted, 3, ["Connection refused", "https://127.0.0.1:1", "-c names another"]);
    let keys = list("couchbase://127.0.0.1");
    assert_says(
        &keys,
        1,
        ["is an address for keys", "couchbase://127.0.0.1:11210", "http://host:8091"],
    );
    let malformed = list("ftp://127.0.0.1");
    assert_says(&malformed, 2, ["a node is named as", "ftp://127.0.0.1", "http://"]);
}

#[test]
fn a_mistake_in_the_file_of_options_is_named_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nacre.toml");
    let path = file.to_str().unwrap();
    let serve = |text: &str| {
        std::fs::write(&file, text).unwrap();
        mistake(directory.path(), &[], &["serve", "--config", path])
    };
    let typo = serve("data-dir = \"d\"\nbukets = [\"a\"]\n");
    assert_says(&typo, 1, ["bukets is not an option", path, "did you mean buckets?"]);
    let syntax = serve("data-dir = d\n");
    assert_says(&syntax, 1, ["line 1", path, "nacre serve --print-config"]);
    let kind = serve("buckets = \"a\"\nno-io-uring = 1\n");
    assert_says(&kind, 1, ["is true or false", path, "no-io-uring = true"]);
    let value = serve("kv-threads = \"many\"\n");
    assert_says(
        &value,
        2,
        ["invalid value 'many'", "the value of kv-threads is in", "correct it there"],
    );
    assert!(value.1.contains(path), "{}", value.1);
    let missing = mistake(directory.path(), &[], &["serve", "--config", "none.toml"]);
    assert_says(&missing, 1, ["No such file", "none.toml", "another file with --config"]);
    assert!(!directory.path().join("d").exists(), "no node has started");
}

#[test]
fn a_second_node_on_the_same_machine_names_what_to_move() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let text = |output: Output| String::from_utf8(output.stderr).unwrap();
    let folder = directory.path().to_str().unwrap();
    let same_folder = (1, text(failed_start(directory.path())));
    assert_says(&same_folder, 1, ["is in use by another process", folder, "--data-dir"]);

    let (other, port) = (tempfile::tempdir().unwrap(), server.port_base.to_string());
    let other = other.path().join("node");
    let arguments = ["serve", "--port-base", &port, "--data-dir", other.to_str().unwrap()];
    let same_port = mistake(directory.path(), &[("NACRE_PASSWORD", "secret-1")], &arguments);
    assert_says(&same_port, 1, ["Address already in use", &port, "--port-base"]);
    server.kill();

    // Data of another version, as after a change of format.
    let earlier = tempfile::tempdir().unwrap();
    std::fs::create_dir(earlier.path().join("node")).unwrap();
    std::fs::write(earlier.path().join("node/conf"), "of sled").unwrap();
    let port = port_base().to_string();
    let arguments = ["serve", "--port-base", &port, "--data-dir", earlier.path().to_str().unwrap()];
    let format = mistake(directory.path(), &[("NACRE_PASSWORD", "secret-1")], &arguments);
    let place = earlier.path().to_str().unwrap();
    assert_says(
        &format,
        1,
        ["has format 1, this version reads 2", place, "start it with the version"],
    );
}
