//! Several processes: a second one, a killed one, and a child of `fork`.

use crate::{Chance, durable, open};
use nacre::{Db, Error, Options, StoreKind, Write};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable with the role of a child process.
const ROLE: &str = "NACRE_EMBEDDED_ROLE";
const FOLDER: &str = "NACRE_EMBEDDED_FOLDER";

/// Starts this test program again in a role.
fn start(role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::in_another_process", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the lines that a child writes for its parent.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output = BufReader::new(child.stdout.take().unwrap());
    output.lines().map_while(Result::ok).filter_map(|line| {
        let (_, said) = line.split_once('>')?;
        Some(said.to_owned())
    })
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, ">{line}").unwrap();
    output.flush().unwrap();
}

/// The role of the child processes that the tests below start. Not a test by itself.
#[test]
fn in_another_process() {
    let (Ok(role), Ok(folder)) = (std::env::var(ROLE), std::env::var(FOLDER)) else { return };
    let folder = Path::new(&folder);
    match role.as_str() {
        "holds" => {
            let db = Db::open(folder).unwrap();
            db.default_collection().upsert("a", b"1", Write::new()).unwrap();
            say(&std::process::id().to_string());
            // Wait until the parent ends the input.
            let _ = std::io::stdin().lock().lines().next();
        }
        "full" => on_a_full_disk(folder),
        writer => {
            let store = if writer == "sled" { StoreKind::Sled } else { StoreKind::Log };
            let sync = nacre::Sync::Always;
            let db = open(folder, &Options { store, sync, ..Options::default() });
            let docs = db.default_collection();
            for number in 0u64.. {
                docs.upsert(format!("k{}", number % 7), &number.to_be_bytes(), Write::new())
                    .unwrap();
                docs.upsert("last", &number.to_be_bytes(), Write::new()).unwrap();
                say(&number.to_string());
            }
        }
    }
}

/// Fills the disk of a database, opens it and frees space again.
fn on_a_full_disk(folder: &Path) {
    let (path, filler) = (folder.join("database"), folder.join("filler"));
    for options in durable() {
        let db = open(&path, &options);
        db.default_collection().upsert("a", &[b'1'; 3000], Write::new()).unwrap();
        db.close().unwrap();
        drop(db);
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        if options.store == StoreKind::Sled {
            // Opening writes to the disk: the folder is refused with a named error, and stays undamaged.
            let refused = Db::open_with(&path, options.clone()).map(drop).unwrap_err().to_string();
            assert!(refused.contains("No space") || refused.contains("full"), "{refused}");
            drop(file);
            std::fs::remove_file(&filler).unwrap();
            let db = open(&path, &options);
            assert_eq!(db.default_collection().get("a").unwrap().unwrap().body(), &[b'1'; 3000]);
            say("done");
            continue;
        }
        let db = open(&path, &options);
        let docs = db.default_collection();
        assert_eq!(docs.get("a").unwrap().unwrap().body(), &[b'1'; 3000]);
        let refused = (0..200).find_map(|number| {
            let key = format!("b{number}");
            docs.upsert(key, &[b'2'; 9000], Write::new()).err()
        });
        assert_eq!(refused, Some(Error::Full));
        drop(file);
        std::fs::remove_file(&filler).unwrap();
        // The database recovers as soon as it checks the disk again.
        let begun = Instant::now();
        while docs.upsert("c", b"3", Write::new()).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "writes go on once there is room");
        }
        db.close().unwrap();
        drop((docs, db));
        let db = open(&path, &options);
        assert_eq!(db.default_collection().get("c").unwrap().unwrap().body(), b"3");
        drop(db);
        std::fs::remove_dir_all(&path).unwrap();
        say("done");
    }
}

// Case 6
#[test]
fn a_folder_opens_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg(r#"mount -t tmpfs -o size=24m tmpfs "$1" && shift && exec "$@""#);
    command.arg("sh").arg(folder.path()).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "process::in_another_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, "full").env(FOLDER, folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.matches(">done").count(), 2, "both stores: {text}{errors}");
}

