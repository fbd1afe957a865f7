//! Parses tokens into a tree. Precedence, loosest first: `OR`, `AND`, `NOT`, comparisons, `+ -`, `* / %`, sign.

use super::Parts;
use super::evaluate::{Operand, Operator, Relation, Root, Step, Test, instant};
use super::lexer::{Placed, Token, at, split};
use fancy_regex::{Regex, RegexBuilder};
use nacre_sql::{Value, functions};

/// Maximum nesting depth of an expression.
pub(super) const HEIGHT_MAX: usize = 50;
/// Maximum number of backtracking steps of a regular expression per text.
const BACKTRACKS_MAX: usize = 100_000;
/// Maximum size of a compiled regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Keywords, which are names only in backticks.
const RESERVED: [&str; 10] =
    ["AND", "EXISTS", "FALSE", "IF", "IS", "META", "MISSING", "NOT", "NULL", "OR"];
/// Functions and their numbers of arguments.
const FUNCTIONS: [(&str, usize); 20] = [
    ("PI", 0),
    ("E", 0),
    ("ABS", 1),
    ("ACOS", 1),
    ("ASIN", 1),
    ("ATAN", 1),
    ("ATAN2", 2),
    ("CEIL", 1),
    ("COS", 1),
    ("DEGREES", 1),
    ("EXP", 1),
    ("FLOOR", 1),
    ("LN", 1),
    ("LOG", 1),
    ("POW", 2),
    ("RADIANS", 1),
    ("ROUND", 1),
    ("SIN", 1),
    ("SQRT", 1),
    ("TAN", 1),
];

/// Result of one grammar level: a condition, or a value that may become an operand.
enum Node {
    Test(Test),
    Value(Operand),
}

/// Parses an expression, and determines which parts of documents it uses.
///
/// # Errors
/// A sentence with the position of the error.
pub(super) fn parse(text: &str) -> Result<(Test, Parts), String> {
    let tokens = split(text)?;
    let mut parser = Parser { tokens, next: 0, height: 0, looks_at: Parts::default() };
    let node = parser.any()?;
    let test = parser.test(node)?;
    match parser.peek() {
        Token::End => Ok((test, parser.looks_at)),
        _ => parser.fail("AND, OR or the end is expected"),
    }
}

struct Parser {
    tokens: Vec<Placed>,
    next: usize,
    height: usize,
    looks_at: Parts,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn place(&self) -> usize {
        self.tokens[self.next].1
    }

    fn fail<T>(&self, reason: &str) -> Result<T, String> {
        Err(at(self.place(), reason))
    }

