//! User-defined functions. The store has the statement of each; an instance keeps the parsed form of those that it has
//! called.

use crate::resolve::resolve;
use crate::rights::{self, Needs};
use crate::run::Run;
use crate::{lines, script};
use nacre_datastore::{Datastore, FunctionPath, Script};
use nacre_planner::explain;
use nacre_sql::ast::{CreateFunction, Expr, FunctionBody, Path, Statement};
use nacre_sql::{Context, Env, Error, Name, Result, Value, each_child, eval, parse, write_string};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum nesting of a function's body, because functions call each other and each call uses the stack again.
const HEIGHT_MAX: usize = 30;
/// Maximum number of parsed functions that an instance keeps.
const PARSED_MAX: usize = 1024;

/// A parsed function with its CREATE statement.
pub(crate) struct UserFunction {
    text: String,
    path: FunctionPath,
    pub definition: CreateFunction,
    /// Rights that the queries in its expression need.
    pub needs: Needs,
}

/// The functions that an instance has called.
#[derive(Default)]
pub(crate) struct FunctionCache(RefCell<BTreeMap<FunctionPath, Rc<UserFunction>>>);

impl FunctionCache {
    /// Returns the function that a call names; the query context completes the path.
    pub fn get(
        &self,
        path: &[Name],
        context: Option<&Path>,
        store: &dyn Datastore,
    ) -> Result<Rc<UserFunction>> {
        let found = path_of(path, context).ok_or_else(|| not_found(&path.join(".")))?;
        self.at(found, &path.join("."), store)
    }

    /// Returns the function at `path`; `name` is its name in the request.
    fn at(
        &self,
        path: FunctionPath,
        name: &str,
        store: &dyn Datastore,
    ) -> Result<Rc<UserFunction>> {
        let text = store.function(&path)?.ok_or_else(|| not_found(name))?;
        if let Some(known) = self.0.borrow().get(&path).filter(|known| known.text == text) {
            return Ok(Rc::clone(known));
        }
        let function = Rc::new(UserFunction::parse(path.clone(), text)?);
        let mut all = self.0.borrow_mut();
        if all.len() >= PARSED_MAX {
            all.pop_first();
        }
        all.insert(path, Rc::clone(&function));
        Ok(function)
    }
}

fn not_found(name: &str) -> Error {
    Error::new(10101, format!("Function not found: {name}"))
}

impl UserFunction {
    fn parse(path: FunctionPath, text: String) -> Result<UserFunction> {
        let mut statement = parse(&text)?;
        resolve(&mut statement)?;
        match statement {
            Statement::CreateFunction(mut definition) => {
                let needs = match &mut definition.body {
                    FunctionBody::Expr(body, _) => rights::of_expr(body),
                    _ => Needs::new(),
                };
                Ok(UserFunction { text, path, definition: *definition, needs })
            }
            _ => Err(Error::new(5000, "the statement of a function makes none")),
        }
    }

    /// Calls the function. The number of arguments must match.
    pub fn call(&self, args: Vec<Value>, run: &Run<'_>, context: &Context<'_>) -> Result<Value> {
        match &self.definition.body {
            FunctionBody::Expr(body, _) => {
                let env = match &self.definition.parameters {
                    None => Env::new().with(&"args".into(), Value::array(args)),
                    Some(names) => names
                        .iter()
                        .zip(args)
                        .fold(Env::new(), |env, (name, arg)| env.with(name, arg)),
                };
                run.nested(|| eval(body, &env, context))
            }
            code => script::call(&self.path, code, &args, run),
        }
    }

    /// Returns its row in `system:functions`.
    fn row(&self) -> Value {
        let parameters = self.definition.parameters.as_ref().map_or(Value::Null, |names| {
            Value::array(names.iter().map(|name| name.clone().into()).collect())
        });
        let definition = match &self.definition.body {
            FunctionBody::Expr(_, text) => Value::object([
                ("#language", Value::from("inline")),
                ("parameters", parameters),
                ("text", text.as_str().into()),
            ]),
            FunctionBody::Script(code) => Value::object([
                ("#language", Value::from("javascript")),
                ("parameters", parameters),
                ("text", code.clone().into()),
            ]),
            FunctionBody::External(function, library) => Value::object([
                ("#language", Value::from("javascript")),
                ("library", library.clone().into()),
                ("name", library.clone().into()),
                ("object", function.clone().into()),
                ("parameters", parameters),
            ]),
            FunctionBody::Deployed(function, deployment) => Value::object([
                ("#language", Value::from("wasm")),
                ("deployment", deployment.clone().into()),
                ("object", function.clone().into()),
                ("parameters", parameters),
            ]),
        };
        let of_scope = |part: fn(&(Name, Name)) -> &Name| {
            self.path.scope.as_ref().map_or(Value::Missing, |scope| part(scope).clone().into())
        };
        let identity = Value::object([
            ("bucket", of_scope(|(bucket, _)| bucket)),
            ("name", self.path.name.clone().into()),
            ("namespace", "default".into()),
            ("scope", of_scope(|(_, scope)| scope)),
            ("type", if self.path.scope.is_some() { "scope" } else { "global" }.into()),
        ]);
        Value::object([("definition", definition), ("identity", identity)])
    }
}

