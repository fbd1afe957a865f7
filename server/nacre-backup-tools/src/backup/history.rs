//! History of buckets from outside: each vBucket is streamed from the node that serves it, by a few threads, again where it has moved to.

use nacre_backup::{Error, Record, RecordKind, VbucketTake};
use nacre_cli::Cluster;
use nacre_client::{DcpConsumer, EventKind, StreamRange, StreamReply};
use nacre_protocol::dcp::{open_flag, stream_flag};
use nacre_types::{DATATYPE_XATTR, Vbid, leb128_decode};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Time for which a vBucket that no node serves, or a node that does not answer, is waited for.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause after a round in which nothing was got.
const PAUSE: Duration = Duration::from_millis(300);

/// Reason why a vBucket was not streamed to its end.
pub(crate) enum Failure {
    /// The vBucket can be tried again.
    Passing(String),
    /// Nothing can be done but to report it.
    Fatal(String),
}

impl From<nacre_client::Error> for Failure {
    fn from(error: nacre_client::Error) -> Failure {
        match error.is_retryable() {
            true => Failure::Passing(error.to_string()),
            false => Failure::Fatal(error.to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Source { .. } => Failure::Passing(error.to_string()),
            _ => Failure::Fatal(error.to_string()),
        }
    }
}

/// The vBuckets of a bucket, as they are served now.
pub(crate) struct Source<'a> {
    cluster: &'a Cluster<'a>,
    bucket: String,
    /// Number of vBuckets.
    pub vbuckets: u16,
    servers: Mutex<Vec<String>>,
    threads: usize,
    wants_versions: bool,
    has_low_priority: bool,
}

/// Address and high seqno of each vBucket that is served.
type Served = BTreeMap<u16, (String, u64)>;