    /// Takes the next token. The last token is never consumed.
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(known) if *known == symbol)
    }

    fn takes_symbol(&mut self, symbol: &str) -> bool {
        let is_it = self.is_symbol(symbol);
        self.next += usize::from(is_it);
        is_it
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(known) if known.eq_ignore_ascii_case(word))
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_it = self.is_word(word);
        self.next += usize::from(is_it);
        is_it
    }

    /// Returns true if the next tokens are a call of this function.
    fn is_call(&self, word: &str) -> bool {
        let after = self.tokens.get(self.next + 1).map(|(token, _)| token);
        self.is_word(word) && after == Some(&Token::Symbol("("))
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.takes_symbol(symbol) {
            true => Ok(()),
            false => self.fail(&format!("{symbol} is expected")),
        }
    }

    /// Parses a nested level.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Parser) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.height == HEIGHT_MAX {
            return self.fail(&format!("the expression nests more than {HEIGHT_MAX} levels"));
        }
        self.height += 1;
        let read = read(self);
        self.height -= 1;
        read
    }

    /// Parses conditions joined by OR. A single value stays a value.
    fn any(&mut self) -> Result<Node, String> {
        self.joined("OR", Parser::all, Test::Any)
    }

    fn all(&mut self) -> Result<Node, String> {
        self.joined("AND", Parser::not, Test::All)
    }

    fn joined(
        &mut self,
        word: &str,
        part: fn(&mut Parser) -> Result<Node, String>,
        join: fn(Vec<Test>) -> Test,
    ) -> Result<Node, String> {
        let first = part(self)?;
        if !self.is_word(word) {
            return Ok(first);
        }
        let mut tests = vec![self.test(first)?];
        while self.takes_word(word) {
            let next = part(self)?;
            tests.push(self.test(next)?);
        }
        Ok(Node::Test(join(tests)))
    }

    fn not(&mut self) -> Result<Node, String> {
        if !self.takes_word("NOT") {
            return self.comparison();
        }
        let of = self.deeper(Parser::not)?;
        Ok(Node::Test(Test::Not(Box::new(self.test(of)?))))
    }

    /// Converts the result to a condition.
    fn test(&self, node: Node) -> Result<Test, String> {
        match node {
            Node::Test(test) => Ok(test),
            Node::Value(Operand::Constant(Value::Bool(holds))) => Ok(Test::Constant(holds)),
            Node::Value(_) => self.fail("a comparison is expected"),
        }
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let place = self.place();
        if matches!(self.peek(), Token::End | Token::Symbol(")")) {
            return self.fail("a condition is expected");
        }
        if let Some(test) = self.function_test()? {
            return Ok(Node::Test(test));
        }
        let left = match self.sum()? {
            Node::Value(left) => left,
            Node::Test(_) if self.relation().is_some() => {
                return Err(at(place, "a value is expected, not a condition"));
            }
            Node::Test(test) => return Ok(Node::Test(test)),
        };
        if self.takes_word("IS") {
            return self.null_test(left).map(Node::Test);
        }
        let Some(relation) = self.relation() else { return Ok(Node::Value(left)) };
        self.take();
        let right_place = self.place();
        let right = self.value()?;
        let is_date = |side: &Operand| matches!(side, Operand::Date(_));
        if is_date(&left) != is_date(&right) {
            let place = if is_date(&left) { right_place } else { place };
            return Err(at(place, "DATE is compared with DATE only"));
        }
        Ok(Node::Test(Test::Compare(left, relation, right)))
    }

    fn null_test(&mut self, of: Operand) -> Result<Test, String> {
        let is_negated = self.takes_word("NOT");
        let test = if self.takes_word("NULL") {
            Test::IsNull(of)
        } else if self.takes_word("MISSING") {
            Test::Not(Box::new(Test::Exists(of)))
        } else {
            return self.fail("NULL or MISSING is expected");
        };
        Ok(if is_negated { Test::Not(Box::new(test)) } else { test })
    }

    fn relation(&self) -> Option<Relation> {
        let Token::Symbol(symbol) = self.peek() else { return None };
        Some(match *symbol {
            "=" | "==" => Relation::Equal,
            "!=" | "<>" => Relation::NotEqual,
            "<" => Relation::Less,
            "<=" => Relation::LessOrEqual,
            ">" => Relation::Greater,
            ">=" => Relation::GreaterOrEqual,
            _ => return None,
        })
    }

    /// Parses `EXISTS(path)` and `REGEXP_CONTAINS(value, "…")`.
    fn function_test(&mut self) -> Result<Option<Test>, String> {
        if self.is_call("EXISTS") {
            self.next += 2;
            let place = self.place();
            let path = self.value()?;
            if !matches!(path, Operand::Path(..)) {
                return Err(at(place, "a path is expected"));
            }
            self.expect(")")?;
            return Ok(Some(Test::Exists(path)));
        }
        if !self.is_call("REGEXP_CONTAINS") {
            return Ok(None);
        }
        self.next += 2;
        let of = self.value()?;
        self.expect(",")?;
        let place = self.place();
        let Token::Text(pattern) = self.take() else {
            return Err(at(place, "a regular expression in quotes is expected"));
        };
        self.expect(")")?;
        let regex = compile(&pattern).map_err(|reason| {
            at(place, &format!("the regular expression cannot be read: {reason}"))
        })?;
        Ok(Some(Test::Matches(of, Box::new(regex))))
    }

    /// Parses a value; a condition in parentheses is refused.
    fn value(&mut self) -> Result<Operand, String> {
        let place = self.place();
        match self.sum()? {
            Node::Value(value) => Ok(value),
            Node::Test(_) => Err(at(place, "a value is expected, not a condition")),
        }
    }

    fn sum(&mut self) -> Result<Node, String> {
        let operators = [("+", Operator::Add), ("-", Operator::Subtract)];
        self.chain(&operators, Parser::product)
    }

    fn product(&mut self) -> Result<Node, String> {
        let operators =
            [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Modulo)];
        self.chain(&operators, Parser::signed)
    }

    /// Parses values joined by operators of equal precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        part: fn(&mut Parser) -> Result<Node, String>,
    ) -> Result<Node, String> {
        let place = self.place();
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.is_symbol(symbol))
        {
            self.take();
            let place = self.place();
            match part(self)? {
                Node::Value(value) => rest.push((*operator, value)),
                Node::Test(_) => return Err(at(place, "a value is expected, not a condition")),
            }
        }
        match first {
            first if rest.is_empty() => Ok(first),
            Node::Value(first) => Ok(Node::Value(Operand::Arithmetic(Box::new(first), rest))),
            Node::Test(_) => Err(at(place, "a value is expected, not a condition")),
        }
    }

    fn signed(&mut self) -> Result<Node, String> {
        if !self.takes_symbol("-") {
            return self.primary();
        }
        let place = self.place();
        match self.deeper(Parser::signed)? {
            Node::Value(Operand::Constant(Value::Int(number))) => {
                Ok(Node::Value(Operand::Constant(Value::Int(-number))))
            }
            Node::Value(Operand::Constant(Value::Float(number))) => {
                Ok(Node::Value(Operand::Constant(Value::Float(-number))))
            }
            Node::Value(value) => {
                let zero = Box::new(Operand::Constant(Value::Int(0)));
                Ok(Node::Value(Operand::Arithmetic(zero, vec![(Operator::Subtract, value)])))
            }
            Node::Test(_) => Err(at(place, "a value is expected, not a condition")),
        }
    }

    fn primary(&mut self) -> Result<Node, String> {
        let place = self.place();
        if self.takes_symbol("(") {
            let inner = self.deeper(Parser::any)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.is_call("META") {
            return self.meta().map(Node::Value);
        }
        if self.is_call("DATE") {
            return self.date().map(Node::Value);
        }
        let word = match self.take() {
            Token::Int(number) => return Ok(constant(Value::Int(number))),
            Token::Float(number) => return Ok(constant(Value::Float(number))),
            Token::Text(text) => return Ok(constant(Value::string(text))),
            Token::Quoted(name) => return self.path(name),
            Token::Word(word) => word,
            _ => return Err(at(place, "a value is expected")),
        };
        if word.eq_ignore_ascii_case("TRUE") || word.eq_ignore_ascii_case("FALSE") {
            return Ok(constant(Value::Bool(word.eq_ignore_ascii_case("TRUE"))));
        }
        if *self.peek() == Token::Symbol("(") {
            return self.call(&word, place).map(Node::Value);
        }
        check_name(&word, place)?;
        self.path(word)
    }

    /// Parses the rest of a path that begins with `name`.
    fn path(&mut self, name: String) -> Result<Node, String> {
        self.looks_at.body = true;
        let steps = self.steps(vec![Step::Field(name.into())])?;
        Ok(Node::Value(Operand::Path(Root::Body, steps)))
    }

    fn steps(&mut self, mut steps: Vec<Step>) -> Result<Vec<Step>, String> {
        loop {
            if self.takes_symbol(".") {
                steps.push(Step::Field(self.name()?.into()));
            } else if self.takes_symbol("[") {
                match (self.peek().clone(), self.place()) {
                    (Token::Int(index), _) if index >= 0 => steps.push(Step::Element(index)),
                    (_, place) => {
                        return Err(at(place, "the index must be a whole number from 0"));
                    }
                }
                self.take();
                self.expect("]")?;
            } else {
                return Ok(steps);
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let place = self.place();
        match self.take() {
            Token::Quoted(name) => Ok(name),
            Token::Word(name) => check_name(&name, place).map(|()| name),
            _ => Err(at(place, "a name is expected")),
        }
    }

    /// Parses `META().id` and `META().xattrs.name`.
    fn meta(&mut self) -> Result<Operand, String> {
        self.next += 2;
        self.expect(")")?;
        self.expect(".")?;
        self.looks_at.meta = true;
        if self.takes_word("id") {
            return Ok(Operand::Path(Root::Key, Vec::new()));
        }
        if !self.takes_word("xattrs") {
            return self.fail("only id and xattrs are known of META()");
        }
        self.looks_at.attributes = true;
        if !self.takes_symbol(".") {
            return self.fail("a name is expected");
        }
        let attribute = self.name()?;
        let steps = self.steps(Vec::new())?;
        Ok(Operand::Path(Root::Attribute(attribute), steps))
    }

    fn date(&mut self) -> Result<Operand, String> {
        self.next += 2;
        let place = self.place();
        let of = self.deeper(Parser::value)?;
        self.expect(")")?;
        if let Operand::Constant(constant) = &of
            && constant.as_str().and_then(instant).is_none()
        {
            return Err(at(
                place,
                "a date such as \"2026-01-31\" or \"2026-01-31T08:00:00Z\" is expected",
            ));
        }
        Ok(Operand::Date(Box::new(of)))
    }

    fn call(&mut self, name: &str, place: usize) -> Result<Operand, String> {
        let known = FUNCTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let function = functions::find(name);
        let (Some((known, count)), Some(function)) = (known, function) else {
            return Err(at(place, &format!("{name} is not a function of filters")));
        };
        self.take();
        let mut arguments = Vec::new();
        while *self.peek() != Token::Symbol(")") {
            arguments.push(self.deeper(Parser::value)?);
            if !self.takes_symbol(",") {
                break;
            }
        }
        self.expect(")")?;
        if arguments.len() != *count {
            let takes = match count {
                0 => "no arguments".to_owned(),
                1 => "1 argument".to_owned(),
                count => format!("{count} arguments"),
            };
            return Err(at(place, &format!("{known} takes {takes}")));
        }
        Ok(Operand::Call(function, arguments))
    }
}

fn constant(value: Value) -> Node {
    Node::Value(Operand::Constant(value))
}

/// Refuses keywords as names; they need backticks.
fn check_name(word: &str, place: usize) -> Result<(), String> {
    let is_reserved = RESERVED.iter().any(|known| known.eq_ignore_ascii_case(word))
        || word.eq_ignore_ascii_case("TRUE");
    match is_reserved {
        true => Err(at(place, &format!("write {word} in backticks if it is a name"))),
        false => Ok(()),
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .backtrack_limit(BACKTRACKS_MAX)
        .delegate_size_limit(REGEX_BYTES_MAX)
        .delegate_dfa_size_limit(REGEX_BYTES_MAX)
        .build()
        .map_err(|error| error.to_string())
}
