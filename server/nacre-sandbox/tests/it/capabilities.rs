//! Documents, HTTP and metrics: granted operations work, others are refused, and waiting counts
//! towards the deadline.

use crate::fixture::*;
use nacre_sandbox::{
    Capability, Content, DocumentCall, DocumentReply, Documents, Error, Grants, Http, HttpError,
    HttpRequest, HttpResponse, KeyspaceGrant, KvError, Limits, MemoryDocuments, Partition, Setup,
};
use std::sync::Arc;
use std::time::Duration;

fn grant(keyspace: &str, write: bool) -> KeyspaceGrant {
    KeyspaceGrant { keyspace: keyspace.into(), write }
}

/// Returns grants for all imports of the probe, with these keyspaces and hosts.
fn grants(kv: Vec<KeyspaceGrant>, hosts: &[&str]) -> Grants {
    let http_out = hosts.iter().map(|host| (*host).to_owned()).collect();
    Grants { kv, http_out, ..Grants::own() }
}

#[test]
fn a_component_gets_what_it_imports_when_all_of_it_is_granted() {
    // The database is only for the query service, and queries only for functions.
    let of_plugins = Capability::ALL.into_iter();
    let of_plugins =
        of_plugins.filter(|it| !matches!(it, Capability::Query | Capability::Database));
    let of_plugins: Vec<_> = of_plugins.collect();
    assert_eq!(probe().imports(), of_plugins);
    assert_eq!(views().imports(), [Capability::State, Capability::Log]);
    assert_eq!((probe().world().as_str(), probe().exports().len()), ("service", 4));
    let whole = grants(vec![grant("*", true)], &["a"]);
    for denied in of_plugins {
        let mut grants = whole.clone();
        match denied {
            Capability::State => grants.state = false,
            Capability::Blob => grants.blob = false,
            Capability::Log => grants.log = false,
            Capability::Kv => grants.kv.clear(),
            Capability::Timer => grants.timer = false,
            Capability::HttpOut => grants.http_out.clear(),
            Capability::Metrics => grants.metrics = false,
            Capability::Query | Capability::Database => unreachable!("it was left out"),
        }
        let setup = Setup { grants, ..Setup::new("p", "") };
        let storage = Box::<nacre_state::MemoryStorage>::default();
        let error = Partition::open(probe(), setup, storage).err().unwrap();
        let import = format!("nacre:plugin/{denied}@0.1.0");
        assert_eq!(error, Error::Import { plugin: "probe".into(), import });
    }
}

#[test]
fn documents_are_read_and_written_within_the_grant() {
    let documents = Arc::new(MemoryDocuments::default());
    let setup = Setup {
        grants: grants(vec![grant("_default._default", true), grant("shop.*", false)], &["a"]),
        documents: Arc::clone(&documents) as Arc<dyn Documents>,
        ..Setup::new("p", "")
    };
    let price = Content { body: b"3".to_vec(), ..Content::default() };
    documents.put("shop.prices", b"pear", price);
    let mut partition = open_probe(setup);
    let script = r#"[
        ["get","shop.prices","pear"], ["get","","none"], ["insert","","a","[1]"],
        ["insert","","a","2"], ["replace","","a","3",99], ["replace","","a","4",2],
        ["upsert","_default._default","b","5"], ["remove","","b"], ["remove","","b"],
        ["counter","","n",1,40], ["counter","","n",2], ["counter","","n",-50], ["counter","","a",1],
        ["counter","","m",1], ["upsert","shop.prices","pear","0"], ["get","other.c","x"],
        ["get-many","",3]
    ]"#;
    let report = tell(&mut partition, &[script]).unwrap();
    assert_eq!(report.dead_letters, []);
    insta::assert_snapshot!(told(&partition), @r#"
    Ok("3")
    Err(NotFound)
    Ok(2)
    Err(Exists)
    Err(CasMismatch)
    Ok(3)
    Ok(4)
    Ok(5)
    Err(NotFound)
    Ok(40)
    Ok(42)
    Ok(0)
    Ok(5)
    Err(NotFound)
    Err(Denied("writing \"shop.prices\" is not granted"))
    Err(Denied("reading \"other.c\" is not granted"))
    0 of 3
    "#);
    let left: Vec<_> =
        documents.all().into_iter().map(|(_, key, _)| String::from_utf8(key).unwrap()).collect();
    assert_eq!(left, ["a", "n", "pear"]);
    let usage = partition.status().writer;
    let counts: Vec<_> = usage.host_calls().filter(|(_, count)| *count > 0).collect();
    assert!(counts.contains(&(Capability::Kv, 19)), "three of the keys at once: {counts:?}");
    assert_eq!(partition.status().readers.host_calls().next(), Some((Capability::State, 1)));
}

