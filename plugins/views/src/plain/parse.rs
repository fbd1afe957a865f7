//! Parses the text of a map function, if it uses supported forms only.
//!
//! An engine has accepted the text now or earlier, so it is valid JavaScript; the parser rejects everything that it does not
//! support. The tokenizer distinguishes all tokens of the language. A line break ends a statement only if the next token cannot
//! continue the statement. The parser therefore gives no text another meaning than JavaScript does.

use super::is_placed;

/// Maximum nesting depth of expressions and statements.
const DEPTH_MAX: usize = 48;
/// Maximum number of expressions in a function. A long chain of operators nests equally deep, without recursion in the
/// parser.
const EXPRESSIONS_MAX: usize = 256;

/// An expression.
#[derive(Debug, PartialEq)]
pub enum Expression {
    Nothing,
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    /// A parameter or a variable.
    Slot(usize),
    /// A member with a name that no object inherits.
    Member(Box<Expression>, String),
    /// A member whose name or index is computed at run time.
    Item(Box<[Expression; 2]>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    TypeOf(Box<Expression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Binary(Operator, Box<[Expression; 2]>),
    Choice(Box<[Expression; 3]>),
    List(Vec<Expression>),
    Object(Vec<(String, Expression)>),
    /// `emit(key, value)`.
    Emit(Box<[Expression; 2]>),
    /// `array.forEach(function)`.
    ForEach(Box<Each>),
}

/// A loop over values.
#[derive(Debug, PartialEq)]
pub struct Each {
    pub of: Expression,
    /// The values that the slots receive: items and their indexes, or names.
    pub gives: LoopSource,
    pub slots: Vec<usize>,
    pub steps: Vec<Step>,
}

/// The values that a loop iterates over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopSource {
    /// Items of an array, and their indexes.
    Items,
    /// Names of the members of an object, or indexes of an array, as text.
    Names,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Same,
    NotSame,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A statement.
#[derive(Debug, PartialEq)]
pub enum Step {
    Do(Expression),
    Set(usize, Expression),
    If(Expression, Vec<Step>, Vec<Step>),
    /// `for (… of …)` and `for (… in …)`.
    Each(Each),
    /// `for (slot = …; …; slot++)`.
    Count {
        slot: usize,
        from: Expression,
        condition: Expression,
        steps: Vec<Step>,
    },
    Return,
}

/// Properties that objects, arrays and texts inherit, except `length`: methods, and properties that lead to them.
const INHERITED: &[&str] = &[
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// Names that may be declared, but have a special meaning in at least some contexts. The engine has rejected other
/// reserved names.
const RESERVED: &[&str] = &[
    "arguments",
    "async",
    "await",
    "emit",
    "eval",
    "get",
    "implements",
    "interface",
    "let",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "set",
    "static",
    "undefined",
    "yield",
];

/// Line terminators.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

/// Tokens that are punctuators, longer ones first.
const SIGNS: &[&str] = &[
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=",
    "<=", ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=",
    "<<", ">>", "**", "{", "}", "(", ")", "[", "]", ";", ",", "<", ">", "+", "-", "*", "/", "%",
    "&", "|", "^", "!", "~", "?", ":", "=", ".",
];

/// Returns true if only the object itself can have a property with this name.
pub fn is_own(name: &str) -> bool {
    !INHERITED.contains(&name)
}

/// A parsed function.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub steps: Vec<Step>,
    /// Number of parameters, which occupy the first slots.
    pub parameter_count: usize,
    /// Number of parameters and variables.
    pub slot_count: usize,
}

/// Parses a function.
pub fn function(source: &str) -> Option<Function> {
    let mut reader = Reader {
        tokens: tokens(source)?,
        at: 0,
        names: Vec::new(),
        slot_count: 0,
        depth: 0,
        expressions: 0,
    };
    reader.parameters()?;
    let parameter_count = reader.slot_count;
    let steps = reader.body()?;
    let slot_count = reader.slot_count;
    reader.is_over().then_some(Function { steps, parameter_count, slot_count })
}

#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(String),
    Number(f64),
    Sign(&'static str),
}

/// A token, and whether it is the first on its line.
type Placed<'a> = (Token<'a>, bool);

fn tokens(source: &str) -> Option<Vec<Placed<'_>>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut tokens = Vec::new();
    let (mut rest, mut begins_line) = (source, false);
    while let Some(first) = rest.chars().next() {
        let mut length = first.len_utf8();
        let second = rest[length..].chars().next();
        let mut token = None;
        match (first, second) {
            (' ' | '\t' | '\u{b}' | '\u{c}', _) => {}
            ('\n' | '\r', _) => begins_line = true,
            ('/', Some('/')) => length = rest.find(LINE_ENDS).unwrap_or(rest.len()),
            ('/', Some('*')) => {
                length = rest[2..].find("*/")? + 4;
                begins_line |= rest[..length].contains(LINE_ENDS);
            }
            ('"' | '\'', _) => {
                let (text, end) = string(rest, first)?;
                length = end;
                token = Some(Token::Text(text));
            }
            ('0'..='9', _) | ('.', Some('0'..='9')) => {
                let (number, end) = number(rest)?;
                length = end;
                token = Some(Token::Number(number));
            }
            (c, _) if is_part(c) => {
                length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                token = Some(Token::Word(&rest[..length]));
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
                length = sign.len();
                token = Some(Token::Sign(sign));
            }
        }
        rest = &rest[length..];
        if let Some(token) = token {
            tokens.push((token, std::mem::take(&mut begins_line)));
        }
    }
    Some(tokens)
}

