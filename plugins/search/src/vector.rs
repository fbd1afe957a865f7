//! Vectors: how near they are, and where a segment has them.

mod cluster;
mod code;
mod file;

pub use file::{EXTENSION, VectorFile, VectorPlugin, VectorWriter, Wanted};

use base64::Engine;
use serde_json::Value;

/// How near two vectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The square of the distance; the less the nearer.
    L2,
    /// The product; the more the nearer.
    Dot,
    /// The product of vectors of length 1.
    Cosine,
}

impl Metric {
    /// The metric of a name.
    pub fn parse(name: &str) -> Option<Metric> {
        Some(match name {
            "" | "l2_norm" => Metric::L2,
            "dot_product" => Metric::Dot,
            "cosine" => Metric::Cosine,
            _ => return None,
        })
    }

    /// The score of a vector: one over the square of the distance, or the product.
    pub fn score(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Metric::L2 => {
                let distance = sum(a, b, |x, y| (x - y) * (x - y));
                if distance == 0.0 { f32::MAX } else { 1.0 / distance }
            }
            Metric::Dot | Metric::Cosine => dot(a, b),
        }
    }

    /// A vector as it is compared.
    pub fn prepare(self, vector: &mut [f32]) {
        if self == Metric::Cosine {
            let length = dot(vector, vector).sqrt();
            if length > 0.0 {
                vector.iter_mut().for_each(|number| *number /= length);
            }
        }
    }
}

/// The balance of recall against time and memory in a large segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Most of the nearest are found.
    #[default]
    Recall,
    /// Fewer vectors are compared.
    Latency,
    /// As many as for latency: all vectors are one byte a number in memory anyway.
    Memory,
}

impl Effort {
    /// The effort of a name.
    pub fn parse(name: &str) -> Option<Effort> {
        Some(match name {
            "" | "recall" => Effort::Recall,
            "latency" => Effort::Latency,
            "memory-efficient" => Effort::Memory,
            _ => return None,
        })
    }

    /// The share of the lists of a segment that are read.
    pub fn share(self) -> f32 {
        match self {
            Effort::Recall => 0.1,
            Effort::Latency | Effort::Memory => 0.03,
        }
    }
}

/// The product of two vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| x * y)
}

/// Eight sums at a time, which compilers make instructions for vectors of.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut sums, (a8, rest_a), (b8, rest_b)) =
        ([0.0_f32; 8], a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a8.iter().zip(b8) {
        for at in 0..8 {
            sums[at] += term(x[at], y[at]);
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(x, y)| term(*x, *y)).sum();
    sums.iter().sum::<f32>() + rest
}

/// The vectors of a value: one, or an array of them, two levels deep at most. `None` when a number is none or a length is another.
pub fn parse(value: &Value, dims: usize) -> Option<Vec<Vec<f32>>> {
    let elements = value.as_array()?;
    if elements.first().is_some_and(Value::is_array) {
        return elements.iter().map(|element| numbers(element, dims)).collect();
    }
    Some(vec![numbers(value, dims)?])
}

fn numbers(value: &Value, dims: usize) -> Option<Vec<f32>> {
    let numbers: Vec<f32> = value
        .as_array()?
        .iter()
        .map(|number| {
            number.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
        })
        .collect::<Option<_>>()?;
    (numbers.len() == dims || dims == 0).then_some(numbers)
}

/// The vector of a text: base64 of little-endian numbers of four bytes.
pub fn decode(text: &str) -> Option<Vec<f32>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (rest.is_empty() && numbers.iter().all(|number| number.is_finite())).then_some(numbers)
}
