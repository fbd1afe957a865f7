//! Executes a map function for one document.
//!
//! Every function here returns `None` if only the engine can compute the result.

use super::parse::{Each, Expression, Function, LoopSource, Operator, Step, is_own};
use super::{Document, json};
use crate::meta::Meta;
use nacre_js::{Emitted, Limits};
use std::borrow::Cow;
use std::rc::Rc;

/// Maximum length of a text that this module creates.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of bytes that a call reads, counting repeated reads. Beyond it the engine is faster, because it parses a document once.
const LOOKED_MAX: usize = 1 << 20;
/// Initial capacity for the JSON of a key or value, in bytes.
const JSON_BYTES_EXPECTED: usize = 64;
/// Number of bytes that an iteration of a loop counts as.
const TURN_BYTES: usize = 64;

/// A JavaScript value.
#[derive(Clone)]
pub enum Value<'a> {
    Nothing,
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    /// An array within the document, as its JSON.
    Array(&'a str),
    /// An object within the document, as its JSON.
    Object(&'a str),
    Document,
    Meta,
    /// An array that the function creates.
    List(Rc<[Value<'a>]>),
    /// An object that the function creates.
    Record(Rc<[(&'a str, Value<'a>)]>),
}

/// Returns what `function` emits.
pub fn emitted(
    function: &Function,
    document: &Document<'_>,
    meta: &Meta<'_>,
    limits: &Limits,
) -> Option<Vec<Emitted>> {
    let mut slots = vec![Value::Nothing; function.slot_count];
    let arguments = [Value::Document, Value::Meta];
    let parameters = slots.iter_mut().take(function.parameter_count);
    parameters.zip(arguments).for_each(|(slot, argument)| *slot = argument);
    let (emitted, emitted_bytes, looked) = (Vec::new(), 0, 0);
    let mut call = Call { document, meta, limits, slots, emitted, emitted_bytes, looked };
    call.run(&function.steps)?;
    Some(call.emitted)
}

/// True if the function has returned.
type HasReturned = bool;

struct Call<'a> {
    document: &'a Document<'a>,
    meta: &'a Meta<'a>,
    limits: &'a Limits,
    slots: Vec<Value<'a>>,
    emitted: Vec<Emitted>,
    emitted_bytes: usize,
    looked: usize,
}

impl<'a> Call<'a> {
    fn run(&mut self, steps: &'a [Step]) -> Option<HasReturned> {
        for step in steps {
            match step {
                Step::Do(expression) => drop(self.value(expression)?),
                Step::Set(slot, expression) => self.slots[*slot] = self.value(expression)?,
                Step::If(condition, then, otherwise) => {
                    let holds = is_true(&self.value(condition)?);
                    if self.run(if holds { then } else { otherwise })? {
                        return Some(true);
                    }
                }
                Step::Each(each) => {
                    if self.each(each, true)? {
                        return Some(true);
                    }
                }
                Step::Count { slot, from, condition, steps } => {
                    let Value::Number(mut count) = self.value(from)? else { return None };
                    loop {
                        self.look(TURN_BYTES)?;
                        self.slots[*slot] = Value::Number(count);
                        if !is_true(&self.value(condition)?) {
                            break;
                        }
                        if self.run(steps)? {
                            return Some(true);
                        }
                        count += 1.0;
                    }
                }
                Step::Return => return Some(true),
            }
        }
        Some(false)
    }

    fn look(&mut self, bytes: usize) -> Option<()> {
        self.looked += bytes;
        (self.looked <= LOOKED_MAX).then_some(())
    }

    /// Executes steps for each value. If `ends_all` is true, one `return` ends the whole loop.
    fn each(&mut self, each: &'a Each, ends_all: bool) -> Option<HasReturned> {
        let names = |names: Vec<&'a str>| names.into_iter().map(|name| Value::Text(name.into()));
        let values: Vec<_> = match (self.value(&each.of)?, each.gives) {
            (Value::Array(array), gives) => {
                self.look(array.len())?;
                let place = |place: usize| Value::Text(place.to_string().into());
                match gives {
                    LoopSource::Items => {
                        json::items(array).map(json::value).collect::<Option<_>>()?
                    }
                    LoopSource::Names => (0..json::items(array).count()).map(place).collect(),
                }
            }
            (Value::Object(object), LoopSource::Names) => {
                self.look(object.len())?;
                names(Document::read(object, usize::MAX)?.names()?).collect()
            }
            (Value::Document, LoopSource::Names) => names(self.document.names()?).collect(),
            _ => return None,
        };
        for (place, value) in values.into_iter().enumerate() {
            self.look(TURN_BYTES)?;
            for (slot, value) in each.slots.iter().zip([value, Value::Number(place as f64)]) {
                self.slots[*slot] = value;
            }
            if self.run(&each.steps)? && ends_all {
                return Some(true);
            }
        }
        Some(false)
    }

    fn value(&mut self, expression: &'a Expression) -> Option<Value<'a>> {
        Some(match expression {
            Expression::Nothing => Value::Nothing,
            Expression::Null => Value::Null,
            Expression::Bool(value) => Value::Bool(*value),
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::Text(text.into()),
            Expression::Slot(slot) => {
                let value = self.slots[*slot].clone();
                if let Value::Text(Cow::Owned(copied)) = &value {
                    self.look(copied.len())?;
                }
                value
            }
            Expression::Member(of, name) => {
                let of = self.value(of)?;
                self.member(&of, name)?
            }
            Expression::Item(of) => {
                let [of, name] = &**of;
                let (of, name) = (self.value(of)?, self.value(name)?);
                match (&of, &name) {
                    (Value::Array(array), Value::Number(place)) => self.item(array, *place)?,
                    (Value::Array(array), Value::Text(place)) => {
                        let number: u32 = place.parse().ok()?;
                        // Any other text is the name of a property.
                        if number.to_string() != *place {
                            return None;
                        }
                        self.item(array, number.into())?
                    }
                    (_, Value::Text(name)) if is_own(name) => self.member(&of, name)?,
                    _ => return None,
                }
            }
            Expression::Not(of) => Value::Bool(!is_true(&self.value(of)?)),
            Expression::Negative(of) => match self.value(of)? {
                Value::Number(number) => Value::Number(-number),
                _ => return None,
            },
            Expression::TypeOf(of) => Value::Text(type_of(&self.value(of)?).into()),
            Expression::And(both) => {
                let left = self.value(&both[0])?;
                if is_true(&left) { self.value(&both[1])? } else { left }
            }
            Expression::Or(both) => {
                let left = self.value(&both[0])?;
                if is_true(&left) { left } else { self.value(&both[1])? }
            }
            Expression::Binary(operator, both) => {
                let (left, right) = (self.value(&both[0])?, self.value(&both[1])?);
                if let (Value::Text(left), Value::Text(right)) = (&left, &right) {
                    self.look(left.len() + right.len())?;
                }
                binary(*operator, left, right)?
            }
            Expression::Choice(of) => {
                let [condition, then, otherwise] = &**of;
                let holds = is_true(&self.value(condition)?);
                self.value(if holds { then } else { otherwise })?
            }
            Expression::List(items) => {
                let items =
                    items.iter().map(|item| self.value(item)).collect::<Option<Vec<_>>>()?;
                Value::List(items.into())
            }
            Expression::Object(members) => {
                let member = |(name, value): &'a (String, Expression)| {
                    Some((name.as_str(), self.value(value)?))
                };
                Value::Record(members.iter().map(member).collect::<Option<Vec<_>>>()?.into())
            }
            Expression::ForEach(each) => {
                self.each(each, false)?;
                Value::Nothing
            }
            Expression::Emit(both) => {
                let (key, value) = (self.value(&both[0])?, self.value(&both[1])?);
                self.emit(&key, &value)?;
                Value::Nothing
            }
        })
    }

    /// Returns the value of a part of the document.
    fn part(&mut self, json: Option<&'a str>) -> Option<Value<'a>> {
        let Some(json) = json else { return Some(Value::Nothing) };
        if json.starts_with('"') {
            self.look(json.len())?;
        }
        json::value(json)
    }

    fn item(&mut self, array: &'a str, place: f64) -> Option<Value<'a>> {
        let is_place = place >= 0.0 && place.trunc() == place && place < f64::from(u32::MAX);
        if !is_place {
            return None;
        }
        self.look(array.len())?;
        self.part(json::items(array).nth(place as usize))
    }

    fn member(&mut self, of: &Value<'a>, name: &str) -> Option<Value<'a>> {
        match of {
            Value::Document => {
                self.look(self.document.members.len())?;
                self.part(self.document.member(name))
            }
            Value::Object(object) => {
                self.look(object.len())?;
                self.part(Document::read(object, usize::MAX)?.member(name))
            }
            Value::Array(array) if name == "length" => {
                self.look(array.len())?;
                Some(Value::Number(json::items(array).count() as f64))
            }
            Value::Text(text) if name == "length" => {
                self.look(text.len())?;
                Some(Value::Number(text.encode_utf16().count() as f64))
            }
            Value::Meta => Some(match name {
                "id" => Value::Text(Cow::Borrowed(&self.meta.id)),
                "rev" => Value::Text(self.meta.rev().into()),
                "seq" => Value::Number(self.meta.seq()),
                "vb" => Value::Number(self.meta.vb()),
                "expiration" => Value::Number(self.meta.expiration()),
                "flags" => Value::Number(self.meta.flags()),
                "type" => Value::Text(self.meta.kind().into()),
                _ => Value::Nothing,
            }),
            _ => None,
        }
    }

    fn emit(&mut self, key: &Value<'a>, value: &Value<'a>) -> Option<()> {
        let (key, value) = (self.json(key)?, self.json(value)?);
        self.emitted_bytes += key.len() + value.len();
        if key.len() > self.limits.emit_key_bytes_max
            || self.emitted_bytes > self.limits.emit_bytes_max
        {
            return None;
        }
        self.emitted.push(Emitted { key, value });
        Some(())
    }

    fn json(&mut self, value: &Value<'a>) -> Option<String> {
        let mut out = String::with_capacity(JSON_BYTES_EXPECTED);
        match value {
            Value::Text(text) => nacre_js::quote(text, &mut out),
            value => self.write(value, &mut out)?,
        }
        Some(out)
    }

    fn write_json(&mut self, json: &str, out: &mut String) -> Option<()> {
        self.look(json.len())?;
        json::write_json(json, out)
    }

    /// Appends a value in the format of `JSON.stringify`.
    fn write(&mut self, value: &Value<'a>, out: &mut String) -> Option<()> {
        match value {
            Value::Nothing | Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) => json::write_number(*number, out)?,
            // `JSON.stringify` writes these in a shorter form.
            Value::Text(text) if text.contains(['\u{8}', '\u{c}']) => return None,
            Value::Text(text) => nacre_js::quote(text, out),
            Value::Array(json) | Value::Object(json) => self.write_json(json, out)?,
            Value::Document => self.write_json(self.document.text, out)?,
            Value::Meta => return None,
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.write(item, out)?;
                }
                out.push(']');
            }
            Value::Record(members) => {
                out.push('{');
                let said = members.iter().filter(|(_, value)| !matches!(value, Value::Nothing));
                for (index, (name, value)) in said.enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.write(&Value::Text(Cow::Borrowed(name)), out)?;
                    out.push(':');
                    self.write(value, out)?;
                }
                out.push('}');
            }
        }
        Some(())
    }
}

fn is_true(value: &Value<'_>) -> bool {
    match value {
        Value::Nothing | Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => *number != 0.0 && !number.is_nan(),
        Value::Text(text) => !text.is_empty(),
        _ => true,
    }
}

fn type_of(value: &Value<'_>) -> &'static str {
    match value {
        Value::Nothing => "undefined",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::Text(_) => "string",
        _ => "object",
    }
}

fn is_object(value: &Value<'_>) -> bool {
    type_of(value) == "object" && !matches!(value, Value::Null)
}

fn binary<'a>(operator: Operator, left: Value<'a>, right: Value<'a>) -> Option<Value<'a>> {
    let holds = match operator {
        Operator::Same => is_same(&left, &right)?,
        Operator::NotSame => !is_same(&left, &right)?,
        Operator::Equal => is_equal(&left, &right)?,
        Operator::NotEqual => !is_equal(&left, &right)?,
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            is_ordered(operator, &left, &right)?
        }
        _ => return calculated(operator, left, right),
    };
    Some(Value::Bool(holds))
}

/// Computes `===`. The function cannot tell whether two objects are identical.
fn is_same(left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    Some(match (left, right) {
        (Value::Nothing, Value::Nothing) | (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => left == right,
        (Value::Text(left), Value::Text(right)) => left == right,
        (left, right) if is_object(left) && is_object(right) => return None,
        _ => false,
    })
}

/// Computes `==` for values that need no conversion.
fn is_equal(left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    let is_nothing = |value: &Value<'_>| matches!(value, Value::Nothing | Value::Null);
    if is_nothing(left) || is_nothing(right) {
        return Some(is_nothing(left) && is_nothing(right));
    }
    (type_of(left) == type_of(right)).then(|| is_same(left, right))?
}

fn is_ordered(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.partial_cmp(right),
        // For other characters, the order in UTF-16 differs.
        (Value::Text(left), Value::Text(right)) if left.is_ascii() && right.is_ascii() => {
            Some(left.cmp(right))
        }
        _ => return None,
    };
    Some(order.is_some_and(|order| match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn calculated<'a>(operator: Operator, left: Value<'a>, right: Value<'a>) -> Option<Value<'a>> {
    let (left, right) = match (left, right) {
        (Value::Number(left), Value::Number(right)) => (left, right),
        (left, right) if operator == Operator::Add => {
            let mut text = String::new();
            for part in [left, right] {
                match part {
                    Value::Text(part) if text.len() + part.len() <= TEXT_BYTES_MAX => {
                        text.push_str(&part);
                    }
                    Value::Number(number) if number.is_finite() => {
                        json::write_number(number, &mut text)?;
                    }
                    _ => return None,
                }
            }
            return Some(Value::Text(text.into()));
        }
        _ => return None,
    };
    Some(Value::Number(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        _ => left % right,
    }))
}
