//! Refused input: strangers, pages of other sites, bodies that are too large or not JSON, invalid options.

use crate::gateway::{DOCUMENTS, Gateway, PATIENCE, failed_start, login, until};
use std::io::{Read, Write};
use std::net::TcpStream;

fn code(answer: &crate::gateway::Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn strangers_learn_that_the_gateway_is_well_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.send("GET", "/health", "", "").status, 200);
    assert_eq!(gateway.send("GET", "/ready", "", "").json()["status"], "ready");
    let wrong = "Authorization: Basic b3duZXI6d3Jvbmc=\r\n";
    let token = "Authorization: Bearer nacre1_0\r\n";
    for (method, path) in [
        ("GET", "/api/v1"),
        ("GET", "/api/v1/buckets"),
        ("GET", "/api/v1/status"),
        ("GET", DOCUMENTS),
        ("PUT", "/api/v1/buckets/default/documents/a"),
        ("GET", "/api/v1/tokens"),
        ("GET", "/api/v1/sync"),
        ("POST", "/api/v1/sync/retry"),
        ("GET", "/pools/default/buckets/default/scopes"),
        ("GET", "/_sync/default"),
        ("GET", "/none"),
    ] {
        for headers in ["", wrong, token, "Authorization: Basic !\r\n"] {
            let refused = gateway.send(method, path, headers, "");
            assert_eq!(refused.status, 401, "{method} {path} {headers}");
            assert!(refused.header("www-authenticate").is_some());
        }
    }
}

#[test]
fn a_folder_opens_with_its_key_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (key, other) = (file("key", &[7; 32]), file("other", "08".repeat(32).as_bytes()));
    let document = format!("{DOCUMENTS}/a");
    let gateway = Gateway::start(&path, &["--key-file", &key, "--durability", "always"]);
    assert_eq!(gateway.ask("PUT", &document, "{\"n\":1}").status, 200);
    gateway.kill();
    let passphrase = file("passphrase", b"open sesame\n");
    for (arguments, what) in [
        (&["--key-file", &other[..]][..], "the key does not open"),
        (&["--passphrase-file", &passphrase], "the key does not open"),
        (&[], "encrypted: open it with its key"),
        (&["--key-file", &passphrase], "64 hexadecimal digits"),
    ] {
        let output = failed_start(&path, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{arguments:?}: {said}");
    }
    let gateway = Gateway::start(&path, &["--key-file", &key]);
    assert_eq!(gateway.ask("GET", &document, "").json()["n"], 1);
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start_with(folder.path(), &[]);
    let path = format!("{DOCUMENTS}/a");
    let foreign = gateway.send("PUT", &path, "Origin: http://evil.example\r\n", "{}");
    assert_eq!(code(&foreign), (403, "foreign_origin".into()));
    let question = gateway.send("OPTIONS", &path, "Origin: http://evil.example\r\n", "");
    assert_eq!((question.status, question.header("access-control-allow-origin")), (204, None));
    // A form on a page of the gateway's own address.
    let own = format!("Origin: http://{}\r\nContent-Type: text/plain\r\n", gateway.address);
    let form = gateway.send("PUT", &path, &own, "{}");
    assert_eq!(code(&form), (415, "unsupported_media_type".into()));
    // A name that an attacker resolves to this machine.
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let rebound = "GET /api/v1 HTTP/1.1\r\nHost: rebind.example\r\nConnection: close\r\nAccept-Language: en\r\n\r\n";
    stream.write_all(rebound.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    assert_eq!(gateway.send("GET", &path, "", "").status, 404, "nothing was stored");
    let shown = gateway.send("GET", "/health", "", "");
    assert_eq!(shown.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn invalid_requests_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &[]);
    let long = "k".repeat(251);
    for (status, name, method, path, body) in [
        (400, "invalid", "PUT", format!("{DOCUMENTS}/a"), "{"),
        (400, "invalid", "PUT", format!("{DOCUMENTS}/{long}"), "{}"),
        (400, "invalid", "PUT", format!("{DOCUMENTS}/a?ttl=-1"), "{}"),
        (400, "invalid", "GET", format!("{DOCUMENTS}?limit=0"), ""),
        (400, "bad_request", "GET", format!("{DOCUMENTS}/%ff"), ""),
        (404, "bucket_not_found", "GET", "/api/v1/buckets/other/documents/a".into(), ""),
        (
            404,
            "scope_not_found",
            "GET",
            "/api/v1/buckets/default/scopes/s/collections/c/documents/a".into(),
            "",
        ),
        (
            403,
            "forbidden",
            "PUT",
            "/api/v1/buckets/default/scopes/nacre-sync/collections/state/documents/a".into(),
            "{}",
        ),
        (405, "method_not_allowed", "PATCH", format!("{DOCUMENTS}/a"), "{}"),
        (404, "not_found", "GET", "/none".into(), ""),
        (404, "no_upstream", "GET", "/api/v1/sync".into(), ""),
        (404, "no_upstream", "POST", "/api/v1/sync/wait".into(), ""),
        (426, "upgrade_required", "GET", "/_sync/default".into(), ""),
        (400, "invalid", "POST", "/api/v1/tokens".into(), "{}"),
        (400, "invalid", "POST", "/api/v1/tokens".into(), r#"{"name":"a","scopes":["admin[x]"]}"#),
        (404, "not_found", "DELETE", "/api/v1/tokens/none".into(), ""),
    ] {
        let refused = gateway.ask(method, &path, body);
        assert_eq!(code(&refused), (status, name.into()), "{method} {path}: {refused:?}");
    }
    let kind = format!("{}Content-Type: text/plain\r\n", login());
    let text = gateway.send("PUT", &format!("{DOCUMENTS}/a"), &kind, "{}");
    assert_eq!(code(&text), (415, "unsupported_media_type".into()));
}

#[test]
fn bodies_and_connections_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path(), &["--connections", "16"]);
    let path = format!("{DOCUMENTS}/a");
    let large = format!("\"{}\"", "x".repeat(20 << 20));
    let refused = gateway.ask("PUT", &path, &large);
    assert_eq!(code(&refused), (413, "too_large".into()));
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A body whose header announces such a size is refused before it arrives.
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 99999999999\r\n{}\r\n",
        gateway.address,
        login()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    // Silent connections take no place from authenticated ones.
    let silent: Vec<_> =
        (0..40).filter_map(|_| TcpStream::connect(&gateway.address).ok()).collect();
    until("a place", || {
        let mut stream = TcpStream::connect(&gateway.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let head = format!(
            "GET /api/v1 HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\r\n",
            gateway.address,
            login()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
    drop(silent);
}

#[test]
fn a_gateway_that_cannot_start_prints_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let says = |arguments: &[&str]| {
        let output = failed_start(folder.path(), arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let open = says(&["--listen", "0.0.0.0:0"]);
    assert!(open.contains("set --user"), "{open}");
    let missing = says(&["--tls-certificate", "/none", "--tls-key", "/none"]);
    assert!(missing.contains("read /none"), "{missing}");
    let upstream = ["--upstream", "https://h", "--upstream-user", "u", "--upstream-password", "p"];
    let nameless = says(&[&upstream[..], &["--collections", "a"]].concat());
    assert!(nameless.contains("names no bucket"), "{nameless}");
    let gateway = Gateway::start(folder.path(), &[]);
    let second = says(&[]);
    assert!(second.contains("in use by process"), "{second}");
    drop(gateway);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let file = failed_start(&folder.path().join("file"), &[]);
    assert!(String::from_utf8_lossy(&file.stderr).contains("open "), "{file:?}");
}
