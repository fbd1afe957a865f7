//! Expressions evaluated row by row, as functions of the engine: for values of several kinds, and for functions of the language.

use super::native::{Computed, Native};
use super::relation::Ty;
use crate::rows;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder,
    StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Result as EngineResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use nacre_sql::ast::{Expr, Select};
use nacre_sql::{Caches, Context, Env, Host, Name, Value, eval, key};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// First double beyond the integers of 64 bits.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

/// The meaning of null in an argument, and the form of its other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value of a type; null is NULL or MISSING.
    Typed { is_missing: bool },
    /// JSON text; null is MISSING.
    Json,
}

/// The type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// True if a condition holds; null if that is unknown.
    Condition,
    /// JSON text; null for MISSING.
    Json,
    /// JSON text with sorted names: equal values have equal texts.
    Canonical,
    /// Bytes that sort like the values.
    Key,
    /// A value of this type; null for other values, which are unknown.
    Typed(Ty),
}

/// An expression as a function of columns.
#[derive(Debug)]
pub struct Evaluate {
    id: usize,
    name: String,
    signature: Signature,
    expr: Expr,
    arguments: Vec<(Name, Argument)>,
    mode: Mode,
    native: Option<Native>,
    statement_ms: i64,
}

impl Evaluate {
    /// Returns the function of an expression whose free variables are the arguments. `id` is unique within a query.
    pub fn new(
        id: usize,
        expr: Expr,
        arguments: Vec<(Name, Argument)>,
        mode: Mode,
        statement_ms: i64,
    ) -> Evaluate {
        let signature = match arguments.is_empty() {
            true => Signature::nullary(Volatility::Immutable),
            false => Signature::any(arguments.len(), Volatility::Immutable),
        };
        let native = Native::of(&expr, &arguments).filter(|_| matches!(mode, Mode::Typed(_)));
        Evaluate {
            id,
            name: format!("evaluate_{id}"),
            signature,
            expr,
            arguments,
            mode,
            native,
            statement_ms,
        }
    }
}

impl PartialEq for Evaluate {
    fn eq(&self, other: &Evaluate) -> bool {
        self.id == other.id
    }
}

impl Eq for Evaluate {}

impl Hash for Evaluate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl ScalarUDFImpl for Evaluate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(match self.mode {
            Mode::Condition => DataType::Boolean,
            Mode::Json | Mode::Canonical => DataType::Utf8View,
            Mode::Key => DataType::Binary,
            Mode::Typed(ty) => ty.data_type(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args
            .args
            .into_iter()
            .map(|argument| argument.into_array(rows))
            .collect::<EngineResult<Vec<_>>>()?;
        let (named, caches) = (BTreeMap::new(), Caches::default());
        let context = Context {
            host: &OfAnalytics,
            positional: &[],
            named: &named,
            statement_ms: self.statement_ms,
            caches: &caches,
        };
        let mut output = Output::new(self.mode, rows);
        let texts = arrays.first().and_then(|array| array.as_string_view_opt());
        for row in 0..rows {
            if let (Some(native), Some(texts)) = (self.native, texts) {
                let computed = match texts.is_null(row) {
                    true => Some(Computed::Unknown),
                    false => native.compute(texts.value(row)),
                };
                if let Some(computed) = computed {
                    output.put(computed);
                    continue;
                }
            }
            let mut env = Env::new();
            for ((name, argument), array) in self.arguments.iter().zip(&arrays) {
                env = env.with(name, value_at(array, *argument, row));
            }
            let value = eval(&self.expr, &env, &context).map_err(|error| {
                DataFusionError::External(Box::new(crate::error::Error::from(error)))
            })?;
            output.push(&value);
        }
        Ok(ColumnarValue::Array(output.finish()))
    }
}

/// Analytics functions without a plan: no queries, no time, no randomness.
struct OfAnalytics;

impl Host for OfAnalytics {
    fn subquery(
        &self,
        _: &Select,
        _: &Env,
        _: usize,
        _: &Context<'_>,
    ) -> nacre_sql::Result<Vec<Value>> {
        Err(nacre_sql::Error::new(24001, "a subquery is not possible here"))
    }

    fn call(&self, path: &[Name], args: Vec<Value>, _: &Context<'_>) -> nacre_sql::Result<Value> {
        let name = path.join(".");
        match rows::call(&name, &args, None) {
            Some(value) => value.map_err(|error| nacre_sql::Error::new(error.code, error.message)),
            None => Err(nacre_sql::Error::new(24001, format!("Cannot find function {name}"))),
        }
    }

    fn now_ms(&self) -> i64 {
        0
    }

    fn random(&self) -> u64 {
        0
    }

    fn tick(&self) -> nacre_sql::Result<()> {
        Ok(())
    }
}

/// Returns the value of an array in a row.
pub fn value_at(array: &ArrayRef, argument: Argument, row: usize) -> Value {
    if array.is_null(row) {
        return match argument {
            Argument::Typed { is_missing: false } => Value::Null,
            _ => Value::Missing,
        };
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => Value::number(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => {
            let text = array.as_string_view().value(row);
            match argument {
                Argument::Json => Value::parse(text.as_bytes()).unwrap_or_default(),
                Argument::Typed { .. } => Value::string(text),
            }
        }
        _ => Value::Missing,
    }
}

/// Returns the value with equal numbers in one form: -0 becomes 0, and integral doubles become integers.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Float(number)
            if number.fract() == 0.0 && (-INTEGERS_END..INTEGERS_END).contains(number) =>
        {
            Value::Int(*number as i64)
        }
        Value::Array(elements) => Value::array(elements.iter().map(canonical).collect()),
        Value::Object(fields) => {
            Value::object(fields.iter().map(|(name, value)| (name.clone(), canonical(value))))
        }
        other => other.clone(),
    }
}

