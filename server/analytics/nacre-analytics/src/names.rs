//! Names in FROM: a visible variable, an analytics collection, or a collection of the catalog.
//!
//! ```text
//! FROM orders o, o.lines l, Metadata.`Index` i     o.lines begins with a variable, and stays
//!      unchanged └► `Default`.`_`.`orders`                   └► an array with the rows of the catalog
//! ```

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use nacre_sql::ast::{Binding, Body, Expr, FromTerm, On, Path, Projection, Select, Source, Term};
use nacre_sql::{Name, Value, each_child};
use std::collections::BTreeSet;

/// The middle part of resolved collection paths: scope of analytics, this, name.
pub(crate) const BETWEEN: &str = "_";
/// The scope of the catalog.
const METADATA: &str = "Metadata";

/// Resolves the names of collections in a query.
pub struct Resolver<'a> {
    catalog: &'a Catalog,
    scope: &'a str,
    text: &'a str,
    variables: Vec<Name>,
    /// Scope and name of the collections that are read.
    pub used: BTreeSet<(String, String)>,
}

/// Returns scope and name in a resolved path.
pub fn parts_of(path: &Path) -> Option<(&str, &str)> {
    match &path.parts[..] {
        [scope, between, name] if **between == *BETWEEN => Some((scope, name)),
        _ => None,
    }
}

impl<'a> Resolver<'a> {
    /// Returns a resolver of the names in `text`, for a request in a scope.
    pub fn new(catalog: &'a Catalog, scope: &'a str, text: &'a str) -> Resolver<'a> {
        Resolver { catalog, scope, text, variables: Vec::new(), used: BTreeSet::new() }
    }

    /// Resolves the names in a query.
    ///
    /// # Errors
    /// Code 24045 for a name that is neither a collection nor a variable.
    pub fn select(&mut self, select: &mut Select) -> Result<()> {
        let outside = self.variables.len();
        for with in &mut select.with {
            if with.recursive {
                self.variables.push(with.alias.clone());
            }
            self.expr(&mut with.expr)?;
            self.variables.push(with.alias.clone());
        }
        match &mut select.body {
            Body::Block(block) => {
                // ORDER BY sees the variables of the block.
                let before = self.variables.len();
                self.block(block)?;
                for term in &mut select.order {
                    self.expr(&mut term.expr)?;
                }
                self.variables.truncate(before);
            }
            body => {
                self.body(body)?;
                select.order.iter_mut().try_for_each(|term| self.expr(&mut term.expr))?;
            }
        }
        for expr in select.limit.iter_mut().chain(&mut select.offset) {
            self.expr(expr)?;
        }
        self.variables.truncate(outside);
        Ok(())
    }

    fn body(&mut self, body: &mut Body) -> Result<()> {
        match body {
            Body::Block(block) => {
                let before = self.variables.len();
                self.block(block)?;
                self.variables.truncate(before);
                Ok(())
            }
            Body::Nested(select) => self.select(select),
            Body::Union(_, branches) => {
                branches.iter_mut().try_for_each(|branch| self.body(branch))
            }
            Body::Set(_, _, left, right) => {
                self.body(left)?;
                self.body(right)
            }
        }
    }

    fn block(&mut self, block: &mut nacre_sql::ast::Block) -> Result<()> {
        if let Some(from) = &mut block.from {
            self.term(&mut from.first)?;
            for join in &mut from.joins {
                self.term(&mut join.term)?;
                match &mut join.on {
                    On::Nothing => {}
                    On::Condition(expr) | On::Keys(expr) | On::KeyFor(expr, _) => {
                        self.expr(expr)?
                    }
                }
            }
        }
        for (name, expr) in &mut block.lets {
            self.expr(expr)?;
            self.variables.push(name.clone());
        }
        block.condition.iter_mut().try_for_each(|expr| self.expr(expr))?;
        if let Some(group) = &mut block.group {
            for (expr, alias) in &mut group.by {
                self.expr(expr)?;
                self.variables.extend(alias.clone());
            }
            self.variables.extend(group.name.clone());
            for (name, expr) in &mut group.letting {
                self.expr(expr)?;
                self.variables.push(name.clone());
            }
            group.having.iter_mut().try_for_each(|expr| self.expr(expr))?;
        }
        match &mut block.projection {
            Projection::Raw(expr, _) => self.expr(expr),
            Projection::Terms(terms, _) => terms.iter_mut().try_for_each(|term| match term {
                Term::Star => Ok(()),
                Term::StarOf(expr) | Term::Expr(expr, _) => self.expr(expr),
            }),
        }
    }

    fn term(&mut self, term: &mut FromTerm) -> Result<()> {
        match &mut term.source {
            Source::Expr(expr) => self.expr(expr)?,
            Source::Keyspace(path) => {
                let is_variable =
                    path.namespace.is_none() && self.variables.contains(&path.parts[0]);
                if !is_variable {
                    term.source = self.collection(path)?;
                }
            }
        }
        self.variables.push(term.alias.clone());
        Ok(())
    }

    fn expr(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Subquery(select) => self.select(select),
            Expr::Quantified(quantified) => {
                let before = self.variables.len();
                self.bindings(&mut quantified.bindings)?;
                self.expr(&mut quantified.condition)?;
                self.variables.truncate(before);
                Ok(())
            }
            Expr::Comprehension(comprehension) => {
                let before = self.variables.len();
                self.bindings(&mut comprehension.bindings)?;
                self.expr(&mut comprehension.value)?;
                comprehension.condition.iter_mut().try_for_each(|expr| self.expr(expr))?;
                self.variables.truncate(before);
                Ok(())
            }
            _ => {
                let mut outcome = Ok(());
                let walked = each_child(expr, &mut |child| {
                    if outcome.is_ok() {
                        outcome = self.expr(child);
                    }
                    Ok(())
                });
                walked.map_err(Error::from)?;
                outcome
            }
        }
    }

