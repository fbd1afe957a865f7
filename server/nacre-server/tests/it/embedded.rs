//! A node in the process of an application: here, of this test.

use crate::process::{PASSWORD, USER, port_base};
use nacre_conformance::http::request;
use nacre_server::{Embedded, Serve, serve};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

#[test]
fn a_node_runs_in_the_process_of_an_application_until_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let (data_dir, port_base) = (directory.path().display().to_string(), port_base());
    let cache = std::env::temp_dir().join("nacre-test-plugins").display().to_string();
    let options = Serve::from_arguments([
        "--data-dir",
        &data_dir,
        "--port-base",
        &port_base.to_string(),
        "--plugin-cache",
        &cache,
        "--password",
        PASSWORD,
    ])
    .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let node = std::thread::spawn(move || {
        serve(&options, &Embedded, move || Ok(async move { drop(stopped.await) }))
    });
    let begun = Instant::now();
    let address = format!("127.0.0.1:{port_base}");
    let answer = loop {
        match request(&address, "GET", "/whoami", Some((USER, PASSWORD)), "text/plain", b"") {
            Ok(answer) => break answer,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        assert!(!node.is_finished(), "{:?}", node.join());
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(answer.status, 200, "{}", answer.text());
    stop.send(()).unwrap();
    assert_eq!(node.join().unwrap(), Ok(()));
}

#[test]
fn options_of_an_embedded_node_are_those_of_the_command_line() {
    assert!(Serve::from_arguments(["--kv-threads", "2", "--buckets", "a,b"]).is_ok());
    let refused = Serve::from_arguments(["--memory", "a lot"]).unwrap_err();
    assert!(refused.contains("is not an amount of memory"), "{refused}");
    assert!(Serve::from_arguments(["--unknown"]).is_err());
}
