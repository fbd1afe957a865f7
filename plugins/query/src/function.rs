//! Functions that users make. The store keeps the statement of each; an instance keeps those parsed that it has called.

use crate::datastore::{Datastore, FunctionPath};
use crate::run::Run;
use nacre_sql::ast::{CreateFunction, Expr, Path, Statement};
use nacre_sql::{Error, Name, Result, Value, each_child, parse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How deep the body of a function may nest, as functions call each other and each call takes its stack anew.
const HEIGHT_MAX: usize = 30;
/// Functions that an instance keeps parsed.
const PARSED_MAX: usize = 1024;

/// A function, parsed, and the statement that made it.
pub(crate) struct UserFunction {
    text: String,
    pub definition: CreateFunction,
}

/// The functions that an instance has called.
#[derive(Default)]
pub(crate) struct FunctionCache(RefCell<BTreeMap<FunctionPath, Rc<UserFunction>>>);

impl FunctionCache {
    /// The function that a call names, which may leave away what the query context says.
    pub fn get(
        &self,
        path: &[Name],
        context: Option<&Path>,
        store: &dyn Datastore,
    ) -> Result<Rc<UserFunction>> {
        let not_found = || Error::new(10101, format!("Function not found: {}", path.join(".")));
        let path = path_of(path, context).ok_or_else(not_found)?;
        let text = store.function(&path)?.ok_or_else(not_found)?;
        if let Some(known) = self.0.borrow().get(&path).filter(|known| known.text == text) {
            return Ok(Rc::clone(known));
        }
        let function = Rc::new(UserFunction::parse(text)?);
        let mut all = self.0.borrow_mut();
        if all.len() >= PARSED_MAX {
            all.pop_first();
        }
        all.insert(path, Rc::clone(&function));
        Ok(function)
    }
}

impl UserFunction {
    fn parse(text: String) -> Result<UserFunction> {
        match parse(&text)? {
            Statement::CreateFunction(definition) => {
                Ok(UserFunction { text, definition: *definition })
            }
            _ => Err(Error::new(5000, "the statement of a function makes none")),
        }
    }

    /// Its row in `system:functions`.
    fn row(&self, path: &FunctionPath) -> Value {
        let parameters = self.definition.parameters.as_ref().map_or(Value::Null, |names| {
            Value::array(names.iter().map(|name| name.clone().into()).collect())
        });
        let definition = Value::object([
            ("#language", Value::from("inline")),
            ("parameters", parameters),
            ("text", self.definition.text.as_str().into()),
        ]);
        let of_scope = |part: fn(&(Name, Name)) -> &Name| {
            path.scope.as_ref().map_or(Value::Missing, |scope| part(scope).clone().into())
        };
        let identity = Value::object([
            ("bucket", of_scope(|(bucket, _)| bucket)),
            ("name", path.name.clone().into()),
            ("namespace", "default".into()),
            ("scope", of_scope(|(_, scope)| scope)),
            ("type", if path.scope.is_some() { "scope" } else { "global" }.into()),
        ]);
        Value::object([("definition", definition), ("identity", identity)])
    }
}

/// The rows of `system:functions`.
pub(crate) fn rows(store: &dyn Datastore) -> Result<Vec<(Name, Value)>> {
    let row = |(path, text): (FunctionPath, String)| {
        Ok((path.to_string().into(), UserFunction::parse(text)?.row(&path)))
    };
    store.functions()?.into_iter().map(row).collect()
}

pub(crate) fn create_function(function: &CreateFunction, run: &Run<'_>) -> Result<()> {
    if height(&function.body) > HEIGHT_MAX {
        let message = format!("The body of function {} nests too deeply.", function.path);
        return Err(Error::new(3000, message));
    }
    let path = resolved(&function.path, run)?;
    match run.store.create_function(&path, &statement_of(function), function.replace) {
        Err(error) if error.code == 10102 && function.if_not_exists => Ok(()),
        created => created,
    }
}

pub(crate) fn drop_function(path: &Path, if_exists: bool, run: &Run<'_>) -> Result<()> {
    match run.store.drop_function(&resolved(path, run)?) {
        Err(error) if error.code == 10101 && if_exists => Ok(()),
        dropped => dropped,
    }
}

fn resolved(path: &Path, run: &Run<'_>) -> Result<FunctionPath> {
    // With a namespace, a lone name is that of a function of the cluster.
    let context = run.settings.context.as_ref().filter(|_| path.namespace.is_none());
    path_of(&path.parts, context)
        .ok_or_else(|| Error::new(10101, format!("Function not found: {path}")))
}

/// Functions with a lone name belong to the scope of the query context, if there is one. In a call, a namespace is the first
/// part.
fn path_of(path: &[Name], context: Option<&Path>) -> Option<FunctionPath> {
    let of_scope = |bucket: &Name, scope: &Name, name: &Name| FunctionPath {
        scope: Some((bucket.clone(), scope.clone())),
        name: name.clone(),
    };
    match (path, context.map(|context| &context.parts[..])) {
        ([name], Some([bucket, scope]))
        | ([bucket, scope, name], _)
        | ([_, bucket, scope, name], _) => Some(of_scope(bucket, scope, name)),
        ([name] | [_, name], _) => Some(FunctionPath { scope: None, name: name.clone() }),
        _ => None,
    }
}

/// The statement that makes a function, wherever it is made.
fn statement_of(function: &CreateFunction) -> String {
    let parameters = match &function.parameters {
        None => "...".to_owned(),
        Some(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let CreateFunction { path, text, .. } = function;
    format!("CREATE FUNCTION {path}({parameters}) {{ {text} }}")
}

/// How many expressions are in each other.
fn height(expr: &Expr) -> usize {
    let mut below = 0;
    let walked = each_child(&mut expr.clone(), &mut |child| {
        below = below.max(height(child));
        Ok(())
    });
    debug_assert!(walked.is_ok(), "measuring refuses nothing");
    below + 1
}
