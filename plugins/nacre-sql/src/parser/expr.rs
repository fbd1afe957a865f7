//! Parses expressions.

use super::Parser;
use super::admin::value_of_sequence;
use super::ddl::key_attributes;
use crate::ast::{
    Aggregate, Binary, Binding, Case, Chain, Collect, Comprehension, Exclude, Expr, FlattenedKey,
    Frame, FrameBound, FrameUnit, Over, Quantified, Quantifier, Unary, Window,
};
use crate::lexer::Token;
use crate::{Name, Result, Value, functions};

/// Binding powers of operators; higher binds more tightly.
mod power {
    pub const OR: u8 = 1;
    pub const AND: u8 = 2;
    pub const NOT: u8 = 3;
    pub const EQUAL: u8 = 4;
    pub const LESS: u8 = 5;
    pub const LIKE: u8 = 6;
    pub const BETWEEN: u8 = 7;
    pub const IN: u8 = 8;
    pub const EXISTS: u8 = 9;
    pub const IS: u8 = 10;
    pub const CONCAT: u8 = 11;
    pub const ADD: u8 = 12;
    pub const MULTIPLY: u8 = 13;
    pub const NEGATE: u8 = 14;
}

const BINARY: &[(&str, u8, Binary)] = &[
    ("=", power::EQUAL, Binary::Equal),
    ("==", power::EQUAL, Binary::Equal),
    ("!=", power::EQUAL, Binary::NotEqual),
    ("<>", power::EQUAL, Binary::NotEqual),
    ("<", power::LESS, Binary::Less),
    ("<=", power::LESS, Binary::LessOrEqual),
    (">", power::LESS, Binary::Greater),
    (">=", power::LESS, Binary::GreaterOrEqual),
    ("+", power::ADD, Binary::Add),
    ("-", power::ADD, Binary::Subtract),
    ("*", power::MULTIPLY, Binary::Multiply),
    ("/", power::MULTIPLY, Binary::Divide),
    ("%", power::MULTIPLY, Binary::Modulo),
];

/// Number of successive operators from which they become one node of the tree.
const FOLD_FROM: usize = 16;

fn power_of(operator: Binary) -> u8 {
    BINARY.iter().find(|(_, _, other)| *other == operator).map_or(0, |(_, power, _)| *power)
}

/// Returns how many operators of a precedence are nested on the left side, at most [`FOLD_FROM`].
fn spine(expr: &Expr, bound: u8) -> usize {
    let mut at = expr;
    let mut count = 0;
    while let Expr::Binary(operator, left, _) = at {
        if power_of(*operator) != bound || count == FOLD_FROM {
            break;
        }
        count += 1;
        at = left;
    }
    count
}

/// Returns the message about a call with too few or too many arguments.
fn wrong_count(name: &str, least: usize, most: usize) -> String {
    let takes = match most {
        usize::MAX => format!("{least} or more"),
        most if most == least => format!("{least}"),
        most if most == least + 1 => format!("{least} or {most}"),
        most => format!("{least} to {most}"),
    };
    format!("wrong number of arguments for {name}, which takes {takes}")
}

fn not(expr: Expr) -> Expr {
    Expr::Unary(Unary::Not, Box::new(expr))
}

