//! Resolves names: a name is a visible variable, or a field of the only term of FROM.

use crate::ast::{
    Binding, Block, Body, Collect, Expr, From, FromTerm, Group, On, OrderTerm, Path, Projection,
    Select, Source, Term, Window,
};
use crate::parser::no_keys_of;
use crate::visit::each_child;
use crate::{AMBIGUOUS, Error, Name, PLAN, Result, SEMANTICS, Value};
use std::collections::BTreeSet;

/// The name of the row in ORDER BY after a set operator; users cannot write it without quotes.
pub const RESULT: &str = "#result";

/// Maximum number of visible variables; evaluation visits each of them.
const VARIABLES_MAX: usize = 400;

/// The visible names at a place.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    variables: Vec<Name>,
    /// Variables whose rows are documents of the keyspace with the same name.
    keyspaces: Vec<Name>,
    /// All visible terms of FROM, including those of outer queries; their names must be unique.
    aliases: Vec<Name>,
    /// The terms of FROM whose fields may be written without qualification.
    terms: Vec<Name>,
}

impl Scope {
    /// Creates a scope without names.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Creates a scope in which fields of `alias` may be written without qualification.
    pub fn of_term(alias: &Name) -> Scope {
        let mut scope = Scope::default();
        scope.variables.push(alias.clone());
        scope.terms.push(alias.clone());
        scope
    }

    /// Adds another term, so that fields must be qualified.
    pub fn add_alias(&mut self, alias: &Name) {
        self.variables.push(alias.clone());
        self.terms.push(alias.clone());
    }

    /// Adds a variable.
    pub fn add(&mut self, name: &Name) {
        self.variables.push(name.clone());
    }

    fn sees(&self, name: &str) -> bool {
        self.variables.iter().any(|variable| **variable == *name)
    }

    /// Returns the term to which unqualified fields belong.
    fn implied(&self, field: &str) -> Result<&Name> {
        match &self.terms[..] {
            [term] => Ok(term),
            _ => Err(Error::new(AMBIGUOUS, format!("Ambiguous reference to field '{field}'."))),
        }
    }
}

/// Resolves the names in `expr`.
///
/// # Errors
/// Fails for a field that could belong to several terms, or to none.
pub fn resolve_expr(expr: &mut Expr, scope: &Scope) -> Result<()> {
    match expr {
        Expr::Ident(name) => {
            if !scope.sees(name) {
                let term = Expr::Ident(scope.implied(name)?.clone());
                *expr = Expr::Field(Box::new(term), name.clone(), false);
            }
            Ok(())
        }
        Expr::Itself => {
            let field = |name: &Name| {
                (Expr::Literal(Value::String(name.clone())), Expr::Ident(name.clone()))
            };
            *expr = Expr::Object(scope.terms.iter().map(field).collect());
            Ok(())
        }
        Expr::Call(function, args)
            if args.is_empty()
                && matches!(function.name, "META" | "SEARCH_META" | "SEARCH_SCORE") =>
        {
            let [term] = &scope.terms[..] else {
                let message = format!("{}() needs to say of which term of FROM", function.name);
                return Err(Error::new(4310, message));
            };
            args.push(Expr::Ident(term.clone()));
            Ok(())
        }
        Expr::Quantified(quantified) => {
            let inner = resolve_bindings(&mut quantified.bindings, scope)?;
            resolve_expr(&mut quantified.condition, &inner)
        }
        Expr::Comprehension(comprehension) => {
            let inner = resolve_bindings(&mut comprehension.bindings, scope)?;
            if let Collect::Object(name) = &mut comprehension.collect {
                resolve_expr(name, &inner)?;
            }
            resolve_expr(&mut comprehension.value, &inner)?;
            comprehension.condition.iter_mut().try_for_each(|expr| resolve_expr(expr, &inner))
        }
        Expr::Subquery(select) => resolve_select(select, scope),
        _ => {
            each_child(expr, &mut |child| resolve_expr(child, scope))?;
            fold(expr);
            Ok(())
        }
    }
}

/// Replaces an array or object of literals by one literal, so that it is not built for each row.
fn fold(expr: &mut Expr) {
    let known = |expr: &Expr| match expr {
        Expr::Literal(value) if !value.is_missing() => Some(value.clone()),
        _ => None,
    };
    let folded = match expr {
        Expr::Array(elements) => {
            elements.iter().map(known).collect::<Option<_>>().map(Value::array)
        }
        Expr::Object(fields) => {
            let field = |(name, value): &(Expr, Expr)| match known(name)? {
                Value::String(name) => Some((name, known(value)?)),
                _ => None,
            };
            fields.iter().map(field).collect::<Option<Vec<_>>>().map(Value::object)
        }
        _ => None,
    };
    if let Some(value) = folded {
        *expr = Expr::Literal(value);
    }
}

fn resolve_bindings(bindings: &mut [Binding], scope: &Scope) -> Result<Scope> {
    let mut inner = scope.clone();
    for binding in bindings {
        resolve_expr(&mut binding.source, scope)?;
        inner.add(&binding.variable);
        inner.variables.extend(binding.position.clone());
    }
    Ok(inner)
}

