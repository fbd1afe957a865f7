//! Functions with user code: the component that runs JavaScript, and the instances in which a request calls functions.
//!
//! An instance has one library, the code of one function, or one plugin, and belongs to one request. So no other request sees
//! the global variables of its code.

use super::deployed;
use super::failure::{code, failure, retry};
use crate::NodeQueries;
use nacre_cluster::{FunctionId, Script};
use nacre_node::Node;
use nacre_plugins_service::{EVALUATOR, NodePlugins, Pure, PureCaller};
use nacre_sandbox::{
    Account, Caller, Error, Failure, Functions, Grants, Limits, NoQueries, Queries, Setup,
};
use parking_lot::RwLock;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of instances of one request. The least recently used one is dropped with its variables.
const INSTANCES_MAX: usize = 4;

/// Maximum time to load code.
const LOADING: Duration = Duration::from_secs(10);

/// Returns the setup of a call. The component counts its steps; its time limit is that of the request, because it may send
/// queries.
fn setup(node: &Node) -> Setup {
    let limits =
        Limits { memory_bytes: 128 << 20, deadline: Duration::from_secs(75), ..Limits::pure() };
    let grants = Grants { log: true, query: true, ..Grants::default() };
    let budgets = node.memory().budgets().clone();
    Setup { limits, grants, budgets, ..Setup::new("evaluator", "{}") }
}

/// The evaluator of a node.
#[derive(Default)]
pub(super) struct Evaluator(RwLock<Option<Arc<Functions>>>);

impl Evaluator {
    fn functions(&self, node: &Node) -> Result<Arc<Functions>, String> {
        if let Some(functions) = &*self.0.read() {
            return Ok(Arc::clone(functions));
        }
        let mut slot = self.0.write();
        if let Some(functions) = &*slot {
            return Ok(Arc::clone(functions));
        }
        let plugin = node.plugins().components().load_shipped(node, &EVALUATOR)?;
        let functions = Functions::open(plugin, setup(node)).map_err(|error| error.to_string())?;
        Ok(Arc::clone(slot.insert(Arc::new(functions))))
    }

    /// Returns an instance that has loaded `text`; exceptions show `file` as its name.
    pub fn load(
        &self,
        node: &Node,
        file: &str,
        text: &str,
        left: Duration,
        account: Option<Arc<Account>>,
    ) -> Result<Caller, Failure> {
        let functions = self.functions(node).map_err(|reason| failure(code::INTERNAL, reason))?;
        let mut caller = functions.caller(account).map_err(|error| failure_of(&error))?;
        let (arguments, left) = (json!([file, text]).to_string(), left.min(LOADING));
        let loaded = caller.call("load", &arguments, Arc::new(NoQueries), left);
        loaded.map(|_| caller).map_err(|error| failure_of(&error))
    }

    /// Checks that `text` is valid code and has the function `wanted`, if one is given.
    pub fn check(
        &self,
        node: &Node,
        file: &str,
        text: &str,
        wanted: Option<&str>,
    ) -> Result<(), Failure> {
        let mut caller = self.load(node, file, text, LOADING, None)?;
        let Some(name) = wanted else { return Ok(()) };
        let has = caller.call("has", &json!([name]).to_string(), Arc::new(NoQueries), LOADING);
        match has.as_deref() {
            Ok("true") => Ok(()),
            Ok(_) => {
                let message = format!("there is no function {name} in its code");
                Err(failure(code::FUNCTION_EXECUTION, message))
            }
            Err(error) => Err(failure_of(error)),
        }
    }
}

/// Returns the failure of loading or running code, without the name of the component, which users do not know.
fn failure_of(error: &Error) -> Failure {
    let message = match error {
        Error::Reject { message, .. } => message.clone(),
        Error::Deadline { after, .. } => format!("stopped after {} ms", after.as_millis()),
        Error::Memory { limit_bytes, .. } => {
            format!("needs more than {limit_bytes} bytes of memory")
        }
        error if error.is_retryable() => return retry(code::INTERNAL, error.to_string()),
        error => error.to_string(),
    };
    failure(code::FUNCTION_EXECUTION, message)
}

/// The code of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Loaded {
    Library(FunctionId),
    Function(FunctionId),
    Deployment(String),
}

