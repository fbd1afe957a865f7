//! The runner as a program.

use std::process::Command;

/// A port on which nobody listens.
const PORT: &str = "1";

#[test]
fn a_host_that_does_not_answer_fails_each_case_that_is_played() {
    let mut runner = Command::new(env!("CARGO_BIN_EXE_nacre-conformance"));
    runner.args(["--user", "ann", "--password", "secret", "--filter", "kv/counters"]);
    for option in ["--kv-port", "--mgmt-port", "--views-port", "--query-port", "--eventing-port"] {
        runner.args([option, PORT]);
    }
    let output = runner.output().unwrap();
    let (told, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success());
    assert!(told.lines().any(|line| line.starts_with("FAIL kv/counters")), "{told}");
    assert!(!told.contains("ok   "), "{told}");
    assert!(errors.contains("cluster management at port 1"), "{errors}");
}
