//! `nacre import` from outside: the content of a file is in the bucket, and no existing document is silently lost.

use crate::process::{BUCKET, PASSWORD, Server};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Imports `input` from standard input.
fn import(
    (node, bucket): (&str, &str),
    format: &str,
    options: &[&str],
    input: &[u8],
) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(["import", format, "-", "--quiet", "--server", node, "--bucket", bucket]);
    command.args(options).env("NACRE_PASSWORD", PASSWORD).stdin(Stdio::piped());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that refuses its options ends without reading this.
    let _ = process.stdin.take().unwrap().write_all(input);
    let Output { status, stdout, stderr } = process.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn existing_keys_are_counted_and_kept_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let node = format!("127.0.0.1:{}", server.port_base);
    let rows = b"{\"id\":1,\"of\":7}\n{\"id\":2,\"of\":7}\n";
    let told = |options: &[&str], rows: &[u8]| import((&node, BUCKET), "json", options, rows);
    let place = format!("{BUCKET}._default._default");

    let (code, _, errors) = told(&[], rows);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--key is missing"), "{errors}");
    let (_, said, _) = told(&["--key", "of_%of%"], rows);
    assert_eq!(said, format!("imported 2 documents into {place}, 1 in place of existing ones\n"));
    let (code, said, _) = told(&["--key", "of_%of%", "--insert-only"], rows);
    assert_eq!(said, format!("imported 0 documents into {place}, left 2 existing as they are\n"));
    assert_eq!(code, Some(0));
    for _ in 0..2 {
        let (_, said, _) = told(&["--generate-key", "new_#UUID#"], rows);
        assert_eq!(said, format!("imported 2 documents into {place}\n"));
    }
    let (_, said, _) = told(&["--key", "pretty"], b"{\n  \"a\": 1\n}\n");
    assert_eq!(said, format!("imported 1 document into {place}\n"));
    let marked = "\u{feff}id,v\n1,x\n".as_bytes();
    let (code, said, errors) = import((&node, BUCKET), "csv", &["--key", "marked_%id%"], marked);
    assert_eq!((code, said), (Some(0), format!("imported 1 document into {place}\n")), "{errors}");
    server.kill();
}

#[test]
fn the_key_value_port_is_found_by_the_management_port_with_its_encryption() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let authority = server.rest("GET", "/pools/default/certificate", "").unwrap().body;
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    let file = file.display().to_string();
    let row = b"{\"id\":1}\n";
    let base = server.port_base;
    for node in [
        format!("127.0.0.1:{base}"),
        format!("http://127.0.0.1:{base}"),
        format!("https://127.0.0.1:{}", base + 11),
        format!("127.0.0.1:{}", base + 10),
        format!("couchbase://127.0.0.1:{}", base + 10),
        format!("couchbases://127.0.0.1:{}", base + 9),
    ] {
        let (code, _, errors) =
            import((&node, BUCKET), "json", &["--key", "k", "--cacert", &file], row);
        assert_eq!(code, Some(0), "{node}: {errors}");
    }
    let encrypted = format!("127.0.0.1:{}", base + 9);
    let (code, _, errors) = import((&encrypted, BUCKET), "json", &["--key", "k"], row);
    assert_eq!(code, Some(1));
    assert!(errors.contains("this port speaks TLS"), "{errors}");
    server.kill();
}

#[test]
fn a_full_bucket_is_named_with_its_quota_and_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let form = "name=small&ramQuotaMB=100&bucketType=ephemeral";
    assert_eq!(server.rest("POST", "/pools/default/buckets", form).unwrap().status, 202);
    let padding = "x".repeat(1_000_000);
    let rows: String = (0..200).map(|i| format!("{{\"i\":{i},\"p\":\"{padding}\"}}\n")).collect();
    let node = format!("127.0.0.1:{}", server.port_base);
    let (code, said, errors) = import((&node, "small"), "json", &["--key", "%i%"], rows.as_bytes());
    assert_eq!(code, Some(1));
    assert!(said.starts_with("imported 9") && said.contains(" documents into small."), "{said}");
    assert!(
        errors.contains("the bucket small is full") && errors.contains("ramQuotaMB, which is 100"),
        "{errors}"
    );
    server.kill();
}