fn boxed(expr: Expr) -> Box<Expr> {
    Box::new(expr)
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.expr_above(0)
    }

    /// Parses an expression in parentheses, which increase the nesting of the text but not the height of
    /// the tree.
    fn enclosed(&mut self) -> Result<Expr> {
        let outside = std::mem::take(&mut self.height);
        let expr = self.expr()?;
        self.height = outside.max(self.height - 1);
        Ok(expr)
    }

    /// Parses an expression of operators that bind more tightly than `least`.
    fn expr_above(&mut self, least: u8) -> Result<Expr> {
        self.deeper(1, |p| {
            let mut left = p.prefix()?;
            loop {
                let before = p.at;
                left = p.infix(left, least)?;
                if p.at == before {
                    return Ok(left);
                }
            }
        })
    }

    /// Parses one operator and its right operand, if it binds more tightly than `least`.
    fn infix(&mut self, left: Expr, least: u8) -> Result<Expr> {
        match self.peek().clone() {
            Token::Symbol("||") if power::CONCAT > least => {
                self.chain(left, Chain::Concat, power::CONCAT)
            }
            Token::Symbol(symbol) => match BINARY.iter().find(|(s, _, _)| *s == symbol) {
                Some((_, bound, operator)) if *bound > least => {
                    self.advance();
                    let right = self.expr_above(*bound)?;
                    self.arithmetic(left, *operator, *bound, right)
                }
                _ => self.postfix(left),
            },
            Token::Word(word) => self.infix_word(left, least, &word.to_ascii_uppercase()),
            _ => Ok(left),
        }
    }

    /// Creates an operator with its operands. A long sequence of operators of one precedence does not
    /// increase the height of the tree.
    fn arithmetic(&mut self, left: Expr, operator: Binary, bound: u8, right: Expr) -> Result<Expr> {
        if bound < power::ADD {
            self.raise(1)?;
            return Ok(Expr::Binary(operator, boxed(left), boxed(right)));
        }
        let is_alike = |other: Binary| power_of(other) == bound;
        match left {
            Expr::Fold(first, mut rest) if rest.iter().all(|(other, _)| is_alike(*other)) => {
                rest.push((operator, right));
                Ok(Expr::Fold(first, rest))
            }
            left if spine(&left, bound) >= FOLD_FROM => {
                let (mut first, mut rest) = (left, vec![(operator, right)]);
                while let Expr::Binary(other, a, b) = first {
                    if !is_alike(other) {
                        first = Expr::Binary(other, a, b);
                        break;
                    }
                    rest.push((other, *b));
                    first = *a;
                }
                rest.reverse();
                Ok(Expr::Fold(boxed(first), rest))
            }
            left => {
                self.raise(1)?;
                Ok(Expr::Binary(operator, boxed(left), boxed(right)))
            }
        }
    }

    /// Creates MOD and DIV, which have no symbols.
    fn whole_arithmetic(&mut self, left: Expr, word: &str, bound: u8, right: Expr) -> Result<Expr> {
        if word == "MOD" {
            return self.arithmetic(left, Binary::Modulo, bound, right);
        }
        self.raise(1)?;
        let divide = functions::find("IDIV").expect("the function is in the table");
        Ok(Expr::Call(divide, vec![left, right]))
    }

    fn infix_word(&mut self, left: Expr, least: u8, word: &str) -> Result<Expr> {
        let negated = word == "NOT";
        let next = match self.peek_at(usize::from(negated)) {
            Token::Word(word) => word.to_ascii_uppercase(),
            _ => return Ok(left),
        };
        let bound = match next.as_str() {
            "OR" => power::OR,
            "AND" => power::AND,
            "LIKE" => power::LIKE,
            "BETWEEN" => power::BETWEEN,
            "IN" | "WITHIN" => power::IN,
            "IS" => power::IS,
            "MOD" | "DIV" if self.is_analytics && !negated => power::MULTIPLY,
            _ => return Ok(left),
        };
        if bound <= least || negated && matches!(next.as_str(), "OR" | "AND" | "IS") {
            return Ok(left);
        }
        match next.as_str() {
            "OR" => return self.chain(left, Chain::Or, bound),
            "AND" => return self.chain(left, Chain::And, bound),
            _ => self.at += 1 + usize::from(negated),
        }
        if matches!(next.as_str(), "MOD" | "DIV") {
            let right = self.expr_above(bound)?;
            return self.whole_arithmetic(left, &next, bound, right);
        }
        let expr = match next.as_str() {
            "LIKE" => {
                let pattern = boxed(self.expr_above(bound)?);
                let escape =
                    if self.word("ESCAPE") { Some(boxed(self.expr_above(bound)?)) } else { None };
                Expr::Like(boxed(left), pattern, escape)
            }
            "BETWEEN" => {
                let low = self.expr_above(bound)?;
                self.expect_word("AND")?;
                Expr::Between(boxed(left), boxed(low), boxed(self.expr_above(bound)?))
            }
            "IN" => Expr::Binary(Binary::In, boxed(left), boxed(self.expr_above(bound)?)),
            "WITHIN" => Expr::Binary(Binary::Within, boxed(left), boxed(self.expr_above(bound)?)),
            _ => self.is(left)?,
        };
        self.raise(1)?;
        Ok(if negated { not(expr) } else { expr })
    }

    /// Parses the operands of AND, OR or `||` into one node, whatever their number.
    fn chain(&mut self, first: Expr, chain: Chain, bound: u8) -> Result<Expr> {
        let mut operands = vec![first];
        while match chain {
            Chain::And => self.word("AND"),
            Chain::Or => self.word("OR"),
            Chain::Concat => self.symbol("||"),
        } {
            operands.push(self.expr_above(bound)?);
        }
        self.raise(1)?;
        Ok(Expr::Chain(chain, operands))
    }

    fn is(&mut self, left: Expr) -> Result<Expr> {
        let negated = self.word("NOT");
        let left = boxed(left);
        let expr = match () {
            () if self.word("NULL") => Expr::Unary(Unary::IsNull, left),
            () if self.word("MISSING") => Expr::Unary(Unary::IsMissing, left),
            () if self.word("VALUED") || self.word("KNOWN") => Expr::Unary(Unary::IsKnown, left),
            () if self.word("UNKNOWN") => not(Expr::Unary(Unary::IsKnown, left)),
            () if self.word("DISTINCT FROM") => {
                let right = boxed(self.expr_above(power::IS)?);
                Expr::Binary(Binary::DistinctFrom, left, right)
            }
            () => {
                return self
                    .fail("expected NULL, MISSING, KNOWN, UNKNOWN, VALUED or DISTINCT FROM");
            }
        };
        Ok(match expr {
            Expr::Unary(Unary::Not, inner) if negated => *inner,
            expr if negated => not(expr),
            expr => expr,
        })
    }

    /// Parses one step of navigation, if there is one.
    fn postfix(&mut self, left: Expr) -> Result<Expr> {
        if self.is_symbol(".") && !matches!(self.peek_at(1), Token::Symbol("*")) {
            self.advance();
            self.raise(1)?;
            if self.symbol("[") {
                let name = self.expr()?;
                self.expect("]")?;
                if let Expr::Literal(Value::String(name)) = &name
                    && self.word("i")
                {
                    return Ok(Expr::Field(boxed(left), name.clone(), true));
                }
                return Ok(Expr::Element(boxed(left), boxed(name)));
            }
            let folded = matches!(self.peek(), Token::Quoted(_, true));
            return Ok(Expr::Field(boxed(left), self.name()?, folded));
        }
        if !self.symbol("[") {
            return Ok(left);
        }
        self.raise(1)?;
        if self.symbol("*") {
            self.expect("]")?;
            let star = functions::find("ARRAY_STAR").expect("it is in the table");
            return Ok(Expr::Call(star, vec![left]));
        }
        let from = if self.is_symbol(":") { None } else { Some(self.expr()?) };
        if !self.symbol(":") {
            self.expect("]")?;
            let index = from.expect("there is one when there was no colon");
            return Ok(Expr::Element(boxed(left), boxed(index)));
        }
        let to = if self.is_symbol("]") { None } else { Some(boxed(self.expr()?)) };
        self.expect("]")?;
        Ok(Expr::Slice(boxed(left), from.map(boxed), to))
    }

    fn prefix(&mut self) -> Result<Expr> {
        match self.peek().clone() {
            Token::Int(number) => self.literal(Value::Int(number)),
            Token::Float(number) => self.literal(Value::Float(number)),
            Token::String(text) => self.literal(Value::String(text)),
            Token::Parameter(name) => {
                self.advance();
                Ok(match name.parse() {
                    Ok(0) => return self.fail("parameters count from 1"),
                    Ok(position) => Expr::Positional(position),
                    Err(_) => Expr::Named(name),
                })
            }
            Token::Quoted(name, _) => {
                self.advance();
                self.name_or_call(name)
            }
            Token::Word(word) => self.prefix_word(&word),
            Token::Symbol(symbol) => self.prefix_symbol(symbol),
            Token::Hint(_) | Token::End => self.fail("expected an expression"),
        }
    }

    fn literal(&mut self, value: Value) -> Result<Expr> {
        self.advance();
        Ok(Expr::Literal(value))
    }

    fn prefix_symbol(&mut self, symbol: &str) -> Result<Expr> {
        match symbol {
            "-" | "+" => {
                self.advance();
                let operand = self.expr_above(power::NEGATE)?;
                Ok(match operand {
                    operand if symbol == "+" => operand,
                    Expr::Literal(Value::Int(number)) if number != i64::MIN => {
                        Expr::Literal(Value::Int(-number))
                    }
                    // The smallest integer is read as a double, because its magnitude exceeds the
                    // greatest integer.
                    Expr::Literal(Value::Float(9_223_372_036_854_775_808.0)) => {
                        Expr::Literal(Value::Int(i64::MIN))
                    }
                    Expr::Literal(Value::Float(number)) => Expr::Literal(Value::Float(-number)),
                    operand => Expr::Unary(Unary::Negate, boxed(operand)),
                })
            }
            "?" => {
                self.advance();
                self.question_marks += 1;
                Ok(Expr::Positional(self.question_marks))
            }
            "(" => {
                self.advance();
                let expr = if self.in_array_key && self.nested_array() {
                    self.comprehension(Collect::DistinctArray)?
                } else if self.starts_select() {
                    Expr::Subquery(Box::new(self.select()?))
                } else {
                    self.enclosed()?
                };
                self.expect(")")?;
                Ok(expr)
            }
            "[" => {
                self.advance();
                let elements =
                    if self.is_symbol("]") { Vec::new() } else { self.list(|p| p.expr())? };
                self.expect("]")?;
                Ok(Expr::Array(elements))
            }
            "{" => {
                self.advance();
                let fields =
                    if self.is_symbol("}") { Vec::new() } else { self.list(|p| p.pair())? };
                self.expect("}")?;
                Ok(Expr::Object(fields))
            }
            _ => self.fail("expected an expression"),
        }
    }

    /// Parses `name: value`, or a value with an implicit name.
    fn pair(&mut self) -> Result<(Expr, Expr)> {
        let first = self.expr()?;
        if self.symbol(":") {
            return Ok((first, self.expr()?));
        }
        match first.implicit_name() {
            Some(name) => Ok((Expr::Literal(Value::String(name)), first)),
            None => self.fail("expected : after the name of a field"),
        }
    }

    fn prefix_word(&mut self, word: &Name) -> Result<Expr> {
        let upper = word.to_ascii_uppercase();
        let called = matches!(self.peek_at(1), Token::Symbol("("));
        if let Some(value) = value_of_sequence(self)? {
            return Ok(value);
        }
        let is_known = || functions::find(word).is_some() || functions::is_aggregate(word);
        if called && (is_known() && !super::is_reserved(word) || upper == "SELF") {
            self.advance();
            return self.name_or_call(word.clone());
        }
        self.advance();
        match upper.as_str() {
            "TRUE" => Ok(Expr::Literal(Value::Bool(true))),
            "FALSE" => Ok(Expr::Literal(Value::Bool(false))),
            "NULL" => Ok(Expr::Literal(Value::Null)),
            "MISSING" => Ok(Expr::Literal(Value::Missing)),
            "NOT" => Ok(not(self.expr_above(power::NOT)?)),
            "EXISTS" => Ok(Expr::Unary(Unary::Exists, boxed(self.expr_above(power::EXISTS)?))),
            "CASE" => self.case(),
            "ANY" | "SOME" => {
                let kind =
                    if self.word("AND EVERY") { Quantifier::AnyAndEvery } else { Quantifier::Any };
                self.quantified(kind)
            }
            "EVERY" => self.quantified(Quantifier::Every),
            "ARRAY" => self.comprehension(Collect::Array),
            "FIRST" => self.comprehension(Collect::First),
            "OBJECT" => {
                let name = self.expr()?;
                self.expect(":")?;
                self.comprehension(Collect::Object(name))
            }
            "SELF" => Ok(Expr::Itself),
            _ if super::is_reserved(word) => {
                self.at -= 1;
                self.fail("expected an expression")
            }
            _ => self.name_or_call(word.clone()),
        }
    }

    fn case(&mut self) -> Result<Expr> {
        let operand = if self.is_word("WHEN") { None } else { Some(self.expr()?) };
        let mut whens = Vec::new();
        while self.word("WHEN") {
            let when = self.expr()?;
            self.expect_word("THEN")?;
            whens.push((when, self.expr()?));
        }
        if whens.is_empty() {
            return self.fail("expected WHEN");
        }
        let otherwise = if self.word("ELSE") { Some(self.expr()?) } else { None };
        self.expect_word("END")?;
        Ok(Expr::Case(Box::new(Case { operand, whens, otherwise })))
    }

    fn quantified(&mut self, kind: Quantifier) -> Result<Expr> {
        let bindings = self.bindings()?;
        self.expect_word("SATISFIES")?;
        let condition = self.expr()?;
        self.expect_word("END")?;
        Ok(Expr::Quantified(Box::new(Quantified { kind, bindings, condition })))
    }

    /// Parses the beginning of an array within an array key.
    fn nested_array(&mut self) -> bool {
        self.word("DISTINCT ARRAY") || self.word("ALL ARRAY") || self.word("ALL DISTINCT ARRAY")
    }

    fn comprehension(&mut self, collect: Collect) -> Result<Expr> {
        let value = self.expr()?;
        self.expect_word("FOR")?;
        let bindings = self.bindings()?;
        let condition = if self.word("WHEN") { Some(self.expr()?) } else { None };
        self.expect_word("END")?;
        Ok(Expr::Comprehension(Box::new(Comprehension { collect, value, bindings, condition })))
    }

    pub(super) fn bindings(&mut self) -> Result<Vec<Binding>> {
        self.list(|p| {
            let mut variable = p.name()?;
            let position = if p.symbol(":") {
                Some(std::mem::replace(&mut variable, p.name()?))
            } else {
                None
            };
            let within = p.word("WITHIN");
            if !within {
                p.expect_word("IN")?;
            }
            Ok(Binding { position, variable, source: p.expr()?, within })
        })
    }

    /// Parses a variable, or a call if a parenthesis follows.
    fn name_or_call(&mut self, name: Name) -> Result<Expr> {
        let mut path = vec![name];
        // The path of a user-defined function has dots, like a field; the parenthesis distinguishes them.
        let mut ahead = 0;
        while matches!(self.peek_at(ahead), Token::Symbol("." | ":"))
            && matches!(self.peek_at(ahead + 1), Token::Word(_) | Token::Quoted(..))
        {
            ahead += 2;
        }
        if !matches!(self.peek_at(ahead), Token::Symbol("(")) {
            return Ok(Expr::Ident(path.remove(0)));
        }
        for _ in 0..ahead / 2 {
            self.advance();
            path.push(self.any_name()?);
        }
        self.call(path)
    }

    fn call(&mut self, path: Vec<Name>) -> Result<Expr> {
        let start = self.at;
        self.expect("(")?;
        if path.len() == 1 && functions::is_aggregate(&path[0]) {
            return self.aggregate(&path[0]);
        }
        if path.len() == 1 && path[0].eq_ignore_ascii_case("flatten_keys") {
            return self.flatten_keys();
        }
        let function = if path.len() == 1 { functions::find(&path[0]) } else { None };
        let args = if self.is_symbol(")") { Vec::new() } else { self.list(|p| p.expr())? };
        self.expect(")")?;
        if function.is_none()
            && path.len() == 1
            && let Some((least, most)) = functions::operator_takes(&path[0])
        {
            if !(least..=most).contains(&args.len()) {
                self.at = start;
                return self.fail(&wrong_count(&path[0], least, most));
            }
            self.raise(1)?;
            return match functions::operator(&path[0], args) {
                Some(expr) => Ok(expr),
                None => self.fail("expected an expression"),
            };
        }
        let Some(function) = function else { return Ok(Expr::UserCall(path, args)) };
        if !(function.args_min..=function.args_max).contains(&args.len()) {
            self.at = start;
            return self.fail(&wrong_count(function.name, function.args_min, function.args_max));
        }
        Ok(Expr::Call(function, args))
    }

    fn flatten_keys(&mut self) -> Result<Expr> {
        let keys = self.list(|p| {
            let expr = p.expr()?;
            let (descending, include_missing) = key_attributes(p);
            Ok(FlattenedKey { expr, descending, include_missing })
        })?;
        self.expect(")")?;
        Ok(Expr::FlattenKeys(keys))
    }

    fn aggregate(&mut self, name: &Name) -> Result<Expr> {
        let distinct = self.word("DISTINCT");
        let _ = distinct || self.word("ALL");
        let star = self.symbol("*");
        let args = if star || self.is_symbol(")") { Vec::new() } else { self.list(|p| p.expr())? };
        let lower: Name = name.to_ascii_lowercase().into();
        if star && &*lower != "count" {
            return self.fail("only COUNT takes *");
        }
        if !functions::aggregate_takes(&lower, args.len(), star) {
            return self.fail(&format!("wrong number of arguments for {name}"));
        }
        self.expect(")")?;
        let from_last = self.word("FROM LAST");
        let _ = from_last || self.word("FROM FIRST");
        let ignore_nulls = self.word("IGNORE NULLS");
        let _ = ignore_nulls || self.word("RESPECT NULLS");
        let filter = if self.word("FILTER") {
            self.expect("(")?;
            self.expect_word("WHERE")?;
            let condition = self.expr()?;
            self.expect(")")?;
            Some(condition)
        } else {
            None
        };
        let over = if self.word("OVER") { Some(self.over()?) } else { None };
        if over.is_none() && functions::is_window_only(&lower) {
            return self.fail("expected OVER");
        }
        let aggregate =
            Aggregate { name: lower, args, distinct, filter, over, from_last, ignore_nulls };
        Ok(Expr::Aggregate(Box::new(aggregate)))
    }

    fn over(&mut self) -> Result<Over> {
        if self.is_symbol("(") {
            Ok(Over::Window(self.window()?))
        } else {
            Ok(Over::Named(self.name()?))
        }
    }

    /// Parses a window in parentheses.
    pub(super) fn window(&mut self) -> Result<Window> {
        self.expect("(")?;
        let mut window = Window::default();
        if !self.is_word("PARTITION") && !self.is_frame() {
            window.base = self.name_if_any();
        }
        if self.word("PARTITION BY") {
            window.partition = self.list(|p| p.expr())?;
        }
        if self.is_word("ORDER") {
            window.order = self.order()?;
        }
        if self.is_frame() {
            window.frame = Some(self.frame()?);
        }
        self.expect(")")?;
        Ok(window)
    }

    fn is_frame(&self) -> bool {
        ["ROWS", "RANGE", "GROUPS"].iter().any(|word| self.is_word(word))
    }

    fn frame(&mut self) -> Result<Frame> {
        let unit = match () {
            () if self.word("ROWS") => FrameUnit::Rows,
            () if self.word("RANGE") => FrameUnit::Range,
            () => {
                self.expect_word("GROUPS")?;
                FrameUnit::Groups
            }
        };
        let between = self.word("BETWEEN");
        let start = self.frame_bound()?;
        let end = if between {
            self.expect_word("AND")?;
            self.frame_bound()?
        } else {
            FrameBound::CurrentRow
        };
        let exclude = match () {
            () if self.word("EXCLUDE CURRENT ROW") => Exclude::CurrentRow,
            () if self.word("EXCLUDE GROUP") => Exclude::Group,
            () if self.word("EXCLUDE TIES") => Exclude::Ties,
            () => {
                let _ = self.word("EXCLUDE NO OTHERS");
                Exclude::NoOthers
            }
        };
        Ok(Frame { unit, start, end, exclude })
    }

    fn frame_bound(&mut self) -> Result<FrameBound> {
        if self.word("CURRENT ROW") {
            return Ok(FrameBound::CurrentRow);
        }
        let unbounded = self.word("UNBOUNDED");
        let distance = if unbounded { Expr::Literal(Value::Null) } else { self.expr()? };
        let preceding = self.word("PRECEDING");
        if !preceding {
            self.expect_word("FOLLOWING")?;
        }
        Ok(match (unbounded, preceding) {
            (true, true) => FrameBound::UnboundedPreceding,
            (true, false) => FrameBound::UnboundedFollowing,
            (false, true) => FrameBound::Preceding(distance),
            (false, false) => FrameBound::Following(distance),
        })
    }
}

impl Parser<'_> {
    /// Parses the beginning of a path that is set.
    pub(super) fn prefix_of_path(&mut self) -> Result<Expr> {
        self.prefix()
    }

    /// Parses one step of a path.
    pub(super) fn step(&mut self, path: Expr) -> Result<Expr> {
        self.postfix(path)
    }
}
