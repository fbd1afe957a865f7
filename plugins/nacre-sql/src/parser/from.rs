//! FROM: terms, joins and hints.

use super::Parser;
use crate::ast::{Expr, From, FromTerm, Hints, Join, JoinKind, On, Path, Side, Source};
use crate::error::Result;
use crate::lexer::Token;
use crate::value::Name;

impl Parser<'_> {
    pub(super) fn terms_of_from(&mut self) -> Result<From> {
        let first = self.term_of_from()?;
        let mut joins = Vec::new();
        while let Some(join) = self.join()? {
            joins.push(join);
        }
        Ok(From { first, joins })
    }

    pub(super) fn term_of_from(&mut self) -> Result<FromTerm> {
        let source = self.source()?;
        let (alias, hints) = self.alias_and_hints(&source)?;
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
        let written = if self.word("AS") { Some(self.name()?) } else { self.name_if_any() };
        let made = match source {
            Source::Keyspace(path) => path.parts.last().cloned(),
            Source::Expr(expr) => expr.implicit_name(),
        };
        let Some(alias) = written.or(made) else {
            return self.fail("a term of FROM that is no keyspace needs an alias");
        };
        Ok((alias, self.hints()?))
    }

    pub(super) fn hints(&mut self) -> Result<Hints> {
        let mut hints = Hints::default();
        if !self.word("USE") {
            return Ok(hints);
        }
        loop {
            match () {
                () if self.word("KEYS") || self.word("PRIMARY KEYS") => {
                    hints.keys = Some(self.expr()?)
                }
                () if self.word("INDEX") => {
                    self.expect("(")?;
                    hints.indexes = self.list(|p| {
                        let name = p.name()?;
                        let _ = p.word("USING GSI") || p.word("USING FTS");
                        Ok(name)
                    })?;
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
                () => return self.fail("expected KEYS, INDEX, HASH or NL"),
            }
            if !self.word("AND") && !self.word("USE") {
                return Ok(hints);
            }
        }
    }

    fn join(&mut self) -> Result<Option<Join>> {
        if self.symbol(",") {
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

    /// A keyspace that is written to, with its alias and hints.
    pub(super) fn target(&mut self) -> Result<FromTerm> {
        let path = self.path()?;
        let source = Source::Keyspace(path);
        let (alias, hints) = self.alias_and_hints(&source)?;
        Ok(FromTerm { source, alias, hints })
    }

    /// A keyspace that documents are inserted to.
    pub(super) fn keyspace_and_alias(&mut self) -> Result<(Path, Name)> {
        let path = self.path()?;
        let written = if self.word("AS") { Some(self.name()?) } else { self.name_if_any() };
        let alias = written.unwrap_or_else(|| path.parts.last().expect("paths have parts").clone());
        Ok((path, alias))
    }
}

impl Expr {
    /// The name that an expression has without being given one: that of its last step.
    pub fn implicit_name(&self) -> Option<Name> {
        match self {
            Expr::Ident(name) | Expr::Field(_, name, _) => Some(name.clone()),
            Expr::Bound(bound) => bound.of.implicit_name(),
            _ => None,
        }
    }
}