impl<'a> Source<'a> {
    /// Connects to a bucket.
    ///
    /// # Errors
    /// A sentence if there is no such bucket, or no node answers.
    pub fn open(
        cluster: &'a Cluster<'a>,
        bucket: &str,
        threads: usize,
    ) -> Result<Source<'a>, String> {
        let connection = cluster.connect_any(&[], bucket)?;
        let (vbuckets, servers) =
            (connection.map().vbucket_count(), connection.map().servers().to_vec());
        let servers = Mutex::new(servers);
        Ok(Source {
            cluster,
            bucket: bucket.to_owned(),
            vbuckets,
            servers,
            threads: threads.max(1),
            wants_versions: false,
            has_low_priority: false,
        })
    }

    /// Lets nodes serve other requests first.
    pub fn with_low_priority(self) -> Source<'a> {
        Source { has_low_priority: true, ..self }
    }

    /// Asks for every version that the bucket keeps, and not for the newest of each document.
    pub fn with_versions(self) -> Source<'a> {
        Source { wants_versions: true, ..self }
    }

    /// Asks the nodes which vBuckets they serve and how far they are.
    fn served(&self) -> Result<Served, nacre_client::Error> {
        let known = self.servers.lock().clone();
        let seed = self.cluster.connect_any(&known, &self.bucket)?;
        let (servers, mut served) = (seed.map().servers().to_vec(), Served::new());
        let mut last = None;
        for server in &servers {
            let address = self.cluster.reachable(&seed, server);
            let asked = self
                .cluster
                .connect(&address, &self.bucket)
                .and_then(|mut connection| connection.active_seqnos());
            match asked {
                Ok(seqnos) => served.extend(
                    seqnos.into_iter().map(|(vbid, seqno)| (vbid.0, (address.clone(), seqno))),
                ),
                Err(error) => last = Some(error),
            }
        }
        *self.servers.lock() = servers;
        match last {
            Some(error) if served.is_empty() => Err(error),
            _ => Ok(served),
        }
    }

    /// Streams vBuckets until `remaining` has none: `begin` makes what a thread has for itself, `take` streams a vBucket whose high seqno is
    /// given, and `end` is called when a thread has no more.
    ///
    /// # Errors
    /// A sentence about what cannot be done, or has not become possible in time.
    pub fn stream_all<T>(
        &self,
        remaining: impl Fn() -> Vec<u16>,
        begin: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, &mut DcpConsumer, u16, u64) -> Result<(), Failure> + Sync,
        end: impl Fn(T) -> Result<(), String> + Sync,
    ) -> Result<(), String> {
        let mut progress_at = Instant::now();
        let mut before = usize::MAX;
        loop {
            let wanted = remaining();
            if wanted.is_empty() {
                return Ok(());
            }
            if wanted.len() < before {
                progress_at = Instant::now();
            }
            before = wanted.len();
            let reason = match self.served() {
                Err(error) if !error.is_retryable() => return Err(error.to_string()),
                Err(error) => Some(error.to_string()),
                Ok(served) => self.round(&wanted, &served, &begin, &take, &end)?,
            };
            if remaining().len() < before {
                continue;
            }
            if progress_at.elapsed() > PATIENCE {
                let reason = reason.unwrap_or_else(|| "no node serves them".to_owned());
                let (count, bucket) = (before, &self.bucket);
                return Err(format!("{count} vBuckets of {bucket} cannot be read: {reason}"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Streams those of the `wanted` vBuckets that the node serves which the user has named, each once. Returns why one was not streamed.
    ///
    /// # Errors
    /// A sentence about what cannot be done.
    pub fn stream_own<T>(
        &self,
        wanted: &[u16],
        begin: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, &mut DcpConsumer, u16, u64) -> Result<(), Failure> + Sync,
        end: impl Fn(T) -> Result<(), String> + Sync,
    ) -> Result<Option<String>, String> {
        let mut connection = self.cluster.connect_any(&[], &self.bucket)?;
        let (seqnos, address) = (connection.active_seqnos()?, connection.address().to_owned());
        let served = seqnos.into_iter().map(|(vbid, seqno)| (vbid.0, (address.clone(), seqno)));
        self.round(wanted, &served.collect(), &begin, &take, &end)
    }

    /// Tries each vBucket that is served once. Returns why one was not streamed.
    fn round<T>(
        &self,
        wanted: &[u16],
        served: &Served,
        begin: &(impl Fn() -> T + Sync),
        take: &(impl Fn(&mut T, &mut DcpConsumer, u16, u64) -> Result<(), Failure> + Sync),
        end: &(impl Fn(T) -> Result<(), String> + Sync),
    ) -> Result<Option<String>, String> {
        let queue: Mutex<VecDeque<u16>> =
            Mutex::new(wanted.iter().copied().filter(|vbid| served.contains_key(vbid)).collect());
        let (passing, fatal) = (Mutex::new(None), Mutex::new(None));
        let work = || {
            let (mut own, mut consumers) = (begin(), HashMap::new());
            while fatal.lock().is_none() {
                let Some(vbid) = queue.lock().pop_front() else { break };
                let Some((address, high)) = served.get(&vbid) else { continue };
                let taken = self
                    .consumer(&mut consumers, address)
                    .and_then(|consumer| take(&mut own, consumer, vbid, *high));
                match taken {
                    Ok(()) => {}
                    Err(Failure::Passing(reason)) => {
                        // What comes late on the connection would be taken for that of another attempt.
                        consumers.remove(address);
                        *passing.lock() = Some(reason);
                    }
                    Err(Failure::Fatal(reason)) => *fatal.lock() = Some(reason),
                }
            }
            let is_fine = fatal.lock().is_none();
            if is_fine && let Err(reason) = end(own) {
                *fatal.lock() = Some(reason);
            }
        };
        let threads = self.threads.min(queue.lock().len());
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        match fatal.into_inner() {
            Some(reason) => Err(reason),
            None => Ok(passing.into_inner()),
        }
    }

    fn consumer<'c>(
        &self,
        consumers: &'c mut HashMap<String, DcpConsumer>,
        address: &str,
    ) -> Result<&'c mut DcpConsumer, Failure> {
        if !consumers.contains_key(address) {
            let connection = self.cluster.connect(address, &self.bucket)?;
            let name = format!("nacre-backup-{:032x}", rand::random::<u128>());
            let flags = open_flag::INCLUDE_XATTRS | open_flag::INCLUDE_DELETED_USER_XATTRS;
            let mut consumer = DcpConsumer::open(connection, &name, flags)?;
            // A server that does not tell expirations from deletions sends deletions.
            let _ = consumer.control("enable_expiry_opcode", "true");
            if self.has_low_priority {
                // A server that does not know priorities serves all streams alike.
                let _ = consumer.control("set_priority", "low");
            }
            if self.wants_versions {
                consumer.control("change_streams", "true").map_err(|error| match error {
                    nacre_client::Error::Refused { .. } => Failure::Fatal(format!(
                        "the bucket {} keeps no versions (it needs storageBackend=magma): leave out --history",
                        self.bucket
                    )),
                    error => error.into(),
                })?;
            }
            consumers.insert(address.to_owned(), consumer);
        }
        consumers
            .get_mut(address)
            .ok_or_else(|| Failure::Passing("there is no connection".to_owned()))
    }
}

/// Streams a vBucket until `take` is complete. `each` gets the records.
///
/// # Errors
/// [`Failure`]; the vBucket has to be begun again.
pub(crate) fn stream_vbucket(
    consumer: &mut DcpConsumer,
    take: &mut VbucketTake,
    mut each: impl FnMut(&mut VbucketTake, &Record<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let vbid = Vbid(take.vbid());
    let ends_itself = loop {
        let request = take.request();
        let (start, end, vb_uuid) = (request.start, request.end, request.vb_uuid);
        let range = StreamRange { start, end, vb_uuid, snapshot: (start, start) };
        match consumer.stream(vbid, range, stream_flag::ACTIVE_ONLY, "")? {
            StreamReply::Rollback(seqno) => take.rolled_back(seqno)?,
            StreamReply::Accepted(log) => {
                let log: Vec<(u64, u64)> =
                    log.iter().map(|entry| (entry.vb_uuid, entry.seqno)).collect();
                take.accepted(&log)?;
                break end != u64::MAX;
            }
        }
    };
    loop {
        if take.is_complete() && !ends_itself {
            consumer.close(vbid)?;
            return Ok(());
        }
        let event = consumer.next_event()?;
        if event.vbid != vbid {
            // The rest of a stream that was closed.
            continue;
        }
        match event.kind {
            EventKind::Snapshot { end, is_history, .. } => take.snapshot(end, is_history)?,
            EventKind::Advanced(seqno) | EventKind::System { seqno, .. } => take.advanced(seqno)?,
            EventKind::End(_) if take.is_complete() => return Ok(()),
            EventKind::End(reason) => {
                return Err(Failure::Passing(format!(
                    "the stream of vBucket {vbid} ended: {reason}"
                )));
            }
            kind => with_record(&kind, |record| each(take, record))?,
        }
    }
}

/// Shows a mutation or a deletion as a record.
fn with_record(
    kind: &EventKind,
    show: impl FnOnce(&Record<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let malformed = || Failure::Passing("a key has no collection".to_owned());
    match kind {
        EventKind::Mutation { seqno, rev, cas, flags, expiry, datatype, key, value } => {
            let (collection, key) = leb128_decode(key).ok_or_else(malformed)?;
            show(&Record {
                kind: RecordKind::Set,
                seqno: *seqno,
                cas: *cas,
                rev: *rev,
                flags: *flags,
                expiry: *expiry,
                datatype: *datatype,
                collection,
                key,
                value,
            })
        }
        EventKind::Deletion { seqno, rev, cas, is_expiration, key, value } => {
            let (collection, key) = leb128_decode(key).ok_or_else(malformed)?;
            let kind = if *is_expiration { RecordKind::Expiration } else { RecordKind::Deletion };
            show(&Record {
                kind,
                seqno: *seqno,
                cas: *cas,
                rev: *rev,
                flags: 0,
                expiry: 0,
                // All that a tombstone has is attributes.
                datatype: if value.is_empty() { 0 } else { DATATYPE_XATTR },
                collection,
                key,
                value,
            })
        }
        _ => Ok(()),
    }
}