// Case 23
#[test]
fn closing_ends_everything_that_is_open_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &Options { quota_mib: 4, ..Options::default() });
    let docs = db.default_collection();
    for number in 0..500 {
        docs.upsert(format!("k{number}"), &vec![b'v'; 20_000], Write::new()).unwrap();
    }
    let mut scan = docs.scan(nacre::Range::all()).unwrap();
    assert!(scan.next().unwrap().is_ok());
    let mut changes = db.changes(nacre::Since::Start).unwrap();
    assert!(changes.try_next().unwrap().is_some());
    let mut waits = db.changes(nacre::Since::Now).unwrap();
    let mut session = db.session(|| {}).unwrap();
    #[cfg(feature = "sync")]
    let sync = {
        let options = nacre::SyncOptions::new("http://127.0.0.1:1/b").collections(["a.b"]);
        db.sync(options).unwrap()
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || waits.next());
        let begun = Instant::now();
        db.close().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(waiting.join().unwrap(), Some(Err(Error::Closed)));
    });
    assert_eq!(scan.find_map(Result::err), Some(Error::Closed));
    assert_eq!(changes.try_next(), Err(Error::Closed));
    assert_eq!(session.receive(&[], &mut Vec::new()), Err(Error::Closed));
    assert_eq!(docs.get("k1"), Err(Error::Closed));
    assert_eq!(docs.upsert("k1", b"1", Write::new()), Err(Error::Closed));
    #[cfg(feature = "sync")]
    assert!(sync.wait_in_step(Duration::from_secs(5)).is_err());
    db.close().unwrap();
    // Another process can open the folder although handles still exist.
    let again = open(folder.path(), &Options::default());
    assert!(again.default_collection().exists("k499").unwrap());
}

#[test]
fn a_second_process_is_refused_at_once_and_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start("holds", folder.path());
    let pid: u32 = lines(&mut child).next().unwrap().parse().unwrap();
    // On a busy machine a single attempt says little about the cost of a refusal; the fastest of many does.
    let refused = |_| {
        let begun = Instant::now();
        assert_eq!(Db::open(folder.path()).map(drop), Err(Error::InUse { pid }));
        begun.elapsed()
    };
    let took = (0..50).map(refused).min().unwrap();
    assert!(took < Duration::from_millis(10), "{took:?}");
    // A killed process leaves no lock.
    child.kill().unwrap();
    child.wait().unwrap();
    let db = Db::open(folder.path()).unwrap();
    let own = Error::InUse { pid: std::process::id() };
    assert_eq!(Db::open(folder.path()).map(drop), Err(own));
    drop(db);
    drop(Db::open(folder.path()).unwrap());
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_was_durable() {
    let mut kills = 0;
    for (store, options) in ["log", "sled"].into_iter().zip(durable()) {
        let folder = tempfile::tempdir().unwrap();
        let mut chance = Chance(kills);
        for _ in 0..4 {
            let mut child = start(store, folder.path());
            let mut said = lines(&mut child);
            let mut acknowledged = 0;
            for _ in 0..1 + chance.below(60) {
                acknowledged = said.next().unwrap().parse::<u64>().unwrap();
            }
            child.kill().unwrap();
            // Lines written before the end count, too.
            acknowledged = said.last().map_or(acknowledged, |last| last.parse().unwrap());
            child.wait().unwrap();
            kills += 1;
            let db = open(folder.path(), &options);
            let docs = db.default_collection();
            let number = |key: &str| {
                let found = docs.get(key).unwrap()?;
                Some(u64::from_be_bytes(found.body().try_into().unwrap()))
            };
            assert!(number("last") >= Some(acknowledged), "{store}: {acknowledged}");
            for key in 0..7.min(acknowledged + 1) {
                let least = acknowledged - (acknowledged + 7 - key) % 7;
                assert!(number(&format!("k{key}")) >= Some(least), "{store}: k{key}, {least}");
            }
        }
    }
    println!("{kills} kills of a process: 0 lost");
}

#[test]
fn a_child_of_fork_is_refused_and_the_parent_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path()).unwrap();
    let docs = db.default_collection();
    docs.upsert("a", b"1", Write::new()).unwrap();
    // SAFETY: the child calls this library, which refuses the call, and exits without running any code of the
    // parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = docs.get("a") == Err(Error::Forked)
            && docs.upsert("a", b"2", Write::new()) == Err(Error::Forked)
            && db.flush() == Err(Error::Forked)
            && db.close() == Err(Error::Forked);
        drop((docs, db));
        // SAFETY: exits the process at once.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child forked above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was refused by name");
    docs.upsert("a", b"3", Write::new()).unwrap();
    db.flush().unwrap();
    drop((docs, db));
    let db = Db::open(folder.path()).unwrap();
    assert_eq!(db.default_collection().get("a").unwrap().unwrap().body(), b"3");
}
