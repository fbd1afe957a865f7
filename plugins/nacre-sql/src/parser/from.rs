//! Parses FROM: terms, joins and hints.

use super::Parser;
use crate::ast::{Expr, From, FromTerm, Hints, Join, JoinKind, On, Path, Side, Source};
use crate::lexer::Token;
use crate::{Error, Name, Result};

impl Parser<'_> {
    pub(super) fn terms_of_from(&mut self) -> Result<From> {
        let first = self.term_of_from()?;
        let mut joins = Vec::new();
        while let Some(join) = self.join()? {
            joins.push(join);
        }
        // A right join is executed from the right, so its hint is on the left term.
        let is_turned = joins.first().is_some_and(|join: &Join| join.side == Side::Right);
        if first.hints.hash.is_some() && !is_turned {
            let message = format!(
                "Join hint (USE HASH or USE NL) cannot be specified on the first from term {}",
                first.alias
            );
            return Err(Error::new(3290, message));
        }
        Ok(From { first, joins })
    }

    pub(super) fn term_of_from(&mut self) -> Result<FromTerm> {
        let mut source = self.source()?;
        let (alias, hints) = self.alias_and_hints(&source)?;
        if let Source::Expr(expr) = &source
            && (hints.keys.is_some() || hints.has_indexes())
        {
            // A parameter with keys names a keyspace.
            match Path::of_parameter(expr) {
                Some(path) if !hints.has_indexes() => source = Source::Keyspace(path),
                _ => return Err(no_keys_of("FROM Expression")),
            }
        }
        Ok(FromTerm { source, alias, hints })
    }

    fn source(&mut self) -> Result<Source> {
        let start = self.at;
        if matches!(self.peek(), Token::Word(_) | Token::Quoted(..))
            && let Ok(path) = self.path()
            && !matches!(
                self.peek(),
                Token::Symbol("(" | "[" | "." | "||" | "+" | "-" | "*" | "/" | "=")
            )
        {
            return Ok(Source::Keyspace(path));
        }
        self.at = start;
        Ok(Source::Expr(self.expr()?))
    }

    fn alias_and_hints(&mut self, source: &Source) -> Result<(Name, Hints)> {
        let written = match () {
            () if self.word("AS") => Some(self.name()?),
            // CROSS is not reserved, so it would be read as an alias.
            () if self.is_analytics && self.is_word("CROSS") && self.is_word_at(1, "JOIN") => None,
            () => self.name_if_any(),
        };
        let made = match source {
            Source::Keyspace(path) => path.parts.last().cloned(),
            Source::Expr(expr) => expr.implicit_name(),
        };
        let Some(alias) = written.or(made) else {
            return self.fail("a term of FROM that is not a keyspace needs an alias");
        };
        Ok((alias, self.hints()?))
    }

    pub(super) fn hints(&mut self) -> Result<Hints> {
        let mut hints = Hints::default();
        if !self.word("USE") {
            return Ok(hints);
        }
        loop {
            let before = self.at;
            self.hint(&mut hints)?;
            if self.at == before {
                return self.fail("expected KEYS, INDEX, HASH or NL");
            }
            // Hints of both kinds may follow each other.
            if !self.word("AND") && !self.word("USE") && !self.starts_hint() {
                return Ok(hints);
            }
        }
    }

    fn starts_hint(&self) -> bool {
        let opens = matches!(self.peek_at(1), Token::Symbol("("));
        self.is_word("KEYS")
            || self.is_word("PRIMARY") && self.is_word_at(1, "KEYS")
            || opens && (self.is_word("INDEX") || self.is_word("HASH"))
            || self.is_word("NL")
    }

    /// Parses one hint, if there is one.
    fn hint(&mut self, hints: &mut Hints) -> Result<()> {
        match () {
            () if self.word("KEYS") || self.word("PRIMARY KEYS") => {
                hints.keys = Some(self.expr()?);
            }
            () if self.word("INDEX") => {
                self.expect("(")?;
                if !self.is_symbol(")") {
                    let named = self.list(|p| {
                        let name = p.name_if_any();
                        let is_search = !p.word("USING GSI") && p.word("USING FTS");
                        Ok((name, is_search))
                    })?;
                    let of_kind = |wanted: bool| -> Vec<Name> {
                        let of_kind = named.iter().filter(|(_, is_search)| *is_search == wanted);
                        of_kind.filter_map(|(name, _)| name.clone()).collect()
                    };
                    (hints.indexes, hints.search_indexes) = (of_kind(false), of_kind(true));
                    hints.any_search = named.contains(&(None, true));
                }
                self.expect(")")?;
            }
            () if self.word("HASH") => {
                self.expect("(")?;
                if !self.word("BUILD") {
                    self.expect_word("PROBE")?;
                }
                self.expect(")")?;
                hints.hash = Some(true);
            }
            () if self.word("NL") => hints.hash = Some(false),
            () => return Ok(()),
        }
        if hints.keys.is_some() && hints.has_indexes() {
            return self.fail("expected USE KEYS or USE INDEX, and not both");
        }
        Ok(())
    }

    fn join(&mut self) -> Result<Option<Join>> {
        if self.symbol(",") || self.is_analytics && self.word("CROSS JOIN") {
            let _ = self.word("LATERAL");
            let term = self.term_of_from()?;
            return Ok(Some(Join {
                kind: JoinKind::Join,
                side: Side::Inner,
                term,
                on: On::Nothing,
            }));
        }
        let start = self.at;
        let side = match () {
            () if self.word("LEFT OUTER") || self.word("LEFT") => Side::Left,
            () if self.word("RIGHT OUTER") || self.word("RIGHT") => Side::Right,
            () => {
                let _ = self.word("INNER");
                Side::Inner
            }
        };
        let kind = match () {
            () if self.word("JOIN") => JoinKind::Join,
            () if self.word("NEST") => JoinKind::Nest,
            () if self.word("UNNEST") || self.word("FLATTEN") => JoinKind::Unnest,
            () if self.at == start => return Ok(None),
            () => return self.fail("expected JOIN, NEST or UNNEST"),
        };
        if side == Side::Right && kind != JoinKind::Join {
            return self.fail("expected JOIN after RIGHT");
        }
        if kind == JoinKind::Unnest {
            let source = Source::Expr(self.expr()?);
            let (alias, hints) = self.alias_and_hints(&source)?;
            let term = FromTerm { source, alias, hints };
            return Ok(Some(Join { kind, side, term, on: On::Nothing }));
        }
        let _ = self.word("LATERAL");
        let term = self.term_of_from()?;
        let on = self.on()?;
        Ok(Some(Join { kind, side, term, on }))
    }

    pub(super) fn on(&mut self) -> Result<On> {
        self.expect_word("ON")?;
        if self.word("KEYS") || self.word("PRIMARY KEYS") {
            return Ok(On::Keys(self.expr()?));
        }
        if self.word("KEY") || self.word("PRIMARY KEY") {
            let key = self.expr()?;
            return Ok(if self.word("FOR") {
                On::KeyFor(key, self.name()?)
            } else {
                On::Keys(key)
            });
        }
        Ok(On::Condition(self.expr()?))
    }

    /// Parses a keyspace that is changed, with its alias and hints.
    pub(super) fn target(&mut self) -> Result<FromTerm> {
        let source = Source::Keyspace(self.path_or_parameter()?);
        let (alias, hints) = self.alias_and_hints(&source)?;
        Ok(FromTerm { source, alias, hints })
    }

    /// Parses the path of a keyspace, or a parameter with a path.
    fn path_or_parameter(&mut self) -> Result<Path> {
        if matches!(self.peek(), Token::Parameter(_) | Token::Symbol("?")) {
            let parameter = self.expr()?;
            return match Path::of_parameter(&parameter) {
                Some(path) => Ok(path),
                None => self.fail("expected a keyspace"),
            };
        }
        self.path()
    }

    /// Parses a keyspace into which documents are inserted.
    pub(super) fn keyspace_and_alias(&mut self) -> Result<(Path, Name)> {
        let path = self.path_or_parameter()?;
        let written = if self.word("AS") { Some(self.name()?) } else { self.name_if_any() };
        let alias = written.unwrap_or_else(|| path.parts.last().expect("paths have parts").clone());
        Ok((path, alias))
    }
}