/// Returns the rows of `system:functions`.
pub(crate) fn rows(store: &dyn Datastore) -> Result<Vec<(Name, Value)>> {
    let row = |(path, text): (FunctionPath, String)| {
        Ok((path.to_string().into(), UserFunction::parse(path, text)?.row()))
    };
    store.functions()?.into_iter().map(row).collect()
}

pub(crate) fn create_function(function: &CreateFunction, run: &Run<'_>) -> Result<()> {
    if let FunctionBody::Expr(body, _) = &function.body
        && height(body) > HEIGHT_MAX
    {
        let message = format!("The body of function {} nests too deeply.", function.path);
        return Err(Error::new(3000, message));
    }
    let path = resolved(&function.path, run)?;
    let context = run.settings.context.as_ref();
    let script = script::of(&function.body, &path, context)?;
    let text = statement_of(function, script.as_ref());
    match run.store.create_function(&path, &text, script.as_ref(), function.replace) {
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

/// Explains a function without calling it: returns the plans of the queries in its expression, or the lines of its code with
/// queries. Functions that it calls are not included.
///
/// # Errors
/// Fails if the function does not exist, or a query cannot be planned.
pub(crate) fn explain_function(path: &Path, run: &Run<'_>) -> Result<Value> {
    let found = resolved(path, run)?;
    let function = run.service.functions.at(found, &path.to_string(), run.store)?;
    rights::ask(&function.needs, run)?;
    let mut fields = vec![("function", Value::from(function.path.to_string()))];
    match &function.definition.body {
        FunctionBody::Expr(body, _) => {
            let mut plans = Vec::new();
            add_plans(&mut body.clone(), run, &mut plans)?;
            fields.push(("plans", plans.into()));
        }
        FunctionBody::Script(code) => {
            let lines = lines::of_queries(code, &function.path.name).into_iter();
            let lines: Vec<Value> = lines.map(|line| Value::Int(line as i64)).collect();
            fields.push(("line_numbers", lines.into()));
        }
        FunctionBody::External(..) | FunctionBody::Deployed(..) => {}
    }
    Ok(Value::object(fields))
}

/// Adds the plan of each query in `expr`; nested queries follow their outer query.
fn add_plans(expr: &mut Expr, run: &Run<'_>, plans: &mut Vec<Value>) -> Result<()> {
    if let Expr::Subquery(select) = expr {
        let plan = explain::explain(&nacre_planner::plan(select, run)?.root);
        let statement = select.to_string();
        plans.push(Value::object([("plan", plan), ("statement", statement.into())]));
    }
    each_child(expr, &mut |child| add_plans(child, run, plans))
}

fn resolved(path: &Path, run: &Run<'_>) -> Result<FunctionPath> {
    // With a namespace, a single name is that of a global function.
    let context = run.settings.context.as_ref().filter(|_| path.namespace.is_none());
    path_of(&path.parts, context).ok_or_else(|| not_found(&path.to_string()))
}

/// Returns the path of a function. A single name belongs to the scope of the query context, if there is one. In a call, a
/// namespace is the first part.
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

/// Returns the CREATE statement of a function, with its full path.
fn statement_of(function: &CreateFunction, script: Option<&Script>) -> String {
    let parameters = match &function.parameters {
        None => "...".to_owned(),
        Some(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let head = format!("CREATE FUNCTION {}({parameters})", function.path);
    match (&function.body, script) {
        (FunctionBody::Expr(_, text), _) => format!("{head} {{ {text} }}"),
        (FunctionBody::External(function, _), Some(Script::Library { library, .. })) => format!(
            "{head} LANGUAGE JAVASCRIPT AS {} AT {}",
            quoted(function),
            quoted(&script::path_of(library))
        ),
        (FunctionBody::Deployed(function, deployment), _) => {
            format!("{head} LANGUAGE WASM AS {} AT {}", quoted(function), quoted(deployment))
        }
        (FunctionBody::Script(code) | FunctionBody::External(code, _), _) => {
            format!("{head} LANGUAGE JAVASCRIPT AS {}", quoted(code))
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_string(text, &mut out);
    out
}

/// Returns the height of an expression.
fn height(expr: &Expr) -> usize {
    let mut below = 0;
    let walked = each_child(&mut expr.clone(), &mut |child| {
        below = below.max(height(child));
        Ok(())
    });
    debug_assert!(walked.is_ok(), "measuring refuses nothing");
    below + 1
}
