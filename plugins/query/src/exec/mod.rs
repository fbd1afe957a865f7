//! Executes plans: each operator returns its next row on request, and requests rows from its input.

pub(crate) mod aggregate;
mod group;
mod join;
mod pushed;
pub(crate) mod scan;
mod set;
pub(crate) mod sort;
mod spans;
pub(crate) mod staged;
mod wide;
mod window;

use crate::run::Run;
use nacre_datastore::DocumentRange;
use nacre_planner::{Node, Project};
use nacre_sql::ast::{Expr, Projection, Term};
use nacre_sql::{Content, Context, Env, Error, Name, Object, RESULT, Result, Value, eval};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// An operator, which produces rows.
pub(crate) trait Operator {
    /// Returns the next row; `None` after the last.
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>>;

    /// Returns the content of the next row, for callers that need nothing else of it.
    fn next_content(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Content>> {
        Ok(self.next(run, context)?.map(|row| content_of(&row)))
    }

    /// Returns at most `max` of the next documents, if the response passes all of them on without reading any; otherwise `None`,
    /// and the caller requests the next row.
    fn next_pass_through(
        &mut self,
        _max: usize,
        _: &Run<'_>,
        _: &Context<'_>,
    ) -> Result<Option<PassThrough>> {
        Ok(None)
    }
}

/// Rows that are documents in their stored form; the response passes them through unread.
pub(crate) struct PassThrough {
    pub documents: DocumentRange,
    /// The name of the field that has the document, if each row is an object around it.
    pub name: Option<Name>,
}

pub(crate) type Rows = Box<dyn Operator>;

/// Returns the variable name of a projected row.
pub(crate) fn result_name() -> &'static Name {
    static NAME: OnceLock<Name> = OnceLock::new();
    NAME.get_or_init(|| RESULT.into())
}

/// Returns the value of a projected row.
pub(crate) fn result_of(row: &Env) -> Value {
    row.get(result_name()).cloned().unwrap_or_default()
}

/// Returns the content of a projected row; a document that was selected as a whole is not parsed.
pub(crate) fn content_of(row: &Env) -> Content {
    row.content(result_name()).cloned().unwrap_or(Content::Value(Value::Missing))
}

/// Creates the operators of a plan, within the variables of `base`.
pub(crate) fn build(node: &Rc<Node>, base: &Env) -> Rows {
    let input =
        node.input().filter(|_| !matches!(**node, Node::With(..))).map(|input| build(input, base));
    let below = |input: Option<Rows>| input.expect("this operator reads from another");
    let node = node.clone();
    match &*node {
        Node::Dummy => Box::new(Once(Some(base.clone()))),
        Node::Scan(_) => Box::new(scan::ScanRows::new(node, base.clone())),
        Node::Count(..) => Box::new(Count { node, base: Some(base.clone()) }),
        Node::Join(..) => Box::new(join::JoinRows::new(node.clone(), below(input), base.clone())),
        Node::Group(..) => {
            Box::new(group::GroupRows::new(node.clone(), below(input), base.clone()))
        }
        Node::Window(..) => Box::new(window::WindowRows::new(node.clone(), below(input))),
        Node::Order(..) => Box::new(sort::OrderRows::new(node.clone(), below(input), base.clone())),
        Node::Page(..) => Box::new(sort::PageRows::new(node.clone(), below(input), base.clone())),
        Node::Distinct(_) => Box::new(set::DistinctRows::new(below(input))),
        Node::Union(all, branches) => {
            let branches = branches.iter().map(|branch| build(branch, base)).collect();
            let rows: Rows = Box::new(set::UnionRows::new(branches));
            if *all { rows } else { Box::new(set::DistinctRows::new(rows)) }
        }
        Node::Set(_, _, left, right) => {
            Box::new(set::SetRows::new(node.clone(), build(left, base), build(right, base)))
        }
        Node::With(..) => Box::new(set::WithRows::new(node.clone(), base.clone())),
        Node::Let(..) | Node::Filter(..) | Node::Project(..) => {
            Box::new(Map { node, input: below(input) })
        }
    }
}

struct Once(Option<Env>);

impl Operator for Once {
    fn next(&mut self, _: &Run<'_>, _: &Context<'_>) -> Result<Option<Env>> {
        Ok(self.0.take())
    }
}

struct Count {
    node: Rc<Node>,
    base: Option<Env>,
}

impl Operator for Count {
    fn next(&mut self, run: &Run<'_>, _: &Context<'_>) -> Result<Option<Env>> {
        let (Node::Count(keyspace, name), Some(base)) = (&*self.node, self.base.take()) else {
            return Ok(None);
        };
        let count = run.store.count(keyspace, &run.settings.consistency)?;
        Ok(Some(base.with(name, Value::Int(count as i64))))
    }
}

/// An operator that processes one row at a time.
struct Map {
    node: Rc<Node>,
    input: Rows,
}