/// Resolves the names in a query inside of `outer`.
///
/// # Errors
/// As for [`resolve_expr`]; also fails for an alias that is used twice.
pub fn resolve_select(select: &mut Select, outer: &Scope) -> Result<()> {
    let mut scope = outer.clone();
    for with in &mut select.with {
        if with.recursive {
            // A recursive query sees itself; other queries see the ones before them.
            scope.add(&with.alias);
        }
        resolve_expr(&mut with.expr, &scope)?;
        let row = Scope::of_term(&with.alias);
        with.cycle.iter_mut().try_for_each(|expr| resolve_expr(expr, &row))?;
        with.options.iter_mut().try_for_each(|expr| resolve_expr(expr, &Scope::new()))?;
        scope.add(&with.alias);
        scope.keyspaces.retain(|name| *name != with.alias);
    }
    match &mut select.body {
        Body::Block(block) => resolve_block(block, &mut select.order, &scope)?,
        body => {
            resolve_body(body, &scope)?;
            let mut results = Scope::of_term(&RESULT.into());
            results.variables.extend(scope.variables.iter().cloned());
            select.order.iter_mut().try_for_each(|term| resolve_expr(&mut term.expr, &results))?;
        }
    }
    // LIMIT and OFFSET apply to all rows, so they cannot depend on a row.
    let mut outside = outer.clone();
    outside.variables.extend(select.with.iter().map(|with| with.alias.clone()));
    select
        .limit
        .iter_mut()
        .chain(&mut select.offset)
        .try_for_each(|expr| resolve_expr(expr, &outside))
}

fn resolve_body(body: &mut Body, scope: &Scope) -> Result<()> {
    match body {
        Body::Block(block) => resolve_block(block, &mut [], scope),
        Body::Nested(select) => resolve_select(select, scope),
        Body::Union(_, branches) => {
            branches.iter_mut().try_for_each(|branch| resolve_body(branch, scope))
        }
        Body::Set(_, _, left, right) => {
            resolve_body(left, scope)?;
            resolve_body(right, scope)
        }
    }
}

fn resolve_block(block: &mut Block, order: &mut [OrderTerm], outer: &Scope) -> Result<()> {
    let mut scope = outer.clone();
    if let Some(from) = &mut block.from {
        scope.terms.clear();
        resolve_from(from, &mut scope)?;
    }
    for (name, expr) in &mut block.lets {
        resolve_expr(expr, &scope)?;
        scope.add(name);
    }
    if scope.variables.len() > VARIABLES_MAX {
        return Err(Error::new(PLAN, format!("more than {VARIABLES_MAX} variables")));
    }
    block.condition.iter_mut().try_for_each(|expr| resolve_expr(expr, &scope))?;
    if let Some(group) = &mut block.group {
        resolve_group(group, &mut scope)?;
    }
    substitute_aliases(order, &block.projection, &scope);
    resolve_projection(&mut block.projection, &scope)?;
    for (_, window) in &mut block.windows {
        resolve_window(window, &scope)?;
    }
    order.iter_mut().try_for_each(|term| resolve_expr(&mut term.expr, &scope))
}

fn resolve_window(window: &mut Window, scope: &Scope) -> Result<()> {
    window.partition.iter_mut().try_for_each(|expr| resolve_expr(expr, scope))?;
    window.order.iter_mut().try_for_each(|term| resolve_expr(&mut term.expr, scope))
}

fn resolve_group(group: &mut Group, scope: &mut Scope) -> Result<()> {
    for (expr, _) in &mut group.by {
        resolve_expr(expr, scope)?;
    }
    for (_, alias) in &group.by {
        scope.variables.extend(alias.clone());
    }
    scope.variables.extend(group.name.clone());
    for (name, expr) in &mut group.letting {
        resolve_expr(expr, scope)?;
        scope.add(name);
    }
    group.having.iter_mut().try_for_each(|expr| resolve_expr(expr, scope))
}

fn resolve_from(from: &mut From, scope: &mut Scope) -> Result<()> {
    resolve_source(&mut from.first, scope)?;
    add_term(&from.first, scope)?;
    for join in &mut from.joins {
        resolve_source(&mut join.term, scope)?;
        let before = scope.clone();
        add_term(&join.term, scope)?;
        match &mut join.on {
            On::Nothing => {}
            On::Condition(condition) => resolve_expr(condition, scope)?,
            // The keys belong to the terms on the left.
            On::Keys(keys) => resolve_expr(keys, &before)?,
            // The key is a field of the new documents, and contains the ID of the document on the left.
            On::KeyFor(key, _) => {
                resolve_expr(key, &Scope { terms: vec![join.term.alias.clone()], ..scope.clone() })?
            }
        }
    }
    Ok(())
}