/// Returns the contents of a string literal, and its end.
fn string(source: &str, quote: char) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = source.char_indices().skip(1);
    loop {
        match chars.next()? {
            (at, c) if c == quote => return Some((text, at + 1)),
            (_, '\\') => text.push(match chars.next()?.1 {
                c @ ('\\' | '/' | '\'' | '"') => c,
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                _ => return None,
            }),
            (_, '\n' | '\r') => return None,
            (_, c) => text.push(c),
        }
    }
}

/// Returns a decimal number, and its end.
fn number(source: &str) -> Option<(f64, usize)> {
    let bytes = source.as_bytes();
    let digits =
        |from: usize| from + bytes[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut end = digits(0);
    if end > 1 && bytes[0] == b'0' {
        return None;
    }
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent_end = digits(end + 1 + sign);
        if exponent_end == end + 1 + sign {
            return None;
        }
        end = exponent_end;
    }
    let is_over =
        |c: &u8| !c.is_ascii_alphanumeric() && !matches!(c, b'_' | b'$' | b'\\') && c.is_ascii();
    if !bytes.get(end).is_none_or(is_over) {
        return None;
    }
    Some((source[..end].parse().ok()?, end))
}

struct Reader<'a> {
    tokens: Vec<Placed<'a>>,
    at: usize,
    /// The names in scope, with their slots.
    names: Vec<(&'a str, usize)>,
    slot_count: usize,
    depth: usize,
    expressions: usize,
}

impl<'a> Reader<'a> {
    fn is_over(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some((Token::Sign(own), _)) if *own == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.take(sign).then_some(())
    }

    fn word(&self) -> Option<&'a str> {
        match self.tokens.get(self.at) {
            Some((Token::Word(word), _)) => Some(word),
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is = self.word() == Some(word);
        self.at += usize::from(is);
        is
    }

    fn begins_line(&self) -> bool {
        self.tokens.get(self.at).is_none_or(|(_, begins_line)| *begins_line)
    }

    /// Calls `read` one nesting level deeper.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Declares a name that is not in scope yet. Returns its slot.
    fn declare(&mut self) -> Option<usize> {
        let name = self.word()?;
        if RESERVED.contains(&name) || self.names.iter().any(|(own, _)| *own == name) {
            return None;
        }
        self.at += 1;
        self.names.push((name, self.slot_count));
        self.slot_count += 1;
        Some(self.slot_count - 1)
    }

