//! Blobs of a plugin: the changes of a call are committed with its state, or not at all.

use crate::fixture::{granted, later, probe, request, tell, told};
use nacre_sandbox::{Error, Partition};
use nacre_state::{BlockCache, MemoryStorage, Segmenting, SpaceStorage, SyncCounts};
use nacre_store::{MemorySpaces, Spaces};

fn open(spaces: &dyn Spaces) -> Partition {
    let sync_counts = SyncCounts::open(spaces).unwrap();
    let with = Segmenting::new(BlockCache::default());
    let storage =
        SpaceStorage::open(spaces, &sync_counts, "p", false, 1 << 20, Some(&with)).unwrap();
    Partition::open(probe(), granted(""), Box::new(storage)).unwrap()
}

fn files(spaces: &dyn Spaces) -> usize {
    spaces.open("p").unwrap().files().unwrap().numbers().unwrap().len()
}

#[test]
fn a_blob_grows_is_sealed_and_is_read_by_ranges() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    let steps = r#"[["blob-create", "b"], ["blob-append", "b", "0123456789", 5000], ["blob-read", "b", 49995, 100]]"#;
    tell(&mut partition, &[steps]).unwrap();
    drop(partition);
    // An unsealed blob can be extended after a restart.
    let mut partition = open(&spaces);
    let steps = r#"[["blob-append", "b", "end"], ["blob-seal", "b"], ["blob-create", "c/1"],
        ["blob-read", "b", 49998, 100], ["blob-read", "b", 7, 5], ["blob-read", "b", 60000, 5], ["blob-read", "none", 0, 5],
        ["blob-list", "", ""], ["blob-list", "c/", ""], ["blob-list", "", "b"], ["blob-stat", "b"], ["blob-stat", "d"]]"#;
    tell(&mut partition, &[steps]).unwrap();
    insta::assert_snapshot!(told(&partition), @r#"
    Some("56789")
    Some("89end")
    Some("78901")
    Some("")
    None
    b 50003 true, c/1 0 false
    c/1 0 false
    c/1 0 false
    Some(50003)
    None
    "#);
    assert_eq!(files(&spaces), 2);
    tell(&mut partition, &[r#"[["blob-delete", "c/1"], ["blob-delete", "c/1"]]"#]).unwrap();
    assert!(told(&partition).ends_with("deleted: true\ndeleted: false\n"));
    partition.clear().unwrap();
    drop(partition);
    assert_eq!((files(&spaces), told(&open(&spaces))), (0, "404 ".into()));
}

#[test]
fn a_call_that_fails_leaves_no_blob_behind() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    tell(&mut partition, &[r#"[["blob-create", "kept"], ["blob-append", "kept", "whole"]]"#])
        .unwrap();
    let reader = partition.reader();
    // The poison document is parked, and its earlier effects are undone.
    let cases = [
        (r#"[["blob-append", "none", "x"]]"#, "there is no blob \"none\""),
        (
            r#"[["blob-append", "kept", " and more"], ["blob-seal", "kept"], ["blob-append", "kept", "x"]]"#,
            "is sealed",
        ),
        (r#"[["blob-create", "lost"], ["blob-create", ""]]"#, "must have 1 to 256 bytes"),
        (r#"[["blob-delete", "kept"], ["panic"]]"#, ""),
    ];
    for (steps, reason) in cases {
        let report = tell(&mut partition, &[steps]).unwrap();
        let found = &report.dead_letters[0].reason;
        assert!(found.contains(reason), "{found}");
        // A good document, so that there are not too many poison documents in a row.
        tell(&mut partition, &["[]"]).unwrap();
    }
    tell(
        &mut partition,
        &[r#"[["blob-append", "kept", "!"], ["blob-list", "", ""], ["blob-read", "kept", 0, 99]]"#],
    )
    .unwrap();
    assert_eq!(told(&partition), "kept 6 false\nSome(\"whole!\")\n");
    drop(partition);
    drop(reader);
    assert_eq!(files(&spaces), 1);
}

#[test]
fn a_reader_sees_blobs_of_its_commit_and_changes_none() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    tell(&mut partition, &[r#"[["blob-create", "b"], ["blob-append", "b", "x"]]"#]).unwrap();
    let body = |steps: &str| nacre_sandbox::Request {
        method: "POST".into(),
        path: "/do".into(),
        body: steps.into(),
        ..nacre_sandbox::Request::default()
    };
    let reader = partition.reader();
    let write = reader.handle(&body(r#"[["blob-append", "b", "y"]]"#), later(0));
    let Err(Error::Trap { reason, .. }) = write else { panic!("a reader wrote") };
    assert!(reason.contains("a reader cannot write"), "{reason}");
    assert!(reader.handle(&body(r#"[["blob-read", "b", 0, 9]]"#), later(0)).is_ok());
    assert_eq!(request(&reader, "/state", "none"), "404 ");
}

#[test]
fn a_resident_state_has_no_blobs() {
    let mut partition =
        Partition::open(probe(), granted(""), Box::new(MemoryStorage::default())).unwrap();
    let report = tell(&mut partition, &[r#"[["blob-create", "b"]]"#]).unwrap();
    let reason = &report.dead_letters[0].reason;
    assert!(reason.contains("state = \"segmented\""), "{reason}");
    tell(&mut partition, &[r#"[["blob-list", "", ""], ["blob-stat", "b"]]"#]).unwrap();
    assert_eq!(told(&partition), "\nNone\n");
}