enum Output {
    Condition(BooleanBuilder),
    Text(StringViewBuilder, bool),
    Key(BinaryBuilder),
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    String(StringViewBuilder),
}

impl Output {
    fn new(mode: Mode, rows: usize) -> Output {
        match mode {
            Mode::Condition => Output::Condition(BooleanBuilder::with_capacity(rows)),
            Mode::Json => Output::Text(StringViewBuilder::with_capacity(rows), false),
            Mode::Canonical => Output::Text(StringViewBuilder::with_capacity(rows), true),
            Mode::Key => Output::Key(BinaryBuilder::new()),
            Mode::Typed(Ty::Bool) => Output::Bool(BooleanBuilder::with_capacity(rows)),
            Mode::Typed(Ty::Int) => Output::Int(Int64Builder::with_capacity(rows)),
            Mode::Typed(Ty::Float) => Output::Float(Float64Builder::with_capacity(rows)),
            Mode::Typed(Ty::String) => Output::String(StringViewBuilder::with_capacity(rows)),
        }
    }

    fn push(&mut self, value: &Value) {
        match self {
            Output::Condition(builder) => {
                builder.append_option(value.is_known().then(|| value.truth()));
            }
            Output::Text(builder, is_canonical) => match value {
                Value::Missing => builder.append_null(),
                value if *is_canonical => builder.append_value(canonical(value).to_sorted_json()),
                value => builder.append_value(value.to_json()),
            },
            Output::Key(builder) => builder.append_value(key::encoded(value)),
            Output::Bool(builder) => builder.append_option(match value {
                Value::Bool(truth) => Some(*truth),
                _ => None,
            }),
            Output::Int(builder) => builder.append_option(value.as_i64()),
            Output::Float(builder) => builder.append_option(value.as_f64()),
            Output::String(builder) => builder.append_option(value.as_str()),
        }
    }

    fn put(&mut self, computed: Computed<'_>) {
        match (self, computed) {
            (Output::Int(builder), Computed::Int(number)) => builder.append_value(number),
            (Output::String(builder), Computed::Text(text)) => builder.append_value(text),
            (output, _) => output.push(&Value::Null),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Output::Condition(mut builder) | Output::Bool(mut builder) => {
                Arc::new(builder.finish())
            }
            Output::Text(mut builder, _) | Output::String(mut builder) => {
                Arc::new(builder.finish())
            }
            Output::Key(mut builder) => Arc::new(builder.finish()),
            Output::Int(mut builder) => Arc::new(builder.finish()),
            Output::Float(mut builder) => Arc::new(builder.finish()),
        }
    }
}
