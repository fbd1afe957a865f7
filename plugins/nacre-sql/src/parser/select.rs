//! Parses queries.

use super::hints::{give, optimizer_hints};
use super::{Parser, SELECT_HEIGHT};
use crate::ast::{Block, Body, Expr, Group, OrderTerm, Projection, Select, SetOp, Term, With};
use crate::lexer::Token;
use crate::{Name, Result};

/// Number of successive UNION from which they become one node of the tree.
const UNION_FROM: usize = 16;

/// Returns how many UNION of a kind are nested on the left side, at most [`UNION_FROM`].
fn unions(body: &Body, all: bool) -> usize {
    let mut at = body;
    let mut count = 0;
    while let Body::Set(SetOp::Union, like, left, _) = at {
        if *like != all || count == UNION_FROM {
            break;
        }
        count += 1;
        at = left;
    }
    count
}

impl Parser<'_> {
    /// Returns true if a query follows, rather than an expression.
    ///
    /// A query in parentheses is an expression, unless a clause or set operator follows its last parenthesis.
    pub(super) fn starts_select(&self) -> bool {
        let open = (0..).take_while(|at| matches!(self.peek_at(*at), Token::Symbol("("))).count();
        let starts = ["SELECT", "FROM", "WITH"].iter().any(|word| self.is_word_at(open, word));
        const GO_ON: [&str; 7] =
            ["UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET"];
        starts
            && (open == 0 || {
                let after = self.after_parenthesis();
                GO_ON.iter().any(|word| self.is_word_at(after, word))
            })
    }

    /// Returns the distance to the token after the parenthesis that matches the next one.
    fn after_parenthesis(&self) -> usize {
        let mut depth = 0usize;
        let mut ahead = 0;
        loop {
            match self.peek_at(ahead) {
                Token::Symbol("(") => depth += 1,
                Token::Symbol(")") => depth = depth.saturating_sub(1),
                Token::End => return ahead,
                _ => {}
            }
            ahead += 1;
            if depth == 0 {
                return ahead;
            }
        }
    }

    pub(super) fn select(&mut self) -> Result<Select> {
        self.deeper(SELECT_HEIGHT, |p| {
            let with = p.with()?;
            let body = p.body()?;
            let order = if p.is_word("ORDER") { p.order()? } else { Vec::new() };
            let (limit, offset) = p.limit_and_offset()?;
            Ok(Select { with, body, order, limit, offset })
        })
    }

    pub(super) fn limit_and_offset(&mut self) -> Result<(Option<Expr>, Option<Expr>)> {
        let mut limit = None;
        let mut offset = None;
        loop {
            if limit.is_none() && self.word("LIMIT") {
                limit = Some(self.expr()?);
            } else if offset.is_none() && self.word("OFFSET") {
                offset = Some(self.expr()?);
            } else {
                return Ok((limit, offset));
            }
        }
    }

    pub(super) fn with(&mut self) -> Result<Vec<With>> {
        if !self.word("WITH") {
            return Ok(Vec::new());
        }
        let recursive = self.word("RECURSIVE");
        self.list(|p| {
            let alias = p.name()?;
            p.expect_word("AS")?;
            // Analytics accepts any expression here.
            if !p.is_symbol("(") && !p.is_analytics {
                return p.fail("expected (");
            }
            let expr = p.expr()?;
            let mut cycle = Vec::new();
            if recursive && p.word("CYCLE") {
                cycle = p.list(|p| p.expr())?;
                p.expect_word("RESTRICT")?;
            }
            let options = if recursive && p.word("OPTIONS") { Some(p.expr()?) } else { None };
            Ok(With { alias, expr, recursive, cycle, options })
        })
    }

    fn body(&mut self) -> Result<Body> {
        // INTERSECT has the same precedence as the others: from left to right.
        let mut left = self.body_term()?;
        loop {
            let operator = match () {
                () if self.word("UNION") => SetOp::Union,
                () if self.word("INTERSECT") => SetOp::Intersect,
                () if self.word("EXCEPT") || self.word("MINUS") => SetOp::Except,
                () => return Ok(left),
            };
            let all = self.word("ALL");
            let _ = all || self.word("DISTINCT");
            let right = self.body_term()?;
            left = match left {
                Body::Union(like, mut all_of) if operator == SetOp::Union && like == all => {
                    all_of.push(right);
                    Body::Union(all, all_of)
                }
                left if operator == SetOp::Union && unions(&left, all) >= UNION_FROM => {
                    let (mut first, mut branches) = (left, vec![right]);
                    while let Body::Set(SetOp::Union, like, a, b) = first {
                        if like != all {
                            first = Body::Set(SetOp::Union, like, a, b);
                            break;
                        }
                        branches.push(*b);
                        first = *a;
                    }
                    branches.push(first);
                    branches.reverse();
                    Body::Union(all, branches)
                }
                left => {
                    self.raise(1)?;
                    Body::Set(operator, all, Box::new(left), Box::new(right))
                }
            };
        }
    }

    fn body_term(&mut self) -> Result<Body> {
        if self.symbol("(") {
            let select = self.select()?;
            self.expect(")")?;
            return Ok(Body::Nested(Box::new(select)));
        }
        Ok(Body::Block(Box::new(self.block()?)))
    }

    fn block(&mut self) -> Result<Block> {
        let mut block = Block::default();
        let from_first = self.is_word("FROM");
        if from_first {
            self.clauses(&mut block)?;
        }
        self.expect_word("SELECT")?;
        block.optimizer_hints = optimizer_hints(self);
        block.distinct = self.word("DISTINCT");
        let _ = block.distinct || self.word("ALL");
        block.projection = self.projection()?;
        if !from_first {
            self.clauses(&mut block)?;
        }
        if let Some(from) = &mut block.from {
            give(&block.optimizer_hints, &mut from.first, true);
            from.joins
                .iter_mut()
                .for_each(|join| give(&block.optimizer_hints, &mut join.term, false));
        }
        Ok(block)
    }

    fn clauses(&mut self, block: &mut Block) -> Result<()> {
        if self.word("FROM") {
            block.from = Some(self.terms_of_from()?);
        }
        if self.word("LET") {
            block.lets = self.list(|p| p.assignment())?;
        }
        if self.word("WHERE") {
            block.condition = Some(self.expr()?);
        }
        block.group = self.group()?;
        if self.word("WINDOW") {
            block.windows = self.list(|p| {
                let name = p.name()?;
                p.expect_word("AS")?;
                Ok((name, p.window()?))
            })?;
        }
        Ok(())
    }

    fn assignment(&mut self) -> Result<(Name, Expr)> {
        let name = self.name()?;
        self.expect("=")?;
        Ok((name, self.expr()?))
    }

    fn group(&mut self) -> Result<Option<Group>> {
        let mut group = Group::default();
        let mut found = false;
        if self.word("GROUP BY") {
            found = true;
            group.by = self.list(|p| {
                let expr = p.expr()?;
                Ok((expr, if p.word("AS") { Some(p.name()?) } else { p.name_if_any() }))
            })?;
            if self.word("GROUP AS") {
                group.name = Some(self.name()?);
            }
        }
        if self.word("LETTING") || found && self.word("LET") {
            found = true;
            group.letting = self.list(|p| p.assignment())?;
        }
        if self.word("HAVING") {
            found = true;
            group.having = Some(self.expr()?);
        }
        Ok(found.then_some(group))
    }

    pub(super) fn projection(&mut self) -> Result<Projection> {
        if self.word("RAW") || self.word("ELEMENT") || self.word("VALUE") {
            let expr = self.expr()?;
            let alias = if self.word("AS") { Some(self.name()?) } else { self.name_if_any() };
            return Ok(Projection::Raw(expr, alias));
        }
        let terms = self.list(|p| p.term())?;
        let excluded = if self.word("EXCLUDE") { self.list(|p| p.expr())? } else { Vec::new() };
        Ok(Projection::Terms(terms, excluded))
    }

    fn term(&mut self) -> Result<Term> {
        if self.symbol("*") {
            return Ok(Term::Star);
        }
        let expr = self.expr()?;
        if self.symbol(".") {
            self.expect("*")?;
            return Ok(Term::StarOf(expr));
        }
        let alias = if self.word("AS") { Some(self.name()?) } else { self.name_if_any() };
        Ok(Term::Expr(expr, alias))
    }

    pub(super) fn order(&mut self) -> Result<Vec<OrderTerm>> {
        self.expect_word("ORDER")?;
        self.expect_word("BY")?;
        self.list(|p| {
            let expr = p.expr()?;
            let descending = p.word("DESC");
            let _ = descending || p.word("ASC");
            let nulls_last = match () {
                () if p.word("NULLS LAST") => Some(true),
                () if p.word("NULLS FIRST") => Some(false),
                () => None,
            };
            Ok(OrderTerm { expr, descending, nulls_last })
        })
    }
}