    fn bindings(&mut self, bindings: &mut [Binding]) -> Result<()> {
        for binding in bindings {
            self.expr(&mut binding.source)?;
            self.variables.push(binding.variable.clone());
        }
        Ok(())
    }

    /// Returns the collection that a path refers to.
    fn collection(&mut self, path: &Path) -> Result<Source> {
        let parts: Vec<&str> = path.parts.iter().map(|part| &**part).collect();
        let (name, scope) = parts.split_last().expect("paths have parts");
        let scope = if scope.is_empty() { self.scope.to_owned() } else { scope.join("/") };
        if scope == METADATA {
            return match self.catalog.metadata(name) {
                Some(rows) => Ok(Source::Expr(Expr::Literal(Value::array(rows)))),
                None => Err(self.unknown(&scope, name)),
            };
        }
        if self.scope != crate::statement::DEFAULT_SCOPE || parts.len() > 1 {
            self.catalog.scope(&scope)?;
        }
        let Some((scope, name)) = self.catalog.resolve(&scope, name) else {
            return Err(self.unknown(&scope, name));
        };
        let parts = vec![scope.as_str().into(), BETWEEN.into(), name.as_str().into()];
        self.used.insert((scope, name));
        Ok(Source::Keyspace(Path { namespace: None, parts }))
    }

    fn unknown(&self, scope: &str, name: &str) -> Error {
        let at = self.text.find(name).unwrap_or(0);
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Error::new(
            24045,
            format!(
                "Cannot find analytics collection {name} in analytics scope {scope} nor an alias with name {name} \
                 (in line {line}, at column {column})"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Collection;
    use nacre_sql::ast::Statement;
    use nacre_sql::parse_analytics;
    use std::collections::BTreeMap;

    fn resolved(text: &str) -> std::result::Result<String, u32> {
        let mut catalog = Catalog::default();
        let source = ["b", "s", "c"].map(String::from);
        let collection = Collection { source, condition: None, indexes: BTreeMap::new() };
        let mut scope = crate::catalog::Scope::default();
        scope.collections.insert("c".into(), collection.clone());
        catalog.scopes.insert("b/s".into(), scope);
        let scope = catalog.scope_mut("Default").unwrap();
        scope.collections.insert("orders".into(), collection);
        let Ok(Statement::Select(mut select)) = parse_analytics(text) else { panic!("{text}") };
        Resolver::new(&catalog, "Default", text).select(&mut select).map_err(|error| error.code)?;
        Ok(select.to_string())
    }

    #[test]
    fn variables_come_before_collections() {
        let text = resolved("SELECT 1 FROM orders o, o.lines l, b.s.c x").unwrap();
        assert!(
            text.contains("`Default`.`_`.`orders`") && text.contains("`b/s`.`_`.`c`"),
            "{text}"
        );
        assert!(text.contains("`o`.`lines`") && !text.contains("`_`.`lines`"), "{text}");
    }

    #[test]
    fn subqueries_see_the_variables_around_them() {
        assert!(resolved("SELECT 1 FROM orders o WHERE EXISTS (SELECT 1 FROM o.lines l)").is_ok());
        assert_eq!(
            resolved("SELECT 1 FROM orders WHERE EXISTS (SELECT 1 FROM x.lines l)"),
            Err(24034)
        );
        assert_eq!(resolved("SELECT 1 FROM nothing"), Err(24045));
        // A variable is visible only after its term.
        assert!(resolved("SELECT 1 FROM o.lines l, orders o").is_err());
    }
}