#[test]
fn parts_of_documents_and_other_buckets_are_reached_within_the_grant() {
    let documents = Arc::new(MemoryDocuments::default());
    let setup = Setup {
        grants: grants(vec![grant("*", false), grant("far.s.*", true)], &["a"]),
        documents: Arc::clone(&documents) as Arc<dyn Documents>,
        ..Setup::new("p", "")
    };
    let price = Content { body: br#"{"a":{"b":1}}"#.to_vec(), ..Content::default() };
    documents.put("shop.prices", b"pear", price);
    let mut partition = open_probe(setup);
    let script = r#"[
        ["lookup-in","shop.prices","pear","a.b"], ["lookup-in","shop.prices","pear","x"],
        ["lookup-in","shop.prices","none","x"], ["mutate-in","shop.prices","pear","a.b","2"],
        ["touch","shop.prices","pear",60], ["mutate-in","far.s.c","new","a.b","2"],
        ["lookup-in","far.s.c","new","a.b"], ["mutate-in","far.s.c","new","a.b.c","2"],
        ["touch","far.s.c","new",60], ["touch","far.s.c","none",60], ["get","near.s.c","x"],
        ["touch","near.s.c","x",60], ["lookup-in","near.s.c","x","a"], ["mutate-in","far.t.c","x","a","1"]
    ]"#;
    let report = tell(&mut partition, &[script]).unwrap();
    assert_eq!(report.dead_letters, []);
    insta::assert_snapshot!(told(&partition), @r#"
    Ok([Ok("1")])
    Ok([Err("path not found")])
    Err(NotFound)
    Err(Denied("writing \"shop.prices\" is not granted"))
    Err(Denied("writing \"shop.prices\" is not granted"))
    Ok(2)
    Ok([Ok("2")])
    Err(Path("path does not fit the document (operation 0)"))
    Ok(3)
    Err(NotFound)
    Err(Denied("reading \"near.s.c\" is not granted"))
    Err(Denied("writing \"near.s.c\" is not granted"))
    Err(Denied("reading \"near.s.c\" is not granted"))
    Err(Denied("writing \"far.t.c\" is not granted"))
    "#);
}

/// Documents that are not on disk before the test settles them.
#[derive(Default)]
struct Unsettled {
    documents: MemoryDocuments,
    settled: std::sync::atomic::AtomicBool,
}

impl Documents for Unsettled {
    fn call(
        &self,
        keyspace: &str,
        key: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        self.documents.call(keyspace, key, call, left)
    }

    fn settle(&self) -> Result<(), KvError> {
        match self.settled.load(std::sync::atomic::Ordering::Relaxed) {
            true => Ok(()),
            false => Err(KvError::Temporary("the disk is slow".into())),
        }
    }
}

#[test]
fn a_batch_counts_only_once_its_writes_are_on_disk() {
    let documents = Arc::new(Unsettled::default());
    let setup = Setup {
        grants: grants(vec![grant("*", true)], &["a"]),
        documents: Arc::clone(&documents) as Arc<dyn Documents>,
        ..Setup::new("p", "")
    };
    let mut partition = open_probe(setup);
    let script = r#"[["upsert","","a","1"]]"#;
    let error = tell(&mut partition, &[script]).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(documents.documents.all().len(), 1, "it is written all the same");
    documents.settled.store(true, std::sync::atomic::Ordering::Relaxed);
    tell(&mut partition, &[script]).unwrap();
    assert_eq!(told(&partition), "Ok(2)\n", "of the first try nothing is left");
}

#[test]
fn too_many_keys_at_once_end_the_call() {
    let setup = Setup { grants: grants(vec![grant("*", false)], &["a"]), ..Setup::new("p", "") };
    let mut partition = open_probe(setup);
    let report = tell(&mut partition, &[r#"[["get-many","",1025]]"#]).unwrap();
    assert_eq!(report.dead_letters[0].reason, "too many keys at once");
}

/// Documents and servers that delay their callers for longer than allowed.
struct Slow;

impl Slow {
    fn wait(left: Duration) {
        assert!(left <= Duration::from_millis(50), "only what is left of the deadline: {left:?}");
        #[expect(clippy::disallowed_methods, reason = "waiting is what is tested")]
        std::thread::sleep(left * 2);
    }
}

impl Documents for Slow {
    fn call(
        &self,
        _: &str,
        _: &[u8],
        call: &DocumentCall,
        left: Duration,
    ) -> Result<DocumentReply, KvError> {
        if call.writes() {
            return Err(KvError::Locked);
        }
        Slow::wait(left);
        Err(KvError::Temporary("too slow".into()))
    }
}

impl Http for Slow {
    fn send(&self, _: &HttpRequest, _: usize, left: Duration) -> Result<HttpResponse, HttpError> {
        Slow::wait(left);
        Err(HttpError::Timeout)
    }
}

#[test]
fn the_deadline_covers_waiting_inside_host_calls() {
    let setup = Setup {
        limits: Limits { deadline: Duration::from_millis(50), ..Limits::default() },
        documents: Arc::new(Slow),
        http: Arc::new(Slow),
        ..granted("")
    };
    for call in [r#"["get","","a"]"#, r#"["http","https://a/"]"#] {
        let mut partition = open_probe(setup.clone());
        // On a busy machine ticks are late, and a wait may end before its ticks are counted.
        let script = format!("[{}]", [call; 50].join(","));
        let report = tell(&mut partition, &[&script]).unwrap();
        assert_eq!(report.dead_letters[0].reason, "took longer than 50 ms", "{script}");
        let writer = partition.status().writer;
        assert!(
            writer.elapsed_ns >= 49_000_000,
            "waiting is shown as time of the call: {writer:?}"
        );
        assert_eq!((writer.calls, writer.failures), (2, 1), "init, and the batch");
    }
}

/// Replies with the parts of the request.
struct Echo;

impl Http for Echo {
    fn send(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        _: Duration,
    ) -> Result<HttpResponse, HttpError> {
        match &*request.target {
            "/large" => {
                Ok(HttpResponse { body: vec![0; bytes_max + 1], ..HttpResponse::default() })
            }
            target => {
                let body = format!("{}{target}", request.host).into_bytes();
                Ok(HttpResponse { status: 200, headers: Vec::new(), body })
            }
        }
    }
}

#[test]
fn requests_go_to_granted_hosts_only_and_answers_are_bounded() {
    let setup = Setup {
        grants: grants(vec![grant("*", true)], &["a.example"]),
        http: Arc::new(Echo),
        ..Setup::new("p", "")
    };
    let mut partition = open_probe(setup);
    let script = r#"[["http","https://a.example/x?y"],["http","https://b.example/"],
        ["http","https://a.example/large"]]"#;
    tell(&mut partition, &[script]).unwrap();
    insta::assert_snapshot!(told(&partition), @r#"
    Ok("200 a.example/x?y")
    Err(Denied("requests to b.example:443 are not granted"))
    Err(TooLarge)
    "#);
}

#[test]
fn only_the_log_can_be_used_before_init_has_returned() {
    let setup =
        Setup { grants: grants(vec![grant("*", true)], &["a"]), ..Setup::new("p", "use state") };
    let error = nacre_sandbox::validate(&probe(), setup).unwrap_err();
    insta::assert_snapshot!(error, @"p: kv cannot be used before init has returned");
}

#[test]
fn readers_may_use_documents_but_cannot_set_timers() {
    let documents = Arc::new(MemoryDocuments::default());
    let setup = Setup { documents: Arc::clone(&documents) as Arc<dyn Documents>, ..granted("") };
    let partition = open_probe(setup);
    let ask = |script: &str| {
        let request = nacre_sandbox::Request {
            path: "/do".into(),
            body: script.into(),
            ..Default::default()
        };
        partition.reader().handle(&request, NOW).and_then(nacre_sandbox::Answer::collect)
    };
    ask(r#"[["upsert","","a","1"]]"#).unwrap();
    assert_eq!(documents.all().len(), 1);
    let error = ask(r#"[["timer","a",1,[]]]"#).unwrap_err();
    insta::assert_snapshot!(error, @"p: a reader cannot write");
}

#[test]
fn metrics_are_those_of_calls_that_succeeded() {
    let mut partition = open_probe(granted(""));
    tell(&mut partition, &[r#"[["add","seen",2],["set","size",9],["add","size",1]]"#]).unwrap();
    tell(&mut partition, &[r#"[["add","seen",1],["add","No such Name",1]]"#]).unwrap();
    tell(&mut partition, &[r#"[["add","seen",100],["panic","x"]]"#]).unwrap();
    let metrics = partition.status().metrics;
    assert_eq!(metrics, [("seen".to_owned(), 3.0), ("size".to_owned(), 10.0)].into());
    let many: Vec<_> = (0..100).map(|number| format!(r#"["add","m{number}",1]"#)).collect();
    tell(&mut partition, &[&format!("[{}]", many.join(","))]).unwrap();
    assert_eq!(partition.status().metrics.len(), 64);
}

#[test]
fn the_status_shows_memory_and_latency() {
    let mut partition = open_probe(granted(""));
    let before = partition.status();
    assert!((64 << 10..8 << 20).contains(&before.memory_bytes), "{}", before.memory_bytes);
    tell(&mut partition, &["[]", "[]"]).unwrap();
    let reader = partition.reader();
    request(&reader, "/state", "a");
    let status = partition.status();
    assert!(status.memory_bytes > before.memory_bytes, "the reader's instance lives too");
    assert_eq!((status.writer.calls, status.readers.calls), (2, 2), "each with its init");
    assert_eq!(status.writer.latency.counts.iter().sum::<u64>(), 2);
    assert!(status.writer.elapsed_ns > 0);
    drop((reader, partition));
}
