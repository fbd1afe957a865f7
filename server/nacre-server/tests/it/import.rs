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

#[test]
fn rows_are_written_to_their_collections_and_bad_rows_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("node"));
    for (scope, collection) in [("eu", "orders"), ("us", "orders")] {
        crate::backup::collection(&server, BUCKET, scope, collection);
    }
    let node = format!("127.0.0.1:{}", server.port_base);
    let rows =
        b"{\"id\":0,\"area\":\"eu\"}\n{\"id\":1,\"area\":\"eu\",\"at\":{\"city\":\"Paris\"}}\n\
        {\"id\":2,\"area\":\"us\",\"at\":{\"city\":\"Reno\"}}\n{\"id\":3,\"area\":\"eu\"}\n\
        {\"id\":4,\"area\":\"asia\",\"at\":{\"city\":\"Kobe\"}}\nno JSON\n";
    let bad = directory.path().join("bad.jsonl").display().to_string();
    let options = ["--into", "%area%.orders", "--key", "%at.city%_#MONO_INCR[10]#", "--skip", "1"];
    let more = ["--ignore-fields", "area,none", "-e", &bad];
    let (code, said, errors) =
        import((&node, BUCKET), "json", &[&options[..], &more[..]].concat(), rows);
    assert_eq!(
        (code, said),
        (Some(1), format!("imported 2 documents into {BUCKET}\n")),
        "{errors}"
    );
    assert!(errors.contains("3 of 5 rows were not imported"), "{errors}");
    let mut bucket = crate::backup::open(&server, BUCKET);
    for (scope, name, expected) in [
        ("eu", "Paris_11", "{\"id\":1,\"at\":{\"city\":\"Paris\"}}"),
        ("us", "Reno_12", "{\"id\":2,\"at\":{\"city\":\"Reno\"}}"),
    ] {
        let collection = bucket.collection_id(&format!("{scope}.orders")).unwrap();
        let key = nacre_client::Key { collection, name: name.as_bytes() };
        let found = bucket.get(key).unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.value), expected);
    }
    let lines = std::fs::read_to_string(&bad).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<&serde_json::Value> = lines.iter().map(|line| &line["row"]).collect();
    assert_eq!(numbers, [4, 5, 6]);
    assert_eq!(lines[0]["document"], serde_json::json!({"id": 3, "area": "eu"}));
    assert!(lines[0]["reason"].to_string().contains("at.city"), "{}", lines[0]);
    assert!(lines[1]["reason"].to_string().contains("asia.orders"), "{}", lines[1]);
    assert_eq!(lines[2]["document"], serde_json::Value::Null);

    let table = b"id;name;size\n1;;7\n";
    let options =
        ["--key", "table_%id%", "--field-separator", ";", "--omit-empty", "--infer-types"];
    let (code, _, errors) = import((&node, BUCKET), "csv", &options, table);
    assert_eq!(code, Some(0), "{errors}");
    let found = bucket.get(nacre_client::Key::of_default(b"table_1")).unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.value), "{\"id\":1,\"size\":7}");
    server.kill();
}