    /// `function name(a, b)`, `(a, b) =>` or `a =>`.
    fn parameters(&mut self) -> Option<()> {
        let is_arrow = !self.take_word("function");
        if is_arrow && !self.is("(") {
            self.declare()?;
            return self.expect("=>");
        }
        if let Some(own_name) = self.word() {
            // This name is in scope inside the function.
            if own_name == "emit" {
                return None;
            }
            self.at += 1;
        }
        self.expect("(")?;
        while !self.take(")") {
            self.declare()?;
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        if is_arrow { self.expect("=>") } else { self.is("{").then_some(()) }
    }

    fn body(&mut self) -> Option<Vec<Step>> {
        match self.is("{") {
            true => self.block(),
            false => Some(vec![Step::Do(self.expression()?)]),
        }
    }

    fn block(&mut self) -> Option<Vec<Step>> {
        self.expect("{")?;
        let (seen, mut steps) = (self.names.len(), Vec::new());
        while !self.take("}") {
            self.statement(&mut steps)?;
        }
        // This applies even to `var`: the parser does not track which paths assign a variable.
        self.names.truncate(seen);
        Some(steps)
    }

    fn statement(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        self.nested(|reader| match reader.word() {
            None if reader.is("{") => {
                steps.extend(reader.block()?);
                Some(())
            }
            None if reader.take(";") => Some(()),
            Some("if") => {
                reader.at += 1;
                reader.expect("(")?;
                let condition = reader.expression()?;
                reader.expect(")")?;
                let then = reader.branch()?;
                let otherwise =
                    if reader.take_word("else") { reader.branch()? } else { Vec::new() };
                steps.push(Step::If(condition, then, otherwise));
                Some(())
            }
            Some("for") => {
                let seen = reader.names.len();
                let step = reader.for_loop()?;
                steps.push(step);
                reader.names.truncate(seen);
                Some(())
            }
            Some("return") => {
                reader.at += 1;
                if !(reader.begins_line() || reader.is(";") || reader.is("}")) {
                    steps.push(Step::Do(reader.expression()?));
                }
                steps.push(Step::Return);
                reader.end_of_statement()
            }
            Some("var" | "let" | "const") => {
                reader.at += 1;
                loop {
                    // The initializer cannot see the name.
                    let slot = reader.declare()?;
                    let (name, _) = reader.names.pop()?;
                    reader.expect("=")?;
                    let value = reader.expression()?;
                    reader.names.push((name, slot));
                    steps.push(Step::Set(slot, value));
                    if !reader.take(",") {
                        return reader.end_of_statement();
                    }
                }
            }
            _ => {
                steps.push(Step::Do(reader.expression()?));
                reader.end_of_statement()
            }
        })
    }

    fn for_loop(&mut self) -> Option<Step> {
        self.at += 1;
        self.expect("(")?;
        let is_constant = self.take_word("const");
        if !(is_constant || self.take_word("var") || self.take_word("let")) {
            return None;
        }
        let slot = self.declare()?;
        let gives = match self.word() {
            Some("of") => LoopSource::Items,
            Some("in") => LoopSource::Names,
            _ if is_constant => return None,
            _ => return self.count(slot),
        };
        self.at += 1;
        // The iterated expression cannot see the name.
        let name = self.names.pop()?;
        let of = self.expression()?;
        self.names.push(name);
        self.expect(")")?;
        Some(Step::Each(Each { of, gives, slots: vec![slot], steps: self.branch()? }))
    }

    /// Parses the rest of a loop after `for (var slot`.
    fn count(&mut self, slot: usize) -> Option<Step> {
        self.expect("=")?;
        let name = self.names.pop()?;
        let from = self.expression()?;
        self.names.push(name);
        self.expect(";")?;
        let condition = self.expression()?;
        self.expect(";")?;
        let (name, _) = name;
        let adds_one = if self.take("++") {
            self.take_word(name)
        } else {
            self.take_word(name) && self.take("++")
        };
        self.expect(")")?;
        let steps = self.branch()?;
        adds_one.then_some(Step::Count { slot, from, condition, steps })
    }

    /// Parses the rest of a call after `array.forEach`.
    fn for_each(&mut self, of: Expression) -> Option<Expression> {
        self.expect("(")?;
        let (seen, first) = (self.names.len(), self.slot_count);
        self.parameters()?;
        let slots: Vec<_> = (first..self.slot_count).collect();
        let steps = self.nested(Self::body)?;
        self.names.truncate(seen);
        self.expect(")")?;
        // A third parameter would be the array.
        let each = Each { of, gives: LoopSource::Items, slots, steps };
        (each.slots.len() <= 2).then(|| Expression::ForEach(Box::new(each)))
    }

    fn branch(&mut self) -> Option<Vec<Step>> {
        let (seen, mut steps) = (self.names.len(), Vec::new());
        self.statement(&mut steps)?;
        self.names.truncate(seen);
        Some(steps)
    }

    fn end_of_statement(&mut self) -> Option<()> {
        (self.take(";") || self.is("}") || self.begins_line()).then_some(())
    }

    fn expression(&mut self) -> Option<Expression> {
        self.nested(|reader| {
            let condition = reader.binary(0)?;
            if !reader.take("?") {
                return Some(condition);
            }
            let then = reader.expression()?;
            reader.expect(":")?;
            let otherwise = reader.expression()?;
            reader.counted(Expression::Choice(Box::new([condition, then, otherwise])))
        })
    }

    fn counted(&mut self, expression: Expression) -> Option<Expression> {
        self.expressions += 1;
        (self.expressions <= EXPRESSIONS_MAX).then_some(expression)
    }

    /// Parses operators that bind more tightly than `floor`.
    fn binary(&mut self, floor: u8) -> Option<Expression> {
        let mut left = self.unary()?;
        loop {
            let Some((Token::Sign(sign), _)) = self.tokens.get(self.at) else { return Some(left) };
            let Some(strength) = strength(sign).filter(|strength| *strength > floor) else {
                return Some(left);
            };
            let sign = *sign;
            self.at += 1;
            let right = self.nested(|reader| reader.binary(strength))?;
            let both = Box::new([left, right]);
            left = self.counted(match sign {
                "&&" => Expression::And(both),
                "||" => Expression::Or(both),
                sign => Expression::Binary(operator(sign)?, both),
            })?;
        }
    }

    fn unary(&mut self) -> Option<Expression> {
        let make = match (self.tokens.get(self.at)?, self.word()) {
            ((Token::Sign("!"), _), _) => Expression::Not,
            ((Token::Sign("-"), _), _) => Expression::Negative,
            (_, Some("typeof")) => Expression::TypeOf,
            _ => return self.postfix(),
        };
        self.at += 1;
        let of = self.nested(Self::unary)?;
        self.counted(make(Box::new(of)))
    }

    fn postfix(&mut self) -> Option<Expression> {
        let mut value = self.primary()?;
        loop {
            if self.take(".") {
                let name = self.word().filter(|name| is_own(name))?;
                self.at += 1;
                if name == "forEach" && self.is("(") {
                    value = self.for_each(value)?;
                    continue;
                }
                value = self.counted(Expression::Member(Box::new(value), name.to_owned()))?;
            } else if self.take("[") {
                let name = self.expression()?;
                self.expect("]")?;
                value = self.counted(match name {
                    Expression::Text(name) if is_own(&name) => {
                        Expression::Member(Box::new(value), name)
                    }
                    name => Expression::Item(Box::new([value, name])),
                })?;
            } else {
                // `emit` is the only function that can be called.
                return (!self.is("(")).then_some(value);
            }
        }
    }

    fn primary(&mut self) -> Option<Expression> {
        let (token, _) = self.tokens.get(self.at)?.clone();
        self.at += 1;
        let value = match token {
            Token::Number(number) => Expression::Number(number),
            Token::Text(text) => Expression::Text(text),
            Token::Word("null") => Expression::Null,
            Token::Word("undefined") => Expression::Nothing,
            Token::Word("true") => Expression::Bool(true),
            Token::Word("false") => Expression::Bool(false),
            Token::Word("emit") => self.emit()?,
            Token::Word(word) => {
                let (_, slot) = self.names.iter().find(|(name, _)| *name == word)?;
                Expression::Slot(*slot)
            }
            Token::Sign("(") => {
                let value = self.expression()?;
                self.expect(")")?;
                value
            }
            Token::Sign("[") => {
                let mut items = Vec::new();
                while !self.take("]") {
                    items.push(self.expression()?);
                    if !self.is("]") {
                        self.expect(",")?;
                    }
                }
                Expression::List(items)
            }
            Token::Sign("{") => self.object()?,
            Token::Sign(_) => return None,
        };
        self.counted(value)
    }

    fn emit(&mut self) -> Option<Expression> {
        self.expect("(")?;
        let mut arguments = [Expression::Nothing, Expression::Nothing];
        for argument in &mut arguments {
            if !self.is(")") {
                *argument = self.expression()?;
                if !self.is(")") {
                    self.expect(",")?;
                }
            }
        }
        self.expect(")")?;
        Some(Expression::Emit(Box::new(arguments)))
    }

    fn object(&mut self) -> Option<Expression> {
        let mut members: Vec<(String, Expression)> = Vec::new();
        while !self.take("}") {
            let (token, _) = self.tokens.get(self.at)?.clone();
            self.at += 1;
            let (name, is_word) = match token {
                Token::Word(word) => (word.to_owned(), true),
                Token::Text(text) => (text, false),
                _ => return None,
            };
            let before: Vec<&str> = members.iter().map(|(own, _)| own.as_str()).collect();
            if !is_placed(&name, &before) {
                return None;
            }
            let value = if self.take(":") {
                self.expression()?
            } else {
                let (_, slot) = self.names.iter().find(|(own, _)| is_word && *own == name)?;
                Expression::Slot(*slot)
            };
            members.push((name, value));
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Some(Expression::Object(members))
    }
}

/// Returns the binding strength of an operator.
fn strength(sign: &str) -> Option<u8> {
    Some(match sign {
        "||" => 1,
        "&&" => 2,
        "===" | "!==" | "==" | "!=" => 3,
        "<" | "<=" | ">" | ">=" => 4,
        "+" | "-" => 5,
        "*" | "/" | "%" => 6,
        _ => return None,
    })
}

fn operator(sign: &str) -> Option<Operator> {
    Some(match sign {
        "===" => Operator::Same,
        "!==" => Operator::NotSame,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Remainder,
        _ => return None,
    })
}
