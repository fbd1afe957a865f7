//! Plans to rows: each operator is asked for its next row, and asks the one that it reads from.

pub(crate) mod aggregate;
mod group;
mod join;
pub(crate) mod scan;
mod set;
mod sort;
mod spans;
pub(crate) mod staged;
mod window;

use crate::plan::{Node, Project};
use crate::run::Run;
use nacre_sql::ast::{Expr, Projection, Term};
use nacre_sql::{Content, Context, Env, Error, Json, Name, Object, RESULT, Result, Value, eval};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Something that makes rows.
pub(crate) trait Operator {
    /// The next row, or none after the last.
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>>;

    /// What the next row gives, of an operator of which nothing else is asked.
    fn next_content(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Content>> {
        Ok(self.next(run, context)?.map(|row| content_of(&row)))
    }

    /// The next document, of a scan whose documents are all passed on.
    fn next_passed(&mut self, _: &Run<'_>, _: &Context<'_>) -> Result<Passed> {
        Ok(Passed::Unknown)
    }
}

/// What comes next of documents that are all passed on.
pub(crate) enum Passed {
    Document(Content),
    End,
    /// They are not: rows have to be looked at.
    Unknown,
}

pub(crate) type Rows = Box<dyn Operator>;

/// The name that a projected row has.
pub(crate) fn result_name() -> &'static Name {
    static NAME: OnceLock<Name> = OnceLock::new();
    NAME.get_or_init(|| RESULT.into())
}

/// The value of a projected row.
pub(crate) fn result_of(row: &Env) -> Value {
    row.get(result_name()).cloned().unwrap_or_default()
}

/// What a projected row has; a document that was selected whole is not read for that.
pub(crate) fn content_of(row: &Env) -> Content {
    row.content(result_name()).cloned().unwrap_or(Content::Value(Value::Missing))
}

/// Makes the operators of a plan, inside of the variables of `base`.
pub(crate) fn build(node: &Rc<Node>, base: &Env) -> Rows {
    let input =
        node.input().filter(|_| !matches!(**node, Node::With(..))).map(|input| build(input, base));
    let below = |input: Option<Rows>| input.expect("this operator reads from another");
    let node = node.clone();
    match &*node {
        Node::Dummy => Box::new(Once(Some(base.clone()))),
        Node::Scan(scan) => Box::new(scan::ScanRows::new(scan.clone(), base.clone())),
        Node::Count(..) => Box::new(Count { node, base: Some(base.clone()) }),
        Node::Join(..) => Box::new(join::JoinRows::new(node.clone(), below(input), base.clone())),
        Node::Group(..) => {
            Box::new(group::GroupRows::new(node.clone(), below(input), base.clone()))
        }
        Node::Window(..) => Box::new(window::WindowRows::new(node.clone(), below(input))),
        Node::Order(..) => Box::new(sort::OrderRows::new(node.clone(), below(input), base.clone())),
        Node::Page(..) => Box::new(sort::PageRows::new(node.clone(), below(input), base.clone())),
        Node::Distinct(_) => Box::new(set::DistinctRows::new(below(input))),
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

/// What looks at one row at a time.
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

    fn next_content(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Content>> {
        if let Node::Project(_, project) = &*self.node
            && let Some(name) = selected(project)
        {
            match self.input.next_passed(run, context)? {
                Passed::Document(content) => {
                    nacre_sql::Host::tick(run)?;
                    return selected_of(project, name, content, context).map(Some);
                }
                Passed::End => return Ok(None),
                Passed::Unknown => {}
            }
        }
        Ok(self.next(run, context)?.map(|row| content_of(&row)))
    }

    fn next_passed(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Passed> {
        match &*self.node {
            // The scan finds none for which the condition does not hold.
            Node::Filter(..) => self.input.next_passed(run, context),
            _ => Ok(Passed::Unknown),
        }
    }
}

/// The variable that is all that is selected.
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

/// The document of a row, if that is all that is selected, as it is stored.
fn whole_document(project: &Project, row: &Env) -> Option<Content> {
    let name = selected(project)?;
    match row.content(name)? {
        Content::Json(json) => whole(project, name, json),
        Content::Value(_) | Content::Named(_) => None,
    }
}

/// What is selected of a document, which is all that a row would have, under that name.
fn selected_of(
    project: &Project,
    name: &Name,
    content: Content,
    context: &Context<'_>,
) -> Result<Content> {
    let whole = match &content {
        Content::Json(json) => whole(project, name, json),
        _ => None,
    };
    match whole {
        Some(whole) => Ok(whole),
        None => Ok(projected(project, &Env::new().with(name, content), context)?.into()),
    }
}

/// What is selected of the document that `name` is bound to, without reading it.
fn whole(project: &Project, name: &Name, json: &Arc<Json>) -> Option<Content> {
    let document = || Content::Json(Arc::clone(json));
    let Projection::Terms(terms, _) = &project.projection else { return Some(document()) };
    match &terms[..] {
        // Of what is no object, nothing is left when its fields are selected.
        [Term::StarOf(_)] => json.is_object().then(document),
        [Term::Expr(_, Some(alias))] => Some(Content::named(alias.clone(), Arc::clone(json))),
        _ => Some(Content::named(name.clone(), Arc::clone(json))),
    }
}

/// What is selected of a row.
pub(crate) fn projected(project: &Project, row: &Env, context: &Context<'_>) -> Result<Value> {
    let (terms, excluded) = match &project.projection {
        Projection::Raw(expr, _) => return eval(expr, row, context),
        Projection::Terms(terms, excluded) => (terms, excluded),
    };
    // What is selected alone and whole needs no new object.
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

/// Takes a field away that EXCLUDE names.
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
