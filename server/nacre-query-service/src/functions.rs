//! Functions that users create: the rights to create, see and call them.

use super::failure::{code, failure};
use super::requester::Requester;
use super::scripts::file_of;
use super::session::Session;
use super::udf_queries::ScriptQueries;
use crate::NodeQueries;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Change, FunctionId, QueryChange, QueryFunction, Script};
use nacre_sandbox::{Failure, FunctionPath, NewFunction, Script as NewScript};
use std::sync::Arc;
use std::time::Duration;

/// Code of a library in another scope.
const LIBRARY_PATH: u32 = 10113;
/// Code of a function whose code cannot be loaded.
const LOADING: u32 = 10114;

fn id_of(path: &FunctionPath) -> FunctionId {
    FunctionId { scope: path.scope.clone(), name: path.name.clone() }
}

fn require_for_function(
    requester: &Requester,
    privilege: Privilege,
    id: &FunctionId,
) -> Result<(), Failure> {
    if requester.may_in(privilege, Keyspace::of_scope(id.scope.as_ref())) {
        return Ok(());
    }
    let message = format!("User does not have credentials to use function {id} ({privilege:?})");
    Err(failure(code::FORBIDDEN, message))
}

/// Returns true if the function exists and runs user code.
fn is_external(requester: &Requester, id: &FunctionId) -> bool {
    let cluster = requester.node.cluster();
    cluster.query_functions.get(id).is_some_and(|function| function.script.is_some())
}

fn require_managing(
    requester: &Requester,
    id: &FunctionId,
    is_external: bool,
) -> Result<(), Failure> {
    require_for_function(requester, Privilege::of_managing(is_external, id.scope.is_some()), id)
}

fn require_executing(requester: &Requester, id: &FunctionId) -> Result<(), Failure> {
    let is_external = is_external(requester, id);
    require_for_function(requester, Privilege::of_executing(is_external, id.scope.is_some()), id)
}

pub(super) fn create_function(requester: &Requester, new: &NewFunction) -> Result<(), Failure> {
    let id = id_of(&new.path);
    require_managing(requester, &id, new.script.is_some())?;
    if new.replace {
        // Replacing a function requires the right to drop it.
        require_dropping(requester, &id)?;
    }
    let script = new.script.as_ref().map(|script| checked(requester, &id, script)).transpose()?;
    let (text, replace) = (new.text.clone(), new.replace);
    requester.change(&Change::Query(QueryChange::PutQueryFunction { id, text, script, replace }))
}

/// Checks the script of a function and returns it.
fn checked(requester: &Requester, id: &FunctionId, script: &NewScript) -> Result<Script, Failure> {
    match script {
        NewScript::Code(text) => {
            let evaluator = &requester.node.queries().evaluator;
            let checked = evaluator.check(&requester.node, &file_of(id), text, Some(&id.name));
            match checked {
                Ok(()) => Ok(Script::Code(text.clone())),
                Err(why) if why.code == code::FUNCTION_EXECUTION => {
                    let message = format!("Error loading function '{}': {}", id.name, why.message);
                    Err(failure(LOADING, message))
                }
                Err(why) => Err(why),
            }
        }
        NewScript::Library(library, function) => {
            let (library, function) = (id_of(library), function.clone());
            if library.scope.is_some() && library.scope != id.scope {
                let message = format!("Invalid javascript library path: {library}");
                return Err(failure(LIBRARY_PATH, message));
            }
            Ok(Script::Library { library, function })
        }
        // As with a library, the deployment may follow later.
        NewScript::Deployed(deployment, function) => {
            let (deployment, function) = (deployment.clone(), function.clone());
            Ok(Script::Deployed { deployment, function })
        }
    }
}

fn require_dropping(requester: &Requester, id: &FunctionId) -> Result<(), Failure> {
    match requester.node.cluster().query_functions.get(id) {
        Some(there) => require_managing(requester, id, there.script.is_some()),
        None => Ok(()),
    }
}

pub(super) fn drop_function(requester: &Requester, path: &FunctionPath) -> Result<(), Failure> {
    let id = id_of(path);
    require_managing(requester, &id, is_external(requester, &id))?;
    requester.change(&Change::Query(QueryChange::DropQueryFunction { id }))
}

pub(super) fn find_function(
    requester: &Requester,
    path: &FunctionPath,
) -> Result<Option<String>, Failure> {
    let id = id_of(path);
    require_executing(requester, &id)?;
    Ok(requester.node.cluster().query_functions.get(&id).map(|function| function.text.clone()))
}

pub(super) fn visible_functions(requester: &Requester) -> Vec<(FunctionPath, String)> {
    let cluster = requester.node.cluster();
    let all = cluster.query_functions.iter();
    let visible = all.filter(|(id, _)| require_executing(requester, id).is_ok());
    let describe = |(FunctionId { scope, name }, function): (FunctionId, &QueryFunction)| {
        (FunctionPath { scope, name }, function.text.clone())
    };
    visible.map(describe).collect()
}

/// Calls a function that runs user code. Rights are checked on the request's first call of it.
pub(super) fn call_script(
    session: &Session,
    path: &FunctionPath,
    arguments: &str,
    may_change: bool,
    left: Duration,
) -> Result<String, Failure> {
    let (id, requester) = (id_of(path), &session.requester);
    let mut scripts = session.scripts.lock();
    if !scripts.knows(&id) {
        require_executing(requester, &id)?;
        scripts.learn(&requester.node, &id)?;
    }
    let queries = Arc::new(ScriptQueries::new(session, &id, may_change));
    scripts.call(&requester.node, &id, arguments, queries, left, requester.account())
}