fn add_term(term: &FromTerm, scope: &mut Scope) -> Result<()> {
    if scope.aliases.contains(&term.alias) {
        return Err(Error::new(4020, format!("Duplicate subquery alias: {}", term.alias)));
    }
    scope.aliases.push(term.alias.clone());
    scope.keyspaces.retain(|name| *name != term.alias);
    if let Source::Keyspace(path) = &term.source
        && path.parts.last() == Some(&term.alias)
    {
        scope.keyspaces.push(term.alias.clone());
    }
    scope.terms.push(term.alias.clone());
    scope.add(&term.alias);
    Ok(())
}

/// Resolves the source of a term: a path that starts with a variable is an expression.
///
/// A single name that equals the alias and the keyspace of a visible term means the keyspace again.
///
/// # Errors
/// As for [`resolve_expr`].
pub fn resolve_source(term: &mut FromTerm, scope: &Scope) -> Result<()> {
    if let Some(keys) = &mut term.hints.keys {
        resolve_expr(keys, scope)?;
    }
    if let Source::Keyspace(Path { namespace: None, parts }) = &term.source
        && scope.sees(&parts[0])
        && !(parts.len() == 1 && scope.keyspaces.contains(&parts[0]))
    {
        let (first, rest) = parts.split_first().expect("paths have parts");
        let path = rest.iter().fold(Expr::Ident(first.clone()), |of, name| {
            Expr::Field(Box::new(of), name.clone(), false)
        });
        if term.hints.keys.is_some() || term.hints.has_indexes() {
            return Err(no_keys_of("FROM Expression"));
        }
        term.source = Source::Expr(path);
        return Ok(());
    }
    match &mut term.source {
        Source::Expr(expr) => resolve_expr(expr, scope),
        Source::Keyspace(_) => Ok(()),
    }
}

/// Resolves a projection.
///
/// # Errors
/// As for [`resolve_expr`]; also fails for `*` without FROM, and for a duplicate name.
pub fn resolve_projection(projection: &mut Projection, scope: &Scope) -> Result<()> {
    match projection {
        Projection::Raw(expr, _) => resolve_expr(expr, scope),
        Projection::Terms(..) => {
            check_names(projection)?;
            let Projection::Terms(terms, _) = projection else { return Ok(()) };
            terms.iter_mut().try_for_each(|term| match term {
                Term::Star if scope.terms.is_empty() => {
                    Err(Error::new(SEMANTICS, "* needs a FROM clause"))
                }
                Term::Star => Ok(()),
                Term::StarOf(expr) | Term::Expr(expr, _) => resolve_expr(expr, scope),
            })
        }
    }
}

/// Refuses two terms that would be the same field of a row.
fn check_names(projection: &Projection) -> Result<()> {
    let mut known = BTreeSet::new();
    for name in projection.names().into_iter().flatten() {
        if !known.insert(name.clone()) {
            return Err(Error::new(4020, format!("Duplicate result alias: {name}")));
        }
    }
    Ok(())
}

/// Replaces aliases of the projection in ORDER BY by their expressions.
fn substitute_aliases(order: &mut [OrderTerm], projection: &Projection, scope: &Scope) {
    let mut named: Vec<(Name, Expr)> = Vec::new();
    let mut implied: Vec<(Name, Expr)> = Vec::new();
    match projection {
        Projection::Raw(expr, alias) => {
            named.extend(alias.clone().map(|alias| (alias, expr.clone())));
            implied.extend(expr.implicit_name().map(|name| (name, expr.clone())));
        }
        Projection::Terms(terms, _) => {
            for (term, name) in terms.iter().zip(projection.names()) {
                if let (Term::Expr(expr, alias), Some(name)) = (term, name) {
                    let list = if alias.is_some() { &mut named } else { &mut implied };
                    list.push((name, expr.clone()));
                }
            }
        }
    }
    // The name of a variable cannot be the implicit name of another expression.
    implied.retain(|(name, _)| !scope.sees(name));
    named.extend(implied);
    for term in order {
        substitute(&mut term.expr, &named);
    }
}

fn substitute(expr: &mut Expr, named: &[(Name, Expr)]) {
    if let Expr::Ident(name) = expr {
        if let Some((_, selected)) = named.iter().find(|(alias, _)| alias == name) {
            *expr = selected.clone();
        }
    } else if !matches!(expr, Expr::Subquery(_) | Expr::Quantified(_) | Expr::Comprehension(_)) {
        let done = each_child(expr, &mut |child| {
            substitute(child, named);
            Ok(())
        });
        debug_assert!(done.is_ok(), "substitution refuses nothing");
    }
}

impl Projection {
    /// Returns the names of the fields of a row: explicit, implicit, or `$1`, `$2`, …; `None` for `*`.
    pub fn names(&self) -> Vec<Option<Name>> {
        let mut unnamed = 0;
        let Projection::Terms(terms, _) = self else { return Vec::new() };
        let names = terms.iter().map(|term| match term {
            Term::Star | Term::StarOf(_) => None,
            Term::Expr(expr, alias) => {
                alias.clone().or_else(|| expr.implicit_name()).or_else(|| {
                    unnamed += 1;
                    Some(format!("${unnamed}").into())
                })
            }
        });
        names.collect()
    }
}