/// The namespace of paths that represent parameters; users cannot use this name, quoted or not.
const PARAMETER: &str = "$";

impl Path {
    /// Returns the path that represents the keyspace named by a parameter; `None` if the expression
    /// is not a parameter.
    pub fn of_parameter(expr: &Expr) -> Option<Path> {
        let name: Name = match expr {
            Expr::Positional(position) => position.to_string().into(),
            Expr::Named(name) => name.clone(),
            _ => return None,
        };
        Some(Path { namespace: Some(PARAMETER.into()), parts: vec![name] })
    }

    /// Returns the parameter that names the keyspace, if there is one.
    pub fn parameter(&self) -> Option<Expr> {
        if self.namespace.as_deref() != Some(PARAMETER) {
            return None;
        }
        let name = self.parts.first()?;
        Some(match name.parse() {
            Ok(position) => Expr::Positional(position),
            Err(_) => Expr::Named(name.clone()),
        })
    }
}

/// Returns the refusal of USE KEYS and USE INDEX on a term without documents.
pub(crate) fn no_keys_of(what: &str) -> Error {
    Error::new(4110, format!("{what} term should not have USE KEYS or USE INDEX"))
}

impl Expr {
    /// Returns the implicit name of an expression: that of its last step.
    pub fn implicit_name(&self) -> Option<Name> {
        match self {
            Expr::Ident(name) | Expr::Field(_, name, _) => Some(name.clone()),
            Expr::Bound(bound) => bound.of.implicit_name(),
            _ => None,
        }
    }
}