/// The source of the code; it is fixed by the request's first call.
#[derive(Clone)]
enum Origin {
    /// JavaScript with its file name in exceptions.
    Text(Arc<str>, String),
    Plugin(Arc<Pure>),
}

/// The code of a function.
struct Target {
    loaded: Loaded,
    origin: Origin,
    function: String,
}

enum Instance {
    Script(Caller),
    Plugin(PureCaller),
}

/// The code and instances of a request.
#[derive(Default)]
pub(super) struct Scripts {
    targets: BTreeMap<FunctionId, Target>,
    /// The instances, the most recently used one last.
    instances: Vec<(Loaded, Instance)>,
}

impl Scripts {
    /// Returns true if the function was called before.
    pub fn knows(&self, id: &FunctionId) -> bool {
        self.targets.contains_key(id)
    }

    /// Looks up the code of a function.
    pub fn learn(&mut self, node: &Node, id: &FunctionId) -> Result<(), Failure> {
        let cluster = node.cluster();
        let not_found = || failure(code::FUNCTION_NOT_FOUND, format!("Function not found: {id}"));
        let script = cluster.query_functions.get(id).and_then(|function| function.script.as_ref());
        let (loaded, function) = match script.ok_or_else(not_found)? {
            Script::Code(_) => (Loaded::Function(id.clone()), &id.name),
            Script::Library { library, function } => (Loaded::Library(library.clone()), function),
            Script::Deployed { deployment, function } => {
                (Loaded::Deployment(deployment.clone()), function)
            }
        };
        let text_of = |text: &str, id: &FunctionId| Origin::Text(text.into(), file_of(id));
        // The request keeps the version of a library or plugin that it called first.
        let known = self.targets.values().find(|target| target.loaded == loaded);
        let origin = match (known, script, &loaded) {
            (Some(target), ..) => target.origin.clone(),
            (None, Some(Script::Code(text)), _) => text_of(text, id),
            (None, _, Loaded::Deployment(name)) => Origin::Plugin(deployed::find(node, name)?),
            (None, _, Loaded::Library(library) | Loaded::Function(library)) => {
                let not_found =
                    || failure(code::FUNCTION_EXECUTION, format!("Library not found: {library}"));
                text_of(cluster.query_libraries.get(library).ok_or_else(not_found)?, library)
            }
        };
        let function = function.clone();
        self.targets.insert(id.clone(), Target { loaded, origin, function });
        Ok(())
    }

    /// Calls a function whose code has been looked up.
    pub fn call(
        &mut self,
        node: &Node,
        id: &FunctionId,
        arguments: &str,
        queries: Arc<dyn Queries>,
        left: Duration,
        account: Arc<Account>,
    ) -> Result<String, Failure> {
        let Target { loaded, origin, function } = &self.targets[id];
        let known = self.instances.iter().position(|(known, _)| known == loaded);
        let (loaded, mut instance) = match known {
            Some(at) => self.instances.remove(at),
            None => {
                if self.instances.len() >= INSTANCES_MAX {
                    self.instances.remove(0);
                }
                (loaded.clone(), origin.instance(node, left, account)?)
            }
        };
        // An instance is not used again after a failed call.
        let answer = match &mut instance {
            Instance::Plugin(caller) => deployed::call(caller, function, arguments, queries, left)?,
            Instance::Script(caller) => {
                let (now_us, seed) = (node.now().unix_ns / 1000, node.random());
                let text = format!("[{},{now_us},{seed},{arguments}]", json!(function));
                caller.call("call", &text, queries, left).map_err(|error| failure_of(&error))?
            }
        };
        self.instances.push((loaded, instance));
        Ok(answer)
    }
}

impl Origin {
    fn instance(
        &self,
        node: &Node,
        left: Duration,
        account: Arc<Account>,
    ) -> Result<Instance, Failure> {
        match self {
            Origin::Text(text, file) => {
                let caller =
                    node.queries().evaluator.load(node, file, text, left, Some(account))?;
                Ok(Instance::Script(caller))
            }
            Origin::Plugin(plugin) => {
                let caller = plugin.caller(account);
                let failed = |reason| failure(code::FUNCTION_EXECUTION, reason);
                caller.map(Instance::Plugin).map_err(failed)
            }
        }
    }
}

/// Returns the file name of a library's or function's code in exceptions.
pub(super) fn file_of(id: &FunctionId) -> String {
    format!("functions/{id}.js")
}
