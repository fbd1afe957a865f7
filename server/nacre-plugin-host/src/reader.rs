//! Readers: any number of them, each request on a snapshot of the last commit.

use crate::abi::exports::nacre::plugin::reader as abi;
use crate::instance::Instance;
use crate::space::{KeySpace, View};
use crate::status::LogLine;
use crate::{Error, Limits, Plugin};
use nacre_types::Now;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;

/// Idle reader instances that a partition keeps. More readers may run; their instances are dropped afterwards.
const IDLE_MAX: usize = 4;
/// Log lines that a partition keeps.
const LOG_LINES_MAX: usize = 100;

/// What a partition shows to its readers.
#[derive(Default)]
pub struct Published {
    pub space: KeySpace,
    pub stopped: Option<String>,
}

/// What the writer and the readers of a partition share.
pub struct Shared {
    pub deployment: Arc<str>,
    pub limits: Limits,
    pub published: RwLock<Published>,
    plugin: Plugin,
    config: String,
    idle: Mutex<Vec<Instance>>,
    log: Mutex<VecDeque<LogLine>>,
}

impl Shared {
    pub fn new(plugin: Plugin, deployment: &str, config: &str, limits: Limits) -> Shared {
        Shared {
            deployment: deployment.into(),
            limits,
            published: RwLock::default(),
            plugin,
            config: config.into(),
            idle: Mutex::default(),
            log: Mutex::default(),
        }
    }

    /// A new instance, ready for calls.
    pub fn instance(&self) -> Result<Instance, Error> {
        Instance::configured(&self.plugin, &self.deployment, &self.config, self.limits)
    }

    /// The state as of the last commit, unless the partition is stopped.
    pub fn snapshot(&self) -> Result<KeySpace, Error> {
        let published = self.published.read();
        match &published.stopped {
            Some(reason) => Err(Error::Stopped {
                deployment: self.deployment.to_string(),
                reason: reason.clone(),
            }),
            None => Ok(published.space.clone()),
        }
    }

    pub fn add_log(&self, lines: Vec<LogLine>) {
        let mut log = self.log.lock();
        log.extend(lines);
        let surplus = log.len().saturating_sub(LOG_LINES_MAX);
        log.drain(..surplus);
    }

    pub fn log(&self) -> VecDeque<LogLine> {
        self.log.lock().clone()
    }
}

/// A request, in the words of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// The path below the deployment, starting with `/`, percent-decoded.
    pub path: String,
    /// The query string as it came, without `?`.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// An HTTP status.
    pub status: u16,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// A reader of a partition. Clones are equal and may be used from any thread at once.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Reader {
        Reader { shared }
    }

    /// Answers a request from a snapshot of the last commit.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the partition is; others as for any call. The next request finds a fresh
    /// instance.
    pub fn handle(&self, request: &Request, now: Now) -> Result<Response, Error> {
        let space = self.shared.snapshot()?;
        let idle = self.shared.idle.lock().pop();
        let mut instance = match idle {
            Some(instance) => instance,
            None => self.shared.instance()?,
        };
        let request = abi::Request {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            body: request.body.clone(),
            now_us: now.unix_ns / 1000,
        };
        let outcome = instance.call(View::reading(space), |service, store| {
            service.nacre_plugin_reader().call_handle(store, &request)
        });
        self.shared.add_log(instance.take_log());
        let abi::Response { status, content_type, body } = outcome?;
        // The snapshot would keep old pages alive while the instance is idle.
        drop(instance.take_view());
        let mut idle = self.shared.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(instance);
        }
        drop(idle);
        if body.len() > self.shared.limits.result_bytes {
            return Err(Error::Result {
                deployment: self.shared.deployment.to_string(),
                bytes: body.len(),
                limit_bytes: self.shared.limits.result_bytes,
            });
        }
        Ok(Response { status, content_type, body })
    }
}