impl Operator for Map {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        while let Some(row) = self.input.next(run, context)? {
            nacre_sql::Host::tick(run)?;
            match &*self.node {
                Node::Filter(_, condition) => {
                    if eval(condition, &row, context)?.truth() {
                        return Ok(Some(row));
                    }
                }
                Node::Let(_, variables) => {
                    let mut row = row;
                    for (name, expr) in variables {
                        let value = eval(expr, &row, context)?;
                        row = row.with(name, value);
                    }
                    return Ok(Some(row));
                }
                Node::Project(_, project) => {
                    let content = match whole_document(project, &row) {
                        Some(document) => document,
                        None => projected(project, &row, context)?.into(),
                    };
                    return Ok(Some(row.with(result_name(), content)));
                }
                _ => return Err(Error::execution("an operator is in a place that is not its own")),
            }
        }
        Ok(None)
    }

    fn next_pass_through(
        &mut self,
        max: usize,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<PassThrough>> {
        match &*self.node {
            // The scan already excludes rows that do not satisfy the condition.
            Node::Filter(..) => self.input.next_pass_through(max, run, context),
            Node::Project(_, project) => {
                let Some(name) = selected(project) else { return Ok(None) };
                let rows = self.input.next_pass_through(max, run, context)?;
                Ok(rows.map(|rows| PassThrough { name: named(project, name), ..rows }))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the variable, if it is all that is selected.
fn selected(project: &Project) -> Option<&Name> {
    match &project.projection {
        Projection::Raw(Expr::Ident(name), _) => Some(name),
        Projection::Terms(terms, excluded) if excluded.is_empty() => match &terms[..] {
            [Term::StarOf(Expr::Ident(name)) | Term::Expr(Expr::Ident(name), Some(_))] => {
                Some(name)
            }
            [Term::Star] => match &project.star[..] {
                [name] => Some(name),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Returns the stored document of a row, if that is all that is selected.
fn whole_document(project: &Project, row: &Env) -> Option<Content> {
    let name = selected(project)?;
    let Content::Json(json) = row.content(name)? else { return None };
    match (&project.projection, named(project, name)) {
        (_, Some(name)) => Some(Content::named(name, Arc::clone(json))),
        // Selecting the fields of a value that is not an object gives an empty object.
        (Projection::Terms(..), None) if !json.is_object() => None,
        _ => Some(Content::Json(Arc::clone(json))),
    }
}

/// Returns the field that has the document in a row, if the document is not the row itself; `name` is the variable that is
/// [`selected`].
fn named(project: &Project, name: &Name) -> Option<Name> {
    let Projection::Terms(terms, _) = &project.projection else { return None };
    match &terms[..] {
        [Term::StarOf(_)] => None,
        [Term::Expr(_, Some(alias))] => Some(alias.clone()),
        _ => Some(name.clone()),
    }
}

/// Returns the projection of a row.
pub(crate) fn projected(project: &Project, row: &Env, context: &Context<'_>) -> Result<Value> {
    let (terms, excluded) = match &project.projection {
        Projection::Raw(expr, _) => return eval(expr, row, context),
        Projection::Terms(terms, excluded) => (terms, excluded),
    };
    // A single `expr.*` needs no new object.
    if let ([Term::StarOf(expr)], []) = (&terms[..], &excluded[..]) {
        let value = eval(expr, row, context)?;
        return Ok(if value.as_object().is_some() { value } else { Value::object::<Name>([]) });
    }
    let mut object = Object::default();
    for term in terms {
        match term {
            Term::Star => {
                for name in &project.star {
                    if let Some(value) = row.get(name).filter(|value| !value.is_missing()) {
                        object.insert(name.clone(), value.clone());
                    }
                }
            }
            Term::StarOf(expr) => {
                let value = eval(expr, row, context)?;
                let fields = value.as_object().into_iter().flatten();
                object.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
            }
            Term::Expr(expr, name) => {
                let value = eval(expr, row, context)?;
                if let (false, Some(name)) = (value.is_missing(), name) {
                    object.insert(name.clone(), value);
                }
            }
        }
    }
    let mut value = Value::Object(Arc::new(object));
    for path in excluded {
        exclude(&mut value, path);
    }
    Ok(value)
}

/// Removes a field that EXCLUDE names.
fn exclude(value: &mut Value, path: &Expr) {
    let mut names = Vec::new();
    let mut at = path;
    loop {
        match at {
            Expr::Ident(name) => {
                names.push(name.clone());
                break;
            }
            Expr::Field(of, name, _) => {
                names.push(name.clone());
                at = of;
            }
            Expr::Literal(Value::String(list)) => {
                for name in list.split(',') {
                    exclude(value, &Expr::Ident(name.trim().into()));
                }
                return;
            }
            _ => return,
        }
    }
    names.reverse();
    remove(value, &names);
}

fn remove(value: &mut Value, path: &[Name]) {
    let Value::Object(fields) = value else { return };
    let fields = Arc::make_mut(fields);
    match path {
        [] => {}
        [name] => {
            fields.shift_remove(name);
        }
        [name, rest @ ..] => {
            if let Some(inner) = fields.get_mut(name) {
                remove(inner, rest);
            }
        }
    }
}
